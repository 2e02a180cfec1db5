"""Where a snapshot lies: a local disk, or anything that pyarrow or fsspec reach.

On a local disk everything is changed through ``mempp.storage.files``, fsynced and renamed into place. Elsewhere there
may be no rename and no fsync: there a file is there when its stream was closed, and the manifest is written twice,
first under another name, so that one of the two is whole at any moment.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs

from mempp.errors import InputError, MemppError, NotAStoreError, StoreError, StoreWriteError, quoted
from mempp.storage import files
from mempp.storage.snapshots import manifest as manifests
from mempp.storage.snapshots.manifest import SnapshotManifest


class Folder(Protocol):
    """A folder that holds, or will hold, a snapshot. Names are relative, with ``/``."""

    place: str
    """How messages name it."""

    def sizes(self) -> dict[str, int]:
        """Return the files in it, at any depth, and their sizes; none when it does not exist."""
        ...

    def read(self, name: str) -> bytes:
        """Return a file. Raises FileNotFoundError, StoreError."""
        ...

    def holds(self, name: str, size: int, sha256: str) -> bool:
        """Tell whether a file is there and as it should be, as far as that can be told at little cost."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Put a file there. Raises StoreWriteError."""
        ...

    def publish(self, data: bytes) -> None:
        """Make what was written durable, then this the manifest. Raises StoreWriteError."""
        ...

    def remove(self, names: list[str]) -> None:
        """Remove files. Raises StoreWriteError."""
        ...


@dataclass(frozen=True, slots=True)
class Location:
    """A place: ``path`` on the local disk, or ``key`` on a ``filesystem`` of pyarrow."""

    place: str
    path: Path | None
    filesystem: Any
    key: str

    @property
    def is_archive(self) -> bool:
        """Whether its name ends as that of a tar file does."""
        return self.key.endswith(".tar")

    def folder(self) -> Folder:
        """Return it as a folder."""
        return RemoteFolder(self) if self.path is None else LocalFolder(self.path)


