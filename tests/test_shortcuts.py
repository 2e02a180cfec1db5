"""Short ways through large records give what the plain ways give, to the last bit."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mempp.indexes import asked as asked_module
from mempp.indexes import bm25
from mempp.indexes.aggregated import shares_in_context, shares_of_units
from mempp.indexes.asked import asked_terms
from mempp.indexes.bm25 import K1, B, rank_by_bm25
from mempp.recall import row_groups, slots
from mempp.recall.fusion import Fused
from mempp.recall.row_groups import RowGroups

BATCHES = st.lists(st.lists(st.integers(-3, 6), max_size=8), max_size=8)


@given(BATCHES, st.lists(st.integers(-4, 7), unique=True, max_size=9), st.integers(0, 70), st.integers(1, 9))
def test_row_groups_are_those_of_a_dictionary(batches, wanted, below, smallest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "_SMALLEST_MERGE", smallest)
        groups, plain, row = RowGroups(), defaultdict(list), 0
        for keys in batches:
            groups.add(np.array(keys, np.int64), np.arange(row, row + len(keys)))
            for key in keys:
                plain[key].append(row)
                row += 1
    expected = [one for key in wanted for one in plain[key] if one < below]
    assert groups.of(wanted, below).tolist() == expected


def test_a_reader_of_row_groups_keeps_its_prefix():
    groups = RowGroups()
    groups.add(np.zeros(5_000, np.int64), np.arange(5_000))  # merged at once
    groups.add(np.zeros(3, np.int64), np.arange(5_000, 5_003))  # noted one by one
    assert len(groups._state.tail) == 1
    assert groups.of([0], 5_002).tolist() == list(range(5_002))


@given(
    st.lists(st.booleans(), max_size=300),
    st.sets(st.integers(0, 299)),
    st.integers(0, 40),
    st.integers(1, 7),
)
def test_the_latest_unmatched(allowed, matched, wanted, size):
    in_scope = [row for row in range(len(allowed)) if allowed[row]]
    fused_rows = np.array([row for row in matched if row < len(allowed) and allowed[row]], np.int64)
    fused = Fused(fused_rows, np.zeros(len(fused_rows)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "_LOOKED_AT", size)
        found = slots._latest_unmatched(fused, np.array(allowed, np.bool_), wanted)
    assert found == [row for row in reversed(in_scope) if row not in matched][:wanted]


@dataclass
class Postings:
    """Random postings over rows, as the index gives them, and the same as a table."""

    n_rows: int
    seed: int

    def __post_init__(self):
        chance = np.random.default_rng(self.seed)
        self.table = chance.integers(1, 4, (5, self.n_rows)) * (chance.random((5, self.n_rows)) < chance.random((5, 1)))
        self.table[chance.integers(0, 5)] *= int(chance.integers(0, 2))  # one term may be held by nobody
        self.lengths = (self.table.sum(axis=0) + chance.integers(1, 9, self.n_rows)).astype(np.uint32)
        self.allowed = chance.random(self.n_rows) < chance.choice([0.1, 0.6, 1.0])
        self.chance = chance

    @property
    def asked(self):
        lists = [(np.flatnonzero(term).astype(np.uint32), term[term > 0].astype(np.uint32)) for term in self.table]
        return asked_terms(lists, self.lengths, self.allowed)

    def idf(self, n, frequency):
        return float(np.log(1 + (n - frequency + 0.5) / (frequency + 0.5)))


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 400), st.integers(0, 2**32 - 1), st.booleans(), st.integers(1, 60))
def test_bm25_in_blocks_is_that_of_every_row(n_rows, seed, every_term, limit):
    given_postings = Postings(n_rows, seed)
    asked, allowed = given_postings.asked, given_postings.allowed
    n = int(allowed.sum())
    scores = {}
    if n:
        mean = int(given_postings.lengths[allowed].astype(np.int64).sum()) / n
        frequencies = [int((term[allowed] > 0).sum()) for term in given_postings.table]
        for row in np.flatnonzero(allowed).tolist():
            norm = K1 * (1 - B + B * (int(given_postings.lengths[row]) / mean))
            held = [place for place in range(5) if given_postings.table[place, row]]
            if held and (len(held) == 5 or not every_term):
                score = 0.0
                for place in held:
                    tf = float(given_postings.table[place, row])
                    score += given_postings.idf(n, frequencies[place]) * (K1 + 1) * tf / (tf + norm)
                scores[row] = score
    expected = sorted(scores.items(), key=lambda item: (-item[1], -item[0]))[:limit]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25, "_BLOCK", 16)
        patch.setattr(bm25, "_BY_LOOKING_UP", 2)
        ranking = rank_by_bm25(asked, limit, every_term=every_term)
    # Logarithms of NumPy and of Python may differ in the last bit.
    assert ranking.row_ids.tolist() == [row for row, _ in expected] or ranking.scores.tolist() == pytest.approx(
        [score for _, score in expected], rel=1e-14
    )


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 400), st.integers(0, 2**32 - 1), st.booleans())
def test_a_scope_of_few_rows_scores_as_one_of_many_to_the_last_bit(n_rows, seed, every_term):
    told = []
    for few, looked_up in ((10**9, 32), (1, 10**9), (1, 1), (1, 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asked_module, "_FEW", few)
            patch.setattr(asked_module, "_LOOKED_UP", looked_up)
            given_postings = Postings(n_rows, seed)
            asked, chance = given_postings.asked, given_postings.chance
        if not asked.in_scope:
            return
        assert (asked.few is None) == (few == 10**9)
        ranking = rank_by_bm25(asked, 20, every_term=every_term)
        _, first, unit_of = np.unique(chance.integers(0, 12, n_rows), return_index=True, return_inverse=True)
        unit_of = np.argsort(np.argsort(first))[unit_of]
        units = np.unique(unit_of[given_postings.allowed])
        shares = shares_of_units(asked, unit_of, units, np.flatnonzero(np.isin(unit_of, units)))
        postings = [(rows.tolist(), counts.tolist()) for rows, counts in asked.postings]
        ranked = ranking.row_ids.tolist(), ranking.scores.tolist()
        told.append((postings, asked.idf, asked.total_length(), ranked, shares.tolist()))
    assert told[0] == told[1] == told[2] == told[3]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_shares_of_rows_taken_together(n_rows, seed):
    given_postings = Postings(n_rows, seed)
    asked, allowed, table = given_postings.asked, given_postings.allowed, given_postings.table
    if not allowed.any():
        return
    chance = given_postings.chance
    held = [place for place in range(5) if (table[place, allowed] > 0).any()]
    n = int(allowed.sum())

    # A row alone.
    seen = np.sort(chance.permutation(np.flatnonzero(allowed))[:30])
    own = shares_in_context(asked, seen, len(seen), lambda values: values)
    weights = [given_postings.idf(n, int((table[place, allowed] > 0).sum())) for place in range(5)]
    mean = float(given_postings.lengths[seen].mean())
    for place, row in enumerate(seen.tolist()):
        norm = K1 * (1 - B + B * (int(given_postings.lengths[row]) / mean))
        share = sum(weights[term] * table[term, row] / (table[term, row] + norm) for term in held)
        assert own[place] == pytest.approx(share / sum(weights) if held else 0.0, rel=1e-12)

    # Threads, numbered in the order of their first rows.
    _, first, unit_of = np.unique(chance.integers(0, 12, n_rows), return_index=True, return_inverse=True)
    unit_of = np.argsort(np.argsort(first))[unit_of]
    in_scope = np.unique(unit_of[allowed])
    units = np.sort(chance.permutation(in_scope)[:4])
    rows = np.flatnonzero(np.isin(unit_of, units))
    shares = shares_of_units(asked, unit_of, units, rows)
    n_units = len(in_scope)
    frequencies = [len(np.unique(unit_of[(table[term] > 0) & allowed])) for term in range(5)]
    weights = [given_postings.idf(n_units, frequency) for frequency in frequencies]
    mean = float(given_postings.lengths[allowed].sum()) / n_units
    for place, unit in enumerate(units.tolist()):
        mine = (unit_of == unit) & allowed
        norm = K1 * (1 - B + B * (float(given_postings.lengths[mine].sum()) / mean))
        counts = [float(table[term, mine].sum()) for term in range(5)]
        share = sum(weights[term] * counts[term] / (counts[term] + norm) for term in held)
        assert shares[place] == pytest.approx(share / sum(weights) if held else 0.0, rel=1e-12)
