"""What the readers share: options, files and folders, dates."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from eval.cases import Options
from eval.datasets.items import Item
from eval.errors import DatasetError, UsageError

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
# The forms that Mem++ takes: a whole day, or a moment of one.
_DATE = re.compile(
    r"(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{4}-W\d{2}-\d|\d{4}W\d{3})"
    r"(?:[T ]\d{2}(?::?\d{2}(?::?\d{2}(?:[.,]\d+)?)?)?(?:Z|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?)?",
    re.ASCII,
)


def check_options(name: str, options: Options, known: Mapping[str, Collection[str]]) -> None:
    """Refuse options that a reader does not know, and values outside of a closed list.

    Args:
        name: of the dataset.
        options: as given.
        known: option → the values it may have; empty for any value.

    Raises:
        UsageError: names what may be given.
    """
    for option, value in options.items():
        if option not in known:
            there = ", ".join(known) or "none"
            raise UsageError(f"{name} has no option {option!r}{nearest(option, known)}; its options are: {there}")
        if known[option] and value not in known[option]:
            raise UsageError(f"{name}: {option}={value!r:.60} is not possible; use one of {', '.join(known[option])}")


def nearest(given: str, known: Iterable[str]) -> str:
    """A hint at the name that was meant, or nothing."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def chosen(name: str, option: str, options: Options, known: Collection[str]) -> tuple[str, ...]:
    """The names that a comma-separated option gives, in the order of `known`; all of them without the option.

    Raises:
        UsageError: a name that is not known, or none at all.
    """
    if option not in options:
        return tuple(known)
    names = [one.strip() for one in options[option].split(",") if one.strip()]
    for one in names:
        if one not in known:
            there = ", ".join(known)
            raise UsageError(f"{name}: {option}={one!r:.60} is not there{nearest(one, known)}; there are: {there}")
    if not names:
        raise UsageError(f"{name}: {option}= names nothing; there are: {', '.join(known)}")
    return tuple(one for one in known if one in names)


def existing(path: Path, what: str) -> Path:
    """The path, if something is there.

    Raises:
        DatasetError: nothing is, or it cannot be looked at; `what` tells what was to be there.
    """
    try:
        path.stat()
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}; --data names {what}") from None
    return path


def entries(folder: Path, pattern: str) -> list[Path]:
    """The files below a folder that match, by name; hidden ones left out.

    Raises:
        DatasetError: the folder cannot be read.
    """
    try:
        found = [path for path in folder.glob(pattern) if path.is_file()]
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be read: {error.strerror or error}") from None
    return sorted(path for path in found if not path.name.startswith("."))


def read_text(path: Path, wanted_by: str) -> str:
    """The text of a file, byte order mark taken off.

    Raises:
        DatasetError: it is missing, unreadable or not UTF-8; `wanted_by` tells where it is named.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}; {wanted_by} names it") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DatasetError(f"{path}: not UTF-8 at byte {error.start} (0x{byte:02x})") from None


def unique(items: Iterable[Item], key: str) -> Iterator[Item]:
    """The items, as long as no two have the same value under `key`.

    Raises:
        DatasetError: names both places.
    """
    seen: dict[str, str] = {}
    for item in items:
        name = item.text(key)
        if name in seen:
            raise item.fault(f"{key!r} {name!r:.60} stands there already, in {seen[name]}")
        seen[name] = item.place
        yield item


def checked_choices(item: Item, choices: dict[str, str]) -> dict[str, str]:
    """The options of a multiple-choice question, if an answer can tell their letters apart.

    Raises:
        DatasetError: a letter is blank, or two are equal but for case and blanks.
    """
    plain = [letter.strip().casefold() for letter in choices]
    if not all(plain) or len(set(plain)) < len(plain):
        raise item.fault(f"the letters of the choices must differ in more than case, are {', '.join(choices)!r:.60}")
    return choices


def iso_date(item: Item, key: str) -> str | None:
    """An ISO 8601 date or moment under `key`, as it stands; None where there is none.

    Raises:
        DatasetError: the value is no whole date, or lies outside the years 1 to 9999 in UTC.
    """
    text = item.text_or_none(key)
    if text is None:
        return None
    text = text.strip()
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        moment = datetime.fromisoformat(text.replace(",", "."))
        if moment.tzinfo is not None:
            moment.astimezone(UTC)
    except OverflowError:
        raise item.fault(f"{key!r} lies outside the years 1 to 9999 in UTC: {text!r:.60}") from None
    except ValueError:
        raise item.fault(
            f"{key!r} is no date: {text!r:.60}; use ISO 8601, such as 2024-06-01 or 2024-06-01T09:30:00+02:00"
        ) from None
    return text


def spoken(moment: datetime) -> str:
    """A moment as a text leads with it: `8 May 2023, 1:56 pm`, whatever the locale."""
    hour = moment.hour % 12 or 12
    half = "pm" if moment.hour >= 12 else "am"
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}, {hour}:{moment.minute:02} {half}"
