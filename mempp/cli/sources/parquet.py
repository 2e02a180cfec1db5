"""Parquet: one document per row, read in small batches of rows."""

from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO

from mempp.cli.sources import Fault, Found, Reading

_ROWS_AT_ONCE = 256


def read_parquet(stream: BinaryIO, name: str) -> Reading:
    """Yield every row as a mapping of column to value; nulls are left out. Places are row numbers, counted from 1.

    Dates, times and decimals in columns that a document does not have become text, as JSON has nothing else for them;
    in `occurred_at` a timestamp is taken as it is (without a time zone: UTC), cut to microseconds.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # pre_buffer would hold the whole of a row group's columns. Checksums are looked at where the file has them.
        file = pq.ParquetFile(stream, pre_buffer=False, page_checksum_verification=True)
        names = file.schema_arrow.names
        twice = next((column for column in names if names.count(column) > 1), None)
        if twice is not None:
            yield Fault(name, f"the file has the column {twice!r:.80} twice; no row of it is read")
            return
        yield from _rows(file, name)
    except pa.ArrowException as error:
        yield Fault(name, f"not readable as Parquet: {str(error).splitlines()[0]:.300}")
    except OSError as error:
        # Arrow reports damaged pages and unknown encodings as OSError, too.
        yield Fault(name, f"not readable as Parquet: {str(error).splitlines()[0]:.300}")


def _rows(file: Any, name: str) -> Reading:
    size = _size(file)
    total = max(1, file.metadata.num_rows)
    number = 0
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
        for row in _row_values(batch):
            number += 1
            position = size * number // total
            place = f"{name}:{number}"
            if isinstance(row, str):
                yield Fault(place, row, position)
            else:
                yield Found(place, row, position, "parquet")


def _size(file: Any) -> int:
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
    return sum(group.column(column).total_compressed_size for group in groups for column in range(group.num_columns))


def _row_values(batch: Any) -> Iterator[dict[str, object] | str]:
    columns = {column: _plain(batch.column(index)) for index, column in enumerate(batch.schema.names)}
    for index in range(batch.num_rows):
        row: dict[str, object] = {}
        reason: str | None = None
        for column, values in columns.items():
            try:
                value = values[index].as_py()
            except UnicodeDecodeError as error:
                reason = f"column {column!r:.80} is not UTF-8 at byte {error.start + 1}"
                break
            except (ValueError, OverflowError) as error:
                reason = f"column {column!r:.80} holds a value that cannot be read: {error!s:.200}"
                break
            if value is not None:
                row[column] = value
        yield row if reason is None else reason


def _plain(array: Any) -> Any:
    """Timestamps in microseconds: Python's dates hold no nanoseconds, and the log stores none."""
    import pyarrow as pa

    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        return array.cast(pa.timestamp("us", tz=array.type.tz), safe=False)
    return array


def json_value(value: object) -> object:
    """A value of an Arrow column as JSON has it: dates and times as ISO 8601, decimals as text, pairs as lists."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {key: json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    return value
