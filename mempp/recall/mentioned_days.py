"""The single days that the text of a document names."""

import re
from itertools import islice

from mempp.recall.date_expressions import names_a_month
from mempp.recall.date_words import DAY, ISO, MONTH, NO_COUNT, YEAR_TAIL, day_number, leading_number, month_number

LONGEST_READ = 100_000
"""Characters of a text in which days are looked for."""
MOST_NUMBERS = 256
"""Numbers of a text that may be part of a day, from the first on; what comes after them is not looked at."""
# Prose has few digits, and every form has a number to look around: four digits before a hyphen, or one or two before
# or after a word. All other numbers, and tables hold many, are passed over without a look.
# It begins with the digit, before any look back, since `re` finds a first character of a class quickly.
_NUMBER = re.compile(
    r"[0-9](?<![0-9][0-9])(?:[0-9]{3}(?=-[0-9])|[0-9]?(?![0-9])"
    r"(?:(?=(?:[^\W\d_]{2})?[\s-]{1,3}[^\W\d_])|(?<=[^0-9]\s[0-9])|(?<=[^0-9]\s[0-9][0-9])))"
)
_ISO_DAY = re.compile(ISO + r"(?![0-9]|-[0-9])")
_DAY_MONTH = re.compile(
    rf"(?P<day>{DAY})[\s-]{{1,3}}(?:of\s)?(?P<month>{MONTH})(?:\.?{YEAR_TAIL.replace('YEAR', 'year')})?",
    re.IGNORECASE,
)
_MONTH_BEFORE = re.compile(rf"\b(?P<month>{MONTH})\.?\s{{1,3}}(?:the\s)?\Z", re.IGNORECASE)
_DAY_AFTER = re.compile(rf"(?P<day>{DAY})(?:{YEAR_TAIL.replace('YEAR', 'year')})?{NO_COUNT}", re.IGNORECASE)


def days_mentioned(text: str, *, year: int | None) -> tuple[int, ...]:
    """The single days that a document's text names in full, as ascending days since 1970.

    Only the first `LONGEST_READ` characters are read, and of the numbers in them the first `MOST_NUMBERS` that may be
    part of a day. ISO dates, "15 November 2023", "November 15, 2023"; with `year` also "Nov 15". Of "3–5 April 2023"
    the last day only. Numeric dates with slashes or dots are left out: in documents those are often versions and
    sections.

    Args:
        text: any text.
        year: the year of days that are named without one; None leaves them out.
    """
    days: set[int] = set()
    text = text[:LONGEST_READ]
    for digits in islice(_NUMBER.finditer(text), MOST_NUMBERS):
        begin, end = digits.span()
        day = None
        if end - begin == 4:
            if text[end : end + 1] == "-" and (iso := _ISO_DAY.match(text, begin)) and not _in_number(text, begin):
                day = day_number(int(iso["iso"][:4]), int(iso["iso"][5:7]), int(iso["iso"][8:]))
        elif end - begin <= 2:
            day = _day_around(text, begin, year)
        if day is not None:
            days.add(day)
    return tuple(sorted(days))


def _in_number(text: str, begin: int) -> bool:
    """Whether digits stand behind a digit and a hyphen or dot, as in a longer number."""
    return begin > 1 and text[begin - 1] in "-." and text[begin - 2].isdigit()


def _day_around(text: str, begin: int, year: int | None) -> int | None:
    """The day that a number of one or two digits is part of; days since 1970."""
    before = text[begin - 1] if begin else " "
    found = None
    if not (before.isalnum() or before in "_.,/" or _in_number(text, begin)):
        found = _DAY_MONTH.match(text, begin)
    if found is not None:
        word, month_first, starts = found["month"], False, begin
    else:
        month = _MONTH_BEFORE.search(text, max(0, begin - 18), begin) if before.isspace() else None
        found = None if month is None else _DAY_AFTER.match(text, begin)
        if month is None or found is None:
            return None
        word, month_first, starts = month["month"], True, month.start()
    if found["year"] is not None:
        year = int(found["year"])
    elif not names_a_month(word, text, starts, month_first):
        return None
    return None if year is None else day_number(year, month_number(word), leading_number(found["day"]))
