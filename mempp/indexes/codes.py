"""Vectors in one byte a number, to find who can be among the nearest at a fraction of the time that a scan takes.

A vector v is kept as whole numbers c from -127 to 127 and one scale s, a question q as two such rows of digits:

    v = s · c + e        s = max |v| / 127
    q = t · (h + l / 126) + f        |h|, |l| ≤ 63,  t = max |q| / 63

so that a product is known but for

    |v · q - s · t · c · (h + l / 126)|  ≤  ‖e‖ · ‖q‖ + ‖s · c‖ · ‖f‖        (Cauchy and Schwarz)

About 0.007 for unit vectors of 384 dimensions. Whoever may be among the best within that bound is then looked at in
full, so that the answer is the exact one. onnxruntime multiplies the bytes (`products`); digits stay below 64 because
the sum of two products must fit 16 bits on some processors.

Vectors may be turned first (`turning`), and then have two planes of codes: the head holds the dimensions with most of
their length, the tail the others. Of the tail only the codes of those are read who can be among the best by their head:

    |v_tail · q_tail|  ≤  ‖v_tail‖ · ‖q_tail‖
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.growable import GrowableArray
from mempp.indexes.parallel import side_by_side
from mempp.indexes.products import byte_product
from mempp.indexes.turning import Turn

BLOCK = 1 << 14
"""Vectors multiplied together: their products stay in the processor's cache."""

GATHERED_COST = 2
"""A vector read out of its place costs about as much as so many read in a row."""

_MIDDLE = 128  # a code is stored as c + 128
_ENCODED_TOGETHER = 1 << 9


