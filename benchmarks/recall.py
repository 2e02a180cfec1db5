"""How long a question takes in records of growing size, the encoder included, in scopes from everything to one row.

    python -m benchmarks recall [--rows 1000 10000 100000 1000000] [--rounds 7] [--store DIRECTORY]
                                [--exact-up-to N] [--threads 5] [--out FILE]

A record is made of random words (Zipf) in threads, with vectors in clusters that stand for the embeddings of texts, so
that nothing but questions is embedded. A question is embedded by MiniLM, for its time, and then given a vector that
lies about a cluster as documents do; every other one has its own, which is far from all clusters.

For each size how long opening took, with the caches there, and what the process then holds, mapped files among it. For
each setting and scope: the median time from question to hits, the median processor time of all threads (which
is what counts on a machine with other work), and how many of the nearest rows by a full scan the vector leg found.
Beside them the encoder alone, and what the machine reads from memory: a full scan of the vectors cannot be faster.
Stores are kept in `--store`, and used again when they are there: a million rows take some minutes to add. What the
process holds tells of the store alone where it was there: a process that has added keeps more. Beyond
`--exact-up-to` vectors an HNSW graph is built; the table waits for it.
"""

import argparse
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mempp
from benchmarks.report import machine, resident, write_json
from mempp.encoders import EncoderIdentity
from mempp.recall import Bounds

WORDS = 30_000
PER_ROW = 60
CHARACTERS = 400
DIMENSIONS = 384
CENTRES = 2_000
TOPICS = ["contract", "vendor", "outage", "shipment", "approval", "customer", "revised", "target", "uptime", "review"]
SHORT = "What is the current uptime target after the outage review?"
LONG = "When was the customer contract with the vendor revised and who approved the shipment target w5 w17?"
QUESTIONS = (
    LONG,
    SHORT,
    "w3 w100 w250 approval of the contract as discussed in March 2021 by Person3 Name3",
    "Which shipment did the vendor miss, w40 w900 w12000?",
)
SETTINGS: dict[str, mempp.Settings] = {
    "default": mempp.Settings(),
    "preset": mempp.preset("orgmembench"),
    "locomo": mempp.preset("locomo"),
}
_BLOCK = 16_384
_AUTHOR_OF_HALF = "Person0 Name0"
_WANTED = 100  # rows of the vector leg that are held against a full scan


class Clusters:
    """Unit vectors about 2,000 centres; most of their length lies in about 50 directions, as with real embeddings."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        basis, _ = np.linalg.qr(random.standard_normal((DIMENSIONS, DIMENSIONS)))
        lengths = 1 / (1 + np.arange(DIMENSIONS) / 20)
        lengths /= np.linalg.norm(lengths)
        self._basis = (lengths[:, None] * basis).astype(np.float32)
        self._centres = _unit(random.standard_normal((CENTRES, DIMENSIONS)).astype(np.float32) @ self._basis)

    def draw(self, count: int, random: np.random.Generator) -> NDArray[np.float32]:
        """(count, dimensions) vectors; two of one cluster have a cosine of about 0.55."""
        noise = random.standard_normal((count, DIMENSIONS), dtype=np.float32) @ self._basis
        return _unit(self._centres[random.integers(CENTRES, size=count)] + np.float32(0.9) * noise)


def _unit(values: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = values / np.linalg.norm(values, axis=1, keepdims=True)
    return unit


def vectors(rows: int) -> Iterator[NDArray[np.float32]]:
    """The vectors of a record of so many rows, in blocks, (n, dimensions) each."""
    clusters, random = Clusters(), np.random.default_rng(1)
    for start in range(0, rows, _BLOCK):
        yield clusters.draw(min(_BLOCK, rows - start), random)


def record(rows: int, *, of_a_thread: int = 5) -> Iterator[mempp.Document]:
    """Random documents over seven years; one author wrote half of them, 49 others about 1 % each.

    Args:
        rows: how many.
        of_a_thread: rows in each thread; 0: none has a thread.
    """
    random = np.random.default_rng(1)
    weights = 1 / np.arange(1, WORDS + 1) ** 1.07
    weights /= weights.sum()
    words = [f"w{number}" for number in range(WORDS)]
    for start in range(0, rows, _BLOCK):
        count = min(_BLOCK, rows - start)
        drawn = random.choice(WORDS, size=(count, PER_ROW), p=weights).tolist()
        topics = random.choice(TOPICS, size=(count, 3)).tolist()
        for place in range(count):
            row = start + place
            text = " ".join([*(words[word] for word in drawn[place]), *topics[place]])
            yield mempp.Document(
                text=text.ljust(CHARACTERS, "."),
                occurred_at=f"20{18 + row % 7}-{1 + row // 7 % 12:02d}-{1 + row // 84 % 28:02d}",
                author=_AUTHOR_OF_HALF if row % 2 else f"Person{1 + row // 2 % 49} Name{1 + row // 2 % 49}",
                thread=f"t{row // of_a_thread}" if of_a_thread else None,
            )


def scopes(rows: int) -> dict[str, Bounds]:
    """Name → bounds of a question in a record of so many rows."""
    return {
        "100 %": {},
        "50 % as of": {"as_of": "2021-06-30"},
        "50 % one author": {"author": _AUTHOR_OF_HALF},
        "10 %": {"since": "2024-04-20"},
        "1 %": {"author": "Person3 Name3"},
        "one row": {"rows": [rows // 2]},
    }


class Drawn:
    """An encoder that draws the vectors of documents, in their order, and embeds questions with MiniLM."""

    def __init__(self, rows: int) -> None:
        self.identity = EncoderIdentity("drawn-clusters-2", DIMENSIONS, {"kind": "drawn"})
        self.minilm = mempp.MiniLM()
        self._clusters = Clusters()
        self._blocks = vectors(rows)
        self._drawn: dict[str, NDArray[np.float32]] = {}
        self._left = np.empty((0, DIMENSIONS), np.float32)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of the next documents."""
        while len(self._left) < len(texts):
            self._left = np.concatenate((self._left, next(self._blocks)))
        given, self._left = self._left[: len(texts)], self._left[len(texts) :]
        return given

    def encode_question(self, text: str) -> NDArray[np.float32]:
        """A vector about a cluster; for every other question MiniLM's own. MiniLM takes its time in either case."""
        own = self.minilm.encode_question(text)
        number = zlib.crc32(text.encode())
        if number % 2:
            return own
        if text not in self._drawn:  # drawing takes time that a question does not
            self._drawn[text] = self._clusters.draw(1, np.random.default_rng(number))[0]
        return self._drawn[text]


