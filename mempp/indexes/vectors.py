"""Ranking by cosine over unit vectors: exact up to a size, with the help of an HNSW graph beyond.

A row may have several views (embeddings of its head and of windows of its text):

    score(r) = max over the views v of r:  v · q,  in float64

How the best are found is in `scan`; which way is taken there, over codes of one byte a number (`codes`), over the
vectors themselves or through a graph (`hnsw`), is decided by what each costs on this machine (`costs`).
"""

import logging
import math
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mempp.errors import EncoderError
from mempp.indexes.codes import CodeStore, vectors_read
from mempp.indexes.costs import ScanCosts, graph_costs, graph_recall, scan_costs
from mempp.indexes.growable import GrowableArray
from mempp.indexes.held import HeldVectors, sha256_of
from mempp.indexes.hnsw import ExactSearchWarning, Graph, GraphBuild, GraphCosts, GraphKeeper, hnswlib_is_installed
from mempp.indexes.kept_codes import CodeKeeper, KeptCodes
from mempp.indexes.products import ProductError, products_work
from mempp.indexes.ranking import Allowed, Ranking
from mempp.indexes.scan import Views, all_products, contenders, contenders_by_codes, products_of, ranked
from mempp.indexes.turning import turn_for

# From so many views on they have codes, and costs are measured; fewer are scanned in no time.
_CODED_FROM = 16_384
_CODED_TOGETHER = 8_192
_CALL = 3e-4  # seconds that a search by codes takes for the rest
_FEW_COSTS = ScanCosts(scan=1.0, gather=3.0, codes=np.inf)
_LONGEST = 1e6  # no codes for vectors longer than this: their products would leave the range of float32
_logger = logging.getLogger("mempp.indexes")
# The graph is asked for more than are wanted: the first of them are then more surely the best.
_ASKED_PER_WANTED = 20
_LEAST_ASKED = 500
_LEAST_RECALL = 0.95  # of a graph that is used


