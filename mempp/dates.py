"""Dates in, dates out: every date that a caller hands in is read here, once.

Inside, a moment is an integer: microseconds since 1970-01-01 UTC. Integers compare exactly and fit a NumPy column.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from mempp.errors import InvalidDateError, quoted

DateLike = datetime | date | str
"""What a caller may hand in as a date."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ONE_DAY = timedelta(days=1)

# The calendar and week forms of ISO 8601 that name a whole day. `datetime.fromisoformat` also takes a week without a
# day ("2024-W05"), which is a span and not a date, so the form is checked before it is read.
_DAY = r"(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{4}-W\d{2}-\d|\d{4}W\d{3})"
_BARE_DATE = re.compile(_DAY, re.ASCII)
_MOMENT = re.compile(
    _DAY + r"[T ]\d{2}(?::?\d{2}(?::?\d{2}(?:[.,]\d+)?)?)?(?:Z|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?", re.ASCII
)

_ACCEPTED = "use a datetime, a date, or ISO 8601 text such as 2024-06-01 or 2024-06-01T09:30:00+02:00"


def to_microseconds(value: object, name: str, *, bare_date: Literal["start", "end"]) -> int:
    """Read a date as microseconds since 1970 UTC.

    Args:
        value: a `datetime` (naive means UTC), a `date`, or ISO 8601 text.
        name: the argument or field it came from, for the message.
        bare_date: whether a date without a time means the first or the last microsecond of its day.

    Raises:
        InvalidDateError: the value is anything else, a month, a year, or outside the years 1 to 9999 in UTC.
    """
    if isinstance(value, str):
        return _read_text(value, name, bare_date)
    if isinstance(value, datetime):
        return _moment(value, value, name)
    if isinstance(value, date):
        return _day(value, bare_date)
    raise InvalidDateError(f"{name} is no date: {quoted(value)} ({type(value).__name__}); {_ACCEPTED}")


def _read_text(value: str, name: str, bare_date: Literal["start", "end"]) -> int:
    text = value.strip()
    try:
        if _BARE_DATE.fullmatch(text):
            return _day(date.fromisoformat(text), bare_date)
        if _MOMENT.fullmatch(text):
            return _moment(datetime.fromisoformat(text.replace(",", ".")), value, name)
    except ValueError as error:
        if isinstance(error, InvalidDateError):
            raise
    raise InvalidDateError(f"{name} is no date: {quoted(value)}; {_ACCEPTED}")


def _day(day: date, bare_date: Literal["start", "end"]) -> int:
    start = (datetime(day.year, day.month, day.day, tzinfo=UTC) - _EPOCH) // _MICROSECOND
    return start if bare_date == "start" else start + _ONE_DAY // _MICROSECOND - 1


def _moment(moment: datetime, shown: object, name: str) -> int:
    try:
        aware = moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment
        microseconds = (aware - _EPOCH) // _MICROSECOND
    except Exception as error:  # a time zone of the caller's own
        raise InvalidDateError(f"{name} has a time zone that fails: {quoted(shown)}: {error}") from error
    try:
        from_microseconds(microseconds)
    except OverflowError:
        raise InvalidDateError(f"{name} lies outside the years 1 to 9999 in UTC: {quoted(str(shown))}") from None
    return microseconds


def from_microseconds(microseconds: int) -> datetime:
    """The moment as an aware `datetime` in UTC."""
    return _EPOCH + microseconds * _MICROSECOND


def now_microseconds() -> int:
    """The present, as microseconds since 1970 UTC."""
    return (datetime.now(UTC) - _EPOCH) // _MICROSECOND


def show(moment: datetime | None) -> str:
    """A date for people: the day alone when the time is midnight UTC, "undated" when there is none."""
    if moment is None:
        return "undated"
    if moment.timetz() == _EPOCH.timetz():
        return moment.date().isoformat()
    return moment.isoformat(timespec="auto").replace("+00:00", "Z")
