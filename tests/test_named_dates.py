"""Dates and spans named in a text: a table worked by hand, every form of every day, and what must not be read."""

import calendar
import math
import re
import time
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempp.dates import from_microseconds, to_microseconds
from mempp.errors import InputError
from mempp.recall import mentioned_days
from mempp.recall.as_of_dates import as_of_named
from mempp.recall.date_expressions import expressions
from mempp.recall.date_words import FAR_FUTURE, FAR_PAST
from mempp.recall.dates_leg import MOST_YEARS, NEARNESS, DatesLeg
from mempp.recall.mentioned_days import days_mentioned
from mempp.recall.named_dates import LONGEST_READ, MOST_EXPRESSIONS, DateSpan, named_dates
from mempp.recall.table import UNDATED

MINUTE = 60_000_000
EPOCH = date(1970, 1, 1)


def at(text):
    return to_microseconds(text, "a test's date", bare_date="start")


ASKED = at("2024-06-12T15:00")  # a Wednesday


def spans(text, **how):
    return [(one.start, one.end) for one in named_dates(text, **how)]


def days(*pairs):
    """Spans from "first..last" days, both included; "..last" and "first.." are open."""
    found = []
    for pair in pairs:
        first, _, last = pair.partition("..") if ".." in pair else (pair, "", pair)
        end = at(last) + 24 * 60 * MINUTE if last else FAR_FUTURE
        found.append((at(first) if first else FAR_PAST, end))
    return found


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        ("the 2023-11-15 outage", ["2023-11-15"], "2023-11-15"),
        ("on 2023/11/15", ["2023-11-15"], "2023/11/15"),
        ("on 15 November 2023?", ["2023-11-15"], "15 November 2023"),
        ("on the 15th of Nov. 2023", ["2023-11-15"], "15th of Nov. 2023"),
        ("on November 15, 2023.", ["2023-11-15"], "November 15, 2023"),
        ("on 1 February, 2023?", ["2023-02-01"], "1 February, 2023"),
        ("on December 1,2023 taken", ["2023-12-01"], "December 1,2023"),
        ("on NOVEMBER 15TH 2023", ["2023-11-15"], "NOVEMBER 15TH 2023"),
        ("on 15-Nov-2023", ["2023-11-15"], "15-Nov-2023"),
        ("on 15/11/2023", ["2023-11-15"], "15/11/2023"),
        ("on 11/15/2023", ["2023-11-15"], "11/15/2023"),
        ("on 15.11.2023", ["2023-11-15"], "15.11.2023"),
        ("on 05.06.2023", ["2023-06-05"], "05.06.2023"),
        ("on 05/06/2023", ["2023-06-05", "2023-05-06"], "05/06/2023"),
        ("on 06/06/2023", ["2023-06-06"], "06/06/2023"),
        ("in October 2023", ["2023-10-01..2023-10-31"], "October 2023"),
        ("in february 2024", ["2024-02-01..2024-02-29"], "february 2024"),
        ("in 2023-10, say", ["2023-10-01..2023-10-31"], "in 2023-10"),
        ("in Q3 2023", ["2023-07-01..2023-09-30"], "Q3 2023"),
        ("in 2023-Q4", ["2023-10-01..2023-12-31"], "2023-Q4"),
        ("the third quarter of 2023", ["2023-07-01..2023-09-30"], "third quarter of 2023"),
        ("in H1 2024", ["2024-01-01..2024-06-30"], "H1 2024"),
        ("the second half of 2023", ["2023-07-01..2023-12-31"], "second half of 2023"),
        ("done in 2023?", ["2023-01-01..2023-12-31"], "in 2023"),
        ("the week of 3 April 2023", ["2023-04-03..2023-04-09"], "week of 3 April 2023"),
        ("the week of 9 April 2023", ["2023-04-03..2023-04-09"], "week of 9 April 2023"),
        ("the week beginning 5 April 2023", ["2023-04-05..2023-04-11"], "week beginning 5 April 2023"),
        ("the week ending 9 April 2023", ["2023-04-03..2023-04-09"], "week ending 9 April 2023"),
        ("the weekend of 5 April 2023", ["2023-04-08..2023-04-09"], "weekend of 5 April 2023"),
        ("early October 2023", ["2023-10-01..2023-10-10"], "early October 2023"),
        ("mid-October 2023", ["2023-10-11..2023-10-20"], "mid-October 2023"),
        ("in late October 2023", ["2023-10-21..2023-10-31"], "late October 2023"),
        ("at the end of February 2023", ["2023-02-21..2023-02-28"], "end of February 2023"),
        ("late in 2023", ["2023-09-01..2023-12-31"], "late in 2023"),
        ("mid 2023", ["2023-05-01..2023-08-31"], "mid 2023"),
        ("early Q3 2023", ["2023-07-01..2023-07-31"], "early Q3 2023"),
        ("first half of May 2023", ["2023-05-01..2023-05-15"], "first half of May 2023"),
        ("second half of May 2023", ["2023-05-16..2023-05-31"], "second half of May 2023"),
        ("second week of November 2023", ["2023-11-08..2023-11-14"], "second week of November 2023"),
        ("last week of November 2023", ["2023-11-24..2023-11-30"], "last week of November 2023"),
        ("spring 2023", ["2023-03-01..2023-05-31"], "spring 2023"),
        ("the summer of 2023", ["2023-06-01..2023-08-31"], "summer of 2023"),
        ("autumn 2023", ["2023-09-01..2023-11-30"], "autumn 2023"),
        ("fall 2023", ["2023-09-01..2023-11-30"], "fall 2023"),
        ("winter 2023", ["2023-12-01..2024-02-29", "2022-12-01..2023-02-28"], "winter 2023"),
        ("since 3 April 2023", ["2023-04-03.."], "since 3 April 2023"),
        ("after 3 April 2023", ["2023-04-04.."], "after 3 April 2023"),
        ("after October 2023", ["2023-11-01.."], "after October 2023"),
        ("before 3 April 2023", ["..2023-04-02"], "before 3 April 2023"),
        ("until 3 April 2023", ["..2023-04-03"], "until 3 April 2023"),
        ("prior to 2023", ["..2022-12-31"], "prior to 2023"),
        ("from 3 April 2023 onwards", ["2023-04-03.."], "from 3 April 2023 onwards"),
        ("mail from 3 April 2023", ["2023-04-03"], "3 April 2023"),
        (
            "between 3 April 2023 and 5 May 2023",
            ["2023-04-03..2023-05-05"],
            "between 3 April 2023 and 5 May 2023",
        ),
        ("from 2023-04-03 to 2023-05-05", ["2023-04-03..2023-05-05"], "from 2023-04-03 to 2023-05-05"),
        ("from May 2023 until June 2023", ["2023-05-01..2023-06-30"], "from May 2023 until June 2023"),
        ("2023-04-03–2023-05-05", ["2023-04-03..2023-05-05"], "2023-04-03–2023-05-05"),
        ("2023-04-03/2023-05-05", ["2023-04-03..2023-05-05"], "2023-04-03/2023-05-05"),
        ("3 April - 5 May 2023", ["2023-04-03..2023-05-05"], "3 April - 5 May 2023"),
        ("3-5 April 2023", ["2023-04-03..2023-04-05"], "3-5 April 2023"),
        ("April 3–5, 2023", ["2023-04-03..2023-04-05"], "April 3–5, 2023"),
        ("between 3 and 5 April 2023", ["2023-04-03..2023-04-05"], "between 3 and 5 April 2023"),
        ("on 3 and 5 April 2023", ["2023-04-03", "2023-04-05"], "3 and 5 April 2023"),
        ("October–December 2023", ["2023-10-01..2023-12-31"], "October–December 2023"),
        ("from March to May 2023", ["2023-03-01..2023-05-31"], "from March to May 2023"),
        ("from November to February 2023", ["2022-11-01..2023-02-28"], "from November to February 2023"),
        ("from November 2022 to February", ["2022-11-01..2023-02-28"], "from November 2022 to February"),
        ("between August 11 and August 15 2023", ["2023-08-11..2023-08-15"], "between August 11 and August 15 2023"),
        ("between 2021 and 2023", ["2021-01-01..2023-12-31"], "between 2021 and 2023"),
        ("from 05/06/2023 to 15/07/2023", ["2023-06-05..2023-07-15"], "from 05/06/2023 to 15/07/2023"),
        ("the week before August 3, 2023", ["2023-07-27..2023-08-02"], "week before August 3, 2023"),
        ("the week after August 3, 2023", ["2023-08-04..2023-08-10"], "week after August 3, 2023"),
        ("two weeks before August 11, 2023", ["2023-07-24..2023-07-30"], "two weeks before August 11, 2023"),
        ("3 days after August 11, 2023", ["2023-08-14"], "3 days after August 11, 2023"),
        ("the day before 1 March 2024", ["2024-02-29"], "day before 1 March 2024"),
        ("the Sunday before October 25, 2022", ["2022-10-23"], "Sunday before October 25, 2022"),
        ("the Sunday before October 23, 2022", ["2022-10-16"], "Sunday before October 23, 2022"),
        ("the Monday after October 25, 2022", ["2022-10-31"], "Monday after October 25, 2022"),
        ("last weekend before April 10, 2023", ["2023-04-08..2023-04-09"], "last weekend before April 10, 2023"),
    ],
)
def test_what_is_read(text, expected, words):
    found = named_dates(text)
    assert [(one.start, one.end) for one in found] == days(*expected)
    assert {one.words.removeprefix("the ") for one in found} == {words}


