"""Which rows belong together: those of one thread; a row without a thread has the other such rows of its day.

Rows of one thread stand in event order, and so a row has neighbours: what was said before and after it. The table
grows with the rows; readers take no lock and cut off what is later than their view.
"""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.growable import GrowableArray

DAY = 86_400_000_000
"""Microseconds."""


class Threads:
    """Threads by number, the unit of each row, and the days of rows without a thread."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._rows_of: dict[int, array[int]] = {}  # unit → its rows, only for threads
        self._rows_on: dict[int, array[int]] = {}  # day → the rows of that day that have no thread
        self._unit_of: GrowableArray[np.int64] = GrowableArray(np.int64)
        self._threaded: GrowableArray[np.bool_] = GrowableArray(np.bool_)
        self._units = 0

    def append(self, first_row: int, threads: Sequence[str | None], occurred_at: Sequence[int | None]) -> None:
        """Note the threads and event dates (microseconds) of the next rows."""
        units = []
        for row, (thread, moment) in enumerate(zip(threads, occurred_at, strict=True), start=first_row):
            number = None if thread is None else self._numbers.get(thread)
            if number is None:
                number = self._units
                self._units += 1
                if thread is not None:
                    self._numbers[thread] = number
            units.append(number)
            if thread is not None:
                _note(self._rows_of, number, row)
            elif moment is not None:
                _note(self._rows_on, moment // DAY, row)
        self._threaded.extend(np.array([thread is not None for thread in threads], np.bool_))
        # Last: a reader that sees a row here finds it in the other tables too.
        self._unit_of.extend(np.array(units, np.int64))

    def unit_of(self, rows: int) -> NDArray[np.int64]:
        """(rows,) the unit of each of the first rows: its thread, or a unit of its own where it has none."""
        return self._unit_of.values[:rows]

    def threaded(self, rows: int) -> NDArray[np.bool_]:
        """(rows,) whether each of the first rows has a thread."""
        return self._threaded.values[:rows]

    def rows_of(self, units: Iterable[int], below: int) -> NDArray[np.int64]:
        """The rows below `below` of these threads, thread after thread, ascending in each."""
        return _joined([self._rows_of[unit] for unit in units if unit in self._rows_of], below)

    def rows_on(self, day: int, below: int) -> NDArray[np.int64]:
        """The rows without a thread that are dated on this day (days since 1970), ascending."""
        return _joined([self._rows_on[day]] if day in self._rows_on else [], below)


def _note(table: "dict[int, array[int]]", key: int, row: int) -> None:
    found = table.get(key)
    if found is None:
        table[key] = array("q", (row,))
    else:
        found.append(row)


def _joined(parts: "Sequence[array[int]]", below: int) -> NDArray[np.int64]:
    if not parts:
        return np.empty(0, np.int64)
    # A copy: an array that NumPy holds a buffer of cannot grow.
    together = np.frombuffer(b"".join(part.tobytes() for part in parts), np.int64)
    return together[together < below]
