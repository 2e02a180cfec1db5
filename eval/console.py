"""What reaches the terminal: results on stdout, messages on stderr; every outcome becomes an exit code and one line."""

import errno
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from eval.errors import FAULTS, EvalError, UsageError

DONE = 0
AT_FAULT = 1
"""The data, a model, a result file or a system is at fault, or questions failed."""
WRONG_USAGE = 2
INTERRUPTED = 130

_OUTPUT_FAULTS = (errno.ENOSPC, errno.EFBIG, errno.EIO)

# What would drive a terminal; texts of benchmarks and replies of models are not trusted.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class ReaderGoneError(Exception):
    """Whoever read stdout has stopped reading, as `head` does."""


def say(message: str) -> None:
    """One line on stderr, headed by the program's name."""
    try:
        sys.stderr.write(f"eval: {_UNSAFE.sub('?', ' '.join(message.split()))}\n")
        sys.stderr.flush()
    except OSError:  # a message that nobody can read must not end the work it is about
        _give_up(sys.stderr)


def write(text: str) -> None:
    """Text and a line feed on stdout.

    Raises:
        ReaderGoneError: nobody reads it; what is written from now on is dropped.
        EvalError: it cannot be written.
    """
    try:
        sys.stdout.write(_UNSAFE.sub("?", text) + "\n")
        sys.stdout.flush()
    except OSError as error:
        _give_up(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise ReaderGoneError from None
        raise EvalError(f"cannot write to standard output: {error.strerror or error}") from None


def _give_up(stream: TextIO) -> None:
    """Let what is still buffered not fail again when Python shuts down, which would change the exit code."""
    with suppress(OSError, ValueError):  # ValueError: it is no file of the system
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_json(value: Any) -> None:
    """One JSON value on stdout."""
    write(json.dumps(value, ensure_ascii=True, indent=2, allow_nan=False))


def run(call: Callable[[], int]) -> int:
    """Call, and turn every exception into at most one line on stderr and an exit code."""
    if sys.stdout is None or sys.stderr is None:  # the caller closed them (`>&-`)
        null = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
        sys.stdout, sys.stderr = sys.stdout or null, sys.stderr or null
    _forgiving(sys.stdout)
    _forgiving(sys.stderr)
    with _warnings_in_one_line():
        return _exit_code(call)


def _exit_code(call: Callable[[], int]) -> int:
    try:
        return call()
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except ReaderGoneError:
        return DONE
    except UsageError as error:
        return _tell(error, WRONG_USAGE)
    except FAULTS as error:
        return _tell(error, AT_FAULT)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OUTPUT_FAULTS:  # Typer's own output, such as that of --help
            return _tell(EvalError(f"cannot write to standard output: {error.strerror}"), AT_FAULT)
        format_message = getattr(error, "format_message", None)  # Typer's own errors of usage
        if callable(format_message):
            context = getattr(error, "ctx", None)
            command = "python -m eval" if context is None else context.command_path
            say(f"{str(format_message()).rstrip('.')}; see '{command} --help'")
            return WRONG_USAGE
        if type(error).__name__ == "Abort":
            say("interrupted")
            return INTERRUPTED
        hint = "" if _traced(error) else "; set MEMPP_DEBUG=1 to see where"
        say(f"unexpected {type(error).__name__}: {error}{hint}")
        return AT_FAULT


def _tell(error: Exception, code: int) -> int:
    _traced(error)
    say(str(error))
    return code


def _traced(error: BaseException) -> bool:
    if not os.environ.get("MEMPP_DEBUG"):
        return False
    traceback.print_exception(error, file=sys.stderr)
    return True


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_others, **_more: say(f"warning: {message}")
        yield


def _forgiving(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def columns(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of plain text: the first column flush left, the others flush right."""
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]

    def laid(line: Sequence[str]) -> str:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([laid(header), "  ".join("-" * width for width in widths), *map(laid, lines)])
