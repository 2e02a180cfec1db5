"""Full-text ranking: which rows in scope hold the words of a question, by BM25.

Tantivy analyses (`analysis`), arrays hold the postings (`postings`), `bm25` scores. Tantivy's own search is not used:
its statistics are those of the whole index, so that later documents would change a past answer, it takes no bitset,
and its order of ties depends on its segments.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from mempp.errors import InputError, quoted
from mempp.indexes.analysis import question_terms, term_counts
from mempp.indexes.asked import AskedTerms, asked_terms
from mempp.indexes.bm25 import rank_by_bm25
from mempp.indexes.growable import GrowableArray
from mempp.indexes.postings import Pieces, Postings, whole
from mempp.indexes.ranking import Allowed, Ranking


class LexicalIndex:
    """Texts by row, found by their words. See `mempp.indexes` for scope, threads and ties."""

    def __init__(self) -> None:
        self._postings = Postings()
        self._lengths: GrowableArray[np.uint32] = GrowableArray(np.uint32)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._lengths)

    def add(self, texts: Sequence[str]) -> None:
        """Add the texts of the next rows, one each, empty ones too."""
        # Analysed before anything is noted: if one text cannot be, none of these rows is there by half.
        analysed = [term_counts(text) for text in texts]
        self._postings.add_rows(len(self), analysed)
        self._lengths.extend([counts.total() for counts in analysed])

    def rank(self, question: str, allowed: Allowed, limit: int, mode: Literal["any", "all"] = "any") -> Ranking:
        """The rows in scope that match best.

        Args:
            question: any string; it has no syntax.
            allowed: the scope, shape (n_rows,).
            limit: how many rows at most.
            mode: "any": rows with at least one of the question's content words. "all": rows with every one.

        Returns:
            Rows by BM25 score. Empty when the question has no content word, such as one of stop words only.

        Raises:
            InputError: `mode` is neither "any" nor "all".
        """
        return ranked(self.asked(question, allowed), limit, mode)

    def asked(self, question: str, allowed: Allowed) -> AskedTerms:
        """The terms of a question with their postings in scope, to rank rows, or score such as are taken together.

        Args:
            question: any string.
            allowed: the scope, shape (n_rows,).
        """
        lengths = self._lengths.values[: len(allowed)]
        allowed = allowed[: len(lengths)]
        postings = [self._postings.find(term, len(allowed)) for term in question_terms(question)]
        return asked_terms(postings, lengths, allowed)

    def arrays(self) -> dict[str, Pieces]:
        """The whole index as flat arrays, some in pieces, for somebody to keep. Only the thread that adds may call it.

        Whoever keeps them keeps `mempp.indexes.analysis.ANALYSIS_VERSION` with them and drops them when it differs.
        """
        return {**self._postings.arrays(), "lengths": self._lengths.values}

    @staticmethod
    def from_arrays(arrays: Mapping[str, Pieces]) -> "LexicalIndex":
        """An index over arrays that `arrays` gave; postings in one piece are not copied and may be memory-mapped.

        Raises:
            InputError: the arrays do not fit together.
        """
        index = LexicalIndex()
        index._postings = Postings.from_arrays(arrays)
        if "lengths" not in arrays:
            raise InputError("These arrays are no lexical index ('lengths' is missing); build it from the texts.")
        index._lengths.extend(whole(arrays["lengths"]))
        if index._postings.end_of_rows() > len(index):
            raise InputError(f"Postings name rows beyond the {len(index)} of the index; build it from the texts.")
        return index


def ranked(asked: AskedTerms, limit: int, mode: Literal["any", "all"] = "any") -> Ranking:
    """The rows in scope that match best; see `LexicalIndex.rank`."""
    if mode not in ("any", "all"):
        raise InputError(f"The lexical mode is {quoted(mode)}; it must be 'any' or 'all'.")
    return rank_by_bm25(asked, limit, every_term=mode == "all")
