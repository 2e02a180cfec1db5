"""The read operator Φ: a question and its scope in, chosen rows out (design: scope → legs → fusion → slots)."""

import numpy as np

from mempp.indexes import Ranking
from mempp.recall.fusion import Leg, fuse, fuse_values
from mempp.recall.hits import Explanation, LegShare
from mempp.recall.legs import Candidates, Embed, Indexes, Scope, candidates_of, cards_leg, dates_leg
from mempp.recall.slots import Chosen, choose, spread_threads
from mempp.settings import Settings


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
    if settings.fusion == "ranks":
        legs = _ranked_legs(question, scope, indexes, embed, settings)
        fused = fuse(legs, settings.gamma, ties=settings.ties, occurred_at=scope.occurred_at)
        chosen = choose(fused, scope.allowed, scope.occurred_at, scope.ingested_at, settings)
        shares = _shares_of_ranks(legs, {one.row_id for one in chosen}, settings.gamma)
    else:
        candidates = candidates_of(question, scope, indexes, embed, settings)
        fused = fuse_values(candidates, ties=settings.ties, occurred_at=scope.occurred_at)
        fused = spread_threads(fused, candidates, settings.thread_spread, settings.k)
        chosen = choose(fused, scope.allowed, scope.occurred_at, scope.ingested_at, settings)
        shares = _shares_of_values(candidates, {one.row_id for one in chosen})
    gamma = settings.gamma if settings.fusion == "ranks" else None
    return [
        (
            one,
            Explanation(
                one.row_id, one.score, one.via, gamma, tuple(shares.get(one.row_id, ())), context=settings.context
            ),
        )
        for one in chosen
    ]


def _ranked_legs(question: str, scope: Scope, indexes: Indexes, embed: Embed, settings: Settings) -> list[Leg]:
    """Ranked lists for reciprocal rank fusion: of the indexes themselves or, with context, of valued candidates."""
    if settings.context:
        candidates = candidates_of(question, scope, indexes, embed, settings)
        return [
            Leg(leg.name, leg.weight, _ranking(candidates.row_ids, leg.values, settings.candidates))
            for leg in candidates.legs
        ]
    allowed, limit = scope.allowed, settings.candidates
    legs = []
    if settings.weight_lexical > 0:
        ranking = indexes.lexical.rank(question, allowed, limit, settings.lexical_mode)
        legs.append(Leg("lexical", settings.weight_lexical, ranking))
    if settings.weight_tags > 0:
        ranking = indexes.tags.rank(question, allowed, limit, names=settings.names)
        legs.append(Leg("tags", settings.weight_tags, ranking))
    if settings.weight_vector > 0 and indexes.vectors is not None and len(indexes.vectors):
        query = embed()
        ranking = indexes.vectors.rank(query, allowed, limit, exact=settings.exact)
        if settings.windows and indexes.windows is not None and len(indexes.windows):
            ranking = _best_of_both(ranking, indexes.windows.rank(query, allowed, limit, exact=settings.exact), limit)
        legs.append(Leg("vector", settings.weight_vector, ranking))
    if settings.weight_dates > 0:
        dates = dates_leg(question, scope)
        rows = dates.nearest(limit)
        legs.append(Leg("dates", settings.weight_dates, _ranking(rows, dates.values(rows), limit)))
    if settings.weight_facts > 0:
        legs.append(Leg("facts", settings.weight_facts, cards_leg(question, scope, indexes).best(limit)))
    return legs


def _ranking(row_ids: np.ndarray, values: np.ndarray, limit: int) -> Ranking:
    """The rows by value, later rows first among equals; those of value 0 are no matches."""
    order = np.lexsort((row_ids, values))[::-1]
    order = order[values[order] > 0][:limit]
    return Ranking(row_ids[order], values[order])


def _best_of_both(heads: Ranking, windows: Ranking, limit: int) -> Ranking:
    """Rows by the better of two scores."""
    row_ids, place = np.unique(np.concatenate((heads.row_ids, windows.row_ids)), return_inverse=True)
    best = np.full(len(row_ids), -np.inf)
    np.maximum.at(best, place, np.concatenate((heads.scores, windows.scores)))
    order = np.lexsort((row_ids, best))[::-1][:limit]
    return Ranking(row_ids[order], best[order])


def _shares_of_ranks(legs: list[Leg], rows: set[int], gamma: float) -> dict[int, list[LegShare]]:
    shares: dict[int, list[LegShare]] = {}
    for leg in legs:
        pairs = zip(leg.ranking.row_ids.tolist(), leg.ranking.scores.tolist(), strict=True)
        for rank, (row, leg_score) in enumerate(pairs):
            if row in rows:
                added = leg.weight / (gamma + rank)
                shares.setdefault(row, []).append(LegShare(leg.name, rank, leg_score, leg.weight, added))
    return shares


def _shares_of_values(candidates: Candidates, rows: set[int]) -> dict[int, list[LegShare]]:
    shares: dict[int, list[LegShare]] = {}
    wanted = [(place, row) for place, row in enumerate(candidates.row_ids.tolist()) if row in rows]
    for leg in candidates.legs:
        ranks = len(leg.values) - np.searchsorted(np.sort(leg.values), leg.values, side="right")  # how many are better
        for place, row in wanted:
            value = float(leg.values[place])
            if not value:
                continue
            share = LegShare(leg.name, int(ranks[place]), value, leg.weight, leg.weight * value)
            shares.setdefault(row, []).append(share)
    return shares
