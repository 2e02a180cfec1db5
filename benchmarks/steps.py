"""What each part of the default settings is worth, on the benchmarks that are there.

    python -m benchmarks steps [--data FOLDER] [--only PART]

FOLDER holds locomo/locomo10.json and orgmembench/; it is MEMPP_DATA by default, and without that ../shared/data.
Progress goes to stderr. All of it takes some six minutes on two cores.

Two tables. The first begins with the paper's setting and adds one part after another; the second takes one part at a
time away from the default. Each row: recall@5, 10, 50 and MRR on LoCoMo (turns), evidence coverage in 10,000 and
40,000 characters on OrgMemBench, and there once more with the threads withheld; the difference of the row to the one
before it (second table: to the default) in recall@10 and in coverage@40000, with its paired 95 % bootstrap interval;
and the median time of a search without the encoder. Documents are embedded once.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mempp
from eval.cases import Case, Collection
from eval.datasets import dataset
from eval.metrics.bootstrap import paired_difference
from eval.metrics.ranking import recall_at, reciprocal_rank
from eval.systems.encoders import RememberingEncoder

K = 50
STARTED = time.perf_counter()
PAPER = mempp.preset("orgmembench")
OFF = {
    "fusion": "ranks", "weight_lexical": 1.0, "weight_tags": 1.0, "weight_vector": 1.0, "weight_thread_lexical": 0.0,
    "weight_thread_vector": 0.0, "weight_dates": 0.0, "context": 0, "windows": False, "names": False,
    "thread_spread": 0.0, "recency_slots": 3, "recency_floor": 0.0, "packing": "stop", "candidates": 200,
}  # fmt: skip
STEPS: Sequence[tuple[str, Mapping[str, object]]] = (
    ("lexical leg of any word, weights 1 : 1 : 1", {}),
    ("recency slots only for rows near the best", {"recency_floor": 0.9, "recency_slots": None}),
    (
        "values summed in place of ranks",
        {"fusion": "scores", "weight_lexical": 1.5, "weight_vector": 1.0, "weight_tags": 0.3},
    ),
    ("context: two neighbours on each side", {"context": 2}),
    ("words of the thread as a whole", {"weight_thread_lexical": 0.5}),
    ("best vector of the thread", {"weight_thread_vector": 0.75}),
    ("windows of long texts", {"windows": True}),
    ("dates named in the question", {"weight_dates": 0.4}),
    ("short forms of authors' names", {"names": True}),
    ("thread spread", {"thread_spread": 0.03}),
    ("packing: threads by worth (the default)", {"packing": "threads", "candidates": 150}),
)
WITHOUT: Sequence[tuple[str, Mapping[str, object]]] = (
    ("the default", {}),
    ("rank fusion of the same legs", {"fusion": "ranks"}),
    ("rank fusion, all six weights 1", {"fusion": "ranks", **{n: 1.0 for n in OFF if n.startswith("weight_")}}),
    ("no context, no thread legs", {"context": 0}),
    ("context 1", {"context": 1}),
    ("context 4", {"context": 4}),
    ("no lexical legs", {"weight_lexical": 0.0}),
    ("no vector legs", {"weight_vector": 0.0}),
    ("no thread legs", {"weight_thread_lexical": 0.0, "weight_thread_vector": 0.0}),
    ("no tag leg", {"weight_tags": 0.0}),
    ("no dates", {"weight_dates": 0.0}),
    ("no windows", {"windows": False}),
    ("no thread spread", {"thread_spread": 0.0}),
    ("recency slots for any match", {"recency_floor": 0.0}),
    ("candidates 50", {"candidates": 50}),
    ("packed by rank", {"packing": "skip"}),
)


@dataclass(frozen=True)
class Record:
    """One collection, taken in."""

    memory: mempp.Memory
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Row:
    """Per-question figures of one setting."""

    locomo: list[list[float]]
    coverage: list[list[float]]
    withheld: list[float]
    milliseconds: float


class Ready:
    """An encoder whose questions are embedded beforehand, so that a search is timed without it."""

    def __init__(self, inner: RememberingEncoder) -> None:
        self._inner = inner
        self._questions: dict[str, object] = {}
        self.identity = inner.identity

    def encode_documents(self, texts: Sequence[str]) -> object:
        """As the encoder within."""
        return self._inner.encode_documents(texts)

    def encode_question(self, text: str) -> object:
        """As the encoder within, once for each question."""
        if text not in self._questions:
            self._questions[text] = self._inner.encode_question(text)
        return self._questions[text]


def tell(what: str) -> None:
    """A line of progress on stderr."""
    print(f"{time.perf_counter() - STARTED:4.0f} s: {what}", file=sys.stderr, flush=True)


def missing(data: Path) -> str | None:
    """What of the data is not there, as a sentence; None where all is."""
    for part in ("locomo/locomo10.json", "orgmembench"):
        if not (data / part).exists():
            return (
                f"there is no {data / part}: the data are public and not part of the project; name the folder that "
                "holds locomo/locomo10.json and orgmembench/ with --data or MEMPP_DATA"
            )
    return None


def records(name: str, data: Path, encoder: object, options: Mapping[str, str]) -> list[Record]:
    """The collections of a benchmark, in memory."""
    tell(f"embedding the documents of {name}{' with threads withheld' if options else ''}")
    return [Record(_taken_in(one, encoder), one.cases) for one in dataset(name).read(data, options)]


def _taken_in(collection: Collection, encoder: object) -> mempp.Memory:
    memory = mempp.in_memory(encoder=encoder)  # type: ignore[arg-type]
    memory.add_many(
        mempp.Document(text=one.text, occurred_at=one.occurred_at, author=one.authors, thread=one.thread, source=one.id)
        for one in collection.documents
    )
    return memory


def measure(settings: mempp.Settings, locomo: list[Record], org: list[Record], withheld: list[Record]) -> Row:
    """Ask everything under one setting."""
    tell("asking all questions under another setting")
    figures, times = [], []
    for record in locomo:
        for case in record.cases:
            if not case.evidence:
                continue
            started = time.perf_counter()
            hits = record.memory.recall(case.text, as_of=case.as_of, k=K, settings=settings)
            times.append(1000 * (time.perf_counter() - started))
            ranked = [str(hit.record.source) for hit in hits]
            recalls = [recall_at(ranked, case.evidence, k) or 0.0 for k in (5, 10, 50)]
            figures.append([*recalls, reciprocal_rank(ranked, case.evidence) or 0.0])
    coverage = [[_coverage(org[0], case, settings, budget) for budget in (10_000, 40_000)] for case in org[0].cases]
    without = [_coverage(withheld[0], case, settings, 40_000) for case in withheld[0].cases]
    return Row(figures, coverage, without, statistics.median(times))


def _coverage(record: Record, case: Case, settings: mempp.Settings, budget: int) -> float:
    evidence = record.memory.evidence(case.text, as_of=case.as_of, max_chars=budget, k=K, settings=settings)
    return len({hit.record.source for hit in evidence.hits} & set(case.evidence)) / len(case.evidence)


def line(name: str, row: Row, base: Row | None) -> str:
    """One line of a table."""
    figures = [statistics.mean(column) for column in zip(*row.locomo, strict=True)]
    covered = [statistics.mean(column) for column in zip(*row.coverage, strict=True)]
    cells = [*(f"{x:.3f}" for x in (*figures, *covered, statistics.mean(row.withheld)))]
    differences = ["", ""]
    if base is not None:
        pairs = (
            ([one[1] for one in row.locomo], [one[1] for one in base.locomo]),
            ([one[1] for one in row.coverage], [one[1] for one in base.coverage]),
        )
        found = [paired_difference(ours, theirs) for ours, theirs in pairs]
        differences = [f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})" for one in found]
    return f"| {name} | " + " | ".join([*cells, *differences, f"{row.milliseconds:.1f}"]) + " |"


HEADER = (
    "| setting | LoCoMo recall@5 | @10 | @50 | MRR | OrgMemBench coverage@10000 | @40000 | @40000, threads withheld | "
    "recall@10, difference | coverage@40000, difference | search, ms |\n|---|" + "---|" * 10
)


def main() -> int:
    """Print the tables; return 1 where the data are not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("MEMPP_DATA", "../shared/data")))
    parser.add_argument("--only", choices=["steps", "without", "categories"])
    arguments = parser.parse_args()
    if (wrong := missing(arguments.data)) is not None:
        print(wrong, file=sys.stderr)
        return 1
    encoder = Ready(RememberingEncoder(mempp.MiniLM(), documents=True))
    locomo = records("locomo", arguments.data / "locomo", encoder, {})
    org = records("orgmembench", arguments.data / "orgmembench", encoder, {})
    withheld = records("orgmembench", arguments.data / "orgmembench", encoder, {"thread": "withheld"})
    for record in (*locomo, *org):
        for case in record.cases:
            encoder.encode_question(case.text)
    if arguments.only in (None, "steps"):
        print(HEADER)
        base = measure(PAPER, locomo, org, withheld)
        print(line("the paper's setting for OrgMemBench", base, None), flush=True)
        print(line("the paper's setting for LoCoMo", measure(mempp.preset("locomo"), locomo, org, withheld), None))
        settings = dict(OFF)
        for name, change in STEPS:
            settings |= change
            row = measure(mempp.Settings(**settings), locomo, org, withheld)  # type: ignore[arg-type]
            print(line("+ " + name, row, base), flush=True)
            base = row
    if arguments.only in (None, "without"):
        print("\n" + HEADER)
        default: Row | None = None
        for name, change in WITHOUT:
            row = measure(mempp.Settings(**change), locomo, org, withheld)  # type: ignore[arg-type]
            print(line(name, row, default), flush=True)
            default = default or row
    if arguments.only in (None, "categories"):
        categories(locomo, org, withheld)
    return 0


