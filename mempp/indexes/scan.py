"""Finding the best rows exactly: first scores in float32 or by codes, then exact ones of those that can decide.

A first score says where the true one lies, up to an error. Whoever can be among the best within that error contends,
and contenders are scored again one by one in float64, by an operation whose result does not depend on which other
rows there are. So scores and ties are the same to the last bit whatever else the index holds, and however the
contenders were found.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.codes import GATHERED_COST, AskedPlane, Codes, Plane
from mempp.indexes.held import Held
from mempp.indexes.ranking import Ranking, best_positions

_GATHER = 1024  # vectors copied together at a time, so that the copy stays in the processor's cache
_TRIED_PER_WANTED = 4  # the best by their heads, who tell how good one must be at least
_FEW = 4  # one in so many of those in scope
_SORTED_WHOLE = 1 << 13  # values; of more the largest are found by way of the largest of each stretch


@dataclass(frozen=True, slots=True)
class Views:
    """What a reader takes hold of: a consistent prefix of the views."""

    vectors: Held[np.float32]
    rows: NDArray[np.int64]
    """(n,) the row of each."""
    codes: Codes | None
    """Of all of them; None as long as they are few."""
    largest_norm: float
    several_per_row: bool
    in_order: bool
    """Whether view number and row are the same for all."""

    def __len__(self) -> int:
        return len(self.rows)


def inner_products(
    vectors: NDArray[np.float32], question: NDArray[np.float32], out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """First scores of vectors that lie in a row, (n, dimensions) → (n,), in the thread that calls.

    Not by BLAS: after a product on several threads OpenBLAS keeps these spinning for a while, and whoever runs next,
    the encoder with the next question, waits for a core: 20 ms in place of 4 on two cores.
    """
    return np.einsum("ij,j->i", vectors, question, out=out)


def all_products(vectors: Held[np.float32], question: NDArray[np.float32]) -> NDArray[np.float32]:
    """First scores of all views, (n,)."""
    scores = np.empty(len(vectors), np.float32)
    size = len(vectors.first)
    inner_products(vectors.first, question, out=scores[:size])
    inner_products(vectors.later, question, out=scores[size:])
    return scores


def products_of(
    vectors: Held[np.float32], chosen: NDArray[np.int64], question: NDArray[np.float32]
) -> NDArray[np.float32]:
    """First scores of the chosen views."""
    scores = np.empty(len(chosen), np.float32)
    for start in range(0, len(chosen), _GATHER):
        part = chosen[start : start + _GATHER]
        inner_products(vectors.take(part), question, out=scores[start : start + len(part)])
    return scores


def contenders_by_codes(
    views: Views,
    codes: Codes,
    chosen: NDArray[np.int64] | None,
    question: NDArray[np.float32],
    limit: int,
    *,
    exact: bool,
) -> NDArray[np.int64]:
    """The views that can decide who the best `limit` rows are, ascending, as far as their codes tell.

    Of a question that is near to nothing the heads leave most views in the race. Then, unless it is to be exact, tails
    are taken to be what they usually are among the best: their mean there and four standard deviations.

    Args:
        views: the views.
        codes: of all of them.
        chosen: (m,) the scope, ascending; None for all.
        question: (dimensions,).
        limit: how many rows are wanted.
        exact: leave nobody out who can be proven to matter.

    Raises:
        ProductError: onnxruntime failed.
    """
    scope = _Scope(views, chosen)
    length = float(np.linalg.norm(question.astype(np.float64)))
    of_head, of_tail = codes.turned(question)
    asked = codes.head.asked(of_head)
    tail = codes.tail
    if tail is None:
        bounds = np.zeros(len(scope), np.float32)
        products = codes.head.products(asked, chosen, bounds, length)
        return _within_bounds(scope, products, bounds, limit)
    products = codes.head.products(asked, chosen)
    tail_asked = tail.asked(of_tail)
    few = len(scope) if exact else len(scope) // _FEW
    kept = _kept_by_heads(scope, codes, tail, products, asked, tail_asked, length, limit, few)
    if len(kept) * GATHERED_COST >= len(scope):
        bounds = codes.head.bounds(asked, length, slice(None) if chosen is None else chosen)
        products += tail.products(tail_asked, chosen, bounds)
        return _within_bounds(scope, products, bounds, limit)
    found, numbers = products.take(kept), scope.numbers(kept)
    bounds = codes.head.bounds(asked, length, numbers)
    found += tail.products(tail_asked, numbers, bounds)
    border = scope.border(found - bounds, kept, limit)
    found += bounds
    return numbers[found >= border]


@dataclass(frozen=True, slots=True)
class _Scope:
    """The views that a question may find, in places from 0 on."""

    views: Views
    chosen: NDArray[np.int64] | None
    """(m,) the view at each place, ascending; None for all."""

    def __len__(self) -> int:
        return len(self.views) if self.chosen is None else len(self.chosen)

    def numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The views at these places."""
        return places if self.chosen is None else self.chosen.take(places)

    def all_numbers(self) -> NDArray[np.int64]:
        """The views at all places."""
        return np.arange(len(self.views)) if self.chosen is None else self.chosen

    def of_all(self, facts: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of a number for each view those at all places."""
        return facts if self.chosen is None else facts.take(self.chosen)

    def border(self, scores: NDArray[np.float32], places: NDArray[np.int64] | None, limit: int) -> float:
        """The limit-th highest of the rows' best scores at these places, None for all; see `_border`."""

        def rows_of(above: NDArray[np.int64]) -> NDArray[np.int64]:
            return self.views.rows.take(self.numbers(above if places is None else places.take(above)))

        return _border(scores, rows_of, limit, self.views.several_per_row)


def _within_bounds(
    scope: _Scope, products: NDArray[np.float32], bounds: NDArray[np.float32], limit: int
) -> NDArray[np.int64]:
    """Who can be among the best: a row of these is no worse than the limit-th best of what all rows have at least."""
    border = scope.border(products - bounds, None, limit)
    products += bounds
    return scope.numbers(np.flatnonzero(products >= border)) if border > -np.inf else scope.all_numbers()


def _kept_by_heads(
    scope: _Scope,
    codes: Codes,
    tail: Plane,
    products: NDArray[np.float32],
    asked: AskedPlane,
    tail_asked: AskedPlane,
    length: float,
    limit: int,
    few: int,
) -> NDArray[np.int64]:
    """The places of those who can be among the best by what their heads say, ascending.

    Proven, unless more than `few` can be.
    """
    likely = _TRIED_PER_WANTED * limit
    if likely >= len(products):
        return np.arange(len(products))
    best = np.flatnonzero(products >= largest(products, likely))
    if len(best) > _TRIED_PER_WANTED * likely:  # most are equal
        return np.arange(len(products))
    numbers = scope.numbers(best)
    tails = tail.products(tail_asked, numbers)
    least = products[best] + tails
    least -= codes.head.bounds(asked, length, numbers)
    least -= tail.bounds(tail_asked, None, numbers)
    border = scope.border(least, best, limit)
    if border == -np.inf:
        return np.arange(len(products))
    # In float32, as there may be very many views, and with one bound for all heads.
    of_errors, of_lengths = asked.factors(length)
    slack = codes.most[0] * of_errors + codes.most[1] * of_lengths + 1e-37
    needed = np.float32(border - slack - 1e-6 * (abs(border) + slack))
    of_tails = np.float32(tail_asked.length * (1 + 1e-6))
    kept = _kept_by_longest(products, needed, codes.most[2] * float(of_tails))
    if kept is None:
        most = _most_of(products, scope.of_all(tail.lengths), scope.of_all(tail.errors), of_tails)
        kept = np.flatnonzero(most >= needed)
    else:
        numbers = scope.numbers(kept)
        most = _most_of(products.take(kept), tail.lengths.take(numbers), tail.errors.take(numbers), of_tails)
        kept = kept[most >= needed]
    if len(kept) <= few:
        return kept
    of_best = tails[least >= border]
    usual = float(of_best.mean()) + 4 * float(of_best.std())
    return np.flatnonzero(products >= np.float32(border - usual))


def _kept_by_longest(products: NDArray[np.float32], needed: np.float32, longest: float) -> NDArray[np.int64] | None:
    """Who would be kept if every tail could give as much as the longest one: one pass over the products, where
    `_most_of` takes four. None where these are so many that nothing is gained."""
    least = np.float32(float(needed) - longest - 1e-6 * (abs(float(needed)) + longest))
    kept = np.flatnonzero(products >= least)
    return kept if len(kept) * _FEW < len(products) else None


def _most_of(
    products: NDArray[np.float32], lengths: NDArray[np.float32], errors: NDArray[np.float32], of_tails: np.float32
) -> NDArray[np.float32]:
    """What heads give, and tails can at most."""
    most = lengths + errors
    most *= of_tails
    most += products
    return most


def contenders(
    views: Views,
    candidates: NDArray[np.int64],
    scores: NDArray[np.float32],
    question: NDArray[np.float32],
    limit: int,
) -> NDArray[np.int64]:
    """The candidates that can decide who the best `limit` rows are, given first scores in float32.

    A float32 inner product of d terms errs by at most d · 2^-24 / (1 - d · 2^-24) times the norms (Higham, "Accuracy
    and Stability of Numerical Algorithms", 3.1). A row's best first score errs by no more, so that a row of the true
    best is at most two errors below the limit-th first score, and its best view one or two more.
    """
    unit = views.vectors.shape[1] * 2.0**-24
    error = unit / (1 - unit) * views.largest_norm * float(np.linalg.norm(question.astype(np.float64)))
    border = _Scope(views, candidates).border(scores, None, limit)
    chosen: NDArray[np.int64] = candidates[scores >= border - max(4 * error, 1e-5)]
    return chosen


def ranked(views: Views, candidates: NDArray[np.int64], question: NDArray[np.float32], limit: int) -> Ranking:
    """Rows of the candidates by exact score."""
    wide = question.astype(np.float64)
    scores = np.empty(len(candidates), np.float64)
    for start in range(0, len(candidates), _GATHER):
        part = candidates[start : start + _GATHER]
        # Row by row along contiguous memory, unlike BLAS, whose order of summation depends on the matrix.
        scores[start : start + len(part)] = (views.vectors.take(part).astype(np.float64) * wide).sum(axis=1)
    rows = views.rows[candidates]
    if views.several_per_row:
        rows, group = np.unique(rows, return_inverse=True)
        best = np.full(len(rows), -np.inf)
        np.maximum.at(best, group, scores)
        scores = best
    order = best_positions(rows, (scores,), limit)
    return Ranking(rows[order], scores[order])


def _border(
    scores: NDArray[np.float32],
    rows_of: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    limit: int,
    several_per_row: bool,
) -> float:
    """The limit-th highest of the rows' best scores; -inf where there are no more rows than that."""
    wanted = limit
    while True:
        if wanted >= len(scores):
            if not several_per_row:
                return -np.inf
            floor = -np.inf
        else:
            floor = largest(scores, wanted)
            if not several_per_row:
                return floor
        # The best view of each row that has one above the floor is above it too.
        above = np.flatnonzero(scores >= floor)
        distinct, group = np.unique(rows_of(above), return_inverse=True)
        if len(distinct) > limit or (len(distinct) == limit and floor > -np.inf):
            best = np.full(len(distinct), -np.inf, np.float32)
            np.maximum.at(best, group, scores[above])
            return float(np.partition(best, len(best) - limit)[len(best) - limit])
        if floor == -np.inf:
            return -np.inf
        wanted *= 4


def largest(values: NDArray[np.float32], count: int) -> float:
    """The `count`-th largest of more values than that."""
    if len(values) > _SORTED_WHOLE and len(values) > 16 * count:
        # The count-th largest of the stretches' largest is no more than the count-th largest of all.
        width = max(2, len(values) // (8 * count + 512))
        whole = len(values) // width * width
        tops = values[:whole].reshape(-1, width).max(axis=1)
        values = values[values >= np.partition(tops, len(tops) - count)[len(tops) - count]]
    return float(np.partition(values, len(values) - count)[len(values) - count])
