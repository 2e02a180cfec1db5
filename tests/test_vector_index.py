"""Exact cosine against a full scan, its independence of everything out of scope, and the graph beyond a size."""

import gc
import math
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mempp.errors import EncoderError
from mempp.indexes import ExactSearchWarning, VectorIndex, costs, hnsw, vectors
from mempp.indexes.costs import ScanCosts
from mempp.indexes.held import Held
from mempp.indexes.hnsw import GraphCosts
from mempp.indexes.ranking import best_positions

Floats = NDArray[np.float32]


def unit(values: NDArray[np.floating]) -> Floats:
    norms = np.linalg.norm(values, axis=-1, keepdims=True)
    return (values / np.where(norms > 0, norms, 1)).astype(np.float32)


def scan(rows: list[int], views: Floats, question: Floats, allowed: list[bool], limit: int) -> list[tuple[int, float]]:
    """Row and score of the best rows: products added up exactly, views and rows looked at one by one."""
    best: dict[int, float] = {}
    for row, view in zip(rows, views.tolist(), strict=True):
        if row < len(allowed) and allowed[row]:
            score = math.fsum(a * b for a, b in zip(view, question.tolist(), strict=True))
            best[row] = max(score, best.get(row, -math.inf))
    return sorted(best.items(), key=lambda item: (-item[1], -item[0]))[:limit]


