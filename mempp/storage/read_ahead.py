"""Segments read and decompressed by another thread while the ones before them are taken in.

Arrow lets go of the interpreter's lock while it decodes, so that a store of many segments opens on two cores. What is
read ahead is only bytes and columns: every check is made by whoever takes them, and what cannot be read ahead is read
by him, so that errors are the same and come in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mempp.storage import files

FILES_AHEAD = 3
"""So many are read ahead at most."""

_THREADS = 2
_LARGEST = 64 << 20  # bytes of a file; larger ones, several at once, would take much memory

Loaded = tuple[bytes, pa.Table]
"""The bytes of a file, and its columns."""


class ReadAhead:
    """Reads files ahead. Use it in a `with`; its threads end there."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._pool: ThreadPoolExecutor | None = None
        self._loading: dict[Path, Future[Loaded | None]] = {}

    def __enter__(self) -> ReadAhead:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its threads."""
        self._loading.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def take(self, path: Path, following: Sequence[Path]) -> Loaded | None:
        """Return what was read of a file; None where nothing was, or where that failed.

        Args:
            path: the file.
            following: those that are likely to be asked for next, in order; reading of the first few begins.
        """
        loading = self._loading.pop(path, None)
        if following and self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="mempp-segments")
        for later in following[:FILES_AHEAD]:
            if later not in self._loading and self._pool is not None:
                self._loading[later] = self._pool.submit(_load, later)
        return None if loading is None else loading.result()


def _load(path: Path) -> Loaded | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        data, _ = files.read_from(path, 0)
        parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        return data, parquet.read(use_threads=False)
    except Exception:  # whoever takes it reads the file again, and tells what is wrong
        return None
