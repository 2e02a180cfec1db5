"""How long a store takes to open and to give its first answer, with `cache/` and without, and how much memory it takes.

    python -m benchmarks open [--rows 100000] [--characters 500] [--dimensions 384] [--exact-up-to 1000000] [--runs 3]
                              [--store DIRECTORY] [--out FILE]

It builds a store of random words with random unit vectors, given by an encoder that only draws numbers, so that what
is measured is Mem++ and not a model. Each opening happens in a process of its own: times are wall time from the call
of `mempp.open`, modules already imported, and processor time of all threads, which is what counts on a machine that has
other work; memory is the peak of the process above what it held after the imports.
With `--store` the store is kept, and used again when it is there.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mempp
from benchmarks.report import machine, resident, write_json
from mempp.encoders import EncoderIdentity

QUESTION = "what was decided about bacado and dubefi"
WORDS = 50_000


class RandomEncoder:
    """Unit vectors that have nothing to do with the texts."""

    def __init__(self, dimensions: int) -> None:
        self.identity = EncoderIdentity(f"random-{dimensions}", dimensions, {"kind": "random"})
        self._numbers = np.random.default_rng(1)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dimensions) random unit vectors."""
        vectors = self._numbers.standard_normal((len(texts), self.identity.dimensions), dtype=np.float32)
        unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    def encode_question(self, text: str) -> NDArray[np.float32]:
        """(dimensions,) one of them."""
        vector: NDArray[np.float32] = self.encode_documents([text])[0]
        return vector


def documents(rows: int, characters: int) -> Iterator[mempp.Document]:
    """Texts of words drawn by Zipf's law, cut to a number of characters, with dates and labels."""
    numbers = np.random.default_rng(2)
    syllables = [first + second for first in "bcdfghklmnprstvwz" for second in "aeiou"]
    words = ["".join(numbers.choice(syllables, size=2 + place % 3)) for place in range(WORDS)]
    chances = 1 / np.arange(10, WORDS + 10)
    chances /= chances.sum()
    for row in range(rows):
        text = " ".join(words[place] for place in numbers.choice(WORDS, size=characters // 5, p=chances))
        yield mempp.Document(
            text=text[:characters].ljust(characters, "."),
            occurred_at=f"{2015 + row % 10}-{1 + row % 12:02}-{1 + row % 28:02}",
            author=f"author {numbers.integers(200)}",
            tags=[f"topic {numbers.integers(500)}"],
            source=f"message-{row}@example.org",
            thread=f"thread {row // 5}",
            metadata={"size": row % 97},
        )


def build(path: Path, options: argparse.Namespace) -> float:
    """Build the store; return the seconds."""
    begin = time.perf_counter()
    encoder = RandomEncoder(options.dimensions)
    with mempp.open(path, encoder=encoder, exact_up_to=options.exact_up_to) as memory:
        memory.add_many(documents(options.rows, options.characters), progress=sys.stderr.isatty())
        wait_for_graph(memory)
    return time.perf_counter() - begin


def wait_for_graph(memory: mempp.Memory) -> None:
    """Wait for the HNSW graph, if one is being built (it is only where there are more rows than `--exact-up-to`)."""
    index = memory._projection.indexes.vectors
    if index is not None:
        index.wait_until_built()


def open_once(options: argparse.Namespace) -> dict[str, Any]:
    """Open the store in this process; return seconds to open, to the first answer, to close, and peak memory."""
    modules = ["mempp.memory", "mempp.storage", "pyarrow.parquet", "pyarrow.compute", "tantivy"]
    for module in modules + ["hnswlib"] * (options.rows > options.exact_up_to):
        import_module(module)

    encoder = RandomEncoder(options.dimensions)
    before = resident()
    began_cpu, begin = time.process_time(), time.perf_counter()
    memory = mempp.open(options.store, encoder=encoder, exact_up_to=options.exact_up_to, read_only=options.read_only)
    opened = time.perf_counter()
    hits = memory.recall(QUESTION)
    answered, cpu = time.perf_counter(), time.process_time() - began_cpu
    peak, held = resident(peak=True) - before, resident() - before
    wait_for_graph(memory)
    waited = time.perf_counter()
    memory.close()
    closed = time.perf_counter()
    assert hits
    assert hits[0].record.text
    return {
        "open": opened - begin,
        "answer": answered - begin,
        "cpu": cpu,
        "close": closed - waited,
        "peak": peak,
        "held": held,
        "peak_of_all": resident(peak=True) - before,
    }


def in_a_process(path: Path, options: argparse.Namespace, *, read_only: bool) -> dict[str, Any]:
    """`open_once` in a new process."""
    command = [sys.executable, __file__, "--store", str(path), "--measure", "--rows", str(options.rows)]
    command += ["--dimensions", str(options.dimensions), "--exact-up-to", str(options.exact_up_to)]
    done = subprocess.run(
        command + ["--read-only"] * read_only,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def size(path: Path) -> int:
    """Bytes of the files in a directory."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def report(label: str, measured: list[dict[str, Any]], content: int) -> dict[str, Any]:
    """Print one line, the median of the runs, and give it."""
    middle = {key: sorted(run[key] for run in measured)[len(measured) // 2] for key in measured[0]}
    print(
        f"{label:<34} open {middle['open']:6.2f} s   first answer {middle['answer']:6.2f} s "
        f"= {middle['cpu']:5.2f} s CPU   "
        f"close {middle['close']:6.2f} s   peak {middle['peak'] / 1e6:6.0f} MB = {middle['peak'] / content:4.2f} x   "
        f"held {middle['held'] / 1e6:6.0f} MB"
    )
    return {"what": label, **middle}


def main(argv: Sequence[str] | None = None) -> int:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--characters", type=int, default=500)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--exact-up-to", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--read-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.measure:
        print(json.dumps(open_once(options)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = options.store or Path(folder, "store")
        took = None if path.exists() else build(path, options)
        content = options.rows * (4 * options.dimensions + options.characters)
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__},"
            f" pyarrow {version('pyarrow')}; medians of {options.runs} runs, file cache warm"
        )
        print(
            f"{options.rows:,} rows of {options.characters} characters, {options.dimensions} dimensions, "
            f"exact_up_to={options.exact_up_to:,}; vectors and texts: {content / 1e6:.0f} MB"
        )
        if took is not None:
            print(f"built in {took:.1f} s")
        cache = path / "cache"
        runs = range(options.runs)
        in_a_process(path, options, read_only=False)  # writes the caches that may be missing
        rows = [report("with caches", [in_a_process(path, options, read_only=False) for _ in runs], content)]
        print(f"on disk: {size(path) / 1e6:.0f} MB, of it cache/ {size(cache) / 1e6:.0f} MB")
        kept = Path(folder, "cache")
        shutil.move(cache, kept)
        without = [in_a_process(path, options, read_only=True) for _ in runs]
        rows.append(report("without cache/, read-only", without, content))
        anew = [in_a_process(path, options, read_only=False)]
        rows.append(report("without cache/, writing it anew", anew, content))
    if options.out is not None:
        write_json(options.out, "open", vars(options), machine=machine(), results=rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
