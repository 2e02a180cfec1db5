"""Which k rows make the answer: the best by score, then the recency slots, then what fills up (paper, algorithm 1)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mempp.recall.fusion import Fused, latest_first
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


def choose(
    fused: Fused,
    allowed: Allowed,
    occurred_at: NDArray[np.int64],
    ingested_at: NDArray[np.int64],
    settings: Settings,
) -> list[Chosen]:
    """Fill the k places of the answer.

    1. The first k - s matched rows by score ("score").
    2. s recency slots: the latest-dated of the remaining matched rows ("recency"). Slots still empty take the most
       recently ingested unmatched rows in scope ("fill").
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
    rest = latest_first(fused.row_ids[by_score:], occurred_at, ingested_at, settings.undated)[:slots]
    score_of = dict(zip(fused.row_ids.tolist(), fused.scores.tolist(), strict=True))
    chosen = [Chosen(row, score_of[row], True, "score") for row in fused.row_ids[:by_score].tolist()]
    chosen += [Chosen(row, score_of[row], True, "recency") for row in rest.tolist()]
    wanted = settings.k - len(chosen) if settings.fill else slots - len(rest)
    chosen += [Chosen(row, 0.0, False, "fill") for row in _latest_unmatched(fused, allowed, wanted)]
    return chosen


def _latest_unmatched(fused: Fused, allowed: Allowed, wanted: int) -> list[int]:
    if wanted <= 0:
        return []
    unmatched = allowed.copy()
    unmatched[fused.row_ids] = False
    # Row ids rise with every ingestion, so the highest are the most recently ingested.
    return [int(row) for row in np.flatnonzero(unmatched)[::-1][:wanted]]
