"""The legs of the default: every candidate gets a value from each leg, between 0 and 1 in the usual case.

    lexical          BM25 of the row with its neighbours, as a share of what no text can reach
    vector           cosine of the question with Σ weight · v over the row and its neighbours
    thread_lexical   BM25 of the thread as one text; of a row without a thread the same as `lexical`
    thread_vector    the best view (head or window) of any candidate of the thread; of windows, those among the best C
    tags             matching labels, as a share of the most that a row has
    dates            nearness of the event date to a date named in the question, and whether the text names that date
    facts            the best of the row's fact cards, by its words; off by default (see `indexes.cards`)

Candidates are the best C rows of each index in scope, and their neighbours. See `context` for who a neighbour is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.indexes import CardIndex, LexicalIndex, TagIndex, VectorIndex
from mempp.indexes.aggregated import shares_in_context, shares_of_units
from mempp.indexes.asked import AskedTerms
from mempp.indexes.cards import CardMatches
from mempp.indexes.lexical import ranked
from mempp.recall.context import PARTNER, Context, context_of
from mempp.recall.dates_leg import DatesLeg
from mempp.recall.scope import Allowed
from mempp.recall.threads import Threads
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
    threads: Threads
    """Which rows belong together."""
    days_of: Callable[[int], Sequence[int]]
    """Row id → the days that its text names, in days since 1970."""
    asked_at: int | None = None
    """When the question is asked, microseconds UTC, if that is known."""
    known_up_to: int = -1
    """The last entry of the log that the question may know of; for what is an entry of its own, as cards are."""


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes over the same row ids; no vectors where the store has no encoder."""

    lexical: LexicalIndex
    tags: TagIndex
    vectors: VectorIndex | None
    """One vector per row: of its head."""
    windows: VectorIndex | None
    """Vectors of the windows of long rows."""
    cards: Callable[[], CardIndex] | None = None
    """Gives the index of the fact cards, brought up to date; called only when it takes part."""


@dataclass(frozen=True, slots=True)
class Valued:
    """One leg: a value for each candidate."""

    name: str
    weight: float
    values: NDArray[np.float64]
    """(m,) in the order of the candidates."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows that compete, and what each leg says of them."""

    row_ids: NDArray[np.int64]
    """(m,) ascending."""
    units: NDArray[np.int64]
    """(m,) the thread of each, or a unit of its own."""
    legs: tuple[Valued, ...]


Embed = Callable[[], NDArray[np.float32]]
"""Gives the question's unit vector; called only when a vector leg takes part."""


def candidates_of(question: str, scope: Scope, indexes: Indexes, embed: Embed, settings: Settings) -> Candidates:
    """Gather the candidates of a question and value them by every leg.

    Args:
        question: any text.
        scope: the rows that may be seen.
        indexes: each ranks row ids inside the bitset.
        embed: gives the question's vector when it is needed.
        settings: a whole Settings.
    """
    allowed = scope.allowed
    limit = max(settings.candidates, settings.k)
    found: list[NDArray[np.int64]] = []
    asked = indexes.lexical.asked(question, allowed) if settings.weight_lexical > 0 else None
    if asked is not None:
        found.append(ranked(asked, limit, settings.lexical_mode).row_ids)
    vectors = indexes.vectors
    query: NDArray[np.float32] | None = None
    of_windows: dict[int, float] = {}
    if settings.weight_vector > 0 and vectors is not None and len(vectors):
        query = embed()
        found.append(vectors.rank(query, allowed, limit, exact=settings.exact).row_ids)
        if settings.windows and indexes.windows is not None and len(indexes.windows):
            best = indexes.windows.rank(query, allowed, limit, exact=settings.exact)
            found.append(best.row_ids)
            of_windows = dict(zip(best.row_ids.tolist(), best.scores.tolist(), strict=True))
    tagged = indexes.tags.matching(question, allowed, names=settings.names) if settings.weight_tags > 0 else None
    if tagged is not None:
        found.append(tagged.best(limit).row_ids)
    dates = dates_leg(question, scope) if settings.weight_dates > 0 else None
    if dates is not None:
        found.append(dates.nearest(limit))
    cards = cards_leg(question, scope, indexes) if settings.weight_facts > 0 else None
    if cards is not None:
        found.append(cards.best(limit).row_ids)
    pool = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
    give = vectors.vectors_of if query is not None and vectors is not None else None
    context = context_of(pool, allowed, scope.occurred_at, scope.threads, settings.context, give)

    legs: list[Valued] = []
    if asked is not None:
        legs += _lexical_legs(asked, context, scope, settings)
    if query is not None and vectors is not None:
        legs += _vector_legs(query, context, vectors, of_windows, settings)
    if tagged is not None and len(tagged.row_ids):
        values = np.zeros(len(context.rows))
        here = np.isin(context.rows, tagged.row_ids)
        n_labels = tagged.n_labels[np.searchsorted(tagged.row_ids, context.rows[here])]
        values[here] = n_labels / tagged.n_labels.max()
        legs.append(Valued("tags", settings.weight_tags, values))
    if dates is not None and dates.named:
        legs.append(Valued("dates", settings.weight_dates, dates.values(context.rows)))
    if cards is not None and len(cards.row_ids):
        legs.append(Valued("facts", settings.weight_facts, cards.of(context.rows)))
    return Candidates(context.rows, context.unit, tuple(leg for leg in legs if leg.weight > 0))


