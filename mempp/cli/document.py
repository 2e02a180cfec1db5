"""Writes the reference part of docs/cli.md from the commands themselves: `python -m mempp.cli.document docs/cli.md`.

It takes names, placeholders, help texts and defaults, not the help screens: those depend on the terminal and on the
version of typer.
"""

import inspect
import sys
from pathlib import Path
from typing import Any

import typer

from mempp.cli.app import app

START = "<!-- from here on written by `python -m mempp.cli.document docs/cli.md`; a test compares it -->"


def reference() -> str:
    """Every command with its arguments and options, as Markdown."""
    group: Any = typer.main.get_command(app)
    parts = [_command("mempp", group)]
    parts += [_command(f"mempp {name}", command) for name, command in group.commands.items()]
    return "\n\n".join(parts) + "\n"


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join([name, "[OPTIONS]", *(_argument(one) for one in arguments)])
    if hasattr(command, "commands"):
        usage += " COMMAND [ARGS]..."
    lines = [f"### `{name}`", "", "```text", usage, "```", "", inspect.cleandoc(command.help), ""]
    lines += [f"- `{_argument(one)}`: {one.help}" for one in arguments]
    lines += [f"- {_names(one)}: {one.help}{_default(one)}" for one in options]
    return "\n".join(lines)


def _argument(parameter: Any) -> str:
    return f"{parameter.metavar}..." if parameter.nargs == -1 else str(parameter.metavar)


def _names(option: Any) -> str:
    placeholder = "" if option.is_flag else f" {option.metavar}"
    return ", ".join(f"`{name}{placeholder}`" for name in option.opts)


def _default(option: Any) -> str:
    if option.is_flag or not option.show_default:
        return ""
    return f" Default: `{option.default}`."


def rewrite(page: Path) -> None:
    """Put the reference into a page, behind the line that announces it."""
    head = page.read_text(encoding="utf-8").split(START)[0]
    page.write_text(f"{head}{START}\n\n{reference()}", encoding="utf-8")


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))
