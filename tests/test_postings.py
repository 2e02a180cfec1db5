"""Postings in blocks: the same as a dictionary of lists, however they came, were merged, cut, kept and opened again."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempp.indexes import postings
from mempp.indexes.postings import Postings

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "_SMALLEST_MERGE", 12)
    monkeypatch.setattr(postings, "_LARGEST_BLOCK", 5)
    monkeypatch.setattr(postings, "_ROWS_TOGETHER", 3)


counts_of_row = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 300) | st.integers(1, 70_000), max_size=6)
steps = st.lists(
    st.tuples(st.sampled_from(["add", "freeze", "keep", "keep whole"]), st.lists(counts_of_row, max_size=6)),
    max_size=8,
)


@given(steps)
def test_as_a_dictionary_of_lists(steps: list[tuple[str, list[dict[str, int]]]]) -> None:
    ours, expected, row = Postings(), dict[str, list[tuple[int, int]]](), 0
    for step, rows in steps:
        ours.add_rows(row, rows)
        for of_row in rows:
            for term, count in of_row.items():
                expected.setdefault(term, []).append((row, count))
            row += 1
        if step == "freeze":
            ours.freeze()
        elif step.startswith("keep"):
            arrays = ours.arrays()
            assert arrays["offsets"][-1] == len(ours)
            if step == "keep whole":
                arrays = {name: postings.whole(pieces) for name, pieces in arrays.items()}
            ours = Postings.from_arrays(arrays)
            assert ours.end_of_rows() == 1 + max((one for held in expected.values() for one, _ in held), default=-1)
        check(ours, expected, row)
    assert ours.terms() == list(expected)


def check(ours: Postings, expected: dict[str, list[tuple[int, int]]], n_rows: int) -> None:
    assert len(ours) == sum(map(len, expected.values()))
    for term in "abcdefgh":
        for below in {0, n_rows // 2, n_rows}:
            rows, counts = ours.find(term, below)
            pairs = list(zip(rows.tolist(), counts.tolist(), strict=True))
            assert pairs == [pair for pair in expected.get(term, []) if pair[0] < below]


def test_blocks_are_cut_between_terms_and_have_counts_of_their_own_width() -> None:
    ours = Postings()
    for row in range(12):
        ours.add(row, {"everywhere": 1, f"once {row}": 300 if row == 11 else 255})
    ours.freeze()
    blocks = ours._state.blocks
    assert [len(block.rows) for block in blocks[:1]] == [12]  # of one term, which is not cut
    assert len(blocks) > 3
    assert all(len(block.rows) <= 5 for block in blocks[1:])
    assert [block.first for block in blocks] == sorted({block.first for block in blocks})
    assert [block.counts.dtype.itemsize for block in blocks] == [1] * (len(blocks) - 1) + [2]


def test_an_interrupted_merge_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Postings()
    expected: dict[str, list[tuple[int, int]]] = {}
    for row in range(40):
        of_row = dict.fromkeys("abcdefgh"[row % 3 :], 1 + row)
        ours.add(row, of_row)
        for term in of_row:
            expected.setdefault(term, []).append((row, 1 + row))
    plain, calls = postings._merged, 0

    def interrupted(block: postings._Block, end: int) -> list[postings._Block]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return plain(block, end)

    ours.freeze()
    ours.add(40, dict.fromkeys("abcdefgh", 9))
    for held in expected.values():
        held.append((40, 9))
    monkeypatch.setattr(postings, "_merged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.freeze()
    check(ours, expected, 41)
    ours.freeze()
    check(ours, expected, 41)
    assert ours.arrays()["offsets"][-1] == len(ours)


def test_readers_beside_a_writer_see_a_beginning() -> None:
    """Every row has the term, so that the rows found are 0, 1, 2, … up to some row that had been added."""
    ours, stop, wrong, looks = Postings(), threading.Event(), [], 0

    def read() -> None:
        nonlocal looks
        while not stop.is_set():
            known = added
            for term in ("first", "often"):
                rows, counts = ours.find(term, 1 << 30)
                if (
                    len(rows) < known
                    or not np.array_equal(rows, np.arange(len(rows)))
                    or (counts != 1 + rows % 3).any()
                ):
                    wrong.append((known, rows, counts))
            looks += 1

    added = 0
    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    while added < 2_000 or (looks < 20 and not wrong):
        batch = [{"first": 1 + row % 3, f"t{row % 50}": 2, "often": 1 + row % 3} for row in range(added, added + 5)]
        ours.add_rows(added, batch)
        added += 5
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


MEMORY = """
    import tracemalloc
    import numpy as np
    from mempp.indexes import postings
    postings._SMALLEST_MERGE, postings._LARGEST_BLOCK = 1 << 16, 1 << 16
    chance = np.random.default_rng(1)
    terms = [f"term{number}" for number in range(2_000)]
    pool = [{terms[place]: 1 for place in chance.choice(2_000, 100, replace=False)} for _ in range(500)]
    tracemalloc.start()
    ours = postings.Postings()
    for row in range(0, 8_000, 100):
        ours.add_rows(row, pool[row % 500 : row % 500 + 100])
    while_adding = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    arrays = ours.arrays()
    held, while_keeping = tracemalloc.get_traced_memory()
    print(len(ours), while_adding, held, while_keeping)
"""


def test_memory_of_adding_is_little_more_than_what_is_held() -> None:
    """In bytes a posting; with one array of everything, merged at once, they were 8.2 held, and 20 meanwhile."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(MEMORY)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    count, while_adding, held, while_keeping = map(int, done.stdout.split())
    assert count == 800_000
    assert held / count < 7.2  # 5 and the terms
    assert while_adding / count < 11
    assert while_keeping / count < 8
