"""Greedy grouping in blocks against its plain definition, ties and thresholds included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempp.operators import grouping
from mempp.operators.grouping import cosines, first_rows, groups


def plain(vectors, threshold):
    """A row joins the first group, in order of opening, whose first row is near it; else it opens one."""
    opened, first = [], []
    for row in range(len(vectors)):
        for leader in opened:
            if near(vectors[row], vectors[leader], threshold):
                first.append(leader)
                break
        else:
            opened.append(row)
            first.append(row)
    return first


def near(one, other, threshold):
    one, other = one.astype(np.float64), other.astype(np.float64)
    lengths = np.sqrt((one * one).sum()) * np.sqrt((other * other).sum())
    return lengths > 0 and (one * other).sum() / lengths >= threshold - 1e-9


@pytest.fixture(params=["whole", "small blocks", "small blocks and bounds"])
def blocks(request, monkeypatch):
    if request.param != "whole":
        monkeypatch.setattr(grouping, "BLOCK", 5)
        monkeypatch.setattr(grouping, "PANEL", 3)
    monkeypatch.setattr(grouping, "BOUNDED_FROM", 6 if "bounds" in request.param else 10**9)


SMALL = st.integers(1, 4).flatmap(
    lambda d: st.lists(st.lists(st.integers(-2, 2), min_size=d, max_size=d), max_size=40).map(
        lambda rows: np.array(rows, np.float32).reshape(-1, d)
    )
)


@pytest.mark.parametrize("threshold", [0.3, float(1 / np.sqrt(2)), 0.8, 0.85, 1.0])
def test_small_whole_numbers_have_many_ties(blocks, threshold):
    # cos 45° and cosines of 3-4-5 triangles meet the thresholds exactly.
    @given(SMALL)
    def check(vectors):
        assert first_rows(vectors, threshold).tolist() == plain(vectors, threshold)

    check()


def test_crowded_vectors_near_the_threshold(blocks):
    """Thousands of cosines within the error of a product in float32 of the threshold."""
    rng = np.random.default_rng(5)
    for trial in range(6):
        centre = rng.standard_normal(384)
        centre /= np.linalg.norm(centre)
        away = rng.standard_normal((60, 384))
        away -= np.outer(away @ centre, centre)
        away /= np.linalg.norm(away, axis=1)[:, None]
        wanted = 0.85 + rng.choice([0, 1e-9, -1e-9, 1e-8, -1e-8, 1e-6, -1e-6, 1e-2, -1e-2], 60)
        near_ones = wanted[:, None] * centre + np.sqrt(1 - wanted**2)[:, None] * away
        vectors = np.concatenate([centre[None], near_ones]).astype(np.float32)
        assert first_rows(vectors, 0.85).tolist() == plain(vectors, 0.85), trial


def test_clustered_vectors(blocks):
    rng = np.random.default_rng(7)
    centres = rng.standard_normal((30, 48))
    vectors = centres[rng.integers(0, 30, 400)] + 0.35 * rng.standard_normal((400, 48))
    vectors = vectors.astype(np.float32)
    for threshold in (0.7, 0.85, 0.95):
        expected = plain(vectors, threshold)
        assert first_rows(vectors, threshold).tolist() == expected
        by_hand = {}
        for row, leader in enumerate(expected):
            by_hand.setdefault(leader, []).append(row)
        assert groups(np.array(expected)) == [rows for rows in by_hand.values() if len(rows) > 1]
        assert groups(np.array(expected)), "nothing was grouped, so this shows nothing"


def test_by_hand():
    vectors = np.array([[1, 0], [0, 1], [1, 1], [0, 0], [2, 0], [0, 0]], np.float32)
    # (1, 1) is as near to the first as to the second: it joins the group that was opened first.
    assert first_rows(vectors, 0.7).tolist() == [0, 1, 0, 3, 0, 5]
    assert groups(first_rows(vectors, 0.7)) == [[0, 2, 4]]
    assert first_rows(vectors[:0], 0.7).tolist() == []
    assert groups(first_rows(vectors[:0], 0.7)) == []
    assert first_rows(np.zeros((3, 0), np.float32), 0.7).tolist() == [0, 1, 2]
    assert cosines(vectors[[0, 0]], vectors[[2, 3]]).tolist() == [pytest.approx(1 / np.sqrt(2)), 0.0]


def test_equal_vectors_are_near_at_threshold_one():
    vectors = np.random.default_rng(3).standard_normal((50, 384)).astype(np.float32)
    twice = np.concatenate([vectors, vectors * 3])
    assert first_rows(twice, 1.0).tolist() == [*range(50), *range(50)]
