"""Threads and the context of rows against loops over all pairs."""

from datetime import UTC, datetime
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mempp
from mempp.recall import context as context_module
from mempp.recall.context import LARGEST_DAY, LIKENESS, MOST_PARTNERS, context_of
from mempp.recall.table import UNDATED
from mempp.recall.threads import DAY, Threads

threads = st.sampled_from([None, None, "a", "b", "A"])
moments = st.integers(-3 * DAY, 3 * DAY) | st.sampled_from([None, 0, 0, DAY - 1, DAY, -1])
rows = st.lists(st.tuples(threads, moments, st.booleans()), min_size=1, max_size=14)


def table_of(given_rows, parts=2):
    """The threads, added in several steps."""
    table = Threads()
    size = max(1, len(given_rows) // parts)
    for start in range(0, len(given_rows), size):
        part = given_rows[start : start + size]
        table.append(start, [thread for thread, *_ in part], [moment for _, moment, *_ in part])
    return table


@given(rows, st.data())
def test_threads(given_rows, data):
    table = table_of(given_rows)
    known = data.draw(st.integers(0, len(given_rows)))
    units = table.unit_of(known).tolist()
    for one in range(known):
        assert bool(table.threaded(known)[one]) == (given_rows[one][0] is not None)
        for other in range(known):
            alike = one == other or (given_rows[one][0] is not None and given_rows[one][0] == given_rows[other][0])
            assert (units[one] == units[other]) == alike
        thread = given_rows[one][0]
        found = table.rows_of([units[one]], known).tolist()
        assert found == [row for row in range(known) if thread is not None and given_rows[row][0] == thread]
    for day in range(-4, 5):
        assert table.rows_on([day], known).tolist() == [
            row
            for row, (thread, moment, _) in enumerate(given_rows[:known])
            if thread is None and moment is not None and moment // DAY == day
        ]


def brute(candidates, allowed, given_rows, reach, vectors):
    """({(row, row of its context): weight}, rows that are scored)."""

    def line(row):
        of_thread = [n for n in range(len(given_rows)) if allowed[n] and given_rows[n][0] == given_rows[row][0]]
        return sorted(of_thread, key=lambda n: (given_rows[n][1] is None, given_rows[n][1] or 0, n))

    def day(row):
        return None if given_rows[row][1] is None else given_rows[row][1] // DAY

    def weight(one, other):
        return min(1.0, (float(vectors[one].astype(float) @ vectors[other].astype(float)) - LIKENESS) / (1 - LIKENESS))

    edges = {(row, row): 1.0 for row in candidates}
    if not reach:
        return edges
    scored = set(candidates)
    for row in candidates:
        if given_rows[row][0] is not None:
            place = line(row).index(row)
            scored |= set(line(row)[max(0, place - 1) : place + 2])
        elif vectors is not None and day(row) is not None:
            others = [
                n for n in range(len(given_rows)) if allowed[n] and given_rows[n][0] is None and day(n) == day(row)
            ]
            crowded = len(others) > LARGEST_DAY
            if crowded:
                others = [n for n in others if n in candidates]
            others = [n for n in others if n != row and vectors[row].any() and vectors[n].any() and weight(row, n) > 0]
            if crowded:
                others = sorted(others, key=lambda n: -weight(row, n))[:MOST_PARTNERS]
            for other in others:
                scored.add(other)
                edges[row, other] = weight(row, other)
                if not crowded:
                    edges[other, row] = weight(row, other)
    for row in scored:
        edges[row, row] = 1.0
        if given_rows[row][0] is not None:
            place = line(row).index(row)
            for at, other in enumerate(line(row)):
                if 0 < abs(at - place) <= reach:
                    edges[row, other] = 1 / (1 + abs(at - place))
    return edges


def check(given_rows, candidates, allowed, reach, vectors):
    occurred_at = np.array([UNDATED if moment is None else moment for _, moment, _ in given_rows], np.int64)
    give = None if vectors is None else lambda wanted: (vectors[wanted], vectors[wanted].any(axis=1))
    found = context_of(
        np.array(candidates, np.int64), np.array(allowed), occurred_at, table_of(given_rows), reach, give
    )
    edges = brute(candidates, allowed, given_rows, reach, vectors)
    got = dict(
        zip(
            zip(found.rows[found.target].tolist(), found.seen[found.source].tolist(), strict=True),
            found.weight.tolist(),
            strict=True,
        )
    )
    assert len(got) == len(found.weight)
    assert got == pytest.approx(edges, abs=1e-6)
    assert found.rows.tolist() == sorted({row for row, _ in edges})
    assert found.seen.tolist() == sorted({row for _, row in edges})
    assert all(np.array(allowed)[found.seen])
    assert list(zip(found.target, found.source, strict=True)) == sorted(zip(found.target, found.source, strict=True))
    assert found.threaded.tolist() == [given_rows[row][0] is not None for row in found.rows.tolist()]
    values = np.arange(1.0, len(found.seen) + 1)
    of_row = dict(zip(found.seen.tolist(), values.tolist(), strict=True))
    sums = [sum(w * of_row[other] for (one, other), w in edges.items() if one == row) for row in found.rows.tolist()]
    assert found.gather(values).tolist() == pytest.approx(sums, rel=1e-5, abs=1e-5)


@given(rows, st.integers(0, 4), st.booleans(), st.integers(0, 9), st.data())
def test_context_is_that_of_loops_over_all_pairs(given_rows, reach, with_vectors, seed, data):
    allowed = [inside for *_, inside in given_rows]
    inside = [row for row, one in enumerate(allowed) if one]
    candidates = data.draw(st.lists(st.sampled_from(inside), unique=True)) if inside else []
    vectors = None
    if with_vectors:
        random = np.random.default_rng(seed)
        vectors = random.standard_normal((len(given_rows), 3)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[random.random(len(given_rows)) < 0.2] = 0  # not embedded yet
    check(given_rows, candidates, allowed, reach, vectors)


@pytest.mark.parametrize("reach", [1, 2, 7])
def test_context_in_crowded_days_and_long_threads(reach):
    random = Random(reach)
    given_rows = [
        (random.choice([None, None, None, "a", "b"]), random.choice([None, *range(0, 2 * DAY, DAY // 9)]), True)
        for _ in range(150)
    ]
    vectors = np.random.default_rng(1).standard_normal((150, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    allowed = [random.random() < 0.9 for _ in given_rows]
    candidates = [row for row in range(150) if allowed[row] and random.random() < 0.4]
    check(given_rows, candidates, allowed, reach, vectors)


def test_a_reach_beyond_every_thread_costs_no_more_than_the_thread():
    with mempp.in_memory(encoder="none") as memory:
        for number in range(5):
            memory.add(f"vpn {number}", thread="t", occurred_at=datetime(2024, 1, 1 + number, tzinfo=UTC))
        far = memory.recall("vpn 3", settings=mempp.Settings(context=20))
        near = memory.recall("vpn 3", settings=mempp.Settings(context=4))
        assert [(hit.row_id, hit.score) for hit in far] == [(hit.row_id, hit.score) for hit in near]


def crowd(size):
    """A day of like rows without a thread, all of them candidates; and how many vectors are looked at together."""
    at_once = []

    def give(wanted):
        at_once.append(len(wanted))
        random = np.random.default_rng(size)
        vectors = np.ones((len(wanted), 4)) + 0.1 * random.standard_normal((len(wanted), 4))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors.astype(np.float32), np.ones(len(wanted), np.bool_)

    everything = np.arange(size)
    table = table_of([(None, 0, True)] * size)
    context = context_of(everything, np.ones(size, np.bool_), np.zeros(size, np.int64), table, 2, give)
    return context, at_once


@pytest.mark.parametrize("size", [40, 400, 4000])
def test_a_crowded_day_costs_in_proportion_to_its_rows(size):
    context, at_once = crowd(size)
    assert np.bincount(context.target).max() == MOST_PARTNERS + 1
    assert len(context.weight) == size * (MOST_PARTNERS + 1)
    assert max(at_once) <= context_module._LOOKED_AT_TOGETHER
