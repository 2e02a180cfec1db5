"""Entries of the log, their canonical bytes, and the hash chain over them.

    d_0 = SHA-256("mempp log 1\\n" ‖ store id, 32 ASCII characters)
    d_n = SHA-256(d_{n-1} ‖ canonical bytes of entry n)

Entry n is the one with sequence n - 1: the digest is named after the number of entries before it. ``prepare`` is the
only way by which entries get their numbers; both stores use it.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from mempp.errors import InputError, RowNotFoundError, StoreVersionError, StoreWriteError, quoted

DOCUMENT = "document"
SUPERSEDE = "supersede"
ARCHIVE = "archive"
RETRACT = "retract"
REINSTATE = "reinstate"
ANNOTATE = "annotate"
ENCODER = "encoder"

KINDS = (DOCUMENT, SUPERSEDE, ARCHIVE, RETRACT, REINSTATE, ANNOTATE, ENCODER)

DIGEST_DOMAIN = b"mempp log 1\n"
LATEST_STAMP = 253_402_300_799_000_000  # the last second of the year 9999; later ones no date can show
MAX_ENTRY_BYTES = 1 << 30  # a Parquet page cannot pass 2 GiB

_INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in the log. ``append`` gives it its sequence, its stamp and, if a document, its row id.

    Times are microseconds since 1970 UTC. ``metadata`` and ``payload`` are JSON text, kept as given.
    """

    kind: str
    sequence: int = -1
    ingested_at: int = -1
    row_id: int | None = None
    related_row: int | None = None
    text: str | None = None
    occurred_at: int | None = None
    authors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source: str | None = None
    thread: str | None = None
    document_kind: str | None = None
    metadata: str | None = None
    reason: str | None = None
    label: str | None = None
    payload: str | None = None


FIELDS = tuple(Entry.__dataclass_fields__)
_SETTERS = tuple(Entry.__dict__[name].__set__ for name in FIELDS)
_INTEGERS = frozenset({"sequence", "ingested_at", "row_id", "related_row", "occurred_at"})
_LISTS = frozenset({"authors", "tags"})

# kind → (fields it must have, fields it may have), besides kind, sequence and ingested_at
_SHAPE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    DOCUMENT: (
        ("text",),
        ("row_id", "occurred_at", "authors", "tags", "source", "thread", "document_kind", "metadata"),
    ),
    SUPERSEDE: (("row_id", "related_row"), ("reason",)),
    ARCHIVE: (("row_id",), ("related_row", "reason")),
    RETRACT: (("row_id",), ("reason",)),
    REINSTATE: (("row_id",), ("reason",)),
    ANNOTATE: (("row_id", "label"), ("text", "payload")),
    ENCODER: (("payload",), ()),
}
_NUMBERING = frozenset({"kind", "sequence", "ingested_at"})
_FOREIGN = {
    kind: tuple(name for name in FIELDS if name not in {*_NUMBERING, *must, *may})
    for kind, (must, may) in _SHAPE.items()
}


