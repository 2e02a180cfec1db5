"""Vectors of rows: batches of (row id, view, vector), kept per encoder identity beside the log.

They are derived from the log and dear to make. A batch is bound to the log as it stood when it was written (next
sequence and digest), so that vectors are never taken for those of other documents, and a reader never sees a vector
before its row.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from mempp.errors import (
    EncoderMismatchError,
    InputError,
    RowNotFoundError,
    StoreDamagedError,
    StoreVersionError,
    quoted,
)
from mempp.storage import files, frames
from mempp.storage.codec import ContentError, NotYetError, ParquetOptions
from mempp.storage.entries import Position
from mempp.storage.series import Cut, Series

if TYPE_CHECKING:
    from mempp.storage.flat_vectors import FlatVectors

FORMAT = 1
GROUP_BYTES = 32 << 20
MAX_DIMENSIONS = 65_536

_IDENTITY = re.compile(r"(?!\.)[a-z0-9._-]{1,100}")
_BATCH = struct.Struct("<IQ32s")
_START = Position(0, 0, 0, bytes(32))


@dataclass(frozen=True, slots=True, eq=False)
class VectorBatch:
    """n vectors of d dimensions: ``row_ids`` int64 (n,), ``views`` int32 (n,), ``vectors`` float32 (n, d)."""

    row_ids: np.ndarray[Any, np.dtype[np.int64]]
    views: np.ndarray[Any, np.dtype[np.int32]]
    vectors: np.ndarray[Any, np.dtype[np.float32]]
    digest: str | None = None
    """SHA-256 of the bytes of ``vectors``, little-endian, where they come from a file that tells it."""

    def __post_init__(self) -> None:
        for name, dtype, axes in (("row_ids", np.int64, 1), ("views", np.int32, 1), ("vectors", np.float32, 2)):
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != axes:
                found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                raise InputError(f"{name} must be an array of {dtype.__name__} with {axes} axes; it is {found}.")
        if not len(self.row_ids) == len(self.views) == len(self.vectors):
            raise InputError(
                f"row_ids, views and vectors must be of one length; they have {len(self.row_ids)}, {len(self.views)} "
                f"and {len(self.vectors)}."
            )

    def __len__(self) -> int:
        """Return n."""
        return len(self.row_ids)


class VectorStore(Protocol):
    """The vectors of one encoder identity. When a (row id, view) comes twice, the later one counts."""

    def refresh(self) -> list[VectorBatch]:
        """Return the batches that came since the last refresh or append here; never waits for the commit lock."""
        ...

    def append(self, batch: VectorBatch) -> None:
        """Add vectors of rows that the store holds. Only inside the store's ``writing()``, after a refresh."""
        ...


def check_identity(identity: str, dimensions: int) -> None:
    """Refuse an encoder identity that is no safe folder name, and dimensions out of range, with InputError."""
    if not isinstance(identity, str) or not _IDENTITY.fullmatch(identity):
        raise InputError(
            f"{str(identity)[:120]!r} is no encoder identity: 1 to 100 of a-z, 0-9, dot, hyphen and underscore, not "
            f"beginning with a dot."
        )
    if type(dimensions) is not int or not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InputError(f"dimensions must be between 1 and {MAX_DIMENSIONS:,}; they are {dimensions!r}.")


def check_batch(batch: VectorBatch, dimensions: int, row_count: int) -> None:
    """Refuse a batch of other dimensions, of rows that do not exist, or with numbers that are not finite."""
    if batch.vectors.shape[1] != dimensions:
        raise EncoderMismatchError(f"the vectors have {batch.vectors.shape[1]} dimensions; the store's {dimensions}.")
    if len(batch) and (batch.row_ids.min() < 0 or batch.row_ids.max() >= row_count):
        wrong = int(batch.row_ids.min()) if batch.row_ids.min() < 0 else int(batch.row_ids.max())
        raise RowNotFoundError(f"a vector belongs to row {wrong}; the store holds {row_count} rows.")
    if not np.isfinite(batch.vectors).all():
        raise InputError("a vector holds a number that is not finite. Check the encoder's output.")


