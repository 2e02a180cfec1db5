"""Waits of the main thread that hear Ctrl-C.

A signal that arrives between the main thread's last look and its wait does not end the wait, and CPython runs its
handler only when the wait is over: for a busy encoder or a model's reply, seconds to minutes. So a wait is made of
short ones.
"""

import queue
import time
from concurrent.futures import Future, wait
from typing import Any, TypeVar

Item = TypeVar("Item")

_SECONDS = 0.5
"""How long one wait lasts at most."""


def until_done(future: "Future[Any]") -> None:
    """Wait for the end of what was submitted, whatever comes of it; one that was cancelled has ended."""
    while not future.done():  # `wait` itself passes over one that was cancelled before a thread took it
        wait([future], timeout=_SECONDS)


def taken(source: "queue.SimpleQueue[Item]", seconds: float | None = None) -> Item:
    """Take the next item; wait for it, at most so many seconds (None: without end).

    Raises:
        queue.Empty: none came in time.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _SECONDS if end is None else min(_SECONDS, end - time.monotonic())
        try:
            return source.get(timeout=max(0.0, left))
        except queue.Empty:
            if left < _SECONDS:
                raise