def is_utf8(name: str) -> bool:
    """Whether a name can be written in UTF-8; one that cannot would lead to a copy that nobody can name again."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_not_working_directory(path: Path) -> None:
    """Refuse a target in which this process stands: it appears by a rename, and the process would be nowhere."""
    if path.is_dir() and os.path.samefile(path, os.curdir):
        raise InputError(f"{path} is the working directory. Name a directory within it, or go elsewhere first.")


def locate(where: str | os.PathLike[str], filesystem: Any = None) -> Location:
    """Return the location of a path, of a URI, or of a path on a filesystem of pyarrow or fsspec.

    Raises:
        InputError: it is no path, or there is no such filesystem.
    """
    name = os.fspath(where) if isinstance(where, str | os.PathLike) else where
    if not isinstance(name, str) or not name or "\0" in name or not is_utf8(name):
        raise InputError(f"{quoted(name)} is no path of a snapshot.")
    key = name
    if filesystem is None and "://" in name:
        filesystem, key = _from_uri(name)
    elif filesystem is not None:
        filesystem, key = _wrapped(filesystem, name)
    if filesystem is None or isinstance(filesystem, pa.fs.LocalFileSystem):
        path = Path(os.path.realpath(key))
        return Location(str(path), path, None, str(path))
    return Location(name, None, filesystem, key.rstrip("/") or key)


def _from_uri(uri: str) -> tuple[Any, str]:
    try:
        filesystem, key = pa.fs.FileSystem.from_uri(uri)
        return filesystem, key
    except (pa.ArrowException, OSError, ValueError) as error:
        problem: Exception = error
    try:
        filesystem, key = importlib.import_module("fsspec.core").url_to_fs(uri)
    except ModuleNotFoundError as error:
        if error.name != "fsspec":
            problem = error
    except Exception as error:  # whatever the package behind the scheme raises
        problem = error
    else:
        return _wrapped(filesystem, key)
    raise InputError(
        f"{uri[:200]!r} leads to no filesystem here: {str(problem)[:300]}. Check it, install the fsspec package of its "
        f"kind, or give filesystem=."
    ) from problem


def _wrapped(filesystem: Any, name: str) -> tuple[Any, str]:
    if isinstance(filesystem, pa.fs.FileSystem):
        return filesystem, name.split("://", 1)[-1]
    if not all(hasattr(filesystem, attribute) for attribute in ("protocol", "open", "find", "_strip_protocol")):
        raise InputError(f"filesystem must be one of pyarrow.fs or of fsspec, not {type(filesystem).__name__}.")
    key = str(filesystem._strip_protocol(name))
    protocols = (filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol
    if "file" in protocols:
        return pa.fs.LocalFileSystem(), key
    return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(filesystem)), key


def load_manifest(folder: Folder) -> SnapshotManifest | None:
    """Return the manifest of the snapshot in a folder; None when there is none.

    Raises:
        StoreDamagedError, StoreVersionError, NotAStoreError: it cannot be used.
        StoreError: it cannot be read.
    """
    problem: MemppError | None = None
    for name in (manifests.NAME, manifests.NEW_NAME):
        try:
            return manifests.decode(folder.read(name), f"{folder.place}/{name}")
        except FileNotFoundError:
            continue
        except MemppError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return None


# --- a local disk -------------------------------------------------------------------------------------------------


class LocalFolder:
    """A folder on a local disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)
        self._changed: set[Path] = set()

    def sizes(self) -> dict[str, int]:
        """Return the files in it; links are not followed."""
        found = {}
        with files.translating_reads(f"cannot read {self.path}"):
            for directory, _, names in os.walk(self.path, onerror=_raise):
                for name in names:
                    path = Path(directory, name)
                    found[path.relative_to(self.path).as_posix()] = path.lstat().st_size
        return found

    def read(self, name: str) -> bytes:
        """Return a file."""
        return read_file(self.path / name)

    def holds(self, name: str, size: int, sha256: str) -> bool:
        """Compare size and digest."""
        try:
            if (self.path / name).stat().st_size != size:
                return False
            return manifests.file_of("", self.read(name)).sha256 == sha256
        except (OSError, StoreError):
            return False

    def write(self, name: str, data: bytes) -> None:
        """Put a file there, durable but for its name."""
        path = self.path / name
        with files.translating_writes(f"cannot write the snapshot {self.path}"):
            self._make_directory(path.parent)
            temporary = path.with_name(path.name + ".tmp")
            files.write_durable(temporary, data)
            files.rename(temporary, path)

    def make_durable(self) -> None:
        """Make the names of what was written or removed durable. Raises OSError."""
        for directory in sorted(self._changed, reverse=True):
            files.fsync_directory(directory)
        self._changed.clear()

    def publish(self, data: bytes) -> None:
        """Replace the manifest atomically."""
        with files.translating_writes(f"cannot write the snapshot {self.path}"):
            self.make_durable()
            self.write(manifests.NAME, data)
            self.make_durable()

    def remove(self, names: list[str]) -> None:
        """Remove files."""
        with files.translating_writes(f"cannot remove superseded files from the snapshot {self.path}"):
            for name in names:
                files.remove(self.path / name)
                self._changed.add((self.path / name).parent)
            self.make_durable()

    def _make_directory(self, path: Path) -> None:
        files.make_directory(path)
        while path != self.path:
            self._changed.add(path)
            path = path.parent
        self._changed.add(path)


def read_file(path: Path) -> bytes:
    """Return a file of the local disk. Raises FileNotFoundError, StoreError."""
    try:
        return files.read_from(path, 0)[0]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}. Check the disk and this user's right to it."
        ) from error


