"""Consolidation and the past: for no as-of date does it change which texts can be reached, nor let the future in.

Every original text is an atom, named by its row. A merged text holds the atoms of the rows that it was made of; which
these are stands in the text. Hypothesis draws histories of documents, runs, runs taken back, and changes by hand.
"""

import random
import re
from datetime import UTC, datetime, timedelta

from consolidation_tools import TopicEncoder
from hypothesis import given
from hypothesis import strategies as st

import mempp
from mempp.llm import Reply, Request, Usage

START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 8


class Drawn:
    """Labels by lot, from a seed; a merged text may open another topic, and names the rows that it was made of."""

    name = "test:drawn"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def ask(self, request: Request) -> Reply:
        rows = re.findall(r'^<record-\w+ number="\d+" row="(\d+)"', request.prompt, re.MULTILINE)
        lot = random.Random(f"{self.seed} {rows}")
        if request.schema is not None:
            label = lot.choice(["restatement", "restatement", "conflict", "conflict", "distinct", "nonsense"])
            text = f'{{"label": "{label}"}}'
        else:
            text = f"{lot.choice(WORDS)} merged {'+'.join(rows)}"
        return Reply(text=text, usage=Usage(1, 1), seconds=0.0, stopped="end")

    def stream(self, request: Request) -> None:
        raise NotImplementedError


WORDS = ["ka", "lo", "mi"]
TOPICS = st.sampled_from(WORDS)
DATES = st.none() | st.integers(0, DAYS).map(lambda day: START + timedelta(days=day))
DOCUMENTS = st.lists(st.tuples(TOPICS, DATES), min_size=1, max_size=6)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "run", "run", "undo", "supersede", "retract", "reinstate"]),
        DOCUMENTS,
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=7,
)
MOMENTS = [START + timedelta(days=day, hours=hour) for day in range(-1, DAYS + 1) for hour in (0, 12)]


def atoms(memory: mempp.Memory, row: int) -> set[int]:
    merged = re.search(r"merged ([\d+]+)$", memory.get(row).text)
    return {row} if merged is None else set().union(*(atoms(memory, int(one)) for one in merged[1].split("+")))


def reachable(memory: mempp.Memory, **bounds: object) -> set[int]:
    rows = [record.row_id for record in memory.records(**bounds)]
    return set().union(*(atoms(memory, row) for row in rows))


def everything(memory: mempp.Memory) -> list[set[int]]:
    return [reachable(memory), *(reachable(memory, as_of=moment) for moment in MOMENTS)]


def check_nothing_is_seen_early(memory: mempp.Memory) -> None:
    for moment in MOMENTS:
        for record in memory.records(as_of=moment):
            dates = [memory.get(atom).occurred_at for atom in atoms(memory, record.row_id)]
            assert None not in dates, "an as-of question never sees what is undated"
            assert max(dates) <= moment, f"row {record.row_id} holds text from after {moment}"
            if record.state.by is not None:
                newer = [memory.get(atom).occurred_at for atom in atoms(memory, record.state.by)]
                assert max(newer) <= moment, "it is told of what came later"
                assert record.state.since == max(newer)


@given(st.integers(0, 999), STEPS)
def test_no_run_changes_what_can_be_reached(seed: int, steps: list) -> None:
    memory = mempp.in_memory(encoder=TopicEncoder())
    runs: list[str] = []
    kept: list[tuple[int, list[list[mempp.Record]]]] = []
    number = 0
    for what, documents, chosen in steps:
        if what == "add":
            for topic, date in documents:
                number += 1
                memory.add(f"{topic} note {number}", occurred_at=date)
            continue
        before = everything(memory)
        states = [memory.get(row).state for row in range(len(memory))]
        if what == "run":
            report = memory.consolidate(model=Drawn(seed), concurrency=1)
            assert everything(memory) == before
            again = memory.consolidate(model=Drawn(seed), concurrency=1)
            assert not {"distinct", "conflict", "restatement"} & {
                group.outcome
                for group in again.groups
                if group.rows in {one.rows for one in report.groups} - left(report)
            }
            assert everything(memory) == before
            runs += [one.run_id for one in (report, again) if one.run_id is not None]
        elif what == "undo" and runs:
            # What was retracted by hand may have been seen through a merged row until now; all else stays.
            memory.undo(runs.pop(chosen % len(runs)))
            for earlier, now in zip(before, everything(memory), strict=True):
                assert now <= earlier
                assert {memory.get(atom).state.status for atom in earlier - now} <= {"retracted"}
        elif what == "supersede" and len(memory) > 1:
            old, by = chosen % len(memory), (chosen + 1) % len(memory)
            if memory.get(by).state.status == memory.get(old).state.status == "active" and old != by:
                memory.supersede(old, by=by)
                assert everything(memory) == before
        elif what == "retract" and len(memory):
            memory.retract(chosen % len(memory))
        elif what == "reinstate" and len(memory):
            memory.reinstate(chosen % len(memory))
        assert len(states) <= len(memory)
        check_nothing_is_seen_early(memory)
        kept.append((memory.head_sequence, past(memory, memory.head_sequence)))
    for sequence, answers in kept:
        assert past(memory, sequence) == answers, "a past answer stays"


def left(report: mempp.ConsolidationReport) -> set[tuple[int, ...]]:
    return {group.rows for group in report.groups if group.outcome == "left"}


def past(memory: mempp.Memory, sequence: int) -> list[list[mempp.Record]]:
    return [memory.records(as_of=moment, known_at=sequence) for moment in (None, *MOMENTS[::3])]


@given(st.integers(0, 999), DOCUMENTS, DOCUMENTS)
def test_undo_gives_back_every_state(seed: int, first: list, second: list) -> None:
    memory = mempp.in_memory(encoder=TopicEncoder())
    told = []
    runs = []
    for documents in (first, second):
        for topic, date in documents:
            memory.add(f"{topic} note {len(memory)} {len(documents)} {len(told)}", occurred_at=date)
        told.append([memory.get(row).state for row in range(len(memory))])
        runs.append(memory.consolidate(model=Drawn(seed), concurrency=1).run_id)
    for states, run_id in zip(reversed(told), reversed(runs), strict=True):
        if run_id is not None:
            memory.undo(run_id)
        assert [memory.get(row).state for row in range(len(states))] == states
    merged = [row for row in range(len(memory)) if " merged " in memory.get(row).text]
    assert all(memory.get(row).state.status == "archived" for row in merged)
    check_nothing_is_seen_early(memory)
