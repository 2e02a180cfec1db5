"""Several processes at one store: writers with batches, repeats and changes of state, readers with threads.

Every commit holds things that belong together: the two rows of a pair, or the archiving of both. So a state that a
reader sees is whole exactly when every pair is. `main` is one process; `work_together` starts them all and checks.
"""

import json
import os
import random
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import IO, Any

import mempp
from harness import independent
from harness.nursery import Child, Nursery
from harness.stream import HeadEncoder, make_batch
from harness.writer import say
from mempp.storage import TornTailWarning

WRITERS = 4
READERS = 4
THREADS = 4
WORDS = mempp.Settings(k=10, weight_vector=0)
POOL = 40
"""Documents that every writer adds come from a window of so many, which moves on."""


def main(arguments: dict[str, Any], output: IO[bytes]) -> None:
    """Arguments: role, path, name, seed, and until, in seconds of the system's clock."""
    # Others are killed beside it.
    warnings.simplefilter("ignore", TornTailWarning)
    (write if arguments["role"] == "writer" else read)(arguments, output)


def write(arguments: dict[str, Any], output: IO[bytes]) -> None:
    """Commit until the time is over; print what was acknowledged, by a key that tells what it is."""
    chooser = random.Random(arguments["seed"])
    pairs: list[list[int]] = []
    number = 0
    began = time.time()
    with mempp.open(Path(arguments["path"]), encoder=HeadEncoder(), lock_timeout=60) as memory:
        memory._store.seal_bytes = chooser.choice((2_000, 20_000))  # type: ignore[attr-defined]
        while time.time() < arguments["until"]:
            number += 1
            name = f"{arguments['name']}-{arguments['seed']}-{number}"
            what = chooser.choices(("single", "pair", "shared", "archive", "refresh"), (4, 5, 6, 2, 1))[0]
            if what == "single":
                keys, documents = [name], make_batch(name, [f"single note {name}"])
                rows = memory.add(documents[0]).row_ids
            elif what == "pair":
                keys = [f"{name} left", f"{name} right"]
                documents = make_batch(f"pair {name}", [f"pair of notes {key}" for key in keys])
                rows = memory.add_many(documents).row_ids
                pairs.append([row for row in rows if row is not None])
            elif what == "shared":
                # Moves on with the clock, so that all writers meet, a newly started one too.
                start = int((time.time() - arguments["epoch"]) * 20)
                numbers = chooser.sample(range(start, start + POOL), chooser.choice((1, 1, 2, 8)))
                keys = [f"shared {one}" for one in numbers]
                documents = [one for key in keys for one in make_batch(key, [f"note of everybody, {key}"])]
                rows = memory.add_many(documents).row_ids
            elif what == "archive" and pairs:
                pair = pairs.pop(chooser.randrange(len(pairs)))
                say(output, {"archived": pair, "sequence": memory.archive(pair)})
                continue
            else:
                memory.refresh()
                continue
            say(output, {"rows": dict(zip(keys, rows, strict=True))})
    say(output, {"operations": number, "seconds": time.time() - began})


def read(arguments: dict[str, Any], output: IO[bytes]) -> None:
    """Ask in several threads until the time is over; every answer must be of one state."""
    os.nice(10)  # sixteen threads that never rest would leave the writers little of a small machine
    sys.setswitchinterval(1e-5)  # threads change often: also while another takes in half of a commit, if that shows
    with mempp.open(Path(arguments["path"]), read_only=arguments["seed"] % 2 == 0, encoder=HeadEncoder()) as memory:
        errors: list[BaseException] = []
        counts: list[int] = []

        def work(seed: int) -> None:
            try:
                counts.append(ask(memory, random.Random(seed), arguments["until"]))
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=work, args=(arguments["seed"] * THREADS + place,)) for place in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
    say(output, {"answers": sum(counts)})


def ask(memory: mempp.Memory, chooser: random.Random, until: float) -> int:
    """Ask one thing after the other; return how many. AssertionError when an answer mixes two states."""
    known: dict[int, str] = {}
    answers = most = 0
    while time.time() < until:
        answers += 1
        what = chooser.choices(("refresh", "get", "pair", "recall", "all", "wide"), (4, 1, 12, 3, 1, 1))[0]
        if what == "refresh":
            memory.refresh()
        size = len(memory)
        assert size >= most, f"rows vanished: {most} were seen, then {size}"
        most = size
        if not size:
            continue
        record = memory.get(max(0, size - 1 - chooser.randrange(chooser.choice((3, 20, size)))))
        assert known.setdefault(record.row_id, record.text) == record.text
        if what == "pair" and record.thread is not None:
            check_pairs(memory.records(thread=record.thread))
        elif what == "recall" and record.thread is not None and record.thread.startswith("pair"):
            thread = record.thread
            hits = memory.recall(f"pair of notes {thread}", k=10, thread=thread)
            check_pairs([hit.record for hit in hits])
            # Without the vector leg: a vector may still be on its way to a row that was known.
            bound = memory.head_sequence
            before, after = (
                [hit.record for hit in memory.recall("pair of notes", known_at=bound, thread=thread, settings=WORDS)]
                for _ in range(2)
            )
            assert before == after, "a past answer changed"
        elif what == "wide":
            hits = memory.recall(record.text, k=20)
            assert all(memory.get(hit.record.row_id).text == hit.record.text for hit in hits)
        elif what == "all":
            records = memory.records()
            assert [one.row_id for one in records] == sorted({one.row_id for one in records})
            check_pairs(records)
    return answers


