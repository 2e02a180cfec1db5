"""The encoder beside what a user would pick instead: texts a second, milliseconds a question, fidelity.

    python -m benchmarks encode [--data FOLDER] [--rounds N] [--out FILE]
    python -m benchmarks encode --one-core          # processor seconds of one thread each, for a machine that is busy
    python -m benchmarks encode --evidence          # what int8 costs in retrieval, against float32

Documents of OrgMemBench, cut at 256 word pieces; turns of LoCoMo; twenty questions of each (10 and 39 words on
average), one by one. All in one process, one after another in every round; the figures are medians of the rounds, after
one round that is not counted.
sentence-transformers takes part where it is installed, with its own batches of 32 and as many threads as torch takes.

The evidence: recall@10 on LoCoMo and coverage in 40,000 characters on OrgMemBench under the default settings, once
for each precision, and the difference with its paired 95 % bootstrap interval.
"""

import argparse
import os
import statistics
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.plain_export import plain_export
from benchmarks.report import machine, write_json
from eval.datasets import dataset
from mempp.encoders import MiniLM
from mempp.encoders.minilm import find_archive, read_member, read_weights
from mempp.encoders.minilm_graph import DIMENSIONS, MAX_PIECES
from mempp.encoders.pieces import PieceCutter
from mempp.encoders.runtime import SentenceModel, start_session

_DATASETS = {"documents": "orgmembench", "turns": "locomo"}
_QUESTIONS = {"question of LoCoMo": "locomo", "question of OrgMemBench": "orgmembench"}
_BASE = "sentence-transformers, torch"
_QUESTIONS_EACH = 20

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Peer:
    """One way to encode: several texts, and one question."""

    name: str
    many: Encode
    one: Callable[[str], NDArray[np.float32]]


def texts(data: Path, documents: int, turns: int) -> dict[str, list[str]]:
    """What is encoded, by kind."""

    def first(name: str, count: int) -> list[str]:
        collections = dataset(name).read(data / name, {})
        return [one.text for one in islice((one for each in collections for one in each.documents), count)]

    counts = {"documents": documents, "turns": turns}
    return {kind: first(name, counts[kind]) for kind, name in _DATASETS.items()}


