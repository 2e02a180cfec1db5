"""all-MiniLM-L6-v2 as an ONNX graph, built from the original weights.

The graph is BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) with six layers, followed by the mean over the
pieces and scaling to length 1. It takes texts of one length without padding, so it has no mask, and a text's vector
does not depend on the texts beside it.

Which operators (docs/performance-encoder.md has the figures): attention is onnxruntime's fused MultiHeadAttention;
LayerNormalization is the standard one after two additions, since the fused SkipLayerNormalization takes six times as
long; dense layers are Gemm in float32 and products of 8-bit integers (`eight_bits`) in int8.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.eight_bits import EightBitProducts
from mempp.encoders.graph_writer import FUSED, GraphWriter
from mempp.errors import EncoderUnavailableError

GRAPH_VERSION = 2
"""Part of the cached file's name; raise it whenever the graph changes. Other vectors need another identity as well."""

Precision = Literal["float32", "int8"]

MAX_PIECES = 256
DIMENSIONS = 384
LAYERS = 6
HEADS = 12
INTERMEDIATE = 1536
VOCABULARY = 30522
EPSILON = 1e-12

CONFIG: Mapping[str, str | int | float] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": DIMENSIONS,
    "intermediate_size": INTERMEDIATE,
    "layer_norm_eps": EPSILON,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "position_embedding_type": "absolute",
    "vocab_size": VOCABULARY,
}
"""What a model's config.json must say for this graph to be its graph."""

Weights = Mapping[str, NDArray[np.float32]]
_Dense = Callable[[str, str, NDArray[np.float32], NDArray[np.float32], bool], str]


def build_graph(weights: Weights, precision: Precision = "float32", *, saturating: bool = False) -> bytes:
    """Returns the serialised graph.

    Input `input_ids`, int32, (rows, pieces), every row a text of exactly so many pieces, at most 256; output
    `sentence_embedding`, float32, (rows, 384), unit rows.

    Args:
        weights: the tensors of `model.safetensors` by name.
        precision: "float32", or "int8": dense layers in 8 bits, word embeddings in float16, all else in float32.
        saturating: for int8, whether the processor needs the weights stored unsigned (see `eight_bits.saturates`).

    Raises:
        EncoderUnavailableError: a tensor is missing or has another shape.
    """
    from onnx import TensorProto

    graph = GraphWriter()
    hidden = _embeddings(graph, weights, precision)
    # Dense layers see pieces only, (rows · pieces, width); attention sees texts, (rows, pieces, 384).
    graph.weight("as_pieces", np.array([-1, DIMENSIONS], np.int64))
    graph.weight("width", np.array([DIMENSIONS], np.int64))
    graph.node("Shape", ["input_ids"], "sizes")
    graph.node("Concat", ["sizes", "width"], "as_texts", axis=0)
    hidden = graph.node("Reshape", [hidden, "as_pieces"], "layer/pieces")
    dense = _float_dense(graph) if precision == "float32" else _eight_bit_dense(graph, saturating)
    for layer in range(LAYERS):
        hidden = _layer(graph, weights, f"encoder.layer.{layer}.", hidden, dense)
    # The mean's division by the count falls away: the length is scaled to 1 anyway.
    graph.node("Reshape", [hidden, "as_texts"], "last_hidden_state")
    graph.node(
        "ReduceSum", ["last_hidden_state", graph.weight("piece_axis", np.array([1], np.int64))], "sum", keepdims=0
    )
    graph.node("LpNormalization", ["sum"], "sentence_embedding", axis=-1, p=2)
    return graph.serialised(
        "all-MiniLM-L6-v2",
        inputs={"input_ids": (TensorProto.INT32, ["rows", "pieces"])},
        outputs={"sentence_embedding": (TensorProto.FLOAT, ["rows", DIMENSIONS])},
    )


def tensor(weights: Weights, name: str, *shape: int) -> NDArray[np.float32]:
    """Returns a tensor of the weights.

    Raises:
        EncoderUnavailableError: it is missing or has another shape.
    """
    values = weights.get(name)
    if values is None or values.shape != shape or values.dtype != np.float32:
        found = "is missing" if values is None else f"is {values.dtype} {values.shape}"
        raise EncoderUnavailableError(
            f"tensor {name} {found} where all-MiniLM-L6-v2 has float32 {shape}; these are not its weights"
        )
    return values


