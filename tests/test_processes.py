"""Several processes, and several threads, at one store: nothing lost, nothing twice, no answer that mixes two states.

`python benchmarks/kills.py processes` does the same for a minute.
"""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import company
from harness.nursery import Nursery, nursery
from harness.stream import HeadEncoder

import mempp

SECONDS = 6
WORDS = mempp.Settings(k=5, weight_vector=0)


@pytest.fixture(scope="module")
def server() -> Iterator[Nursery]:
    with nursery() as one:
        yield one


@pytest.mark.parametrize("kill_writers", [False, True], ids=["left to live", "killed at random"])
def test_writers_and_readers_at_once(tmp_path: Path, server: Nursery, kill_writers: bool) -> None:
    figures = company.work_together(server, tmp_path / "store", SECONDS, seed=5, kill_writers=kill_writers)
    assert figures["rows"] >= figures["acknowledged"] > 10
    assert figures["answers"] > 100
    assert (figures["writers killed"] > 3) == kill_writers


def test_half_a_commit_would_be_noticed(tmp_path: Path) -> None:
    """The check of the readers can fail."""
    with mempp.open(tmp_path / "store", encoder=HeadEncoder()) as memory:
        memory.add("pair of notes left", thread="pair 1")
        memory.add("pair of notes right", thread="pair 2")
        memory.add("pair of notes right", thread="pair 1")
        company.check_pairs(memory.records(thread="pair 1"))
        with pytest.raises(AssertionError, match="pair 2"):
            company.check_pairs(memory.records())


# --- threads of one process ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_disk", [True, False], ids=["on disk", "in memory"])
def test_recall_in_threads_while_others_write(tmp_path: Path, on_disk: bool) -> None:
    """Eight threads ask, two write. A writer's commits are batches of three, or state changes of all three.

    A row is superseded by the next one of its batch, so that the number of rows seen and their states tell whether an
    answer is of one state.
    """
    encoder = HeadEncoder()
    store = tmp_path / "store"
    with mempp.open(store, encoder=encoder) if on_disk else mempp.in_memory(encoder=encoder) as memory:
        done = threading.Event()
        errors: list[BaseException] = []
        asked: list[int] = []

        def guarded(work: object, seed: int) -> None:
            try:
                work(random.Random(seed))  # type: ignore[operator]
            except BaseException as error:
                errors.append(error)
                done.set()

        def write(chooser: random.Random) -> None:
            name = f"w{chooser.randrange(10**6)}"
            for number in range(10**6):
                if done.is_set():
                    return
                thread = f"batch {name} {number}"
                rows = memory.add_many(
                    [{"text": f"note {place} of {thread}", "thread": thread} for place in range(3)]
                ).row_ids
                what = chooser.randrange(4)
                if what == 0:
                    memory.archive([row for row in rows if row is not None])
                elif what == 1:
                    memory.retract(rows[0])  # type: ignore[arg-type]
                    memory.reinstate(rows[0])  # type: ignore[arg-type]
                elif what == 2:
                    memory.supersede(rows[0], by=rows[1])  # type: ignore[arg-type]

        def ask(chooser: random.Random) -> None:
            count = 0
            while not done.is_set():
                count += 1
                before = memory.head_sequence
                hits = memory.recall("note of batch", k=30)
                records = [hit.record for hit in hits]
                assert len({record.row_id for record in records}) == len(records)
                everything = memory.records()
                sizes: dict[str, int] = {}
                for record in everything:
                    sizes[record.thread or ""] = sizes.get(record.thread or "", 0) + 1
                # Of a batch there are all three, or, while its first row is retracted, the other two.
                wrong = {thread: size for thread, size in sizes.items() if size not in (2, 3)}
                assert not wrong, wrong
                # Without the vector leg: a vector may still be on its way to a row that was known.
                past = [
                    [
                        (hit.record, hit.score)
                        for hit in memory.recall("note 1 of batch", known_at=before, settings=WORDS)
                    ]
                    for _ in range(2)
                ]
                assert past[0] == past[1]
                assert before <= memory.head_sequence
                if everything:
                    row = chooser.choice(everything)
                    assert memory.get(row.row_id).text == row.text
            asked.append(count)

        threads = [threading.Thread(target=guarded, args=(write, seed)) for seed in range(2)]
        threads += [threading.Thread(target=guarded, args=(ask, seed)) for seed in range(2, 10)]
        for thread in threads:
            thread.start()
        done.wait(2.5)
        done.set()
        for thread in threads:
            thread.join()
        assert not errors, errors[0]
        assert sum(asked) > 16
        assert len(memory) > 6
        if on_disk:
            with mempp.open(store, read_only=True, encoder=encoder) as again:
                assert again.records() == memory.records()
                assert [(hit.record, hit.score) for hit in again.recall("note of batch", k=50)] == [
                    (hit.record, hit.score) for hit in memory.recall("note of batch", k=50)
                ]
