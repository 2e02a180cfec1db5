"""Writers killed with SIGKILL at random moments: what they acknowledged is there, what they did not is whole or absent.

SIGKILL leaves the page cache, so this shows the order of writes and the recovery, not a missing fsync; for those see
the faults and crashes at every call in test_storage_crash.py. `benchmarks/kills.py` kills 1,000.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import independent
from harness.killing import kill_many
from harness.nursery import Nursery, nursery

import mempp
from mempp.storage import DiskStore, TornTailWarning


@pytest.fixture(scope="module")
def server() -> Iterator[Nursery]:
    with nursery() as one:
        yield one


def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path, server: Nursery) -> None:
    figures = kill_many(server, tmp_path, 50, seed=11)
    assert figures["kills"] == 50
    assert figures["rows acknowledged"] > 500
    assert figures["state entries acknowledged"] > 10


def test_the_journal_cut_at_every_byte_of_its_last_three_commits(tmp_path: Path) -> None:
    """It reopens with exactly the whole commits, by both readers, and the next writer goes on from there."""
    path = tmp_path / "store"
    heads, ends, rows = [], [], []
    for number in range(5):
        with mempp.open(path, encoder="none") as memory:
            memory.add_many([f"ö {number} {place}\n" for place in range(number % 3 + 1)])
            heads.append(memory._store.head_digest)  # type: ignore[attr-defined]
            rows.append(len(memory))
        (journal,) = (path / "journal").glob("*.journal")
        ends.append(journal.stat().st_size)
    whole = journal.read_bytes()
    for length in range(ends[1], ends[4] + 1):
        journal.write_bytes(whole[:length])
        commits = sum(end <= length for end in ends)
        torn = length - ends[commits - 1]
        contents = independent.read(path)
        assert (contents.head, contents.torn, len(contents.rows)) == (heads[commits - 1], torn, rows[commits - 1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store = DiskStore(path, read_only=True)
            assert sum(entry.kind == "document" for entry in store.refresh()) == rows[commits - 1]
            assert store.head_digest == heads[commits - 1]
        assert [f"ends with {torn} bytes" in str(one.message) for one in caught] == [True] * bool(torn)
        if length % 37 == 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TornTailWarning)
                with mempp.open(path, encoder="none") as memory:
                    assert len(memory) == rows[commits - 1]
                    assert memory.add("after the cut").row_ids == (rows[commits - 1],)
            assert independent.read(path).rows[-1]["text"] == "after the cut"
