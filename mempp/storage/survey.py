"""Reading a log to its end, whatever state it is in: what is whole, and what is wrong where.

Following (``series.py``) stops at the first thing that does not fit. A survey goes on behind it: each further segment
is checked against its own footer, each further frame against its own checksums, until the chain can be taken up again.
``verify`` and ``rescue`` stand on it. It takes no lock, and reads a consistent prefix beside writers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mempp.errors import StoreVersionError
from mempp.storage import files, frames, segments
from mempp.storage.codec import ContentError
from mempp.storage.entries import DOCUMENT, Entry, Position, canonical_bytes, chain, parse_entry
from mempp.storage.entry_codec import EntryCodec
from mempp.storage.frames import Frame, decode_frame, find_frame
from mempp.storage.journal import journal_path, list_journals
from mempp.storage.layout import JOURNAL, LOG
from mempp.storage.segments import SegmentName, list_segments

_ATTEMPTS = 6
_FIRST_PAUSE = 0.001
_BEFORE_ALL_TIME = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: in which file (its path inside the store), what, and which part of the record it hits.

    Sequences and row ids are the first and the last of the range within which entries are lost or in doubt; None where
    that is not known, or where the log is not concerned.
    """

    file: str
    what: str
    first_sequence: int | None = None
    last_sequence: int | None = None
    first_row: int | None = None
    last_row: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth telling that is no damage."""

    file: str
    what: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole entries, one after another. ``digests`` are those after each; none where the chain is interrupted.

    ``row`` is the number of documents before the first, or None where that is not known.
    """

    file: str
    entries: list[Entry]
    row: int | None
    digests: list[bytes]
    end: Position | None = None


Found = Problem | Note | Piece


