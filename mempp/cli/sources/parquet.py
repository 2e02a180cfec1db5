"""Parquet: one document per row, read in small batches of rows."""

import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO
from uuid import UUID

from mempp.cli.sources import Fault, Found, Reading
from mempp.errors import InputError

_ROWS_AT_ONCE = 256


def read_parquet(stream: BinaryIO, name: str) -> Reading:
    """Yield every row as a mapping of column to value, None for null. Places are row numbers, counted from 1.

    Timestamps, times and durations are cut to microseconds, at any depth: Python holds no nanoseconds, and the log
    stores none.
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
        unusable = next(filter(None, map(_unusable, file.schema_arrow)), None)
        if unusable is not None:
            yield Fault(name, f"{unusable}; no row of it is read")
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
    columns = {column: _in_microseconds(batch.column(index)) for index, column in enumerate(batch.schema.names)}
    for index in range(batch.num_rows):
        row: dict[str, object] = {}
        reason: str | None = None
        for column, values in columns.items():
            try:
                row[column] = values[index].as_py()
            except UnicodeDecodeError as error:
                reason = f"column {column!r:.80} is not UTF-8 at byte {error.start + 1}"
                break
            except (ValueError, OverflowError) as error:
                reason = f"column {column!r:.80} holds a value that cannot be read: {error!s:.200}"
                break
        yield row if reason is None else reason


def _unusable(field: Any) -> str | None:
    """Why a column cannot be read: it has a time zone that this machine does not know."""
    import pyarrow as pa

    for zone in _zones(field.type):
        try:
            pa.scalar(0, pa.timestamp("us", tz=zone)).as_py()
        except Exception:  # whatever Arrow, zoneinfo or pytz say of a name that is none
            return (
                f"the column {field.name!r:.80} has the time zone {zone!r:.80}, which is not known here; write it with "
                "a name of the IANA database, such as UTC"
            )
    return None


def _zones(kind: Any) -> Iterator[str]:
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.tz:
        yield kind.tz
    elif pa.types.is_dictionary(kind):
        yield from _zones(kind.value_type)
    for index in range(kind.num_fields):
        yield from _zones(kind.field(index).type)


def _in_microseconds(array: Any) -> Any:
    kind = _microseconds(array.type)
    # Not safe: what is finer than a microsecond is cut off.
    return array if kind is array.type else array.cast(kind, safe=False)


def _microseconds(kind: Any) -> Any:
    """The type with microseconds where it has nanoseconds, at any depth; the same object where it has none."""
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_dictionary(kind):
        inner = _microseconds(kind.value_type)
        return kind if inner is kind.value_type else inner
    fields = [kind.field(index) for index in range(kind.num_fields)]
    inner_types = [_microseconds(field.type) for field in fields]
    if all(new is field.type for new, field in zip(inner_types, fields, strict=True)):
        return kind
    changed = [field.with_type(new) for new, field in zip(inner_types, fields, strict=True)]
    if types.is_struct(kind):
        return pa.struct(changed)
    if types.is_map(kind):
        return pa.map_(_microseconds(kind.key_type), changed[0].type.field(1), keys_sorted=kind.keys_sorted)
    if types.is_large_list(kind):
        return pa.large_list(changed[0])
    if types.is_fixed_size_list(kind):
        return pa.list_(changed[0], kind.list_size)
    return pa.list_(changed[0]) if types.is_list(kind) else kind


def json_value(value: object, column: str) -> object:
    """A value of an Arrow column as JSON has it, at any depth.

    Dates, times and durations become ISO 8601 text, decimals and UUIDs text, pairs lists, and NaN, by which data frames
    mean that there is no value, null.

    Raises:
        InputError: JSON has nothing for it (bytes, infinity); the message names the column.
    """
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return iso_duration(value)
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, dict):
        return {key: json_value(inner, column) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner, column) for inner in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    what = "bytes" if isinstance(value, bytes) else f"a value of type {type(value).__name__}"
    raise InputError(
        f"column {column!r:.80} holds {what}, which metadata cannot keep, as JSON has no such thing: {value!r:.80}; "
        "make it text, or leave the column out"
    )


def iso_duration(value: timedelta) -> str:
    """A duration as ISO 8601 has it, in days and seconds and what is between: "P1DT2H0.5S", "-PT3M", "PT0S"."""
    sign = "-" if value < timedelta(0) else ""
    value = abs(value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    clock = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number)
    if seconds or fraction:
        clock += f"{seconds}{fraction}S"
    days = f"{value.days}D" if value.days else ""
    if not days and not clock:
        return "PT0S"
    return f"{sign}P{days}{'T' if clock else ''}{clock}"