@pytest.mark.parametrize("views_per_row", [1, 3])
def test_equals_a_full_scan_of_5000_views_in_200_random_scopes(views_per_row: int) -> None:
    chance = np.random.default_rng(5)
    centres = chance.normal(size=(40, 8))
    views = unit(centres[chance.integers(0, 40, 5_000)] + 0.3 * chance.normal(size=(5_000, 8)))
    views[chance.integers(0, 5_000, 500)] = views[:500]  # equal views: ties
    n_rows = 5_000 // views_per_row
    rows = chance.permutation(np.arange(5_000) % n_rows)  # in any order
    index = VectorIndex(8)
    for start in range(0, 5_000, 613):
        index.add(rows[start : start + 613], views[start : start + 613])
    assert len(index) == 5_000
    ties = 0
    for number in range(200):
        question = views[number] if number % 3 else unit(chance.normal(size=8))
        n_known = int(chance.integers(1, n_rows + 1)) if number % 2 else n_rows
        allowed = chance.random(n_known) < chance.choice([0.002, 0.05, 0.5, 1.0])
        limit = int(chance.choice([1, 10, 50, 6_000]))
        expected = scan(rows.tolist(), views, question, allowed.tolist(), limit)
        ranking = index.rank(question, allowed, limit)
        assert ranking.scores.tolist() == pytest.approx([score for _, score in expected], abs=1e-14)
        # Our sums and exact ones may differ in the last bit and swap two rows that close; equal vectors may not.
        known = {row: rank for rank, (row, _) in enumerate(expected)}
        for rank, row in enumerate(ranking.row_ids.tolist()):
            other = expected[known[row]][1] if row in known else expected[-1][1]
            assert abs(other - expected[rank][1]) < 1e-14
        same = ranking.scores[1:] == ranking.scores[:-1]
        assert (ranking.row_ids[1:][same] < ranking.row_ids[:-1][same]).all()
        ties += int(same.sum())
    assert ties > 100


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.integers(1, 600), st.sampled_from([1, 3, 8, 9, 130, 384]))
def test_scores_and_ties_do_not_depend_on_what_else_is_there(seed: int, n: int, dimensions: int) -> None:
    chance = np.random.default_rng(seed)
    distinct = unit(chance.normal(size=(max(1, n // 3), dimensions)))
    views = distinct[chance.integers(0, len(distinct), n)]
    rows = chance.integers(0, n, n)
    question = distinct[0]
    allowed = chance.random(n) < 0.5
    alone, among = VectorIndex(dimensions), VectorIndex(dimensions)
    inside = allowed[rows]
    alone.add(rows[inside], views[inside])
    among.add(rows + n, unit(chance.normal(size=(n, dimensions))))  # later rows, and first in the matrix
    among.add(rows, views)
    first, second = alone.rank(question, allowed, 20), among.rank(question, allowed, 20)
    assert first.row_ids.tolist() == second.row_ids.tolist()
    assert first.scores.tolist() == second.scores.tolist()
    best = {row: rank for rank, row in enumerate(first.row_ids.tolist())}
    single = VectorIndex(dimensions)
    for row in best:
        single = VectorIndex(dimensions)
        single.add(rows[rows == row], views[rows == row])
        one = single.rank(question, np.ones(n, np.bool_), 1)
        assert one.scores[0] == first.scores[best[row]]


def test_float32_rounding_does_not_decide() -> None:
    """Rows nearer to each other than float32 can tell are put in order, and cut, by their exact scores."""
    chance = np.random.default_rng(1)
    numbers = unit(np.abs(chance.normal(size=384)))
    # The same numbers in other places: products with a constant vector are equal but for rounding. Then a nudge.
    views = np.stack([chance.permutation(numbers) for _ in range(400)])
    views[:, 0] += chance.uniform(-1e-6, 1e-6, 400).astype(np.float32)
    question = unit(np.ones(384))
    index = VectorIndex(384)
    index.add(np.arange(400), views)
    exact = (views.astype(np.float64) * question.astype(np.float64)).sum(axis=1)
    order = sorted(range(400), key=lambda row: (-exact[row], -row))
    rounded = views @ question
    assert sorted(range(400), key=lambda row: (-rounded[row], -row))[:25] != order[:25]
    assert index.rank(question, np.ones(400, np.bool_), 25).row_ids.tolist() == order[:25]


def test_views_of_one_row_count_by_their_best() -> None:
    index = VectorIndex(2)
    index.add([4, 1, 4], [[0, 1], [0.6, 0.8], [1, 0]])
    ranking = index.rank(np.array([1, 0], np.float32), np.ones(5, np.bool_), 10)
    assert ranking.row_ids.tolist() == [4, 1]
    assert ranking.scores.tolist() == pytest.approx([1.0, 0.6])
    assert index.rows_with_vectors(6).tolist() == [False, True, False, False, True, False]
    assert index.rows_with_vectors(3).tolist() == [False, True, False]
    assert index.have_vectors(np.array([7, 4, 0, 1])).tolist() == [False, True, False, True]
    index.add([0], [[0, 0]])  # a zero vector is no fault
    assert index.rank(np.array([1, 0], np.float32), np.ones(5, np.bool_), 10).scores.tolist()[2] == 0.0


def test_edges() -> None:
    index = VectorIndex(2)
    question = np.array([1, 0], np.float32)
    assert len(index.rank(question, np.ones(3, np.bool_), 5)) == 0
    index.add([], np.empty((0, 2)))
    index.add([], [])
    assert len(index) == 0
    index.add([7], [[1, 0]])
    assert len(index.rank(question, np.ones(7, np.bool_), 5)) == 0
    assert len(index.rank(question, np.zeros(8, np.bool_), 5)) == 0
    assert len(index.rank(question, np.ones(8, np.bool_), 0)) == 0
    assert index.rank(question, np.ones(8, np.bool_), 5).row_ids.tolist() == [7]


@pytest.mark.parametrize(
    ("rows", "new", "message"),
    [
        ([0], [[1, 0, 0]], r"shape \(1, 3\)"),
        ([0, 1], [[1, 0]], r"2 rows"),
        ([0], [1, 0], r"shape \(2,\)"),
        ([5, 6], [[1, 0], [math.nan, 0]], r"row 6"),
        ([5], [[math.inf, 0]], r"row 5"),
        ([-1], [[1, 0]], r"-1"),
    ],
)
def test_bad_vectors_are_refused_whole(rows: list[int], new: list[object], message: str) -> None:
    index = VectorIndex(2)
    with pytest.raises(EncoderError, match=message):
        index.add(rows, new)  # type: ignore[arg-type]
    assert len(index) == 0
    assert not index.rows_with_vectors(10).any()


@pytest.mark.parametrize("question", [[1, 0, 0], [math.nan, 0], [[1, 0]]])
def test_bad_questions_are_refused(question: list[float]) -> None:
    with pytest.raises(EncoderError, match="question's vector"):
        VectorIndex(2).rank(np.array(question, np.float32), np.ones(1, np.bool_), 5)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40), st.integers(0, 45))
def test_best_positions_sorts_and_cuts(keys: list[tuple[int, int]], limit: int) -> None:
    rows = np.random.default_rng(len(keys)).permutation(len(keys)).astype(np.int64)
    first, second = (np.array([key[part] for key in keys], np.float64) for part in (0, 1))
    expected = sorted(range(len(keys)), key=lambda at: (-first[at], -second[at], -rows[at]))[:limit]
    assert best_positions(rows, (first, second), limit).tolist() == expected


# --- beyond the size of exact search -------------------------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are searched whenever they can be, though an exact scan would be quicker at a test's size."""
    pytest.importorskip("hnswlib")
    monkeypatch.setattr(vectors, "graph_costs", lambda *_: GraphCosts(0.0, 0.0))
    monkeypatch.setattr(vectors, "graph_recall", lambda *_: 1.0)
    monkeypatch.setattr(vectors, "_FEW_COSTS", ScanCosts(scan=1e9, gather=0.0, codes=np.inf))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What became of each search in a graph."""
    outcomes: list[str] = []
    nearest = hnsw.Graph.nearest

    def noted(self: hnsw.Graph, *arguments: object) -> object:
        outcomes.append("failed")
        found = nearest(self, *arguments)  # type: ignore[arg-type]
        outcomes[-1] = "found"
        return found

    monkeypatch.setattr(hnsw.Graph, "nearest", noted)
    return outcomes


@pytest.mark.parametrize("kind", ["clustered", "random"])
@pytest.mark.parametrize("views_per_row", [1, 3])
@pytest.mark.usefixtures("eager")
def test_recall_of_the_graph(kind: str, views_per_row: int, searches: list[str]) -> None:
    chance = np.random.default_rng(2)
    n = 6_000
    views = unit(chance.normal(size=(n, 64)))
    if kind == "clustered":
        views = unit(chance.normal(size=(60, 64))[chance.integers(0, 60, n)] + 0.5 * chance.normal(size=(n, 64)))
    rows = np.arange(n) // views_per_row
    index = VectorIndex(64, exact_up_to=2_000)
    for start in range(0, n, 1_000):
        index.add(rows[start : start + 1_000], views[start : start + 1_000])
        assert index.wait_until_built(60)
    assert index._graph is not None
    assert 2_000 < index._graph.size < n  # a graph and a tail
    n_rows = n // views_per_row
    for share in (0.01, 0.1, 0.5, 1.0):
        hit = wanted = 0
        for _ in range(20):
            allowed = chance.random(n_rows) < share
            question = unit(views[chance.integers(n)] + 0.05 * chance.normal(size=64))
            exact = index.rank(question, allowed, 50, exact=True)
            near = index.rank(question, allowed, 50)
            assert len(near) == len(exact) == min(50, int(allowed.sum()))
            assert len(set(near.row_ids.tolist())) == len(near)
            assert allowed[near.row_ids].all()
            scores = dict(zip(exact.row_ids.tolist(), exact.scores.tolist(), strict=True))
            for row, score in zip(near.row_ids.tolist(), near.scores.tolist(), strict=True):
                assert scores.get(row, score) == score
            hit += len(set(near.row_ids.tolist()) & set(exact.row_ids.tolist()))
            wanted += len(exact)
        assert hit / wanted >= 0.95, share
    assert searches.count("found") >= 40
    index.close()


@pytest.mark.usefixtures("eager")
def test_recall_of_the_graph_in_scopes_that_are_no_chance_sample(searches: list[str]) -> None:
    """Prefixes, the rows of one author, one row, and rows that all lie far from the question."""
    chance = np.random.default_rng(11)
    n = 8_000
    cluster = chance.integers(0, 80, n)
    views = unit(chance.normal(size=(80, 64))[cluster] + 0.5 * chance.normal(size=(n, 64)))
    index = VectorIndex(64, exact_up_to=7_000)
    index.add(np.arange(7_500), views[:7_500])
    assert index.wait_until_built(120)
    index.add(np.arange(7_500, n), views[7_500:])
    scopes: dict[str, NDArray[np.bool_]] = {
        "half, a prefix": np.arange(n) < n // 2,
        "a tenth, a prefix": np.arange(n) < n // 4,
        "clusters": cluster < 20,
        "one author": np.arange(n) % 5 == 3,
        "one row": np.arange(n) == 77,
        "one row of the tail": np.arange(n) == 7_777,
    }
    searches.clear()
    for name in [*scopes, "far"]:
        hit = wanted = 0
        for number in range(15):
            question = unit(views[number] + 0.05 * chance.normal(size=64))
            allowed = scopes[name] if name in scopes else views @ question < 0
            exact = index.rank(question, allowed, 40, exact=True).row_ids.tolist()
            near = index.rank(question, allowed, 40).row_ids.tolist()
            assert len(near) == len(exact) == min(40, int(allowed.sum()))
            hit += len(set(near) & set(exact))
            wanted += len(exact)
        assert hit / wanted >= 0.95, name
    assert searches.count("found") >= 60
    index.close()


@pytest.mark.usefixtures("eager")
def test_a_search_that_fails_is_answered_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(4)
    views = unit(chance.normal(size=(1_500, 16)))
    index = VectorIndex(16, exact_up_to=1_000)
    index.add(np.arange(1_500), views)
    assert index.wait_until_built(60)
    tried = []

    def refuses(*_: object) -> None:
        tried.append(1)
        raise RuntimeError("Cannot return the results in a contiguous 2D array. Probably ef or M is too small")

    monkeypatch.setattr(hnsw.Graph, "nearest", refuses)
    allowed = np.ones(1_500, np.bool_)
    near, exact = index.rank(views[3], allowed, 20), index.rank(views[3], allowed, 20, exact=True)
    assert tried
    assert near.row_ids.tolist() == exact.row_ids.tolist()
    assert near.scores.tolist() == exact.scores.tolist()


def test_cost_decides_between_scan_and_graph(searches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hnswlib")
    chance = np.random.default_rng(6)
    n = 10_000
    index = VectorIndex(4, exact_up_to=n - 1)
    index.add(np.arange(n), unit(chance.normal(size=(n, 4))))
    assert index.wait_until_built(120)
    question, everything = unit(chance.normal(size=4)), np.ones(n, np.bool_)
    assert index._graph is not None
    graph = index._graph
    searches.clear()  # those that measured it
    index._graph = replace(graph, costs=GraphCosts(30.0, 30.0))  # 500 are asked for, 10,000 are scanned at 1 each
    index.rank(question, everything, 5)
    assert searches == []
    index._graph = replace(graph, costs=GraphCosts(10.0, 30.0))
    index.rank(question, everything, 5)
    assert searches == ["found"]
    index.rank(question, np.arange(n) < 300, 5)
    index.rank(question, everything, 5, exact=True)
    assert searches == ["found"]


@pytest.mark.usefixtures("eager")
def test_rows_with_many_views_do_not_crowd_out_others(searches: list[str]) -> None:
    chance = np.random.default_rng(7)
    rows = np.arange(6_000) // 100
    index = VectorIndex(16, exact_up_to=5_000)
    centres = chance.normal(size=(60, 16))
    index.add(rows, unit(centres[rows] + 0.1 * chance.normal(size=(6_000, 16))))
    assert index.wait_until_built(60)
    near = index.rank(unit(centres[0]), np.ones(60, np.bool_), 8)
    assert searches == ["found", "found"]  # the first 500 views are those of about 5 rows
    assert near.row_ids.tolist() == index.rank(unit(centres[0]), np.ones(60, np.bool_), 8, exact=True).row_ids.tolist()


@pytest.mark.usefixtures("eager")
def test_threads_search_a_graph_at_once() -> None:
    chance = np.random.default_rng(8)
    views = unit(chance.normal(size=(3_000, 16)))
    index = VectorIndex(16, exact_up_to=2_000)
    index.add(np.arange(3_000), views)
    assert index.wait_until_built(60)
    allowed = chance.random(3_000) < 0.7
    expected = [index.rank(view, allowed, 10).row_ids.tolist() for view in views[:50]]
    wrong: list[object] = []

    def ask() -> None:
        try:
            for at in range(50):
                answer = index.rank(views[at], allowed, 10).row_ids.tolist()
                wrong.extend([answer] if answer != expected[at] else [])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_graphs_are_rebuilt_as_the_tail_grows() -> None:
    pytest.importorskip("hnswlib")
    chance = np.random.default_rng(9)
    index = VectorIndex(4, exact_up_to=100)
    sizes = []
    for start in range(0, 400, 20):
        index.add(np.arange(start, start + 20), unit(chance.normal(size=(20, 4))))
        assert index.wait_until_built(60)
        sizes.append(index._graph.size if index._graph else 0)
    assert sizes[4] == 0  # exactly exact_up_to
    assert sizes[5] == 120
    assert sorted(set(sizes)) == [0, 120, 180, 280, 380]


def slow_build(monkeypatch: pytest.MonkeyPatch) -> VectorIndex:
    """An index in the middle of a build of several hundred chunks."""
    pytest.importorskip("hnswlib")
    monkeypatch.setattr(hnsw, "_CHUNK", 64)
    chance = np.random.default_rng(10)
    index = VectorIndex(128, exact_up_to=1_000)
    index.add(np.arange(40_000), unit(chance.normal(size=(40_000, 128))))
    assert not index.wait_until_built(0)
    return index


def test_closing_stops_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    index = slow_build(monkeypatch)
    assert index._build is not None
    thread = index._build._thread
    assert len(index.rank(np.ones(128, np.float32), np.ones(40_000, np.bool_), 5)) == 5  # exact meanwhile
    index.close()
    assert not thread.is_alive()
    assert index._graph is None
    index.close()
    assert len(index.rank(np.ones(128, np.float32), np.ones(40_000, np.bool_), 5)) == 5


def test_letting_go_of_the_index_stops_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    index = slow_build(monkeypatch)
    assert index._build is not None
    thread, gone = index._build._thread, weakref.ref(index)
    del index
    gc.collect()
    assert gone() is None
    assert not thread.is_alive()


def test_without_hnswlib_search_stays_exact_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    index = VectorIndex(2, exact_up_to=3)
    index.add([0, 1, 2], [[1, 0]] * 3)
    with pytest.warns(ExactSearchWarning, match="hnswlib is not installed") as caught:
        index.add([3], [[0, 1]])
    assert caught[0].filename == __file__
    index.add([4], [[0, 1]])  # no second warning, which would be an error
    assert index.wait_until_built(0)
    assert index.rank(np.array([0, 1], np.float32), np.ones(5, np.bool_), 2).row_ids.tolist() == [4, 3]


def test_a_scope_that_is_newer_than_the_graph():
    generator = np.random.default_rng(3)
    vectors = generator.standard_normal((401, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = VectorIndex(8, exact_up_to=50)
    index.add(np.arange(400), vectors[:400])
    assert index.wait_until_built(60)
    index.add([400], vectors[400:])
    allowed = np.zeros(401, np.bool_)
    allowed[400] = True
    assert index.rank(vectors[0], allowed, 10).row_ids.tolist() == [400]
    index.close()


@pytest.mark.parametrize("kind", ["repeated", "spread over topics"])
def test_a_graph_that_fell_apart_is_not_used(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("hnswlib")
    monkeypatch.setattr(vectors, "graph_costs", lambda *_: GraphCosts(0.0, 0.0))
    chance = np.random.default_rng(12)
    if kind == "repeated":  # copies of 20 texts have links to copies of the same text only
        made = chance.standard_normal((20, 32))[chance.integers(0, 20, 20_000)]
    else:
        made = chance.standard_normal((20_000, 32))
    made = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
    index = VectorIndex(32, exact_up_to=10_000)
    index.add(np.arange(20_000), made)
    assert index.wait_until_built(120)
    assert (index._graph is None) == (kind == "repeated")
    assert ("not used" in caplog.text) == (kind == "repeated")


def test_a_graph_is_judged_by_the_questions_that_it_answers_worst() -> None:
    """One that finds the nearest of whatever lies near a vector, and few of the nearest of what is near to nothing."""
    chance = np.random.default_rng(12)
    centres = chance.normal(size=(8, 64))
    values = centres[chance.integers(8, size=4_000)] + 0.4 * chance.normal(size=(4_000, 64))
    vectors_ = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)

    class Forgetful:
        size = 4_000
        forgets = True

        def nearest(self, question: np.ndarray, asked: int, inside: np.ndarray | None) -> np.ndarray:
            scores = vectors_ @ question
            near_to_nothing = scores.max() < 0.6 * np.linalg.norm(question)
            if inside is not None:
                scores[~inside] = -np.inf
            best = np.argsort(-scores)[:asked]
            return best[::2] if self.forgets and near_to_nothing else best

    held = Held(vectors_[:0], vectors_)
    graph = Forgetful()
    assert costs.graph_recall(graph, held, 24) < 0.6  # type: ignore[arg-type]
    graph.forgets = False
    assert costs.graph_recall(graph, held, 24) == 1  # type: ignore[arg-type]