def check_pairs(records: list[mempp.Record]) -> None:
    """Of each pair there are both or none."""
    pairs = Counter(record.thread for record in records if record.thread is not None and record.thread[:4] == "pair")
    halves = [thread for thread, count in pairs.items() if count != 2]
    assert not halves, f"half a commit is seen of {halves}"


# --- the processes together ------------------------------------------------------------------------------------------


class Heard:
    """What the writers acknowledged, and the figures that all print at their end."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.archived: list[list[int]] = []
        self.figures: Counter[str] = Counter()
        self.contradictions: list[str] = []
        self._lock = threading.Lock()

    def listen(self, child: Child) -> None:
        for message in child.lines():
            with self._lock:
                for key, row in message.get("rows", {}).items():
                    if self.rows.setdefault(key, row) != row:
                        self.contradictions.append(f"{key} is in the rows {self.rows[key]} and {row}")
                if "archived" in message:
                    self.archived.append(message["archived"])
                for name in ("operations", "answers"):
                    self.figures[name] += message.get(name, 0)


def work_together(
    nursery: Nursery, path: Path, seconds: float, *, seed: int, kill_writers: bool = False
) -> Counter[str]:
    """Let writers and readers work at one store for a time, then check the store; return figures."""
    chooser = random.Random(seed)
    mempp.open(path, encoder=HeadEncoder()).close()
    epoch = time.time()
    until = epoch + seconds
    heard = Heard()
    started: list[tuple[Child, threading.Thread]] = []

    def start(role: str, name: str) -> Child:
        child = nursery.start(
            "company", role=role, path=str(path), name=name, seed=chooser.randrange(10**6), until=until, epoch=epoch
        )
        listener = threading.Thread(target=heard.listen, args=(child,))
        listener.start()
        started.append((child, listener))
        return child

    writers = {f"w{place}": start("writer", f"w{place}") for place in range(WRITERS)}
    for place in range(READERS):
        start("reader", f"r{place}")
    killed: set[int] = set()
    while kill_writers and time.time() < until - 1:
        time.sleep(chooser.uniform(0.05, 0.8))
        name = chooser.choice(sorted(writers))
        writers[name].kill()
        killed.add(writers[name].pid)
        writers[name] = start("writer", name)
    for child, listener in started:
        listener.join()
        assert child.wait() == (-9 if child.pid in killed else 0), "a process failed; its stderr says why"
    assert not heard.contradictions, heard.contradictions[:3]
    check_store(path, heard, bool(killed))
    heard.figures["writers killed"] = len(killed)
    return heard.figures


def check_store(path: Path, heard: Heard, killed: bool) -> None:
    """Nothing lost, nothing stored twice, no half commit, a clean chain, and a vector for every row."""
    contents = independent.read(path)
    keys = [(entry["text"], entry.get("thread"), tuple(entry["authors"])) for entry in contents.rows]
    assert len(set(keys)) == len(keys), "a document is stored twice"
    for key, row in heard.rows.items():
        assert contents.rows[row]["text"].endswith(key), f"row {row} is not {key!r}"
    archived = {entry["row_id"] for entry in contents.entries if entry["kind"] == "archive"}
    assert {row for pair in heard.archived for row in pair} <= archived
    for commit in contents.commits():
        names = [json.loads(entry["metadata"]) for entry in commit if entry["kind"] == "document"]
        sizes = Counter(name["batch"] for name in names)
        assert all(sizes[name["batch"]] == name["size"] for name in names), "half a batch is stored"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornTailWarning)
        with mempp.open(path, encoder=HeadEncoder()) as memory:
            assert memory._store.head_digest == contents.head  # type: ignore[attr-defined]
            missing = memory.embed()
            check_pairs(memory.records())
    assert killed or not missing, f"{missing} rows have no vector, though nobody was killed"
    vectors = independent.read_vectors(
        path / "vectors" / HeadEncoder().identity.name, HeadEncoder().identity.dimensions
    )
    assert sorted(vectors) == list(range(len(contents.rows)))
    heard.figures["rows"] = len(contents.rows)
    heard.figures["entries"] = len(contents.entries)
    heard.figures["acknowledged"] = len(heard.rows)
    heard.figures["sealed entries"] = contents.sealed
    heard.figures["rows without vector"] = missing
