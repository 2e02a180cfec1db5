"""How long a question takes under the default settings in a large record, the encoder included.

    python benchmarks/recall.py [--rows 100000] [--rounds 7]

Records of random words (Zipf) with random unit vectors, so that only the questions are embedded, by MiniLM.
Three records, because context depends on threads: threads of 5 rows, of 1,000 rows, and no threads at all. Beside
the default the same questions without context, under the paper's setting for LoCoMo, and the encoder alone. Medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

import mempp

WORDS = 30_000
PER_ROW = 60
TOPICS = ["contract", "vendor", "outage", "shipment", "approval", "customer", "revised", "target", "uptime", "review"]
QUESTIONS = (
    "When was the customer contract with the vendor revised and who approved the shipment target w5 w17?",
    "What is the current uptime target after the outage review?",
    "w3 w100 w250 approval of the contract as discussed in March 2021 by Person3 Name3",
)
SETTINGS = {
    "default": mempp.Settings(),
    "without context": mempp.Settings(context=0),
    "preset locomo": mempp.preset("locomo"),
}


class Drawn:
    """Draws the vectors of documents, and embeds questions with MiniLM."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._minilm = mempp.MiniLM()
        self.identity = self._minilm.identity

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Random unit vectors."""
        drawn = self._random.standard_normal((len(texts), self.identity.dimensions)).astype(np.float32)
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    def encode_question(self, text: str) -> NDArray[np.float32]:
        """The question's own vector."""
        return self._minilm.encode_question(text)


def record(rows: int, thread_of: Callable[[int], str | None]) -> list[mempp.Document]:
    """Random documents over seven years."""
    random = np.random.default_rng(1)
    weights = 1 / np.arange(1, WORDS + 1) ** 1.07
    drawn = random.choice(WORDS, size=(rows, PER_ROW), p=weights / weights.sum())
    topics = random.choice(TOPICS, size=(rows, 3))
    return [
        mempp.Document(
            text=" ".join([*(f"w{word}" for word in drawn[row]), *topics[row]]),
            occurred_at=f"20{18 + row % 7}-{1 + row // 7 % 12:02d}-{1 + row // 84 % 28:02d}",
            author=f"Person{row % 50} Name{row % 97}",
            thread=thread_of(row),
        )
        for row in range(rows)
    ]


def milliseconds(ask: Callable[[str], object], rounds: int) -> float:
    """Median time of a question, after one round to warm up."""
    times = []
    for number in range(rounds + 1):
        for question in QUESTIONS:
            started = time.perf_counter()
            ask(question)
            if number:
                times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    encoder = Drawn()
    print(f"{arguments.rows:,} rows; ms for a question, encoder included; the encoder alone: ", end="")
    print(f"{milliseconds(encoder.encode_question, arguments.rounds):.1f}")
    print(f"{'':22}" + "".join(f"{name:>17}" for name in SETTINGS))
    kinds: dict[str, Callable[[int], str | None]] = {
        "threads of 5": lambda row: f"t{row // 5}",
        "threads of 1,000": lambda row: f"t{row // 1000}",
        "no threads": lambda row: None,
    }
    for kind, thread_of in kinds.items():
        with mempp.in_memory(encoder=encoder) as memory:
            memory.add_many(record(arguments.rows, thread_of))
            cells = [
                milliseconds(lambda question, chosen=chosen: memory.recall(question, settings=chosen), arguments.rounds)
                for chosen in SETTINGS.values()
            ]
        print(f"{kind:22}" + "".join(f"{cell:17.1f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
