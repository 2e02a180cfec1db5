"""Plots of what `scale` measured, over the number of rows: PNG files. Needs matplotlib.

    python -m benchmarks growth FILE… [--out FOLDER]

FILE is what `scale --out` wrote; of several, say one with the smaller sizes and one with a million rows, the points are
joined, and where two have the same size, the later file counts.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT = 5.5, 4.2
_ACROSS = 3
_MARKS = "osD^vPX*"


def read(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The results in files of `scale`, by rows and system.

    Raises:
        SystemExit: a file cannot be read or holds something else; the message says which.
    """
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["command"] != "scale":
                raise ValueError
            # The limit is of the machine that measured.
            found |= {
                (one["rows"], one["system"]): {
                    **one,
                    "bandwidth": content["machine"]["bandwidth"],
                    "dimensions": content["arguments"]["dimensions"],
                }
                for one in content["results"]
            }
        except OSError as error:
            sys.exit(f"cannot read {file}: {error.strerror or error}")
        except (ValueError, KeyError, TypeError):
            sys.exit(f"{file} is no file that `python -m benchmarks scale --out FILE` wrote")
    return [found[key] for key in sorted(found)]


def draw(results: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draw milliseconds a question, one plot for each scope, and adding, opening and memory; return the two files.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        SystemExit: the folder cannot be written.
    """
    scopes = list(dict.fromkeys(cell["scope"] for one in results for cell in one["cells"]))
    questions = {f"a question in {scope}, ms": _of_scope(results, scope) for scope in scopes}
    costs = {
        "adding, indexes included, s": _of(results, "add_seconds", "finish_seconds"),
        "opening and first answer, s": _of(results, "first_answer_seconds"),
        "memory held, MB": {
            title: [(rows, (held - before) / 1e6) for rows, held, before in points]
            for title, points in _columns(results, "resident_bytes", "resident_before_bytes").items()
        },
    }
    return [_page(questions, folder / "growth-questions.png"), _page(costs, folder / "growth-costs.png")]


_Lines = dict[str, list[tuple[int, float]]]


def _of_scope(results: Sequence[Mapping[str, Any]], scope: str) -> _Lines:
    lines: _Lines = {}
    for one in results:
        for cell in one["cells"]:
            if cell["scope"] == scope:
                lines.setdefault(f"{one['title']}, {cell['variant']}", []).append((one["rows"], cell["median_ms"]))
    limit = {
        one["rows"]: 4000 * one["dimensions"] * cell["in_scope"] / one["bandwidth"]
        for one in results
        for cell in one["cells"]
        if cell["scope"] == scope
    }
    lines["the limit: vectors in scope read once"] = sorted(limit.items())
    return lines


def _of(results: Sequence[Mapping[str, Any]], *names: str) -> _Lines:
    columns = _columns(results, *names)
    return {title: [(rows, sum(values)) for rows, *values in points] for title, points in columns.items()}


def _columns(results: Sequence[Mapping[str, Any]], *names: str) -> dict[str, list[tuple[Any, ...]]]:
    """By system, the rows and these figures, where all are known."""
    columns: dict[str, list[tuple[Any, ...]]] = {}
    for one in results:
        if all(name in one for name in names):
            columns.setdefault(one["title"], []).append((one["rows"], *(one[name] for name in names)))
    return columns


def _page(plots: Mapping[str, _Lines], file: Path) -> Path:
    """Several plots of logarithmic scales on one page, with one legend."""
    # Without pyplot: no state of the process, no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    down = -(-len(plots) // _ACROSS)
    figure = Figure(figsize=(_WIDTH * _ACROSS, _HEIGHT * down + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    every = figure.subplots(down, _ACROSS, squeeze=False).ravel()
    titles = list(dict.fromkeys(title for lines in plots.values() for title in lines))
    handles: dict[str, Any] = {}
    for axes, (label, lines) in zip(every, plots.items(), strict=False):
        for title, points in lines.items():
            place = titles.index(title)
            dashed = title.startswith("the limit")
            (handles[title],) = axes.plot(
                [rows for rows, _ in points],
                [value for _, value in points],
                color="grey" if dashed else f"C{place}",
                linestyle="--" if dashed else "-",
                marker=None if dashed else _MARKS[place % len(_MARKS)],
                markersize=5,
            )
        axes.set(xscale="log", yscale="log", xlabel="rows", title=label)
        axes.grid(alpha=0.3)
    for axes in every[len(plots) :]:
        axes.remove()
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=9)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=100, metadata={"Software": None})
    except OSError as error:
        sys.exit(f"cannot write {file}: {error.strerror or error}")
    return file


def main(argv: Sequence[str] | None = None) -> int:
    """Draw, and name the files."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER")
    arguments = parser.parse_args(argv)
    for file in draw(read(arguments.files), arguments.out):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
