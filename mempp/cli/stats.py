"""What `mempp stats` says, for people and for programs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mempp.cli.output import one_line

if TYPE_CHECKING:
    from mempp import Statistics


def as_pairs(statistics: "Statistics") -> Iterator[tuple[str, str]]:
    """The counts in words, one pair of name and value to a line."""
    yield "documents", f"{statistics.rows:,}"
    for state in ("active", "superseded", "archived", "retracted"):
        yield f"  {state}", f"{getattr(statistics, state):,}"
    if statistics.first_date is not None and statistics.last_date is not None:
        yield "dated", f"{statistics.first_date.date()} to {statistics.last_date.date()}"
    yield "undated", f"{statistics.undated:,}"
    yield "authors", f"{statistics.authors:,}"
    yield "threads", f"{statistics.threads:,}"
    yield "entries of the log", f"{statistics.entries:,}"
    yield "annotations", f"{statistics.annotations:,}"
    for kind, count in statistics.annotations_by_kind.items():
        yield f"  {one_line(kind)}", f"{count:,}"
    yield "encoder", statistics.encoder or "none"
    yield "without vector", f"{statistics.without_vector:,}"
    if statistics.bytes_on_disk is not None:
        yield "on disk", size(statistics.bytes_on_disk)


def size(count: int) -> str:
    """A number of bytes for people, in units of 1000."""
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
