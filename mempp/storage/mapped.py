"""Files of arrays that are mapped into memory: the system reads of them what is asked for.

    offset  size  field
         0     8  magic
         8     4  format
        12     4  length of the header
        16    32  SHA-256 of the header
        48        header: JSON
      4096        sections: arrays, little-endian, each from a multiple of 4096; the header tells the SHA-256 of each

Such a file is never changed, only replaced by rename: who has mapped one keeps it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import mmap
import os
import stat
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mempp.errors import StoreError
from mempp.storage import files

UNREADABLE = (OSError, ValueError, KeyError, TypeError, IndexError, struct.error, OverflowError, RecursionError)
"""What the reading of a damaged file raises."""

_PREAMBLE = struct.Struct("<8sII32s")
_PAGE = 4096
_HASHED_TOGETHER = 1 << 24  # bytes; pages that were read are still in the cache when the next are


class UnusableError(Exception):
    """The file is whole, and not for us."""


class MappedFile:
    """A file that is open for reading; what was mapped of it outlives it."""

    def __init__(self, file: BinaryIO, header: Mapping[str, Any]) -> None:
        # One for all arrays: each that np.memmap makes would keep the file open once more.
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.header = header
        """What its header tells, whole."""

    def array(self, dtype: str, shape: tuple[int, ...], offset: int, digest: str | None) -> NDArray[Any]:
        """Map an array, read-only.

        Args:
            dtype: of its numbers.
            shape: its shape.
            offset: where it begins.
            digest: the SHA-256 that its bytes must have; None leaves them unread.

        Raises:
            one of ``UNREADABLE``: it is not there, or its bytes are others.
        """
        if any(size < 0 for size in shape) or offset < 0:
            raise ValueError("an array has no place in it")
        if not all(shape):
            return np.empty(shape, dtype)
        array: NDArray[Any] = np.frombuffer(self._map, dtype, math.prod(shape), offset).reshape(shape)
        if digest is not None and _digest(array) != digest:
            raise ValueError("its bytes do not match their SHA-256")
        return array


@contextmanager
def reading(path: Path, magic: bytes, number: int) -> Iterator[MappedFile]:
    """Open a file and check its header.

    Raises:
        FileNotFoundError: there is none.
        UnusableError: it is of another format.
        one of ``UNREADABLE``: it cannot be read, or is not whole.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would wait for ever
        raise ValueError("it is no regular file")
    with open(path, "rb") as file:
        start = file.read(_PAGE)
        size = os.fstat(file.fileno()).st_size
        found, told, length, digest = _PREAMBLE.unpack_from(start)
        text = start[_PREAMBLE.size : _PREAMBLE.size + length]
        if found != magic or len(text) != length or hashlib.sha256(text).digest() != digest:
            raise ValueError("its header is no whole one")
        if told != number:
            raise UnusableError(f"it is of format {told}, and this Mem++ reads {number}")
        header = json.loads(text)
        if size != header["size"]:
            raise ValueError(f"it has {size} bytes where {header['size']} are told")
        yield MappedFile(file, header)


class Sections:
    """The sections of a file that is being written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = _PAGE
        """Where the next one begins."""

    def add(self, arrays: Iterable[NDArray[Any]]) -> tuple[int, str]:
        """Write arrays one behind the other as one section; return where it begins, and its SHA-256. Raises OSError."""
        begin, end, digest = self.size, self.size, hashlib.sha256()
        for array in arrays:
            data = np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")
            for start in range(0, len(data), _HASHED_TOGETHER):
                part = data[start : start + _HASHED_TOGETHER]
                digest.update(part)
                end = _written(self._descriptor, part, end)
        self.size = -(-end // _PAGE) * _PAGE
        return begin, digest.hexdigest()


def write(path: Path, magic: bytes, number: int, body: Callable[[Sections], Mapping[str, Any]]) -> None:
    """Put a new file in place of the one there was. Not fsynced: it is derived, and cheap to lose.

    Args:
        path: the file; its directory is made if need be.
        magic, number: what it begins with.
        body: writes the sections, and returns the header, to which ``size`` is added.

    Raises:
        OSError: the system refused.
        StoreError: the header is too long.
    """
    files.make_directory(path.parent)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        _write(temporary, magic, number, body)
        files.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise


def _write(path: Path, magic: bytes, number: int, body: Callable[[Sections], Mapping[str, Any]]) -> None:
    descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        sections = Sections(descriptor)
        header = body(sections)
        files.set_size(descriptor, sections.size)
        text = json.dumps({**header, "size": sections.size}, sort_keys=True).encode()
        if _PREAMBLE.size + len(text) > _PAGE:
            raise StoreError(
                f"its header takes {len(text)} bytes where {_PAGE - _PREAMBLE.size} fit; shorten its names"
            )
        preamble = _PREAMBLE.pack(magic, number, len(text), hashlib.sha256(text).digest())
        _written(descriptor, memoryview(preamble + text), 0)
    finally:
        os.close(descriptor)


def _written(descriptor: int, data: memoryview, offset: int) -> int:
    while data:
        taken = files.write(descriptor, data, offset)
        data, offset = data[taken:], offset + taken
    return offset


def _digest(array: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    data = array.data.cast("B")
    for start in range(0, len(data), _HASHED_TOGETHER):
        digest.update(data[start : start + _HASHED_TOGETHER])
    return digest.hexdigest()
