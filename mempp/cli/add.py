"""`mempp add`: documents from files into a store, batch by batch."""

import os
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import mempp
from mempp.cli.interrupts import Interrupts
from mempp.cli.output import debug, one_line, say, write_json
from mempp.cli.progress import duration, meter
from mempp.cli.run import AT_FAULT, DONE, INTERRUPTED, WRONG_USAGE
from mempp.cli.sources import Fault, Found
from mempp.cli.sources.fields import Fields, Naming
from mempp.cli.sources.files import STANDARD_INPUT, FoundFiles, SourceFile
from mempp.errors import EncoderError, InputError, MemppError

if TYPE_CHECKING:
    from mempp import Adding, Memory

_BATCH_CHARACTERS = 8_000_000
"""A batch ends earlier when its texts have this many characters, so that memory stays bounded."""
_MOST_BAD_NAMED = 10
_MOST_UNKNOWN_NAMED = 5
_NO_ROW = -1

Document = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How documents are added."""

    naming: Naming
    embed: bool
    encoder: str | None
    batch_size: int
    skip_bad: bool
    quiet: bool
    as_json: bool


@dataclass
class Tally:
    """What has been done so far."""

    read: int = 0
    """Documents handed to the memory and acknowledged."""
    added: int = 0
    repeated: int = 0
    empty: int = 0
    bad: int = 0
    files: int = 0
    row_ids: "array[int]" = field(default_factory=lambda: array("q"))
    """Row of every acknowledged document, -1 for an empty one; kept only where the report is wanted as JSON."""
    stopped_by: str | None = None
    """`file:line: what` of the fault that ended the run."""

    def as_dict(self, store: str, files: FoundFiles) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "store": store,
            "added": self.added,
            "repeated": self.repeated,
            "empty": self.empty,
            "bad": self.bad,
            "files": self.files,
            "files_skipped": len(files.unknown),
            "stopped_by": self.stopped_by,
            "row_ids": [None if row == _NO_ROW else row for row in self.row_ids],
        }


def run(store: str, files: FoundFiles, wishes: Wishes) -> int:
    """Add what the files hold, tell what became of it, and return the exit code.

    Raises:
        MemppError: the store cannot be opened.
    """
    started = time.monotonic()
    if not wishes.quiet:
        _tell_files(files)
    tally = Tally()
    code = DONE
    target = _Target(store, wishes)
    try:
        # Watched to the end of closing, which waits for the encoder's call under way.
        with Interrupts(_tell_interrupted).watched() as interrupts, target:
            if not _is_new(store):
                target.open()  # what is wrong with it is told before anything is read
            _add_files(target, files, wishes, tally, interrupts)
    except _NotOpenedError as error:
        raise error.args[0] from None
    except KeyboardInterrupt:
        tally.stopped_by, code = "interrupted", INTERRUPTED
    except MemppError as error:
        debug(error)
        hint = "; --no-embed adds without vectors for now" if isinstance(error, EncoderError) else ""
        tally.stopped_by, code = f"{error}{hint}", WRONG_USAGE if isinstance(error, InputError) else AT_FAULT
    if tally.stopped_by is not None:
        code = code or AT_FAULT
        say(f"{tally.stopped_by}; {_stays(tally.added)}{_without_vectors(store, target.without_vector)}")
    elif not wishes.quiet:
        say(summary(store, tally, time.monotonic() - started))
    if wishes.as_json:
        write_json(tally.as_dict(store, files))
    return code


class _Target:
    """The store, opened when there is something to put into it, and what adds to it. A context manager."""

    def __init__(self, store: str, wishes: Wishes) -> None:
        self._store = store
        self._wishes = wishes
        self._stack = ExitStack()
        self._memory: Memory | None = None
        self._adding: Adding | None = None
        self.done: Callable[[int], None] = lambda documents: None
        """Called with the number of documents that are stored and have their vectors."""
        self.without_vector = 0
        """Where adding was broken off before some had their vectors: how many of the store have none."""

    def open(self) -> "tuple[Memory, Adding]":
        """The opened store and what adds to it.

        Raises:
            _NotOpenedError: it cannot be opened.
        """
        if self._memory is None or self._adding is None:
            try:
                self._memory = self._stack.enter_context(mempp.open(self._store, encoder=self._wishes.encoder))
            except MemppError as error:
                raise _NotOpenedError(error) from error
            self._stack.push(self._count)
            adding = self._memory.adding(embed=self._wishes.embed, done=lambda documents: self.done(documents))
            self._adding = self._stack.enter_context(adding)
        return self._memory, self._adding

    def _count(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._memory is not None and self._adding is not None and self._adding.waiting:
            with suppress(MemppError):
                self.without_vector = self._memory.stats().without_vector

    def finish(self) -> None:
        """Wait for the vectors of what was added."""
        if self._adding is not None:
            self._adding.finish()

    def __enter__(self) -> Self:
        self._stack.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


class _NotOpenedError(Exception):
    """The store could not be opened, because of the error that this one holds."""


def _is_new(store: str) -> bool:
    """Whether the store would be created; it is, once there is a document to put into it."""
    try:
        return not os.listdir(store)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return False


def _add_files(target: _Target, files: FoundFiles, wishes: Wishes, tally: Tally, interrupts: Interrupts) -> None:
    """Add batch by batch; the tally is right when this is interrupted, too."""
    work = _Work(files, wishes, tally)
    if files.files and files.files[0].path == STANDARD_INPUT and sys.stdin.isatty() and not wishes.quiet:
        say(f"reading {files.files[0].format.name} from the terminal; end with Ctrl-D")
    with meter("adding", quiet=wishes.quiet) as progress:

        def show(documents: int) -> None:
            fraction = work.fraction()
            progress.show(documents, fraction if fraction is None else fraction * documents / max(1, tally.read))

        target.done = show
        for batch in work.batches():
            memory, adding = target.open()
            adding.make_room()
            with interrupts.step():
                _add_batch(memory, adding, batch, wishes, tally)
        target.finish()
    if not wishes.quiet:
        for option in work.fields.unused():
            say(f"note: no document had the key of --map {option}")


def _add_batch(memory: "Memory", adding: "Adding", batch: list[Document], wishes: Wishes, tally: Tally) -> None:
    before = len(memory)
    try:
        report = adding.add(batch)
    except BaseException:
        # It may have been committed, and interrupted then.
        with suppress(MemppError):
            memory.refresh()
        tally.added += min(len(batch), len(memory) - before)
        raise
    tally.read += len(batch)
    tally.added += report.added
    tally.repeated += report.repeated
    tally.empty += report.empty
    if wishes.as_json:
        tally.row_ids.extend(_NO_ROW if row is None else row for row in report.row_ids)


class _Work:
    """Reads the files and cuts the stream of documents into batches."""

    def __init__(self, files: FoundFiles, wishes: Wishes, tally: Tally) -> None:
        self._files = files.files
        self._wishes = wishes
        self._tally = tally
        self.fields = Fields(wishes.naming, self._note)
        sizes = [one.size for one in files.files]
        self._total = None if None in sizes else sum(size for size in sizes if size is not None)
        self._before = 0
        self._within = 0

    def fraction(self) -> float | None:
        """The part of all bytes that has been read, where their number is known."""
        return (self._before + self._within) / self._total if self._total else None

    def batches(self) -> Iterator[list[Document]]:
        """Batches of documents, up to the first fault unless faults are to be skipped."""
        batch: list[Document] = []
        characters = 0
        for document in self._documents():
            batch.append(document)
            characters += len(str(document["text"]))
            if len(batch) >= self._wishes.batch_size or characters >= _BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
        if batch:
            yield batch

    def _documents(self) -> Iterator[Document]:
        for file in self._files:
            self._tally.files += 1
            yield from self._documents_of(file)
            if self._tally.stopped_by is not None:
                return
            self._before += file.size or 0
            self._within = 0

    def _documents_of(self, file: SourceFile) -> Iterator[Document]:
        for item in file.read():
            self._within = item.position
            document = self._usable(item)
            if isinstance(document, Fault):
                if not self._wishes.skip_bad:
                    self._tally.stopped_by = f"{document.place}: {document.reason}"
                    return
                self._skip(document)
            else:
                yield document

    def _usable(self, item: Found | Fault) -> Document | Fault:
        if isinstance(item, Fault):
            return item
        try:
            return self.fields.document(item)
        except InputError as error:
            return Fault(item.place, str(error), item.position)

    def _skip(self, fault: Fault) -> None:
        self._tally.bad += 1
        if self._wishes.quiet or self._tally.bad > _MOST_BAD_NAMED:
            return
        say(f"skipped: {fault.place}: {fault.reason}")
        if self._tally.bad == _MOST_BAD_NAMED:
            say("skipped: further ones are counted, not named")

    def _note(self, message: str) -> None:
        if not self._wishes.quiet:
            say(f"note: {message}")


def _tell_interrupted() -> None:
    say("ending with the batch at hand; Ctrl-C again does not wait")


def _tell_files(files: FoundFiles) -> None:
    """Name, once, what was found in folders and is not read."""
    for store in files.stores:
        say(f"note: {store} is a Mem++ store; not read")
    if files.unknown:
        named = ", ".join(one_line(path) for path in files.unknown[:_MOST_UNKNOWN_NAMED])
        more = len(files.unknown) - _MOST_UNKNOWN_NAMED
        rest = f" and {more:,} more" if more > 0 else ""
        plural = "file" if len(files.unknown) == 1 else "files"
        say(f"note: {len(files.unknown):,} {plural} of unknown format not read: {named}{rest} (see --format)")


def _stays(added: int) -> str:
    if not added:
        return "nothing was added"
    return f"{_documents(added)} added before {'stays' if added == 1 else 'stay'}"


def _without_vectors(store: str, waiting: int) -> str:
    """What to say of documents that were stored and not embedded."""
    return f"; {_documents(waiting)} without vectors, which `mempp embed {store}` makes" if waiting else ""


def _documents(count: int) -> str:
    return "1 document" if count == 1 else f"{count:,} documents"


def summary(store: str, tally: Tally, seconds: float) -> str:
    """What was done, in one sentence."""
    details = []
    if tally.repeated:
        details.append(f"{tally.repeated:,} were there already")
    if tally.empty:
        details.append(f"{tally.empty:,} empty")
    if tally.bad:
        details.append(f"{tally.bad:,} bad, skipped")
    suffix = f" ({', '.join(details)})" if details else ""
    if not tally.added:
        return f"nothing new for {store}{suffix or ': no documents found'}"
    return f"added {_documents(tally.added)} to {store} in {duration(seconds)}{suffix}"
