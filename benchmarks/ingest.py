"""What adding costs beside bare encoding, and how much memory a large file takes.

    python -m benchmarks ingest [--data FOLDER] [--only documents|turns|file] [--runs 3] [--turns 1500]
                                [--file-gigabytes 2] [--out FILE]

The first table: `add_many` of the documents of OrgMemBench, and of turns of LoCoMo, into a new store on disk, beside
one call of the encoder with the same views (heads and windows), which is the least that it can take. The two take turns
in one run; medians. The ratio of processor time, of all threads, is what counts on a machine that has other work.

The second, with `--file-gigabytes`: `mempp add --no-embed` of a JSON Lines file of that size, made in a temporary
folder, in a process of its own, and the peak of its memory beside what a process holds that has merely opened the
store: the difference is what adding takes beyond the indexes.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import mempp
from benchmarks.report import machine, write_json
from eval.datasets import dataset
from mempp.encoders.windows import windows_of

_ADD = """
import resource, sys
from mempp.cli.run import main
code = main(["add", sys.argv[1], sys.argv[2], "--no-embed"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""
_OPEN = """
import resource, sys, time
import mempp
begin = time.perf_counter()
with mempp.open(sys.argv[1], read_only=True, encoder="none") as memory:
    seconds = time.perf_counter() - begin
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[1]) * resource.getpagesize() // 1024
    print(len(memory), now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, seconds)
"""


def documents_of(name: str, data: Path, most: int | None = None) -> list[mempp.Document]:
    """The documents of a benchmark, of all its collections, or the first of them."""
    found = [
        mempp.Document(text=one.text, occurred_at=one.occurred_at, author=one.authors, thread=one.thread, source=one.id)
        for collection in dataset(name).read(data / name, {})
        for one in collection.documents
        if one.text.strip()
    ]
    # What is the same in all that counts is no document of its own, and would be embedded by bare encoding alone.
    unique = {(one.text, one.occurred_at, str(one.author), one.thread): one for one in found}
    return list(unique.values())[:most]


def views_of(documents: Sequence[mempp.Document]) -> list[str]:
    """The texts that the encoder is given for documents: heads and windows."""
    return [view for one in documents for view in (one.text, *windows_of(one.text))]


def measure(documents: Sequence[mempp.Document], encoder: Any, runs: int) -> dict[str, Any]:
    """Seconds of bare encoding and of `add_many`, taking turns."""
    views = views_of(documents)
    bare, whole, bare_processor, whole_processor = [], [], [], []
    for run in range(runs):
        for what in (0, 1) if run % 2 else (1, 0):
            with tempfile.TemporaryDirectory() as folder:
                if what == 0:
                    begin, processor = time.perf_counter(), time.process_time()
                    encoder.encode_documents(views)
                    bare.append(time.perf_counter() - begin)
                    bare_processor.append(time.process_time() - processor)
                else:
                    with mempp.open(Path(folder) / "store", encoder=encoder) as memory:
                        begin, processor = time.perf_counter(), time.process_time()
                        memory.add_many(documents)
                        whole.append(time.perf_counter() - begin)
                        whole_processor.append(time.process_time() - processor)
                        assert memory.stats().without_vector == 0
    ratios = [one / other for one, other in zip(whole, bare, strict=True)]
    return {
        "documents": len(documents),
        "views": len(views),
        "encoding_seconds": statistics.median(bare),
        "add_many_seconds": statistics.median(whole),
        "ratio": statistics.median(whole) / statistics.median(bare),
        "ratios": ratios,
        "processor_ratio": statistics.median(whole_processor) / statistics.median(bare_processor),
    }


def write_file(path: Path, size: int) -> int:
    """Write JSON Lines of about so many bytes, some 2,500 a document; return how many documents they are."""
    chooser = random.Random(1)
    syllables = [first + second for first in "bcdfghklmnprstvwz" for second in "aeiou"]
    words = ["".join(chooser.choices(syllables, k=2 + place % 3)) for place in range(50_000)]
    chances = list(accumulate(1 / place for place in range(10, len(words) + 10)))
    sentences = [" ".join(chooser.choices(words, cum_weights=chances, k=14)) for _ in range(100_000)]
    written = documents = 0
    with open(path, "w", encoding="utf-8") as stream:
        while written < size:
            fields = {
                "text": f"Note {documents}. " + ". ".join(chooser.choices(sentences, k=25)) + ".",
                "occurred_at": f"{2015 + documents % 10}-{1 + documents % 12:02}-{1 + documents % 28:02}",
                "author": f"author {documents % 300}",
                "source": f"message-{documents}@example.org",
                "thread": f"thread {documents // 5}",
            }
            written += stream.write(json.dumps(fields) + "\n")
            documents += 1
    return documents


def measure_file(gigabytes: float) -> dict[str, Any]:
    """Peak memory and time of `mempp add --no-embed` of a file, and memory of a process that opens the store."""
    with tempfile.TemporaryDirectory() as folder:
        file, store = Path(folder) / "documents.jsonl", Path(folder) / "store"
        documents = write_file(file, int(gigabytes * 1e9))
        begin = time.perf_counter()
        peak = int(_in_a_process(_ADD, str(store), str(file))[-1])
        seconds = time.perf_counter() - begin
        rows, opened, opening_peak, opening = _in_a_process(_OPEN, str(store))
        assert int(rows) == documents
        return {
            "gigabytes": file.stat().st_size / 1e9,
            "documents": documents,
            "add_seconds": seconds,
            "add_peak_megabytes": peak / 1024,
            "opened_megabytes": int(opened) / 1024,
            "opening_peak_megabytes": int(opening_peak) / 1024,
            "beyond_the_indexes_megabytes": (peak - int(opened)) / 1024,
            "open_seconds": float(opening),
        }


def _in_a_process(code: str, *arguments: str) -> list[str]:
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.split()


def tables(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure what was asked for; print each table when it is there."""
    encoder = mempp.MiniLM()
    wanted = [
        ("documents", "orgmembench", "documents of OrgMemBench", None),
        ("turns", "locomo", "turns of LoCoMo", arguments.turns),
    ]
    if arguments.only != "file":
        print(
            "| what | documents | views | encoding alone, s | add_many, s | ratio | of processor time |\n|" + "---|" * 7
        )
        encoder.encode_documents(["warm up " * 40] * 8)
    for kind, name, title, most in wanted:
        if arguments.only in (None, kind):
            row = measure(documents_of(name, arguments.data, most), encoder, arguments.runs)
            print(
                f"| {title} | {row['documents']} | {row['views']} | {row['encoding_seconds']:.1f} | "
                f"{row['add_many_seconds']:.1f} | {row['ratio']:.3f} | {row['processor_ratio']:.3f} |",
                flush=True,
            )
            yield {"what": title, **row}
    if arguments.file_gigabytes and arguments.only in (None, "file"):
        row = measure_file(arguments.file_gigabytes)
        print("\n| file | documents | add --no-embed | peak | store opened | beyond the indexes |\n|" + "---|" * 6)
        print(
            f"| {row['gigabytes']:.2f} GB | {row['documents']:,} | {row['add_seconds']:.0f} s | "
            f"{row['add_peak_megabytes']:,.0f} MB | {row['opened_megabytes']:,.0f} MB (peak "
            f"{row['opening_peak_megabytes']:,.0f} MB) in {row['open_seconds']:.0f} s | "
            f"{row['beyond_the_indexes_megabytes']:,.0f} MB |",
            flush=True,
        )
        yield {"what": "file", **row}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="benchmarks ingest", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("MEMPP_DATA", "../shared/data")))
    parser.add_argument("--only", choices=["documents", "turns", "file"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turns", type=int, default=1500)
    parser.add_argument("--file-gigabytes", type=float, default=0.0)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args(argv)
    rows = list(tables(arguments))
    if arguments.out is not None:
        write_json(arguments.out, "ingest", vars(arguments), machine=machine(), rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
