"""The words of dates: days and months as numbers, and the patterns of names, years and what stands around a date.

Every repetition in an expression is bounded, so that reading takes time linear in the length of a text. English only.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from mempp.dates import from_microseconds

FAR_PAST = -62_135_596_800_000_000
"""Start of spans without one ("before 2023"): the first microsecond of the year 1."""
FAR_FUTURE = 253_402_300_800_000_000
"""End of spans without one ("since 2023"): the first microsecond after the year 9999."""

DAY_LENGTH = 86_400_000_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()


Span = tuple[int, int]
Readings = tuple[Span | None, ...]
"""The spans that one expression may mean; None keeps the place of a reading that is no date."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One date in the text, with what stands right before it."""

    begin: int  # where its words begin; `core` is where they begin without a preposition or connector
    core: int
    end: int
    year: int | None
    of_year: Callable[[int], Readings]
    months: int = 0  # its length where it is whole months: 1, 3, 6 or 12
    bare: bool = False  # whether its own words are no date without a preposition: "October", "2023"
    firm: bool = True  # whether it is a date where it stands
    may_join: bool = False  # whether a neighbour that is firm makes it firm
    connector: str = ""
    shift: Callable[[Span], Span | None] | None = None
    relation: str = ""  # last, this or next, where that decides the year


# --- days and months as numbers -------------------------------------------------------------------------------------


def day_number(year: int, month: int, day: int) -> int | None:
    """Days since 1970, or None where the calendar has no such day."""
    try:
        return date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def span_of_days(first: int | None, after: int | None) -> Span | None:
    """The span from the start of one day to the start of another; days since 1970."""
    if first is None or after is None or not first < after:
        return None
    return first * DAY_LENGTH, after * DAY_LENGTH


