"""Which rows hold which term, how often: an immutable base of flat arrays and a growing tail.

The base costs 8 bytes a posting and opens without work from arrays that somebody kept. New postings go to a tail, one
small array per term, which is merged into a new base when it has grown to half of the base.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from mempp.errors import InputError

_SMALLEST_MERGE = 1 << 20  # postings; below this a merge is not worth its time
_ROWS_TOGETHER = 64
_NO_POSTINGS = np.empty(0, np.uint32)


class _Numbers(dict[str, int]):
    """Term → number; a new term gets the next one when it is looked up by `[]`, though not by `get`."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


@dataclass(frozen=True, slots=True)
class _State:
    """What a reader takes hold of: base arrays that never change and the tail that grew on top of them."""

    offsets: NDArray[np.int64]  # (terms of the base + 1,): term t has postings offsets[t] to offsets[t + 1]
    rows: NDArray[np.uint32]  # ascending within a term
    counts: NDArray[np.uint32]
    tail: dict[int, "array[int]"]  # term → row, count, row, count, …


class Postings:
    """Postings of numbered terms. One writer, many readers without a lock.

    Rows must come in ascending order. A reader sees every row whose `add` had returned when it began, and possibly
    later ones; it cuts those off by row number.
    """

    def __init__(self) -> None:
        # Four-byte array items: "I" has four bytes wherever CPython runs today; row ids then reach 4.29 billion.
        self._numbers = _Numbers()
        self._state = _State(np.zeros(1, np.int64), _NO_POSTINGS, _NO_POSTINGS, {})
        self._in_tail = 0

    def __len__(self) -> int:
        """Number of postings."""
        return len(self._state.rows) + self._in_tail

    def __contains__(self, term: str) -> bool:
        return term in self._numbers

    def terms(self) -> list[str]:
        """All terms, in the order of their numbers."""
        return list(self._numbers)

    def add(self, row: int, counts: Mapping[str, int]) -> None:
        """Note that `row`, higher than every row before, holds each term so many times."""
        tail = self._state.tail
        for term, count in counts.items():
            number = self._numbers.setdefault(term, len(self._numbers))
            pair = array("I", (row, count))
            postings = tail.get(number)
            if postings is None:
                tail[number] = pair
            else:
                postings.extend(pair)  # one step under the interpreter's lock: a reader never copies half a pair
        self._in_tail += len(counts)
        if self._in_tail >= max(_SMALLEST_MERGE, len(self._state.rows) // 2):
            self.freeze()

    def add_rows(self, first_row: int, counts: Sequence[Mapping[str, int]]) -> None:
        """`add` for rows one after another; many together cost a third."""
        if len(counts) < _ROWS_TOGETHER:
            for row, of_row in enumerate(counts, start=first_row):
                self.add(row, of_row)
            return
        self._add_to_tail(first_row, *self._flat(counts))

    def add_alike(self, first_row: int, kinds: Sequence[Mapping[str, int]], kind_of: NDArray[np.int64]) -> None:
        """`add_rows` for rows of which many hold the same: each what `kinds` holds at its `kind_of`.

        Args:
            first_row: the first of the rows.
            kinds: in the order of the first rows that hold them.
            kind_of: for each row.
        """
        if len(kind_of) < _ROWS_TOGETHER:
            self.add_rows(first_row, [kinds[kind] for kind in kind_of.tolist()])
            return
        sizes, numbers, counts = self._flat(kinds)
        places = spread(np.cumsum(sizes) - sizes, sizes, kind_of)
        self._add_to_tail(first_row, sizes[kind_of], numbers[places], counts[places])

    def _flat(
        self, counts: Sequence[Mapping[str, int]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]:
        """How many terms each holds; their numbers and counts, one behind the other."""
        sizes = np.fromiter(map(len, counts), np.int64, len(counts))
        total = int(sizes.sum())
        numbers = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(counts)), np.int64, total)
        return sizes, numbers, np.fromiter(chain.from_iterable(each.values() for each in counts), np.uint32, total)

    def _add_to_tail(
        self, first_row: int, sizes: NDArray[np.int64], numbers: NDArray[np.int64], counts: NDArray[np.uint32]
    ) -> None:
        total = len(numbers)
        pairs = np.empty((total, 2), np.uint32)
        pairs[:, 0] = np.repeat(np.arange(first_row, first_row + len(sizes)), sizes)
        pairs[:, 1] = counts
        order = np.argsort(numbers, kind="stable")  # by term, and by row within a term
        numbers, data = numbers[order], pairs[order].tobytes()
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        tail = self._state.tail
        for start, end in pairwise([*starts, total]):
            number, piece = int(numbers[start]), data[8 * start : 8 * end]
            postings = tail.get(number)
            if postings is None:
                tail[number] = array("I", piece)
            else:
                postings.frombytes(piece)  # one step, as in `add`
        self._in_tail += total
        if self._in_tail >= max(_SMALLEST_MERGE, len(self._state.rows) // 2):
            self.freeze()

    def find(self, term: str, n_rows: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Rows below `n_rows` that hold the term, ascending, and how often; both empty for an unknown term."""
        state = self._state  # once: `freeze` puts another in its place
        number = self._numbers.get(term)
        if number is None:
            return _NO_POSTINGS, _NO_POSTINGS
        rows, counts = _NO_POSTINGS, _NO_POSTINGS
        if number < len(state.offsets) - 1:
            begin, end = state.offsets[number], state.offsets[number + 1]
            rows, counts = state.rows[begin:end], state.counts[begin:end]
        growing = state.tail.get(number)
        if growing is not None:
            # A copy: an array that NumPy holds a buffer of cannot grow.
            pairs = np.frombuffer(growing[:], np.uint32).reshape(-1, 2)
            rows, counts = np.concatenate((rows, pairs[:, 0])), np.concatenate((counts, pairs[:, 1]))
        if len(rows) and rows[-1] >= n_rows:
            end = np.searchsorted(rows, np.uint32(n_rows))
            rows, counts = rows[:end], counts[:end]
        return rows, counts

    def freeze(self) -> None:
        """Merge the tail into a new base. Only the writer may call it; readers keep what they hold."""
        state = self._state
        if not state.tail:
            return
        n_terms = len(self._numbers)
        old_sizes = np.zeros(n_terms, np.int64)
        old_sizes[: len(state.offsets) - 1] = np.diff(state.offsets)
        numbers = sorted(state.tail)
        new_sizes = np.zeros(n_terms, np.int64)
        new_sizes[numbers] = [len(state.tail[number]) // 2 for number in numbers]
        offsets = np.zeros(n_terms + 1, np.int64)
        np.cumsum(old_sizes + new_sizes, out=offsets[1:])
        pairs = np.empty((int(new_sizes.sum()), 2), np.uint32)
        flat, place = pairs.reshape(-1), 0
        for number in numbers:
            postings = state.tail[number]
            flat[place : place + len(postings)] = postings
            place += len(postings)
        # Of every term first the old postings, then the new ones. Nothing here takes eight bytes a posting: that would
        # be the peak of memory of adding.
        sizes = np.stack((old_sizes, new_sizes), axis=1).ravel()
        from_tail = np.repeat(np.tile(np.array([False, True]), n_terms), sizes)
        rows, counts = np.empty(offsets[-1], np.uint32), np.empty(offsets[-1], np.uint32)
        for merged, old, new in ((rows, state.rows, pairs[:, 0]), (counts, state.counts, pairs[:, 1])):
            merged[from_tail] = new
            merged[~from_tail] = old
        self._state = _State(offsets, rows, counts, {})
        self._in_tail = 0

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Everything as flat arrays, for somebody to keep: `terms` (UTF-8, one a line), `offsets`, `rows`, `counts`.

        Merges the tail first, so only the writer may call it.
        """
        self.freeze()
        state = self._state
        text = "\n".join(self._numbers).encode()
        return {
            "terms": np.frombuffer(text, np.uint8),
            "offsets": state.offsets,
            "rows": state.rows,
            "counts": state.counts,
        }

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> "Postings":
        """Postings over arrays that `arrays` gave; they are not copied and may be memory-mapped.

        Raises:
            InputError: the arrays do not fit together.
        """
        try:
            text = arrays["terms"].tobytes().decode()
            offsets = np.asarray(arrays["offsets"], np.int64)
            rows, counts = np.asarray(arrays["rows"], np.uint32), np.asarray(arrays["counts"], np.uint32)
        except (KeyError, UnicodeDecodeError, TypeError, ValueError) as error:
            raise InputError(f"These arrays are no postings ({error!r}); build the index from the texts.") from error
        terms: Sequence[str] = text.split("\n") if text else ()
        postings = Postings()
        postings._numbers = _Numbers(zip(terms, range(len(terms)), strict=True))
        fits = (
            len(postings._numbers) == len(terms) == len(offsets) - 1
            and offsets[0] == 0
            and offsets[-1] == len(rows) == len(counts)
            and bool((np.diff(offsets) >= 0).all())
        )
        if not fits:
            raise InputError(
                f"Postings of {len(terms)} terms do not fit together: {len(offsets)} offsets, {len(rows)} rows, "
                f"{len(counts)} counts; build the index from the texts."
            )
        postings._state = _State(offsets, rows, counts, {})
        return postings


def spread(starts: NDArray[np.int64], sizes: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stretches of numbers, from `starts` on `sizes` many, one behind the other, for each of the chosen ones."""
    many = sizes[chosen]
    ends = np.cumsum(many)
    places: NDArray[np.int64] = np.arange(int(many.sum())) + np.repeat(starts[chosen] - (ends - many), many)
    return places
