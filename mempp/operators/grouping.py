"""Greedy grouping by cosine (Algorithm 2 of the paper, line 3), exact and in matrix products.

The definition: take the rows in order. A row joins the first group, in the order in which groups were opened, whose
first row is near it; where there is none, it opens a group.

    near(x, y):  x · y / (|x| |y|) ≥ τ - 1e-9,  in float64;  a zero vector is near nothing

The 1e-9 is for rounding alone: a vector must be near its equal at τ = 1.

Only first rows are compared with, so the work is rows × groups. Products of blocks in float32 decide nearly every
pair; what their rounding error leaves open is decided in float64, so that the result is that of the definition.

Where there are many rows, most pairs are ruled out at a third of that cost. In an orthonormal basis let x' be the
first k coordinates of a unit vector and x" the others; by Cauchy and Schwarz

    x · y  ≤  x' · y' + |x"| |y"|,

which is one product of k + 1 numbers. The basis is that of the principal components of a sample, so that little is
left in x".
"""

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-9
BLOCK = 2048
"""Rows taken together."""
PANEL = 8192
"""First rows that a block is compared with at a time; a block of products takes BLOCK · PANEL · 4 bytes."""
BOUNDED_FROM = 8192
"""Rows from which bounds are worth making."""
_SHARE = 3  # a bound keeps one of so many dimensions
_SAMPLE = 8192  # rows that the basis is made of
_USELESS = 0.5  # share of rows that the bounds let through from which they cost more than they save