@pytest.mark.parametrize(
    ("text", "start", "length"),
    [
        ("at 2023-11-15T10:30", "2023-11-15T10:30", MINUTE),
        ("at 2023-11-15 10:30:05Z", "2023-11-15T10:30:05", 1_000_000),
        ("at 2023-11-15T10:30+02:00", "2023-11-15T08:30", MINUTE),
        ("at 2023-11-15T10:30-02:00", "2023-11-15T12:30", MINUTE),
        ("at 2023-11-15T10:30:05.25+02:00", "2023-11-15T08:30:05.25", 10_000),
    ],
)
def test_a_time_of_day_is_as_long_as_its_last_unit(text, start, length):
    assert spans(text) == [(at(start), at(start) + length)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on Nov 15?", ["2022-11-15", "2023-11-15"]),
        ("on 29 February", []),
        ("in October", ["2022-10-01..2022-10-31", "2023-10-01..2023-10-31"]),
        ("in late October", ["2022-10-21..2022-10-31", "2023-10-21..2023-10-31"]),
        ("in Q3", ["2022-07-01..2022-09-30", "2023-07-01..2023-09-30"]),
        ("from November to February", ["2022-11-01..2023-02-28", "2023-11-01..2024-02-29"]),
        ("since May 3", ["2022-05-03..", "2023-05-03.."]),
        ("in October and November 2023", ["2023-10-01..2023-10-31", "2023-11-01..2023-11-30"]),
        (
            "in October and November",
            [f"{y}-{m}" for m in ("10-01..{y}-10-31", "11-01..{y}-11-30") for y in (2022, 2023)],
        ),
        ("on Nov 3, Nov 4 and Nov 5, 2023", ["2023-11-03", "2023-11-04", "2023-11-05"]),
    ],
)
def test_a_date_without_a_year_is_read_in_each_year(text, expected):
    expected = [one.replace("{y}", one[:4]) for one in expected]
    assert spans(text, years=(2022, 2023)) == days(*expected)
    if "2023" not in text:
        assert spans(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("today", "2024-06-12"),
        ("yesterday", "2024-06-11"),
        ("the day before yesterday", "2024-06-10"),
        ("last week", "2024-06-03..2024-06-09"),
        ("this week", "2024-06-10..2024-06-16"),
        ("last month", "2024-05-01..2024-05-31"),
        ("this month", "2024-06-01..2024-06-30"),
        ("last quarter", "2024-01-01..2024-03-31"),
        ("last year", "2023-01-01..2023-12-31"),
        ("last weekend", "2024-06-08..2024-06-09"),
        ("last summer", "2023-06-01..2023-08-31"),
        ("3 days ago", "2024-06-09"),
        ("a week ago", "2024-06-03..2024-06-09"),
        ("two months ago", "2024-04-01..2024-04-30"),
        ("four years ago", "2020-01-01..2020-12-31"),
        ("in the last 30 days", "2024-05-13..2024-06-12"),
        ("last Friday", "2024-06-07"),
        ("last Wednesday", "2024-06-05"),
        ("this Friday", "2024-06-14"),
        ("last March", "2024-03-01..2024-03-31"),
        ("last June", "2023-06-01..2023-06-30"),
        ("last July", "2023-07-01..2023-07-31"),
        ("this March", "2024-03-01..2024-03-31"),
        ("next March", "2025-03-01..2025-03-31"),
        ("since last March", "2024-03-01.."),
        ("since yesterday", "2024-06-11.."),
        ("before last week", "..2024-06-02"),
        ("in June", "2024-06-01..2024-06-30"),
        ("in July", "2023-07-01..2023-07-31"),
        ("on June 12", "2024-06-12"),
        ("on June 13", "2023-06-13"),
        ("on 29 February", "2024-02-29"),
        ("from November to February", "2023-11-01..2024-02-29"),
    ],
)
def test_what_the_moment_of_asking_tells(text, expected):
    assert spans(f"What was said {text}?", asked_at=ASKED, years=(1999,)) == days(expected)


