"""Rows by a whole number, a thread's or a day's: flat arrays and a growing tail, as postings are kept."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SMALLEST_MERGE = 1 << 12  # rows; fewer are noted one by one


@dataclass(frozen=True, slots=True)
class _State:
    """What a reader takes hold of: base arrays that never change, and the tail that grew on top of them."""

    keys: NDArray[np.int64]  # distinct, ascending
    offsets: NDArray[np.int64]  # (keys + 1,): keys[i] has rows offsets[i] to offsets[i + 1]
    rows: NDArray[np.int64]  # ascending within a key
    tail: "dict[int, array[int]]"


class RowGroups:
    """The rows of each key. Rows come in ascending order. One thread adds; others look up without a lock."""

    def __init__(self) -> None:
        self._state = _State(np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int64), {})
        self._in_tail = 0

    def add(self, keys: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Note the keys of rows, higher than every row before."""
        state = self._state
        if self._in_tail + len(rows) < max(_SMALLEST_MERGE, len(state.rows) // 2):
            for key, row in zip(keys.tolist(), rows.tolist(), strict=True):
                of_key = state.tail.get(key)
                if of_key is None:
                    state.tail[key] = array("q", (row,))
                else:
                    of_key.append(row)
            self._in_tail += len(rows)
            return
        all_keys = np.concatenate(
            (
                np.repeat(state.keys, np.diff(state.offsets)),
                np.repeat(np.array([*state.tail], np.int64), [len(of_key) for of_key in state.tail.values()]),
                keys,
            )
        )
        in_tail = np.frombuffer(b"".join(of_key.tobytes() for of_key in state.tail.values()), np.int64)
        all_rows = np.concatenate((state.rows, in_tail, rows))
        order = np.argsort(all_keys, kind="stable")  # what is older stands first within a key
        all_keys = all_keys[order]
        starts = np.flatnonzero(np.diff(all_keys, prepend=all_keys[0] - 1 if len(all_keys) else 0))
        offsets = np.append(starts, len(all_keys)).astype(np.int64)
        self._state = _State(all_keys[starts], offsets, all_rows[order], {})
        self._in_tail = 0

    def of(self, keys: Sequence[int], below: int) -> NDArray[np.int64]:
        """The rows below `below` of these keys, key after key, ascending in each."""
        state = self._state  # once: `add` may put another in its place
        wanted = np.asarray(keys, np.int64)
        if not len(wanted):
            return np.empty(0, np.int64)
        places = np.searchsorted(state.keys, wanted)
        known = np.flatnonzero(places < len(state.keys))
        known = known[state.keys[places[known]] == wanted[known]]
        starts = state.offsets[places[known]]
        sizes = state.offsets[places[known] + 1] - starts
        found = state.rows[ranges(starts, sizes)]
        # A copy of each, in one step: an array that NumPy holds a buffer of cannot grow.
        tails = [(number, state.tail[key][:]) for number, key in enumerate(wanted.tolist()) if key in state.tail]
        if tails:
            of_key = np.concatenate(
                (np.repeat(known, sizes), np.repeat([number for number, _ in tails], [len(rows) for _, rows in tails]))
            )
            found = np.concatenate((found, *(np.array(rows, np.int64) for _, rows in tails)))
            found = found[np.argsort(of_key, kind="stable")]
        return found if not len(found) or found.max() < below else found[found < below]


def ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of all ranges start, start + 1, … of the given sizes, one after another."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    numbers: NDArray[np.int64] = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - sizes), sizes)
    return numbers
