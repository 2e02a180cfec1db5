"""Results as tables: plain text for the terminal, Markdown for reports. Every figure comes from result files."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from eval.console import columns
from eval.labels import Result, label
from eval.progress import duration
from eval.scoring import is_score

_WIDTH_WITHOUT_TERMINAL = 120


def category_name(result: Result, category: str) -> str:
    """A category as the paper's table names it."""
    return str(result["category_names"].get(category, category))


def categories(results: Sequence[Result]) -> list[str]:
    """The categories of results over one benchmark, in the benchmark's order."""
    present = dict.fromkeys(category for result in results for category in result["summary"]["by_category"])
    known = [name for result in results[:1] for name in result["category_names"] if name in present]
    return [*known, *(name for name in present if name not in known)]


def number(name: str, value: float | None) -> str:
    """A value as its metric wants to be read."""
    if value is None:
        return "–"
    if is_score(name):
        return f"{value:.3f}"
    return f"{value:,.1f}" if name.endswith("_ms") else f"{value:,.0f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A score on the paper's scale of 0 to 100."""
    return "–" if value is None else f"{100 * value:.{digits}f}"


def summary_text(result: Result) -> str:
    """Scores per category and overall with their 95 % intervals, then counts, times, tokens and cost."""
    overall = result["summary"]["overall"]
    scores = [name for name in overall if is_score(name)]
    parts = [_heading(result)]
    parts += _score_tables(result, scores)
    if not result["rows"]:
        parts.append("No question is done.")
    elif not scores:
        parts.append("No score: these questions carry no gold evidence, and no model answered.")
    parts.append("\n".join(_facts(result)))
    return "\n\n".join(parts)


def _heading(result: Result) -> str:
    configuration, counts = result["configuration"], result["counts"]
    state = "" if result["complete"] else " (NOT COMPLETE)"
    chosen = configuration["selection"]
    asked = f"{counts['questions']} of {chosen['of']} questions{state}"
    return f"{configuration['benchmark']} · {label(result)} · {asked}"


def _score_tables(result: Result, names: Sequence[str]) -> list[str]:
    lines: list[tuple[str, Mapping[str, float], Mapping[str, Any], int]] = [
        (category_name(result, one), result["summary"]["by_category"][one], result["intervals"]["by_category"][one], n)
        for one, n in result["questions"].items()
    ]
    lines.append(
        ("Overall", result["summary"]["overall"], result["intervals"]["overall"], sum(result["questions"].values()))
    )
    body = [([name, str(n)], [_with_interval(one, means, bounds) for one in names]) for name, means, bounds, n in lines]
    return folded(["", "n"], names, body)


def folded(
    first: Sequence[str], header: Sequence[str], body: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[str]:
    """A table as several, each as wide as the terminal allows; every one begins with the first columns."""
    width = _WIDTH_WITHOUT_TERMINAL
    if sys.stdout.isatty():
        width = shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns
    taken = sum(max(len(line[0][i]) for line in [(first, header), *body]) + 2 for i in range(len(first)))
    widths = [max(len(line[1][i]) for line in [(first, header), *body]) + 2 for i in range(len(header))]
    tables, start = [], 0
    while start < len(header):
        stop, used = start, taken
        while stop < len(header) and (stop == start or used + widths[stop] <= width):
            used += widths[stop]
            stop += 1
        lines = [[*left, *right[start:stop]] for left, right in body]
        tables.append(columns([*first, *header[start:stop]], lines))
        start = stop
    return tables


def _with_interval(name: str, means: Mapping[str, float], bounds: Mapping[str, Any]) -> str:
    if name not in means:
        return "–"
    return f"{means[name]:.3f} [{bounds[name]['low']:.3f}, {bounds[name]['high']:.3f}]"


def _facts(result: Result) -> list[str]:
    """Everything that is no score, a line each."""
    counts, ingest = result["counts"], result["ingest_total"]
    lines = ["In brackets: 95 % bootstrap interval over questions."]
    if counts["without_gold_evidence"]:
        lines.append(
            f"{counts['without_gold_evidence']} questions have no gold evidence: retrieval is not scored there."
        )
    for name, words in (
        ("retrieval_errors", "questions whose retrieval FAILED, scored 0"),
        ("answer_errors", "questions without an answer because the model failed, scored 0"),
        ("judge_errors", "answers whose judging failed, in some or all repeats, which score 0"),
        ("unparsed_verdicts", "verdicts that could not be parsed, scored 0"),
    ):
        if counts[name]:
            lines.append(f"{counts[name]} {words}.")
    judging = result["judging"]
    if judging and judging["standard_deviation"] is not None:
        lines.append(
            f"Judge: {judging['repeats']} repeats, standard deviation of the overall score "
            f"{judging['standard_deviation']:.4f}."
        )
    stored = f"{size(ingest['bytes_stored'])} stored"
    lines.append(
        f"Ingest: {ingest['documents']:,} documents in {ingest['collections']} collection(s), "
        f"{duration(ingest['seconds'])}, {stored}."
    )
    for name, words in (("search_ms", "Search"), ("answer_ms", "Answering"), ("judge_ms", "Judging")):
        if name in result["timing"]:
            one = result["timing"][name]
            lines.append(f"{words}: median {one['median']:,.1f} ms, 95th percentile {one['p95']:,.1f} ms.")
    lines += usage_lines(result)
    lines += [f"Note: {note}." for note in result["notes"]]
    return lines


def usage_lines(result: Result) -> list[str]:
    """Tokens and cost, a line per model's part."""
    usage = result["usage"]
    if not usage:
        return ["No model was asked (recall only)."]
    lines = []
    for part in ("answer", "judge"):
        one = usage[part]
        if one["requests"]:
            lines.append(
                f"{part.capitalize()}: {one['requests']:,} replies ({one['cached']:,} from the cache), "
                f"{one['input_tokens']:,} tokens in, {one['output_tokens']:,} out{_dollars(one['cost_usd'])}."
            )
    return lines


def _dollars(cost: float | None) -> str:
    return "" if cost is None else f", ${cost:,.4f} at list price"


def side_by_side(results: Sequence[Result]) -> str:
    """Overall scores of several runs, one line each."""
    names = list(dict.fromkeys(name for result in results for name in result["summary"]["overall"]))
    names = [name for name in names if is_score(name) or name in ("search_ms", "retrieved_chars")]
    body = [
        ([label(result)], [number(name, result["summary"]["overall"].get(name)) for name in names])
        for result in results
    ]
    return "\n\n".join(folded([""], names, body))


def size(bytes_stored: int | None) -> str:
    """Bytes for people."""
    if bytes_stored is None:
        return "unknown"
    return f"{bytes_stored / 1e6:,.1f} MB" if bytes_stored >= 1e6 else f"{bytes_stored / 1e3:,.1f} kB"


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table: first column left, the others right."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in [header, *lines]]
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [cells[0], rule, *cells[1:]])
