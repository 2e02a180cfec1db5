"""Segments: sealed, immutable Parquet files, named by their first and last sequence.

Reading verifies every page's CRC-32, that name, footer and rows agree, and that the segment continues what was read
before. It does not recompute the hash chain, except over the part of a segment that is read from its middle.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mempp.errors import StoreDamagedError, StoreVersionError
from mempp.storage import files
from mempp.storage.codec import Codec, ContentError, Item
from mempp.storage.entries import Position
from mempp.storage.read_ahead import Loaded

FORMAT = 1
TEMPORARY_SUFFIX = ".tmp"
UNREADABLE = (ContentError, pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError)
"""What the reading of a damaged segment raises. ``MemoryError`` may be one of them, and is no damage."""

_NAME = re.compile(r"(\d{20})-(\d{20})\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """First and last sequence of a segment, as its file name tells them."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first:020d}-{self.last:020d}.parquet"


def list_segments(directory: Path) -> list[SegmentName]:
    """Return the segments in a directory, in order of their first sequence."""
    matches = (_NAME.fullmatch(name) for name in files.list_names(directory))
    return sorted(SegmentName(int(match[1]), int(match[2])) for match in matches if match)


def covered(names: Sequence[SegmentName]) -> list[SegmentName]:
    """Return the segments whose items all lie in a wider one: left-overs of a merge, which readers pass over."""
    result = []
    widest: SegmentName | None = None
    for name in sorted(names, key=lambda name: (name.first, -name.last)):
        if widest is not None and name.last <= widest.last:
            result.append(name)
        else:
            widest = name
    return result


def encode_segment(codec: Codec[Item], items: Sequence[Item], before: Position, after: Position) -> bytes:
    """Return the Parquet bytes of a segment that leads from ``before`` to ``after``."""
    footer = {
        "mempp.format": str(FORMAT),
        "mempp.content": codec.content,
        "mempp.store": codec.store_id,
        "mempp.first_sequence": str(before.sequence),
        "mempp.last_sequence": str(after.sequence - 1),
        "mempp.first_row": str(before.row),
        "mempp.rows": str(after.row - before.row),
        "mempp.stamp_before": str(before.stamp),
        "mempp.last_stamp": str(after.stamp),
        "mempp.digest_before": before.digest.hex(),
        "mempp.digest_after": after.digest.hex(),
        **codec.footer(),
    }
    return encode_tables(codec, footer, codec.to_tables(items))


def encode_tables(codec: Codec[Any], footer: dict[str, str], tables: Iterable[pa.Table]) -> bytes:
    """Return the Parquet bytes of a segment with these key-values (the checksum is added) and row groups."""
    footer = {**footer, "mempp.checksum": _checksum(footer)}
    options = codec.options
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        codec.schema.with_metadata(footer),
        compression="zstd",
        use_dictionary=list(options.dictionary),
        column_encoding=options.encodings or None,
        write_statistics=list(options.statistics),
        write_page_checksum=True,
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, len(table)))
    return bytes(memoryview(sink.getvalue()))


def write_segment(directory: Path, name: SegmentName, data: bytes) -> None:
    """Put a segment in place: temporary file, fsync, rename, fsync of the directory. Raises OSError."""
    temporary = directory / (str(name) + TEMPORARY_SUFFIX)
    try:
        files.write_durable(temporary, data)
        files.rename(temporary, directory / str(name))
    except OSError:
        # The space it takes may be what is missing. What a crash leaves is overwritten: the next try has its name.
        if temporary.exists():
            files.remove(temporary)
        raise
    files.fsync_directory(directory)


def read_segment(
    codec: Codec[Item], directory: Path, name: SegmentName, position: Position, loaded: Loaded | None = None
) -> tuple[list[Item], Position]:
    """Return the items of a segment from ``position`` on, and the position after its last.

    ``loaded`` is what was read ahead of the file, if that was done.

    Raises:
        FileNotFoundError: it vanished since it was listed.
        NotYetError: it speaks of log entries that this process has not read yet.
        StoreDamagedError: its bytes are altered, or it does not continue ``position``.
        StoreVersionError: it is of a newer format.
    """
    path = directory / str(name)
    data, table = loaded if loaded is not None else (files.read_from(path, 0)[0], None)
    return decode_segment(codec, path, name, data, position, table)


def decode_segment(
    codec: Codec[Item], path: Path, name: SegmentName, data: bytes, position: Position, table: pa.Table | None = None
) -> tuple[list[Item], Position]:
    """Do the same with bytes that were read from ``path``. Raises as ``read_segment``, but not FileNotFoundError.

    ``table`` holds all columns of these bytes, if they were decoded already.
    """
    try:
        return _decode(codec, name, data, position, table)
    except StoreVersionError as error:
        raise StoreVersionError(f"{path}: {error}") from error
    except UNREADABLE as error:
        if isinstance(error, MemoryError):
            raise
        raise StoreDamagedError(
            f"the segment {path} is damaged: {one_line(error)}. Restore it from a snapshot."
        ) from error


