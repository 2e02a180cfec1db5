"""Which rows repeat each other: the content key of each row, and the rows of a key.

A table of open addressing: a key's home is told by its first bits, and it stands there or in the next free slot behind
it (linear probing; Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm L). There is room behind
the last home, so that nothing wraps around. With the keys that takes 24 to 32 bytes a row, and less than another 100
while the table is made anew; a dictionary of keys and lists takes 300.
"""

import hashlib
from array import array
from collections.abc import Sequence
from typing import Literal

import numpy as np

Repeats = Literal["exact", "paper"]
"""What counts as a repeat; see `mempp.projection.Projection.repeat_of`."""

KEY_SIZE = 16
"""Bytes of a content key."""

_HASH_BITS = 64
_FEWEST_BITS = 10


def content_key(
    text: str, authors: Sequence[str], occurred_at: int | None, thread: str | None, repeats: Repeats
) -> bytes:
    """16 bytes, equal for documents that repeat each other; None equals None, the order of authors does not count."""
    rest: list[object] = [len(text), sorted(authors)]
    if repeats == "exact":
        rest += [occurred_at, thread]
    digest = hashlib.blake2b(repr(rest).encode(), digest_size=KEY_SIZE)
    digest.update(text.encode())
    return digest.digest()


class RowsByKey:
    """Content key → the rows that have it. Keys come row by row. One thread uses it."""

    def __init__(self, bits: int = _FEWEST_BITS) -> None:
        """Nothing is in it yet; it begins with 2**bits homes."""
        self._keys = bytearray()  # of all rows, one after another
        self._again: dict[int, list[int]] = {}  # first row of a key → its other rows
        self._bits = bits
        self._slots = array("I", bytes(4 << bits))  # 0: free; else 1 + the first row of a key
        self._taken = 0

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._keys) // KEY_SIZE

    def append(self, key: bytes) -> None:
        """Note the key of the next row."""
        row = len(self)
        self._keys += key
        place = self._place(key)
        if place < len(self._slots) and self._slots[place]:
            self._again.setdefault(self._slots[place] - 1, []).append(row)
            return
        if place == len(self._slots):
            self._slots.append(0)
        self._slots[place] = 1 + row
        self._taken += 1
        if self._taken > 1 << (self._bits - 1):
            self._spread(self._bits + 1)

    def rows_of(self, key: bytes) -> list[int]:
        """The rows with this key, ascending."""
        place = self._place(key)
        first = self._slots[place] - 1 if place < len(self._slots) else -1
        return [] if first < 0 else [first, *self._again.get(first, ())]

    def _place(self, key: bytes) -> int:
        """Where a key stands, or the free slot where it would; that may be the one behind the last."""
        keys, slots = self._keys, self._slots
        place = int.from_bytes(key[:8], "little") >> (_HASH_BITS - self._bits)
        while place < len(slots) and slots[place]:
            start = KEY_SIZE * (slots[place] - 1)
            if keys[start : start + KEY_SIZE] == key:
                break
            place += 1
        return place

    def _spread(self, bits: int) -> None:
        """Make the table anew, with 2**bits homes."""
        slots = np.frombuffer(self._slots, np.uint32)
        taken = slots[slots > 0]
        hashes = np.frombuffer(self._keys, "<u8")[2 * (taken.astype(np.int64) - 1)]
        homes = (hashes >> np.uint64(_HASH_BITS - bits)).astype(np.int64)
        order = np.argsort(homes)
        # In the order of their homes, each stands in its home or behind the one before, whichever is later.
        numbers = np.arange(len(order))
        places = numbers + np.maximum.accumulate(homes[order] - numbers)
        spread = np.zeros(max(1 << bits, int(places[-1]) + 1), np.uint32)
        spread[places] = taken[order]
        self._slots, self._bits = array("I", spread.tobytes()), bits
