"""An approximate index of nearest vectors, built once in the background: HNSW by hnswlib.

Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small World
graphs", 2018. hnswlib is not safe to search while it is added to, so a graph is finished before anyone sees it and
never changes afterwards; then any number of threads may search it.
"""

import logging
import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.held import Held
from mempp.indexes.links import Links, digest_of, graph_of, links_of

_M = 16
_EF_CONSTRUCTION = 200
_SEED = 20260301
_FILTER_EXPONENT = 0.75
"""A search in a share s of the graph visits about s^-0.75 times as many vectors (measured at 60,000 × 384)."""
GRAPH_VERSION = f"links 1, shuffled, M {_M}, ef {_EF_CONSTRUCTION}, seed {_SEED}"
"""What graphs are comparable. Whoever keeps links keeps it with them."""
_CHUNK = 256  # vectors between two looks at the stop flag; about 0.2 s of work

_logger = logging.getLogger("mempp.indexes")


class ExactSearchWarning(RuntimeWarning):
    """A vector index has outgrown exact search and cannot have a graph; it answers exactly, more slowly."""


@dataclass(frozen=True, slots=True)
class GraphCosts:
    """Seconds for each vector that a graph is asked for."""

    alone: float
    """All of them may be found."""
    filtered: float
    """Half of them may be found."""

    def of(self, asked: int, share: float) -> float:
        """Seconds of a search.

        Args:
            asked: how many vectors the graph is asked for.
            share: how many of its vectors may be found, from 0 to 1.
        """
        if share == 1:
            return self.alone * asked
        return self.filtered * asked * float((2 * share) ** -_FILTER_EXPONENT)


@dataclass(frozen=True, slots=True)
class Graph:
    """A finished graph over the first `size` views of a vector index. Labels are view numbers."""

    index: Any  # hnswlib.Index
    size: int
    costs: GraphCosts | None = None
    """Once they were measured."""

    def nearest(self, question: NDArray[np.float32], k: int, inside: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """About the `k` views with the highest inner product, best first.

        Args:
            question: shape (dimensions,).
            k: how many; the more, the better the first of them.
            inside: which views may be found, shape (size,); None for all.

        Raises:
            RuntimeError: the search met fewer than `k` of the views that may be found.
        """
        # A method of bytes is the cheapest callable there is: the search calls it once for each vector that it visits.
        accepts = None if inside is None else inside.tobytes().__getitem__
        labels, _ = self.index.knn_query(question, k=k, num_threads=1, filter=accepts)
        return np.asarray(labels[0]).astype(np.int64)


class GraphKeeper(Protocol):
    """Keeps the links of a graph between processes. Called in the thread of a build; must not raise."""

    def load(self) -> Links | None:
        """The links that were kept, if any."""
        ...

    def keep(self, links: Links) -> None:
        """Keep these, in place of those."""
        ...


class GraphBuild:
    """The building of a graph in a thread of its own, or its making from links that were kept."""

    def __init__(
        self,
        vectors: Held[np.float32],
        publish: Callable[[Graph | None], None],
        *,
        keeper: GraphKeeper | None = None,
        rows: NDArray[np.int64] | None = None,
        step: Callable[[int], int] = lambda size: 0,
    ) -> None:
        """Start building over `vectors`, (n, dimensions).

        Args:
            vectors: the vectors; a vector's label is its position.
            publish: called in the thread of the build with the graph, or with None when hnswlib failed; not called
                after `stop`. With a graph that was kept first, if there is one.
            keeper: where graphs are kept.
            rows: the row of each vector, shape (n,); needed with a keeper.
            step: how many later vectors a graph of a size may have beside it before another is built.
        """
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=_make,
            args=(vectors, publish, self._stopped, keeper, rows, step),
            name="mempp-hnsw-build",
            daemon=True,
        )
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the thread has ended; tell whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Give up the build and wait until its thread has ended."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def hnswlib_is_installed() -> bool:
    """Whether the optional package can be imported."""
    try:
        import hnswlib  # noqa: F401
    except ImportError:
        return False
    return True


def _make(
    vectors: Held[np.float32],
    publish: Callable[[Graph | None], None],
    stopped: threading.Event,
    keeper: GraphKeeper | None,
    rows: NDArray[np.int64] | None,
    step: Callable[[int], int],
) -> None:
    if keeper is None or rows is None:
        _build(vectors, publish, stopped)
        return
    links = keeper.load()
    if links is not None:
        kept = graph_of(links, rows, vectors, _M, _EF_CONSTRUCTION, _SEED, stopped.is_set)
        if kept is not None and not stopped.is_set():
            publish(Graph(kept, links.size))
            if len(vectors) < links.size + step(links.size):
                return
    _logger.info("building an HNSW graph over %d vectors in the background; until then search is exact", len(vectors))
    graph = _build(vectors, publish, stopped)
    if graph is None or stopped.is_set():
        return
    digest = digest_of(rows, vectors, stopped.is_set)
    links = None if digest is None else links_of(graph.index, digest, vectors.shape[1])
    if links is not None and not stopped.is_set():
        keeper.keep(links)


def _build(
    vectors: Held[np.float32], publish: Callable[[Graph | None], None], stopped: threading.Event
) -> Graph | None:
    import hnswlib

    size, dimensions = vectors.shape
    threads = max(1, (os.cpu_count() or 1) - 1)  # leaves a core to those who ask meanwhile
    try:
        index = hnswlib.Index(space="ip", dim=dimensions)
        index.init_index(max_elements=size, M=_M, ef_construction=_EF_CONSTRUCTION, random_seed=_SEED)
        # Shuffled: of texts that come topic after topic a graph would be islands with hardly a way between them.
        order = np.random.default_rng(_SEED).permutation(size)
        for start in range(0, size, _CHUNK):
            if stopped.is_set():
                return None
            chosen = order[start : start + _CHUNK]
            index.add_items(vectors.take(chosen), chosen, num_threads=threads)
        index.set_ef(_EF_CONSTRUCTION)  # a search uses the larger of this and k
    except (RuntimeError, MemoryError) as error:
        publish(None)
        warnings.warn(
            f"The HNSW graph over {size} vectors could not be built ({error}); search stays exact.",
            ExactSearchWarning,
            stacklevel=1,
        )
        return None
    if stopped.is_set():
        return None
    graph = Graph(index, size)
    publish(graph)
    return graph