class Survey:
    """One walk over a log. ``rows`` and ``digest``, the best that is known of its end, hold after it."""

    def __init__(self, path: Path, codec: EntryCodec, start: Position) -> None:
        self._path = path
        self._codec = codec
        self.sequence = start.sequence
        self.position: Position | None = start  # what precedes ``sequence``; None behind damage that hides it
        self.rows = 0
        self.digest = start.digest
        self._open: list[Problem] = []  # problems whose last row what follows will tell
        self._row = 0
        self._used: set[SegmentName] = set()
        self._unreadable: set[SegmentName] = set()

    def walk(self) -> Iterator[Found]:
        """Yield everything found, in the order of the log.

        Raises:
            StoreVersionError: a part is of a newer format.
            OSError: a file cannot be read.
        """
        attempt = 0
        while True:
            reached = self.sequence
            try:
                found, ended = self._step(last_try=attempt == _ATTEMPTS)
            except FileNotFoundError:
                # Sealed or merged while we looked.
                if attempt == _ATTEMPTS:
                    raise
                found, ended = None, False
            if found is None:
                attempt = 0 if self.sequence > reached else attempt + 1
                time.sleep(_FIRST_PAUSE * 2**attempt)
                continue
            attempt = 0
            for one in found:
                yield from self._settle(one)
            if ended:
                break
        yield from self._open
        self._open = []
        yield from self._leftovers()

    def _settle(self, found: Found) -> Iterator[Found]:
        """Give problems the row before which what was lost must lie, as soon as something tells it."""
        if isinstance(found, Problem) and found.first_sequence is not None and found.first_row is None:
            self._open.append(replace(found, first_row=self._row))
            return
        if isinstance(found, Piece):
            row = found.row
            if row is not None and self._open:
                for problem in self._open:
                    some = row > self._row
                    yield replace(problem, first_row=self._row, last_row=row - 1) if some else _without_rows(problem)
                self._open = []
            known = found.end.row if found.end is not None else None
            last = next((one.row_id for one in reversed(found.entries) if one.kind == DOCUMENT), None)
            self._row = max(self._row, row or 0, known or 0, 0 if last is None else last + 1)
            self.rows = max(self.rows, self._row)
            if found.digests:
                self.digest = found.digests[-1]
            elif found.end is not None and found.end.digest:
                self.digest = found.end.digest
        yield found

    # --- one file at a time -----------------------------------------------------------------------------------

    def _step(self, *, last_try: bool) -> tuple[list[Found] | None, bool]:
        """Read the next file. None instead of findings: look again, a writer may just be changing things."""
        journals = list_journals(self._path / JOURNAL)
        names = [name for name in list_segments(self._path / LOG) if name not in self._unreadable]
        name = max((one for one in names if one.first <= self.sequence <= one.last), key=lambda n: n.last, default=None)
        if name is not None:
            return self._segment(name, [*names, *(SegmentName(first, first) for first in journals)]), False
        later = next((one.first for one in names if one.first > self.sequence), None)
        if self.sequence in journals and later is None:
            following = next((first for first in journals if first > self.sequence), None)
            return self._journal(self.sequence, following, last_try)
        later = later if later is not None else next((first for first in journals if first > self.sequence), None)
        if not last_try:
            return None, False
        missing = self.sequence
        if later is None:
            file = f"{JOURNAL}/{journal_path(Path(), missing).name}"
            return [Problem(file, f"the journal is missing, and with it all entries from {missing} on")], True
        self.sequence, self.position = later, None
        segment = f"{LOG}/{missing:020d}-{later - 1:020d}.parquet"
        return [Problem(segment, "the segment, or several that hold these entries, is missing", missing, later - 1)], (
            False
        )

    def _segment(self, name: SegmentName, others: list[SegmentName]) -> list[Found]:
        file = f"{LOG}/{name}"
        data, _ = files.read_from(self._path / LOG / str(name), 0)
        self._used.add(name)
        found, before, after = read_segment(self._codec, name, data, file)
        if before is None:
            return [self._skip(name, others, found[0])]
        skip = self.sequence - name.first
        if self.position is not None and isinstance(found[0], Piece):
            inside = found[0].digests[skip - 1 : skip] if skip else [before.digest]
            claimed = inside[0] if inside else None
            if claimed is not None and (claimed != self.position.digest or (not skip and before != self.position)):
                what = (
                    "it does not continue what precedes it: the chain is interrupted here. This segment, or what "
                    "precedes it, was replaced"
                )
                last_row = after.row - 1 if after is not None else before.row
                found.insert(0, Problem(file, what, name.first, name.last, before.row, max(before.row, last_row)))
        if skip:
            found = [_cut_front(one, skip) if isinstance(one, Piece) else one for one in found]
        self.sequence, self.position = name.last + 1, after
        return found

    def _skip(self, name: SegmentName, others: list[SegmentName], problem: Found) -> Problem:
        """Pass over a segment of which only the name is known, unless others hold its entries; nor may that be true."""
        assert isinstance(problem, Problem)
        self._unreadable.add(name)
        if any(one != name and one.first <= self.sequence <= one.last for one in others):
            return replace(problem, first_sequence=None, last_sequence=None)
        first = self.sequence
        beyond = (one.first for one in others if first < one.first <= name.last)
        self.sequence, self.position = min(beyond, default=name.last + 1), None
        return replace(problem, first_sequence=first, last_sequence=self.sequence - 1)

    def _journal(self, first: int, following: int | None, last_try: bool) -> tuple[list[Found] | None, bool]:
        path = journal_path(self._path / JOURNAL, first)
        data, _ = files.read_from(path, 0)
        reader = _JournalReader(self._codec, f"{JOURNAL}/{path.name}", data, self.sequence, self.position)
        found = reader.read(following)
        if following is not None and reader.sequence != following:
            # what is missing is told once: either as bytes that are unreadable, or as a journal that ends early
            if reader.sequence < following and not reader.ends_badly:
                what = f"it ends before entry {reader.sequence}, and the next journal begins with entry {following}"
                found.append(Problem(reader.file, f"it was cut short: {what}", reader.sequence, following - 1))
            elif reader.sequence > following:
                found.append(Problem(reader.file, f"it goes beyond {following}, with which the next journal begins"))
            reader.position = None
            reader.sequence = max(reader.sequence, following)
        if not last_try and any(isinstance(one, Problem) for one in found):
            return None, False
        self.sequence, self.position = reader.sequence, reader.position
        if following is not None and reader.sequence > following:
            return found, True
        return found, following is None

    def _leftovers(self) -> Iterator[Note]:
        end = 0
        for name in list_segments(self._path / LOG):
            end = max(end, name.last + 1)
            if name not in self._used and name.last < self.sequence:
                yield Note(f"{LOG}/{name}", "a left-over: a wider segment holds its entries")
        for first in list_journals(self._path / JOURNAL):
            if first < end:
                yield Note(f"{JOURNAL}/{first:020d}.journal", "a stale journal: segments hold its entries")
        for folder in (LOG, JOURNAL):
            for file in sorted(files.list_names(self._path / folder)):
                if file.endswith(segments.TEMPORARY_SUFFIX):
                    yield Note(f"{folder}/{file}", "a left-over of an interrupted write")
                elif ".torn-" in file:
                    yield Note(f"{folder}/{file}", "bytes of a torn end that a writer set aside")