def _embeddings(graph: GraphWriter, weights: Weights, precision: Precision) -> str:
    """Word + position + segment embeddings, normalised. Every piece is of segment 0, so its row joins the positions."""
    words = tensor(weights, "embeddings.word_embeddings.weight", VOCABULARY, DIMENSIONS)
    positions = tensor(weights, "embeddings.position_embeddings.weight", 512, DIMENSIONS)[:MAX_PIECES]
    segment = tensor(weights, "embeddings.token_type_embeddings.weight", 2, DIMENSIONS)[0]
    if precision == "float32":
        graph.node("Gather", [graph.weight("words", words), "input_ids"], "words/used")
    else:
        # Half the memory, for a rounding far below that of the 8-bit products.
        graph.node("Gather", [graph.weight("words", words.astype(np.float16)), "input_ids"], "words/half")
        graph.node("Cast", ["words/half"], "words/used", to=1)
    graph.weight("first_axis", np.array([0], np.int64))
    graph.node("Shape", ["input_ids"], "pieces", start=1, end=2)
    graph.weight("positions", positions + segment)
    graph.node("Slice", ["positions", "first_axis", "pieces", "first_axis"], "positions/used")
    graph.node("Add", ["words/used", "positions/used"], "embedded")
    return _normalised(graph, weights, "embeddings.LayerNorm.", "embedded", "layer/input")


def _layer(graph: GraphWriter, weights: Weights, prefix: str, hidden: str, dense: _Dense) -> str:
    """One transformer layer: attention and a two-layer network, each with a residual and a normalisation after it."""

    def layer(name: str, source: str, width_in: int, width_out: int, *, after_gelu: bool = False) -> str:
        # torch keeps W as (out, in).
        matrix = tensor(weights, f"{prefix}{name}.weight", width_out, width_in).T
        bias = tensor(weights, f"{prefix}{name}.bias", width_out)
        return dense(prefix + name, source, matrix, bias, after_gelu)

    parts = []
    for part in ("query", "key", "value"):
        rows = layer(f"attention.self.{part}", hidden, DIMENSIONS, DIMENSIONS)
        parts.append(graph.node("Reshape", [rows, "as_texts"], f"{rows}/texts"))
    at = f"{prefix}attention"
    graph.node("MultiHeadAttention", parts, f"{at}/texts", domain=FUSED, num_heads=HEADS)
    graph.node("Reshape", [f"{at}/texts", "as_pieces"], f"{at}/pieces")
    out = layer("attention.output.dense", f"{at}/pieces", DIMENSIONS, DIMENSIONS)
    graph.node("Add", [out, hidden], f"{at}/residual")
    attended = _normalised(graph, weights, f"{prefix}attention.output.LayerNorm.", f"{at}/residual", f"{at}/output")
    wide = layer("intermediate.dense", attended, DIMENSIONS, INTERMEDIATE)
    graph.node("Gelu", [wide], f"{prefix}gelu")  # the exact one: x/2 · (1 + erf(x/√2))
    out = layer("output.dense", f"{prefix}gelu", INTERMEDIATE, DIMENSIONS, after_gelu=True)
    graph.node("Add", [out, attended], f"{prefix}residual")
    return _normalised(graph, weights, f"{prefix}output.LayerNorm.", f"{prefix}residual", f"{prefix}out")


def _normalised(graph: GraphWriter, weights: Weights, prefix: str, source: str, output: str) -> str:
    gain = graph.weight(f"{prefix}weight", tensor(weights, f"{prefix}weight", DIMENSIONS))
    bias = graph.weight(f"{prefix}bias", tensor(weights, f"{prefix}bias", DIMENSIONS))
    return graph.node("LayerNormalization", [source, gain, bias], output, axis=-1, epsilon=EPSILON)


def _float_dense(graph: GraphWriter) -> _Dense:
    def dense(name: str, source: str, matrix: NDArray[np.float32], bias: NDArray[np.float32], after_gelu: bool) -> str:
        inputs = [source, graph.weight(f"{name}.weight", matrix), graph.weight(f"{name}.bias", bias)]
        return graph.node("Gemm", inputs, name)

    return dense


def _eight_bit_dense(graph: GraphWriter, saturating: bool) -> _Dense:
    graph.node("Size", ["input_ids"], "count")
    graph.node("Unsqueeze", ["count", "first_axis"], "count/rows")
    products = EightBitProducts(graph, "count/rows", saturating=saturating)

    def dense(name: str, source: str, matrix: NDArray[np.float32], bias: NDArray[np.float32], after_gelu: bool) -> str:
        return products.dense(name, source, matrix, bias, after_gelu=after_gelu)

    return dense
