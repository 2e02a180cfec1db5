"""Merged rows and the scope: never seen early, and under filters their originals answer where they cannot.

Every original text is an atom, named by its row; a merged text names the rows that it was made of. Hypothesis draws
histories of documents, runs, runs taken back, merges and changes by hand.
"""

from datetime import timedelta
from typing import Any

import pytest
from consolidation_tools import ScriptedModel, TopicEncoder, memory_of
from extraction_tools import ScriptedModel as Extractor
from hypothesis import example, given
from hypothesis import strategies as st
from test_consolidation_past import MOMENTS, START, Drawn, atoms, check_nothing_is_seen_early, reachable

import mempp

JANUARY = mempp.Document(text="r1 a", occurred_at="2024-01-01", thread="t1", source="s1", metadata={"p": 1})
JUNE = mempp.Document(text="r1 b", occurred_at="2024-06-01", thread="t2", source="s2", metadata={"p": 2})
FILTERS: list[dict[str, Any]] = [
    {"since": START + timedelta(days=2)},
    {"since": START + timedelta(days=5)},
    {"author": "ann"},
    {"tags": "x"},
    {"thread": "t1"},
    {"source": "s1"},
    {"where": {"p": 1}},
    {"where": {"p": None}},
    {"rows": range(0, 30, 2)},
    {"rows": range(6)},
    {"thread": ["t1", "t0"], "since": START + timedelta(days=1)},
]
DOCUMENT = st.tuples(st.sampled_from(["ka", "lo"]), st.none() | st.integers(0, 8), st.integers(0, 2))
ACTIONS = ["add", "run", "run", "merge", "undo", "supersede", "archive", "retract", "reinstate", "reinstate"]
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.lists(DOCUMENT, min_size=1, max_size=5), st.integers(0, 99)),
    min_size=1,
    max_size=8,
)


class History:
    """A memory, and what is done to it."""

    def __init__(self, seed: int) -> None:
        self.memory = mempp.in_memory(encoder=TopicEncoder())
        self.seed = seed
        self.runs: list[str] = []
        self.number = 0

    def step(self, what: str, documents: list[tuple[str, int | None, int]], chosen: int) -> None:
        memory, rows = self.memory, len(self.memory)
        if what == "add":
            for topic, day, place in documents:
                self.number += 1
                memory.add(
                    f"{topic} note {self.number}",
                    occurred_at=None if day is None else START + timedelta(days=day),
                    author=["ann", "bob", "cid"][place],
                    tags=[["x"], ["y"], []][place],
                    thread=f"t{place}",
                    source=f"s{place}",
                    metadata={"p": place},
                )
        elif what == "run":
            report = memory.consolidate(model=Drawn(self.seed), concurrency=1)
            self.runs += [] if report.run_id is None else [report.run_id]
        elif what == "merge":
            current = [record.row_id for record in memory.records() if record.state.into is None]
            some = current[chosen % 2 : 2 + chosen % 5]
            if some:
                memory.merge(some, f"ka merged {'+'.join(map(str, some))}")
        elif what == "undo" and self.runs:
            memory.undo(self.runs.pop(chosen % len(self.runs)))
        elif what == "supersede" and rows > 1:
            old, by = chosen % rows, (chosen + 1) % rows
            if memory.get(by).state == memory.get(old).state == mempp.State():
                memory.supersede(old, by=by)
        elif what == "archive" and rows:
            memory.archive(chosen % rows)
        elif what == "retract" and rows:
            memory.retract(chosen % rows)
        elif what == "reinstate" and rows:
            memory.reinstate(chosen % rows)


TWO = [("ka", 0, 0), ("ka", 5, 1)]


@given(st.integers(0, 999), STEPS)
@example(0, [("add", TWO, 0), ("merge", TWO, 0), ("reinstate", TWO, 0), ("reinstate", TWO, 1)])
def test_a_merged_row_is_never_seen_early(seed: int, steps: list) -> None:
    history = History(seed)
    for step in steps:
        if step[0] != "archive":
            history.step(*step)
        check_nothing_is_seen_early(history.memory)


def test_a_merged_row_is_not_seen_early_when_nothing_is_hidden_any_more() -> None:
    memory = memory_of([JANUARY, JUNE])
    memory.consolidate(model=ScriptedModel())
    memory.reinstate(0)
    memory.reinstate(1)
    early = [record.row_id for record in memory.records(as_of="2024-02-01")]
    assert early == [0]
    assert [hit.row_id for hit in memory.recall("r1 merged", as_of="2024-02-01")] == [0]
    memory.retract(memory.add("z other").row_id)
    assert [record.row_id for record in memory.records(as_of="2024-02-01")] == early, "an unrelated entry changes it"
    assert [record.row_id for record in memory.records(as_of="2024-07-01")] == [0, 1, 2]


@pytest.mark.parametrize(
    "bounds",
    [
        {"since": "2024-03-01", "as_of": "2024-12-31"},
        {"since": "2024-03-01"},
        {"thread": "t2"},
        {"source": "s2"},
        {"where": {"p": 2}},
        {"rows": {1}},
        {"rows": {0, 1}},
        {"rows": lambda record: record.row_id < 2},
        {"rows": lambda record: "merged" not in record.text},
    ],
)
def test_originals_answer_where_the_merged_row_cannot(bounds: dict[str, Any]) -> None:
    memory = memory_of([JANUARY, JUNE])
    before = [record.row_id for record in memory.records(**bounds)]
    assert 1 in before
    memory.consolidate(model=ScriptedModel())
    assert [record.row_id for record in memory.records(**bounds)] == before
    assert {hit.row_id for hit in memory.recall("r1", **bounds)} == set(before)
    assert memory.records(rows={1})[0].state.into == 2, "it says what stands for it"
    assert [record.row_id for record in memory.records()] == [2]
    memory.retract(2)  # what was taken out stays out, under any filter
    assert memory.records(**bounds) == []


