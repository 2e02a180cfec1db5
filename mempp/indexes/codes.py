"""Vectors in one byte a number, to find who can be among the nearest at a third of the time that a scan takes.

A vector v is kept as whole numbers c from -127 to 127 and one scale s, a question q as two such rows of digits:

    v = s · c + e        s = max |v| / 127
    q = t · (h + l / 126) + f        |h|, |l| ≤ 63,  t = max |q| / 63

so that a product is known but for

    |v · q - s · t · c · (h + l / 126)|  ≤  ‖e‖ · ‖q‖ + ‖s · c‖ · ‖f‖        (Cauchy and Schwarz)

About 0.007 for unit vectors of 384 dimensions. Whoever may be among the best within that bound is then looked at in
full, so that the answer is the exact one. onnxruntime multiplies bytes where NumPy cannot (MatMulInteger: unsigned by
signed; the sum of two products must fit 16 bits on processors without VNNI, hence 63 and not 127).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.growable import GrowableArray
from mempp.indexes.parallel import side_by_side

BLOCK = 1 << 14
"""Vectors multiplied together: their products stay in the processor's cache."""

GATHERED_COST = 2
"""A vector read out of its place costs about as much as so many read in a row."""

_MIDDLE = 128  # a code is stored as c + 128
_ENCODED_TOGETHER = 1 << 9

_logger = logging.getLogger("mempp.indexes")


class ProductError(RuntimeError):
    """onnxruntime did not multiply. Never leaves the indexes: the vectors are scanned in full then."""


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of the first views of an index; a consistent prefix, which later ones do not change."""

    values: NDArray[np.uint8]
    """(n, dimensions) c + 128."""
    scales: NDArray[np.float32]
    """(n,) s."""
    errors: NDArray[np.float32]
    """(n,) at least ‖e‖."""
    lengths: NDArray[np.float32]
    """(n,) at least ‖s · c‖."""

    def __len__(self) -> int:
        return len(self.scales)

    def part(self, start: int, end: int) -> "Codes":
        """The codes of some views that lie in a row."""
        return Codes(self.values[start:end], self.scales[start:end], self.errors[start:end], self.lengths[start:end])

    def products(
        self, question: NDArray[np.float32], inside: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """About the inner products of the question with each vector, and how far they may be off.

        Args:
            question: (dimensions,).
            inside: (n,) which are asked for; None for all. Where they are few in a block only they are read.

        Returns:
            (n,) products, -inf where not asked for; (n,) bounds, finite.

        Raises:
            ProductError: onnxruntime failed.
        """
        digits, step, rest = _digits(question)
        offset = _MIDDLE * digits.astype(np.int32).sum(axis=0, dtype=np.int32)
        products = np.full(len(self), -np.inf, np.float32)
        bounds = np.zeros(len(self), np.float32)
        length = float(np.linalg.norm(question.astype(np.float64)))
        run = _matrix_product()
        high, low = np.float32(step), np.float32(step / 126)

        def approximate(values: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
            whole = run(values, digits)
            whole -= offset
            found = whole[:, 0].astype(np.float32)
            found *= high
            found += whole[:, 1] * low
            found *= scales
            return found

        def block(start: int) -> None:
            part = slice(start, start + BLOCK)
            values, scales = self.values[part], self.scales[part]
            here = None if inside is None else inside[part]
            asked = len(scales) if here is None else int(np.count_nonzero(here))
            if not asked:
                return
            if here is not None and asked * GATHERED_COST < len(scales):
                chosen = np.flatnonzero(here)
                products[start + chosen] = approximate(values.take(chosen, axis=0), scales[chosen])
            elif here is None or asked == len(scales):
                products[part] = approximate(values, scales)
            else:
                np.copyto(products[part], approximate(values, scales), where=here)
            # What float32 rounds off here is below two millionths of the lengths; 1e-37 where it rounds to nothing.
            bounds[part] = self.errors[part] * np.float32(length)
            bounds[part] += self.lengths[part] * np.float32(rest + 2e-6 * length)
            bounds[part] += np.float32(1e-37)

        starts = range(0, len(self), BLOCK)
        side_by_side(block, starts, len(starts) // 2)
        return products, bounds


def vectors_read(inside: NDArray[np.bool_]) -> float:
    """How many vectors, in a row, cost as much to multiply as those asked for; see `Codes.products`."""
    read = 0.0
    for start in range(0, len(inside), BLOCK):
        here = inside[start : start + BLOCK]
        read += min(len(here), GATHERED_COST * int(np.count_nonzero(here)))
    return read


class CodeStore:
    """Codes that grow with the vectors of an index. One thread adds."""

    def __init__(self, dimensions: int) -> None:
        self._values: GrowableArray[np.uint8] = GrowableArray(np.uint8, dimensions)
        self._facts: GrowableArray[np.float32] = GrowableArray(np.float32, 3)  # scale, error, length

    def __len__(self) -> int:
        """Number of vectors."""
        return len(self._facts)

    def reserve(self, needed: int) -> None:
        """Make room for so many vectors in all."""
        self._values.reserve(needed)
        self._facts.reserve(needed)

    def extend(self, vectors: NDArray[np.float32]) -> None:
        """Add vectors, shape (n, dimensions)."""
        for start in range(0, len(vectors), _ENCODED_TOGETHER):
            values, facts = _encoded(vectors[start : start + _ENCODED_TOGETHER])
            self._values.extend(values)
            self._facts.extend(facts)

    def snapshot(self) -> Codes:
        """What there is now."""
        facts = self._facts.values
        return Codes(self._values.values[: len(facts)], facts[:, 0], facts[:, 1], facts[:, 2])


@cache
def codes_work() -> bool:
    """Whether onnxruntime is there and multiplies bytes exactly; told once in the log where not."""
    values = np.array([[255] * 64, [1] * 64], np.uint8)
    digits = np.array([[63, -63]] * 64, np.int8)
    try:
        right = np.array_equal(_matrix_product()(values, digits), values.astype(np.int32) @ digits.astype(np.int32))
    except Exception as error:
        _logger.warning("onnxruntime does not multiply bytes (%s); vectors are scanned in full", error)
        return False
    if not right:
        _logger.warning("onnxruntime multiplies bytes wrongly on this processor; vectors are scanned in full")
    return right


def _encoded(vectors: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Codes of vectors; and scale, bound of the error and of the length of each, shape (n, 3)."""
    scales = np.abs(vectors).max(axis=1) / np.float32(127)
    codes = vectors / np.where(scales > 0, scales, np.float32(1))[:, None]
    np.rint(codes, out=codes)
    np.clip(codes, -127, 127, out=codes)
    values = (codes + np.float32(_MIDDLE)).astype(np.uint8)
    codes *= scales[:, None]
    lengths = np.sqrt(np.einsum("ij,ij->i", codes, codes))
    codes -= vectors
    errors = np.sqrt(np.einsum("ij,ij->i", codes, codes))
    # In float32 each of these sums of squares is off by less than a thousandth, or by 1e-38 where numbers are tiny,
    # and each difference by 2^-23 of a length.
    errors = errors * np.float32(1.001) + lengths * np.float32(1e-6) + np.float32(1e-17)
    return values, np.stack((scales, errors, lengths * np.float32(1.001)), 1)


