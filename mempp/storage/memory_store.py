"""MemoryStore: the same store without a directory, for tests and evaluation. It is gone when the process ends."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mempp.errors import EncoderMismatchError, StoreClosedError, StoreError
from mempp.storage.entries import Entry, prepare, start_position
from mempp.storage.store import Turn, now
from mempp.storage.vectors import VectorBatch, check_batch, check_identity


class MemoryStore:
    """A store in memory: same checks, stamps, row ids and digests as DiskStore."""

    def __init__(self, *, lock_timeout: float = 30.0) -> None:
        self.store_id = uuid.uuid4().hex
        self.created_at = now()
        self.path: Path | None = None
        self.read_only = False
        self.lock_timeout = lock_timeout
        self._position = start_position(self.store_id)
        self._entries: list[Entry] = []
        self._handed_out = 0
        self._vectors: dict[str, tuple[int, list[VectorBatch]]] = {}
        self._turn = Turn()
        self._guard = threading.RLock()
        self._closed = False

    @property
    def head_digest(self) -> str:
        """Chain digest after the last entry, 64 hex digits."""
        return self._position.digest.hex()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in order."""
        return tuple(self._entries)

    @property
    def next_sequence(self) -> int:
        """How many entries there are."""
        return self._position.sequence

    @property
    def row_count(self) -> int:
        """How many documents there are."""
        return self._position.row

    @property
    def lost_rows(self) -> frozenset[int]:
        """None: nothing here is damaged."""
        return frozenset()

    def refresh(self) -> list[Entry]:
        """Return nothing, since nobody else can write here; after `rewind` all entries again."""
        self._check_usable()
        with self._guard:
            entries, self._handed_out = self._entries[self._handed_out :], len(self._entries)
        return entries

    def rewind(self) -> None:
        """Forget what was handed out: the next refresh begins with the first entry again."""
        with self._guard:
            self._turn.reset()
            self._handed_out = 0

    @contextmanager
    def writing(self, timeout: float | None = None) -> Iterator[list[Entry]]:
        """Take the turn to write among threads; the value is an empty list.

        Raises:
            StoreLockedError: another thread had it for ``timeout`` seconds.
            StoreError: entered again inside itself.
        """
        self._check_usable()
        with self._turn.take(self.lock_timeout if timeout is None else timeout):
            yield self.refresh()

    def append(self, entries: Sequence[Entry]) -> list[Entry]:
        """Add entries, all or none; return them numbered. Only inside ``writing()``. InputError as DiskStore."""
        self._check_usable()
        self._check_turn()
        if not entries:
            return []
        with self._guard:
            numbered, _, after = prepare(entries, self._position, now())
            self._entries += numbered
            self._position, self._handed_out = after, len(self._entries)
        return numbered

    def vectors(self, identity: str, dimensions: int) -> MemoryVectors:
        """Return the vectors of an encoder. InputError and EncoderMismatchError as DiskStore."""
        self._check_usable()
        check_identity(identity, dimensions)
        known = self._vectors.get(identity)
        if known is not None and known[0] != dimensions:
            raise EncoderMismatchError(
                f"the vectors of {identity!r} have {known[0]} dimensions, not {dimensions}. Use that encoder, or give "
                f"this one another identity."
            )
        return MemoryVectors(self, identity, dimensions)

    def close(self) -> None:
        """End its use."""
        self._closed = True

    def _check_turn(self) -> None:
        if not self._turn.is_mine():
            raise StoreError("append() works only inside `with store.writing():`, in the thread that entered it.")

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosedError("the store in memory was closed, and what it held is gone. Make a new one.")


class MemoryVectors:
    """The vectors of one encoder in a MemoryStore."""

    def __init__(self, store: MemoryStore, identity: str, dimensions: int) -> None:
        self._store = store
        self._identity = identity
        self._dimensions = dimensions
        self._seen = 0

    def refresh(self) -> list[VectorBatch]:
        """Return the batches that other handles added since the last refresh or append here."""
        self._store._check_usable()
        with self._store._guard:
            _, batches = self._store._vectors.get(self._identity, (0, []))
            new = batches[self._seen :]
            self._seen = len(batches)
        return new

    def append(self, batch: VectorBatch) -> None:
        """Add vectors. Only inside the store's ``writing()``. InputError and EncoderMismatchError as DiskVectors."""
        store = self._store
        store._check_usable()
        store._check_turn()
        check_batch(batch, self._dimensions, store.row_count)
        if not len(batch):
            return
        with store._guard:
            dimensions, batches = store._vectors.setdefault(self._identity, (self._dimensions, []))
            if dimensions != self._dimensions:
                raise EncoderMismatchError(f"the vectors of {self._identity!r} have {dimensions} dimensions.")
            batches.append(VectorBatch(batch.row_ids.copy(), batch.views.copy(), batch.vectors.copy()))
            self._seen += 1
