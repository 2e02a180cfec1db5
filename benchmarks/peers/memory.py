"""Mem++ with vectors that are given: by its vector leg alone, and as the whole that its settings make of it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mempp
from benchmarks.peers import Scope
from benchmarks.synthetic import Block
from mempp.encoders import EncoderIdentity

# What `mempp.open` would import at its first call: imports are no part of any system's opening.
for _module in ("mempp.memory", "mempp.storage", "pyarrow.parquet", "pyarrow.compute", "tantivy"):
    import_module(_module)

_VECTOR_LEG: dict[str, Any] = {
    "fusion": "ranks",
    "weight_lexical": 0.0,
    "weight_tags": 0.0,
    "weight_dates": 0.0,
    "context": 0,
    "windows": False,
    "names": False,
    "thread_spread": 0.0,
    "recency_slots": 0,
}
SETTINGS = {
    "vectors alone": mempp.Settings(**_VECTOR_LEG),
    "vectors alone, exact=True": mempp.Settings(**_VECTOR_LEG, exact=True),
    "whole, preset locomo": mempp.preset("locomo"),
    "whole, default": mempp.Settings(),
}


class Given:
    """An encoder of vectors that are known already."""

    def __init__(self, dimensions: int) -> None:
        self.identity = EncoderIdentity(f"given-{dimensions}", dimensions, {"kind": "given"})
        self.documents: dict[str, NDArray[np.float32]] = {}
        self.question = np.zeros(dimensions, np.float32)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dimensions) the vectors given for these texts."""
        return np.array([self.documents[text] for text in texts], np.float32).reshape(-1, self.identity.dimensions)

    def encode_question(self, text: str) -> NDArray[np.float32]:
        """(dimensions,) the vector given last."""
        return self.question


class Writer:
    """Takes a record in; see `benchmarks.peers.Writer`."""

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        self._encoder = Given(dimensions)
        self._memory = mempp.open(folder / "store", encoder=self._encoder)

    def add(self, block: Block) -> None:
        """Add rows; their vectors are stored and indexed when it returns."""
        self._encoder.documents = dict(zip(block.texts, block.vectors, strict=True))
        self._memory.add_many(
            mempp.Document(
                text=text, occurred_at=datetime.fromtimestamp(date, UTC), author=author, source=source, thread=thread
            )
            for text, date, author, source, thread in zip(
                block.texts, block.dates.tolist(), block.authors, block.sources, block.threads, strict=True
            )
        )

    def finish(self) -> None:
        """Wait for the graph, if one is being built, and close."""
        assert self._memory.stats().without_vector == 0
        wait_for_graph(self._memory)
        self._memory.close()


class Reader:
    """Answers questions; see `benchmarks.peers.Reader`."""

    first = "whole, default"

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        self.variants = {name: name.startswith("vectors alone") for name in SETTINGS}
        self._encoder = Given(dimensions)
        self._memory = mempp.open(folder / "store", encoder=self._encoder)

    def settle(self) -> None:
        """Wait for the graph, if one is being loaded."""
        wait_for_graph(self._memory)

    def ask(self, variant: str, text: str, vector: NDArray[np.float32], scope: Scope, k: int) -> list[int]:
        """The rows of at most k hits."""
        self._encoder.question = vector
        hits = self._memory.recall(
            text,
            k=k,
            settings=SETTINGS[variant],
            as_of=None if scope.until is None else datetime.fromtimestamp(scope.until, UTC),
            author=scope.author,
            source=scope.source,
        )
        return [_read(hit.record) for hit in hits]

    def bytes_on_disk(self) -> int | None:
        """All files of the folder."""
        return None

    def close(self) -> None:
        """Close the store."""
        self._memory.close()


def wait_for_graph(memory: mempp.Memory) -> None:
    """Wait for the HNSW graph, if one is being built or loaded (only beyond `exact_up_to`)."""
    index = memory._projection.indexes.vectors
    if index is not None:
        index.wait_until_built()


def _read(record: mempp.Record) -> int:
    assert record.text
    assert record.occurred_at
    assert record.author
    return record.row_id
