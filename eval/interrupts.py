"""Ctrl-C and SIGTERM that wait for the end of a step, so that a row of results is written whole or not at all."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """Both signals raise KeyboardInterrupt; inside `held()` only at its end."""

    def __init__(self) -> None:
        self._held = 0
        self._asked = False

    @contextmanager
    def watched(self) -> Iterator["Interrupts"]:
        """Watch for the signals, where this thread may; a signal that is ignored (as under `nohup`) stays ignored."""
        before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    before[number] = signal.signal(number, self._interrupt)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """What a signal does not break off.

        Raises:
            KeyboardInterrupt: at the end, if it was asked for meanwhile.
        """
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._asked and not self._held:
            self._asked = False
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._held:
            self._asked = True
        else:
            raise KeyboardInterrupt
