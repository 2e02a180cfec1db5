"""The result of a run put together from its rows: means, intervals, counts, times."""

import math
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from eval.cases import Dataset
from eval.results import FORMAT, JsonObject, machine
from eval.scoring import summary_of

Rows = Sequence[Mapping[str, Any]]


def assemble(
    *,
    rows: Rows,
    ingest: Sequence[JsonObject],
    complete: bool,
    configuration: JsonObject,
    configuration_digest: str,
    dataset: Dataset,
    data_digest: JsonObject,
    notes: Sequence[str],
    installed: JsonObject,
    costs: JsonObject | None,
) -> JsonObject:
    """A result file as a JSON object; docs/evaluation.md describes it."""
    return {
        "format": FORMAT,
        "complete": complete,
        "written_at": datetime.now(UTC).replace(microsecond=0).isoformat(),
        **figures(rows, list(dataset.categories)),
        "usage": costs,
        "configuration": configuration,
        "configuration_digest": configuration_digest,
        "data": {"title": dataset.title, "licence": dataset.licence, "where": dataset.where, **data_digest},
        "category_names": dict(dataset.categories),
        "versions": installed,
        "machine": machine(),
        "notes": list(dict.fromkeys(notes)),
        "ingest_total": ingest_total(ingest),
        "ingest": list(ingest),
        "rows": list(rows),
    }


def figures(rows: Rows, categories: Sequence[str]) -> JsonObject:
    """What follows from the rows alone: `rejudge` makes it anew."""
    summary = summary_of(rows, categories)
    return {
        "summary": summary.means(),
        "intervals": summary.intervals(),
        "questions": dict(summary.questions),
        "counts": counts(rows),
        "judging": judging(rows),
        "timing": timing(rows),
    }


def all_failed(rows: Rows) -> str | None:
    """What failed first, if every request to the answering or to the judging model did; else None."""
    answers = [row["answer"] for row in rows if row["answer"] is not None]
    if answers and all(one["failed"] for one in answers):
        return f"every request to the answering model failed: {answers[0]['error']}"
    verdicts = [row["verdict"] for row in rows if row["verdict"] is not None]
    if verdicts and all(0 < one["failed"] == len(one["repeats"]) for one in verdicts):
        return f"every request to the judge failed: {verdicts[0]['error']}"
    return None


def counts(rows: Rows) -> JsonObject:
    """How many questions were asked, and how many did not go as they should; each of these scores 0."""
    answers = [row["answer"] for row in rows if row["answer"] is not None]
    verdicts = [row["verdict"] for row in rows if row["verdict"] is not None]
    return {
        "questions": len(rows),
        "without_gold_evidence": sum(not row["gold"]["evidence"] for row in rows),
        "retrieval_errors": sum(row["error"] is not None for row in rows),
        "answered": sum(not one["error"] for one in answers),
        "answer_errors": sum(bool(one["error"]) for one in answers),
        "judged": sum(not one["failed"] for one in verdicts),
        "judge_errors": sum(bool(one["failed"]) for one in verdicts),
        "unparsed_verdicts": sum(one["unparsed"] for one in verdicts),
    }


def judging(rows: Rows) -> JsonObject | None:
    """The score of each judge repeat over all questions, and their standard deviation (n − 1), as in Table 1."""
    repeats: list[list[float]] = []
    for row in rows:
        if row["verdict"] is not None:
            repeats.append([float(score) for score in row["verdict"]["repeats"]])
        elif row["scores"].get("judge") is not None:  # retrieval or answer failed: 0 in every repeat
            repeats.append([])
    most = max((len(one) for one in repeats), default=0)
    if not most:
        return None
    means = [
        math.fsum(one[place] if place < len(one) else 0.0 for one in repeats) / len(repeats) for place in range(most)
    ]
    return {
        "repeats": most,
        "mean_of_each": means,
        "standard_deviation": statistics.stdev(means) if most > 1 else None,
    }


def timing(rows: Rows) -> JsonObject:
    """Milliseconds of search, answering and judging per question: median, 95th percentile and mean."""
    found: JsonObject = {}
    for name in ("search_ms", "answer_ms", "judge_ms"):
        values = sorted(row["scores"][name] for row in rows if row["scores"].get(name) is not None)
        if values:
            found[name] = {
                "median": statistics.median(values),
                "p95": values[min(len(values) - 1, math.ceil(0.95 * len(values)) - 1)],
                "mean": math.fsum(values) / len(values),
            }
    return found


def ingest_total(ingest: Sequence[Mapping[str, Any]]) -> JsonObject:
    """Documents, seconds and bytes over all collections; bytes are None where a system cannot tell."""
    stored = [one["bytes_stored"] for one in ingest]
    return {
        "collections": len(ingest),
        "documents": sum(one["documents"] for one in ingest),
        "seconds": math.fsum(one["seconds"] for one in ingest),
        "bytes_stored": None if None in stored else sum(stored),
    }