def cards_leg(question: str, scope: Scope, indexes: Indexes) -> CardMatches:
    """The rows in scope whose fact cards hold words of a question."""
    index = indexes.cards() if indexes.cards is not None else CardIndex()
    return index.matching(question, scope.allowed, scope.known_up_to)


def dates_leg(question: str, scope: Scope) -> DatesLeg:
    """The dates that a question names, read in its scope."""
    return DatesLeg(question, scope.allowed, scope.occurred_at, scope.days_of, scope.asked_at)


def _lexical_legs(asked: AskedTerms, context: Context, scope: Scope, settings: Settings) -> Sequence[Valued]:
    own = shares_in_context(asked, context.seen, len(context.rows), context.gather)
    if not settings.context:
        return (Valued("lexical", settings.weight_lexical, own),)
    whole = own
    if settings.weight_thread_lexical > 0:
        units, place = np.unique(context.unit[context.threaded], return_inverse=True)
        whole = own.copy()
        rows_known = len(scope.allowed)
        rows = np.sort(scope.threads.rows_of(units.tolist(), rows_known))
        shares = shares_of_units(asked, scope.threads.unit_of(rows_known), units, rows)
        whole[context.threaded] = shares[place]
    return (
        Valued("lexical", settings.weight_lexical, own),
        Valued("thread_lexical", settings.weight_thread_lexical, whole),
    )


def _vector_legs(
    query: NDArray[np.float32],
    context: Context,
    vectors: VectorIndex,
    of_windows: dict[int, float],
    settings: Settings,
) -> Sequence[Valued]:
    given, _ = vectors.vectors_of(context.seen)
    # Row by row, unlike BLAS, whose order of summation depends on the shape: the same row has the same cosine always.
    cosines = np.einsum("id,d->i", given, query).astype(np.float64)
    best = cosines[np.searchsorted(context.seen, context.rows)]
    if of_windows:
        best = np.maximum(best, [of_windows.get(row, -1.0) for row in context.rows.tolist()])
    if not settings.context:
        return (Valued("vector", settings.weight_vector, best),)
    sums = _sums(given, context)
    lengths = np.sqrt(np.einsum("id,id->i", sums, sums).astype(np.float64))
    together = np.divide(context.gather(cosines), lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    return (
        Valued("vector", settings.weight_vector, together),
        Valued("thread_vector", settings.weight_thread_vector, _best_of_group(best, context)),
    )


_SUMMED_TOGETHER = 128  # rows; their sums stay in the processor's cache


def _sums(vectors: NDArray[np.float32], context: Context) -> NDArray[np.float32]:
    """Σ weight · vector over the context of each row: (p, d) vectors of `context.seen` → (m, d)."""
    weight = context.weight.astype(np.float32)
    starts = np.searchsorted(context.target, np.arange(len(context.rows) + 1))
    counts = np.diff(starts)
    sums = np.zeros((len(context.rows), vectors.shape[1]), np.float32)
    for start in range(0, len(counts), _SUMMED_TOGETHER):
        part = slice(start, start + _SUMMED_TOGETHER)
        for turn in range(int(counts[part].max())):  # the first edge of every row, the second of every row that has one
            having = start + np.flatnonzero(counts[part] > turn)
            edge = starts[having] + turn
            weighed = vectors.take(context.source[edge], axis=0)
            weighed *= weight[edge, None]
            sums[having] += weighed
    return sums


def _best_of_group(values: NDArray[np.float64], context: Context) -> NDArray[np.float64]:
    """The best value in the thread of each row; without a thread, among the rows that it is seen with."""
    _, place = np.unique(context.unit, return_inverse=True)
    best = np.full(int(place.max()) + 1 if len(place) else 0, -np.inf)
    np.maximum.at(best, place, values)
    of_group: NDArray[np.float64] = best[place]
    alone = ~context.threaded
    if alone.any():
        at_source = np.full(len(context.seen), -np.inf)
        at_source[np.searchsorted(context.seen, context.rows)] = values
        near = context.weight > PARTNER
        shared = np.full(len(context.rows), -np.inf)
        np.maximum.at(shared, context.target[near], at_source[context.source[near]])
        of_group[alone] = np.maximum(shared, of_group)[alone]
    return of_group
