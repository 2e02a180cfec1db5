"""Fact cards: the three modes, dates, and the leg that finds documents by them, against a plain definition of it."""

import json
import math
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from typing import Any

import numpy as np
import pytest
from extraction_tools import ScriptedModel, memory_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_server import ModelServer, say
from support import WordEncoder

import mempp
from mempp.errors import InputError, ModelReplyError
from mempp.indexes import CardIndex
from mempp.indexes.analysis import question_terms, terms
from mempp.llm import Reply, Usage
from mempp.operators.facts_prompts import MODES, card_date, cards_of

ON = mempp.Settings(weight_facts=1.0)
DAY = datetime(2024, 3, 10, 9, 30, tzinfo=UTC)


def reply(*cards: Any, stopped: str = "end") -> Reply:
    return Reply(text=json.dumps({"cards": list(cards)}), usage=Usage(), seconds=0.0, stopped=stopped)


def card(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "tags": [], "date": "", **more}


# -- what is drawn ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_the_three_modes(monkeypatch, provider):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    from extraction_tools import extractor

    memory = memory_of(
        [mempp.Document(text="I: E1 likes E2 on 2024-02-01. E3 likes E4.", occurred_at="2024-03-10"), "Thanks!"]
    )
    with ModelServer(extractor) as server:
        url = server.openai_url if provider == "openai" else server.anthropic_url
        model = mempp.chat_model(f"{provider}:gpt-4o-mini", base_url=url, max_retries=0, timeout=5)
        seen = {}
        for mode in MODES:
            report = memory.extract_facts(model=model, mode=mode)
            assert (report.documents, report.done, report.empty) == (2, 2, 1), "another mode is drawn anew"
            assert memory.extract_facts(model=model, mode=mode).documents == 0
            last = memory.annotations(kind="facts")[-2]
            assert (last.payload["mode"], last.payload["items"]) == (mode, report.items)
            seen[mode] = [(one.text, one.payload) for one in memory.annotations(0, kind="fact")][-report.items :]
        assert len(server.asked) == 2 * 3
        assert all("said_by" in json.dumps(asked.schema) for asked in server.asked[4:])
    payload = {"tags": ["likes"], "date": "2024-02-01"}
    assert seen["summary"] == [("E1 likes E2", payload)]
    assert seen["atomic"] == [("E1 likes E2", payload), ("E3 likes E4", payload)]
    assert seen["agent"] == [(text, {**payload, "said_by": "agent"}) for text in ("E1 likes E2", "E3 likes E4")]
    with pytest.raises(InputError, match="mode must be one of summary, atomic, agent, got 'both'"):
        memory.extract_facts(model=ScriptedModel(), mode="both")


@pytest.mark.parametrize(
    ("given", "occurred_at", "kept"),
    [
        ("2024-02-01", DAY, "2024-02-01"),
        ("2024-03-10", DAY, "2024-03-10"),
        ("2024-03-10T08:00:00+02:00", DAY, "2024-03-10T06:00:00Z"),
        ("2024-03-10T23:00:00Z", DAY, "2024-03-10T09:30:00Z"),
        ("2024-03-11", DAY, "2024-03-10T09:30:00Z"),
        ("2030-01-01", DAY, "2024-03-10T09:30:00Z"),
        ("", DAY, "2024-03-10T09:30:00Z"),
        (None, DAY, "2024-03-10T09:30:00Z"),
        (None, None, None),
        ("yesterday", DAY, "2024-03-10T09:30:00Z"),
        ("2024-03", DAY, "2024-03-10T09:30:00Z"),
        ("0000-00-00", DAY, "2024-03-10T09:30:00Z"),
        ("2024-02-01", None, None),
        ("", None, None),
    ],
)
def test_a_date_holds_where_it_is_one_and_not_later_than_the_documents(given, occurred_at, kept):
    assert card_date(given, occurred_at) == kept


def test_null_in_place_of_a_date_is_none_given():
    ((payload, text),) = cards_of(reply(card("A fact.", date=None)), "atomic", DAY).items
    assert (payload["date"], text) == ("2024-03-10T09:30:00Z", "A fact.")


