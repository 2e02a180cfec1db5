"""``snapshot.json``: what a snapshot holds, and under which names.

A file of the store lies in a snapshot under its own path with the beginning of its SHA-256 before the suffix:
``log/<first>-<last>.<16 hex digits>.parquet``. So a new state never overwrites a file of the one before, and a snapshot
is never mistaken for a store. Only the paths that a store can have are known; there is no name that leaves a folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from mempp.errors import NotAStoreError, StoreDamagedError, StoreVersionError

FORMAT = 1
NAME = "snapshot.json"
NEW_NAME = "snapshot.json.new"

_KIND = "mempp-snapshot"
_SHORT = 16
_SEGMENT = r"[0-9]{20}-[0-9]{20}"
_IDENTITY = r"[a-z0-9_-][a-z0-9._-]{0,99}"
_PATHS = (
    r"(store)(\.json)",
    rf"(log/{_SEGMENT})(\.parquet)",
    r"(journal/[0-9]{20})(\.journal)",
    rf"(vectors/{_IDENTITY}/meta)(\.json)",
    rf"(vectors/{_IDENTITY}/segments/{_SEGMENT})(\.parquet)",
    rf"(vectors/{_IDENTITY}/journal/[0-9]{{20}})(\.journal)",
)
_PATH = tuple(re.compile(path) for path in _PATHS)
_STORED = tuple(re.compile(path.replace(r")(\.", rf")(\.[0-9a-f]{{{_SHORT}}})(\.")) for path in _PATHS)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STORE_ID = re.compile(r"[0-9a-f]{32}")
_KEYS = frozenset({"format", "version", "store_id", "entries", "rows", "last_stamp", "head_digest", "files", "digest"})


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file of the store: its path there (with ``/``), its size in bytes, its SHA-256 in hex digits."""

    path: str
    size: int
    sha256: str

    @property
    def stored_name(self) -> str:
        """Where it lies in the snapshot, relative to it."""
        stem, dot, suffix = self.path.rpartition(".")
        return f"{stem}.{self.sha256[:_SHORT]}{dot}{suffix}"


def file_of(path: str, data: bytes) -> SnapshotFile:
    """Describe a file of these bytes."""
    return SnapshotFile(path, len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """What a snapshot holds: a store up to the commit with stamp ``last_stamp`` (−1: none), and the files of that.

    ``files`` is in the order in which they make up the store: store.json, segments, journals, vectors.
    """

    store_id: str
    entries: int
    rows: int
    last_stamp: int
    head_digest: str
    files: tuple[SnapshotFile, ...]


def is_stored_name(name: str) -> bool:
    """Tell whether a relative name is one under which snapshots keep a file."""
    return any(pattern.fullmatch(name) for pattern in _STORED)


def is_identity(name: str) -> bool:
    """Tell whether a folder of vectors can have this name; others in its place are none of ours."""
    return re.fullmatch(_IDENTITY, name) is not None


def encode(manifest: SnapshotManifest) -> bytes:
    """Return the bytes of ``snapshot.json``: readable JSON, the same for the same state."""
    fields: dict[str, Any] = {
        "format": _KIND,
        "version": FORMAT,
        "store_id": manifest.store_id,
        "entries": manifest.entries,
        "rows": manifest.rows,
        "last_stamp": manifest.last_stamp,
        "head_digest": manifest.head_digest,
        "files": [{"path": file.path, "sha256": file.sha256, "size": file.size} for file in manifest.files],
    }
    fields["digest"] = hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode()


def decode(data: bytes, place: str) -> SnapshotManifest:
    """Return the manifest of the bytes of ``snapshot.json``; ``place`` names it in messages.

    Raises:
        NotAStoreError: it is the manifest of something else.
        StoreVersionError: a newer format.
        StoreDamagedError: it is not, byte for byte, what was written.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(place, f"it is unreadable ({str(error)[:200]})") from error
    if not isinstance(fields, dict) or fields.get("format") != _KIND:
        raise NotAStoreError(f"{place} does not tell the format {_KIND!r}: this is no snapshot of Mem++.")
    version = fields.get("version")
    if type(version) is int and version > FORMAT:
        raise StoreVersionError(
            f"{place} is of snapshot format {version}, and this version of Mem++ knows formats up to {FORMAT}. Install "
            f"a newer mempp."
        )
    if version != FORMAT or fields.keys() != _KEYS:
        raise _damaged(place, "its fields are not those of format 1")
    try:
        manifest = SnapshotManifest(
            _text(fields["store_id"], _STORE_ID),
            _number(fields["entries"]),
            _number(fields["rows"]),
            _number(fields["last_stamp"], least=-1),
            _text(fields["head_digest"], _SHA256),
            tuple(_file(each) for each in fields["files"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(place, f"it holds {error}") from error
    # Stronger than its digest alone: no other bytes, such as a key given twice, pass for this content.
    if encode(manifest) != data:
        raise _damaged(place, "it does not match its digest")
    paths = [file.path for file in manifest.files]
    if len(set(paths)) != len(paths):
        raise _damaged(place, "it lists a file twice")
    return manifest


def _file(fields: dict[str, Any]) -> SnapshotFile:
    path = fields["path"]
    if not isinstance(path, str) or not any(pattern.fullmatch(path) for pattern in _PATH):
        raise ValueError(f"{str(path)[:120]!r}, which is no file of a store")
    return SnapshotFile(path, _number(fields["size"]), _text(fields["sha256"], _SHA256))


def _number(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value < 1 << 63:
        raise ValueError(f"{str(value)[:60]!r} where a number belongs")
    return value


def _text(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{str(value)[:80]!r} where hexadecimal digits belong")
    return value


def _damaged(place: str, what: str) -> StoreDamagedError:
    return StoreDamagedError(f"the manifest {place} is damaged: {what}. Use another snapshot.")
