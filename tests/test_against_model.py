"""The engine against the plain model: random histories, states, reopening, bounds (design, invariants 1 to 6)."""

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model import Model, ModelRow
from support import WordEncoder
from worlds import QUESTIONS, random_docs

import mempp
from mempp.dates import from_microseconds, to_microseconds
from mempp.encoders.windows import windows_of
from mempp.settings import layered

WORDS = ["vpn", "vendor", "budget", "office", "ferry", "alpha", "beta", "東京", "offices", "the", "Σίγμα"]
short_texts = st.lists(st.sampled_from([*WORDS, "2024-01-05", "on January 9, 2024"]), min_size=1, max_size=6).map(
    " ".join
)
long_texts = st.tuples(short_texts, st.sampled_from(WORDS), st.sampled_from(WORDS)).map(
    lambda parts: f"{parts[0]}. " + f"{parts[1]} goes on and on. " * 45 + f"{parts[2]}."
)
texts = st.one_of(short_texts, short_texts, short_texts, long_texts)
questions = st.tuples(
    st.lists(st.sampled_from([*WORDS, "alice", "b. stone", "which"]), min_size=1, max_size=5).map(" ".join),
    st.sampled_from(["", "", " on 2024-01-05", " in early January", " between January 8 and January 9"]),
).map("".join)
days = st.integers(1, 12).map(lambda day: f"2024-01-{day:02}")
authors = st.lists(st.sampled_from(["alice", "B. Stone", "carol"]), unique=True, max_size=2)
documents = st.tuples(texts, days | st.none(), authors, st.sampled_from([None, None, "t1", "t1", "t2"]))
RANKS = {"fusion": "ranks", "context": 0, "weight_dates": 0.0, "recency_floor": 0.0, "names": False}
SETTINGS = [
    mempp.Settings(**RANKS),
    mempp.Settings(k=3, **RANKS),
    mempp.Settings(k=6, recency_slots=2, undated="ingest", ties="ingest", **RANKS),
    mempp.Settings(k=50, fill=True, candidates=3, **RANKS),
    mempp.Settings(k=4, weight_vector=0.0, lexical_mode="all", **RANKS),
    mempp.preset("orgmembench"),
    mempp.preset("locomo"),
]


VALUES = [
    mempp.Settings(k=100),
    mempp.Settings(k=100, context=0),
    mempp.Settings(k=100, context=1, weight_vector=0.0),
    mempp.Settings(k=100, context=3, weight_lexical=0.0),
    mempp.Settings(k=100, windows=False, weight_dates=0.0, weight_tags=0.0),
]
"""Settings of the default path, with places for every candidate."""
FEW = [mempp.Settings(k=3, candidates=1), mempp.Settings(k=2, candidates=2, context=1), mempp.Settings(k=3, context=0)]
"""Settings with places for few candidates only."""
PLACES = [
    mempp.Settings(),
    mempp.Settings(k=5),
    mempp.Settings(k=8, thread_spread=0.3),
    mempp.Settings(k=6, recency_slots=3, recency_floor=0.5, thread_spread=0.1),
    mempp.Settings(k=4, recency_slots=4, recency_floor=0.0, undated="ingest", ties="ingest"),
    mempp.Settings(k=50, fill=True, context=0, weight_vector=0.0),
]
"""Settings that settle which of the candidates have a place."""


