"""Kills writers at random moments and checks what they left behind."""

import hashlib
import json
import random
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import mempp
from harness import independent
from harness.nursery import Nursery
from harness.stream import HeadEncoder
from mempp.storage import DiskStore, TornTailWarning

KILLS_PER_STORE = 17


@dataclass
class Promises:
    """What writers of one store acknowledged."""

    rows: dict[int, str] = field(default_factory=dict)
    entries: dict[int, dict[str, Any]] = field(default_factory=dict)

    def note(self, message: dict[str, Any]) -> None:
        for row, digest in message.get("rows", []):
            # A stream that is sent again must come back with the rows that it had.
            assert self.rows.setdefault(row, digest) == digest, f"row {row} was acknowledged with two texts"
        if "sequence" in message:
            entry = {key: value for key, value in message.items() if key != "sequence"}
            assert self.entries.setdefault(message["sequence"], entry) == entry


def kill_many(
    nursery: Nursery, folder: Path, kills: int, seed: int, told: Callable[[int, Counter[str]], None] = lambda *_: None
) -> Counter[str]:
    """Kill so many writers, a few dozen in each store; raise AssertionError or Wrong at the first thing lost."""
    chooser = random.Random(seed)
    figures: Counter[str] = Counter()
    while figures["kills"] < kills:
        path = folder / f"store-{figures['stores']}"
        promises = Promises()
        stream_seed = chooser.randrange(10**6)
        for _ in range(min(KILLS_PER_STORE, kills - figures["kills"])):
            if chooser.random() < 0.6:
                stream_seed = chooser.randrange(10**6)
            kill_one(nursery, path, promises, stream_seed, chooser, figures)
            if (path / "store.json").exists():
                check(path, promises, figures)
            else:
                assert not promises.rows
            figures["kills"] += 1
            told(figures["kills"], figures)
        go_on(path, promises, figures)
        figures["stores"] += 1
        figures["rows acknowledged"] += len(promises.rows)
        figures["state entries acknowledged"] += len(promises.entries)
        shutil.rmtree(path)
    return figures


def kill_one(
    nursery: Nursery, path: Path, promises: Promises, seed: int, chooser: random.Random, figures: Counter[str]
) -> None:
    """Start a writer, kill it at some moment, note what it acknowledged until then."""
    seal_bytes = chooser.choice((1, 3_000, 30_000, 300_000))
    child = nursery.start("writer", path=str(path), seed=seed, seal_bytes=seal_bytes)
    lines = child.lines()
    if chooser.random() < 0.4:
        # At any time after its birth, so also while it creates, opens or recovers the store.
        time.sleep(chooser.uniform(0, 0.12))
    else:
        for _ in range(chooser.choice((1, 2, 3, 5, 10, 20, 40))):
            promises.note(next(lines))
        time.sleep(chooser.uniform(0, 0.006))
    child.kill()
    last: dict[str, Any] = {}
    for message in lines:
        promises.note(message)
        last = message
    assert child.wait() == -9, "the writer ended by itself"
    figures["killed while opening"] += last == {"began": True}


def check(path: Path, promises: Promises, figures: Counter[str]) -> None:
    """Hold the files against the promises, by the independent reader and by a reader of mempp."""
    contents = independent.read(path)
    assert len(contents.rows) >= len(promises.rows)
    for row, digest in promises.rows.items():
        text = contents.rows[row]["text"]
        assert sha256(text) == digest, f"row {row} has another text than acknowledged"
    for sequence, fields in promises.entries.items():
        entry = contents.entries[sequence]
        assert {key: entry.get(key) for key in fields} == fields, f"entry {sequence} is not the one acknowledged"
    check_batches(contents)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TornTailWarning)
        store = DiskStore(path, read_only=True)
        entries = store.refresh()
    assert store.head_digest == contents.head
    assert [(entry.kind, entry.row_id, entry.text) for entry in entries] == [
        (entry["kind"], entry.get("row_id"), entry.get("text")) for entry in contents.entries
    ]
    assert bool(caught) == bool(contents.torn), "a torn end was not told, or told where there is none"
    figures["torn ends"] += bool(contents.torn)
    figures["interrupted sealings"] += len(list((path / "journal").glob("*.journal"))) > 1
    figures["temporary files left"] += bool(list((path / "log").glob("*.tmp")))


def check_batches(contents: independent.Contents) -> None:
    """A batch is there whole, once, in one commit, or not at all; a document by itself is a batch of one."""
    seen: set[str] = set()
    for commit in contents.commits():
        documents = [json.loads(entry["metadata"]) for entry in commit if entry["kind"] == "document"]
        for name in {document["batch"] for document in documents}:
            assert name not in seen, f"batch {name} is in two commits"
            seen.add(name)
            mine = [document for document in documents if document["batch"] == name]
            assert len(mine) == mine[0]["size"], f"batch {name} of {mine[0]['size']} has {len(mine)} rows"
            assert len({document["place"] for document in mine}) == len(mine), f"batch {name} has a document twice"


def go_on(path: Path, promises: Promises, figures: Counter[str]) -> None:
    """Use the store once more: embed what kills left without vectors, and hold all vectors against the encoder's."""
    encoder = HeadEncoder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornTailWarning)
        with mempp.open(path, encoder=encoder) as memory:
            missing = memory.embed()
            memory.add("the end", thread="end", metadata={"batch": "end", "size": 1, "place": 0})
            assert memory.recall("the end", k=1)[0].record.text == "the end"
            assert {row: sha256(memory.get(row).text) for row in promises.rows} == promises.rows
    figures["rows that a kill left without vector"] += missing
    check(path, promises, figures)
    contents = independent.read(path)
    identity = encoder.identity
    vectors = independent.read_vectors(path / "vectors" / identity.name, identity.dimensions)
    assert sorted(vectors) == list(range(len(contents.rows)))
    wanted = encoder.encode_documents([row["text"] for row in contents.rows])
    assert np.array_equal(np.array([vectors[row] for row in sorted(vectors)], np.float32), wanted)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
