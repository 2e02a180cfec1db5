"""The read operator Φ: a question and its scope in, chosen rows out (design: scope → legs → fusion → slots)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.indexes import LexicalIndex, TagIndex, VectorIndex
from mempp.recall.fusion import Leg, fuse
from mempp.recall.hits import Explanation, LegShare
from mempp.recall.scope import Allowed
from mempp.recall.slots import Chosen, choose
from mempp.settings import Settings


@dataclass(frozen=True, slots=True)
class Scope:
    """What a question may see: one consistent state of the rows, taken before anything is ranked."""

    allowed: Allowed
    """(rows,) bitset."""
    occurred_at: NDArray[np.int64]
    """(rows,) event dates, microseconds UTC."""
    ingested_at: NDArray[np.int64]
    """(rows,) moments of ingestion, microseconds UTC."""


@dataclass(frozen=True, slots=True)
class Indexes:
    """The three indexes over the same row ids; no vectors where the store has no encoder."""

    lexical: LexicalIndex
    tags: TagIndex
    vectors: VectorIndex | None


Embed = Callable[[], NDArray[np.float32]]
"""Gives the question's unit vector; called only when the vector leg takes part."""


def read(
    question: str, scope: Scope, indexes: Indexes, embed: Embed, settings: Settings
) -> list[tuple[Chosen, Explanation]]:
    """Rank inside the scope with every leg, fuse, and choose the rows of the answer.

    Args:
        question: any text.
        scope: the rows that may be seen.
        indexes: each ranks row ids inside the bitset.
        embed: gives the question's vector when it is needed.
        settings: a whole Settings.
    """
    if not scope.allowed.any():
        return []
    legs = _legs(question, scope.allowed, indexes, embed, settings)
    fused = fuse(legs, settings.gamma, ties=settings.ties, occurred_at=scope.occurred_at)
    chosen = choose(fused, scope.allowed, scope.occurred_at, scope.ingested_at, settings)
    shares = _shares(legs, {one.row_id for one in chosen}, settings.gamma)
    return [
        (one, Explanation(one.row_id, one.score, one.via, settings.gamma, tuple(shares.get(one.row_id, ()))))
        for one in chosen
    ]


def _legs(question: str, allowed: Allowed, indexes: Indexes, embed: Embed, settings: Settings) -> list[Leg]:
    limit = settings.candidates
    legs = []
    if settings.weight_lexical > 0:
        ranking = indexes.lexical.rank(question, allowed, limit, settings.lexical_mode)
        legs.append(Leg("lexical", settings.weight_lexical, ranking))
    if settings.weight_tags > 0:
        legs.append(Leg("tags", settings.weight_tags, indexes.tags.rank(question, allowed, limit)))
    if settings.weight_vector > 0 and indexes.vectors is not None and len(indexes.vectors):
        ranking = indexes.vectors.rank(embed(), allowed, limit, exact=settings.exact)
        legs.append(Leg("vector", settings.weight_vector, ranking))
    return legs


def _shares(legs: list[Leg], rows: set[int], gamma: float) -> dict[int, list[LegShare]]:
    shares: dict[int, list[LegShare]] = {}
    for leg in legs:
        pairs = zip(leg.ranking.row_ids.tolist(), leg.ranking.scores.tolist(), strict=True)
        for rank, (row, leg_score) in enumerate(pairs):
            if row in rows:
                added = leg.weight / (gamma + rank)
                shares.setdefault(row, []).append(LegShare(leg.name, rank, leg_score, leg.weight, added))
    return shares
