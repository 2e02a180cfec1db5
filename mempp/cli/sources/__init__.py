"""Reading files of documents: which files, in which format, one document after the other, never a file at once.

Every reader is a generator of `Found` (the fields of one document as they stand in the file) and `Fault` (a place that
could not be read, and why). A fault does not end a reader where it can go on behind it: the caller decides whether to.
What the fields mean (`--map`, keys that are not a document's) is the work of `fields`, not of the readers.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import BinaryIO, Literal

Form = Literal["json", "csv", "parquet", "file"]
"""What kind of values the fields hold: JSON's, cells of text, Arrow's as Python objects, or a whole file's text."""


@dataclass(frozen=True, slots=True)
class Found:
    """One document as it stands in its file."""

    place: str
    """`file:line`, for messages."""
    fields: dict[str, object]
    position: int
    """Bytes of the file up to the end of this document, as near as the format tells; for progress only."""
    form: Form = "json"


@dataclass(frozen=True, slots=True)
class Fault:
    """A place in a file that holds no usable document, and why."""

    place: str
    reason: str
    position: int = 0


Reading = Generator[Found | Fault, None, None]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files: its suffixes and how it is read."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[BinaryIO, str], Reading]
    """Takes an open binary stream and the name that messages give it."""
    streams: bool = True
    """Whether it can be read from something that cannot seek."""


def not_utf8(index: int, value: int) -> str:
    """The message for a byte that is no UTF-8.

    Args:
        index: where it stands in its line, from 0; the message counts from 1.
        value: the byte.
    """
    return f"not UTF-8 at byte {index + 1} of the line (0x{value:02x}); convert the file to UTF-8"
