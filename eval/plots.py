"""Plots of a report as PNG files: score over k, scores per category, coverage over budget. Needs matplotlib."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.errors import EvalError
from eval.labels import Result, answered_by, names_with_models
from eval.tables import categories, category_name

_SIZE = (8.0, 4.5)


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Draw what the results allow; returns the files.

    Raises:
        ImportError: matplotlib is not installed.
        EvalError: the folder cannot be written.
    """
    import matplotlib.figure  # noqa: F401 - absent, it is told before anything is drawn

    by_benchmark: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_benchmark[result["configuration"]["benchmark"]].append(result)
    written = []
    for benchmark, own in by_benchmark.items():
        plain = [result for result in own if result["configuration"]["study"] is None]
        plain = plain or [result for result in own if result["configuration"]["study"] == "ablation"]
        sweep = [result for result in own if result["configuration"]["study"] == "sweep-k"]
        for name in ("judge", *_first_of(plain, "coverage@"), *_first_of(plain, "recall@")):
            shown = [result for result in plain if name in result["summary"]["overall"]]
            if shown:
                figure = _by_category(shown, name)
                written.append(_save(figure, folder / f"{benchmark}-categories-{name.replace('@', '-')}.png"))
        covered = [result for result in plain if len(_budgets(result)) > 1]
        if covered:
            written.append(_save(_over_budget(covered), folder / f"{benchmark}-coverage.png"))
        if sweep:
            written.append(_save(_over_k(sweep), folder / f"{benchmark}-k.png"))
    return written


def _by_category(results: Sequence[Result], name: str) -> Any:
    figure, axes = _empty()
    order = categories(results)
    width = 0.8 / len(results)
    for place, (method, result) in enumerate(zip(names_with_models(results), results, strict=True)):
        groups = [result["summary"]["by_category"].get(one, {}) for one in order] + [result["summary"]["overall"]]
        bounds = [result["intervals"]["by_category"].get(one, {}) for one in order] + [result["intervals"]["overall"]]
        at, heights, below, above = [], [], [], []
        for position, (means, interval) in enumerate(zip(groups, bounds, strict=True)):
            if name in means:
                at.append(position + (place - (len(results) - 1) / 2) * width)
                heights.append(means[name])
                below.append(max(0.0, means[name] - interval[name]["low"]))
                above.append(max(0.0, interval[name]["high"] - means[name]))
        axes.bar(at, heights, width, yerr=[below, above], capsize=2, label=_plain(method), error_kw={"linewidth": 0.8})
    shown = [*(category_name(results[0], one) for one in order), "Overall"]
    axes.set_xticks(range(len(shown)), list(map(_plain, shown)))
    axes.tick_params(axis="x", labelrotation=20, labelsize=8)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel(f"{name} (95 % interval)")
    axes.set_title(_plain(f"{results[0]['data']['title']}: {name} per category"))
    _legend(axes)
    return figure


def _over_budget(results: Sequence[Result]) -> Any:
    figure, axes = _empty()
    for method, result in zip(names_with_models(results), results, strict=True):
        means, bounds = result["summary"]["overall"], result["intervals"]["overall"]
        budgets = _budgets(result)
        names = [f"coverage@{budget}" for budget in budgets]
        axes.plot(budgets, [means[name] for name in names], marker="o", label=_plain(method))
        low, high = ([bounds[name][edge] for name in names] for edge in ("low", "high"))
        axes.fill_between(budgets, low, high, alpha=0.12)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("characters of evidence")
    axes.set_ylabel("coverage of gold evidence (95 % interval)")
    axes.set_title(_plain(f"{results[0]['data']['title']}: coverage over budget"))
    _legend(axes)
    return figure


def _over_k(results: Sequence[Result]) -> Any:
    figure, axes = _empty()
    judged = any("judge" in result["summary"]["overall"] for result in results)
    name = "judge" if judged else next(iter(_first_of(results, "coverage@")), "mrr")
    lines: dict[str, dict[int, float]] = defaultdict(dict)
    level: dict[str, float] = {}
    for result in results:
        value = result["summary"]["overall"].get(name)
        if value is None:
            continue
        model = answered_by(result) or "recall only"
        variant = str(result["configuration"]["variant"])
        if variant.startswith("k="):
            lines[model][int(variant[2:])] = value
        else:
            level[f"{variant} ({model})"] = value
    for model, points in lines.items():
        ks = sorted(points)
        axes.plot(ks, [points[k] for k in ks], marker="o", label=_plain(model))
    for title, value in level.items():
        axes.axhline(value, linestyle="--", linewidth=1, color="grey", label=_plain(title))
    axes.set_xlim(left=0)
    axes.set_xlabel("k, retrieved rows")
    axes.set_ylabel(name)
    axes.set_title(_plain(f"{results[0]['data']['title']}: {name} over k"))
    if lines or level:
        _legend(axes)
    return figure


def _budgets(result: Result) -> list[int]:
    names: Mapping[str, float] = result["summary"]["overall"]
    return sorted(int(name[9:]) for name in names if name.startswith("coverage@"))


def _first_of(results: Sequence[Result], prefix: str) -> list[str]:
    """The score of a kind that is drawn per category: the largest budget, recall at 10 or the smallest k."""
    names = {name for result in results for name in result["summary"]["overall"] if name.startswith(prefix)}
    numbers = sorted(int(name.partition("@")[2]) for name in names)
    if not numbers:
        return []
    chosen = numbers[-1] if prefix == "coverage@" else (10 if 10 in numbers else numbers[0])
    return [f"{prefix}{chosen}"]


def _empty() -> tuple[Any, Any]:
    # Without pyplot: no state of the process, no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="tight")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _plain(text: str) -> str:
    """A text of the data for matplotlib, which takes what stands between dollar signs for a formula."""
    return text.replace("$", r"\$")


def _legend(axes: Any) -> None:
    # Beside the plot: inside it would hide bars that reach the top.
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def _save(figure: Any, path: Path) -> Path:
    try:
        figure.savefig(path, dpi=150, metadata={"Software": None})
    except OSError as error:
        raise EvalError(f"cannot write {path}: {error.strerror or error}") from None
    return path
