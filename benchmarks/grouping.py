"""How long the greedy grouping of consolidation takes: `python -m benchmarks grouping --rows 10000 100000`.

Two kinds of unit vectors of 384 dimensions: "scattered", of which none is near another, so that every row is compared
with every other one (the worst case); and "clustered", five rows to a centre on average. Equality with the plain
definition is tested in tests/test_consolidation_grouping.py.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.operators.grouping import first_rows, groups

THRESHOLD = 0.85


def scattered(rows: int, dimensions: int = 384) -> NDArray[np.float32]:
    """Unit vectors drawn evenly from all directions."""
    return _unit(np.random.default_rng(1).standard_normal((rows, dimensions), dtype=np.float32))


def clustered(rows: int, dimensions: int = 384) -> NDArray[np.float32]:
    """Unit vectors about centres, with cosines of about 0.9 to one another within a cluster."""
    random = np.random.default_rng(2)
    centres = _unit(random.standard_normal((max(1, rows // 5), dimensions), dtype=np.float32))
    noise = _unit(random.standard_normal((rows, dimensions), dtype=np.float32))
    return _unit(centres[random.integers(0, len(centres), rows)] + 0.33 * noise)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / lengths, np.float32)


def measure(rows: int) -> list[dict[str, Any]]:
    """Seconds of the wall and of the processor, and groups found, for each kind of vectors."""
    found = []
    for make in (scattered, clustered):
        vectors = make(rows)
        wall, processor = time.perf_counter(), time.process_time()
        grouped = groups(first_rows(vectors, THRESHOLD))
        found.append(
            {
                "rows": rows,
                "vectors": make.__name__,
                "groups": len(grouped),
                "seconds": time.perf_counter() - wall,
                "processor_seconds": time.process_time() - processor,
            }
        )
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    for rows in parser.parse_args(argv).rows:
        for one in measure(rows):
            print(
                f"{one['rows']:>9,} {one['vectors']:<10} {one['groups']:>7,} groups of two or more  "
                f"{one['seconds']:6.1f} s ({one['processor_seconds']:.1f} s of the processors)"
            )


if __name__ == "__main__":
    main()
