"""How far a mean over questions would move with other questions of the same kind.

`interval` is the percentile bootstrap (Efron and Tibshirani, 1993, ch. 13): questions are drawn with replacement, as
many as there are, and the interval holds the middle of the means of many such draws. `paired_difference` does the same
with the differences of two systems question by question, which is much narrower than two separate intervals, because
hard questions are hard for both; its p-value is that of the sign-flip randomisation test (Fisher; for retrieval Smucker
et al., 2007): if the systems did not differ, each question's difference might as well have had the other sign. Unlike a
p-value read from the bootstrap it stays honest with few questions. Interval and p-value may disagree at the margin.

`clusters` names for each question the collection that it comes from; whole collections are then drawn (or flipped),
and the mean is still over questions. Use it to speak about *other collections*: LoCoMo's questions on one conversation
share one memory, and are not independent. Leave it out to speak about other questions on the same collections, as
published intervals do, and where there is one collection only (OrgMemBench). With fewer than ten or so clusters the
interval comes out too narrow: read it as the least that the mean may move.

What an interval does not hold: the judge's own unsteadiness (judge repeatedly for that), and what no question showed.
If all values are the same, or there is only one, it has no width; that is no certainty.

Results depend on the values and the seed, not on the order of the values. NumPy may change its random streams between
versions; the last digits of an interval then change.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CHUNK = 1_000_000  # random numbers in memory at a time: 8 MB
TIE = 1e-9  # a difference below it is rounding, and no win


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over questions, and where it would lie with other questions."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of a minus b over the same questions, its interval, and on how many questions which was ahead."""

    mean: float
    low: float
    high: float
    p_two_sided: float
    wins: int
    losses: int
    ties: int


def interval(
    values: Sequence[float],
    *,
    level: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> Interval:
    """The mean of one value per question, with its percentile bootstrap interval.

    Args:
        values: One finite number for each question, at least one.
        level: How much of the bootstrap means the interval holds.
        samples: How often the questions are drawn.
        seed: Of the draws.
        clusters: For each value, the collection of its question, to draw whole collections.

    Raises:
        ValueError: No values, a value that is not finite, or an argument out of its range.
    """
    sums, counts = _units(values, clusters)
    _check(level, samples)
    mean = math.fsum(values) / len(values)
    low, high = np.quantile(_resampled_means(sums, counts, samples, seed), [(1 - level) / 2, (1 + level) / 2])
    # Rounding may put a bound beyond the mean by a last digit, and a plot's error bars refuse that.
    return Interval(mean, min(float(low), mean), max(float(high), mean))


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    *,
    level: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> Difference:
    """The mean of a − b, where a[i] and b[i] are two systems' values for the same question.

    Arguments and errors as in `interval`. `p_two_sided` is (1 + n) / (1 + samples), n being how many of the random
    sign flips give a mean at least as far from 0 as the one observed; so it is never 0.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} values against {len(b)}; pair them by question first")
    differences = [float(x) - float(y) for x, y in zip(a, b, strict=True)]
    around = interval(differences, level=level, samples=samples, seed=seed, clusters=clusters)
    sums, _ = _units(differences, clusters)
    wins = sum(difference > TIE for difference in differences)
    losses = sum(difference < -TIE for difference in differences)
    return Difference(
        around.mean,
        around.low,
        around.high,
        _sign_flip_p(sums, samples, seed),
        wins,
        losses,
        len(differences) - wins - losses,
    )


def _check(level: float, samples: int) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; it must be between 0 and 1, such as 0.95")
    if samples < 1:
        raise ValueError(f"samples is {samples}; it must be 1 or more")


def _units(values: Sequence[float], clusters: Sequence[Hashable] | None) -> tuple[Floats, Floats | None]:
    """What is drawn, as (sum of its values, how many), in an order that does not depend on the callers'.

    Without clusters each value is a unit, and the counts, all 1, are None.
    """
    if not len(values):
        raise ValueError("no values; a mean needs at least one")
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"a value is {value}; values are finite numbers")
    if clusters is None:
        return np.sort(np.asarray(values, dtype=np.float64)), None
    if len(clusters) != len(values):
        raise ValueError(f"{len(clusters)} clusters for {len(values)} values; each value has one")
    members: dict[Hashable, list[float]] = {}
    for cluster, value in zip(clusters, values, strict=True):
        members.setdefault(cluster, []).append(value)
    units = sorted((math.fsum(each), len(each)) for each in members.values())
    return np.array([total for total, _ in units]), np.array([float(count) for _, count in units])


def _resampled_means(sums: Floats, counts: Floats | None, samples: int, seed: int) -> Floats:
    random = np.random.default_rng(seed)
    units = len(sums)
    means = np.empty(samples)
    for start, stop in _chunks(samples, units):
        drawn = random.integers(units, size=(stop - start, units))
        totals = sums[drawn].sum(axis=1)
        means[start:stop] = totals / (units if counts is None else counts[drawn].sum(axis=1))
    return means


def _sign_flip_p(sums: Floats, samples: int, seed: int) -> float:
    random = np.random.default_rng((seed, 1))  # another stream than that of the interval
    total = math.fsum(sums)
    as_far, rounding = 0, TIE * float(np.abs(sums).sum())
    for start, stop in _chunks(samples, len(sums)):
        kept = random.integers(2, size=(stop - start, len(sums)), dtype=np.int8).astype(np.float64) @ sums
        flipped = kept - (total - kept)  # what keeps its sign, less what changes it
        as_far += int(np.count_nonzero(np.abs(flipped) >= abs(total) - rounding))
    return (1 + as_far) / (1 + samples)


def _chunks(samples: int, units: int) -> list[tuple[int, int]]:
    """Samples in parts of about CHUNK random numbers."""
    step = max(1, CHUNK // units)
    return [(start, min(start + step, samples)) for start in range(0, samples, step)]
