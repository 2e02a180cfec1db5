"""What `recall`, `ask`, `show`, `stats`, `history` and `changes` print for people."""

import io
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from mempp.cli.output import emit, one_line, visible, width, write
from mempp.records import Record

if TYPE_CHECKING:
    from mempp import Change, Changes, History, Hit

Line = tuple[tuple[str, str], ...]
"""Parts of a line, each with its style."""

_TEXT_LINES = 3
_INDENT = "    "
_LONGEST_LABEL = 60
_NOT_MATCHED = "(not matched; fills a slot)"


def print_hits(hits: Sequence["Hit"], *, explain: bool) -> None:
    """One hit after the other: a heading, the first lines of the text, and why it is there if wanted."""
    columns = width()
    lines: list[Line] = []
    for number, hit in enumerate(hits, start=1):
        if number > 1:
            lines.append(())
        head = f"{number:>2}. {_date(hit.record.occurred_at)}"
        # A row that nothing matched must not look like an answer.
        style = ("bold", "") if hit.matched else ("dim", "dim")
        lines.append(((head, style[0]), (_cut(f"  {_heading(hit)}", columns - len(head)), style[1])))
        lines += [((line, ""),) for line in _first_lines(hit.record.text, columns)]
        if explain:
            lines += [((_INDENT + visible(line), "dim"),) for line in str(hit.explain()).splitlines()]
    _print(lines)


def print_sources(records: Sequence[Record]) -> None:
    """The records that an answer cites, one to a line: number, date, author, state where not active, first words."""
    columns = width()
    lines: list[Line] = []
    for record in records:
        start = next(iter(_first_lines(record.text, columns)), "").strip()
        head = f"[{record.row_id}]"
        rest = "  ".join(["", _date(record.occurred_at), *_marks(record), start])
        lines.append(((head, "bold"), (_cut(rest, columns - len(head)), "")))
    _print(lines)


def print_record(record: Record) -> None:
    """A whole record: its fields, a blank line, its text, which is exact where stdout is no terminal."""
    lines: list[Line] = [((f"{name:<12}", "dim"), (one_line(value), "")) for name, value in _fields(record)]
    _print([*lines, ()])
    write(record.text)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair to a line."""
    _print([((f"{name:<24}", "dim"), (one_line(value), "")) for name, value in pairs])


def print_history(history: "History") -> None:
    """A row, the state entries about it, and its line of supersession."""
    columns = width()
    lines: list[Line] = [_row_line(history.record, columns)]
    lines += [((_INDENT + _change(change), ""),) for change in history.changes]
    for title, records in (("replaced by", history.replaced_by), ("replaced", history.replaced)):
        if records:
            lines += [(), ((title, "bold"),)]
            lines += [_row_line(record, columns) for record in records]
    _print(lines)


def print_changes(changes: "Changes") -> None:
    """The rows that came, one to a line, and the state entries."""
    columns = width()
    lines: list[Line] = []
    for title, part in (
        ("documents", [_row_line(record, columns) for record in changes.records]),
        ("states", [((_cut(f"row {one.row_id}  {_change(one)}", columns), ""),) for one in changes.states]),
    ):
        if part:
            lines += [*([()] if lines else []), ((title, "bold"),), *part]
    _print(lines)


def _row_line(record: Record, columns: int) -> Line:
    start = next(iter(_first_lines(record.text, columns)), "").strip()
    head = f"{_date(record.occurred_at)}  row {record.row_id}"
    return ((_cut("  ".join([head, *_marks(record), start]), columns), ""),)


def _change(change: "Change") -> str:
    words = {
        "supersede": f"superseded by row {change.related}",
        "archive": "archived" if change.related is None else f"archived into row {change.related}",
        "retract": "retracted",
        "reinstate": "reinstated",
    }[change.kind]
    reason = "" if change.reason is None else f": {one_line(change.reason)}"
    return f"entry {change.sequence}  {_date(change.ingested_at)}  {words}{reason}"


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
    parts = [f"row {hit.record.row_id}", f"score {hit.score:.4f}" if hit.matched else _NOT_MATCHED]
    if hit.via == "recency":
        parts.append("recency slot")
    return "  ".join([*parts, *_marks(hit.record)])


def _marks(record: Record) -> list[str]:
    """State where it is not active, authors, source."""
    state = "" if record.state.status == "active" else _state(record)
    return [part for part in (state, _label(", ".join(record.authors)), _label(record.source or "")) if part]


def _label(text: str) -> str:
    return _cut(one_line(text), _LONGEST_LABEL)


def _state(record: Record) -> str:
    state = record.state
    if state.status == "superseded":
        return "superseded" if state.by is None else f"superseded by row {state.by}"
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
