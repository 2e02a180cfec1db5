"""write_snapshot: a consistent copy of a store at one commit, into a directory or a tar file."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from mempp.errors import InputError, NotAStoreError, StoreDamagedError, StoreError, StoreWriteError
from mempp.storage import files
from mempp.storage.disk import DiskStore
from mempp.storage.layout import LOCK
from mempp.storage.lock import commit_lock
from mempp.storage.snapshots import archive
from mempp.storage.snapshots import manifest as manifests
from mempp.storage.snapshots.capture import Captured, Source, Survey, UnsettledError, VanishedError, capture, survey
from mempp.storage.snapshots.manifest import SnapshotManifest
from mempp.storage.snapshots.places import (
    Folder,
    LocalFolder,
    Location,
    appearing,
    check_not_working_directory,
    load_manifest,
    locate,
    open_stream,
    translating_remote,
)

_ATTEMPTS = 8
_ATTEMPTS_WITHOUT_LOCK = 5
_FIRST_PAUSE = 0.001
_logger = logging.getLogger("mempp.storage")


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """What a snapshot holds, and what was done for it. ``bytes_copied`` are those of the files copied.

    ``repaired`` names files (as stored) of the snapshot that was there before which were missing or altered, and were
    copied again.
    """

    target: str
    store_id: str
    entries: int
    rows: int
    head_digest: str
    files_copied: int
    files_present: int
    bytes_copied: int
    repaired: tuple[str, ...] = ()


def write_snapshot(
    store: DiskStore, target: str | os.PathLike[str], *, filesystem: Any = None, derived: bool = True
) -> SnapshotReport:
    """Copy a store, as it stands at one commit, while others read and write it.

    It reads as any reader does, without the commit lock. Only if files change faster than they can be listed, several
    times over, it takes the lock, while it reads the lists of files and the unsealed journals; not even then when the
    store was opened, or lies, for reading only. What is copied is checked, the hash chain over every entry included.

    Args:
        store: the store; it need not have read everything, and it is not refreshed.
        target: a new or empty directory; a directory with an earlier snapshot of this store, to which only what is new
            is copied; or a file whose name ends in ``.tar`` and that does not exist. A path, or a URI that pyarrow or
            fsspec knows.
        filesystem: a filesystem of pyarrow.fs or of fsspec; ``target`` is then a path on it.
        derived: vectors as well; without them a restored store embeds its rows again.

    Raises:
        InputError: the target is no path, leads to no filesystem, or lies within the store.
        NotAStoreError: the target holds something that is no snapshot.
        StoreError: the target is a snapshot of another store or of a later or another state of this one; or a file
            cannot be read.
        StoreDamagedError: the store or the earlier snapshot's manifest is damaged.
        StoreVersionError: either is of a newer format.
        StoreLockedError: a writer held the commit lock too long, or another process the snapshot.
        StoreReadOnlyError, StoreWriteError: the target cannot be written; an earlier snapshot there is still whole.
    """
    location = locate(target, filesystem)
    if location.path is not None and location.path.is_relative_to(os.path.realpath(store.path)):
        raise InputError(f"the snapshot {location.place} would lie within the store {store.path}. Name another place.")
    if location.is_archive:
        return _write_archive(store, location, derived)
    return _write_directory(store, location, derived)


# --- the source ---------------------------------------------------------------------------------------------------


def _locked(store: DiskStore) -> AbstractContextManager[None] | None:
    """Return the commit lock, or None where there can be no writer that would heed it."""
    if store.read_only or not os.access(store.path, os.W_OK):
        return None
    return commit_lock(store.path / LOCK, store.lock_timeout)


def _settling(store: DiskStore, derived: bool, attempt: Callable[[Captured], SnapshotReport]) -> SnapshotReport:
    """Capture and go on with that; again, a few times, when files were sealed or compacted away meanwhile."""
    for number in range(_ATTEMPTS):
        # Writers that commit without a pause would starve whoever waits for the lock; so it comes last.
        lock = _locked(store) if number >= _ATTEMPTS_WITHOUT_LOCK else None
        with lock or nullcontext():
            captured = capture(store.path, derived=derived)
        try:
            return attempt(captured)
        except UnsettledError as error:
            problem = error
            if lock is not None and not isinstance(error, VanishedError):
                break
            time.sleep(_FIRST_PAUSE * 2**number)
    raise StoreDamagedError(f"the store {store.path} cannot be copied: {problem} Run `mempp verify`.") from problem


# --- a directory --------------------------------------------------------------------------------------------------


def _write_directory(store: DiskStore, location: Location, derived: bool) -> SnapshotReport:
    folder = location.folder()
    earlier = _earlier(location, folder, store)
    if earlier is None and location.path is not None:
        with appearing(location.path, "the snapshot") as sibling:
            return _settling(store, derived, lambda captured: _fill(captured, LocalFolder(sibling), None, location))
    if earlier is None:
        return _settling(store, derived, lambda captured: _fill(captured, folder, None, location))
    lock = nullcontext() if location.path is None else commit_lock(location.path / LOCK, store.lock_timeout)
    with lock:
        # Another process may have taken one while the lock was waited for.
        earlier = _earlier(location, folder, store)
        return _settling(store, derived, lambda captured: _fill(captured, folder, earlier, location))


def _earlier(location: Location, folder: Folder, store: DiskStore) -> SnapshotManifest | None:
    """Return the manifest of the snapshot that is there; None when nothing is. Refuse anything else."""
    if _is_file(location):
        raise NotAStoreError(f"{location.place} is a file. Name a directory, or a new file that ends in .tar.")
    earlier = load_manifest(folder)
    if earlier is None:
        names = sorted(folder.sizes())
        if location.path is not None and location.path.is_dir():
            names = names or sorted(os.listdir(location.path))
        if names:
            unfinished = all(manifests.is_stored_name(name) or name == manifests.NEW_NAME for name in names)
            raise NotAStoreError(
                f"{location.place} holds {'an unfinished snapshot' if unfinished else 'no snapshot'}: there is no "
                f"{manifests.NAME}, and it is not empty ({names[0]!r}). Name a new directory"
                f"{', or remove what is there' if unfinished else ''}."
            )
    elif earlier.store_id != store.store_id:
        raise StoreError(
            f"{location.place} is a snapshot of another store, {earlier.store_id}; this one is {store.store_id}. Name "
            f"another directory."
        )
    return earlier


def _fill(captured: Captured, folder: Folder, earlier: SnapshotManifest | None, location: Location) -> SnapshotReport:
    """Bring a folder to what was captured: new files, then the manifest, then away with what is superseded."""
    known = {file.path: file for file in earlier.files} if earlier is not None else {}
    surveyed = survey(captured, known, 0 if earlier is None else earlier.entries)
    _check_continues(surveyed, earlier, location.place)
    copied = present = size = 0
    repaired = []
    for source in surveyed.sources:
        file = source.file
        expected = known.get(file.path) == file
        if expected and folder.holds(file.stored_name, file.size, file.sha256):
            present += 1
            continue
        folder.write(file.stored_name, source.read())
        copied += 1
        size += file.size
        if expected:
            repaired.append(file.stored_name)
            _logger.warning("%s of the snapshot %s was missing or altered; copied again", file.path, location.place)
    manifest = surveyed.manifest
    folder.publish(manifests.encode(manifest))
    _remove_superseded(folder, manifest)
    return _report(manifest, location, copied, present, size, tuple(repaired))


def _check_continues(surveyed: Survey, earlier: SnapshotManifest | None, place: str) -> None:
    if earlier is None:
        return
    if surveyed.digest_at is None:
        raise StoreError(
            f"the snapshot {place} is ahead of the store: it holds {earlier.entries} entries, the store "
            f"{surveyed.end.sequence}. To keep both, name another directory; to go back to the snapshot, restore it."
        )
    if surveyed.digest_at.hex() != earlier.head_digest:
        raise StoreError(
            f"the store does not continue the snapshot {place}: after {earlier.entries} entries its digest is "
            f"{surveyed.digest_at.hex()}, the snapshot's {earlier.head_digest}. They went different ways after a "
            f"restore or a copy. Name another directory."
        )


def _remove_superseded(folder: Folder, manifest: SnapshotManifest) -> None:
    """Remove what only the snapshot before needed, and what interrupted ones left. Other people's files stay."""
    needed = {file.stored_name for file in manifest.files}
    superseded = [
        name
        for name in sorted(folder.sizes())
        if name not in needed
        and (
            manifests.is_stored_name(name.removesuffix(".tmp")) or name in (manifests.NEW_NAME, manifests.NAME + ".tmp")
        )
    ]
    if superseded:
        folder.remove(superseded)


