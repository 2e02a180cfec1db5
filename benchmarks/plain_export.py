"""all-MiniLM-L6-v2 as an exporter would write it: standard ONNX operators and padding under a mask.

What a user would run who exports the model and pads batches; Mem++ itself runs `mempp.encoders.minilm_graph`. The graph
is BERT with six layers, the mean over the attention mask and scaling to length 1.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.minilm_graph import DIMENSIONS, MAX_PIECES, Weights, tensor

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

_LAYERS = 6
_HEADS = 12
_HEAD_SIZE = DIMENSIONS // _HEADS
_INTERMEDIATE = 1536
_VOCABULARY = 30522
_EPSILON = 1e-12


class _Graph:
    """Collects nodes and weights; every method returns the name of what it made."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def weight(self, name: str, values: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"{operator}/{output}", **attributes))
        return output


def plain_export(weights: Weights) -> bytes:
    """Returns the serialised graph.

    Inputs `input_ids` and `attention_mask`, int64, (rows, pieces), at most 256 pieces; output `sentence_embedding`,
    float32, (rows, 384), unit rows. The tensor `last_hidden_state` (rows, pieces, 384) is inside.

    Args:
        weights: the tensors of `model.safetensors` by name.

    Raises:
        EncoderUnavailableError: a tensor is missing or has another shape.
    """
    from onnx import TensorProto, helper

    graph = _Graph()
    hidden = _embeddings(graph, weights)
    mask = graph.node("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    # 0 where a piece is, -1e9 where padding is: softmax gives padding a weight of exactly 0 in float32.
    graph.weight("one", np.array(1, np.float32))
    graph.weight("far_below", np.array(1e9, np.float32))
    graph.weight("head_axes", np.array([1, 2], np.int64))
    graph.node("Sub", [mask, "one"], "mask/below")
    graph.node("Mul", ["mask/below", "far_below"], "mask/scores")
    graph.node("Unsqueeze", ["mask/scores", "head_axes"], "mask/heads")
    graph.weight("split_heads", np.array([0, 0, _HEADS, _HEAD_SIZE], np.int64))
    graph.weight("join_heads", np.array([0, 0, DIMENSIONS], np.int64))
    graph.weight("scale", np.array(1 / np.sqrt(_HEAD_SIZE), np.float32))
    for layer in range(_LAYERS):
        output = "last_hidden_state" if layer == _LAYERS - 1 else f"layer{layer}"
        hidden = _layer(graph, weights, f"encoder.layer.{layer}.", hidden, output)
    # The mean's division by the count falls away: the length is scaled to 1 anyway.
    graph.weight("piece_axis", np.array([1], np.int64))
    graph.node("Unsqueeze", [mask, "piece_axis"], "mask/row")
    graph.node("MatMul", ["mask/row", hidden], "sum/row")
    graph.node("Squeeze", ["sum/row", "piece_axis"], "sum")
    graph.node("LpNormalization", ["sum"], "sentence_embedding", axis=-1, p=2)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "pieces"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["rows", DIMENSIONS])]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", inputs, outputs, graph.weights),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
        producer_name="mempp",
    )
    serialised: bytes = model.SerializeToString()
    return serialised


def _embeddings(graph: _Graph, weights: Weights) -> str:
    """Word + position + segment embeddings, normalised. Every piece is of segment 0, so its row joins the positions."""
    words = tensor(weights, "embeddings.word_embeddings.weight", _VOCABULARY, DIMENSIONS)
    positions = tensor(weights, "embeddings.position_embeddings.weight", 512, DIMENSIONS)[:MAX_PIECES]
    segment = tensor(weights, "embeddings.token_type_embeddings.weight", 2, DIMENSIONS)[0]
    graph.weight("words", words)
    graph.weight("positions", positions + segment)
    for name, value in (("index0", 0), ("index1", 1), ("index2", 2)):
        graph.weight(name, np.array([value], np.int64))
    graph.node("Shape", ["input_ids"], "shape")
    graph.node("Slice", ["shape", "index1", "index2"], "pieces")
    graph.node("Slice", ["positions", "index0", "pieces", "index0"], "positions/used")
    graph.node("Gather", ["words", "input_ids"], "words/used")
    graph.node("Add", ["words/used", "positions/used"], "embedded")
    return _normalised(graph, weights, "embeddings.LayerNorm.", "embedded", "layer/input")


def _layer(graph: _Graph, weights: Weights, prefix: str, hidden: str, output: str) -> str:
    """One transformer layer: attention and a two-layer network, each with a residual and a normalisation after it."""
    heads: dict[str, str] = {}
    for part in ("query", "key", "value"):
        name = f"{prefix}attention.self.{part}"
        dense = _dense(graph, weights, name, hidden, DIMENSIONS, DIMENSIONS)
        graph.node("Reshape", [dense, "split_heads"], f"{name}/heads")
        order = [0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]
        heads[part] = graph.node("Transpose", [f"{name}/heads"], f"{name}/ordered", perm=order)
    at = f"{prefix}attention"
    graph.node("MatMul", [heads["query"], heads["key"]], f"{at}/products")
    graph.node("Mul", [f"{at}/products", "scale"], f"{at}/scaled")
    graph.node("Add", [f"{at}/scaled", "mask/heads"], f"{at}/masked")
    graph.node("Softmax", [f"{at}/masked"], f"{at}/shares", axis=-1)
    graph.node("MatMul", [f"{at}/shares", heads["value"]], f"{at}/mixed")
    graph.node("Transpose", [f"{at}/mixed"], f"{at}/back", perm=[0, 2, 1, 3])
    graph.node("Reshape", [f"{at}/back", "join_heads"], f"{at}/joined")
    dense = _dense(graph, weights, f"{prefix}attention.output.dense", f"{at}/joined", DIMENSIONS, DIMENSIONS)
    graph.node("Add", [dense, hidden], f"{at}/residual")
    attended = _normalised(graph, weights, f"{prefix}attention.output.LayerNorm.", f"{at}/residual", f"{at}/output")
    wide = _dense(graph, weights, f"{prefix}intermediate.dense", attended, DIMENSIONS, _INTERMEDIATE)
    graph.node("Gelu", [wide], f"{prefix}gelu")  # the exact one: x/2 · (1 + erf(x/√2))
    dense = _dense(graph, weights, f"{prefix}output.dense", f"{prefix}gelu", _INTERMEDIATE, DIMENSIONS)
    graph.node("Add", [dense, attended], f"{prefix}residual")
    return _normalised(graph, weights, f"{prefix}output.LayerNorm.", f"{prefix}residual", output)


def _dense(graph: _Graph, weights: Weights, name: str, source: str, width_in: int, width_out: int) -> str:
    """x · Wᵀ + b; torch keeps W as (out, in)."""
    matrix = graph.weight(f"{name}.weight", tensor(weights, f"{name}.weight", width_out, width_in).T)
    bias = graph.weight(f"{name}.bias", tensor(weights, f"{name}.bias", width_out))
    graph.node("MatMul", [source, matrix], f"{name}/product")
    return graph.node("Add", [f"{name}/product", bias], name)


def _normalised(graph: _Graph, weights: Weights, prefix: str, source: str, output: str) -> str:
    gain = graph.weight(f"{prefix}weight", tensor(weights, f"{prefix}weight", DIMENSIONS))
    bias = graph.weight(f"{prefix}bias", tensor(weights, f"{prefix}bias", DIMENSIONS))
    return graph.node("LayerNormalization", [source, gain, bias], output, axis=-1, epsilon=_EPSILON)
