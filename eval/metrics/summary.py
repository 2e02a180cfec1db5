"""Means over the questions of a run, per category and overall, with their intervals.

Overall is the mean over all questions, so that a category weighs as many questions as it has, as in the paper; it is
not the mean of the categories. A value of None (not scored: no gold evidence, no answering model) is left out of its
mean and counted; a metric that no question has is absent, never 0.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eval.metrics.bootstrap import interval


@dataclass(frozen=True, slots=True)
class Row:
    """The scores of one question."""

    category: str
    values: Mapping[str, float | None]
    """Metric → value; None, or no such metric, where it cannot be scored."""
    question: str = ""
    """Id of the question; needed to compare two runs."""
    collection: str = ""
    """Id of its collection; needed for intervals over collections."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of one metric, its interval, and how many questions it is of."""

    mean: float
    low: float
    high: float
    scored: int
    left_out: int
    """Questions whose value is None."""


Estimates = Mapping[str, Estimate]
"""Metric → estimate."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a run; metrics and categories in the order in which the rows first name them."""

    overall: Estimates
    by_category: Mapping[str, Estimates]
    questions: Mapping[str, int] = field(default_factory=dict)
    """Category → how many questions it has, scored or not."""

    def means(self) -> dict[str, object]:
        """`{"overall": {metric: mean}, "by_category": {category: {metric: mean}}}`, for a result file."""
        return self._shaped(lambda each: each.mean)

    def intervals(self) -> dict[str, object]:
        """The same shape with `{"low", "high", "scored", "left_out"}` in place of each mean."""
        return self._shaped(
            lambda each: {"low": each.low, "high": each.high, "scored": each.scored, "left_out": each.left_out}
        )

    def _shaped(self, of: Callable[[Estimate], object]) -> dict[str, object]:
        return {
            "overall": {metric: of(each) for metric, each in self.overall.items()},
            "by_category": {
                category: {metric: of(each) for metric, each in estimates.items()}
                for category, estimates in self.by_category.items()
            },
        }


def summarise(
    rows: Sequence[Row],
    *,
    level: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
    over_collections: bool = False,
) -> Summary:
    """Means and bootstrap intervals of every metric, overall and per category.

    Args:
        rows: One for each question.
        level: Of the intervals.
        samples: Of the bootstrap.
        seed: Of the bootstrap.
        over_collections: Draw whole collections instead of questions; `bootstrap.py` says when.

    Raises:
        ValueError: A value is not a finite number.
    """
    categories = group_by_category(rows)

    def estimates(of: Sequence[Row]) -> dict[str, Estimate]:
        found = {}
        for metric in metrics_of(rows):
            scored = [(value, row.collection) for row in of if (value := scored_value(row, metric)) is not None]
            if scored:
                values = [value for value, _ in scored]
                clusters = [collection for _, collection in scored] if over_collections else None
                around = interval(values, level=level, samples=samples, seed=seed, clusters=clusters)
                found[metric] = Estimate(
                    around.mean, around.low, around.high, scored=len(values), left_out=len(of) - len(values)
                )
        return found

    return Summary(
        overall=estimates(rows),
        by_category={category: estimates(members) for category, members in categories.items()},
        questions={category: len(members) for category, members in categories.items()},
    )


def metrics_of(rows: Iterable[Row]) -> list[str]:
    """Every metric that a row names, in order of first mention."""
    return list(dict.fromkeys(metric for row in rows for metric in row.values))


def group_by_category(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Category → its rows, in order of first mention."""
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row.category, []).append(row)
    return grouped


def scored_value(row: Row, metric: str) -> float | None:
    """A row's value of a metric, or None if it was not scored; ValueError if it is no finite number."""
    value = row.values.get(metric)
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{metric} of question {row.question!r} ({row.category}) is {value}, not a finite number")
    return value
