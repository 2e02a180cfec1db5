"""The one kind of tar file that snapshots are: plain POSIX ``ustar``, of regular files, with fixed metadata.

Any tar program reads it. The reader here is strict: a header must be, byte for byte, the one that the writer makes of
its name and size; padding and end must be zeros. So there are no links, devices, sparse files, long-name records or
names with ``..`` to guard against, and a flipped bit anywhere outside of a file's own bytes is seen as such.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mempp.errors import StoreDamagedError, StoreWriteError
from mempp.storage.snapshots.manifest import NAME, is_stored_name

BLOCK = 512
_RECORD = 20 * BLOCK
_TYPES = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a directory",
    b"6": "a named pipe",
}


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the archive: its name, where its bytes begin, how many they are."""

    name: str
    offset: int
    size: int


def header(name: str, size: int) -> bytes:
    """Return the 512 bytes before a file: owner 0, mode 0644, time 0.

    Raises:
        StoreWriteError: the size passes what the format can say, 8 GiB.
    """
    info = tarfile.TarInfo(name)
    info.size = size
    try:
        return info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")
    except ValueError as error:
        raise StoreWriteError(
            f"{name} of {size:,} bytes does not fit into a tar file ({error}). Take the snapshot into a directory."
        ) from error


def padding(size: int) -> bytes:
    """Return the zeros that follow a file of this size."""
    return bytes(-size % BLOCK)


def end(size: int) -> bytes:
    """Return the zeros that end an archive whose files take ``size`` bytes: two blocks, then up to a whole record."""
    return bytes(2 * BLOCK + -(size + 2 * BLOCK) % _RECORD)


def members(read_at: Callable[[int, int], bytes], size: int, place: str) -> Iterator[Member]:
    """Yield the files of an archive of ``size`` bytes, in order; ``read_at`` takes a number of bytes and an offset.

    Raises:
        StoreDamagedError: it is truncated, altered, or not one that Mem++ wrote.
    """
    if size == 0:
        raise StoreDamagedError(f"the archive {place} is empty. Use another snapshot.")
    offset = 0
    while True:
        block = read_at(BLOCK, offset)
        if len(block) < BLOCK:
            raise _truncated(place, offset)
        if not any(block):
            break
        member = _member(block, offset, place)
        after = member.offset + member.size
        if after + len(padding(member.size)) > size:
            raise _truncated(place, size)
        if read_at(len(padding(member.size)), after).strip(b"\0"):
            raise _altered(place, f"there are bytes between two files, after {member.name!r}")
        yield member
        offset = after + len(padding(member.size))
    tail = end(offset)
    if size < offset + len(tail):
        raise _truncated(place, size)
    if size > offset + len(tail) or read_at(len(tail), offset) != tail:
        raise _altered(place, f"there are bytes after its end at byte {offset}")


def _member(block: bytes, offset: int, place: str) -> Member:
    prefix, base = (_string(part) for part in (block[345:500], block[:100]))
    name = f"{prefix}/{base}" if prefix else base
    shown = repr(name[:200])
    kind = block[156:157]
    if kind in _TYPES:
        raise _altered(place, f"{shown} is {_TYPES[kind]}")
    if name.startswith("/") or ".." in name.split("/"):
        raise _altered(place, f"the name {shown} would leave the store")
    if name != NAME and not is_stored_name(name):
        raise _altered(place, f"{shown} is no file of a snapshot")
    digits = block[124:135]
    if not digits.isdigit() or digits.strip(b"01234567"):
        raise _altered(place, f"the header of {shown} at byte {offset} is unreadable")
    size = int(digits, 8)
    if header(name, size) != block:
        raise _altered(place, f"the header of {shown} at byte {offset} is not the one that Mem++ writes")
    return Member(name, offset + BLOCK, size)


def _string(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("ascii", "backslashreplace")


def _truncated(place: str, offset: int) -> StoreDamagedError:
    return StoreDamagedError(f"the archive {place} is truncated: it ends at byte {offset}. Use another snapshot.")


def _altered(place: str, what: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"the archive {place} is damaged, or is none that Mem++ wrote: {what}. Use another snapshot; if it was packed "
        f"by another program, unpack it and restore from the directory."
    )
