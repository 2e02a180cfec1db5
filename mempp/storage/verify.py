"""verify_store: proof that a record is whole and unaltered, or what is wrong where.

It reads everything: the chain is recomputed from every entry, numbers and stamps are checked, every page, frame and
footer against its checksum, vectors against the rows of the log. It takes no lock and writes nothing; beside writers
it judges the prefix that it found. Caches are not judged: they are derived, and checked by whoever reads them.

A chain cannot show that its end was cut off. For that, a digest kept elsewhere is given as ``expect``.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mempp.errors import InputError, NotAStoreError, StoreDamagedError
from mempp.storage import files, segments
from mempp.storage.entries import DOCUMENT, canonical_bytes, chain, start_position
from mempp.storage.entry_codec import EntryCodec
from mempp.storage.layout import JOURNAL, LOG, MANIFEST, VECTORS, read_manifest
from mempp.storage.memory_store import MemoryStore
from mempp.storage.segments import SegmentName, list_segments
from mempp.storage.survey import Note, Piece, Problem, Survey
from mempp.storage.verify_vectors import VectorFacts, check_vectors, survey_vectors

_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What ``verify_store`` found.

    Attributes:
        store_id: the store's id; empty when nothing tells it.
        entries: how many entries were found whole.
        rows: how many documents were found whole.
        commits: in how many commits they lie.
        head_digest: the chain digest after the last entry, 64 hex digits. Keep it elsewhere, to compare it later.
        problems: everything that is wrong; empty for a sound store.
        expected_at: the number of entries after which the chain had the expected digest; None if it never had, or none
            was given.
        notes: what is worth telling and no damage: a torn end, left-overs of a crash.
        vectors: how many vectors each encoder identity has.
    """

    store_id: str
    entries: int
    rows: int
    commits: int
    head_digest: str
    problems: tuple[Problem, ...]
    expected_at: int | None = None
    notes: tuple[str, ...] = ()
    vectors: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON, ``ok`` included."""
        return {"ok": self.ok, **asdict(self), "problems": [asdict(one) for one in self.problems]} | {
            "notes": list(self.notes)
        }


def verify_store(store: str | os.PathLike[str] | MemoryStore, *, expect: str | None = None) -> VerifyReport:
    """Check a whole store and report everything that is wrong with it.

    Args:
        store: the directory. Of a store in memory the chain over its entries is recomputed.
        expect: a digest that was kept elsewhere, 64 hex digits; the chain must have it somewhere, at its start, at its
            head or between. If it does not, its end was cut off or the store was replaced.

    Raises:
        InputError: ``expect`` is no digest.
        NotAStoreError: there is no store.
        StoreVersionError: it is of a newer format.
        StoreError: a file cannot be read.
    """
    if isinstance(expect, str):
        expect = expect.strip()  # a digest read from a file ends with a line feed
    if expect is not None and (not isinstance(expect, str) or not _DIGEST.fullmatch(expect)):
        raise InputError(f"{str(expect)[:80]!r} is no digest: give all of its 64 hexadecimal digits.")
    wanted = None if expect is None else bytes.fromhex(expect)
    if isinstance(store, MemoryStore):
        return _memory_report(store, wanted)
    path = Path(store)
    with files.translating_reads(f"cannot read the store {path}"):
        return _verify(path, wanted)


def store_id_of(path: Path) -> tuple[str, Problem | None]:
    """Return the id of the store at ``path``; from a segment, with the problem, when ``store.json`` does not tell it.

    The id is empty when nothing tells it. Raises NotAStoreError, StoreVersionError, OSError.
    """
    what = "it is missing"
    try:
        manifest = read_manifest(path)
        if manifest is not None:
            return manifest.store_id, None
    except StoreDamagedError as error:
        what = str(error)
    if not list_segments(path / LOG) and not files.list_names(path / JOURNAL):
        if what != "it is missing":
            return "", Problem(MANIFEST, what)
        raise NotAStoreError(f"there is no Mem++ store at {path}: it holds no {MANIFEST}. Check the path.")
    for name in list_segments(path / LOG):
        store_id = _footer_store_id(path / LOG, name)
        if store_id is not None:
            return store_id, Problem(MANIFEST, what)
    return "", Problem(MANIFEST, what)


def _footer_store_id(directory: Path, name: SegmentName) -> str | None:
    data, _ = files.read_from(directory / str(name), 0)
    try:
        store_id = segments.read_footer(data)["mempp.store"]
    except segments.UNREADABLE:
        return None
    return store_id if re.fullmatch(r"[0-9a-f]{32}", store_id) else None


def _verify(path: Path, wanted: bytes | None) -> VerifyReport:
    store_id, problem = store_id_of(path)
    problems = [] if problem is None else [problem]
    notes: list[Note] = []
    if not store_id:
        return VerifyReport("", 0, 0, 0, "", tuple(problems), notes=("nothing tells the id of the store",))
    # Vectors first: what they speak of is then in the log that is read after them.
    facts = _vectors(path, store_id, problems, notes)
    bindings = {binding.sequence: b"" for one in facts for binding in one.bindings}
    start = start_position(store_id)
    survey = Survey(path, EntryCodec(store_id), start)
    entries = rows = commits = 0
    stamp = -1
    expected_at = 0 if wanted == start.digest else None
    if 0 in bindings:
        bindings[0] = start.digest
    for found in survey.walk():
        if isinstance(found, Problem):
            problems.append(found)
        elif isinstance(found, Note):
            notes.append(found)
        elif isinstance(found, Piece):
            entries += len(found.entries)
            for entry in found.entries:
                rows += entry.kind == DOCUMENT
                commits += entry.ingested_at != stamp
                stamp = entry.ingested_at
            known = list(zip((entry.sequence + 1 for entry in found.entries), found.digests, strict=False))
            if not known and found.end is not None and found.end.digest:
                known = [(found.end.sequence, found.end.digest)]
            for number, digest in known:
                if digest == wanted and expected_at is None:
                    expected_at = number
                if number in bindings:
                    bindings[number] = digest
    for one in facts:
        check_vectors(one, bindings, survey.sequence, survey.rows, problems)
    if wanted is not None and expected_at is None:
        problems.append(
            Problem(
                "log",
                f"the chain never had the expected digest {wanted.hex()}: the end of the log was cut off, or entries "
                f"or the whole store were replaced",
            )
        )
    return VerifyReport(
        store_id,
        entries,
        rows,
        commits,
        survey.digest.hex(),
        tuple(problems),
        expected_at,
        tuple(f"{note.file}: {note.what}" for note in notes),
        {one.identity: one.count for one in facts},
    )


def _vectors(path: Path, store_id: str, problems: list[Problem], notes: list[Note]) -> list[VectorFacts]:
    facts = []
    for identity in sorted(files.list_names(path / VECTORS)):
        if not (path / VECTORS / identity).is_dir():
            notes.append(Note(f"{VECTORS}/{identity}", "not a file of this format"))
            continue
        one = survey_vectors(path, identity, store_id, problems, notes)
        if one is not None:
            facts.append(one)
    return facts


def _memory_report(store: MemoryStore, wanted: bytes | None) -> VerifyReport:
    """Recompute the chain over the entries that the store keeps; there are no files to check."""
    digest = start_position(store.store_id).digest
    expected_at = 0 if wanted == digest else None
    for number, entry in enumerate(store.entries, start=1):
        digest = chain(digest, canonical_bytes(entry))
        if wanted == digest:
            expected_at = number
    problems = []
    if digest.hex() != store.head_digest:
        problems.append(Problem("memory", f"its entries have the digest {digest.hex()}, not {store.head_digest}"))
    if wanted is not None and expected_at is None:
        problems.append(Problem("memory", f"the chain never had the digest {wanted.hex()}"))
    commits = len({entry.ingested_at for entry in store.entries})
    return VerifyReport(
        store.store_id,
        store.next_sequence,
        store.row_count,
        commits,
        store.head_digest,
        tuple(problems),
        expected_at,
        ("a store in memory has no files: the chain over its entries was recomputed, nothing else",),
    )
