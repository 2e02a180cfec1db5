"""A JSON object of a data file, read field by field: every fault names the place, the field and the value."""

from collections.abc import Mapping
from dataclasses import dataclass

from eval.errors import DatasetError

LARGEST_WEIGHT = 1e9
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def shown(value: object) -> str:
    """A value as messages quote it: its kind and its beginning, on one line of bounded length."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        text = "too long to be shown"
    return f"{_KINDS.get(type(value), 'a number')}, {text if len(text) <= 60 else text[:57] + '…'}"


@dataclass(frozen=True, slots=True)
class Item:
    """One object and where it stands."""

    place: str
    """`file:line`, or `file: item N (byte B)`; inside of an object the way to it follows."""
    fields: Mapping[str, object]

    @classmethod
    def of(cls, place: str, value: object) -> "Item":
        """The item, if the value is an object."""
        if not isinstance(value, dict):
            raise DatasetError(f"{place}: not a JSON object but {shown(value)}")
        return cls(place, value)

    def __contains__(self, key: str) -> bool:
        """Whether it has a value under this key; null counts as none."""
        return self.fields.get(key) is not None

    def fault(self, reason: str) -> DatasetError:
        """The error that tells what is wrong with this item."""
        return DatasetError(f"{self.place}: {reason}")

    def get(self, key: str) -> object:
        """A value that must be there, of any kind but null."""
        if key not in self.fields:
            there = ", ".join(repr(name) for name in list(self.fields)[:12]) or "none"
            raise self.fault(f"no {key!r}; its keys are {there}")
        if (value := self.fields[key]) is None:
            raise self.fault(f"{key!r} holds null")
        return value

    def text(self, key: str, *, empty: bool = False) -> str:
        """A text that must be there, and say something unless `empty` is allowed."""
        return self.checked_text(key, self.get(key), empty=empty)

    def text_or_none(self, key: str) -> str | None:
        """A text that may be missing, null or empty."""
        value = self.checked_text(key, self.fields[key], empty=True) if key in self else ""
        return value if value.strip() else None

    def words(self, key: str) -> str:
        """A text, or a number or truth value as text: gold answers are of any of these kinds."""
        value = self.get(key)
        return str(value) if isinstance(value, int | float) else self.checked_text(key, value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; nothing if it is missing or null."""
        values = self.values(key) if key in self else []
        return tuple(self.checked_text(f"{key}[{at}]", value) for at, value in enumerate(values))

    def text_or_texts(self, key: str) -> tuple[str, ...]:
        """One text or a list of them; nothing if it is missing or null."""
        value = self.fields.get(key)
        if isinstance(value, str):
            return (self.text(key),)
        if value is not None and not isinstance(value, list):
            raise self.fault(f"{key!r} must be a text or a list of texts, is {shown(value)}")
        return self.texts(key)

    def integer(self, key: str) -> int:
        """A whole number that must be there."""
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fault(f"{key!r} must be a whole number, is {shown(value)}")
        return value

    def number(self, key: str) -> float:
        """A number that must be there."""
        value = self.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.fault(f"{key!r} must be a number, is {shown(value)}")
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            raise self.fault(f"{key!r} is a number that is too large") from None

    def weight(self, key: str) -> float:
        """A number that must be there, above 0 and at most `LARGEST_WEIGHT`, so that sums of it are numbers too."""
        value = self.number(key)
        if not 0 < value <= LARGEST_WEIGHT:
            raise self.fault(f"{key!r} must be above 0 and at most {LARGEST_WEIGHT:,.0f}, is {shown(value)}")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false if it is missing or null."""
        value = self.fields.get(key) or False
        if not isinstance(value, bool):
            raise self.fault(f"{key!r} must be true or false, is {shown(value)}")
        return value

    def values(self, key: str) -> list[object]:
        """A list that must be there; it may be empty."""
        value = self.get(key)
        if not isinstance(value, list):
            raise self.fault(f"{key!r} must be a list, is {shown(value)}")
        return value

    def item(self, key: str) -> "Item":
        """An object that must be there."""
        return Item.of(f"{self.place}, {key}", self.get(key))

    def items(self, key: str) -> list["Item"]:
        """A list of objects that must be there."""
        return [Item.of(f"{self.place}, {key}[{at}]", value) for at, value in enumerate(self.values(key))]

    def checked_text(self, key: str, value: object, *, empty: bool = False) -> str:
        """A text that can be stored, found under `key`."""
        if not isinstance(value, str):
            raise self.fault(f"{key!r} must be a text, is {shown(value)}")
        if not empty and not value.strip():
            raise self.fault(f"{key!r} is empty")
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                found = ascii(value[error.start])
                raise self.fault(f"{key!r} holds half a character (a lone surrogate, {found})") from None
        return value
