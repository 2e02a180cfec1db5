"""The commit lock: an advisory ``flock`` on the file ``lock`` of a store, held for one commit.

The file is opened anew for every acquisition: a descriptor that a forked child inherited shares its parent's lock, a
new one does not. The system drops the lock of a process that dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mempp.errors import StoreLockedError, StoreWriteError
from mempp.storage import files

_FIRST_SLEEP = 0.0005
_LONGEST_SLEEP = 0.02
_SIGNATURE_BYTES = 768
_BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})

_held: set[int] = set()
_hook_registered = False


class Hold:
    """One holding of a commit lock, from before it is taken until after it is released.

    It is there first, so that an interrupt at any moment leaves nothing locked that cannot be found and released.
    """

    def __init__(self) -> None:
        self.descriptor: int | None = None
        self._process = os.getpid()

    def release(self) -> None:
        """Release what is held, if anything is."""
        if self.descriptor is None:
            return
        # A child forked in the meantime must not release its parent's lock; its copy was closed at the fork.
        mine = os.getpid() == self._process
        if mine:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        descriptor, self.descriptor = self.descriptor, None
        if mine:
            _held.discard(descriptor)
            os.close(descriptor)


@contextmanager
def commit_lock(path: Path, timeout: float, hold: Hold | None = None) -> Iterator[None]:
    """Hold the lock file ``path`` exclusively; wait for it up to ``timeout`` seconds.

    With a ``hold`` of the caller's own, the caller can release the lock where an interrupt has kept this from doing so.

    Raises:
        StoreLockedError: another process, or another handle in this one, held it all that time.
        StoreReadOnlyError, StoreWriteError: the file cannot be opened or locked.
    """
    hold = Hold() if hold is None else hold
    try:
        _acquire(path, time.monotonic() + timeout, timeout, hold)
        yield
    finally:
        hold.release()


@contextmanager
def nobody_writing(path: Path) -> Iterator[bool]:
    """Tell whether no commit is under way, and keep it so meanwhile. Never waits, writes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        # Without a lock file nobody has ever written here; one that may not be read tells nothing.
        yield isinstance(error, FileNotFoundError)
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _acquire(path: Path, deadline: float, timeout: float, hold: Hold) -> None:
    sleep = _FIRST_SLEEP
    while True:
        if _try(path, hold):
            return
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise StoreLockedError(
                f"the commit lock {path} was held for more than {timeout:g} s by {_holder(path)}. Wait for it to "
                f"finish, give a longer lock_timeout, or end it."
            )
        time.sleep(min(sleep, remaining))
        sleep = min(sleep * 1.5, _LONGEST_SLEEP)


def _try(path: Path, hold: Hold) -> bool:
    """Take the lock if it is free. What ``hold`` has got when this fails or is interrupted, its owner releases."""
    with files.translating_writes(f"cannot open the commit lock {path}"):
        hold.descriptor = descriptor = files.open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody may have removed the file; then the lock on the old one protects nothing.
        named = os.stat(path)
        mine = os.fstat(descriptor)
        if (named.st_ino, named.st_dev) == (mine.st_ino, mine.st_dev):
            _remember(descriptor)
            _sign(descriptor)
            return True
    except OSError as error:
        if error.errno not in _BUSY and not isinstance(error, FileNotFoundError):
            raise StoreWriteError(
                f"cannot lock {path}: {error.strerror}. The file system must support flock."
            ) from error
    hold.release()
    return False


def _sign(descriptor: int) -> None:
    # Of one length, so that it is overwritten in place; cutting the file would cost more than the rest of the lock.
    holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname()[:100]}).encode().ljust(_SIGNATURE_BYTES)
    # It only informs those who wait: a full disk is no reason to refuse the lock.
    with contextlib.suppress(OSError):
        if os.pread(descriptor, len(holder) + 1, 0) != holder:
            files.write(descriptor, holder, 0)


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_bytes())
        return f"process {int(holder['pid'])} on {str(holder['host'])[:100]!r}"
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown process"


def _remember(descriptor: int) -> None:
    global _hook_registered
    if not _hook_registered:
        os.register_at_fork(after_in_child=_close_inherited)
        _hook_registered = True
    _held.add(descriptor)


def _close_inherited() -> None:
    """In a forked child: give up the copies of the parent's lock descriptors, which would keep its lock alive."""
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()
