"""Ctrl-C that waits for the end of a step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Inside `step()` a first Ctrl-C waits for the end of the step, a second one does not; elsewhere it acts at once.

    So a batch is finished and counted, or not begun.
    """

    def __init__(self) -> None:
        self._in_step = False
        self._asked = False

    @contextmanager
    def watched(self) -> Iterator["Interrupts"]:
        """Watch for Ctrl-C, where this thread may and where it is not ignored (as under `nohup`)."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
            yield self
            return
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def step(self) -> Iterator[None]:
        """What a first Ctrl-C does not break off.

        Raises:
            KeyboardInterrupt: at the end, if it was asked for meanwhile.
        """
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False
        if self._asked:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._in_step and not self._asked:
            self._asked = True
        else:
            raise KeyboardInterrupt