# --- an archive ---------------------------------------------------------------------------------------------------


def _write_archive(store: DiskStore, location: Location, derived: bool) -> SnapshotReport:
    if _exists(location):
        raise NotAStoreError(
            f"{location.place} exists already, and a tar file is written once. Name another, or remove it."
        )
    if location.path is not None:
        with appearing(location.path, "the snapshot") as sibling:
            return _settling(store, derived, lambda captured: _pack(captured, _local_file(sibling), location))
    return _settling(store, derived, lambda captured: _pack(captured, _remote_file(location), location))


def _pack(captured: Captured, output: Any, location: Location) -> SnapshotReport:
    """Write the archive: the files in their order, the manifest, the end."""
    surveyed = survey(captured)
    manifest = surveyed.manifest
    with output as write:
        written = 0
        for name, data in _members(surveyed.sources, manifest):
            part = archive.header(name, len(data)) + data + archive.padding(len(data))
            write(part)
            written += len(part)
        write(archive.end(written))
    return _report(manifest, location, len(manifest.files), 0, sum(file.size for file in manifest.files), ())


def _members(sources: list[Source], manifest: SnapshotManifest) -> Iterator[tuple[str, bytes]]:
    for source in sources:
        yield source.file.stored_name, source.read()
    yield manifests.NAME, manifests.encode(manifest)


