"""What a store holds at one commit, while readers and writers go on.

``capture`` takes the lists of files and the bytes of the unsealed journals: nothing else can change. ``survey`` then
reads the segments, which never do, checks what was not checked before, and tells which files make up the store at that
commit. What was sealed or compacted away meanwhile raises UnsettledError: capture again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mempp.errors import NotAStoreError, StoreDamagedError
from mempp.storage import files
from mempp.storage.codec import Codec, ContentError, NotYetError
from mempp.storage.entries import Position, start_position
from mempp.storage.entry_codec import EntryCodec
from mempp.storage.journal import journal_path, list_journals, parse_journal
from mempp.storage.layout import JOURNAL, LOG, MANIFEST, VECTORS, read_manifest
from mempp.storage.segments import SegmentName, decode_segment, list_segments
from mempp.storage.snapshots.manifest import SnapshotFile, SnapshotManifest, file_of, is_identity
from mempp.storage.snapshots.places import read_file
from mempp.storage.vectors import VectorCodec, VectorFolder

_LOOKS = 3


class UnsettledError(StoreDamagedError):
    """Damage, unless a writer is just changing the files: worth another look, when the lock was not held."""


class VanishedError(UnsettledError):
    """A segment was compacted away since the files were listed: worth another look in any case."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one series: the names of its segments, and its journals' bytes by their first sequence."""

    segments: list[SegmentName]
    journals: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class Captured:
    """What was there at one moment. ``vectors`` has the bytes of meta.json and the files, by identity."""

    root: Path
    store_id: str
    manifest: bytes
    log: Files
    vectors: dict[str, tuple[bytes, Files]]


def capture(root: Path, *, derived: bool) -> Captured:
    """Take what may change of the store in ``root``. It needs no lock: what does not fit shows in ``survey``.

    The vectors are taken before the log, so that they do not speak of entries that it lacks.

    Raises:
        NotAStoreError, StoreVersionError, StoreDamagedError: no usable store is there.
        StoreError: a file cannot be read.
    """
    with files.translating_reads(f"cannot read the store {root}"):
        manifest = read_manifest(root)
        if manifest is None:
            raise NotAStoreError(f"there is no Mem++ store at {root}: {MANIFEST} is missing.")
        vectors: dict[str, tuple[bytes, Files]] = {}
        for identity in sorted(files.list_names(root / VECTORS)) if derived else []:
            directory = root / VECTORS / identity
            if is_identity(identity) and (directory / "meta.json").is_file():
                meta = read_file(directory / "meta.json")
                vectors[identity] = (meta, _files(directory / "segments", directory / "journal"))
        log = _files(root / LOG, root / JOURNAL)
        return Captured(root, manifest.store_id, read_file(root / MANIFEST), log, vectors)


def _files(segments_directory: Path, journal_directory: Path) -> Files:
    """Take journals, then segments; again when one was sealed in between and the next journal is not yet among them."""
    for _ in range(_LOOKS):
        journals = {}
        for first in list_journals(journal_directory):
            try:
                journals[first] = read_file(journal_path(journal_directory, first))
            except FileNotFoundError:
                continue  # a segment, listed below, has what it held
        segments = list_segments(segments_directory)
        reached = 0
        for name in segments:
            if name.first <= reached:
                reached = max(reached, name.last + 1)
        if reached in journals:
            break
    return Files(segments, journals)


@dataclass(frozen=True, slots=True)
class Source:
    """A file to be copied: what it is, and its bytes, or for a segment the path that has them."""

    file: SnapshotFile
    data: bytes | None
    path: Path

    def read(self) -> bytes:
        """Return the bytes. Raises UnsettledError when they are no longer those that were surveyed, StoreError."""
        if self.data is not None:
            return self.data
        data = _read(self.path)
        if file_of(self.file.path, data) != self.file:
            raise UnsettledError(f"{self.path} changed while it was copied. Check the disk.")
        return data