def opened(path: Path, rows: int, encoder: Drawn, *, exact_up_to: int | None, of_a_thread: int = 5) -> mempp.Memory:
    """The store of a record, made if it is not there; its graph, if it has one, is ready."""
    options: dict[str, Any] = {} if exact_up_to is None else {"exact_up_to": exact_up_to}
    if not path.exists():
        with mempp.open(path, encoder=encoder, **options) as memory:
            memory.add_many(record(rows, of_a_thread=of_a_thread), batch_size=4096, progress=True)
    began, used = time.perf_counter(), time.process_time()
    memory = mempp.open(path, encoder=encoder, **options)
    wall, processor = time.perf_counter() - began, time.process_time() - used
    print(
        f"\n{len(memory):,} rows opened in {wall:.2f} s ({processor:.2f} s of the processors); the process holds "
        f"{resident() / 1e6:,.0f} MB",
        flush=True,
    )
    index = memory._projection.indexes.vectors
    assert index is not None
    index.wait_until_built()
    if exact_up_to is not None and exact_up_to < len(index):
        wall, processor = time.perf_counter() - began, time.process_time() - used
        print(
            f"{wall:,.0f} s ({processor:,.0f} s of the processors) after opening began its HNSW graph is there and "
            f"{'in use' if index._graph is not None else 'not in use: it finds too few of the nearest'}; the process "
            f"holds {resident() / 1e6:,.0f} MB",
            flush=True,
        )
    return memory


def measure(memory: mempp.Memory, encoder: Drawn, *, rounds: int = 7) -> list[dict[str, Any]]:
    """Ask every question in every scope and setting.

    Returns:
        a row for each setting and scope: medians in milliseconds, and the recall of the vector leg.
    """
    table = []
    rows = len(memory)
    settings = {**SETTINGS, "preset, exact": mempp.Settings(**{**_given(SETTINGS["preset"]), "exact": True})}
    for scope, bounds in scopes(rows).items():
        found = recall_of_vectors(memory, encoder, bounds)
        for name, chosen in settings.items():

            def ask(question: str, chosen: mempp.Settings = chosen, bounds: Bounds = bounds) -> object:
                return memory.recall(question, settings=chosen, **bounds)

            wall, processor = milliseconds(ask, rounds)
            table.append(
                {
                    "rows": rows,
                    "setting": name,
                    "scope": scope,
                    "ms": wall,
                    "processor_ms": processor,
                    "recall": 1.0 if chosen.exact else found,
                }
            )
    return table


