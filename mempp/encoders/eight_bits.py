"""Matrix products in 8-bit integers that do not depend on what else is in the batch.

y = x · W + b with W in 8 bits by column and x in 8 bits by row, where a row is one piece of one text:

    W[:, j] ≈ c[j] · V[:, j],        V whole numbers in -127…127,   c[j] = max |W[:, j]| / 127
    x[i, :] ≈ r[i] · (u[i, :] - z),  u whole numbers in 0…255,      r[i] = max |x[i, :]| / 127, z = 128
    y[i, j] = r[i] · c[j] · Σ_k (u[i, k] - z) · V[k, j] + b[j]

The sum is exact. onnxruntime's own dynamic quantisation takes one r for the whole tensor, so that a text's vector
depends on the texts beside it, and loses three times as much: one large piece coarsens all others.

Processors without instructions for it (x86 before VNNI) add two products u·V in 16 bits, which overflows in silence.
`saturates` finds that out by trying. There V + 128 is stored, with 128 as its zero: onnxruntime multiplies two unsigned
operands exactly, more slowly, and the whole numbers are the same.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.cache import cached
from mempp.encoders.graph_writer import FUSED, GraphWriter

_MIDDLE = 128
# The exact gelu is never below -0.17: of a row behind it all but 16 of the 256 numbers can serve what is positive.
_GELU_LEAST = 0.17
_GELU_ZERO = 16
_PROBE_WIDTH = 64


class EightBitProducts:
    """Writes products of one graph; the rows of a source that several products read are quantised once."""

    def __init__(self, graph: GraphWriter, pieces: str, *, saturating: bool) -> None:
        """Begins.

        Args:
            graph: where to write.
            pieces: the tensor, shape (1,), that holds how many rows x has.
            saturating: whether the weights are stored with 128 added, for processors that need it.
        """
        self._graph = graph
        self._saturating = saturating
        self._quantised: dict[str, tuple[str, str, str]] = {}
        graph.weight("one", np.array(1, np.float32))
        graph.weight("last_axis", np.array([-1], np.int64))
        graph.weight("127th", np.array(1 / 127, np.float32))
        graph.weight("gelu/step", np.array(1 / (255 - _GELU_ZERO), np.float32))
        graph.weight("gelu/least", np.array(_GELU_LEAST / _GELU_ZERO, np.float32))
        for name, zero in (("middle", _MIDDLE), ("gelu/zero", _GELU_ZERO)):
            graph.weight(name, np.array(zero, np.uint8))
            graph.weight(f"{name}/one", np.array([zero], np.uint8))
            graph.node("Expand", [f"{name}/one", pieces], f"{name}/rows")

    def dense(
        self, name: str, source: str, matrix: NDArray[np.float32], bias: NDArray[np.float32], *, after_gelu: bool
    ) -> str:
        """Adds x · W + b and returns its name.

        Args:
            name: of the output, and the start of the names of what it takes.
            source: x, (rows, in), no row all 0.
            matrix: W, (in, out).
            bias: b, (out,).
            after_gelu: x is what a gelu gave, so hardly below 0.
        """
        graph = self._graph
        numbers, by_row, zero = self._rows(source, after_gelu=after_gelu)
        columns, by_column = quantised_columns(matrix)
        inputs = [numbers, "", "one", graph.weight(f"{name}.columns", by_column), zero]
        if self._saturating:
            inputs[1] = graph.weight(f"{name}.weight", (columns.astype(np.int16) + _MIDDLE).astype(np.uint8))
            inputs.append("middle")
        else:
            inputs[1] = graph.weight(f"{name}.weight", columns)
        graph.node("MatMulIntegerToFloat", inputs, f"{name}/product", domain=FUSED)
        graph.node("Mul", [f"{name}/product", by_row], f"{name}/scaled")
        return graph.node("Add", [f"{name}/scaled", graph.weight(f"{name}.bias", bias)], name)

    def _rows(self, source: str, *, after_gelu: bool) -> tuple[str, str, str]:
        """Returns u, r as a column, and z."""
        if source in self._quantised:
            return self._quantised[source]
        graph, zero = self._graph, "gelu/zero" if after_gelu else "middle"
        if after_gelu:
            graph.node("ReduceMax", [source, "last_axis"], f"{source}/largest", keepdims=0)
            graph.node("Mul", [f"{source}/largest", "gelu/step"], f"{source}/step")
            graph.node("Max", [f"{source}/step", "gelu/least"], f"{source}/by_row")
        else:
            graph.node("Abs", [source], f"{source}/sizes")
            graph.node("ReduceMax", [f"{source}/sizes", "last_axis"], f"{source}/largest", keepdims=0)
            graph.node("Mul", [f"{source}/largest", "127th"], f"{source}/by_row")
        graph.node("Unsqueeze", [f"{source}/by_row", "last_axis"], f"{source}/column")
        graph.node("QuantizeLinear", [source, f"{source}/by_row", f"{zero}/rows"], f"{source}/numbers", axis=0)
        self._quantised[source] = (f"{source}/numbers", f"{source}/column", zero)
        return self._quantised[source]


def quantised_columns(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Returns V and c of the module's docstring: whole numbers in -127…127, shape of `matrix`, and a scale per column.

    A column of zeros has the scale 1.
    """
    largest = np.abs(matrix).max(axis=0)
    scale = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
    return np.clip(np.rint(matrix / scale), -127, 127).astype(np.int8), scale


@functools.cache
def saturates() -> bool:
    """Whether this processor adds 8-bit products of signed weights wrongly where they are large.

    255 · 127 · 64 is asked for, by the kernel that the encoder would use. Takes some milliseconds.
    """
    import onnxruntime

    # Cached, since writing it anew would load the package onnx, which takes longer than all else of starting int8.
    session = onnxruntime.InferenceSession(
        cached(f"eight-bit-probe-{_PROBE_WIDTH}.onnx", _probe), providers=["CPUExecutionProvider"]
    )
    (sums,) = session.run(["sums"], {"numbers": np.full((8, _PROBE_WIDTH), 255, np.uint8)})
    return bool((np.asarray(sums) != 255 * 127 * _PROBE_WIDTH).any())


def _probe() -> bytes:
    from onnx import TensorProto

    graph = GraphWriter()
    graph.weight("weights", np.full((_PROBE_WIDTH, _PROBE_WIDTH), 127, np.int8))
    graph.node("MatMulInteger", ["numbers", "weights"], "sums")
    return graph.serialised(
        "probe",
        inputs={"numbers": (TensorProto.UINT8, ["rows", _PROBE_WIDTH])},
        outputs={"sums": (TensorProto.INT32, ["rows", _PROBE_WIDTH])},
    )