def test_what_of_a_reply_is_kept():
    drawn = cards_of(
        reply(
            card("  A fact.\n"),
            card("A fact."),
            card(" "),
            card("x" * 2001),
            card("Another.", tags=["a\nb", " ", "a b", "y" * 61, *map(str, range(20))]),
        ),
        "atomic",
        DAY,
    )
    assert [text for _, text in drawn.items] == ["A fact.", "Another."]
    assert drawn.dropped == 3
    assert drawn.items[1][0]["tags"] == ["a b", *map(str, range(9))]
    assert cards_of(reply(), "summary", DAY).items == ()
    with pytest.raises(ModelReplyError, match="has 2, where one at most"):
        cards_of(reply(card("a"), card("b")), "summary", DAY)
    for wrong in ({"text": "a", "tags": []}, card("a", tags="b"), card("a", date=7), card("a", said_by="others")):
        with pytest.raises(ModelReplyError, match="no cards: the reply"):
            cards_of(reply(wrong), "atomic", DAY)
    with pytest.raises(ModelReplyError, match="said_by"):
        cards_of(reply(card("a")), "agent", DAY)


# -- the leg, against its definition ------------------------------------------------------------------------------

WORDS = ["vpn", "vendor", "vendors", "budget", "東京", "the", "ferry", "office"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
ENTRIES = st.lists(st.tuples(st.integers(0, 4), st.none() | TEXTS), max_size=14)


def plain_values(cards: list[str], rows: list[int], question: str) -> dict[int, float]:
    """The formula, card by card."""
    asked = question_terms(question)
    counted = [Counter(terms(text)) for text in cards]
    lengths = [sum(one.values()) for one in counted]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    values: dict[int, float] = {}
    total = 0.0
    scores = [0.0] * len(cards)
    for term in asked:
        df = sum(term in one for one in counted)
        idf = math.log(1 + (len(cards) - df + 0.5) / (df + 0.5))
        total += idf * 2.2
        for place, one in enumerate(counted):
            if one[term]:
                norm = 1.2 * (1 - 0.75 + 0.75 * lengths[place] / mean)
                scores[place] += idf * 2.2 * one[term] / (one[term] + norm)
    for row, score in zip(rows, scores, strict=True):
        if score > 0:
            values[row] = max(values.get(row, 0.0), score / total)
    return values


@given(ENTRIES, TEXTS, st.lists(st.booleans(), min_size=5, max_size=5), st.integers(0, 14), st.integers(1, 4))
def test_values_are_those_of_the_definition(entries, question, allowed, known_up_to, together):
    index = CardIndex()
    told = [(row, sequence, text) for sequence, (row, text) in enumerate(entries)]
    for start in range(0, len(told), together):
        index.add(told[start : start + together])
    counts: list[tuple[int, str]] = []
    for row, sequence, text in told:
        if sequence > known_up_to:
            continue
        if text is None:
            counts = [(other, old) for other, old in counts if other != row]
        else:
            counts.append((row, text))
    counts = [(row, text) for row, text in counts if allowed[row]]
    found = index.matching(question, np.array(allowed), known_up_to)
    wanted = plain_values([text for _, text in counts], [row for row, _ in counts], question)
    assert found.row_ids.tolist() == sorted(wanted)
    assert found.values.tolist() == pytest.approx([wanted[row] for row in sorted(wanted)])
    assert ((found.values > 0) & (found.values <= 1)).all()
    best = found.best(2)
    assert best.row_ids.tolist() == found.row_ids[np.lexsort((-found.row_ids, -found.values))][:2].tolist()
    assert found.of(np.arange(5)).tolist() == [
        dict(zip(found.row_ids, found.values, strict=True)).get(n, 0) for n in range(5)
    ]


# -- in answers ---------------------------------------------------------------------------------------------------


def answers(memory: mempp.Memory, chosen: mempp.Settings | None, **bounds: Any) -> list[Any]:
    return [
        [(hit.record, hit.score, hit.matched, hit.explain()) for hit in hits]
        for hits in memory.recall_many(["which vpn vendor", "budget of the 東京 office"], settings=chosen, **bounds)
    ]


def test_a_document_is_found_by_its_cards_and_explains_it():
    memory = memory_of(["We met in the park.", "We met in the garden.", "We met at the vendor."])
    memory.annotate(1, "fact", {}, "The VPN was given to a new vendor.")
    off = memory.recall("vpn", k=3)
    assert not any(hit.matched for hit in off)
    for chosen in (
        mempp.Settings(weight_facts=2.0, k=3),
        mempp.Settings(weight_facts=2.0, k=3, fusion="ranks", context=0),
        mempp.Settings(weight_facts=2.0, k=3, fusion="ranks"),
    ):
        (hit,) = [one for one in memory.recall("vpn", settings=chosen) if one.matched]
        assert hit.row_id == 1
        (share,) = [one for one in hit.explain().legs if one.leg == "facts"]
        assert share.rank == 0
        assert 0 < share.leg_score <= 1
        assert share.weight == 2.0
        assert hit.score == pytest.approx(share.added)
        assert "facts" in str(hit.explain())
        assert "We met in the garden." in str(memory.evidence("vpn", settings=chosen, k=1))
        assert "given to a new vendor" not in str(memory.evidence("vpn", settings=chosen))
    memory.retract(1)
    assert not any(hit.matched for hit in memory.recall("vpn", settings=ON)), "its cards go with the document"


def test_presets_and_the_default_leave_it_off():
    for chosen in (mempp.Settings(), *map(mempp.preset, ("orgmembench", "locomo", "longmemeval"))):
        assert chosen.weight_facts == 0.0


def test_off_means_that_no_card_is_looked_at(monkeypatch):
    memory = memory_of(["We met in the park.", "We met in the garden."])
    memory.annotate(1, "fact", {}, "The VPN was given to a new vendor.")

    def looked_at(self, entries):
        raise AssertionError("a card was looked at")

    monkeypatch.setattr(CardIndex, "add", looked_at)
    for chosen in (None, mempp.Settings(fusion="ranks", context=0), mempp.preset("locomo")):
        memory.recall("vpn park", settings=chosen)
    with pytest.raises(AssertionError, match="was looked at"):
        memory.recall("vpn park", settings=ON)


DOCUMENTS = st.fixed_dictionaries(
    {"text": TEXTS, "occurred_at": st.none() | st.integers(1, 9).map(lambda day: f"2024-01-{day:02}")}
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(DOCUMENTS, min_size=1, max_size=3)),
        st.tuples(st.just("card"), st.tuples(st.integers(0, 9), TEXTS)),
        st.tuples(st.just("again"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["retract", "reinstate"]), st.integers(0, 9)),
    ),
    min_size=2,
    max_size=8,
)
BOUNDS: list[dict[str, Any]] = [{}, {"as_of": "2024-01-04"}, {"since": "2024-01-03"}, {"rows": [0, 2, 4]}]
CHOSEN = [ON, mempp.Settings(weight_facts=0.7, fusion="ranks", context=0, k=5)]


