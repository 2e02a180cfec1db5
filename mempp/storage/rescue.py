"""Reading what is whole of a damaged store: every whole entry, with the sequence and row id it had.

Row ids stay dense: a document entry with an empty text stands for each row whose document is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from mempp.errors import StoreDamagedError, StoreReadOnlyError
from mempp.storage import files
from mempp.storage.entries import DOCUMENT, Entry, Position, start_position
from mempp.storage.entry_codec import EntryCodec
from mempp.storage.layout import LOG, MANIFEST, Manifest, read_manifest
from mempp.storage.segments import covered, list_segments
from mempp.storage.survey import Piece, Problem, Survey, read_segment
from mempp.storage.vectors import VectorBatch


class DamageWarning(RuntimeWarning):
    """A damaged store was read with ``allow_damaged``; parts of the record, or vectors, are missing."""


@dataclass(frozen=True, slots=True)
class Rescued:
    """What is whole. ``entries`` are in order, placeholders for ``lost_rows`` among them; ``lost`` counts entries."""

    entries: list[Entry]
    lost: int
    lost_rows: frozenset[int]
    position: Position
    problems: tuple[Problem, ...]

    def describe(self, path: Path) -> str:
        """Return the text of the warning."""
        names = list(dict.fromkeys(one.file for one in self.problems))
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        rows = sorted(self.lost_rows)
        which = f" ({', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''})" if rows else ""
        return (
            f"the store {path} is damaged and is read in part: {self.lost} entries that are known of are lost, among "
            f"them {len(rows)} rows{which}; the end may lack more. Damaged: {shown}. Restore it from a snapshot."
        )


class NoVectors:
    """Stands for vectors whose description is damaged."""

    def refresh(self) -> list[VectorBatch]:
        """Return nothing."""
        return []

    def append(self, batch: VectorBatch) -> None:
        """Refuse, with StoreReadOnlyError."""
        raise StoreReadOnlyError("a damaged store is open for reading only.")


def rescue_manifest(path: Path) -> Manifest:
    """Return the manifest, or what can be known of it when it is missing or damaged.

    Raises:
        NotAStoreError, StoreVersionError: as ``read_manifest``.
        StoreDamagedError: nothing tells the store's id.
        StoreError: a file cannot be read.
    """
    from mempp.storage.verify import store_id_of

    with files.translating_reads(f"cannot read the store {path}"):
        store_id, problem = store_id_of(path)
        if not store_id:
            raise StoreDamagedError(f"{path / MANIFEST} is unreadable, and no segment tells the id of the store.")
        manifest = read_manifest(path) if problem is None else None
    return manifest or Manifest(store_id, 0)


def rescue_log(path: Path, store_id: str) -> Rescued:
    """Survey the log of a store and return everything in it that is whole.

    Raises:
        StoreVersionError: a part is of a newer format.
        OSError: a file cannot be read.
    """
    codec = EntryCodec(store_id)
    start = start_position(store_id)
    survey = Survey(path, codec, start)
    whole: dict[int, Entry] = {}
    problems: list[Problem] = []
    for found in survey.walk():
        if isinstance(found, Problem):
            problems.append(found)
        elif isinstance(found, Piece):
            for entry in found.entries:
                whole.setdefault(entry.sequence, entry)
    if problems:
        for entry in _covered(path, codec):
            whole.setdefault(entry.sequence, entry)
    end = max(survey.sequence, max(whole, default=-1) + 1)
    entries, lost_rows, row = _fill(whole, end, survey.rows)
    stamp = entries[-1].ingested_at if entries else -1
    lost = end - (len(entries) - len(lost_rows))
    return Rescued(entries, lost, lost_rows, Position(end, row, stamp, survey.digest), tuple(problems))


def _covered(path: Path, codec: EntryCodec) -> Iterable[Entry]:
    """Entries of segments that a wider one covers: a compaction that was interrupted may have left them."""
    for name in covered(list_segments(path / LOG)):
        data, _ = files.read_from(path / LOG / str(name), 0)
        for found in read_segment(codec, name, data, str(name))[0]:
            if isinstance(found, Piece):
                yield from found.entries


def _fill(whole: dict[int, Entry], end: int, rows: int) -> tuple[list[Entry], frozenset[int], int]:
    """Order the entries and put placeholders where documents are missing, so that row ids are dense.

    A placeholder takes the place of a lost entry behind the last whole document before it. An entry whose row cannot
    fit in this way is lost too. Returns the entries, the lost rows and the number of rows.
    """
    kept: list[Entry] = []
    lost_rows: set[int] = set()
    free: list[range] = []  # lost sequences behind the last document
    row = 0

    def place(up_to: int) -> bool:
        nonlocal row
        if not 0 <= up_to - row <= sum(map(len, free)):
            return False
        while row < up_to:
            kept.append(Entry(DOCUMENT, sequence=free[0][0], row_id=row, text=""))
            free[0] = free[0][1:]
            if not free[0]:
                free.pop(0)
            lost_rows.add(row)
            row += 1
        return True

    following = 0
    for sequence in sorted(whole):
        entry = whole[sequence]
        if sequence > following:
            free.append(range(following, sequence))
        following = sequence + 1
        spoken_of = [one for one in (entry.row_id, entry.related_row) if one is not None]
        if entry.kind == DOCUMENT:
            assert entry.row_id is not None
            if not place(entry.row_id):
                free.append(range(sequence, sequence + 1))
                continue
            row += 1
            free = []
        elif spoken_of and not place(max(row, max(spoken_of) + 1)):
            free.append(range(sequence, sequence + 1))
            continue
        kept.append(entry)
    if end > following:
        free.append(range(following, end))
    place(min(max(row, rows), row + sum(map(len, free))))
    kept.sort(key=lambda entry: entry.sequence)
    # The stamps of what is lost are lost too; that of the entry before keeps the order.
    stamp = min((entry.ingested_at for entry in whole.values()), default=0)
    for place_in_log, entry in enumerate(kept):
        if entry.kind == DOCUMENT and entry.row_id in lost_rows:
            kept[place_in_log] = replace(entry, ingested_at=stamp)
        else:
            stamp = entry.ingested_at
    return kept, frozenset(lost_rows), row