def _given(settings: mempp.Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.given}


def recall_of_vectors(memory: mempp.Memory, encoder: Drawn, bounds: Bounds) -> float:
    """The share of the nearest rows in scope, by a full scan, that the vector leg finds; over all questions."""
    index = memory._projection.indexes.vectors
    assert index is not None
    allowed = memory._view(bounds).scope.allowed
    hit = wanted = 0
    for question in QUESTIONS:
        vector = encoder.encode_question(question)
        exact = index.rank(vector, allowed, _WANTED, exact=True).row_ids.tolist()
        hit += len(set(exact) & set(index.rank(vector, allowed, _WANTED).row_ids.tolist()))
        wanted += len(exact)
    return hit / wanted if wanted else 1.0


def milliseconds(ask: Callable[[str], object], rounds: int) -> tuple[float, float]:
    """Median wall time and processor time of a question, after one round to warm up."""
    wall, processor = [], []
    for number in range(rounds + 1):
        for question in QUESTIONS:
            started, used = time.perf_counter(), time.process_time()
            ask(question)
            if number:
                wall.append(1000 * (time.perf_counter() - started))
                processor.append(1000 * (time.process_time() - used))
    return statistics.median(wall), statistics.median(processor)


def _encode(encoder: Drawn, text: str, _: str) -> NDArray[np.float32]:
    return encoder.minilm.encode_question(text)


def bandwidth(rows: int) -> dict[str, float]:
    """Gigabytes a second that are read from memory: by adding up as many numbers as the vectors have, and by their
    product with one vector."""
    values = np.ones((min(rows, 1_000_000), DIMENSIONS), np.float32)
    question = np.ones(DIMENSIONS, np.float32)
    gigabytes = values.nbytes / 1e9
    ways: dict[str, Callable[[], object]] = {"sum": values.sum, "product": lambda: values @ question}
    rates = {}
    for name, work in ways.items():
        times = []
        for _ in range(6):
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
        rates[name] = gigabytes / statistics.median(times[1:])
    return rates


def tables(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure size after size; print each table and give its rows."""
    with tempfile.TemporaryDirectory() as folder:
        for rows in arguments.rows:
            encoder = Drawn(rows)
            path = (arguments.store or Path(folder)) / f"rows-{rows}-{arguments.threads}"
            path.parent.mkdir(parents=True, exist_ok=True)
            with opened(
                path, rows, encoder, exact_up_to=arguments.exact_up_to, of_a_thread=arguments.threads
            ) as memory:
                alone = {
                    name: milliseconds(partial(_encode, encoder, text), arguments.rounds)[0]
                    for name, text in (("long", LONG), ("short", SHORT))
                }
                measured = measure(memory, encoder, rounds=arguments.rounds)
            rates = bandwidth(rows)
            print(
                f"{rows:,} rows; the encoder alone {alone['long']:.1f} ms (long question), {alone['short']:.1f} ms "
                f"(short); memory {rates['sum']:.1f} GB/s (sum), {rates['product']:.1f} GB/s (product): a full scan "
                f"takes {4e-6 * rows * DIMENSIONS / rates['sum']:.1f} ms at least; load {os.getloadavg()[0]:.1f}"
            )
            print(table(measured), flush=True)
            for row in measured:
                yield {**row, "encoder_ms": alone, "memory_gb_per_s": rates, "load": os.getloadavg()[0]}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of one size as a table: for each setting and scope ms (of the processor), recall of the vector leg."""
    names = list(dict.fromkeys(row["setting"] for row in rows))
    cells = {(row["setting"], row["scope"]): row for row in rows}
    lines = [f"{'ms (processor ms)':18}" + "".join(f"{name:>20}" for name in names) + f"{'recall':>9}"]
    for scope in dict.fromkeys(row["scope"] for row in rows):
        of_scope = [cells[name, scope] for name in names]
        times = "".join(f"{row['ms']:>11.1f} ({row['processor_ms']:>6.1f})" for row in of_scope)
        lines.append(f"{scope:18}{times}{min(row['recall'] for row in of_scope):9.3f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; see the top of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks recall", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--store", type=Path, help="folder where the stores are kept")
    parser.add_argument("--exact-up-to", type=int, help="vectors up to which there is no graph")
    parser.add_argument("--threads", type=int, default=5, help="rows in each thread; 0: no threads")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    arguments = parser.parse_args(argv)
    rows = list(tables(arguments))
    if arguments.out is not None:
        write_json(arguments.out, "recall", vars(arguments), machine=machine(), rows=rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
