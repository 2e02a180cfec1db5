"""The as-of date of a question that names one: "as of 3 May 2023", "on record on …", for `as_of="auto"`.

What such a phrase names must be one date, read surely: a bound that was meant and not set would let in what was not
known then, so whatever else stands where the date should is an error, not a question without a bound.
"""

import re
from itertools import islice, zip_longest

from mempp.errors import InputError, quoted
from mempp.recall.date_expressions import expressions
from mempp.recall.date_words import DAY_LENGTH, MONTH, NAMES, NO_COUNT, NUMBERS, SEASONS, WEEKDAY, Span, date_of, plain
from mempp.recall.named_dates import RELATIVE, relative_span, spans_of

_PHRASE = re.compile(
    r"(?<!effective )(?<!starting )(?<!beginning )\b(?:as[\s-](?:of|at)|on\srecord\s(?:on|in|at|by)|known\s(?:on|by|at)"
    r"|as\s(?:things|matters|it|they)\sstood\s(?:on|in|at|by))\s{1,3}",
    re.IGNORECASE,
)
_UP_TO_DATE = re.compile(
    rf"(?:the\s)?(?:(?:end|close)\sof\s)?(?:the\s)?(?:year\s)?(?:(?:last\s)?{WEEKDAY},?\s{{1,3}}(?:the\s)?)?",
    re.IGNORECASE,
)
_NOW = re.compile(r"(?:the\s)?(?:(?:right\s)?now|today|present|moment|this\s\w{1,10}|yet)\b", re.IGNORECASE)
_YEAR_OF_ASKING = re.compile(rf"\b({MONTH})\s(?:of\s)?(last|this)\syear\b", re.IGNORECASE)
_NUMBER = "|".join(NUMBERS)
_SEASON = "|".join(SEASONS)
_LIKE_A_DATE = re.compile(
    rf"""
    (?<!\w)(?:(?:the\s)?(?:early|mid|late|start\sof|beginning\sof|middle\sof|around|about)[\s-](?:the\s)?)?
    (?: {MONTH} | {WEEKDAY} | (?:{_SEASON})\b | Q[1-4]\b | H[12]\b | (?:19|20)[0-9]{{2}}\b{NO_COUNT} | '[0-9]{{2}}\b
    | [0-9]{{1,2}}(?:st|nd|rd|th)\b | [0-9]{{1,2}}\s(?:of\s)?{MONTH}
    | [0-9]{{1,4}}(?P<mark>[./-])[0-9]{{1,2}}(?P=mark)[0-9]{{1,4}}\b | [0-9]{{1,2}}/[0-9]{{1,2}}\b
    | yesterday | tomorrow | the\sday\s | \w{{3,8}}\sago\b
    | (?:last|past|previous|next)\s
      (?: {MONTH} | {WEEKDAY} | (?:day|week|weekend|month|quarter|year|night|{_SEASON}|{_NUMBER})\b | [0-9] ))
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MORE = re.compile(r"\s(?:and|or|&)\s(?:on\s|the\s)?", re.IGNORECASE)
_CLAUSE = re.compile(r"[^,;:?!\n.]*(?:\.(?=\w)[^,;:?!\n.]*)*")
_WEAK = re.compile(r"known|.*(?:at|by)\s*\Z", re.IGNORECASE)  # "known by the team in March": the date may be another
_OTHER_WORDS = (*NAMES, "march", "mar")  # names and verbs too
_AFTER = 120  # characters after a phrase in which its date stands
_MOST_PHRASES = 64


def as_of_named(question: str, *, asked_at: int | None = None) -> tuple[int, str] | None:
    """The moment that an explicit "as of DATE" names, in microseconds since 1970 UTC, and its words.

    "As of", "as at", "on record on", "known on", "as things stood on" a date count, the last microsecond of its day,
    month, quarter or year; a date with a time means the start of its last unit, as in `as_of=`. "As of now" is no
    bound where the moment of asking is not known. None where the question has no such phrase before a date.

    Args:
        question: any text.
        asked_at: the moment of asking, microseconds since 1970 UTC. With it "as of last July", "as of June last year",
            "as of 3 days ago" and a date without its year, the latest that had begun, are dates too.

    Raises:
        InputError: what such a phrase names looks like a date but is not one for certain (05/06/2023, a range, a day
            that the calendar lacks, "last July" without `asked_at`), or several phrases name different ones.
    """
    named: dict[int | None, str] = {}
    for phrase in islice(_PHRASE.finditer(question), _MOST_PHRASES):
        window = question[phrase.start() : phrase.end() + _AFTER]
        found = _read(window, phrase.end() - phrase.start(), asked_at)
        if found is not None:
            named.setdefault(*found)
    if len(named) > 1:
        words = ", ".join(quoted(words) for words in islice(named.values(), 3))
        raise InputError(f"the question names several as-of dates, {words}; ask once for each, with as_of= that date")
    moment, words = next(iter(named.items()), (None, ""))
    return None if moment is None else (moment, words)


def _read(window: str, lead: int, asked_at: int | None) -> tuple[int | None, str] | None:
    """Moment (None: now) and words of the date after the first `lead` characters; None where there is no date."""
    if asked_at is not None:
        year = date_of(asked_at).year
        window = _YEAR_OF_ASKING.sub(lambda match: f"{match[1]} {year - (match[2][0] in 'lL')}", window)
    spans, end = _dated(window, lead, asked_at)
    if len(spans) == 1:
        start, after = spans[0]
        whole_days = start % DAY_LENGTH == 0 and after % DAY_LENGTH == 0
        return (after - 1 if whole_days else start), window[:end]
    if not end and (now := _NOW.match(window, lead)):
        return asked_at, window[: now.end()]
    unread = end or _end_of_unread(window, lead)
    if not unread:
        return None
    words = window[:unread]
    raise InputError(
        f'the question says {quoted(words)}, which is not one date for certain, and as_of="auto" takes no other; write '
        'it as in "as of 2023-06-05", give as_of= the date, or asked_at=, when it is asked, for "last July"'
    )


def _end_of_unread(window: str, lead: int) -> int:
    """Where what looks like a date ends, though it was not read as one; 0 where nothing does."""
    phrase = window[:lead]
    weak = _WEAK.match(phrase) is not None
    up_to_date, clause = _UP_TO_DATE.match(window, lead), _CLAUSE.match(window, lead)
    assert up_to_date is not None, "it matches nothing at all too"
    assert clause is not None, "so does this"
    for like in _LIKE_A_DATE.finditer(window, lead, clause.end()):
        adjacent = like.start() in (lead, up_to_date.end())
        name = plain(like[0]) in _OTHER_WORDS
        if (adjacent and not (weak and name)) or not (weak or name):
            return like.end()
    return 0


def _dated(window: str, lead: int, asked_at: int | None) -> tuple[list[Span], int]:
    """What the date after the first `lead` characters may mean, and where it ends; 0 where there is none."""
    found = list(expressions(window))
    for one, following in zip_longest(found, found[1:]):
        if _UP_TO_DATE.fullmatch(window, lead, one.core):
            several = following is not None and _MORE.fullmatch(window, one.end, following.core)
            single = one.last is None and not one.onwards and not several
            return spans_of(one, tuple, asked_at) if single else [], one.end
    if asked_at is None:
        return [], 0
    for match in RELATIVE.finditer(window):
        span = relative_span(match, asked_at // DAY_LENGTH)
        if span is not None and _UP_TO_DATE.fullmatch(window, lead, match.start()):
            # As a bound "3 weeks ago" may be that day or the end of that week, and "the last 30 days" has no one end.
            vague = match["count"] or (match["ago"] and plain(match["ago_unit"]) != "day")
            return [] if vague else [span], match.end()
    return [], 0