def _decode(
    codec: Codec[Item], name: SegmentName, data: bytes, position: Position, decoded: pa.Table | None
) -> tuple[list[Item], Position]:
    parquet, before, after = open_segment(codec, name, data)
    metadata = parquet.metadata
    whole = position.sequence == before.sequence
    if whole and position != before:
        raise ContentError(_difference(before, position))
    if decoded is not None:
        table = decoded.slice(position.sequence - before.sequence)
    else:
        groups, skip = _groups_from(metadata, position.sequence - before.sequence)
        table = parquet.read_row_groups(groups).slice(skip)
    items, reached = codec.from_table(table, position)
    if (reached.sequence, reached.row, reached.stamp) != (after.sequence, after.row, after.stamp):
        raise ContentError("its last row is not the one that its footer tells")
    if not whole and codec.digest_after(items, position.digest) != after.digest:
        raise ContentError("its digest does not continue that of the entries before")
    return items, after


def read_footer(data: bytes) -> dict[str, str]:
    """Return the key-values of a segment, unchecked. Raises one of ``UNREADABLE``."""
    raw = pq.read_metadata(pa.BufferReader(data)).metadata or {}
    return {key.decode(): value.decode() for key, value in raw.items() if key.startswith(b"mempp.")}


def open_segment(codec: Codec[Any], name: SegmentName, data: bytes) -> tuple[Any, Position, Position]:
    """Return the ``ParquetFile`` of a segment and the positions before and after it, from its checked footer.

    Raises one of ``UNREADABLE``, NotYetError, or StoreVersionError.
    """
    parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    metadata = parquet.metadata
    before, after = _check_footer(codec, name, metadata.metadata or {})
    if not parquet.schema_arrow.equals(codec.schema, check_metadata=False):
        raise ContentError("its columns are not those of format 1")
    if metadata.num_rows != after.sequence - before.sequence:
        raise ContentError(f"it holds {metadata.num_rows} rows, and its name tells {after.sequence - before.sequence}")
    return parquet, before, after


def uncompressed_size(path: Path) -> int:
    """Return the bytes of a segment's columns before compression. Raises one of ``UNREADABLE``."""
    metadata = pq.read_metadata(path)
    return sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))


def _groups_from(metadata: Any, start: int) -> tuple[list[int], int]:
    """Return the row groups that hold the rows from ``start`` on, and how many rows of the first to skip."""
    passed = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if passed + rows > start:
            return list(range(group, metadata.num_row_groups)), start - passed
        passed += rows
    raise ContentError("its row groups hold fewer rows than its name tells")


def _check_footer(codec: Codec[Item], name: SegmentName, raw: dict[bytes, bytes]) -> tuple[Position, Position]:
    footer = {key.decode(): value.decode() for key, value in raw.items() if key.startswith(b"mempp.")}
    checksum = footer.pop("mempp.checksum", None)
    version = footer["mempp.format"]
    if version != str(FORMAT):
        if version.isdecimal() and int(version) > FORMAT:
            raise StoreVersionError(f"it is of format {version}, and this Mem++ reads {FORMAT}. Install a newer mempp.")
        raise ContentError(f"its footer tells the format {version[:20]!r}")
    if checksum != _checksum(footer):
        raise ContentError("its footer does not match its checksum")
    if footer["mempp.store"] != codec.store_id:
        raise ContentError(f"it belongs to another store, {footer['mempp.store'][:40]!r}; this one is {codec.store_id}")
    if footer["mempp.content"] != codec.content:
        raise ContentError(f"it holds {footer['mempp.content'][:40]!r} where {codec.content!r} belong")
    first, last = int(footer["mempp.first_sequence"]), int(footer["mempp.last_sequence"])
    if (first, last) != (name.first, name.last):
        raise ContentError(f"its footer tells the sequences {first} to {last}")
    codec.check_footer(footer)
    first_row, rows = int(footer["mempp.first_row"]), int(footer["mempp.rows"])
    return (
        Position(first, first_row, int(footer["mempp.stamp_before"]), bytes.fromhex(footer["mempp.digest_before"])),
        Position(
            last + 1, first_row + rows, int(footer["mempp.last_stamp"]), bytes.fromhex(footer["mempp.digest_after"])
        ),
    )


def _checksum(footer: dict[str, str]) -> str:
    """Return the CRC-32 of the key-values: so the file that is altered is blamed, not the one that follows it."""
    return f"{zlib.crc32(json.dumps(footer, sort_keys=True, separators=(',', ':')).encode()):08x}"


def _difference(before: Position, position: Position) -> str:
    if before.digest != position.digest:
        return (
            f"its digest before the first entry is {before.digest.hex()}, and the entries before it end with "
            f"{position.digest.hex()}"
        )
    return f"it begins at row {before.row} and stamp {before.stamp}, not {position.row} and {position.stamp}"


def one_line(error: BaseException) -> str:
    """Return what an error says, in one line of sane length."""
    text = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()).rstrip(".")[:300] or type(error).__name__
