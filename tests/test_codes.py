"""Codes: products lie within their bounds, and search by codes gives what a full scan gives, to the last bit."""

import dataclasses
import threading

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mempp.indexes import VectorIndex, codes, parallel, products, scan, turning, vectors
from mempp.indexes.codes import CodeStore
from mempp.indexes.costs import ScanCosts
from mempp.indexes.held import Held

BY_CODES = ScanCosts(scan=1.0, gather=1.0, codes=0.0)
BY_SCAN = ScanCosts(scan=0.0, gather=1.0, codes=1.0)
BY_GATHER = ScanCosts(scan=1.0, gather=0.0, codes=1.0)


def drawn(chance: np.random.Generator, n: int, dimensions: int, kind: str) -> NDArray[np.float32]:
    """Unit vectors: spread out, in clusters, with most of their length in one place, many of them equal, or tiny."""
    values = chance.normal(size=(n, dimensions))
    if kind == "clustered":
        values = 0.1 * values + chance.normal(size=(5, dimensions))[chance.integers(0, 5, n)]
    elif kind == "spiked":
        values[np.arange(n), chance.integers(0, dimensions, n)] += 100
    elif kind == "equal":
        values = values[chance.integers(0, max(1, n // 4), n)]
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    if kind == "tiny":
        lengths = lengths * 10.0 ** chance.integers(5, 42, n)[:, None]
    made: NDArray[np.float32] = (values / lengths).astype(np.float32)
    return made


KINDS = ["spread", "clustered", "spiked", "equal", "tiny"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.sampled_from([1, 7, 64, 384]), st.sampled_from(KINDS))
def test_products_lie_within_their_bounds(seed: int, n: int, dimensions: int, kind: str) -> None:
    chance = np.random.default_rng(seed)
    given_vectors = drawn(chance, n, dimensions, kind)
    given_vectors[chance.integers(0, n)] = 0
    store = CodeStore(dimensions)
    store.extend(given_vectors[: n // 2])
    store.extend(given_vectors[n // 2 :])
    question = drawn(chance, 1, dimensions, kind)[0]
    plane = store.snapshot().head
    asked = plane.asked(question)
    found, bounds = plane.products(asked, None), plane.bounds(asked)
    exact = given_vectors.astype(np.float64) @ question.astype(np.float64)
    assert (np.abs(found - exact) <= bounds).all()
    if dimensions == 384 and kind in ("spread", "clustered"):
        assert bounds.max() < 0.02  # of use only where it is narrow


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mapped=st.sampled_from([0, 1, 150, 300]),
    way=st.sampled_from(["few", "most", "gap", "one", "all"]),
)
def test_products_of_chosen_vectors_are_those_of_all(seed: int, mapped: int, way: str) -> None:
    chance, n = np.random.default_rng(seed), 300
    store = CodeStore(8)
    store.extend(drawn(chance, n, 8, "spread"))
    plane = store.snapshot().head
    values = plane.values.later
    plane = dataclasses.replace(plane, values=Held(values[:mapped], values[mapped:]))
    inside = {
        "few": chance.random(n) < 0.05,
        "most": chance.random(n) < 0.8,
        "gap": np.arange(n) % 200 < 30,
        "one": np.arange(n) == chance.integers(n),
        "all": np.ones(n, np.bool_),
    }[way]
    chosen = np.flatnonzero(inside)
    asked = plane.asked(drawn(chance, 1, 8, "spread")[0])
    bounds = np.full(len(chosen), 2, np.float32)
    read: list[int] = []

    def multiplied(left: NDArray[np.uint8], digits: NDArray[np.int8]) -> NDArray[np.int32]:
        read.append(len(left))
        return products.byte_product(left, digits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes, "BLOCK", 32)
        whole = plane.products(asked, None)
        patch.setattr(codes, "byte_product", multiplied)
        assert np.array_equal(plane.products(asked, chosen, bounds, 3.0), whole[chosen])
    assert np.array_equal(bounds, plane.bounds(asked, 3.0)[chosen] + np.float32(2))
    assert np.array_equal(plane.bounds(asked, 3.0, chosen), plane.bounds(asked, 3.0)[chosen])
    assert len(chosen) <= sum(read) <= codes.vectors_read(n, len(chosen))


@pytest.mark.parametrize("views_per_row", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.0005, 0.02, 0.5, 1.0]), limit=st.sampled_from([1, 20]))
def test_every_way_gives_the_same_answer(views_per_row: int, kind: str, seed: int, share: float, limit: int) -> None:
    chance = np.random.default_rng(seed)
    n, dimensions = 3_000, 48
    views = drawn(chance, n, dimensions, kind)
    rows = np.arange(n) // views_per_row
    if seed % 2:
        rows = chance.permutation(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_CODED_FROM", 1_000)
        patch.setattr(codes, "BLOCK", 512)
        index = VectorIndex(dimensions)
        for start in range(0, n, 700):
            index.add(rows[start : start + 700], views[start : start + 700])
        assert index._views.codes is not None
        assert len(index._views.codes) == n
        n_known = n // views_per_row - int(chance.integers(0, 50))
        allowed = chance.random(n_known) < share
        question = views[chance.integers(n)] if seed % 3 else drawn(chance, 1, dimensions, kind)[0]
        answers = []
        for costs in (BY_SCAN, BY_GATHER, BY_CODES):
            index._costs = costs
            ranking = index.rank(question, allowed, limit)
            answers.append((ranking.row_ids.tolist(), ranking.scores.tolist()))
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0][0]) == min(limit, int(allowed[np.unique(rows[rows < n_known])].sum()))


def test_codes_are_what_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(1)
    monkeypatch.setattr(vectors, "_CODED_FROM", 1_000)
    taken: list[int] = []
    by_codes = vectors.contenders_by_codes

    def noted(*arguments: object, exact: bool) -> NDArray[np.int64]:
        found = by_codes(*arguments, exact=exact)  # type: ignore[arg-type]
        taken.append(len(found))
        return found

    monkeypatch.setattr(vectors, "contenders_by_codes", noted)
    index = VectorIndex(384)
    index.add(np.arange(4_000), drawn(chance, 4_000, 384, "spread"))
    index._costs = BY_CODES
    index.rank(drawn(chance, 1, 384, "spread")[0], np.ones(4_000, np.bool_), 20)
    assert 20 <= taken[0] < 400  # few contend


def test_without_codes_everything_is_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(2)
    views = drawn(chance, 2_000, 16, "spread")
    monkeypatch.setattr(vectors, "_CODED_FROM", 1_000)
    with_codes, without = VectorIndex(16), VectorIndex(16)
    with_codes.add(np.arange(2_000), views)
    monkeypatch.setattr(vectors, "products_work", lambda: False)
    without.add(np.arange(2_000), views)
    assert without._views.codes is None
    everything = np.ones(2_000, np.bool_)
    one, other = with_codes.rank(views[7], everything, 30), without.rank(views[7], everything, 30)
    assert one.row_ids.tolist() == other.row_ids.tolist()
    assert one.scores.tolist() == other.scores.tolist()


def test_a_wrong_product_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    products.products_work.cache_clear()
    monkeypatch.setattr(products, "byte_product", lambda values, digits: np.zeros((2, 2), np.int32))
    assert not products.products_work()
    products.products_work.cache_clear()


@pytest.mark.parametrize("operator", ["MatMul", "MatMulInteger"])
def test_models_of_products_are_what_onnx_writes(operator: str) -> None:
    import onnx
    from onnx import TensorProto, helper

    types = {
        "MatMul": (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT),
        "MatMulInteger": (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32),
    }[operator]
    shapes = {"left": ["n", "d"], "right": ["d", "m"], "product": ["n", "m"]}
    ends = [
        helper.make_tensor_value_info(name, kind, shape)
        for (name, shape), kind in zip(shapes.items(), types, strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node(operator, ["left", "right"], ["product"])], operator, ends[:2], ends[2:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    kept = onnx.load_from_string(products.model_of(operator))
    assert kept == model
    onnx.checker.check_model(kept, full_check=True)


def test_long_vectors_and_questions_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_CODED_FROM", 10)
    chance = np.random.default_rng(3)
    index = VectorIndex(8)
    index.add(np.arange(50), drawn(chance, 50, 8, "spread"))
    index._costs = BY_CODES
    huge = (1e30 * drawn(chance, 1, 8, "spread")[0]).astype(np.float32)
    assert len(index.rank(huge, np.ones(50, np.bool_), 60)) == 50
    index.add([50], [huge])
    assert index._views.codes is None
    assert index.rank(huge / np.float32(1e30), np.ones(51, np.bool_), 1).row_ids.tolist() == [50]


def test_a_failure_of_onnxruntime_does_not_show(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vectors, "_CODED_FROM", 1_000)
    chance = np.random.default_rng(4)
    index = VectorIndex(16)
    index.add(np.arange(2_000), drawn(chance, 2_000, 16, "spread"))
    question, everything = drawn(chance, 1, 16, "spread")[0], np.ones(2_000, np.bool_)
    index._costs = BY_SCAN
    scanned = index.rank(question, everything, 30)

    def fails(*_: object) -> None:
        raise products.ProductError("no memory")

    monkeypatch.setattr(codes, "byte_product", fails)
    index._costs = BY_CODES
    ranking = index.rank(question, everything, 30)
    assert "no memory" in caplog.text
    assert ranking.row_ids.tolist() == scanned.row_ids.tolist()
    assert ranking.scores.tolist() == scanned.scores.tolist()
    index._costs = None  # nor when it fails while costs are measured, which are then measured again
    assert index.rank(question, everything, 30).row_ids.tolist() == scanned.row_ids.tolist()
    assert index._costs is None


def test_work_is_shared_and_its_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "processors", lambda: 3)
    done: list[int] = []
    parallel.side_by_side(done.append, range(0, 100, 2), 5)
    assert sorted(done) == list(range(0, 100, 2))

    def fails(start: int) -> None:
        if start == 40:
            raise ValueError("forty")

    with pytest.raises(ValueError, match="forty"):
        parallel.side_by_side(fails, range(0, 100, 2), 5)
    assert not [one for one in threading.enumerate() if one.name == "mempp-worker"]


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=400), st.data())
def test_the_nth_largest(values: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(values) - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "_SORTED_WHOLE", 10)
        found = scan.largest(np.array(values, np.float32), count)
    assert found == sorted(values, reverse=True)[count - 1]


def _flattening(n: int, dimensions: int, chance: np.random.Generator) -> NDArray[np.float32]:
    """Unit vectors with most of their length in a few directions, which are those of no axis."""
    basis = np.linalg.qr(np.random.default_rng(9).normal(size=(dimensions, dimensions)))[0]
    values = (chance.normal(size=(n, dimensions)) / (1 + np.arange(dimensions) / 4)) @ basis
    made: NDArray[np.float32] = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return made


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1.0, 1e-30, 1e5]))
def test_turned_products_lie_within_their_bounds(seed: int, scale: float) -> None:
    chance = np.random.default_rng(seed)
    given_vectors = _flattening(300, 128, chance) * np.float32(scale)
    turn = turning.turn_for(given_vectors)
    assert turn is not None
    assert turn.head == 64
    store = CodeStore(128, turn)
    store.extend(given_vectors)
    found = store.snapshot()
    assert found.tail is not None
    question = _flattening(1, 128, chance)[0]
    of_head, of_tail = found.turned(question)
    head_asked, tail_asked = found.head.asked(of_head), found.tail.asked(of_tail)
    heads, tails = found.head.products(head_asked, None), found.tail.products(tail_asked, None)
    length = float(np.linalg.norm(question))
    head_bounds, tail_bounds = found.head.bounds(head_asked, length), found.tail.bounds(tail_asked)
    assert found.most[0] >= found.head.errors.max()
    assert found.most[1] >= found.head.lengths.max()
    assert found.most[2] >= (found.tail.lengths + found.tail.errors).max()
    exact = given_vectors.astype(np.float64) @ question.astype(np.float64)
    assert (np.abs(heads.astype(np.float64) + tails - exact) <= head_bounds.astype(np.float64) + tail_bounds).all()
    most = (found.tail.lengths + found.tail.errors) * np.linalg.norm(of_tail) * (1 + 1e-6)
    assert (np.abs(heads - exact) <= head_bounds.astype(np.float64) + most).all()


