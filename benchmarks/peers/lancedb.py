"""lancedb in the process: exact scans, and from a size on its IVF_HNSW_SQ index too; scalar indexes for the filters.

Its documentation advises against a vector index up to some 100,000 rows, so from 10,000 on both ways are measured.
"""

from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import Bitmap, BTree, HnswSq
from numpy.typing import NDArray

from benchmarks.peers import Scope
from benchmarks.synthetic import Block

_NAME = "record"
_INDEXED_FROM = 10_000
_READ = ["row", "text", "date", "author", "_distance"]


class Writer:
    """Takes a record in; see `benchmarks.peers.Writer`."""

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        self._rows = rows
        self._dimensions = dimensions
        texts = [pa.field(name, pa.string()) for name in ("text", "author", "source", "thread")]
        self._schema = pa.schema(
            [("row", pa.int64()), ("vector", pa.list_(pa.float32(), dimensions)), ("date", pa.int64()), *texts]
        )
        self._table = lancedb.connect(str(folder)).create_table(_NAME, schema=self._schema)

    def add(self, block: Block) -> None:
        """Add rows."""
        columns = {
            "row": pa.array(np.arange(block.first, block.first + len(block))),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(block.vectors.ravel()), self._dimensions),
            "date": pa.array(block.dates),
            "text": block.texts,
            "author": block.authors,
            "source": block.sources,
            "thread": block.threads,
        }
        self._table.add(pa.table(columns, schema=self._schema))

    def finish(self) -> None:
        """Compact the fragments and build the indexes."""
        self._table.optimize()
        self._table.create_index("date", config=BTree())
        self._table.create_index("author", config=Bitmap())
        self._table.create_index("source", config=BTree())
        if self._rows >= _INDEXED_FROM:
            self._table.create_index("vector", config=HnswSq(distance_type="cosine"))


class Reader:
    """Answers questions; see `benchmarks.peers.Reader`."""

    first = "exact scan"

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        self._table = lancedb.connect(str(folder)).open_table(_NAME)
        self.variants = {"exact scan": True} | ({"IVF_HNSW_SQ": True} if rows >= _INDEXED_FROM else {})

    def settle(self) -> None:
        """Nothing goes on in the background."""

    def ask(self, variant: str, text: str, vector: NDArray[np.float32], scope: Scope, k: int) -> list[int]:
        """The rows of at most k hits."""
        query = self._table.search(vector, vector_column_name="vector").distance_type("cosine").limit(k).select(_READ)
        if variant == "exact scan":
            query = query.bypass_vector_index()
        condition = _condition(scope)
        if condition is not None:
            query = query.where(condition, prefilter=True)
        found = query.to_arrow()
        assert all(found["text"].to_pylist())
        assert all(found["author"].to_pylist())
        return [int(row) for row in found["row"].to_pylist()]

    def bytes_on_disk(self) -> int | None:
        """All files of the folder."""
        return None

    def close(self) -> None:
        """Nothing to close."""


def _condition(scope: Scope) -> str | None:
    if scope.until is not None:
        return f"date <= {scope.until}"
    if scope.author is not None:
        return f"author = '{scope.author}'"
    return None if scope.source is None else f"source = '{scope.source}'"
