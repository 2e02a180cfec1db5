"""The vectors' part of verification: files, numbers and their bindings to the log.

Vectors are derived: a problem here costs no part of the record, and removing the directory is a cure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mempp.errors import StoreVersionError
from mempp.storage import files, segments
from mempp.storage.codec import ContentError
from mempp.storage.entries import Position
from mempp.storage.frames import decode_frame, find_frame
from mempp.storage.journal import journal_path, list_journals
from mempp.storage.layout import VECTORS
from mempp.storage.segments import SegmentName, list_segments
from mempp.storage.survey import Note, Problem
from mempp.storage.vectors import FORMAT, VectorBatch, VectorCodec, binding_of

_ATTEMPTS = 5
# A log so long that no vector lies beyond it: rows and bindings are checked against the real one afterwards.
_ENDLESS = Position(1 << 62, 1 << 62, 0, b"")
_CURE = "vectors are derived: remove the directory {}, and the rows are embedded again"


@dataclass(frozen=True, slots=True)
class Binding:
    """To which log a file or frame of vectors speaks: its digest after so many entries; and the highest row in it."""

    file: str
    sequence: int
    digest: bytes
    last_row: int


@dataclass(slots=True)
class VectorFacts:
    """What was found of one encoder's vectors."""

    identity: str
    dimensions: int
    count: int = 0
    bindings: list[Binding] = field(default_factory=list)


def survey_vectors(
    path: Path, identity: str, store_id: str, problems: list[Problem], notes: list[Note]
) -> VectorFacts | None:
    """Read all vectors of an encoder, adding what is wrong; None when their description is unreadable.

    Raises StoreVersionError, OSError.
    """
    folder = path / VECTORS / identity
    place = f"{VECTORS}/{identity}"
    names = files.list_names(folder)
    if "meta.json" not in names:
        if any(files.list_names(folder / part) for part in ("segments", "journal")):
            problems.append(Problem(f"{place}/meta.json", f"it is missing; {_CURE.format(place)}"))
        elif names:
            notes.append(Note(place, "vectors that were begun and never written"))
        return None
    dimensions = _read_meta(folder / "meta.json", place, identity, store_id, problems)
    if dimensions is None:
        return None
    facts = VectorFacts(identity, dimensions)
    codec = VectorCodec(store_id, identity, dimensions, lambda: _ENDLESS)
    # Beside a writer files vanish, and what was half written is whole a moment later.
    for attempt in range(_ATTEMPTS + 1):
        facts.count, facts.bindings = 0, []
        found: list[Problem | Note] = []
        try:
            _read_series(folder, place, codec, facts, found)
        except FileNotFoundError:
            if attempt == _ATTEMPTS:
                raise
            continue
        if not any(isinstance(one, Problem) for one in found):
            break
    problems += [one for one in found if isinstance(one, Problem)]
    notes += [one for one in found if isinstance(one, Note)]
    return facts


def check_vectors(
    facts: VectorFacts,
    digests: dict[int, bytes],
    sequence: int,
    rows: int,
    problems: list[Problem],
) -> None:
    """Hold vectors against the log: ``digests`` at the sequences they speak of, its length, its number of rows."""
    ahead = 0
    for binding in facts.bindings:
        if binding.sequence > sequence:
            ahead = max(ahead, binding.sequence)
            continue
        known = digests.get(binding.sequence)
        if known and known != binding.digest:
            what = f"its vectors were made for another log, or entries before {binding.sequence} were altered"
            problems.append(Problem(binding.file, what))
        elif binding.last_row >= rows:
            problems.append(
                Problem(binding.file, f"it holds a vector of row {binding.last_row}, and the log has {rows} rows")
            )
    if ahead:
        what = f"vectors speak of a log of {ahead} entries, and this one has {sequence}: its end was cut off"
        problems.append(Problem(f"{VECTORS}/{facts.identity}", what))


