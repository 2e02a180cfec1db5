"""An encoder that may be the caller's own, called so that only Mem++ errors and usable vectors come out."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.encoders import Encoder, EncoderIdentity
from mempp.errors import EncoderError, InputError, MemppError, quoted

_LENGTH_TOLERANCE = 0.01  # what half precision may cost


def identity_of(encoder: Encoder) -> EncoderIdentity:
    """What an encoder says it is.

    Raises:
        EncoderError: it does not tell.
        InputError: it tells something else than an EncoderIdentity.
    """
    try:
        identity = encoder.identity
    except MemppError:
        raise
    except Exception as error:
        raise EncoderError(f"the encoder does not tell its identity: {type(error).__name__}: {error}") from error
    if not isinstance(identity, EncoderIdentity):
        raise InputError(f"the identity of an encoder must be a mempp.EncoderIdentity, got {quoted(identity)}")
    return identity


def load(encoder: Encoder, name: str) -> None:
    """Load the weights of an encoder that has a method for it; errors as `encode`, and EncoderUnavailableError."""
    method = getattr(encoder, "load", None)
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
    return _checked(_run(lambda: encoder.encode_documents(texts), name), len(texts), name, dimensions)


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
    except MemppError:
        raise
    except Exception as error:
        raise EncoderError(f"the encoder {name!r} failed: {type(error).__name__}: {error}") from error


def _checked(given: Any, count: int, name: str, dimensions: int | None) -> NDArray[np.float32]:
    try:
        vectors = np.asarray(given)
        if vectors.dtype.kind not in "fiu":
            raise TypeError(f"its numbers are of type {vectors.dtype}")
        vectors = vectors.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise EncoderError(f"the encoder {name!r} gave no array of vectors: {error}") from None
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
