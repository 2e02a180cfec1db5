"""Encoding in rounds: many texts of like length together, in a thread of its own, while its owner goes on.

An encoder is quickest with texts of one length in one call: padding costs as much as text. So the views (heads and
windows) of several batches make a round, are sorted by length, and go to the encoder call by call. A round is what may
be lost when a process dies; a call is what an interruption waits for.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from mempp.projection import HEAD
from mempp.storage import VectorBatch
from mempp.waiting import until_done

ROUND_CHARS = 256_000
"""Characters that an encoder reads in a round: seconds of work, some 500 windows or 2,000 chat messages."""
ROUND_TEXTS = 2048
"""Texts of a round at most."""
CALL_CHARS = 64_000
"""Characters that an encoder reads in a call."""
CALL_TEXTS = 512
"""Texts of a call at most."""
_READ_CHARS = 1000
"""What an encoder reads of a text, for the measures above: the head is all that MiniLM reads."""


class View(NamedTuple):
    """A text to be encoded: the head of a row, or one of its windows."""

    row: int
    view: int
    text: str


class Coder(Protocol):
    """Which views rows lack, and how they are encoded; for one encoder as long as it lives."""

    @property
    def name(self) -> str | None:
        """The encoder's name."""
        ...

    def views_to_make(self, row_ids: Sequence[int]) -> list[View]:
        """The views that these rows lack; a row's windows are there all or none. Called by the owner's thread."""
        ...

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """(n, dimensions) checked unit vectors. Called by the other thread. Raises only MemppError."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """What became of views."""

    batch: VectorBatch | None
    """The vectors of what is complete, by row and view; None where nothing is."""
    failure: BaseException | None
    """What ended the encoding early."""


def encode_views(
    views: Sequence[View], encode: Callable[[list[str]], NDArray[np.float32]], stopped: Callable[[], bool]
) -> Encoded:
    """Encode views, like lengths together; where it ends early, what is complete is given all the same.

    Args:
        views: the views of one row stand together.
        encode: encodes texts.
        stopped: asked before every call of `encode`; True ends it.
    """
    vectors: NDArray[np.float32] | None = None
    done = np.zeros(len(views), dtype=np.bool_)
    failure: BaseException | None = None
    for places in _calls([len(view.text) for view in views]):
        if stopped():
            break
        try:
            made = encode([views[place].text for place in places])
        except BaseException as error:
            failure = error
            break
        if vectors is None:
            vectors = np.empty((len(views), made.shape[1]), dtype=np.float32)
        vectors[places] = made
        done[places] = True
    if vectors is None:
        return Encoded(None, failure)
    if not done.all():
        _drop_incomplete(views, done)
    kept = np.flatnonzero(done)
    complete = [views[place] for place in kept.tolist()]
    if not len(kept):
        return Encoded(None, failure)
    rows = np.array([view.row for view in complete], dtype=np.int64)
    numbers = np.array([view.view for view in complete], dtype=np.int32)
    order = np.lexsort((numbers, rows))
    return Encoded(VectorBatch(rows[order], numbers[order], vectors[kept[order]]), failure)


def _calls(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of texts in groups of like length, groups of short texts first; within a group as they came."""
    places: list[int] = []
    chars = 0
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        read = min(lengths[place], _READ_CHARS)
        if places and (len(places) == CALL_TEXTS or chars + read > CALL_CHARS):
            yield sorted(places)
            places, chars = [], 0
        places.append(place)
        chars += read
    if places:
        yield sorted(places)


def _drop_incomplete(views: Sequence[View], done: NDArray[np.bool_]) -> None:
    """Windows of a row of which one was not encoded are given up: they are kept together or not at all."""
    for _, group in groupby(range(len(views)), key=lambda place: (views[place].row, views[place].view == HEAD)):
        places = list(group)
        if not done[places].all():
            done[places] = False