@pytest.mark.parametrize(
    "text", ["today", "yesterday", "last March", "last week", "3 days ago", "last Friday", "this May"]
)
def test_relative_words_mean_nothing_without_the_moment_of_asking(text):
    assert spans(f"What was said {text}?") == spans(f"What was said {text}?", years=(2023,)) == []


NO_DATES = """May I ask what Will said in the second meeting about it?
You may march on the office with 15 people
It may 15 times out of 20 fail
April said that June and August left; mail from April, written by June for May
May 15 join the call? March 3 come. It is late. May 15 join.
we may 15 join and the 15 may fail; they march 3 abreast
Nov 15 users, on Nov 15.5, up Nov 15%, on November 3 tickets
The march on Rome, a sunny sat in the sun, we mar it
In one second, second to none, the first half of it
The 3-hour outage and the 99.5 % target of version 2.11.3
in 2000 cases, for 2023 users, of 2024 rows, by 2019 %
in 2023-101 and in 2023-10-x, EV-2023-149 and ART-EV-2023-149-003, PR #2023, room 2023, 2023 items
from 2000 to 3000 requests per second
call 555-2023-11-15 or 12-2023-11-15-9
31 February 2023, 2023-02-30, 32 October 2023, 2023-13-01, 30/02/2023, 13/13/2023, November 31, 2023
192.15.11.2023.4, 1.15.11.2023, path/15/11/2023/x, 15/11/20231
Q5 2023, Q3s, H3 2024, fourth half of 2023
this may be, next may come, last may do, by may
Decide, Marcus, Augustin, Mayor, Janet, Octavia, Sephora, novel, Aprilia
no one ago, last one, this one, the week before, since before, between and from to until
in ٢٠٢٣ und im März, le 15 novembre, 十一月十五日
""".splitlines()


