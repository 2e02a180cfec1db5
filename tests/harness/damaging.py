"""Damages one file of a store in many ways, opens the store, and tells what came of it.

`main` runs in a child, since a native reader of damaged bytes may take its process with it; `damage_all` starts the
children and sees that none dies.
"""

import hashlib
import logging
import random
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import mempp
from harness.nursery import Nursery
from harness.stream import HeadEncoder, make_batch
from harness.writer import say
from mempp import caching
from mempp.errors import MemppError
from mempp.storage import TornTailWarning, series

FOLDER = HeadEncoder().identity.name
QUESTIONS = ("approved vendor", "meeting about the budget 7", "writer 3 會議")

KINDS = ("log segment", "log journal", "vectors segment", "vectors journal", "store.json", "meta.json", "cache")
MUST_NOT_BE = ("silent", "unnamed", "escaped")

Change = Callable[[Path, bytes], None]


def build(path: Path, seed: int) -> None:
    """A store with two segments and a journal of several frames, of entries and of vectors, and with its caches."""
    before, caching.WORTH_ROWS = caching.WORTH_ROWS, 1  # so few rows are cached too
    try:
        _fill(path, random.Random(seed), seed)
        mempp.open(path, encoder=HeadEncoder()).close()
    finally:
        caching.WORTH_ROWS = before


def _fill(path: Path, chooser: random.Random, seed: int) -> None:
    words = ("approved", "vendor", "meeting", "budget", "會議決定", "décidé", "reversed", "network")
    with mempp.open(path, encoder=HeadEncoder()) as memory:
        for part in range(9):
            memory._store.seal_bytes = 1 if part in (3, 7) else 1 << 20  # type: ignore[attr-defined]
            texts = [" ".join(chooser.choices(words, k=12)) + f" {part * 10 + place}" for place in range(6)]
            memory.add_many(make_batch(f"{seed}:{part}", texts))
            if part % 3 == 1:
                memory.retract(part, reason="drawn by lot")
                memory.supersede(part + 1, by=part + 4)
                memory.annotate(part + 2, "fact", {"part": part}, text="approved by the board")


def kinds(path: Path) -> dict[str, list[Path]]:
    """The files of a store by kind, those that matter to a reader."""
    vectors = path / "vectors" / FOLDER
    found = {
        "log segment": sorted((path / "log").glob("*.parquet")),
        "log journal": sorted((path / "journal").glob("*.journal")),
        "vectors segment": sorted((vectors / "segments").glob("*.parquet")),
        "vectors journal": sorted((vectors / "journal").glob("*.journal")),
        "store.json": [path / "store.json"],
        "meta.json": [vectors / "meta.json"],
        "cache": sorted((path / "cache").glob("*.cache")),
    }
    return {kind: files for kind, files in found.items() if files}


def answers(memory: mempp.Memory) -> str:
    """A digest of all that a store answers: texts, dates, states, annotations, and questions with scores."""
    told: list[object] = [repr(memory.get(row)) for row in range(len(memory))]
    told += [repr(one) for one in memory.annotations()]
    for question in QUESTIONS:
        for bounds in ({}, {"as_of": "2026-01-04"}, {"known_at": 20}):
            hits = memory.recall(question, k=12, **bounds)
            told.append([(hit.record.row_id, hit.score, str(hit.explain())) for hit in hits])
    return hashlib.sha256(repr(told).encode()).hexdigest()


def open_for_reading(path: Path) -> mempp.Memory:
    return mempp.open(path, read_only=True, encoder=HeadEncoder())


# --- the ways to damage a file ---------------------------------------------------------------------------------------