class Engine(RuleBasedStateMachine):
    """One store on disk, with tiny segments so that sealing happens, beside the model."""

    @initialize(documents=st.lists(documents, max_size=14))
    def start(self, documents):
        self.folder = Path(tempfile.mkdtemp())
        self.encoder = WordEncoder()
        self.model = Model()
        self.memory = self._open()
        self.moments = []
        self.answers = []
        self.add(documents, True)

    def _open(self):
        memory = mempp.open(self.folder / "store", encoder=self.encoder)
        memory._store.seal_bytes = 1500
        return memory

    def teardown(self):
        if hasattr(self, "memory"):
            self.memory.close()
            shutil.rmtree(self.folder)

    @rule(documents=st.lists(documents, max_size=4), embed=st.sampled_from([True, True, False]))
    def add_some(self, documents, embed):
        self.add(documents, embed)

    def add(self, documents, embed):
        report = self.memory.add_many(
            [
                {"text": text, "occurred_at": day, "author": names, "thread": thread}
                for text, day, names, thread in documents
            ],
            embed=embed,
        )
        if not embed:
            self.memory.embed()
        expected = []
        for text, day, names, thread in documents:
            occurred_at = None if day is None else to_microseconds(day, "", bare_date="start")
            same = [
                n
                for n, row in enumerate(self.model.rows)
                if (row.text, row.occurred_at, set(row.authors), row.thread) == (text, occurred_at, set(names), thread)
            ]
            if not same:
                record = self.memory.get(len(self.model.rows))
                ingested = to_microseconds(record.ingested_at, "", bare_date="start")
                vector = self.encoder.encode_question(text)
                views = tuple(map(self.encoder.encode_question, windows_of(text)))
                self.model.rows.append(
                    ModelRow(text, occurred_at, tuple(names), (), thread, ingested, -1, vector, views)
                )
                same = [len(self.model.rows) - 1]
            expected.append(same[0])
        assert list(report.row_ids) == expected
        self._number(report.new_row_ids)

    def _number(self, new_rows):
        last = self.memory.head_sequence
        for place, row in enumerate(reversed(new_rows)):
            self.model.rows[row].sequence = last - place
        self.moments.append(last)

    def _change(self, kind, row, related, sequence):
        self.model.changes.append((sequence, kind, row, related))
        self.moments.append(sequence)

    @precondition(lambda self: len(self.model.rows) > 1)
    @rule(data=st.data())
    def supersede(self, data):
        old, new = (data.draw(st.integers(0, len(self.model.rows) - 1)) for _ in range(2))
        _, superseded = self.model.states()
        walk = new
        while walk is not None and walk != old:
            walk = superseded.get(walk)
        try:
            sequence = self.memory.supersede(old, by=new)
        except mempp.InputError:
            assert walk == old
            return
        assert walk is None
        self._change("supersede", old, new, sequence)

    @precondition(lambda self: len(self.model.rows) > 1)
    @rule(data=st.data())
    def archive(self, data):
        n = len(self.model.rows)
        hidden, _ = self.model.states()
        into = data.draw(st.integers(0, n - 1))
        rows = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=3))
        if into in rows or into in hidden:
            return
        last = self.memory.archive(sorted(rows), into=into)
        for place, row in enumerate(sorted(rows)):
            self.model.changes.append((last - len(rows) + 1 + place, "archive", row, into))
        self.moments.append(last)

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data(), kind=st.sampled_from(["retract", "reinstate"]))
    def retract_or_reinstate(self, data, kind):
        row = data.draw(st.integers(0, len(self.model.rows) - 1))
        self._change(kind, row, None, getattr(self.memory, kind)(row))

    @rule(drop_cache=st.booleans())
    def reopen(self, drop_cache):
        self.memory.close()
        if drop_cache:
            shutil.rmtree(self.folder / "store" / "cache", ignore_errors=True)
        self.memory = self._open()

    @rule()
    def lose_the_vectors(self):
        """Vectors are derived: without their files the rows are embedded again and answer as before."""
        self.memory.close()
        shutil.rmtree(self.folder / "store" / "vectors", ignore_errors=True)
        self.memory = self._open()
        if self.model.rows:
            assert self.memory.embed() == len(self.model.rows)

    @rule(
        question=questions,
        day=days | st.none(),
        author=st.sampled_from([None, "alice"]),
        which=st.sampled_from(range(len(SETTINGS))),
        data=st.data(),
    )
    def recall(self, question, day, author, which, data):
        known = data.draw(st.sampled_from([None, *self.moments]))
        chosen = SETTINGS[which]
        hits = self.memory.recall(question, as_of=day, known_at=known, author=author, settings=chosen)
        as_of = None if day is None else to_microseconds(day, "", bare_date="end")
        expected, scope = self.model.recall(
            question, self.encoder.encode_question(question), chosen, as_of, known, author
        )
        assert [(hit.row_id, hit.matched, hit.via) for hit in hits] == expected
        assert {hit.row_id for hit in hits} <= set(scope)
        records = self.memory.records(as_of=day, known_at=known, author=author)
        assert [record.row_id for record in records] == scope
        if known is not None and day is not None:
            self.answers.append((question, {"as_of": day, "known_at": known, "author": author}, chosen, hits))

    @rule(
        question=questions,
        day=days | st.none(),
        author=st.sampled_from([None, "alice"]),
        asked=st.sampled_from([None, "2025-03-01"]),
        data=st.data(),
    )
    def values_are_those_of_the_model(self, question, day, author, asked, data):
        known = data.draw(st.sampled_from([None, *self.moments]))
        bounds = {"as_of": day, "known_at": known, "author": author, "asked_at": asked}
        for chosen in (*VALUES, *FEW):
            self._check_values(question, bounds, chosen)

    def _check_values(self, question, bounds, chosen):
        day, known, author, asked = (bounds[name] for name in ("as_of", "known_at", "author", "asked_at"))
        hits = self.memory.recall(question, settings=chosen, **bounds)
        as_of, asked_at = (None if one is None else to_microseconds(one, "", bare_date="end") for one in (day, asked))
        vector = self.encoder.encode_question(question)
        expected, scope = self.model.values(question, vector, chosen, as_of, known, author, asked_at)
        if chosen.k == 100:
            assert {hit.row_id for hit in hits if hit.matched} == set(expected)
        assert {hit.row_id for hit in hits} <= set(scope)
        for hit in hits:
            legs = {leg.leg: leg.added for leg in hit.explain().legs}
            values = expected[hit.row_id] if hit.matched else {}
            assert set(legs) <= set(values)
            assert legs == pytest.approx({leg: values[leg] for leg in legs}, abs=5e-6)
            assert all(abs(value) < 5e-6 for leg, value in values.items() if leg not in legs)
            if hit.matched:
                assert hit.score <= summed(hit) + 1e-12
        if chosen.k < 100 and hits:
            # Spread and recency aside, the best of all candidates come first.
            assert summed(hits[0]) == pytest.approx(max(sum(legs.values()) for legs in expected.values()), abs=1e-5)
        if known is not None and day is not None:
            self.answers.append((question, bounds, chosen, hits))

    @rule(
        question=questions,
        day=days | st.none(),
        author=st.sampled_from([None, "alice"]),
        data=st.data(),
    )
    def places_are_those_of_the_model(self, question, day, author, data):
        known = data.draw(st.sampled_from([None, *self.moments]))
        for chosen in PLACES:
            self._check_places(question, {"as_of": day, "known_at": known, "author": author}, chosen)

    def _check_places(self, question, bounds, chosen):
        """Given the scores of all candidates to the last bit, the answer is settled to the last bit."""
        day, known, author = (bounds[name] for name in ("as_of", "known_at", "author"))
        every = layered(mempp.Settings(k=150, thread_spread=0.0, recency_slots=0, fill=False), chosen)
        scores = {hit.row_id: hit.score for hit in self.memory.recall(question, settings=every, **bounds)}
        scope = self.model.scope(None if day is None else to_microseconds(day, "", bare_date="end"), known, author)
        hits = self.memory.recall(question, settings=chosen, **bounds)
        assert [(hit.row_id, hit.score, hit.via) for hit in hits] == self.model.choose(scores, scope, chosen)
        for hit in hits:
            assert hit.matched == (hit.via != "fill")
            assert not hit.matched or summed(hit) == scores[hit.row_id]
        if known is not None and day is not None:
            self.answers.append((question, bounds, chosen, hits))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def a_past_answer_stays(self, data):
        question, bounds, chosen, before = data.draw(st.sampled_from(self.answers))
        after = self.memory.recall(question, settings=chosen, **bounds)
        assert after == before

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def known_at_a_time(self, data):
        row = data.draw(st.integers(0, len(self.model.rows) - 1))
        moment = from_microseconds(self.model.rows[row].ingested_at)
        before = self.memory.records(known_at=moment - timedelta(microseconds=1))
        upto = self.memory.records(known_at=moment)
        hidden_then, _ = self.model.states(self.model.rows[row].sequence)
        assert row not in {record.row_id for record in before}
        assert row in {record.row_id for record in upto} or row in hidden_then

    @invariant()
    def every_text_is_as_it_was(self):
        if hasattr(self, "memory"):
            assert len(self.memory) == len(self.model.rows)
            assert [self.memory.get(n).text for n in range(len(self.memory))] == [row.text for row in self.model.rows]


def summed(hit):
    """What the legs added, in their order: the score before the spread, to the last bit."""
    total = 0.0
    for leg in hit.explain().legs:
        total += leg.added
    return total


TestEngine = Engine.TestCase
TestEngine.settings = hypothesis_settings(max_examples=60, stateful_step_count=25)


def test_the_model_itself_on_a_case_by_hand():
    model = Model()
    encoder = WordEncoder()
    for n, (text, day) in enumerate([("vpn alpha", 1), ("vpn", 2), ("office", None)]):
        model.rows.append(ModelRow(text, day, (), (), None, 10 + n, n, encoder.encode_question(text)))
    assert model.lexical("vpn", [0, 1, 2], 10, "any") == [1, 0]
    assert model.scope(as_of=1) == [0]
    assert model.vector(encoder.encode_question("office"), [0, 1, 2], 1) == [2]
    assert np.isclose(np.linalg.norm(model.rows[0].vector), 1)


@pytest.mark.parametrize("seed", range(8))
def test_larger_records(seed):
    """Crowded days, long threads, more rows than candidates: what short histories seldom come to."""
    made = random_docs(Random(seed), 12 + 8 * seed, days=2 if seed % 2 else 9, alone=0.7 if seed % 2 else 0.3)
    encoder, model = WordEncoder(), Model()
    with mempp.in_memory(encoder=encoder) as memory:
        memory.add_many([doc.fields() for doc in made])
        for row, doc in enumerate(made):
            record = memory.get(row)
            occurred_at, ingested_at = (
                None if moment is None else to_microseconds(moment, "", bare_date="start")
                for moment in (record.occurred_at, record.ingested_at)
            )
            vector, *views = map(encoder.encode_question, [doc.text, *windows_of(doc.text)])
            model.rows.append(
                ModelRow(
                    doc.text,
                    occurred_at,
                    record.authors,
                    record.tags,
                    doc.thread,
                    ingested_at,
                    row,
                    vector,
                    tuple(views),
                )
            )
        held = SimpleNamespace(memory=memory, model=model, encoder=encoder, answers=[])
        few = [
            mempp.Settings(k=3, candidates=3),
            mempp.Settings(k=3, candidates=2, weight_vector=0.0, weight_lexical=0.1),
        ]
        for question in QUESTIONS:
            for day in (None, "2024-01-02"):
                bounds = {"as_of": day, "known_at": None, "author": None, "asked_at": None}
                for chosen in (*VALUES, *FEW, *few):
                    Engine._check_values(held, question, bounds, layered(mempp.Settings(names=False), chosen))
                for chosen in PLACES:
                    Engine._check_places(held, question, bounds, layered(mempp.Settings(names=False), chosen))
