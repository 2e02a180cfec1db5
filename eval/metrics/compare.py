"""Two runs over the same questions, side by side: paired differences per metric, overall and per category."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.metrics.bootstrap import Difference, paired_difference
from eval.metrics.summary import Row, group_by_category, metrics_of, scored_value


@dataclass(frozen=True, slots=True)
class Paired:
    """One metric of two runs over the questions that both have scored."""

    a: float
    b: float
    difference: Difference
    """Of a minus b. Where less is better (milliseconds, tokens), a win is a loss."""
    scored: int
    left_out: int
    """Questions in both runs that one of them or both did not score."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs have in common, and what only one of them has."""

    overall: Mapping[str, Paired]
    by_category: Mapping[str, Mapping[str, Paired]]
    only_a: tuple[str, ...]
    """Questions that the other run does not have; they are in no figure here."""
    only_b: tuple[str, ...]


def compare(
    a: Sequence[Row],
    b: Sequence[Row],
    *,
    level: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
    over_collections: bool = False,
) -> Comparison:
    """Pair two runs by question id, and compare every metric that both have; arguments as in `summarise`.

    Means are over the questions that both runs scored, so they may differ from those of each run's own summary.

    Raises:
        ValueError: A question comes twice in a run or has no id, or its category or collection differs between the two.
    """
    of_a, of_b = _by_question(a, "first"), _by_question(b, "second")
    common = [(row, of_b[question]) for question, row in of_a.items() if question in of_b]
    for left, right in common:
        if (left.category, left.collection) != (right.category, right.collection):
            raise ValueError(
                f"question {left.question!r} is of {left.category!r} in {left.collection!r} in the first run, "
                f"of {right.category!r} in {right.collection!r} in the second; compare runs over the same benchmark"
            )
    in_b = set(metrics_of(b))
    metrics = [metric for metric in metrics_of(a) if metric in in_b]

    def paired(rows: Sequence[Row]) -> dict[str, Paired]:
        found = {}
        for metric in metrics:
            both = [
                (x, y, row.collection)
                for row in rows
                if (x := scored_value(row, metric)) is not None
                and (y := scored_value(of_b[row.question], metric)) is not None
            ]
            if both:
                ours, theirs, collections = zip(*both, strict=True)
                difference = paired_difference(
                    ours,
                    theirs,
                    level=level,
                    samples=samples,
                    seed=seed,
                    clusters=collections if over_collections else None,
                )
                found[metric] = Paired(
                    math.fsum(ours) / len(both),
                    math.fsum(theirs) / len(both),
                    difference,
                    scored=len(both),
                    left_out=len(rows) - len(both),
                )
        return found

    rows = [left for left, _ in common]
    return Comparison(
        overall=paired(rows),
        by_category={category: paired(members) for category, members in group_by_category(rows).items()},
        only_a=tuple(question for question in of_a if question not in of_b),
        only_b=tuple(question for question in of_b if question not in of_a),
    )


def _by_question(rows: Sequence[Row], run: str) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        if not row.question:
            raise ValueError(f"a row of the {run} run has no question id; runs are paired by it")
        if row.question in found:
            raise ValueError(f"question {row.question!r} comes twice in the {run} run")
        found[row.question] = row
    return found
