"""Dates and spans that a text names, read without a model: "on 2023-11-15", "Q3 2023", "between … and …".

The reading is in `date_expressions`, its words in `date_words`; here expressions become spans of time. English only.

An explicit "as of DATE" is read in `as_of_dates`.

Calendar: UTC days; weeks run Monday to Sunday; seasons are the northern meteorological ones, and "winter 2023" may be
the one that begins or the one that ends in that year, so it gives both. Early, mid and late are the days 1–10, 11–20
and 21–end of a month and the thirds of anything longer. 05/06/2023 gives both readings; dots are read day first.

Why not `dateparser.search` (1.5.0, tried on English only): 1 to 9 ms a question; it reads "May I", "the march", "April
said" and "we" as dates, "31 February" as February, "October 2023 about the 12" as the 12th, loses the year of "week of
3 April 2023", and gives points in time where spans are needed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

from mempp.recall.date_expressions import Expression, count_of, expressions, unit_around, weekend_of
from mempp.recall.date_words import (
    BEFORE,
    CONNECTOR,
    DAY_LENGTH,
    FAR_FUTURE,
    FAR_PAST,
    NUMBERS,
    OPEN,
    SEASONS,
    WEEKDAY,
    WEEKDAYS,
    Atom,
    Readings,
    Span,
    date_of,
    plain,
    span_of_days,
    span_of_months,
)

LONGEST_READ = 10_000
"""Characters of a question in which dates are looked for."""
MOST_EXPRESSIONS = 64
"""Dates and ranges of a question that are read, from the first on."""


@dataclass(frozen=True, slots=True)
class DateSpan:
    """Half-open [start, end) in microseconds since 1970 UTC, and the words of the text that named it."""

    start: int
    end: int
    words: str


# --- spans ----------------------------------------------------------------------------------------------------------


def _readings(atom: Atom, year: int) -> Readings:
    spans = atom.of_year(year if atom.year is None else atom.year)
    if atom.shift is None:
        return spans
    return tuple(None if span is None else atom.shift(span) for span in spans)


def _pairs(first: Readings, last: Readings) -> list[Span]:
    """Start of one to end of the other; several readings of both (day first, month first) go by the same custom."""
    same = len(first) == len(last)
    both = zip(first, last, strict=True) if same else ((one, two) for one in first for two in last)
    return [(one[0], two[1]) for one, two in both if one is not None and two is not None and one[0] < two[1]]


def _opened(span: Span, connector: str) -> Span:
    """The span as "since", "before", "after" and "until" make it; any other connector leaves it."""
    start, end = span
    kind = OPEN.get(connector, "")
    if kind in ("since", "after"):
        return (start if kind == "since" else end), FAR_FUTURE
    if kind:
        return FAR_PAST, start if kind == "before" else end
    return span


def _spans_in(expression: Expression, year: int) -> list[Span]:
    """The spans where a date without a year lies in this one."""
    first, last = expression.first, expression.last
    if last is None:
        connector = "since" if expression.onwards else first.connector
        return [_opened(span, connector) for span in _readings(first, year) if span is not None]
    if first.year is None and last.year is not None:
        ending = _readings(last, year)
        return _pairs(_readings(first, last.year), ending) or _pairs(_readings(first, last.year - 1), ending)
    start_year = year if first.year is None else first.year
    beginning = _readings(first, start_year)
    return _pairs(beginning, _readings(last, start_year)) or _pairs(beginning, _readings(last, start_year + 1))


def spans_of(expression: Expression, years: Callable[[], Sequence[int]], asked_at: int | None) -> list[Span]:
    """All that an expression may mean: by its own year, by the moment of asking, or by each of the years."""
    first, last = expression.first, expression.last
    if first.year is not None or (last is not None and last.year is not None):
        return _spans_in(expression, 0)
    if asked_at is None:
        return [] if first.relation else [span for year in years() for span in _spans_in(expression, year)]
    asked = date_of(asked_at)
    step = 1 if first.relation == "next" else -1
    for year in (asked.year + step * count for count in range(9)):  # a leap day may lie eight years back
        spans = [span for span in _readings(first, year) if span is not None]
        if first.relation == "this":
            fits = year == asked.year
        elif first.relation == "next":
            fits = any(start > asked_at for start, _ in spans)
        elif first.relation == "last":
            fits = any(end <= asked_at for _, end in spans)
        else:
            fits = any(start <= asked_at for start, _ in spans)
        if spans and fits:
            return _spans_in(expression, year)
    return []


RELATIVE = re.compile(
    rf"\b(?:(?P<day>the\sday\sbefore\syesterday|yesterday|last\snight|today|tomorrow)"
    rf"|(?P<ago>[0-9]{{1,4}}|an?|{'|'.join(NUMBERS)})\s(?P<ago_unit>day|week|month|quarter|year)s?\sago"
    rf"|(?P<which>last|past|previous|this|next)\s(?P<unit>day|week|month|quarter|year|weekend|spring|summer|autumn|fall"
    rf"|winter|{WEEKDAY})"
    rf"|(?:last|past|previous)\s(?P<count>[0-9]{{1,4}}|{'|'.join(NUMBERS)})\s(?P<count_unit>day|week|month|year)s?"
    rf")\b(?!\s(?:of|in|before|after|prior|following)\b)",
    re.IGNORECASE,
)
_DAYS_AWAY = {"the day before yesterday": -2, "yesterday": -1, "last night": -1, "today": 0, "tomorrow": 1}


def relative_span(match: re.Match[str], today: int) -> Span | None:
    """The span of "yesterday", "last week", "3 months ago", "the last 30 days"; `today` in days since 1970."""
    if match["day"]:
        return unit_around(today, "day", _DAYS_AWAY[plain(match["day"])])
    if match["ago"]:
        return unit_around(today, plain(match["ago_unit"]), -count_of(match["ago"]))
    if match["count"]:
        length = {"day": 1, "week": 7, "month": 30, "year": 365}[plain(match["count_unit"])] * count_of(match["count"])
        start = unit_around(today, "day", 0 if length > 9999 else -length)
        return None if start is None or length > 9999 else (start[0], (today + 1) * DAY_LENGTH)
    step = {"this": 0, "next": 1}.get(plain(match["which"]), -1)
    unit = plain(match["unit"])
    if unit in ("day", "week", "month", "quarter", "year"):
        return unit_around(today, unit, step)
    if unit == "weekend":
        return weekend_of(today + 7 * step)
    if unit in SEASONS:
        year = date_of(today * DAY_LENGTH).year
        seasons = [
            span for one in range(year - 2, year + 3) if (span := span_of_months(one, SEASONS[unit], 3)) is not None
        ]
        now = today * DAY_LENGTH
        ended, later = [one for one in seasons if one[1] <= now], [one for one in seasons if one[1] > now]
        chosen = ended[-1:] if step < 0 else [one for one in later if one[0] > now or step == 0]
        return chosen[0] if chosen else None
    weekday = WEEKDAYS.index(unit[:3])
    away = (today + 3 - weekday) % 7  # days since the latest such weekday; 0 is today
    if step < 0:
        return span_of_days(today - (away or 7), today - (away or 7) + 1)
    if step > 0:
        return span_of_days(today + 7 - away, today + 8 - away)
    monday = today - (today + 3) % 7
    return span_of_days(monday + weekday, monday + weekday + 1)


def _relatives(text: str, today: int) -> Iterator[tuple[int, int, list[Span]]]:
    """What is told by the day of asking: begin, end and span of each."""
    for match in RELATIVE.finditer(text):
        span = relative_span(match, today)
        if span is not None:
            begin = max(0, match.start() - BEFORE)
            connector = CONNECTOR.search(text, begin, match.start())
            word = plain(connector["connector"]) if connector else ""
            starts = connector.start() if connector and word in OPEN else match.start()
            yield starts, match.end(), [_opened(span, word)]


def named_dates(
    text: str, *, asked_at: int | None = None, years: Sequence[int] | Callable[[], Sequence[int]] = ()
) -> tuple[DateSpan, ...]:
    """The dates and spans that a question names, in the order of the text, without repeats.

    Where an expression has several readings (05/06/2023, "Nov 15" in several years), each is a span with the same
    words. Of overlapping expressions the longest wins. A date that the calendar does not have gives nothing. Only the
    first `LONGEST_READ` characters are read, and of these the first `MOST_EXPRESSIONS` expressions.

    Args:
        text: any text.
        asked_at: the moment of asking, microseconds since 1970 UTC. With it, "yesterday", "last March" and
            "3 weeks ago" are read, and a date without a year is the latest one that had begun by then.
        years: without `asked_at`, a date without a year is read in each of these; a function is called once, and only
            for a date without a year.
    """
    text = text[:LONGEST_READ]
    read_in = cache(years) if callable(years) else lambda: years
    found: list[tuple[int, int, list[Span]]] = [
        (one.begin, one.end, spans_of(one, read_in, asked_at)) for one in islice(expressions(text), MOST_EXPRESSIONS)
    ]
    if asked_at is not None:
        relatives = islice(_relatives(text, asked_at // DAY_LENGTH), MOST_EXPRESSIONS)
        found = _longest([*found, *relatives])
    spans: dict[Span, DateSpan] = {}
    for begin, end, readings in found:
        for span in readings:
            if FAR_PAST <= span[0] < span[1] <= FAR_FUTURE:
                spans.setdefault(span, DateSpan(*span, text[begin:end]))
    return tuple(spans.values())


def _longest(found: list[tuple[int, int, list[Span]]]) -> list[tuple[int, int, list[Span]]]:
    """Of each run of overlapping expressions the longest, the later of equals ("this year 2023"), and all others."""
    kept: list[tuple[int, int, list[Span]]] = []
    for one in sorted(found, key=lambda one: one[:2]):
        if kept and one[0] < kept[-1][1]:
            if one[1] - one[0] >= kept[-1][1] - kept[-1][0]:
                kept[-1] = one
        else:
            kept.append(one)
    return kept
