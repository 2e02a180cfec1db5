"""``store.json`` and the folders: what makes a directory a store."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mempp.errors import NotAStoreError, StoreDamagedError, StoreVersionError
from mempp.storage import files
from mempp.storage.journal import journal_path
from mempp.storage.lock import commit_lock

FORMAT = 1
MANIFEST = "store.json"
LOCK = "lock"
LOG = "log"
JOURNAL = "journal"
VECTORS = "vectors"

_TEMPORARY = MANIFEST + ".tmp"
# What an interrupted creation may leave behind.
_LEFTOVERS = frozenset({LOCK, LOG, JOURNAL, _TEMPORARY})


@dataclass(frozen=True, slots=True)
class Manifest:
    """What ``store.json`` tells: the store's id (uuid4, 32 hex digits) and when it was made, in microseconds."""

    store_id: str
    created_at: int


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of ``store.json``."""
    fields: dict[str, Any] = {
        "created_at": manifest.created_at,
        "format": "mempp",
        "store_id": manifest.store_id,
        "version": FORMAT,
    }
    fields["checksum"] = _checksum(fields)
    return (json.dumps(fields, sort_keys=True) + "\n").encode()


def read_manifest(path: Path) -> Manifest | None:
    """Return what ``store.json`` in the directory ``path`` tells; None when there is no such file.

    Raises:
        NotAStoreError: ``path`` is no directory, or its ``store.json`` is that of something else.
        StoreVersionError: it is of a newer format.
        StoreDamagedError: it is unreadable.
    """
    place = path / MANIFEST
    try:
        data, _ = files.read_from(place, 0)
    except FileNotFoundError:
        return None
    except (NotADirectoryError, IsADirectoryError) as error:
        raise NotAStoreError(
            f"{path} is no Mem++ store. A store is a directory with a file {MANIFEST} in it."
        ) from error
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise StoreDamagedError(f"{place} is unreadable ({error}). Restore it from a snapshot.") from error
    if not isinstance(fields, dict) or fields.get("format") != "mempp":
        raise NotAStoreError(f"{path} is no Mem++ store: its {MANIFEST} does not tell the format 'mempp'.")
    version = fields.get("version")
    if type(version) is int and version > FORMAT:
        raise StoreVersionError(
            f"{path} is a store of format {version}, and this version of Mem++ knows formats up to {FORMAT}. Install a "
            f"newer mempp."
        )
    checksum = fields.pop("checksum", None)
    if version != FORMAT or checksum != _checksum(fields):
        raise StoreDamagedError(f"{place} does not match its checksum. Restore it from a snapshot.")
    return Manifest(str(fields["store_id"]), int(fields["created_at"]))


def open_or_create(path: Path, *, create: bool, lock_timeout: float) -> Manifest:
    """Return the manifest of the store at ``path``; make the store when there is none and ``create`` is True.

    Two processes that create at once end in one store. Raises as ``read_manifest``, and NotAStoreError when the
    directory holds other things, StoreLockedError, StoreReadOnlyError, StoreWriteError.
    """
    with files.translating_reads(f"cannot read the store {path}"):
        manifest = read_manifest(path)
        if manifest is not None:
            return manifest
        names = _names(path)
    if not create:
        raise NotAStoreError(
            f"{path} is no Mem++ store: there is no {MANIFEST} in it."
            if path.exists()
            else f"there is no Mem++ store at {path}: the path does not exist. Check the path."
        )
    others = sorted(set(names) - _LEFTOVERS)
    if MANIFEST in others:  # another process made the store between the two looks
        return open_or_create(path, create=create, lock_timeout=lock_timeout)
    if others:
        _refuse(path, f"it holds {', '.join(repr(name) for name in others[:3])}")
    with files.translating_writes(f"cannot create the store {path}"):
        files.make_directory(path)
    with commit_lock(path / LOCK, lock_timeout):
        with files.translating_reads(f"cannot read the store {path}"):
            manifest = read_manifest(path)
            if manifest is not None:
                return manifest
            _check_leftovers(path)
        with files.translating_writes(f"cannot create the store {path}"):
            return _create(path)


def _create(path: Path) -> Manifest:
    """Make folders and the first journal durable, then the manifest: the store is there when it is."""
    manifest = Manifest(uuid.uuid4().hex, time.time_ns() // 1000)
    files.make_directory(path / LOG)
    files.make_directory(path / JOURNAL)
    files.write_durable(journal_path(path / JOURNAL, 0), b"")
    files.fsync_directory(path / JOURNAL)
    files.write_durable(path / _TEMPORARY, encode_manifest(manifest))
    files.fsync_directory(path)
    files.rename(path / _TEMPORARY, path / MANIFEST)
    make_name_durable(path)
    return manifest


def make_name_durable(path: Path) -> None:
    """Make the names of ``store.json`` and of the store's directory durable. Raises OSError."""
    files.fsync_directory(path)
    # A parent that this user may pass through but not open cannot be synced by this user.
    with contextlib.suppress(PermissionError):
        files.fsync_directory(path.absolute().parent)


def _names(path: Path) -> list[str]:
    try:
        return files.list_names(path)
    except NotADirectoryError as error:
        raise NotAStoreError(f"{path} is no Mem++ store: it is a file, and a store is a directory.") from error


def _check_leftovers(path: Path) -> None:
    """Let pass what an interrupted creation leaves; refuse anything that holds data."""
    log = _names(path / LOG)
    journal = _names(path / JOURNAL)
    first = journal_path(path / JOURNAL, 0)
    if any(name.endswith((".parquet", ".journal")) and name != first.name for name in log + journal) or (
        first.exists() and first.stat().st_size
    ):
        raise StoreDamagedError(
            f"{path} holds the log of a store, but its {MANIFEST} is missing. Restore it from a snapshot."
        )
    if log or set(journal) - {first.name}:
        _refuse(path, f"its folders {LOG} and {JOURNAL} hold other files")


def _refuse(path: Path, what: str) -> None:
    raise NotAStoreError(
        f"{path} is no Mem++ store: there is no {MANIFEST} in it, and {what}. Name an empty or a new directory."
    )


def _checksum(fields: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True, separators=(',', ':')).encode()):08x}"
