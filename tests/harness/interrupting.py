"""Interrupts (Ctrl-C) inside Mem++: at every line in turn, and by real signals at random moments."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import mempp

PACKAGE = str(Path(mempp.__file__).parent)
WATCHED = (PACKAGE, contextlib.__file__)


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line or call of Mem++, as a signal that arrives there would.

    Context managers of the standard library count as well: a signal may come while one is entered or left.
    """

    def __init__(self, at: int) -> None:
        self.left = at
        self.where: str | None = None

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("call", "line"):
            self.left -= 1
            if self.left < 0:
                code = frame.f_code
                self.where = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name} ({event})"
                sys.settrace(None)
                raise KeyboardInterrupt(self.where)
        return self._trace

    def _choose(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._trace(frame, event, argument) if frame.f_code.co_filename.startswith(WATCHED) else None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._choose)
        try:
            yield
        finally:
            sys.settrace(before)


def count_lines(work: Callable[[], object]) -> int:
    """How many places there are in which this work could be interrupted."""
    counter = Interrupter(sys.maxsize)
    with counter.watching():
        work()
    return sys.maxsize - counter.left
