"""Which rows belong together: those of one thread; a row without a thread has the other such rows of its day.

Rows of one thread stand in event order, and so a row has neighbours: what was said before and after it. The table
grows with the rows; readers take no lock and cut off what is later than their view.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.growable import GrowableArray
from mempp.recall.row_groups import RowGroups

DAY = 86_400_000_000
"""Microseconds."""


class _Numbers(dict[str | None, int]):
    """Thread → its unit. What was not met yet gets the next number; None gets one each time."""

    def __init__(self) -> None:
        super().__init__()
        self._given = 0

    def __missing__(self, thread: str | None) -> int:
        number = self._given
        self._given += 1
        if thread is not None:
            self[thread] = number
        return number


class Threads:
    """Threads by number, the unit of each row, and the days of rows without a thread.

    Units are numbered in the order of their first rows.
    """

    def __init__(self) -> None:
        self._numbers = _Numbers()
        self._rows_of = RowGroups()  # unit → its rows, only for threads
        self._rows_on = RowGroups()  # day → the rows of that day that have no thread
        self._unit_of: GrowableArray[np.int64] = GrowableArray(np.int64)
        self._threaded: GrowableArray[np.bool_] = GrowableArray(np.bool_)

    def append(self, first_row: int, threads: Sequence[str | None], occurred_at: Sequence[int | None]) -> None:
        """Note the threads and event dates (microseconds) of the next rows."""
        rows = np.arange(first_row, first_row + len(threads), dtype=np.int64)
        units = np.fromiter(map(self._numbers.__getitem__, threads), np.int64, len(threads))
        threaded = np.fromiter((thread is not None for thread in threads), np.bool_, len(threads))
        self._rows_of.add(units[threaded], rows[threaded])
        if not threaded.all():
            alone = [
                (moment // DAY, first_row + place)
                for place, (thread, moment) in enumerate(zip(threads, occurred_at, strict=True))
                if thread is None and moment is not None
            ]
            days = np.array(alone, np.int64).reshape(-1, 2)
            self._rows_on.add(days[:, 0], days[:, 1])
        self._threaded.extend(threaded)
        # Last: a reader that sees a row here finds it in the other tables too.
        self._unit_of.extend(units)

    def unit_of(self, rows: int) -> NDArray[np.int64]:
        """(rows,) the unit of each of the first rows: its thread, or a unit of its own where it has none."""
        return self._unit_of.values[:rows]

    def threaded(self, rows: int) -> NDArray[np.bool_]:
        """(rows,) whether each of the first rows has a thread."""
        return self._threaded.values[:rows]

    def rows_of(self, units: Sequence[int], below: int) -> NDArray[np.int64]:
        """The rows below `below` of these threads, thread after thread, ascending in each."""
        return self._rows_of.of(units, below)

    def rows_on(self, days: Sequence[int], below: int) -> NDArray[np.int64]:
        """The rows without a thread that are dated on these days (since 1970), day after day, ascending in each."""
        return self._rows_on.of(days, below)
