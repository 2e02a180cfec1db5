"""An encoder that may be the caller's own, called so that only Mem++ errors and usable vectors come out."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.encoders import Encoder, EncoderIdentity
from mempp.errors import EncoderError, InputError, MemppError, quoted

_LENGTH_TOLERANCE = 0.01  # what half precision may cost
_MESSAGE_CHARS = 300  # of an error of the encoder's, which may bring a whole page of a server along


def identity_of(encoder: Encoder) -> EncoderIdentity:
    """What an encoder says it is.

    Raises:
        EncoderError: it does not tell.
        InputError: it tells something else than an EncoderIdentity.
    """
    try:
        identity = encoder.identity
    except (MemppError, MemoryError):
        raise
    except Exception as error:
        raise EncoderError(f"the encoder does not tell its identity: {_told(error)}") from error
    if not isinstance(identity, EncoderIdentity):
        raise InputError(f"the identity of an encoder must be a mempp.EncoderIdentity, got {quoted(identity)}")
    return identity


def load(encoder: Encoder, name: str) -> None:
    """Load the weights of an encoder that has a method for it; errors as `encode`, and EncoderUnavailableError."""
    method = _run(lambda: getattr(encoder, "load", None), name)
    if callable(method):
        _run(method, name)


def encode(encoder: Encoder, texts: list[str], name: str, dimensions: int | None) -> NDArray[np.float32]:
    """(n, dimensions) unit vectors of documents.

    Args:
        encoder: the encoder.
        texts: n texts.
        name: of the encoder, for messages.
        dimensions: what it is to give; None: whatever it gives.

    Raises:
        EncoderError: it failed, or gave no array of this shape, numbers that are not finite, or another length than 1.
    """
    # A list of its own: what it does with that is its own affair.
    return _checked(_run(lambda: encoder.encode_documents(list(texts)), name), len(texts), name, dimensions)


def encode_question(encoder: Encoder, question: str, name: str, dimensions: int | None) -> NDArray[np.float32]:
    """(dimensions,) unit vector of a question. Arguments and errors as of `encode`."""
    vector: NDArray[np.float32] = _checked(
        [_run(lambda: encoder.encode_question(question), name)], 1, name, dimensions
    )[0]
    return vector


def fault_of(vectors: NDArray[np.float32]) -> str | None:
    """What is wrong with vectors (n, dimensions): a number not finite, a length not 1 (0 is allowed: no direction).

    Returns:
        the end of a sentence that says what a vector is; None where nothing is wrong.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(lengths).all():
        return "that is not finite"
    wrong = lengths[(lengths > 0) & (np.abs(lengths - 1) > _LENGTH_TOLERANCE)]
    if len(wrong):
        return f"of length {wrong[0]:g}; cosines need unit vectors: divide each by its length"
    return None


def _run(call: Callable[[], Any], name: str) -> Any:
    try:
        return call()
    except (MemppError, MemoryError):
        raise
    except Exception as error:
        raise EncoderError(f"the encoder {name!r} failed: {_told(error)}") from error


def _checked(given: Any, count: int, name: str, dimensions: int | None) -> NDArray[np.float32]:
    try:
        vectors = np.asarray(given)
        if vectors.dtype.kind not in "fiu":
            raise TypeError(f"its numbers are of type {quoted(str(vectors.dtype))}")
        with np.errstate(over="ignore"):  # what becomes infinite is refused below
            vectors = vectors.astype(np.float32)
    except (MemppError, MemoryError):
        raise
    except Exception as error:  # of an __array__ of the caller's own, too
        raise EncoderError(f"the encoder {name!r} gave no array of vectors: {_told(error)}") from error
    if dimensions is None and vectors.ndim == 2:
        dimensions = vectors.shape[-1]
    if vectors.shape != (count, dimensions):
        raise EncoderError(
            f"the encoder {name!r} gave vectors of shape {vectors.shape}, expected {(count, dimensions)}"
        )
    fault = fault_of(vectors)
    if fault is not None:
        raise EncoderError(f"the encoder {name!r} gave a vector {fault}")
    return vectors


def _told(error: Exception) -> str:
    """What an exception says, cut to a sane length."""
    try:
        message = str(error)
    except Exception:
        message = "(it has no message that can be shown)"
    if len(message) > _MESSAGE_CHARS:
        message = message[: _MESSAGE_CHARS - 1] + "…"
    return f"{type(error).__name__}: {message}"
