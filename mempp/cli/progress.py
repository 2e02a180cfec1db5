"""Progress on stderr: a bar where stderr is a terminal, else a plain line every few seconds."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from mempp.cli.output import say

if TYPE_CHECKING:
    from rich.progress import Progress

_SECONDS_BETWEEN_LINES = 5.0


class Meter(Protocol):
    """What shows progress; used as a context manager, so that a bar is gone when something else is said."""

    def show(self, count: int, fraction: float | None) -> None:
        """Say how far the work is.

        Args:
            count: documents done.
            fraction: the part of the work that is done, or None where the whole is not known.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def meter(verb: str, *, quiet: bool) -> Meter:
    """The meter that fits: none, a bar or lines.

    Args:
        verb: what is being done, such as "adding".
        quiet: whether nothing is wanted.
    """
    if quiet:
        return _Silence()
    return _Bar(verb) if sys.stderr.isatty() else _Lines(verb)


def described(count: int, fraction: float | None, seconds: float) -> str:
    """Count, rate and remaining time in words; the remaining time supposes that the rest goes as fast."""
    parts = [f"{count:,} documents"]
    if fraction is not None:
        parts.append(f"{min(fraction, 1):.0%}")
    if seconds > 0 and count:
        rate = count / seconds
        parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
    if fraction and fraction < 1 and seconds > 0:
        parts.append(f"{duration(seconds * (1 - fraction) / fraction)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A time span for people: "4.2 s", "3 min 5 s", "2 h 10 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


class _Silence:
    def show(self, count: int, fraction: float | None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class _Lines(_Silence):
    def __init__(self, verb: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._verb = verb
        self._clock = clock
        self._start = self._last = clock()

    def show(self, count: int, fraction: float | None) -> None:
        now = self._clock()
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            say(f"{self._verb}: {described(count, fraction, now - self._start)}")


class _Bar(_Silence):
    """A bar that vanishes when the work is done; what is said meanwhile appears above it."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._start = time.monotonic()
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        try:
            self._progress.start()
            self._task = self._progress.add_task(self._verb, total=None, detail="")
        except BaseException:  # Ctrl-C; the cursor must not stay hidden
            self._progress.stop()
            raise
        return self

    def show(self, count: int, fraction: float | None) -> None:
        if self._progress is not None:
            detail = described(count, fraction, time.monotonic() - self._start)
            total = None if fraction is None else 1.0
            self._progress.update(self._task, completed=fraction or 0, total=total, detail=detail)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
