"""The dates leg: event dates near to a date that the question names, and texts that name it too."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mempp.recall.date_words import FAR_FUTURE, date_of
from mempp.recall.named_dates import DateSpan, named_dates
from mempp.recall.scope import Allowed
from mempp.recall.table import UNDATED
from mempp.recall.threads import DAY

_FAR = 4 * FAR_FUTURE  # further than any two dates are apart
_SCATTERED = 4  # reading the date of a row in scope takes as long as reading so many in a row
_FEW = 8  # windows; so many passes over all rows are quicker than a search for each row
MOST_YEARS = 100
"""A date without a year is taken in each year from the first to the last event date; where those are more than so many,
in the latest that have event dates."""
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
            allowed: (rows,) the scope; a date without a year is taken in the years of its event dates.
            occurred_at: (rows,) event dates.
            days_of: row id → the days that its text names, in days since 1970.
            asked_at: when it is asked, for "last March" and the like, microseconds UTC; None: not known.
        """
        self._allowed = allowed
        self._occurred_at = occurred_at
        self._days_of = days_of
        self._spans = _joined(named_dates(question, asked_at=asked_at, years=self._years))

    def _years(self) -> Sequence[int]:
        dated = self._occurred_at[self._allowed & (self._occurred_at != UNDATED)]
        if not len(dated):
            return ()
        earliest, latest = (date_of(int(moment)).year for moment in (dated.min(), dated.max()))
        if latest - earliest < MOST_YEARS:
            return range(earliest, latest + 1)
        days = dated // DAY
        first = int(days.min())
        there = np.zeros(int(days.max()) - first + 1, np.bool_)
        there[days - first] = True
        years = (first + np.flatnonzero(there)).astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64) + 1970
        return [int(year) for year in np.unique(years)[-MOST_YEARS:]]

    @property
    def named(self) -> bool:
        """Whether the question names any date."""
        return len(self._spans) > 0

    def nearest(self, limit: int) -> NDArray[np.int64]:
        """At most `limit` rows in scope dated nearest to a date named; of rows equally near the later ones."""
        if not self.named:
            return np.empty(0, np.int64)
        rows = self._rows_near()
        gaps = self._gaps(self._occurred_at[rows])
        order = np.lexsort((-rows, gaps))
        return rows[order][:limit]

    def _rows_near(self) -> NDArray[np.int64]:
        """The rows in scope within `NEARNESS` of a date named, ascending."""
        # No date is as early as UNDATED.
        windows = _joined((start - NEARNESS, end + NEARNESS) for start, end in self._spans.tolist())
        if np.count_nonzero(self._allowed) * _SCATTERED < len(self._allowed):
            in_scope = np.flatnonzero(self._allowed)
            return in_scope[_within(windows, self._occurred_at.take(in_scope))]
        found: NDArray[np.int64] = np.flatnonzero(_within(windows, self._occurred_at) & self._allowed)
        return found

    def values(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) values of these rows, from 0 to 1."""
        dated = self._occurred_at[rows] != UNDATED
        values = np.zeros(len(rows))
        values[dated] = 0.5 * np.exp(-self._gaps(self._occurred_at[rows[dated]]) / NEARNESS)
        days = [self._days_of(row) for row in rows.tolist()]
        of_row = np.repeat(np.arange(len(rows)), np.fromiter(map(len, days), np.int64, len(days)))
        within = self._gaps(np.fromiter(chain.from_iterable(days), np.int64, len(of_row)) * DAY) == 0
        return values + 0.5 * (np.bincount(of_row[within], minlength=len(rows)) > 0)

    def _gaps(self, moments: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) from each moment to the nearest date named, microseconds, 0 within it."""
        starts, ends = self._spans.T
        after = np.searchsorted(starts, moments, side="right")  # the first span that begins later
        to_next = np.append(starts, _FAR)[after] - moments
        since = moments - (np.append(ends[-1:], ends)[after] - 1)
        since[after == 0] = _FAR
        gaps: NDArray[np.int64] = np.maximum(0, np.minimum(to_next, since))
        return gaps.astype(np.float64)


def _within(windows: NDArray[np.int64], moments: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) which moments lie in one of the half-open windows, (w, 2), apart from one another and in order."""
    if len(windows) > _FEW:  # within one, so many edges lie at or before a moment that the number is odd
        odd: NDArray[np.bool_] = np.searchsorted(windows.ravel(), moments, side="right") % 2 == 1
        return odd
    within = np.zeros(len(moments), np.bool_)
    for start, end in windows.tolist():
        within |= (moments >= start) & (moments < end)
    return within


def _joined(spans: Iterable[DateSpan | tuple[int, int]]) -> NDArray[np.int64]:
    """(n, 2) first moment and first after it of half-open spans, those that meet joined, in order."""
    joined: list[list[int]] = []
    for start, end in sorted((one.start, one.end) if isinstance(one, DateSpan) else one for one in spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return np.array(joined, np.int64).reshape(-1, 2)
