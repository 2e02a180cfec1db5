"""Which k rows make the answer: the best by score, then the recency slots, then what fills up (paper, algorithm 1).

Before that, in the default, threads are spread: the fourth row of one thread, and each after it, gives way a little, so
that one long conversation does not take every place.
"""

import heapq
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mempp.recall.fusion import Fused, latest_first
from mempp.recall.legs import Candidates
from mempp.recall.scope import Allowed
from mempp.settings import Settings

Via = Literal["score", "recency", "fill"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """One row of the answer, and what brought it there."""

    row_id: int
    score: float
    matched: bool
    via: Via


FREE_OF_SPREAD = 3
"""So many rows of one thread keep their score."""


def spread_threads(fused: Fused, candidates: Candidates, penalty: float, wanted: int) -> Fused:
    """Take `penalty` off the score of a row once for the third row of its thread before it, and for each more.

    Greedy, as maximal marginal relevance is (Carbonell and Goldstein, 1998), with "of one thread" as the likeness.

    Args:
        fused: rows, best first.
        candidates: tells the thread of each row.
        penalty: 0 leaves everything as it is.
        wanted: so many places are settled; the rows after them stay in their order, with their scores.
    """
    if not penalty or not len(fused.row_ids):
        return fused
    places = np.searchsorted(candidates.row_ids, fused.row_ids)
    units = candidates.units[places].tolist()
    scores = fused.scores.tolist()
    taken: dict[int, int] = {}
    # Ties go by the place that the row had. A row whose thread has had more rows meanwhile goes back with less.
    waiting = [(-score, place, 0) for place, score in enumerate(scores)]
    order: list[int] = []
    given: list[float] = []
    while waiting and len(order) < wanted:
        negative, place, counted = heapq.heappop(waiting)
        before = max(0, taken.get(units[place], 0) - (FREE_OF_SPREAD - 1))
        if before != counted:
            heapq.heappush(waiting, (-(scores[place] - penalty * before), place, before))
            continue
        order.append(place)
        given.append(-negative)
        taken[units[place]] = taken.get(units[place], 0) + 1
    settled = np.zeros(len(scores), np.bool_)
    settled[order] = True
    rest = np.flatnonzero(~settled)
    row_ids = np.concatenate((fused.row_ids[order], fused.row_ids[rest]))
    return Fused(row_ids, np.concatenate((given, fused.scores[rest])))


def choose(
    fused: Fused,
    allowed: Allowed,
    occurred_at: NDArray[np.int64],
    ingested_at: NDArray[np.int64],
    settings: Settings,
) -> list[Chosen]:
    """Fill the k places of the answer.

    1. The first k - s matched rows by score ("score").
    2. s recency slots: the latest-dated of the remaining matched rows ("recency") whose score is at least
       `settings.recency_floor` of the best. Slots still empty take the next by score where there is such a floor, all
       of them below it, else the most recently ingested unmatched rows in scope ("fill").
    3. With `settings.fill`, unmatched rows fill up to k in the same way.

    Args:
        fused: the matched rows, best first, all of them in scope.
        allowed: (rows,) the scope.
        occurred_at: (rows,) event dates.
        ingested_at: (rows,) moments of ingestion.
        settings: k, the number of slots and how undated rows count in them, fill.
    """
    slots = settings.slots
    by_score = min(settings.k - slots, len(fused.row_ids))
    remaining = fused.row_ids[by_score:]
    if settings.recency_floor and len(remaining):
        remaining = remaining[fused.scores[by_score:] >= settings.recency_floor * fused.scores[0]]
    rest = latest_first(remaining, occurred_at, ingested_at, settings.undated)[:slots]
    score_of = dict(zip(fused.row_ids.tolist(), fused.scores.tolist(), strict=True))
    empty = slots - len(rest)
    chosen = [Chosen(row, score_of[row], True, "score") for row in fused.row_ids[:by_score].tolist()]
    chosen += [Chosen(row, score_of[row], True, "recency") for row in rest.tolist()]
    if settings.recency_floor:
        others = fused.row_ids[by_score:]
        next_best = others[~np.isin(others, rest)][:empty].tolist()
        chosen += [Chosen(row, score_of[row], True, "score") for row in next_best]
        empty -= len(next_best)
    wanted = settings.k - len(chosen) if settings.fill else empty
    chosen += [Chosen(row, 0.0, False, "fill") for row in _latest_unmatched(fused, allowed, wanted)]
    return chosen


_LOOKED_AT = 1024  # rows, and then four times as many each time


def _latest_unmatched(fused: Fused, allowed: Allowed, wanted: int) -> list[int]:
    if wanted <= 0:
        return []
    matched = np.sort(fused.row_ids)
    latest: list[int] = []
    # Row ids rise with every ingestion, so the highest are the most recently ingested; mostly they are near the end.
    end, size = len(allowed), _LOOKED_AT
    while end and len(latest) < wanted:
        start = max(0, end - size)
        unmatched = allowed[start:end].copy()
        first, last = np.searchsorted(matched, (start, end))
        unmatched[matched[first:last] - start] = False
        latest += (start + np.flatnonzero(unmatched)[::-1][: wanted - len(latest)]).tolist()
        end, size = start, 4 * size
    return latest
