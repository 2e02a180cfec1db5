"""restore_snapshot: a store from a snapshot, checked before it appears."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs

from mempp.errors import EncoderMismatchError, InputError, NotAStoreError, StoreDamagedError, StoreError
from mempp.storage import files
from mempp.storage.snapshots import archive
from mempp.storage.snapshots import manifest as manifests
from mempp.storage.snapshots.capture import UnsettledError, capture, survey
from mempp.storage.snapshots.manifest import SnapshotFile, SnapshotManifest
from mempp.storage.snapshots.places import (
    Folder,
    Location,
    appearing,
    check_not_working_directory,
    load_manifest,
    locate,
    translating_remote,
)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was restored. The store keeps the id of the one that the snapshot was taken of."""

    path: Path
    store_id: str
    entries: int
    rows: int
    head_digest: str
    files: int
    bytes: int


def restore_snapshot(
    source: str | os.PathLike[str], to: str | os.PathLike[str], *, filesystem: Any = None
) -> RestoreReport:
    """Make a store of a snapshot. It appears at ``to`` whole and durable, or not at all.

    Checked before: the manifest, size and SHA-256 of every file, and, by reading the new store, the hash chain over all
    entries up to the manifest's head digest.

    Args:
        source: the directory or the tar file that ``write_snapshot`` made; a path or a URI.
        to: a directory of the local disk that does not exist or is empty.
        filesystem: of pyarrow.fs or fsspec; ``source`` is then a path on it.

    Raises:
        InputError: a path is none; source and target lie one within the other.
        NotAStoreError: there is no snapshot at ``source``; ``to`` is not empty.
        StoreDamagedError: the snapshot is incomplete or altered; the message names the file.
        StoreVersionError: it is of a newer format.
        StoreError: it cannot be read.
        StoreReadOnlyError, StoreWriteError: ``to`` cannot be written.
    """
    location = locate(source, filesystem)
    target = _target(to, location)
    with _opened(location) as snapshot:
        manifest = snapshot.manifest
        with appearing(target, "the store") as sibling:
            for file in manifest.files:
                _put(sibling / file.path, file, snapshot)
            _check(sibling, manifest, location.place)
            for directory, _, _ in os.walk(sibling, topdown=False):
                files.fsync_directory(Path(directory))
    return RestoreReport(
        path=target,
        store_id=manifest.store_id,
        entries=manifest.entries,
        rows=manifest.rows,
        head_digest=manifest.head_digest,
        files=len(manifest.files),
        bytes=sum(file.size for file in manifest.files),
    )


def _target(to: str | os.PathLike[str], location: Location) -> Path:
    name = os.fspath(to) if isinstance(to, str | os.PathLike) else to
    if not isinstance(name, str) or not name or "\0" in name or "://" in name:
        raise InputError(f"{str(name)[:100]!r} is no path of a directory of the local disk.")
    target = Path(os.path.realpath(name))
    source = location.path
    if source is not None and (target.is_relative_to(source) or source.is_relative_to(target)):
        raise InputError(f"the store {target} and the snapshot {source} would lie one within the other. Name another.")
    with files.translating_reads(f"cannot look at {target}"):
        check_not_working_directory(target)
        if target.exists() and not target.is_dir():
            raise NotAStoreError(f"{target} is a file. Name a new or an empty directory.")
        names = sorted(files.list_names(target))
    if names:
        raise NotAStoreError(f"{target} is not empty: it holds {names[0][:100]!r}. Name a new or an empty directory.")
    return target


def _put(path: Path, file: SnapshotFile, snapshot: _Snapshot) -> None:
    data = snapshot.read(file)
    found = manifests.file_of(file.path, data)
    if found != file:
        raise StoreDamagedError(
            f"{snapshot.name_of(file)} is damaged: it has {found.size} bytes with SHA-256 {found.sha256}; the manifest "
            f"tells {file.size} and {file.sha256}. Use another snapshot."
        )
    files.make_directory(path.parent)
    files.write_durable(path, data, exclusive=True)