@dataclass(frozen=True, slots=True)
class Plane:
    """The codes of some dimensions of the first views of an index; a consistent prefix, which no later view changes."""

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

    def part(self, start: int, end: int) -> "Plane":
        """The codes of some views that lie in a row."""
        return Plane(self.values[start:end], self.scales[start:end], self.errors[start:end], self.lengths[start:end])

    def at(self, chosen: NDArray[np.int64]) -> "Plane":
        """The codes of some views, copied."""
        return Plane(
            self.values.take(chosen, axis=0),
            self.scales.take(chosen),
            self.errors.take(chosen),
            self.lengths.take(chosen),
        )

    def products(
        self, question: NDArray[np.float32], inside: NDArray[np.bool_] | None, length: float | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """About the inner products of the question with each vector, and how far they may be off.

        Args:
            question: (dimensions,).
            inside: (n,) which are asked for; None for all. Where they are few in a block only they are read.
            length: what `errors` are multiplied with, at least ‖q‖; None for ‖q‖.

        Returns:
            (n,) products, -inf where not asked for; (n,) bounds, finite, and of no meaning there.

        Raises:
            ProductError: onnxruntime failed.
        """
        digits, step, rest = _digits(question)
        own_length = float(np.linalg.norm(question.astype(np.float64)))
        # What float32 rounds off here is below two millionths of the lengths; 1e-37 where it rounds to nothing.
        of_errors = np.float32((own_length if length is None else length) * (1 + 1e-6))
        of_lengths = np.float32((rest + 2e-6 * own_length) * (1 + 1e-6))
        high, low = np.float32(step), np.float32(step / 126)
        offset = np.float32(_MIDDLE * (digits.astype(np.float64).sum(axis=0) @ (step, step / 126)))
        products = np.full(len(self), -np.inf, np.float32)
        bounds = np.zeros(len(self), np.float32)

        def approximate(values: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
            # (n, 2) floats as (n,) pairs: NumPy reads one half of the pairs faster than one column.
            whole = byte_product(values, digits).astype(np.float32).view(np.complex64)[:, 0]
            found = whole.real * high
            found += whole.imag * low
            found -= offset
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
                products[start + chosen] = approximate(values.take(chosen, axis=0), scales.take(chosen))
            elif here is None or asked == len(scales):
                products[part] = approximate(values, scales)
            else:
                np.copyto(products[part], approximate(values, scales), where=here)
            bound = bounds[part]
            np.multiply(self.errors[part], of_errors, out=bound)
            bound += self.lengths[part] * of_lengths
            bound += np.float32(1e-37)

        starts = range(0, len(self), BLOCK)
        side_by_side(block, starts, len(starts) // 2)
        return products, bounds


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of the first views of an index, in one plane or, turned, in two."""

    head: Plane
    tail: Plane | None
    turn: Turn | None

    def __len__(self) -> int:
        return len(self.head)

    def turned(self, question: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The question as the codes are: its head and its tail, which is empty without a tail."""
        if self.turn is None:
            return question, question[:0]
        turned = self.turn.of_question(question)
        return turned[: self.turn.head], turned[self.turn.head :]

    def head_products(
        self, question: NDArray[np.float32], inside: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Products of the heads and how far they may be off, as `Plane.products` gives them.

        What turning has rounded is in their bounds.
        """
        length = float(np.linalg.norm(question.astype(np.float64)))
        return self.head.products(self.turned(question)[0], inside, length)


def vectors_read(inside: NDArray[np.bool_]) -> float:
    """How many vectors, in a row, cost as much to multiply as those asked for; see `Plane.products`."""
    read = 0.0
    for start in range(0, len(inside), BLOCK):
        here = inside[start : start + BLOCK]
        read += min(len(here), GATHERED_COST * int(np.count_nonzero(here)))
    return read


class CodeStore:
    """Codes that grow with the vectors of an index. One thread adds."""

    def __init__(self, dimensions: int, turn: Turn | None = None) -> None:
        """An empty store.

        Args:
            dimensions: of every vector.
            turn: how vectors are turned and where their head ends; None: not at all.
        """
        self._turn = turn
        head = dimensions if turn is None else turn.head
        self._planes = [_GrowingPlane(head)] + ([] if turn is None else [_GrowingPlane(dimensions - head)])

    def __len__(self) -> int:
        """Number of vectors."""
        return len(self._planes[-1])

    def reserve(self, needed: int) -> None:
        """Make room for so many vectors in all."""
        for plane in self._planes:
            plane.reserve(needed)

    def extend(self, vectors: NDArray[np.float32]) -> None:
        """Add vectors, shape (n, dimensions).

        Raises:
            ProductError: onnxruntime failed. Nothing has been added then.
        """
        starts = range(0, len(vectors), _ENCODED_TOGETHER)
        made: list[list[_Encoded]] = [[] for _ in starts]

        def encode(number: int) -> None:
            block = vectors[starts[number] : starts[number] + _ENCODED_TOGETHER]
            if self._turn is None:
                made[number] = [_encoded(block)]
                return
            turned, error = self._turn.of_vectors(block)
            head = _encoded(np.ascontiguousarray(turned[:, : self._turn.head]))
            head[1][:, 1] += error
            made[number] = [head, _encoded(np.ascontiguousarray(turned[:, self._turn.head :]))]

        side_by_side(encode, range(len(starts)), len(starts) // 4)
        for planes in made:
            for plane, encoded in zip(self._planes, planes, strict=True):
                plane.extend(encoded)

    def snapshot(self) -> Codes:
        """What there is now."""
        size = len(self)
        head, *tail = [plane.snapshot(size) for plane in self._planes]
        return Codes(head, tail[0] if tail else None, self._turn)


_Encoded = tuple[NDArray[np.uint8], NDArray[np.float32]]


class _GrowingPlane:
    def __init__(self, dimensions: int) -> None:
        self._values: GrowableArray[np.uint8] = GrowableArray(np.uint8, dimensions)
        self._facts: GrowableArray[np.float32] = GrowableArray(np.float32, 3)  # scale, error, length

    def __len__(self) -> int:
        return len(self._facts)

    def reserve(self, needed: int) -> None:
        self._values.reserve(needed)
        self._facts.reserve(needed)

    def extend(self, encoded: _Encoded) -> None:
        values, facts = encoded
        self._values.extend(values)
        self._facts.extend(facts)

    def snapshot(self, size: int) -> Plane:
        facts = self._facts.values[:size]
        return Plane(self._values.values[:size], facts[:, 0], facts[:, 1], facts[:, 2])


def _encoded(vectors: NDArray[np.float32]) -> _Encoded:
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