@pytest.mark.parametrize("text", NO_DATES)
def test_what_is_no_date_is_not_read(text):
    assert named_dates(text, years=(2022, 2023)) == ()
    assert named_dates(text, asked_at=ASKED) == ()
    assert days_mentioned(text, year=2023) == ()


def test_an_event_number_does_not_hide_the_date_beside_it():
    assert spans("EV-2023-149 of 2023-11-15 (in 2023)") == days("2023-11-15", "2023-01-01..2023-12-31")


def test_the_longest_of_overlapping_expressions_wins():
    assert spans("the last 2 days before 3 May 2023", asked_at=ASKED) == days("2023-05-01")
    assert spans("this year 2023", asked_at=ASKED) == days("2023-01-01..2023-12-31")


@pytest.mark.parametrize(
    ("text", "expected"), [("thırd quarter of 2023", "2023-07-01..2023-09-30"), ("last frıday", "2024-06-07")]
)
def test_letters_that_only_fold_to_ours_do_no_harm(text, expected):
    assert spans(text, asked_at=ASKED) == days(expected)


def test_nothing_is_read_outside_the_years_1_to_9999():
    assert spans("on January 1", years=(0, 1, 9999, 10_000)) == [
        (FAR_PAST, FAR_PAST + 1440 * MINUTE),
        *days("9999-01-01"),
    ]
    assert spans("the week of December 31", years=(9999,)) == []
    assert spans("2024 years ago and 9999 years ago", asked_at=ASKED) == []


