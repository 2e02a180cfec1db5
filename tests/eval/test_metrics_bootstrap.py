"""The bootstrap against a plain loop over the same draws, the normal interval, and exact sign flips."""

import math
import random
from itertools import product
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.metrics import bootstrap
from eval.metrics.bootstrap import Interval, interval, paired_difference

scores = st.integers(0, 20).map(lambda twentieths: twentieths / 20)
several = st.lists(scores, min_size=1, max_size=12)


def quantile(sorted_values, share):
    """Linear between the two nearest, as np.quantile by default."""
    place = share * (len(sorted_values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(sorted_values) - 1)
    return sorted_values[below] + (place - below) * (sorted_values[above] - sorted_values[below])


def interval_by_loop(groups, level, samples, seed):
    """Groups of values, drawn whole. A plain value is a group of one."""
    groups = sorted(groups, key=lambda group: (math.fsum(group), len(group)))
    draws = np.random.default_rng(seed).integers(len(groups), size=(samples, len(groups))).tolist()
    means = sorted(fmean([value for place in draw for value in groups[place]]) for draw in draws)
    return quantile(means, (1 - level) / 2), quantile(means, (1 + level) / 2)


@given(several, st.sampled_from([0.5, 0.9, 0.95]), st.integers(0, 3))
def test_against_a_plain_loop(values, level, seed):
    found = interval(values, level=level, samples=60, seed=seed)
    low, high = interval_by_loop([[value] for value in values], level, 60, seed)
    mean = fmean(values)
    assert found.mean == pytest.approx(mean)
    assert (found.low, found.high) == (pytest.approx(min(low, mean)), pytest.approx(max(high, mean)))


@given(st.lists(st.tuples(scores, st.sampled_from("abc")), min_size=1, max_size=12))
def test_clusters_against_a_plain_loop(pairs):
    values, clusters = [value for value, _ in pairs], [cluster for _, cluster in pairs]
    groups = [[value for value, of in pairs if of == cluster] for cluster in set(clusters)]
    found = interval(values, samples=60, clusters=clusters)
    low, high = interval_by_loop(groups, 0.95, 60, 0)
    mean = fmean(values)
    assert (found.low, found.high) == (pytest.approx(min(low, mean)), pytest.approx(max(high, mean)))


@given(several)
def test_a_cluster_for_each_question_is_no_cluster(values):
    assert interval(values, samples=50, clusters=range(len(values))) == interval(values, samples=50)


@pytest.mark.parametrize("chunk", [1, 20])  # 1 is less than one sample
def test_draws_in_parts_are_the_draws_at_once(monkeypatch, chunk):
    values = [0.1, 0.5, 0.9, 0.4, 0.4, 1.0, 0.0]
    at_once, p_at_once = interval(values, samples=501), paired_difference(values, [0.3] * 7, samples=501).p_two_sided
    monkeypatch.setattr(bootstrap, "CHUNK", chunk)
    assert interval(values, samples=501) == at_once
    # NumPy draws bytes four at a time and drops the rest, so the flips are others, and as many.
    in_parts = paired_difference(values, [0.3] * 7, samples=501).p_two_sided
    assert in_parts == pytest.approx(p_at_once, abs=0.1)


@given(st.lists(st.tuples(scores, scores, st.sampled_from("abc")), min_size=1, max_size=12), st.randoms())
def test_the_order_of_questions_does_not_matter(rows, shuffling):
    shuffled = list(rows)
    shuffling.shuffle(shuffled)
    a, b, clusters = zip(*rows, strict=True)
    c, d, clusters_too = zip(*shuffled, strict=True)
    assert interval(a, samples=50) == interval(c, samples=50)
    assert interval(a, samples=50, clusters=clusters) == interval(c, samples=50, clusters=clusters_too)
    assert paired_difference(a, b, samples=50) == paired_difference(c, d, samples=50)


def test_near_the_normal_interval():
    numbers = random.Random(1)
    values = [numbers.gauss(0.6, 0.2) for _ in range(400)]
    width = NormalDist().inv_cdf(0.975) * stdev(values) / math.sqrt(400)
    found = interval(values)
    assert found.low == pytest.approx(fmean(values) - width, abs=0.1 * width)
    assert found.high == pytest.approx(fmean(values) + width, abs=0.1 * width)
    narrower = interval(values, level=0.5)
    assert (narrower.high - narrower.low) / (found.high - found.low) == pytest.approx(0.674 / 1.96, rel=0.1)


def test_it_holds_the_true_mean_as_often_as_it_says():
    numbers = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        found = interval(numbers.binomial(1, 0.7, size=80).astype(float), samples=400)
        held += found.low <= 0.7 <= found.high
    assert 0.91 <= held / 400 <= 0.985  # 0.95 give or take three standard errors, less what the percentile lacks


def test_clusters_widen_where_questions_of_one_collection_agree():
    values = [float(place // 20 % 2) for place in range(200)]
    clusters = [place // 20 for place in range(200)]
    apart, together = interval(values), interval(values, clusters=clusters)
    assert together.mean == apart.mean == 0.5
    assert together.high - together.low > 3 * (apart.high - apart.low)


@given(st.floats(-1e6, 1e6), st.integers(1, 9))
def test_equal_values_have_no_width_and_hold_their_mean(value, count):
    found = interval([value] * count, samples=20)
    assert found.low <= found.mean <= found.high
    assert (found.low, found.mean, found.high) == (pytest.approx(value), pytest.approx(value), pytest.approx(value))


def test_seed_and_level():
    values = [0.0, 0.2, 0.9, 1.0, 0.3]
    assert interval(values, samples=100) == interval(values, samples=100)
    assert interval(values, samples=100) != interval(values, samples=100, seed=1)
    assert interval([0.25]) == Interval(0.25, 0.25, 0.25)


@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=12))
def test_difference_against_interval_and_counting(pairs):
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    found = paired_difference(a, b, samples=60)
    around = interval([x - y for x, y in pairs], samples=60)
    assert (found.mean, found.low, found.high) == (around.mean, around.low, around.high)
    assert found.wins == sum(x > y for x, y in pairs)
    assert found.losses == sum(x < y for x, y in pairs)
    assert found.wins + found.losses + found.ties == len(pairs)
    assert paired_difference(b, a, samples=60).mean == pytest.approx(-found.mean)


@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=8))
def test_p_is_near_that_of_all_sign_flips(pairs):
    differences = [x - y for x, y in pairs]
    observed = abs(math.fsum(differences)) - 1e-9
    flips = [
        abs(math.fsum(sign * each for sign, each in zip(signs, differences, strict=True))) >= observed
        for signs in product((1, -1), repeat=len(differences))
    ]
    found = paired_difference([x for x, _ in pairs], [y for _, y in pairs], samples=4000)
    assert found.p_two_sided == pytest.approx(fmean(flips), abs=0.04)  # five standard errors