def span_of_months(year: int, month: int, count: int) -> Span | None:
    """Whole months from a month on; `month` may lie outside 1 to 12."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    end = month + count - 1
    return span_of_days(day_number(year, month, 1), day_number(year + end // 12, end % 12 + 1, 1))


def date_of(moment: int) -> date:
    """The day of a moment in microseconds since 1970 UTC."""
    return from_microseconds(moment).date()


def week_of(day: int) -> Span | None:
    """Monday to Sunday around a day; days since 1970."""
    monday = day - (day + 3) % 7  # 1970-01-01 was a Thursday
    return span_of_days(monday, monday + 7)


# --- the words ------------------------------------------------------------------------------------------------------

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
ORDINALS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4}
NAMES = {"jan", "april", "may", "june", "august"}  # months that are given names too

MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\b"
)
WEEKDAY = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
DAY = r"(?:0?[1-9]|[12][0-9]|3[01])(?:st|nd|rd|th)?(?![^\W_])"
_YEAR = r"(?:(?:19|20)[0-9]{2}(?![0-9]))"
YEAR_TAIL = rf"(?:\s?,\s?|\s{{1,3}}(?:(?:of|in)\s)?|-)(?P<YEAR>{_YEAR})"
_ORDINAL = r"(?:first|second|third|fourth|1st|2nd|3rd|4th)"
_TO = r"(?:-|–|—|to|until|through|and)"
NO_COUNT = (
    r"(?![0-9]|[.,:][0-9]|\s?%|\s{1,3}(?:users?|people|persons?|customers?|clients?|rows?|cases|items?|documents?|"
    r"records?|files?|lines?|times|units?|words|tokens?|characters|requests?|tickets?|orders?|shipments?|employees|"
    r"miles?|km|feet|metres|meters|dollars|euros|pounds|percent|points|ms|seconds?|minutes?|hours?|days?|weeks?|"
    r"months?|years?|of\s(?:the|them|these|us|you)|more|other)\b)"
)
ISO = r"(?P<iso>(?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])-[0-3][0-9])"

ATOM = re.compile(
    rf"""
    (?<![0-9])(?<![0-9][-.]){ISO}
      (?P<time>[T\ ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{{1,6}})?)?(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})?
        (?![0-9]))?(?![0-9]|-[0-9])
    | (?<![\w.,/-])(?P<ymd>{_YEAR}(?P<s1>[/.])[0-9]{{1,2}}(?P=s1)[0-9]{{1,2}})(?![0-9]|[-/.][0-9])
    | (?<![\w.,/-])(?P<dmy>[0-9]{{1,2}}(?P<s2>[/.-])[0-9]{{1,2}}(?P=s2){_YEAR})(?![-/.][0-9])
    | (?<![\w.,/])(?<![0-9]-)(?P<d1>{DAY})(?:\s?(?P<to1>{_TO})\s?(?P<d2>{DAY}))?[\s-]{{1,3}}(?:of\s)?(?P<m1>{MONTH})
      (?:\.?{YEAR_TAIL.replace("YEAR", "y1")})?
    | \b(?P<m2>{MONTH})\.?\s{{1,3}}(?:the\s)?(?P<d3>{DAY})
      (?:\s?(?P<to2>{_TO})\s?(?P<d4>{DAY})(?!\s(?:of\s)?{MONTH}))?(?:{YEAR_TAIL.replace("YEAR", "y2")})?{NO_COUNT}
    | \b(?P<part>Q[1-4]|H[12])\b(?:\s?[,/-]?\s?(?:of\s)?(?P<y3>{_YEAR}))?
    | \b(?P<y4>{_YEAR})[\s-]?(?P<part2>Q[1-4]|H[12])\b
    | \b(?P<nth>{_ORDINAL})[\s-](?P<piece>quarter|half)\s(?:,\s?|(?:of|in)\s)?(?P<y5>{_YEAR})
    | \b(?P<season>spring|summer|autumn|fall|winter),?\s(?:of\s)?(?P<y6>{_YEAR})\b{NO_COUNT}
    | (?<![0-9]\s)(?<![0-9](?:st|nd|rd|th)\s)\b(?P<m3>{MONTH})(?:\.?{YEAR_TAIL.replace("YEAR", "y7")}{NO_COUNT})?
    | (?<![\w-])(?P<ym>{_YEAR}-(?:0[1-9]|1[0-2]))(?![\w-])
    | (?<![\w./-])(?P<year>{_YEAR})(?!\w|-[0-9]{{1,3}}(?![0-9])|-[^\W0-9]|/[0-9])
      (?!\s{{0,2}}(?:to|and|-|–)\s{{0,2}}(?!{_YEAR})[0-9]{{1,6}}(?![0-9])(?!(?:st|nd|rd|th)?\s(?:of\s)?{MONTH})){NO_COUNT}
    """,
    re.VERBOSE | re.IGNORECASE,
)

BEFORE = 56  # characters before an atom that are looked at
MODIFIER = re.compile(
    rf"(?:\b(?P<third>early|mid|middle|late)[\s-]\s?(?:in\s|of\s)?"
    rf"|\b(?P<edge>beginning|start|middle|end)\sof\s"
    rf"|\b(?P<half>first|second|1st|2nd)\shalf\sof\s"
    rf"|\b(?P<nth>{_ORDINAL}|last)\sweek\s(?:of|in)\s"
    rf"|\b(?P<week>week(?:end)?\s(?:of|beginning|commencing|starting|ending)|month\sof)\s)(?:the\s|on\s)?\Z",
    re.IGNORECASE,
)
SHIFT = re.compile(
    rf"\b(?:(?P<count>[0-9]{{1,3}}|a|an|the|last|{'|'.join(NUMBERS)})\s{{1,3}})?"
    rf"(?P<unit>(?:day|week|month|year)s?|weekend|{WEEKDAY})\s{{1,3}}(?P<side>before|prior\sto|after|following)\s{{1,3}}\Z",
    re.IGNORECASE,
)
CONNECTOR = re.compile(
    r"\b(?P<connector>since|before|prior\sto|after|until|till|up\sto|no\slater\sthan|between|from)\s{1,3}(?:the\s)?\Z",
    re.IGNORECASE,
)
PREPOSITION = re.compile(
    r"\b(?:(?P<strong>in|during|throughout|within)|(?P<weak>by|for|of|as\sat|the\syear|year)"
    r"|(?P<relation>last|this|next))\s{1,3}(?:the\s)?\Z",
    re.IGNORECASE,
)
RANGE_GAP = re.compile(r"\s{0,3}(?:-|–|—|/|\b(?:to|until|till|through)\b)\s{0,3}(?:the\s)?", re.IGNORECASE)
BETWEEN_GAP = re.compile(r"\s{0,3}(?:-|–|—|&|\b(?:and|to)\b)\s{0,3}(?:the\s)?", re.IGNORECASE)
LIST_GAP = re.compile(r"\s{0,3}(?:,|&|,?\s?\b(?:and|or)\b)\s{0,3}(?:on\s|the\s)?", re.IGNORECASE)
ONWARDS = re.compile(r"\s(?:onwards?|forwards?|and\slater|and\safter)\b|\son\b(?=\W*(?:\Z|[.,;?!]))", re.IGNORECASE)
OPEN = {"since": "since", "before": "before", "prior to": "before", "after": "after"}
OPEN |= dict.fromkeys(("until", "till", "up to", "no later than"), "until")


def plain(word: str) -> str:
    """Lower case with single spaces; the Turkish ı and İ, which a pattern that ignores case takes for an i, as one."""
    return " ".join(word.casefold().replace("ı", "i").replace("\u0307", "").split())


def month_number(word: str) -> int:
    """1 to 12, of a month's name in full or short."""
    return _MONTH_NAMES.index(plain(word)[:3]) + 1


def leading_number(text: str) -> int:
    """The digits at the start of "15th"."""
    return int(text[:2] if text[1:2].isdigit() else text[:1])