def test_the_latest_leap_day_may_lie_eight_years_back():
    assert spans("on 29 February", asked_at=at("1904-02-28")) == days("1896-02-29")


# --- every day in every form ----------------------------------------------------------------------------------------

DAYS = st.dates(date(1990, 1, 1), date(2099, 12, 31))


def suffix(day):
    return "th" if 10 <= day % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def forms(day):
    long, short = calendar.month_name[day.month], calendar.month_abbr[day.month]
    for month in (long, short, short + ".", long.upper(), long.lower()):
        yield f"{day.day} {month} {day.year}"
        yield f"{day.day}{suffix(day.day)} of {month} {day.year}"
        yield f"{day.day:02} {month}, {day.year}"
        yield f"{month} {day.day}, {day.year}"
        yield f"{month} {day.day}{suffix(day.day)} {day.year}"
        yield f"{month} the {day.day}{suffix(day.day)}, {day.year}"
    yield day.isoformat()


FRAMES = (
    "{}",
    "What was said on {}?",
    "({}),",
    "“{}”",
    "und am\n{} war",
    "{}: 12 rows",
    "Is it true, {}, that 3 of us left?",
)


@given(DAYS, st.sampled_from(FRAMES))
def test_every_day_is_found_in_every_form(day, frame):
    start = at(day.isoformat())
    for form in forms(day):
        text = frame.format(form)
        assert named_dates(text) == (DateSpan(start, start + 24 * 60 * MINUTE, form),), text
        assert days_mentioned(text, year=None) == ((day - date(1970, 1, 1)).days,), text
        assert as_of_named(f"facts as of {form} about it") == (start + 24 * 60 * MINUTE - 1, f"as of {form}")


@given(DAYS)
def test_numeric_forms_give_every_reading_and_no_other(day):
    readings = {at(day.isoformat())}
    if day.day <= 12:
        readings.add(at(date(day.year, day.day, day.month).isoformat()))
    for form in (f"{day.day}/{day.month}/{day.year}", f"{day:%m/%d/%Y}"):
        assert {start for start, _ in spans(f"on {form}")} == readings
    assert spans(f"on {day:%d.%m.%Y}") == days(day.isoformat())


@given(DAYS, DAYS)
def test_every_range_is_found_and_a_reversed_one_is_none(one, two):
    for join in ("from {} to {}", "between {} and {}", "{} – {}", "from {} until {}"):
        for first, last in zip(forms(one), forms(two), strict=True):
            expected = days(f"{one}..{two}") if one <= two else []
            assert spans(f"What changed {join.format(first, last)}?") == expected


@given(DAYS)
def test_a_day_without_a_year_is_completed(day):
    text = f"What was said on {day:%b} {day.day}?"
    assert spans(text, years=(day.year,)) == days(day.isoformat())
    assert days_mentioned(text, year=day.year) == ((day - date(1970, 1, 1)).days,)
    assert days_mentioned(text, year=None) == ()
    for later in (0, 100, 364):
        assert spans(text, asked_at=at((day + timedelta(later)).isoformat())) == days(day.isoformat())


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.integers(1, 999))
def test_days_ago_count_back_from_the_day_of_asking(day, count):
    moment = at(day.isoformat()) + 12 * 60 * MINUTE
    assert spans(f"{count} days ago", asked_at=moment) == days((day - timedelta(count)).isoformat())
    weekday = spans(f"last {day:%A}", asked_at=moment)
    assert weekday == days((day - timedelta(7)).isoformat())


FRAGMENTS = """may march april 15 3rd 2023 2023-11-15 nov nov. - – / . , and to from between since before until of the
last this week weeks ago two early mid- late end first half quarter q3 h1 in by as known on record 31 sunday aprıl ſep
wee\u212a İ ١٥ 0 99 month winter yesterday T10:30 +02:00 \u202f"""
PIECES = st.lists(
    st.sampled_from([*FRAGMENTS.split(), "\n", "\u202f"]) | st.text(max_size=3),
    max_size=14,
)