def flips(file: Path, count: int, chooser: random.Random) -> Iterator[tuple[str, Change]]:
    """Single bits: half of them anywhere, half in the first and last bytes, where headers and footers are."""
    size = file.stat().st_size
    for number in range(count):
        place = chooser.randrange(size)
        if number % 2:
            place = min(size - 1, chooser.choice((number // 2 % 128, max(0, size - 1 - chooser.randrange(4096)))))
        bit = chooser.randrange(8)

        def flip(file: Path, data: bytes, place: int = place, bit: int = bit) -> None:
            altered = bytearray(data)
            altered[place] ^= 1 << bit
            file.write_bytes(altered)

        yield f"bit {bit} of byte {place} of {size}", flip


def others(path: Path, file: Path, foreign: Path, chooser: random.Random) -> Iterator[tuple[str, Change]]:
    """Truncated, zero-filled, removed, exchanged with a sibling, replaced by the same file of another store."""
    size = file.stat().st_size
    for length in sorted({0, 1, size - 1, *(chooser.randrange(size) for _ in range(12))}):
        yield f"cut to {length} of {size} bytes", lambda file, data, length=length: file.write_bytes(data[:length])
    for _ in range(12):
        start = chooser.randrange(size)
        end = min(size, start + chooser.choice((16, 512, 4096)))
        yield (
            f"zeros from {start} to {end} of {size}",
            lambda file, data, start=start, end=end: file.write_bytes(data[:start] + bytes(end - start) + data[end:]),
        )
    yield "removed", lambda file, data: file.unlink()
    yield "longer", lambda file, data: file.write_bytes(data + b"\0" * 100)
    kind = next(kind for kind, files in kinds(path).items() if file in files)
    for other in kinds(path)[kind]:
        if other != file:
            yield f"replaced by {other.name}", lambda file, data, other=other: file.write_bytes(other.read_bytes())
    stranger = kinds(foreign)[kind][kinds(path)[kind].index(file)]
    yield "of another store", lambda file, data: file.write_bytes(stranger.read_bytes())


def main(arguments: dict[str, Any], output: IO[bytes]) -> None:
    """Arguments: path, foreign, file, flips, seed, skip, expected. Prints one line for every damage from skip on."""
    logging.disable()  # a damaged cache is told there, once for every damage
    series._FIRST_PAUSE = 0  # nobody writes here: what does not fit will not settle
    path, foreign, file = Path(arguments["path"]), Path(arguments["foreign"]), Path(arguments["file"])
    data = file.read_bytes()
    chooser = random.Random(arguments["seed"])
    todo = [*flips(file, arguments["flips"], chooser), *others(path, file, foreign, chooser)]
    for what, change in todo[arguments["skip"] :]:
        change(file, data)
        outcome, detail = open_damaged(path, file, arguments["expected"])
        say(output, {"what": what, "outcome": outcome, "detail": detail})
        file.write_bytes(data)


def open_damaged(path: Path, file: Path, expected: str) -> tuple[str, str]:
    """What came of it; "silent", "unnamed" and "escaped" must not be.

    harmless    the answers are the same
    refused     an error of mempp that names the file, or the folder where something is missing
    warned      a warning that names it; what is unreadable is the end, and is passed over
    unembedded  some rows have no vector any more, as if they had not been embedded yet; `stats` counts them
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with open_for_reading(path) as memory:
                told = [str(one.message) for one in caught if issubclass(one.category, TornTailWarning)]
                found = "" if told else answers(memory)
                without_vector = memory.stats().without_vector
        except MemppError as error:
            return ("refused" if names(file, str(error)) else "unnamed"), f"{type(error).__name__}: {error}"
        except BaseException as error:
            return "escaped", repr(error)
    if told:
        return ("warned" if any(names(file, one) for one in told) else "unnamed"), told[0]
    if found == expected:
        return "harmless", ""
    return ("unembedded" if without_vector else "silent"), ""


def names(file: Path, message: str) -> bool:
    """Whether a message names the file, or the folder in which it is missing or does not continue the others."""
    if "the end of the log may be lost" in message:
        return file.parent.parent.name != "vectors"
    folder = file.parent.parent if "vectors" in file.parts else file.parent
    return file.name in message or str(folder) in message


def digest_of(path: Path) -> str:
    with open_for_reading(path) as memory:
        return answers(memory)


def damage_all(nursery: Nursery, folder: Path, kind: str, flips: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Damage the files of one kind; return how often came what, and a line for everything that must not be."""
    folder.mkdir(exist_ok=True)
    path, foreign = folder / "store", folder / "foreign"
    build(path, 1)
    build(foreign, 2)
    expected, again, other = (digest_of(one) for one in (path, path, foreign))
    assert expected == again != other
    counts: Counter[str] = Counter()
    faults: list[str] = []
    files = kinds(path)[kind]
    for place, file in enumerate(files):
        done = 0
        ended = False
        while not ended:
            child = nursery.start(
                "damaging",
                path=str(path),
                foreign=str(foreign),
                file=str(file),
                flips=flips // len(files) + (place < flips % len(files)),
                seed=seed + place,
                skip=done,
                expected=expected,
            )
            for line in child.lines():
                done += 1
                counts[line["outcome"]] += 1
                if line["outcome"] in MUST_NOT_BE:
                    faults.append(f"{file.name}, {line['what']}: {line['outcome']} {line['detail']}")
            ended = child.wait() == 0
            if not ended:
                faults.append(f"{file.name}: damage number {done} ended the interpreter ({child.status})")
                done += 1
                shutil.rmtree(path)
                build(path, 1)
    return counts, faults
