"""Reciprocal rank fusion and the recency slots, worked by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mempp.indexes import Ranking
from mempp.recall.fusion import Fused, Leg, fuse, latest_first
from mempp.recall.slots import choose
from mempp.recall.table import UNDATED
from mempp.settings import Settings


def ranking(*rows):
    return Ranking(np.array(rows, dtype=np.int64), np.linspace(1, 0.5, len(rows)))


def legs(lexical=(), tags=(), vector=(), weights=(1.0, 1.0, 4.0)):
    return [
        Leg(name, weight, ranking(*rows))
        for name, weight, rows in zip(("lexical", "tags", "vector"), weights, (lexical, tags, vector), strict=True)
    ]


def test_formula_by_hand():
    fused = fuse(legs(lexical=(7, 3), vector=(3, 5)), 60.0, ties="ingest")
    # 3: 1/(60+1) + 4/(60+0); 5: 4/(60+1); 7: 1/(60+0)
    assert fused.row_ids.tolist() == [3, 5, 7]
    assert fused.scores.tolist() == [1 / 61 + 4 / 60, 4 / 61, 1 / 60]


def test_a_leg_of_weight_zero_matches_nothing():
    fused = fuse(legs(lexical=(1,), vector=(2,), weights=(0.0, 1.0, 1.0)), 60.0, ties="ingest")
    assert fused.row_ids.tolist() == [2]


def test_ties_by_ingestion_and_by_event_date():
    tied = legs(lexical=(0,), tags=(1,), vector=(2,), weights=(1.0, 1.0, 1.0))
    dates = np.array([300, UNDATED, 100])
    assert fuse(tied, 60.0, ties="ingest", occurred_at=dates).row_ids.tolist() == [2, 1, 0]
    assert fuse(tied, 60.0, ties="event", occurred_at=dates).row_ids.tolist() == [0, 2, 1]
    same_day = np.array([100, 100, 100])
    assert fuse(tied, 60.0, ties="event", occurred_at=same_day).row_ids.tolist() == [2, 1, 0]


def test_nothing_matched():
    assert fuse(legs(), 60.0, ties="ingest").row_ids.tolist() == []


rows = st.lists(st.integers(0, 30), unique=True, max_size=20)


@given(rows, rows, rows, st.tuples(*[st.sampled_from([0.0, 0.5, 1.0, 4.0])] * 3), st.sampled_from([1.0, 60.0]))
def test_against_the_formula(lexical, tags, vector, weights, gamma):
    dates = np.array([(row * 7) % 5 if row % 3 else UNDATED for row in range(31)])
    fused = fuse(legs(lexical, tags, vector, weights), gamma, ties="event", occurred_at=dates)
    expected = {}
    for weight, ranked in zip(weights, (lexical, tags, vector), strict=True):
        for rank, row in enumerate(ranked):
            if weight > 0:
                expected[row] = expected.get(row, 0.0) + weight / (gamma + rank)
    order = sorted(expected, key=lambda row: (expected[row], dates[row], row), reverse=True)
    assert fused.row_ids.tolist() == order
    assert fused.scores.tolist() == [expected[row] for row in order]


def chosen(fused, allowed, dates, **settings):
    ingested = np.arange(len(dates)) * 10 + 1000
    return [
        (one.row_id, one.via)
        for one in choose(fused, np.array(allowed, dtype=bool), np.array(dates), ingested, Settings(**settings))
    ]


def test_slots_by_hand():
    fused = fuse(legs(lexical=(0, 1, 2, 3, 4, 5)), 60.0, ties="ingest")
    dates = [10, 20, 30, 60, 50, 40, 70, UNDATED]
    # k = 4 with two slots: 0 and 1 by score; of 2, 3, 4, 5 the latest-dated are 3 and 4
    assert chosen(fused, [1] * 8, dates, k=4, recency_slots=2) == [
        (0, "score"), (1, "score"), (3, "recency"), (4, "recency"),
    ]  # fmt: skip


def test_slots_with_undated_rows():
    fused = fuse(legs(lexical=(0, 1, 2, 3)), 60.0, ties="ingest")
    dates = [10, UNDATED, 20, 1025]  # row 1 was ingested at 1010, row 3 dated later than that
    by_event = chosen(fused, [1] * 4, dates, k=3, recency_slots=2)
    assert by_event == [(0, "score"), (3, "recency"), (2, "recency")]
    by_ingest = chosen(fused, [1] * 4, dates, k=3, recency_slots=2, undated="ingest")
    assert by_ingest == [(0, "score"), (3, "recency"), (1, "recency")]


def test_empty_slots_take_the_latest_ingested_unmatched_rows_in_scope():
    fused = fuse(legs(lexical=(2,)), 60.0, ties="ingest")
    dates = [90, 10, 20, 30, 40]
    allowed = [1, 1, 1, 1, 0]
    assert chosen(fused, allowed, dates, k=10, recency_slots=2) == [(2, "score"), (3, "fill"), (1, "fill")]
    assert chosen(fused, allowed, dates, k=10, recency_slots=0) == [(2, "score")]
    filled = chosen(fused, allowed, dates, k=10, recency_slots=2, fill=True)
    assert filled == [(2, "score"), (3, "fill"), (1, "fill"), (0, "fill")]


def test_a_small_k_of_a_preset_is_all_slots_and_of_the_default_the_best_match():
    fused = fuse(legs(lexical=(0, 1, 2)), 60.0, ties="ingest")
    assert chosen(fused, [1] * 3, [10, 30, 20], k=1, recency_slots=3) == [(1, "recency")]
    assert chosen(fused, [1] * 3, [10, 30, 20], k=1) == [(0, "score")]


def test_latest_first_with_equal_dates():
    order = latest_first(np.array([0, 1, 2]), np.array([5, 5, UNDATED]), np.array([1, 2, 3]), "event")
    assert order.tolist() == [1, 0, 2]


def test_what_takes_an_empty_slot_stands_behind_the_recency_hits():
    fused = Fused(np.array([5, 1, 2, 3]), np.array([1.0, 0.95, 0.3, 0.2]))
    dates = [0, 9, 1, 1, 1, 3]
    assert chosen(fused, [1] * 6, dates, k=4, recency_slots=4, recency_floor=1.0) == [
        (5, "recency"), (1, "score"), (2, "score"), (3, "score"),
    ]  # fmt: skip
    assert chosen(fused, [1] * 6, dates, k=4, recency_slots=3, recency_floor=0.9) == [
        (5, "score"), (1, "recency"), (2, "score"), (3, "score"),
    ]  # fmt: skip
