"""How runs are named beside one another in a report: by their system, and by what else tells them apart."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.errors import EvalError

Result = Mapping[str, Any]
NOT_COMPLETE = " †"

_FIRST = ("preset", "settings.k", "k", "encoder.name")
"""What is told first of a system's configuration; a preset, say, brings many settings with it."""
_MOST = 4
_LONGEST = 30


def label(result: Result) -> str:
    """The name of a run in a table: one that `told_apart` gave, else the variant of a study, else the system."""
    configuration = result["configuration"]
    return str(result.get("label") or configuration["variant"] or configuration["system"])


def named(result: Result) -> str:
    """The label of a run, marked where it is not complete."""
    return label(result) + ("" if result["complete"] else NOT_COMPLETE)


def answered_by(result: Result) -> str | None:
    """The answering model, or None for recall only."""
    models = result["configuration"]["models"]
    return None if models is None else str(models["answer"]["model"])


def names_with_models(results: Sequence[Result]) -> list[str]:
    """Names for tables that do not tell the answering model otherwise: with it, where there are several."""
    several = len({answered_by(result) for result in results}) > 1
    return [named(one) + (f", {answered_by(one) or 'recall only'}" if several else "") for one in results]


def told_apart(results: Sequence[Result], paths: Sequence[Path]) -> list[Result]:
    """The results with labels that say what differs.

    Questions and judge are told wherever those of one benchmark differ, all else among runs of one system and one
    answering model. A file that is given twice is taken once.

    The runs of a study keep the names of its rows; `check_studies` refuses those that do not belong together.
    """
    files = {path.resolve(): (result, path) for result, path in zip(results, paths, strict=True)}
    found = [{**result, "file": str(path)} for result, path in files.values()]
    by_benchmark: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in found:
        if result["configuration"]["study"] is None:
            by_benchmark[result["configuration"]["benchmark"]].append(result)
    for own in by_benchmark.values():
        groups: dict[tuple[str, str | None], list[dict[str, Any]]] = defaultdict(list)
        asked = _differing([_questions(result) for result in own])
        for result, parts in zip(own, asked, strict=True):
            groups[label(result), answered_by(result)].append({"result": result, "parts": parts})
        for group in groups.values():
            _name(group)
    return list(found)


def _name(group: Sequence[dict[str, Any]]) -> None:
    differing = _differing([_settings(one["result"]) for one in group])
    labels = []
    for one, parts in zip(group, differing, strict=True):
        shown = one["parts"] + parts[:_MOST] + (["…"] if len(parts) > _MOST else [])
        labels.append(label(one["result"]) + (f" ({', '.join(shown)})" if shown else ""))
    often = Counter(labels)
    for one, name in zip(group, labels, strict=True):
        one["result"]["label"] = f"{name} [{one['result']['file']}]" if often[name] > 1 else name


def _questions(result: Result) -> dict[str, Any]:
    """What decides the questions and the judging of a run."""
    configuration = result["configuration"]
    selection = {name: configuration["selection"].get(name) for name in ("limit", "fraction", "seed")}
    return {**selection, **configuration["dataset_options"], "judge": (_judge(result) or {}).get("model")}


def _judge(result: Result) -> Mapping[str, Any] | None:
    models = result["configuration"]["models"]
    return None if models is None else models.get("judge")


def _settings(result: Result) -> dict[str, Any]:
    """Every other setting by its name, those that tell most first."""
    configuration = result["configuration"]
    system = _flat(configuration.get("system_configuration") or {})
    first = {name: system[name] for name in _FIRST if name in system}
    rest = {name: value for name, value in system.items() if name not in first and not name.startswith("encoder.")}
    others = {name: configuration.get(name) for name in ("as_of", "budgets", "recall_ks")}
    models = _flat(configuration["models"] or {})
    models = {name: value for name, value in models.items() if name != "judge.model" and not name.endswith("sha256")}
    return first | others | rest | models


def _flat(value: Mapping[str, Any], way: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in value.items():
        found |= _flat(one, f"{way}{name}.") if isinstance(one, Mapping) else {f"{way}{name}": one}
    return found


def _differing(each: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """For each of several the values that not all of them have, as "name=value"."""
    names = dict.fromkeys(name for one in each for name in one)
    differ = [name for name in names if len({json.dumps(one.get(name), sort_keys=True) for one in each}) > 1]
    return [[f"{name.removeprefix('settings.')}={_shown(one[name])}" for name in differ if one.get(name) is not None]
            for one in each]  # fmt: skip


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def check_studies(results: Sequence[Result]) -> None:
    """Make sure that the runs of a study differ in nothing but its variant.

    Raises:
        EvalError: two are of one variant, benchmark and answering model, or of other questions, judges or settings.
    """
    seen: dict[tuple[object, ...], Result] = {}
    first: dict[tuple[object, ...], Result] = {}
    for result in results:
        configuration = result["configuration"]
        if configuration["study"] is None:
            continue
        study = (configuration["study"], configuration["benchmark"], answered_by(result))
        other = seen.setdefault((*study, configuration["variant"]), result)
        if other is not result:
            raise EvalError(
                f"{_file(other)} and {_file(result)} are both {label(result)!r} on {study[1]}, answered by "
                f"{study[2] or 'no model'}; report them apart"
            )
        # Full Context, which stands beside a sweep, has no settings of Mem++.
        kinds: list[tuple[str, dict[str, Any]]] = [("asked", _asked(result))]
        if configuration["system"] == "mempp":
            kinds.append(("set", _same_settings(result)))
        for kind, ours in kinds:
            before = first.setdefault((*study, kind), result)
            theirs = _asked(before) if kind == "asked" else _same_settings(before)
            differ = [name for name in ours if ours[name] != theirs[name]]
            if differ:
                raise EvalError(
                    f"{_file(before)} and {_file(result)} are not of one study: they differ in {', '.join(differ)}; "
                    "report them apart"
                )


def _asked(result: Result) -> dict[str, Any]:
    configuration = result["configuration"]
    return {
        "questions": configuration["selection"].get("sha256"),
        "dataset options": configuration["dataset_options"],
        "judge": _judge(result),
        "as-of bound": configuration.get("as_of"),
    }


def _same_settings(result: Result) -> dict[str, Any]:
    system = result["configuration"].get("system_configuration") or {}
    found = {"preset": system.get("preset"), "encoder": system.get("encoder")}
    if result["configuration"]["study"] == "ablation":
        found["k"] = (system.get("settings") or {}).get("k")
    return found


def _file(result: Result) -> str:
    return str(result.get("file", label(result)))