def entries_of(columns: Sequence[Iterable[Any]], count: int) -> list[Entry]:
    """Return the entries of columns, one for each of ``FIELDS``, all of this length.

    As ``Entry(…)`` makes them, column by column: half the time that it takes to call it for each.
    """
    entries = list(map(object.__new__, repeat(Entry, count)))
    for put, column in zip(_SETTERS, columns, strict=True):
        deque(map(put, entries, column), maxlen=0)
    return entries


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two entries: how many entries and documents precede it, the last stamp, the chain digest."""

    sequence: int
    row: int
    stamp: int
    digest: bytes


def start_position(store_id: str) -> Position:
    """Return the position before the first entry of a store."""
    return Position(0, 0, -1, hashlib.sha256(DIGEST_DOMAIN + store_id.encode("ascii")).digest())


def canonical_bytes(entry: Entry) -> bytes:
    r"""Return the bytes of an entry that the log keeps and the chain hashes.

    JSON in UTF-8: keys sorted, no spaces, absent fields (None, an empty list) left out, and in strings only ``"``,
    ``\`` and the characters below U+0020 escaped. It holds no line feed.

    Raises:
        UnicodeEncodeError: a lone surrogate in one of the strings.
    """
    fields: dict[str, Any] = {}
    for name in FIELDS:
        value = getattr(entry, name)
        if value is not None and value != ():
            fields[name] = value
    return json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8")


def parse_entry(data: bytes) -> Entry:
    """Return the entry of canonical bytes.

    Raises:
        StoreVersionError: a kind or a field that this version does not know.
        ValueError: not the canonical bytes of an entry.
    """
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    kind = fields.get("kind")
    if isinstance(kind, str) and kind not in _SHAPE:
        raise unknown_kind(kind)
    for name, value in fields.items():
        if name in _LISTS:
            if not isinstance(value, list) or not all(type(item) is str for item in value):
                raise ValueError(f"{name} is no list of strings")
            fields[name] = tuple(value)
        elif name not in FIELDS:
            raise StoreVersionError(f"the store holds the unknown entry field {name!r}. Install a newer mempp.")
        elif type(value) is not (int if name in _INTEGERS else str):
            raise ValueError(f"{name} has the wrong type")
    if "kind" not in fields or "sequence" not in fields or "ingested_at" not in fields:
        raise ValueError("it lacks kind, sequence or ingested_at")
    return Entry(**fields)


def unknown_kind(kind: str) -> StoreVersionError:
    """Return the error for an entry kind of a newer version."""
    return StoreVersionError(f"the store holds an entry of the unknown kind {kind[:60]!r}. Install a newer mempp.")


def chain(digest: bytes, data: bytes) -> bytes:
    """Return the digest after the entry with these canonical bytes."""
    link = hashlib.sha256(digest)
    link.update(data)
    return link.digest()


def digest_of(store_id: str, entries: Sequence[Entry]) -> bytes:
    """Return the digest of the chain after the first entries of a store."""
    digest = start_position(store_id).digest
    for entry in entries:
        digest = chain(digest, canonical_bytes(entry))
    return digest


def prepare(entries: Sequence[Entry], position: Position, now: int) -> tuple[list[Entry], list[bytes], Position]:
    """Number, stamp and check the entries of one commit.

    Returns the entries, their canonical bytes and the position after them. The stamp is ``now`` (microseconds), or one
    more than the last stamp when the clock has not moved on. Rows spoken of must precede the entry that speaks of them.

    Raises:
        InputError: an entry that cannot be stored; none of them is.
    """
    stamp = max(now, position.stamp + 1)
    if stamp > LATEST_STAMP:
        raise StoreWriteError(
            f"the clock says {now} microseconds since 1970, beyond the year 9999; nothing was written. Set it."
        )
    row, digest = position.row, position.digest
    numbered: list[Entry] = []
    bodies: list[bytes] = []
    for offset, given in enumerate(entries):
        _validate(given, row)
        is_document = given.kind == DOCUMENT
        entry = replace(
            given,
            sequence=position.sequence + offset,
            ingested_at=stamp,
            row_id=row if is_document else given.row_id,
            authors=tuple(given.authors),
            tags=tuple(given.tags),
        )
        try:
            data = canonical_bytes(entry)
        except UnicodeEncodeError as error:
            raise InputError(
                f"{_surrogate_field(entry)} of a {entry.kind} entry holds a lone surrogate "
                f"({error.object[error.start]!r}), which is no character. Decode the text with errors='replace', or "
                f"remove it."
            ) from error
        if len(data) > MAX_ENTRY_BYTES:
            raise InputError(f"an entry of {len(data):,} bytes is too large; the limit is {MAX_ENTRY_BYTES:,}. Cut it.")
        digest = chain(digest, data)
        row += is_document
        numbered.append(entry)
        bodies.append(data)
    return numbered, bodies, Position(position.sequence + len(numbered), row, stamp, digest)


def _validate(entry: Entry, row: int) -> None:
    shape = _SHAPE.get(entry.kind) if isinstance(entry.kind, str) else None
    if shape is None:
        raise InputError(f"{entry.kind!r} is no kind of entry. The kinds are {', '.join(KINDS)}.")
    for name in shape[0]:
        if getattr(entry, name) is None:
            raise InputError(f"a {entry.kind} entry needs {name}.")
    for name in _FOREIGN[entry.kind]:
        if getattr(entry, name) not in (None, ()):
            raise InputError(f"a {entry.kind} entry carries no {name}; it was given {quoted(getattr(entry, name))}.")
    for name in FIELDS:
        value = getattr(entry, name)
        if value is None:
            continue
        if name in _INTEGERS:
            if type(value) is not int or not -_INT64 <= value < _INT64:
                raise InputError(f"{name} must be an integer of 64 bits; it is {quoted(value)}.")
        elif name in _LISTS:
            if not isinstance(value, (tuple, list)) or not all(isinstance(item, str) for item in value):
                raise InputError(f"{name} must be a tuple of strings; it is {quoted(value)}.")
        elif not isinstance(value, str):
            raise InputError(f"{name} must be a string; it is {quoted(value)}.")
    if entry.kind == DOCUMENT:
        if entry.row_id not in (None, row):
            raise InputError(f"a document gets its row id from the store: {row}, not {entry.row_id}. Leave it out.")
    else:
        for spoken_of in (entry.row_id, entry.related_row):
            if spoken_of is not None and not 0 <= spoken_of < row:
                raise RowNotFoundError(f"a {entry.kind} entry speaks of row {spoken_of}; the store holds {row} rows.")
    if entry.metadata is not None and not isinstance(_parse_json("metadata", entry.metadata), dict):
        raise InputError(f"metadata must be the JSON text of an object; it is {quoted(entry.metadata)}.")
    if entry.payload is not None:
        _parse_json("payload", entry.payload)


def _parse_json(name: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} must be JSON text; it is {quoted(text)} ({error}).") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _surrogate_field(entry: Entry) -> str:
    for name in FIELDS:
        value = getattr(entry, name)
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str):
                try:
                    text.encode("utf-8")
                except UnicodeEncodeError:
                    return name
    return "a field"
