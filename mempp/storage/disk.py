"""DiskStore: the store in a directory, for any number of processes."""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mempp.errors import InputError, StoreClosedError, StoreError, StoreReadOnlyError
from mempp.storage import files, frames
from mempp.storage.entries import Entry, prepare, start_position
from mempp.storage.entry_codec import EntryCodec
from mempp.storage.journal import TornTailWarning
from mempp.storage.layout import JOURNAL, LOCK, LOG, VECTORS, make_name_durable, open_or_create
from mempp.storage.lock import commit_lock, nobody_writing
from mempp.storage.series import Cut, Series
from mempp.storage.store import Turn, now
from mempp.storage.vectors import VectorBatch, VectorCodec, VectorFolder, check_batch, check_identity

DEFAULT_SEAL_BYTES = 8 << 20

_logger = logging.getLogger("mempp.storage")


def open_store(
    path: str | os.PathLike[str], *, read_only: bool = False, create: bool = True, lock_timeout: float = 30.0
) -> DiskStore:
    """Open the store in the directory ``path``, or make it. ``refresh()`` then reads it. Raises as DiskStore."""
    return DiskStore(path, read_only=read_only, create=create, lock_timeout=lock_timeout)


class DiskStore:
    """A store in a directory. Several may be open on one directory, in one process or many.

    Args:
        path: the directory.
        read_only: write nothing at all, not even a lock file.
        create: make the store when there is none.
        lock_timeout: seconds to wait for the commit lock.
        seal_bytes: size from which a journal is sealed into a segment.

    Raises:
        NotAStoreError: the path holds something else, or nothing and it may not be made.
        StoreVersionError: a newer format.
        StoreDamagedError: ``store.json`` is damaged.
        StoreReadOnlyError, StoreWriteError, StoreLockedError: it could not be made.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        create: bool = True,
        lock_timeout: float = 30.0,
        seal_bytes: int = DEFAULT_SEAL_BYTES,
    ) -> None:
        name = os.fspath(path)
        if not isinstance(name, str) or not name or "\0" in name:
            raise InputError(f"{str(name)[:100]!r} is no path of a directory.")
        self.path = Path(name)
        self.read_only = read_only
        self.lock_timeout = lock_timeout
        self.seal_bytes = seal_bytes
        manifest = open_or_create(self.path, create=create and not read_only, lock_timeout=lock_timeout)
        self.store_id = manifest.store_id
        self.created_at = manifest.created_at
        self._log = self._new_log()
        self._touched: list[VectorFolder] = []
        self._turn = Turn()
        self._guard = threading.RLock()
        self._process = os.getpid()
        self._closed = False
        self._tail_checked = False

    def _new_log(self) -> Series[Entry]:
        return Series(
            self.path / LOG,
            self.path / JOURNAL,
            EntryCodec(self.store_id),
            start_position(self.store_id),
            durable=True,
        )

    @property
    def head_digest(self) -> str:
        """Chain digest after the last entry seen here, 64 hex digits."""
        return self._log.position.digest.hex()

    @property
    def next_sequence(self) -> int:
        """How many entries were seen here."""
        return self._log.position.sequence

    @property
    def row_count(self) -> int:
        """How many documents were seen here."""
        return self._log.position.row

    @property
    def unread_bytes(self) -> int:
        """Bytes at the journal's end that are no whole commit: one being written, or a torn one."""
        return self._log.unread_bytes

    def refresh(self) -> list[Entry]:
        """Return the entries that came since the last refresh, writing or append here, in order. Waits for no lock.

        The first time, a TornTailWarning tells of bytes at the end that no writer is just writing.

        Raises:
            StoreDamagedError: an entry is missing or altered.
            StoreVersionError: an entry is of a newer format.
            StoreError: a file cannot be read.
        """
        with self._use(), files.translating_reads(f"cannot read the store {self.path}"):
            self._log.read_on()
            if self._log.unread_bytes and not self._tail_checked and not self._turn.is_mine():
                self._check_tail()
            self._tail_checked = True
            return self._log.take()

    def rewind(self) -> None:
        """Forget what was handed out: the next refresh begins with the first entry again."""
        with self._use():
            self._log = self._new_log()

    def _check_tail(self) -> None:
        with nobody_writing(self.path / LOCK) as quiet:
            if not quiet:
                return
            self._log.read_on()
        self._tail_checked = True
        if self._log.unread_bytes:
            _warn(
                f"the journal of {self.path} ends with {self._log.unread_bytes} bytes that are no whole commit; they "
                f"are passed over. The next writer sets them aside."
            )

    @contextmanager
    def writing(self, timeout: float | None = None) -> Iterator[list[Entry]]:
        """Hold the commit lock; the value is what others wrote since the last refresh here.

        A torn end is set aside first, with a TornTailWarning. Other threads and processes wait meanwhile, so do nothing
        slow inside. ``timeout`` in seconds, by default the store's ``lock_timeout``.

        Raises:
            StoreLockedError: others held the lock all that time.
            StoreReadOnlyError: the store was opened, or lies on a file system, for reading only.
            StoreWriteError: a torn end could not be set aside.
            StoreError: entered again inside itself; and as ``refresh``.
        """
        self._check_usable()
        if self.read_only:
            raise StoreReadOnlyError(f"{self.path} was opened with read_only=True. Open it without, to write.")
        limit = self.lock_timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        with self._turn.take(limit), commit_lock(self.path / LOCK, max(0.0, deadline - time.monotonic())):
            entries = self._recover()
            try:
                yield entries
            finally:
                if self._turn.is_mine() and not self._closed:
                    self._seal()

    def _recover(self) -> list[Entry]:
        with self._use(), files.translating_writes(f"cannot recover the store {self.path}"):
            cut = self._log.recover()
            if cut is not None:
                _warn(_describe(cut))
            return self._log.take()

    def append(self, entries: Sequence[Entry]) -> list[Entry]:
        """Commit entries, all or none; they are durable when it returns. Only inside ``writing()``.

        Returns them with sequence, one stamp and, for documents, row ids. No entries, no commit.

        Raises:
            InputError: an entry cannot be stored; none was.
            StoreReadOnlyError, StoreWriteError: the system refused the write; none was stored.
        """
        with self._use():
            self._check_turn()
            if not entries:
                return []
            before = self._log.position
            numbered, bodies, after = prepare(entries, before, now())
            frame = frames.Frame(
                frames.ENTRIES, len(bodies), before.sequence, after.stamp, after.digest, b"\n".join(bodies)
            )
            with files.translating_writes(f"cannot write to the store {self.path}"):
                if before.sequence == 0:
                    # Whoever made the store may have died before its name was durable.
                    make_name_durable(self.path)
                self._log.append(frame, after)
            return numbered

    def vectors(self, identity: str, dimensions: int) -> DiskVectors:
        """Return the vectors of an encoder; ``identity`` is a folder name of 1 to 100 of ``a-z0-9._-``.

        Raises:
            InputError: the identity or the dimensions cannot be used.
            EncoderMismatchError: they are there with other dimensions.
            StoreDamagedError, StoreVersionError: their description is unreadable or newer.
        """
        check_identity(identity, dimensions)
        with self._use(), files.translating_reads(f"cannot read the store {self.path}"):
            codec = VectorCodec(self.store_id, identity, dimensions, lambda: self._log.position)
            return DiskVectors(self, VectorFolder(self.path / VECTORS / identity, codec))

    def close(self) -> None:
        """End its use. Nothing is left to write: every commit was durable. Calling it again does nothing."""
        self._closed = True

    # --- inside -----------------------------------------------------------------------------------------------

    def _seal(self) -> None:
        """Seal what is due. The commit is acknowledged already: a failure is logged and tried again at the next one."""
        with self._guard:
            series: list[Series[Entry] | VectorFolder] = [self._log, *self._touched]
            for each in series:
                try:
                    each.seal(self.seal_bytes)
                except (OSError, StoreError) as error:
                    _logger.warning("sealing a journal of %s failed and will be tried again: %s", self.path, error)
            self._touched.clear()

    def _check_turn(self) -> None:
        if not self._turn.is_mine():
            raise StoreError("append() works only inside `with store.writing():`, in the thread that entered it.")

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosedError(f"the store {self.path} was closed. Open it again.")
        if self._process != os.getpid():
            # A forked child. Files are opened anew for every use, so that only what a thread of the parent was doing
            # at that moment can be half done here.
            if not self._guard.acquire(blocking=False):
                raise StoreError(
                    f"the process was forked while another thread used the store {self.path}. Open the store again in "
                    f"the child."
                )
            self._guard.release()
            self._process = os.getpid()

    @contextmanager
    def _use(self) -> Iterator[None]:
        self._check_usable()
        with self._guard:
            yield


