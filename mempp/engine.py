"""An opened store and everything derived from it, kept in step: log, projection, vectors, caches.

`Memory` is the public face of it. Writers take turns; a thread that asks takes a view of the projection and needs no
turn.
"""

import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import get_args

from mempp.caching import Caches
from mempp.content_keys import Repeats
from mempp.dates import DateLike, to_microseconds
from mempp.embedding import Embedder, is_none
from mempp.encoders import Encoder, resolve_encoder
from mempp.errors import InputError, MemppError, StoreClosedError, StoreReadOnlyError, quoted
from mempp.progress import Progress
from mempp.projection import Projection
from mempp.recall import Indexes
from mempp.settings import Settings, check_choice, from_environment, layered
from mempp.storage import Entry, Store, digest_of


def check_options(
    encoder: str | Path | Encoder | None, settings: Settings | None, repeats: Repeats, exact_up_to: int
) -> str | Path | Encoder | None:
    """Check what a memory is opened with, and give the encoder back: an object where one was named.

    Raises:
        InputError: one of them is not usable.
    """
    check_choice("repeats", repeats, get_args(Repeats))
    if isinstance(exact_up_to, bool) or not isinstance(exact_up_to, int) or exact_up_to < 0:
        raise InputError(f"exact_up_to must be a whole number from 0, got {quoted(exact_up_to)}")
    layered(settings, from_environment())
    return encoder if encoder is None or is_none(encoder) else resolve_encoder(encoder)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Python's search for garbage in cycles is put off: of a large log it would look at all that is kept again and
    again, which takes as long as the reading."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                # What was read counts as old now. Else the first search, as soon as they are allowed again, would look
                # at all of it, as something new.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


