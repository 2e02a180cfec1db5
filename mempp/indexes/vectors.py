"""Ranking by cosine over unit vectors: exact up to a size, with the help of an HNSW graph beyond.

A row may have several views (embeddings of its head and of windows of its text):

    score(r) = max over the views v of r:  v · q,  in float64

A first score by BLAS in float32 finds who can be among the best; those are scored again one by one in float64, by an
operation whose result does not depend on which other rows there are. So scores and ties are the same to the last bit
whatever else the index holds.
"""

import math
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mempp.errors import EncoderError
from mempp.indexes.growable import GrowableArray
from mempp.indexes.hnsw import ExactSearchWarning, Graph, GraphBuild, GraphKeeper, hnswlib_is_installed
from mempp.indexes.ranking import Allowed, Ranking, best_positions

_GATHER = 1024  # vectors copied together at a time, so that the copy stays in the processor's cache
# Reading a vector out of its place costs about as much as three read in a row.
_GATHER_COST = 3.0
# Time of a search in the graph, in dimensions read by an exact scan: each of the vectors that it visits costs a jump
# through memory and, in a narrower scope, a call of Python. Measured at 60,000 × 384, 2 cores.
_VISIT_COST = 12_000.0
# The graph is asked for more than are wanted: the first of them are then more surely the best.
_ASKED_PER_WANTED = 20
_LEAST_ASKED = 500


@dataclass(frozen=True, slots=True)
class _Views:
    """What a reader takes hold of: a consistent prefix of the views."""

    vectors: NDArray[np.float32]  # (n, dimensions)
    rows: NDArray[np.int64]  # (n,)
    largest_norm: float
    several_per_row: bool

    def __len__(self) -> int:
        return len(self.rows)