def _read_meta(path: Path, place: str, identity: str, store_id: str, problems: list[Problem]) -> int | None:
    data, _ = files.read_from(path, 0)
    try:
        meta = json.loads(data)
        version = int(meta["version"])
        if version > FORMAT:
            raise StoreVersionError(
                f"{path} is of format {version}, and this Mem++ reads {FORMAT}. Install a newer mempp."
            )
        dimensions = meta["dimensions"]
        if type(dimensions) is not int or dimensions < 1:
            raise ValueError(f"it tells {dimensions!r} dimensions")
        if meta["identity"] != identity:
            raise ValueError(f"it belongs to {str(meta['identity'])[:100]!r}")
        if meta["store_id"] != store_id:
            raise ValueError(f"it belongs to another store, {str(meta['store_id'])[:40]!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problems.append(Problem(f"{place}/meta.json", f"{segments.one_line(error)}; {_CURE.format(place)}"))
        return None
    return dimensions


def _read_series(folder: Path, place: str, codec: VectorCodec, facts: VectorFacts, found: list[Problem | Note]) -> None:
    sequence = 0
    known = True  # what precedes ``sequence`` is whole
    journals = list_journals(folder / "journal")
    names = list_segments(folder / "segments")
    while True:
        name = max((one for one in names if one.first <= sequence <= one.last), key=lambda n: n.last, default=None)
        if name is None:
            later = next((one for one in names if one.first > sequence), None)
            if later is None:
                break
            what = f"the segment with the vectors {sequence} to {later.first - 1} is missing; {_CURE.format(place)}"
            found.append(Problem(f"{place}/segments/{sequence:020d}-{later.first - 1:020d}.parquet", what))
            sequence = later.first
            continue
        _read_segment(folder, place, name, codec, facts, found)
        sequence = name.last + 1
    found += [
        Note(f"{place}/segments/{name}", "a left-over: a wider segment holds its vectors")
        for name in segments.covered(names)
    ]
    for first in journals:
        file = f"{place}/journal/{first:020d}.journal"
        if first < sequence:
            found.append(Note(file, "a stale journal: segments hold its vectors"))
            continue
        if first != sequence or not known:
            found.append(Problem(file, "it does not continue the vectors before it; the rows are embedded again"))
            continue
        data, _ = files.read_from(journal_path(folder / "journal", first), 0)
        sequence, whole = _read_journal(file, data, sequence, codec, facts, found, live=first == journals[-1])
        known = known and whole


def _read_segment(
    folder: Path, place: str, name: SegmentName, codec: VectorCodec, facts: VectorFacts, found: list[Problem | Note]
) -> None:
    file = f"{place}/segments/{name}"
    data, _ = files.read_from(folder / "segments" / str(name), 0)
    try:
        parquet, before, after = segments.open_segment(codec, name, data)
        batches, reached = codec.from_table(parquet.read(), before)
        if reached.sequence != after.sequence:
            raise ContentError("it holds another number of vectors than its name tells")
        footer = segments.read_footer(data)
        binding = int(footer["mempp.log_sequence"]), bytes.fromhex(footer["mempp.log_digest"])
        facts.bindings.append(Binding(file, *binding, _check(batches)))
        facts.count += len(batches[0])
    except segments.UNREADABLE as error:
        found.append(Problem(file, f"it is damaged: {segments.one_line(error)}; {_CURE.format(place)}"))


def _read_journal(
    file: str,
    data: bytes,
    sequence: int,
    codec: VectorCodec,
    facts: VectorFacts,
    found: list[Problem | Note],
    *,
    live: bool,
) -> tuple[int, bool]:
    place = 0
    while place < len(data):
        frame = decode_frame(data, place)
        if frame is None:
            rest = len(data) - place
            if live and find_frame(data, place + 1) is None:
                found.append(Note(file, f"its last {rest} bytes, from byte {place} on, are no whole frame; torn"))
            else:
                what = (
                    f"{rest} bytes from byte {place} on are unreadable or follow what is; the rows are embedded again"
                )
                found.append(Problem(file, what))
            return sequence, False
        try:
            batches, reached = codec.from_frame(frame, Position(sequence, 0, 0, bytes(32)))
            facts.bindings.append(Binding(file, *binding_of(frame), _check(batches)))
        except ContentError as error:
            found.append(Problem(file, f"the frame at byte {place} does not fit: {error}; the rows are embedded again"))
            return sequence, False
        facts.count += frame.count
        sequence = reached.sequence
        place += frame.size
    return sequence, True


def _check(batches: list[VectorBatch]) -> int:
    """Return the highest row; refuse numbers that are not finite."""
    if not all(np.isfinite(batch.vectors).all() for batch in batches):
        raise ContentError("a vector holds a number that is not finite")
    return max(int(batch.row_ids.max()) for batch in batches)