class EncodingAhead:
    """Encodes rows in a second thread while its owner reads, stores, and keeps the vectors of the rows before.

    One round is being encoded, and about one more may wait; then `make_room` waits. Vectors are kept in the order of
    the rows, by the owner's thread: so whatever interrupts it, the store is in one thread's hands. A context manager;
    what waits when it is left is dropped.
    """

    def __init__(
        self,
        coder: Callable[[], Coder],
        keep: Callable[[VectorBatch, Coder], int | None],
        done: Callable[[int], None] = lambda mark: None,
    ) -> None:
        """Nothing is started before the first row comes.

        Args:
            coder: gives what encodes the next round.
            keep: stores and indexes vectors that this coder made and tells of how many rows they are; None: they are
                of no use any more, and the rows are to be encoded again.
            done: called with the mark of every batch whose rows have their vectors, in order.
        """
        self._coder = coder
        self._keep = keep
        self._done = done
        self._executor: ThreadPoolExecutor | None = None
        self._stop = threading.Event()
        self._waiting: deque[_Batch] = deque()
        self._running: _Round | None = None
        self.kept = 0
        """How many rows got vectors."""

    @property
    def unfinished(self) -> list[int]:
        """The rows of the batches that have not been seen through; some of them may have their vectors."""
        batches = [*(self._running.batches if self._running is not None else ()), *self._waiting]
        return list(dict.fromkeys(row for batch in batches for row in batch.rows))

    def put(self, row_ids: Sequence[int], chars: int, mark: int) -> None:
        """Take in the rows of a batch. It neither waits for the encoder nor raises what the encoder raised.

        Args:
            row_ids: rows; those that have all their vectors are passed over.
            chars: characters of their texts.
            mark: what `done` is called with when the batch has its vectors.
        """
        self._waiting.append(_Batch(row_ids, chars, mark))
        if self._running is None:
            self._submit()

    def make_room(self) -> None:
        """Keep what has been encoded, and wait as long as a whole round waits.

        Raises:
            MemppError: the encoder failed, or the store could not take its vectors.
        """
        while self._running is not None and (self._running.future.done() or self._is_full()):
            self._collect()

    def finish(self) -> None:
        """Wait until every row has its vectors; what failed before is tried again. Raises as `make_room`."""
        while self._running is not None or self._waiting:
            if self._running is None:
                self._submit()
            else:
                self._collect()

    def _is_full(self) -> bool:
        rows = sum(len(batch.rows) for batch in self._waiting)
        return rows >= ROUND_TEXTS or sum(batch.chars for batch in self._waiting) >= ROUND_CHARS

    def _submit(self) -> None:
        """Give the encoder the next batches, if there are any."""
        if not self._waiting:
            return
        batches: list[_Batch] = []
        views: list[View] = []
        chars = 0
        coder = self._coder()
        for batch in self._waiting:
            if len(views) >= ROUND_TEXTS or chars >= ROUND_CHARS:
                break
            new = coder.views_to_make(batch.rows)
            batches.append(batch)
            views += new
            chars += sum(min(len(view.text), _READ_CHARS) for view in new)
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mempp-encoder")
        future = self._executor.submit(encode_views, views, coder.encode, self._stop.is_set)
        self._running = _Round(batches, coder, future)
        for _ in batches:
            self._waiting.popleft()

    def _collect(self) -> None:
        """Wait for the round that is being encoded, keep its vectors, and start the next one."""
        running = self._running
        assert running is not None
        until_done(running.future)
        encoded = running.future.result()
        kept = 0 if encoded.batch is None else self._keep(encoded.batch, running.coder)
        self._running = None
        self.kept += kept or 0
        if encoded.failure is not None or kept is None:
            # With their marks; those of their rows that have vectors now are passed over the next time.
            self._waiting.extendleft(reversed(running.batches))
        if encoded.failure is not None:
            raise encoded.failure
        self._submit()
        if kept is not None:
            for batch in running.batches:
                self._done(batch.mark)

    def stop(self) -> None:
        """Drop what waits, and wait for the call of the encoder that is under way."""
        self._stop.set()
        if self._executor is None:
            return
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._running is not None:
            until_done(self._running.future)
        self._executor.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    rows: Sequence[int]
    chars: int
    mark: int


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    batches: list[_Batch]
    coder: Coder
    future: "Future[Encoded]"
