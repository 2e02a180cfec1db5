"""A value that is dear to make: made once, at first use, by one thread, and again after a fork."""

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")

# onnxruntime's threads do not survive a fork, and destroying a session waits for them: a child keeps its parent's
# values here for ever instead of freeing them.
_left_by_parents: list[object] = []


class Lazy(Generic[Value]):
    """Calls `make` at the first `get()`; other threads wait for it. An error of `make` passes and is not remembered."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._made: tuple[int, Value] | None = None
        # One lock per process: a thread of the parent may have held its lock at the moment of the fork.
        self._locks: dict[int, threading.Lock] = {}

    def get(self) -> Value:
        """Returns the value that was made in this process."""
        process = os.getpid()
        made = self._made
        if made is not None and made[0] == process:
            return made[1]
        with self._locks.setdefault(process, threading.Lock()):
            made = self._made
            if made is None or made[0] != process:
                if made is not None:
                    _left_by_parents.append(made[1])
                made = (process, self._make())
                self._made = made
            return made[1]
