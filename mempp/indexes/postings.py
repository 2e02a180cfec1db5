"""Which rows hold which term, how often: immutable flat arrays and growing tails, block by block.

A block has the postings of terms whose numbers follow one another. Its arrays cost 5 bytes a posting (6 or 8 where one
of its terms stands more than 255 or 65,535 times in a text) and open without work from arrays that somebody kept, as
one block. New postings go to its tail, one small array per term. When the tails together have grown large, they are
merged into new arrays, one block after another, so that only one block is in memory twice.
"""

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.errors import InputError

Counts = NDArray[np.unsignedinteger[Any]]
"""How often, in 1, 2 or 4 bytes each."""
Pieces = NDArray[Any] | list[NDArray[Any]]
"""An array, or the arrays that make it when they are put one after another."""

_SMALLEST_MERGE = 1 << 20  # postings; below this a merge is not worth its time
_TAIL_SHARE = 8  # tails are merged when they have one posting for so many in the arrays
_LARGEST_BLOCK = 1 << 22  # postings, unless a single term has more
_ROWS_TOGETHER = 64
_NO_POSTINGS = np.empty(0, np.uint32)


class _Numbers(dict[str, int]):
    """Term → number; a new term gets the next one when it is looked up by `[]`, though not by `get`."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


@dataclass(frozen=True, slots=True)
class _Block:
    """Postings of the terms from number `first` on: arrays that never change, and the tail that grew on top of them."""

    first: int
    offsets: NDArray[np.int64]  # (terms in the arrays + 1,): term first + t has postings offsets[t] to offsets[t + 1]
    rows: NDArray[np.uint32]  # ascending within a term
    counts: Counts
    tail: dict[int, "array[int]"]  # term → row, count, row, count, …


@dataclass(frozen=True, slots=True)
class _State:
    """What a reader takes hold of: the blocks, and the first number of each."""

    blocks: tuple[_Block, ...]
    firsts: tuple[int, ...]

    @staticmethod
    def of(blocks: Sequence[_Block]) -> "_State":
        return _State(tuple(blocks), tuple(block.first for block in blocks))

    def block_of(self, number: int) -> _Block:
        """The block of a term; the last one has all the later ones."""
        return self.blocks[bisect_right(self.firsts, number) - 1]


class Postings:
    """Postings of numbered terms. One writer, many readers without a lock.

    Rows must come in ascending order. A reader sees every row whose `add` had returned when it began, and possibly
    later ones; it cuts those off by row number.
    """

    def __init__(self) -> None:
        # Four-byte array items: "I" has four bytes wherever CPython runs today; row ids then reach 4.29 billion.
        self._numbers = _Numbers()
        self._state = _State.of([_Block(0, np.zeros(1, np.int64), _NO_POSTINGS, np.empty(0, np.uint8), {})])
        self._in_arrays = 0
        self._in_tails = 0

    def __len__(self) -> int:
        """Number of postings."""
        return self._in_arrays + self._in_tails

    def __contains__(self, term: str) -> bool:
        return term in self._numbers

    def terms(self) -> list[str]:
        """All terms, in the order of their numbers."""
        return list(self._numbers)

    def end_of_rows(self) -> int:
        """A number above all rows that the arrays hold; tails are not looked at."""
        return max((1 + int(block.rows.max()) for block in self._state.blocks if len(block.rows)), default=0)

    def add(self, row: int, counts: Mapping[str, int]) -> None:
        """Note that `row`, higher than every row before, holds each term so many times."""
        state = self._state
        for term, count in counts.items():
            number = self._numbers.setdefault(term, len(self._numbers))
            pair = array("I", (row, count))
            tail = state.block_of(number).tail
            postings = tail.get(number)
            if postings is None:
                tail[number] = pair
            else:
                postings.extend(pair)  # one step under the interpreter's lock: a reader never copies half a pair
        self._note_added(len(counts))

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
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        terms = numbers[starts]
        places = np.searchsorted(self._state.firsts, terms, side="right") - 1
        tails = [block.tail for block in self._state.blocks]
        bounds = pairwise([*starts.tolist(), total])
        for number, place, (start, end) in zip(terms.tolist(), places.tolist(), bounds, strict=True):
            tail, piece = tails[place], data[8 * start : 8 * end]
            postings = tail.get(number)
            if postings is None:
                tail[number] = array("I", piece)
            else:
                postings.frombytes(piece)  # one step, as in `add`
        self._note_added(total)

    def _note_added(self, count: int) -> None:
        self._in_tails += count
        if self._in_tails >= max(_SMALLEST_MERGE, self._in_arrays // _TAIL_SHARE):
            self.freeze()

    def find(self, term: str, n_rows: int) -> tuple[NDArray[np.uint32], Counts]:
        """Rows below `n_rows` that hold the term, ascending, and how often; both empty for an unknown term."""
        state = self._state  # once: `freeze` puts another in its place
        number = self._numbers.get(term)
        rows: NDArray[np.uint32] = _NO_POSTINGS
        counts: Counts = _NO_POSTINGS
        if number is None:
            return rows, counts
        block = state.block_of(number)
        place = number - block.first
        if place < len(block.offsets) - 1:
            begin, end = block.offsets[place], block.offsets[place + 1]
            rows, counts = block.rows[begin:end], block.counts[begin:end]
        growing = block.tail.get(number)
        if growing is not None:
            # A copy: an array that NumPy holds a buffer of cannot grow.
            pairs = np.frombuffer(growing[:], np.uint32).reshape(-1, 2)
            rows, counts = np.concatenate((rows, pairs[:, 0])), np.concatenate((counts, pairs[:, 1]))
        if len(rows) and rows[-1] >= n_rows:
            end = np.searchsorted(rows, np.uint32(n_rows))
            rows, counts = rows[:end], counts[:end]
        return rows, counts

    def freeze(self) -> None:
        """Merge the tails into the arrays. Only the writer may call it; readers keep what they hold."""
        if not self._in_tails:
            return
        done: list[_Block] = []
        waiting = list(reversed(self._state.blocks))
        while waiting:
            block = waiting.pop()
            end = waiting[-1].first if waiting else len(self._numbers)
            done += _merged(block, end)
            # At once, and not when all are merged: what the block held is free then.
            self._state = _State.of([*done, *reversed(waiting)])
        self._in_arrays, self._in_tails = len(self), 0

    def arrays(self) -> dict[str, Pieces]:
        """Everything as flat arrays, for somebody to keep: `terms` (UTF-8, one a line), `offsets`, `rows`, `counts`.

        The last two come in pieces, as they are held, since together they would take as much memory again. It merges
        the tails first, so only the writer may call it.
        """
        self.freeze()
        blocks = self._state.blocks
        offsets = np.zeros(len(self._numbers) + 1, np.int64)
        np.cumsum(np.concatenate([np.diff(block.offsets) for block in blocks]), out=offsets[1:])
        text = "\n".join(self._numbers).encode()
        return {
            "terms": np.frombuffer(text, np.uint8),
            "offsets": offsets,
            "rows": [block.rows for block in blocks],
            "counts": [block.counts for block in blocks],
        }

    @staticmethod
    def from_arrays(arrays: Mapping[str, Pieces]) -> "Postings":
        """Postings over arrays that `arrays` gave.

        Rows of four bytes, and counts, are not copied where they come in one piece; they may be memory-mapped.

        Raises:
            InputError: the arrays do not fit together.
        """
        try:
            text = whole(arrays["terms"]).tobytes().decode()
            offsets = np.asarray(whole(arrays["offsets"]), np.int64)
            rows = np.asarray(whole(arrays["rows"]), np.uint32)
            counts = whole(arrays["counts"])
            if counts.dtype.kind != "u":
                raise TypeError(f"counts are {counts.dtype}")
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
        postings._state = _State.of([_Block(0, offsets, rows, counts, {})])
        postings._in_arrays = len(rows)
        return postings


def spread(starts: NDArray[np.int64], sizes: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stretches of numbers, from `starts` on `sizes` many, one behind the other, for each of the chosen ones."""
    many = sizes[chosen]
    ends = np.cumsum(many)
    places: NDArray[np.int64] = np.arange(int(many.sum())) + np.repeat(starts[chosen] - (ends - many), many)
    return places


