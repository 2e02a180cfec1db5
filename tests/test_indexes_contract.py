"""What holds for every index: scope, limit, ties, invisibility of later rows, threads, cheap import."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempp import indexes
from mempp.indexes import LexicalIndex, Ranking, TagIndex, VectorIndex, postings

COLOURS = ["red", "green", "blue", "grey", "black", "white"]


def vector(words: list[str]) -> np.ndarray:
    values = np.array([words.count(colour) for colour in COLOURS], np.float64)
    return (values / max(1.0, float(np.linalg.norm(values)))).astype(np.float32)


@dataclass
class Adapter:
    """One index behind one face: a row is a list of words."""

    index: Any
    add: Callable[[int, list[list[str]]], None]
    rank: Callable[[list[str], np.ndarray, int], Ranking]


def lexical() -> Adapter:
    index = LexicalIndex()
    return Adapter(
        index,
        lambda first, rows: index.add([" ".join(row) for row in rows]),
        lambda question, allowed, limit: index.rank(" ".join(question), allowed, limit),
    )


def lexical_all() -> Adapter:
    adapter = lexical()
    adapter.rank = lambda question, allowed, limit: adapter.index.rank(" ".join(question), allowed, limit, "all")
    return adapter


def tags() -> Adapter:
    index = TagIndex()
    return Adapter(
        index,
        lambda first, rows: index.add(rows),
        lambda question, allowed, limit: index.rank(" ".join(question), allowed, limit),
    )


def vectors() -> Adapter:
    index = VectorIndex(len(COLOURS))
    return Adapter(
        index,
        lambda first, rows: index.add(np.arange(first, first + len(rows)), [vector(row) for row in rows]),
        lambda question, allowed, limit: index.rank(vector(question), allowed, limit),
    )


MAKERS = [lexical, lexical_all, tags, vectors]
ROWS = st.lists(st.lists(st.sampled_from(COLOURS), min_size=1, max_size=5), min_size=1, max_size=15)


def pairs(ranking: Ranking) -> list[tuple[int, float]]:
    return list(zip(ranking.row_ids.tolist(), ranking.scores.tolist(), strict=True))


@pytest.mark.parametrize("make", MAKERS)
@given(rows=ROWS, later=ROWS, data=st.data())
def test_ranking_under_a_scope(make: Callable[[], Adapter], rows: Any, later: Any, data: st.DataObject) -> None:
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    question = data.draw(st.lists(st.sampled_from(COLOURS), min_size=1, max_size=3))
    limit = data.draw(st.integers(1, 20))
    adapter = make()
    adapter.add(0, rows)
    ranking = adapter.rank(question, allowed, limit)
    assert ranking.row_ids.dtype == np.int64
    assert ranking.scores.dtype == np.float64
    assert len(ranking) == len(ranking.scores) <= limit
    assert len(set(ranking.row_ids.tolist())) == len(ranking)
    assert allowed[ranking.row_ids].all()
    assert (np.diff(ranking.scores) <= 0).all()
    # Rows alike tie to the last bit, the later one first.
    order = {row: at for at, row in enumerate(ranking.row_ids.tolist())}
    for first in order:
        for second in order:
            if first < second and sorted(rows[first]) == sorted(rows[second]):
                assert ranking.scores[order[first]] == ranking.scores[order[second]]
                assert order[second] < order[first]
    # A smaller limit gives the beginning of the same ranking.
    assert pairs(adapter.rank(question, allowed, limit - 1)) == pairs(ranking)[: limit - 1]
    # What is out of scope, or later, might as well not be there.
    adapter.add(len(rows), later)
    assert pairs(adapter.rank(question, allowed, limit)) == pairs(ranking)
    alone = make()
    nothing: list[str] = ["other"]
    alone.add(0, [row if permitted else nothing for row, permitted in zip(rows, allowed, strict=True)])
    assert pairs(alone.rank(question, allowed, limit)) == pairs(ranking)


@pytest.mark.parametrize("make", MAKERS)
def test_nothing_to_find(make: Callable[[], Adapter]) -> None:
    adapter = make()
    assert len(adapter.index) == 0
    for n_rows in (0, 3):
        assert pairs(adapter.rank(["red"], np.ones(n_rows, np.bool_), 5)) == []
    adapter.add(0, [["red"]] * 3)
    assert len(adapter.index) == 3
    assert pairs(adapter.rank(["red"], np.ones(0, np.bool_), 5)) == []
    assert pairs(adapter.rank(["red"], np.zeros(3, np.bool_), 5)) == []
    assert pairs(adapter.rank(["red"], np.ones(3, np.bool_), 0)) == []
    assert pairs(adapter.rank(["red"], np.ones(3, np.bool_), -1)) == []
    assert [row for row, _ in pairs(adapter.rank(["red"], np.ones(9, np.bool_), 5))] == [2, 1, 0]


@pytest.mark.parametrize("make", MAKERS)
def test_many_threads_ask_while_one_adds(make: Callable[[], Adapter], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer, at whatever moment, is the answer of an index that holds just the rows of the question's scope."""
    monkeypatch.setattr(postings, "_SMALLEST_MERGE", 500)  # merges under way, too
    interval = sys.getswitchinterval()
    chance = random.Random(12)
    batches = [[chance.choices(COLOURS, k=chance.randint(1, 6)) for _ in range(25)] for _ in range(120)]
    questions = [chance.sample(COLOURS, k=2) for _ in range(4)]
    scopes = np.random.default_rng(1).random(25 * len(batches)) < 0.6
    expected: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for size in range(1, len(batches) + 1, 7):
        alone = make()
        alone.add(0, [row for batch in batches[:size] for row in batch])
        for number, question in enumerate(questions):
            expected[size, number] = pairs(alone.rank(question, scopes[: 25 * size], 10))
    adapter = make()
    added = 0
    faults: list[object] = []
    answers = 0
    done = threading.Event()

    def ask(seed: int) -> None:
        nonlocal answers
        chance = random.Random(seed)
        try:
            while True:
                last_round = done.is_set()
                known = [size for size in range(1, len(batches) + 1, 7) if size <= added]
                for size in known[-1:] + chance.choices(known, k=2) if known else []:
                    number = chance.randrange(len(questions))
                    answer = pairs(adapter.rank(questions[number], scopes[: 25 * size], 10))
                    answers += 1
                    if answer != expected[size, number]:
                        faults.append((size, number, answer))
                if last_round:
                    return
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for number, batch in enumerate(batches):
            adapter.add(25 * number, batch)
            added = number + 1
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert faults == []
    assert answers >= 9


def test_importing_the_indexes_loads_no_heavy_library_and_starts_no_thread() -> None:
    program = (
        "import sys, threading, mempp.indexes\n"
        "print([name for name in ('tantivy', 'hnswlib', 'pyarrow', 'onnxruntime') if name in sys.modules])\n"
        "print(threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "1"]


def test_all_names_exist() -> None:
    assert sorted(indexes.__all__) == indexes.__all__
    assert all(hasattr(indexes, name) for name in indexes.__all__)
    assert len(Ranking.empty()) == 0
