"""BM25 over the rows in scope.

    idf(t)      = ln(1 + (N - df(t) + 0.5) / (df(t) + 0.5))
    score(r, q) = Σ over terms t of q:  idf(t) · (k1 + 1) · tf / (tf + k1 · (1 - b + b · length(r) / mean length))

with k1 = 1.2, b = 0.75 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; the idf
that cannot turn negative and the factor k1 + 1 as in Tantivy). N, df and the mean length are those of the rows in
scope. Every row goes through the same operations in the same order, one number at a time, so that rows with equal
statistics have scores equal to the last bit.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.asked import AskedTerms, counts_in
from mempp.indexes.postings import Counts
from mempp.indexes.ranking import Ranking, best_positions

K1 = 1.2
B = 0.75

_BLOCK = 1 << 14  # rows scored together, so that their scores stay in the processor's cache
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
    norms = K1 * (1 - B + B * (asked.lengths[rows] / mean_length))
    scores = np.zeros(len(rows), np.float64)
    for postings, weight in zip(asked.postings, asked.idf, strict=True):
        _, frequencies = counts_in(postings, rows)
        scores += weight * (K1 + 1) * frequencies / (frequencies + norms)
    best = best_positions(rows, (scores,), limit)
    return Ranking(rows[best], scores[best])


def _any_term(asked: AskedTerms, mean_length: float, limit: int) -> Ranking:
    """Rows scored block by block; the best so far tell which of the next are worth keeping.

    In one thread: the steps of a block are so short that two threads would spend as long again in handing the
    interpreter's lock to one another.
    """
    few, lengths, places = asked.few, asked.lengths, [rows for rows, _ in asked.postings]
    if few is not None:
        lengths, places = lengths.take(few), _places_within(few, places, len(asked.allowed))
    starts = np.arange(0, len(lengths) + _BLOCK, _BLOCK, dtype=np.uint32)
    cuts = [np.searchsorted(of_term, starts).tolist() for of_term in places]
    best, best_scores = np.empty(0, np.int64), np.empty(0, np.float64)
    for block, start in enumerate(starts[:-1].tolist()):
        held = [slice(cut[block], cut[block + 1]) for cut in cuts]
        if not any(here.stop > here.start for here in held):
            continue
        norms = K1 * (1 - B + B * (lengths[start : start + _BLOCK] / mean_length))
        once = 1.0 + norms
        scores = np.zeros(len(norms), np.float64)
        for of_term, (_, counts), weight, here in zip(places, asked.postings, asked.idf, held, strict=True):
            if here.stop > here.start:
                positions = np.subtract(of_term[here], start, dtype=np.intp)
                _add(scores, positions, counts[here], weight * (K1 + 1), norms, once)
        # A later row wins a tie, so that all that reach the border are kept until the end.
        border = best_scores[-1] if len(best) == limit else 0.0
        found = np.flatnonzero(scores >= border) if border else np.flatnonzero(scores)
        if len(found):
            some, some_scores = _best(found + start, scores[found], limit)
            best, best_scores = _best(np.concatenate((best, some)), np.concatenate((best_scores, some_scores)), limit)
    return Ranking(best if few is None else few[best], best_scores)


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
    scores: NDArray[np.float64],
    positions: NDArray[np.intp],
    counts: Counts,
    weight: float,
    norms: NDArray[np.float64],
    once: NDArray[np.float64],
) -> None:
    """Add weight · tf / (tf + norm) to the scores of those that hold a term; `once` is 1 + norms."""
    added = weight / once.take(positions)
    several = np.flatnonzero(counts > 1)  # most terms stand in a text once
    if len(several):
        frequencies = counts[several].astype(np.float64)
        added[several] = weight * frequencies / (frequencies + norms.take(positions[several]))
    # Rows are distinct within a term, so that plain indexed addition adds once to each.
    added += scores.take(positions)
    scores[positions] = added


def _best(
    rows: NDArray[np.int64], scores: NDArray[np.float64], limit: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    order = best_positions(rows, (scores,), limit)
    return rows[order], scores[order]
