"""Writers killed with SIGKILL at random moments: what they acknowledged is there, what they did not is whole or absent.

SIGKILL leaves the page cache, so this shows the order of writes and the recovery, not a missing fsync; for those see
the faults and crashes at every call in test_storage_crash.py. `benchmarks/kills.py` kills 1,000.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.killing import kill_many
from harness.nursery import Nursery, nursery


@pytest.fixture(scope="module")
def server() -> Iterator[Nursery]:
    with nursery() as one:
        yield one


def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path, server: Nursery) -> None:
    figures = kill_many(server, tmp_path, 50, seed=11)
    assert figures["kills"] == 50
    assert figures["rows acknowledged"] > 500
    assert figures["state entries acknowledged"] > 10
