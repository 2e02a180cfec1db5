"""Where encoder, vector files and vector index meet: which encoder a store uses, and which rows still lack vectors."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.encoders import Encoder, EncoderIdentity, load_encoder, resolve_encoder
from mempp.encoders.windows import windows_of
from mempp.errors import EncoderError, EncoderMismatchError, InputError, MemppError, quoted
from mempp.projection import HEAD, Projection
from mempp.records import canonical_json
from mempp.storage import Entry, Store, VectorBatch, VectorStore, check_identity

DEFAULT_ENCODER = "minilm"
NO_ENCODER = "none"
_LENGTH_TOLERANCE = 0.01  # what half precision may cost
CHUNK = 64
"""Rows whose vectors are encoded before they are kept."""


def is_none(choice: object) -> bool:
    """Whether the caller chose to do without an encoder."""
    return isinstance(choice, str) and choice == NO_ENCODER


class Embedder:
    """Embeds rows and questions with the encoder of one store. The encoder is made when it is first needed."""

    def __init__(
        self, store: Store, projection: Projection, choice: str | Path | Encoder | None, *, windows: bool = True
    ) -> None:
        """Settle which encoder it is, and read the vectors that the store has.

        Args:
            store: the opened store.
            projection: the derived state, the log already applied.
            choice: an encoder, its name, a directory, "none", or None: the encoder that the store was made with,
                else the environment variable MEMPP_ENCODER, else MiniLM.
            windows: whether the windows of long texts are embedded too, or their heads alone.

        Raises:
            EncoderMismatchError: the store's vectors came from another encoder than the one chosen.
        """
        self._store = store
        self._projection = projection
        self._lock = threading.Lock()
        self._vectors: VectorStore | None = None
        self._encoder: Encoder | None = None
        self._vectors_of: str | None = None
        self._windows = windows
        self._off = is_none(choice)
        stored = self._stored()
        if not self._off and (choice is not None or stored is None):
            named = choice if choice is not None else os.environ.get("MEMPP_ENCODER", "").strip() or DEFAULT_ENCODER
            self._off = is_none(named)
            self._encoder = None if self._off else resolve_encoder(named)
        if self._encoder is not None and stored is not None:
            self._check_replaceable(self._encoder, stored)
        self.take_in(self.read_new())

    def over(self, projection: Projection) -> "Embedder":
        """The same encoder over a new projection of the same store."""
        choice = NO_ENCODER if self._off else self._encoder
        return Embedder(self._store, projection, choice, windows=self._windows)

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
        stored = self._current() if self._encoder is not None else self._stored()
        if stored is not None:
            return stored.name
        return None if self._encoder is None else self._identity(self._encoder).name

    def make_ready(self) -> None:
        """Load the encoder now, so that a document is not stored first and then cannot be embedded.

        Raises:
            EncoderUnavailableError: its weights, files or packages are missing.
        """
        load = getattr(self.encoder, "load", None)
        if callable(load):
            self._run(load)

    def registration(self) -> list[Entry]:
        """The entry that makes this the store's encoder, if it has none; call it inside the commit lock.

        Raises:
            EncoderMismatchError: another process made another encoder the store's.
        """
        if self._encoder is None:
            return []
        identity = self._identity(self._encoder)
        stored = self._stored()
        if stored is not None and stored.name == identity.name:
            return []
        if stored is not None:
            self._check_replaceable(self._encoder, stored)
        check_identity(identity.name, identity.dimensions)
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
            checked = self._checked([self._run(lambda: encoder.encode_question(question))], 1)
        except MemppError as error:
            error.add_note("to ask without the vector leg, use settings=mempp.Settings(weight_vector=0)")
            raise
        vector: NDArray[np.float32] = checked[0]
        return vector

    def missing(self, row_ids: Sequence[int] | None = None) -> list[int]:
        """The rows (of these, or of all) that lack a vector of their head or, where windows count, of their windows."""
        missing = self._projection.rows_without_vectors(row_ids)
        if self._windows:
            missing = sorted({*missing, *self._projection.rows_without_windows(row_ids)})
        return missing

    def encode_missing(self, row_ids: Sequence[int]) -> VectorBatch | None:
        """Vectors of those of these rows that have none yet; None when there is nothing to do. Takes no lock."""
        encoder = self.encoder
        if encoder is None:
            return None
        views = self._views_to_make(row_ids)
        if not views:
            return None
        try:
            parts = []
            for start in range(0, len(views), CHUNK):
                texts = [text for _, _, text in views[start : start + CHUNK]]
                parts.append(self._checked(self._run(partial(encoder.encode_documents, texts)), len(texts)))
        except MemppError as error:
            rows = len({row for row, _, _ in views})
            error.add_note(f"{rows} rows are stored and durable, but not embedded; embed() does that later")
            raise
        rows_of_views = np.array([row for row, _, _ in views], dtype=np.int64)
        return VectorBatch(
            rows_of_views, np.array([view for _, view, _ in views], dtype=np.int32), np.concatenate(parts)
        )

    def _views_to_make(self, row_ids: Sequence[int]) -> list[tuple[int, int, str]]:
        """(row, view, text) of every view that these rows lack; a row's windows are made together or not at all."""
        views = [(row, HEAD, self._projection.text_of(row)) for row in self._projection.rows_without_vectors(row_ids)]
        if self._windows:
            for row in self._projection.rows_without_windows(row_ids):
                windows = windows_of(self._projection.text_of(row))
                views += [(row, view, window) for view, window in enumerate(windows, start=HEAD + 1)]
        return views

    def keep(self, batch: VectorBatch) -> int:
        """Store and index vectors; call it inside the commit lock. What another process embedded is skipped.

        Returns:
            how many rows got vectors.
        """
        self.take_in(self.read_new())
        rows = np.unique(batch.row_ids).tolist()
        without_head = np.array(self._projection.rows_without_vectors(rows), dtype=np.int64)
        without_windows = np.array(self._projection.rows_without_windows(rows), dtype=np.int64)
        is_head = batch.views == HEAD
        kept = np.where(is_head, np.isin(batch.row_ids, without_head), np.isin(batch.row_ids, without_windows))
        vectors = self._open_vectors()
        if vectors is None or not kept.any():
            return 0
        fresh = VectorBatch(batch.row_ids[kept], batch.views[kept], batch.vectors[kept])
        vectors.append(fresh)
        self.take_in([fresh])
        return len(np.unique(fresh.row_ids))

    def read_new(self) -> list[VectorBatch]:
        """Vectors that came into the store since the last look."""
        vectors = self._open_vectors()
        return [] if vectors is None else vectors.refresh()

    def take_in(self, batches: list[VectorBatch]) -> None:
        """Put vectors into the index, and empty the list."""
        self._projection.apply_vectors(batches)

    def _open_vectors(self) -> VectorStore | None:
        """The vector files of the store's encoder; None as long as the store has no encoder, or it is turned off."""
        stored = None if self._off else self._current()
        if stored is not None and stored.name != self._vectors_of:
            self._vectors = self._store.vectors(stored.name, stored.dimensions)
            self._vectors_of = stored.name
            self._projection.start_vectors(stored.dimensions)
        return self._vectors

    def _current(self) -> EncoderIdentity | None:
        """The encoder that the store uses, unless the one chosen here is to take its place."""
        stored = self._stored()
        if stored is None or self._encoder is None or self._identity(self._encoder).name == stored.name:
            return stored
        return None

    def _stored(self) -> EncoderIdentity | None:
        if self._projection.encoder is None:
            return None
        described = json.loads(self._projection.encoder)
        return EncoderIdentity(described["name"], int(described["dimensions"]), dict(described["description"]))

    def _check_replaceable(self, encoder: Encoder, stored: EncoderIdentity) -> None:
        """Another encoder may take the place of the store's as long as that has made no vectors."""
        name = self._identity(encoder).name
        if name != stored.name and any(map(len, self._store.vectors(stored.name, stored.dimensions).refresh())):
            raise EncoderMismatchError(
                f"the store's vectors were made by the encoder {stored.name!r}, not by {name!r}; "
                "open it without encoder= to use its own, or make a new store with the other encoder"
            )

    def _identity(self, encoder: Encoder) -> EncoderIdentity:
        """What an encoder, which may be the caller's own, says it is."""
        try:
            identity = encoder.identity
        except MemppError:
            raise
        except Exception as error:
            raise EncoderError(f"the encoder does not tell its identity: {type(error).__name__}: {error}") from error
        if not isinstance(identity, EncoderIdentity):
            raise InputError(f"the identity of an encoder must be a mempp.EncoderIdentity, got {quoted(identity)}")
        return identity

    def _run(self, call: Callable[[], Any]) -> Any:
        """Call an encoder, which may be the caller's own, and let nothing but Mem++ errors out."""
        try:
            return call()
        except MemppError:
            raise
        except Exception as error:
            raise EncoderError(f"the encoder {self.name!r} failed: {type(error).__name__}: {error}") from error

    def _checked(self, given: Any, count: int) -> NDArray[np.float32]:
        """Vectors of an encoder as (count, dimensions) unit rows; a zero vector, which has no direction, stays.

        Raises:
            EncoderError: it is no array of this shape, not finite, or of another length than 1.
        """
        try:
            vectors = np.asarray(given)
            if vectors.dtype.kind not in "fiu":
                raise TypeError(f"its numbers are of type {vectors.dtype}")
            vectors = vectors.astype(np.float32)
        except (TypeError, ValueError) as error:
            raise EncoderError(f"the encoder {self.name!r} gave no array of vectors: {error}") from None
        stored = self._current()
        dimensions = vectors.shape[-1] if stored is None and vectors.ndim == 2 else getattr(stored, "dimensions", 0)
        if vectors.shape != (count, dimensions):
            raise EncoderError(
                f"the encoder {self.name!r} gave vectors of shape {vectors.shape}, expected {(count, dimensions)}"
            )
        lengths = np.linalg.norm(vectors, axis=1)
        if not np.isfinite(lengths).all():
            raise EncoderError(f"the encoder {self.name!r} gave a vector that is not finite")
        wrong = lengths[(lengths > 0) & (np.abs(lengths - 1) > _LENGTH_TOLERANCE)]
        if len(wrong):
            raise EncoderError(
                f"the encoder {self.name!r} gave a vector of length {wrong[0]:g}; cosines need unit vectors: divide "
                "each by its length"
            )
        return vectors
