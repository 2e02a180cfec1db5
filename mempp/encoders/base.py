"""What an encoder is: text in, unit vectors out, under a name that says which vectors are comparable."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mempp.errors import EncoderError, InputError, quoted

Description = Mapping[str, str | int | bool | None]
"""The JSON-able facts from which `load_encoder` builds an encoder again."""

_NAME = re.compile(r"[a-z0-9._-]{1,100}")


@dataclass(frozen=True)
class EncoderIdentity:
    """Which vectors an encoder makes. Two encoders of one name give the same vectors, up to float noise.

    Attributes:
        name: safe as the name of a folder: 1 to 100 of `a-z 0-9 . _ -`, not starting with a dot.
        dimensions: the length of every vector.
        description: enough for `load_encoder` to build the encoder again; holds no secret.
    """

    name: str
    dimensions: int
    description: Description

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.startswith("."):
            raise InputError(
                f"encoder name {quoted(self.name)} cannot name a folder: use 1 to 100 of a-z 0-9 . _ - "
                "and do not start with a dot"
            )
        if isinstance(self.dimensions, bool) or not isinstance(self.dimensions, int) or self.dimensions < 1:
            raise InputError(f"an encoder has a whole number of dimensions above 0, not {quoted(self.dimensions)}")


class Encoder(Protocol):
    """Turns texts into unit vectors; safe to call from several threads.

    Building the object is cheap; heavy work (reading weights, starting a runtime) happens at the first encode, or in
    `load()` where an encoder has one: Memory calls it before it stores documents, so that what cannot be embedded
    is told before anything is written.
    """

    @property
    def identity(self) -> EncoderIdentity:
        """Which vectors this encoder makes."""
        ...

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns (n, dimensions) rows of length 1, in the order of `texts`; (0, dimensions) for no texts."""
        ...

    def encode_question(self, text: str) -> NDArray[np.float32]:
        """Returns one vector (dimensions,) of length 1."""
        ...


def checked_texts(texts: Sequence[str]) -> list[str]:
    """Returns the texts as a list.

    Raises:
        InputError: `texts` is one string, an item is no string, or an item holds a lone surrogate.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InputError(f"encode_documents takes a sequence of texts, not {quoted(texts)}: put a text in a list")
    checked = list(texts)
    for position, text in enumerate(checked):
        if not isinstance(text, str):
            raise InputError(f"text {position} is {quoted(text)}, a {type(text).__name__}; an encoder takes str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"text {position} holds a lone surrogate ({quoted(text[error.start])} at character {error.start}), "
                "which is no valid Unicode; decode the source with the right encoding"
            ) from None
    return checked


def unit_rows(vectors: NDArray[np.floating], *, of: str) -> NDArray[np.float32]:
    """Returns the rows scaled to Euclidean length 1, float32, shape (n, d) kept.

    Args:
        vectors: (n, d).
        of: what made them, for the message.

    Raises:
        EncoderError: a row is zero or not finite, so it has no direction.
    """
    # Lengths in float64: squares of large float32 components overflow, of small ones vanish.
    wide = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if bad.size:
        raise EncoderError(
            f"{of} gave a vector without a direction (length {lengths[bad[0]]}) for text {bad[0]} of {len(lengths)}; "
            "the model or the server behind it is faulty"
        )
    return np.asarray(wide / lengths[:, None], dtype=np.float32)
