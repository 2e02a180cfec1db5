"""Faults at every call, and the loss of power after every call.

A script (create, add, retract, add vectors, seal, compact) is run against a file system that fails, or stops the
process, at its n-th call, for every n. Then its calls are recorded, and for every prefix of them directories are built
as a power loss may leave them: what was not fsynced is there, or not, or in part, or as zeros, names likewise.

MEMPP_THOROUGH=1 tries more choices.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from storage_tools import PRIMITIVES, Crash

from mempp import errors
from mempp.storage import (
    DiskStore,
    Entry,
    TornTailWarning,
    VectorBatch,
    compact_store,
    files,
    series,
    survey,
    verify_store,
)
from mempp.storage.frames import decode_frame

THOROUGH = os.environ.get("MEMPP_THOROUGH", "") not in ("", "0")
DIMENSIONS = 60


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_FIRST_PAUSE", 0)
    monkeypatch.setattr(survey, "_FIRST_PAUSE", 0)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: thousands of small stores are made and read."""
    shared = Path("/dev/shm")
    place = shared / f"mempp-faults-{os.getpid()}" if os.access(shared, os.W_OK) else tmp_path / "work"
    place.mkdir()
    yield place
    shutil.rmtree(place)


# --- the script ---------------------------------------------------------------------------------------------------


def vector(row: int) -> np.ndarray[Any, Any]:
    return np.full(DIMENSIONS, row + 0.5, np.float32)


