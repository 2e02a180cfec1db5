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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.growable import GrowableArray
from mempp.indexes.held import Held, HeldVectors
from mempp.indexes.parallel import side_by_side
from mempp.indexes.products import byte_product
from mempp.indexes.turning import Turn

_Places: TypeAlias = slice | NDArray[np.int64]

BLOCK = 1 << 14
"""Vectors multiplied together: their products stay in the processor's cache."""

GATHERED_COST = 2
"""A vector read out of its place costs about as much as so many read in a row."""

_MIDDLE = 128  # a code is stored as c + 128
_ENCODED_TOGETHER = 1 << 9


@dataclass(frozen=True, slots=True)
class Plane:
    """The codes of some dimensions of the first views of an index; a consistent prefix, which no later view changes."""

    values: Held[np.uint8]
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
        values = self.values.part(start, end)
        return Plane(Held(values[:0], values), self.scales[start:end], self.errors[start:end], self.lengths[start:end])

    def asked(self, question: NDArray[np.float32]) -> "AskedPlane":
        """A question, (dimensions,), in digits."""
        digits, step, rest = _digits(question)
        return AskedPlane(digits, step, rest, float(np.linalg.norm(question.astype(np.float64))))

    def products(
        self,
        asked: "AskedPlane",
        chosen: NDArray[np.int64] | None,
        bounds: NDArray[np.float32] | None = None,
        length: float | None = None,
    ) -> NDArray[np.float32]:
        """About the inner products of a question with the chosen vectors, (m,).

        Args:
            asked: the question.
            chosen: (m,) their places, ascending; None for all. Where they lie far apart only they are read.
            bounds: (m,) what `bounds` gives is added to it on the way.
            length: as in `bounds`.

        Raises:
            ProductError: onnxruntime failed.
        """
        digits = asked.digits
        high, low = np.float32(asked.step), np.float32(asked.step / 126)
        offset = np.float32(_MIDDLE * (digits.astype(np.float64).sum(axis=0) @ (asked.step, asked.step / 126)))
        size = len(self) if chosen is None else len(chosen)
        products = np.empty(size, np.float32)

        def whole_numbers(here: NDArray[np.int64]) -> NDArray[np.int32]:
            first, end = int(here[0]), int(here[-1]) + 1
            if end - first > GATHERED_COST * len(here):
                return byte_product(self.values.take(here), digits)
            row = byte_product(self.values.part(first, end), digits)
            # Both numbers of a vector are taken as one.
            return row.view(np.int64)[:, 0].take(here - first).view(np.int32).reshape(-1, 2)

        def block(start: int) -> None:
            part = slice(start, min(start + BLOCK, size))
            if chosen is None:
                facts: _Places = part
                multiplied, scales = byte_product(self.values.part(start, part.stop), digits), self.scales[part]
            else:
                facts = chosen[part]
                multiplied, scales = whole_numbers(facts), self.scales.take(facts)
            # (n, 2) floats as (n,) pairs: NumPy reads one half of the pairs faster than one column.
            pairs = multiplied.astype(np.float32).view(np.complex64)[:, 0]
            found = np.multiply(pairs.real, high, out=products[part])
            found += pairs.imag * low
            found -= offset
            found *= scales
            if bounds is not None:
                bounds[part] += self.bounds(asked, length, facts)

        starts = range(0, size, BLOCK)
        side_by_side(block, starts, len(starts) // 2)
        return products

    def bounds(
        self, asked: "AskedPlane", length: float | None = None, chosen: "_Places" = slice(None)
    ) -> NDArray[np.float32]:
        """(m,) how far the products of a question may be off.

        Args:
            asked: the question.
            length: what `errors` are multiplied with, at least ‖q‖; None for ‖q‖.
            chosen: of which vectors; all, unless told.
        """
        of_errors, of_lengths = asked.factors(length)
        bounds = self.errors[chosen] * np.float32(of_errors)
        bounds += self.lengths[chosen] * np.float32(of_lengths)
        bounds += np.float32(1e-37)
        return bounds


@dataclass(frozen=True, slots=True)
class AskedPlane:
    """A question as a plane takes it."""

    digits: NDArray[np.int8]
    """(dimensions, 2) h and l."""
    step: float
    """t"""
    rest: float
    """‖f‖"""
    length: float
    """‖q‖"""

    def factors(self, length: float | None = None) -> tuple[float, float]:
        """What `errors` and `lengths` of vectors are multiplied with to bound how far products may be off."""
        # What float32 rounds off is below two millionths of the lengths; 1e-37 where it rounds to nothing.
        own = self.length if length is None else length
        return own * (1 + 1e-6), (self.rest + 2e-6 * self.length) * (1 + 1e-6)


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of the first views of an index, in one plane or, turned, in two."""

    head: Plane
    tail: Plane | None
    turn: Turn | None
    most: tuple[float, float, float]
    """No error and no length in the head is larger, nor the two of a tail together."""

    def __len__(self) -> int:
        return len(self.head)

    def up_to(self, end: int) -> "Codes":
        """Those of the first views; their bounds may be wider than they need be."""
        head, *tail = [
            Plane(plane.values.up_to(end), plane.scales[:end], plane.errors[:end], plane.lengths[:end])
            for plane in self.planes
        ]
        return Codes(head, tail[0] if tail else None, self.turn, self.most)

    @property
    def planes(self) -> tuple[Plane, ...]:
        """Head and tail, or the one there is."""
        return (self.head,) if self.tail is None else (self.head, self.tail)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, dimensions)"""
        return len(self), sum(plane.values.shape[1] for plane in self.planes)

    def turned(self, question: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The question as the codes are: its head and its tail, which is empty without a tail."""
        if self.turn is None:
            return question, question[:0]
        turned = self.turn.of_question(question)
        return turned[: self.turn.head], turned[self.turn.head :]


def vectors_read(size: int, chosen: int) -> int:
    """How many vectors, in a row, cost at least as much to multiply as so many chosen ones; see `Plane.products`."""
    return min(size, GATHERED_COST * chosen)


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
        self._most = [0.0, 0.0, 0.0]
        self._planes = [_GrowingPlane(head)] + ([] if turn is None else [_GrowingPlane(dimensions - head)])

    @staticmethod
    def beginning_with(codes: Codes) -> "CodeStore":
        """A store that holds these codes, to which more may be added. Many that are mapped are not copied."""
        store = CodeStore(codes.shape[1], codes.turn)
        for growing, plane in zip(store._planes, codes.planes, strict=True):
            growing.extend((plane.values.part(0, len(plane)), (plane.scales, plane.errors, plane.lengths)))
        store._most = list(codes.most)
        return store

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
            np.add(head[1][1], error, out=head[1][1])
            made[number] = [head, _encoded(np.ascontiguousarray(turned[:, self._turn.head :]))]

        side_by_side(encode, range(len(starts)), len(starts) // 4)
        for planes in made:
            (_, errors, lengths), *tails = [facts for _, facts in planes]
            reached = (errors, lengths, *(lengths + errors for _, errors, lengths in tails))
            for place, values in enumerate(reached):
                self._most[place] = max(self._most[place], float(values.max()))
            for plane, encoded in zip(self._planes, planes, strict=True):
                plane.extend(encoded)

    def snapshot(self) -> Codes:
        """What there is now."""
        size = len(self)
        head, *tail = [plane.snapshot(size) for plane in self._planes]
        return Codes(head, tail[0] if tail else None, self._turn, (self._most[0], self._most[1], self._most[2]))


_Encoded = tuple[NDArray[np.uint8], Sequence[NDArray[np.float32]]]
"""Codes, (n, dimensions); scales, errors and lengths, (n,) each."""


class _GrowingPlane:
    def __init__(self, dimensions: int) -> None:
        self._values: HeldVectors[np.uint8] = HeldVectors(dimensions, np.uint8)
        # Scale, error and length each in a row: they are read from end to end.
        self._facts: tuple[GrowableArray[np.float32], ...] = tuple(GrowableArray(np.float32) for _ in range(3))

    def __len__(self) -> int:
        return len(self._facts[-1])

    def reserve(self, needed: int) -> None:
        self._values.reserve(needed)
        for array in self._facts:
            array.reserve(needed)

    def extend(self, encoded: _Encoded) -> None:
        values, facts = encoded
        self._values.extend(values)
        for array, fact in zip(self._facts, facts, strict=True):
            array.extend(fact)

    def snapshot(self, size: int) -> Plane:
        scales, errors, lengths = (array.values[:size] for array in self._facts)
        return Plane(self._values.values.up_to(size), scales, errors, lengths)


def _encoded(vectors: NDArray[np.float32]) -> _Encoded:
    """Codes of vectors; and scale, bound of the error and of the length of each."""
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
    return values, (scales, errors, lengths * np.float32(1.001))


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
