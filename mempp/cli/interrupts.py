"""Ctrl-C that waits for the end of a step, or that is answered before the work has come to an end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from mempp.cli.run import INTERRUPTED


class Interrupts:
    """Answers the first Ctrl-C at once; inside `step()` it waits for the end of the step, elsewhere it acts.

    So a batch is finished and counted, or not begun. A second one ends the process, as in `answered`.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        """Watches for nothing yet.

        Args:
            tell: says that it was heard; called by the handler of the signal.
        """
        self._tell = tell
        self._in_step = False
        self._asked = False

    @contextmanager
    def watched(self) -> Iterator["Interrupts"]:
        """Watch for Ctrl-C, where this thread may and where it is not ignored (as under `nohup`)."""
        if not _may_handle():
            yield self
            return
        with _handling(self._interrupt):
            yield self

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
        _next_ends_the_process()
        self._tell()
        if not self._in_step:
            raise KeyboardInterrupt
        self._asked = True


@contextmanager
def answered(tell: Callable[[], None]) -> Iterator[None]:
    """Answer the first Ctrl-C at once; a second one ends the process without waiting for anything.

    An encoder's call cannot be broken off, and an orderly end waits for the one under way: seconds, on a busy machine.
    Only for work that may be killed at any moment, since that is what the second Ctrl-C does.

    Args:
        tell: says what was kept and how to go on; called by the handler of the signal.

    Raises:
        typer.Exit: it was interrupted, and told so.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        _next_ends_the_process()
        tell()
        raise KeyboardInterrupt

    if not _may_handle():
        yield
        return
    try:
        with _handling(interrupt):
            yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _next_ends_the_process() -> None:
    """Leave the next Ctrl-C to the system, which ends the process by the signal; a shell reports 130.

    A handler in Python would wait for a main thread that happens to begin a wait (CPython then runs it only when the
    wait is over) or that is deep in a library.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _may_handle() -> bool:
    """Whether this thread may handle Ctrl-C, and it is not ignored (as under `nohup`) or handled by a caller."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
