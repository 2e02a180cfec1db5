"""The true nearest rows of a synthetic record, by brute force in NumPy: what recall is counted against."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Scope
from benchmarks.synthetic import AUTHORS, SyntheticRecord, author_name, source_of

SHARES = {"100 %": 1.0, "50 %": 0.5, "10 %": 0.1, "1 %": 0.01}


def scopes_of(record: SyntheticRecord) -> dict[str, Scope]:
    """The scopes that are measured: all rows, those dated up to a moment, those of one author, a single row."""
    dates = np.sort(record.dates)
    scopes = [Scope("100 %")]
    for name, share in SHARES.items():
        if share < 1:
            scopes.append(Scope(name, until=int(dates[max(1, int(share * record.rows)) - 1])))
    scopes.append(Scope("one author", author=author_name(int(record.author_numbers[record.rows // 2]))))
    scopes.append(Scope("one row", source=source_of(record.rows // 3)))
    return {scope.name: scope for scope in scopes}


def allowed_in(record: SyntheticRecord, scope: Scope) -> NDArray[np.bool_]:
    """(rows,) which rows a scope allows."""
    allowed = np.ones(record.rows, np.bool_)
    if scope.until is not None:
        allowed &= record.dates <= scope.until
    if scope.author is not None:
        numbers = [number for number in range(AUTHORS) if author_name(number) == scope.author]
        allowed &= np.isin(record.author_numbers, numbers)
    if scope.source is not None:
        allowed &= np.array([source_of(row) == scope.source for row in range(record.rows)])
    return allowed


def nearest(
    record: SyntheticRecord, questions: NDArray[np.float32], scopes: Mapping[str, Scope], k: int
) -> dict[str, list[list[int]]]:
    """By scope and question, the at most k rows in scope with the highest cosine, best first.

    Args:
        record: its blocks are made one after another, so that memory holds one of them.
        questions: (n, dimensions) unit vectors.
        scopes: by name.
        k: how many.
    """
    allowed = {name: allowed_in(record, scope) for name, scope in scopes.items()}
    found = {name: [_Best(k) for _ in questions] for name in scopes}
    for block in record.blocks():
        scores = questions.astype(np.float64) @ block.vectors.T.astype(np.float64)
        for name, best in found.items():
            places = np.flatnonzero(allowed[name][block.first : block.first + len(block)])
            for each, own in zip(best, scores[:, places], strict=True):
                each.take(block.first + places, own)
    return {name: [each.rows.tolist() for each in best] for name, best in found.items()}


def recall(found: Sequence[Sequence[int]], true: Sequence[Sequence[int]]) -> float:
    """The share of the true rows that were found, the mean over questions; 1 where there are none to find."""
    shares = [len({*one} & {*other}) / len(other) if other else 1.0 for one, other in zip(found, true, strict=True)]
    return sum(shares) / len(shares)


class _Best:
    """The k best rows so far."""

    def __init__(self, k: int) -> None:
        self._k = k
        self.rows = np.empty(0, np.int64)
        self._scores = np.empty(0, np.float64)

    def take(self, rows: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        """Take in further rows."""
        rows, scores = np.concatenate([self.rows, rows]), np.concatenate([self._scores, scores])
        order = np.argsort(-scores, kind="stable")[: self._k]
        self.rows, self._scores = rows[order], scores[order]