@settings(max_examples=40)
@given(STEPS, st.integers(0, 30))
def test_cards_out_of_scope_change_nothing_a_past_answer_stays_and_off_is_off(steps, sequence):
    memory, without = (mempp.in_memory(encoder=WordEncoder()) for _ in range(2))
    numbers, kept = count(), []
    for step, what in [("add", [{"text": "vpn vendor", "occurred_at": "2024-01-02"}]), ("card", (0, "budget")), *steps]:
        if step == "add":
            for one in what:
                fields = {name: value for name, value in one.items() if value} | {
                    "text": f"{one['text']} n{next(numbers)}"
                }
                memory.add(fields)
                without.add(fields)
        elif step == "card":
            memory.annotate(what[0] % len(memory), "fact", {}, what[1])
        elif step == "again":
            memory.annotate(what % len(memory), "facts", {"items": 0})
        else:
            getattr(memory, step)(what % len(memory))
            getattr(without, step)(what % len(memory))
        kept.append((memory.head_sequence, [answers(memory, one, **bounds) for one in CHOSEN for bounds in BOUNDS]))
    # Switched off, cards are as if there were none, to the bit; records differ in the moment they were stored.
    for bounds in BOUNDS:
        for one in (None, mempp.Settings(fusion="ranks", context=0), mempp.preset("locomo")):
            pairs = zip(answers(memory, one, **bounds), answers(without, one, **bounds), strict=True)
            for ours, theirs in pairs:
                assert [hit[1:] for hit in ours] == [hit[1:] for hit in theirs]
                assert [hit[0].row_id for hit in ours] == [hit[0].row_id for hit in theirs]
    for head, then in kept:
        now = [answers(memory, one, **bounds, known_at=head) for one in CHOSEN for bounds in BOUNDS]
        assert now == then
    # The leg itself, by its definition, in the scope of every bound.
    for bounds in ({}, {"as_of": "2024-01-04"}, {"known_at": sequence}, {"rows": [0, 2, 4], "as_of": "2024-01-05"}):
        scope = {record.row_id for record in memory.records(**bounds)}
        cards: list[tuple[int, str]] = []
        for one in memory.annotations(known_at=bounds.get("known_at")):
            if one.kind == "facts":
                cards = [(row, text) for row, text in cards if row != one.row_id]
            elif one.text:
                cards.append((one.row_id, one.text))
        cards = [(row, text) for row, text in cards if row in scope]
        question = "vpn vendor budget 東京 ferry"
        wanted = plain_values([text for _, text in cards], [row for row, _ in cards], question)
        only = mempp.Settings(
            weight_lexical=0, weight_tags=0, weight_vector=0, weight_dates=0, weight_facts=1, recency_slots=0, k=50,
            thread_spread=0,
        )  # fmt: skip
        found = {hit.row_id: hit.score for hit in memory.recall(question, settings=only, **bounds) if hit.matched}
        matched = {row: score for row, score in found.items() if score > 0}
        assert matched == pytest.approx(wanted)


