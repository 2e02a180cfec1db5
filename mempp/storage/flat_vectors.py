"""``cache/vectors-<identity>.flat``: the sealed vectors of an encoder as plain arrays, to be mapped into memory.

Decoding Parquet is most of the time that opening a large store takes, and what was decoded lies in memory for good. A
flat file is mapped instead: the system reads of it what is asked for. It is derived from the segments, bound to their
names and footers, and cheap to lose; whatever does not fit is passed over, and written anew by the next writer that
opens the store and finds enough to be worth it.

    offset  size  field
         0     8  magic  93 4D 2B 2B 56 45 43 0A
         8     4  format, 1
        12     4  length of the header
        16    32  SHA-256 of the header
        48        header: JSON
      4096        sections: for heads (view 0) and for windows row ids (int64), views (int32), vectors (float32), all
                  little-endian, each from a multiple of 4096; the header tells the SHA-256 of each

It is never changed, only replaced by rename: who has mapped one keeps it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
import struct
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.errors import MemppError, StoreError
from mempp.storage import files, segments
from mempp.storage.cache import ABANDONED, CACHE
from mempp.storage.codec import ContentError, NotYetError
from mempp.storage.vectors import VectorBatch, VectorCodec

HEAD = 0
"""The view of a row's beginning; others are windows."""

WORTH = 1 << 14
"""Vectors; fewer are decoded in no time."""
WORTH_SHARE = 4
"""It is written again when what it lacks is one in so many of what it holds."""

_MAGIC = b"\x93M++VEC\n"
_FORMAT = 1
_PREAMBLE = struct.Struct("<8sII32s")
_PAGE = 4096
_TYPES = ("<i8", "<i4", "<f4")
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, IndexError, struct.error, OverflowError, RecursionError)
_HASHED_TOGETHER = 1 << 24  # bytes; pages that were read are still in the cache when the next are

_logger = logging.getLogger("mempp.cache")


@dataclass(frozen=True, slots=True)
class Flat:
    """What a flat file holds, mapped."""

    items: int
    """How many vectors it covers: the first so many of the series."""
    batches: tuple[VectorBatch, ...]
    """Heads, then windows; what there is of them."""


