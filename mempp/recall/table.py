"""The columns of the rows that decide what is in scope: dates, moments of ingestion, labels, metadata."""

import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from mempp.recall.threads import Threads

UNDATED = int(np.iinfo(np.int64).min)
"""Stands for "no event date" in a column of microseconds."""


class RowLike(Protocol):
    """What the table needs to know of one row; dates in microseconds UTC. It keeps the object."""

    @property
    def sequence(self) -> int: ...  # noqa: D102
    @property
    def ingested_at(self) -> int: ...  # noqa: D102
    @property
    def occurred_at(self) -> int | None: ...  # noqa: D102
    @property
    def authors(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def tags(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def source(self) -> str | None: ...  # noqa: D102
    @property
    def thread(self) -> str | None: ...  # noqa: D102
    @property
    def metadata(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Row:
    """A row that is nothing but that."""

    sequence: int
    ingested_at: int
    occurred_at: int | None
    authors: tuple[str, ...]
    tags: tuple[str, ...]
    source: str | None
    thread: str | None
    metadata: str | None


class ValueIndex:
    """value → ascending row ids, brought up to date with its column when asked."""

    def __init__(self, values_of: Callable[[RowLike], Iterable[str]]) -> None:
        self._values_of = values_of
        self._rows_by_value: dict[str, array[int]] = {}
        self._covered = 0

    def rows_with(self, wanted: Iterable[str], rows: Sequence[RowLike], below: int) -> NDArray[np.int64]:
        """The row ids below `below` that hold any of the wanted values."""
        for row_id in range(self._covered, len(rows)):
            for value in dict.fromkeys(self._values_of(rows[row_id])):
                self._rows_by_value.setdefault(value, array("q")).append(row_id)
        self._covered = len(rows)
        found = [np.array(self._rows_by_value[value]) for value in wanted if value in self._rows_by_value]
        if not found:
            return np.empty(0, dtype=np.int64)
        together = np.concatenate(found)
        return together[together < below]

    def __len__(self) -> int:
        return len(self._rows_by_value)


class RowTable:
    """Grows by `append`; one thread at a time uses it (the caller holds a lock)."""

    def __init__(self) -> None:
        self._rows: list[RowLike] = []
        self._occurred_at = np.empty(0, dtype=np.int64)
        self._ingested_at = np.empty(0, dtype=np.int64)
        self._sequences = np.empty(0, dtype=np.int64)
        self._indexes: dict[str, ValueIndex] = {
            "author": ValueIndex(lambda row: map(folded, row.authors)),
            "tags": ValueIndex(lambda row: map(folded, row.tags)),
            "source": ValueIndex(lambda row: () if row.source is None else (folded(row.source),)),
            "thread": ValueIndex(lambda row: () if row.thread is None else (folded(row.thread),)),
        }
        self._metadata_indexes: dict[str, ValueIndex] = {}
        self.threads = Threads()
        """Which rows belong together."""

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, rows: Sequence[RowLike]) -> None:
        """Add rows at the end, in the order of their row ids."""
        count, more = len(self._rows), len(rows)
        if count + more > len(self._occurred_at):
            # Columns are replaced, never resized: who took a column before keeps it.
            size = max(1024, 2 * (count + more))
            for name in ("_occurred_at", "_ingested_at", "_sequences"):
                grown = np.empty(size, dtype=np.int64)
                grown[:count] = getattr(self, name)[:count]
                setattr(self, name, grown)
        added = slice(count, count + more)
        self._occurred_at[added] = [UNDATED if row.occurred_at is None else row.occurred_at for row in rows]
        self._ingested_at[added] = [row.ingested_at for row in rows]
        self._sequences[added] = [row.sequence for row in rows]
        self.threads.append(count, [row.thread for row in rows], [row.occurred_at for row in rows])
        self._rows.extend(rows)

    @property
    def occurred_at(self) -> NDArray[np.int64]:
        """(rows,) event dates, `UNDATED` where there is none."""
        return self._occurred_at[: len(self._rows)]

    @property
    def ingested_at(self) -> NDArray[np.int64]:
        """(rows,) moments of ingestion."""
        return self._ingested_at[: len(self._rows)]

    def rows_up_to(self, sequence: int) -> int:
        """How many rows the entries up to and with this sequence hold."""
        return int(np.searchsorted(self._sequences[: len(self._rows)], sequence, side="right"))

    def rows_with(self, field: str, wanted: Iterable[str], below: int) -> NDArray[np.int64]:
        """Row ids below `below` whose author, tags, source or thread is any of these, case folded."""
        return self._indexes[field].rows_with(map(folded, wanted), self._rows, below)

    def rows_where(self, key: str, wanted: Iterable[object], below: int) -> NDArray[np.int64]:
        """Row ids below `below` whose metadata holds any of these values under the key."""
        if key not in self._metadata_indexes:
            self._metadata_indexes[key] = ValueIndex(lambda row: _metadata_values(row.metadata, key))
        return self._metadata_indexes[key].rows_with(map(comparable, wanted), self._rows, below)

    def distinct(self, field: str) -> int:
        """How many different values (case folded) a field has."""
        self._indexes[field].rows_with((), self._rows, 0)
        return len(self._indexes[field])


def folded(text: str) -> str:
    """Text as filters compare it: case folded, composed and decomposed accents alike."""
    return normalize("NFC", normalize("NFC", text).casefold())


def comparable(value: object) -> str:
    """A value of metadata as a text that is equal for equal values: text folded, 1 and 1.0 alike, true apart from 1."""
    return json.dumps(_alike(value), sort_keys=True, ensure_ascii=False)


def _alike(value: object) -> object:
    if isinstance(value, str):
        return folded(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [_alike(one) for one in value]
    if isinstance(value, dict):
        return {key: _alike(one) for key, one in value.items()}
    return value


def _metadata_values(metadata: str | None, key: str) -> list[str]:
    """The values under a key: each element of a list too; a missing key counts as null."""
    value = None if metadata is None else json.loads(metadata).get(key)
    values = [value, *value] if isinstance(value, list) else [value]
    return [comparable(one) for one in values]
