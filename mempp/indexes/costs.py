"""What the ways of searching cost on this machine, measured with the vectors at hand.

Times decide only which way is taken, never what is found: all but the graph are exact.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from mempp.indexes.held import Held
from mempp.indexes.hnsw import Graph, GraphCosts
from mempp.indexes.scan import Views, all_products, inner_products, products_of

_PROBED = 1 << 16  # vectors that a try reads in a row: enough that starting threads hardly counts
_GATHERED = 1 << 10
_QUESTIONS = 36
_WANTED = 24
_TAILS_READ = 4  # of so many tails one
_TRIES = 5  # the quickest counts: the others were held up by somebody else

_logger = logging.getLogger("mempp.indexes")


@dataclass(frozen=True, slots=True)
class ScanCosts:
    """Seconds for each vector."""

    scan: float
    """Read in a row, float32."""
    gather: float
    """Read out of its place, float32."""
    codes: float
    """Read in a row, codes; infinite where there are none."""


def scan_costs(views: Views) -> ScanCosts:
    """Measure scans of these views, at least a few thousand; about 20 ms."""
    size, dimensions = views.vectors.shape
    question = np.full(dimensions, dimensions**-0.5, np.float32)
    codes = views.codes
    read, gathered = min(_PROBED, size), min(_GATHERED, size)

    def scan(start: int) -> None:
        inner_products(views.vectors.part(start, start + read), question)

    def gather(start: int) -> None:
        chosen = (start + np.arange(gathered) * 7919) % size
        products_of(views.vectors, chosen, question)

    def products(start: int) -> None:
        if codes is not None:
            head, tail = codes.turned(question)
            codes.head.part(start, start + read).products(codes.head.asked(head), None)
            if codes.tail is not None:  # of real texts less than this have to be read
                codes.tail.part(start, start + read // _TAILS_READ).products(codes.tail.asked(tail), None)

    costs = ScanCosts(
        scan=_seconds(scan, size - read) / read,
        gather=_seconds(gather, size - 1) / gathered,
        codes=np.inf if codes is None else _seconds(products, size - read) / read,
    )
    _logger.debug("seconds for a vector of %d dimensions: %s", dimensions, costs)
    return costs


def graph_costs(graph: Graph, vectors: Held[np.float32], asked: int) -> GraphCosts:
    """Measure searches for this many vectors in a graph."""
    asked = max(1, min(asked, graph.size // 4))
    questions = vectors.take(np.linspace(0, graph.size - 1, _TRIES).astype(np.int64))
    half = np.zeros(graph.size, np.bool_)
    half[::2] = True
    try:
        # The slowest counts, since questions differ, and one that stands apart from all texts takes longest.
        alone = max(_once(partial(graph.nearest, question, asked, None)) for question in questions)
        filtered = max(_once(partial(graph.nearest, question, asked, half)) for question in questions)
    except RuntimeError:  # it found fewer: too small to be of use
        return GraphCosts(np.inf, np.inf)
    return GraphCosts(alone / asked, filtered / asked)


def graph_recall(graph: Graph, vectors: Held[np.float32], asked: int) -> float:
    """Which share of the nearest vectors, by a full scan, searches in a graph find: the mean over some questions of the
    kind that finds least.

    A graph over texts that repeat may fall apart: copies have links to copies only. Questions are vectors of the graph,
    such as lie near one, such as lie between two, and such as are near to nothing; every other one of a kind may find
    only half of the vectors.

    Args:
        graph: the graph.
        vectors: the vectors that it was made for come first in them.
        asked: how many vectors a search asks for; the first `_WANTED` count.
    """
    chance = np.random.default_rng(graph.size)
    size, wanted = graph.size, min(_WANTED, graph.size // 8)
    asked = min(asked, graph.size // 4)
    half = chance.random(size) < 0.5
    shares: list[list[float]] = [[], [], [], []]
    for number in range(_QUESTIONS):
        one, other = vectors.take(chance.integers(0, size, 2))
        anywhere = chance.standard_normal(vectors.shape[1], dtype=np.float32)
        question = (one, one + np.float32(0.05) * anywhere, one + other, anywhere)[number % 4]
        scores = all_products(vectors, question)[:size]
        inside = half if number // 4 % 2 else None
        border = np.partition(scores if inside is None else scores[inside], -wanted)[-wanted] if wanted else -np.inf
        try:
            found = graph.nearest(question, asked, inside)
        except RuntimeError:  # it met fewer
            found = np.empty(0, np.int64)
        # By their scores: of equals any will do.
        shares[number % 4].append(
            min(1.0, np.count_nonzero(scores[found] >= border - 1e-5) / wanted) if wanted else 1.0
        )
    return float(min(map(np.mean, shares)))


def _seconds(work: Callable[[int], None], last: int) -> float:
    """The least time that the work takes, each time from another place, so that no cache holds what it reads."""
    return min(_once(partial(work, last * number // _TRIES)) for number in range(_TRIES))


def _once(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
