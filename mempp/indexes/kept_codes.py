"""What of an index's vectors is worth keeping between processes: the codes of the first ones, and the longest of these.

Both follow from the vectors alone, and so they are kept under the SHA-256 of these.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mempp.errors import InputError
from mempp.indexes.codes import Codes, Plane
from mempp.indexes.held import Held
from mempp.indexes.turning import Turn

CODES_VERSION = "codes 1: bytes from -127, turned, head and tail"
"""What codes mean, and what their bounds promise: a change to `codes` or `turning` that touches either needs another.
Whoever keeps codes keeps it with them, and drops them when it differs."""

_FACTS = ("scales", "errors", "lengths")
_MOST = ("most_error", "most_length", "most_tail")


@dataclass(frozen=True, slots=True, eq=False)
class KeptCodes:
    """What is known of n vectors without looking at them."""

    codes: Codes
    largest_norm: float
    """At least the length of each."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The codes as flat arrays, for somebody to keep, with `facts`."""
        codes = self.codes
        arrays: dict[str, NDArray[Any]] = {} if codes.turn is None else {"turn": codes.turn.matrix}
        for name, plane in zip(("head", "tail"), codes.planes, strict=False):
            arrays[f"{name}.values"] = plane.values.part(0, len(plane))
            arrays |= {f"{name}.{fact}": getattr(plane, fact) for fact in _FACTS}
        return arrays

    def facts(self) -> dict[str, float]:
        """The numbers that are no arrays; JSON takes them, and gives them back to the last bit."""
        codes = self.codes
        facts = {"largest_norm": self.largest_norm, **dict(zip(_MOST, codes.most, strict=True))}
        if codes.turn is not None:
            facts |= {"turn_head": codes.turn.head, "turn_error": codes.turn.error}
        return facts

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> "KeptCodes":
        """What `arrays` and `facts` gave; nothing is copied.

        Raises:
            InputError: they do not fit together.
        """
        try:
            head, tail, turn = _plane(arrays, "head"), None, None
            if "turn" in arrays:
                tail = _plane(arrays, "tail")
                turn = Turn(_typed(arrays["turn"], np.float32, 2), int(facts["turn_head"]), float(facts["turn_error"]))
            error, length, of_tail = (float(facts[name]) for name in _MOST)
            codes = Codes(head, tail, turn, (error, length, of_tail))
            norm = float(facts["largest_norm"])
            dimensions = codes.shape[1]
            if tail is not None and turn is not None:
                heads = head.values.shape[1]
                if turn.head != heads or turn.matrix.shape != (dimensions, dimensions) or len(tail) != len(head):
                    raise ValueError("head, tail and turn are of different sizes")
            if not all(map(math.isfinite, (*codes.most, norm, 0.0 if turn is None else turn.error))):
                raise ValueError("a bound is not finite")
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise InputError(f"These arrays are no codes ({error!r}); make them of the vectors.") from error
        return KeptCodes(codes, norm)


class CodeKeeper(Protocol):
    """Keeps codes between processes. Called by the thread that adds; must not raise."""

    def load(self, digest: str) -> KeptCodes | None:
        """What was kept of vectors with this SHA-256, if anything."""
        ...

    def keep(self, digest: str, codes: KeptCodes) -> None:
        """Keep these, in place of those there are."""
        ...


def _plane(arrays: Mapping[str, NDArray[Any]], name: str) -> Plane:
    values = _typed(arrays[f"{name}.values"], np.uint8, 2)
    scales, errors, lengths = (_typed(arrays[f"{name}.{fact}"], np.float32, 1) for fact in _FACTS)
    if not len(values) == len(scales) == len(errors) == len(lengths):
        raise ValueError(f"the arrays of the {name} are of different lengths")
    return Plane(Held(values[:0], values), scales, errors, lengths)


def _typed(array: NDArray[Any], dtype: type[np.generic], axes: int) -> NDArray[Any]:
    if array.dtype != dtype or array.ndim != axes:
        raise ValueError(f"an array is of {array.dtype} with {array.ndim} axes")
    return array
