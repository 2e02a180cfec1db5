"""What a result file and a line of a rows file must hold, so that whoever reads one can rely on it.

These files may be edited, cut, or made by other programs. Only what `compare`, `report`, `rejudge` and `--resume` use
is checked, and that the summary follows from the rows.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eval.scoring import is_score
from mempp.errors import quoted

Form = Any
"""A type; a mapping of keys that must be there to their forms; [form] for a list; a function that checks the rest."""

_METRIC = re.compile(r"[a-z][a-z0-9_]*(?:@[1-9][0-9]{0,8})?")
_LARGEST = 1e15
_CLOSE = 1e-9


class FormError(Exception):
    """What is wrong, with the way to it."""


def check(value: object, form: Form, way: str = "") -> None:
    """Hold a value against a form.

    Raises:
        FormError: it has another.
    """
    if isinstance(form, dict):
        if not isinstance(value, dict):
            raise _fault(way, value, "an object")
        for key, of_value in form.items():
            if key not in value:
                raise FormError(f"{way or 'it'} has no {key!r}")
            check(value[key], of_value, _joined(way, key))
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise _fault(way, value, "a list")
        for at, one in enumerate(value):
            check(one, form[0], f"{way}[{at}]")
    elif isinstance(form, type):
        if not isinstance(value, form):
            raise _fault(way, value, {str: "a text", bool: "true or false"}.get(form, "an object"))
    else:
        form(value, way)


def number(least: float = 0.0, most: float = _LARGEST) -> Callable[[object, str], None]:
    """A number between bounds."""

    def checked(value: object, way: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise _fault(way, value, f"a number from {least:g} to {most:g}")

    return checked


def count(value: object, way: str) -> None:
    """A whole number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise _fault(way, value, "a whole number of 0 or more")


def maybe(form: Form) -> Callable[[object, str], None]:
    """Of the form, or null."""
    return lambda value, way: None if value is None else check(value, form, way)


def each(form: Form) -> Callable[[object, str], None]:
    """An object whose values, under whatever keys, are of the form."""

    def checked(value: object, way: str) -> None:
        check(value, dict, way)
        assert isinstance(value, dict)
        for key, one in value.items():
            check(one, form, _joined(way, key))

    return checked


def metrics(form: Callable[[bool], Form]) -> Callable[[object, str], None]:
    """An object of metrics; the form depends on whether the metric is a share from 0 to 1."""

    def checked(value: object, way: str) -> None:
        check(value, dict, way)
        assert isinstance(value, dict)
        for name, one in value.items():
            if not _METRIC.fullmatch(name):
                raise FormError(f"{way} names the metric {name[:60]!r}, and there is none of that form")
            check(one, form(is_score(name)), _joined(way, name))

    return checked


def _value(share: bool) -> Form:
    return number(0, 1) if share else number()


_SHARE = number(0, 1)
_MEANS = metrics(_value)
_INTERVALS = metrics(lambda share: {"low": _value(share), "high": _value(share)})
_TOKENS = {"input_tokens": count, "output_tokens": count, "cached": bool}
_USAGE = {"requests": count, "cached": count, "input_tokens": count, "output_tokens": count}
_TIMES = {"median": number(), "p95": number(), "mean": number()}