@given(
    PIECES,
    st.sampled_from(["", " "]),
    st.none() | st.integers(FAR_PAST, FAR_FUTURE - 1),
    st.lists(st.integers(-5, 20_000)),
)
def test_any_text_gives_sound_spans_and_the_same_again(pieces, join, asked_at, years):
    text = join.join(pieces)
    found = named_dates(text, asked_at=asked_at, years=years)
    for one in found:
        assert FAR_PAST <= one.start < one.end <= FAR_FUTURE
        assert one.words
        assert one.words in text
    assert len({(one.start, one.end) for one in found}) == len(found)
    assert found == named_dates(text, asked_at=asked_at, years=years)
    named = None
    with suppress(InputError):
        named = as_of_named(text)
    if named is not None:
        assert from_microseconds(named[0]) >= datetime(1900, 1, 1, tzinfo=UTC)
        assert named[1] in text
    mentioned = days_mentioned(text, year=2023)
    assert list(mentioned) == sorted(set(mentioned))


@given(
    st.sampled_from(FRAMES[:3]),
    DAYS,
    st.sampled_from(["in {:%B %Y}", "in {:%Y}", "early {:%b %Y}", "since {:%d %B %Y}"]),
)
def test_the_words_alone_name_the_same(frame, day, form):
    found = named_dates(frame.format(form.format(day)))
    assert len(found) == 1
    assert named_dates(found[0].words) == found


# --- as of ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "day", "words"),
    [
        ("List the facts as of 2023-03-12, and", "2023-03-12", "as of 2023-03-12"),
        ("As of April 2, 2023, what", "2023-04-02", "As of April 2, 2023"),
        ("as at the 2nd of April 2023", "2023-04-02", "as at the 2nd of April 2023"),
        ("What was on record on 2 April 2023?", "2023-04-02", "on record on 2 April 2023"),
        ("on record as of October 2023", "2023-10-31", "as of October 2023"),
        ("what was known on 2 April 2023", "2023-04-02", "known on 2 April 2023"),
        ("as things stood on 2 April 2023", "2023-04-02", "as things stood on 2 April 2023"),
        ("as of 2023, who", "2023-12-31", "as of 2023"),
        ("as of the end of February 2024", "2024-02-29", "as of the end of February 2024"),
        ("as of 06/06/2023", "2023-06-06", "as of 06/06/2023"),
        ("as of Q3 2023", "2023-09-30", "as of Q3 2023"),
        ("as of 2 April 2023 (on record on 2023-04-02), but not 2024-01-01", "2023-04-02", "as of 2 April 2023"),
    ],
)
def test_an_explicit_as_of(question, day, words):
    assert as_of_named(question) == (at(day) + 24 * 60 * MINUTE - 1, words)


def test_an_as_of_with_a_time_does_not_reach_past_it():
    assert as_of_named("as of 2023-11-15T10:30, who") == (at("2023-11-15T10:30"), "as of 2023-11-15T10:30")


@pytest.mark.parametrize(
    "question",
    [
        "Who leads the team?",
        "as of now",
        "as of today, who",
        "as of yet, what did they say on 2023-11-15?",
        "as of the merger",
        "what is known by April about the vendor?",
        "what is known by the team in March 2023?",
        "as of the merger, what did they say on 2023-11-15?",
        "what would it have answered if asked on 2023-11-15?",
        "the outage of 2023-11-15",
        "the price effective as of 2023-11-15",
        "unknown on 2023-11-15",
        "was it assessed as off 2023-11-15",
    ],
)
def test_what_is_no_explicit_as_of(question):
    assert as_of_named(question) is None


@pytest.mark.parametrize(
    "question",
    [
        "As of now, what was on record on 2023-11-15?",
        "as of 2023-11-15 and as of 2023-11-16",
        "as of 2023-11-15 and 2023-11-16",
        "as of 05/06/2023",
        "as of 2023-02-31",
        "as of 3 May 2023 to 5 May 2023",
        "as of winter 2023",
        "as of mid-2023",
        "as of 3/5/23",
        "as of may",
        "as of the 3rd",
        "as of the close of business on 3 May 2024",
        "as of Christmas 2024",
        "as of a few weeks ago",
        "as of 3 weeks ago",
        "as of the last 30 days",
    ],
)
@pytest.mark.parametrize("asked_at", [None, at("2026-11-30")])
def test_a_date_that_is_not_one_for_certain_is_no_missing_bound(question, asked_at):
    with pytest.raises(InputError, match=r"as of|on record|as-of"):
        as_of_named(question, asked_at=asked_at)


