"""CSV and TSV: a header that names the columns, then one document per record."""

import csv
import io
import re
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from mempp.cli.sources import Fault, Found, Reading, not_utf8

_LONGEST_CELL = 2**30
"""Characters in one cell. It bounds what a quotation mark without its partner can draw into memory."""

_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")


def read_csv(stream: BinaryIO, name: str, *, delimiter: str = ",") -> Reading:
    """Yield every record as a mapping of column to cell; empty cells are left out, unless they are the text.

    A record may span lines; it is placed at its first. A record of more or fewer cells than the header, a quotation
    mark out of place or without its partner is a fault: guessing would shift cells or swallow records.
    """
    lines = _Lines(stream)
    # The limit belongs to the csv module as a whole and stands at 131,072 characters; it is looked at while reading.
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        yield from _records(csv.reader(lines, delimiter=delimiter, strict=True), lines, stream, name)
    finally:
        csv.field_size_limit(before)
        lines.detach()


read_tsv = partial(read_csv, delimiter="\t")


class _Lines:
    """The lines of a stream as text, ends kept; bytes that are no UTF-8 stay in it as lone surrogates and are noted.

    So the shape of the table survives a bad byte, and only the record that holds it is lost.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        self.number = 0
        self._bad: tuple[int, str] | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._text)
        self.number += 1
        if self._bad is None and (match := _ESCAPED_BYTE.search(line)):
            index = len(line[: match.start()].encode("utf-8"))
            self._bad = (self.number, not_utf8(index, ord(match.group()) - 0xDC00))
        return line

    def take_bad(self) -> tuple[int, str] | None:
        """Line and message of the first bad byte since this was last called."""
        bad, self._bad = self._bad, None
        return bad

    def detach(self) -> None:
        """Let go of the stream: a TextIOWrapper would close it, but it is the caller's to close."""
        self._text.detach()


def _records(rows: Iterator[list[str]], lines: _Lines, stream: BinaryIO, name: str) -> Reading:
    columns: list[str] | None = None
    while True:
        first_line = lines.number + 1
        cells: list[str] = []
        reason: str | None = None
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            reason = _csv_reason(str(error))
        position = _position(stream)
        bad = lines.take_bad()
        if bad is not None:
            yield Fault(f"{name}:{bad[0]}", bad[1], position)
            if columns is None:
                return
            continue
        place = f"{name}:{first_line}"
        if reason is None and columns is None and cells:
            columns = [cell.strip() for cell in cells]
            reason = _header_reason(columns)
            if reason is None:
                continue
        if reason is None and cells:
            assert columns is not None
            record = _record(columns, cells)
            if isinstance(record, str):
                reason = record
            else:
                yield Found(place, record, position, "csv")
        if reason is not None:
            yield Fault(place, reason, position)
            if columns is None or first_line == 1:
                return  # without its header nothing of the file can be read


def _csv_reason(message: str) -> str:
    if "unexpected end of data" in message:
        return "not CSV: a quotation mark that opens here is never closed"
    return f"not CSV: {message}"


def _header_reason(columns: list[str]) -> str | None:
    named = [column for column in columns if column]
    for column in named:
        if columns.count(column) > 1:
            return f"the header names the column {column!r:.80} twice; no record of this file is read"
    return None if named else "the header names no column; no record of this file is read"


def _record(columns: list[str], cells: list[str]) -> dict[str, object] | str:
    if len(cells) != len(columns):
        return f"{len(cells)} cells, but the header names {len(columns)} columns"
    record: dict[str, object] = {}
    for number, (column, cell) in enumerate(zip(columns, cells, strict=True), start=1):
        if column:
            record[column] = cell
        elif cell:
            return f"cell {number} holds {cell!r:.60}, but the header gives its column no name"
    return record


def _position(stream: BinaryIO) -> int:
    try:
        return stream.tell()
    except (OSError, ValueError):  # a pipe has no position
        return 0
