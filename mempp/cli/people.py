"""What `recall`, `show` and `stats` print for people."""

import io
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from mempp.cli.output import emit, one_line, width, write
from mempp.records import Record

if TYPE_CHECKING:
    from mempp import Hit

Line = tuple[tuple[str, str], ...]
"""Parts of a line, each with its style."""

_TEXT_LINES = 3
_INDENT = "    "
_LONGEST_LABEL = 60


def print_hits(hits: Sequence["Hit"], *, explain: bool) -> None:
    """One hit after the other: a heading, the first lines of the text, and why it is there if wanted."""
    columns = width()
    lines: list[Line] = []
    for number, hit in enumerate(hits, start=1):
        if number > 1:
            lines.append(())
        head = f"{number:>2}. {_date(hit.record.occurred_at)}"
        lines.append(((head, "bold"), (_cut(f"  {_heading(hit)}", columns - len(head)), "")))
        lines += [((line, ""),) for line in _first_lines(hit.record.text, columns)]
        if explain:
            lines.append(((_INDENT + one_line(str(hit.explain())), "dim"),))
    _print(lines)


def print_record(record: Record) -> None:
    """A whole record: its fields, a blank line, its text, which is exact where stdout is no terminal."""
    lines: list[Line] = [((f"{name:<12}", "dim"), (one_line(value), "")) for name, value in _fields(record)]
    _print([*lines, ()])
    write(record.text)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair to a line."""
    _print([((f"{name:<24}", "dim"), (one_line(value), "")) for name, value in pairs])


def _print(lines: Iterable[Line]) -> None:
    from rich.console import Console
    from rich.text import Text

    # Text is data here: no markup, no emoji codes, no highlighting, no wrapping. rich only gives the colours, where
    # stdout is a terminal that shows them (and NO_COLOR does not forbid them).
    target = io.StringIO()
    console = Console(
        file=target, force_terminal=sys.stdout.isatty() or None, markup=False, emoji=False, highlight=False
    )
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True)
    emit(target.getvalue())


def _heading(hit: "Hit") -> str:
    record = hit.record
    parts = [f"row {record.row_id}", f"score {hit.score:.4f}"]
    if record.state.status != "active":
        parts.append(_state(record))
    if hit.via == "recency":
        parts.append("recency slot")
    if not hit.matched:
        parts.append("unmatched, most recently stored")
    parts += [_label(", ".join(record.authors)), _label(record.source or "")]
    return "  ".join(part for part in parts if part)


def _label(text: str) -> str:
    return _cut(one_line(text), _LONGEST_LABEL)


def _state(record: Record) -> str:
    state = record.state
    if state.status == "superseded":
        return f"superseded by row {state.by}"
    if state.status == "archived":
        return "archived" if state.into is None else f"archived into row {state.into}"
    if state.status == "retracted":
        return "retracted" if state.reason is None else f"retracted: {one_line(state.reason)}"
    return state.status


def _date(value: datetime | None) -> str:
    """A date for people: the day alone where the time is midnight UTC."""
    return "undated" if value is None else value.isoformat().replace("+00:00", "Z").removesuffix("T00:00:00Z")


def _first_lines(text: str, columns: int) -> list[str]:
    """The first lines that hold anything, each cut to the terminal; a mark says that there is more."""
    lines: list[str] = []
    start = 0
    # Line by line, because a text may have millions of them.
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = one_line(text[start : min(end, start + 10 * columns)])
        start = end + 1
        if not line:
            continue
        if len(lines) == _TEXT_LINES:
            lines[-1] = _cut(lines[-1] + " …", columns, always=True)
            break
        lines.append(_cut(_INDENT + line, columns))
    return lines


def _cut(text: str, columns: int, *, always: bool = False) -> str:
    """The text in at most so many columns of a terminal (wide characters take two), with "…" where it was cut."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= columns:
        return text
    kept = text.removesuffix(" …") if always else text
    return set_cell_size(kept, max(1, columns - 1)).rstrip() + "…"


def _fields(record: Record) -> Iterable[tuple[str, str]]:
    yield "row", str(record.row_id)
    yield "state", _state(record)
    yield "date", _date(record.occurred_at)
    yield "stored", _date(record.ingested_at)
    if record.authors:
        yield "author", ", ".join(record.authors)
    if record.tags:
        yield "tags", ", ".join(record.tags)
    for name, value in (("source", record.source), ("thread", record.thread), ("kind", record.kind)):
        if value is not None:
            yield name, value
    if record.metadata:
        yield "metadata", json.dumps(dict(record.metadata), ensure_ascii=False)
