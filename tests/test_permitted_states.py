"""With `rows=` an answer does not name the row that superseded another, nor its date, unless that row is permitted."""

import pytest

import mempp

OLD = {"text": "the vpn is vendor A", "occurred_at": "2023-01-01", "author": "it"}
SECRET = {"text": "the vpn is vendor B", "occurred_at": "2024-05-01", "author": "board", "tags": ["secret"]}


@pytest.fixture
def memory():
    memory = mempp.in_memory(encoder="none")
    memory.add_many(
        [{"text": "the vpn is vendor A", "occurred_at": "2023-01-01", "author": "it"}, SECRET, "the vpn again"]
    )
    memory.supersede(0, by=1)
    return memory


def permits(record):
    return "secret" not in record.tags


@pytest.mark.parametrize("style", ["plain", "tagged"])
@pytest.mark.parametrize("rows", [[0, 2], {0}, permits], ids=["ids", "one", "predicate"])
def test_a_row_that_is_not_permitted_is_not_named(memory, rows, style):
    (state,) = (hit.record.state for hit in memory.recall("vpn", rows=rows) if hit.row_id == 0)
    assert state == mempp.State(status="superseded")
    assert memory.records(rows=rows)[0].state == next(memory.iter_records(rows=rows)).state == state
    shown = str(memory.evidence("vpn", rows=rows, style=style))
    assert "superseded" in shown
    assert "superseded by" not in shown
    assert "2024" not in shown
    assert memory.get(0).state.by == 1, "who asks without permissions is told"


@pytest.mark.parametrize("rows", [[0, 1], lambda record: True], ids=["ids", "predicate"])
@pytest.mark.parametrize("bounds", [{}, {"author": "it"}], ids=str)
def test_one_that_is_permitted_is_named_also_where_another_filter_leaves_it_out(memory, rows, bounds):
    (state,) = (hit.record.state for hit in memory.recall("vpn", rows=rows, **bounds) if hit.row_id == 0)
    assert (state.status, state.by, state.since) == ("superseded", 1, memory.get(1).occurred_at)
    assert "superseded by row 1 since 2024-05-01" in str(memory.evidence("vpn", rows=rows, **bounds))


def test_of_what_was_not_superseded_yet_nothing_is_told(memory):
    assert memory.records(rows=permits, as_of="2023-06-01")[0].state == mempp.State()


def test_the_predicate_is_asked_once_about_each_row(memory):
    asked = []

    def noted(record):
        asked.append(record.row_id)
        return permits(record)

    memory.evidence("vpn", rows=noted, author="it")
    assert sorted(asked) == [0, 1]
