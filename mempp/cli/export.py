"""`mempp export`: the record, or a scope of it, as a file that `mempp add` takes back to the same documents."""

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from mempp.cli import options
from mempp.cli.output import OutputError, emit, json_line, moment, say
from mempp.cli.progress import meter
from mempp.errors import InputError, RowNotFoundError
from mempp.records import Record

if TYPE_CHECKING:
    from mempp import Memory

STANDARD_OUTPUT = "-"
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_ROWS_AT_ONCE = 4096
_GROUP_ROWS = 10_000
_GROUP_CHARACTERS = 16_000_000
"""A row group of Parquet, and a portion of lines, ends with the first of these; so memory stays bounded."""
_PORTION_CHARACTERS = 200_000


@dataclass
class _Count:
    written: int = 0
    hidden: int = 0
    """Those among them that are archived or retracted."""
    lost: int = 0


def export_command(
    store: options.Store,
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="The file to write, or - for standard output.")
    ] = STANDARD_OUTPUT,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="jsonl or parquet; by default what the name of FILE says, on standard output jsonl.",
            show_default=False,
        ),
    ] = None,
    as_of: options.AsOf = None,
    known_at: options.KnownAt = None,
    since: options.Since = None,
    author: options.Author = None,
    tag: options.Tag = None,
    source: options.SourceOption = None,
    thread: options.Thread = None,
    where: options.Where = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Archived and retracted documents too; without bounds and filters, except --at."),
    ] = False,
    at: options.At = None,
    allow_damaged: options.AllowDamaged = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the documents of a store as JSON Lines or Parquet, which `mempp add` takes back.

    Each document with its text, occurred_at, author, tags, source, thread, kind and metadata, in the order of row ids.
    Without bounds and filters all that are active or superseded. FILE appears whole, or not at all.
    """
    bounds = options.bounds(
        as_of=as_of, known_at=known_at, since=since, author=author, tag=tag, source=source, thread=thread, where=where
    )
    bounded = any(value is not None for value in bounds.values())
    if everything and bounded:
        raise InputError("--all takes no bounds and filters; --at alone goes with it")
    chosen = _format(out, file_format)
    if out != STANDARD_OUTPUT:
        _check_target(out, store, force=force)
    count = _Count()
    silent = quiet or out == STANDARD_OUTPUT
    with (
        options.open_to_read(store, "none", at=at, allow_damaged=allow_damaged) as memory,
        meter("exporting", quiet=silent) as progress,
    ):

        def records() -> Iterator[Record]:
            for done, portion in _portions(memory, None if everything else bounds, count):
                yield from portion
                progress.show(count.written, done / len(memory))

        if out == STANDARD_OUTPUT:
            for text in _lines(records()):
                emit(text)
        else:
            with _appearing(out, force=force) as stream:
                if chosen == "parquet":
                    _write_parquet(records(), stream)
                else:
                    for text in _lines(records(), exact=True):
                        stream.write(text.encode())
        missing = 0 if everything or bounded else len(memory) - count.written
    if not quiet:
        which = "archived, retracted or lost" if allow_damaged else "archived or retracted"
        _tell(out, count, f"without {missing:,} {which}; see --all" if missing else None)


def _format(out: str, name: str | None) -> str:
    if name is not None and name not in _SUFFIXES.values():
        raise InputError(f"--format must be jsonl or parquet, got {name!r:.80}")
    if out == STANDARD_OUTPUT:
        if name == "parquet":
            raise InputError("parquet cannot go to standard output; name a file with --out")
        return "jsonl"
    chosen = name or _SUFFIXES.get(os.path.splitext(out)[1].casefold())
    if chosen is None:
        raise InputError(f"the name of {out!r:.300} does not tell its format; name it with --format: jsonl, parquet")
    return chosen


def _check_target(out: str, store: str, *, force: bool) -> None:
    try:
        path, inside = os.path.realpath(out), os.path.realpath(store)
        there = os.path.lexists(path)
        regular = os.path.isfile(path)
    except ValueError:  # a NUL in the path
        raise InputError(f"{out!r:.300} is no name of a file") from None
    if path == inside or path.startswith(inside + os.sep):
        raise InputError(f"{out!r:.300} lies within the store; name a file elsewhere")
    if there and not regular:
        raise InputError(f"{out!r:.300} is no regular file; for a pipe use --out -")
    if there and not force:
        raise InputError(f"{out!r:.300} exists already; --force replaces it")


def _portions(memory: "Memory", bounds: dict[str, Any] | None, count: _Count) -> Iterator[tuple[int, list[Record]]]:
    """Records in the order of row ids, some at a time, and how many rows were looked at; bounds None: in any state."""
    records = _in_any_state(memory, count) if bounds is None else memory.iter_records(**bounds)
    while portion := list(islice(records, _ROWS_AT_ONCE)):
        count.written += len(portion)
        count.hidden += sum(record.state.status in ("archived", "retracted") for record in portion)
        yield portion[-1].row_id + 1, portion


def _in_any_state(memory: "Memory", count: _Count) -> Iterator[Record]:
    for row in range(len(memory)):
        try:
            yield memory.get(row)
        except RowNotFoundError:  # lost with a damaged part of the store
            count.lost += 1


def as_document(record: Record) -> dict[str, Any]:
    """A record as the document that it was, fields that it has not left out."""
    fields = {
        "text": record.text,
        "occurred_at": moment(record.occurred_at),
        "author": list(record.authors),
        "tags": list(record.tags),
        "source": record.source,
        "thread": record.thread,
        "kind": record.kind,
        "metadata": dict(record.metadata),
    }
    return {name: value for name, value in fields.items() if value}


def _lines(records: Iterable[Record], *, exact: bool = False) -> Iterator[str]:
    """Lines of JSON, many at a time; `exact`: not escaped for what stdout and terminals cannot take."""
    portion: list[str] = []
    characters = 0
    for record in records:
        document = as_document(record)
        portion.append(json.dumps(document, ensure_ascii=False) + "\n" if exact else json_line(document))
        characters += len(portion[-1])
        if characters >= _PORTION_CHARACTERS:
            yield "".join(portion)
            portion, characters = [], 0
    yield "".join(portion)


def _write_parquet(records: Iterable[Record], stream: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels = pa.list_(pa.string())
    schema = pa.schema(
        {
            "text": pa.string(),
            "occurred_at": pa.timestamp("us", tz="UTC"),
            "author": labels,
            "tags": labels,
            "source": pa.string(),
            "thread": pa.string(),
            "kind": pa.string(),
            "metadata": pa.string(),
        }
    )
    try:
        with pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True) as writer:
            for group in _groups(records):
                writer.write_table(pa.Table.from_pylist([_row(record) for record in group], schema))
    except pa.ArrowException as error:
        raise OutputError(f"cannot write the records as Parquet: {str(error).splitlines()[0]:.300}") from None


def _row(record: Record) -> dict[str, Any]:
    # Metadata has no one schema; as JSON text every row keeps its own.
    metadata = json.dumps(dict(record.metadata), ensure_ascii=False) if record.metadata else None
    return {**as_document(record), "occurred_at": record.occurred_at, "metadata": metadata}


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    group: list[Record] = []
    characters = 0
    for record in records:
        group.append(record)
        characters += len(record.text)
        if len(group) >= _GROUP_ROWS or characters >= _GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


@contextmanager
def _appearing(out: str, *, force: bool) -> Iterator[BinaryIO]:
    """A file that gets its name when it is written whole and durable; before, its folder holds a hidden one beside it.

    Raises:
        InputError: a file of that name is there and is not to be replaced.
        OutputError: the operating system refused.
    """
    path = os.path.realpath(out)
    folder = os.path.dirname(path)
    hidden = os.path.join(folder, f".mempp-export-{secrets.token_hex(8)}.tmp")
    try:
        with open(hidden, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if force:
            os.replace(hidden, path)
        else:
            _name_if_free(hidden, path)
        _make_durable(folder)
    except FileExistsError:
        raise InputError(f"{out!r:.300} exists already; --force replaces it") from None
    except OSError as error:
        raise OutputError(f"cannot write {out!r:.300}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            os.unlink(hidden)


def _name_if_free(hidden: str, path: str) -> None:
    try:
        os.link(hidden, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        os.replace(hidden, path)


def _make_durable(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _tell(out: str, count: _Count, left_out: str | None) -> None:
    plural = "document" if count.written == 1 else "documents"
    notes = [] if left_out is None else [left_out]
    if count.hidden:
        notes.append(f"{count.hidden:,} of them archived or retracted, which `mempp add` takes back as active")
    if count.lost:
        notes.append(f"{count.lost:,} lost with the damaged part")
    where = "" if out == STANDARD_OUTPUT else f" to {out}"
    say(f"exported {count.written:,} {plural}{where}{' (' + '; '.join(notes) + ')' if notes else ''}")
