"""compact_store: the same entries, the same chain, fewer files; readers go on; damage stops it."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from storage_tools import PRIMITIVES, Crash, batch, commit, document, read

from mempp import errors
from mempp.storage import DiskStore, Entry, compact_store, files, segments, series, survey, verify_store
from mempp.storage.segments import SegmentName, covered, list_segments


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_FIRST_PAUSE", 0)
    monkeypatch.setattr(survey, "_FIRST_PAUSE", 0)


def build(path: Path, count: int = 8) -> tuple[DiskStore, list[Entry]]:
    """A store with ``count`` segments of log and vectors, and one commit in the journal."""
    store = DiskStore(path, seal_bytes=1)
    written: list[Entry] = []
    for number in range(count):
        written += commit(store, document(f"{number} " * 40, tags=("t",)), document("b"), Entry("retract", row_id=0))
        with store.writing():
            store.vectors("e", 4).append(batch(store.row_count - 2, 2))
    store.seal_bytes = 1 << 20
    written += commit(store, document("last"))
    return store, written


def names(path: Path) -> list[SegmentName]:
    return list_segments(path / "log")


def vectors_of(path: Path) -> list[tuple[int, list[float]]]:
    store = DiskStore(path, read_only=True)
    store.refresh()
    return [
        (int(row), vector.tolist())
        for one in store.vectors("e", 4).refresh()
        for row, vector in zip(one.row_ids, one.vectors, strict=True)
    ]


def test_the_same_entries_and_chain_in_one_segment(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store, written = build(path)
    before, vectors = read(path), vectors_of(path)
    report = compact_store(store)
    assert (report.segments_before, report.segments_after) == (16, 2)
    assert (report.merged, report.removed) == (2, 16)
    assert report.bytes_after < report.bytes_before
    assert names(path) == [SegmentName(0, 23)]
    assert read(path) == before == (written, store.head_digest)
    assert vectors_of(path) == vectors
    proof = verify_store(path)
    assert proof.ok
    assert proof.notes == ()
    # independent of the code under test
    table = pq.read_table(path / "log" / str(names(path)[0]), page_checksum_verification=True)
    assert table.column("text").to_pylist() == [entry.text for entry in written[:24]]
    assert compact_store(store).merged == 0
    assert commit(store, document("more"))[0].row_id == 17
    assert read(path)[0][:-1] == written


def test_what_the_store_has_not_read_yet_stays_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "s"
    _, written = build(path)
    late = DiskStore(path)
    half = DiskStore(path)
    assert half.refresh() == written
    more = commit(DiskStore(path), document("more"))
    compact_store(late)
    compact_store(half)
    assert late.refresh() == written + more
    assert half.refresh() == more


def test_sizes_are_limits(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = DiskStore(path, seal_bytes=1)
    rng = np.random.default_rng(1)
    for size in (10, 10, 3000, 10, 10, 10, 3000, 3000):
        commit(store, document("".join(chr(97 + letter) for letter in rng.integers(0, 26, size))))
    shutil.rmtree(path / "vectors", ignore_errors=True)
    before = read(path)
    compact_store(store, small_bytes=2500)
    assert names(path) == [SegmentName(*pair) for pair in ((0, 1), (2, 2), (3, 5), (6, 6), (7, 7))]
    assert read(path) == before
    one = segments.uncompressed_size(path / "log" / str(SegmentName(2, 2)))
    compact_store(store, small_bytes=1 << 20, merged_bytes=2 * one + 100)
    assert all(
        name.first == name.last or segments.uncompressed_size(path / "log" / str(name)) <= 2 * one + 200
        for name in names(path)
    )
    assert 2 <= len(names(path)) < 5
    assert read(path) == before


def test_row_groups_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    store, written = build(path)
    monkeypatch.setattr("mempp.storage.compact.GROUP_ROWS", 7)
    compact_store(store)
    metadata = pq.ParquetFile(path / "log" / str(names(path)[0])).metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [6, 6, 6, 6]
    assert read(path)[0] == written


def test_a_follower_in_the_middle_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers at every place: before, inside and behind what is merged, while it happens."""
    path = tmp_path / "s"
    store, written = build(path, 2)
    followers = []
    for number in range(4):
        follower = DiskStore(path, read_only=True)
        follower.seen = follower.refresh()  # type: ignore[attr-defined]
        followers.append(follower)
        store.seal_bytes = 1
        written += commit(store, document(f"more {number}"))
    real = files.remove

    def remove(target: Path) -> None:
        assert read(path)[0] == written  # beside each of the steps
        real(target)
        assert read(path)[0] == written

    monkeypatch.setattr(files, "remove", remove)
    compact_store(store)
    assert len(names(path)) == 1
    for follower in followers:
        assert follower.seen + follower.refresh() == written  # type: ignore[attr-defined]
        assert follower.head_digest == store.head_digest


