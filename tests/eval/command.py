"""The command `python -m eval`: in this process, which is fast, or as a process of its own, which can be killed."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from eval.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
KEY = "sk-do-not-write-me-anywhere"


def start(*arguments: object, cwd: Path = ROOT) -> subprocess.Popen[str]:
    """Begin a command in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEMPP_", "OPENAI_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "eval", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        env=kept | {"OPENAI_API_KEY": KEY, "PYTHONPATH": str(ROOT)},
    )


def run(*arguments: object, code: int = 0) -> SimpleNamespace:
    """Run a command to its end in this process, and hold its exit code against the one expected."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        returned = main([str(one) for one in arguments])
    done = SimpleNamespace(stdout=stdout.getvalue(), stderr=stderr.getvalue())
    assert returned == code, f"{arguments}: {returned}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done


def result(path: Path) -> dict:
    """A result file."""
    return json.loads(path.read_text(encoding="utf-8"))
