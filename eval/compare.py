"""Two result files of the same questions, side by side: paired differences per metric and category."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eval.console import columns
from eval.errors import EvalError
from eval.labels import Result, label
from eval.metrics.compare import Comparison, Paired
from eval.metrics.compare import compare as compare_rows
from eval.results import JsonObject
from eval.scoring import is_score, metric_rows


def differences_of(a: Result, b: Result) -> list[str]:
    """Why two results cannot be compared question by question; empty where they can."""
    ours, theirs = a["configuration"], b["configuration"]
    found = []
    if ours["benchmark"] != theirs["benchmark"]:
        found.append(f"the benchmarks are {ours['benchmark']} and {theirs['benchmark']}")
    elif a["data"]["sha256"] != b["data"]["sha256"]:
        found.append(f"the data of {ours['benchmark']} differ ({_short(a['data'])} and {_short(b['data'])})")
    if ours["dataset_options"] != theirs["dataset_options"]:
        found.append(f"the dataset's options are {ours['dataset_options']} and {theirs['dataset_options']}")
    if {row["id"] for row in a["rows"]} != {row["id"] for row in b["rows"]}:
        found.append("they are not of the same questions")
    if None not in (_judge(a), _judge(b)) and _judge(a) != _judge(b):
        found.append("their judges differ (model, prompts or repeats)")
    return found


def compare(a: Result, b: Result, *, force: bool = False) -> Comparison:
    """Pair two results by question.

    Raises:
        EvalError: they are not of the same data, questions and judge, and `force` is not given; or they have no
            question in common.
    """
    differ = differences_of(a, b)
    if differ and not force:
        raise EvalError(f"these results cannot be compared: {'; '.join(differ)}; --force compares what they share")
    try:
        comparison = compare_rows(metric_rows(a["rows"]), metric_rows(b["rows"]))
    except ValueError as error:
        raise EvalError(f"these results cannot be compared: {error}") from None
    if not comparison.overall:
        raise EvalError("these results have no scored question in common")
    return comparison


def narrowed(comparison: Comparison, metrics: Sequence[str]) -> Comparison:
    """The comparison with these metrics alone; with all that it has where none is named.

    Raises:
        EvalError: the two do not share one of them.
    """
    for name in metrics:
        if name not in comparison.overall:
            raise EvalError(f"the two results do not share {name!r:.60}; they share {', '.join(comparison.overall)}")
    if not metrics:
        return comparison

    def kept(pairs: Mapping[str, Paired]) -> dict[str, Paired]:
        return {name: pairs[name] for name in metrics if name in pairs}

    return replace(
        comparison,
        overall=kept(comparison.overall),
        by_category={category: kept(pairs) for category, pairs in comparison.by_category.items()},
    )


def unfinished(a: Result, b: Result) -> list[str]:
    """Which of the two was ended early: its questions are those that were done."""
    return [
        f"{name} ({label(one)}) is not complete: the run was ended early, after {len(one['rows'])} questions"
        for name, one in (("A", a), ("B", b))
        if not one["complete"]
    ]


def as_json(a: Result, b: Result, comparison: Comparison) -> JsonObject:
    """The comparison as plain values."""

    def plain(pairs: Mapping[str, Paired]) -> JsonObject:
        return {
            name: {
                "a": one.a,
                "b": one.b,
                "difference": one.difference.mean,
                "low": one.difference.low,
                "high": one.difference.high,
                "p": one.difference.p_two_sided,
                "wins": one.difference.wins,
                "losses": one.difference.losses,
                "ties": one.difference.ties,
                "questions": one.scored,
            }
            for name, one in pairs.items()
        }

    return {
        "overall": plain(comparison.overall),
        "by_category": {category: plain(pairs) for category, pairs in comparison.by_category.items()},
        "complete": {"a": a["complete"], "b": b["complete"]},
        "only_a": list(comparison.only_a),
        "only_b": list(comparison.only_b),
    }


def as_text(a: Result, b: Result, comparison: Comparison, metrics: Sequence[str] = ()) -> str:
    """The comparison for people: a table overall, and one per category with the same columns; scores and the time of
    search unless metrics are named."""
    names = metrics or [name for name in comparison.overall if is_score(name) or name == "search_ms"]
    header = ["", "n", "A", "B", "A − B", "95 % interval", "p", "A wins", "B wins", "ties"]
    parts = [f"A: {label(a)}    B: {label(b)}    {a['configuration']['benchmark']}"]
    sections = [("Overall", comparison.overall), *comparison.by_category.items()]
    for title, pairs in sections:
        lines = [_line(name, pairs[name]) for name in names if name in pairs]
        if lines:
            shown = a["category_names"].get(title, title)
            parts.append(f"{shown}\n{columns(header, lines)}")
    parts.append(
        "Intervals: paired bootstrap over questions; p: sign-flip test, two-sided. Wins are higher values; "
        "for times and tokens lower is better."
    )
    parts += [f"NOTE: {one}." for one in unfinished(a, b)]
    if comparison.only_a or comparison.only_b:
        parts.append(f"Left out: {len(comparison.only_a)} questions of A alone, {len(comparison.only_b)} of B alone.")
    return "\n\n".join(parts)


def _line(name: str, one: Paired) -> list[str]:
    difference = one.difference
    digits = 3 if is_score(name) else 1
    # For a time or a count, whoever has the smaller value does not "win" here: the columns count higher values.
    return [
        name,
        str(one.scored),
        f"{one.a:,.{digits}f}",
        f"{one.b:,.{digits}f}",
        f"{difference.mean:+,.{digits}f}",
        f"[{difference.low:+,.{digits}f}, {difference.high:+,.{digits}f}]",
        f"{difference.p_two_sided:.4f}",
        str(difference.wins),
        str(difference.losses),
        str(difference.ties),
    ]


def _short(data: Mapping[str, Any]) -> str:
    return str(data["sha256"])[:12]


def _judge(result: Result) -> object:
    models = result["configuration"]["models"]
    return None if models is None else models.get("judge")