@pytest.mark.parametrize(
    ("question", "day"),
    [
        ("What was the policy as of last July?", "2026-07-31"),
        ("as of June last year, who", "2025-06-30"),
        ("as of June this year, who", "2026-06-30"),
        ("as of the end of last month", "2026-10-31"),
        ("as of last year", "2025-12-31"),
        ("as of yesterday", "2026-11-29"),
        ("as of 3 days ago", "2026-11-27"),
        ("as of Nov 15", "2026-11-15"),
        ("as of Dec 15", "2025-12-15"),
        ("as of today, who", "2026-11-30"),
    ],
)
def test_with_the_day_of_asking_a_relative_as_of_is_explicit(question, day):
    moment, _ = as_of_named(question, asked_at=at("2026-11-30"))
    assert moment == at(day) + 24 * 60 * MINUTE - 1
    if "today" not in question:
        with pytest.raises(InputError, match="asked_at="):
            as_of_named(question)


def test_as_of_now_is_the_moment_of_asking():
    asked = at("2026-11-30T10:30")
    assert as_of_named("as of now, who", asked_at=asked) == (asked, "as of now")


@pytest.mark.parametrize(
    ("question", "day"),
    [
        ("as of Friday, 3 May 2024", "2024-05-03"),
        ("as of the year 2023", "2023-12-31"),
        ("as of the day before 3 May 2024", "2024-05-02"),
    ],
)
def test_more_ways_to_say_a_day(question, day):
    assert as_of_named(question)[0] == at(day) + 24 * 60 * MINUTE - 1


# --- days in documents ----------------------------------------------------------------------------------------------


def test_days_mentioned_are_single_days_ascending_once():
    text = "Nov 17, then 2023-11-15 (15 November 2023), in October 2023, 3–5 April 2023, since 2022; 15/12/2023"
    expected = [date(2023, 4, 5), date(2023, 11, 15), date(2023, 11, 17)]
    assert days_mentioned(text, year=2023) == tuple((day - date(1970, 1, 1)).days for day in expected)
    assert days_mentioned("file-2023-11-15.md, log_2023-11-16T10:00", year=None) == (19_676, 19_677)


SCRAPS = st.sampled_from(
    ["3", "15", "2023", "2023-11-15", "-", " ", "  ", ".", ", ", "/", "th", "of ", "the ", "May", "November", "nov",
     "a", "١٢", "_", "\n", "Sept ", "ſep", "12.5", "1", "100"]
)  # fmt: skip


@given(st.lists(SCRAPS, max_size=14).map("".join))
def test_numbers_passed_over_are_in_no_day(text):
    looked_at = days_mentioned(text, year=2023)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mentioned_days, "_NUMBER", re.compile("[0-9]+"))
        assert days_mentioned(text, year=2023) == looked_at


def test_a_table_of_numbers_is_not_looked_at_number_by_number(monkeypatch):
    looked_at = []
    around = mentioned_days._day_around
    monkeypatch.setattr(mentioned_days, "_day_around", lambda *given: looked_at.append(given) or around(*given))
    assert days_mentioned("12 345 67 " * 9_000 + "3 May 2023", year=None) == ((date(2023, 5, 3) - EPOCH).days,)
    assert len(looked_at) <= 1
    days_mentioned("12 apples " * 9_000, year=None)
    assert len(looked_at) <= 1 + mentioned_days.MOST_NUMBERS


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_only_so_much_of_a_question_is_read():
    everything = " ".join((date(1950, 1, 1) + timedelta(days=number)).isoformat() for number in range(20_000))
    assert len(named_dates(everything)) == MOST_EXPRESSIONS
    assert len(named_dates(everything, asked_at=ASKED)) == MOST_EXPRESSIONS
    assert named_dates(" " * LONGEST_READ + "2023-11-15") == ()
    years = []
    named_dates("on May 3", years=lambda: years.append(1) or (2020, 2021))
    named_dates("on May 3 and June 4", years=lambda: years.append(1) or (2020, 2021))
    named_dates("on May 3 2020", years=lambda: years.append(1) or (2020, 2021))
    assert len(years) == 2


