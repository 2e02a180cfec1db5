"""Sentence models from a directory: what the settings files say, pooling by hand, identity, broken files."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from encoder_models import TINY_WIDTH, tiny_tokenizer, write_tiny_model
from onnx import TensorProto
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from mempp.encoders import DirectoryEncoder, load_encoder
from mempp.encoders.runtime import POOLINGS, pool
from mempp.errors import EncoderError, EncoderUnavailableError, InputError

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
DENSE = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
TEXTS = ["the board approved", "vendor", "", "the kitchen, the board: word. " * 3]


def piece_vectors(directory: Path, text: str, *, max_length: int = 512) -> np.ndarray:
    """The reference: the text alone through the graph, no padding, (pieces, width)."""
    tokenizer = tiny_tokenizer()
    tokenizer.enable_truncation(max_length)
    numbers = np.array([tokenizer.encode(text).ids])
    session = onnxruntime.InferenceSession(str(directory / "model.onnx"), providers=["CPUExecutionProvider"])
    known = {
        "input_ids": numbers,
        "attention_mask": np.ones_like(numbers),
        "token_type_ids": np.zeros_like(numbers),
        "position_ids": np.arange(numbers.shape[1])[None],
    }
    feed = {
        graph_input.name: known[graph_input.name].astype(np.int32 if "int32" in graph_input.type else np.int64)
        for graph_input in session.get_inputs()
    }
    return np.asarray(session.run(["last_hidden_state"], feed)[0][0])


def pooled(vectors: np.ndarray, pooling: str) -> np.ndarray:
    match pooling:
        case "mean":
            vector = vectors.mean(axis=0)
        case "mean_sqrt_len":
            vector = vectors.sum(axis=0) / len(vectors) ** 0.5
        case "max":
            vector = vectors.max(axis=0)
        case "cls":
            vector = vectors[0]
        case _:
            vector = vectors[-1]
    return np.asarray(vector / np.linalg.norm(vector))


def assert_encodes(encoder: DirectoryEncoder, expected: list[np.ndarray]) -> None:
    np.testing.assert_allclose(encoder.encode_documents(TEXTS), np.stack(expected), atol=2e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_given(tmp_path: Path, pooling: str) -> None:
    write_tiny_model(tmp_path)
    encoder = DirectoryEncoder(tmp_path, pooling=pooling)
    assert_encodes(encoder, [pooled(piece_vectors(tmp_path, text), pooling) for text in TEXTS])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("form", ["flags", "name", "tuple"])
def test_pooling_read(tmp_path: Path, pooling: str, form: str) -> None:
    names = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "mean_sqrt_len": "mean_sqrt_len_tokens"}
    new_names = {"mean_sqrt_len": "mean_sqrt_len_tokens"}
    config: dict[str, Any]
    if form == "flags":
        config = {f"pooling_mode_{name}": False for name in names.values()}
        config[f"pooling_mode_{names.get(pooling, pooling)}"] = True
    else:
        config = {"pooling_mode": new_names.get(pooling, pooling)}
        if form == "tuple":
            config["pooling_mode"] = [config["pooling_mode"]]
    modules = [MODULES[0], {**MODULES[1], "path": "other"}, MODULES[2]]
    write_tiny_model(tmp_path, {"modules.json": modules, "other/config.json": config})
    encoder = DirectoryEncoder(tmp_path)
    assert encoder.identity.description["pooling"] == pooling
    assert_encodes(encoder, [pooled(piece_vectors(tmp_path, text), pooling) for text in TEXTS])


def test_mean_where_nothing_is_said(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    assert DirectoryEncoder(tmp_path).identity.description["pooling"] == "mean"


def test_pool_by_hand_ignores_padding() -> None:
    vectors = np.array([[[1, 4], [3, 0], [np.nan, np.nan]], [[-2, -2], [-4, -6], [-3, -1]]], np.float32)
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    expected = {
        "mean": [[2, 2], [-3, -3]],
        "mean_sqrt_len": [[4 / 2**0.5, 4 / 2**0.5], [-9 / 3**0.5, -9 / 3**0.5]],
        "max": [[3, 4], [-2, -1]],
        "cls": [[1, 4], [-2, -2]],
        "lasttoken": [[3, 0], [-3, -1]],
    }
    assert set(expected) == set(POOLINGS)
    for pooling, rows in expected.items():
        np.testing.assert_allclose(pool(vectors, mask, pooling), rows, rtol=1e-6)


@pytest.mark.parametrize("inputs", [("input_ids", "attention_mask"), ("position_ids", "attention_mask", "input_ids")])
@pytest.mark.parametrize("integer", [TensorProto.INT64, TensorProto.INT32])
def test_inputs_are_fed_by_name(tmp_path: Path, inputs: tuple[str, ...], integer: int) -> None:
    write_tiny_model(tmp_path, inputs=inputs, integer=integer)
    assert_encodes(DirectoryEncoder(tmp_path), [pooled(piece_vectors(tmp_path, text), "mean") for text in TEXTS])


def test_pooled_output_is_taken_unless_pooling_is_given(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, pooled=True)
    taken = DirectoryEncoder(tmp_path)
    assert taken.identity.description["pooling"] == "graph"
    assert_encodes(taken, [-pooled(piece_vectors(tmp_path, text), "cls") for text in TEXTS])
    given = DirectoryEncoder(tmp_path, pooling="cls")
    assert_encodes(given, [pooled(piece_vectors(tmp_path, text), "cls") for text in TEXTS])
    assert given.identity.name != taken.identity.name


def test_maximum_length(tmp_path: Path) -> None:
    long = "the board approved the vendor " * 20
    write_tiny_model(tmp_path, {"sentence_bert_config.json": {"max_seq_length": 7}})
    for encoder, length in ((DirectoryEncoder(tmp_path), 7), (DirectoryEncoder(tmp_path, max_length=9), 9)):
        assert encoder.identity.description["max_length"] == length
        expected = pooled(piece_vectors(tmp_path, long, max_length=length), "mean")
        np.testing.assert_allclose(encoder.encode_question(long), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("tokenizer", "model", "expected"),
    [
        ({"model_max_length": 128}, {"max_position_embeddings": 512}, 128),
        ({"model_max_length": 10**30}, {"max_position_embeddings": 300}, 300),
        ({"model_max_length": 1e30}, {}, 512),
        ({}, {}, 512),
    ],
)
def test_maximum_length_from_other_files(
    tmp_path: Path, tokenizer: dict[str, Any], model: dict[str, Any], expected: int
) -> None:
    write_tiny_model(tmp_path, {"tokenizer_config.json": tokenizer, "config.json": model})
    assert DirectoryEncoder(tmp_path).identity.description["max_length"] == expected


def test_prefixes(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "the ", "passage": "a ", "other": "x"}, "default_prompt_name": "other"}
    write_tiny_model(tmp_path, {"config_sentence_transformers.json": prompts})
    plain = DirectoryEncoder(tmp_path, query_prefix="", document_prefix="")
    read = DirectoryEncoder(tmp_path)
    given = DirectoryEncoder(tmp_path, query_prefix="board ")
    np.testing.assert_array_equal(read.encode_question("vendor"), plain.encode_question("the vendor"))
    np.testing.assert_array_equal(read.encode_documents(["vendor"]), plain.encode_documents(["a vendor"]))
    np.testing.assert_array_equal(given.encode_question("vendor"), plain.encode_question("board vendor"))
    np.testing.assert_array_equal(given.encode_documents(["vendor"]), read.encode_documents(["vendor"]))
    assert len({encoder.identity.name for encoder in (plain, read, given)}) == 3


def test_default_prompt(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "", "all": "the "}, "default_prompt_name": "all"}
    write_tiny_model(tmp_path, {"config_sentence_transformers.json": prompts})
    description = DirectoryEncoder(tmp_path).identity.description
    assert (description["query_prefix"], description["document_prefix"]) == ("", "the ")


def test_lower_case(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    facts = tiny_tokenizer()
    facts.normalizer = normalizers.BertNormalizer(lowercase=False)
    (tmp_path / "tokenizer.json").write_text(facts.to_str())
    cased = DirectoryEncoder(tmp_path)
    assert np.abs(cased.encode_question("VENDOR") - cased.encode_question("vendor")).max() > 0.01
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    lowered = DirectoryEncoder(tmp_path)
    np.testing.assert_array_equal(lowered.encode_question("VENDOR"), lowered.encode_question("vendor"))


def test_fewer_dimensions(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    whole, short = DirectoryEncoder(tmp_path), DirectoryEncoder(tmp_path, dimensions=5)
    head = whole.encode_documents(TEXTS)[:, :5]
    assert short.identity.dimensions == 5
    np.testing.assert_allclose(
        short.encode_documents(TEXTS), head / np.linalg.norm(head, axis=1, keepdims=True), atol=1e-6
    )
    with pytest.raises(InputError, match=f"have {TINY_WIDTH}"):
        _ = DirectoryEncoder(tmp_path, dimensions=TINY_WIDTH + 1).identity


def test_dimensions_from_the_files(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, static_width=False)
    with pytest.raises(EncoderUnavailableError, match="pass dimensions="):
        _ = DirectoryEncoder(tmp_path).identity
    assert DirectoryEncoder(tmp_path, dimensions=3).encode_question("x").shape == (3,)
    (tmp_path / "config.json").write_text('{"hidden_size": 12}')
    assert DirectoryEncoder(tmp_path).encode_question("x").shape == (12,)
    (tmp_path / "config.json").write_text('{"hidden_size": 99}')
    with pytest.raises(EncoderError, match="at least 99 dimensions"):
        DirectoryEncoder(tmp_path).encode_question("x")


def test_tokenizer_without_special_tokens(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    tokenizer = Tokenizer(models.WordLevel({"[PAD]": 0, "the": 1, "board": 2, "[UNK]": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    encoder = DirectoryEncoder(tmp_path)
    vectors = encoder.encode_documents(["", "the board", "   "])
    np.testing.assert_array_equal(vectors[0], vectors[2])
    np.testing.assert_array_equal(vectors[0], encoder.encode_question(""))


# --- identity ---


def test_identity_follows_bytes_and_settings_not_the_place(tmp_path: Path) -> None:
    here = write_tiny_model(tmp_path / "here")
    name = DirectoryEncoder(here).identity.name
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(here, elsewhere)
    assert DirectoryEncoder(elsewhere).identity.name == name
    (elsewhere / "onnx").mkdir()
    (elsewhere / "model.onnx").rename(elsewhere / "onnx" / "model.onnx")
    (elsewhere / "README.md").write_text("irrelevant")
    assert DirectoryEncoder(elsewhere, threads=1).identity.name == name
    others = {
        DirectoryEncoder(here, pooling="cls").identity.name,
        DirectoryEncoder(here, max_length=100).identity.name,
        DirectoryEncoder(here, dimensions=4).identity.name,
        DirectoryEncoder(write_tiny_model(tmp_path / "other", seed=1)).identity.name,
    }
    assert len(others | {name}) == 5


def test_weights_beside_the_graph_count(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    model = onnx.load_model(str(tmp_path / "model.onnx"))
    (tmp_path / "model.onnx").unlink()
    onnx.save_model(
        model,
        str(tmp_path / "model.onnx"),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=1000,
    )
    before = DirectoryEncoder(tmp_path)
    assert before.encode_question("vendor").shape == (TINY_WIDTH,)
    content = bytearray((tmp_path / "weights.bin").read_bytes())
    content[200] ^= 64
    (tmp_path / "weights.bin").write_bytes(content)
    assert DirectoryEncoder(tmp_path).identity.name != before.identity.name
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(EncoderUnavailableError, match=r"weights\.bin"):
        _ = DirectoryEncoder(tmp_path).identity


def test_a_stores_encoder_whose_files_changed_is_refused(tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "model")
    identity = DirectoryEncoder(directory, pooling="max", query_prefix="the ", max_length=20, dimensions=6).identity
    again = load_encoder(identity.name, identity.description)
    assert again.encode_question("vendor").shape == (6,)
    assert DirectoryEncoder.from_identity(identity)._examined.get().identity == identity
    write_tiny_model(directory, seed=5)
    changed = load_encoder(identity.name, identity.description)
    with pytest.raises(EncoderUnavailableError, match="no longer those"):
        changed.encode_question("vendor")
    shutil.rmtree(directory)
    with pytest.raises(EncoderUnavailableError, match="no directory now"):
        load_encoder(identity.name, identity.description)


# --- what cannot be run ---


def test_dense_layer_needs_a_graph_that_has_it(tmp_path: Path) -> None:
    files = {"modules.json": [*MODULES[:2], DENSE], "1_Pooling/config.json": {"pooling_mode_mean_tokens": True}}
    write_tiny_model(tmp_path, files)
    with pytest.raises(EncoderUnavailableError, match=r"sentence_embedding.*Dense"):
        _ = DirectoryEncoder(tmp_path).identity
    write_tiny_model(tmp_path, files, pooled=True)
    assert DirectoryEncoder(tmp_path).identity.description["pooling"] == "graph"


@pytest.mark.parametrize(
    "config",
    [
        {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
        {"pooling_mode_weightedmean_tokens": True},
        {"pooling_mode": "attention"},
    ],
)
def test_poolings_that_are_not_done_here(tmp_path: Path, config: dict[str, Any]) -> None:
    write_tiny_model(tmp_path, {"1_Pooling/config.json": config})
    with pytest.raises(EncoderUnavailableError, match="is not one of mean"):
        _ = DirectoryEncoder(tmp_path).identity


def test_prefix_outside_the_pooling_is_not_done_here(tmp_path: Path) -> None:
    config = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    write_tiny_model(tmp_path, {"1_Pooling/config.json": config})
    assert DirectoryEncoder(tmp_path).identity
    with pytest.raises(EncoderUnavailableError, match="include_prompt"):
        _ = DirectoryEncoder(tmp_path, query_prefix="query: ").identity


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise", "directory"])
def test_broken_files(tmp_path: Path, file: str, damage: str) -> None:
    write_tiny_model(tmp_path)
    path = tmp_path / file
    whole = path.read_bytes()
    path.unlink()
    match damage:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(whole[: len(whole) // 2])
        case "noise":
            path.write_bytes(b"\x7f\x03noise\xff" * 50)
        case "directory":
            path.mkdir()
    with pytest.raises(EncoderUnavailableError) as caught:
        DirectoryEncoder(tmp_path).encode_question("x")
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "file",
    ["modules.json", "config.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer_config.json"],
)
@pytest.mark.parametrize("content", ["{", "3", '"text"', "null", "[" * 100_000, "\udcff"])
def test_broken_settings(tmp_path: Path, file: str, content: str) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(EncoderUnavailableError, match=file):
        DirectoryEncoder(tmp_path).encode_question("x")


def test_unknown_input(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    model = onnx.load_model(str(tmp_path / "model.onnx"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("past_key_values", TensorProto.FLOAT, ["b"]))
    onnx.save_model(model, str(tmp_path / "model.onnx"))
    with pytest.raises(EncoderUnavailableError, match="past_key_values"):
        DirectoryEncoder(tmp_path).encode_question("x")


def test_graph_that_fails_while_running(tmp_path: Path) -> None:
    # The graph knows 512 places; position_ids beyond them make onnxruntime fail.
    write_tiny_model(tmp_path, inputs=("input_ids", "attention_mask", "position_ids"))
    encoder = DirectoryEncoder(tmp_path, max_length=2000)
    assert encoder.encode_question("the").shape == (TINY_WIDTH,)
    with pytest.raises(EncoderError, match=r"model\.onnx failed on 1 texts of up to 802 pieces"):
        encoder.encode_question("the " * 800)


def test_graph_without_piece_vectors(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, pooled=True)
    model = onnx.load_model(str(tmp_path / "model.onnx"))
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("cls", TensorProto.FLOAT, ["b", 12]))
    onnx.save_model(model, str(tmp_path / "model.onnx"))
    with pytest.raises(EncoderUnavailableError, match="feature extraction"):
        _ = DirectoryEncoder(tmp_path).identity


@pytest.mark.parametrize(
    "arguments",
    [
        {"pooling": "average"},
        {"dimensions": 0},
        {"dimensions": True},
        {"max_length": -1},
        {"max_length": "9"},
        {"query_prefix": 3},
        {"threads": 0},
    ],
)
def test_arguments_that_are_none(tmp_path: Path, arguments: dict[str, Any]) -> None:
    write_tiny_model(tmp_path)
    with pytest.raises(InputError, match=next(iter(arguments))):
        DirectoryEncoder(tmp_path, **arguments)


@pytest.mark.parametrize("path", ["", "no/such/place"])
def test_no_directory(path: str) -> None:
    with pytest.raises(InputError, match="no directory"):
        DirectoryEncoder(path)
