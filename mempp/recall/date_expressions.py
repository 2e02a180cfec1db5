"""Dates and ranges where they stand in a text: single dates ("atoms"), what stands before one, what joins two.

One regular expression finds atoms from left to right; what stands right before an atom ("early", "since", "the week
before") and between two atoms ("to", "and") is read from a bounded slice of the text.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from mempp.dates import to_microseconds
from mempp.recall.date_words import (
    ATOM,
    BEFORE,
    BETWEEN_GAP,
    CONNECTOR,
    DAY_LENGTH,
    FAR_FUTURE,
    FAR_PAST,
    LIST_GAP,
    MODIFIER,
    NAMES,
    NUMBERS,
    ONWARDS,
    OPEN,
    ORDINALS,
    PREPOSITION,
    RANGE_GAP,
    SEASONS,
    SHIFT,
    WEEKDAYS,
    Atom,
    Readings,
    Span,
    date_of,
    day_number,
    leading_number,
    month_number,
    plain,
    span_of_days,
    span_of_months,
    week_of,
)

# --- atoms ----------------------------------------------------------------------------------------------------------


def _days_of(month: int, first: int, last: int, joined: str) -> Callable[[int], Readings]:
    """One day, the days from one to another, or ("and") two days."""

    def of_year(year: int) -> Readings:
        one, two = day_number(year, month, first), day_number(year, month, last)
        if joined == "and":
            return tuple(None if day is None else span_of_days(day, day + 1) for day in (one, two))
        return (span_of_days(one, None if two is None else two + 1),)

    return of_year


def _from_month(month: int, count: int) -> Callable[[int], Readings]:
    return lambda year: (span_of_months(year, month, count),)


def _fixed(*readings: Span | None) -> Callable[[int], Readings]:
    return lambda year: readings


def _day_span(year: int, month: int, day: int) -> Span | None:
    start = day_number(year, month, day)
    return None if start is None else span_of_days(start, start + 1)


def _moment(text: str) -> Span | None:
    """A date with a time: as long as the last unit written."""
    try:
        start = to_microseconds(datetime.fromisoformat(text), "a date", bare_date="start")
    except ValueError:
        return None
    clock = re.split(r"[Z+]|-(?=[0-9]{2}:[0-9]{2}\Z)", text[11:])[0]
    seconds, _, fraction = clock[6:].partition(".")
    return start, start + (10 ** (6 - len(fraction)) if seconds else 60_000_000)


def _atom(match: re.Match[str]) -> Atom | None:
    """The atom of a match, without what stands before it; None for what only looks like one."""
    group = match.groupdict()
    begin, end = match.span()

    def atom(
        year: str | int | None,
        of_year: Callable[[int], Readings],
        months: int = 0,
        firm: bool = True,
        may_join: bool = False,
    ) -> Atom:
        whole = None if year is None else int(year)
        return Atom(begin, begin, end, whole, of_year, months, bare=not firm, firm=firm, may_join=may_join)

    if (iso := group["iso"]) is not None:
        year, month, day = int(iso[:4]), int(iso[5:7]), int(iso[8:])
        return atom(year, _fixed(_moment(match.group()) if group["time"] else _day_span(year, month, day)))
    if (text := group["ymd"] or group["dmy"]) is not None:
        one, two, three = (int(part) for part in re.split(r"[/.-]", text))
        if group["ymd"]:
            return atom(one, _fixed(_day_span(one, two, three)))
        other = _day_span(three, one, two) if group["s2"] != "." and one != two else None
        return atom(three, _fixed(_day_span(three, two, one), other))
    if (word := group["m1"] or group["m2"]) is not None:
        first, last = (group["d1"], group["d2"]) if group["m1"] else (group["d3"], group["d4"])
        joined, year_text = plain(group["to1"] or group["to2"] or ""), group["y1"] or group["y2"]
        if joined == "and" and match.string[max(0, begin - 8) : begin].casefold() == "between ":
            begin, joined = begin - 8, "to"
        if year_text is None and not names_a_month(word, match.string, begin, group["m2"] is not None):
            return None
        first_day = leading_number(first)
        last_day = leading_number(last) if last else first_day
        return atom(year_text, _days_of(month_number(word), first_day, last_day, joined))
    if (part := group["part"] or group["part2"]) is not None:
        size = 3 if part[0] in "qQ" else 6
        year_text = group["y3"] or group["y4"]
        return atom(year_text, _from_month(1 + size * (int(part[1]) - 1), size), size, firm=year_text is not None)
    if (nth := group["nth"]) is not None:
        size = 3 if plain(group["piece"]) == "quarter" else 6
        position = ORDINALS[plain(nth)]
        return None if position * size > 12 else atom(group["y5"], _from_month(1 + size * (position - 1), size), size)
    if (season := group["season"]) is not None:
        month = SEASONS[plain(season)]
        if month < 12:
            return atom(group["y6"], _from_month(month, 3), 3)
        return atom(group["y6"], lambda year: (span_of_months(year, 12, 3), span_of_months(year, 0, 3)), 3)
    if (word := group["m3"]) is not None:
        firm = group["y7"] is not None and word != "may"
        return atom(group["y7"], _from_month(month_number(word), 1), 1, firm=firm, may_join=word[0].isupper())
    if (year_month := group["ym"]) is not None:
        return atom(year_month[:4], _from_month(int(year_month[5:]), 1), 1, firm=False, may_join=True)
    return atom(group["year"], _from_month(1, 12), 12, firm=False, may_join=True)


def names_a_month(word: str, text: str, begin: int, month_first: bool) -> bool:
    """Whether the month of "May 15" or "15 May", without a year, is one: "may" and "march" only where so written."""
    if plain(word) not in ("may", "march", "mar"):
        return True
    if word != word.capitalize():
        return False
    before = text[max(0, begin - 3) : begin].rstrip()
    return not month_first or bool(before and before[-1] not in ".?!:")  # not "May 15 of us come?"


def _piece(span: Span, months: int, which: int, of: int) -> Span | None:
    """Piece `which` (from 0) of the 2 or 3 pieces of so many whole months."""
    first = date_of(span[0])
    if months > 1 and months % of == 0:
        return span_of_months(first.year, first.month + which * (months // of), months // of)
    begin, end = span[0] // DAY_LENGTH, span[1] // DAY_LENGTH
    cuts = (0, 10, 20) if of == 3 else (0, 15 if months == 1 else (end - begin) // 2)
    return span_of_days(begin + cuts[which], begin + cuts[which + 1] if which + 1 < of else end)


_THIRDS = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1, "late": 2, "end": 2}
_SEVEN_DAYS = 7 * DAY_LENGTH


def _modified(match: re.Match[str], months: int) -> Callable[[Span], Span | None] | None:
    """What "early", "end of", "second week of", "week of" make of a span; None where they do not apply to it."""
    kind = plain(match["week"] or "")
    if not months:
        changes: dict[str, Callable[[Span], Span | None]] = {
            "week of": lambda span: week_of(span[0] // DAY_LENGTH),
            "weekend of": lambda span: weekend_of(span[0] // DAY_LENGTH),
            "week ending": lambda span: (span[1] - _SEVEN_DAYS, span[1]),
        }
        begins = kind in ("week beginning", "week commencing", "week starting")
        return (lambda span: (span[0], span[0] + _SEVEN_DAYS)) if begins else changes.get(kind)
    if word := match["third"] or match["edge"]:
        which = _THIRDS[plain(word)]
        return lambda span: _piece(span, months, which, 3)
    if match["half"]:
        half = ORDINALS[plain(match["half"])] - 1
        return lambda span: _piece(span, months, half, 2)
    if match["nth"]:
        if plain(match["nth"]) == "last":
            return lambda span: (span[1] - _SEVEN_DAYS, span[1])
        skip = (ORDINALS[plain(match["nth"])] - 1) * _SEVEN_DAYS
        return lambda span: (span[0] + skip, min(span[0] + skip + _SEVEN_DAYS, span[1]))
    return (lambda span: span) if kind == "month of" else None


def weekend_of(day: int) -> Span | None:
    """Saturday and Sunday of the week of a day."""
    saturday = day - (day + 3) % 7 + 5
    return span_of_days(saturday, saturday + 2)


def unit_around(day: int, unit: str, count: int) -> Span | None:
    """The day, week, month or year that lies `count` units after (before, if negative) a day; days since 1970."""
    if not FAR_PAST <= day * DAY_LENGTH < FAR_FUTURE:
        return None
    here = date_of(day * DAY_LENGTH)
    span = {
        "day": lambda: span_of_days(day + count, day + count + 1),
        "week": lambda: week_of(day + 7 * count),
        "month": lambda: span_of_months(here.year, here.month + count, 1),
        "quarter": lambda: span_of_months(here.year, here.month - (here.month - 1) % 3 + 3 * count, 3),
        "year": lambda: span_of_months(here.year + count, 1, 12),
    }[unit]()
    return span if span is not None and span[0] >= FAR_PAST and span[1] <= FAR_FUTURE else None


def count_of(text: str | None) -> int:
    """The number of "3", "three", "a" or "the"; 1 where nothing is said."""
    word = plain(text or "a")
    if word.isdigit():
        return int(word)
    return NUMBERS.index(word) + 1 if word in NUMBERS else 1


def _shifted(match: re.Match[str]) -> Callable[[Span], Span | None]:
    """What "the week before", "two weeks after", "the Sunday before" make of a span."""
    unit, count = plain(match["unit"]), count_of(match["count"])
    back = plain(match["side"]) in ("before", "prior to")

    def shift(span: Span) -> Span | None:
        edge = span[0] // DAY_LENGTH if back else -(-span[1] // DAY_LENGTH)  # the first day not before; after
        if unit == "weekend" or (unit.endswith("day") and unit != "day"):
            wanted = 5 if unit == "weekend" else WEEKDAYS.index(unit[:3])
            length = 2 if unit == "weekend" else 1
            # The last that ends by the edge, or the first that begins at it; weekday of day 0 is 3.
            first = edge - length - (edge - length + 3 - wanted) % 7 if back else edge + (wanted - edge - 3) % 7
            return span_of_days(first, first + length)
        one = unit.rstrip("s")
        if count > 1 or one == "day":
            anchor = span[0] // DAY_LENGTH if back else (span[1] - 1) // DAY_LENGTH
            return unit_around(anchor, one, -count if back else count)
        length = {"week": 7, "month": 30, "year": 365}[one]
        return span_of_days(edge - length, edge) if back else span_of_days(edge, edge + length)

    return shift


# --- what stands before an atom, and what joins two -----------------------------------------------------------------


def _atoms(text: str) -> list[Atom]:
    """The atoms of a text in order, with what stands before them."""
    atoms: list[Atom] = []
    free = 0
    for match in ATOM.finditer(text):
        atom = _atom(match)
        if atom is not None:
            atom = _with_prefix(text, atom, free, bare=plain(match.group()) if match["m3"] else "")
            atoms.append(atom)
        free = match.end()
    return atoms


def _with_prefix(text: str, atom: Atom, free: int, bare: str) -> Atom:
    before = text[max(free, atom.begin - BEFORE) : atom.begin]
    offset = atom.begin - len(before)
    begin = atom.begin
    found = MODIFIER.search(before)
    if found and (change := _modified(found, atom.months)) is not None:
        inner = atom.of_year
        begin = offset + found.start()
        before = before[: found.start()]
        atom = replace(
            atom,
            begin=begin,
            core=begin,
            of_year=lambda year: tuple(None if one is None else change(one) for one in inner(year)),
            months=0,
            bare=False,
            firm=True,
        )
    lower_name = bare in ("may", "march", "mar") and text[atom.end - len(bare)].islower()
    if found := SHIFT.search(before):
        return replace(
            atom, begin=offset + found.start(), core=offset + found.start(), firm=True, shift=_shifted(found)
        )
    if found := CONNECTOR.search(before):
        word = plain(found["connector"])
        firm = atom.firm or not (lower_name or (word in ("from", "between") and bare in NAMES))
        return replace(atom, begin=offset + found.start(), firm=firm, connector=word, may_join=atom.may_join or firm)
    if not atom.firm and (found := PREPOSITION.search(before)):
        if found["relation"]:
            if lower_name or not bare:
                return atom
            begin = offset + found.start()
            atom = replace(atom, begin=begin, core=begin, firm=True, relation=plain(found["relation"]))
            found = CONNECTOR.search(before[: found.start()])
            if found is None:
                return atom
            return replace(atom, begin=offset + found.start(), connector=plain(found["connector"]))
        if found["strong"] or not (lower_name or bare in NAMES):
            return replace(atom, begin=offset + found.start(), firm=True)
    return atom


@dataclass(frozen=True, slots=True)
class Expression:
    """One date, or a range from one atom to another, that stands."""

    begin: int
    core: int
    end: int
    first: Atom
    last: Atom | None = None
    onwards: bool = False


def expressions(text: str) -> Iterator[Expression]:
    """The dates and ranges of a text, in its order."""
    atoms = _atoms(text)
    _settle_lists(text, atoms)
    index = 0
    while index < len(atoms):
        atom = atoms[index]
        following = atoms[index + 1] if index + 1 < len(atoms) else None
        if following is not None and _is_range(text, atom, following):
            joins = atom.connector in ("between", "from")
            yield Expression(atom.begin if joins else atom.core, atom.core, following.end, atom, following)
            index += 2
            continue
        if atom.firm:
            onwards = ONWARDS.match(text, atom.end) if atom.connector == "from" else None
            keeps = atom.connector in OPEN or onwards or atom.bare
            end = onwards.end() if onwards else atom.end
            yield Expression(atom.begin if keeps else atom.core, atom.core, end, atom, onwards=bool(onwards))
        index += 1


def _settle_lists(text: str, atoms: list[Atom]) -> None:
    """ "in October and November 2023": a neighbour in a list gives its year, and makes a bare month or year a date."""
    joined = [
        not (later.connector or later.shift)
        and later.begin == later.core
        and bool(LIST_GAP.fullmatch(text, one.end, later.begin))
        and one.connector not in ("between", "from")
        for one, later in pairwise(atoms)
    ]
    for index, together in enumerate(joined):
        if together and atoms[index].firm and atoms[index + 1].may_join and atoms[index].months:
            atoms[index + 1] = replace(atoms[index + 1], firm=True)
    for index in range(len(joined) - 1, -1, -1):
        later = atoms[index + 1]
        if joined[index] and atoms[index].year is None and later.firm and later.year is not None and later.months < 3:
            atoms[index] = replace(atoms[index], year=later.year)


def _is_range(text: str, first: Atom, last: Atom) -> bool:
    if first.connector in OPEN or last.shift or first.shift or not (first.firm or (last.firm and first.may_join)):
        return False
    if not last.firm and not last.may_join:
        return False
    if last.connector in ("until", "till", "up to"):
        return first.connector == "from" and not text[first.end : last.begin].strip()
    if last.connector or last.begin != last.core:
        return False
    gap = BETWEEN_GAP if first.connector == "between" else RANGE_GAP
    return gap.fullmatch(text, first.end, last.begin) is not None