def _digits(question: NDArray[np.float32]) -> tuple[NDArray[np.int8], float, float]:
    """(dimensions, 2) digits h and l of a question, the step t, and ‖f‖."""
    wide = question.astype(np.float64)
    step = float(np.abs(wide).max()) / 63
    if not step:
        return np.zeros((len(question), 2), np.int8), 0.0, 0.0
    high = np.rint(wide / step)
    low = np.rint((wide / step - high) * 126)
    rest = float(np.linalg.norm(wide - step * (high + low / 126)))
    return np.stack((high, low), 1).astype(np.int8), step, rest


@cache
def _matrix_product() -> Callable[[NDArray[np.uint8], NDArray[np.int8]], NDArray[np.int32]]:
    """(n, d) unsigned by (d, 2) signed bytes → (n, 2) whole numbers, by a session of onnxruntime.

    It runs in the thread that calls it, so that there are no threads that a forked process would miss.
    """
    import onnxruntime
    from onnx import TensorProto, helper

    node = helper.make_node("MatMulInteger", ["vectors", "question"], ["products"])
    inputs = [
        helper.make_tensor_value_info("vectors", TensorProto.UINT8, ["n", "d"]),
        helper.make_tensor_value_info("question", TensorProto.INT8, ["d", 2]),
    ]
    output = helper.make_tensor_value_info("products", TensorProto.INT32, ["n", 2])
    graph = helper.make_graph([node], "products", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def product(vectors: NDArray[np.uint8], question: NDArray[np.int8]) -> NDArray[np.int32]:
        try:
            products: NDArray[np.int32] = session.run(None, {"vectors": vectors, "question": question})[0]
        except MemoryError:
            raise
        except Exception as error:
            raise ProductError(f"{type(error).__name__}: {str(error)[:300]}") from error
        return products

    return product