@pytest.mark.parametrize("views_per_row", [1, 3])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.002, 0.05, 0.5, 1.0]), limit=st.sampled_from([1, 30]))
def test_heads_leave_nobody_out(views_per_row: int, seed: int, share: float, limit: int) -> None:
    chance = np.random.default_rng(seed)
    n = 4_000
    views = _flattening(n, 128, chance)
    views[chance.integers(0, n, n // 8)] = views[chance.integers(n)]  # many are equal
    rows = np.arange(n) // views_per_row
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_CODED_FROM", 1_000)
        patch.setattr(codes, "BLOCK", 512)
        index = VectorIndex(128)
        for start in range(0, n, 1_500):
            index.add(rows[start : start + 1_500], views[start : start + 1_500])
        found = index._views.codes
        assert found is not None
        assert found.tail is not None
        assert len(found) == len(found.tail) == n
        allowed = chance.random(n // views_per_row) < share
        question = views[chance.integers(n)] if seed % 3 else drawn(chance, 1, 128, "spread")[0]
        answers = []
        for costs in (BY_SCAN, BY_CODES):
            index._costs = costs
            ranking = index.rank(question, allowed, limit, exact=True)
            answers.append((ranking.row_ids.tolist(), ranking.scores.tolist()))
    assert answers[0] == answers[1]


def test_of_most_only_the_head_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    monkeypatch.setattr(vectors, "_CODED_FROM", 1_000)
    index = VectorIndex(384)
    views = np.concatenate([_flattening(4_000, 384, chance)])
    index.add(np.arange(4_000), views)
    index._costs = BY_CODES
    kept: list[int] = []
    by_heads = scan._kept_by_heads

    def noted(*arguments: object) -> NDArray[np.int64]:
        found = by_heads(*arguments)  # type: ignore[arg-type]
        kept.append(len(found))
        return found

    monkeypatch.setattr(scan, "_kept_by_heads", noted)
    index.rank(views[17], np.ones(4_000, np.bool_), 5)
    assert 5 <= kept[0] < 400


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.05, 0.5, 1.0]), exact=st.booleans())
def test_the_longest_tail_keeps_who_every_tail_keeps(seed: int, share: float, exact: bool) -> None:
    chance = np.random.default_rng(seed)
    n = 4_000
    given_vectors = _flattening(n, 128, chance)
    given_vectors[chance.integers(0, n, n // 8)] = given_vectors[chance.integers(n)]
    given_vectors *= chance.choice([1, 1e-3, 1e3], n).astype(np.float32)[:, None] if seed % 2 else 1
    store = CodeStore(128, turning.turn_for(given_vectors))
    store.extend(given_vectors)
    found = store.snapshot()
    held = Held(given_vectors[:0], given_vectors)
    views = scan.Views(held, np.arange(n), found, float(np.linalg.norm(given_vectors, axis=1).max()), False, True)
    question = given_vectors[chance.integers(n)]
    chosen = None if share == 1 else np.flatnonzero(chance.random(n) < share)
    short_cuts: list[bool] = []
    longest = scan._kept_by_longest

    def noted(*arguments: object) -> NDArray[np.int64] | None:
        kept = longest(*arguments)  # type: ignore[arg-type]
        short_cuts.append(kept is not None)
        return kept

    answers = []
    for way in (noted, lambda *arguments: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scan, "_kept_by_longest", way)
            answers.append(scan.contenders_by_codes(views, found, chosen, question, 10, exact=exact).tolist())
    event(f"short cut: {short_cuts}")
    assert answers[0] == answers[1]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1.0, 1e-20, 1e5]), quantile=st.floats(0.8, 1))