class DiskVectors:
    """The vectors of one encoder in a DiskStore."""

    def __init__(self, store: DiskStore, folder: VectorFolder) -> None:
        self._store = store
        self._folder = folder

    def refresh(self) -> list[VectorBatch]:
        """Return the batches that came since the last refresh or append here, of rows that the store has seen.

        Raises:
            StoreDamagedError: a segment is damaged; the directory may be removed, it is derived.
            StoreError: a file cannot be read.
        """
        with self._store._use(), files.translating_reads(f"cannot read the vectors in {self._folder.path}"):
            return self._folder.refresh()

    def append(self, batch: VectorBatch) -> None:
        """Add vectors. Only inside the store's ``writing()``. They are not fsynced: a power loss may take the last.

        A torn or damaged end is cut first, with a TornTailWarning.

        Raises:
            InputError, EncoderMismatchError: the batch does not fit the store.
            StoreReadOnlyError, StoreWriteError: the system refused the write.
        """
        store = self._store
        with store._use():
            store._check_turn()
            check_batch(batch, self._folder.codec.dimensions, store.row_count)
            if not len(batch):
                return
            with files.translating_writes(f"cannot write vectors to {self._folder.path}"):
                cut = self._folder.append(batch)
            if self._folder not in store._touched:
                store._touched.append(self._folder)
        if cut is not None:
            _warn(_describe(cut) + " The rows are embedded again.")


def _describe(cut: Cut) -> str:
    kept = f" They are kept in {cut.aside}." if cut.aside is not None else ""
    return f"{cut.size} bytes of {cut.path} from byte {cut.offset} on were no whole commit and were cut off.{kept}"


def _warn(message: str) -> None:
    warnings.warn(TornTailWarning(message), stacklevel=2)