class FlatVectors:
    """The flat file of one encoder's vectors."""

    def __init__(self, path: Path, codec: VectorCodec, *, writable: bool) -> None:
        """Nothing is read yet.

        Args:
            path: the file.
            codec: of the vectors.
            writable: whether it may be written.
        """
        self._path = path
        self._codec = codec
        self._writable = writable
        self._dimensions = codec.dimensions
        self._facts = {"store": codec.store_id, "identity": codec.identity, "dimensions": codec.dimensions}

    def load(self, directory: Path) -> Flat | None:
        """Map the file; None when there is none that is whole and made of the segments that are there now.

        Args:
            directory: where the segments are.
        """
        return self._loaded(directory, check=True)

    def _loaded(self, directory: Path, *, check: bool) -> Flat | None:
        try:
            return self._load(directory, check=check)
        except FileNotFoundError:
            return None
        except _UnusableError as reason:
            _logger.info("the flat vectors %s are passed over: %s", self._path, reason)
        except (*_UNREADABLE, MemppError) as error:
            _logger.warning("the flat vectors %s are damaged and are passed over: %s", self._path, error)
        return None

    def save(self, directory: Path, held: Flat | None, batches: Sequence[VectorBatch]) -> tuple[Flat, int] | None:
        """Write the file anew, if that is worth it. Never fails.

        Args:
            directory: where the segments are.
            held: what was mapped of it.
            batches: what was read of the series after that.

        Returns:
            what is in it now, mapped, and how many of the batches it covers; None where it was left as it is.
        """
        begin = 0 if held is None else held.items
        if not self._writable or sum(map(len, batches)) < max(WORTH, begin // WORTH_SHARE):
            return None
        sealed = max((name.last + 1 for name in _chain(directory, begin)), default=begin)
        covered, reached = 0, begin
        while covered < len(batches) and reached + len(batches[covered]) <= sealed:
            reached += len(batches[covered])
            covered += 1
        if reached - begin < max(WORTH, begin // WORTH_SHARE):
            return None
        temporary = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}.tmp")
        try:
            files.make_directory(self._path.parent)
            try:
                parts = [*(held.batches if held is not None else ()), *batches[:covered]]
                self._write(temporary, reached, _fingerprint(directory, reached), parts)
                files.rename(temporary, self._path)
                self._remove_others()
            except BaseException:
                with contextlib.suppress(OSError):
                    files.remove(temporary)
                raise
        except (*_UNREADABLE, StoreError) as error:
            _logger.warning("%s could not be written, and opening will take longer: %s", self._path, error)
            return None
        # Not checked: looking at all of it would take memory that the batches still hold.
        flat = self._loaded(directory, check=False)
        return None if flat is None or flat.items != reached else (flat, covered)

    def _load(self, directory: Path, *, check: bool) -> Flat:
        if not stat.S_ISREG(os.stat(self._path).st_mode):  # a pipe would wait for ever
            raise ValueError("it is no regular file")
        with open(self._path, "rb") as file:
            start = file.read(_PAGE)
            size = os.fstat(file.fileno()).st_size
        magic, number, length, digest = _PREAMBLE.unpack_from(start)
        text = start[_PREAMBLE.size : _PREAMBLE.size + length]
        if magic != _MAGIC or len(text) != length or hashlib.sha256(text).digest() != digest:
            raise ValueError("its header is no whole one")
        if number != _FORMAT:
            raise _UnusableError(f"it is of format {number}, and this Mem++ reads {_FORMAT}")
        header = json.loads(text)
        for name, value in self._facts.items():
            if header[name] != value:
                raise _UnusableError(f"its {name} is {str(header[name])[:60]!r}, not {value!r}")
        items = int(header["items"])
        if _fingerprint(directory, items) != header["segments"]:
            raise _UnusableError("it was made of other segments")
        self._check_binding(directory, items)
        if size != header["size"]:
            raise ValueError(f"it has {size} bytes where {header['size']} are told")
        batches = []
        for part in header["parts"]:
            count = int(part["count"])
            arrays = []
            for (offset, told), dtype, shape in zip(
                part["sections"], _TYPES, _shapes(count, self._dimensions), strict=True
            ):
                mapped = np.memmap(self._path, dtype, "r", offset=offset, shape=shape)
                array: NDArray[Any] = np.asarray(mapped).view(np.ndarray)
                if check and _digest(array) != told:
                    raise ValueError("its bytes do not match their SHA-256")
                arrays.append(array)
            batches.append(VectorBatch(*arrays))
        if sum(map(len, batches)) != items:
            raise ValueError("its parts are not what it tells")
        rows = self._codec.log_position().row
        if any(batch.row_ids.min() < 0 or batch.row_ids.max() >= rows for batch in batches):
            raise _UnusableError("it holds vectors of rows that the log does not hold")
        return Flat(items, tuple(batches))

    def _remove_others(self) -> None:
        """Remove what a process that died has left, and the file of an encoder that the store no longer uses."""
        for name in files.list_names(self._path.parent):
            if name.startswith("vectors-") and name.endswith((".flat", ".tmp")) and name != self._path.name:
                path = self._path.with_name(name)
                with contextlib.suppress(OSError):
                    if name.endswith(".flat") or time.time() - path.stat().st_mtime > ABANDONED:
                        files.remove(path)

    def _check_binding(self, directory: Path, items: int) -> None:
        """The last segment that it covers must be one of this log, as far as that was read."""
        *_, last = (name for name in _chain(directory, 0) if name.last < items)
        try:
            segments.open_segment(self._codec, last, files.read_from(directory / str(last), 0)[0])
        except (ContentError, NotYetError) as error:
            raise _UnusableError(f"its segments are not of this log: {error}") from error

    def _write(self, path: Path, items: int, fingerprint: str, batches: Sequence[VectorBatch]) -> None:
        parts = []
        offset = _PAGE
        descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for heads in (True, False):
                count = sum(int(np.count_nonzero((batch.views == HEAD) == heads)) for batch in batches)
                if not count:
                    continue
                sections = []
                for name in ("row_ids", "views", "vectors"):
                    begin, digest = offset, hashlib.sha256()
                    for array in _of(batches, name, heads=heads):
                        data = np.ascontiguousarray(array).data.cast("B")
                        digest.update(data)
                        offset = _written(descriptor, data, offset)
                    sections.append([begin, digest.hexdigest()])
                    offset = -(-offset // _PAGE) * _PAGE
                parts.append({"count": count, "sections": sections})
            files.set_size(descriptor, offset)
            header = {**self._facts, "items": items, "parts": parts, "segments": fingerprint, "size": offset}
            text = json.dumps(header, sort_keys=True).encode()
            if _PREAMBLE.size + len(text) > _PAGE:
                raise StoreError(f"its header takes {len(text)} bytes; the encoder's name may be too long")
            preamble = _PREAMBLE.pack(_MAGIC, _FORMAT, len(text), hashlib.sha256(text).digest())
            _written(descriptor, memoryview(preamble + text), 0)
        finally:
            os.close(descriptor)


def flat_vectors_of(store: Path, codec: VectorCodec, *, writable: bool) -> FlatVectors:
    """The flat file of an encoder in the store at this path."""
    return FlatVectors(store / CACHE / f"vectors-{codec.identity}.flat", codec, writable=writable)


class _UnusableError(Exception):
    """It is whole, and not for us."""


def _chain(directory: Path, begin: int) -> Iterator[segments.SegmentName]:
    """The segments that a reader would read from this place on, one after another."""
    # Sorted by first and last: of several that begin at one place the widest stays.
    widest = {name.first: name for name in segments.list_segments(directory)}
    while begin in widest:
        yield widest[begin]
        begin = widest[begin].last + 1


def _fingerprint(directory: Path, items: int) -> str:
    """SHA-256 over names and footers of the segments that hold the first vectors; empty where none ends there.

    A footer tells the compressed size of each column, and how far the log went.
    """
    digest = hashlib.sha256()
    reached = 0
    for name in _chain(directory, 0):
        if reached >= items:
            break
        with open(directory / str(name), "rb") as file:
            file.seek(-8, os.SEEK_END)
            length = int.from_bytes(file.read(4), "little")
            file.seek(-8 - length, os.SEEK_END)
            digest.update(str(name).encode() + file.read(length))
        reached = name.last + 1
    return digest.hexdigest() if reached == items else ""


def _written(descriptor: int, data: memoryview, offset: int) -> int:
    while data:
        taken = files.write(descriptor, data, offset)
        data, offset = data[taken:], offset + taken
    return offset


def _shapes(count: int, dimensions: int) -> tuple[tuple[int, ...], ...]:
    return (count,), (count,), (count, dimensions)


def _of(batches: Sequence[VectorBatch], name: str, *, heads: bool) -> Iterator[NDArray[Any]]:
    for batch in batches:
        wanted = (batch.views == HEAD) == heads
        if wanted.any():
            array = getattr(batch, name)
            yield array if wanted.all() else array[wanted]


def _digest(array: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    data = array.data.cast("B")
    for start in range(0, len(data), _HASHED_TOGETHER):
        digest.update(data[start : start + _HASHED_TOGETHER])
    return digest.hexdigest()
