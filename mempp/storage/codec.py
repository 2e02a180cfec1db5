"""What differs between a series of entries and a series of vectors: the Codec.

A series (``series.py``) keeps numbered items in sealed segments and framed journals. It asks a codec how items lie in
a frame and in a Parquet table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from mempp.storage.entries import Position
from mempp.storage.frames import Frame

Item = TypeVar("Item")


class ContentError(ValueError):
    """The bytes are whole, but what they say does not fit: a number, a digest, a column."""


class NotYetError(Exception):
    """The bytes speak of log entries that this process has not read yet."""


def give_back() -> None:
    """Give the memory that Arrow has freed back to the system: its allocator keeps it for what it reads next."""
    pa.default_memory_pool().release_unused()


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """How the columns of a segment are encoded."""

    dictionary: tuple[str, ...]
    statistics: tuple[str, ...]
    encodings: dict[str, str]


class Codec(Protocol[Item]):
    """Turns items into frames' bodies and table columns, and back, checking that they continue a position."""

    content: str
    """What the footer of a segment calls it."""
    frame_content: int
    store_id: str
    schema: pa.Schema
    options: ParquetOptions

    def from_frame(self, frame: Frame, position: Position) -> tuple[list[Item], Position]:
        """Return a frame's items and the position after them; raise ContentError or NotYetError."""
        ...

    def from_table(self, table: pa.Table, position: Position) -> tuple[list[Item], Position]:
        """Return a table's items, which begin at ``position``, and the position after them (digest unchanged)."""
        ...

    def digest_after(self, items: Sequence[Item], digest: bytes) -> bytes:
        """Return the chain digest after these items."""
        ...

    def to_tables(self, items: Sequence[Item]) -> Iterator[pa.Table]:
        """Yield the row groups of a segment; each small enough to be read at once."""
        ...

    def footer(self) -> dict[str, str]:
        """Return further key-values for the footer of a segment written now."""
        ...

    def check_footer(self, footer: dict[str, str]) -> None:
        """Check those key-values of a segment that is read; raise ContentError or NotYetError."""
        ...
