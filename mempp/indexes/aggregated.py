"""BM25 of several rows taken together: a row with its neighbours, or a thread as a whole.

Term frequencies and lengths are sums over the rows of the scope; the formula is that of `bm25`. Scores are given as
shares of what no text can reach, so that they lie between 0 and 1 and compare from one question to the next:

    share(r) = Σ idf(t) · (k1 + 1) · tf / (tf + norm)  /  Σ idf(t) · (k1 + 1)
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.asked import AskedTerms, counts_in, idf
from mempp.indexes.bm25 import K1, B


def shares_in_context(
    asked: AskedTerms,
    seen: NDArray[np.int64],
    n_rows: int,
    gather: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """BM25 of rows that are seen with others.

    Args:
        asked: the terms.
        seen: (p,) the rows that are seen, ascending.
        n_rows: how many rows are scored.
        gather: sums values of the rows seen, shape (p,), over what each row is seen with, shape (n_rows,).

    Returns:
        (n_rows,) shares from 0 to 1.
    """
    scores = np.zeros(n_rows)
    if not len(asked) or not n_rows:
        return scores
    lengths = gather(asked.lengths_of(seen))
    norms = _norms(lengths, float(lengths.mean()))
    for postings, weight in zip(asked.postings, asked.idf, strict=True):
        here, counts = counts_in(postings, seen)
        frequencies = np.zeros(len(seen))
        frequencies[here] = counts
        together = gather(frequencies)
        scores += weight * together / (together + norms)
    return scores / asked.total_idf


def shares_of_units(
    asked: AskedTerms, unit_of: NDArray[np.int64], units: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """BM25 of units of rows, taken as one text each; document frequencies count units in scope.

    Args:
        asked: the terms.
        unit_of: (rows,) the unit of each row; units are numbered in the order of their first rows.
        units: (u,) distinct units, ascending, that have rows in scope.
        rows: all rows of these units, in scope or not, ascending.

    Returns:
        (u,) shares from 0 to 1.
    """
    scores = np.zeros(len(units))
    if not len(asked) or not len(units):
        return scores
    units_in_scope, distinct = _counting(asked, unit_of)
    unit = np.searchsorted(units, unit_of[rows])
    lengths = np.bincount(unit, asked.lengths_of(rows), minlength=len(units)).astype(np.float64)
    norms = _norms(lengths, float(asked.total_length()) / units_in_scope)
    total = asked.unheld * idf(units_in_scope, 0)
    for postings in asked.postings:
        weight = idf(units_in_scope, distinct(unit_of.take(postings[0])))
        total += weight
        here, counts = counts_in(postings, rows)
        together = np.bincount(unit[here], counts, minlength=len(units))
        scores += weight * together / (together + norms)
    return scores / total


def _counting(asked: AskedTerms, unit_of: NDArray[np.int64]) -> tuple[int, Callable[[NDArray[np.int64]], int]]:
    """How many units are in scope, and what tells how many different ones there are among some of them."""
    in_scope = None if asked.few is None else unit_of.take(asked.few)
    n_units = int((unit_of if in_scope is None else in_scope).max()) + 1

    def distinct(units: NDArray[np.int64]) -> int:
        there = np.zeros(n_units, np.bool_)
        there[units] = True
        return int(np.count_nonzero(there))

    if asked.everything:
        return n_units, distinct
    if in_scope is not None:
        return distinct(in_scope), distinct
    # Counting all is quicker than taking out those in scope first.
    return int(np.count_nonzero(np.bincount(unit_of, asked.allowed))), distinct


def _norms(lengths: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    norms: NDArray[np.float64] = K1 * (1 - B + B * (lengths / mean if mean > 0 else np.ones_like(lengths)))
    return norms
