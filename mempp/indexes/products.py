"""Matrix products by onnxruntime: of bytes, where NumPy is slow, and of floats, in the thread that calls.

Not by NumPy's BLAS: its threads go on spinning after a product and hold up whoever runs next. Sessions run in the
thread that calls them, so that there are no threads that a forked process would miss.
"""

import base64
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What onnx writes for one product, left (n, d) by right (d, m): kept here, since importing onnx takes longer than all
# that is done with them. tests/test_codes.py holds them against onnx.
_MODELS = {
    "MatMul": (
        "CAg6egoeCgRsZWZ0CgVyaWdodBIHcHJvZHVjdCIGTWF0TXVsEgZNYXRNdWxaGAoEbGVmdBIQCg4IARIKCgMSAW4KAxIBZFoZCgVyaWdodBIQCg4I"
        "ARIKCgMSAWQKAxIBbWIbCgdwcm9kdWN0EhAKDggBEgoKAxIBbgoDEgFtQgQKABAN"
    ),
    "MatMulInteger": (
        "CAg6iAEKJQoEbGVmdAoFcmlnaHQSB3Byb2R1Y3QiDU1hdE11bEludGVnZXISDU1hdE11bEludGVnZXJaGAoEbGVmdBIQCg4IAhIKCgMSAW4KAxIB"
        "ZFoZCgVyaWdodBIQCg4IAxIKCgMSAWQKAxIBbWIbCgdwcm9kdWN0EhAKDggGEgoKAxIBbgoDEgFtQgQKABAN"
    ),
}

_logger = logging.getLogger("mempp.indexes")


class ProductError(RuntimeError):
    """onnxruntime did not multiply. Never leaves the indexes: the vectors are scanned in full then."""


def byte_product(vectors: NDArray[np.uint8], digits: NDArray[np.int8]) -> NDArray[np.int32]:
    """(n, d) unsigned by (d, m) signed bytes → (n, m) whole numbers.

    The sum of two products must fit 16 bits on processors without VNNI.

    Raises:
        ProductError: onnxruntime failed.
    """
    return _run(_session("MatMulInteger"), vectors, digits)


def float_product(vectors: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, d) by (d, m) → (n, m), in float32.

    Raises:
        ProductError: onnxruntime failed.
    """
    return _run(_session("MatMul"), vectors, matrix)


@cache
def products_work() -> bool:
    """Whether onnxruntime is there and multiplies bytes exactly; told once in the log where not."""
    values = np.array([[255] * 64, [1] * 64], np.uint8)
    digits = np.array([[63, -63]] * 64, np.int8)
    try:
        right = np.array_equal(byte_product(values, digits), values.astype(np.int32) @ digits.astype(np.int32))
    except Exception as error:
        _logger.warning("onnxruntime does not multiply bytes (%s); vectors are scanned in full", error)
        return False
    if not right:
        _logger.warning("onnxruntime multiplies bytes wrongly on this processor; vectors are scanned in full")
    return right


@cache
def _session(operator: str) -> Callable[[Any, Any], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model_of(operator), options, providers=["CPUExecutionProvider"])
    return lambda left, right: session.run(None, {"left": left, "right": right})[0]


def model_of(operator: str) -> bytes:
    """The ONNX model of one product, MatMul or MatMulInteger."""
    return base64.b64decode(_MODELS[operator])


def _run(session: Callable[[Any, Any], Any], left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    try:
        product: NDArray[Any] = session(left, right)
    except MemoryError:
        raise
    except Exception as error:
        raise ProductError(f"{type(error).__name__}: {str(error)[:300]}") from error
    return product