def test_readers_in_threads_see_a_prefix_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store, written = build(path)
    stop = threading.Event()
    wrong: list[object] = []

    def follow() -> None:
        while not stop.is_set():
            try:
                found = DiskStore(path, read_only=True).refresh()
                if found != written[: len(found)] or len(found) < 25:
                    wrong.append(found)
            except errors.MemppError as error:
                wrong.append(error)

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(6):
        store.seal_bytes = 1
        with store.writing():
            pass
        entries = [document(f"more {number}")]
        with store.writing():
            written += store.append(entries)
        compact_store(store)
    stop.set()
    for thread in threads:
        thread.join(30)
    # a reader may have listed before the last commit was in ``written``
    assert not [one for one in wrong if isinstance(one, errors.MemppError) or one != written[: len(one)]]  # type: ignore[arg-type]
    assert len(names(path)) == 1


@pytest.mark.parametrize("crash", [True, False])
def test_stopped_at_every_step_it_reads_the_same_and_the_next_one_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    build(tmp_path / "origin", 3)
    before, vectors = read(tmp_path / "origin"), vectors_of(tmp_path / "origin")
    at = 0
    left_over = 0
    while True:
        path = tmp_path / str(at)
        shutil.copytree(tmp_path / "origin", path)
        count = 0
        with monkeypatch.context() as patch:
            for name in PRIMITIVES:
                real = getattr(files, name)

                def call(*arguments: Any, real: Any = real) -> Any:
                    nonlocal count
                    count += 1
                    if count == at + 1 or (crash and count > at):  # noqa: B023
                        raise Crash if crash else OSError(28, os.strerror(28))
                    return real(*arguments)

                patch.setattr(files, name, call)
            try:
                compact_store(DiskStore(path, lock_timeout=0.1))
                stopped = False
            except (Crash, errors.StoreWriteError):
                stopped = True
        assert read(path) == before
        assert vectors_of(path) == vectors
        proof = verify_store(path)
        assert proof.ok, proof.problems
        left_over += any("left-over" in note for note in proof.notes)
        compact_store(DiskStore(path))
        assert len(names(path)) == 1
        assert not list(path.rglob("*.tmp"))
        assert read(path) == before
        assert verify_store(path).notes == ()
        if not stopped and count <= at:
            break
        at += 1
    assert at > 20
    assert left_over > 3


def test_damage_stops_it_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store, written = build(path)
    victim = path / "log" / str(names(path)[3])
    column = pq.ParquetFile(victim).metadata.row_group(0).column(5)
    data = bytearray(victim.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    victim.write_bytes(data)
    files_before = sorted((path / "log").iterdir())
    with pytest.raises(errors.StoreDamagedError, match=victim.name):
        compact_store(store)
    assert sorted((path / "log").iterdir()) == files_before
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    victim.write_bytes(data)
    assert read(path)[0] == written


def test_left_overs_are_kept_while_the_wide_segment_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "s"
    build(path)
    shutil.copytree(path / "log", tmp_path / "narrow")
    compact_store(DiskStore(path))
    wide = path / "log" / str(names(path)[0])
    for narrow in (tmp_path / "narrow").iterdir():
        shutil.copy(narrow, path / "log")
    wide.write_bytes(wide.read_bytes()[:-1])
    count = len(list((path / "log").iterdir()))
    with pytest.raises(errors.StoreDamagedError, match=wide.name):
        compact_store(DiskStore(path))
    assert len(list((path / "log").iterdir())) == count


def test_read_only_stores_are_not_compacted(tmp_path: Path) -> None:
    build(tmp_path / "s")
    with pytest.raises(errors.StoreReadOnlyError):
        compact_store(DiskStore(tmp_path / "s", read_only=True))


def test_covered_segments_worked_by_hand() -> None:
    pairs = [(0, 4), (0, 1), (2, 4), (3, 7), (5, 7), (8, 9)]
    found = covered([SegmentName(*pair) for pair in pairs])
    assert found == [SegmentName(0, 1), SegmentName(2, 4), SegmentName(5, 7)]
