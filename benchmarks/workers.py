"""Processes of the systems under measurement, seen from the process that measures."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


class WorkerError(Exception):
    """A system's process ended before it had answered; the message is the last line that it wrote."""


class Worker:
    """A running `python -m benchmarks.peers`; a context manager, which ends it."""

    def __init__(self, arguments: Sequence[object]) -> None:
        """Start it; see `benchmarks/peers/__main__.py` for the arguments."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "ANONYMIZED_TELEMETRY": "False"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._messages.close()

    def do(self, order: str, **arguments: Any) -> dict[str, Any]:
        """Give one order; return the answer.

        Raises:
            WorkerError: the process ended instead.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": order, **arguments}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise WorkerError(self._last_message())
        read: dict[str, Any] = json.loads(answer)
        return read

    def _last_message(self) -> str:
        code = self._process.wait()
        self._messages.seek(0)
        lines = self._messages.read().decode(errors="replace").strip().splitlines()
        return f"ended with code {code}" + (f": {lines[-1].strip()[:200]}" if lines else "")