def categories(locomo: list[Record], org: list[Record], withheld: list[Record]) -> None:
    """Print the default by category, beside the paper's settings."""
    names = {name: dataset(name).categories for name in ("locomo", "orgmembench")}
    rows = {
        "paper": (measure(mempp.preset("locomo"), locomo, org, withheld), measure(PAPER, locomo, org, withheld)),
        "default": (measure(mempp.Settings(), locomo, org, withheld),) * 2,
    }
    asked = [case.category for record in locomo for case in record.cases if case.evidence]
    by_category(
        "LoCoMo", "recall@5, 10, 50, MRR", names["locomo"], asked, {n: row[0].locomo for n, row in rows.items()}
    )
    asked = [case.category for case in org[0].cases]
    figures = {name: row[1].coverage for name, row in rows.items()}
    by_category("OrgMemBench", "coverage@10000, 40000", names["orgmembench"], asked, figures)


def by_category(
    benchmark: str,
    what: str,
    names: Mapping[str, str],
    asked: Sequence[str],
    figures: Mapping[str, Sequence[Sequence[float]]],
) -> None:
    """Print one table: a line for each category, a column for each setting."""
    heads = " | ".join(f"{what}: {name}" for name in figures)
    print(f"\n| {benchmark} | questions | {heads} |\n|---|---|" + "---|" * len(figures))
    for category in dict.fromkeys(asked):
        picked = [place for place, one in enumerate(asked) if one == category]
        cells = [
            ", ".join(
                f"{statistics.mean(column):.3f}" for column in zip(*(rows[place] for place in picked), strict=True)
            )
            for rows in figures.values()
        ]
        print(f"| {names.get(category, category)} | {len(picked)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
