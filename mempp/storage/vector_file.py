"""Vector files: vectors of some rows of a store, made elsewhere, on their way into it; see docs/embedding.md.

    header    store id, encoder identity, dimensions, shard
    part      row ids, views, digests of the texts, vectors; one for each round of the encoder
    part …
    end       number of vectors; the log as it stood: entries, rows, chain digest

Each is a frame (``frames.py``) with checksums, and carries the SHA-256 of all bodies up to its own; so a file that is
cut, altered, or put together of parts of others is known. While it is written its name ends in ``.part``; what is whole
of that is used when the work is begun again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import numpy as np

from mempp.errors import InputError, StoreDamagedError, StoreError, StoreVersionError, quoted
from mempp.storage import files, frames
from mempp.storage.codec import ContentError
from mempp.storage.vectors import MAX_DIMENSIONS, VectorBatch

FORMAT = 1
HEADER, PART, END = 3, 4, 5
DIGEST_BYTES = 16

DOMAIN = b"mempp vector file 1\n"
_LENGTH_AT = 32  # where a frame's header tells the length of its body
_DIGEST = re.compile("[0-9a-f]{64}")
_SHOWN = 300  # characters of a path in a message
PART_HEAD = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose vectors a file holds."""

    store_id: str
    identity: str
    dimensions: int
    shard: tuple[int, int]
    """(number, of): the rows whose id leaves the remainder number - 1 when divided by ``of``."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The log as it stood when the file was ended."""

    sequence: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Vectors of one round, and the digest of the text of each: uint8 (n, 16)."""

    batch: VectorBatch
    digests: np.ndarray[Any, np.dtype[np.uint8]]
    chain: bytes = b""
    """SHA-256 over all that the file holds up to the end of this part; of parts that were read."""


def text_digest(text: str) -> bytes:
    """Return the digest of a text that was encoded: BLAKE2b of its UTF-8, 16 bytes."""
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


# --- reading ------------------------------------------------------------------------------------------------------


class VectorFile:
    """A finished vector file. ``parts`` reads it from the beginning, one part in memory at a time.

    Raises:
        InputError: the path names no file.
        StoreError: it cannot be read, or is no vector file.
        StoreVersionError: it is of a newer format.
        StoreDamagedError: its header is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = checked_path(path)
        self.name = shown(self.path)
        """The path as messages show it."""
        self.origin = self._header()
        self.binding: Binding | None = None
        """To which log it is bound; known when ``parts`` has been read to its end."""

    def parts(self) -> Iterator[Part]:
        """Yield the parts, checksums verified; the end of the file is checked before the iteration ends.

        Raises:
            StoreDamagedError: bytes are missing or altered; what was yielded before must not be trusted either.
            StoreVersionError: a part is of a newer format.
            StoreError: it cannot be read.
        """
        with _opened(self.path) as stream:
            reader = FrameReader(stream)
            try:
                reader.header()
                while (part := reader.part()) is not None:
                    yield part
            except ContentError as error:
                raise self._damaged(error, reader.offset) from error
            except StoreVersionError as error:
                raise self._newer(error) from error
            self.binding = reader.binding

    def _header(self) -> Origin:
        with _opened(self.path) as stream:
            try:
                return FrameReader(stream).header()
            except StoreVersionError as error:
                raise self._newer(error) from error
            except ContentError as error:
                if not _begins_like_one(stream):
                    raise StoreError(
                        f"{self.name} is no vector file; `mempp embed --shard` writes such files"
                    ) from None
                raise self._damaged(error, 0) from error

    def _newer(self, error: StoreVersionError) -> StoreVersionError:
        return StoreVersionError(f"the vector file {self.name} cannot be read here: {error}")

    def _damaged(self, error: ContentError, offset: int) -> StoreDamagedError:
        return StoreDamagedError(
            f"the vector file {self.name} is damaged at byte {offset} ({error}); nothing was taken from it. Copy it "
            f"again, or make it again with `mempp embed --shard`"
        )


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading. Raises StoreError: it cannot be read, or is none that can be read twice."""
    with (
        files.translating_reads(f"cannot read the vector file {shown(path)}"),
        without_file_names(),
        open(path, "rb", opener=_open_without_waiting) as stream,
    ):
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise StoreError(f"{shown(path)} is a pipe or a device, and a vector file is read twice; copy it to a file")
        yield stream


def _open_without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK a named pipe is opened only when somebody writes to it.
    return os.open(path, flags | os.O_NONBLOCK)


def _begins_like_one(stream: BinaryIO) -> bool:
    """Tell whether the bytes, or as many of them as there are, are those that a vector file begins with."""
    stream.seek(0)
    start = stream.read(12)
    magic_and_content = start[:8] + start[10:]
    return len(start) > 0 and (frames.MAGIC + HEADER.to_bytes(2, "little")).startswith(magic_and_content)


class FrameReader:
    """Reads one frame after the other, and checks that each continues those before. Raises ContentError, OSError."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size
        self._origin: Origin | None = None
        self.offset = 0
        self.digest = hashlib.sha256(DOMAIN).digest()
        self.vectors = 0
        self.binding: Binding | None = None

    def header(self) -> Origin:
        """Return whose vectors they are. Raises StoreVersionError as well."""
        frame = self._frame((HEADER,))
        fields = _json(frame.body)
        version = fields.get("version")
        if fields.get("format") != "mempp-vector-file" or not _is_count(version) or version < 1:
            raise ContentError("its header is not that of a vector file")
        if version > FORMAT:
            raise StoreVersionError(
                f"it is a vector file of format {version}, and this Mem++ reads {FORMAT}. Install a newer mempp."
            )
        store_id, identity = fields.get("store_id"), fields.get("identity")
        if not isinstance(store_id, str) or not isinstance(identity, str):
            raise ContentError("its header does not tell of which store and which encoder it is")
        dimensions = fields.get("dimensions")
        if not _is_count(dimensions) or not 1 <= dimensions <= MAX_DIMENSIONS:
            raise ContentError(f"its header tells {quoted(dimensions)} dimensions")
        shard = fields.get("shard")
        if (
            not isinstance(shard, list)
            or len(shard) != 2
            or not all(map(_is_count, shard))
            or not 1 <= shard[0] <= shard[1]
        ):
            raise ContentError(f"its header tells the shard {quoted(shard)}")
        self._origin = Origin(store_id, identity, dimensions, (shard[0], shard[1]))
        return self._origin

    def part(self) -> Part | None:
        """Return the next part; None at the end, which is checked then."""
        assert self._origin is not None, "the header comes first"
        dimensions = self._origin.dimensions
        frame = self._frame((PART, END))
        if frame.content == END:
            self._end(frame)
            return None
        count, body = frame.count, frame.body
        if frame.first_sequence != self.vectors:
            raise ContentError("a part does not continue the one before it")
        if count < 1 or len(body) != PART_HEAD.size + count * (12 + DIGEST_BYTES + 4 * dimensions):
            raise ContentError(f"a part does not hold {count} vectors of {dimensions} dimensions")
        if PART_HEAD.unpack_from(body)[0] != dimensions:
            raise ContentError("a part tells other dimensions than the header")
        views_at = PART_HEAD.size + 8 * count
        digests_at = views_at + 4 * count
        vectors_at = digests_at + DIGEST_BYTES * count
        batch = VectorBatch(
            np.frombuffer(body, "<i8", count, PART_HEAD.size).astype(np.int64),
            np.frombuffer(body, "<i4", count, views_at).astype(np.int32),
            np.frombuffer(body, "<f4", count * dimensions, vectors_at).astype(np.float32).reshape(count, dimensions),
        )
        digests = np.frombuffer(body, np.uint8, DIGEST_BYTES * count, digests_at).reshape(count, DIGEST_BYTES)
        self.vectors += count
        return Part(batch, digests, self.digest)

    def _end(self, frame: frames.Frame) -> None:
        fields = _json(frame.body)
        vectors = fields.get("vectors")
        if not _is_count(vectors) or vectors != self.vectors or frame.first_sequence != self.vectors:
            raise ContentError(f"its end tells {quoted(vectors)} vectors, and it holds {self.vectors}")
        if self.offset != self._size:
            raise ContentError("bytes follow its end")
        sequence, rows, digest = (fields.get(name) for name in ("log_sequence", "log_rows", "log_digest"))
        if (
            not _is_count(sequence)
            or not _is_count(rows)
            or not isinstance(digest, str)
            or not _DIGEST.fullmatch(digest)
        ):
            raise ContentError(
                f"its end tells of a log of {quoted(sequence)} entries and {quoted(rows)} rows with the digest "
                f"{quoted(digest)}"
            )
        self.binding = Binding(sequence, rows, digest)

    def _frame(self, contents: tuple[int, ...]) -> frames.Frame:
        self._stream.seek(self.offset)
        head = self._stream.read(frames.HEADER_SIZE)
        if len(head) < frames.HEADER_SIZE:
            raise ContentError("it ends before its end")
        # The length is believed only as far as there are bytes: the checksums are compared after.
        (length,) = struct.unpack_from("<Q", head, _LENGTH_AT)
        if length > self._size - self.offset - frames.HEADER_SIZE:
            raise ContentError("bytes are missing or altered")
        frame = frames.decode_frame(head + self._stream.read(length), 0)
        if frame is None or frame.content not in contents:
            raise ContentError("bytes are missing or altered")
        digest = hashlib.sha256(self.digest + frame.body).digest()
        if digest != frame.digest:
            raise ContentError("a part is not the one that belongs there")
        self.digest = digest
        self.offset += frame.size
        return frame


def _json(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ContentError(f"it holds no JSON where some belongs: {quoted(str(error))}") from error
    if not isinstance(fields, dict):
        raise ContentError("it holds no JSON object where one belongs")
    return fields


def _is_count(value: object) -> TypeGuard[int]:
    """Tell whether what was read from JSON is a whole number from 0 that fits into 64 bits."""
    return type(value) is int and 0 <= value < 1 << 63


# --- paths --------------------------------------------------------------------------------------------------------


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a vector file. Raises InputError: it names no file, or is too long for the system."""
    try:
        name = os.fspath(path)
        if not isinstance(name, str) or not name.strip() or not Path(name).name:
            raise ValueError("it names no file")
        try:
            os.stat(name)  # ValueError for what no path can hold
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise ValueError("it is longer than the system allows") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{quoted(path)} is no path of a vector file: {error}") from None
    return Path(name)


def shown(path: Path) -> str:
    """Return a path for a message, cut where it is long."""
    return quoted(str(path), _SHOWN)


@contextmanager
def without_file_names() -> Iterator[None]:
    """Take the path out of an OSError: the message that it becomes part of names it already, cut where it is long."""
    try:
        yield
    except OSError as error:
        error.filename = None
        raise
