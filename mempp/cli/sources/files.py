"""Which files a command line names: files, folders of them, standard input; and the format of each."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mempp.cli.sources import Fault, Format, Reading
from mempp.cli.sources.json_lines import read_json_lines
from mempp.cli.sources.parquet import read_parquet
from mempp.cli.sources.tables import read_csv, read_tsv
from mempp.cli.sources.whole_files import read_text
from mempp.errors import InputError, MemppError

FORMATS: tuple[Format, ...] = (
    Format("jsonl", (".jsonl", ".ndjson"), read_json_lines),
    Format("csv", (".csv",), read_csv),
    Format("tsv", (".tsv",), read_tsv),
    Format("parquet", (".parquet",), read_parquet, streams=False),
    Format("text", (".md", ".markdown", ".txt"), read_text),
)
STANDARD_INPUT = "-"


class SourceFileError(MemppError):
    """A file that was named is not there, or cannot be looked at."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to read."""

    path: str
    format: Format
    size: int | None
    """Bytes, or None where that is not known before it was read (pipes)."""

    @property
    def name(self) -> str:
        """The name in messages."""
        return "<stdin>" if self.path == STANDARD_INPUT else self.path

    def read(self) -> Reading:
        """Yield what the file holds; where the operating system refuses to read it, a last fault says so."""
        try:
            if self.path == STANDARD_INPUT:
                with closing(self.format.read(sys.stdin.buffer, self.name)) as reading:
                    yield from reading
            else:
                with open(self.path, "rb") as stream, closing(self.format.read(stream, self.name)) as reading:
                    yield from reading
        except OSError as error:
            yield Fault(self.name, f"cannot be read: {error.strerror or error}")


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files that the command line names, in the order in which they are read."""

    files: tuple[SourceFile, ...]
    unknown: tuple[str, ...]
    """Files in folders whose suffix names no format."""
    stores: tuple[str, ...]
    """Folders that were not entered because they are Mem++ stores."""


def find_files(paths: Sequence[str], *, format_name: str | None = None, delimiter: str | None = None) -> FoundFiles:
    """Find the files of folders (recursively, in sorted order, hidden ones left out) and the format of each file.

    Args:
        paths: files, folders, or "-" for standard input (JSON Lines unless `format_name` says otherwise).
        format_name: the format of every file, whatever its suffix; in folders then every file is read.
        delimiter: what separates the cells of CSV files, instead of a comma.

    Raises:
        SourceFileError: a path does not exist or cannot be looked at, or standard input is closed.
        InputError: a file's suffix names no format, or standard input is named twice or cannot hold the format.
    """
    formats = {suffix: one for one in FORMATS for suffix in one.suffixes}
    forced = next((one for one in FORMATS if one.name == format_name), None)
    if format_name is not None and forced is None:
        raise InputError(f"there is no format {format_name!r:.80}; the formats are {_names()}")
    files: list[SourceFile] = []
    unknown: list[str] = []
    stores: list[str] = []
    for path in paths:
        if path == STANDARD_INPUT:
            files.append(_standard_input(forced or FORMATS[0], again=any(one.path == path for one in files)))
            continue
        mode, size = _look_at(path)
        if stat.S_ISDIR(mode):
            for inner in _walk(path, stores):
                file_format = forced or formats.get(os.path.splitext(inner)[1].casefold())
                if file_format is None:
                    unknown.append(inner)
                else:
                    files.append(SourceFile(inner, file_format, _look_at(inner)[1]))
            continue
        file_format = forced or formats.get(os.path.splitext(path)[1].casefold())
        if file_format is None:
            raise InputError(f"the name of {path!r:.300} does not tell its format; name it with --format: {_names()}")
        if not stat.S_ISREG(mode) and not file_format.streams:
            raise InputError(f"{path!r:.300} is no regular file, and {file_format.name} cannot be read from a pipe")
        files.append(SourceFile(path, file_format, size if stat.S_ISREG(mode) else None))
    if delimiter is not None:
        files = [_delimited(one, delimiter) for one in files]
    return FoundFiles(tuple(files), tuple(unknown), tuple(stores))


def _names() -> str:
    return ", ".join(one.name for one in FORMATS)


def _standard_input(file_format: Format, *, again: bool) -> SourceFile:
    if again:
        raise InputError("standard input (-) is named twice; it can be read once")
    if sys.stdin is None:  # the caller closed it (`<&-`)
        raise SourceFileError("standard input (-) is closed; give it a file or a pipe, or name a file")
    if not file_format.streams:
        raise InputError(f"{file_format.name} cannot be read from standard input; give a file")
    return SourceFile(STANDARD_INPUT, file_format, None)


def _look_at(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise SourceFileError(f"cannot read {path!r:.300}: {reason}") from None
    return status.st_mode, status.st_size


def _walk(folder: str, stores: list[str]) -> Iterator[str]:
    """Regular files below a folder, sorted by name level by level; links to folders are not followed."""

    def refuse(error: OSError) -> None:
        raise SourceFileError(f"cannot read the folder {error.filename!r:.300}: {error.strerror}") from None

    for base, folders, names in os.walk(folder, onerror=refuse):
        if _is_store(base):
            # Its segments are Parquet files, and would be taken for documents.
            stores.append(base)
            folders.clear()
            continue
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for one in sorted(names):
            path = os.path.join(base, one)
            if not one.startswith(".") and os.path.isfile(path):
                yield path


def _is_store(folder: str) -> bool:
    return Path(folder, "store.json").is_file() and Path(folder, "log").is_dir()


def _delimited(file: SourceFile, delimiter: str) -> SourceFile:
    if file.format.name != "csv":
        return file
    one = file.format
    return SourceFile(file.path, Format(one.name, one.suffixes, partial(read_csv, delimiter=delimiter)), file.size)
