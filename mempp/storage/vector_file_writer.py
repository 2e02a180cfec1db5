"""Writing vector files (``vector_file.py`` tells their format): under the name ``FILE.part`` until one is whole.

What is whole of a ``FILE.part`` is used when the work is begun again. Nothing is written over but vectors of the same
store, encoder and shard, neither under the name nor under the ``.part``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from mempp.errors import InputError, StoreDamagedError, StoreError, StoreLockedError, StoreVersionError, quoted
from mempp.storage import files, frames
from mempp.storage.codec import ContentError
from mempp.storage.vector_file import (
    DOMAIN,
    END,
    FORMAT,
    HEADER,
    PART,
    PART_HEAD,
    Binding,
    FrameReader,
    Origin,
    Part,
    VectorFile,
    checked_path,
    shown,
    without_file_names,
)

PART_SUFFIX = ".part"


class VectorFileWriter:
    """Writes a vector file; a context manager. Left without ``finish``, what was appended stays in ``FILE.part``.

    Args:
        path: the file, or a symbolic link to it. One of the same origin that is there is continued, and its ``.part``.
        origin: whose vectors it is to hold.
        take: called with every part that is there already; False: it is of no use, and it and what follows is dropped.

    Raises:
        InputError: the path names no file; or there is another file under it or under that of the ``.part``, or a
            vector file of another origin.
        StoreLockedError: another process is writing it.
        StoreReadOnlyError, StoreWriteError: the system refuses.
    """

    def __init__(self, path: str | os.PathLike[str], origin: Origin, take: Callable[[Part], bool]) -> None:
        self.path = checked_path(path)
        if os.path.islink(self.path):
            # Renaming FILE.part to the link would put a file in place of the link.
            self.path = checked_path(os.path.realpath(self.path))
        self.part_path = checked_path(self.path.with_name(self.path.name + PART_SUFFIX))
        self._descriptor: int | None = None
        if os.path.exists(self.path):
            _check_replaceable(self.path, origin)
        if os.path.exists(self.part_path) and not os.path.isfile(self.part_path):
            _check_replaceable(self.part_path, origin)
        with _writing(self.part_path):
            try:
                self._open(origin)
                self._resume(origin, take)
            except BaseException:
                self.close()
                raise

    def append(self, part: Part) -> None:
        """Write a part. Raises StoreWriteError, StoreReadOnlyError."""
        batch = part.batch
        body = b"".join(
            (
                PART_HEAD.pack(batch.vectors.shape[1]),
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
        with _writing(self.path):
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

    def _open(self, origin: Origin) -> None:
        """Open and lock ``.part``; not one that another process has just given its final name, or one of other use."""
        while True:
            self._descriptor = files.open_file(self.part_path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreLockedError(
                    f"another process is writing {shown(self.part_path)}; wait for it, or name another file"
                ) from None
            mine = os.fstat(self._descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self.part_path), mine):
                    if mine.st_size:
                        _check_replaceable(self.part_path, origin)
                    return
            self.close()

    def _resume(self, origin: Origin, take: Callable[[Part], bool]) -> None:
        """Take in what is whole of ``.part``, or else of the file, cut the rest, and stand at the end."""
        assert self._descriptor is not None, "it was opened"
        if os.fstat(self._descriptor).st_size == 0 and os.path.exists(self.path):
            shutil.copyfile(self.path, self.part_path)
        self._vectors, self._offset, self._digest = 0, 0, hashlib.sha256(DOMAIN).digest()
        with open(self.part_path, "rb") as stream, suppress(ContentError, StoreVersionError):
            reader = FrameReader(stream)
            whole = reader.header() == origin
            while whole:
                self._vectors, self._offset, self._digest = reader.vectors, reader.offset, reader.digest
                part = reader.part()
                whole = part is not None and take(part)
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
        with _writing(self.part_path):
            written = 0
            while written < size:
                written += files.write(self._descriptor, data[written:], self._offset + written)
        self._offset += size
        self._digest = digest


def _check_replaceable(path: Path, origin: Origin) -> None:
    """Refuse, with InputError, to write over anything but vectors of the same origin."""
    try:
        there = VectorFile(path).origin
    except StoreDamagedError:
        return  # of a vector file whose header is damaged nothing can be used: it is made anew
    except StoreError as error:
        raise InputError(f"{error}; it is not written over: move it away, or name another file") from None
    if there != origin:
        raise InputError(
            f"{shown(path)} holds vectors of shard {there.shard[0]}/{there.shard[1]} by {quoted(there.identity)} for "
            f"the store {quoted(there.store_id)}; it is not written over: move it away, or name another file"
        )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    with files.translating_writes(f"cannot write the vector file {shown(path)}"), without_file_names():
        yield
