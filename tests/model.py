"""Mem++ in plain Python: lists, loops and dictionaries, slow and plain, to hold the engine against.

Analysis of words and the encoder are the engine's own; scope, states, BM25, tags, cosine, fusion, slots are not.
Formulas are written with the same operations in the same order, so that ties are ties in both.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from mempp.indexes.analysis import question_terms, terms, words
from mempp.indexes.stopwords import STOP_WORDS


@dataclass
class ModelRow:
    text: str
    occurred_at: int | None
    authors: tuple[str, ...]
    tags: tuple[str, ...]
    thread: str | None
    ingested_at: int
    sequence: int
    vector: np.ndarray


@dataclass
class Model:
    rows: list[ModelRow] = field(default_factory=list)
    changes: list[tuple[int, str, int, int | None]] = field(default_factory=list)  # sequence, kind, row, related

    def scope(self, as_of=None, sequence=None, author=None):
        known = [n for n, row in enumerate(self.rows) if sequence is None or row.sequence <= sequence]
        hidden, _ = self.states(sequence)
        return [
            n
            for n in known
            if (as_of is None or (self.rows[n].occurred_at is not None and self.rows[n].occurred_at <= as_of))
            and (author is None or author in self.rows[n].authors)
            and not self._out(n, hidden, as_of)
        ]

    def states(self, sequence=None):
        hidden, superseded = {}, {}
        for when, kind, row, related in self.changes:
            if sequence is not None and when > sequence:
                continue
            if kind == "supersede":
                superseded[row] = related
            elif kind == "reinstate":
                hidden.pop(row, None)
                superseded.pop(row, None)
            else:
                hidden[row] = (kind, related)
        return hidden, superseded

    def _visible_from(self, row, hidden):
        """The latest event date of a row and of every older row archived into it, at any depth; None without dates."""
        originals = [n for n, (kind, into) in hidden.items() if kind == "archive" and into == row and n < row]
        dates = [self._visible_from(n, hidden) for n in originals] + [self.rows[row].occurred_at]
        return max((date for date in dates if date is not None), default=None)

    def _out(self, row, hidden, as_of):
        if row in hidden:
            kind, into = hidden[row]
            if as_of is None or kind == "retract" or into is None or into < row:
                return True
            return self._stands(into, hidden, as_of)
        visible = self._visible_from(row, hidden)
        return as_of is not None and visible is not None and visible > as_of

    def _stands(self, merged, hidden, as_of):
        """Whether a merged row, or one that it went into in turn, is seen as of that date."""
        if self.rows[merged].occurred_at is not None:
            return self._visible_from(merged, hidden) <= as_of
        kind, into = hidden.get(merged, ("", None))
        return kind == "archive" and into is not None and into > merged and self._stands(into, hidden, as_of)

    def lexical(self, question, scope, limit, mode):
        counts = {n: Counter(terms(self.rows[n].text)) for n in scope}
        asked = question_terms(question)
        mean = sum(c.total() for c in counts.values()) / len(scope) if scope else 0
        scores = {}
        for n in scope:
            present = [term for term in asked if counts[n][term]]
            if not present or (mode == "all" and len(present) < len(asked)):
                continue
            total = 0.0
            for term in present:
                df = sum(1 for other in counts.values() if other[term])
                tf = counts[n][term]
                idf = math.log(1 + (len(scope) - df + 0.5) / (df + 0.5))
                total += idf * (1.2 + 1) * tf / (tf + 1.2 * (1 - 0.75 + 0.75 * (counts[n].total() / mean)))
            scores[n] = total
        return _ranked(scores, limit)

    def tags(self, question, scope, limit):
        asked = words(question)
        runs = {tuple(asked[i:j]) for i in range(len(asked)) for j in range(i + 1, len(asked) + 1)}
        labels = {
            n: {
                tuple(parts)
                for label in (*self.rows[n].authors, *self.rows[n].tags)
                if (parts := words(label)) and not STOP_WORDS.issuperset(parts)
            }
            for n in scope
        }
        matching = {n: sorted(found & runs) for n, found in labels.items() if found & runs}
        df = Counter(label for found in matching.values() for label in found)
        keys = {
            n: (len(found), sum(math.log(len(scope) / count) for count in sorted((df[x] for x in found), reverse=True)))
            for n, found in matching.items()
        }
        return sorted(keys, key=lambda n: (keys[n], n), reverse=True)[:limit]

    def vector(self, question_vector, scope, limit):
        wide = question_vector.astype(np.float64)
        return _ranked({n: float((self.rows[n].vector.astype(np.float64) * wide).sum()) for n in scope}, limit)

    def recall(self, question, question_vector, settings, as_of=None, sequence=None, author=None):
        """[(row, matched, via)] and the scope."""
        scope = self.scope(as_of, sequence, author)
        limit = settings.candidates
        legs = [
            (settings.weight_lexical, self.lexical(question, scope, limit, settings.lexical_mode)),
            (settings.weight_tags, self.tags(question, scope, limit)),
            (settings.weight_vector, self.vector(question_vector, scope, limit)),
        ]
        scores = {}
        for weight, ranked in legs:
            for rank, n in enumerate(ranked):
                if weight > 0:
                    scores[n] = scores.get(n, 0.0) + weight / (settings.gamma + rank)
        never = -(10**30)

        def dated(n):
            date = self.rows[n].occurred_at
            return never if date is None else date

        def recent(n):
            row = self.rows[n]
            return row.ingested_at if row.occurred_at is None and settings.undated == "ingest" else dated(n)

        by_event = settings.ties == "event"
        ranked = sorted(scores, key=lambda n: (scores[n], dated(n) if by_event else 0, n), reverse=True)
        slots = settings.slots
        first = ranked[: settings.k - slots]
        recency = sorted(ranked[settings.k - slots :], key=lambda n: (recent(n), n), reverse=True)[:slots]
        wanted = settings.k - len(first) - len(recency) if settings.fill else slots - len(recency)
        unmatched = [n for n in reversed(scope) if n not in scores][: max(0, wanted)]
        answer = [(n, True, "score") for n in first] + [(n, True, "recency") for n in recency]
        return answer + [(n, False, "fill") for n in unmatched], scope


def _ranked(scores, limit):
    return sorted(scores, key=lambda n: (scores[n], n), reverse=True)[:limit]
