"""The terms of one question, with their postings cut to its scope: made once, and used by all that scores words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.postings import Counts
from mempp.indexes.ranking import Allowed

_BLOCK = 1 << 15
_LOOKED_UP = 32  # a row looked up among postings takes as long as so many that are noted in an array
_FEW = 8  # a scope is few rows when it is no more than one in so many


@dataclass(frozen=True, slots=True)
class AskedTerms:
    """The terms of a question that some row in scope holds, and what they weigh there.

    The heaviest comes first, of equal ones that which the question names first; sums are taken in this order.
    """

    postings: tuple[tuple[NDArray[np.uint32], Counts], ...]
    """For each term the rows in scope that hold it, ascending, and how often."""
    idf: tuple[float, ...]
    lengths: NDArray[np.uint32]
    """(rows,) number of terms of each row."""
    allowed: Allowed
    """(rows,) the scope."""
    in_scope: int
    """How many rows are in scope."""
    few: NDArray[np.int64] | None
    """(in_scope,) the rows in scope, ascending, where these are few: then nobody needs to look at all rows."""
    total_idf: float
    """Σ idf over all terms of the question, those that no row holds among them."""
    unheld: int
    """How many terms of the question no row in scope holds."""

    def __len__(self) -> int:
        return len(self.postings)

    @property
    def everything(self) -> bool:
        """Whether all rows are in scope."""
        return self.in_scope == len(self.allowed)

    def total_length(self) -> int:
        """Sum of the lengths in scope, as an integer: exact, whatever the order of summation."""
        if self.everything:
            return int(self.lengths.sum(dtype=np.int64))
        if self.few is not None:
            return int(self.lengths.take(self.few).sum(dtype=np.int64))
        starts = range(0, len(self.allowed), _BLOCK)
        parts = (slice(start, start + _BLOCK) for start in starts)
        return sum(int(np.dot(self.lengths[part].astype(np.int64), self.allowed[part])) for part in parts)

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) lengths of these rows; 0 outside of the scope."""
        return np.where(self.allowed[rows], self.lengths[rows], np.uint32(0)).astype(np.float64)


def asked_terms(
    postings: Sequence[tuple[NDArray[np.uint32], Counts]],
    lengths: NDArray[np.uint32],
    allowed: Allowed,
) -> AskedTerms:
    """Cut postings to the scope and weigh the terms there.

    Args:
        postings: for each term of the question the rows that hold it, ascending, and how often.
        lengths: (rows,) number of terms of each row.
        allowed: (rows,) the scope.
    """
    in_scope = int(np.count_nonzero(allowed))
    few = np.flatnonzero(allowed) if in_scope * _FEW <= len(allowed) else None
    kept: list[tuple[float, tuple[NDArray[np.uint32], Counts]]] = []
    total = 0.0
    for rows, counts in postings:
        if few is not None and in_scope * _LOOKED_UP < len(rows):
            _, places = looked_up(rows, few)
            rows, counts = rows.take(places), counts.take(places)
        elif in_scope < len(allowed):
            inside = np.flatnonzero(allowed.take(rows))  # and not by the bitset itself, which takes four times as long
            rows, counts = rows.take(inside), counts.take(inside)
        weight = idf(in_scope, len(rows))
        total += weight
        if len(rows):
            kept.append((weight, (rows, counts)))
    kept.sort(key=lambda term: term[0], reverse=True)
    weights, held = tuple(weight for weight, _ in kept), tuple(holding for _, holding in kept)
    return AskedTerms(held, weights, lengths, allowed, in_scope, few, total, len(postings) - len(kept))


def idf(documents: int, frequency: int) -> float:
    """ln(1 + (N - df + 0.5) / (df + 0.5)), which cannot turn negative."""
    return math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5))


def counts_in(
    postings: tuple[NDArray[np.uint32], Counts], rows: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Which of these rows (positions) hold a term, and how often each of them does.

    Args:
        postings: the rows that hold it, ascending and at least one, and how often.
        rows: ascending.
    """
    holding, counts = postings
    if len(rows) and len(rows) * _LOOKED_UP > len(holding) + rows[-1]:
        held = np.zeros(int(rows[-1]) + 1, np.uint32)
        within = int(np.searchsorted(holding, np.uint32(len(held))))
        held[holding[:within]] = counts[:within]
        frequencies = held.take(rows)
        here = np.flatnonzero(frequencies)
        return here, frequencies[here].astype(np.float64)
    here, places = looked_up(holding, rows)
    return here, counts[places].astype(np.float64)


def looked_up(holding: NDArray[np.uint32], rows: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which of these rows (positions) are among those that hold a term, at least one, and where they are there."""
    places = np.searchsorted(holding, rows.astype(np.uint32))
    np.minimum(places, len(holding) - 1, out=places)
    here = np.flatnonzero(holding[places] == rows)
    return here, places[here]
