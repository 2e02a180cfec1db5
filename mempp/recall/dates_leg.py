"""The dates leg: event dates near to a date that the question names, and texts that name it too."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mempp.dates import from_microseconds
from mempp.recall.named_dates import named_dates
from mempp.recall.scope import Allowed
from mempp.recall.table import UNDATED
from mempp.recall.threads import DAY

_ANY_YEAR = (2000,)
"""A leap year: whatever is a date in any year is one in this."""
NEARNESS = 10 * DAY
"""A row that is dated this far from the date named has 1/e of the value of one dated on it."""


class DatesLeg:
    """The dates that a question names, and the value of rows by them.

    value(r) = ½ · exp(-gap / NEARNESS) + ½ · [the text of r names a day within the date named]

    with the gap from the event date to the nearest date named, 0 within it; for an undated row only the second part.
    """

    def __init__(
        self,
        question: str,
        allowed: Allowed,
        occurred_at: NDArray[np.int64],
        days_of: Callable[[int], Sequence[int]],
        asked_at: int | None,
    ) -> None:
        """Find the dates named.

        Args:
            question: any text.
            allowed: (rows,) the scope; a date without a year is taken in each year that its event dates span.
            occurred_at: (rows,) event dates.
            days_of: row id → the days that its text names, in days since 1970.
            asked_at: when it is asked, for "last March" and the like, microseconds UTC; None: not known.
        """
        self._allowed = allowed
        self._occurred_at = occurred_at
        self._days_of = days_of
        self._spans = named_dates(question, asked_at=asked_at, years=_ANY_YEAR)
        if self._spans:  # few questions name a date, and the years take a look at every row
            self._spans = named_dates(question, asked_at=asked_at, years=self._years())

    def _years(self) -> range:
        dated = self._occurred_at[self._allowed & (self._occurred_at != UNDATED)]
        if not len(dated):
            return range(0)
        first, last = (from_microseconds(int(moment)).year for moment in (dated.min(), dated.max()))
        return range(first, last + 1)

    @property
    def named(self) -> bool:
        """Whether the question names any date."""
        return bool(self._spans)

    def nearest(self, limit: int) -> NDArray[np.int64]:
        """At most `limit` rows in scope dated nearest to a date named; of rows equally near the later ones."""
        if not self.named:
            return np.empty(0, np.int64)
        rows = np.flatnonzero(self._allowed & (self._occurred_at != UNDATED))
        gaps = self._gaps(rows)
        near = rows[gaps <= NEARNESS]
        order = np.lexsort((-near, gaps[gaps <= NEARNESS]))
        return near[order][:limit]

    def values(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) values of these rows, from 0 to 1."""
        dated = self._occurred_at[rows] != UNDATED
        values = np.zeros(len(rows))
        values[dated] = 0.5 * np.exp(-self._gaps(rows[dated]) / NEARNESS)
        mentioned = [self._mentions(row) for row in rows.tolist()]
        return values + 0.5 * np.array(mentioned, np.float64)

    def _gaps(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        dates = self._occurred_at[rows]
        gaps = np.full(len(rows), np.inf)
        for span in self._spans:
            np.minimum(gaps, np.maximum(0, np.maximum(span.start - dates, dates - (span.end - 1))), out=gaps)
        return gaps

    def _mentions(self, row: int) -> bool:
        return any(span.start <= day * DAY < span.end for day in self._days_of(row) for span in self._spans)
