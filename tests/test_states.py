"""States, and what they mean for a scope, worked by hand."""

import numpy as np
import pytest

from mempp.recall import NO_STATES, Row, RowTable, StateChange, check_question, scope_of, state_of
from mempp.recall.table import UNDATED

DAY = 86_400_000_000


def table(*days):
    made = RowTable()
    made.append(
        [
            Row(sequence, 10_000 * DAY + sequence, None if day is None else day * DAY, (), (), None, None, None)
            for sequence, day in enumerate(days)
        ]
    )
    return made


def states(*changes):
    return NO_STATES.with_changes(
        StateChange(100 + place, kind, row, related) for place, (kind, row, related) in enumerate(changes)
    )


def scope(rows, held, as_of=None):
    question = check_question(as_of=None if as_of is None else np.datetime64(as_of, "D").item())
    return np.flatnonzero(scope_of(question, rows, held, len(rows))).tolist()


def day(number):
    return str(np.datetime64(number, "D"))


def test_superseded_rows_stay_and_hidden_rows_go():
    rows = table(1, 2, 3, 4)
    held = states(("supersede", 0, 1), ("retract", 2, None), ("archive", 3, None))
    assert scope(rows, held) == [0, 1]
    assert scope(rows, states(("retract", 2, None), ("reinstate", 2, None))) == [0, 1, 2, 3]


def test_superseding_a_retracted_row_does_not_bring_it_back():
    held = states(("retract", 0, None), ("supersede", 0, 1))
    assert scope(table(1, 2), held) == [1]
    state = state_of(held, table(1, 2).occurred_at, 0, None)
    assert (state.status, state.by) == ("retracted", 1)


def test_a_merged_row_is_visible_from_the_latest_date_of_its_group():
    rows = table(1, 5, 1)  # rows 0 and 1 merged into row 2, which carries the earliest date
    held = states(("archive", 0, 2), ("archive", 1, 2))
    assert scope(rows, held) == [2]
    assert scope(rows, held, day(4)) == [0]
    assert scope(rows, held, day(5)) == [2]
    assert scope(rows, held, day(0)) == []


def test_groups_upon_groups():
    rows = table(1, 3, 1, 9, 1)  # 0 and 1 into 2; 2 and 3 into 4
    held = states(("archive", 0, 2), ("archive", 1, 2), ("archive", 2, 4), ("archive", 3, 4))
    assert [scope(rows, held, day(number)) for number in (1, 2, 3, 8, 9)] == [[0], [0], [2], [2], [4]]


def test_a_group_without_dates_hides_its_originals_at_once():
    rows = table(None, None, 4)
    held = states(("archive", 0, 2), ("archive", 1, 2))
    assert scope(rows, held) == [2]
    assert scope(rows, held, day(4)) == [2]


def test_an_undated_merged_row_stands_for_nothing_as_of_a_date():
    rows = table(1, None, 9)
    held = states(("archive", 0, 1))
    assert scope(rows, held) == [1, 2]
    assert scope(rows, held, day(5)) == [0]
    further = states(("archive", 0, 1), ("archive", 1, 2))
    assert [scope(rows, further, day(number)) for number in (5, 9)] == [[0], [2]]
    assert scope(rows, further) == [2]
    retracted = states(("archive", 0, 1), ("retract", 1, None))
    assert scope(rows, retracted, day(5)) == [0]
    assert scope(rows, retracted) == [2]


def test_a_duplicate_archived_into_an_older_row_does_not_hide_that_row():
    rows = table(1, 5)
    held = states(("archive", 1, 0))
    assert scope(rows, held) == [0]
    assert scope(rows, held, day(2)) == [0]
    assert scope(rows, held, day(6)) == [0]


def test_an_as_of_question_is_not_told_of_a_later_supersession():
    rows = table(1, 5)
    held = states(("supersede", 0, 1))
    occurred_at = rows.occurred_at
    assert state_of(held, occurred_at, 0, 4 * DAY).status == "active"
    assert state_of(held, occurred_at, 0, 5 * DAY).status == "superseded"
    now = state_of(held, occurred_at, 0, None)
    assert (now.status, now.by, now.since.isoformat()) == ("superseded", 1, "1970-01-06T00:00:00+00:00")


def test_an_original_seen_before_the_merge_is_active():
    rows = table(1, 5, 1)
    held = states(("archive", 0, 2), ("archive", 1, 2))
    assert state_of(held, rows.occurred_at, 0, 4 * DAY).status == "active"
    assert state_of(held, rows.occurred_at, 0, None).into == 2


def test_undated_rows_are_out_of_every_as_of_question():
    rows = table(None, 2)
    assert rows.occurred_at.tolist() == [UNDATED, 2 * DAY]
    assert scope(rows, NO_STATES) == [0, 1]
    assert scope(rows, NO_STATES, "9999-12-31") == [1]


def test_circles_are_found_at_any_length():
    held = states(("supersede", 0, 1), ("supersede", 1, 2))
    assert held.leads_to(0, 2)
    assert held.leads_to(2, 2)
    assert not held.leads_to(2, 0)


@pytest.mark.parametrize(
    ("value", "found"), [(1, [0]), (1.0, [0]), (True, [1]), ("A", [2, 3]), (None, [4, 5]), (["b", 1], [0, 3])]
)
def test_metadata_values(value, found):
    rows = RowTable()
    texts = ['{"x":1}', '{"x":true}', '{"x":"a"}', '{"x":["a","b"]}', '{"x":null}', None]
    rows.append([Row(n, n, None, (), (), None, None, text) for n, text in enumerate(texts)])
    question = check_question(where={"x": value})
    assert np.flatnonzero(scope_of(question, rows, NO_STATES, 6)).tolist() == found


def test_as_of_a_date_the_last_supersession_known_then_holds():
    rows = table(1, 5, 9)
    held = states(("supersede", 0, 1), ("supersede", 0, 2))
    assert state_of(held, rows.occurred_at, 0, None).by == 2
    assert state_of(held, rows.occurred_at, 0, 6 * DAY).by == 1
    assert state_of(held, rows.occurred_at, 0, 4 * DAY).by is None
    assert state_of(states(("supersede", 0, 1), ("reinstate", 0, None)), rows.occurred_at, 0, 6 * DAY).by is None
