"""What adding, questions, reopening and memory cost as a record grows, beside what a user would pick instead.

    python -m benchmarks scale [--sizes 1000 10000 100000] [--systems mempp chromadb lancedb pgvector] [--out FILE]
    python -m benchmarks scale --sizes 1000000 --questions 4 --rounds 2 --openings 1 --stores FOLDER    # 40 minutes

Every system runs in a process of its own and gets the same synthetic rows with the same vectors (`synthetic.py`), so
that no encoder is measured. Questions ask for the 50 best rows by vector alone within a scope: all rows, those dated
up to a moment (50 %, 10 %, 1 % of the rows), those of one author (about 1 %), one row; each system filters by its own
means and reads text, date and author of every hit. Mem++ is asked by its vector leg alone, and as the whole that its
settings make of it (words, tags, dates and context beside the vectors), which no peer has. Recall is counted against
brute force in NumPy.

The systems take turns in every round, after one round that is not counted; times are medians over rounds and questions.
On a machine that has other work, `--figures quickest processor` says more: the median over questions of the quickest
round, and the processor time of all threads of the process.

What adding takes is split: rows, then what the documentation advises to do afterwards (compaction, indexes). With
`--stores` the stores are kept, each with what adding took, and a later run adds only what is not there: a long run can
be broken off, and questions can be asked again. Opening is the time from the library's call to the first answer,
modules already imported, files in the file cache; memory is what the process holds after all questions beyond what it
held before opening. PostgreSQL with pgvector takes part where
MEMPP_BENCHMARK_POSTGRES names a server and psycopg is installed; its memory is not that of the process that asks.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exact, kept_stores
from benchmarks.peers import SYSTEMS, Scope, System
from benchmarks.report import machine, machine_line, significant, table, write_json
from benchmarks.synthetic import DIMENSIONS, SyntheticRecord, save_questions
from benchmarks.workers import Worker, WorkerError

_MILLION = 1e6
_FIGURES = {
    "median": "ms",
    "quickest": "ms, the quickest round",
    "processor": "ms of processor time, all threads",
}
_K = 50


@dataclass(frozen=True)
class Plan:
    """How much is measured at each size."""

    k: int = _K
    questions: int = 10
    rounds: int = 5
    openings: int = 3


@dataclass
class _Measured:
    """What is known of one system at one size."""

    system: System
    figures: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, bool] = field(default_factory=dict)
    seconds: dict[tuple[str, str], list[list[float]]] = field(default_factory=dict)
    """By variant and scope, of every round those of each question."""
    processor_seconds: dict[tuple[str, str], list[list[float]]] = field(default_factory=dict)
    found: dict[tuple[str, str], list[list[int]]] = field(default_factory=dict)
    note: str | None = None
    """Why there are no figures, or no more."""

    def attempt(self, what: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """Do something with the system, unless it failed before; a failure becomes its note."""
        if self.note is not None:
            return None
        try:
            return work()
        except WorkerError as error:
            self.note = f"failed at {what}: {error}"
            return None


def measure(
    record: SyntheticRecord, systems: Sequence[System], plan: Plan, folder: Path, tell: Callable[[str], object]
) -> list[dict[str, Any]]:
    """Measure systems over one record.

    Args:
        record: the rows.
        systems: in the order of the result.
        plan: how often.
        folder: for the stores; what it holds of this record from an earlier run is not added again (`kept_stores`).
        tell: called with what is being done.

    Returns:
        one dictionary for each system: `rows`, `system`, `title`, and either `note` (why it could not take part, or
        where it failed) or `added_at`, `added_at_load`, `add_seconds`, `finish_seconds`, `add_processor_seconds` (of
        both; None where a server adds), `add_peak_bytes`, `bytes_on_disk`, `open_seconds`, `first_answer_seconds`,
        `resident_before_bytes`, `resident_bytes`; `cells`, one for each variant and scope, with
        `variant`, `scope`, `in_scope` (rows), `median_ms`, `quickest_ms`, `processor_ms` (None where a server
        answers) and `recall` (None where more than vectors ranks).
    """
    scopes = exact.scopes_of(record)
    asked = record.questions(plan.questions)
    questions = folder / "questions.npz"
    save_questions(asked, questions)
    measured = [_Measured(system, note=system.missing()) for system in systems]

    def worker(one: _Measured) -> Worker:
        place = folder / one.system.name
        return Worker([one.system.name, place, record.rows, record.dimensions, record.seed, questions, plan.k])

    def add(one: _Measured) -> dict[str, Any] | None:
        tell(f"{record.rows:,} rows: {one.system.title} takes them in")
        with worker(one) as running:
            return one.attempt("adding", partial(running.do, "write"))

    for one in measured:
        if one.note is None:
            one.figures |= kept_stores.added(folder, one.system, record, partial(add, one)) or {}
            if not one.system.in_process:
                one.figures["add_processor_seconds"] = None
    tell(f"{record.rows:,} rows: brute force")
    true = exact.nearest(record, asked.vectors, scopes, plan.k)
    with ExitStack() as stack:
        workers = _open(measured, worker, plan.openings, stack, tell)
        for round_ in range(plan.rounds + 1):
            tell(f"{record.rows:,} rows: questions, round {round_} of {plan.rounds}")
            for scope in scopes.values():
                for one in measured:
                    _ask(one, workers.get(one.system.name), scope, counted=round_ > 0)
        for one in measured:
            if one.system.in_process and one.system.name in workers:
                one.figures |= one.attempt("telling its memory", partial(workers[one.system.name].do, "memory")) or {}
    in_scope = {name: int(exact.allowed_in(record, scope).sum()) for name, scope in scopes.items()}
    return [_result(record.rows, one, in_scope, true) for one in measured]


def _open(
    measured: Sequence[_Measured],
    worker: Callable[[_Measured], Worker],
    openings: int,
    stack: ExitStack,
    tell: Callable[[str], object],
) -> dict[str, Worker]:
    """Open each system several times, in turns, each time in a new process; the last ones stay."""
    workers: dict[str, Worker] = {}
    opened: dict[str, list[dict[str, Any]]] = {}
    for number in range(openings):
        for one in measured:
            if one.note is not None:
                continue
            tell(f"opening {one.system.title}, {number + 1} of {openings}")
            with ExitStack() as this:
                running = this.enter_context(worker(one))
                answer = one.attempt("opening", partial(running.do, "open"))
                if answer is None:
                    continue
                opened.setdefault(one.system.name, []).append(answer)
                if number == openings - 1:
                    workers[one.system.name] = running
                    stack.enter_context(this.pop_all())
    for one in measured:
        answers = opened.get(one.system.name, [])
        for name in ("open_seconds", "first_answer_seconds"):
            if answers:
                one.figures[name] = statistics.median(answer[name] for answer in answers)
        if answers:
            one.figures |= {name: answers[-1][name] for name in ("bytes_on_disk", "resident_before_bytes")}
            one.variants = answers[-1]["variants"]
    return workers


def _ask(one: _Measured, worker: Worker | None, scope: Scope, *, counted: bool) -> None:
    if worker is None:
        return
    for variant in one.variants:
        what = f"asking ({variant}, {scope.name})"
        answer = one.attempt(what, partial(worker.do, "ask", variant=variant, scope=scope.as_dict()))
        if answer is not None:
            one.found[variant, scope.name] = answer["rows"]
            if counted:
                one.seconds.setdefault((variant, scope.name), []).append(answer["seconds"])
                one.processor_seconds.setdefault((variant, scope.name), []).append(answer["processor_seconds"])


def _result(
    rows: int, one: _Measured, in_scope: Mapping[str, int], true: Mapping[str, Sequence[Sequence[int]]]
) -> dict[str, Any]:
    cells = []
    for (variant, scope), seconds in one.seconds.items():
        by_vector = one.variants[variant]
        cells.append(
            {
                "variant": variant,
                "scope": scope,
                "in_scope": in_scope[scope],
                "median_ms": 1000 * float(np.median(seconds)),
                "quickest_ms": 1000 * float(np.median(np.min(seconds, axis=0))),
                "processor_ms": 1000 * float(np.median(one.processor_seconds[variant, scope]))
                if one.system.in_process
                else None,
                "recall": exact.recall(one.found[variant, scope], true[scope]) if by_vector else None,
            }
        )
    note = {} if one.note is None else {"note": one.note}
    return {"rows": rows, "system": one.system.name, "title": one.system.title, **note, **one.figures, "cells": cells}


def tables(
    results: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    dimensions: int,
    figures: Sequence[str] = ("median",),
) -> str:
    """The results of one size as Markdown tables: adding, opening and memory; then each of the figures of questions."""
    rows = results[0]["rows"]
    costs = [
        [
            one["title"],
            significant(one.get("add_seconds")),
            significant(one.get("finish_seconds")),
            significant(one.get("add_processor_seconds")),
            _megabytes(one.get("bytes_on_disk")),
            significant(one.get("first_answer_seconds")),
            _megabytes(one["resident_bytes"] - one["resident_before_bytes"]) if "resident_bytes" in one else None,
            one.get("note"),
        ]
        for one in results
    ]
    heads = [
        "system",
        "adding, s",
        "indexes after it, s",
        "of the processors, s",
        "on disk, MB",
        "open and answer, s",
        "memory held, MB",
        "note",
    ]
    if not any(row[-1] for row in costs):
        heads, costs = heads[:-1], [row[:-1] for row in costs]
    counts = {cell["scope"]: cell["in_scope"] for one in results for cell in one["cells"]}
    limit = ["the limit: vectors in scope read once", *(_limit(count, facts, dimensions) for count in counts.values())]
    parts = [f"{rows:,} rows", table(heads, costs)]
    earlier = [one for one in results if one.get("added_at", facts.get("time", "")) < facts.get("time", "")]
    if earlier:
        told = (f"{one['title']} {one['added_at']} (load {one['added_at_load']})" for one in earlier)
        parts.append(f"Added in an earlier run: {', '.join(told)}.")
    for figure in figures:
        lines = [*_questions(results, counts, figure), *([] if figure == "processor" else [limit])]
        heads = [f"{_K} best, {_FIGURES[figure]}", *(f"{name}: {count:,}" for name, count in counts.items())]
        parts.append(table(heads, lines))
    return "\n\n".join(parts)


def _questions(results: Sequence[Mapping[str, Any]], scopes: Iterable[str], figure: str) -> Iterator[list[str | None]]:
    """A line for each system and variant: a figure in every scope."""
    for one in results:
        for variant in dict.fromkeys(cell["variant"] for cell in one["cells"]):
            own = {cell["scope"]: cell for cell in one["cells"] if cell["variant"] == variant}
            yield [f"{one['title']}, {variant}", *(_cell(own.get(scope), figure) for scope in scopes)]


def _cell(cell: Mapping[str, Any] | None, figure: str) -> str | None:
    """Milliseconds, with the recall where it is not whole."""
    if cell is None or cell[f"{figure}_ms"] is None:
        return None
    missed = cell["recall"] is not None and cell["recall"] < 1
    return f"{significant(cell[f'{figure}_ms'])}" + (f" (recall {cell['recall']:.3f})" if missed else "")


def _limit(count: int, facts: Mapping[str, Any], dimensions: int) -> str | None:
    return significant(1000 * 4 * dimensions * count / facts["bandwidth"])


def _megabytes(size: int | None) -> str | None:
    return None if size is None else significant(size / _MILLION)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a pair of tables for each size, write JSON where asked; 1 where a system failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=_count, nargs="+", default=[1000, 10_000, 100_000], metavar="ROWS")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--questions", type=_count, default=Plan.questions, help="different questions")
    parser.add_argument("--rounds", type=_count, default=Plan.rounds, help="how often each is asked")
    parser.add_argument("--openings", type=_count, default=Plan.openings, help="how often each is opened")
    parser.add_argument("--dimensions", type=_count, default=DIMENSIONS)
    parser.add_argument(
        "--figures", nargs="+", choices=list(_FIGURES), default=["median"], help="of questions, printed"
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--folder", type=Path, help="where the stores are made for the time being")
    place.add_argument(
        "--stores", type=Path, metavar="FOLDER", help="keep the stores there; what an earlier run added stays"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there as JSON")
    arguments = parser.parse_args(argv)
    plan = Plan(questions=arguments.questions, rounds=arguments.rounds, openings=arguments.openings)
    systems = [system for name, system in SYSTEMS.items() if name in arguments.systems]
    facts = machine()
    print(machine_line(facts), flush=True)
    results: list[dict[str, Any]] = []
    for rows in arguments.sizes:
        began = time.perf_counter()
        record = SyntheticRecord(rows, arguments.dimensions)
        with _folder(arguments, record) as folder:
            found = measure(record, systems, plan, folder, _tell)
        print(f"\n{tables(found, facts, arguments.dimensions, arguments.figures)}", flush=True)
        _tell(f"{rows:,} rows took {time.perf_counter() - began:.0f} s")
        results += found
        if arguments.out is not None:  # after every size, so that a long run that is ended leaves what it has
            write_json(arguments.out, "scale", vars(arguments), machine=facts, results=results)
    return int(any(one.get("note", "").startswith("failed") for one in results))


@contextmanager
def _folder(arguments: argparse.Namespace, record: SyntheticRecord) -> Iterator[Path]:
    """A folder for the stores of one record: one that stays, or one for the time being."""
    if arguments.stores is None:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            yield Path(folder)
        return
    with kept_stores.folder_of(arguments.stores, record) as kept:
        yield kept


def _tell(what: str) -> None:
    print(f"# {what}", file=sys.stderr, flush=True)


def _count(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


if __name__ == "__main__":
    sys.exit(main())
