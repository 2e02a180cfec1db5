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

    # -- the default: values summed -----------------------------------------------------------------------------------

    def values(self, question, question_vector, settings, as_of=None, sequence=None, author=None):
        """{row: Σ weight · value} of every candidate, and the scope; without dates, short names and windows."""
        scope = self.scope(as_of, sequence, author)
        limit = max(settings.candidates, settings.k)
        by_words = (
            set(self.lexical(question, scope, limit, settings.lexical_mode)) if settings.weight_lexical else set()
        )
        by_vector = set(self.vector(question_vector, scope, limit)) if settings.weight_vector else set()
        labelled = self.labels_named(question, scope)
        candidates = by_words | by_vector | set(sorted(labelled)[: len(labelled)])
        if settings.context:
            for n in list(candidates):
                candidates |= {other for other, distance in self.neighbours(n, scope) if distance == 1}
            if settings.weight_vector:
                for n in list(by_words | by_vector | set(labelled)):
                    candidates |= {other for other in scope if self.likeness(n, other) > 0}
        first = by_words | by_vector | set(labelled)
        counts = {n: Counter(terms(self.rows[n].text)) for n in scope}
        context = {n: self.context(n, scope, first, settings) for n in candidates}
        total = dict.fromkeys(candidates, 0.0)
        if settings.weight_lexical:
            together = {n: _weighted(counts, context[n]) for n in candidates}
            own = self.share(question, together, {n: counts[n] for n in scope}, together)
            threads = {}
            for n in scope:
                threads.setdefault(self.rows[n].thread or n, Counter()).update(counts[n])
            whole = self.share(question, threads, threads, threads)
            for n in candidates:
                thread = self.rows[n].thread
                total[n] += settings.weight_lexical * own[n]
                if settings.context:
                    total[n] += settings.weight_thread_lexical * (own[n] if thread is None else whole[thread])
        if settings.weight_vector:
            cosine = {n: float(np.dot(self.rows[n].vector.astype(float), question_vector.astype(float))) for n in scope}
            for n in candidates:
                summed = sum(weight * self.rows[other].vector.astype(float) for other, weight in context[n].items())
                length = float(np.linalg.norm(summed))
                near = float(np.dot(summed, question_vector.astype(float))) / length if length else 0.0
                thread = self.rows[n].thread
                if thread is None:
                    group = [other for other, weight in context[n].items() if weight > 0.1 and other in candidates]
                else:
                    group = [other for other in candidates if self.rows[other].thread == thread]
                total[n] += settings.weight_vector * near
                if settings.context:
                    total[n] += settings.weight_thread_vector * max(cosine[other] for other in group)
        most = max(labelled.values(), default=1)
        for n in candidates:
            total[n] += settings.weight_tags * labelled.get(n, 0) / most
        return total, scope

    def share(self, question, scored, documents, lengths_of):
        """BM25 of `scored` texts as shares of what none can reach, with the document frequencies of `documents`."""
        asked = question_terms(question)
        idf = {}
        for term in asked:
            df = sum(1 for counts in documents.values() if counts[term])
            idf[term] = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
        best = sum(idf.values())
        mean = sum(sum(counts.values()) for counts in lengths_of.values()) / max(1, len(lengths_of))
        shares = {}
        for key, counts in scored.items():
            norm = 1.2 * (1 - 0.75 + 0.75 * (sum(counts.values()) / mean if mean else 1.0))
            gained = sum(idf[term] * counts[term] / (counts[term] + norm) for term in asked if counts[term])
            shares[key] = gained / best if best else 0.0
        return shares

    def labels_named(self, question, scope):
        """{row: how many of its labels are named}."""
        asked = words(question)
        runs = {tuple(asked[i:j]) for i in range(len(asked)) for j in range(i + 1, len(asked) + 1)}
        found = {}
        for n in scope:
            labels = {tuple(words(label)) for label in (*self.rows[n].authors, *self.rows[n].tags)}
            count = sum(1 for label in labels if label and label in runs and not STOP_WORDS.issuperset(label))
            if count:
                found[n] = count
        return found

    def neighbours(self, n, scope):
        """[(row, distance)] in the thread of a row, in event order, undated last."""
        thread = self.rows[n].thread
        if thread is None:
            return []
        line = [other for other in scope if self.rows[other].thread == thread]
        line.sort(key=lambda other: (self.rows[other].occurred_at is None, self.rows[other].occurred_at or 0, other))
        place = line.index(n)
        return [(other, abs(at - place)) for at, other in enumerate(line) if at != place]

    def likeness(self, n, other):
        """The weight of a row in the context of another, where neither has a thread and both are of one day."""
        one, two = self.rows[n], self.rows[other]
        if n == other or one.thread is not None or two.thread is not None:
            return 0.0
        day = 86_400_000_000
        if one.occurred_at is None or two.occurred_at is None or one.occurred_at // day != two.occurred_at // day:
            return 0.0
        cosine = float(np.dot(one.vector.astype(float), two.vector.astype(float)))
        return min(1.0, max(0.0, (cosine - 0.45) / 0.55))

    def context(self, n, scope, first, settings):
        """{row: weight} of what a row is seen with; a row that is no candidate of itself sees candidates alone."""
        seen = {n: 1.0}
        if settings.context:
            seen |= {o: 1 / (1 + distance) for o, distance in self.neighbours(n, scope) if distance <= settings.context}
            if settings.weight_vector:
                others = scope if n in first else [other for other in scope if other in first]
                seen |= {other: self.likeness(n, other) for other in others if self.likeness(n, other) > 0}
        return seen


def _weighted(counts, context):
    together = Counter()
    for n, weight in context.items():
        for term, count in counts[n].items():
            together[term] += weight * count
    return together


def _ranked(scores, limit):
    return sorted(scores, key=lambda n: (scores[n], n), reverse=True)[:limit]