class VectorIndex:
    """Unit vectors by row, found by cosine. See `mempp.indexes` for scope, threads and ties.

    Beyond `exact_up_to` views an HNSW graph is built in the background over the views there are; later ones are
    searched exactly beside it, until there are enough of them for a new graph. Then `rank` finds at least about 95 of
    the 100 best rows, unless it is told to be exact; the scores of the rows found are always exact. While no graph is
    ready, and where a scan is quicker, everything is exact, but for a question that is near to nothing: by codes it
    finds nearly all of the best (see `scan.contenders_by_codes`).
    """

    def __init__(
        self,
        dimensions: int,
        *,
        exact_up_to: int = 1_000_000,
        graphs: GraphKeeper | None = None,
        codes: CodeKeeper | None = None,
    ) -> None:
        """An empty index.

        Args:
            dimensions: of every vector.
            exact_up_to: the number of views beyond which graphs are built.
            graphs: where the links of a graph are kept, and found again.
            codes: where the codes of the first vectors are.
        """
        self._dimensions = dimensions
        self._graphs = graphs
        self._kept_codes = codes
        self._exact_up_to = exact_up_to
        self._vectors: HeldVectors[np.float32] = HeldVectors(dimensions)
        self._rows: GrowableArray[np.int64] = GrowableArray(np.int64)
        self._place: GrowableArray[np.int64] = GrowableArray(np.int64)  # by row: its last view, -1 where it has none
        self._codes: CodeStore | None = None  # from a size on
        self._views = Views(self._vectors.values, self._rows.values, None, 0.0, False, True)
        self._costs: ScanCosts | None = None  # not known before it is first asked
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

    def add_batches(self, batches: Iterable[tuple[ArrayLike, ArrayLike, str | None]], n_views: int) -> None:
        """Add many views, batch after batch as `add` takes them; room is made and a graph thought of once.

        Args:
            batches: rows and vectors of each batch, and the SHA-256 of the vectors, little-endian float32, where that
                is known; a batch is let go of before the next is asked for.
            n_views: how many they are together.

        Raises:
            EncoderError: as `add`; the batches before have been added.
        """
        self._vectors.reserve(len(self) + n_views)
        self._rows.reserve(len(self) + n_views)
        if self._codes is not None:
            self._codes.reserve(len(self) + n_views)
        for row_ids, vectors, digest in batches:
            self._append(row_ids, vectors, digest)
            del row_ids, vectors
        self._build_when_due()

    def _append(self, row_ids: ArrayLike, vectors: ArrayLike, digest: str | None = None) -> None:
        rows = np.asarray(row_ids, np.int64)
        new = np.asarray(vectors, np.float32)
        if new.shape == (0,) and rows.shape == (0,):
            return
        if rows.ndim != 1 or new.shape != (len(rows), self._dimensions):
            raise EncoderError(
                f"Vectors of shape {new.shape} for {rows.size} rows; this index takes ({rows.size}, "
                f"{self._dimensions}). Check the encoder's dimensions."
            )
        keeper = self._kept_codes if digest is not None and not len(self) and len(rows) >= _CODED_FROM else None
        kept = None if keeper is None or digest is None else keeper.load(digest)
        if kept is not None and kept.codes.shape != new.shape:
            kept = None
        largest_norm = _largest_norm(rows, new) if kept is None else kept.largest_norm
        if not len(rows):
            return
        if rows.min() < 0:
            raise EncoderError(f"{rows.min()} is no row id; rows are numbered from 0.")
        top_row = int(rows.max())
        if top_row >= len(self._place):
            self._place.extend(np.full(top_row + 1 - len(self._place), -1))
        known = bool((self._place.values[rows] >= 0).any())
        twice = bool((np.diff(rows) <= 0).any()) and len(np.unique(rows)) < len(rows)
        several = self._views.several_per_row or known or twice
        first = len(self._rows)
        self._vectors.extend(new)
        self._rows.extend(rows)
        # After the vectors: whoever finds a place here finds the vector there.
        self._place.values[rows] = np.arange(first, first + len(rows))
        norm = max(largest_norm, self._views.largest_norm)
        in_order = self._views.in_order and bool(rows[0] == first and (np.diff(rows) == 1).all())
        if kept is not None:
            self._codes = CodeStore.beginning_with(kept.codes)
        codes = self._coded(norm)
        found = None if codes is None else codes.snapshot()
        self._views = Views(self._vectors.values, self._rows.values, found, norm, several, in_order)
        if keeper is not None and digest is not None and kept is None and found is not None:
            keeper.keep(digest, KeptCodes(found, norm))

    def _coded(self, largest_norm: float) -> CodeStore | None:
        """Bring the codes up to the vectors, once these are many."""
        if len(self._vectors) < _CODED_FROM or largest_norm > _LONGEST:
            return None
        if self._codes is not None and len(self._codes) == len(self._vectors):
            return self._codes  # as they were kept; whether this processor can multiply them shows when they are asked
        if not products_work():
            return None
        if self._codes is None:
            self._codes = CodeStore(self._dimensions, turn_for(self._vectors.values.part(0, _CODED_FROM)))
            self._codes.reserve(max(len(self._vectors), self._vectors.reserved))
            self._costs = None
        try:
            for start in range(len(self._codes), len(self._vectors), _CODED_TOGETHER):
                self._codes.extend(self._vectors.values.part(start, min(start + _CODED_TOGETHER, len(self._vectors))))
        except ProductError as error:  # the next vectors are another try
            _logger.warning("onnxruntime failed (%s); the vectors are scanned in full", error)
            return None
        return self._codes

    @property
    def mapped(self) -> int:
        """How many of the views, the first ones, are mapped from a file."""
        return len(self._vectors.values.first)

    def keep_codes(self, size: int, digest: str) -> None:
        """Keep the codes of the first views between processes, if there are any and they are not kept already.

        Args:
            size: how many views; fewer than have codes are left.
            digest: the SHA-256 of their vectors, little-endian float32, in a file; where those here are others, nothing
                is kept.
        """
        keeper, views = self._kept_codes, self._views
        if keeper is None or views.codes is None or not _CODED_FROM <= size <= len(views):
            return
        if keeper.load(digest) is None and sha256_of(views.vectors, size) == digest:
            keeper.keep(digest, KeptCodes(views.codes.up_to(size), views.largest_norm))

    def rows_with_vectors(self, n_rows: int) -> NDArray[np.bool_]:
        """Which of the first `n_rows` rows have a view, shape (n_rows,)."""
        have = np.zeros(n_rows, np.bool_)
        rows = self._views.rows
        have[rows[rows < n_rows]] = True
        return have

    def have_vectors(self, row_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows have a view, shape (n,), or get one just now; takes no longer in a large index."""
        by_row = self._place.values
        have = row_ids < len(by_row)
        have[have] = by_row[row_ids[have]] >= 0
        return have

    def vectors_of(self, row_ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The last view of each of these rows, (n, dimensions), zeros where there is none; and (n,) which have one."""
        places = np.full(len(row_ids), -1, np.int64)
        by_row = self._place.values
        known = row_ids < len(by_row)
        places[known] = by_row[row_ids[known]]
        have = places >= 0
        if have.all():
            return self._vectors.values.take(places), have
        vectors = np.zeros((len(row_ids), self._dimensions), np.float32)
        vectors[have] = self._vectors.values.take(places[have])
        return vectors, have

    def rank(
        self, question_vector: NDArray[np.float32], allowed: Allowed, limit: int, *, exact: bool = False
    ) -> Ranking:
        """The rows in scope nearest to the question.

        Args:
            question_vector: a unit vector, shape (dimensions,).
            allowed: the scope, shape (n_rows,).
            limit: how many rows at most. Fewer come back only when the scope holds fewer rows with vectors.
            exact: leave nobody out: without the graph, and with what codes prove alone.

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
        if views.codes is not None and not products_work():
            views = replace(views, codes=None)
        inside = _inside(views, allowed)
        n_inside = int(np.count_nonzero(inside))
        if limit <= 0 or not n_inside:
            return Ranking.empty()
        costs = self._costs_of(views)
        codes = views.codes if np.abs(question).max() <= _LONGEST else None
        by_gather, by_scan = n_inside * costs.gather, len(views) * costs.scan
        by_codes = np.inf if codes is None else vectors_read(len(views), n_inside) * costs.codes + _CALL
        if graph is not None and graph.costs is not None:
            cheapest = min(by_codes, by_gather, by_scan)
            near = self._by_graph(graph, graph.costs, views, inside, question, limit, cheapest, costs)
            if near is not None:
                return ranked(views, near, question, limit)
        chosen = None if n_inside == len(views) else np.flatnonzero(inside)
        if codes is not None and by_codes < min(by_gather, by_scan):
            try:
                found = contenders_by_codes(views, codes, chosen, question, limit, exact=exact)
                return _ranked_of(views, found, question, limit)
            except ProductError as error:
                _logger.warning("onnxruntime failed (%s); the vectors are scanned in full", error)
        candidates = np.arange(len(views)) if chosen is None else chosen
        if by_gather < by_scan:
            return _ranked_of(views, candidates, question, limit)
        scores = all_products(views.vectors, question)
        scores = scores if chosen is None else scores[chosen]
        return ranked(views, contenders(views, candidates, scores, question, limit), question, limit)

    def _costs_of(self, views: Views) -> ScanCosts:
        if len(views) < _CODED_FROM:
            return _FEW_COSTS
        costs = self._costs
        if costs is None:
            try:
                costs = self._costs = scan_costs(views)
            except ProductError as error:  # the next question is another try
                _logger.warning("onnxruntime failed (%s); the vectors are scanned in full", error)
                costs = scan_costs(replace(views, codes=None))
        return costs

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
        measured: GraphCosts,
        views: Views,
        inside: NDArray[np.bool_],
        question: NDArray[np.float32],
        limit: int,
        cheapest: float,
        costs: ScanCosts,
    ) -> NDArray[np.int64] | None:
        """Views that hold the best rows, with the graph's help; None where the cheapest exact way is quicker."""
        in_graph = inside[: graph.size]
        n_in_graph = int(np.count_nonzero(in_graph))
        asked = max(limit * _ASKED_PER_WANTED, _LEAST_ASKED)
        later = graph.size + np.flatnonzero(inside[graph.size :])
        while True:
            if asked * 2 > n_in_graph:  # also where all that is in scope is newer than the graph
                return None
            if measured.of(asked, n_in_graph / graph.size) + len(later) * costs.gather > cheapest:
                return None
            try:
                near = graph.nearest(question, asked, None if n_in_graph == graph.size else in_graph)
            except RuntimeError:  # it met too few of those in scope
                return None
            if not views.several_per_row or len(np.unique(views.rows[near])) >= limit:
                break
            asked *= 2
        candidates = np.concatenate((near, later))
        scores = products_of(views.vectors, candidates, question)
        return contenders(views, candidates, scores, question, limit)

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
        views = self._views
        # The thread must not keep the index alive.
        me = weakref.ref(self)

        def publish(graph: Graph | None) -> None:
            index = me()
            if index is None or graph is None:
                return
            index._next_build_at = graph.size + step(graph.size)
            recall = graph_recall(graph, views.vectors, _LEAST_ASKED)
            if recall < _LEAST_RECALL:
                _logger.warning(
                    "a graph over %d vectors finds %.2f of the nearest; it is not used, and answers stay exact",
                    graph.size,
                    recall,
                )
                return
            index._graph = replace(graph, costs=graph_costs(graph, views.vectors, _LEAST_ASKED))

        if self._finalizer is not None:
            self._finalizer.detach()
        self._build = GraphBuild(views.vectors, publish, keeper=self._graphs, rows=views.rows, step=step)
        self._finalizer = weakref.finalize(self, self._build.stop)


def _largest_norm(rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> float:
    """At least the length of each of these vectors, 0 of none.

    Raises:
        EncoderError: a number is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", vectors, vectors)
    # A number that is not finite shows in the sum, at a third of the time that looking at each takes.
    if not np.isfinite(squares).all() and not np.isfinite(vectors).all():
        bad = rows[~np.isfinite(vectors).all(axis=1)][0]
        raise EncoderError(f"The vector of row {bad} holds NaN or infinity; check the encoder's output.")
    # An upper bound; the sum in float32 errs by less than 0.1 %.
    largest = float(squares.max(initial=0)) * 1.001
    if not math.isfinite(largest):
        largest = float(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max())
    return math.sqrt(largest)


def _ranked_of(views: Views, candidates: NDArray[np.int64], question: NDArray[np.float32], limit: int) -> Ranking:
    """The best rows of these views, each of them read out of its place."""
    scores = products_of(views.vectors, candidates, question)
    return ranked(views, contenders(views, candidates, scores, question, limit), question, limit)


def _inside(views: Views, allowed: Allowed) -> NDArray[np.bool_]:
    """(n,) which views belong to rows in scope."""
    rows = views.rows
    if views.in_order:
        if len(allowed) >= len(rows):
            return allowed[: len(rows)]
        inside = np.zeros(len(rows), np.bool_)
        inside[: len(allowed)] = allowed
        return inside
    known = rows < len(allowed)
    if known.all():
        return allowed[rows]
    inside = np.zeros(len(rows), np.bool_)
    inside[known] = allowed[rows[known]]
    return inside
