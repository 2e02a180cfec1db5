"""Adds documents to a store and prints what was acknowledged, until it is killed or has done `limit` operations."""

import hashlib
import json
import random
import warnings
from pathlib import Path
from typing import IO, Any

import mempp
from harness.stream import HeadEncoder, operations
from mempp.storage import TornTailWarning


def main(arguments: dict[str, Any], output: IO[bytes]) -> None:
    """Arguments: path, seed, seal_bytes, and limit if it should end. Each line is written by one call, unbuffered."""
    # A predecessor was killed: a torn end is what this is about.
    warnings.simplefilter("ignore", TornTailWarning)
    say(output, {"began": True})
    memory = mempp.open(Path(arguments["path"]), encoder=HeadEncoder())
    memory._store.seal_bytes = arguments["seal_bytes"]  # type: ignore[attr-defined]
    say(output, {"opened": len(memory)})
    chooser = random.Random(arguments["seed"])
    rows: list[int] = []
    for number, (kind, documents) in enumerate(operations(arguments["seed"])):
        if number == arguments.get("limit"):
            break
        if documents:
            if kind == "add":
                report = memory.add(documents[0])
            else:
                report = memory.add_many(documents, batch_size=len(documents))
            added = [
                (row, hashlib.sha256(document.text.encode()).hexdigest())
                for row, document in zip(report.row_ids, documents, strict=True)
                if row is not None
            ]
            rows += [row for row, _ in added]
            say(output, {"rows": added})
        elif len(rows) > 1:
            older, newer = sorted(chooser.sample(rows, 2))
            if kind == "supersede":
                try:
                    sequence = memory.supersede(older, by=newer)
                except mempp.InputError:  # a circle
                    continue
                say(output, {"sequence": sequence, "kind": kind, "row_id": older, "related_row": newer})
                continue
            sequence = {
                "retract": lambda row: memory.retract(row, reason="drawn by lot"),
                "archive": lambda row: memory.archive(row),
                "reinstate": lambda row: memory.reinstate(row),
                "annotate": lambda row: memory.annotate(row, "lot", {"drawn": row}),
            }[kind](older)
            say(output, {"sequence": sequence, "kind": kind, "row_id": older})
    memory.close()


def say(output: IO[bytes], message: dict[str, Any]) -> None:
    output.write(json.dumps(message).encode() + b"\n")
