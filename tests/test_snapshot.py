"""Snapshot and restore: a consistent copy at one commit, whole or not there at all, and nothing else passes for one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import multiprocessing
import os
import random
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.fs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_tools import ERRORS, Crash, Faults, batch, commit, document, read

import mempp
from mempp import errors
from mempp.storage import DiskStore, Entry, files, segments
from mempp.storage.entry_codec import EntryCodec
from mempp.storage.segments import SegmentName, encode_segment, list_segments
from mempp.storage.snapshots import archive, manifest, places, restore_snapshot, write, write_snapshot
from mempp.storage.snapshots import capture as capturing

CONTEXT = multiprocessing.get_context("fork")
SEAL_BYTES = 900


def grow(store: DiskStore, count: int, seed: int = 0, vectors: bool = True) -> list[Entry]:
    """Commits of one to three entries, their vectors with them."""
    chooser = random.Random(seed)
    written: list[Entry] = []
    for number in range(count):
        entries = [document(f"{seed} {number} {'x' * chooser.randrange(300)}") for _ in range(chooser.randint(1, 2))]
        if store.row_count and chooser.random() < 0.3:
            entries.append(Entry("retract", row_id=chooser.randrange(store.row_count), reason="draft"))
        with store.writing():
            new = store.append(entries)
            if vectors:
                rows = [entry.row_id for entry in new if entry.kind == "document"]
                store.vectors("e", 4).append(batch(rows[0] or 0, len(rows)))
        written += new
    return written


def vectors_of(path: Path, identity: str = "e") -> list[tuple[int, list[float]]]:
    store = DiskStore(path, read_only=True)
    store.refresh()
    found = store.vectors(identity, 4).refresh()
    return [(int(row), vector.tolist()) for one in found for row, vector in zip(one.row_ids, one.vectors, strict=True)]


def tree(path: Path) -> dict[str, bytes]:
    """The files in a folder, but for locks."""
    found = {file.relative_to(path).as_posix(): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
    return {name: data for name, data in found.items() if Path(name).name != "lock"}


def refuse(kind: type[errors.MemppError], match: str, source: Any, to: Path, **options: Any) -> None:
    """It is refused, and nothing has appeared, not even something temporary."""
    before = set(to.parent.iterdir())
    with pytest.raises(kind, match=match):
        restore_snapshot(source, to, **options)
    assert set(to.parent.iterdir()) == before


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    made = DiskStore(tmp_path / "s", seal_bytes=SEAL_BYTES)
    grow(made, 12)
    made.seal_bytes = 1 << 20
    grow(made, 1, seed=99)
    made.seal_bytes = SEAL_BYTES
    return made


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many restores; what they would make durable is thrown away."""
    monkeypatch.setattr(files, "sync", lambda _: None)


# --- round trips --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["snap", "snap.tar"])
def test_a_restored_store_is_the_store(tmp_path: Path, store: DiskStore, name: str) -> None:
    report = write_snapshot(store, tmp_path / name)
    entries, head = read(tmp_path / "s")
    assert (report.entries, report.rows, report.head_digest) == (len(entries), store.row_count, head)
    assert report.store_id == store.store_id
    restored = restore_snapshot(tmp_path / name, tmp_path / "r")
    assert (restored.entries, restored.rows, restored.head_digest) == (report.entries, report.rows, head)
    assert restored.bytes == report.bytes_copied
    assert restored.files == report.files_copied
    assert read(tmp_path / "r") == (entries, head)
    assert vectors_of(tmp_path / "r") == vectors_of(tmp_path / "s")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["s", name, "r"])


def test_the_copy_goes_on_as_the_store_would(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    restore_snapshot(tmp_path / "snap", tmp_path / "r")
    copy = DiskStore(tmp_path / "r", seal_bytes=SEAL_BYTES)
    before = copy.refresh()
    more = grow(copy, 8, seed=1)
    assert [entry.sequence for entry in more] == list(range(len(before), len(before) + len(more)))
    assert read(tmp_path / "r")[0] == before + more
    report = write_snapshot(copy, tmp_path / "snap")
    assert report.files_present > 0
    restore_snapshot(tmp_path / "snap", tmp_path / "r2")
    assert read(tmp_path / "r2") == read(tmp_path / "r")
    assert vectors_of(tmp_path / "r2") == vectors_of(tmp_path / "r")


step = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["snapshot", "tar", "read only", "merge", "reopen"]), st.just(0)),
)


@settings(max_examples=20)
@given(steps=st.lists(step, min_size=1, max_size=9), seal_bytes=st.sampled_from([1, 700, 3000]), derived=st.booleans())
def test_every_snapshot_of_a_random_history(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], seal_bytes: int, derived: bool
) -> None:
    path = tmp_path_factory.mktemp("history")
    with mock.patch.object(files, "sync"):
        live_through(path, steps, seal_bytes, derived)
    shutil.rmtree(path)


def live_through(path: Path, steps: list[tuple[str, int]], seal_bytes: int, derived: bool) -> None:
    store = DiskStore(path / "s", seal_bytes=seal_bytes)
    written: list[Entry] = []
    for number, (kind, count) in enumerate([*steps, ("snapshot", 0)]):
        if kind == "add":
            written += grow(store, count, seed=number)
        elif kind == "merge":
            merge_segments(path / "s")
        elif kind == "reopen":
            store = DiskStore(path / "s", seal_bytes=seal_bytes)
        else:
            target = path / (f"{number}.tar" if kind == "tar" else "snap")
            source = DiskStore(path / "s", read_only=True) if kind == "read only" else store
            report = write_snapshot(source, target, derived=derived)
            restore_snapshot(target, path / f"r{number}")
            entries, head = read(path / f"r{number}")
            assert entries == written
            assert report.head_digest == head == read(path / "s")[1]
            if derived:
                assert vectors_of(path / f"r{number}") == vectors_of(path / "s")
            else:
                assert not (path / f"r{number}" / "vectors").exists()


