"""Ranking by labels: authors and tags whose words stand in the question.

A label matches when its words stand in the question in a row: "vendor-b" in "Why vendor B?", "vpn gateway" in "the
VPN-Gateway". Rows are ranked by

    1. how many different labels of the row match;
    2. rarity, Σ ln(N / df) over those labels, with N and df counted over the rows in scope;
    3. row id, later first.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mempp.errors import InputError
from mempp.indexes.analysis import words
from mempp.indexes.names import NameForms
from mempp.indexes.postings import Pieces, Postings, whole
from mempp.indexes.ranking import Allowed, Ranking, best_positions
from mempp.indexes.stopwords import STOP_WORDS

LONGEST_LABEL = 16
"""Words. A longer label is named in no question, and looking for it would cost questions of many words dearly."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows in scope that carry labels named in a question."""

    row_ids: NDArray[np.int64]
    """(n,) ascending."""
    n_labels: NDArray[np.int64]
    """(n,) how many different labels of each row are named."""
    rarity: NDArray[np.float64]
    """(n,) Σ ln(N / df) over these labels."""

    def best(self, limit: int) -> Ranking:
        """At most `limit` of them in the order above.

        A score is the number of matching labels plus rarity / (1 + rarity), which lies in [0, 1): good to look at,
        while the order is exact.
        """
        n_labels = self.n_labels.astype(np.float64)
        best = best_positions(self.row_ids, (n_labels, self.rarity), limit)
        rarity = self.rarity[best]
        return Ranking(self.row_ids[best], n_labels[best] + rarity / (1 + rarity))


class TagIndex:
    """Labels by row, found by their words. See `mempp.indexes` for scope, threads and ties."""

    def __init__(self) -> None:
        self._n_rows = 0
        self._postings = Postings()  # a term is a label's words, joined by spaces
        self._spellings: dict[str, str] = {}
        self.names = NameForms()
        """Who of the labels is an author; filled in step with `add`, since the labels do not tell."""
        # First word of a label → in how many words such labels come, so that a question's word is looked up only in
        # those. Tuples are replaced, never changed, since other threads go through them.
        self._sizes: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        """Number of rows."""
        return self._n_rows

    def add(self, labels: Sequence[Sequence[str]]) -> None:
        """Add the labels of the next rows: one list each, authors and tags together.

        A label in two spellings counts once on a row. One without words, made only of stop words, or of more than
        `LONGEST_LABEL` words never matches.
        """
        # Analysed before anything is noted, as in the lexical index; each label once, since most come many times.
        words_of = {label: words(label) for label in {label for row_labels in labels for label in row_labels}}
        analysed = [[(label, words_of[label]) for label in row_labels] for row_labels in labels]
        rows = []
        for row_labels in analysed:
            keys: dict[str, int] = {}
            for label, parts in row_labels:
                if len(parts) > LONGEST_LABEL or STOP_WORDS.issuperset(parts):
                    continue
                key = " ".join(parts)
                keys[key] = 1
                self._spellings.setdefault(key, label)
                self._note_size(parts)
            rows.append(keys)
        self._postings.add_rows(self._n_rows, rows)
        self._n_rows += len(rows)

    def _note_size(self, parts: Sequence[str]) -> None:
        sizes = self._sizes.get(parts[0], ())
        if len(parts) not in sizes:
            self._sizes[parts[0]] = (*sizes, len(parts))

    def arrays(self) -> dict[str, Pieces]:
        """The whole index as flat arrays, as `LexicalIndex.arrays` gives them."""
        spellings = json.dumps(list(self._spellings.values())).encode()
        return {
            **self._postings.arrays(),
            "spellings": np.frombuffer(spellings, np.uint8),
            "n_rows": np.array([self._n_rows], np.int64),
        }

    @staticmethod
    def from_arrays(arrays: Mapping[str, Pieces]) -> "TagIndex":
        """An index over arrays that `arrays` gave.

        Raises:
            InputError: the arrays do not fit together.
        """
        index = TagIndex()
        # Copied: they are few, and else they alone would keep all that was read with them in memory.
        copied = {name: whole(array).copy() for name, array in arrays.items()}
        index._postings = Postings.from_arrays(copied)
        try:
            index._n_rows = int(whole(arrays["n_rows"])[0])
            spellings = json.loads(whole(arrays["spellings"]).tobytes())
            # Terms were numbered, and spellings noted, in one and the same order.
            index._spellings = dict(zip(index._postings.terms(), spellings, strict=True))
            for key in index._spellings:
                index._note_size(key.split(" "))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"These arrays are no tag index ({error!r}); build it from the labels.") from error
        if index._postings.end_of_rows() > index._n_rows:
            raise InputError(f"Postings name rows beyond the {index._n_rows} of the index; build it from the labels.")
        return index

    def rank(self, question: str, allowed: Allowed, limit: int, *, names: bool = False) -> Ranking:
        """The rows in scope that carry most labels named in the question; `matching` and its `best`."""
        return self.matching(question, allowed, names=names).best(limit)

    def matching(self, question: str, allowed: Allowed, *, names: bool = False) -> "Matches":
        """Every row in scope that carries a label named in the question.

        Args:
            question: any string.
            allowed: the scope, shape (n_rows,).
            names: whether authors match by the short forms of their names too; see `names`.
        """
        allowed = allowed[: self._n_rows]
        n_allowed = int(np.count_nonzero(allowed))
        found = self._found(question, allowed, names) if n_allowed else []
        carries = np.zeros(len(allowed) if found else 0, np.bool_)
        for rows in found:
            carries[rows] = True
        row_ids = np.flatnonzero(carries).astype(np.int64)
        n_labels = np.zeros(len(row_ids), np.int64)
        rarity = np.zeros(len(row_ids), np.float64)
        # Commonest first: sums over labels equally rare then come out equal to the last bit.
        for rows in sorted(found, key=len, reverse=True):
            places = np.searchsorted(row_ids, rows)
            n_labels[places] += 1
            rarity[places] += math.log(n_allowed / len(rows))
        return Matches(row_ids, n_labels, rarity)

    def _found(self, question: str, allowed: Allowed, names: bool) -> list[NDArray[np.uint32]]:
        """For each label named, the rows in scope that carry it, if any."""
        asked = words(question)
        places = self._places(asked)
        found: dict[str, NDArray[np.uint32]] = {}
        for key in places:
            rows, _ = self._postings.find(key, len(allowed))
            rows = rows[allowed[rows]]
            if len(rows):
                found[key] = rows
        if names:
            in_full = [(start, 1 + key.count(" ")) for key in found for start in places[key]]
            for key, of_spellings in self.names.found(question, asked, in_full, allowed).items():
                if key not in found:
                    found[key] = of_spellings[0] if len(of_spellings) == 1 else np.unique(np.concatenate(of_spellings))
        return list(found.values())

    def matched_labels(self, question: str) -> list[str]:
        """The labels named in the question, as first spelt, in its order; of all rows, in scope or not."""
        return [self._spellings[key] for key in self._places(words(question))]

    def _places(self, asked: Sequence[str]) -> dict[str, list[int]]:
        """The labels whose words stand among these in a row, in their order, and where each begins."""
        places: dict[str, list[int]] = {}
        for start, word in enumerate(asked):
            for size in self._sizes.get(word, ()):
                key = " ".join(asked[start : start + size])
                if key in self._postings:
                    places.setdefault(key, []).append(start)
        return places
