"""Progress on stderr, with rate and remaining time: a bar where stderr is a terminal, else a line every few seconds."""

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from eval.console import say

if TYPE_CHECKING:
    from rich.progress import Progress

SECONDS_BETWEEN_LINES = 10.0


class Meter:
    """Counts questions that are done; used as a context manager."""

    def __init__(
        self, label: str, total: int, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label = label
        self._total = total
        self._quiet = quiet
        self._clock = clock
        self._start = clock()
        self._done = 0
        self._doing = ""
        self._bar: Progress | None = None
        self._over = threading.Event()

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24))
            detail = TextColumn("{task.fields[detail]}", markup=False)
            self._bar = Progress(*columns, detail, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._label, total=max(self._total, 1), detail="")
        elif not self._quiet:
            threading.Thread(target=self._lines, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._bar is not None:
            self._bar.stop()

    def doing(self, what: str) -> None:
        """Say what is being done, e.g. which collection is taken in."""
        self._doing = what
        self._show()

    def done(self, count: int = 1) -> None:
        """So many further questions are done."""
        self._done += count
        self._show()

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, detail=self._text())

    def _lines(self) -> None:
        # By a thread of its own: taking a large collection in is one call that lasts for minutes.
        while not self._over.wait(SECONDS_BETWEEN_LINES):
            say(f"{self._label}: {self._text()}")

    def _text(self) -> str:
        return described(self._done, self._total, self._clock() - self._start, self._doing)


def described(done: int, total: int, seconds: float, doing: str) -> str:
    """Count, rate and remaining time in words; the remaining time supposes that the rest goes as fast."""
    parts = [f"{done:,} of {total:,} questions"]
    if done and seconds > 0:
        rate = done / seconds
        parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
        if done < total:
            parts.append(f"{duration((total - done) / rate)} left")
    if doing:
        parts.append(doing)
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A time span for people: "4.2 s", "3 min 5 s", "2 h 10 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
