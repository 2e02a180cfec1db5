"""Running a sentence model without padding: texts of one length together, one core per batch.

Two ways through the same graph. A single text, so a question, may have several threads to itself. Several texts are
spread over the cores, each core with batches of its own: products of a few hundred pieces are too small to be worth
dividing, and nothing waits for the slowest of several threads. The cores also cut texts into pieces, one round of texts
ahead of the graph.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.base import unit_rows
from mempp.encoders.lazy import Lazy
from mempp.encoders.pieces import PieceCutter
from mempp.encoders.runtime import run_graph, start_session, usable_cores
from mempp.errors import EncoderError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

# A batch of more no longer stays in a core's cache; one of less runs through the weights for few pieces.
_PIECES_PER_BATCH = 512
# Texts whose pieces are held at once, twice: batches are made among these.
_TEXTS_PER_ROUND = 2048
_TEXTS_PER_CUT = 32


class UnpaddedModel:
    """A loaded model: text to unit vectors. Thread-safe; it leaves no thread behind.

    Its graph takes `input_ids`, int32, (rows, pieces), where every row has exactly so many pieces.
    """

    def __init__(
        self,
        cutter: PieceCutter,
        graph: Callable[[], bytes],
        *,
        output: str,
        dimensions: int,
        threads: int | None,
        threads_of_one: int | None,
        where: str,
    ) -> None:
        """Prepares; `start` reads the graph.

        Args:
            cutter: text to piece numbers, at least one for any text.
            graph: returns the serialised graph; called at the first use of each way that has a session of its own.
            output: the graph's output, (rows, dimensions).
            dimensions: of the vectors.
            threads: None for one per physical core that this process may use.
            threads_of_one: how many of them a single text has, None for all.
            where: what to name in messages.
        """
        self._cutter = cutter
        self._output = output
        self._dimensions = dimensions
        self._threads = usable_cores() if threads is None else threads
        self._where = where
        alone = self._threads if threads_of_one is None else min(threads_of_one, self._threads)
        self._alone = Lazy(lambda: start_session(graph(), threads=alone, where=where))
        self._beside = self._alone if alone == 1 else Lazy(lambda: start_session(graph(), threads=1, where=where))

    def start(self) -> None:
        """Reads the graph now, rather than at the first text.

        Raises:
            EncoderUnavailableError: it cannot be read, or onnxruntime does not take it.
        """
        self._alone.get()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns (n, dimensions) unit rows in the order of `texts`.

        A text's vector does not depend on the texts beside it, up to the last bit.

        Raises:
            EncoderUnavailableError: as `start`.
            EncoderError: the graph failed, or gave something else than such vectors.
        """
        if len(texts) == 1:
            return self._run(self._alone.get(), [self._cutter(texts[0])])
        vectors = np.empty((len(texts), self._dimensions), dtype=np.float32)
        session = self._beside.get()

        def run(rows: list[list[int]], batch: list[int], start: int) -> None:
            vectors[[start + place for place in batch]] = self._run(session, [rows[place] for place in batch])

        with ThreadPoolExecutor(min(self._threads, len(texts)), thread_name_prefix="mempp-encoder") as executor:
            try:
                running: list[Future[None]] = []
                for start in range(0, len(texts), _TEXTS_PER_ROUND):
                    # Queued behind the batches of the round before, so that no core is idle between the two.
                    rows = self._cut(executor, texts[start : start + _TEXTS_PER_ROUND])
                    _finish(running)
                    batches = batches_of_equal_length([len(row) for row in rows])
                    running = [executor.submit(run, rows, batch, start) for batch in batches]
                _finish(running)
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                raise
        return vectors

    def _cut(self, executor: ThreadPoolExecutor, texts: Sequence[str]) -> list[list[int]]:
        parts = (texts[start : start + _TEXTS_PER_CUT] for start in range(0, len(texts), _TEXTS_PER_CUT))
        return [row for rows in executor.map(lambda part: [self._cutter(text) for text in part], parts) for row in rows]

    def _run(self, session: "InferenceSession", rows: list[list[int]]) -> NDArray[np.float32]:
        numbers = np.array(rows, dtype=np.int32)
        what = f"{self._where} failed on {len(rows)} texts of {len(rows[0])} pieces"
        vectors = run_graph(session, self._output, {"input_ids": numbers}, what)
        if vectors.shape != (len(rows), self._dimensions):
            raise EncoderError(
                f"output {self._output!r} of {self._where} has shape {vectors.shape}, expected "
                f"{(len(rows), self._dimensions)}"
            )
        return unit_rows(vectors, of=self._where)


def batches_of_equal_length(lengths: Sequence[int]) -> list[list[int]]:
    """Returns places grouped by length, the longest first, at most `_PIECES_PER_BATCH` pieces a group if above one.

    Longest first, so that what the last core is still busy with is short.
    """
    by_length: dict[int, list[int]] = {}
    for place, length in enumerate(lengths):
        by_length.setdefault(length, []).append(place)
    batches = []
    for length in sorted(by_length, reverse=True):
        most = max(1, _PIECES_PER_BATCH // max(1, length))
        places = by_length[length]
        batches += [places[start : start + most] for start in range(0, len(places), most)]
    return batches


def _finish(running: list[Future[None]]) -> None:
    """Waits; raises the first error."""
    for future in running:
        future.result()
