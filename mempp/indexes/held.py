"""Vectors, or codes of them, in two parts: those that were there when the index was opened, perhaps mapped from a file,
and later ones.

The first part is never copied, however large, and where it is mapped the system reads of it what is asked for and may
let go of it again. Later ones go to an array that grows.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mempp.indexes.growable import GrowableArray, Scalar

_WORTH = 1 << 14  # vectors; fewer are copied


@dataclass(frozen=True, slots=True)
class Held(Generic[Scalar]):
    """What a reader takes hold of: n vectors, which no later one changes."""

    first: NDArray[Scalar]
    """(f, dimensions)"""
    later: NDArray[Scalar]
    """(n - f, dimensions)"""

    def __len__(self) -> int:
        return len(self.first) + len(self.later)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, dimensions)"""
        return len(self), self.later.shape[1]

    def take(self, chosen: NDArray[np.int64]) -> NDArray[Scalar]:
        """(k, dimensions) a copy of the chosen ones."""
        if not len(self.first):
            return self.later.take(chosen, axis=0)
        if not len(self.later):
            return self.first.take(chosen, axis=0)
        given = np.empty((len(chosen), self.later.shape[1]), self.later.dtype)
        early = chosen < len(self.first)
        given[early] = self.first.take(chosen[early], axis=0)
        given[~early] = self.later.take(chosen[~early] - len(self.first), axis=0)
        return given

    def part(self, start: int, end: int) -> NDArray[Scalar]:
        """Those from one place to another, in a row; a copy only where they lie in both parts."""
        size = len(self.first)
        if end <= size:
            return self.first[start:end]
        if start >= size:
            return self.later[start - size : end - size]
        return np.concatenate((self.first[start:], self.later[: end - size]))

    def up_to(self, end: int) -> "Held[Scalar]":
        """The first ones."""
        return Held(self.first[:end], self.later[: max(0, end - len(self.first))])


def little_endian(vectors: Held[np.float32], size: int) -> Iterator[memoryview]:
    """The bytes of the first vectors, little-endian float32, some thousand vectors at a time."""
    for start in range(0, size, _WORTH):
        yield np.ascontiguousarray(vectors.part(start, min(start + _WORTH, size)), "<f4").data


def sha256_of(vectors: Held[np.float32], size: int) -> str:
    """The SHA-256 of the first vectors, as hexadecimal digits."""
    digest = hashlib.sha256()
    for part in little_endian(vectors, size):
        digest.update(part)
    return digest.hexdigest()


class HeldVectors(Generic[Scalar]):
    """Vectors that are appended by one thread while others read them."""

    def __init__(self, dimensions: int, dtype: DTypeLike = np.float32) -> None:
        self._later: GrowableArray[Scalar] = GrowableArray(dtype, dimensions)
        self._first: NDArray[Scalar] = self._later.values[:0]
        self.reserved = 0
        """For how many in all room was asked for."""
        self.values: Held[Scalar] = Held(self._first, self._later.values)
        """All of them; one attribute, replaced after new ones have been written."""

    def __len__(self) -> int:
        return len(self.values)

    def reserve(self, needed: int) -> None:
        """Make room for so many in all, when the first come that are copied."""
        self.reserved = max(self.reserved, needed)

    def extend(self, new: NDArray[Scalar]) -> None:
        """Append vectors, (n, dimensions). Many that nobody may write to, and come first, are kept as they are."""
        if not len(self) and len(new) >= _WORTH and not new.flags.writeable and new.flags.c_contiguous:
            self._first = new
        else:
            if self.reserved > len(self):
                self._later.reserve(self.reserved - len(self._first))
            self._later.extend(new)
        self.values = Held(self._first, self._later.values)
