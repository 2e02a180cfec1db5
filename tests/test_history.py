"""What became of a row, and what came and changed between two moments."""

import pytest

import mempp


@pytest.fixture
def memory():
    with mempp.in_memory(encoder="none") as made:
        for day, text in enumerate(["A", "B", "C", "unrelated"], start=1):
            made.add(f"version {text}", occurred_at=f"2024-01-{day:02}")
        made.add("undated")
        yield made


def rows(records):
    return [record.row_id for record in records]


def test_the_line_of_supersession_both_ways(memory):
    first = memory.supersede(0, by=1)
    memory.supersede(1, by=2)
    history = memory.history(1)
    assert rows(history.replaced) == [0]
    assert rows(history.replaced_by) == [2]
    assert [(one.kind, one.row_id, one.related) for one in history.changes] == [("supersede", 1, 2)]
    assert rows(memory.history(2).replaced) == [1, 0]
    assert rows(memory.history(0).replaced_by) == [1, 2]
    then = memory.history(2, known_at=first)
    assert (then.replaced, then.changes, then.record.state.status) == ((), (), "active")
    assert rows(memory.history(1, known_at=first).replaced) == [0]
    with pytest.raises(mempp.RowNotFoundError):
        memory.history(9)


def test_state_entries_in_order_with_reasons(memory):
    memory.retract(3, reason="wrong list")
    memory.reinstate(3, reason="right after all")
    history = memory.history(3)
    assert [(one.kind, one.reason) for one in history.changes] == [
        ("retract", "wrong list"),
        ("reinstate", "right after all"),
    ]
    assert history.changes[0].ingested_at < history.changes[1].ingested_at
    assert history.record.state.status == "active"


def test_changes_by_ingest_time(memory):
    moment = memory.get(2).ingested_at
    memory.supersede(0, by=1)
    late = memory.changes(since=moment)
    assert rows(late.records) == [2, 3, 4]
    assert [one.kind for one in late.states] == ["supersede"]
    assert rows(memory.changes(until=moment).records) == [0, 1, 2]
    assert memory.changes(until="2020-01-01") == mempp.Changes(records=(), states=())
    assert rows(memory.changes().records) == [0, 1, 2, 3, 4]


def test_changes_by_event_time(memory):
    memory.supersede(0, by=1)
    memory.retract(3)
    day = memory.changes("2024-01-02", "2024-01-02", by="event")
    assert rows(day.records) == [1]
    assert [(one.kind, one.row_id) for one in day.states] == [("supersede", 0)]
    assert memory.changes("2024-01-03", "2024-01-31", by="event").states == ()
    assert rows(memory.changes("2024-01-03", by="event").records) == [2, 3]


def test_what_cannot_be_asked(memory):
    with pytest.raises(mempp.InputError, match=r"ingest, event.*'both'"):
        memory.changes(by="both")
    with pytest.raises(mempp.InvalidDateError, match="until"):
        memory.changes(until="soon")


def test_a_row_that_was_not_known_then_is_not_shown(memory):
    with pytest.raises(mempp.RowNotFoundError, match="no row 4 then"):
        memory.history(4, known_at=0)
