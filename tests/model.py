"""Mem++ in plain Python: lists, loops and dictionaries, slow and plain, to hold the engine against.

Analysis of words and of dates and the encoder are the engine's own; scope, states, BM25, tags, cosine, context, fusion,
spread and slots are not.
Formulas are written with the same operations in the same order, so that ties are ties in both.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from mempp.dates import from_microseconds
from mempp.indexes.analysis import question_terms, terms, words
from mempp.indexes.stopwords import STOP_WORDS
from mempp.recall.mentioned_days import days_mentioned
from mempp.recall.named_dates import named_dates

DAY = 86_400_000_000


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
    views: tuple[np.ndarray, ...] = ()
    """Vectors of the windows of a long text."""


@dataclass
class Model:
    rows: list[ModelRow] = field(default_factory=list)
    changes: list[tuple[int, str, int, int | None]] = field(default_factory=list)  # sequence, kind, row, related

    def scope(self, as_of=None, sequence=None, author=None):
        known = [n for n, row in enumerate(self.rows) if sequence is None or row.sequence <= sequence]
        hidden, _ = self.states(sequence)
        passing = {
            n
            for n in known
            if (as_of is None or (self.rows[n].occurred_at is not None and self.rows[n].occurred_at <= as_of))
            and (author is None or author in self.rows[n].authors)
        }
        return [n for n in sorted(passing) if not self._out(n, hidden, as_of, passing)]

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

    def _out(self, row, hidden, as_of, passing):
        if row in hidden:
            kind, into = hidden[row]
            if kind == "retract" or into is None or into < row:
                return True
            stands = as_of is None or self._stands(into, hidden, as_of)
            return stands and self._answers(into, hidden, passing)
        visible = self._visible_from(row, hidden)
        return as_of is not None and visible is not None and visible > as_of

    def _stands(self, merged, hidden, as_of):
        """Whether a merged row, or one that it went into in turn, is seen as of that date."""
        if self.rows[merged].occurred_at is not None:
            return self._visible_from(merged, hidden) <= as_of
        kind, into = hidden.get(merged, ("", None))
        return kind == "archive" and into is not None and into > merged and self._stands(into, hidden, as_of)

    def _answers(self, merged, hidden, passing):
        """Whether a merged row, or one that it went into in turn, passes the filters; or was taken out for good."""
        if merged in passing:
            return True
        kind, into = hidden.get(merged, ("", None))
        if kind == "":
            return False
        return kind == "retract" or into is None or into < merged or self._answers(into, hidden, passing)

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
        return _ranked({n: _cosine(self.rows[n].vector, question_vector) for n in scope}, limit)

    def windows(self, question_vector, scope, limit):
        """{row: cosine of its nearest window} of the long rows that are nearest so."""
        nearest = {n: max(_cosine(v, question_vector) for v in self.rows[n].views) for n in scope if self.rows[n].views}
        return {n: nearest[n] for n in _ranked(nearest, limit)}

    def nearest_view(self, question_vector, scope, limit):
        """Rows by their head or a window, whichever is nearer, of those that are near by either."""
        best = self.windows(question_vector, scope, limit)
        for n in self.vector(question_vector, scope, limit):
            best[n] = max(best.get(n, -2.0), _cosine(self.rows[n].vector, question_vector))
        return _ranked(best, limit)

    def recall(self, question, question_vector, settings, as_of=None, sequence=None, author=None):
        """[(row, matched, via)] and the scope."""
        scope = self.scope(as_of, sequence, author)
        limit = settings.candidates
        by_vector = self.nearest_view if settings.windows else self.vector
        legs = [
            (settings.weight_lexical, self.lexical(question, scope, limit, settings.lexical_mode)),
            (settings.weight_tags, self.tags(question, scope, limit)),
            (settings.weight_vector, by_vector(question_vector, scope, limit)),
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

    def values(self, question, question_vector, settings, as_of=None, sequence=None, author=None, asked_at=None):
        """{row: {leg: weight · value}} of every candidate, and the scope; short forms of names are left out."""
        scope = self.scope(as_of, sequence, author)
        limit = max(settings.candidates, settings.k)
        cosine = {n: _cosine(self.rows[n].vector, question_vector) for n in scope}
        of_windows = self.windows(question_vector, scope, limit) if settings.windows else {}
        best = {n: max(cosine[n], of_windows.get(n, cosine[n])) for n in scope}
        dates = self.dates(question, scope, as_of if asked_at is None else asked_at) if settings.weight_dates else None
        labelled = self.labels_named(question, scope) if settings.weight_tags else {}
        first = set()
        if settings.weight_lexical:
            first |= set(self.lexical(question, scope, limit, settings.lexical_mode))
        if settings.weight_vector:
            first |= set(self.vector(question_vector, scope, limit)) | set(of_windows)
        if settings.weight_tags:
            first |= set(self.tags(question, scope, limit))
        if dates:
            first |= set(self.near_in_time(dates, scope)[:limit])
        candidates = set(first)
        if settings.context:
            for n in first:
                candidates |= {other for other, distance in self.neighbours(n, scope) if distance == 1}
                if settings.weight_vector:
                    candidates |= set(self.alike(n, scope, first))
        context = {n: self.context(n, scope, first, settings) for n in candidates}
        legs = {n: {} for n in candidates}

        def add(leg, n, weight, value):
            legs[n][leg] = weight * value

        if settings.weight_lexical:
            counts = {n: Counter(terms(self.rows[n].text)) for n in scope}
            together = {n: _weighted(counts, context[n]) for n in candidates}
            own = self.share(question, together, counts, together)
            threads = {}
            for n in scope:
                threads.setdefault(self.unit(n), Counter()).update(counts[n])
            whole = self.share(question, threads, threads, threads)
            for n in candidates:
                add("lexical", n, settings.weight_lexical, own[n])
                if settings.context:
                    of_thread = own[n] if self.rows[n].thread is None else whole[self.unit(n)]
                    add("thread_lexical", n, settings.weight_thread_lexical, of_thread)
        if settings.weight_vector:
            for n in candidates:
                if not settings.context:
                    add("vector", n, settings.weight_vector, best[n])
                    continue
                summed = sum(weight * self.rows[other].vector.astype(float) for other, weight in context[n].items())
                length = float(np.linalg.norm(summed))
                add("vector", n, settings.weight_vector, _cosine(summed, question_vector) / length if length else 0.0)
                if self.rows[n].thread is None:
                    group = [other for other, weight in context[n].items() if weight > 0.1]
                else:
                    group = [other for other in candidates if self.unit(other) == self.unit(n)]
                add("thread_vector", n, settings.weight_thread_vector, max(best[other] for other in group))
        for n in candidates:
            if labelled:
                add("tags", n, settings.weight_tags, labelled.get(n, 0) / max(labelled.values()))
            if dates:
                add("dates", n, settings.weight_dates, self.nearness(n, dates))
        return legs, scope

    def unit(self, n):
        """The thread of a row; a row without one stands for itself."""
        return n if self.rows[n].thread is None else ("thread", self.rows[n].thread)

    def dates(self, question, scope, asked_at):
        """The spans that a question names; a date without a year is one of any year of the scope."""
        dated = [self.rows[n].occurred_at for n in scope if self.rows[n].occurred_at is not None]
        years = range(_year(min(dated)), _year(max(dated)) + 1) if dated else ()
        return [(span.start, span.end) for span in named_dates(question, asked_at=asked_at, years=years)]

    def gap(self, n, dates):
        """From an event date to the nearest of the spans; none inside of one, no end where there is no date."""
        moment = self.rows[n].occurred_at
        if moment is None:
            return math.inf
        return min(0 if start <= moment < end else max(start - moment, moment - (end - 1)) for start, end in dates)

    def near_in_time(self, dates, scope):
        near = [n for n in scope if self.gap(n, dates) <= 10 * DAY]
        return sorted(near, key=lambda n: (self.gap(n, dates), -n))

    def nearness(self, n, dates):
        row = self.rows[n]
        year = None if row.occurred_at is None else _year(row.occurred_at)
        named = any(start <= day * DAY < end for day in days_mentioned(row.text, year=year) for start, end in dates)
        return 0.5 * math.exp(-self.gap(n, dates) / (10 * DAY)) + 0.5 * named

    def choose(self, scores, scope, settings):
        """[(row, score, via)] of an answer, given the scores of all candidates: spread, recency slots, what fills."""
        by_event = settings.ties == "event"

        def dated(n, undated=-(10**30)):
            return undated if self.rows[n].occurred_at is None else self.rows[n].occurred_at

        ranked = sorted(scores, key=lambda n: (scores[n], dated(n) if by_event else 0, n), reverse=True)
        settled = []
        while len(settled) < min(settings.k, len(ranked)):
            left = [n for n in ranked if n not in dict(settled)]
            of_thread = Counter(self.unit(n) for n, _ in settled)
            given = {n: scores[n] - settings.thread_spread * max(0, of_thread[self.unit(n)] - 2) for n in left}
            next_one = max(left, key=lambda n: given[n])  # the first of equals
            settled.append((next_one, given[next_one]))
        order = settled + [(n, scores[n]) for n in ranked if n not in dict(settled)]
        slots = settings.slots
        first, rest = order[: settings.k - slots], order[settings.k - slots :]
        floor = settings.recency_floor * order[0][1] if settings.recency_floor and order else -math.inf

        def recent(n):
            return dated(n, self.rows[n].ingested_at) if settings.undated == "ingest" else dated(n)

        recency = sorted((one for one in rest if one[1] >= floor), key=lambda one: (recent(one[0]), one[0]))[::-1][
            :slots
        ]
        empty = slots - len(recency)
        more = [one for one in rest if one not in recency][:empty] if settings.recency_floor else []
        empty -= len(more)
        wanted = settings.k - len(first) - len(recency) - len(more) if settings.fill else empty
        unmatched = [n for n in reversed(scope) if n not in scores][: max(0, wanted)]
        return (
            [(n, score, "score") for n, score in first]
            + [(n, score, "recency") for n, score in recency]
            + [(n, score, "score") for n, score in more]
            + [(n, 0.0, "fill") for n in unmatched]
        )

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

    def alike(self, n, scope, first):
        """{row: weight} of rows of the same day where none has a thread; on a crowded day among candidates alone."""
        one = self.rows[n]
        if one.thread is not None or one.occurred_at is None:
            return {}
        of_day = [
            other
            for other in scope
            if self.rows[other].thread is None
            and self.rows[other].occurred_at is not None
            and self.rows[other].occurred_at // DAY == one.occurred_at // DAY
        ]
        if len(of_day) > 32 or n not in first:
            of_day = [other for other in of_day if other in first]
        weights = {o: (_cosine(one.vector, self.rows[o].vector) - 0.45) / 0.55 for o in of_day if o != n}
        return {other: min(1.0, weight) for other, weight in weights.items() if weight > 0}

    def context(self, n, scope, first, settings):
        """{row: weight} of what a row is seen with, itself among them."""
        seen = {n: 1.0}
        if settings.context:
            seen |= {o: 1 / (1 + distance) for o, distance in self.neighbours(n, scope) if distance <= settings.context}
            if settings.weight_vector:
                seen |= self.alike(n, scope, first)
        return seen


def _weighted(counts, context):
    together = Counter()
    for n, weight in context.items():
        for term, count in counts[n].items():
            together[term] += weight * count
    return together


def _ranked(scores, limit):
    return sorted(scores, key=lambda n: (scores[n], n), reverse=True)[:limit]


def _cosine(one, other):
    return float((np.asarray(one, float) * np.asarray(other, float)).sum())


def _year(moment):
    return from_microseconds(moment).year
