"""The context of a row: its neighbours in the same thread, in event order, as far as they are in scope.

Context is found when a question is asked, among the rows that it may see, and nothing about it is kept: so nothing
leaks across a bound, and a row that comes later changes no past answer.

    weight of a neighbour at distance d in its thread:   1 / (1 + d),   d = 1 … `reach`
    of a row without a thread: rows of the same day (UTC), also without a thread, whose vectors are alike;
    weight:   (cos - LIKENESS) / (1 - LIKENESS), where above 0; on a crowded day the MOST_PARTNERS nearest of them

A thread whole is the row's *group*; a row without a thread is a group of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.recall.row_groups import ranges
from mempp.recall.scope import Allowed
from mempp.recall.table import UNDATED
from mempp.recall.threads import DAY, Threads

LIKENESS = 0.45
"""Cosine from which two rows of one day count as of one matter."""
BROUGHT_IN = 1
"""A candidate brings in its neighbours up to this distance as candidates of their own."""
PARTNER = 0.1
"""Weight from which a row without a thread shares its best view with another."""
LARGEST_DAY = 32
"""Rows without a thread on one day; of more, only those that are candidates themselves can be partners."""
MOST_PARTNERS = 16
"""Of a day with more rows than that, a row is seen with the rows most alike, at most so many."""
_MULTIPLIED_TOGETHER = 1024  # pairs, whose vectors stay in the processor's cache
_LOOKED_AT_TOGETHER = 1024  # candidates of such a day, by row id; the work grows with them, not with their square

Vectors = Callable[[NDArray[np.int64]], tuple[NDArray[np.float32], NDArray[np.bool_]]]
"""Rows → their (n, dimensions) vectors, and (n,) whether each has one."""


@dataclass(frozen=True, slots=True)
class Context:
    """The rows that are scored, and what each is seen with. Edges run from a row to each row of its context, itself
    with weight 1 among them, in the order of (target, source)."""

    rows: NDArray[np.int64]
    """(m,) ascending: the candidates and their neighbours, all in scope."""
    seen: NDArray[np.int64]
    """(p,) ascending: `rows` and the neighbours of each."""
    target: NDArray[np.int64]
    """(edges,) position in `rows`."""
    source: NDArray[np.int64]
    """(edges,) position in `seen`."""
    weight: NDArray[np.float64]
    """(edges,)"""
    unit: NDArray[np.int64]
    """(m,) the thread of each row, or a unit of its own; see `Threads`."""
    threaded: NDArray[np.bool_]
    """(m,) whether the row has a thread."""

    def gather(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ over the context of each row: (p,) values of `seen` → (m,)."""
        together = np.bincount(self.target, self.weight * values[self.source], minlength=len(self.rows))
        return together.astype(np.float64, copy=False)  # without any edge it counts in whole numbers