def read_segment(
    codec: EntryCodec, name: SegmentName, data: bytes, file: str
) -> tuple[list[Found], Position | None, Position | None]:
    """Return what a segment holds, and the positions that its footer claims before and after it, if it is readable.

    The chain within it is recomputed. Of a segment with a damaged page the row groups that are whole are returned.
    Raises StoreVersionError.
    """
    try:
        parquet, before, after = segments.open_segment(codec, name, data)
    except StoreVersionError:
        raise
    except segments.UNREADABLE as error:
        return [Problem(file, _cause(data, error), name.first, name.last)], None, None
    try:
        items, reached = codec.from_table(parquet.read(), before)
        digests = _digests(items, before.digest)
        if (reached.sequence, reached.row, reached.stamp) != (after.sequence, after.row, after.stamp):
            raise ContentError("its last row is not the one that its footer tells")
        if digests[-1] != after.digest:
            raise ContentError("its content was altered: the chain over its entries does not lead to its digest")
        return [Piece(file, items, before.row, digests, after)], before, after
    except StoreVersionError:
        raise
    except segments.UNREADABLE as error:
        found = list(_row_groups(codec, parquet, before, after, file))
        if not any(isinstance(one, Problem) for one in found):
            found = [Problem(file, segments.one_line(error), before.sequence, after.sequence - 1)]
        # an empty piece tells the rows and the digest at its end
        found = [Piece(file, [], before.row, []), *found, Piece(file, [], after.row, [], after)]
        return found, before, after


def _row_groups(codec: EntryCodec, parquet: Any, before: Position, after: Position, file: str) -> Iterator[Found]:
    position: Position | None = before
    first = before.sequence
    for group in range(parquet.metadata.num_row_groups):
        last = first + parquet.metadata.row_group(group).num_rows - 1
        try:
            table = parquet.read_row_group(group)
            if len(table) != last - first + 1:
                raise ContentError("it holds another number of rows than it tells")
            start = position
            if start is None:
                rows = table.filter(table.column("kind").to_numpy(zero_copy_only=False) == DOCUMENT).column("row_id")
                row = rows[0].as_py() if len(rows) else before.row
                start = Position(first, row, _BEFORE_ALL_TIME, b"")
            items, reached = codec.from_table(table, start)
            digests = _digests(items, position.digest) if position is not None else []
            yield Piece(file, items, _first_row(items), digests)
            if position is not None:
                # the next group may go on with the same commit
                position = replace(reached, stamp=reached.stamp - 1, digest=digests[-1])
        except StoreVersionError:
            raise
        except segments.UNREADABLE as error:
            yield Problem(file, f"row group {group} is damaged: {segments.one_line(error)}", first, last)
            position = None
        first = last + 1


def _cause(data: bytes, error: BaseException) -> str:
    """Tell apart what may have happened to a segment that cannot be opened."""
    if not data:
        return "it is empty"
    if not data.strip(b"\0"):
        return "it holds nothing but zeros"
    if not data.startswith(b"PAR1"):
        return "it does not begin as a segment does: it was overwritten or replaced"
    if not data.endswith(b"PAR1"):
        return "its end is missing or overwritten: it was cut short"
    text = segments.one_line(error)
    if text.startswith("its footer tells the sequences"):
        return f"{text}: files were exchanged or renamed"
    return text


