"""Where encoder, vector files and vector index meet: which encoder a store uses, and which rows still lack vectors."""

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.encoders import Encoder, load_encoder, resolve_encoder
from mempp.errors import EncoderError, EncoderMismatchError, MemppError
from mempp.projection import Projection
from mempp.records import canonical_json
from mempp.storage import Entry, Store, VectorBatch, VectorStore

DEFAULT_ENCODER = "minilm"
NO_ENCODER = "none"
CHUNK = 64
"""Rows whose vectors are encoded before they are kept."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Name and size of the vectors of a store, and how to make their encoder again."""

    name: str
    dimensions: int
    description: dict[str, Any]


class Embedder:
    """Embeds rows and questions with the encoder of one store. The encoder is made when it is first needed."""

    def __init__(self, store: Store, projection: Projection, choice: str | Path | Encoder | None) -> None:
        """Settle which encoder it is, and read the vectors that the store has.

        Args:
            store: the opened store.
            projection: the derived state, the log already applied.
            choice: an encoder, its name, a directory, "none", or None: the encoder that the store was made with,
                else the environment variable MEMPP_ENCODER, else MiniLM.

        Raises:
            EncoderMismatchError: the store's vectors came from another encoder than the one chosen.
        """
        self._store = store
        self._projection = projection
        self._lock = threading.Lock()
        self._vectors: VectorStore | None = None
        self._encoder: Encoder | None = None
        self._off = choice == NO_ENCODER
        stored = self._stored()
        if not self._off and (choice is not None or stored is None):
            named = choice if choice is not None else os.environ.get("MEMPP_ENCODER", "").strip() or DEFAULT_ENCODER
            self._off = named == NO_ENCODER
            self._encoder = None if self._off else resolve_encoder(named)
        if self._encoder is not None and stored is not None:
            self._check_same(self._encoder, stored)
        self.take_in(self.read_new())

    def over(self, projection: Projection) -> "Embedder":
        """The same encoder over a new projection of the same store."""
        choice = NO_ENCODER if self._off else self._encoder
        return Embedder(self._store, projection, choice)

    @property
    def encoder(self) -> Encoder | None:
        """The encoder, made from what the store tells if need be; None when it was turned off.

        Raises:
            EncoderUnavailableError: the store's encoder cannot be made here.
        """
        if self._encoder is None and not self._off:
            stored = self._stored()
            if stored is not None:
                with self._lock:
                    self._encoder = self._encoder or load_encoder(stored.name, stored.description)
        return self._encoder

    @property
    def name(self) -> str | None:
        """The name of the encoder that the store uses, or will use; None when there is none."""
        stored = self._stored()
        if stored is not None:
            return stored.name
        return None if self._encoder is None else self._encoder.identity.name

    def make_ready(self) -> None:
        """Load the encoder now, so that a document is not stored first and then cannot be embedded.

        Raises:
            EncoderUnavailableError: its weights, files or packages are missing.
        """
        encoder = self.encoder
        load = getattr(encoder, "load", None)
        if load is not None:
            load()

    def registration(self) -> list[Entry]:
        """The entry that makes this the store's encoder, if it has none; call it inside the commit lock.

        Raises:
            EncoderMismatchError: another process made another encoder the store's.
        """
        if self._encoder is None:
            return []
        stored = self._stored()
        if stored is not None:
            self._check_same(self._encoder, stored)
            return []
        identity = self._encoder.identity
        payload = {
            "name": identity.name,
            "dimensions": identity.dimensions,
            "description": dict(identity.description),
        }
        return [Entry(kind="encoder", payload=canonical_json(payload, "encoder description"))]

    def encode_question(self, question: str) -> NDArray[np.float32]:
        """(dimensions,) unit vector of a question.

        Raises:
            EncoderError: the encoder failed or is not available.
        """
        try:
            encoder = self.encoder
            assert encoder is not None, "the vector leg has vectors only where there is an encoder"
            vector = np.asarray(encoder.encode_question(question), dtype=np.float32)
        except MemppError as error:
            error.add_note("to ask without the vector leg, use settings=mempp.Settings(weight_vector=0)")
            raise
        checked: NDArray[np.float32] = self._checked(vector.reshape(1, -1), 1)[0]
        return checked

    def encode_missing(self, row_ids: Sequence[int]) -> VectorBatch | None:
        """Vectors of those of these rows that have none yet; None when there is nothing to do. Takes no lock."""
        encoder = self.encoder
        missing = self._projection.rows_without_vectors(row_ids) if encoder is not None else []
        if encoder is None or not missing:
            return None
        try:
            parts = [
                np.asarray(encoder.encode_documents(texts), dtype=np.float32)
                for texts in (
                    [self._projection.text_of(row) for row in missing[start : start + CHUNK]]
                    for start in range(0, len(missing), CHUNK)
                )
            ]
        except MemppError as error:
            error.add_note(f"{len(missing)} rows are stored and durable, but not embedded; embed() does that later")
            raise
        vectors = self._checked(np.concatenate(parts), len(missing))
        return VectorBatch(np.array(missing, dtype=np.int64), np.zeros(len(missing), dtype=np.int32), vectors)

    def keep(self, batch: VectorBatch) -> int:
        """Store and index vectors; call it inside the commit lock. Rows that another process embedded are skipped."""
        self.take_in(self.read_new())
        wanted = set(self._projection.rows_without_vectors(batch.row_ids.tolist()))
        kept = np.array([row in wanted for row in batch.row_ids.tolist()], dtype=np.bool_)
        vectors = self._open_vectors()
        if vectors is None or not kept.any():
            return 0
        fresh = VectorBatch(batch.row_ids[kept], batch.views[kept], batch.vectors[kept])
        vectors.append(fresh)
        self.take_in([fresh])
        return int(kept.sum())

    def read_new(self) -> list[VectorBatch]:
        """Vectors that came into the store since the last look."""
        vectors = self._open_vectors()
        return [] if vectors is None else vectors.refresh()

    def take_in(self, batches: Sequence[VectorBatch]) -> None:
        """Put vectors into the index."""
        self._projection.apply_vectors(batches)

    def _open_vectors(self) -> VectorStore | None:
        """The vector files of the store's encoder; None as long as the store has no encoder, or it is turned off."""
        if self._vectors is None and not self._off:
            stored = self._stored()
            if stored is not None:
                self._vectors = self._store.vectors(stored.name, stored.dimensions)
                self._projection.start_vectors(stored.dimensions)
        return self._vectors

    def _stored(self) -> Identity | None:
        if self._projection.encoder is None:
            return None
        described = json.loads(self._projection.encoder)
        return Identity(described["name"], int(described["dimensions"]), dict(described["description"]))

    def _check_same(self, encoder: Encoder, stored: Identity) -> None:
        name = encoder.identity.name
        if name != stored.name:
            raise EncoderMismatchError(
                f"the store's vectors were made by the encoder {stored.name!r}, not by {name!r}; "
                "open it without encoder= to use its own, or make a new store with the other encoder"
            )

    def _checked(self, vectors: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """Vectors of an encoder, which may be the caller's own, in the promised shape."""
        stored = self._stored()
        dimensions = stored.dimensions if stored is not None else vectors.shape[-1]
        if vectors.shape != (count, dimensions):
            raise EncoderError(
                f"the encoder {self.name!r} gave vectors of shape {vectors.shape}, expected {(count, dimensions)}"
            )
        if not np.isfinite(vectors).all():
            raise EncoderError(f"the encoder {self.name!r} gave a vector that is not finite")
        return vectors