def test_who_a_tail_can_help_is_kept(seed: int, scale: float, quantile: float) -> None:
    chance = np.random.default_rng(seed)
    products = (scale * chance.normal(size=2_000)).astype(np.float32)
    lengths, errors = (scale * chance.choice([0.1, 0.5, 0.9], (2, 2_000))).astype(np.float32)
    of_tails = np.float32(chance.random())
    most = scan._most_of(products, lengths, errors, of_tails)
    needed = np.float32(np.quantile(most, quantile, method="lower"))  # exactly what one of them can give
    kept = scan._kept_by_longest(products, needed, float((lengths + errors).max()) * float(of_tails))
    assert kept is None or set(np.flatnonzero(most >= needed)) <= set(kept.tolist())


def test_no_turn_where_no_direction_stands_out() -> None:
    assert turning.turn_for(drawn(np.random.default_rng(6), 2_000, 384, "spread")) is None
    assert turning.turn_for(np.zeros((2_000, 384), np.float32)) is None
    assert turning.turn_for(drawn(np.random.default_rng(6), 200, 48, "spread")) is None


def test_a_question_that_is_near_to_nothing_finds_nearly_all(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(8)
    monkeypatch.setattr(vectors, "_CODED_FROM", 1_000)
    n, wanted = 20_000, 50
    index = VectorIndex(384)
    index.add(np.arange(n), _flattening(n, 384, chance))
    index._costs = BY_CODES
    kept: list[int] = []
    by_heads = scan._kept_by_heads

    def noted(*arguments: object) -> NDArray[np.int64]:
        found = by_heads(*arguments)  # type: ignore[arg-type]
        kept.append(len(found))
        return found

    monkeypatch.setattr(scan, "_kept_by_heads", noted)
    shares = []
    for scope in (1.0, 0.3):
        allowed = chance.random(n) < scope
        for question in drawn(chance, 30, 384, "spread"):
            kept.clear()
            exact = index.rank(question, allowed, wanted, exact=True)
            found = index.rank(question, allowed, wanted)
            assert len(found) == wanted
            shares.append(len(set(exact.row_ids.tolist()) & set(found.row_ids.tolist())) / wanted)
            proven, guessed = kept
            assert proven > allowed.sum() / 4 > guessed
    assert np.mean(shares) > 0.99
    assert min(shares) >= 0.9
