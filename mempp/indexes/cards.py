"""Ranking rows by the words of their fact cards.

    share(c) = BM25(c) / ((k1 + 1) · Σ idf(t) over the terms t of the question)
    value(r) = max share(c) over the cards c of row r

BM25 is that of `bm25`, over the cards in scope as the texts: those of rows in scope that the question may know of, by
their own entries. Document frequencies and the mean length are counted over these, so that a card out of scope changes
nothing. A card matches when it holds any term of the question. Values lie between 0 and 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.bm25 import K1, rank_by_bm25
from mempp.indexes.growable import GrowableArray
from mempp.indexes.lexical import LexicalIndex
from mempp.indexes.ranking import Allowed, Ranking, best_positions

_FOR_EVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class CardMatches:
    """The rows in scope with a card that matches."""

    row_ids: NDArray[np.int64]
    """(n,) ascending."""
    values: NDArray[np.float64]
    """(n,) of the best card of each, above 0."""

    def best(self, limit: int) -> Ranking:
        """At most `limit` of them, best first, the later row first among equals."""
        best = best_positions(self.row_ids, (self.values,), limit)
        return Ranking(self.row_ids[best], self.values[best])

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The values of these rows; 0 for one without a match."""
        values = np.zeros(len(rows))
        here = np.isin(rows, self.row_ids)
        values[here] = self.values[np.searchsorted(self.row_ids, rows[here])]
        return values


class CardIndex:
    """Cards by row. See `mempp.indexes` for scope and threads; here the scope has a bound on entries, too."""

    def __init__(self) -> None:
        self._texts = LexicalIndex()
        self._rows: GrowableArray[np.int64] = GrowableArray(np.int64)
        self._sequences: GrowableArray[np.int64] = GrowableArray(np.int64)
        # The entry from which on a card does not count. It is set once, to a later entry than any question that goes on
        # meanwhile may know of, so that it does not matter to these whether they see it.
        self._replaced: GrowableArray[np.int64] = GrowableArray(np.int64)
        self._current: dict[int, list[int]] = {}  # row → its cards that count

    def __len__(self) -> int:
        """Number of cards, those that were replaced too."""
        return len(self._rows)

    def add(self, entries: Sequence[tuple[int, int, str | None]]) -> None:
        """Take in the next entries of the log that are about cards.

        Args:
            entries: row, sequence and text of each card; without a text, the row's cards before it do not count any
                more.
        """
        cards = [(row, sequence, text) for row, sequence, text in entries if text is not None]
        first = len(self)
        self._texts.add([text for _, _, text in cards])
        self._sequences.extend([sequence for _, sequence, _ in cards])
        self._replaced.extend([_FOR_EVER] * len(cards))
        self._rows.extend([row for row, _, _ in cards])
        number = first
        for row, sequence, text in entries:
            if text is not None:
                self._current.setdefault(row, []).append(number)
                number += 1
            else:
                self._replaced.values[self._current.pop(row, [])] = sequence

    def matching(self, question: str, allowed: Allowed, known_up_to: int) -> CardMatches:
        """The rows in scope with a card that holds a term of the question.

        Args:
            question: any string.
            allowed: (rows,) the scope.
            known_up_to: the last entry that the question may know of.
        """
        rows = self._rows.values  # taken first: the other columns are at least as long
        known = self._sequences.values[: len(rows)] <= known_up_to
        known &= known_up_to < self._replaced.values[: len(rows)]
        in_scope = np.zeros(len(rows), np.bool_)
        in_scope[known] = allowed[rows[known]]
        asked = self._texts.asked(question, in_scope)
        found = rank_by_bm25(asked, len(rows), every_term=False)
        if not len(found):
            return CardMatches(np.empty(0, np.int64), np.empty(0, np.float64))
        of_cards = rows[found.row_ids]
        row_ids, first = np.unique(of_cards, return_index=True)  # the first is the best: cards come best first
        return CardMatches(row_ids, found.scores[first] / ((K1 + 1) * asked.total_idf))