@dataclass(slots=True)
class Survey:
    """The files of a store at one commit, in order, and what they hold.

    ``known`` are files of an earlier snapshot: they were checked then, and are only compared by size and SHA-256.
    ``digest_at`` the chain had after ``asked`` entries; None when it is not that long.
    """

    captured: Captured
    known: Mapping[str, SnapshotFile]
    asked: int
    sources: list[Source] = field(default_factory=list)
    digest_at: bytes | None = None
    end: Position = field(init=False)

    def __post_init__(self) -> None:
        self.end = start_position(self.captured.store_id)

    @property
    def manifest(self) -> SnapshotManifest:
        """What a snapshot of it tells."""
        end = self.end
        listed = tuple(source.file for source in self.sources)
        return SnapshotManifest(self.captured.store_id, end.sequence, end.row, end.stamp, end.digest.hex(), listed)

    def add(self, path: str, data: bytes, *, keep: bool) -> SnapshotFile:
        """Take a file in."""
        file = file_of(path, data)
        self.sources.append(Source(file, data if keep else None, self.captured.root / path))
        return file


def survey(captured: Captured, known: Mapping[str, SnapshotFile] | None = None, asked: int = 0) -> Survey:
    """Read and check what was captured: the hash chain over every entry, all pages, vectors against rows.

    Raises:
        UnsettledError: something is missing or does not fit; capture again, a few times, then it is damage.
        StoreDamagedError, StoreVersionError, StoreError: a file is damaged, newer, unreadable.
    """
    result = Survey(captured, known or {}, asked)
    result.add(MANIFEST, captured.manifest, keep=True)
    codec = EntryCodec(captured.store_id)
    position = _segments(result, codec, captured.log, LOG, result.end)
    result.end = _log_journals(result, codec, position)
    for identity, (meta, series) in captured.vectors.items():
        folder = f"{VECTORS}/{identity}"
        vector_codec = VectorCodec(captured.store_id, identity, _dimensions(meta), lambda: result.end)
        VectorFolder(captured.root / folder, vector_codec)  # refuses a meta.json that does not fit
        result.add(f"{folder}/meta.json", meta, keep=True)
        start = Position(0, 0, 0, bytes(32))
        reached = _segments(result, vector_codec, series, f"{folder}/segments", start)
        _vector_journals(result, vector_codec, series, f"{folder}/{JOURNAL}", reached)
    return result


def _segments(result: Survey, codec: Codec[Any], series: Files, folder: str, position: Position) -> Position:
    """Follow the segments as a reader does: of those that hold the next item, the one that leads furthest."""
    while True:
        sequence = position.sequence
        holding = [name for name in series.segments if name.first <= sequence <= name.last]
        if not holding:
            break
        name = max(holding, key=lambda each: each.last)
        source = result.captured.root / folder / str(name)
        data = _read(source)
        file = result.add(f"{folder}/{name}", data, keep=False)
        whole = name.first == sequence and not (folder == LOG and name.first < result.asked <= name.last)
        if whole and result.known.get(file.path) == file:
            position = _pass_over(source, data, name, position)
        else:
            position = _check_segment(result, codec, source, name, data, position)
    later = [name for name in series.segments if name.first > position.sequence]
    if later:
        raise UnsettledError(
            f"the segment that begins at {position.sequence} is missing from {result.captured.root / folder}: the next "
            f"one is {later[0]}."
        )
    return position


def _check_segment(
    result: Survey, codec: Codec[Any], path: Path, name: SegmentName, data: bytes, before: Position
) -> Position:
    try:
        items, after = decode_segment(codec, path, name, data, before)
    except NotYetError as error:
        raise UnsettledError(f"the segment {path} speaks of entries that the log does not hold.") from error
    digest = codec.digest_after(items, before.digest)
    if digest != after.digest:
        raise StoreDamagedError(
            f"the segment {path} is damaged: the chain over its entries ends with {digest.hex()}, and its footer tells "
            f"{after.digest.hex()}. Restore it from a snapshot."
        )
    _note(result, codec, items, before, after)
    return after


