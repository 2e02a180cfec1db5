"""compact_store: merge runs of small segments into larger ones with the same entries, so with the same chain.

No segment is changed. The merged one is made durable under its name before those that it covers are removed, and
readers take the widest segment that holds what they want next. So a crash at any step leaves a store that reads the
same; what it leaves behind, segments that a wider one covers, is removed by the next compaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mempp.errors import StoreDamagedError, StoreReadOnlyError
from mempp.storage import files, segments
from mempp.storage.codec import Codec, ContentError
from mempp.storage.disk import DiskStore
from mempp.storage.entries import Position
from mempp.storage.entry_codec import GROUP_BYTES, GROUP_ROWS, EntryCodec
from mempp.storage.layout import LOCK, LOG, VECTORS
from mempp.storage.lock import commit_lock
from mempp.storage.segments import SegmentName, covered, list_segments
from mempp.storage.vectors import VectorCodec, read_dimensions

SMALL_BYTES = 16 << 20
MERGED_BYTES = 128 << 20

_ENDLESS = Position(1 << 62, 1 << 62, 0, b"")


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What ``compact_store`` did: segments of the log and of all vectors, before and after, and their bytes on disk.

    ``removed`` counts the segments taken away: those that were merged, and left-overs of a compaction that crashed.
    """

    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    merged: int
    removed: int


def compact_store(
    store: DiskStore, *, small_bytes: int = SMALL_BYTES, merged_bytes: int = MERGED_BYTES
) -> CompactReport:
    """Merge runs of adjacent segments smaller than ``small_bytes``, up to ``merged_bytes`` each, under the commit lock.

    Sizes are those of the columns before compression. Readers of other processes go on undisturbed; writers wait. What
    is merged is checked first, the chain included. The store handed in neither reads nor loses anything by it.

    Raises:
        StoreDamagedError: a segment is damaged, with its name; what was merged before it stays so.
        StoreLockedError: others held the commit lock too long.
        StoreReadOnlyError, StoreWriteError: the system refused; the store is as whole as before.
    """
    if store.read_only:
        raise StoreReadOnlyError(f"{store.path} was opened with read_only=True. Open it without, to compact it.")
    deadline = time.monotonic() + store.lock_timeout
    with store._turn.take(store.lock_timeout):
        left = max(0.0, deadline - time.monotonic())
        with commit_lock(store.path / LOCK, left), files.translating_writes(f"cannot compact the store {store.path}"):
            folders = list(_folders(store))
            before = [_sizes(directory) for directory, _ in folders]
            merged = removed = 0
            for directory, codec in folders:
                for name in files.list_names(directory):
                    if name.endswith(segments.TEMPORARY_SUFFIX):
                        files.remove(directory / name)
                merged += _merge_runs(directory, codec, small_bytes, merged_bytes)
                removed += _remove_covered(directory, codec)
            after = [_sizes(directory) for directory, _ in folders]
    return CompactReport(
        sum(map(len, before)), sum(map(len, after)), sum(map(sum, before)), sum(map(sum, after)), merged, removed
    )


def _folders(store: DiskStore) -> Iterator[tuple[Path, Codec[Any]]]:
    yield store.path / LOG, EntryCodec(store.store_id)
    for identity in sorted(files.list_names(store.path / VECTORS)):
        folder = store.path / VECTORS / identity
        dimensions = read_dimensions(folder)
        if dimensions is not None:
            yield folder / "segments", VectorCodec(store.store_id, identity, dimensions, lambda: _ENDLESS)


def _sizes(directory: Path) -> list[int]:
    return [(directory / str(name)).stat().st_size for name in list_segments(directory)]


def _merge_runs(directory: Path, codec: Codec[Any], small_bytes: int, merged_bytes: int) -> int:
    """Merge what is to be merged; return how many segments were made."""
    names = list_segments(directory)
    passed_over = set(covered(names))
    run: list[SegmentName] = []
    size = made = 0
    for name in [*(name for name in names if name not in passed_over), None]:
        own = 0 if name is None else _uncompressed(directory, name)
        adjacent = name is not None and (not run or run[-1].last + 1 == name.first)
        if name is None or own >= small_bytes or not adjacent or size + own > merged_bytes:
            if len(run) > 1:
                _merge(directory, codec, run)
                made += 1
            run, size = [], 0
        if name is not None and own < small_bytes:
            run.append(name)
            size += own
    return made