def plain_scope(memory: mempp.Memory, bounds: dict[str, Any]) -> list[int]:
    """The rows in scope of a question of now, by the definition."""
    let_through = {row for row in range(len(memory)) if passes(memory.get(row), bounds)}

    def state(row: int) -> mempp.State:
        return memory.get(row).state

    def taken_out(row: int) -> bool:
        return state(row).status in ("archived", "retracted") and not stood_for(row)

    def stood_for(row: int) -> bool:
        return state(row).status == "archived" and state(row).into is not None and state(row).into > row

    def answered(row: int) -> bool:
        return taken_out(row) or row in let_through or (stood_for(row) and answered(state(row).into))

    return [
        row for row in sorted(let_through) if not taken_out(row) and not (stood_for(row) and answered(state(row).into))
    ]


def passes(record: mempp.Record, bounds: dict[str, Any]) -> bool:
    checks = {
        "since": lambda moment: record.occurred_at is not None and record.occurred_at >= moment,
        "author": lambda name: name in record.authors,
        "tags": lambda tag: tag in record.tags,
        "thread": lambda threads: record.thread in ([threads] if isinstance(threads, str) else threads),
        "source": lambda source: record.source == source,
        "where": lambda where: all(record.metadata.get(key) == value for key, value in where.items()),
        "rows": lambda rows: record.row_id in rows,
    }
    return all(checks[name](value) for name, value in bounds.items())


@given(st.integers(0, 999), STEPS)
@example(0, [("add", TWO, 0), ("merge", TWO, 0)])
def test_the_scope_is_that_of_the_definition(seed: int, steps: list) -> None:
    history = History(seed)
    for step in steps:
        history.step(*step)
    for bounds in [{}, *FILTERS]:
        found = [record.row_id for record in history.memory.records(**bounds)]
        assert found == plain_scope(history.memory, bounds), bounds
        if "rows" in bounds:
            asked = {**bounds, "rows": lambda record, permitted=bounds["rows"]: record.row_id in permitted}
            assert [record.row_id for record in history.memory.records(**asked)] == found, "a predicate as its rows"


@given(st.integers(0, 999), STEPS)
@example(0, [("add", TWO, 0), ("run", TWO, 0)])
def test_no_run_takes_a_text_out_of_reach_of_a_filter(seed: int, steps: list) -> None:
    history = History(seed)
    memory = history.memory
    asked = [(bounds, moment) for bounds in FILTERS for moment in (None, *MOMENTS[1::5])]
    for step in steps:
        before = [reachable(memory, as_of=moment, **bounds) for bounds, moment in asked]
        history.step(*step)
        for (bounds, moment), earlier in zip(asked, before, strict=True):
            records = memory.records(as_of=moment, **bounds)
            if step[0] in ("run", "merge"):
                assert earlier <= reachable(memory, as_of=moment, **bounds), (bounds, moment)
            for record in records:
                assert passes(record, bounds)
                stands_for = atoms(memory, record.row_id) - {record.row_id}
                doubled = [one.row_id for one in records if one.row_id in stands_for]
                assert all(memory.get(row).state.into is None for row in doubled), "a row and what stands for it"


def triples_of(memory: mempp.Memory, **bounds: Any) -> set[int]:
    evidence = memory.graph_evidence("Who likes E1?", model=Extractor(), **bounds)
    return {triple.row_id for triple in evidence.triples}


def test_triples_and_cards_follow_the_scope() -> None:
    memory = mempp.in_memory(encoder="none")
    memory.add("E1 likes E2.", occurred_at="2024-01-01", thread="t1")
    memory.add("E1 helps E3.", occurred_at="2024-06-01", thread="t2")
    memory.build_graph(model=Extractor())
    first = memory.merge([0, 1], "E1 merged 0+1")
    later = memory.merge([first, memory.add("E9 is new", thread="t3").row_id], "E1 merged again")
    # A triple of an archived document is out where what stands for the document is in, although no triple is of that.
    assert triples_of(memory) == set()
    assert triples_of(memory, as_of="2024-03-01") == {0}
    assert triples_of(memory, known_at=memory.history(0).changes[0].sequence - 2) == {0, 1}
    assert triples_of(memory, thread="t1") == {0}
    assert triples_of(memory, thread=["t1", "t2"]) == {0, 1}
    assert triples_of(memory, rows=[1, later]) == set()
    assert triples_of(memory, rows=[1]) == {1}
    assert triples_of(memory, rows=[0, first]) == set()
    assert triples_of(memory, rows=lambda record: record.row_id == 1) == {1}
    assert triples_of(memory, rows=lambda record: record.row_id in (0, first)) == set()
    # Documents that are archived take no part, whichever rows are asked for.
    report = memory.extract_facts(model=Extractor("test:two"), rows=[0, 1, first])
    assert (report.documents, report.asked) == (0, 0)
