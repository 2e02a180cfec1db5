"""One run of the command: every outcome becomes an exit code and at most one line on stderr."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mempp.cli.output import ReaderGoneError, debug, forgiving, say
from mempp.errors import InputError, MemppError, RowNotFoundError

DONE = 0
AT_FAULT = 1
"""The store or the data is at fault."""
WRONG_USAGE = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: what follows the program's name; by default what this process was given.
    """
    if sys.stdout is None or sys.stderr is None:  # the caller closed them (`>&-`)
        null = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
        sys.stdout, sys.stderr = sys.stdout or null, sys.stderr or null
    forgiving(sys.stdout)
    forgiving(sys.stderr)
    with _warnings_in_one_line():
        return exit_code_of(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    from mempp.cli.app import app

    code = app(args=arguments, prog_name="mempp", standalone_mode=False)
    return code if isinstance(code, int) else DONE


def exit_code_of(run: Callable[[], int]) -> int:
    """Call, and turn every exception into a message and an exit code."""
    try:
        return run()
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except ReaderGoneError:
        return DONE
    except RowNotFoundError as error:
        return _tell(error, AT_FAULT)
    except InputError as error:
        return _tell(error, WRONG_USAGE)
    except MemppError as error:
        return _tell(error, AT_FAULT)
    except Exception as error:
        return _unforeseen(error)


def _tell(error: MemppError, code: int) -> int:
    debug(error)
    say(str(error))
    return code


def _unforeseen(error: Exception) -> int:
    # Typer's own errors of usage; where their classes live differs between its versions.
    format_message = getattr(error, "format_message", None)
    if callable(format_message):
        context = getattr(error, "ctx", None)
        command = "mempp" if context is None else context.command_path
        say(f"{str(format_message()).rstrip('.')}; see '{command} --help'")
        return WRONG_USAGE
    if type(error).__name__ == "Abort":
        say("interrupted")
        return INTERRUPTED
    hint = "" if debug(error) else "; set MEMPP_DEBUG=1 to see where"
    say(f"unexpected {type(error).__name__}: {error}{hint}")
    return AT_FAULT


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show warnings as messages of the program, each once, without the line of code they came from."""
    said: set[str] = set()

    def show(message: Warning | str, *_others: object, **_more: object) -> None:
        if str(message) not in said:  # Python itself tells one again that comes from another line
            said.add(str(message))
            say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
