"""Invariant 5: a past answer stays, scores and ties included.

For random histories, `recall(θ, known_at)` on the full log equals `recall(θ)` on a store that was stopped then.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support import WordEncoder

import mempp

WORDS = ["vpn", "vendor", "budget", "office", "alpha", "beta", "東京"]
short_texts = st.lists(st.sampled_from([*WORDS, "2024-01-03"]), min_size=1, max_size=5).map(" ".join)
long_texts = st.tuples(short_texts, st.sampled_from(WORDS)).map(lambda parts: f"{parts[0]} goes on. " * 70 + parts[1])
texts = st.one_of(short_texts, short_texts, short_texts, long_texts)
days = st.integers(1, 9).map(lambda day: f"2024-01-{day:02}")
documents = st.fixed_dictionaries(
    {
        "text": texts,
        "occurred_at": days | st.none(),
        "author": st.sampled_from(["Ann Bond", "bo", None]),
        "thread": st.sampled_from([None, "t1", "t2"]),
    }
)
steps = st.one_of(
    st.tuples(st.just("add"), st.lists(documents, min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["supersede", "archive"]), st.tuples(st.integers(0, 9), st.integers(0, 9))),
    st.tuples(st.sampled_from(["retract", "reinstate"]), st.integers(0, 9)),
    st.tuples(st.just("annotate"), st.integers(0, 9)),
)
QUESTIONS = ["which vpn vendor", "budget of Ann on January 3", "東京 office alpha"]
BOUNDS = [{}, {"as_of": "2024-01-04"}, {"as_of": "2024-01-09", "author": "Ann Bond"}, {"since": "2024-01-03"}]
SETTINGS = [None, mempp.Settings(k=5), mempp.preset("orgmembench"), mempp.preset("locomo")]


def take(memory, step):
    kind, what = step
    try:
        match kind:
            case "add":
                memory.add_many([{name: value for name, value in one.items() if value} for one in what])
            case "supersede":
                memory.supersede(what[0], by=what[1])
            case "archive":
                memory.archive(what[0], into=what[1])
            case "annotate":
                memory.annotate(what, "note", {"n": 1})
            case _:
                getattr(memory, kind)(what)
    except mempp.InputError:
        pass  # a row that is not there, a circle: nothing was written


def answers(memory, **known):
    return [
        [(hit.record, hit.score, hit.matched, hit.explain()) for hit in hits]
        for bounds in BOUNDS
        for chosen in SETTINGS
        for hits in memory.recall_many(QUESTIONS, settings=chosen, **bounds, **known)
    ]


@settings(max_examples=25)
@given(st.lists(steps, min_size=2, max_size=10), st.booleans())
def test_a_past_answer_is_that_of_a_store_that_was_stopped_then(history, reopened):
    folder = Path(tempfile.mkdtemp())
    try:
        with mempp.open(folder / "store", encoder=WordEncoder()) as memory:
            memory._store.seal_bytes = 800
            moments = []
            for number, step in enumerate(history):
                take(memory, step)
                shutil.copytree(folder / "store", folder / f"stopped-{number}")
                moments.append(memory.head_sequence)
            if reopened:
                memory.close()
                memory = mempp.open(folder / "store", encoder=WordEncoder())
            for number, moment in enumerate(moments):
                with mempp.open(folder / f"stopped-{number}", read_only=True, encoder=WordEncoder()) as stopped:
                    then = answers(stopped)
                    assert answers(memory, known_at=moment) == then
                    if len(stopped):
                        stamp = max(stopped.changes().records, key=lambda one: one.row_id).ingested_at
                        later = [change.ingested_at for change in stopped.changes().states]
                        notes = [note.ingested_at for note in stopped.annotations()]
                        assert answers(memory, known_at=max([stamp, *later, *notes])) == then
                with mempp.open(folder / "store", at=moment, encoder=WordEncoder()) as past:
                    assert answers(past) == then
            memory.close()
    finally:
        shutil.rmtree(folder)
