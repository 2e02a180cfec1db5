"""Invariants 5 and 6 with the default settings: what is out of scope changes no score, no rank and no bit of one.

A store with only the rows in scope is held against one where others stand before, between and after them.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import WordEncoder
from worlds import QUESTIONS, Doc, docs, numbered, random_docs

import mempp

SETTINGS = [
    mempp.Settings(),
    mempp.Settings(k=4),
    mempp.Settings(k=8, candidates=2, thread_spread=0.2, recency_floor=0.5),
    mempp.Settings(k=6, fusion="ranks", recency_floor=0.0),
    mempp.Settings(k=6, fusion="ranks", context=0),
    mempp.Settings(k=6, context=0, windows=False, names=False),
    mempp.preset("orgmembench"),
    mempp.preset("locomo"),
]
WITHOUT_A_YEAR = [*QUESTIONS[:2], "vendor between January 3 and January 6", "the vpn vendor on December 30"]
"""Asked at no known time, so that years are those of the scope."""
BOUNDS = {
    "later": {"as_of": "2024-01-09"},
    "undated": {"as_of": "2024-01-09"},
    "committed later": {},
    "retracted": {},
    "of another": {"author": "mine"},
    "in another place": {"source": "here"},
    "before": {"since": "2024-01-01"},
    "metadata": {"where": {"kind": "in"}},
    "predicate": {"rows": lambda record: record.metadata.get("kind") == "in"},
}


def told(hits):
    """All that an answer says, row ids and times of ingestion aside."""
    return [
        (
            hit.record.metadata["key"],
            hit.score,
            hit.matched,
            hit.via,
            [(leg.leg, leg.rank, leg.leg_score, leg.weight, leg.added) for leg in hit.explain().legs],
        )
        for hit in hits
    ]


def fields(doc: Doc, why: str, *, inside: bool) -> dict[str, object]:
    """A document that is in the scope of BOUNDS[why], or out of it for that reason."""
    given = doc.fields()
    if inside:
        if why in ("later", "undated", "before") and doc.day is None:
            given = replace(doc, day=1 + doc.key % 9).fields()
        if why == "of another":
            given["author"] = (*given["author"], "mine")
        given["source"] = "here"
        given["metadata"] = {"key": doc.key, "kind": "in"}
        return given
    moment = given["occurred_at"] or "2024-01-05T01:00:00Z"
    if why == "later":
        given["occurred_at"] = moment.replace("2024-01-0", "2024-01-1") if doc.key % 2 else "2031-05-01"
    elif why == "undated":
        given["occurred_at"] = None
    elif why == "before":
        given["occurred_at"] = moment.replace("2024-01", "2023-12")
    elif why == "in another place":
        given["source"] = "there"
    return given


def recorded(memory, rows, why):
    """Add the rows and retract those that are to be; the sequence after the last one in scope."""
    known = None
    for doc, inside in rows:
        (row,) = memory.add_many([fields(doc, why, inside=inside)]).row_ids
        if inside:
            known = memory.head_sequence
        elif why == "retracted":
            memory.retract(row)
    return known


def check(inside, outside, order, why, dimensions=16):
    rows = [(doc, True) for doc in inside] + [(doc, False) for doc in outside]
    if why == "committed later":
        mixed = rows
    else:
        places = Random(order)
        mixed = [(doc, True) for doc in inside]
        for doc in outside:
            mixed.insert(places.randint(0, len(mixed)), (doc, False))
    encoder = WordEncoder(dimensions)
    with mempp.in_memory(encoder=encoder) as alone, mempp.in_memory(encoder=encoder) as crowded:
        recorded(alone, rows[: len(inside)], why)
        known = recorded(crowded, mixed, why)
        bounds = dict(BOUNDS[why])
        more = {"known_at": known} if why == "committed later" else {}
        for chosen in SETTINGS:
            ours = alone.recall_many(QUESTIONS, settings=chosen, asked_at="2024-02-01", **bounds)
            theirs = crowded.recall_many(QUESTIONS, settings=chosen, asked_at="2024-02-01", **bounds, **more)
            for question, one, other in zip(QUESTIONS, ours, theirs, strict=True):
                assert told(one) == told(other), (question, chosen)
            ours = alone.recall_many(WITHOUT_A_YEAR, settings=chosen, **bounds)
            theirs = crowded.recall_many(WITHOUT_A_YEAR, settings=chosen, **bounds, **more)
            assert list(map(told, ours)) == list(map(told, theirs)), chosen
            packed, other = (
                memory.evidence(QUESTIONS[0], settings=chosen, max_chars=900, **bounds, **extra)
                for memory, extra in ((alone, {}), (crowded, more))
            )
            assert packed.text == other.text


@pytest.mark.parametrize("why", list(BOUNDS))
@settings(max_examples=8)
@given(
    inside=st.lists(docs, min_size=1, max_size=9),
    outside=st.lists(docs, min_size=1, max_size=9),
    order=st.integers(0, 99),
)
def test_rows_out_of_scope_change_no_bit_of_an_answer(why, inside, outside, order):
    check(numbered(inside), numbered(outside, first=100), order, why)


@pytest.mark.parametrize("why", ["later", "committed later", "of another", "retracted"])
def test_nor_do_they_in_a_larger_record(why):
    """Days of more rows than can be partners, rows with more partners than are summed in turns, long threads."""
    random = Random(why)
    inside = random_docs(random, 130, days=4)
    outside = [replace(doc, key=doc.key + 1000, text=f"{doc.text}o") for doc in random_docs(random, 130, days=4)]
    check(inside, outside, 7, why, dimensions=384)