@pytest.mark.parametrize("asked_at", ["9999-12-31", "0001-01-01"])
@pytest.mark.parametrize(
    "text",
    [
        "what came two weeks after the weekend of December 31?",
        "what came three days after the weekend of December 31?",
        "two months before the weekend of January 1",
        "last winter, next year, next week, next weekend, 9999 years ago, tomorrow, yesterday",
        "five years after December 31, 12 years before January 1",
    ],
)
def test_at_the_edges_of_the_calendar_there_is_no_span(text, asked_at):
    for found in (named_dates(text, asked_at=at(asked_at)), named_dates(text, years=(1, 9999))):
        assert all(FAR_PAST <= one.start < one.end <= FAR_FUTURE for one in found)


@pytest.mark.parametrize(("text", "plainly"), [("SPRİNG 2023 vendor", "SPRING 2023"), ("LAST SPRİNG", "last spring")])
def test_a_turkish_capital_i_is_an_i(text, plainly):
    assert spans(text, asked_at=ASKED) == spans(plainly, asked_at=ASKED) != []


@pytest.mark.parametrize("size", [1, 8, 200])
def test_the_dates_leg_is_that_of_loops_over_spans_and_years(size):
    random = Random(size)
    for year in (None, 2001):
        days_ = [EPOCH + timedelta(days=random.randrange(-20_000, 20_000)) for _ in range(size)]
        question = ", ".join(f"{day:%d %B}" if year is None else f"{day:%d %B %Y}" for day in days_)
        dates = [random.choice([UNDATED, random.randrange(-(10**15), 2 * 10**15)]) for _ in range(200)]
        dates += [FAR_PAST, FAR_FUTURE - 1, 0, MINUTE]
        share = random.choice([0.1, 0.8])
        occurred_at, allowed = np.array(dates), np.array([random.random() < share for _ in dates])
        mentioned = [[random.randrange(-20_000, 20_000) for _ in range(random.randrange(9))] for _ in dates]
        leg = DatesLeg(question, allowed, occurred_at, mentioned.__getitem__, None)
        there = [
            from_microseconds(one).year for one, inside in zip(dates, allowed, strict=True) if inside and one != UNDATED
        ]
        named = named_dates(question, years=sorted(set(there))[-MOST_YEARS:])

        def gap(moment, named=named):
            return min(max(0, span.start - moment, moment - (span.end - 1)) for span in named)

        expected = [
            (0.0 if date_ == UNDATED else 0.5 * math.exp(-gap(date_) / NEARNESS))
            + 0.5 * any(gap(day * 24 * 60 * MINUTE) == 0 for day in of_row)
            for date_, of_row in zip(dates, mentioned, strict=True)
        ]
        assert leg.values(np.arange(len(dates))) == pytest.approx(expected)
        near = [row for row, one in enumerate(dates) if allowed[row] and one != UNDATED and gap(one) <= NEARNESS]
        near.sort(key=lambda row: (gap(dates[row]), -row))
        assert leg.nearest(1000).tolist() == near
        assert leg.nearest(3).tolist() == near[:3]


def test_sentinel_dates_are_two_years_and_not_all_between():
    occurred_at = np.array([FAR_PAST, at("2023-05-03"), FAR_FUTURE - 1])
    leg = DatesLeg("on May 3", np.ones(3, np.bool_), occurred_at, lambda row: (), None)
    assert leg._years() == [1, 2023, 9999]
    assert leg.values(np.arange(3)).round(3).tolist() == [0, 0.5, 0]


# --- time -----------------------------------------------------------------------------------------------------------

HOSTILE = (
    "1",
    " ",
    "2023-",
    "2023-11-15 ",
    "3 May ",
    "may ",
    "between ",
    "from May to ",
    "in May and ",
    "the week before ",
    "2023, ",
    "a\n",
    "١",
    "-–—",
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_length_and_no_faster(piece):
    def seconds(length):
        text = piece * (length // len(piece))
        best = float("inf")
        for _ in range(3):
            begin = time.process_time()
            list(expressions(text))
            with suppress(InputError):
                as_of_named(text)
            days_mentioned(text, year=2023)
            best = min(best, time.process_time() - begin)
        return best

    short, long = seconds(10_000), seconds(80_000)
    assert long < 30 * max(short, 0.001)  # 8 times the length; were it quadratic, 64 times the time