def _check(directory: Path, manifest: SnapshotManifest, place: str) -> None:
    """Read the new store: it must be what the manifest tells, no file more and none less, up to the head digest."""
    try:
        found = survey(capture(directory, derived=True)).manifest
    except (UnsettledError, NotAStoreError, EncoderMismatchError) as error:
        raise StoreDamagedError(f"the files of the snapshot {place} make up no store: {error}") from error
    if found == manifest:
        return
    wrong = sorted({file.path for file in manifest.files} ^ {file.path for file in found.files})
    raise StoreDamagedError(
        f"the snapshot {place} is damaged: its manifest tells {manifest.entries} entries, {manifest.rows} rows and the "
        f"head digest {manifest.head_digest}; its files hold {found.entries}, {found.rows} and {found.head_digest}"
        + (f"; {wrong[0]} is none of the store" if wrong else "")
        + ". Use another snapshot."
    )


# --- what is restored from ----------------------------------------------------------------------------------------


class _Snapshot(Protocol):
    manifest: SnapshotManifest

    def read(self, file: SnapshotFile) -> bytes:
        """Return the bytes of a file. Raises StoreDamagedError when there is none."""
        ...

    def name_of(self, file: SnapshotFile) -> str:
        """Name it in messages."""
        ...


@contextmanager
def _opened(location: Location) -> Iterator[_Snapshot]:
    filesystem = location.filesystem if location.path is None else pa.fs.LocalFileSystem()
    with translating_remote(f"cannot look at {location.place}", StoreError):
        kind = filesystem.get_file_info([location.key])[0].type
    if kind == pa.fs.FileType.NotFound:
        raise NotAStoreError(f"there is no snapshot at {location.place}: the path does not exist.")
    if kind == pa.fs.FileType.Directory:
        yield _Directory(location.folder())
        return
    with contextlib.ExitStack() as stack:
        with translating_remote(f"cannot read {location.place}", StoreError):
            stream = stack.enter_context(filesystem.open_input_file(location.key))
        yield _Archive(stream, location.place)


class _Directory:
    """A snapshot in a directory. Files that the manifest does not list are left alone: interrupted ones leave some."""

    def __init__(self, folder: Folder) -> None:
        manifest = load_manifest(folder)
        if manifest is None:
            raise NotAStoreError(
                f"{folder.place} is no whole snapshot: there is no {manifests.NAME} in it. If one is being written "
                f"there, wait for its end."
            )
        self.manifest = manifest
        self._folder = folder

    def read(self, file: SnapshotFile) -> bytes:
        try:
            return self._folder.read(file.stored_name)
        except FileNotFoundError as error:
            raise StoreDamagedError(
                f"{self.name_of(file)} is missing. If a snapshot is just being written there, try again; else use "
                f"another."
            ) from error

    def name_of(self, file: SnapshotFile) -> str:
        return f"{self._folder.place}/{file.stored_name}"


class _Archive:
    """A snapshot in a tar file. Its members are exactly what the manifest, the last of them, lists in that order."""

    def __init__(self, stream: Any, place: str) -> None:
        self._stream = stream
        self._place = place
        with translating_remote(f"cannot read {place}", StoreError):
            size = int(stream.size())
        found = list(archive.members(self._read_at, size, place))
        if not found or found[-1].name != manifests.NAME:
            raise StoreDamagedError(f"the archive {place} does not end with {manifests.NAME}. Use another snapshot.")
        last = found.pop()
        self.manifest = manifests.decode(self._read_at(last.size, last.offset), f"{place}:{manifests.NAME}")
        listed = [(file.stored_name, file.size) for file in self.manifest.files]
        held = [(member.name, member.size) for member in found]
        if listed != held:
            names = sorted({name for name, _ in listed} ^ {name for name, _ in held})
            what = f"{names[0]} is in one of them only" if names else "a size or the order differs, or one comes twice"
            raise StoreDamagedError(
                f"the archive {place} holds other files than its {manifests.NAME} lists: {what}. Use another snapshot."
            )
        self._members = {member.name: member for member in found}

    def read(self, file: SnapshotFile) -> bytes:
        member = self._members[file.stored_name]
        return self._read_at(member.size, member.offset)

    def name_of(self, file: SnapshotFile) -> str:
        return f"{self._place}:{file.stored_name}"

    def _read_at(self, size: int, offset: int) -> bytes:
        with translating_remote(f"cannot read {self._place}", StoreError):
            return bytes(self._stream.read_at(size, offset))