def test_an_empty_store(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s")
    for name in ("snap", "snap.tar"):
        report = write_snapshot(store, tmp_path / name)
        assert (report.entries, report.rows, report.head_digest) == (0, 0, store.head_digest)
        restore_snapshot(tmp_path / name, tmp_path / f"r {name}")
        assert read(tmp_path / f"r {name}") == ([], store.head_digest)
    grow(store, 3)
    write_snapshot(store, tmp_path / "snap")
    restore_snapshot(tmp_path / "snap", tmp_path / "r")
    assert read(tmp_path / "r") == read(tmp_path / "s")


def test_a_snapshot_is_no_store_and_a_store_no_snapshot(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    with pytest.raises(errors.NotAStoreError):
        DiskStore(tmp_path / "snap")
    refuse(errors.NotAStoreError, "no whole snapshot", tmp_path / "s", tmp_path / "r")


def test_a_tar_is_the_same_for_the_same_state_and_any_program_reads_it(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "a.tar")
    write_snapshot(DiskStore(tmp_path / "s", read_only=True), tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    assert (tmp_path / "a.tar").stat().st_size % 10240 == 0
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames()[-1] == "snapshot.json"
        assert {(member.uid, member.gid, member.mtime, member.mode) for member in tar} == {(0, 0, 0, 0o644)}
        tar.extractall(tmp_path / "unpacked", filter="data")
    write_snapshot(store, tmp_path / "snap")
    assert tree(tmp_path / "unpacked") == tree(tmp_path / "snap")
    restore_snapshot(tmp_path / "unpacked", tmp_path / "r")
    assert read(tmp_path / "r") == read(tmp_path / "s")


def test_the_manifest_tells_what_an_independent_reader_finds(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    told = json.loads((tmp_path / "snap" / "snapshot.json").read_text())
    digest = told.pop("digest")
    assert digest == hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    for file in told["files"]:
        stem, suffix = file["path"].rsplit(".", 1)
        data = (tmp_path / "snap" / f"{stem}.{file['sha256'][:16]}.{suffix}").read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
        assert (tmp_path / "s" / file["path"]).read_bytes().startswith(data)
    assert (told["store_id"], told["entries"]) == (store.store_id, store.next_sequence)


def test_torn_ends_and_stale_journals_are_not_copied(tmp_path: Path, store: DiskStore) -> None:
    entries, head = read(tmp_path / "s")
    for journal in (*(tmp_path / "s" / "journal").iterdir(), *(tmp_path / "s" / "vectors" / "e" / "journal").iterdir()):
        with open(journal, "ab") as file:
            file.write(b"torn")
    (tmp_path / "s" / "journal" / f"{0:020d}.journal").write_bytes(b"sealed long ago")
    (tmp_path / "s" / "vectors" / ".hidden").mkdir()
    vectors = vectors_of_torn(tmp_path / "s")
    for source in (DiskStore(tmp_path / "s", read_only=True), store):
        write_snapshot(source, tmp_path / "snap")
    restore_snapshot(tmp_path / "snap", tmp_path / "r")
    assert read(tmp_path / "r") == (entries, head)
    assert vectors_of(tmp_path / "r") == vectors
    assert b"torn" not in b"".join(tree(tmp_path / "snap").values())


def vectors_of_torn(path: Path) -> list[tuple[int, list[float]]]:
    with pytest.warns(mempp.storage.TornTailWarning):
        return vectors_of(path)


def test_a_damaged_store_is_not_copied(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    before = tree(tmp_path / "snap")
    grow(store, 6, seed=3)
    newest = tmp_path / "s" / "log" / str(list_segments(tmp_path / "s" / "log")[-1])
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-200] + bytes(50) + whole[-150:])
    for target in ("snap", "new", "new.tar"):
        with pytest.raises(errors.StoreDamagedError, match=newest.name):
            write_snapshot(store, tmp_path / target)
    newest.unlink()
    for source in (store, DiskStore(tmp_path / "s", read_only=True)):
        with pytest.raises(errors.StoreDamagedError, match="missing"):
            write_snapshot(source, tmp_path / "snap")
    after = tree(tmp_path / "snap")
    assert {name: after[name] for name in before} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "snap"]


# --- incremental --------------------------------------------------------------------------------------------------


def merge_segments(path: Path) -> None:
    """What a compaction does: each pair of neighbours becomes one segment with the same entries."""
    store_id = DiskStore(path, read_only=True).store_id
    codec = EntryCodec(store_id)
    position = mempp.storage.entries.start_position(store_id)
    names = list_segments(path / "log")
    for first, second in zip(names[::2], names[1::2], strict=False):
        before = position
        items, position = segments.read_segment(codec, path / "log", first, position)
        others, position = segments.read_segment(codec, path / "log", second, position)
        data = encode_segment(codec, items + others, before, position)
        segments.write_segment(path / "log", SegmentName(first.first, second.last), data)
        (path / "log" / str(first)).unlink()
        (path / "log" / str(second)).unlink()


def test_only_new_files_are_copied_and_superseded_ones_go(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    first = tree(tmp_path / "snap")
    (tmp_path / "snap" / "README").write_text("somebody's own file")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "snap" / "log").iterdir()}
    grow(store, 6, seed=1)
    report = write_snapshot(store, tmp_path / "snap")
    second = tree(tmp_path / "snap")
    old_segments = [name for name in first if name.startswith("log/")]
    assert old_segments
    assert {name: second[name] for name in old_segments} == {name: first[name] for name in old_segments}
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert sum(name.startswith("journal/") for name in second) == 1
    assert second["README"] == b"somebody's own file"
    assert report.files_copied + report.files_present == len(json.loads(second["snapshot.json"])["files"])
    assert report.files_present >= len(old_segments) + 1
    again = write_snapshot(store, tmp_path / "snap")
    assert (again.files_copied, again.bytes_copied, again.files_present) == (
        0,
        0,
        report.files_copied + report.files_present,
    )
    merge_segments(tmp_path / "s")
    write_snapshot(store, tmp_path / "snap")
    third = tree(tmp_path / "snap")
    assert sum(name.startswith("log/") for name in third) == len(list_segments(tmp_path / "s" / "log"))
    restore_snapshot(tmp_path / "snap", tmp_path / "r")
    assert read(tmp_path / "r") == read(tmp_path / "s")
    write_snapshot(store, tmp_path / "snap", derived=False)
    assert not any(name.startswith("vectors/") for name in tree(tmp_path / "snap"))


def test_missing_and_altered_files_of_the_earlier_snapshot_are_copied_again(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    kept = sorted((tmp_path / "snap" / "log").iterdir())
    whole = kept[0].read_bytes()
    kept[0].write_bytes(b"?" * len(whole))
    kept[1].unlink()
    refuse(errors.StoreDamagedError, "damaged|missing", tmp_path / "snap", tmp_path / "r")
    report = write_snapshot(store, tmp_path / "snap")
    assert report.repaired == (f"log/{kept[0].name}", f"log/{kept[1].name}")
    assert kept[0].read_bytes() == whole
    restore_snapshot(tmp_path / "snap", tmp_path / "r")
    assert read(tmp_path / "r") == read(tmp_path / "s")


def test_what_does_not_continue_is_refused(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "old")
    restore_snapshot(tmp_path / "old", tmp_path / "other")
    grow(store, 4, seed=1)
    write_snapshot(store, tmp_path / "snap")
    before = tree(tmp_path / "snap")

    other = DiskStore(tmp_path / "other", seal_bytes=SEAL_BYTES)
    with pytest.raises(errors.StoreError, match="is ahead of the store"):
        write_snapshot(other, tmp_path / "snap")
    for seed in (2, 3):
        grow(other, 4, seed=seed)
        with pytest.raises(errors.StoreError, match=r"does not continue the snapshot|is ahead of the store"):
            write_snapshot(other, tmp_path / "snap")
    assert other.next_sequence > store.next_sequence
    with pytest.raises(errors.StoreError, match="does not continue the snapshot"):
        write_snapshot(other, tmp_path / "snap")

    foreign = DiskStore(tmp_path / "foreign")
    grow(foreign, 40)
    with pytest.raises(errors.StoreError, match=f"another store, {store.store_id}; this one is {foreign.store_id}"):
        write_snapshot(foreign, tmp_path / "snap")
    assert tree(tmp_path / "snap") == before


def test_targets_that_are_no_place_for_a_snapshot(tmp_path: Path, store: DiskStore) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "letter.txt").write_text("dear")
    nested = tmp_path / "nested"
    (nested / "empty").mkdir(parents=True)
    file = tmp_path / "file"
    file.write_text("x")
    write_snapshot(store, tmp_path / "unfinished")
    (tmp_path / "unfinished" / "snapshot.json").unlink()
    write_snapshot(store, tmp_path / "a.tar")
    for target, match in (
        (taken, "no snapshot.*letter.txt"),
        (nested, "no snapshot"),
        (file, "is a file"),
        (tmp_path / "unfinished", "unfinished"),
        (tmp_path / "s2", "no snapshot"),
        (tmp_path / "a.tar", "exists already"),
    ):
        if target.name == "s2":
            grow(DiskStore(target), 1)
        before = tree(tmp_path)
        with pytest.raises(errors.NotAStoreError, match=match):
            write_snapshot(store, target)
        assert tree(tmp_path) == before
    for target in (tmp_path / "s", tmp_path / "s" / "backup", tmp_path / "s" / "log" / "x.tar"):
        with pytest.raises(errors.InputError, match="within the store"):
            write_snapshot(store, target)
    bad: tuple[Any, ...] = ("", "a\0b", b"bytes", 7, None, "nonsense://x/y")
    for target in bad:
        with pytest.raises(errors.InputError):
            write_snapshot(store, target)
    with pytest.raises(errors.InputError, match="filesystem must be"):
        write_snapshot(store, "x", filesystem=object())
    (tmp_path / "empty").mkdir()
    write_snapshot(store, tmp_path / "empty")
    restore_snapshot(tmp_path / "empty", tmp_path / "new" / "deep" / "r")
    assert read(tmp_path / "new" / "deep" / "r") == read(tmp_path / "s")


def test_a_target_that_appears_meanwhile_is_left_alone(
    tmp_path: Path, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in (tmp_path / "snap", tmp_path / "snap.tar"):

        def appear(captured: Any, *rest: Any, target: Path = target) -> Any:
            if target.suffix:
                target.write_text("mine")
            else:
                target.mkdir()
                (target / "mine").write_text("mine")
            return capturing.survey(captured, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(write, "survey", appear)
            with pytest.raises(errors.NotAStoreError, match="appeared meanwhile"):
                write_snapshot(store, target)
    assert tree(tmp_path / "snap") == {"mine": b"mine"}
    assert (tmp_path / "snap.tar").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


def test_one_snapshot_at_a_time_into_a_directory(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    impatient = DiskStore(tmp_path / "s", lock_timeout=0)
    with (
        mempp.storage.lock.commit_lock(tmp_path / "snap" / "lock", 5),
        pytest.raises(errors.StoreLockedError, match=r"snap/lock"),
    ):
        write_snapshot(impatient, tmp_path / "snap")
    write_snapshot(impatient, tmp_path / "snap")


# --- beside writers -----------------------------------------------------------------------------------------------


def keep_writing(path: Path, stop: Any, seal_bytes: int) -> None:
    store = DiskStore(path, seal_bytes=seal_bytes, lock_timeout=60)
    seed = 100
    while not stop.is_set():
        grow(store, 1, seed=seed)
        seed += 1


@pytest.mark.parametrize(("seal_bytes", "read_only"), [(1, True), (1, False), (SEAL_BYTES, True), (SEAL_BYTES, False)])
def test_snapshots_while_another_process_writes(
    tmp_path: Path, seal_bytes: int, read_only: bool, no_sync: None
) -> None:
    path = tmp_path / "s"
    grow(DiskStore(path, seal_bytes=seal_bytes), 3)
    stop = CONTEXT.Event()
    writer = CONTEXT.Process(target=keep_writing, args=(path, stop, seal_bytes))
    writer.start()
    reports = []
    try:
        source = DiskStore(path, read_only=read_only, lock_timeout=60)
        for number in range(8):
            target = tmp_path / ("snap" if number % 2 else f"{number}.tar")
            reports.append(write_snapshot(source, target))
            restore_snapshot(target, tmp_path / f"r{number}")
    finally:
        stop.set()
        writer.join(60)
    assert writer.exitcode == 0
    entries, _ = read(path)
    assert len({report.entries for report in reports}) > 2, "the writer did not write meanwhile"
    for number, report in enumerate(reports):
        found, head = read(tmp_path / f"r{number}")
        assert found == entries[: report.entries]
        assert head == report.head_digest
        assert report.entries == len(entries) or entries[report.entries].ingested_at > found[-1].ingested_at
        whole = dict(vectors_of(path))
        assert all(whole[row] == vector for row, vector in vectors_of(tmp_path / f"r{number}"))


def test_a_snapshot_answers_as_the_memory_did_then(tmp_path: Path) -> None:
    with mempp.open(tmp_path / "m", encoder="none") as memory:
        done = threading.Event()

        def add() -> None:
            for number in range(40):
                row = memory.add(f"note {number} about the budget", tags=[f"t{number % 3}"]).row_ids[0]
                if number % 4 == 3:
                    memory.retract(row or 0)
            done.set()

        thread = threading.Thread(target=add)
        thread.start()
        count = 0
        while not done.is_set() or not count:
            write_snapshot(memory._store, tmp_path / f"{count}.tar")  # type: ignore[arg-type]
            count += 1
        thread.join()
        for number in range(0, count, max(1, count // 5)):
            restore_snapshot(tmp_path / f"{number}.tar", tmp_path / f"r{number}")
            entries, _ = read(tmp_path / f"r{number}")
            with mempp.open(tmp_path / f"r{number}", read_only=True, encoder="none") as then:
                if not entries:
                    assert len(then) == 0
                    continue
                known_at = mempp.dates.from_microseconds(entries[-1].ingested_at)
                assert then.records() == memory.records(known_at=known_at)
                expected = memory.recall("budget note", known_at=known_at)
                assert [(hit.record, hit.score) for hit in then.recall("budget note")] == [
                    (hit.record, hit.score) for hit in expected
                ]


def test_segments_compacted_away_while_they_are_copied(
    tmp_path: Path, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge comes after the list was taken, once before the survey reads and once before the copy does."""
    assert len(list_segments(tmp_path / "s" / "log")) >= 4
    for number, place in enumerate(("survey", "copy")):
        for target in (tmp_path / f"snap{number}", tmp_path / f"snap{number}.tar"):
            merges: list[int] = []

            def merging(captured: Any, *rest: Any, place: str = place, merges: list[int] = merges) -> Any:
                if not merges and place == "survey":
                    merges.append(1)
                    merge_segments(tmp_path / "s")
                result = capturing.survey(captured, *rest)
                if not merges:
                    merges.append(1)
                    merge_segments(tmp_path / "s")
                return result

            grow(store, 6, seed=number)
            with monkeypatch.context() as patch:
                patch.setattr(write, "survey", merging)
                write_snapshot(store, target)
            restored = tmp_path / f"r{target.name}"
            restore_snapshot(target, restored)
            assert read(restored) == read(tmp_path / "s")
            assert len(list_segments(restored / "log")) == len(list_segments(tmp_path / "s" / "log"))


def test_the_commit_lock_is_the_last_resort(tmp_path: Path, store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it first; with it once files have changed too fast several times; never for a reader."""
    held: list[bool] = []

    def unsettled(captured: Any, *rest: Any) -> Any:
        if len(held) < 7:
            raise capturing.UnsettledError("just sealed")
        return capturing.survey(captured, *rest)

    def capture(root: Path, *, derived: bool) -> Any:
        with mempp.storage.lock.nobody_writing(root / "lock") as quiet:
            held.append(not quiet)
        return capturing.capture(root, derived=derived)

    monkeypatch.setattr(write, "survey", unsettled)
    monkeypatch.setattr(write, "capture", capture)
    write_snapshot(DiskStore(tmp_path / "s", read_only=True), tmp_path / "a")
    assert held == [False] * 7
    held.clear()
    with pytest.raises(errors.StoreDamagedError, match="just sealed"):
        write_snapshot(store, tmp_path / "c")
    assert held == [False] * 5 + [True]


# --- damage -------------------------------------------------------------------------------------------------------


def outcome(source: Path, to: Path) -> str:
    """What the restored store holds, as one text; or why it was refused."""
    try:
        restore_snapshot(source, to)
    except errors.StoreError as error:
        if to.exists():
            pytest.fail("it was refused and is there")
        return f"refused: {error}"
    try:
        return repr((tree(to), read(to)))
    finally:
        shutil.rmtree(to)


def test_every_sampled_bit_flip_in_a_directory(tmp_path: Path, store: DiskStore, no_sync: None) -> None:
    snap = tmp_path / "snap"
    write_snapshot(store, snap)
    whole = outcome(snap, tmp_path / "r")
    paths = [path for path in sorted(snap.rglob("*")) if path.is_file() and path.name != "lock"]
    sizes = [path.stat().st_size for path in paths]
    chooser = random.Random(4)
    for _ in range(500):
        path = chooser.choices(paths, sizes)[0] if chooser.random() < 0.6 else chooser.choice(paths)
        data = path.read_bytes()
        place = chooser.randrange(len(data) * 8)
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        found = outcome(snap, tmp_path / "r")
        assert found.startswith("refused"), (path, place)
        assert path.name in found
        path.write_bytes(data)
    assert outcome(snap, tmp_path / "r") == whole


def test_a_flip_in_every_byte_of_a_manifest(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    whole = (tmp_path / "snap" / "snapshot.json").read_bytes()
    chooser = random.Random(6)
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chooser.randrange(8)
        with pytest.raises(errors.StoreError, match="the place"):
            manifest.decode(bytes(flipped), "the place")
    for data in (
        whole + b"\n",
        whole[:-1],
        b" " + whole,
        whole.replace(b'{\n "digest"', b'{\n "rows": 1,\n "digest"', 1),
    ):
        with pytest.raises(errors.StoreDamagedError, match="digest"):
            manifest.decode(data, "the place")


def test_every_sampled_bit_flip_and_length_of_a_tar(tmp_path: Path, store: DiskStore, no_sync: None) -> None:
    tar = tmp_path / "a.tar"
    write_snapshot(store, tar)
    whole = outcome(tar, tmp_path / "r")
    data = tar.read_bytes()
    chooser = random.Random(5)
    for place in chooser.sample(range(len(data) * 8), 500):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        tar.write_bytes(flipped)
        assert outcome(tar, tmp_path / "r").startswith("refused"), place
    for size in {*range(0, len(data), 512), *chooser.sample(range(len(data)), 100), len(data) - 1}:
        tar.write_bytes(data[:size])
        refuse(errors.StoreDamagedError, "truncated|empty", tar, tmp_path / "r")
    for more in (b"\0", b"x", bytes(10240), data):
        tar.write_bytes(data + more)
        refuse(errors.StoreDamagedError, "after its end", tar, tmp_path / "r")
    tar.write_bytes(data)
    assert outcome(tar, tmp_path / "r") == whole


def test_files_missing_added_exchanged_and_links(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    for name in tree(tmp_path / "snap"):
        shutil.copytree(tmp_path / "snap", tmp_path / "copy")
        (tmp_path / "copy" / name).unlink()
        kind = errors.NotAStoreError if name == "snapshot.json" else errors.StoreDamagedError
        refuse(kind, "no snapshot.json|is missing", tmp_path / "copy", tmp_path / "r")
        shutil.rmtree(tmp_path / "copy")
    (tmp_path / "snap" / "log" / "unlisted").write_text("left alone")
    restore_snapshot(tmp_path / "snap", tmp_path / "r")
    assert read(tmp_path / "r") == read(tmp_path / "s")
    assert not (tmp_path / "r" / "log" / "unlisted").exists()


def test_targets_that_are_no_place_for_a_store(tmp_path: Path, store: DiskStore) -> None:
    snap = tmp_path / "snap"
    write_snapshot(store, snap)
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".hidden").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    refuse(errors.NotAStoreError, "is a file", snap, tmp_path / "file")
    refuse(errors.NotAStoreError, "not empty.*hidden", snap, tmp_path / "full")
    refuse(errors.NotAStoreError, "not empty", snap, tmp_path / "link")
    refuse(errors.NotAStoreError, "not empty", snap, tmp_path / "s")
    for inside in (snap, snap / "r", snap / "log" / "r", tmp_path):
        refuse(errors.InputError, "one within the other", snap, inside)
    refuse(errors.NotAStoreError, "does not exist", tmp_path / "nowhere", tmp_path / "r")
    bad: tuple[Any, ...] = ("", "a\0b", b"bytes", 7, "s3://bucket/store")
    for to in bad:
        with pytest.raises(errors.InputError, match="no path"):
            restore_snapshot(snap, to)
    (tmp_path / "empty").mkdir()
    restore_snapshot(snap, tmp_path / "empty")
    assert read(tmp_path / "empty") == read(tmp_path / "s")


def test_a_newer_snapshot_is_refused_as_such(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "snap")
    path = tmp_path / "snap" / "snapshot.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "version": 2, "new": "field"}))
    refuse(errors.StoreVersionError, "format 2", tmp_path / "snap", tmp_path / "r")
    with pytest.raises(errors.StoreVersionError, match="format 2"):
        write_snapshot(store, tmp_path / "snap")
    path.write_text(json.dumps({**fields, "format": "other"}))
    refuse(errors.NotAStoreError, "no snapshot of Mem", tmp_path / "snap", tmp_path / "r")


def told(path: Path) -> manifest.SnapshotManifest:
    return manifest.decode((path / "snapshot.json").read_bytes(), "it")


def test_manifests_with_a_right_digest_that_lie(tmp_path: Path, store: DiskStore) -> None:
    snap = tmp_path / "snap"
    write_snapshot(store, snap)
    honest = told(snap)
    some = honest.files[1]
    lies: list[tuple[manifest.SnapshotManifest, str]] = [
        (replace(honest, head_digest="0" * 64), "head digest 0000"),
        (replace(honest, entries=honest.entries + 1), "entries"),
        (replace(honest, rows=honest.rows - 1), "rows"),
        (replace(honest, last_stamp=5), "manifest tells"),
        (replace(honest, store_id="0" * 32), "make up no store|manifest tells"),
        (replace(honest, files=honest.files[1:]), "make up no store"),
        (replace(honest, files=(*honest.files, some)), "twice"),
        (replace(honest, files=honest.files[::-1]), "manifest tells"),
        (replace(honest, files=tuple(file for file in honest.files if file != some)), "missing|no store"),
    ]
    strange = (
        "../../evil.json",
        "/etc/passwd",
        "log/../store.json",
        "log\\x.parquet",
        "LOG/" + some.path[4:],
        "cache/hnsw.bin",
        "lock",
        "vectors/../meta.json",
        "vectors/../../meta.json",
        "vectors/a/b/meta.json",
        "vectors//meta.json",
        "store.json\n",
        "",
    )
    lies += [
        (replace(honest, files=(*honest.files, replace(some, path=path))), "no file of a store") for path in strange
    ]
    lies.append((replace(honest, files=(*honest.files, replace(some, size=-1))), "where a number belongs"))
    lies.append((replace(honest, files=(*honest.files, replace(some, sha256="xyz"))), "hexadecimal"))
    for lie, match in lies:
        (snap / "snapshot.json").write_bytes(manifest.encode(lie))
        refuse(errors.StoreDamagedError, match, snap, tmp_path / "r")
    for data in (b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"format":"mempp-snapshot"}'):
        (snap / "snapshot.json").write_bytes(data)
        refuse(errors.StoreError, "snapshot.json", snap, tmp_path / "r")


def test_files_with_right_digests_whose_chain_is_another(tmp_path: Path, store: DiskStore) -> None:
    """Every SHA-256 fits, and yet the record is not the one whose head digest the manifest tells."""
    write_snapshot(store, tmp_path / "snap")
    honest = told(tmp_path / "snap")
    journal = next(file for file in honest.files if file.path.startswith("journal/"))
    data = (tmp_path / "snap" / journal.stored_name).read_bytes()
    assert data
    for forged, match in (
        (b"", "tells|none of"),
        (data[:-1], "damage"),
        (data + b"torn", "damaged"),
        (data * 2, "no store"),
    ):
        file = manifest.file_of(journal.path, forged)
        (tmp_path / "snap" / file.stored_name).write_bytes(forged)
        listed = tuple(file if each == journal else each for each in honest.files)
        (tmp_path / "snap" / "snapshot.json").write_bytes(manifest.encode(replace(honest, files=listed)))
        refuse(errors.StoreDamagedError, match, tmp_path / "snap", tmp_path / "r")
    # A segment whose entries were altered and whose footer was left as it was.
    codec = EntryCodec(store.store_id)
    start = mempp.storage.entries.start_position(store.store_id)
    name = list_segments(tmp_path / "s" / "log")[0]
    items, after = segments.read_segment(codec, tmp_path / "s" / "log", name, start)
    altered = encode_segment(codec, [replace(items[0], text="altered"), *items[1:]], start, after)
    file = manifest.file_of(f"log/{name}", altered)
    (tmp_path / "snap" / file.stored_name).write_bytes(altered)
    listed = tuple(file if each.path == file.path else each for each in honest.files)
    (tmp_path / "snap" / "snapshot.json").write_bytes(manifest.encode(replace(honest, files=listed)))
    refuse(errors.StoreDamagedError, f"{name} is damaged: the chain", tmp_path / "snap", tmp_path / "r")


# --- evil archives ------------------------------------------------------------------------------------------------


def contents(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]


def packed(parts: list[tuple[str, bytes]]) -> bytes:
    """An archive as Mem++ writes it, of any names and bytes."""
    data = b"".join(archive.header(name, len(part)) + part + archive.padding(len(part)) for name, part in parts)
    return data + archive.end(len(data))


def other(change: Callable[[tarfile.TarInfo], None], **options: Any) -> bytes:
    """An archive of one member by the standard library."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as tar:
        info = tarfile.TarInfo("log/x")
        info.size = 3
        change(info)
        tar.addfile(info, io.BytesIO(b"abc") if info.isreg() else None)
    return out.getvalue()


def of_type(kind: bytes, link: str = "") -> Callable[[tarfile.TarInfo], None]:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname, info.size = kind, link, 0

    return change


def named(name: str) -> Callable[[tarfile.TarInfo], None]:
    return lambda info: setattr(info, "name", name)


EVIL: dict[str, tuple[bytes, str]] = {
    "symbolic link": (other(of_type(tarfile.SYMTYPE, "/etc/passwd")), "symbolic link"),
    "hard link": (other(of_type(tarfile.LNKTYPE, "../x")), "hard link"),
    "device": (other(of_type(tarfile.CHRTYPE)), "device"),
    "block device": (other(of_type(tarfile.BLKTYPE)), "device"),
    "pipe": (other(of_type(tarfile.FIFOTYPE)), "pipe"),
    "directory": (other(of_type(tarfile.DIRTYPE)), "directory"),
    "absolute": (other(named("/etc/passwd")), "would leave"),
    "parent": (other(named("log/../../x")), "would leave"),
    "parent alone": (other(named("..")), "would leave"),
    "unknown": (other(named("evil.sh")), "no file of a snapshot"),
    "store path": (other(named("store.json")), "no file of a snapshot"),
    "long name, GNU": (other(named("x" * 300), format=tarfile.GNU_FORMAT), "no file of a snapshot"),
    "long name, pax": (other(named("x" * 300), format=tarfile.PAX_FORMAT), "no file of a snapshot"),
    "contiguous": (other(lambda info: (setattr(info, "type", b"7"), named("snapshot.json")(info))[0]), "not the one"),
    "owner": (other(lambda info: (setattr(info, "uid", 7), named("snapshot.json")(info))[0]), "not the one"),
    "old format": (other(named("snapshot.json"), format=tarfile.GNU_FORMAT), "not the one"),
    "nothing in it": (bytes(10240), "does not end with snapshot.json"),
    "no bytes": (b"", "empty"),
    "half a header": (other(named("snapshot.json"))[:300], "truncated"),
    "text": (b"just a text " * 1000, "no file of a snapshot"),
    "huge size": (archive.header("snapshot.json", (1 << 33) - 1), "truncated"),
}


@pytest.mark.parametrize("name", EVIL)
def test_evil_archives(tmp_path: Path, name: str) -> None:
    data, match = EVIL[name]
    (tmp_path / "a.tar").write_bytes(data)
    refuse(errors.StoreDamagedError, match, tmp_path / "a.tar", tmp_path / "r")


def test_archives_that_hold_other_files_than_they_list(tmp_path: Path, store: DiskStore) -> None:
    write_snapshot(store, tmp_path / "a.tar")
    parts = contents(tmp_path / "a.tar")
    assert packed(parts) == (tmp_path / "a.tar").read_bytes()
    extra = ("log/" + "0" * 20 + "-" + "9" * 20 + "." + "a" * 16 + ".parquet", b"more")
    for changed, match in (
        (parts[1:], "only"),
        (parts[:-2] + parts[-1:], "only"),
        ([parts[0], *parts], "twice"),
        ([extra, *parts], "only"),
        ([parts[1], parts[0], *parts[2:]], "order"),
        ([(parts[0][0], parts[0][1] + b" "), *parts[1:]], "size"),
        (parts[:-1], "does not end with snapshot.json"),
        ([*parts, extra], "does not end with snapshot.json"),
        ([parts[-1], *parts[:-1]], "does not end with snapshot.json"),
        ([*parts, parts[-1]], "only"),
        ([(parts[0][0], parts[0][1][:-1] + b" "), *parts[1:]], "damaged"),
    ):
        (tmp_path / "b.tar").write_bytes(packed(changed))
        refuse(errors.StoreDamagedError, match, tmp_path / "b.tar", tmp_path / "r")


# --- other filesystems --------------------------------------------------------------------------------------------


@pytest.fixture
def memory_filesystem() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory", skip_instance_cache=True)
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    yield filesystem
    filesystem.store.clear()


def everywhere(filesystem: Any) -> list[tuple[str, Any]]:
    wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))
    folder = pyarrow.fs._MockFileSystem()
    folder.create_dir("f")
    return [
        ("memory://a/snap", None),
        ("b/snap", filesystem),
        ("memory://c/snap", filesystem),
        ("d/snap", wrapped),
        ("e/snap", pyarrow.fs.SubTreeFileSystem("f", folder)),
        ("snap", pyarrow.fs._MockFileSystem()),
        ("deep/er/snap", pyarrow.fs._MockFileSystem()),
    ]


def test_other_filesystems(tmp_path: Path, store: DiskStore, memory_filesystem: Any) -> None:
    for number, (target, filesystem) in enumerate(everywhere(memory_filesystem)):
        first = write_snapshot(store, target, filesystem=filesystem)
        assert first.files_present == 0
        tar = write_snapshot(store, target + ".tar", filesystem=filesystem)
        assert tar.files_copied == first.files_copied
        with pytest.raises(errors.NotAStoreError, match="exists already"):
            write_snapshot(store, target + ".tar", filesystem=filesystem)
        grow(store, 3, seed=number)
        second = write_snapshot(store, target, filesystem=filesystem)
        assert 0 < second.files_copied < first.files_copied + 3
        assert second.files_present > 0
        for source, report in ((target, second), (target + ".tar", tar)):
            to = tmp_path / f"r{number}{source[-4:]}"
            restored = restore_snapshot(source, to, filesystem=filesystem)
            assert restored.head_digest == report.head_digest
            assert read(to)[0] == read(tmp_path / "s")[0][: report.entries]
        refuse(errors.NotAStoreError, "does not exist", target + "x", tmp_path / "no", filesystem=filesystem)


def test_a_local_filesystem_is_the_local_disk(tmp_path: Path, store: DiskStore) -> None:
    fsspec = pytest.importorskip("fsspec")
    for number, (target, filesystem) in enumerate(
        [
            ((tmp_path / "0").as_uri(), None),
            (str(tmp_path / "1"), pyarrow.fs.LocalFileSystem()),
            (str(tmp_path / "2"), fsspec.filesystem("file")),
            ((tmp_path / "3").as_uri(), fsspec.filesystem("file")),
        ]
    ):
        assert write_snapshot(store, target, filesystem=filesystem).target == str(tmp_path / str(number))
        assert (tmp_path / str(number) / "snapshot.json").is_file()


def test_folders_elsewhere_that_hold_something_else(store: DiskStore, memory_filesystem: Any, tmp_path: Path) -> None:
    memory_filesystem.pipe("/x/letter.txt", b"dear")
    with pytest.raises(errors.NotAStoreError, match=r"letter\.txt"):
        write_snapshot(store, "memory://x")
    with pytest.raises(errors.NotAStoreError, match="is a file"):
        write_snapshot(store, "memory://x/letter.txt")
    write_snapshot(store, "memory://y")
    memory_filesystem.pipe("/y/" + told_remote(memory_filesystem, "/y").files[1].stored_name, b"altered")
    refuse(errors.StoreDamagedError, "is damaged", "memory://y", tmp_path / "r")
    assert len(write_snapshot(store, "memory://y").repaired) == 1
    memory_filesystem.rm("/y/snapshot.json")
    with pytest.raises(errors.NotAStoreError, match="unfinished"):
        write_snapshot(store, "memory://y")


def told_remote(filesystem: Any, path: str) -> manifest.SnapshotManifest:
    return manifest.decode(filesystem.cat(f"{path}/snapshot.json"), "it")


class Failing(pyarrow.fs.FSSpecHandler):  # type: ignore[misc]
    """From the n-th change on, every one fails; the n-th, a write, leaves half of its bytes."""

    def __init__(self, filesystem: Any, at: int) -> None:
        super().__init__(filesystem)
        self.at = at
        self.calls = 0

    def _fails(self) -> bool:
        self.calls += 1
        return self.calls > self.at

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        handler = self

        class Sink(io.BytesIO):
            def close(self) -> None:
                if not self.closed:
                    data = self.getvalue()
                    super().close()
                    if handler._fails():
                        if handler.calls == handler.at + 1:
                            handler.fs.pipe(path, data[: len(data) // 2])
                        raise RuntimeError("the network is gone")  # such packages raise what they like
                    handler.fs.pipe(path, data)

        return pyarrow.PythonFile(Sink(), mode="w")

    def delete_file(self, path: str) -> None:
        if self._fails():
            raise RuntimeError("the network is gone")
        super().delete_file(path)


def test_interrupted_at_every_change_elsewhere(
    tmp_path: Path, store: DiskStore, memory_filesystem: Any, no_sync: None
) -> None:
    """The old snapshot is whole, or the new one, whichever change was the last."""
    plain = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(memory_filesystem))
    write_snapshot(store, "k/snap", filesystem=plain)
    saved = {path: memory_filesystem.cat(path) for path in memory_filesystem.find("/k")}
    states = [read(tmp_path / "s")]
    grow(store, 5, seed=1)
    merge_segments(tmp_path / "s")
    states.append(read(tmp_path / "s"))
    seen = set()
    at = 0
    while True:
        memory_filesystem.rm("/k", recursive=True)
        for path, data in saved.items():
            memory_filesystem.pipe(path, data)
        failing = Failing(memory_filesystem, at)
        with contextlib.suppress(errors.StoreWriteError):
            write_snapshot(store, "k/snap", filesystem=pyarrow.fs.PyFileSystem(failing))
        restore_snapshot("k/snap", tmp_path / "r", filesystem=plain)
        seen.add(states.index(read(tmp_path / "r")))
        shutil.rmtree(tmp_path / "r")
        write_snapshot(store, "k/snap", filesystem=plain)
        restore_snapshot("k/snap", tmp_path / "r", filesystem=plain)
        assert read(tmp_path / "r") == states[1]
        shutil.rmtree(tmp_path / "r")
        listed = {f"/k/snap/{file.stored_name}" for file in told_remote(memory_filesystem, "/k/snap").files}
        assert set(memory_filesystem.find("/k")) == listed | {"/k/snap/snapshot.json"}
        if failing.calls <= at:
            break
        at += 1
    assert seen == {0, 1}
    assert at > 8


def test_an_interrupted_archive_elsewhere_is_removed_or_no_snapshot(
    tmp_path: Path, store: DiskStore, memory_filesystem: Any
) -> None:
    failing = Failing(memory_filesystem, 0)
    with pytest.raises(errors.StoreWriteError, match="the network is gone"):
        write_snapshot(store, "k/a.tar", filesystem=pyarrow.fs.PyFileSystem(failing))
    refuse(errors.StoreDamagedError, "truncated", "memory://k/a.tar", tmp_path / "r")


# --- faults of the local disk -------------------------------------------------------------------------------------


Action = Callable[[], Any]


def each_fault(
    monkeypatch: pytest.MonkeyPatch,
    prepare: Action,
    action: Action,
    check: Callable[[bool], None],
    error: int | None,
    step: int = 1,
) -> int:
    """Run ``action`` with a fault at each call of a primitive, or a stop there; return how many calls there are.

    ``step`` 1: each; else every so-many-th.
    """
    at = 0
    while True:
        prepare()
        with monkeypatch.context() as patch:
            faults = Faults(patch, at, error)
            # Anything but these two, a bare OSError above all, fails the test.
            refused = True
            with contextlib.suppress(Crash, errors.StoreWriteError, errors.StoreReadOnlyError):
                action()
                refused = False
        check(refused)
        if not faults.fired:
            return at
        at += step


@pytest.mark.parametrize("name", ["stop", *ERRORS])
def test_interrupted_at_every_call_into_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_sync: None, name: str
) -> None:
    where = tmp_path / "targets"
    snap = where / "snap"
    store = DiskStore(tmp_path / "s", seal_bytes=SEAL_BYTES)
    grow(store, 4)
    states = [read(tmp_path / "s")]
    write_snapshot(store, tmp_path / "first")
    grow(store, 2, seed=1)
    merge_segments(tmp_path / "s")
    states.append(read(tmp_path / "s"))
    source = DiskStore(tmp_path / "s", read_only=True)
    seen: set[int] = set()
    error = None if name == "stop" else ERRORS[name]

    def prepare() -> None:
        shutil.rmtree(where, ignore_errors=True)
        shutil.copytree(tmp_path / "first", snap)

    def check(refused: bool) -> None:
        restore_snapshot(snap, where / "r")
        state = states.index(read(where / "r"))
        seen.add(state)
        assert refused or state == 1
        write_snapshot(source, snap)
        shutil.rmtree(where / "r")
        restore_snapshot(snap, where / "r")
        assert read(where / "r") == states[1]
        listed = {file.stored_name for file in told(snap).files}
        assert set(tree(snap)) == listed | {"snapshot.json"}

    # A stop and one error at each call; the other errors, which differ in their translation alone, at every ninth.
    step = 1 if name in {"stop", "no space"} else 9
    calls = each_fault(monkeypatch, prepare, lambda: write_snapshot(source, snap), check, error, step)
    assert calls > 30
    assert seen == {0, 1}


@pytest.mark.parametrize("name", ["stop", "no space"])
@pytest.mark.parametrize("target", ["snap", "snap.tar"])
def test_a_first_snapshot_and_a_restore_appear_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_sync: None, name: str, target: str
) -> None:
    where = tmp_path / "targets"
    store = DiskStore(tmp_path / "s", seal_bytes=SEAL_BYTES)
    grow(store, 4)
    write_snapshot(store, tmp_path / target)
    source = DiskStore(tmp_path / "s", read_only=True)
    state = read(tmp_path / "s")
    error = None if name == "stop" else ERRORS[name]

    def prepare() -> None:
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()

    def check(refused: bool) -> None:
        names = {path.name for path in where.iterdir()}
        if name != "stop":
            assert names <= {target, "r"}
        if target in names:
            restore_snapshot(where / target, where / "r2")
            assert read(where / "r2") == state
        if "r" in names:
            assert read(where / "r") == state
        assert refused or names & {target, "r"}
        assert all(path.startswith(".") and path.endswith(".tmp") for path in names - {target, "r"})

    calls = each_fault(monkeypatch, prepare, lambda: write_snapshot(source, where / target), check, error)
    assert calls > (30 if target == "snap" else 10)
    calls = each_fault(monkeypatch, prepare, lambda: restore_snapshot(tmp_path / target, where / "r"), check, error)
    assert calls > 30


def test_the_order_of_calls_makes_a_snapshot_durable_before_it_appears(
    tmp_path: Path, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DiskStore(tmp_path / "s", read_only=True)
    for action, name in (
        (lambda: write_snapshot(source, tmp_path / "snap"), "snap"),
        (lambda: restore_snapshot(tmp_path / "snap", tmp_path / "r"), "r"),
        (lambda: write_snapshot(source, tmp_path / "a.tar"), "a.tar"),
    ):
        with monkeypatch.context() as patch:
            calls = Faults(patch, 1 << 30, None).calls
            action()
        changes = [call for call in calls if call[0] in {"write", "sync", "rename"}]
        assert changes[-2][0] == "rename"
        assert changes[-1] == ("sync", tmp_path.name)
        assert changes[-3][0] == "sync"
        written = [subject for what, subject in changes if what == "write"]
        synced = [subject for what, subject in changes if what == "sync"]
        assert set(written) <= set(synced), name
        if name != "a.tar":
            assert {"log", "journal", "segments", "e", "vectors"} <= set(synced)
    grow(store, 3, seed=1)
    with monkeypatch.context() as patch:
        calls = Faults(patch, 1 << 30, None).calls
        write_snapshot(source, tmp_path / "snap")
    order = [call for call in calls if call[0] in {"rename", "remove", "sync"}]
    appears = order.index(("rename", "snapshot.json.tmp"))
    assert order[appears - 1] == ("sync", "snapshot.json.tmp")
    assert order[appears + 1] == ("sync", "snap")
    assert all(what != "remove" for what, _ in order[: appears + 2])
    assert any(what == "remove" for what, _ in order[appears + 2 :])
    assert ("sync", "log") in order[:appears]


def test_errors_of_the_system_are_translated(tmp_path: Path, store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write_snapshot(store, tmp_path / "snap")

    def broken(*_: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "there")

    with monkeypatch.context() as patch:
        patch.setattr(files, "read_from", broken)
        refuse(errors.StoreError, "Input/output error", tmp_path / "snap", tmp_path / "r")
    with monkeypatch.context() as patch:
        patch.setattr(places.files, "make_directory", broken)
        with pytest.raises(errors.StoreWriteError, match="Input/output error"):
            write_snapshot(store, tmp_path / "new")
        with pytest.raises(errors.StoreWriteError, match="Input/output error"):
            restore_snapshot(tmp_path / "snap", tmp_path / "r")
    with pytest.raises(errors.StoreWriteError, match="does not fit"):
        archive.header("snapshot.json", 1 << 33)
    commit(store, document("still usable"))
