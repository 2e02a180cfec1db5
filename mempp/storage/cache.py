"""``cache/``: named blobs of arrays, derived from the log, cheap to lose.

A blob is one file, replaced as a whole by an atomic rename: of two processes that write, the last wins, and nothing
old is left behind. It tells which store it belongs to, what made it, and up to which position of the log it goes; a
SHA-256 covers all of it. A file is read once into memory, and what was checked is what is used: a file that changes
meanwhile changes nothing. Reading and writing never fail: a blob that cannot be used is None, and a log message.

    offset  size  field
         0     8  magic  93 4D 2B 2B 43 43 48 0A
         8     4  format, 1
        12     4  length of the header
        16     8  length of the payload
        24    32  SHA-256 of bytes 0 to 23, header and payload
        56        header: JSON, then payload: the arrays, little-endian, each from a multiple of 8 bytes
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.storage import files

CACHE = "cache"
FORMAT = 1

_MAGIC = b"\x93M++CCH\n"
_PREAMBLE = struct.Struct("<8sIIQ")
_DIGEST_SIZE = 32
_HEADER_AT = _PREAMBLE.size + _DIGEST_SIZE
_DTYPES = frozenset({"<u1", "|u1", "<u2", "<u4", "<u8", "<i4", "<i8"})
_UNSIGNED = ("|u1", "<u2", "<u4")
Pieces = NDArray[Any] | list[NDArray[Any]]
"""An array, or the arrays that make it when they are put one after another."""
ABANDONED = 3600.0
"""Seconds after which a temporary file is taken for that of a process that died."""

_logger = logging.getLogger("mempp.cache")


@dataclass(frozen=True, slots=True)
class Blob:
    """What a cache file holds: integer arrays, facts (JSON) about them, and the log position that they cover."""

    sequence: int
    """How many entries of the log it covers."""
    digest: bytes
    """The chain digest after them."""
    arrays: Mapping[str, Pieces]
    """To be written they may be in pieces, since one array of them would be in memory as well. Read they are whole, and
    unsigned ones have the fewest bytes a number that hold them all."""
    facts: Mapping[str, Any] = field(default_factory=dict)


class CacheFolder:
    """The folder ``cache/`` of a store."""

    def __init__(self, path: Path, store_id: str) -> None:
        self.path = path
        self._store_id = store_id

    def read(self, kind: str, version: str) -> Blob | None:
        """Return the blob of a kind; None when there is none that is whole, of this store and of this version.

        Args:
            kind: its name.
            version: what must be equal for its content to be of use: of the code that made it, for instance.
        """
        path = self._path(kind)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would wait for ever
                _logger.warning("the cache %s is no regular file and is passed over", path)
                return None
            data, _ = files.read_from(path, 0)
        except FileNotFoundError:
            return None
        except OSError as error:
            _logger.warning("the cache %s cannot be read and is passed over: %s", path, error)
            return None
        try:
            return self._decode(data, kind, version)
        except _UnusableError as reason:
            _logger.info("the cache %s is passed over: %s", path, reason)
        except (ValueError, KeyError, TypeError, struct.error, OverflowError, RecursionError) as error:
            _logger.warning("the cache %s is damaged and is passed over: %s", path, error)
        return None

    def write(self, kind: str, version: str, blob: Blob) -> bool:
        """Put a blob in place of the one there was; tell whether that worked. Not fsynced: it is cheap to lose."""
        path = self._path(kind)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            files.make_directory(self.path)
            self._remove_abandoned()
            try:
                _write(temporary, self._encode(kind, version, blob))
                files.rename(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    files.remove(temporary)
                raise
        except OSError as error:
            _logger.warning("the cache %s could not be written, and opening will take longer: %s", path, error)
            return False
        return True

    def _path(self, kind: str) -> Path:
        return self.path / f"{kind}.cache"

    def _encode(self, kind: str, version: str, blob: Blob) -> list[bytes | memoryview]:
        parts: list[bytes | memoryview] = []
        layout = []
        at = 0
        for name, given in blob.arrays.items():
            pieces = given if isinstance(given, list) else [given]
            dtype = np.result_type(*pieces).newbyteorder("<")
            stored = _narrowed(pieces, dtype)
            shape = [sum(map(len, pieces)), *pieces[0].shape[1:]]
            layout.append([name, dtype.str, stored[0].dtype.str, shape, at])
            size = sum(piece.nbytes for piece in stored)
            padding = -size % 8
            parts += [piece.reshape(-1).view(np.uint8).data for piece in stored if piece.size]
            parts.append(bytes(padding))
            at += size + padding
        fields = {
            "arrays": layout,
            "digest": blob.digest.hex(),
            "facts": dict(blob.facts),
            "kind": kind,
            "sequence": blob.sequence,
            "store": self._store_id,
            "version": version,
        }
        header = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        header += b" " * (-(_HEADER_AT + len(header)) % 8)
        preamble = _PREAMBLE.pack(_MAGIC, FORMAT, len(header), at)
        digest = hashlib.sha256(preamble + header)
        for part in parts:
            digest.update(part)
        return [preamble, digest.digest(), header, *parts]

    def _decode(self, data: bytes, kind: str, version: str) -> Blob:
        magic, number, header_size, payload_size = _PREAMBLE.unpack_from(data)
        payload_at = _HEADER_AT + header_size
        if magic != _MAGIC:
            raise ValueError("it does not begin as a cache does")
        if number != FORMAT:
            raise _UnusableError(f"it is of format {number}, and this Mem++ reads {FORMAT}")
        if len(data) != payload_at + payload_size:
            raise ValueError(f"it has {len(data)} bytes where {payload_at + payload_size} are told")
        digest = hashlib.sha256(data[: _PREAMBLE.size])
        digest.update(memoryview(data)[_HEADER_AT:])
        if digest.digest() != data[_PREAMBLE.size : _HEADER_AT]:
            raise ValueError("its bytes do not match their SHA-256")
        header = json.loads(data[_HEADER_AT:payload_at])
        for name, wanted in (("store", self._store_id), ("kind", kind), ("version", version)):
            if header[name] != wanted:
                raise _UnusableError(f"its {name} is {str(header[name])[:60]!r}, not {wanted!r}")
        arrays = {}
        for name, dtype, stored, shape, at in header["arrays"]:
            if dtype not in _DTYPES or stored not in _DTYPES or at < 0:
                raise ValueError(f"its array {str(name)[:40]!r} is of a type that no cache has")
            count = int(np.prod(shape, dtype=np.int64))
            array = np.frombuffer(data, stored, count, payload_at + at) if count else np.empty(0, stored)
            if np.dtype(dtype).kind != "u":
                array = array.astype(dtype, copy=False)
            arrays[str(name)] = array.reshape(shape)
        return Blob(int(header["sequence"]), bytes.fromhex(header["digest"]), arrays, header["facts"])

    def _remove_abandoned(self) -> None:
        for name in files.list_names(self.path):
            if name.endswith(".tmp"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - os.stat(self.path / name).st_mtime > ABANDONED:
                        files.remove(self.path / name)


class _UnusableError(Exception):
    """The blob is whole, and not for us."""


def _narrowed(pieces: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> list[NDArray[Any]]:
    """Return the numbers in the smallest type that holds them all, or else in this one: most counts are small."""
    filled = [piece for piece in pieces if piece.size]
    if filled and min(int(piece.min()) for piece in filled) >= 0:
        top = max(int(piece.max()) for piece in filled)
        narrower = (one for one in map(np.dtype, _UNSIGNED) if one.itemsize < dtype.itemsize)
        dtype = next((one for one in narrower if top <= np.iinfo(one).max), dtype)
    return [np.ascontiguousarray(piece, dtype) for piece in pieces]


def _write(path: Path, parts: list[bytes | memoryview]) -> None:
    descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        offset = 0
        for part in parts:
            rest = memoryview(part)
            while rest:
                taken = files.write(descriptor, rest, offset)
                rest, offset = rest[taken:], offset + taken
    finally:
        os.close(descriptor)
