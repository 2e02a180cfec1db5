"""Writing an ONNX graph node by node."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

FUSED = "com.microsoft"
"""The domain of the operators that onnxruntime adds to the standard ones."""


class GraphWriter:
    """Collects nodes and weights; every method returns the name of what it made."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._weights: dict[str, TensorProto] = {}

    def weight(self, name: str, values: NDArray[Any]) -> str:
        """Adds a tensor, once for a name."""
        from onnx import numpy_helper

        if name not in self._weights:
            self._weights[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def node(self, operator: str, inputs: list[str], output: str, *, domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output."""
        from onnx import helper

        name = f"{operator}/{output}"
        self._nodes.append(helper.make_node(operator, inputs, [output], name=name, domain=domain, **attributes))
        return output

    def serialised(
        self,
        name: str,
        *,
        inputs: dict[str, tuple[int, list[str | int]]],
        outputs: dict[str, tuple[int, list[str | int]]],
    ) -> bytes:
        """Returns the model's bytes.

        Args:
            name: of the graph.
            inputs: type (of `onnx.TensorProto`) and shape by name.
            outputs: likewise.
        """
        from onnx import helper

        into, out = (
            [helper.make_tensor_value_info(end, kind, shape) for end, (kind, shape) in given.items()]
            for given in (inputs, outputs)
        )
        graph = helper.make_graph(self._nodes, name, into, out, list(self._weights.values()))
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(FUSED, 1)],
            ir_version=9,
            producer_name="mempp",
        )
        content: bytes = model.SerializeToString()
        return content
