"""Where encoder, vector files and vector index meet: which encoder a store uses, and which rows still lack vectors."""

import json
import os
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mempp import checked_encoder
from mempp.checked_encoder import identity_of
from mempp.encoders import Encoder, EncoderIdentity, load_encoder, resolve_encoder
from mempp.encoders.windows import windows_of
from mempp.encoding import View
from mempp.errors import EncoderError, EncoderMismatchError, InputError, MemppError, StoreDamagedError, quoted
from mempp.projection import HEAD, Projection
from mempp.records import canonical_json
from mempp.storage import Entry, Store, VectorBatch, VectorStore, check_identity, flat_vectors

DEFAULT_ENCODER = "minilm"
NO_ENCODER = "none"


def is_none(choice: object) -> bool:
    """Whether the caller chose to do without an encoder."""
    return isinstance(choice, str) and choice == NO_ENCODER


class Embedder:
    """Embeds rows and questions with one encoder of one store. The encoder is made when it is first needed.

    The store's encoder may change (`Memory.reembed`); then another Embedder takes the place of this one, and whoever
    still holds this one goes on with the old encoder and its vectors.
    """

    def __init__(
        self,
        store: Store,
        projection: Projection,
        choice: str | Path | Encoder | None,
        *,
        windows: bool = True,
        in_place: bool = True,
    ) -> None:
        """Settle which encoder it is, and read the vectors that the store has.

        Args:
            store: the opened store.
            projection: the derived state, the log already applied.
            choice: an encoder, its name, a directory, "none", or None: the encoder that the store was made with,
                else the environment variable MEMPP_ENCODER, else MiniLM.
            windows: whether the windows of long texts are embedded too, or their heads alone.
            in_place: False leaves the projection's vector indexes as they are until `put_in_place` is called.

        Raises:
            EncoderMismatchError: the store's vectors came from another encoder than the one chosen.
            StoreDamagedError: what the log tells of the store's encoder is unreadable.
        """
        self._store = store
        self._projection = projection
        self._lock = threading.Lock()
        self._vectors: VectorStore | None = None
        self._encoder: Encoder | None = None
        self._told: EncoderIdentity | None = None  # by the encoder, when it was first asked
        self._used: EncoderIdentity | None = None  # whose vectors are in the index
        self._put: Callable[[], None] | None = None
        self._windows = windows
        self._off = is_none(choice)
        stored = None if self._off else self._stored()
        if not self._off and (choice is not None or stored is None):
            named = choice if choice is not None else os.environ.get("MEMPP_ENCODER", "").strip() or DEFAULT_ENCODER
            self._off = is_none(named)
            self._encoder = None if self._off else resolve_encoder(named)
        if stored is not None and (own := self._own()) is not None:
            self._check_replaceable(own, stored)
        self._open_vectors()
        if in_place:
            self.put_in_place()

    def over(self, projection: Projection) -> "Embedder":
        """The same encoder over a new projection of the same store; another one, where the store has changed it."""
        stored = None if self._off else _stored(projection)
        changed = stored is not None and self._is_replaced_by(stored)
        choice = NO_ENCODER if self._off else None if changed else self._encoder
        return Embedder(self._store, projection, choice, windows=self._windows)

    @property
    def is_off(self) -> bool:
        """Whether the caller chose to do without an encoder."""
        return self._off

    @property
    def with_windows(self) -> bool:
        """Whether the windows of long texts are embedded."""
        return self._windows

    @property
    def stored_name(self) -> str | None:
        """The name of the store's encoder, as the log tells; None when it tells of none."""
        stored = self._stored()
        return None if stored is None else stored.name

    @property
    def is_current(self) -> bool:
        """Whether its encoder is still the store's or, while the store has no vectors, may become it."""
        stored = None if self._off else self._stored()
        return stored is None or not self._is_replaced_by(stored)

    def _is_replaced_by(self, stored: EncoderIdentity) -> bool:
        if self._used is not None:
            return stored.name != self._used.name
        own = self._own()
        return own is not None and own.name != stored.name and self._has_vectors(stored)

    def successor(self, encoder: Encoder | None = None) -> "Embedder":
        """What takes the place of this one when the store's encoder has changed; `put_in_place` is still to be called.

        Args:
            encoder: the new encoder; None: made from what the store tells, when it is needed.
        """
        return Embedder(self._store, self._projection, encoder, windows=self._windows, in_place=False)

    def put_in_place(self) -> None:
        """Put the vectors that were read first in place of those the projection has."""
        put, self._put = self._put, None
        if put is not None:
            put()

    @property
    def encoder(self) -> Encoder | None:
        """The encoder, made from what the store tells if need be; None when it was turned off.

        Raises:
            EncoderUnavailableError: the store's encoder cannot be made here.
        """
        if self._encoder is None and not self._off:
            stored = self._used or self._stored()
            if stored is not None:
                with self._lock:
                    self._encoder = self._encoder or load_encoder(stored.name, stored.description)
        return self._encoder

    @property
    def identity(self) -> EncoderIdentity | None:
        """The identity of the encoder that the store uses, or will use; None when there is none."""
        return self._current() or self._own()

    @property
    def name(self) -> str | None:
        """The name of the encoder that the store uses, or will use; None when there is none."""
        identity = self.identity
        return None if identity is None else identity.name

    def check_available(self) -> None:
        """Raise EncoderUnavailableError where the store's encoder cannot be made here. Nothing is loaded."""
        _ = self.encoder

    def make_ready(self) -> None:
        """Load the encoder now, so that a document is not stored first and then cannot be embedded.

        Raises:
            EncoderUnavailableError: its weights, files or packages are missing.
        """
        encoder = self.encoder
        if encoder is not None:
            checked_encoder.load(encoder, str(self.name))

    def registration(self) -> list[Entry]:
        """The entry that makes this the store's encoder, if it has none; call it inside the commit lock.

        Raises:
            EncoderMismatchError: another process made another encoder the store's.
        """
        own = self._own()
        if own is None:
            return []
        stored = self._stored()
        if stored is not None:
            self._check_replaceable(own, stored)
            if stored.name == own.name:
                return []
        return [encoder_entry(own)]

    def encode_question(self, question: str) -> NDArray[np.float32]:
        """(dimensions,) unit vector of a question.

        Raises:
            EncoderError: the encoder failed or is not available.
        """
        try:
            encoder = self.encoder
            assert encoder is not None, "the vector leg has vectors only where there is an encoder"
            return checked_encoder.encode_question(encoder, question, str(self.name), self._dimensions)
        except MemppError as error:
            error.add_note("to ask without the vector leg, use settings=mempp.Settings(weight_vector=0)")
            raise

    def missing(self, row_ids: Sequence[int] | None = None) -> list[int]:
        """The rows (of these, or of all) that lack a vector of their head or, where windows count, of their windows."""
        missing = self._projection.rows_without_vectors(row_ids)
        if self._windows:
            missing = sorted({*missing, *self._projection.rows_without_windows(row_ids)})
        return missing

    def views_to_make(self, row_ids: Sequence[int]) -> list[View]:
        """The views that these rows lack, those of a row together; its windows are made together or not at all."""
        if self._off:
            return []
        lacking_head = set(self._projection.rows_without_vectors(row_ids))
        lacking_windows = set(self._projection.rows_without_windows(row_ids)) if self._windows else set()
        return views_of(self._projection.text_of, sorted({*row_ids}), lacking_head, lacking_windows)

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """(n, dimensions) unit vectors of texts, checked. Takes no lock, and may be called by any thread.

        Raises:
            EncoderError: the encoder failed, or gave something else.
        """
        encoder = self.encoder
        assert encoder is not None, "where there is no encoder there are no views to encode"
        return checked_encoder.encode(encoder, texts, str(self.name), self._dimensions)

    @property
    def _dimensions(self) -> int | None:
        stored = self._used or self._current()
        return None if stored is None else stored.dimensions

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
        if self._vectors is None or not kept.any():
            return 0
        fresh = VectorBatch(batch.row_ids[kept], batch.views[kept], batch.vectors[kept])
        self._vectors.append(fresh)
        self.take_in([fresh])
        return len(np.unique(fresh.row_ids))

    def read_new(self) -> list[VectorBatch]:
        """Vectors that came into the store since the last look."""
        vectors = self._open_vectors()
        self.put_in_place()
        return [] if vectors is None else vectors.refresh()

    def keep_mapped(self) -> None:
        """Write the files from which later openings map vectors and their codes, where they lack enough to be worth it.

        Raises:
            StoreError: the vectors cannot be read.
        """
        mapped, there = self._projection.mapped_vectors()
        if self._used is None or there - mapped < max(flat_vectors.WORTH, mapped // flat_vectors.WORTH_SHARE):
            return
        # As an opening for writing does it: what it reads of the log of vectors it writes, and maps.
        batches = self._store.vectors(self._used.name, self._used.dimensions).refresh()
        self._projection.keep_codes(batches)

    def take_in(self, batches: list[VectorBatch]) -> None:
        """Put vectors into the index, and empty the list."""
        self._projection.apply_vectors(batches)

    def _open_vectors(self) -> VectorStore | None:
        """The vector files of the store's encoder; None as long as the store has no encoder, or it is turned off."""
        stored = None if self._off or self._used is not None else self._current()
        if stored is not None:
            vectors = self._store.vectors(stored.name, stored.dimensions)
            self._put = self._projection.start_vectors(stored.dimensions, vectors.refresh())
            self._vectors, self._used = vectors, stored
        return self._vectors

    def _current(self) -> EncoderIdentity | None:
        """The encoder that the store uses, unless the one chosen here is to take its place."""
        stored = self._stored()
        if stored is not None and (own := self._own()) is not None and own.name != stored.name:
            return None
        return stored

    def _own(self) -> EncoderIdentity | None:
        """The identity of the encoder object that is here; None where there is none (yet).

        Raises:
            EncoderError: it tells another name or other dimensions than before: one set would get vectors of two.
        """
        if self._encoder is None:
            return None
        identity = identity_of(self._encoder)
        if self._told is None:
            self._told = identity
        told = self._told
        if (identity.name, identity.dimensions) != (told.name, told.dimensions):
            raise EncoderError(
                f"the encoder called itself {told.name!r} with {told.dimensions} dimensions and now {identity.name!r} "
                f"with {identity.dimensions}; an encoder keeps its identity: make another object for another one"
            )
        return told

    def _stored(self) -> EncoderIdentity | None:
        return _stored(self._projection)

    def _has_vectors(self, stored: EncoderIdentity) -> bool:
        return any(map(len, self._store.vectors(stored.name, stored.dimensions).refresh()))

    def _check_replaceable(self, own: EncoderIdentity, stored: EncoderIdentity) -> None:
        """Another encoder may take the place of the store's as long as that has made no vectors."""
        if own.name == stored.name:
            check_dimensions(own, stored)
        elif self._has_vectors(stored):
            raise EncoderMismatchError(
                f"the store's vectors were made by the encoder {stored.name!r}, not by {own.name!r}; "
                "open it without encoder= to use its own, or change it with reembed()"
            )


def check_dimensions(own: EncoderIdentity, stored: EncoderIdentity) -> None:
    """Refuse, with EncoderMismatchError, an encoder of the same name as the store's and of other dimensions."""
    if own.dimensions != stored.dimensions:
        raise EncoderMismatchError(
            f"the encoder {own.name!r} makes vectors of {own.dimensions} dimensions, and the store's encoder of that "
            f"name of {stored.dimensions}; give it another name"
        )


def encoder_entry(identity: EncoderIdentity) -> Entry:
    """The log entry that makes this the store's encoder.

    Raises:
        InputError: its name, its dimensions or its description cannot be used.
    """
    check_identity(identity.name, identity.dimensions)
    if not isinstance(identity.description, Mapping):
        raise InputError(f"the description of an encoder must be a mapping, got {quoted(identity.description)}")
    payload = {
        "name": identity.name,
        "dimensions": identity.dimensions,
        "description": dict(identity.description),
    }
    return Entry(kind="encoder", payload=canonical_json(payload, "encoder description"))


def views_of(
    text_of: Callable[[int], str], row_ids: Sequence[int], heads: Container[int], windows: Container[int]
) -> list[View]:
    """The views of rows, those of a row together.

    Args:
        text_of: gives the text of a row.
        row_ids: the rows, each once.
        heads: the rows whose head is wanted.
        windows: the rows whose windows are wanted.
    """
    views = []
    for row in row_ids:
        text = text_of(row)
        if row in heads:
            views.append(View(row, HEAD, text))
        if row in windows:
            views += [View(row, view, window) for view, window in enumerate(windows_of(text), start=HEAD + 1)]
    return views


def _stored(projection: Projection) -> EncoderIdentity | None:
    """The store's encoder, as the log tells."""
    if projection.encoder is None:
        return None
    try:
        described = json.loads(projection.encoder)
        identity = EncoderIdentity(described["name"], described["dimensions"], dict(described["description"]))
        check_identity(identity.name, identity.dimensions)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StoreDamagedError(
            f"the log tells of the store's encoder in a way that cannot be read, {quoted(projection.encoder)}: "
            f"{quoted(str(error))}. Open the store with encoder='none', or bring back a snapshot."
        ) from error
    return identity
