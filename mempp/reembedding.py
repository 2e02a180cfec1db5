"""Another encoder for a store: a second set of vectors beside the first, and the switch when it is complete."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mempp import checked_encoder
from mempp.adding import embed_missing, encode_rows
from mempp.checked_encoder import identity_of
from mempp.embedding import check_dimensions, encoder_entry, is_none, views_of
from mempp.encoders import Encoder, EncoderIdentity, resolve_encoder
from mempp.encoders.windows import has_windows
from mempp.encoding import Coder, View
from mempp.engine import Engine
from mempp.errors import InputError
from mempp.progress import Progress, reporter
from mempp.projection import HEAD
from mempp.storage import Entry, VectorBatch

_FIRST_ROWS = 1024


def reembed(engine: Engine, choice: str | Path | Encoder, progress: Progress) -> int:
    """Embed every row with another encoder, then make that the store's; see `Memory.reembed`."""
    engine.check_writable()
    if is_none(choice):
        raise InputError("a store cannot be embedded again with encoder='none'; name an encoder")
    encoder = resolve_encoder(choice)
    identity = identity_of(encoder)
    engine.refresh()
    current = engine.embedder.identity
    if current is not None and current.name == identity.name:
        check_dimensions(identity, current)
        return embed_missing(engine, progress)
    target = _Target(engine, encoder, identity)
    checked_encoder.load(encoder, target.name)
    lacking = target.lacking()
    encoded = 0
    with reporter(progress, "embedding anew", len(lacking)) as done:
        # Inside the commit lock it is seen whether rows have come meanwhile; then these are encoded first.
        while lacking or not engine.switch_encoder(target.entry_when_complete, encoder):
            shown = partial(_shifted, done, encoded)
            encoded += encode_rows(engine, lacking, lambda: target, target.keep, shown)
            lacking = target.lacking()
    return encoded


def _shifted(done: Callable[[int], None], before: int, mark: int) -> None:
    done(before + mark)


class _Target:
    """The new set of vectors: which rows it holds, and how the others are made."""

    def __init__(self, engine: Engine, encoder: Encoder, identity: EncoderIdentity) -> None:
        self._engine = engine
        self._encoder = encoder
        self._identity = identity
        self.name: str = identity.name
        self._entry = encoder_entry(identity)
        self._vectors = engine.store.vectors(identity.name, identity.dimensions)
        self._have = np.zeros((2, _FIRST_ROWS), dtype=np.bool_)  # heads, windows; by row
        self._complete_to = 0  # rows before this one lack nothing
        self._note(self._vectors.refresh())

    def _note(self, batches: list[VectorBatch]) -> None:
        for batch in batches:
            self._make_room(int(batch.row_ids.max(initial=0)) + 1)
            self._have[_kinds(batch), batch.row_ids] = True

    def _make_room(self, rows: int) -> None:
        have = self._have
        if rows > have.shape[1]:
            self._have = np.zeros((2, max(rows, 2 * have.shape[1])), dtype=np.bool_)
            self._have[:, : have.shape[1]] = have

    def _has(self, kind: int, row: int) -> bool:
        return row < self._have.shape[1] and bool(self._have[kind, row])

    def lacking(self) -> list[int]:
        """The rows that lack vectors, ascending."""
        projection = self._engine.projection
        lacking = [
            row
            for row in range(self._complete_to, len(projection))
            if not self._has(0, row) or self._lacks_windows(row, projection.text_of(row))
        ]
        self._complete_to = lacking[0] if lacking else len(projection)
        return lacking

    def _lacks_windows(self, row: int, text: str) -> bool:
        return self._engine.embedder.with_windows and not self._has(1, row) and has_windows(text)

    def entry_when_complete(self) -> list[Entry] | None:
        """The entry that makes this the store's encoder, where another process has not; None while rows lack vectors.

        Called inside the commit lock.
        """
        self._note(self._vectors.refresh())
        if self.lacking():
            return None
        return [] if self._engine.embedder.stored_name == self.name else [self._entry]

    def views_to_make(self, row_ids: Sequence[int]) -> list[View]:
        """The views that these rows lack."""
        text_of = self._engine.projection.text_of
        heads = {row for row in row_ids if not self._has(0, row)}
        windows = {row for row in row_ids if self._lacks_windows(row, text_of(row))}
        return views_of(text_of, sorted({*row_ids}), heads, windows)

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Checked vectors of the new encoder."""
        return checked_encoder.encode(self._encoder, texts, self.name, self._identity.dimensions)

    def keep(self, batch: VectorBatch, coder: Coder) -> int:
        """Store vectors; what another process has made meanwhile is passed over."""
        with self._engine.commit_lock():
            self._note(self._vectors.refresh())
            self._make_room(int(batch.row_ids.max()) + 1)
            lacked = ~self._have[_kinds(batch), batch.row_ids]
            fresh = VectorBatch(batch.row_ids[lacked], batch.views[lacked], batch.vectors[lacked])
            self._vectors.append(fresh)
            self._note([fresh])
        return len(np.unique(fresh.row_ids))


def _kinds(batch: VectorBatch) -> NDArray[np.intp]:
    """0 for heads, 1 for windows, (n,)."""
    return np.where(batch.views == HEAD, 0, 1).astype(np.intp)
