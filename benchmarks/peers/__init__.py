"""The systems that `python -m benchmarks scale` sets side by side, each in a process of its own (`peers/__main__.py`).

A module here has a `Writer`, which takes blocks of rows and has them all on disk after `finish`, and a `Reader`, which
opens what was written and answers questions. It imports its libraries at the top: nothing but its own process imports
it. Every system gets the same rows with the same vectors, answers with the row numbers of its hits, best first, and
reads text, date and author of each as a caller would.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.synthetic import Block

POSTGRES = "MEMPP_BENCHMARK_POSTGRES"
"""The environment variable with the DSN of a PostgreSQL server that has pgvector."""


@dataclass(frozen=True)
class Scope:
    """Which rows a question may find: all, those dated up to a moment, those of one author, or one row."""

    name: str
    until: int | None = None
    """Seconds since 1970 UTC, included."""
    author: str | None = None
    source: str | None = None

    def as_dict(self) -> dict[str, str | int | None]:
        """Plain values, from which `Scope(**values)` is made again."""
        return asdict(self)


class Writer(Protocol):
    """Takes a record in."""

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        """Make a new, empty store in an empty folder."""
        ...

    def add(self, block: Block) -> None:
        """Add rows with their vectors."""
        ...

    def finish(self) -> None:
        """Build the indexes that the library's documentation advises, put everything on disk, close."""
        ...


class Reader(Protocol):
    """Answers questions."""

    variants: Mapping[str, bool]
    """The ways of asking; whether they rank by the vector alone, so that the best rows are known."""
    first: str
    """The variant that a user would take who has just opened it."""

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        """Open what was written."""
        ...

    def settle(self) -> None:
        """Wait for what goes on in the background."""
        ...

    def ask(self, variant: str, text: str, vector: NDArray[np.float32], scope: Scope, k: int) -> list[int]:
        """The rows of at most k hits, best first, each read."""
        ...

    def bytes_on_disk(self) -> int | None:
        """Size of what was written, None for all files of the folder."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


@dataclass(frozen=True)
class System:
    """One system."""

    name: str
    title: str
    module: str
    """Has `Writer` and `Reader`."""
    package: str
    """What must be importable."""
    in_process: bool = True
    """Whether its memory is that of the process which asks."""

    def missing(self) -> str | None:
        """Why it cannot take part, in a few words; None where it can."""
        if find_spec(self.package) is None:
            return f"not installed: pip install {self.package}"
        if not self.in_process and not os.environ.get(POSTGRES):
            return f"no server: set {POSTGRES}"
        return None


SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        System("mempp", "Mem++", "benchmarks.peers.memory", "mempp"),
        System("chromadb", "chromadb", "benchmarks.peers.chromadb", "chromadb"),
        System("lancedb", "lancedb", "benchmarks.peers.lancedb", "lancedb"),
        System("pgvector", "pgvector", "benchmarks.peers.pgvector", "psycopg", in_process=False),
    )
}
