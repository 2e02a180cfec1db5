"""Turning vectors so that their first dimensions hold most of their length (principal axes), which keeps all products.

    v · q = (v R) · (q R)        R orthogonal: the eigenvectors of the mean of v vᵀ, by falling eigenvalue

(Principal components without taking off the mean.) Within the head, and within the tail, R is then mixed at random, so
that no dimension stands out: codes of one byte err by a share of the largest number of a vector.

Embeddings of text use some directions much more than others: of MiniLM's 384 dimensions, turned, the first 128 hold
nine tenths of the length.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.products import float_product

_LEAST_SHARE = 0.85  # of the squared length in the head
_STEP = 64  # dimensions: what processors multiply bytes by
_MOST_DIMENSIONS = 1024  # the eigenvectors of a larger matrix take seconds
_MOST_VECTORS = 1 << 14


@dataclass(frozen=True, slots=True)
class Turn:
    """An orthogonal matrix, up to rounding, and how many dimensions the head has after it."""

    matrix: NDArray[np.float32]
    """(d, d) R."""
    head: int
    error: float
    """What turning both may change of a product, as a share of ‖v‖ · ‖q‖."""

    def of_vectors(self, vectors: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Turned vectors, (n, d), and (n,) what times ‖q‖ bounds the change of a product with a turned question."""
        turned = float_product(vectors, self.matrix)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)) * np.float32(1.001)
        return turned, lengths * np.float32(self.error) + np.float32(1e-17)

    def of_question(self, question: NDArray[np.float32]) -> NDArray[np.float32]:
        """(d,) a turned question."""
        turned: NDArray[np.float32] = np.einsum("i,ij->j", question.astype(np.float64), self.matrix).astype(np.float32)
        return turned


def turn_for(vectors: NDArray[np.float32]) -> Turn | None:
    """The turn for vectors like these, (n, d); None where no head of half the dimensions holds most of their length."""
    dimensions = vectors.shape[1]
    if dimensions > _MOST_DIMENSIONS or dimensions < 2 * _STEP:
        return None
    some = vectors[:_MOST_VECTORS].astype(np.float64)
    values, axes = np.linalg.eigh(some.T @ some)
    values, matrix = values[::-1], axes[:, ::-1]
    total = float(values.sum())
    for head in range(_STEP, dimensions // 2 + 1, _STEP):
        if total > 0 and values[:head].sum() >= _LEAST_SHARE * total:
            mixed = np.hstack([part @ _at_random(part.shape[1]) for part in (matrix[:, :head], matrix[:, head:])])
            rounded = np.ascontiguousarray(mixed, np.float32)
            return Turn(rounded, head, _error(rounded))
    return None


def _at_random(size: int) -> NDArray[np.float64]:
    """An orthogonal matrix, always the same one."""
    orthogonal: NDArray[np.float64] = np.linalg.qr(np.random.default_rng(size).standard_normal((size, size)))[0]
    return orthogonal


def _error(matrix: NDArray[np.float32]) -> float:
    """‖R Rᵀ - 1‖, and what float32 rounds off in v R: each of its d sums of d products errs by at most d · 2^-24 of the
    lengths multiplied (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1)."""
    wide = matrix.astype(np.float64)
    size = len(wide)
    unit = size * 2.0**-24
    apart = float(np.linalg.norm(wide @ wide.T - np.eye(size)))
    return float(apart + unit / (1 - unit) * size**0.5 * (1 + apart) + 2.0**-23)