class _JournalReader:
    """Reads all whole frames of a journal, those behind bad ones too."""

    def __init__(self, codec: EntryCodec, file: str, data: bytes, sequence: int, position: Position | None) -> None:
        self.codec = codec
        self.file = file
        self.data = data
        self.sequence = sequence
        self.position = position
        self.ends_badly = False

    def read(self, following: int | None) -> list[Found]:
        """Return what is found; ``following`` is the first sequence of the next journal, None for the live one."""
        live = following is None
        data = self.data
        found: list[Found] = []
        place = 0
        while place < len(data):
            frame = self._decode(place)
            if frame is not None:
                found += self._frame(frame, place)
                place += frame.size
                continue
            resumes = find_frame(data, place + 1)
            if live and (resumes is None or find_frame(data, resumes, loose=False) is None):
                found.append(Note(self.file, self._torn(place, resumes)))
                break
            if resumes is None:
                self.ends_badly = True
                what = f"bytes {place} to {len(data)} are no whole commit, and commits of a later journal follow"
                assert following is not None
                found.append(Problem(self.file, what, self.sequence, max(self.sequence, following - 1)))
                self.position = None
                break
            whole = decode_frame(data, resumes)
            assert whole is not None
            last = max(self.sequence, whole.first_sequence - 1)
            what = f"bytes {place} to {resumes} are no whole commit, and a whole one follows"
            found.append(Problem(self.file, what, self.sequence, last))
            self.sequence, self.position = last + 1, None
            place = resumes
        return found

    def _decode(self, place: int) -> Frame | None:
        try:
            return decode_frame(self.data, place)
        except StoreVersionError as error:
            raise StoreVersionError(f"{self.file}: {error}") from error

    def _torn(self, place: int, resumes: int | None) -> str:
        rest = len(self.data) - place
        text = f"the last {rest} bytes, from byte {place} on, are no whole commit: torn, or being written"
        if resumes is not None:
            text += "; commits behind them were never made durable (sync='batch')"
        return text

    def _frame(self, frame: Frame, place: int) -> list[Found]:
        first, last = frame.first_sequence, frame.first_sequence + max(frame.count, 1) - 1
        at = f"the commit at byte {place}"
        if first < self.sequence:
            self.position = None
            return [
                Problem(self.file, f"{at} is out of order: it begins with entry {first}, and {self.sequence} is next")
            ]
        found: list[Found] = []
        if first > self.sequence:
            what = f"commits before byte {place} are missing: the one there begins with entry {first}"
            found.append(Problem(self.file, what, self.sequence, first - 1))
            self.position = None
        self.sequence = last + 1
        position, self.position = self.position, None
        try:
            if position is not None:
                entries, self.position = self.codec.from_frame(frame, position)
                digests = _digests_of_lines(frame.body, position.digest)
            else:
                entries, digests = parse_frame(frame), []
        except ContentError as error:
            return [*found, Problem(self.file, f"{at} does not fit: {error}", first, last)]
        row = _first_row(entries) if position is None else position.row
        if self.position is None and row is not None:
            rows = sum(entry.kind == DOCUMENT for entry in entries)
            self.position = Position(last + 1, row + rows, frame.stamp, frame.digest)
        piece_end = self.position or Position(last + 1, 0, frame.stamp, frame.digest)
        return [*found, Piece(self.file, entries, row, digests, piece_end)]


def parse_frame(frame: Frame) -> list[Entry]:
    """Return the entries of a frame of which it is not known what precedes it. Raises ContentError."""
    lines = frame.body.split(b"\n")
    if frame.content != frames.ENTRIES or len(lines) != frame.count:
        raise ContentError("it does not hold the entries that its header tells")
    entries = []
    row: int | None = None
    for sequence, line in enumerate(lines, frame.first_sequence):
        try:
            entry = parse_entry(line)
        except ValueError as error:
            raise ContentError(f"entry {sequence} is unreadable: {error}") from error
        if entry.sequence != sequence or entry.ingested_at != frame.stamp:
            raise ContentError(f"entry {sequence} carries another sequence or stamp than its frame")
        if entry.kind == DOCUMENT:
            if entry.row_id is None or (row is not None and entry.row_id != row + 1):
                raise ContentError(f"entry {sequence} carries a row id that does not fit")
            row = entry.row_id
        entries.append(entry)
    return entries


def _digests(entries: list[Entry], digest: bytes) -> list[bytes]:
    digests = []
    for entry in entries:
        digest = chain(digest, canonical_bytes(entry))
        digests.append(digest)
    return digests


def _digests_of_lines(body: bytes, digest: bytes) -> list[bytes]:
    digests = []
    for line in body.split(b"\n"):
        digest = chain(digest, line)
        digests.append(digest)
    return digests


def _first_row(entries: list[Entry]) -> int | None:
    return next((entry.row_id for entry in entries if entry.kind == DOCUMENT), None)


def _cut_front(piece: Piece, skip: int) -> Piece:
    skip = max(0, min(len(piece.entries), skip))
    entries = piece.entries[skip:]
    return replace(piece, entries=entries, digests=piece.digests[skip:], row=_first_row(entries))


def _without_rows(problem: Problem) -> Problem:
    return replace(problem, first_row=None, last_row=None)
