"""MiniLM in 8 bits, batches without padding, and the two precisions side by side."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from encoder_texts import varied_texts
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

import mempp
from mempp.encoders import MiniLM, load_encoder, minilm, resolve_encoder, unpadded
from mempp.encoders.eight_bits import EightBitProducts, quantised_columns, saturates
from mempp.encoders.graph_writer import GraphWriter
from mempp.encoders.minilm import find_archive, read_weights
from mempp.encoders.minilm_graph import build_graph
from mempp.encoders.pieces import PieceCutter
from mempp.encoders.unpadded import batches_of_equal_length
from mempp.errors import EncoderError, EncoderMismatchError, EncoderUnavailableError, InputError

# What people write: the odd strings that `varied_texts` begins with are no measure of fidelity.
PLAIN = [text for text in varied_texts(120)[20:] if text.isascii() and len(text) > 30]


@pytest.fixture(scope="module")
def float32() -> MiniLM:
    return MiniLM()


@pytest.fixture(scope="module")
def int8() -> MiniLM:
    return MiniLM(precision="int8")


@pytest.fixture(params=["float32", "int8"])
def either(request: pytest.FixtureRequest, float32: MiniLM, int8: MiniLM) -> MiniLM:
    return float32 if request.param == "float32" else int8


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", left.astype(np.float64), right.astype(np.float64))


# --- vectors ---


def test_int8_is_near_float32(float32: MiniLM, int8: MiniLM) -> None:
    texts = varied_texts(80)
    found = cosines(int8.encode_documents(texts), float32.encode_documents(texts))
    assert found.mean() >= 0.99
    assert found.min() >= 0.97  # a text of one symbol a hundred times; measured: 0.983
    assert (found < 0.9999).any()  # it is not float32 under another name
    assert len(PLAIN) >= 10
    plain = cosines(int8.encode_documents(PLAIN), float32.encode_documents(PLAIN))
    assert plain.mean() >= 0.995
    assert plain.min() >= 0.99


def test_a_text_does_not_depend_on_its_company(either: MiniLM) -> None:
    texts = varied_texts(60)
    together = either.encode_documents(texts)
    alone = np.stack([either.encode_question(text) for text in texts])
    # Not only a cosine: rounding to 8 bits would make 1e-3 of a last bit that differs before it.
    np.testing.assert_allclose(together, alone, atol=1e-6)
    # Beside a text of large pieces, which would coarsen the rounding of all if they shared a scale.
    loud = either.encode_documents([texts[-1], *texts[:20] * 3])
    np.testing.assert_allclose(loud[1:21], alone[:20], atol=1e-6)


def test_every_precision_has_the_same_vectors_with_other_threads(either: MiniLM) -> None:
    texts = varied_texts(40)[20:]
    precision = "int8" if "int8" in either.identity.name else "float32"
    one = MiniLM(threads=1, precision=precision).encode_documents(texts)  # type: ignore[arg-type]
    np.testing.assert_allclose(one, either.encode_documents(texts), atol=1e-6)


def test_processors_that_saturate_get_the_same_vectors(
    int8: MiniLM, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMPP_CACHE", str(tmp_path))
    monkeypatch.setattr(minilm, "saturates", lambda: True)
    other = MiniLM(precision="int8")
    texts = varied_texts(40)
    np.testing.assert_allclose(other.encode_documents(texts), int8.encode_documents(texts), atol=1e-6)
    assert [file.name.rpartition("graph2")[2] for file in tmp_path.iterdir()] == ["-int8-unsigned.onnx"]
    next(tmp_path.iterdir()).unlink()  # 35 MB, which pytest would keep


def test_the_probe_gives_an_answer() -> None:
    assert saturates() in (True, False)


# --- products of 8-bit integers, against the formula ---


@pytest.mark.parametrize("saturating", [False, True])
@pytest.mark.parametrize("after_gelu", [False, True])
def test_products_are_those_of_the_formula(saturating: bool, after_gelu: bool) -> None:
    if saturates() and not saturating:
        pytest.skip("this processor cannot run signed weights exactly")
    generator = np.random.default_rng(1)
    matrix, bias = (
        generator.standard_normal((24, 8)).astype(np.float32),
        generator.standard_normal(8).astype(np.float32),
    )
    x = generator.standard_normal((5, 24)).astype(np.float32) * np.array([[1], [1e-3], [50], [1], [7]], np.float32)
    if after_gelu:
        x = np.maximum(x, np.float32(-0.17))
    graph = GraphWriter()
    graph.node("Shape", ["x"], "rows", start=0, end=1)
    EightBitProducts(graph, "rows", saturating=saturating).dense("y", "x", matrix, bias, after_gelu=after_gelu)
    ends = {"x": (TensorProto.FLOAT, ["rows", 24])}, {"y": (TensorProto.FLOAT, ["rows", 8])}
    session = onnxruntime.InferenceSession(graph.serialised("t", inputs=ends[0], outputs=ends[1]))  # type: ignore[arg-type]
    (found,) = session.run(["y"], {"x": x})

    columns, by_column = quantised_columns(matrix)
    if after_gelu:
        zero, by_row = 16, np.maximum(x.max(axis=1) / 239, 0.17 / 16)
    else:
        zero, by_row = 128, np.abs(x).max(axis=1) / 127
    numbers = np.clip(np.rint(x / by_row[:, None]) + zero, 0, 255) - zero
    expected = by_row[:, None] * (numbers @ columns.astype(np.float64)) * by_column + bias
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    # And the formula is near the product itself: no worse than half a step in every factor.
    step = (
        by_row[:, None] / 2 * np.abs(matrix).sum(axis=0)
        + (np.abs(x).sum(axis=1)[:, None] + 24 * by_row[:, None]) * by_column / 2
    )
    assert (np.abs(expected - (x @ matrix + bias)) <= step + 1e-3).all()


def test_columns_of_zeros_stay_zeros() -> None:
    columns, scale = quantised_columns(np.array([[0, 1, -4], [0, -2, 2]], np.float32))
    np.testing.assert_array_equal(columns, [[0, 64, -127], [0, -127, 64]])
    np.testing.assert_allclose(scale, [1, 2 / 127, 4 / 127])


# --- batches ---


@given(st.lists(st.integers(0, 300), max_size=200))
def test_batches_hold_every_place_once_and_texts_of_one_length(lengths: list[int]) -> None:
    batches = batches_of_equal_length(lengths)
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len({lengths[place] for place in batch}) == 1
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= 512
    heads = [lengths[batch[0]] for batch in batches]
    assert heads == sorted(heads, reverse=True)


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(40)), per_round=st.integers(1, 50), per_cut=st.integers(1, 50))
def test_order_is_kept_whatever_the_rounds(order: list[int], per_round: int, per_cut: int) -> None:
    texts = [SHORT[place] for place in order]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpadded, "_TEXTS_PER_ROUND", per_round)
        patch.setattr(unpadded, "_TEXTS_PER_CUT", per_cut)
        found = SHARED.encode_documents(texts)
    np.testing.assert_allclose(found, EXPECTED()[order], atol=1e-6)


SHORT = [f"{'word ' * (number % 7)}text number {number}" for number in range(40)]
SHARED = MiniLM(precision="int8", threads=2)
_expected: list[np.ndarray] = []


def EXPECTED() -> np.ndarray:  # noqa: N802
    if not _expected:
        _expected.append(np.stack([SHARED.encode_question(text) for text in SHORT]))
    return _expected[0]


def test_pieces_of_few_texts_are_held_at_once(int8: MiniLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpadded, "_TEXTS_PER_ROUND", 16)
    cut, encoded, most = [0], [0], [0]
    lock = threading.Lock()
    call, run = PieceCutter.__call__, unpadded.UnpaddedModel._run

    def counted_cut(self: PieceCutter, text: str) -> list[int]:
        with lock:
            cut[0] += 1
            most[0] = max(most[0], cut[0] - encoded[0])
        return call(self, text)

    def counted_run(self: unpadded.UnpaddedModel, session: object, rows: list[list[int]]) -> np.ndarray:
        found = run(self, session, rows)  # type: ignore[arg-type]
        with lock:
            encoded[0] += len(rows)
        return found

    monkeypatch.setattr(PieceCutter, "__call__", counted_cut)
    monkeypatch.setattr(unpadded.UnpaddedModel, "_run", counted_run)
    int8.encode_documents([f"text {number}" for number in range(200)])
    assert cut[0] == encoded[0] == 200
    assert 16 <= most[0] <= 32


def test_an_error_of_the_cutter_or_the_graph_passes_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = MiniLM(precision="int8", threads=2)
    texts = [f"text {number}" for number in range(300)]
    encoder.encode_documents(texts[:3])
    before = threading.active_count()
    call = PieceCutter.__call__

    def fail(self: PieceCutter, text: str) -> list[int]:
        if text == "text 77":
            raise EncoderError("cannot cut")
        return call(self, text)

    with monkeypatch.context() as patch:
        patch.setattr(PieceCutter, "__call__", fail)
        with pytest.raises(EncoderError, match="cannot cut"):
            encoder.encode_documents(texts)
    assert threading.active_count() == before

    def too_long(self: PieceCutter, text: str) -> list[int]:
        return call(self, text) * (200 if text == "text 5" else 1)

    with monkeypatch.context() as patch:
        patch.setattr(PieceCutter, "__call__", too_long)  # more pieces than there are positions
        with pytest.raises(EncoderError, match="all-MiniLM-L6-v2 failed on 1 texts of"):
            encoder.encode_documents(texts)
    assert threading.active_count() == before
    assert encoder.encode_documents(texts[:3]).shape == (3, 384)


def test_an_interrupt_stops_at_once() -> None:
    code = (
        "import sys\n"
        "from mempp.encoders import MiniLM\n"
        "e = MiniLM(precision='int8'); e.encode_documents(['one', 'two'])\n"
        "print('ready', flush=True)\n"
        "try: e.encode_documents(['many words ' * 200] * 2_000_000)\n"
        "except KeyboardInterrupt: sys.exit(7)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.5)  # whenever it comes, the outcome is the same
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=30) == 7


# --- identities ---


def test_the_name_of_float32_is_that_of_older_stores() -> None:
    assert MiniLM().identity.name == MiniLM(precision="float32").identity.name == "minilm-l6-v2-256-53aa5117"
    assert set(MiniLM().identity.description) == {"kind", "max_length", "weights_sha256", "tokenizer_sha256"}
    assert MiniLM(precision="int8").identity.name == "minilm-l6-v2-256-53aa5117-int8"


def test_names() -> None:
    assert resolve_encoder("minilm").identity == resolve_encoder("minilm-float32").identity == MiniLM().identity
    assert resolve_encoder("minilm-int8").identity == MiniLM(precision="int8").identity


@pytest.mark.parametrize("precision", ["int4", "", None, 8, ["int8"]])
def test_precisions_that_are_none(precision: object) -> None:
    with pytest.raises(InputError, match="precision"):
        MiniLM(precision=precision)  # type: ignore[arg-type]


def test_a_precision_of_the_future_is_refused() -> None:
    description = {**MiniLM().identity.description, "precision": "int4"}
    with pytest.raises(EncoderUnavailableError, match="int4"):
        load_encoder("minilm-l6-v2-256-53aa5117-int4", description)


def test_int8_is_built_again_from_its_description(int8: MiniLM) -> None:
    again = load_encoder(int8.identity.name, dict(int8.identity.description))
    assert again.identity == int8.identity
    np.testing.assert_allclose(again.encode_question("Which?"), int8.encode_question("Which?"), atol=1e-6)


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for name in ("minilm", "minilm-int8"):
        paths[name] = tmp_path / name
        with mempp.open(paths[name], encoder=name) as memory:
            memory.add_many(["The board approved vendor B.", "The kitchen is closed on Monday."])
    return paths


def test_a_store_follows_the_precision_it_was_made_with(stores: dict[str, Path]) -> None:
    for name, path in stores.items():
        other = "minilm-int8" if name == "minilm" else "minilm-float32"
        with mempp.open(path) as memory:
            assert memory.encoder is not None
            assert memory.encoder.identity == resolve_encoder(name).identity
            assert memory.recall("Which vendor was approved?")[0].record.row_id == 0
            assert [entry.name for entry in (path / "vectors").iterdir()] == [memory.encoder.identity.name]
        with pytest.raises(EncoderMismatchError):
            mempp.open(path, encoder=other).close()


# --- the cached graphs ---


def test_each_graph_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMPP_CACHE", str(tmp_path))
    monkeypatch.setattr(minilm, "build_graph", lambda *_, **__: b"graph")
    monkeypatch.setattr(minilm, "read_weights", lambda archive: {})
    names = set()
    for version in (2, 3):
        monkeypatch.setattr(minilm, "GRAPH_VERSION", version)
        for precision in ("float32", "int8"):
            for unsigned in (False, True):
                monkeypatch.setattr(minilm, "saturates", lambda unsigned=unsigned: unsigned)
                assert minilm._cached_graph(Path("no archive"), precision) == b"graph"  # type: ignore[arg-type]
                names |= {file.name for file in tmp_path.iterdir()}
    assert len(names) == 2 * 3  # float32 does not ask how the processor saturates


def test_a_graph_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, int8: MiniLM) -> None:
    monkeypatch.setenv("MEMPP_CACHE", str(tmp_path))
    monkeypatch.setattr(minilm, "GRAPH_VERSION", 99)
    built = []
    monkeypatch.setattr(minilm, "read_weights", lambda archive: {})
    monkeypatch.setattr(minilm, "build_graph", lambda *_, **__: built.append(1) or b"an older graph")
    minilm._cached_graph(Path("no archive"), "int8")
    monkeypatch.undo()
    monkeypatch.setenv("MEMPP_CACHE", str(tmp_path))
    vector = MiniLM(precision="int8", threads=1).encode_question("current")
    assert built == [1]
    np.testing.assert_allclose(vector, int8.encode_question("current"), atol=1e-6)
    for file in tmp_path.iterdir():
        file.unlink()  # 35 MB, which pytest would keep


def test_size_of_the_graphs() -> None:
    weights = read_weights(find_archive())
    assert len(build_graph(weights, "int8")) < 0.4 * len(build_graph(weights, "float32"))


@pytest.mark.parametrize(("precision", "sessions"), [("float32", [2, 1]), ("int8", [1])])
def test_a_question_has_all_threads_where_that_makes_it_faster(
    precision: str, sessions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = unpadded.start_session

    def counted(*arguments: Any, threads: int | None, where: str) -> Any:
        started.append(threads)
        return start(*arguments, threads=threads, where=where)

    monkeypatch.setattr(unpadded, "start_session", counted)
    encoder = MiniLM(precision=precision, threads=2)  # type: ignore[arg-type]
    one = encoder.encode_question("one")
    np.testing.assert_allclose(encoder.encode_documents(["one", "two"])[0], one, atol=1e-6)
    assert started == sessions