def context_of(
    candidates: NDArray[np.int64],
    allowed: Allowed,
    occurred_at: NDArray[np.int64],
    threads: Threads,
    reach: int,
    vectors: Vectors | None,
) -> Context:
    """The candidates, their neighbours, and the context of all of these.

    Args:
        candidates: distinct rows in scope.
        allowed: (rows,) the scope.
        occurred_at: (rows,) event dates.
        threads: which rows belong together.
        reach: how many neighbours on each side; 0: every row stands alone.
        vectors: gives vectors of rows, for rows without a thread; None where there are none.
    """
    candidates = np.sort(candidates)
    rows_known = len(allowed)
    unit_of, threaded = threads.unit_of(rows_known), threads.threaded(rows_known)
    if not reach:
        own = np.arange(len(candidates), dtype=np.int64)
        ones = np.ones(len(candidates))
        return Context(candidates, candidates, own, own, ones, unit_of[candidates], threaded[candidates])
    edges = [_alone(candidates)]
    rows = [candidates]
    with_thread = candidates[threaded[candidates]]
    if len(with_thread):
        order, starts = _event_order(with_thread, allowed, occurred_at, threads, unit_of)
        marked = np.zeros(rows_known, np.bool_)
        marked[with_thread] = True
        near = _around(marked[order], starts, BROUGHT_IN)
        rows.append(order[near])
        edges += [_alone(order[near]), *_shifted(order, starts, near, reach)]
    without = candidates[~threaded[candidates]]
    if len(without) and vectors is not None:
        edges += _of_one_day(without, allowed, occurred_at, threads, vectors)
        rows.append(np.concatenate([target for target, _, _ in edges]))
    scored = np.unique(np.concatenate(rows))
    targets, sources, weights = (np.concatenate(part) for part in zip(*edges, strict=True))
    seen = np.unique(np.concatenate((scored, sources)))
    # A row may come with the same neighbour twice, once as a candidate and once as a neighbour itself.
    pair = np.searchsorted(scored, targets) * len(seen) + np.searchsorted(seen, sources)
    pair, first = np.unique(pair, return_index=True)
    return Context(scored, seen, pair // len(seen), pair % len(seen), weights[first], unit_of[scored], threaded[scored])


Edges = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def _alone(rows: NDArray[np.int64]) -> Edges:
    return rows, rows, np.ones(len(rows))


def _event_order(
    rows: NDArray[np.int64],
    allowed: Allowed,
    occurred_at: NDArray[np.int64],
    threads: Threads,
    unit_of: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """All rows in scope of the threads of these, thread after thread, each in event order (undated last, then by row).

    Returns:
        the rows, and for each whether its thread begins there.
    """
    order = threads.rows_of(np.unique(unit_of[rows]).tolist(), len(allowed))
    order = order[allowed[order]]
    units = unit_of[order]
    dates = occurred_at[order]
    dates = np.where(dates == UNDATED, np.iinfo(np.int64).max, dates)
    starts = np.ones(len(order), np.bool_)
    starts[1:] = units[1:] != units[:-1]
    # Most threads were put on record in the order of their events, and then this is their order already.
    if not (starts[1:] | (dates[1:] >= dates[:-1])).all():
        number = np.cumsum(starts)
        order = order[np.lexsort((order, dates, number))]
    return order, starts


def _around(marked: NDArray[np.bool_], starts: NDArray[np.bool_], reach: int) -> NDArray[np.intp]:
    """Positions of the marked and of those within `reach` of them in the same thread."""
    number = np.cumsum(starts)
    near = marked.copy()
    for distance in range(1, reach + 1):
        same = number[distance:] == number[:-distance]
        near[distance:] |= marked[:-distance] & same
        near[:-distance] |= marked[distance:] & same
    return np.flatnonzero(near)


def _shifted(order: NDArray[np.int64], starts: NDArray[np.bool_], near: NDArray[np.intp], reach: int) -> list[Edges]:
    """Edges from the rows at these positions to those within `reach` of them in the same thread."""
    number = np.cumsum(starts)
    longest = int(np.diff(np.flatnonzero(starts), append=len(order)).max())
    reach = min(reach, longest - 1)  # no row of a thread is further from another
    edges = []
    for distance in [*range(-reach, 0), *range(1, reach + 1)]:
        there = near + distance
        inside = (there >= 0) & (there < len(order))
        here, there = near[inside], there[inside]
        same = number[here] == number[there]
        here, there = here[same], there[same]
        edges.append((order[here], order[there], np.full(len(here), 1.0 / (1 + abs(distance)))))
    return edges


def _of_one_day(
    rows: NDArray[np.int64],
    allowed: Allowed,
    occurred_at: NDArray[np.int64],
    threads: Threads,
    vectors: Vectors,
) -> list[Edges]:
    """Edges between these rows, which have no thread, and others that have none, are dated on the same day and alike.

    Both ways: so a partner that is no candidate is seen with the candidates that brought it in.
    """
    dated = rows[occurred_at[rows] != UNDATED]
    day_of = occurred_at[dated] // DAY
    days = np.unique(day_of)
    others = threads.rows_on(days.tolist(), len(allowed))
    others = others[allowed[others]]
    others_day = occurred_at[others] // DAY  # ascending: day after day
    first, end = np.searchsorted(others_day, days), np.searchsorted(others_day, days, side="right")
    crowded = end - first > LARGEST_DAY
    in_crowd = crowded[np.searchsorted(days, day_of)]
    edges: list[Edges] = []
    ours, of_crowd = dated[in_crowd], day_of[in_crowd]
    counted, sizes = np.unique(of_crowd, return_counts=True)
    for day in counted[sizes > 1].tolist():
        of_day = ours[of_crowd == day]
        starts = range(0, len(of_day), _LOOKED_AT_TOGETHER)
        edges += [_most_alike(of_day[start : start + _LOOKED_AT_TOGETHER], vectors) for start in starts]
    ours, place = dated[~in_crowd], np.searchsorted(days, day_of[~in_crowd])
    mine, partners, shares = _alike(ours, others, first[place], (end - first)[place], vectors)
    edges += [(mine, partners, shares), (partners, mine, shares), _alone(np.unique(partners))]
    return edges


def _alike(
    rows: NDArray[np.int64],
    others: NDArray[np.int64],
    first: NDArray[np.int64],
    sizes: NDArray[np.int64],
    vectors: Vectors,
) -> Edges:
    """Edges from each of these rows to those of its day that are alike.

    Args:
        rows: (m,)
        others: the rows of all days.
        first: (m,) where in `others` the rows of each row's day begin.
        sizes: (m,) how many these are.
        vectors: gives vectors of rows.
    """
    ours, partners = np.repeat(rows, sizes), others[ranges(first, sizes)]
    apart = ours != partners
    ours, partners = ours[apart], partners[apart]
    known = np.unique(np.concatenate((ours, partners)))
    given, have = vectors(known)
    here, there = np.searchsorted(known, ours), np.searchsorted(known, partners)
    both = have[here] & have[there]
    here, there = here[both], there[both]
    cosines = np.empty(len(here), np.float64)
    for start in range(0, len(here), _MULTIPLIED_TOGETHER):
        part = slice(start, start + _MULTIPLIED_TOGETHER)
        # Pair by pair, unlike BLAS, whose order of summation depends on the shape: the same whatever else there is.
        cosines[part] = np.einsum("ij,ij->i", given[here[part]], given[there[part]])
    weight = (cosines - LIKENESS) / (1 - LIKENESS)
    kept = weight > 0
    return known[here[kept]], known[there[kept]], np.minimum(weight[kept], 1.0)


def _most_alike(rows: NDArray[np.int64], vectors: Vectors) -> Edges:
    """Edges from each of these rows, ascending, to at most `MOST_PARTNERS` of them that are most alike.

    Of several equally near at the end of the list any are taken.
    """
    given, have = vectors(rows)
    rows, given = rows[have], given[have]
    # The shape is that of the scope alone, so that this product is the same whatever came later.
    weight = ((given @ given.T).astype(np.float64) - LIKENESS) / (1 - LIKENESS)
    np.fill_diagonal(weight, 0.0)
    if len(rows) > MOST_PARTNERS:
        nearest = np.argpartition(weight, -MOST_PARTNERS, axis=1)[:, -MOST_PARTNERS:]
        of_nearest = np.take_along_axis(weight, nearest, axis=1)
        weight[:] = 0.0
        np.put_along_axis(weight, nearest, of_nearest, axis=1)
    here, there = np.nonzero(weight > 0)
    return rows[here], rows[there], np.minimum(weight[here, there], 1.0)
