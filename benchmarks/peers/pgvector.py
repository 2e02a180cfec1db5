"""PostgreSQL with pgvector at the DSN in MEMPP_BENCHMARK_POSTGRES: exact scans, and an HNSW index with iterative scans.

It makes a table `mempp_benchmark` there, in place of one that there may be from an earlier run, and leaves it.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from benchmarks.peers import POSTGRES, Scope
from benchmarks.synthetic import Block

_TABLE = "mempp_benchmark"
_HNSW = "HNSW, iterative scan"


def _text(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


class Writer:
    """Takes a record in; see `benchmarks.peers.Writer`."""

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        self._connection = psycopg.connect(os.environ[POSTGRES], autocommit=True)
        self._do("CREATE EXTENSION IF NOT EXISTS vector")
        self._do(f"DROP TABLE IF EXISTS {_TABLE}")
        self._do(
            f'CREATE TABLE {_TABLE} ("row" bigint PRIMARY KEY, text text, date bigint, author text, source text, '
            f"thread text, vector vector({dimensions}))"
        )

    def add(self, block: Block) -> None:
        """Add rows by COPY, in one transaction."""
        copy = f'COPY {_TABLE} ("row", text, date, author, source, thread, vector) FROM STDIN'
        with self._connection.cursor() as cursor, cursor.copy(copy) as rows:
            for place, text in enumerate(block.texts):
                rows.write_row(
                    (
                        block.first + place,
                        text,
                        int(block.dates[place]),
                        block.authors[place],
                        block.sources[place],
                        block.threads[place],
                        _text(block.vectors[place]),
                    )
                )

    def finish(self) -> None:
        """Build the indexes, and let the planner count."""
        for column in ("date", "author", "source"):
            self._do(f"CREATE INDEX ON {_TABLE} ({column})")
        self._do(f"CREATE INDEX ON {_TABLE} USING hnsw (vector vector_cosine_ops)")
        self._do(f"VACUUM ANALYZE {_TABLE}")
        self._connection.close()

    def _do(self, statement: str) -> None:
        self._connection.execute(statement.encode())


class Reader:
    """Answers questions; see `benchmarks.peers.Reader`."""

    first = _HNSW

    def __init__(self, folder: Path, rows: int, dimensions: int) -> None:
        self._connection = psycopg.connect(os.environ[POSTGRES], autocommit=True)
        self.variants = {"exact scan": True, _HNSW: True}
        self._variant: str | None = None

    def settle(self) -> None:
        """Nothing goes on in the background."""

    def ask(self, variant: str, text: str, vector: NDArray[np.float32], scope: Scope, k: int) -> list[int]:
        """The rows of at most k hits."""
        if variant != self._variant:
            self._choose(variant, k)
        condition, values = _condition(scope)
        statement = f'SELECT "row", text, date, author FROM {_TABLE}{condition} ORDER BY vector <=> %s::vector LIMIT %s'
        found = self._connection.execute(statement.encode(), [*values, _text(vector), k]).fetchall()
        assert all(one[1] and one[3] for one in found)
        return [int(one[0]) for one in found]

    def bytes_on_disk(self) -> int | None:
        """The table with its indexes."""
        answer = self._connection.execute(f"SELECT pg_total_relation_size('{_TABLE}')".encode()).fetchone()
        return None if answer is None else int(answer[0])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _choose(self, variant: str, k: int) -> None:
        """Let the planner use the graph or not."""
        graph = variant == _HNSW
        self._connection.execute(f"SET hnsw.ef_search = {max(100, k)}".encode())
        self._connection.execute(f"SET hnsw.iterative_scan = {'strict_order' if graph else 'off'}".encode())
        # A plan that is sorted by distance without the graph reads all rows in scope; with it, it need not sort.
        self._connection.execute(f"SET enable_indexscan = {'on' if graph else 'off'}".encode())
        self._variant = variant


def _condition(scope: Scope) -> tuple[str, list[Any]]:
    if scope.until is not None:
        return " WHERE date <= %s", [scope.until]
    if scope.author is not None:
        return " WHERE author = %s", [scope.author]
    return ("", []) if scope.source is None else (" WHERE source = %s", [scope.source])
