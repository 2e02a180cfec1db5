"""Every call that changes the file system, and nothing else.

The first group are the primitives: one system call each. The rest of the storage package changes files only through
them, looked up by name in this module at call time, so that a test can replace one, make it fail at the n-th call, or
record the order in which data and directories are made durable. The second group composes them.

The primitives raise ``OSError`` as it comes: the code that follows a writer needs to see ``FileNotFoundError``.
``translating_writes`` and ``translating_reads`` turn what is left into Mem++ errors at the package's edge.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mempp.errors import StoreError, StoreReadOnlyError, StoreWriteError

_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})
# On macOS fsync leaves the data in the drive's cache; only this command empties it.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


# --- primitives ---------------------------------------------------------------------------------------------------


def open_file(path: Path, flags: int) -> int:
    """Open ``path`` with ``os.open`` flags and return the descriptor; it may create the file."""
    return os.open(path, flags | os.O_CLOEXEC, 0o666)


def write(descriptor: int, data: bytes | memoryview, offset: int) -> int:
    """Write ``data`` at ``offset``; return how many bytes the system took, which may be fewer."""
    return os.pwrite(descriptor, data, offset)


def sync(descriptor: int) -> None:
    """Return when everything written to ``descriptor`` (a file or a directory) is on stable storage."""
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


def set_size(descriptor: int, size: int) -> None:
    """Cut the file to ``size`` bytes."""
    os.ftruncate(descriptor, size)


def rename(source: Path, target: Path) -> None:
    """Give ``source`` the name ``target``, atomically, replacing what bears it."""
    os.replace(source, target)


def remove(path: Path) -> None:
    """Remove the name ``path``."""
    os.unlink(path)


def make_directory(path: Path) -> None:
    """Make the directory ``path`` and its missing parents; one that exists is left as it is."""
    path.mkdir(parents=True, exist_ok=True)


# --- composed of them ---------------------------------------------------------------------------------------------


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        taken = write(descriptor, rest, offset)
        rest = rest[taken:]
        offset += taken


def write_durable(path: Path, data: bytes, *, exclusive: bool = False) -> None:
    """Write a whole new file and make its bytes durable; its name needs ``fsync_directory`` as well.

    With ``exclusive`` an existing file raises ``FileExistsError`` instead of being overwritten.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else os.O_TRUNC)
    descriptor = open_file(path, flags)
    try:
        _write_all(descriptor, data, 0)
        sync(descriptor)
    finally:
        os.close(descriptor)


def write_at(path: Path, offset: int, data: bytes, *, durable: bool) -> None:
    """Write ``data`` at ``offset`` of an existing file; return when it is durable, if that is asked."""
    descriptor = open_file(path, os.O_WRONLY)
    try:
        _write_all(descriptor, data, offset)
        if durable:
            sync(descriptor)
    finally:
        os.close(descriptor)


def truncate(path: Path, size: int) -> None:
    """Cut an existing file to ``size`` bytes, durably."""
    descriptor = open_file(path, os.O_WRONLY)
    try:
        set_size(descriptor, size)
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the bytes of an existing file durable."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable: those created, renamed and removed so far."""
    descriptor = open_file(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    except OSError as error:
        # Some network file systems know no fsync of a directory; there is nothing better to be had there.
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(descriptor)


# --- reading ------------------------------------------------------------------------------------------------------


def read_from(path: Path, offset: int) -> tuple[bytes, int]:
    """Return the bytes of ``path`` from ``offset`` to its end, and its size."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= offset:
            return b"", size
        file.seek(offset)
        data = file.read()
        return data, offset + len(data)


def list_names(path: Path) -> list[str]:
    """Return the names in a directory; none when there is no such directory."""
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


# --- errors -------------------------------------------------------------------------------------------------------


@contextmanager
def translating_writes(what: str) -> Iterator[None]:
    """Turn an ``OSError`` of a write into ``StoreReadOnlyError`` or ``StoreWriteError``."""
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSED:
            raise StoreReadOnlyError(
                f"{what}: the system allows no write there ({_reason(error)}). Open the store with read_only=True, or "
                f"give this user the right to write."
            ) from error
        raise StoreWriteError(
            f"{what}: {_reason(error)}. What was acknowledged before is still there; free space or repair the disk, "
            f"then write again."
        ) from error


@contextmanager
def translating_reads(what: str) -> Iterator[None]:
    """Turn an ``OSError`` of a read into ``StoreError``."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {_reason(error)}. Check the disk and this user's right to read it.") from error


def _reason(error: OSError) -> str:
    where = f": {str(error.filename)!r}" if error.filename is not None else ""
    return f"{error.strerror or error}{where}"
