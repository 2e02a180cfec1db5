from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempp.dates import from_microseconds, show, to_microseconds
from mempp.errors import InvalidDateError


def start(value):
    return from_microseconds(to_microseconds(value, "occurred_at", bare_date="start"))


def end(value):
    return from_microseconds(to_microseconds(value, "as_of", bare_date="end"))


def test_a_bare_date_is_the_start_or_the_end_of_its_day():
    for value in ("2024-06-01", "20240601", date(2024, 6, 1), " 2024-06-01 ", "2024-W22-6"):
        assert start(value) == datetime(2024, 6, 1, tzinfo=UTC)
        assert end(value) == datetime(2024, 6, 1, 23, 59, 59, 999_999, tzinfo=UTC)


def test_a_moment_is_itself_whichever_end_is_asked():
    for value in ("2024-06-01T00:00", "2024-06-01T00:00:00Z", "2024-06-01 02:00+02:00", datetime(2024, 6, 1)):
        assert start(value) == end(value) == datetime(2024, 6, 1, tzinfo=UTC)


def test_zones_are_brought_to_utc():
    east = datetime(2024, 6, 1, 1, 30, tzinfo=timezone(timedelta(hours=9)))
    assert start(east) == datetime(2024, 5, 31, 16, 30, tzinfo=UTC)
    assert start("2024-06-01T01:30+09:00") == start(east)


def test_leap_days():
    assert start("2024-02-29").day == 29
    with pytest.raises(InvalidDateError, match="2023-02-29"):
        start("2023-02-29")
    with pytest.raises(InvalidDateError, match="1900-02-29"):
        start("1900-02-29")


def test_years_1_and_9999():
    assert start("0001-01-01") == datetime(1, 1, 1, tzinfo=UTC)
    assert end("9999-12-31") == datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    for outside in ("0001-01-01T00:00+05:00", "9999-12-31T23:00-05:00"):
        with pytest.raises(InvalidDateError, match="years 1 to 9999"):
            start(outside)


def test_fractions_of_a_second():
    assert start("2024-06-01T00:00:00.25").microsecond == 250_000
    assert start("2024-06-01T00:00:00,25").microsecond == 250_000


class Day(StrEnum):
    FIRST = "2024-06-01"


def test_subclasses_of_text_are_text():
    assert start(Day.FIRST) == datetime(2024, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "garbage",
    [
        "2024-06", "2024", "2024-W22", "24-06-01", "2024-6-1", "2024-13-01", "2024-06-31", "01.06.2024", "06/01/2024",
        "yesterday", "now", "", " ", "2024-06-01T25:00", "2024-06-01T24:00", "2024-06-01T10:00+25:00", "2024-06-01T",
        "2024-06-01 10:00 PST", "٢٠٢٤-٠٦-٠١", "2024-06-01\x00", "1717200000", 1717200000, 1717200000.0, True,
        b"2024-06-01", (2024, 6, 1), None, "9" * 1000,
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_value_quoted(garbage):
    with pytest.raises(InvalidDateError) as caught:
        to_microseconds(garbage, "since", bare_date="start")
    message = str(caught.value)
    assert message.startswith("since ")
    assert repr(garbage)[:40] in message
    assert len(message) < 300
    assert isinstance(caught.value, ValueError)


@given(st.datetimes(timezones=st.timezones() | st.just(UTC) | st.none()))
def test_every_moment_survives(moment):
    aware = moment if moment.utcoffset() is not None else moment.replace(tzinfo=UTC)
    try:
        expected = aware.astimezone(UTC)
    except OverflowError:
        with pytest.raises(InvalidDateError):
            start(moment)
        return
    assert start(moment) == expected
    assert start(moment.isoformat()) == expected


def test_shown_dates():
    assert show(None) == "undated"
    assert show(datetime(2024, 6, 1, tzinfo=UTC)) == "2024-06-01"
    assert show(datetime(2024, 6, 1, 9, 30, tzinfo=UTC)) == "2024-06-01T09:30:00Z"