def _note(result: Survey, codec: Codec[Any], items: list[Any], before: Position, after: Position) -> None:
    """Remember the digest at the place that was asked for, when it is among these entries."""
    if codec.content == EntryCodec.content and before.sequence <= result.asked <= after.sequence:
        result.digest_at = codec.digest_after(items[: result.asked - before.sequence], before.digest)


def _pass_over(path: Path, data: bytes, name: SegmentName, before: Position) -> Position:
    """Return where a segment leads that was checked for an earlier snapshot, as its footer tells."""
    try:
        footer = pq.read_metadata(pa.BufferReader(data)).metadata
        row = int(footer[b"mempp.first_row"])
        begins = Position(
            name.first, row, int(footer[b"mempp.stamp_before"]), bytes.fromhex(footer[b"mempp.digest_before"].decode())
        )
        ends = Position(
            name.last + 1,
            row + int(footer[b"mempp.rows"]),
            int(footer[b"mempp.last_stamp"]),
            bytes.fromhex(footer[b"mempp.digest_after"].decode()),
        )
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise StoreDamagedError(f"the segment {path} is damaged: its footer is unreadable.") from error
    if begins != before:
        raise StoreDamagedError(f"the segment {path} does not continue what is before it. Restore it from a snapshot.")
    return ends


def _log_journals(result: Survey, codec: EntryCodec, position: Position) -> Position:
    """Follow the journals from where the segments end to the last whole commit of the live one."""
    journals = result.captured.log.journals
    while True:
        first = position.sequence
        path = journal_path(result.captured.root / JOURNAL, first)
        if first not in journals:
            raise UnsettledError(f"the journal {path} is missing: the entries from sequence {first} on are nowhere.")
        data = journals[first]
        reading = parse_journal(path, data, 0, len(data))
        try:
            for frame in reading.frames:
                before = position
                items, position = codec.from_frame(frame, before)
                _note(result, codec, items, before, position)
        except (ContentError, RecursionError) as error:
            raise UnsettledError(f"the journal {path} is damaged: {error}.") from error
        is_live = not any(other > first for other in journals)
        if reading.resumes_at is not None or (reading.rest and not is_live):
            raise UnsettledError(f"the journal {path} is damaged at byte {reading.size - reading.rest}.")
        result.add(f"{JOURNAL}/{path.name}", data[: len(data) - reading.rest], keep=True)
        if is_live:
            if first == position.sequence == result.asked:
                result.digest_at = position.digest
            return position
        if position.sequence == first:
            raise UnsettledError(f"the journal {path} is damaged: it is empty, and another one follows it.")


def _vector_journals(result: Survey, codec: VectorCodec, series: Files, folder: str, position: Position) -> None:
    """Take whole frames of rows that the log holds; the first that is not one ends the vectors."""
    while position.sequence in series.journals:
        first = position.sequence
        path = journal_path(result.captured.root / folder, first)
        data = series.journals[first]
        reading = parse_journal(path, data, 0, len(data))
        whole = 0
        try:
            for frame in reading.frames:
                _, position = codec.from_frame(frame, position)
                whole += frame.size
        except (ContentError, NotYetError):
            pass
        result.add(f"{folder}/{path.name}", data[:whole], keep=True)
        if whole < len(data) or position.sequence == first:
            return


def _dimensions(meta: bytes) -> int:
    """Return what meta.json tells; 1 when it is unreadable, which is noticed when it is checked."""
    try:
        dimensions = json.loads(meta)["dimensions"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 1
    return dimensions if type(dimensions) is int and 0 < dimensions < 1 << 20 else 1


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError as error:
        raise VanishedError(f"{path} vanished. Restore the store from a snapshot.") from error
