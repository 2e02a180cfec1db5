"""DiskStore: the store in a directory, for any number of processes."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from mempp.errors import (
    InputError,
    NotAStoreError,
    StoreClosedError,
    StoreDamagedError,
    StoreError,
    StoreReadOnlyError,
    quoted,
)
from mempp.storage import files, frames
from mempp.storage.entries import Entry, Position, prepare, start_position
from mempp.storage.entry_codec import EntryCodec
from mempp.storage.flat_vectors import flat_vectors_of
from mempp.storage.journal import TornTailWarning
from mempp.storage.layout import JOURNAL, LOCK, LOG, MANIFEST, VECTORS, make_name_durable, open_or_create
from mempp.storage.lock import Hold, commit_lock, nobody_writing
from mempp.storage.rescue import DamageWarning, NoVectors, Rescued, rescue_log, rescue_manifest
from mempp.storage.series import Cut, Series
from mempp.storage.store import Turn, now
from mempp.storage.vectors import VectorBatch, VectorCodec, VectorFolder, VectorStore, check_batch, check_identity

DEFAULT_SEAL_BYTES = 8 << 20
BATCH_SECONDS = 1.0

Sync = Literal["commit", "batch"]
"""When a commit is fsynced; see DiskStore."""

_logger = logging.getLogger("mempp.storage")


def open_store(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    create: bool = True,
    lock_timeout: float = 30.0,
    sync: Sync = "commit",
    allow_damaged: bool = False,
) -> DiskStore:
    """Open the store in the directory ``path``, or make it. ``refresh()`` then reads it. Raises as DiskStore."""
    return DiskStore(
        path,
        read_only=read_only,
        create=create,
        lock_timeout=lock_timeout,
        sync=sync,
        allow_damaged=allow_damaged,
    )


class DiskStore:
    """A store in a directory. Several may be open on one directory, in one process or many.

    Args:
        path: the directory.
        read_only: write nothing at all, not even a lock file.
        create: make the store when there is none.
        lock_timeout: seconds to wait for the commit lock.
        seal_bytes: size from which a journal is sealed into a segment.
        sync: "commit" makes every commit durable before ``append`` returns. "batch" fsyncs a commit only when the last
            fsync is older than a second (and when the store is flushed, closed or sealed), for speed: a power loss may
            then take the commits since, those written within a second after an fsync. It takes them from the end, in
            order, and whole ones; the death of the process takes nothing. Each process chooses for its own commits.
        allow_damaged: read what is whole of a damaged store; only with ``read_only``. See ``refresh``.

    Raises:
        InputError: the arguments do not go together.
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
        sync: Sync = "commit",
        allow_damaged: bool = False,
    ) -> None:
        if isinstance(lock_timeout, bool) or not isinstance(lock_timeout, int | float) or not 0 <= lock_timeout <= 1e9:
            raise InputError(f"lock_timeout must be a number of seconds from 0; it is {quoted(lock_timeout)}.")
        if sync not in ("commit", "batch"):
            raise InputError(f"sync must be 'commit' or 'batch'; it is {str(sync)[:80]!r}.")
        if allow_damaged and not read_only:
            raise InputError("allow_damaged=True is for reading: give read_only=True as well.")
        self.path = _absolute(path)
        self.read_only = read_only
        self.lock_timeout = lock_timeout
        self.seal_bytes = seal_bytes
        self.allow_damaged = allow_damaged
        if allow_damaged:
            manifest = rescue_manifest(self.path)
        else:
            manifest = open_or_create(self.path, create=create and not read_only, lock_timeout=lock_timeout)
        self.store_id = manifest.store_id
        self.created_at = manifest.created_at
        self._sync = sync
        self._rescued: Rescued | None = None
        self._log = self._new_log()
        self._touched: list[VectorFolder] = []
        self._turn = Turn()
        self._hold = Hold()
        self._guard = threading.RLock()
        self._process = os.getpid()
        self._closed = False
        self._manifest_file = self._stat_of_manifest()
        self._unsynced = False  # something was committed here; whether it is durable the series knows
        self._tail_checked = False

    def _stat_of_manifest(self) -> tuple[int, int, int] | None:
        with contextlib.suppress(OSError):  # a damaged store may lack it
            found = os.stat(self.path / MANIFEST)
            return found.st_dev, found.st_ino, found.st_mtime_ns
        return None

    def _new_log(self) -> Series[Entry]:
        return Series(
            self.path / LOG,
            self.path / JOURNAL,
            EntryCodec(self.store_id),
            start_position(self.store_id),
            durable=True,
            sync_every=BATCH_SECONDS if self._sync == "batch" else 0.0,
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
    def marks(self) -> Sequence[Position]:
        """The places in what the last refresh returned whose chain digest a file tells, from its beginning on."""
        return self._log.marks

    @property
    def lost_rows(self) -> frozenset[int]:
        """Rows of a damaged store, read with ``allow_damaged``, whose documents are lost."""
        return frozenset() if self._rescued is None else self._rescued.lost_rows

    @property
    def unread_bytes(self) -> int:
        """Bytes at the journal's end that are no whole commit: one being written, or a torn one."""
        return self._log.unread_bytes

    def refresh(self) -> list[Entry]:
        """Return the entries that came since the last refresh, writing or append here, in order. Waits for no lock.

        The first time, a TornTailWarning tells of bytes at the end that no writer is just writing.

        Of a damaged store with ``allow_damaged`` it returns, once, every entry that is whole, wherever it stands, with
        its sequence and row id; a document entry with an empty text stands for each lost row, in ``lost_rows``. A
        DamageWarning tells what is lost. Later calls return nothing.

        Raises:
            StoreDamagedError: an entry is missing or altered.
            StoreVersionError: an entry is of a newer format.
            StoreError: a file cannot be read.
        """
        with self._use(), files.translating_reads(f"cannot read the store {self.path}"):
            if self._rescued is not None:
                return []
            self._check_same_store()
            try:
                self._log.read_on()
            except StoreDamagedError:
                if not self.allow_damaged:
                    raise
                return self._rescue()
            if self._log.unread_bytes and not self._tail_checked and not self._turn.is_mine():
                self._check_tail()
            self._tail_checked = True
            return self._log.take()

    def rewind(self) -> None:
        """Forget what was handed out: the next refresh begins with the first entry again.

        It also ends a ``writing()`` of this thread that an interrupt kept from ending; so not inside one.
        """
        with self._use():
            if self._turn.reset():
                self._hold.release()
                self._hold = Hold()
            # What sealing they were to do is done after their next append.
            self._touched.clear()
            if self._unsynced:
                self._flush()
            self._log = self._new_log()
            self._rescued = None

    def _rescue(self) -> list[Entry]:
        """Survey the whole store; return of it what was not returned before."""
        known = self._log.position.sequence - len(self._log.take())
        self._rescued = rescue_log(self.path, self.store_id)
        self._log.position = self._rescued.position
        self._tail_checked = True
        warnings.warn(DamageWarning(self._rescued.describe(self.path)), stacklevel=4)
        return [entry for entry in self._rescued.entries if entry.sequence >= known]

    def _check_tail(self) -> None:
        with nobody_writing(self.path / LOCK) as quiet:
            if not quiet:
                return
            self._log.read_on()
        self._tail_checked = True
        if self._log.unread_bytes:
            _warn(
                f"the journal {self._log.live_path} ends with {self._log.unread_bytes} bytes that are no whole commit; "
                f"they are passed over. The next writer sets them aside."
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
        with self._turn.take(limit):
            # The turn is ours: a lock that this store still holds was left by an interrupt.
            self._hold.release()
            self._hold = hold = Hold()
            with commit_lock(self.path / LOCK, max(0.0, deadline - time.monotonic()), hold):
                entries = self._recover()
                try:
                    yield entries
                finally:
                    if self._turn.is_mine() and self._hold is hold and not self._closed:
                        self._seal()

    def _check_same_store(self) -> None:
        """Before anything is read on, or cut: the directory may have been removed, or hold another store by now."""
        if self.allow_damaged:
            return
        try:
            found = os.stat(self.path / MANIFEST)
        except FileNotFoundError:
            raise StoreError(
                f"the store {self.path} is gone: it was moved or removed after it was opened here. Open it where it is."
            ) from None
        # The manifest is written once. Another file in its place is another store, or this one restored, whose entries
        # may be others though they are as many and as long.
        if (found.st_dev, found.st_ino, found.st_mtime_ns) != self._manifest_file:
            raise StoreError(
                f"{self.path} now holds another store than the one that was opened here; nothing was written. Open it "
                f"again."
            )

    def _recover(self) -> list[Entry]:
        with self._use(), files.translating_writes(f"cannot recover the store {self.path}"):
            self._check_same_store()
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
            self._unsynced = True
            return numbered

    def vectors(self, identity: str, dimensions: int) -> VectorStore:
        """Return the vectors of an encoder; ``identity`` is a folder name of 1 to 100 of ``a-z0-9._-``.

        Raises:
            InputError: the identity or the dimensions cannot be used.
            EncoderMismatchError: they are there with other dimensions.
            StoreDamagedError, StoreVersionError: their description is unreadable or newer.
        """
        check_identity(identity, dimensions)
        with self._use(), files.translating_reads(f"cannot read the store {self.path}"):
            codec = VectorCodec(self.store_id, identity, dimensions, lambda: self._log.position)
            try:
                flat = None if self.allow_damaged else flat_vectors_of(self.path, codec, writable=not self.read_only)
                return DiskVectors(self, VectorFolder(self.path / VECTORS / identity, codec, flat))
            except StoreDamagedError as error:
                if not self.allow_damaged:
                    raise
                _warn_of_vectors(error)
                return NoVectors()

    def flush(self) -> None:
        """Make every commit seen here durable. With ``sync="commit"`` those made here are already.

        Raises:
            StoreReadOnlyError, StoreWriteError: the system refused; a power loss may take the last commits.
        """
        with self._use():
            self._flush()

    def close(self) -> None:
        """End its use; commits of ``sync="batch"`` are made durable. Calling it again does nothing. As ``flush``."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            if self._unsynced and self._process == os.getpid():
                self._flush()

    # --- inside -----------------------------------------------------------------------------------------------

    def _seal(self) -> None:
        """Seal what is due. The commit is acknowledged already: a failure is logged and tried again at the next one."""
        with self._guard:
            series: list[Series[Entry] | VectorFolder] = [self._log, *self._touched]
            for each in series:
                try:
                    if each is not self._log and each.is_full(self.seal_bytes):
                        # It tells the end of the log, which must not be lost before it.
                        self._log.settle()
                    each.seal(self.seal_bytes)
                except (OSError, StoreError) as error:
                    _logger.warning("sealing a journal of %s failed and will be tried again: %s", self.path, error)
            self._touched.clear()

    def _flush(self) -> None:
        with files.translating_writes(f"cannot make the last commits to the store {self.path} durable"):
            try:
                self._log.settle(rewrite=False)
            except FileNotFoundError:
                # Another process sealed the journal: durable it is.
                return
            self._unsynced = False

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
        self._end_checked = False

    def refresh(self) -> list[VectorBatch]:
        """Return the batches that came since the last refresh or append here, of rows that the store has seen.

        A TornTailWarning tells, once, that files hold bytes which cannot be read, and that no writer is just writing.

        Raises:
            StoreDamagedError: a segment is damaged; the directory may be removed, it is derived.
            StoreError: a file cannot be read.
        """
        with self._store._use(), files.translating_reads(f"cannot read the vectors in {self._folder.path}"):
            try:
                self._folder.read_on()
            except StoreDamagedError as error:
                if not self._store.allow_damaged:
                    raise
                _warn_of_vectors(error)
                return self._folder.take()
            if self._folder.stops_short and not self._end_checked and not self._store._turn.is_mine():
                self._check_end()
            return self._folder.take()

    def _check_end(self) -> None:
        with nobody_writing(self._store.path / LOCK) as quiet:
            if not quiet:
                return
            self._folder.read_on()
            if not self._folder.stops_short or not self._store._log.is_at_end():
                return
        self._end_checked = True
        _warn(self._folder.describe_stop())

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
                # Vectors must not outlive the rows they speak of: others would take their place.
                store._log.settle()
                cut = self._folder.append(batch)
            if self._folder not in store._touched:
                store._touched.append(self._folder)
        if cut is not None:
            _warn(_describe(cut) + " The rows are embedded again.")


def _absolute(path: str | os.PathLike[str]) -> Path:
    """The path of a store, absolute: the working directory may change while it is open."""
    try:
        name = os.fspath(path)
        os.fsencode(name)
        if not isinstance(name, str) or not name.strip() or "\0" in name:
            raise ValueError("it names no directory")
        return Path(os.path.abspath(os.path.expanduser(name)))
    except (TypeError, ValueError) as error:
        raise InputError(f"{quoted(path)} is no path of a store: {error}.") from None
    except OSError as error:  # the working directory is gone
        raise NotAStoreError(f"{quoted(path)} leads nowhere: {error.strerror}. Give an absolute path.") from error


def _describe(cut: Cut) -> str:
    kept = f" They are kept in {cut.aside}." if cut.aside is not None else ""
    return f"{cut.size} bytes of {cut.path} from byte {cut.offset} on were no whole commit and were cut off.{kept}"


def _warn_of_vectors(error: StoreDamagedError) -> None:
    warnings.warn(DamageWarning(f"vectors are left out: {error}"), stacklevel=3)


def _warn(message: str) -> None:
    warnings.warn(TornTailWarning(message), stacklevel=2)