def questions(data: Path) -> dict[str, list[str]]:
    """Twenty questions by kind, spread over all of a benchmark."""
    asked = {}
    for kind, name in _QUESTIONS.items():
        every = [case.text for each in dataset(name).read(data / name, {}) for case in each.cases]
        asked[kind] = every[:: max(1, len(every) // _QUESTIONS_EACH)][:_QUESTIONS_EACH]
    return asked


def measure(
    data: Path, *, rounds: int = 7, documents: int = 160, turns: int = 700, one_core: bool = False
) -> list[dict[str, Any]]:
    """One row for each way to encode, the slowest to expect first.

    Args:
        data: the folder of the benchmarks' data.
        rounds: rounds that count.
        documents: how many are encoded.
        turns: how many are encoded.
        one_core: every encoder has one thread, and processor time is taken: comparable while other programs run.

    Returns:
        rows with `encoder`; `documents_per_second`, `turns_per_second`, `question_locomo_ms`,
        `question_orgmembench_ms`; the same with `_ratio`, times as fast as sentence-transformers (None where it is
        missing); `cosine_mean` and `cosine_min` to the first row, over documents and turns; `note` instead of
        figures for what is not installed.
    """
    given, asked = texts(data, documents, turns), questions(data)
    with ExitStack() as stack:
        peers, notes = _peers(stack, 1 if one_core else None)
        clock = time.process_time if one_core else time.perf_counter
        times: dict[tuple[str, str], list[float]] = {}
        vectors: dict[str, NDArray[np.float32]] = {}
        for round_ in range(rounds + 1):
            for what in (*given, *asked):
                for peer in peers:
                    taken = _time(peer, what, given, asked, clock)
                    if round_:
                        times.setdefault((peer.name, what), []).append(taken)
        for peer in peers:
            vectors[peer.name] = np.concatenate([peer.many(some) for some in given.values()])
    rows: list[dict[str, Any]] = []
    for peer in peers:
        median = {what: statistics.median(times[peer.name, what]) for what in (*given, *asked)}
        base = {what: statistics.median(times.get((_BASE, what), [float("nan")])) for what in median}
        cosines = np.einsum("ij,ij->i", vectors[peer.name], vectors[peers[0].name], dtype=np.float64)
        row: dict[str, Any] = {"encoder": peer.name}
        for what, key, figure in (
            ("documents", "documents_per_second", len(given["documents"]) / median["documents"]),
            ("turns", "turns_per_second", len(given["turns"]) / median["turns"]),
            *((kind, f"question_{name}_ms", 1000 * median[kind]) for kind, name in _QUESTIONS.items()),
        ):
            row[key] = figure
            row[f"{key}_ratio"] = base[what] / median[what] if base[what] == base[what] else None
        rows.append({**row, "cosine_mean": float(cosines.mean()), "cosine_min": float(cosines.min())})
    return notes + rows


def _time(
    peer: Peer,
    what: str,
    given: dict[str, list[str]],
    asked: dict[str, list[str]],
    clock: Callable[[], float],
) -> float:
    """Seconds for the texts of a kind, or the median over its questions, asked one by one."""
    if what in given:
        started = clock()
        peer.many(given[what])
        return clock() - started
    runs = []
    for question in asked[what]:
        started = clock()
        peer.one(question)
        runs.append(clock() - started)
    return statistics.median(runs)


def _peers(stack: ExitStack, threads: int | None) -> tuple[list[Peer], list[dict[str, Any]]]:
    """The ways to encode that are installed, and a row for each that is not."""
    peers, notes = [], []
    try:
        peers.append(stack.enter_context(_sentence_transformers(threads)))
    except ImportError:
        notes.append({"encoder": _BASE, "note": "not installed: pip install torch sentence-transformers"})
    peers.append(_plain(threads))
    for precision in ("float32", "int8"):
        encoder = MiniLM(threads, precision=precision)  # type: ignore[arg-type]
        peers.append(Peer(f"Mem++, {precision}", encoder.encode_documents, encoder.encode_question))
    return peers, notes


@contextmanager
def _sentence_transformers(threads: int | None) -> Iterator[Peer]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        import sentence_transformers
        import torch

        if threads is not None:
            torch.set_num_threads(threads)

        with zipfile.ZipFile(find_archive()) as archive:
            archive.extractall(folder)
        model = sentence_transformers.SentenceTransformer(folder, device="cpu", local_files_only=True)

        def encode(given: Sequence[str] | str) -> NDArray[np.float32]:
            return np.asarray(model.encode(given, normalize_embeddings=True, show_progress_bar=False))

        yield Peer(_BASE, encode, encode)


def _plain(threads: int | None) -> Peer:
    archive = find_archive()
    model = SentenceModel(
        cutter=PieceCutter(read_member(archive, "tokenizer.json"), max_length=MAX_PIECES, where="tokenizer.json"),
        session=start_session(plain_export(read_weights(archive)), threads=threads, where="the plain export"),
        output="sentence_embedding",
        pooling=None,
        dimensions=DIMENSIONS,
        pad_number=0,
        where="the plain export",
    )
    return Peer("plain ONNX export, padded, onnxruntime", model.encode, lambda text: model.encode([text])[0])


def evidence(data: Path) -> list[dict[str, Any]]:
    """How retrieval under the default settings differs between float32 and int8.

    Returns:
        rows with `metric`, `float32`, `int8`, `difference` (int8 less float32), `low` and `high` of its paired 95 %
        interval, `questions`.
    """
    import mempp
    from benchmarks import steps
    from eval.metrics.bootstrap import paired_difference
    from eval.systems.encoders import RememberingEncoder

    measured = {}
    for precision in ("float32", "int8"):
        encoder = steps.Ready(RememberingEncoder(MiniLM(precision=precision), documents=True))  # type: ignore[arg-type]
        locomo = steps.records("locomo", data / "locomo", encoder, {})
        org = steps.records("orgmembench", data / "orgmembench", encoder, {})
        withheld = steps.records("orgmembench", data / "orgmembench", encoder, {"thread": "withheld"})
        row = steps.measure(mempp.Settings(), locomo, org, withheld)
        columns = dict(zip(("recall@5", "recall@10", "recall@50", "MRR"), zip(*row.locomo, strict=True), strict=True))
        covered = list(zip(*row.coverage, strict=True))
        measured[precision] = {
            **{f"LoCoMo {name}": list(values) for name, values in columns.items()},
            "OrgMemBench coverage@10000": list(covered[0]),
            "OrgMemBench coverage@40000": list(covered[1]),
            "OrgMemBench coverage@40000, threads withheld": list(row.withheld),
        }
    rows = []
    for metric, theirs in measured["float32"].items():
        ours = measured["int8"][metric]
        found = paired_difference(ours, theirs)
        rows.append(
            {
                "metric": metric,
                "float32": statistics.mean(theirs),
                "int8": statistics.mean(ours),
                "difference": found.mean,
                "low": found.low,
                "high": found.high,
                "questions": len(theirs),
            }
        )
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of `measure` as a Markdown table; a ratio to sentence-transformers stands in brackets."""
    lines = [
        "| encoder | documents/s | turns/s | question of LoCoMo, ms | of OrgMemBench, ms | cosine, mean | least |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "note" in row:
            lines.append(f"| {row['encoder']} | {row['note']} | | | | | |")
            continue
        cells = []
        for key in ("documents_per_second", "turns_per_second", "question_locomo_ms", "question_orgmembench_ms"):
            ratio = row[f"{key}_ratio"]
            cells.append(f"{row[key]:.1f}" + (f" ({ratio:.2f} ×)" if ratio is not None else ""))
        cosines = [f"{row[key]:.6f}" for key in ("cosine_mean", "cosine_min")]
        lines.append(f"| {row['encoder']} | " + " | ".join(cells + cosines) + " |")
    return "\n".join(lines)


def evidence_table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of `evidence` as a Markdown table."""
    lines = ["| metric | questions | float32 | int8 | difference (95 % interval) |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['metric']} | {row['questions']} | {row['float32']:.3f} | {row['int8']:.3f} | "
        f"{row['difference']:+.4f} ({row['low']:+.4f} to {row['high']:+.4f}) |"
        for row in rows
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a table, and writes the rows as JSON where asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks encode", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("MEMPP_DATA", "../shared/data")))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--documents", type=int, default=160)
    parser.add_argument("--turns", type=int, default=700)
    parser.add_argument("--one-core", action="store_true", help="one thread each, processor time")
    parser.add_argument("--evidence", action="store_true", help="compare retrieval between float32 and int8 instead")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the rows there as JSON")
    arguments = parser.parse_args(argv)
    if arguments.evidence:
        rows = evidence(arguments.data)
        print(evidence_table(rows))
    else:
        rows = measure(
            arguments.data,
            rounds=arguments.rounds,
            documents=arguments.documents,
            turns=arguments.turns,
            one_core=arguments.one_core,
        )
        print(table(rows))
    if arguments.out is not None:
        write_json(arguments.out, "encode", vars(arguments), machine=machine(), rows=rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