@contextmanager
def _local_file(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Write a new file on the local disk; it is durable at the end. Raises OSError."""
    descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    offset = 0

    def write(data: bytes) -> None:
        nonlocal offset
        rest = memoryview(data)
        while rest:
            taken = files.write(descriptor, rest, offset)
            rest = rest[taken:]
            offset += taken

    try:
        yield write
        files.sync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _remote_file(location: Location) -> Iterator[Callable[[bytes], None]]:
    """Write a new file elsewhere. When that fails, what there is of it is removed."""
    try:
        with (
            translating_remote(f"cannot write {location.place}", StoreWriteError),
            open_stream(location.filesystem, location.key) as stream,
        ):
            yield stream.write
    except BaseException:
        try:
            location.filesystem.delete_file(location.key)
        except Exception:  # without its manifest it is no snapshot; whatever this raises matters less
            _logger.warning("could not remove the unfinished %s", location.place)
        raise


# --- both ---------------------------------------------------------------------------------------------------------


def _exists(location: Location) -> bool:
    if location.path is not None:
        return os.path.lexists(location.path)
    with translating_remote(f"cannot look at {location.place}", StoreWriteError):
        return bool(location.filesystem.get_file_info([location.key])[0].type != pa.fs.FileType.NotFound)


def _is_file(location: Location) -> bool:
    if location.path is not None:
        with files.translating_reads(f"cannot look at {location.place}"):
            check_not_working_directory(location.path)
            return location.path.exists() and not location.path.is_dir()
    with translating_remote(f"cannot look at {location.place}", StoreWriteError):
        return bool(location.filesystem.get_file_info([location.key])[0].type == pa.fs.FileType.File)


def _report(
    manifest: SnapshotManifest, location: Location, copied: int, present: int, size: int, repaired: tuple[str, ...]
) -> SnapshotReport:
    return SnapshotReport(
        target=location.place,
        store_id=manifest.store_id,
        entries=manifest.entries,
        rows=manifest.rows,
        head_digest=manifest.head_digest,
        files_copied=copied,
        files_present=present,
        bytes_copied=size,
        repaired=repaired,
    )