def _uncompressed(directory: Path, name: SegmentName) -> int:
    with _blaming(directory, name):
        return segments.uncompressed_size(directory / str(name))


def _merge(directory: Path, codec: Codec[Any], names: Sequence[SegmentName]) -> None:
    footers = []
    for name in names:
        with _blaming(directory, name):
            footers.append(segments.read_footer(files.read_from(directory / str(name), 0)[0]))
    data = segments.encode_tables(codec, _merged_footer(footers), _groups(_tables(directory, codec, names)))
    merged = SegmentName(names[0].first, names[-1].last)
    segments.write_segment(directory, merged, data)


def _tables(directory: Path, codec: Codec[Any], names: Sequence[SegmentName]) -> Iterator[pa.Table]:
    """Yield the content of segments, each checked as a whole and against the one before it."""
    end: Position | None = None
    for name in names:
        data, _ = files.read_from(directory / str(name), 0)
        with _blaming(directory, name):
            table, before, after = _whole(codec, name, data)
            if end is not None and before != end:
                raise ContentError("it does not continue the segment before it")
        end = after
        yield table


def _whole(codec: Codec[Any], name: SegmentName, data: bytes) -> tuple[pa.Table, Position, Position]:
    """Return the table of a segment and the positions around it; pages, numbers and chain are checked."""
    parquet, before, after = segments.open_segment(codec, name, data)
    table = parquet.read()
    items, reached = codec.from_table(table, before)
    if (reached.sequence, reached.row, reached.stamp) != (after.sequence, after.row, after.stamp):
        raise ContentError("its last row is not the one that its footer tells")
    if codec.digest_after(items, before.digest) != after.digest:
        raise ContentError("its content was altered: the chain over its entries does not lead to its digest")
    return table.replace_schema_metadata(None), before, after


def _groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Join tables into row groups of about GROUP_ROWS rows or GROUP_BYTES bytes."""
    waiting: list[pa.Table] = []
    for table in tables:
        joined = [*waiting, table]
        if waiting and (sum(map(len, joined)) > GROUP_ROWS or sum(one.nbytes for one in joined) > GROUP_BYTES):
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
        waiting.append(table)
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _merged_footer(footers: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the key-values of the merged segment: the beginning of the first, the rest of the last."""
    first, last = footers[0], footers[-1]
    beginning = ("mempp.first_sequence", "mempp.first_row", "mempp.stamp_before", "mempp.digest_before")
    return {
        **{key: value for key, value in last.items() if key != "mempp.checksum"},
        **{key: first[key] for key in beginning},
        "mempp.rows": str(sum(int(footer["mempp.rows"]) for footer in footers)),
    }


def _remove_covered(directory: Path, codec: Codec[Any]) -> int:
    """Remove segments whose entries a wider one holds, once that is known to be whole and durable."""
    names = list_segments(directory)
    old = covered(names)
    if not old:
        return 0
    for wide in names:
        if wide not in old and any(wide.first <= name.last and name.first <= wide.last for name in old):
            data, _ = files.read_from(directory / str(wide), 0)
            with _blaming(directory, wide):
                _whole(codec, wide, data)
    # A crash may have come before the name of the wider one was durable.
    files.fsync_directory(directory)
    for name in old:
        files.remove(directory / str(name))
    files.fsync_directory(directory)
    return len(old)


@contextmanager
def _blaming(directory: Path, name: SegmentName) -> Iterator[None]:
    """Turn what the reading of a segment raises into StoreDamagedError."""
    try:
        yield
    except segments.UNREADABLE as error:
        if isinstance(error, MemoryError):
            raise
        raise StoreDamagedError(
            f"the segment {directory / str(name)} is damaged: {segments.one_line(error)}. It stays as it is. Restore "
            f"it from a snapshot."
        ) from error