class Engine:
    """One opened store."""

    def __init__(
        self,
        store: Store,
        *,
        encoder: str | Path | Encoder | None,
        windows: bool,
        repeats: Repeats,
        exact_up_to: int,
        progress: Progress,
        at: DateLike | int | None,
    ) -> None:
        """Read the log, build or restore what is derived from it, and read the vectors.

        Args:
            store: the store; nothing was read of it yet.
            encoder: as in `mempp.open`.
            windows: whether windows of long texts are embedded.
            repeats: as in `mempp.open`.
            exact_up_to: as in `mempp.open`.
            progress: how to show the building of indexes, where that takes long.
            at: stay at the state of this moment or sequence number; the store must be open for reading only.
        """
        self.store = store
        self._digest_then = ""
        self._at: int | None = None
        self._at_is_sequence = False
        if isinstance(at, int) and not isinstance(at, bool):
            self._at, self._at_is_sequence = at, True
        elif at is not None:
            self._at = to_microseconds(at, "at", bare_date="end")
        self._caches = Caches(store)
        self._new_projection = partial(
            Projection,
            repeats=repeats,
            exact_up_to=exact_up_to,
            graphs=self._caches.graphs,
            codes=self._caches.codes,
        )
        self._writer = threading.RLock()
        self._process = os.getpid()
        self._closed = False
        # True while entries may have been taken from the store that the projection does not have yet. An interrupt
        # (Ctrl-C) in between leaves it True, and the next turn builds the projection anew.
        self._behind = False
        self._applying = False
        self._swapping = threading.Lock()
        self.projection = self._new_projection()
        with _uncollected():
            self._begin(self.projection, progress)
            self.embedder = Embedder(store, self.projection, encoder, windows=windows)

    def _begin(self, projection: Projection, progress: Progress = False) -> None:
        entries = self.store.refresh()
        if self._at is None:
            self._caches.begin(projection, entries, progress)
        else:
            entries = self._up_to_then(entries)
            projection.apply(entries)  # caches are of the whole log
            self._digest_then = digest_of(self.store.store_id, entries).hex()
        projection.lost_rows = self.store.lost_rows

    def _up_to_then(self, entries: list[Entry]) -> list[Entry]:
        if self._at is None:
            return entries
        if self._at_is_sequence:
            return [entry for entry in entries if entry.sequence <= self._at]
        return [entry for entry in entries if entry.ingested_at <= self._at]

    # -- turns ----------------------------------------------------------------------------------------------------

    def commit(self, build: Callable[[], list[Entry]]) -> list[Entry]:
        """One commit: take in what others wrote, build the entries on that state, append them durably, apply them."""
        with self.commit_lock():
            entries = build()
            committed = self.store.append(entries) if entries else []
            self._apply(committed)
        return committed

    @contextmanager
    def commit_lock(self) -> Iterator[None]:
        """This thread's and this process's turn to write, with all taken in that others wrote."""
        self.check_writable()
        with self._turn(), self.store.writing() as others:
            self._take_in(others)
            yield

    def refresh(self) -> int:
        """Take in what other processes wrote since; return how many entries came."""
        with self._turn():
            entries = self._up_to_then(self.store.refresh())
            self._take_in(entries)
        return len(entries)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """This thread's turn to change the projection; what an interrupt cut short before is made good first."""
        self.check_open()
        with self._writer:
            self.check_open()
            self._catch_up()
            self._behind = True
            try:
                yield
            except MemppError:
                # Told by the store, or by what was to be built: nothing was taken or appended that was not applied.
                self._behind = self._applying
                raise
            self._behind = False

    def _take_in(self, entries: Sequence[Entry]) -> None:
        self._apply(entries)
        if not self.embedder.is_current:
            self._follow()  # another process has changed the store's encoder
        self.embedder.take_in(self.embedder.read_new())

    def _follow(self, encoder: Encoder | None = None) -> None:
        """Go over to the store's new encoder and its vectors."""
        embedder = self.embedder.successor(encoder)
        with self._swapping:
            embedder.put_in_place()
            self.embedder = embedder

    def switch_encoder(self, build: Callable[[], list[Entry] | None], encoder: Encoder) -> bool:
        """Change the store's encoder, in one commit; return whether it was done.

        Args:
            build: the entry for it, if the log does not have it; None: it is not time yet.
            encoder: the new encoder, whose vectors are all there.
        """
        with self.commit_lock():
            entries = build()
            if entries is None:
                return False
            self._apply(self.store.append(entries) if entries else [])
            self._follow(encoder)
        return True

    def reading(self) -> tuple[Projection, Indexes, Embedder]:
        """Projection, indexes and the embedder whose vectors are in them, taken together."""
        with self._swapping:
            return self.projection, self.projection.indexes, self.embedder

    def _apply(self, entries: Sequence[Entry]) -> None:
        if entries:
            self._applying = True  # stays so when it ends half way, whatever ended it
            self.projection.apply(entries)
            self._applying = False

    def _catch_up(self) -> None:
        """Build the projection anew where an interrupt has left it behind the store."""
        if self._behind:
            self.store.rewind()
            projection = self._new_projection()
            with _uncollected():
                self._begin(projection)
                embedder = self.embedder.over(projection)
            self.projection.close()
            with self._swapping:
                self.projection, self.embedder = projection, embedder
            self._behind = self._applying = False

    # -- the object itself ----------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise StoreClosedError after `close`; in a forked child, get over the threads that did not come along."""
        if self._closed:
            raise StoreClosedError("this memory is closed; open the store again with mempp.open()")
        if self._process != os.getpid():
            self._after_fork()

    def check_writable(self) -> None:
        """Raise StoreClosedError or StoreReadOnlyError where nothing can be written."""
        self.check_open()
        if self.store.read_only:
            where = "the store" if self.store.path is None else f"the store {str(self.store.path)!r}"
            raise StoreReadOnlyError(f"{where} is open for reading only; open it without read_only=True and at=")

    def _after_fork(self) -> None:
        """A lock that another thread of the parent held stays locked here, where that thread does not exist."""
        self._process = os.getpid()
        self._swapping = threading.Lock()
        in_use = not self._writer.acquire(blocking=False)
        if in_use:
            self._writer = threading.RLock()
        else:
            self._writer.release()
        if not self.projection.renew_lock_after_fork() or in_use:
            self._behind = True
            with self._writer:
                self._catch_up()

    def close(self, *, in_order: bool = True) -> None:
        """Release files and threads. Closing twice does nothing.

        Args:
            in_order: whether there is time for what only makes later openings quicker.
        """
        if self._process != os.getpid():
            self._closed = True  # the files and threads are the parent's
            return
        with self._writer:
            if not self._closed:
                self._closed = True
                try:
                    if not self._behind and self._at is None:
                        self._caches.save(self.projection)
                        if in_order and self.store.path is not None and not self.store.read_only:
                            with _uncollected(), suppress(MemppError):  # they are derived, and cheap to lose
                                self.embedder.keep_mapped()
                finally:
                    self.projection.close()
                    self.store.close()

    @property
    def is_past(self) -> bool:
        """Whether it stays at a past state."""
        return self._at is not None

    @property
    def head_digest(self) -> str:
        """Digest of the chain after the last entry known here."""
        return self._digest_then if self.is_past else self.store.head_digest

    def log_position(self) -> tuple[int, str]:
        """How many entries of the log are known here, and the head digest after them."""
        with self._writer:
            return self.projection.last_sequence + 1, self.head_digest

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed
