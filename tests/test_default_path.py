"""Invariants of the default settings: derived files may go, orders of ingestion, what an explanation adds up to."""

import shutil
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import WordEncoder
from worlds import QUESTIONS, docs, numbered, random_docs

import mempp
from mempp.encoders.windows import windows_of

BOUNDS = [
    {},
    {"as_of": "2024-01-05"},
    {"since": "2024-01-03"},
    {"author": "Alice Stone"},
    {"thread": "t1"},
    {"tags": "vpn", "as_of": "2024-01-07"},
]
SETTINGS = [mempp.Settings(), mempp.Settings(k=5, thread_spread=0.2), mempp.Settings(k=4, fusion="ranks")]


def answers(memory):
    return [
        [(hit.record, hit.score, hit.matched, hit.explain()) for hit in hits]
        for bounds in BOUNDS
        for chosen in SETTINGS
        for hits in memory.recall_many(QUESTIONS, settings=chosen, **bounds)
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with windows, embedded in several batches, some of them late; and its answers."""
    folder = tmp_path_factory.mktemp("default") / "store"
    made = random_docs(Random(5), 60)
    with mempp.open(folder, encoder=WordEncoder()) as memory:
        memory._store.seal_bytes = 4000
        memory.add_many([doc.fields() for doc in made[:20]])
        memory.add_many([doc.fields() for doc in made[20:40]], embed=False)
        memory.add_many([doc.fields() for doc in made[40:]], batch_size=7)
        memory.embed()
        memory.supersede(3, by=50)
        memory.retract(7)
        asked = answers(memory)
    return folder, asked, made


@pytest.mark.parametrize("dropped", ["nothing", "cache", "vectors", "cache and vectors"])
def test_derived_files_may_be_dropped(store, tmp_path, dropped):
    folder, asked, made = store
    shutil.copytree(folder, tmp_path / "s")
    for name in ("cache", "vectors"):
        if name in dropped:
            shutil.rmtree(tmp_path / "s" / name, ignore_errors=True)
    encoder = WordEncoder()
    with mempp.open(tmp_path / "s", encoder=encoder) as memory:
        if "vectors" in dropped:
            assert answers(memory) != asked
            assert memory.embed() == len(made)
            long = [doc.text for doc in made if windows_of(doc.text)]
            assert long
            assert len(encoder.encoded) == len(made) + sum(len(windows_of(text)) for text in long)
        assert answers(memory) == asked
        assert memory.embed() == 0
        assert memory.verify().ok


def test_compacted_copied_and_restored_it_answers_alike(store, tmp_path):
    folder, asked, _ = store
    shutil.copytree(folder, tmp_path / "s")
    encoder = WordEncoder()
    with mempp.open(tmp_path / "s", encoder=encoder) as memory:
        memory.compact()
        assert answers(memory) == asked
        memory.snapshot(tmp_path / "copy.tar")
    mempp.restore(tmp_path / "copy.tar", tmp_path / "restored")
    for place in ("s", "restored"):
        with mempp.open(tmp_path / place, encoder=encoder) as memory:
            assert answers(memory) == asked
            report = memory.verify()
            assert report.ok, report
            assert memory.embed() == 0
        with mempp.open(tmp_path / place, encoder=encoder, read_only=True) as memory:
            assert answers(memory) == asked
    assert encoder.encoded == []


@settings(max_examples=15)
@given(given_docs=st.lists(docs, min_size=2, max_size=8), data=st.data())
def test_the_order_of_ingestion_does_not_change_what_is_in_scope(given_docs, data):
    made = numbered(given_docs)
    orders = [made, data.draw(st.permutations(made))]
    scopes, found = [], []
    for order in orders:
        with mempp.in_memory(encoder=WordEncoder()) as memory:
            memory.add_many([doc.fields() for doc in order], batch_size=3)
            scopes.append([sorted(one.metadata["key"] for one in memory.records(**bounds)) for bounds in BOUNDS])
            # Every row in scope is a candidate here, so that which rows are found does not depend on order either.
            hits = [memory.recall(QUESTIONS[0], k=50, **bounds) for bounds in BOUNDS]
            found.append([sorted(hit.record.metadata["key"] for hit in one) for one in hits])
    assert scopes[0] == scopes[1]
    assert found[0] == found[1] == scopes[0]


@settings(max_examples=30)
@given(
    given_docs=st.lists(docs, min_size=1, max_size=14),
    question=st.sampled_from(QUESTIONS),
    spread=st.sampled_from([0.0, 0.03, 0.5]),
    k=st.integers(1, 16),
)
def test_an_explanation_adds_up_to_the_score(given_docs, question, spread, k):
    with mempp.in_memory(encoder=WordEncoder()) as memory:
        memory.add_many([doc.fields() for doc in numbered(given_docs)])
        hits = memory.recall(question, settings=mempp.Settings(k=k, thread_spread=spread, recency_floor=0.0))
        before: dict[object, int] = {}
        for hit in hits:
            told = hit.explain()
            added = sum(leg.added for leg in told.legs)
            assert all(leg.added == leg.weight * leg.leg_score for leg in told.legs)
            assert len({leg.leg for leg in told.legs}) == len(told.legs)
            unit = hit.record.thread or ("row", hit.row_id)
            lost = spread * max(0, before.get(unit, 0) - 2) if hit.via == "score" else 0.0
            if hit.via == "score":
                assert hit.score == pytest.approx(added - lost, abs=1e-9)
                assert ("  less " in str(told)) == (lost > 0)
            else:
                assert hit.score <= added + 1e-9
            assert told.score == hit.score
            before[unit] = before.get(unit, 0) + 1


def test_the_fourth_row_of_a_thread_gives_way():
    with mempp.in_memory(encoder="none") as memory:
        for number in range(6):
            memory.add(f"vpn vendor {number}", thread="t", occurred_at=f"2024-01-0{number + 1}")
        memory.add("vpn vendor other", thread="u", occurred_at="2024-01-01")
        hits = memory.recall("vpn vendor", settings=mempp.Settings(thread_spread=0.25, recency_slots=0))
        lost = [
            round(sum(leg.added for leg in hit.explain().legs) - hit.score, 9)
            for hit in hits
            if hit.record.thread == "t"
        ]
        assert lost == [0, 0, 0, 0.25, 0.5, 0.75]
        assert "less 0.25000" in str(hits[4].explain())