class VectorCodec:
    """The codec of vectors. ``log_position`` tells how far this process has read the log."""

    content = "vectors"
    frame_content = frames.VECTORS
    options = ParquetOptions(
        dictionary=(),
        statistics=("row_id",),
        encodings={"vector.list.element": "BYTE_STREAM_SPLIT"},
    )

    def __init__(self, store_id: str, identity: str, dimensions: int, log_position: Callable[[], Position]) -> None:
        self.store_id = store_id
        self.identity = identity
        self.dimensions = dimensions
        self.log_position = log_position
        self.schema = pa.schema(
            [
                pa.field("row_id", pa.int64(), nullable=False),
                pa.field("view", pa.int32(), nullable=False),
                pa.field(
                    "vector",
                    pa.list_(pa.field("element", pa.float32(), nullable=False), dimensions),
                    nullable=False,
                ),
            ]
        )

    def to_frame(self, batch: VectorBatch, position: Position) -> frames.Frame:
        """Return a batch as a frame: binding to the log, row ids, views, vectors, all little-endian."""
        log = self.log_position()
        body = b"".join(
            (
                _BATCH.pack(self.dimensions, log.sequence, log.digest),
                batch.row_ids.astype("<i8").tobytes(),
                batch.views.astype("<i4").tobytes(),
                batch.vectors.astype("<f4").tobytes(),
            )
        )
        return frames.Frame(self.frame_content, len(batch), position.sequence, log.stamp, bytes(32), body)

    def from_frame(self, frame: frames.Frame, position: Position) -> tuple[list[VectorBatch], Position]:
        """Return the batch of a frame."""
        count, body = frame.count, frame.body
        if frame.content != self.frame_content or frame.first_sequence != position.sequence or not count:
            raise ContentError("the frame does not continue the vectors before it")
        if len(body) < _BATCH.size:
            raise ContentError("the frame is too short")
        dimensions, sequence, digest = _BATCH.unpack_from(body)
        if dimensions != self.dimensions or len(body) != _BATCH.size + count * (12 + 4 * dimensions):
            raise ContentError(f"the frame does not hold {count} vectors of {self.dimensions} dimensions")
        self._check_binding(sequence, digest)
        views_at = _BATCH.size + 8 * count
        vectors_at = views_at + 4 * count
        batch = VectorBatch(
            np.frombuffer(body, "<i8", count, _BATCH.size).astype(np.int64),
            np.frombuffer(body, "<i4", count, views_at).astype(np.int32),
            np.frombuffer(body, "<f4", count * dimensions, vectors_at).astype(np.float32).reshape(count, dimensions),
        )
        return [self._checked(batch)], Position(position.sequence + count, 0, 0, position.digest)

    def from_table(self, table: pa.Table, position: Position) -> tuple[list[VectorBatch], Position]:
        """Return the vectors of a table as one batch."""
        count = len(table)
        if count == 0 or any(column.null_count for column in table.columns):
            raise ContentError("it has gaps")
        parts = [chunk.flatten().to_numpy() for chunk in table.column("vector").chunks]
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        batch = VectorBatch(
            table.column("row_id").to_numpy(), table.column("view").to_numpy(), values.reshape(count, self.dimensions)
        )
        return [self._checked(batch)], Position(position.sequence + count, 0, 0, position.digest)

    def digest_after(self, items: Sequence[VectorBatch], digest: bytes) -> bytes:
        """Vectors have no chain."""
        return digest

    def to_tables(self, items: Sequence[VectorBatch]) -> Iterator[pa.Table]:
        """Yield tables of about GROUP_BYTES of vectors."""
        row_ids = np.concatenate([batch.row_ids for batch in items])
        views = np.concatenate([batch.views for batch in items])
        vectors = np.concatenate([batch.vectors for batch in items])
        step = max(1, GROUP_BYTES // (4 * self.dimensions))
        vector_type = self.schema.field("vector").type
        for start in range(0, len(row_ids), step):
            part = slice(start, start + step)
            values = pa.FixedSizeListArray.from_arrays(pa.array(vectors[part].ravel()), type=vector_type)
            arrays = [pa.array(row_ids[part]), pa.array(views[part]), values]
            yield pa.Table.from_arrays(arrays, schema=self.schema)

    def footer(self) -> dict[str, str]:
        """Tell whose vectors they are, and how far the log went when they were sealed."""
        log = self.log_position()
        return {
            "mempp.identity": self.identity,
            "mempp.dimensions": str(self.dimensions),
            "mempp.log_sequence": str(log.sequence),
            "mempp.log_digest": log.digest.hex(),
        }

    def check_footer(self, footer: dict[str, str]) -> None:
        """Refuse the vectors of another encoder or another log."""
        if (footer["mempp.identity"], footer["mempp.dimensions"]) != (self.identity, str(self.dimensions)):
            raise ContentError(f"its vectors come from {footer['mempp.identity'][:100]!r}, not from {self.identity!r}")
        self._check_binding(int(footer["mempp.log_sequence"]), bytes.fromhex(footer["mempp.log_digest"]))

    def _check_binding(self, sequence: int, digest: bytes) -> None:
        log = self.log_position()
        if sequence > log.sequence:
            raise NotYetError
        if sequence == log.sequence and digest != log.digest:
            raise ContentError("its vectors were made for another log")

    def _checked(self, batch: VectorBatch) -> VectorBatch:
        if batch.row_ids.min() < 0 or batch.row_ids.max() >= self.log_position().row:
            raise ContentError("it holds vectors of rows that the log does not hold")
        return batch


def read_dimensions(folder: Path) -> int | None:
    """Return the dimensions that the description of an encoder's vectors tells; None when there is none to read."""
    try:
        dimensions = json.loads(files.read_from(folder / "meta.json", 0)[0])["dimensions"]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return dimensions if type(dimensions) is int and 1 <= dimensions <= MAX_DIMENSIONS else None


def binding_of(frame: frames.Frame) -> tuple[int, bytes]:
    """Return to which log a checked frame of vectors is bound: how many entries it had, and the digest after them."""
    _, sequence, digest = _BATCH.unpack_from(frame.body)
    return sequence, digest


class VectorFolder:
    """A series of vectors in ``vectors/<identity>/``; its directory is made by the first append."""

    def __init__(self, path: Path, codec: VectorCodec, flat: FlatVectors | None = None) -> None:
        self.path = path
        self.codec = codec
        self._settled = self._check_meta()
        self._flat = flat
        self._held = None if flat is None or not self._settled else flat.load(self._segments)
        start = _START if self._held is None else replace(_START, sequence=self._held.items)
        self._series = Series(self._segments, path / "journal", codec, start, durable=False)

    @property
    def _segments(self) -> Path:
        return self.path / "segments"

    def read_on(self) -> None:
        """Read the batches that came since the last reading or append. Raises as ``Series.read_on``."""
        self._series.read_on()

    def take(self) -> list[VectorBatch]:
        """Return the batches read since the last call; the first time those that are mapped come first."""
        batches = self._series.take()
        flat, held = self._flat, self._held
        self._flat = self._held = None  # what is mapped lives as long as whoever takes it
        if flat is not None:
            saved = flat.save(self._segments, held, batches)
            if saved is not None:
                held, covered = saved
                batches = batches[covered:]
        return batches if held is None else [*held.batches, *batches]

    @property
    def stops_short(self) -> bool:
        """Whether the files hold more than was read."""
        return self._series.stops_short

    def describe_stop(self) -> str:
        """Say what is in the files that was not read, and what to do."""
        if self._series.is_waiting:
            return (
                f"vectors in {self.path} speak of entries that the log does not hold: the end of the log may be lost. "
                f"Compare the head digest with one kept elsewhere. The vectors are passed over."
            )
        return (
            f"the vectors in {self.path} are incomplete: after number {self._series.position.sequence}, in "
            f"{self._series.live_path}, come bytes that are no whole batch or that nothing leads to. They are passed "
            f"over, and the rows are found by their words alone. embed() makes the vectors again."
        )

    def append(self, batch: VectorBatch) -> Cut | None:
        """Write a batch, under the commit lock; return what was cut off a torn end before. Raises OSError."""
        if not self._settled and not self._check_meta():
            self._write_meta()
        self._settled = True
        cut = self._series.recover()
        position = self._series.position
        after = Position(position.sequence + len(batch), 0, 0, position.digest)
        self._series.append(self.codec.to_frame(batch, position), after)
        return cut

    def is_full(self, seal_bytes: int) -> bool:
        """Tell whether ``seal`` has something to do."""
        return self._series.is_full(seal_bytes)

    def seal(self, seal_bytes: int) -> None:
        """Seal as ``Series.seal`` does."""
        self._series.seal(seal_bytes)

    def _check_meta(self) -> bool:
        path = self.path / "meta.json"
        try:
            meta = json.loads(files.read_from(path, 0)[0])
            version, identity, dimensions = meta["version"], meta["identity"], meta["dimensions"]
            store_id = meta["store_id"]
            if type(version) is not int or version < 1:
                raise ValueError(f"it tells the version {quoted(version)}")
        except FileNotFoundError:
            return False
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreDamagedError(
                f"{path} is unreadable ({quoted(str(error))}). Remove the directory {self.path}: it is derived, and "
                f"the rows are embedded again."
            ) from error
        if version > FORMAT:
            raise StoreVersionError(f"{path} is of format {version}; this Mem++ reads {FORMAT}. Install a newer mempp.")
        if (identity, dimensions) != (self.codec.identity, self.codec.dimensions):
            raise EncoderMismatchError(
                f"the vectors in {self.path} come from the encoder {str(identity)[:100]!r} with "
                f"{str(dimensions)[:20]} dimensions, not from {self.codec.identity!r} with {self.codec.dimensions}. "
                f"Use that encoder, or give this one another identity."
            )
        if store_id != self.codec.store_id:
            raise StoreDamagedError(f"{path} belongs to another store, {str(store_id)[:40]!r}. Remove {self.path}.")
        return True

    def _write_meta(self) -> None:
        meta = {
            "dimensions": self.codec.dimensions,
            "format": "mempp-vectors",
            "identity": self.codec.identity,
            "store_id": self.codec.store_id,
            "version": FORMAT,
        }
        files.make_directory(self.path)
        files.write_durable(self.path / "meta.json.tmp", (json.dumps(meta, sort_keys=True) + "\n").encode())
        files.rename(self.path / "meta.json.tmp", self.path / "meta.json")
        files.fsync_directory(self.path)
