"""The write path: documents are checked, committed batch by batch, and embedded while the next batches are stored."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self

from mempp.encoding import Coder, EncodingAhead, encode_views
from mempp.engine import Engine
from mempp.errors import InputError, MemppError, quoted
from mempp.ingest import BATCH_SIZE, DocumentLike, Plan, batches, report
from mempp.progress import Progress, reporter
from mempp.records import AddReport, CheckedDocument, Document, check_document
from mempp.storage import Entry, VectorBatch

_NO_ROW = -1


class Adding:
    """Adds batches of documents; their vectors are made in a second thread while the next batches come.

        with memory.adding() as adding:
            for documents in batches:
                report = adding.add(documents)

    When `add` returns, the batch is durable. When the `with` block is left, every batch has its vectors too; left by an
    interruption, by SystemExit, or by an error of the store or the encoder, it waits for nothing, and `Memory.embed`
    makes the vectors that are missing. After the block it takes nothing more. Use it in one thread.
    """

    def __init__(
        self, engine: Engine, *, embed: bool = True, done: Callable[[int], None] = lambda documents: None
    ) -> None:
        """Made by `Memory.adding()`.

        Args:
            engine: the opened store.
            embed: False leaves the vectors for `Memory.embed`.
            done: called with `finished` once for every batch.

        Raises:
            InputError: `done` cannot be called.
            StoreReadOnlyError, StoreClosedError: nothing can be added.
        """
        engine.check_writable()
        if not callable(done):
            raise InputError(f"done must be a function of the number of documents, got {quoted(done)}")
        self._engine = engine
        self._embed = embed
        self._done = done
        self._ahead = EncodingAhead(lambda: engine.embedder, partial(keep, engine), self._finish_batch)
        self._read = 0
        self._ended = False
        self.finished = 0
        """Documents of all batches that are stored and, where they are to have vectors, have them."""

    @property
    def waiting(self) -> int:
        """Rows that are stored and still wait for their vectors."""
        return len(self._engine.embedder.missing(self._ahead.unfinished))

    def add(self, documents: Iterable[DocumentLike]) -> AddReport:
        """Add one batch, in one commit: it is there whole or not at all.

        Raises:
            InputError: a document is not usable, or the `with` block was left; nothing of the batch was added.
            StoreError: the store could not take the batch, or vectors of an earlier one.
            EncoderError: the encoder cannot be loaded, or failed at an earlier batch; nothing of this batch was added.
        """
        if isinstance(documents, str | Mapping | Document) or not isinstance(documents, Iterable):
            raise InputError(f"a batch is an iterable of documents, got {quoted(documents)}")
        return report(*self.store([check_document(document) for document in documents]))

    def store(self, batch: Sequence[CheckedDocument]) -> tuple[list[int | None], list[int]]:
        """Add one batch of checked documents; give the row of each, and the new rows. Raises as `add`."""
        self._check_usable()
        if self._embed:
            self._engine.embedder.make_ready()
        self.make_room()
        rows, new = store_batch(self._engine, batch)
        self._read += len(batch)
        if self._embed and not self._engine.embedder.is_off:
            wanted = list(dict.fromkeys(row for row in rows if row is not None))
            self._ahead.put(wanted, sum(len(document.text) for document in batch), self._read)
        else:
            self._finish_batch(self._read)
        return rows, new

    def make_room(self) -> None:
        """Wait until `add` does not have to wait for the encoder.

        Raises:
            EncoderError: the encoder failed; a note says how many rows are stored without vectors.
            StoreError: the store could not take vectors.
            InputError: the `with` block was left.
        """
        self._check_usable()
        with noting(lambda: self.waiting):
            self._ahead.make_room()

    def finish(self) -> None:
        """Wait until every batch has its vectors. Raises as `make_room`."""
        self._check_usable()
        with noting(lambda: self.waiting):
            self._ahead.finish()

    def _check_usable(self) -> None:
        if self._ended:
            raise InputError("this adding ended with its `with` block; begin another one with memory.adding()")

    def _finish_batch(self, mark: int) -> None:
        self.finished = mark
        self._done(mark)

    def __enter__(self) -> Self:
        self._check_usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
            elif _is_of_the_source(error):
                with suppress(MemppError):
                    self.finish()
        finally:
            self._ended = True
            self._ahead.stop()


def _is_of_the_source(error: BaseException | None) -> bool:
    """Whether the source of the documents is at fault, not what becomes of those that were stored."""
    if isinstance(error, InputError):
        return True
    return isinstance(error, Exception) and not isinstance(error, MemppError | MemoryError)


def add_one(engine: Engine, document: CheckedDocument, *, embed: bool) -> AddReport:
    """Add one document, and embed it in this thread. Raises as `Memory.add`."""
    engine.check_writable()
    if embed:
        engine.embedder.make_ready()
    rows, new = store_batch(engine, [document])
    if embed:
        embed_rows(engine, [row for row in rows if row is not None])
    return report(rows, new)


def add_many(
    engine: Engine, documents: Iterable[DocumentLike], *, embed: bool, batch_size: int, progress: Progress
) -> AddReport:
    """Add documents, one commit per batch. Raises as `Memory.add_many`."""
    if isinstance(documents, str | Mapping | Document):
        raise InputError(f"add_many takes an iterable of documents, not one {type(documents).__name__}; use add")
    if not isinstance(documents, Iterable):
        raise InputError(f"add_many takes an iterable of documents, got {quoted(documents)}")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise InputError(f"batch_size must be a whole number from 1, got {quoted(batch_size)}")
    row_ids, new_row_ids = array("q"), array("q")  # of millions of documents there may be
    total = len(documents) if isinstance(documents, Sequence) else None
    with reporter(progress, "adding", total) as done, Adding(engine, embed=embed, done=done) as adding:
        for batch in batches(documents, batch_size):
            rows, new = adding.store(batch)
            row_ids.extend(_NO_ROW if row is None else row for row in rows)
            new_row_ids.extend(new)
    return report([None if row == _NO_ROW else row for row in row_ids], new_row_ids)


def store_batch(engine: Engine, batch: Sequence[CheckedDocument]) -> tuple[list[int | None], list[int]]:
    """Commit the documents of a batch that are new; give the row of each, and the new rows."""
    plan = Plan()

    def build() -> list[Entry]:
        plan.make(batch, engine.projection)
        return [*engine.embedder.registration(), *plan.new] if plan.new else []

    committed = engine.commit(build)
    new = [entry.row_id for entry in committed if entry.kind == "document" and entry.row_id is not None]
    return plan.rows(new), new


def embed_rows(engine: Engine, row_ids: Sequence[int]) -> int:
    """Embed those of these rows that lack vectors, in this thread, outside of every lock; return how many."""
    while True:
        embedder = engine.embedder
        views = embedder.views_to_make(row_ids)
        if not views:
            return 0
        encoded = encode_views(views, embedder.encode, lambda: False)
        with noting(lambda: len(engine.embedder.missing(row_ids))):
            kept = 0 if encoded.batch is None else keep(engine, encoded.batch, embedder)
            if encoded.failure is not None:
                raise encoded.failure
        if kept is not None:
            return kept
        # The store's encoder was changed meanwhile, and these vectors are of no use.


def embed_missing(engine: Engine, progress: Progress) -> int:
    """Embed every row that lacks vectors. Raises as `Memory.embed`."""
    engine.check_writable()
    check_encoder(engine)
    engine.refresh()
    engine.embedder.check_available()
    engine.commit(lambda: engine.embedder.registration())
    missing = engine.embedder.missing()
    with reporter(progress, "embedding", len(missing)) as done:
        return encode_rows(engine, missing, lambda: engine.embedder, partial(keep, engine), done)


def check_encoder(engine: Engine) -> None:
    """Refuse, with InputError, a memory that was opened to do without vectors."""
    if engine.embedder.is_off:
        raise InputError("this memory was opened with encoder='none'; open it with an encoder to embed its rows")


def encode_rows(
    engine: Engine,
    row_ids: Sequence[int],
    coder: Callable[[], Coder],
    keep: Callable[[VectorBatch, Coder], int | None],
    done: Callable[[int], None],
) -> int:
    """Encode rows, in rounds, and keep their vectors; arguments as of `EncodingAhead`. Return how many were kept."""

    def lacking() -> int:
        return len({view.row for view in coder().views_to_make(ahead.unfinished)})

    with EncodingAhead(coder, keep, done) as ahead, noting(lacking):
        for start in range(0, len(row_ids), BATCH_SIZE):
            part = row_ids[start : start + BATCH_SIZE]
            ahead.make_room()
            ahead.put(part, sum(len(engine.projection.text_of(row)) for row in part), start + len(part))
        ahead.finish()
    return ahead.kept


def keep(engine: Engine, batch: VectorBatch, coder: Coder) -> int | None:
    """Store and index vectors; return of how many rows, or None: they are not those of the store's encoder any more."""
    with engine.commit_lock():
        return engine.embedder.keep(batch) if engine.embedder.name == coder.name else None


@contextmanager
def noting(rows: Callable[[], int]) -> Iterator[None]:
    """Let an error of Mem++ say how many rows are stored and not embedded."""
    try:
        yield
    except MemppError as error:
        if count := rows():
            error.add_note(f"{count} rows are stored and durable, but not embedded; embed() does that later")
        raise
