"""``cache/vectors-<identity>.flat``: the sealed vectors of an encoder as plain arrays, to be mapped into memory.

Decoding Parquet is most of the time that opening a large store takes, and what was decoded lies in memory for good. A
flat file is mapped instead: the system reads of it what is asked for. It is derived from the segments, bound to their
names and footers, and cheap to lose; whatever does not fit is passed over, and written anew by the next writer that
opens the store and finds enough to be worth it.

How such a file lies on the disk is in `mapped`. Its magic is 93 4D 2B 2B 56 45 43 0A, its format 1, and its sections
are, for heads (view 0) and for windows, row ids (int64), views (int32) and vectors (float32).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.errors import MemppError, StoreError
from mempp.storage import files, mapped, segments
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
_TYPES = ("<i8", "<i4", "<f4")

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
        except OSError as error:
            _logger.warning("the flat vectors %s cannot be read and are passed over: %s", self._path, error)
        except mapped.UnusableError as reason:
            _logger.info("the flat vectors %s are passed over: %s", self._path, reason)
        except (*mapped.UNREADABLE, MemppError) as error:
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
        parts = [*(held.batches if held is not None else ()), *batches[:covered]]
        try:
            fingerprint = _fingerprint(directory, reached)
            mapped.write(
                self._path, _MAGIC, _FORMAT, lambda sections: self._body(sections, reached, fingerprint, parts)
            )
            self._remove_others()
        except (*mapped.UNREADABLE, StoreError) as error:
            _logger.warning("%s could not be written, and opening will take longer: %s", self._path, error)
            return None
        # Not checked: looking at all of it would take memory that the batches still hold.
        flat = self._loaded(directory, check=False)
        return None if flat is None or flat.items != reached else (flat, covered)

    def _load(self, directory: Path, *, check: bool) -> Flat:
        with mapped.reading(self._path, _MAGIC, _FORMAT) as file:
            header = file.header
            for name, value in self._facts.items():
                if header[name] != value:
                    raise mapped.UnusableError(f"its {name} is {str(header[name])[:60]!r}, not {value!r}")
            items = int(header["items"])
            if _fingerprint(directory, items) != header["segments"]:
                raise mapped.UnusableError("it was made of other segments")
            self._check_binding(directory, items)
            batches = []
            for part in header["parts"]:
                shapes = _shapes(int(part["count"]), self._dimensions)
                row_ids, views, vectors = (
                    file.array(dtype, shape, offset, told if check else None)
                    for (offset, told), dtype, shape in zip(part["sections"], _TYPES, shapes, strict=True)
                )
                batches.append(VectorBatch(row_ids, views, vectors, digest=str(part["sections"][-1][1])))
        if sum(map(len, batches)) != items:
            raise ValueError("its parts are not what it tells")
        rows = self._codec.log_position().row
        if any(batch.row_ids.min() < 0 or batch.row_ids.max() >= rows for batch in batches):
            raise mapped.UnusableError("it holds vectors of rows that the log does not hold")
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
            raise mapped.UnusableError(f"its segments are not of this log: {error}") from error

    def _body(
        self, sections: mapped.Sections, items: int, fingerprint: str, batches: Sequence[VectorBatch]
    ) -> dict[str, Any]:
        parts = []
        for heads in (True, False):
            count = sum(int(np.count_nonzero((batch.views == HEAD) == heads)) for batch in batches)
            if count:
                names = ("row_ids", "views", "vectors")
                written = [sections.add(_of(batches, name, heads=heads)) for name in names]
                parts.append({"count": count, "sections": written})
        return {**self._facts, "items": items, "parts": parts, "segments": fingerprint}


def flat_vectors_of(store: Path, codec: VectorCodec, *, writable: bool) -> FlatVectors:
    """The flat file of an encoder in the store at this path."""
    return FlatVectors(store / CACHE / f"vectors-{codec.identity}.flat", codec, writable=writable)


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


def _shapes(count: int, dimensions: int) -> tuple[tuple[int, ...], ...]:
    return (count,), (count,), (count, dimensions)


def _of(batches: Sequence[VectorBatch], name: str, *, heads: bool) -> Iterator[NDArray[Any]]:
    for batch in batches:
        wanted = (batch.views == HEAD) == heads
        if wanted.any():
            array = getattr(batch, name)
            yield array if wanted.all() else array[wanted]
