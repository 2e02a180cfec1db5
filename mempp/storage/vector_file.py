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

import fcntl
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from mempp.errors import InputError, StoreDamagedError, StoreError, StoreLockedError, StoreVersionError, quoted
from mempp.storage import files, frames
from mempp.storage.codec import ContentError
from mempp.storage.vectors import MAX_DIMENSIONS, VectorBatch

FORMAT = 1
HEADER, PART, END = 3, 4, 5
DIGEST_BYTES = 16
PART_SUFFIX = ".part"

_DOMAIN = b"mempp vector file 1\n"
_LENGTH_AT = 32  # where a frame's header tells the length of its body
_PART = struct.Struct("<I")


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
        StoreError: it cannot be read, or is no vector file.
        StoreVersionError: it is of a newer format.
        StoreDamagedError: its header is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = checked_path(path)
        self.origin = self._header()
        self.binding: Binding | None = None
        """To which log it is bound; known when ``parts`` has been read to its end."""

    def parts(self) -> Iterator[Part]:
        """Yield the parts, checksums verified; the end of the file is checked before the iteration ends.

        Raises:
            StoreDamagedError: bytes are missing or altered; what was yielded before must not be trusted either.
            StoreError: it cannot be read.
        """
        with files.translating_reads(f"cannot read the vector file {self.path}"), open(self.path, "rb") as stream:
            reader = _Reader(stream)
            try:
                reader.header()
                while (part := reader.part()) is not None:
                    yield part
            except ContentError as error:
                raise self._damaged(error, reader.offset) from error
            self.binding = reader.binding

    def _header(self) -> Origin:
        with files.translating_reads(f"cannot read the vector file {self.path}"), open(self.path, "rb") as stream:
            reader = _Reader(stream)
            try:
                return reader.header()
            except ContentError as error:
                if not _looks_like_one(self.path):
                    raise StoreError(
                        f"{self.path} is no vector file; `mempp embed --shard` writes such files"
                    ) from None
                raise self._damaged(error, 0) from error

    def _damaged(self, error: ContentError, offset: int) -> StoreDamagedError:
        return StoreDamagedError(
            f"the vector file {self.path} is damaged at byte {offset} ({error}); nothing was taken from it. Copy it "
            f"again, or make it again with `mempp embed --shard`"
        )


def _looks_like_one(path: Path) -> bool:
    with open(path, "rb") as stream:
        start = stream.read(12)
    return start.startswith(frames.MAGIC) and start[10:12] == HEADER.to_bytes(2, "little")


class _Reader:
    """Reads one frame after the other, and checks that each continues those before. Raises ContentError, OSError."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size
        self._origin: Origin | None = None
        self.offset = 0
        self.digest = hashlib.sha256(_DOMAIN).digest()
        self.vectors = 0
        self.binding: Binding | None = None

    def header(self) -> Origin:
        frame = self._frame((HEADER,))
        fields = _json(frame.body)
        if fields.get("format") != "mempp-vector-file" or type(fields.get("version")) is not int:
            raise ContentError("its header is not that of a vector file")
        if fields["version"] > FORMAT:
            raise StoreVersionError(
                f"the vector file is of format {fields['version']}, and this Mem++ reads {FORMAT}. Install a newer "
                f"mempp."
            )
        try:
            number, of = fields["shard"]
            self._origin = Origin(fields["store_id"], fields["identity"], fields["dimensions"], (number, of))
        except (KeyError, TypeError, ValueError) as error:
            raise ContentError(f"its header lacks something: {error}") from error
        dimensions = self._origin.dimensions
        if type(dimensions) is not int or not 1 <= dimensions <= MAX_DIMENSIONS:
            raise ContentError(f"its header tells {quoted(dimensions)} dimensions")
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
        if count < 1 or len(body) != _PART.size + count * (12 + DIGEST_BYTES + 4 * dimensions):
            raise ContentError(f"a part does not hold {count} vectors of {dimensions} dimensions")
        if _PART.unpack_from(body)[0] != dimensions:
            raise ContentError("a part tells other dimensions than the header")
        views_at = _PART.size + 8 * count
        digests_at = views_at + 4 * count
        vectors_at = digests_at + DIGEST_BYTES * count
        batch = VectorBatch(
            np.frombuffer(body, "<i8", count, _PART.size).astype(np.int64),
            np.frombuffer(body, "<i4", count, views_at).astype(np.int32),
            np.frombuffer(body, "<f4", count * dimensions, vectors_at).astype(np.float32).reshape(count, dimensions),
        )
        digests = np.frombuffer(body, np.uint8, DIGEST_BYTES * count, digests_at).reshape(count, DIGEST_BYTES)
        self.vectors += count
        return Part(batch, digests, self.digest)

    def _end(self, frame: frames.Frame) -> None:
        fields = _json(frame.body)
        if fields.get("vectors") != self.vectors or frame.first_sequence != self.vectors:
            raise ContentError(f"its end tells {quoted(fields.get('vectors'))} vectors, and it holds {self.vectors}")
        if self.offset != self._size:
            raise ContentError("bytes follow its end")
        try:
            self.binding = Binding(int(fields["log_sequence"]), int(fields["log_rows"]), str(fields["log_digest"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ContentError(f"its end lacks something: {error}") from error

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
    except ValueError as error:
        raise ContentError(f"it holds no JSON where some belongs: {error}") from error
    if not isinstance(fields, dict):
        raise ContentError("it holds no JSON object where one belongs")
    return fields


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a vector file. Raises InputError: it names no file."""
    try:
        name = os.fspath(path)
        os.fsencode(name)
        if not isinstance(name, str) or not name.strip() or "\0" in name:
            raise ValueError("it names no file")
    except (TypeError, ValueError) as error:
        raise InputError(f"{quoted(path)} is no path of a vector file: {error}") from None
    return Path(name)