def test_it_survives_reopening_and_other_writers(tmp_path):
    with mempp.open(tmp_path / "store", encoder="none") as memory:
        memory.add_many(["We met in the park.", "We met in the garden."])
        memory.annotate(1, "fact", {}, "The VPN was given to a new vendor.")
        before = answers(memory, ON)
        with mempp.open(tmp_path / "store", encoder="none") as other:
            assert answers(other, ON) == before
            other.annotate(0, "fact", {}, "A budget for the office in 東京.")
        assert answers(memory, ON) == before
        memory.refresh()
        after = answers(memory, ON)
        assert after != before
        assert answers(memory, ON, known_at=memory.head_sequence - 1) == before
    with mempp.open(tmp_path / "store", read_only=True) as memory:
        assert answers(memory, ON) == after
    with mempp.open(tmp_path / "store", at=2) as past:
        assert answers(past, ON) == before


def test_an_interrupt_while_cards_are_read_leaves_nothing_by_half(monkeypatch):
    memory = memory_of(["We met in the park.", "We met in the garden."])
    memory.annotate(1, "fact", {}, "The VPN was given to a new vendor.")
    add = CardIndex.add

    def interrupted(self, entries):
        add(self, entries)
        raise KeyboardInterrupt

    monkeypatch.setattr(CardIndex, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.recall("vpn", settings=ON)
    monkeypatch.undo()
    assert [hit.row_id for hit in memory.recall("vpn", settings=ON) if hit.matched] == [1]


def test_what_the_model_is_told_of_dates():
    sent = ScriptedModel()
    memory_of([mempp.Document(text="E1 likes E2.", occurred_at="2024-03-10"), "E3 likes E4."]).extract_facts(
        model=sent, concurrency=1
    )
    assert ['date="2024-03-10"' in one.prompt for one in sent.requests] == [True, False]
    assert 'date="undated"' in sent.requests[1].prompt
    assert all("from the date of the record alone" in one.system.replace("\n", " ") for one in sent.requests)


def test_a_summary_may_be_none(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    memory = memory_of(["Thanks!"])
    with ModelServer(lambda asked: say('{"cards": []}')) as server:
        model = mempp.chat_model("openai:gpt-4o-mini", base_url=server.openai_url)
        report = memory.extract_facts(model=model, mode="summary")
        assert (report.done, report.empty, report.items) == (1, 1, 0)
        assert "give no card" in server.asked[0].system
        assert memory.extract_facts(model=model, mode="summary").documents == 0