class Script:
    """A writer's life. Each step is tried once more when it is refused; what was acknowledged is remembered."""

    def __init__(self, path: Path, sync: Any = "commit", acknowledged: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.sync = sync
        self.acknowledged: list[Entry] = []
        self.refused: list[errors.MemppError] = []
        self._tell = acknowledged
        self._store: DiskStore | None = None

    def run(self) -> None:
        for number in range(6):
            self._try(lambda number=number: self._commit(number))
            self._try(self._embed)
            if number == 3:
                self._try(self._compact)
        self._try(self._close)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except errors.MemppError as error:
            self.refused.append(error)
            step()  # a fault that is over is no obstacle, in the same handle

    def store(self) -> DiskStore:
        if self._store is None:
            self._store = DiskStore(self.path, seal_bytes=900, sync=self.sync)
        return self._store

    def _commit(self, number: int) -> None:
        store = self.store()
        texts = [Entry("document", text=f"{number} {'x' * 200}"), Entry("document", text=f"{number} é")]
        with store.writing():
            appended = store.append([*texts, *([Entry("retract", row_id=0)] if number % 2 else [])])
        self.acknowledged += appended
        self._tell()

    def _embed(self) -> None:
        store = self.store()
        vectors = store.vectors("e", DIMENSIONS)
        with store.writing():
            known = {int(row) for one in vectors.refresh() for row in one.row_ids}
            rows = [row for row in range(store.row_count) if row not in known]
            if rows:
                stacked = np.stack([vector(row) for row in rows])
                vectors.append(VectorBatch(np.array(rows), np.zeros(len(rows), np.int32), stacked))

    def _compact(self) -> None:
        compact_store(self.store(), small_bytes=1 << 20)

    def _close(self) -> None:
        self.store().close()


def quietly(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornTailWarning)
        return call()


def whole_commits(entries: list[Entry]) -> bool:
    """Whether every commit of the script is there whole: 2 documents, or 2 and a retraction."""
    by_stamp: dict[int, list[str]] = {}
    for entry in entries:
        by_stamp.setdefault(entry.ingested_at, []).append(entry.kind)
    return all(kinds[:2] == ["document", "document"] and kinds[2:] in ([], ["retract"]) for kinds in by_stamp.values())


def check(path: Path, acknowledged: list[Entry], *, durable: bool = True, vectors_sound: bool = True) -> list[Entry]:
    """What is on disk: acknowledged entries byte for byte (or a prefix of them, if not durable), then whole commits.

    Verification is clean, and a new writer goes on from there. Returns the entries that were found.
    """
    report = verify_store(path)
    problems = [one for one in report.problems if vectors_sound or not one.file.startswith("vectors/e/journal/")]
    assert not problems, problems
    reader = DiskStore(path, read_only=True)
    entries = quietly(reader.refresh)
    common = len(acknowledged) if durable else min(len(acknowledged), len(entries))
    assert entries[:common] == acknowledged[:common]
    assert [entry.sequence for entry in entries] == list(range(len(entries)))
    assert whole_commits(entries)
    assert (report.entries, report.head_digest) == (len(entries), reader.head_digest)
    for one in quietly(reader.vectors("e", DIMENSIONS).refresh):
        for row, values in zip(one.row_ids, one.vectors, strict=True):
            assert (values == vector(int(row))).all()

    def go_on() -> list[Entry]:
        writer = DiskStore(path, seal_bytes=1)
        with writer.writing() as others:
            assert others == entries
            new = writer.append([Entry("document", text="after"), Entry("document", text="after")])
            vectors = writer.vectors("e", DIMENSIONS)
            known = {int(row) for one in vectors.refresh() for row in one.row_ids}
            rows = [row for row in range(writer.row_count) if row not in known]
            stacked = np.stack([vector(row) for row in rows])
            vectors.append(VectorBatch(np.array(rows), np.zeros(len(rows), np.int32), stacked))
        if len(entries) % 2 == 0:
            compact_store(writer, small_bytes=1 << 20)
            assert len(list((path / "log").glob("*.parquet"))) == 1
        return new

    new = quietly(go_on)
    report = verify_store(path)
    assert report.ok, report.problems
    assert report.entries == len(entries) + 2
    assert report.vectors["e"] >= report.rows
    again = DiskStore(path, read_only=True)
    assert again.refresh() == entries + new
    return entries


# --- a fault, a short write, or the end, at the n-th call -----------------------------------------------------------


class Faulty:
    """Stands in for the primitives of ``files``; ``act`` decides at the n-th call."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, act: Callable[[str, Any, tuple[Any, ...]], Any]) -> None:
        self.count = 0
        self.names: list[str] = []
        real = {name: getattr(files, name) for name in PRIMITIVES}
        for name in PRIMITIVES:
            patch.setattr(files, name, self._replacement(name, real[name], at, act))

    def _replacement(self, name: str, real: Any, at: int, act: Any) -> Any:
        def call(*arguments: Any) -> Any:
            number, self.count = self.count, self.count + 1
            self.names.append(name)
            return act(name, real, arguments) if number == at else real(*arguments)

        return call


def fails_with(number: int) -> Callable[[str, Any, tuple[Any, ...]], Any]:
    def act(name: str, real: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "write":
            real(arguments[0], arguments[1][: len(arguments[1]) // 2], arguments[2])
        raise OSError(number, os.strerror(number), str(arguments[0]))

    return act


def short_write(name: str, real: Any, arguments: tuple[Any, ...]) -> Any:
    if name != "write" or len(arguments[1]) < 2:
        return real(*arguments)
    return real(arguments[0], arguments[1][: len(arguments[1]) // 3 + 1], arguments[2])


def done_but_failed(name: str, real: Any, arguments: tuple[Any, ...]) -> Any:
    """The call took effect, and then reported a failure."""
    result = real(*arguments)
    if name == "open_file":
        os.close(result)
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(arguments[0]))


FAULTS: dict[str, Callable[[str, Any, tuple[Any, ...]], Any]] = {
    "no space": fails_with(errno.ENOSPC),
    "input or output": fails_with(errno.EIO),
    "read-only": fails_with(errno.EROFS),
    "short write": short_write,
    "done but failed": done_but_failed,
}


def count_calls(path: Path, monkeypatch: pytest.MonkeyPatch, sync: Any = "commit") -> list[str]:
    with monkeypatch.context() as patch:
        faulty = Faulty(patch, -1, short_write)
        script = Script(path, sync)
        script.run()
    assert script.refused == []
    assert len(script.acknowledged) == 15
    assert check(path, script.acknowledged) == script.acknowledged
    shutil.rmtree(path)
    return faulty.names


@pytest.mark.parametrize("sync", ["commit", "batch"])
def test_a_fault_at_every_call(work: Path, monkeypatch: pytest.MonkeyPatch, sync: str) -> None:
    """At each call one kind of fault, in turn, so that each call meets another kind than its neighbours; or all."""
    names = count_calls(work / "count", monkeypatch, sync)
    path = work / "s"
    kinds = list(FAULTS)
    cases = [(at, kind) for at in range(len(names)) for kind in (kinds if THOROUGH else [kinds[at % len(kinds)]])]
    for at, kind in cases if THOROUGH or sync == "commit" else cases[::3]:
        with monkeypatch.context() as patch:
            faulty = Faulty(patch, at, FAULTS[kind])
            script = Script(path, sync)
            quietly(script.run)
        assert faulty.count > at
        assert len(script.refused) <= 1
        assert kind != "short write" or not script.refused
        for error in script.refused:
            expected = errors.StoreReadOnlyError if kind == "read-only" else errors.StoreWriteError
            assert type(error) is expected, (names[at], error)
        assert len(script.acknowledged) >= 15, (at, names[at])
        check(path, script.acknowledged)
        shutil.rmtree(path)


@pytest.mark.parametrize("sync", ["commit", "batch"])
def test_the_process_ends_at_every_call(work: Path, monkeypatch: pytest.MonkeyPatch, sync: str) -> None:
    """Whatever the code does on its way out must not reach the disk, so everything after the n-th call is dead."""
    names = count_calls(work / "count", monkeypatch, sync)
    path = work / "s"
    for at in range(0, len(names), 1 if THOROUGH or sync == "commit" else 4):
        dead = False

        def end(name: str, real: Any, arguments: tuple[Any, ...]) -> Any:
            nonlocal dead
            dead = True
            if name == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2], arguments[2])
            raise Crash

        with monkeypatch.context() as patch:
            Faulty(patch, at, end)
            for name in PRIMITIVES:
                patch.setattr(files, name, _or_dead(getattr(files, name), lambda: dead))  # noqa: B023
            script = Script(path, sync)
            with pytest.raises(Crash):
                script.run()
        if (path / "store.json").exists():
            entries = check(path, script.acknowledged)
            assert len(entries) - len(script.acknowledged) in (0, 2, 3), (at, names[at])
        else:
            assert script.acknowledged == []
            DiskStore(path)
            check(path, [])
        shutil.rmtree(path)


def _or_dead(call: Any, dead: Callable[[], bool]) -> Any:
    def replacement(*arguments: Any) -> Any:
        if dead():
            raise Crash
        return call(*arguments)

    return replacement


# --- loss of power --------------------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """Records what the primitives do, in terms of files (numbered, whatever their names) and names in directories.

    operations: ("write", file, offset, data) | ("size", file, size) | ("name", directory, name, file or None) |
    ("rename", directory, old name, new name) | ("sync file", file) | ("sync directory", directory).
    """

    root: Path
    operations: list[tuple[Any, ...]] = field(default_factory=list)
    acknowledged_at: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0
    _numbers: dict[int, int] = field(default_factory=dict)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        real = {name: getattr(files, name) for name in PRIMITIVES}

        def open_file(path: Path, flags: int) -> int:
            existed = path.exists()
            descriptor: int = real["open_file"](path, flags)
            if not existed:
                self._numbers[os.fstat(descriptor).st_ino] = self.count
                self.operations.append(("name", path.parent, path.name, self.count))
                self.count += 1
            elif flags & os.O_TRUNC:
                self.operations.append(("size", self._file(descriptor), 0))
            return descriptor

        def write(descriptor: int, data: Any, offset: int) -> int:
            taken: int = real["write"](descriptor, data, offset)
            self.operations.append(("write", self._file(descriptor), offset, bytes(data[:taken])))
            return taken

        def sync(descriptor: int) -> None:
            place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if place.is_dir():
                self.operations.append(("sync directory", place))
            else:
                self.operations.append(("sync file", self._file(descriptor)))

        def set_size(descriptor: int, size: int) -> None:
            real["set_size"](descriptor, size)
            self.operations.append(("size", self._file(descriptor), size))

        def rename(source: Path, target: Path) -> None:
            assert source.parent == target.parent
            real["rename"](source, target)
            self.operations.append(("rename", source.parent, source.name, target.name))

        def remove(path: Path) -> None:
            real["remove"](path)
            self.operations.append(("name", path.parent, path.name, None))

        def make_directory(path: Path) -> None:
            missing = [one for one in (path, *path.parents) if not one.exists()]
            real["make_directory"](path)
            for one in reversed(missing):
                self.operations.append(("name", one.parent, one.name, "directory"))

        for name, replacement in locals().copy().items():
            if name in PRIMITIVES:
                patch.setattr(files, name, replacement)

    def acknowledge(self, entries: int) -> None:
        self.acknowledged_at.append((len(self.operations), entries))

    def _file(self, descriptor: int) -> int:
        return self._numbers[os.fstat(descriptor).st_ino]


class Choice:
    """What a power loss leaves of what was not fsynced."""

    def __init__(self, data: str, names: str, seed: int = 0) -> None:
        self.data, self.names = data, names
        self.seed = seed

    def __repr__(self) -> str:
        return f"data {self.data}, names {self.names}, seed {self.seed}"

    def data_of(self, payload: Any, chooser: random.Random, *, is_last: bool) -> list[tuple[int, bytes]]:
        """The parts of a write that reach the disk. Nothing for a change of size that does not."""
        offset, data = payload
        if self.data == "none":
            return []
        if self.data == "last":
            return [(offset, data if is_last else bytes(len(data)))]
        if self.data == "all":
            return [(offset, data)]
        if self.data == "zeros":
            return [(offset, bytes(len(data)))]
        if self.data == "half":
            return [(offset, data[: len(data) // 2])]
        pages = [(offset + at, data[at : at + 64]) for at in range(0, len(data), 64)]
        kept = [page if chooser.random() < 0.5 else (page[0], bytes(len(page[1]))) for page in pages]
        return kept if chooser.random() < 0.7 else []


CHOICES = [
    Choice("none", "all"),
    Choice("none", "none"),
    Choice("all", "none"),
    Choice("zeros", "all"),
    Choice("last", "all"),
    Choice("half", "random", 1),
    Choice("random", "all", 2),
    Choice("random", "random", 3),
]
if THOROUGH:
    CHOICES += [Choice("random", "random", seed) for seed in range(4, 30)]


def rebuild(recorder: Recorder, upto: int, choice: Choice, target: Path) -> bool:
    """Build the directory that a power loss after ``upto`` operations leaves; tell whether the store's is in it."""
    chooser = random.Random(choice.seed * 100_003 + upto)
    operations = recorder.operations[:upto]
    synced_file: dict[int, int] = {}
    synced_directory: dict[Path, int] = {}
    for number, operation in enumerate(operations):
        if operation[0] == "sync file":
            synced_file[operation[1]] = number
        elif operation[0] == "sync directory":
            synced_directory[operation[1]] = number
    last_write = max((number for number, one in enumerate(operations) if one[0] == "write"), default=-1)
    content: dict[int, bytearray] = {}
    names: dict[Path, dict[str, Any]] = {}
    lost_names: set[Path] = set()
    for number, operation in enumerate(operations):
        if operation[0] in ("write", "size"):
            data = content.setdefault(operation[1], bytearray())
            safe = number < synced_file.get(operation[1], -1)
            if operation[0] == "size":
                if (
                    safe
                    or choice.data in ("all", "half", "last")
                    or (choice.data == "random" and chooser.random() < 0.5)
                ):
                    del data[operation[2] :]
                    data += bytes(operation[2] - len(data))
                continue
            parts = [operation[2:4]] if safe else choice.data_of(operation[2:4], chooser, is_last=number == last_write)
            for offset, part in parts:
                data += bytes(max(0, offset - len(data)))
                data[offset : offset + len(part)] = part
        elif operation[0] in ("name", "rename"):
            directory = operation[1]
            table = names.setdefault(directory, {})
            safe = number < synced_directory.get(directory, -1)
            if not safe:
                lost = choice.names == "none" or (choice.names == "random" and chooser.random() < 0.5)
                # what a file system keeps of one directory is kept in order: later changes need the earlier ones
                if lost or directory in lost_names:
                    lost_names.add(directory)
                    continue
            if operation[0] == "name":
                if operation[3] is None:
                    table.pop(operation[2], None)
                else:
                    table[operation[2]] = operation[3]
            elif operation[2] in table:
                table[operation[3]] = table.pop(operation[2])
    return _materialise(recorder.root, names, content, target)


def _materialise(directory: Path, names: Any, content: Any, target: Path) -> bool:
    target.mkdir()
    for name, what in names.get(directory, {}).items():
        if what == "directory":
            _materialise(directory / name, names, content, target / name)
        else:
            (target / name).write_bytes(bytes(content.get(what, b"")))
    return (target / "s").exists()


def record(root: Path, monkeypatch: pytest.MonkeyPatch, sync: str) -> tuple[Recorder, Script]:
    root.mkdir()
    recorder = Recorder(root)
    with monkeypatch.context() as patch:
        recorder.install(patch)
        script = Script(root / "s", sync, lambda: recorder.acknowledge(len(script.acknowledged)))
        script.run()
    assert script.refused == []
    assert len(script.acknowledged) == 15
    return recorder, script


@pytest.mark.parametrize("sync", ["commit", "batch"])
def test_power_is_lost_after_every_call(work: Path, monkeypatch: pytest.MonkeyPatch, sync: str) -> None:
    recorder, script = record(work / "recorded", monkeypatch, sync)
    monkeypatch.setattr(files, "sync", lambda _: None)
    built = kept_less = 0
    for upto in range(0, len(recorder.operations) + 1, 1 if THOROUGH or sync == "commit" else 2):
        acknowledged = max((entries for at, entries in recorder.acknowledged_at if at <= upto), default=0)
        # by default three of the choices at each call, others at the next
        for choice in CHOICES if THOROUGH else [CHOICES[(3 * upto + turn) % len(CHOICES)] for turn in range(3)]:
            target = work / "built"
            try:
                if rebuild(recorder, upto, choice, target) and (target / "s" / "store.json").exists():
                    durable = sync == "commit"
                    expected = script.acknowledged[:acknowledged] if durable else script.acknowledged
                    found = check(target / "s", expected, durable=durable, vectors_sound=False)
                    assert found == script.acknowledged[: len(found)]
                    kept_less += len(found) < acknowledged
                else:
                    assert acknowledged == 0
                    DiskStore(target / "s")
                    check(target / "s", [])
            except BaseException as error:
                last = recorder.operations[max(0, upto - 3) : upto]
                error.add_note(f"power lost after {upto} calls, {choice}: {last!r:.600}")
                raise
            shutil.rmtree(target)
            built += 1
    assert built > 150
    # the mode that promises less does lose some in this test: it would notice what is not synced
    assert (kept_less > 0) == (sync == "batch")


def test_power_is_lost_after_a_writer_died_and_another_took_over(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dead writer left in the page cache must be made durable by whoever builds on it."""
    names = count_calls(work / "count", monkeypatch)
    for at in range(0, len(names), 1 if THOROUGH else 2):
        root = work / "recorded"
        root.mkdir()
        recorder = Recorder(root)
        dead = False

        def end(name: str, real: Any, arguments: tuple[Any, ...]) -> Any:
            nonlocal dead
            dead = True
            raise Crash

        with monkeypatch.context() as patch:
            recorder.install(patch)
            with monkeypatch.context() as first:
                Faulty(first, at, end)
                for name in PRIMITIVES:
                    first.setattr(files, name, _or_dead(getattr(files, name), lambda: dead))  # noqa: B023
                script = Script(root / "s")
                with pytest.raises(Crash):
                    script.run()
            second = DiskStore(root / "s", seal_bytes=1 << 20)
            took_over = len(recorder.operations)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TornTailWarning)
                with second.writing() as entries:
                    written = second.append([Entry("document", text="after"), Entry("document", text="after")])
                    done = len(recorder.operations)
        assert entries[: len(script.acknowledged)] == script.acknowledged
        writes = [number for number in range(took_over, done) if recorder.operations[number][0] == "write"]
        # at the acknowledgement; after all; and when of all that is not durable just the last frame reached the disk
        for upto, choice in (
            (done, Choice("none", "none")),
            (len(recorder.operations), Choice("random", "random", at)),
            (writes[-1] + 1, Choice("last", "all")),
        ):
            target = work / "built"
            rebuild(recorder, upto, choice, target)
            expected = entries + written if upto >= done else script.acknowledged
            try:
                check(target / "s", expected, vectors_sound=False)
            except BaseException as error:
                error.add_note(f"died at call {at} ({names[at]}); then {choice} after {upto} of {done}")
                raise
            shutil.rmtree(target)
        shutil.rmtree(root)


def test_the_simulation_notices_a_missing_fsync(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: without the fsync of files, or of directories, something acknowledged is lost."""
    for forgotten in ("sync file", "sync directory"):
        recorder, script = record(work / forgotten, monkeypatch, "commit")
        recorder.operations = [one if one[0] != forgotten else ("forgotten",) for one in recorder.operations]
        target = work / "built"
        rebuild(recorder, len(recorder.operations), Choice("none", "none"), target)
        try:
            found = quietly(DiskStore(target / "s", read_only=True).refresh)
        except errors.StoreError:
            found = []
        assert len(found) < len(script.acknowledged)
        shutil.rmtree(target)


# --- sync="batch" ---------------------------------------------------------------------------------------------------


def frames_of(path: Path) -> list[bool]:
    """Whether each frame of the live journal is loose."""
    data = max((path / "journal").glob("*.journal")).read_bytes()
    loose, place = [], 0
    while place < len(data):
        frame = decode_frame(data, place)
        assert frame is not None
        loose.append(frame.loose)
        place += frame.size
    return loose


class Clock:
    """Stands in for ``time.monotonic`` in the series."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr(series.time, "monotonic", lambda: self.now)


def syncs(patch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    real = files.sync

    def sync(descriptor: int) -> None:
        made.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).suffix or "directory")
        real(descriptor)

    patch.setattr(files, "sync", sync)
    return made


def test_a_batch_is_synced_when_a_second_has_passed_and_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    store = DiskStore(tmp_path / "s", sync="batch")
    made = syncs(monkeypatch)

    def add() -> int:
        before = made.count(".journal")
        with store.writing():
            store.append([Entry("document", text="x")])
        return made.count(".journal") - before

    assert [add(), add(), add()] == [1, 0, 0]
    clock.now += 0.9
    assert add() == 0
    clock.now += 0.2
    assert [add(), add()] == [1, 0]
    assert frames_of(tmp_path / "s") == [False, False, True, True, True, False]
    made.clear()
    store.close()
    assert made == [".journal"]
    store.close()
    assert made == [".journal"]


def test_vectors_are_not_sealed_before_their_rows_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    path = tmp_path / "s"
    store = DiskStore(path, sync="batch", seal_bytes=2500)
    for _ in range(4):
        with store.writing():
            store.append([Entry("document", text="x"), Entry("document", text="y")])
    made: list[str] = []
    real = files.sync
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", lambda d: (made.append(os.readlink(f"/proc/self/fd/{d}")), real(d))[1])
        with store.writing():
            stacked = np.stack([vector(row) for row in range(8)] * 2)
            vectors = VectorBatch(np.arange(16) % 8, np.arange(16, dtype=np.int32) // 8, stacked)
            store.vectors("e", DIMENSIONS).append(vectors)
    rows = made.index(str(path / "journal" / f"{0:020d}.journal"))
    segment = next(number for number, name in enumerate(made) if ".parquet" in name)
    assert rows < segment


def test_flush_makes_a_batch_durable_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    store = DiskStore(tmp_path / "s", sync="batch")
    for _ in range(3):
        with store.writing():
            store.append([Entry("document", text="x")])
    made = syncs(monkeypatch)
    store.flush()
    store.flush()
    assert made == [".journal"]
    store.close()
    assert made == [".journal"]


def test_a_process_that_syncs_every_commit_does_not_vouch_for_what_another_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    batch = DiskStore(tmp_path / "s", sync="batch")
    for _ in range(3):
        with batch.writing():
            batch.append([Entry("document", text="x")])
    made = syncs(monkeypatch)
    careful = DiskStore(tmp_path / "s")
    for _ in range(2):
        with careful.writing():
            careful.append([Entry("document", text="y")])
    # first what the other left, then each commit
    assert made.count(".journal") == 3
    assert frames_of(tmp_path / "s") == [False, False, True, False, False]


def test_bytes_lost_before_loose_frames_are_torn_and_before_others_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    path = tmp_path / "s"
    store = DiskStore(path, sync="batch")
    written: list[Entry] = []
    ends = []
    for _ in range(4):
        with store.writing():
            written += store.append([Entry("document", text="x" * 100)])
        ends.append(max((path / "journal").glob("*.journal")).stat().st_size)
    journal = max((path / "journal").glob("*.journal"))
    lost = bytearray(journal.read_bytes())
    lost[ends[1] : ends[2]] = bytes(ends[2] - ends[1])
    saved = journal.read_bytes()
    journal.write_bytes(lost)
    reader = DiskStore(path, read_only=True)
    with pytest.warns(TornTailWarning, match=f"{len(lost) - ends[1]} bytes"):
        assert reader.refresh() == written[:2]
    report = verify_store(path)
    assert report.ok
    assert "never made durable" in report.notes[0]
    journal.write_bytes(saved)
    clock.now += 2
    for _ in range(2):
        with store.writing():
            store.append([Entry("document", text="y")])
    lost = bytearray(journal.read_bytes())
    lost[ends[1] : ends[2]] = bytes(ends[2] - ends[1])
    journal.write_bytes(lost)
    with pytest.raises(errors.StoreDamagedError, match="a whole"):
        DiskStore(path, read_only=True).refresh()
    assert not verify_store(path).ok


def test_a_batch_whose_fsync_failed_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed fsync the system may call lost bytes clean: an fsync that succeeds later proves nothing."""
    clock = Clock(monkeypatch)
    store = DiskStore(tmp_path / "s", sync="batch")
    for _ in range(3):
        with store.writing():
            store.append([Entry("document", text="early")])
    clock.now += 2
    real = files.sync
    monkeypatch.setattr(files, "sync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "lost")))
    with pytest.raises(errors.StoreWriteError), store.writing():
        store.append([Entry("document", text="refused")])
    with pytest.raises(errors.StoreWriteError, match="durable"):
        store.flush()
    monkeypatch.setattr(files, "sync", real)
    rewritten: list[bytes] = []
    write = files.write
    monkeypatch.setattr(files, "write", lambda d, data, at: (rewritten.append(bytes(data)), write(d, data, at))[1])
    with store.writing():
        store.append([Entry("document", text="late")])
    assert sum(b"early" in data for data in rewritten) == 1
    assert [entry.text for entry in DiskStore(tmp_path / "s").refresh()] == ["early"] * 3 + ["late"]


def test_what_sync_may_be(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="'never'"):
        DiskStore(tmp_path / "s", sync="never")  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()