# --- writing ------------------------------------------------------------------------------------------------------


class VectorFileWriter:
    """Writes a vector file; a context manager. Left without ``finish``, what was appended stays in ``FILE.part``.

    Args:
        path: the file. One of the same origin that is there is continued, as is its ``.part``.
        origin: whose vectors it is to hold.
        take: called with every part that is there already; False: it is of no use, and it and what follows is dropped.

    Raises:
        InputError: there is another file under the name, or a vector file of another origin.
        StoreLockedError: another process is writing it.
        StoreReadOnlyError, StoreWriteError: the system refuses.
    """

    def __init__(self, path: str | os.PathLike[str], origin: Origin, take: Callable[[Part], bool]) -> None:
        self.path = checked_path(path)
        self.part_path = self.path.with_name(self.path.name + PART_SUFFIX)
        self._descriptor: int | None = None
        self._check_replaceable(origin)
        with files.translating_writes(f"cannot write the vector file {self.part_path}"):
            try:
                self._open()
                self._resume(origin, take)
            except BaseException:
                self.close()
                raise

    def append(self, part: Part) -> None:
        """Write a part. Raises StoreWriteError, StoreReadOnlyError."""
        batch = part.batch
        body = b"".join(
            (
                _PART.pack(batch.vectors.shape[1]),
                batch.row_ids.astype("<i8").tobytes(),
                batch.views.astype("<i4").tobytes(),
                part.digests.astype(np.uint8).tobytes(),
                batch.vectors.astype("<f4").tobytes(),
            )
        )
        self._write(PART, len(batch), body)
        self._vectors += len(batch)

    def finish(self, binding: Binding) -> None:
        """Write the end, make all of it durable, and give the file its name. Raises as ``append``."""
        fields = {
            "log_digest": binding.digest,
            "log_rows": binding.rows,
            "log_sequence": binding.sequence,
            "vectors": self._vectors,
        }
        self._write(END, 1, json.dumps(fields, sort_keys=True).encode())
        assert self._descriptor is not None, "it was opened"
        with files.translating_writes(f"cannot write the vector file {self.path}"):
            files.sync(self._descriptor)
            files.rename(self.part_path, self.path)
            files.fsync_directory(self.path.absolute().parent)
        self.close()

    def close(self) -> None:
        """Let go of it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_replaceable(self, origin: Origin) -> None:
        """Refuse to write over anything but vectors of the same origin."""
        if not self.path.exists():
            return
        try:
            there = VectorFile(self.path).origin
        except StoreDamagedError:
            return  # its header is damaged: it is made anew
        except (StoreVersionError, StoreError) as error:
            raise InputError(f"{error}; it is not written over: name another file") from None
        if there != origin:
            raise InputError(
                f"{self.path} holds vectors of shard {there.shard[0]}/{there.shard[1]} by {there.identity!r} for the "
                f"store {there.store_id}; it is not written over: name another file"
            )

    def _open(self) -> None:
        """Open and lock ``.part``; not one that another process has just given its final name."""
        while True:
            self._descriptor = files.open_file(self.part_path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreLockedError(
                    f"another process is writing {self.part_path}; wait for it, or name another file"
                ) from None
            mine = os.fstat(self._descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self.part_path), mine):
                    return
            self.close()

    def _resume(self, origin: Origin, take: Callable[[Part], bool]) -> None:
        """Take in what is whole of ``.part``, or else of the file, cut the rest, and stand at the end."""
        assert self._descriptor is not None, "it was opened"
        if os.fstat(self._descriptor).st_size == 0 and self.path.exists():
            shutil.copyfile(self.path, self.part_path)
        self._vectors, self._offset, self._digest = 0, 0, hashlib.sha256(_DOMAIN).digest()
        with open(self.part_path, "rb") as stream:
            reader = _Reader(stream)
            with suppress(ContentError, StoreVersionError):
                if reader.header() == origin:
                    while True:
                        self._vectors, self._offset, self._digest = reader.vectors, reader.offset, reader.digest
                        part = reader.part()
                        if part is None or not take(part):
                            break
        files.set_size(self._descriptor, self._offset)
        if self._offset == 0:
            fields = {
                "dimensions": origin.dimensions,
                "format": "mempp-vector-file",
                "identity": origin.identity,
                "shard": list(origin.shard),
                "store_id": origin.store_id,
                "version": FORMAT,
            }
            self._write(HEADER, 1, json.dumps(fields, sort_keys=True).encode())

    def _write(self, content: int, count: int, body: bytes) -> None:
        assert self._descriptor is not None, "it is not closed"
        digest = hashlib.sha256(self._digest + body).digest()
        data = memoryview(frames.encode_frame(frames.Frame(content, count, self._vectors, 0, digest, body)))
        size = len(data)
        with files.translating_writes(f"cannot write the vector file {self.part_path}"):
            written = 0
            while written < size:
                written += files.write(self._descriptor, data[written:], self._offset + written)
        self._offset += size
        self._digest = digest
