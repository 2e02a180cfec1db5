"""BM25 over the rows in scope.

    idf(t)      = ln(1 + (N - df(t) + 0.5) / (df(t) + 0.5))
    score(r, q) = Σ over terms t of q:  idf(t) · (k1 + 1) · tf / (tf + k1 · (1 - b + b · length(r) / mean length))

with k1 = 1.2, b = 0.75 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; the idf
that cannot turn negative and the factor k1 + 1 as in Tantivy). N, df and the mean length are those of the rows in
scope. Every row goes through the same operations in the same order, one number at a time, so that rows with equal
statistics have scores equal to the last bit.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.ranking import Allowed, Ranking, best_positions

K1 = 1.2
B = 0.75

_BLOCK = 1 << 15  # rows scored together, so that their scores stay in the processor's cache


def rank_by_bm25(
    postings: Sequence[tuple[NDArray[np.uint32], NDArray[np.uint32]]],
    lengths: NDArray[np.uint32],
    allowed: Allowed,
    limit: int,
    *,
    every_term: bool,
) -> Ranking:
    """The best `limit` rows in scope.

    Args:
        postings: for each term of the question the rows that hold it, ascending, and how often they do. Sums are
            taken in this order.
        lengths: number of terms of each row, shape (n_rows,).
        allowed: the scope, shape (n_rows,).
        limit: how many rows at most.
        every_term: only rows that hold every term; otherwise rows that hold one or more.
    """
    n_allowed = int(np.count_nonzero(allowed))
    if not n_allowed or limit <= 0:
        return Ranking.empty()
    terms = []
    for rows, counts in postings:
        document_frequency = len(rows)
        if n_allowed < len(allowed):
            inside = allowed.take(rows)
            document_frequency = int(np.count_nonzero(inside))
            if 4 * document_frequency < len(rows):  # saves more than it costs
                rows, counts = rows[inside], counts[inside]
        if document_frequency:
            idf = math.log(1 + (n_allowed - document_frequency + 0.5) / (document_frequency + 0.5))
            terms.append((rows, counts, idf * (K1 + 1)))
        elif every_term:
            return Ranking.empty()
    if not terms:
        return Ranking.empty()
    mean_length = _total(lengths, allowed) / n_allowed
    starts = np.arange(0, len(allowed) + _BLOCK, _BLOCK)
    cuts = [np.searchsorted(rows, starts.astype(np.uint32)) for rows, _, _ in terms]
    best_rows, best_scores = np.empty(0, np.int64), np.empty(0, np.float64)
    for block, start in enumerate(starts[:-1].tolist()):
        block_allowed = allowed[start : start + _BLOCK]
        if not block_allowed.any():
            continue
        norms = K1 * (1 - B + B * (lengths[start : start + _BLOCK] / mean_length))
        scores = np.zeros(len(block_allowed), np.float64)
        n_terms = np.zeros(len(block_allowed), np.uint32)
        for (rows, counts, weight), cut in zip(terms, cuts, strict=True):
            here = slice(cut[block], cut[block + 1])
            positions = rows[here].astype(np.intp) - start
            frequencies = counts[here].astype(np.float64)
            # Rows are distinct within a term, so that plain indexed addition adds once to each.
            scores[positions] += weight * frequencies / (frequencies + norms[positions])
            if every_term:
                n_terms[positions] += 1
        matched = (n_terms == len(terms) if every_term else scores > 0) & block_allowed
        if len(best_rows) == limit:
            matched &= scores >= best_scores[-1]  # a later row wins a tie
        found = np.flatnonzero(matched)
        if len(found):
            best_rows = np.concatenate((best_rows, found + start))
            best_scores = np.concatenate((best_scores, scores[found]))
            order = best_positions(best_rows, (best_scores,), limit)
            best_rows, best_scores = best_rows[order], best_scores[order]
    return Ranking(best_rows, best_scores)


def _total(lengths: NDArray[np.uint32], allowed: Allowed) -> int:
    """Sum of the lengths in scope, as an integer: exact, whatever the order of summation."""
    if allowed.all():
        return int(lengths.sum(dtype=np.int64))
    return sum(
        int(np.dot(lengths[start : start + _BLOCK].astype(np.int64), allowed[start : start + _BLOCK]))
        for start in range(0, len(allowed), _BLOCK)
    )
