"""What reaches the terminal: results on stdout, messages on stderr, stored text made harmless for people's eyes."""

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from mempp.errors import MemppError
from mempp.records import Record

if TYPE_CHECKING:
    from mempp import Triple

# Control characters drive a terminal (colours, cursor, title, clipboard); bidirectional overrides and isolates and
# the Unicode line separators make a line read other than it is; lone surrogates cannot be written. Line feed and tab
# are left to the caller.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_WIDTH_WITHOUT_TERMINAL = 100


def visible(text: str) -> str:
    r"""The text with what would drive a terminal written out (`\x1b`, `\u202e`); line feeds and tabs stay."""
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The text on one line: runs of white space become one space, and nothing in it drives a terminal."""
    return visible(" ".join(text.split()))


def _written_out(match: re.Match[str]) -> str:
    number = ord(match.group())
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


class OutputError(MemppError):
    """The operating system refused what was written to stdout."""


class ReaderGoneError(Exception):
    """Whoever read stdout has stopped reading, as `head` does."""


def say(message: str) -> None:
    """One line on stderr, headed by the program's name."""
    line = f"mempp: {one_line(message)}\n"
    try:
        try:
            sys.stderr.write(line)
            sys.stderr.flush()
        except RuntimeError:  # the handler of a signal says it, in the midst of another line
            os.write(sys.stderr.fileno(), line.encode(errors="backslashreplace"))
    except OSError:
        # A message that nobody can read must not end the work it is about (`mempp add … 2>&1 | head -1`).
        _give_up(sys.stderr)


def emit(text: str) -> None:
    """Text on stdout, as it is.

    Raises:
        ReaderGoneError: nobody reads it.
        OutputError: it cannot be written, to a full disk for example.
    """
    try:
        _write_all(sys.stdout, text)
    except OSError as error:
        _give_up(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise ReaderGoneError from None
        raise OutputError(f"cannot write the output: {error.strerror or error}") from None


def _give_up(stream: TextIO) -> None:
    """Let what is still buffered not fail again when Python shuts down, which would change the exit code."""
    with suppress(OSError, ValueError):  # ValueError: it is no file of the system
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write_all(stream: TextIO, text: str) -> None:
    stream.flush()
    binary = getattr(stream, "buffer", None)
    if binary is None:
        stream.write(text)
    else:
        # Without a buffer (PYTHONUNBUFFERED) a text stream loses what one system call did not take.
        data = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
        while data:
            data = data[binary.write(data) :]
    stream.flush()


def debug(error: BaseException) -> bool:
    """Print the traceback of an error where MEMPP_DEBUG asks for it; return whether it was printed."""
    if not os.environ.get("MEMPP_DEBUG"):
        return False
    import traceback

    traceback.print_exception(error, file=sys.stderr)
    return True


def write(text: str) -> None:
    """Text and a line feed on stdout; harmless where stdout is a terminal, as it is where it is a file or a pipe."""
    emit(f"{visible(text) if sys.stdout.isatty() else text}\n")


def write_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout; characters that stdout cannot write, or that a terminal might obey, as escapes."""
    emit(_json(value, indent=2 if sys.stdout.isatty() else None) + "\n")


def json_line(value: Mapping[str, Any]) -> str:
    """The same on one line, as text."""
    return _json(value, indent=None) + "\n"


def _json(value: Mapping[str, Any], *, indent: int | None) -> str:
    ascii_only = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def record_as_json(record: Record) -> dict[str, Any]:
    """A record with its state as plain values; moments as ISO 8601 text."""
    state = record.state
    return {
        "row_id": record.row_id,
        "text": record.text,
        "occurred_at": moment(record.occurred_at),
        "ingested_at": moment(record.ingested_at),
        "author": record.author,
        "authors": list(record.authors),
        "tags": list(record.tags),
        "source": record.source,
        "thread": record.thread,
        "kind": record.kind,
        "metadata": dict(record.metadata),
        "state": {
            "status": state.status,
            "by": state.by,
            "since": moment(state.since),
            "into": state.into,
            "reason": state.reason,
        },
    }


def triple_as_json(triple: "Triple") -> dict[str, Any]:
    """A triple of the entity graph as plain values, with row and date of its document."""
    return {
        "subject": triple.subject,
        "relation": triple.relation,
        "object": triple.object,
        "row_id": triple.row_id,
        "occurred_at": moment(triple.record.occurred_at),
        "hops": triple.hops,
    }


def moment(value: datetime | None) -> str | None:
    """A moment as ISO 8601 text, or None."""
    return None if value is None else value.isoformat()


def width() -> int:
    """Columns for people's output: those of the terminal (or COLUMNS), 100 where stdout is none; at least 40."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return max(40, shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns)
    return _WIDTH_WITHOUT_TERMINAL


def forgiving(stream: TextIO | None) -> None:
    """Let a stream write out characters that its encoding lacks, rather than fail."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