INGEST: Form = {"collection": str, "documents": count, "seconds": number(), "bytes_stored": maybe(count)}
ROW: Form = {
    "id": str,
    "collection": str,
    "category": str,
    "question": str,
    "as_of": maybe(str),
    "asked_at": maybe(str),
    "gold": {
        "answers": [str],
        "evidence": [str],
        "rubric": [{"text": str, "weight": number(5e-324)}],
        "choices": each(str),
        "unanswerable": bool,
    },
    "answer": maybe({"text": str, "error": maybe(str), "failed": bool, "seconds": number(), **_TOKENS}),
    "verdict": maybe({"repeats": [_SHARE], "unparsed": count, "failed": count, **_TOKENS}),
    "scores": metrics(lambda share: maybe(_value(share))),
    "error": maybe(str),
}
_COUNTS = (
    "questions", "without_gold_evidence", "retrieval_errors", "answered", "answer_errors", "judged", "judge_errors",
    "unparsed_verdicts",
)  # fmt: skip
RESULT: Form = {
    "complete": bool,
    "summary": {"overall": _MEANS, "by_category": each(_MEANS)},
    "intervals": {"overall": _INTERVALS, "by_category": each(_INTERVALS)},
    "questions": each(count),
    "counts": dict.fromkeys(_COUNTS, count),
    "judging": maybe({"repeats": count, "mean_of_each": [_SHARE], "standard_deviation": maybe(number())}),
    "timing": each(_TIMES),
    "usage": maybe({"answer": _USAGE, "judge": _USAGE, "cost_usd": maybe(number())}),
    "configuration": {
        "benchmark": str,
        "dataset_options": each(str),
        "selection": {"of": count},
        "system": str,
        "study": maybe(str),
        "variant": maybe(str),
        "models": maybe({"answer": {"model": str}, "judge": maybe({"kind": str, "model": maybe(str)})}),
    },
    "configuration_digest": str,
    "data": {"title": str, "sha256": str},
    "category_names": each(str),
    "versions": each(str),
    "notes": [str],
    "ingest_total": {
        "collections": count,
        "documents": count,
        "seconds": number(),
        "bytes_stored": maybe(count),
    },
    "ingest": [INGEST],
    "rows": [ROW],
}


def check_result(result: Mapping[str, Any]) -> None:
    """Hold a result file against its form, and its summary against its rows.

    Raises:
        FormError: it has another form, or was edited.
    """
    check(result, RESULT)
    rows, variant = result["rows"], result["configuration"]["variant"]
    if len({row["id"] for row in rows}) < len(rows):
        raise FormError("two of its rows are of one question")
    if result["configuration"]["study"] == "sweep-k" and not re.fullmatch(r"k=[1-9][0-9]{0,8}|(?!k=).*", variant or ""):
        raise FormError(f"the variant of its sweep is {str(variant)[:60]!r}")
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["category"]].append(row)
    if result["questions"] != {name: len(members) for name, members in groups.items()}:
        raise FormError("its 'questions' are not the number of its rows in each category")
    summary, intervals = result["summary"], result["intervals"]
    _hold(summary["overall"], intervals["overall"], rows, "overall")
    if not summary["by_category"].keys() == intervals["by_category"].keys() == groups.keys():
        raise FormError("its categories are not those of its rows")
    for category, members in groups.items():
        _hold(summary["by_category"][category], intervals["by_category"][category], members, category)


def _hold(
    means: Mapping[str, float], intervals: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], group: str
) -> None:
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in row["scores"].items():
            if value is not None:
                values[name].append(value)
    if not means.keys() == intervals.keys() == values.keys():
        raise FormError(f"the metrics of its summary ({group[:60]}) are not those of its rows")
    for name, mean in means.items():
        expected = math.fsum(values[name]) / len(values[name])
        if not math.isclose(mean, expected, rel_tol=_CLOSE, abs_tol=_CLOSE):
            raise FormError(
                f"{name} in its summary ({group[:60]}) is {mean:g}, and its rows have {expected:g}: it was edited"
            )


def parsed(text: str | bytes) -> Any:
    """A JSON value; numbers that are none (NaN, Infinity) are refused.

    Raises:
        ValueError: it is no JSON, or nested deeper than can be read.
    """

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is no number of JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _joined(way: str, key: object) -> str:
    return f"{way}.{key}"[:200] if way else str(key)[:200]


def _fault(way: str, value: object, wanted: str) -> FormError:
    return FormError(f"{way or 'it'} is {quoted(value, 60)}, not {wanted}")
