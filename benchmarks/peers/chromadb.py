"""chromadb as a persistent client in the process: its HNSW index by cosine, its other settings as they come."""

from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from chromadb.config import Settings
from numpy.typing import NDArray

from benchmarks.peers import Scope
from benchmarks.synthetic import Block

_NAME = "record"
_INCLUDED: Any = ["documents", "metadatas", "distances"]


def _client(folder: Path) -> Any:
    return chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))


class Writer:
    """Takes a record in; see `benchmarks.peers.Writer`."""

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        self._client = _client(folder)
        # No embedding function: else it would look for a model of its own.
        self._collection = self._client.create_collection(
            _NAME, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )

    def add(self, block: Block) -> None:
        """Add rows, as many in a call as it takes."""
        most = self._client.get_max_batch_size()
        ids = [str(row) for row in range(block.first, block.first + len(block))]
        metadatas = [
            {"date": date, "author": author, "source": source, "thread": thread}
            for date, author, source, thread in zip(
                block.dates.tolist(), block.authors, block.sources, block.threads, strict=True
            )
        ]
        for start in range(0, len(block), most):
            part = slice(start, start + most)
            self._collection.add(
                ids=ids[part],
                embeddings=block.vectors[part],
                metadatas=metadatas[part],
                documents=block.texts[part],
            )

    def finish(self) -> None:
        """Close; its index was built while adding."""
        self._client.close()


class Reader:
    """Answers questions; see `benchmarks.peers.Reader`."""

    first = "HNSW"

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        self.variants = {"HNSW": True}
        self._client = _client(folder)
        self._collection = self._client.get_collection(_NAME, embedding_function=None)

    def settle(self) -> None:
        """Nothing that could be waited for."""

    def ask(self, variant: str, text: str, vector: NDArray[np.float32], scope: Scope, k: int) -> list[int]:
        """The rows of at most k hits."""
        found = self._collection.query(query_embeddings=[vector], n_results=k, where=_where(scope), include=_INCLUDED)
        assert all(found["documents"][0])
        assert all(one["author"] for one in found["metadatas"][0])
        return [int(one) for one in found["ids"][0]]

    def bytes_on_disk(self) -> int | None:
        """All files of the folder."""
        return None

    def close(self) -> None:
        """Close the client."""
        self._client.close()


def _where(scope: Scope) -> dict[str, Any] | None:
    if scope.until is not None:
        return {"date": {"$lte": scope.until}}
    if scope.author is not None:
        return {"author": scope.author}
    return None if scope.source is None else {"source": scope.source}