def cosines(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n,) the cosines of (n, d) vectors with (n, d) others, pair by pair, in float64; 0 where one of them is zero.

    Each is computed along its own contiguous rows, so that it does not depend on how many there are.
    """
    one, other = left.astype(np.float64), right.astype(np.float64)
    lengths = np.sqrt((one * one).sum(axis=1)) * np.sqrt((other * other).sum(axis=1))
    products: NDArray[np.float64] = (one * other).sum(axis=1)
    return products / np.where(lengths > 0, lengths, 1.0)


def first_rows(vectors: NDArray[np.float32], threshold: float) -> NDArray[np.int64]:
    """(n,) for each vector the place of the first row of its group; its own place where it opened the group.

    Args:
        vectors: (n, d), in order; any length, as they are normalised here.
        threshold: τ, above 0 and at most 1.
    """
    n = len(vectors)
    grouping = _Grouping(vectors, threshold)
    for start in range(0, n, BLOCK):
        block = np.arange(start, min(start + BLOCK, n))
        for low in range(0, grouping.opened, PANEL):
            block = grouping.join(block, slice(low, min(low + PANEL, grouping.opened)))
        grouping.open(block)
    return grouping.group


def groups(first: NDArray[np.int64]) -> list[list[int]]:
    """The groups of two or more, each as ascending places, in the order in which they were opened.

    Args:
        first: what `first_rows` gave.
    """
    order = np.argsort(first, kind="stable")
    starts = np.flatnonzero(np.diff(first[order], prepend=-1))
    parts = np.split(order, starts[1:]) if len(order) else []
    return [part.tolist() for part in parts if len(part) > 1]


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    return (vectors / np.where(lengths > 0, lengths, 1.0)[:, None].astype(np.float32)).astype(np.float32, copy=False)


def _bounds(unit: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, k + 1) what the bounds of the cosines are products of: (x', |x"|) of each unit vector.

    Rotated in float64, so that the products err by no more than those of the vectors themselves.
    """
    n, dimensions = unit.shape
    kept = max(1, dimensions // _SHARE)
    sample = unit[:: max(1, n // _SAMPLE)].astype(np.float64)
    basis = np.linalg.eigh(sample.T @ sample)[1][:, ::-1]  # its columns, the principal one first
    made = np.empty((n, kept + 1), np.float32)
    for start in range(0, n, BLOCK):
        rotated = unit[start : start + BLOCK].astype(np.float64) @ basis
        made[start : start + BLOCK, :kept] = rotated[:, :kept]
        made[start : start + BLOCK, kept] = np.sqrt((rotated[:, kept:] ** 2).sum(axis=1))
    return made


class _Grouping:
    def __init__(self, vectors: NDArray[np.float32], threshold: float) -> None:
        self.vectors = vectors
        self.threshold = threshold
        self.group = np.full(len(vectors), -1, np.int64)
        """For each place the first row of its group, -1 as long as it has none."""
        self.unit = _unit(vectors)
        self.bounds = _bounds(self.unit) if len(vectors) >= BOUNDED_FROM else None
        self.opened = 0
        self.firsts = np.empty(len(vectors), np.int64)
        """Places of first rows, in the order in which they opened their groups."""
        # Their vectors and bounds side by side; memory is taken as it is filled.
        self.panel = np.empty_like(self.unit)
        self.bounds_panel = None if self.bounds is None else np.empty_like(self.bounds)
        # What a product in float32 of normalised vectors can differ from the cosine in float64, with room to spare: a
        # sum of d products errs by at most d · 2^-24 (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1),
        # and each normalised vector by a few 2^-24 more.
        self.margin = (self.unit.shape[1] + 16) * 2.0**-23

    def join(self, rows: NDArray[np.int64], among: slice) -> NDArray[np.int64]:
        """Let rows join the first of some groups, by order of opening, that they are near to; give those that do not.

        Args:
            rows: places of rows without a group, ascending.
            among: which of the groups.
        """
        asked = self._within_bounds(rows, among)
        if not len(asked):
            return rows
        products = self.unit[asked] @ self.panel[among].T
        firsts = self.firsts[among]
        for place in np.flatnonzero(products.max(axis=1) >= self.threshold - self.margin).tolist():
            near = self._near(int(asked[place]), firsts, products[place])
            if len(near):
                self.group[asked[place]] = firsts[near[0]]
        return rows[self.group[rows] < 0]

    def _within_bounds(self, rows: NDArray[np.int64], among: slice) -> NDArray[np.int64]:
        """The rows that the bounds do not rule out."""
        if self.bounds is None or self.bounds_panel is None or not len(rows):
            return rows
        highest = (self.bounds[rows] @ self.bounds_panel[among].T).max(axis=1)
        possible: NDArray[np.int64] = rows[highest >= self.threshold - self.margin]
        if len(rows) >= BLOCK // 2 and len(possible) > _USELESS * len(rows):
            self.bounds = None
        return possible

    def open(self, rows: NDArray[np.int64]) -> None:
        """Group rows that are near to no group opened before."""
        products = self.unit[rows] @ self.unit[rows].T
        possible = np.triu(products >= self.threshold - self.margin, k=1)
        for place in np.flatnonzero(possible.any(axis=1)).tolist():
            if self.group[rows[place]] >= 0:
                continue
            later = place + 1 + np.flatnonzero(possible[place, place + 1 :])
            later = later[self.group[rows[later]] < 0]
            near = self._near(int(rows[place]), rows[later], products[place, later])
            self.group[rows[later[near]]] = rows[place]
        new = rows[self.group[rows] < 0]
        self.group[new] = new
        added = slice(self.opened, self.opened + len(new))
        self.firsts[added] = new
        self.panel[added] = self.unit[new]
        if self.bounds is not None and self.bounds_panel is not None:
            self.bounds_panel[added] = self.bounds[new]
        self.opened += len(new)

    def _near(self, row: int, others: NDArray[np.int64], products: NDArray[np.float32]) -> NDArray[np.int64]:
        """Which of the others, given first products with an error, the row is near to; ascending."""
        possible = np.flatnonzero(products >= self.threshold - self.margin)
        doubtful = possible[products[possible] <= self.threshold + self.margin]
        if not len(doubtful):
            return possible
        chosen = np.broadcast_to(self.vectors[row], (len(doubtful), self.vectors.shape[1]))
        exact = cosines(chosen, self.vectors[others[doubtful]])
        return np.setdiff1d(possible, doubtful[exact < self.threshold - ROUNDING])