def _merged(block: _Block, end: int) -> list[_Block]:
    """The block, which has the terms up to number `end`, with its tail in its arrays; cut where it has grown large."""
    if not block.tail:
        return [block]
    n_terms, n_old = end - block.first, len(block.offsets) - 1
    offsets = np.pad(block.offsets, (0, n_terms - n_old), mode="edge")
    in_tail = sorted(block.tail)
    from_tail = np.zeros(n_terms, np.int64)
    from_tail[np.array(in_tail) - block.first] = [len(block.tail[number]) // 2 for number in in_tail]
    ends = np.cumsum(np.diff(offsets) + from_tail)
    parts = -(-int(ends[-1]) // _LARGEST_BLOCK)
    cuts = 1 + np.searchsorted(ends, ends[-1] * np.arange(1, parts) // parts)
    bounds = np.unique([0, *cuts.tolist(), n_terms]).tolist()
    places = np.searchsorted(in_tail, block.first + np.array(bounds)).tolist()
    return [
        _joined(block, offsets[start : stop + 1], from_tail[start:stop], block.first + start, in_tail[one:other])
        for (start, stop), (one, other) in zip(pairwise(bounds), pairwise(places), strict=True)
    ]


def _joined(
    block: _Block, offsets: NDArray[np.int64], from_tail: NDArray[np.int64], first: int, in_tail: Sequence[int]
) -> _Block:
    """A new block of some terms of a block.

    Args:
        block: the block.
        offsets: (terms + 1,) of these terms in its arrays.
        from_tail: (terms,) how many postings of each are in its tail.
        first: the number of the first of them.
        in_tail: the numbers of those that are in the tail, ascending.
    """
    held = slice(int(offsets[0]), int(offsets[-1]))
    sizes = np.stack((np.diff(offsets), from_tail), axis=1)
    pairs = np.frombuffer(b"".join([block.tail[number] for number in in_tail]), np.uint32).reshape(-1, 2)
    # Of every term first the old postings, then the new ones. Nothing here takes eight bytes a posting.
    is_new = np.repeat(np.tile(np.array([False, True]), len(sizes)), sizes.ravel())
    is_old = ~is_new
    rows = np.empty(len(is_new), np.uint32)
    rows[is_old], rows[is_new] = block.rows[held], pairs[:, 0]
    old_counts, new_counts = block.counts[held], pairs[:, 1]
    counts = np.empty(len(is_new), np.min_scalar_type(max(_largest(old_counts), _largest(new_counts))))
    counts[is_old], counts[is_new] = old_counts, new_counts
    return _Block(first, np.concatenate(([0], np.cumsum(sizes.sum(axis=1)))), rows, counts, {})


def _largest(counts: Counts) -> int:
    return int(counts.max()) if len(counts) else 0


def whole(pieces: Pieces) -> NDArray[Any]:
    """The array that pieces make; a copy where there are several."""
    if not isinstance(pieces, list):
        return pieces
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
