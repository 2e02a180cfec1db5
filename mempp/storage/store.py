"""The Store protocol, and what both stores share: the clock and the turn to write."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from mempp.errors import StoreError, StoreLockedError
from mempp.storage.entries import Entry
from mempp.storage.vectors import VectorStore


class Store(Protocol):
    """An append-only log of entries, and the vectors of its rows."""

    @property
    def store_id(self) -> str:
        """The store's uuid4, 32 hex digits."""
        ...

    @property
    def created_at(self) -> int:
        """When it was made, in microseconds since 1970 UTC."""
        ...

    @property
    def path(self) -> Path | None:
        """Where it is; None in memory."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        ...

    @property
    def head_digest(self) -> str:
        """Chain digest after the last entry seen here, 64 hex digits."""
        ...

    @property
    def next_sequence(self) -> int:
        """How many entries were seen here."""
        ...

    @property
    def row_count(self) -> int:
        """How many documents were seen here."""
        ...

    @property
    def lost_rows(self) -> frozenset[int]:
        """Rows whose documents a damaged store has lost; placeholders stand for them. Else empty."""
        ...

    def refresh(self) -> list[Entry]:
        """Return the entries that came since the last refresh, writing or append here, in order.

        It never waits for the commit lock.
        """
        ...

    def rewind(self) -> None:
        """Forget what was handed out: the next refresh begins with the first entry again."""
        ...

    def writing(self, timeout: float | None = None) -> AbstractContextManager[list[Entry]]:
        """Hold the commit lock; the value is what others wrote since the last refresh. Not re-entrant."""
        ...

    def append(self, entries: Sequence[Entry]) -> list[Entry]:
        """Commit entries, all or none, durably; return them with sequence, stamp and row ids. Inside ``writing()``."""
        ...

    def vectors(self, identity: str, dimensions: int) -> VectorStore:
        """Return the vectors of an encoder, read from the beginning by the first refresh."""
        ...

    def close(self) -> None:
        """End its use; every later call raises StoreClosedError."""
        ...


def now() -> int:
    """Return the time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


class Turn:
    """Whose turn it is to write through one store object, among the threads of one process."""

    def __init__(self) -> None:
        # The kind that refuses to be released by a thread that has not got it: so it can be released without knowing
        # whether an interrupt came before or after it was acquired.
        self._lock = threading.RLock()
        self._owner: tuple[int, int] | None = None
        self._token: object = None
        self._process = os.getpid()

    @contextmanager
    def take(self, timeout: float) -> Iterator[None]:
        """Take the turn; wait for other threads up to ``timeout`` seconds.

        Raises:
            StoreError: this thread has it already.
            StoreLockedError: another thread had it all that time.
        """
        me = (os.getpid(), threading.get_ident())
        if self._process != me[0]:
            # A forked child: the turn is its parent's, whose threads do not exist here.
            self._lock, self._owner, self._token, self._process = threading.RLock(), None, None, me[0]
        if self._owner == me:
            raise StoreError("writing() was entered again inside itself. Make one commit at a time.")
        lock, token = self._lock, object()
        try:
            if not lock.acquire(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX))):
                raise StoreLockedError(
                    f"another thread of this process was writing for more than {timeout:g} s. Wait for it, or give a "
                    f"longer lock_timeout."
                )
            self._owner, self._token = me, token
            yield
        finally:
            if self._token is token:
                self._owner = self._token = None
            if self._token is None:  # else it was reset, and belongs to somebody else now
                _release(lock)

    def reset(self) -> bool:
        """End a turn of this thread that an interrupt kept from ending; tell whether there was one."""
        if not self.is_mine():
            return False
        self._owner = self._token = None
        _release(self._lock)
        return True

    def is_mine(self) -> bool:
        """Tell whether this thread of this process has the turn."""
        return self._owner == (os.getpid(), threading.get_ident())


def _release(lock: threading.RLock) -> None:
    """Release a lock as often as this thread has acquired it, which may be never."""
    with suppress(RuntimeError):
        while True:
            lock.release()
