"""BM25 of several rows taken together: a row with its neighbours, or a thread as a whole.

Term frequencies and lengths are sums over the rows of the scope; the formula is that of `bm25`. Scores are given as
shares of what no text can reach, so that they lie between 0 and 1 and compare from one question to the next:

    share(r) = Σ idf(t) · (k1 + 1) · tf / (tf + norm)  /  Σ idf(t) · (k1 + 1)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.bm25 import K1, B
from mempp.indexes.ranking import Allowed

_FEW = 8  # counting all units is quicker than sorting when the postings are more than one in so many units


@dataclass(frozen=True, slots=True)
class AskedTerms:
    """The terms of a question that some row in scope holds, and what they weigh there."""

    postings: tuple[tuple[NDArray[np.int64], NDArray[np.float64]], ...]
    """For each term the rows in scope that hold it, ascending, and how often."""
    idf: tuple[float, ...]
    lengths: NDArray[np.float64]
    """(rows,) number of terms of each row; 0 outside of the scope."""
    allowed: Allowed
    total_idf: float
    """Σ idf over all terms of the question, those that no row holds among them."""
    unheld: int
    """How many terms of the question no row in scope holds."""

    def __len__(self) -> int:
        return len(self.postings)


def asked_terms(
    postings: Sequence[tuple[NDArray[np.uint32], NDArray[np.uint32]]],
    lengths: NDArray[np.uint32],
    allowed: Allowed,
) -> AskedTerms:
    """Cut postings to the scope and weigh the terms there.

    Args:
        postings: for each term of the question the rows that hold it, and how often.
        lengths: (rows,) number of terms of each row.
        allowed: (rows,) the scope.
    """
    in_scope = int(np.count_nonzero(allowed))
    kept, weights, total = [], [], 0.0
    for rows, counts in postings:
        inside = allowed.take(rows)
        frequency = int(np.count_nonzero(inside))
        idf = _idf(in_scope, frequency)
        total += idf
        if frequency:
            kept.append((rows[inside].astype(np.int64), counts[inside].astype(np.float64)))
            weights.append(idf)
    return AskedTerms(
        postings=tuple(kept),
        idf=tuple(weights),
        lengths=np.where(allowed, lengths, 0).astype(np.float64),
        allowed=allowed,
        total_idf=total,
        unheld=len(postings) - len(kept),
    )


def shares_in_context(
    asked: AskedTerms,
    seen: NDArray[np.int64],
    n_rows: int,
    gather: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """BM25 of rows that are seen with others.

    Args:
        asked: the terms.
        seen: (p,) the rows that are seen, distinct.
        n_rows: how many rows are scored.
        gather: sums values of the rows seen, shape (p,), over what each row is seen with, shape (n_rows,).

    Returns:
        (n_rows,) shares from 0 to 1.
    """
    scores = np.zeros(n_rows)
    if not len(asked) or not n_rows:
        return scores
    place = np.full(len(asked.allowed), -1, np.int32)
    place[seen] = np.arange(len(seen), dtype=np.int32)
    lengths = gather(asked.lengths[seen])
    norms = _norms(lengths, float(lengths.mean()))
    for (rows, counts), idf in zip(asked.postings, asked.idf, strict=True):
        places = place[rows]
        here = places >= 0
        frequencies = np.zeros(len(seen))
        frequencies[places[here]] = counts[here]
        together = gather(frequencies)
        scores += idf * together / (together + norms)
    return scores / asked.total_idf


def shares_of_units(asked: AskedTerms, unit_of: NDArray[np.int64], units: NDArray[np.int64]) -> NDArray[np.float64]:
    """BM25 of units of rows, taken as one text each; document frequencies count units in scope.

    Args:
        asked: the terms.
        unit_of: (rows,) the unit of each row.
        units: (u,) distinct units, ascending, that have rows in scope.

    Returns:
        (u,) shares from 0 to 1.
    """
    scores = np.zeros(len(units))
    if not len(asked) or not len(units):
        return scores
    n_units = int(unit_of.max()) + 1
    in_scope = np.flatnonzero(asked.allowed)
    rows_of_unit = np.bincount(unit_of[in_scope], minlength=n_units)
    lengths = np.bincount(unit_of[in_scope], asked.lengths[in_scope], minlength=n_units).astype(np.float64)
    units_in_scope = int(np.count_nonzero(rows_of_unit))
    norms = _norms(lengths[units], float(lengths.sum()) / units_in_scope)
    place = np.full(n_units, -1, np.int64)
    place[units] = np.arange(len(units))
    total = asked.unheld * _idf(units_in_scope, 0)
    for rows, counts in asked.postings:
        of_rows = unit_of[rows]
        if len(rows) * _FEW < n_units:
            frequency = len(np.unique(of_rows))
        else:
            frequency = int(np.count_nonzero(np.bincount(of_rows, minlength=n_units)))
        idf = _idf(units_in_scope, frequency)
        total += idf
        places = place[of_rows]
        here = places >= 0
        together = np.bincount(places[here], counts[here], minlength=len(units))
        scores += idf * together / (together + norms)
    return scores / total


def _idf(documents: int, frequency: int) -> float:
    return math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5))


def _norms(lengths: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    return K1 * (1 - B + B * (lengths / mean if mean > 0 else np.ones_like(lengths)))
