"""Fusion of the legs into one order, by their values or by their ranks.

"scores", the default, is a weighted sum of the legs' values, each on a scale of its own meaning (see `legs`):

    score(r) = Σ_ℓ  w_ℓ · value_ℓ(r)

"ranks" is weighted reciprocal rank fusion (paper, eq. 5; Cormack et al., 2009):

    score(r) = Σ_ℓ  w_ℓ / (γ + rank_ℓ(r))

Ranks count from 0. A row that a leg did not return gets nothing from it. A leg of weight 0 does not take part: its
rows are not matches. The sum runs over the legs in the order given, so equal parts give bit-equal scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.indexes import Ranking
from mempp.recall.legs import Candidates
from mempp.recall.table import UNDATED
from mempp.settings import DateRule


@dataclass(frozen=True, slots=True)
class Leg:
    """One ranked list with its weight."""

    name: str
    weight: float
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Fused:
    """The matched rows, best first."""

    row_ids: NDArray[np.int64]
    scores: NDArray[np.float64]


def fuse(
    legs: Sequence[Leg],
    gamma: float,
    *,
    ties: DateRule = "event",
    occurred_at: NDArray[np.int64] | None = None,
) -> Fused:
    """Fuse ranked lists into one.

    Args:
        legs: lists of row ids, each without repeats, best first.
        gamma: γ, above 0.
        ties: equal scores go by event date, later first and undated last, then by row id, later first ("event");
            or by row id alone, which is the order of ingestion ("ingest", the paper's rule).
        occurred_at: (rows,) event dates, needed for "event".
    """
    taking_part = [leg for leg in legs if leg.weight > 0 and len(leg.ranking)]
    if not taking_part:
        return Fused(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))
    row_ids = np.unique(np.concatenate([leg.ranking.row_ids for leg in taking_part]))
    scores = np.zeros(len(row_ids), dtype=np.float64)
    for leg in taking_part:
        positions = np.searchsorted(row_ids, leg.ranking.row_ids)
        scores[positions] += leg.weight / (gamma + np.arange(len(leg.ranking), dtype=np.float64))
    dates = np.zeros(len(row_ids), dtype=np.int64)
    if ties == "event" and occurred_at is not None:
        dates = occurred_at[row_ids]  # UNDATED is the smallest integer, so undated rows come last among equals
    order = np.lexsort((row_ids, dates, scores))[::-1]
    return Fused(row_ids[order], scores[order])


def fuse_values(candidates: Candidates, *, ties: DateRule, occurred_at: NDArray[np.int64]) -> Fused:
    """Order the candidates by the weighted sum of their values.

    Args:
        candidates: the rows and their values; the sum runs over the legs in their order.
        ties: as in `fuse`.
        occurred_at: (rows,) event dates.
    """
    row_ids = candidates.row_ids
    scores = np.zeros(len(row_ids), dtype=np.float64)
    for leg in candidates.legs:
        scores += leg.weight * leg.values
    dates = occurred_at[row_ids] if ties == "event" else np.zeros(len(row_ids), dtype=np.int64)
    order = np.lexsort((row_ids, dates, scores))[::-1]
    return Fused(row_ids[order], scores[order])


def latest_first(
    row_ids: NDArray[np.int64],
    occurred_at: NDArray[np.int64],
    ingested_at: NDArray[np.int64],
    undated: DateRule,
) -> NDArray[np.int64]:
    """Row ids by event date, later first, then by row id, later first.

    Args:
        row_ids: rows to order.
        occurred_at: (rows,) event dates of all rows, `UNDATED` where missing.
        ingested_at: (rows,) moments of ingestion of all rows.
        undated: an undated row counts as oldest ("event"), or as dated by its ingest time ("ingest").
    """
    dates = occurred_at[row_ids]
    if undated == "ingest":
        dates = np.where(dates == UNDATED, ingested_at[row_ids], dates)
    return row_ids[np.lexsort((row_ids, dates))[::-1]]
