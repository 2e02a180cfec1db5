"""Result files as a report: Markdown tables in the shape of the paper's Tables 1 to 4 and 7, and plots."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.ablate import ABLATIONS, FULL
from eval.errors import EvalError
from eval.labels import NOT_COMPLETE, Result, answered_by, check_studies, label, named, names_with_models
from eval.progress import duration
from eval.scoring import is_score
from eval.tables import categories, category_name, markdown, number, percent, size

CHARACTERS_PER_TOKEN = 4


def report(results: Sequence[Result]) -> str:
    """The report as Markdown.

    Raises:
        EvalError: results of one benchmark are over different data, or those of one study are not of one.
    """
    check_studies(results)
    results = sorted(results, key=_place)
    by_benchmark: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_benchmark[result["configuration"]["benchmark"]].append(result)
    parts = ["# Evaluation report"]
    for benchmark, own in by_benchmark.items():
        _check_same(benchmark, own)
        parts.append(f"## {own[0]['data']['title']}")
        parts.append(_about(own))
        plain = [result for result in own if result["configuration"]["study"] is None]
        if plain:
            parts += _section(benchmark, plain)
        sweep = [result for result in own if result["configuration"]["study"] == "sweep-k"]
        if sweep:
            parts += ["### Score over k (Table 7)", sweep_table(sweep)]
    ablations = [result for result in results if result["configuration"]["study"] == "ablation"]
    if ablations:
        parts += ["## Ablation (Table 4)", *ablation_tables(ablations)]
    if any(not result["complete"] for result in results):
        parts.append("† not complete: the run was ended early, and its figures are over the questions that were done.")
    return "\n\n".join(parts) + "\n"


def _place(result: Result) -> tuple[int, int]:
    """Plain runs as they are given, ablations in the order of their table, sweeps by k with the rest at the end."""
    study, variant = result["configuration"]["study"], label(result)
    if study == "ablation":
        return 1, list(ABLATIONS).index(variant) if variant in ABLATIONS else len(ABLATIONS)
    if study == "sweep-k":
        return (2, int(variant[2:])) if variant.startswith("k=") else (3, 0)
    return 0, 0


def _check_same(benchmark: str, results: Sequence[Result]) -> None:
    if len({result["data"]["sha256"] for result in results}) > 1:
        raise EvalError(f"the results on {benchmark} are over different data; report each kind apart")


def _about(results: Sequence[Result]) -> str:
    first = results[0]
    asked = sorted({result["counts"]["questions"] for result in results})
    lines = [
        f"{' / '.join(map(str, asked))} of {first['configuration']['selection']['of']} questions, "
        f"data SHA-256 `{first['data']['sha256'][:16]}…`."
    ]
    for name, result in zip(names_with_models(results), results, strict=True):
        versions = result["versions"]
        notes = "; ".join(result["notes"])
        configuration = result["configuration_digest"][:12]
        lines.append(
            f"- **{name}**: mempp {versions.get('mempp', '?')}, configuration `{configuration}…`"
            + (f". {notes}." if notes else ".")
        )
    return "\n".join([lines[0], "", *lines[1:]])


def _section(benchmark: str, results: Sequence[Result]) -> list[str]:
    parts = []
    judged = [result for result in results if "judge" in result["summary"]["overall"]]
    if judged:
        table = {"locomo": locomo_table, "longmemeval": longmemeval_table}.get(benchmark, judge_table)
        number_in_paper = {"orgmembench": " (Table 1)", "locomo": " (Table 2)", "longmemeval": " (Table 3)"}
        parts += [f"### Answers{number_in_paper.get(benchmark, '')}", table(judged)]
    scored = [result for result in results if any(map(_is_retrieval, result["summary"]["overall"]))]
    if scored:
        parts += ["### Retrieval", retrieval_table(scored), "In brackets: 95 % bootstrap interval over questions."]
        parts += category_tables(scored)
    parts += ["### Time, tokens, cost", cost_table(results)]
    return parts


def judge_table(results: Sequence[Result]) -> str:
    """Table 1: judge score per category and overall ± its standard deviation over judge repeats, 0 to 100."""
    order = categories(results)
    header = ["Answered by", "Method", *(category_name(results[0], one) for one in order), "Overall"]
    return markdown(header, [[*_who(one), *_judge_cells(one, order), _overall(one)] for one in results])


def locomo_table(results: Sequence[Result]) -> str:
    """Table 2: judge score, F1 and BLEU-1 per category and overall, 0 to 100."""
    order = categories(results)
    names = ("judge", "f1", "bleu1")
    titles = ("LLM", "F1", "BLEU")
    shown = [category_name(results[0], one) for one in order]
    header = ["Answered by", "Method", *(f"{one} {title}" for one in [*shown, "Average"] for title in titles)]
    lines = []
    for result in results:
        groups = [result["summary"]["by_category"].get(one, {}) for one in order] + [result["summary"]["overall"]]
        lines.append([*_who(result), *(percent(group.get(name)) for group in groups for name in names)])
    return markdown(header, lines)


def longmemeval_table(results: Sequence[Result]) -> str:
    """Table 3: a line per question type, a column per method, for each answering model; judge score, 0 to 100."""
    order = categories(results)
    lines = []
    by_model: dict[str, dict[str, Result]] = defaultdict(dict)
    for result in results:
        by_model[str(answered_by(result))][named(result)] = result
    methods = list(dict.fromkeys(name for own in by_model.values() for name in own))
    for model, own in by_model.items():
        for one in order:
            values = [own[name]["summary"]["by_category"].get(one, {}) if name in own else {} for name in methods]
            lines.append([model, category_name(results[0], one), *(percent(value.get("judge")) for value in values)])
        lines.append([model, "Average", *(_overall(own[name]) if name in own else "–" for name in methods)])
    return markdown(["Answered by", "Question type", *methods], lines)


def retrieval_table(results: Sequence[Result]) -> str:
    """Scores of retrieval over all questions, with their intervals."""
    names = list(dict.fromkeys(name for result in results for name in result["summary"]["overall"]))
    names = [name for name in names if _is_retrieval(name)]
    lines = []
    for method, result in zip(names_with_models(results), results, strict=True):
        means, bounds = result["summary"]["overall"], result["intervals"]["overall"]
        cells = [
            f"{means[name]:.3f} [{bounds[name]['low']:.3f}, {bounds[name]['high']:.3f}]" if name in means else "–"
            for name in names
        ]
        lines.append([method, *cells])
    return markdown(["Method", *names], lines)


def category_tables(results: Sequence[Result]) -> list[str]:
    """The headline scores of retrieval per category."""
    order = categories(results)
    present = {name for result in results for name in result["summary"]["overall"]}
    parts = []
    for name in headline(present):
        lines = [
            [
                method,
                *(number(name, result["summary"]["by_category"].get(one, {}).get(name)) for one in order),
                number(name, result["summary"]["overall"].get(name)),
            ]
            for method, result in zip(names_with_models(results), results, strict=True)
        ]
        counts = results[0]["questions"]
        shown = [f"{category_name(results[0], one)} ({counts.get(one, 0)})" for one in order]
        parts += [
            f"`{name}` per category (questions of the first run):",
            markdown(["Method", *shown, "Overall"], lines),
        ]
    return parts


def headline(present: set[str]) -> list[str]:
    """Of the scores of retrieval those that are shown per category and plotted."""
    budgets = sorted((name for name in present if name.startswith("coverage@")), key=lambda name: int(name[9:]))
    wanted = ["recall@10" if "recall@10" in present else "mrr", "mrr", *budgets[-1:]]
    return [name for name in dict.fromkeys(wanted) if name in present]


def cost_table(results: Sequence[Result]) -> str:
    """Latency of search and of answering apart, ingest, bytes stored, tokens and dollars."""
    header = [
        "Method",
        "Search ms (median / p95)",
        "Answer ms (median / p95)",
        "Ingest",
        "Stored",
        "Answer tokens in / out",
        "Judge tokens in / out",
        "Cost (list price)",
    ]
    lines = []
    for method, result in zip(names_with_models(results), results, strict=True):
        ingest, usage = result["ingest_total"], result["usage"]
        answer, judge = (usage or {}).get("answer"), (usage or {}).get("judge")
        lines.append(
            [
                method,
                _times(result, "search_ms"),
                _times(result, "answer_ms"),
                f"{ingest['documents']:,} documents, {duration(ingest['seconds'])}",
                size(ingest["bytes_stored"]),
                _tokens(answer),
                _tokens(judge),
                "–" if not usage or usage["cost_usd"] is None else f"${usage['cost_usd']:,.2f}",
            ]
        )
    return markdown(header, lines)


def ablation_tables(results: Sequence[Result]) -> list[str]:
    """Table 4: a line per variant, a column per benchmark and answering model, the change from the full system in
    parentheses."""
    columns = list(dict.fromkeys(map(_column, results)))
    models = {benchmark: [model for other, model in columns if other == benchmark] for benchmark, _ in columns}
    titles = [f"{one}, {model or 'recall only'}" if len(models[one]) > 1 else one for one, model in columns]
    variants = list(dict.fromkeys(label(result) for result in results))
    found = {(label(result), _column(result)): result for result in results}
    present = {name for result in results for name in result["summary"]["overall"]}
    parts = []
    for name in [*(["judge"] if "judge" in present else []), *headline(present)]:
        lines = []
        for variant in variants:
            cells = []
            for column in columns:
                value = _value(found.get((variant, column)), name)
                full = _value(found.get((FULL, column)), name)
                if value is None:
                    cells.append("–")
                elif variant == FULL or full is None:
                    cells.append(percent(value))
                else:
                    cells.append(f"{percent(value)} ({100 * (value - full):+.1f})")
            incomplete = any(not found[variant, one]["complete"] for one in columns if (variant, one) in found)
            lines.append([variant + (NOT_COMPLETE if incomplete else ""), *cells])
        parts += [f"`{name}`, 0 to 100; in parentheses the change from {FULL}:"]
        parts.append(markdown(["Variant", *titles], lines))
    return parts


def _column(result: Result) -> tuple[str, str | None]:
    return result["configuration"]["benchmark"], answered_by(result)


def sweep_table(results: Sequence[Result]) -> str:
    """Table 7: a line per k, the judge score per answering model or the scores of retrieval, and what was retrieved.

    Tokens are counted as characters of the retrieved documents divided by 4, before the evidence is cut to a budget.
    """
    present = {name for result in results for name in result["summary"]["overall"]}
    columns: list[tuple[str, str | None, str]] = []
    for model in dict.fromkeys(map(answered_by, results)):
        names = ["judge"] if model is not None and "judge" in present else []
        names += ["recall@k", *headline(present)[-1:]] if model is None or not names else []
        columns += [(f"{model}: {name}" if model else name, model, name) for name in names]
    by_variant: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_variant[label(result)].append(result)
    lines = []
    for variant, own in by_variant.items():
        cells = []
        for _, model, name in columns:
            k = variant.removeprefix("k=")
            values = [_value(one, name.replace("@k", f"@{k}")) for one in own if answered_by(one) == model]
            cells.append(percent(values[0], 2) if values else "–")
        characters = _value(own[0], "retrieved_chars")
        total = None if characters is None else characters * own[0]["counts"]["questions"] / CHARACTERS_PER_TOKEN
        shown = variant.removeprefix("k=") + ("" if all(one["complete"] for one in own) else NOT_COMPLETE)
        lines.append([shown, *cells, "–" if total is None else f"{total / 1e6:,.2f}M"])
    return markdown(["k", *(title for title, _, _ in columns), "Retrieved tokens (characters / 4)"], lines)


def write(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write `report.md` and the plots into a folder; returns what was written.

    Raises:
        EvalError: results do not fit together, or the folder cannot be written.
        ImportError: matplotlib is absent; the Markdown is written then.
    """
    text = report(results)
    path = folder / "report.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EvalError(f"cannot write {path}: {error.strerror or error}") from None
    from eval.plots import draw

    return [path, *draw(results, folder)]


def _who(result: Result) -> list[str]:
    return [str(answered_by(result)), named(result)]


def _judge_cells(result: Result, order: Sequence[str]) -> list[str]:
    return [percent(result["summary"]["by_category"].get(one, {}).get("judge")) for one in order]


def _overall(result: Result) -> str:
    judging = result["judging"]
    spread = None if judging is None else judging["standard_deviation"]
    score = percent(result["summary"]["overall"].get("judge"))
    return score if spread is None else f"{score} ± {percent(spread)}"


def _is_retrieval(name: str) -> bool:
    return is_score(name) and name not in ("f1", "bleu1", "judge")


def _value(result: Result | None, name: str) -> float | None:
    return None if result is None else result["summary"]["overall"].get(name)


def _times(result: Result, name: str) -> str:
    one = result["timing"].get(name)
    return "–" if one is None else f"{one['median']:,.1f} / {one['p95']:,.1f}"


def _tokens(usage: Mapping[str, Any] | None) -> str:
    return "–" if not usage or not usage["requests"] else f"{usage['input_tokens']:,} / {usage['output_tokens']:,}"
