"""BM25 over the rows in scope.

    idf(t)      = ln(1 + (N - df(t) + 0.5) / (df(t) + 0.5))
    score(r, q) = Σ over terms t of q:  idf(t) · (k1 + 1) · tf / (tf + k1 · (1 - b + b · length(r) / mean length))

with k1 = 1.2, b = 0.75 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; the idf
that cannot turn negative and the factor k1 + 1 as in Tantivy). N, df and the mean length are those of the rows in
scope. Every row goes through the same operations in the same order, one number at a time, so that rows with equal
statistics have scores equal to the last bit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.asked import AskedTerms, counts_in, looked_up
from mempp.indexes.postings import Counts
from mempp.indexes.ranking import Ranking, best_positions

K1 = 1.2
B = 0.75

_BLOCK = 1 << 15  # rows scored together, so that their scores stay in the processor's cache
_NUMBERED = 16  # finding a posting's row in the scope takes as long as numbering so many rows
_BY_LOOKING_UP = 8  # rows are looked up one by one in postings that are so many times as long


def rank_by_bm25(asked: AskedTerms, limit: int, *, every_term: bool) -> Ranking:
    """The best `limit` rows in scope.

    Args:
        asked: the terms; sums are taken in their order.
        limit: how many rows at most.
        every_term: only rows that hold every term of the question; otherwise rows that hold one or more.
    """
    if not len(asked) or limit <= 0 or (every_term and asked.unheld):
        return Ranking.empty()
    mean_length = asked.total_length() / asked.in_scope
    return _every_term(asked, mean_length, limit) if every_term else _any_term(asked, mean_length, limit)


def _every_term(asked: AskedTerms, mean_length: float, limit: int) -> Ranking:
    """Rows of the rarest term, cut to those of the next rarest, and so on; then scored."""
    by_size = sorted(asked.postings, key=lambda postings: len(postings[0]))
    rows = by_size[0][0].astype(np.int64)
    for holding, counts in by_size[1:]:
        if len(rows) * _BY_LOOKING_UP < len(holding):
            rows = rows[counts_in((holding, counts), rows)[0]]
        else:
            held = np.zeros(len(asked.allowed), np.bool_)
            held[holding] = True
            rows = rows[held[rows]]
        if not len(rows):
            return Ranking.empty()
    norms = _norms_of(asked.lengths[rows], mean_length)
    scores = np.zeros(len(rows), np.float64)
    for postings, weight in zip(asked.postings, asked.idf, strict=True):
        _, frequencies = counts_in(postings, rows)
        scores += weight * (K1 + 1) * frequencies / (frequencies + norms)
    best = best_positions(rows, (scores,), limit)
    return Ranking(rows[best], scores[best])


def _any_term(asked: AskedTerms, mean_length: float, limit: int) -> Ranking:
    """Rows scored block by block, the heaviest terms first; the best so far tell which rows are worth scoring further.

    A row that cannot reach the limit-th best so far, whatever it holds of the terms that are left, is dropped, and
    common terms are looked up for the others alone (MaxScore: Turtle and Flood, "Query evaluation: strategies and
    optimizations", 1995). In one thread: the steps of a block are so short that two threads would spend as long again
    in handing the interpreter's lock to one another.
    """
    few, lengths, places = asked.few, asked.lengths, [rows for rows, _ in asked.postings]
    if few is not None:
        lengths, places = lengths.take(few), _places_within(few, places, len(asked.allowed))
    starts = np.arange(0, len(lengths) + _BLOCK, _BLOCK, dtype=np.uint32)
    terms = [
        _Term(rows, counts, weight * (K1 + 1), int(counts.max()), np.searchsorted(rows, starts).tolist())
        for rows, (_, counts), weight in zip(places, asked.postings, asked.idf, strict=True)
    ]
    best, best_scores = np.empty(0, np.int64), np.empty(0, np.float64)
    for block, start in enumerate(starts[:-1].tolist()):
        if not any(term.cuts[block + 1] > term.cuts[block] for term in terms):
            continue
        # A later row wins a tie, so that all that reach the border are kept until the end.
        border = float(best_scores[-1]) if len(best) == limit else 0.0
        found, scores = _scored(terms, block, start, lengths[start : start + _BLOCK], mean_length, border)
        if len(found):
            some, some_scores = _best(found + start, scores[found], limit)
            best, best_scores = _best(np.concatenate((best, some)), np.concatenate((best_scores, some_scores)), limit)
    return Ranking(best if few is None else few[best], best_scores)


class _Term(NamedTuple):
    rows: NDArray[np.uint32]
    """Where the rows that hold it stand in the scope, ascending."""
    counts: Counts
    weight: float
    most: int
    """The largest of `counts`."""
    cuts: list[int]
    """Where in `rows` each block begins."""


def _scored(
    terms: Sequence[_Term], block: int, start: int, lengths: NDArray[np.uint32], mean_length: float, border: float
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The rows of a block that reach a border (0: that hold a term), in places from its start; the scores of all.

    Those of others may lack terms.

    Args:
        terms: the heaviest first; sums are taken in this order.
        block: which block.
        start: its first row.
        lengths: of its rows.
        mean_length: of all rows in scope.
        border: a score.
    """
    norms = _Norms(lengths, mean_length)
    scores = np.zeros(len(lengths), np.float64)
    left = _most_of_the_rest(terms, block, float(_norms_of(lengths.min(keepdims=True), mean_length)[0]))
    in_race: NDArray[np.intp] | None = None  # None: all rows
    for term, rest in zip(terms, left, strict=True):
        if rest < border:
            needed = border * (1 - 1e-9) - rest
            in_race = np.flatnonzero(scores >= needed) if in_race is None else in_race[scores[in_race] >= needed]
            if not len(in_race):
                return in_race, scores
        held = slice(term.cuts[block], term.cuts[block + 1])
        rows, counts = term.rows[held], term.counts[held]
        if in_race is not None and len(in_race) * _BY_LOOKING_UP < len(rows):
            here, places = looked_up(rows, in_race + start)
            _add(scores, in_race.take(here), counts.take(places), term.weight, norms)
        elif len(rows):
            _add(scores, np.subtract(rows, start, dtype=np.intp), counts, term.weight, norms)
    if in_race is not None:
        return in_race[scores[in_race] >= border], scores
    return np.flatnonzero(scores >= border) if border else np.flatnonzero(scores), scores


class _Norms:
    """k1 · (1 - b + b · length / mean length) of the rows of a block, made for all of them once many are asked for."""

    def __init__(self, lengths: NDArray[np.uint32], mean_length: float) -> None:
        self._lengths = lengths
        self._mean_length = mean_length
        self._all: NDArray[np.float64] | None = None

    def take(self, positions: NDArray[np.intp]) -> NDArray[np.float64]:
        """The norms at these places."""
        if self._all is None:
            if len(positions) * _NUMBERED < len(self._lengths):
                return _norms_of(self._lengths.take(positions), self._mean_length)
            self._all = _norms_of(self._lengths, self._mean_length)
        return self._all.take(positions)


def _norms_of(lengths: NDArray[np.uint32], mean_length: float) -> NDArray[np.float64]:
    norms: NDArray[np.float64] = K1 * (1 - B + B * (lengths / mean_length))
    return norms


def _most_of_the_rest(terms: Sequence[_Term], block: int, least_norm: float) -> list[float]:
    """For each term at least what a row of a block can get by it and those behind it."""
    rest, left = 0.0, []
    for term in reversed(terms):
        if term.cuts[block + 1] > term.cuts[block]:
            rest += term.weight * term.most / (term.most + least_norm)
        left.append(rest)
    return left[::-1]


def _places_within(
    few: NDArray[np.int64], postings: Sequence[NDArray[np.uint32]], n_rows: int
) -> list[NDArray[np.uint32]]:
    """Where the rows of postings, all in scope, stand among the rows in scope."""
    if sum(map(len, postings)) * _NUMBERED > n_rows:
        place = np.empty(n_rows, np.uint32)
        place[few] = np.arange(len(few), dtype=np.uint32)
        return [place.take(rows) for rows in postings]
    in_scope = few.astype(np.uint32)
    return [np.searchsorted(in_scope, rows).astype(np.uint32) for rows in postings]


def _add(
    scores: NDArray[np.float64], positions: NDArray[np.intp], counts: Counts, weight: float, norms: _Norms
) -> None:
    """Add weight · tf / (tf + norm) to the scores of those that hold a term."""
    here = norms.take(positions)
    added = weight / (1.0 + here)
    several = np.flatnonzero(counts > 1)  # most terms stand in a text once
    if len(several):
        frequencies = counts[several].astype(np.float64)
        added[several] = weight * frequencies / (frequencies + here[several])
    # Rows are distinct within a term, so that plain indexed addition adds once to each.
    added += scores.take(positions)
    scores[positions] = added


def _best(
    rows: NDArray[np.int64], scores: NDArray[np.float64], limit: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    order = best_positions(rows, (scores,), limit)
    return rows[order], scores[order]
