"""Hold the preset `orgmembench` against the paper authors' own engine, on real documents and questions.

    python tests/fidelity.py [FOLDER]      # needs the extra `test`; about a minute on two cores

FOLDER is .../orgmembench/helix/medium. Without it the folder lies in MEMPP_DATA, and where that is not set in
../shared/data beside the source tree.

Prints evidence coverage in 40,000 characters and recall@5, 10, 20 over the questions there, beside what the authors'
engine (PostgreSQL, pgvector) gave for the same 39 questions on the same documents, and how long it took.
"""

import json
import os
import re
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import mempp

AUTHORS_ENGINE = {"coverage@40000": 0.626, "recall@5": 0.419, "recall@10": 0.517, "recall@20": 0.639}
BUDGET = 40_000
HEADING = 40
"""Characters that the benchmark's rendering adds to each row."""

_HEADER = re.compile(r"\A<!-- artefact_metadata\n.*?-->\s*", re.DOTALL)


@dataclass(frozen=True)
class Question:
    text: str
    as_of: str | None
    gold: frozenset[str]


def documents(folder: Path) -> list[mempp.Document]:
    """The artefacts as the benchmark's own loader gives them: header stripped, dated by event, thread = event."""
    events = (json.loads(line) for line in (folder / "source_of_truth" / "events.jsonl").read_text().splitlines())
    dates = {event["id"]: event["occurred_at"] for event in events}
    index = [json.loads(line) for line in (folder / "corpus_index.jsonl").read_text().splitlines()]
    return [
        mempp.Document(
            text=_HEADER.sub("", (folder / one["path"]).read_text(encoding="utf-8")),
            occurred_at=dates[one["event_id"]],
            source=one["slot_id"],
            thread=one["event_id"],
        )
        for one in index
    ]


def questions(folder: Path) -> list[Question]:
    """The questions, with the as-of date where one is carried (category C4)."""
    lines = (folder / "benchmark_v0.0.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        Question(
            text=one["text"],
            as_of=one["ground_truth_answer"].get("as_of_date"),
            gold=frozenset(one["evidence_artefact_ids"]),
        )
        for one in map(json.loads, lines)
    ]


def measure(memory: mempp.Memory, asked: list[Question]) -> dict[str, float]:
    """Means over the questions, under the preset."""
    preset = mempp.preset("orgmembench")
    rows = []
    for question in asked:
        hits = memory.recall(question.text, as_of=question.as_of, settings=preset)
        ranked = [hit.record.source for hit in hits]
        read, room = set(), BUDGET
        for hit in hits:
            room -= len(hit.record.text) + HEADING
            if room < 0:
                break
            read.add(hit.record.source)
        row = {"coverage@40000": len(read & question.gold) / len(question.gold)}
        for k in (5, 10, 20):
            row[f"recall@{k}"] = len(set(ranked[:k]) & question.gold) / len(question.gold)
        row["lexical"] = sum(leg.leg == "lexical" for hit in hits for leg in hit.explain().legs)
        rows.append(row)
    return {name: statistics.mean(row[name] for row in rows) for name in rows[0]}


def main(folder: Path) -> int:
    """Print the comparison; return 1 where the data are not there."""
    if not (folder / "benchmark_v0.0.jsonl").is_file():
        print(
            f"there is no OrgMemBench in {folder}: name the folder orgmembench/helix/medium as the argument, or the "
            "folder that holds orgmembench/ by MEMPP_DATA",
            file=sys.stderr,
        )
        return 1
    # The paper embeds the head of each document only, and so do the times printed.
    with mempp.in_memory(settings=mempp.Settings(windows=False)) as memory:
        memory.encoder.encode_question("warm up")
        started = time.perf_counter()
        report = memory.add_many(documents(folder))
        adding = time.perf_counter() - started
        asked = questions(folder)
        measured = measure(memory, asked)
        print(f"{report.added} documents added in {adding:.1f} s, encoder included; {len(asked)} questions")
        print(f"{'':16}{'mempp':>8}{'authors':>9}")
        for name, expected in AUTHORS_ENGINE.items():
            print(f"{name:16}{measured[name]:8.3f}{expected:9.3f}")
        print(f"hits of the lexical leg, which wants every word of a question in one text: {measured['lexical']:.0f}")
        for label, settings in (("preset orgmembench", mempp.preset("orgmembench")), ("default settings", None)):
            times = []
            for question in asked * 3:
                started = time.perf_counter()
                memory.recall(question.text, as_of=question.as_of, settings=settings)
                times.append(1000 * (time.perf_counter() - started))
            print(f"recall, {label}: median {statistics.median(times):.1f} ms, encoder included")
    load = "/".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"load of the machine over the last 1/5/15 minutes: {load}, on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    from conftest import DATA

    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "orgmembench" / "helix" / "medium"))
