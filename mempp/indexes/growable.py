"""An append-only array that one thread grows while others read it."""

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


class GrowableArray(Generic[Scalar]):
    """Rows appended to a NumPy array with room to spare.

    `values` is one attribute, replaced after the new rows have been written: a reader that takes it once holds a
    consistent prefix, which no later append changes. When the room is used up the array is copied into one twice as
    large; readers keep the old one.
    """

    def __init__(self, dtype: DTypeLike, width: int | None = None) -> None:
        self._room: NDArray[Any] = np.empty((0,) if width is None else (0, width), dtype)
        self.values: NDArray[Scalar] = self._room[:0]

    def __len__(self) -> int:
        return len(self.values)

    def reserve(self, needed: int) -> None:
        """Make room for so many rows in all, so that appending up to there copies nothing."""
        if needed > len(self._room):
            size = len(self.values)
            room = np.empty((max(needed, 2 * size, 16), *self._room.shape[1:]), self._room.dtype)
            room[:size] = self.values
            self._room = room

    def extend(self, new: ArrayLike) -> None:
        """Append rows: shape (n,), or (n, width)."""
        rows = np.asarray(new, self._room.dtype)
        size = len(self.values)
        needed = size + len(rows)
        self.reserve(needed)
        self._room[size:needed] = rows
        self.values = self._room[:needed]
