"""Entries as frame bodies and as Parquet columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from mempp.storage import frames
from mempp.storage.codec import ContentError, ParquetOptions
from mempp.storage.entries import (
    DOCUMENT,
    FIELDS,
    KINDS,
    Entry,
    Position,
    canonical_bytes,
    chain,
    entries_of,
    parse_entry,
    unknown_kind,
)

GROUP_BYTES = 32 << 20
GROUP_ROWS = 65_536

_TIME = pa.timestamp("us", tz="UTC")
_LABELS = pa.list_(pa.field("element", pa.string(), nullable=False))
_KINDS = {kind: kind for kind in KINDS}

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("ingested_at", _TIME, nullable=False),
        pa.field("row_id", pa.int64()),
        pa.field("related_row", pa.int64()),
        pa.field("text", pa.large_string()),
        pa.field("occurred_at", _TIME),
        pa.field("authors", _LABELS, nullable=False),
        pa.field("tags", _LABELS, nullable=False),
        pa.field("source", pa.string()),
        pa.field("thread", pa.string()),
        pa.field("document_kind", pa.string()),
        pa.field("metadata", pa.large_string()),
        pa.field("reason", pa.string()),
        pa.field("label", pa.string()),
        pa.field("payload", pa.large_string()),
    ]
)


class EntryCodec:
    """The codec of the log."""

    content = "entries"
    frame_content = frames.ENTRIES
    schema = SCHEMA
    options = ParquetOptions(
        dictionary=("kind", "authors.list.element", "tags.list.element", "thread", "document_kind", "label"),
        statistics=("sequence", "ingested_at", "row_id", "occurred_at"),
        encodings={},
    )

    def __init__(self, store_id: str) -> None:
        self.store_id = store_id

    def from_frame(self, frame: frames.Frame, position: Position) -> tuple[list[Entry], Position]:
        """Return the entries of a commit and the position after it, the chain recomputed."""
        if frame.content != self.frame_content:
            raise ContentError("the frame holds no entries")
        if frame.first_sequence != position.sequence:
            raise ContentError(f"it begins at sequence {frame.first_sequence} where {position.sequence} is next")
        if frame.stamp <= position.stamp:
            raise ContentError(f"its stamp {frame.stamp} does not follow {position.stamp}")
        lines = frame.body.split(b"\n")
        if len(lines) != frame.count:
            raise ContentError(f"it holds {len(lines)} entries where its header tells {frame.count}")
        digest, row = position.digest, position.row
        entries = []
        for sequence, line in enumerate(lines, position.sequence):
            digest = chain(digest, line)
            try:
                entry = parse_entry(line)
            except ValueError as error:
                raise ContentError(f"entry {sequence} is unreadable: {error}") from error
            if entry.sequence != sequence or entry.ingested_at != frame.stamp:
                raise ContentError(f"entry {sequence} carries another sequence or stamp than its frame")
            if entry.kind == DOCUMENT:
                if entry.row_id != row:
                    raise ContentError(f"entry {sequence} carries the row id {entry.row_id} where {row} is next")
                row += 1
            entries.append(entry)
        if digest != frame.digest:
            raise ContentError("its digest does not continue that of the entries before")
        return entries, Position(position.sequence + len(entries), row, frame.stamp, digest)

    def from_table(self, table: pa.Table, position: Position) -> tuple[list[Entry], Position]:
        """Return the entries of a table that begins at ``position``; numbers checked, chain not recomputed."""
        count = len(table)
        sequences = _integers(table, "sequence")
        stamps = _integers(table, "ingested_at")
        kinds = _objects(table, "kind")
        if count == 0 or not np.array_equal(sequences, np.arange(position.sequence, position.sequence + count)):
            raise ContentError(f"its rows are not numbered {position.sequence} to {position.sequence + count - 1}")
        if stamps[0] <= position.stamp or np.any(stamps[1:] < stamps[:-1]):
            raise ContentError("its stamps do not increase")
        rows = _optional_integers(table, "row_id")
        documents = (
            rows if kinds.count(DOCUMENT) == count else list(compress(rows, (kind == DOCUMENT for kind in kinds)))
        )
        if documents != list(range(position.row, position.row + len(documents))):
            raise ContentError("its row ids are not dense")
        columns: dict[str, list[Any]] = {
            "sequence": sequences.tolist(),
            "ingested_at": stamps.tolist(),
            "row_id": rows,
            "related_row": _optional_integers(table, "related_row"),
            "occurred_at": _optional_integers(table, "occurred_at"),
            "authors": _lists(table, "authors"),
            "tags": _lists(table, "tags"),
        }
        try:
            columns["kind"] = list(map(_KINDS.__getitem__, kinds))
        except KeyError as error:
            raise unknown_kind(str(error.args[0])) from error
        entries = entries_of([columns[name] if name in columns else _objects(table, name) for name in FIELDS], count)
        reached = Position(position.sequence + count, position.row + len(documents), int(stamps[-1]), position.digest)
        return entries, reached

    def digest_after(self, items: Sequence[Entry], digest: bytes) -> bytes:
        """Return the chain digest after these entries."""
        for entry in items:
            digest = chain(digest, canonical_bytes(entry))
        return digest

    def to_tables(self, items: Sequence[Entry]) -> Iterator[pa.Table]:
        """Yield tables of at most GROUP_ROWS entries and about GROUP_BYTES characters, but at least one entry."""
        start = size = 0
        for end, entry in enumerate(items):
            weight = 200 + sum(len(text) for text in (entry.text, entry.metadata, entry.payload) if text is not None)
            if end > start and (size + weight > GROUP_BYTES or end - start == GROUP_ROWS):
                yield _table(items[start:end])
                start, size = end, 0
            size += weight
        if start < len(items):
            yield _table(items[start:])

    def footer(self) -> dict[str, str]:
        """Nothing further."""
        return {}

    def check_footer(self, footer: dict[str, str]) -> None:
        """Nothing further."""


def _table(entries: Sequence[Entry]) -> pa.Table:
    arrays = [pa.array([getattr(entry, field.name) for entry in entries], type=field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _integers(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    column = table.column(name)
    if column.null_count:
        raise ContentError(f"the column {name} has gaps")
    return column.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def _optional_integers(table: pa.Table, name: str) -> list[Any]:
    column = table.column(name)
    if column.null_count == len(column):
        return [None] * len(column)
    values: list[Any] = column.cast(pa.int64()).fill_null(0).to_numpy().tolist()
    if column.null_count:
        for place in np.flatnonzero(column.is_null().to_numpy()).tolist():
            values[place] = None
    return values


def _objects(table: pa.Table, name: str) -> list[Any]:
    column = table.column(name)
    if column.null_count == len(column):
        return [None] * len(column)
    if name in EntryCodec.options.dictionary:
        values, places = _distinct(column)
        return list(map(values.__getitem__, places))
    # to_numpy makes the strings in C++, several times faster than to_pylist
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def _distinct(column: pa.ChunkedArray) -> tuple[list[Any], list[int]]:
    """Return the distinct strings of a column, and None, and the place of each item's value among them.

    What many entries share, an author or a thread, is then one object in memory.
    """
    encoded = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = encoded.chunk(0).dictionary.to_pylist() if encoded.num_chunks else []
    places: list[int] = []
    for chunk in encoded.chunks:
        places += chunk.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).tolist()
    return [*values, None], places


def _lists(table: pa.Table, name: str) -> list[tuple[str, ...]]:
    result: list[tuple[str, ...]] = []
    for chunk in table.column(name).chunks:
        flat = chunk.flatten()
        if not len(flat):
            result += [()] * len(chunk)
            continue
        values, places = _distinct(pa.chunked_array([flat]))
        alone = [(value,) for value in values]
        offsets = chunk.offsets.to_numpy()
        bounds = (offsets - offsets[0]).tolist() if len(offsets) else [0]
        result += [
            alone[places[start]] if end - start == 1 else tuple(values[place] for place in places[start:end])
            for start, end in pairwise(bounds)
        ]
    return result
