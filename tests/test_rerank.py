"""Re-ranking: the cross-encoder against the tokenizer and NumPy, the order and the explanation of hits."""

import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from encoder_models import tiny_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

import mempp
from mempp.errors import EncoderError, EncoderUnavailableError, InputError
from mempp.recall import Explanation, Hit, LegShare
from mempp.reranking.pairs import PairCutter

LIMIT = 24


# --- models made here ---------------------------------------------------------------------------------------------


def bert() -> Tokenizer:
    tokenizer = tiny_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def roberta() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=350,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
    )
    tokenizer.train_from_iterator(["the board approved the vendor, and the vendor the board"] * 5, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=True)
    return tokenizer


def unframed() -> Tokenizer:
    tokenizer = tiny_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {"bert": bert, "roberta": roberta, "unframed": unframed}


def overlap_graph(
    *,
    types: bool = True,
    classes: int = 1,
    name: str = "logits",
    integer: int = TensorProto.INT64,
    static: bool = True,
    scale: float = 0.1,
) -> onnx.ModelProto:
    """logit = scale · (pairs of equal pieces of question and text - pieces of the text); of two, the first is 1.

    Without types: of all pairs of unpadded pieces in the row.
    """
    weights = {
        "second": np.array([1], np.int64),
        "third": np.array([2], np.int64),
        "scale": np.array(scale, np.float32),
        "one": np.array(1, np.float32),
        "both": np.array([1, 2], np.int64),
    }
    nodes = [helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT)]
    if types:
        nodes += [
            helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
            helper.make_node("Sub", ["one", "types"], ["not_types"]),
            helper.make_node("Mul", ["mask", "not_types"], ["asked"]),
            helper.make_node("Mul", ["mask", "types"], ["read"]),
        ]
    else:
        nodes += [helper.make_node("Identity", ["mask"], [side]) for side in ("asked", "read")]
    nodes += [
        helper.make_node("Unsqueeze", ["input_ids", "third"], ["rows"]),
        helper.make_node("Unsqueeze", ["input_ids", "second"], ["columns"]),
        helper.make_node("Equal", ["rows", "columns"], ["equal"]),
        helper.make_node("Cast", ["equal"], ["same"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["asked", "third"], ["asked3"]),
        helper.make_node("Unsqueeze", ["read", "second"], ["read3"]),
        helper.make_node("Mul", ["same", "asked3"], ["part"]),
        helper.make_node("Mul", ["part", "read3"], ["pairs"]),
        helper.make_node("ReduceSum", ["pairs", "both"], ["count"], keepdims=0),
        helper.make_node("ReduceSum", ["read", "second"], ["length"], keepdims=0),
        helper.make_node("Sub", ["count", "length"], ["difference"]),
        helper.make_node("Mul", ["difference", "scale"], ["scaled"]),
        helper.make_node("Unsqueeze", ["scaled", "second"], ["column"]),
    ]
    if classes == 1:
        nodes.append(helper.make_node("Identity", ["column"], [name]))
    else:
        nodes += [
            helper.make_node("Sub", ["column", "column"], ["zero"]),
            helper.make_node("Add", ["zero", "one"], ["first"]),
            helper.make_node("Concat", ["first", *["column"] * (classes - 1)], [name], axis=1),
        ]
    inputs = ("input_ids", "attention_mask", *(("token_type_ids",) if types else ()))
    used = {one for node in nodes for one in node.input}
    graph = helper.make_graph(
        nodes,
        "overlap",
        [helper.make_tensor_value_info(one, integer, ["b", "s"]) for one in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", classes if static else "c"])],
        [numpy_helper.from_array(values, one) for one, values in weights.items() if one in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_model(
    folder: Path,
    tokenizer: Tokenizer | None = None,
    *,
    place: str = "",
    files: dict[str, object] | None = None,
    **how: Any,
) -> Path:
    (folder / place).mkdir(parents=True, exist_ok=True)
    onnx.save_model(overlap_graph(**how), str(folder / place / "model.onnx"))
    (folder / "tokenizer.json").write_text((tokenizer or bert()).to_str())
    for name, content in (files or {}).items():
        (folder / name).write_text(json.dumps(content))
    return folder


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def expected(
    tokenizer: Tokenizer, question: str, text: str, *, limit: int, types: bool = True, scale: float = 0.1
) -> float:
    """The logit, by the tokenizer's own pairs and plain loops."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit, strategy="only_second")
    encoding = tokenizer.encode(question, text)
    asked = [n for n, kind in zip(encoding.ids, encoding.type_ids, strict=True) if not types or kind == 0]
    read = [n for n, kind in zip(encoding.ids, encoding.type_ids, strict=True) if not types or kind == 1]
    return float(np.float32(scale)) * (sum(one == other for one in asked for other in read) - len(read))


# --- pairs --------------------------------------------------------------------------------------------------------

WORDS = ["the", "board", "wording", "漢字", "a", "[SEP]", "</s>", "x" * 150, "\n", "é"]
TEXTS = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join),
)


def library_pair(tokenizer: Tokenizer, question: str, text: str, limit: int) -> tuple[list[int], list[int]]:
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit, strategy="only_second")
    encoding = tokenizer.encode(question, text)
    return encoding.ids, encoding.type_ids


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_a_pair_is_what_the_tokenizer_makes_of_it(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]()
    cutter = PairCutter(tokenizer.to_str().encode(), max_length=LIMIT, where="here")
    tokenizer.no_truncation()
    question = data.draw(TEXTS.filter(lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids) < 10))
    texts = data.draw(st.lists(TEXTS, max_size=3))
    rows = cutter(question, texts)
    assert [(row.numbers, row.types) for row in rows] == [
        library_pair(tokenizer, question, text, LIMIT) for text in texts
    ]


def test_the_text_is_cut_and_the_question_stays_whole() -> None:
    tokenizer = bert()
    cutter = PairCutter(tokenizer.to_str().encode(), max_length=12, where="here")
    (row,) = cutter("a b c d e f", ["g h i j k l"])
    pieces = [tokenizer.id_to_token(number) for number in row.numbers]
    assert pieces == ["[CLS]", "a", "b", "c", "d", "e", "f", "[SEP]", "g", "h", "i", "[SEP]"]
    assert row.types == [0] * 8 + [1] * 4


def test_a_question_too_long_leaves_a_quarter_to_the_text() -> None:
    tokenizer = bert()
    cutter = PairCutter(tokenizer.to_str().encode(), max_length=11, where="here")
    (row,) = cutter("a " * 500_000, ["g h i j"])
    pieces = [tokenizer.id_to_token(number) for number in row.numbers]
    assert pieces == ["[CLS]", *["a"] * 6, "[SEP]", "g", "h", "[SEP]"]
    (row,) = cutter("", [""])
    assert [tokenizer.id_to_token(number) for number in row.numbers] == ["[CLS]", "[SEP]", "[SEP]"]


@pytest.mark.parametrize("limit", [1, 3, 4])
def test_a_maximum_length_without_room_is_refused(limit: int) -> None:
    with pytest.raises(EncoderUnavailableError, match="leaves no room"):
        PairCutter(bert().to_str().encode(), max_length=limit, where="here")


def test_the_files_own_truncation_and_padding_are_not_used() -> None:
    tokenizer = bert()
    wanted = library_pair(bert(), "a b c", "d e f g", 10)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=20)
    (row,) = PairCutter(tokenizer.to_str().encode(), max_length=10, where="here")("a b c", ["d e f g"])
    assert (row.numbers, row.types) == wanted


def test_a_tokenizer_that_makes_no_pairs_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$B $A:1", special_tokens=[])
    with pytest.raises(EncoderUnavailableError, match="question, then text"):
        PairCutter(tokenizer.to_str().encode(), max_length=20, where="here")


# --- the cross-encoder --------------------------------------------------------------------------------------------

QUESTION = "which vendor"
SOME = ["the board approved vendor b", "kitchen", "", "vendor vendor vendor", "which " * 400, "漢字 vendor", "Vendor"]


@pytest.mark.parametrize("integer", [TensorProto.INT64, TensorProto.INT32])
@pytest.mark.parametrize("types", [True, False])
def test_scores_are_those_of_the_graph(tmp_path: Path, types: bool, integer: int) -> None:
    scale = 0.1 if types else 0.001  # without types the overlap of a row with itself counts too
    encoder = mempp.CrossEncoder(write_model(tmp_path, types=types, integer=integer, scale=scale), max_length=64)
    scores = encoder.score(QUESTION, SOME)
    assert scores.dtype == np.float64
    assert scores.shape == (len(SOME),)
    logits = [expected(bert(), QUESTION, text, limit=64, types=types, scale=scale) for text in SOME]
    assert len(set(logits)) >= 4
    assert scores.tolist() == pytest.approx([sigmoid(logit) for logit in logits], rel=1e-5)
    # The same one by one, and in any company: rows are padded and masked.
    alone = [encoder.score(QUESTION, [text])[0] for text in SOME]
    assert scores.tolist() == pytest.approx(alone, rel=1e-6)
    assert encoder.score(QUESTION, SOME[::-1])[::-1].tolist() == pytest.approx(alone, rel=1e-6)


def test_a_model_without_types_and_with_another_frame(tmp_path: Path) -> None:
    encoder = mempp.CrossEncoder(write_model(tmp_path, roberta(), types=False, scale=0.001), max_length=40)
    logits = [expected(roberta(), QUESTION, text, limit=40, types=False, scale=0.001) for text in SOME]
    assert encoder.score(QUESTION, SOME).tolist() == pytest.approx([sigmoid(logit) for logit in logits], rel=1e-5)


@pytest.mark.parametrize("static", [True, False])
def test_of_two_classes_the_second_is_relevant(tmp_path: Path, static: bool) -> None:
    encoder = mempp.CrossEncoder(write_model(tmp_path, classes=2, static=static), max_length=64)
    logits = [expected(bert(), QUESTION, text, limit=64) for text in SOME]
    shares = [math.exp(logit) / (math.exp(1) + math.exp(logit)) for logit in logits]
    assert encoder.score(QUESTION, SOME).tolist() == pytest.approx(shares, rel=1e-5)


def test_large_logits_neither_overflow_nor_lose_the_order_below(tmp_path: Path) -> None:
    encoder = mempp.CrossEncoder(write_model(tmp_path, scale=100.0), max_length=64)
    low, lower, high = encoder.score("a", ["b c", "b c d", "a a a a a a a a"]).tolist()
    assert 0 < lower < low < 1e-80
    assert 0 <= high <= 1


def test_many_texts_come_back_in_their_order(tmp_path: Path) -> None:
    encoder = mempp.CrossEncoder(write_model(tmp_path), max_length=32)
    texts = ["vendor " * (1 + n % 7) + "a " * (n % 11) for n in range(2_500)]
    scores = encoder.score(QUESTION, texts)
    logit = {text: sigmoid(expected(bert(), QUESTION, text, limit=32)) for text in set(texts)}
    assert scores.tolist() == pytest.approx([logit[text] for text in texts], rel=1e-5)
    assert encoder.score(QUESTION, []).shape == (0,)


def test_settings_are_read_from_the_files_beside(tmp_path: Path) -> None:
    files: dict[str, object] = {
        "config.json": {"pad_token_id": 5, "max_position_embeddings": 16},
        "tokenizer_config.json": {"model_max_length": 12},
    }
    read = mempp.CrossEncoder(write_model(tmp_path, place="onnx", files=files))
    long = "vendor " * 50
    assert read.score("vendor vendor", [long])[0] == pytest.approx(
        sigmoid(expected(bert(), "vendor vendor", long, limit=12))
    )
    given_length = mempp.CrossEncoder(tmp_path, max_length=14)
    wanted = sigmoid(expected(bert(), "vendor vendor", long, limit=14))
    assert given_length.score("vendor vendor", [long])[0] == pytest.approx(wanted)
    assert wanted != pytest.approx(read.score("vendor vendor", [long])[0])
    cased = tiny_tokenizer()
    cased.post_processor = bert().post_processor
    from tokenizers import normalizers

    cased.normalizer = normalizers.BertNormalizer(lowercase=False)
    folder = write_model(tmp_path / "cased", cased, files={"sentence_bert_config.json": {"do_lower_case": True}})
    lower = mempp.CrossEncoder(folder, max_length=64).score("VENDOR", ["KITCHEN"])
    assert lower[0] == pytest.approx(sigmoid(expected(cased, "vendor", "kitchen", limit=64)))


def test_several_threads_share_a_model(tmp_path: Path) -> None:
    encoder = mempp.CrossEncoder(write_model(tmp_path), max_length=64, threads=1)
    wanted = mempp.CrossEncoder(tmp_path, max_length=64, threads=1).score(QUESTION, SOME).tolist()
    given_scores: list[list[float]] = []
    threads = [
        threading.Thread(target=lambda: given_scores.append(encoder.score(QUESTION, SOME).tolist())) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert given_scores == [wanted] * 6


def broken(folder: Path, kind: str) -> Path:
    write_model(folder, classes=3 if kind == "three" else 1)
    if kind == "no model":
        (folder / "model.onnx").unlink()
    elif kind == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    elif kind == "text for a model":
        (folder / "model.onnx").write_text("no model")
    elif kind == "text for a tokenizer":
        (folder / "tokenizer.json").write_text("{}")
    elif kind == "two outputs":
        graph = overlap_graph(name="relevance")
        graph.graph.output.append(helper.make_tensor_value_info("column", TensorProto.FLOAT, ["b", 1]))
        onnx.save_model(graph, str(folder / "model.onnx"))
    elif kind == "one per piece":
        graph = overlap_graph(name="relevance")
        graph.graph.node.append(helper.make_node("Identity", ["read"], ["logits"]))
        graph.graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "s"]))
        onnx.save_model(graph, str(folder / "model.onnx"))
    elif kind == "no number":
        onnx.save_model(overlap_graph(scale=float("nan")), str(folder / "model.onnx"))
    elif kind == "no config":
        (folder / "config.json").write_text("[]")
    return folder


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("no model", EncoderUnavailableError, "holds neither model.onnx nor onnx/model.onnx"),
        ("no tokenizer", EncoderUnavailableError, "holds neither tokenizer.json"),
        ("text for a model", EncoderUnavailableError, "onnxruntime does not take"),
        ("text for a tokenizer", EncoderUnavailableError, "is no tokenizer"),
        ("two outputs", EncoderUnavailableError, "one named 'logits'"),
        ("three", EncoderUnavailableError, "export it for sequence classification"),
        ("one per piece", EncoderError, r"has shape \(1, 5\)"),
        ("no number", EncoderError, "no finite number"),
        ("no config", EncoderUnavailableError, "not a JSON object"),
    ],
)
def test_what_is_no_cross_encoder_is_refused(tmp_path: Path, kind: str, error: type, message: str) -> None:
    encoder = mempp.CrossEncoder(broken(tmp_path, kind), max_length=32)
    for _ in range(2):
        with pytest.raises(error, match=message):
            encoder.score("a", ["b"])


def test_an_output_of_another_name_serves_when_it_is_the_only_one(tmp_path: Path) -> None:
    encoder = mempp.CrossEncoder(write_model(tmp_path, name="relevance"), max_length=32)
    encoder.load()
    assert encoder.score("a", ["a"])[0] == pytest.approx(sigmoid(expected(bert(), "a", "a", limit=32)))


def test_arguments_that_are_none_are_refused(tmp_path: Path) -> None:
    write_model(tmp_path)
    for path in ("", tmp_path / "model.onnx", tmp_path / "nowhere", None, 3, "x" * 5000, "a\0b"):
        with pytest.raises(InputError, match="no directory"):
            mempp.CrossEncoder(path)  # type: ignore[arg-type]
    for number in (0, -1, True, 2.5, "8", 10**30):
        with pytest.raises(InputError, match="max_length is"):
            mempp.CrossEncoder(tmp_path, max_length=number)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="threads is"):
            mempp.CrossEncoder(tmp_path, threads=number)  # type: ignore[arg-type]
    encoder = mempp.CrossEncoder(tmp_path, max_length=32)
    with pytest.raises(InputError, match="put a text in a list"):
        encoder.score("a", "b")
    for question, texts in ((None, ["b"]), ("a", [None]), ("a", ["\ud800"]), ("\ud800", ["b"])):
        with pytest.raises(InputError):
            encoder.score(question, texts)  # type: ignore[arg-type]


# --- hits ---------------------------------------------------------------------------------------------------------


class Unreadable:
    """What an array of another library may be: on a device, or no longer there."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise RuntimeError("it lies on another device")


class Given:
    """A re-ranker that gives what it was made with, and notes what it was asked."""

    def __init__(self, scores: object) -> None:
        self.scores = scores
        self.asked: list[tuple[str, list[str]]] = []

    def score(self, question: str, texts: Sequence[str]) -> Any:
        self.asked.append((question, list(texts)))
        return self.scores(texts) if callable(self.scores) else self.scores


@pytest.fixture(scope="module")
def answer() -> list[Hit]:
    with mempp.in_memory(encoder="none") as memory:
        for number in range(12):
            words = "vendor " * (number % 4) + f"note {number}"
            memory.add(words, occurred_at=f"2024-01-{number + 1:02}", author=["Ethan Brooks", "Maya Patel"][number % 2])
        return memory.recall("vendor of Ethan", k=12, settings=mempp.Settings(recency_slots=3, recency_floor=0))


def made_hits(answer: list[Hit], fused: list[float], gamma: float | None) -> list[Hit]:
    hits = []
    for place, (hit, score) in enumerate(zip(answer, fused, strict=False)):
        weight = score if gamma is None else score * (gamma + place)
        legs = (LegShare("lexical", place, 1.0, weight, score),)
        explanation = Explanation(hit.row_id, score, "recency" if place % 3 == 2 else "score", gamma, legs)
        hits.append(replace(hit, score=score, explanation=explanation))
    return hits


def test_the_reranker_decides_alone_by_default(answer: list[Hit]) -> None:
    values = [0.5, 0.9, 0.5, 0.1]
    reranker = Given(np.array(values, np.float32))
    hits = mempp.rerank("vendor", answer, reranker, depth=4)
    assert reranker.asked == [("vendor", [hit.record.text for hit in answer[:4]])]
    assert [hit.row_id for hit in hits[:4]] == [answer[place].row_id for place in (1, 0, 2, 3)]
    assert hits[4:] == answer[4:]
    assert [hit.score for hit in hits[:4]] == pytest.approx([0.9, 0.5, 0.5, 0.1])
    shares = [hit.explain().legs[-1] for hit in hits[:4]]
    assert [(share.leg, share.rank, share.weight) for share in shares] == [
        ("reranker", rank, 1.0) for rank in (0, 1, 1, 3)
    ]
    assert [share.leg_score for share in shares] == pytest.approx([0.9, 0.5, 0.5, 0.1])
    assert "reranker: 0.9000 × 1 adds 0.90000 (place 1)" in str(hits[0].explain())
    assert hits[0].explain().as_dict()["legs"][-1]["leg"] == "reranker"


NUMBERS = st.floats(-50, 50, allow_nan=False)


@given(
    fused=st.lists(st.floats(0, 3), min_size=1, max_size=12),
    gamma=st.sampled_from([None, 1e-6, 60.0]),
    depth=st.integers(0, 14),
    weight=st.sampled_from([1.0, 1, 0.5, 0.25, 1e-3]),
    data=st.data(),
)
def test_hits_are_reordered_and_nothing_else(
    answer: list[Hit], fused: list[float], gamma: float | None, depth: int, weight: float, data: st.DataObject
) -> None:
    hits = made_hits(answer, sorted(fused, reverse=True), gamma)
    before = list(hits)
    head = hits[:depth]
    values = data.draw(
        st.lists(st.one_of(NUMBERS, st.sampled_from([0.0, 1.0])), min_size=len(head), max_size=len(head))
    )
    reranked = mempp.rerank("vendor", hits, Given(values), depth=depth, weight=weight)
    assert hits == before
    # The reference: one score after another, then a stable sort.
    scored = []
    for hit, value in zip(head, values, strict=True):
        rank = sum(other > value for other in values)
        added = weight * value if gamma is None else weight / (gamma + rank)
        scored.append(((1 - weight) * hit.score + added, value, hit))
    ordered = sorted(scored, key=lambda one: -one[0])
    assert [hit.row_id for hit in reranked] == [hit.row_id for _, _, hit in ordered] + [h.row_id for h in hits[depth:]]
    assert reranked[len(head) :] == hits[len(head) :]
    for hit, (score, value, old) in zip(reranked, ordered, strict=False):
        explanation = hit.explain()
        assert hit.score == explanation.score == score
        assert (hit.via, hit.matched, hit.record) == (old.via, old.matched, old.record)
        assert explanation.legs[-1].leg_score == value
        assert sum(leg.added for leg in explanation.legs) == pytest.approx(score, abs=1e-9)
        assert [leg.leg for leg in explanation.legs] == ["lexical", "reranker"]
        assert "less" not in str(explanation)
        for leg in explanation.legs:
            by_hand = leg.weight * leg.leg_score if gamma is None else leg.weight / (gamma + leg.rank)
            assert leg.added == pytest.approx(by_hand, abs=1e-9)
    if weight == 1:
        best = sorted(range(len(head)), key=lambda place: -values[place])
        assert [hit.row_id for hit in reranked[: len(head)]] == [head[place].row_id for place in best]


def test_a_record_of_a_recency_slot_stays_marked(answer: list[Hit]) -> None:
    marked = {hit.row_id: hit.via for hit in answer}
    assert "recency" in marked.values()
    hits = mempp.rerank("vendor", answer, Given(lambda texts: np.arange(len(texts))))
    assert [hit.row_id for hit in hits] == [hit.row_id for hit in answer][::-1]
    assert {hit.row_id: hit.via for hit in hits} == marked
    assert {hit.row_id: hit.matched for hit in hits} == {hit.row_id: hit.matched for hit in answer}


def test_a_penalty_of_threads_is_told_at_its_new_size(answer: list[Hit]) -> None:
    old = answer[0].explanation
    penalised = replace(old, score=old.score - 0.2)
    hits = [replace(answer[0], score=penalised.score, explanation=penalised)]
    assert "less 0.20000, because" in str(hits[0].explain())
    (half,) = mempp.rerank("vendor", hits, Given([1.0]), weight=0.5)
    assert "less 0.10000, because" in str(half.explain())
    (alone,) = mempp.rerank("vendor", hits, Given([1.0]))
    assert "less" not in str(alone.explain())


@pytest.mark.parametrize(
    "scores",
    [
        [0.1],
        [0.1] * 13,
        [[0.1]] * 12,
        0.5,
        None,
        ["a"] * 12,
        [0.1, [0.2]],
        [True] * 12,
        [1j] * 12,
        [0.1] * 11 + [math.nan],
        [0.1] * 11 + [math.inf],
        [0.1] * 11 + [None],
        np.array([np.longdouble("1e400")] * 12),
        Unreadable(),
    ],
)
def test_scores_that_are_none_are_refused(answer: list[Hit], scores: object) -> None:
    with pytest.raises(EncoderError, match="the re-ranker Given gave"):
        mempp.rerank("vendor", answer, Given(scores))


def test_arguments_of_rerank_that_are_none_are_refused(answer: list[Hit]) -> None:
    good = Given([0.1] * 12)
    for question in ("", "  ", None, 3, "\ud800"):
        with pytest.raises(InputError):
            mempp.rerank(question, answer, good)  # type: ignore[arg-type]
    for hits in (None, "hits", answer[0], [answer[0], answer[0].record], iter(answer)):
        with pytest.raises(InputError, match="rerank takes the hits that"):
            mempp.rerank("vendor", hits, good)  # type: ignore[arg-type]
    for depth in (-1, True, 1.0, "3", None):
        with pytest.raises(InputError, match="depth is"):
            mempp.rerank("vendor", answer, good, depth=depth)  # type: ignore[arg-type]
    for weight in (0, 0.0, -0.5, 1.01, math.nan, math.inf, True, "1", None):
        with pytest.raises(InputError, match="weight is"):
            mempp.rerank("vendor", answer, good, weight=weight)  # type: ignore[arg-type]
    for reranker in (None, "minilm", Given, lambda question, texts: [0.1] * 12):
        with pytest.raises(InputError, match="the reranker is"):
            mempp.rerank("vendor", answer, reranker)  # type: ignore[arg-type]
    assert good.asked == []


def test_the_reranker_is_not_asked_for_nothing(answer: list[Hit]) -> None:
    reranker = Given(None)
    assert mempp.rerank("vendor", [], reranker) == []
    kept = mempp.rerank("vendor", answer, reranker, depth=0)
    assert kept == answer
    assert kept is not answer
    assert reranker.asked == []


def test_an_error_of_the_callers_own_passes(answer: list[Hit]) -> None:
    def fail(texts: list[str]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        mempp.rerank("vendor", answer, Given(fail))


@pytest.mark.parametrize("settings", [mempp.Settings(), mempp.preset("orgmembench")])
def test_hits_of_a_store_by_a_cross_encoder(tmp_path: Path, settings: mempp.Settings) -> None:
    encoder = mempp.CrossEncoder(write_model(tmp_path), max_length=64)
    assert isinstance(encoder, mempp.Reranker)
    texts = ["the vendor of the kitchen", "vendor vendor", "the board", "vendor word word word", "which vendor which"]
    with mempp.in_memory(encoder="none") as memory:
        memory.add_many([{"text": text, "occurred_at": f"2024-0{n + 1}-01"} for n, text in enumerate(texts)])
        hits = memory.recall(QUESTION, as_of="2024-04-15", settings=settings)
        reranked = mempp.rerank(QUESTION, hits, encoder)
    assert "which vendor which" not in [hit.record.text for hit in reranked]
    logits = {hit.row_id: expected(bert(), QUESTION, hit.record.text, limit=64) for hit in hits}
    assert [logits[hit.row_id] for hit in reranked] == sorted(logits.values(), reverse=True)
    assert {hit.row_id for hit in reranked} == {hit.row_id for hit in hits}


def test_the_exported_function_stays_one_and_loads_no_runtime() -> None:
    code = (
        "import sys, mempp; first = mempp.rerank; import mempp.reranking; from mempp import rerank, CrossEncoder;"
        "assert mempp.rerank is first is rerank and callable(first);"
        "print([name for name in ('onnxruntime', 'onnx', 'tokenizers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