@contextmanager
def appearing(path: Path, what: str) -> Iterator[Path]:
    """Give the path of a sibling to be built, a file or a directory; afterwards it is renamed to ``path``, durably.

    When that fails, the sibling is removed. ``path`` may be there as an empty directory.

    Raises:
        NotAStoreError: meanwhile something else took the place.
        StoreReadOnlyError, StoreWriteError: the system refused.
    """
    sibling = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.tmp")
    try:
        with files.translating_writes(f"cannot write {what} {path}"):
            files.make_directory(path.parent)
            yield sibling
            if path.is_file() or (path.is_dir() and any(path.iterdir())):
                raise NotAStoreError(f"{path} appeared meanwhile. Name another place, or remove it and try again.")
            files.rename(sibling, path)
            with contextlib.suppress(PermissionError):
                files.fsync_directory(path.parent)
    except BaseException:
        _discard(sibling)
        raise


def _discard(path: Path) -> None:
    """Remove what was not finished; what cannot be removed stays, under a name that says it is temporary."""
    with contextlib.suppress(OSError):
        if not path.is_dir():
            files.remove(path)
            return
        for directory, _, names in os.walk(path, topdown=False):
            for name in names:
                files.remove(Path(directory, name))
            os.rmdir(directory)


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


# --- elsewhere ----------------------------------------------------------------------------------------------------


class RemoteFolder:
    """A folder on a filesystem of pyarrow, fsspec's wrapped among them."""

    def __init__(self, location: Location) -> None:
        self.place = location.place
        self._filesystem = location.filesystem
        self._key = location.key

    def sizes(self) -> dict[str, int]:
        """Return the files in it."""
        selector = pa.fs.FileSelector(self._key, allow_not_found=True, recursive=True)
        try:
            with translating_remote(f"cannot list {self.place}", StoreError):
                found = self._filesystem.get_file_info(selector)
        except FileNotFoundError:
            return {}
        # Some filesystems put a slash before what they give back.
        start = len(self._key.strip("/"))
        return {
            info.path.strip("/")[start:].strip("/"): info.size or 0
            for info in found
            if info.type == pa.fs.FileType.File
        }

    def read(self, name: str) -> bytes:
        """Return a file."""
        with (
            translating_remote(f"cannot read {self.place}/{name}", StoreError),
            self._filesystem.open_input_stream(f"{self._key}/{name}", compression=None) as stream,
        ):
            return bytes(stream.read())

    def holds(self, name: str, size: int, sha256: str) -> bool:
        """Compare the size only: the digest would need the file to come over the network."""
        with translating_remote(f"cannot read {self.place}", StoreError):
            info = self._filesystem.get_file_info([f"{self._key}/{name}"])[0]
            return bool(info.type == pa.fs.FileType.File and info.size == size)

    def write(self, name: str, data: bytes) -> None:
        """Put a file there."""
        with (
            translating_remote(f"cannot write {self.place}/{name}", StoreWriteError),
            open_stream(self._filesystem, f"{self._key}/{name}") as stream,
        ):
            stream.write(data)

    def publish(self, data: bytes) -> None:
        """Write the manifest twice: ``load_manifest`` finds a whole one at any moment."""
        self.write(manifests.NEW_NAME, data)
        self.write(manifests.NAME, data)
        self.remove([manifests.NEW_NAME])

    def remove(self, names: list[str]) -> None:
        """Remove files."""
        with translating_remote(f"cannot remove superseded files from the snapshot {self.place}", StoreWriteError):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._filesystem.delete_file(f"{self._key}/{name}")


def open_stream(filesystem: Any, key: str) -> Any:
    """Open a file for writing; make its folder only where the filesystem wants one (object stores have none)."""
    try:
        return filesystem.open_output_stream(key, compression=None)
    except FileNotFoundError:
        filesystem.create_dir(key.rpartition("/")[0], recursive=True)
        return filesystem.open_output_stream(key, compression=None)


@contextmanager
def translating_remote(what: str, kind: type[StoreError]) -> Iterator[None]:
    """Turn whatever a filesystem raises into ``kind``; FileNotFoundError of a read passes."""
    try:
        yield
    except (MemppError, MemoryError):
        raise
    except FileNotFoundError as error:
        if kind is StoreError:
            raise
        raise kind(f"{what}: {_reason(error)}.") from error
    except Exception as error:  # each package behind fsspec has errors of its own
        raise kind(f"{what}: {_reason(error)}. Check the location and the right to use it, then try again.") from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
