"""all-MiniLM-L6-v2 as an ONNX graph, built from the original weights.

The graph is BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) with six layers, followed by the mean over the
attention mask and scaling to length 1. Standard operators only: onnxruntime fuses them when it loads the graph, and in
measurements that was as fast as writing its own fused operators (com.microsoft Attention, SkipLayerNormalization,
BiasGelu) into the graph, and faster on short texts.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mempp.errors import EncoderUnavailableError

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

GRAPH_VERSION = 1
"""Part of the cached file's name; raise it whenever the graph changes."""

MAX_PIECES = 256
DIMENSIONS = 384
_LAYERS = 6
_HEADS = 12
_HEAD_SIZE = DIMENSIONS // _HEADS
_INTERMEDIATE = 1536
_VOCABULARY = 30522
_EPSILON = 1e-12

CONFIG: Mapping[str, str | int | float] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": DIMENSIONS,
    "intermediate_size": _INTERMEDIATE,
    "layer_norm_eps": _EPSILON,
    "num_attention_heads": _HEADS,
    "num_hidden_layers": _LAYERS,
    "position_embedding_type": "absolute",
    "vocab_size": _VOCABULARY,
}
"""What a model's config.json must say for this graph to be its graph."""


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


def build_graph(weights: Mapping[str, NDArray[np.float32]]) -> bytes:
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


def _tensor(weights: Mapping[str, NDArray[np.float32]], name: str, *shape: int) -> NDArray[np.float32]:
    values = weights.get(name)
    if values is None or values.shape != shape or values.dtype != np.float32:
        found = "is missing" if values is None else f"is {values.dtype} {values.shape}"
        raise EncoderUnavailableError(
            f"tensor {name} {found} where all-MiniLM-L6-v2 has float32 {shape}; these are not its weights"
        )
    return values


def _embeddings(graph: _Graph, weights: Mapping[str, NDArray[np.float32]]) -> str:
    """Word + position + segment embeddings, normalised. Every piece is of segment 0, so its row joins the positions."""
    words = _tensor(weights, "embeddings.word_embeddings.weight", _VOCABULARY, DIMENSIONS)
    positions = _tensor(weights, "embeddings.position_embeddings.weight", 512, DIMENSIONS)[:MAX_PIECES]
    segment = _tensor(weights, "embeddings.token_type_embeddings.weight", 2, DIMENSIONS)[0]
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


def _layer(graph: _Graph, weights: Mapping[str, NDArray[np.float32]], prefix: str, hidden: str, output: str) -> str:
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


def _dense(
    graph: _Graph, weights: Mapping[str, NDArray[np.float32]], name: str, source: str, width_in: int, width_out: int
) -> str:
    """x · Wᵀ + b; torch keeps W as (out, in)."""
    matrix = graph.weight(f"{name}.weight", _tensor(weights, f"{name}.weight", width_out, width_in).T)
    bias = graph.weight(f"{name}.bias", _tensor(weights, f"{name}.bias", width_out))
    graph.node("MatMul", [source, matrix], f"{name}/product")
    return graph.node("Add", [f"{name}/product", bias], name)


def _normalised(
    graph: _Graph, weights: Mapping[str, NDArray[np.float32]], prefix: str, source: str, output: str
) -> str:
    gain = graph.weight(f"{prefix}weight", _tensor(weights, f"{prefix}weight", DIMENSIONS))
    bias = graph.weight(f"{prefix}bias", _tensor(weights, f"{prefix}bias", DIMENSIONS))
    return graph.node("LayerNormalization", [source, gain, bias], output, axis=-1, epsilon=_EPSILON)
