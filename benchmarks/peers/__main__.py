"""One system in a process of its own, told what to do by JSON lines on standard input; answers by JSON lines.

    python -m benchmarks.peers SYSTEM FOLDER ROWS DIMENSIONS SEED QUESTIONS K

QUESTIONS is a file, so that a process which only asks holds nothing of what made the rows.

Orders: `{"do": "write"}`, `{"do": "open"}`, `{"do": "ask", "variant": …, "scope": {…}}`, `{"do": "memory"}`. Whatever a
library prints goes to standard error.
"""

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers import SYSTEMS, Reader, Scope, Writer
from benchmarks.report import bytes_in, resident
from benchmarks.synthetic import Asked, SyntheticRecord, load_questions


class Stopwatch:
    """Adds up the time that its blocks take, by the clock and of the processors (all threads of this process)."""

    seconds = 0.0
    processor_seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *raised: object) -> None:
        self.seconds += time.perf_counter() - self._began[0]
        self.processor_seconds += time.process_time() - self._began[1]


class Process:
    """Carries orders out."""

    def __init__(self, system: str, folder: Path, record: SyntheticRecord, asked: Asked, k: int) -> None:
        self._module = import_module(SYSTEMS[system].module)
        self._folder = folder
        self._record = record
        self._k = k
        self._asked = asked
        self._reader: Reader | None = None

    def write(self) -> dict[str, Any]:
        """Make the store; the making of the rows is not counted."""
        adding, finishing = Stopwatch(), Stopwatch()
        with adding:
            writer: Writer = self._module.Writer(self._folder, self._record.rows, self._record.dimensions)
        for block in self._record.blocks():
            with adding:
                writer.add(block)
        with finishing:
            writer.finish()
        return {
            "add_seconds": adding.seconds,
            "finish_seconds": finishing.seconds,
            "add_processor_seconds": adding.processor_seconds + finishing.processor_seconds,
            "add_peak_bytes": resident(peak=True),
        }

    def open(self) -> dict[str, Any]:
        """Open the store and give a first answer."""
        before = resident()
        began = time.perf_counter()
        reader: Reader = self._module.Reader(self._folder, self._record.rows, self._record.dimensions)
        opened = time.perf_counter()
        self._reader = reader
        found = reader.ask(reader.first, self._asked.texts[0], self._asked.vectors[0], Scope("100 %"), self._k)
        answered = time.perf_counter()
        if not found:
            raise RuntimeError("the first answer after opening is empty")
        reader.settle()
        size = reader.bytes_on_disk()
        return {
            "open_seconds": opened - began,
            "first_answer_seconds": answered - began,
            "resident_before_bytes": before,
            "bytes_on_disk": bytes_in(self._folder) if size is None else size,
            "variants": dict(reader.variants),
        }

    def ask(self, variant: str, scope: dict[str, Any]) -> dict[str, Any]:
        """Ask every question once."""
        reader, asked = self._reader, self._asked
        if reader is None:
            raise RuntimeError("open it first")
        seconds, processor_seconds, rows = [], [], []
        for text, vector in zip(asked.texts, asked.vectors, strict=True):
            began, began_processor = time.perf_counter(), time.process_time()
            found = reader.ask(variant, text, vector, Scope(**scope), self._k)
            seconds.append(time.perf_counter() - began)
            processor_seconds.append(time.process_time() - began_processor)
            rows.append(found)
        return {"seconds": seconds, "processor_seconds": processor_seconds, "rows": rows}

    def memory(self) -> dict[str, Any]:
        """Resident memory now."""
        return {"resident_bytes": resident()}


def main() -> None:
    """Obey until standard input ends."""
    system, folder, rows, dimensions, seed, questions, k = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    record = SyntheticRecord(int(rows), int(dimensions), int(seed))
    process = Process(system, Path(folder), record, load_questions(Path(questions)), int(k))
    for line in sys.stdin:
        order = json.loads(line)
        answer = getattr(process, order.pop("do"))(**order)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