def test_p_by_hand():
    assert paired_difference([1.0], [0.0]).p_two_sided == 1  # one question proves nothing
    assert paired_difference([0.3, 0.5], [0.3, 0.5]).p_two_sided == 1
    assert paired_difference([1.0] * 60, [0.0] * 60, samples=999).p_two_sided == 1 / 1000
    # Five questions that all win: 2 of the 2⁵ flips are as far; as one collection they are one toss.
    assert paired_difference([1.0] * 5, [0.0] * 5).p_two_sided == pytest.approx(2 / 32, abs=0.01)
    assert paired_difference([1.0] * 5, [0.0] * 5, clusters="aaaaa").p_two_sided == 1


def test_p_is_near_the_normal_one():
    numbers = random.Random(3)
    a = [numbers.random() for _ in range(300)]
    b = [x + numbers.gauss(0.02, 0.2) for x in a]
    differences = [x - y for x, y in zip(a, b, strict=True)]
    z = fmean(differences) / (stdev(differences) / math.sqrt(300))
    assert 0.01 < (expected := 2 * NormalDist().cdf(-abs(z))) < 0.6
    assert paired_difference(a, b).p_two_sided == pytest.approx(expected, abs=0.02)


def test_rounding_is_no_win():
    found = paired_difference([0.1 + 0.2, 1.0], [0.3, 0.0])
    assert (found.wins, found.losses, found.ties) == (1, 0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: interval([]), "no values"),
        (lambda: interval([1.0, math.nan]), "a value is nan"),
        (lambda: interval([math.inf]), "a value is inf"),
        (lambda: interval([1.0], level=95), "level is 95"),
        (lambda: interval([1.0], level=1.0), "level is 1.0"),
        (lambda: interval([1.0], samples=0), "samples is 0"),
        (lambda: interval([1.0], clusters=["a", "b"]), "2 clusters for 1 values"),
        (lambda: paired_difference([1.0], [1.0, 0.0]), "1 values against 2"),
        (lambda: paired_difference([], []), "no values"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
