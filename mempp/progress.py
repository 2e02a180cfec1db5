"""Progress of long work: nothing, a function of the caller's, or a line with rate and remaining time on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = bool | Callable[[int], None]
"""False: silent. True: a progress line on stderr. A function: called with the number of items done."""


@contextmanager
def reporter(progress: Progress, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Give a function to call with the number of items done so far.

    Args:
        progress: what the caller asked for.
        label: what is being done, for the line.
        total: how many items there are, where that is known.
    """
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda done: None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=total, rate="")

            def show(done: int) -> None:
                elapsed = bar.tasks[0].elapsed or 0.0
                rate = f"{done / elapsed:,.1f}/s" if elapsed > 0 else ""
                bar.update(task, completed=done, rate=rate)

            yield show