class VectorIndex:
    """Unit vectors by row, found by cosine. See `mempp.indexes` for scope, threads and ties.

    Beyond `exact_up_to` views an HNSW graph is built in the background over the views there are; later ones are
    searched exactly beside it, until there are enough of them for a new graph. Then `rank` finds at least about 95 of
    the 100 best rows, unless it is told to be exact; the scores of the rows found are always exact. While no graph is
    ready, and where a scan is quicker, everything is exact.
    """

    def __init__(self, dimensions: int, *, exact_up_to: int = 200_000, graphs: GraphKeeper | None = None) -> None:
        """An empty index.

        Args:
            dimensions: of every vector.
            exact_up_to: the number of views beyond which graphs are built.
            graphs: where the links of a graph are kept, and found again.
        """
        self._dimensions = dimensions
        self._graphs = graphs
        self._exact_up_to = exact_up_to
        self._vectors: GrowableArray[np.float32] = GrowableArray(np.float32, dimensions)
        self._rows: GrowableArray[np.int64] = GrowableArray(np.int64)
        self._place: GrowableArray[np.int64] = GrowableArray(np.int64)  # by row: its last view, -1 where it has none
        self._views = _Views(self._vectors.values, self._rows.values, 0.0, False)
        self._graph: Graph | None = None
        self._build: GraphBuild | None = None
        self._next_build_at = exact_up_to + 1
        self._can_build: bool | None = None  # not known before the size is passed
        self._closed = False
        # Ends a running build when the index is let go of and when the interpreter ends, before Python's own state
        # is taken down under the thread.
        self._finalizer: weakref.finalize[..., VectorIndex] | None = None

    def __len__(self) -> int:
        """Number of views."""
        return len(self._views)

    def add(self, row_ids: ArrayLike, vectors: ArrayLike) -> None:
        """Add views. Rows may come in any order, late, and more than once.

        Args:
            row_ids: the row of each view, shape (n,).
            vectors: unit vectors, shape (n, dimensions). A zero vector is allowed; its cosine is 0.

        Raises:
            EncoderError: wrong shape, or numbers that are not finite. Nothing has been added then.
        """
        self._append(row_ids, vectors)
        self._build_when_due()

    def add_batches(self, batches: Iterable[tuple[ArrayLike, ArrayLike]], n_views: int) -> None:
        """Add many views, batch after batch as `add` takes them; room is made and a graph thought of once.

        Args:
            batches: rows and vectors of each batch; a batch is let go of before the next is asked for.
            n_views: how many they are together.

        Raises:
            EncoderError: as `add`; the batches before have been added.
        """
        self._vectors.reserve(len(self) + n_views)
        self._rows.reserve(len(self) + n_views)
        for row_ids, vectors in batches:
            self._append(row_ids, vectors)
            del row_ids, vectors
        self._build_when_due()

    def _append(self, row_ids: ArrayLike, vectors: ArrayLike) -> None:
        rows = np.asarray(row_ids, np.int64)
        new = np.asarray(vectors, np.float32)
        if new.shape == (0,) and rows.shape == (0,):
            return
        if rows.ndim != 1 or new.shape != (len(rows), self._dimensions):
            raise EncoderError(
                f"Vectors of shape {new.shape} for {rows.size} rows; this index takes ({rows.size}, "
                f"{self._dimensions}). Check the encoder's dimensions."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", new, new)
        # A number that is not finite shows in the sum, at a third of the time that looking at each takes.
        if not np.isfinite(squares).all() and not np.isfinite(new).all():
            bad = rows[~np.isfinite(new).all(axis=1)][0]
            raise EncoderError(f"The vector of row {bad} holds NaN or infinity; check the encoder's output.")
        if not len(rows):
            return
        if rows.min() < 0:
            raise EncoderError(f"{rows.min()} is no row id; rows are numbered from 0.")
        top_row = int(rows.max())
        if top_row >= len(self._place):
            self._place.extend(np.full(top_row + 1 - len(self._place), -1))
        known = bool((self._place.values[rows] >= 0).any())
        several = self._views.several_per_row or known or len(np.unique(rows)) < len(rows)
        first = len(self._rows)
        self._vectors.extend(new)
        self._rows.extend(rows)
        # After the vectors: whoever finds a place here finds the vector there.
        self._place.values[rows] = np.arange(first, first + len(rows))
        # An upper bound; the sum in float32 errs by less than 0.1 %.
        largest = float(squares.max()) * 1.001
        if not math.isfinite(largest):
            largest = float(np.einsum("ij,ij->i", new, new, dtype=np.float64).max())
        norm = math.sqrt(largest)
        self._views = _Views(self._vectors.values, self._rows.values, max(norm, self._views.largest_norm), several)

    def rows_with_vectors(self, n_rows: int) -> NDArray[np.bool_]:
        """Which of the first `n_rows` rows have a view, shape (n_rows,)."""
        have = np.zeros(n_rows, np.bool_)
        rows = self._views.rows
        have[rows[rows < n_rows]] = True
        return have

    def vectors_of(self, row_ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The last view of each of these rows, (n, dimensions), zeros where there is none; and (n,) which have one."""
        places = np.full(len(row_ids), -1, np.int64)
        by_row = self._place.values
        known = row_ids < len(by_row)
        places[known] = by_row[row_ids[known]]
        have = places >= 0
        vectors = np.zeros((len(row_ids), self._dimensions), np.float32)
        vectors[have] = self._vectors.values[places[have]]
        return vectors, have

    def rank(
        self, question_vector: NDArray[np.float32], allowed: Allowed, limit: int, *, exact: bool = False
    ) -> Ranking:
        """The rows in scope nearest to the question.

        Args:
            question_vector: a unit vector, shape (dimensions,).
            allowed: the scope, shape (n_rows,).
            limit: how many rows at most. Fewer come back only when the scope holds fewer rows with vectors.
            exact: do without the graph.

        Raises:
            EncoderError: the question's vector has the wrong shape, or numbers that are not finite.
        """
        question = np.ascontiguousarray(question_vector, np.float32)
        if question.shape != (self._dimensions,) or not np.isfinite(question).all():
            raise EncoderError(
                f"The question's vector has shape {question.shape}{'' if np.isfinite(question).all() else ' and NaN'}; "
                f"this index takes ({self._dimensions},), finite. Use the encoder that made the store's vectors."
            )
        graph = None if exact else self._graph  # before the views: it covers no more than they do
        views = self._views
        inside = _inside(views.rows, allowed)
        n_inside = int(np.count_nonzero(inside))
        if limit <= 0 or not n_inside:
            return Ranking.empty()
        if graph is not None:
            candidates = self._by_graph(graph, views, inside, n_inside, question, limit)
            if candidates is not None:
                return _ranked(views, candidates, question, limit)
        candidates = np.flatnonzero(inside)
        if n_inside * _GATHER_COST < len(views):
            scores = _products(views.vectors, candidates, question)
        else:
            scores = (views.vectors @ question)[candidates]
        return _ranked(views, _contenders(views, candidates, scores, question, limit), question, limit)

    def wait_until_built(self, timeout: float | None = None) -> bool:
        """Wait for a running build; tell whether none is running any more."""
        build = self._build
        return build is None or build.wait(timeout)

    def close(self) -> None:
        """Stop a running build. The index still answers afterwards, and builds no more."""
        self._closed = True
        if self._build is not None:
            self._build.stop()
            self._build = None
        if self._finalizer is not None:
            self._finalizer.detach()

    def _by_graph(
        self,
        graph: Graph,
        views: _Views,
        inside: NDArray[np.bool_],
        n_inside: int,
        question: NDArray[np.float32],
        limit: int,
    ) -> NDArray[np.int64] | None:
        """Views that hold the best rows, with the graph's help; None where an exact scan is quicker or needed."""
        in_graph = inside[: graph.size]
        n_in_graph = int(np.count_nonzero(in_graph))
        asked = max(limit * _ASKED_PER_WANTED, _LEAST_ASKED)
        scan_cost = min(n_inside * _GATHER_COST, len(views)) * self._dimensions
        tail_cost = (len(views) - graph.size) * self._dimensions
        everything = n_in_graph == graph.size
        while True:
            if asked * 2 > n_in_graph:  # also where all that is in scope is newer than the graph
                return None
            share = n_in_graph / graph.size
            graph_cost = _VISIT_COST * asked * (1.0 if everything else 1.1 * share**-0.75)
            if graph_cost + tail_cost > scan_cost:
                return None
            try:
                near = graph.nearest(question, asked, None if everything else in_graph)
            except RuntimeError:  # it met too few of those in scope
                return None
            if not views.several_per_row or len(np.unique(views.rows[near])) >= limit:
                break
            asked *= 2
        later = graph.size + np.flatnonzero(inside[graph.size :])
        candidates = np.concatenate((near, later))
        scores = np.concatenate((_products(views.vectors, near, question), _products(views.vectors, later, question)))
        return _contenders(views, candidates, scores, question, limit)

    def _build_when_due(self) -> None:
        if self._closed or len(self._views) < self._next_build_at:
            return
        if self._build is not None:
            if not self._build.wait(0):
                return
            self._build = None
        if self._can_build is None:
            self._can_build = hnswlib_is_installed()
            if not self._can_build:
                warnings.warn(
                    f"{len(self._views)} vectors are more than exact search is meant for ({self._exact_up_to}), and "
                    "hnswlib is not installed: answers stay exact and become slower. Install mempp[hnsw].",
                    ExactSearchWarning,
                    stacklevel=3,
                )
        if not self._can_build:
            return
        size = len(self._views)
        exact_up_to = self._exact_up_to

        def step(covered: int) -> int:
            return max(1, min(covered // 2, exact_up_to))

        self._next_build_at = size + step(size)
        # The thread must not keep the index alive.
        me = weakref.ref(self)

        def publish(graph: Graph | None) -> None:
            index = me()
            if index is not None and graph is not None:
                index._graph = graph
                index._next_build_at = graph.size + step(graph.size)

        if self._finalizer is not None:
            self._finalizer.detach()
        views = self._views
        self._build = GraphBuild(views.vectors, publish, keeper=self._graphs, rows=views.rows, step=step)
        self._finalizer = weakref.finalize(self, self._build.stop)


def _inside(rows: NDArray[np.int64], allowed: Allowed) -> NDArray[np.bool_]:
    """Which views belong to rows in scope."""
    known = rows < len(allowed)
    if known.all():
        return allowed[rows]
    inside = np.zeros(len(rows), np.bool_)
    inside[known] = allowed[rows[known]]
    return inside


def _products(
    vectors: NDArray[np.float32], chosen: NDArray[np.int64], question: NDArray[np.float32]
) -> NDArray[np.float32]:
    """First scores of the chosen views."""
    scores = np.empty(len(chosen), np.float32)
    for start in range(0, len(chosen), _GATHER):
        part = chosen[start : start + _GATHER]
        np.dot(vectors[part], question, out=scores[start : start + len(part)])
    return scores


def _contenders(
    views: _Views,
    candidates: NDArray[np.int64],
    scores: NDArray[np.float32],
    question: NDArray[np.float32],
    limit: int,
) -> NDArray[np.int64]:
    """The candidates that can decide who the best `limit` rows are, given first scores with an error.

    A float32 inner product of d terms errs by at most d · 2^-24 / (1 - d · 2^-24) times the norms (Higham, "Accuracy
    and Stability of Numerical Algorithms", 3.1). A row's best first score errs by no more, so that a row of the true
    best is at most two errors below the limit-th first score, and its best view one or two more.
    """
    best = scores
    if views.several_per_row:
        rows, group = np.unique(views.rows[candidates], return_inverse=True)
        best = np.full(len(rows), -np.inf, np.float32)
        np.maximum.at(best, group, scores)
    if len(best) <= limit:
        return candidates
    unit = views.vectors.shape[1] * 2.0**-24
    error = unit / (1 - unit) * views.largest_norm * float(np.linalg.norm(question.astype(np.float64)))
    border = float(np.partition(best, len(best) - limit)[len(best) - limit])
    contenders: NDArray[np.int64] = candidates[scores >= border - max(4 * error, 1e-5)]
    return contenders


def _ranked(views: _Views, candidates: NDArray[np.int64], question: NDArray[np.float32], limit: int) -> Ranking:
    """Rows of the candidates by exact score."""
    wide = question.astype(np.float64)
    scores = np.empty(len(candidates), np.float64)
    for start in range(0, len(candidates), _GATHER):
        part = candidates[start : start + _GATHER]
        # Row by row along contiguous memory, unlike BLAS, whose order of summation depends on the matrix.
        scores[start : start + len(part)] = (views.vectors[part].astype(np.float64) * wide).sum(axis=1)
    rows = views.rows[candidates]
    if views.several_per_row:
        rows, group = np.unique(rows, return_inverse=True)
        best = np.full(len(rows), -np.inf)
        np.maximum.at(best, group, scores)
        scores = best
    order = best_positions(rows, (scores,), limit)
    return Ranking(rows[order], scores[order])
