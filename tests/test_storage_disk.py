"""The store in a directory: opening and creating, sealing, and what an independent reader finds in the files."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import struct
import threading
import warnings
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from storage_tools import PRIMITIVES, batch, commit, document, read, read_torn

from mempp import errors, storage
from mempp.storage import DiskStore, Entry, TornTailWarning, files, lock, open_store
from mempp.storage.entries import start_position
from mempp.storage.segments import encode_segment, list_segments

# --- opening ------------------------------------------------------------------------------------------------------


def test_exports_are_what_all_says() -> None:
    for name in storage.__all__:
        assert hasattr(storage, name)
    assert len(set(storage.__all__)) == len(storage.__all__)


def test_creating_and_reopening(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "store"
    store = open_store(path)
    again = open_store(os.fspath(path), create=False)
    assert (again.store_id, again.created_at) == (store.store_id, store.created_at)
    manifest = json.loads((path / "store.json").read_text())
    checksum = manifest.pop("checksum")
    assert manifest == {
        "created_at": store.created_at,
        "format": "mempp",
        "store_id": store.store_id,
        "version": 1,
    }
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    assert checksum == f"{zlib.crc32(text.encode()):08x}"
    assert sorted(entry.name for entry in path.iterdir()) == ["journal", "lock", "log", "store.json"]


def test_opening_an_empty_directory_makes_a_store(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    commit(open_store(tmp_path / "empty"), document("a"))
    assert len(read(tmp_path / "empty")[0]) == 1


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
def test_a_missing_path_is_no_store_and_nothing_is_made(tmp_path: Path, options: dict[str, bool]) -> None:
    with pytest.raises(errors.NotAStoreError, match="nothing-here"):
        open_store(tmp_path / "nothing-here", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{}, {"create": False}, {"read_only": True}])
def test_what_is_no_store_is_refused_and_untouched(tmp_path: Path, options: dict[str, bool]) -> None:
    (tmp_path / "file").write_text("hello")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("hello")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "store.json").write_text('{"name": "a web shop"}')
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "store.json").write_text("[1]")
    for name in ("file", "file/below", "folder", "other", "listed"):
        with pytest.raises(errors.NotAStoreError, match="no Mem\\+\\+ store"):
            open_store(tmp_path / name, **options)
    assert os.listdir(tmp_path / "folder") == ["notes.txt"]
    assert (tmp_path / "file").read_text() == "hello"


def test_a_foreign_folder_called_log_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "app.log").write_text("x")
    with pytest.raises(errors.NotAStoreError):
        open_store(tmp_path)


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(errors.InputError):
        open_store(path)


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "s")
    manifest = json.loads((tmp_path / "s" / "store.json").read_text())
    (tmp_path / "s" / "store.json").write_text(json.dumps({**manifest, "version": 2, "more": {}}))
    with pytest.raises(errors.StoreVersionError, match="format 2"):
        open_store(tmp_path / "s")


def test_every_damage_of_the_manifest_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    commit(open_store(path), document("a"))
    whole = (path / "store.json").read_bytes()
    for place in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        (path / "store.json").write_bytes(flipped)
        try:
            store = open_store(path, read_only=True)
        except errors.StoreError:
            continue
        # What is left are changes of white space, as JSON sees it.
        assert json.loads(flipped) == json.loads(whole), flipped
        assert len(store.refresh()) == 1


def test_a_log_without_its_manifest_is_damage_not_a_place_for_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "s"
    commit(open_store(path), document("a"))
    (path / "store.json").unlink()
    with pytest.raises(errors.StoreDamagedError, match=re.escape("store.json is missing")):
        open_store(path)


# --- sealing ------------------------------------------------------------------------------------------------------


def fill(path: Path, count: int = 30, seal_bytes: int = 1000) -> list[Entry]:
    store = DiskStore(path, seal_bytes=seal_bytes)
    written = []
    for number in range(count):
        row = max(store.row_count - 1, 0)
        fields: dict[str, Any] = {"authors": ("a", "b")[: number % 3], "tags": ("x",) * (number % 2)}
        written += commit(
            store,
            document(f"text {number}\n\0é", occurred_at=number if number % 4 else None, **fields, metadata='{"a":1}'),
            Entry("annotate", row_id=row, label="fact", payload="[1]"),
        )
    return written


def test_sealing_leaves_segments_and_one_journal(tmp_path: Path) -> None:
    written = fill(tmp_path / "s")
    names = list_segments(tmp_path / "s" / "log")
    assert len(names) > 3
    assert names[0].first == 0
    assert all(one.last + 1 == two.first for one, two in pairwise(names))
    assert os.listdir(tmp_path / "s" / "journal") == [f"{names[-1].last + 1:020d}.journal"]
    assert read(tmp_path / "s")[0] == written


def test_sealed_segments_never_change(tmp_path: Path) -> None:
    fill(tmp_path / "s", 10)
    before = {path: path.read_bytes() for path in (tmp_path / "s" / "log").iterdir()}
    assert before
    fill(tmp_path / "s", 10)
    assert all(path.read_bytes() == data for path, data in before.items())


def test_the_digest_does_not_depend_on_sealing(tmp_path: Path) -> None:
    digests = set()
    open_store(tmp_path / "origin")
    for seal_bytes in (1, 700, 1 << 20):
        path = tmp_path / str(seal_bytes)
        shutil.copytree(tmp_path / "origin", path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mempp.storage.disk.now", lambda: 7)
            fill(path, 12, seal_bytes)
        digests.add(read(path)[1])
    assert len(digests) == 1


def test_row_groups_are_cut_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mempp.storage.entry_codec.GROUP_BYTES", 2000)
    monkeypatch.setattr("mempp.storage.vectors.GROUP_BYTES", 64)
    store = DiskStore(tmp_path / "s", seal_bytes=1000)
    vectors = store.vectors("e", 4)
    written = commit(store, *(document("x" * size) for size in (10, 3000, 10, 10, 1500, 400, 100)))
    with store.writing():
        vectors.append(batch(0, 7))
        vectors.append(batch(0, 7))
    store.seal_bytes = 1
    commit(store)
    with store.writing():
        vectors.append(batch(0, 7))
    (segment,) = (tmp_path / "s" / "log").glob("*.parquet")
    metadata = pq.ParquetFile(segment).metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [1, 1, 2, 1, 2]
    assert read(tmp_path / "s")[0] == written
    (vector_segment,) = (tmp_path / "s" / "vectors" / "e" / "segments").glob("*.parquet")
    assert pq.ParquetFile(vector_segment).metadata.num_row_groups == 6
    assert sum(map(len, store.vectors("e", 4).refresh())) == 21


def test_reading_on_from_the_middle_of_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mempp.storage.entry_codec.GROUP_ROWS", 3)
    writer = DiskStore(tmp_path / "s", seal_bytes=1 << 20)
    commit(writer, *(document(str(number)) for number in range(4)))
    follower = DiskStore(tmp_path / "s", read_only=True)
    assert len(follower.refresh()) == 4
    written = commit(writer, *(document(str(number)) for number in range(5)))
    writer.seal_bytes = 1
    written += commit(writer, document("last"))
    assert len(list_segments(tmp_path / "s" / "log")) == 1
    written += commit(writer, document("in the next journal"))
    assert follower.refresh() == written
    assert follower.head_digest == writer.head_digest


def test_a_follower_recomputes_the_chain_over_the_part_of_a_segment_it_joins(tmp_path: Path) -> None:
    path = tmp_path / "s"
    writer = DiskStore(path, seal_bytes=1 << 20)
    first = commit(writer, document("a"))
    follower = DiskStore(path, read_only=True)
    follower.refresh()
    start, before = start_position(writer.store_id), writer._log.position
    later = commit(writer, document("paid 10"))
    after = writer._log.position
    writer.seal_bytes = 1
    commit(writer)
    forged = [*first, dataclasses.replace(later[0], text="paid 99")]
    segment = next((path / "log").iterdir())
    segment.write_bytes(encode_segment(writer._log._codec, forged, start, after))
    with pytest.raises(errors.StoreDamagedError, match=f"{segment.name} is damaged: its digest"):
        follower.refresh()
    assert follower._log.position == before


# --- what another program finds -----------------------------------------------------------------------------------


def test_pyarrow_alone_reads_the_segments(tmp_path: Path) -> None:
    store_path = tmp_path / "s"
    written = fill(store_path)
    paths = sorted((store_path / "log").glob("*.parquet"))
    tables = [pq.read_table(path, page_checksum_verification=True) for path in paths]
    rows = pa.concat_tables(tables).to_pylist()
    assert 10 < len(rows) <= len(written)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    microsecond = datetime.timedelta(microseconds=1)
    for row, entry in zip(rows, written, strict=False):
        for name in Entry.__dataclass_fields__:
            expected = getattr(entry, name)
            found = row[name]
            if name in {"ingested_at", "occurred_at"} and found is not None:
                found = (found - epoch) // microsecond
            assert found == (list(expected) if isinstance(expected, tuple) else expected), name
    schema = tables[0].schema
    assert schema.field("ingested_at").type == pa.timestamp("us", "UTC")
    assert schema.field("text").type == pa.large_string()
    assert schema.field("authors").type.value_type == pa.string()
    digest = hashlib.sha256(b"mempp log 1\n" + open_store(store_path).store_id.encode()).hexdigest()
    sequence = row_id = 0
    for path, table in zip(paths, tables, strict=True):
        footer = {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items()}
        documents = sum(kind == "document" for kind in table["kind"].to_pylist())
        assert footer["mempp.format"] == "1"
        assert int(footer["mempp.first_sequence"]) == sequence
        assert int(footer["mempp.last_sequence"]) == sequence + len(table) - 1
        assert int(footer["mempp.first_row"]) == row_id
        assert int(footer["mempp.rows"]) == documents
        assert footer["mempp.digest_before"] == digest
        assert path.name == f"{sequence:020d}-{sequence + len(table) - 1:020d}.parquet"
        digest, sequence, row_id = footer["mempp.digest_after"], sequence + len(table), row_id + documents
        assert all(pq.read_metadata(path).row_group(0).column(c).compression == "ZSTD" for c in range(len(schema)))


def test_the_journal_reads_as_specified(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s")
    written = commit(store, document("ä"), document("b")) + commit(store, Entry("retract", row_id=0))
    data = (tmp_path / "s" / "journal" / f"{0:020d}.journal").read_bytes()
    lines, place = [], 0
    while place < len(data):
        header = data[place : place + 80]
        magic, version, content, count, first, stamp, length, digest, body_check, check = struct.unpack(
            "<8sHHIQqQ32sII", header
        )
        body = data[place + 80 : place + 80 + length]
        assert (magic, version, content) == (b"\x93M++FRM\n", 1, 1)
        assert zlib.crc32(header[:76]) == check
        assert zlib.crc32(body) == body_check
        parsed = [json.loads(line) for line in body.split(b"\n")]
        assert len(parsed) == count
        assert (parsed[0]["sequence"], parsed[0]["ingested_at"]) == (first, stamp)
        lines += parsed
        place += 80 + length
    assert digest.hex() == store.head_digest
    assert [line["sequence"] for line in lines] == [entry.sequence for entry in written]
    assert lines[0] == {
        "kind": "document",
        "sequence": 0,
        "row_id": 0,
        "text": "ä",
        "ingested_at": written[0].ingested_at,
    }


def test_pyarrow_alone_reads_vectors(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s", seal_bytes=1)
    commit(store, document("a"), document("b"))
    with store.writing():
        store.vectors("e", 4).append(batch(0, 2))
    (path,) = (tmp_path / "s" / "vectors" / "e" / "segments").glob("*.parquet")
    table = pq.read_table(path)
    assert table["vector"].to_pylist() == batch(0, 2).vectors.tolist()
    assert table["row_id"].to_pylist() == [0, 1]
    assert table["view"].type == pa.int32()
    assert json.loads((tmp_path / "s" / "vectors" / "e" / "meta.json").read_text()) == {
        "dimensions": 4,
        "format": "mempp-vectors",
        "identity": "e",
        "store_id": store.store_id,
        "version": 1,
    }


# --- readers and read-only ----------------------------------------------------------------------------------------


def snapshot_of(path: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(file): (file.read_bytes() if file.is_file() else b"", file.stat().st_mtime_ns) for file in path.rglob("*")
    }


def test_a_read_only_store_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    fill(path)
    journal = next((path / "journal").iterdir())
    journal.write_bytes(journal.read_bytes() + b"torn")
    (path / "lock").unlink()
    before = snapshot_of(path)
    for name in PRIMITIVES:
        monkeypatch.setattr(files, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
    store = DiskStore(path, read_only=True)
    with pytest.warns(TornTailWarning, match="4 bytes"):
        assert store.refresh()
    assert store.refresh() == []
    assert store.unread_bytes == 4
    assert store.vectors("e", 4).refresh() == []
    with pytest.raises(errors.StoreReadOnlyError, match="read_only"), store.writing():
        pass
    store.close()
    assert snapshot_of(path) == before


def test_a_reader_takes_no_commit_under_way_for_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    writer = DiskStore(path)
    written = commit(writer, document("a"))
    with writer.writing():
        journal = next((path / "journal").iterdir())
        whole = journal.read_bytes()
        journal.write_bytes(whole + whole[:100])  # as if append() had come so far
        assert DiskStore(path, read_only=True).refresh() == written  # a warning would be an error here
        journal.write_bytes(whole)


def test_two_handles_in_one_process(tmp_path: Path) -> None:
    one, two = (DiskStore(tmp_path / "s", seal_bytes=500, lock_timeout=0.05) for _ in range(2))
    written = commit(one, document("a"))
    with two.writing() as others:
        assert others == written
        two.append([document("b")])
        with (
            pytest.raises(errors.StoreLockedError, match=rf"process {os.getpid()} on"),
            one.writing(),
        ):
            pass
    for number in range(20):
        commit((one, two)[number % 2], document(str(number)))
    one.refresh()
    two.refresh()
    assert one.head_digest == two.head_digest
    assert len(read(tmp_path / "s")[0]) == 22


def test_a_lock_file_exchanged_between_opening_and_locking_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path = DiskStore(tmp_path / "s", lock_timeout=5), tmp_path / "s" / "lock"
    opened: list[int] = []
    real = files.open_file

    def exchange(target: Path, flags: int) -> int:
        descriptor = real(target, flags)
        if target == path and len(opened) < 3:
            path.unlink()
            path.touch()
        if target == path:
            opened.append(os.fstat(descriptor).st_ino)
        return descriptor

    monkeypatch.setattr(files, "open_file", exchange)
    with store.writing():
        assert len(opened) == 4
        assert opened[-1] == path.stat().st_ino


def test_vectors_are_not_seen_before_their_rows(tmp_path: Path) -> None:
    for seal_bytes in (1 << 20, 1):
        path = tmp_path / str(seal_bytes)
        writer = DiskStore(path, seal_bytes=seal_bytes)
        reader = DiskStore(path, read_only=True)
        commit(writer, document("a"))
        reader.refresh()
        reader_vectors = reader.vectors("e", 4)
        with writer.writing():
            writer.append([document("b")])
            writer.vectors("e", 4).append(batch(0, 2))
        assert reader_vectors.refresh() == []
        reader.refresh()
        assert sum(map(len, reader_vectors.refresh())) == 2


# --- fork ---------------------------------------------------------------------------------------------------------


def run_forked(work: Any) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_works_on(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s", seal_bytes=300)
    commit(store, document("parent"))
    assert run_forked(lambda: [commit(store, document(f"child {number}")) for number in range(5)]) == 0
    with store.writing() as others:
        assert [entry.text for entry in others] == [f"child {number}" for number in range(5)]
    assert [entry.row_id for entry in read(tmp_path / "s")[0]] == list(range(6))


def test_a_child_forked_inside_writing_neither_holds_nor_releases_the_lock(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s", lock_timeout=0.05)

    def child() -> None:
        with pytest.raises(errors.StoreError, match="writing"):
            store.append([document("child")])
        with pytest.raises(errors.StoreLockedError), store.writing():
            pass

    with store.writing():
        assert run_forked(child) == 0
        other = DiskStore(tmp_path / "s", lock_timeout=0.05)
        with pytest.raises(errors.StoreLockedError), other.writing():
            pass
        store.append([document("parent")])
    assert [entry.text for entry in read(tmp_path / "s")[0]] == ["parent"]


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s")
    context = multiprocessing.get_context("fork")
    release = context.Event()
    with store.writing():
        sleeper = context.Process(target=release.wait)
        sleeper.start()
        # Closing without unlocking is what the system does for a process that dies.
        for descriptor in list(lock._held):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        other = DiskStore(tmp_path / "s", lock_timeout=5)
        with other.writing():
            other.append([document("a")])
    release.set()
    sleeper.join()
    assert len(read_torn(tmp_path / "s")) == 1


def test_two_processes_that_create_at_once_make_one_store(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for round_number in range(5):
        path = tmp_path / str(round_number)
        barrier, ids = context.Barrier(4), context.Queue()

        def create(path: Path = path, barrier: Any = barrier, ids: Any = ids) -> None:
            barrier.wait()
            store = open_store(path)
            commit(store, document("x"))
            ids.put(store.store_id)

        workers = [context.Process(target=create) for _ in range(4)]
        for worker in workers:
            worker.start()
        found = {ids.get(timeout=30) for _ in workers}
        for worker in workers:
            worker.join()
        assert len(found) == 1
        assert [entry.row_id for entry in read(path)[0]] == [0, 1, 2, 3]


def test_numpy_rows_of_a_batch_are_copied(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s")
    commit(store, document("a"))
    with store.writing():
        store.vectors("e", 4).append(batch(0, 1))
    (found,) = store.vectors("e", 4).refresh()
    assert found.vectors.flags.writeable
    assert np.array_equal(found.vectors, batch(0, 1).vectors)


def test_a_child_forked_while_another_thread_was_inside_says_so(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s")
    commit(store, document("a"))
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with store._guard:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()

    def child() -> None:
        with pytest.raises(errors.StoreError, match="forked while another thread"):
            store.refresh()
        assert len(read(tmp_path / "s")[0]) == 1

    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of every fork beside a thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            assert run_forked(child) == 0
    finally:
        leave.set()
        thread.join()
    store.refresh()


def test_a_child_that_leaves_writing_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s", seal_bytes=1)

    def both_leave() -> int:
        with store.writing():
            store.append([document("parent")])
            child = os.fork()
            if child:
                # The child has left when it is gone; the lock must still be held here.
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                other = DiskStore(tmp_path / "s", lock_timeout=0.05)
                with pytest.raises(errors.StoreLockedError), other.writing():
                    pass
                return code
        return -1

    parent = os.getpid()
    try:
        result = both_leave()
    except BaseException:
        if os.getpid() != parent:
            os._exit(1)
        raise
    if os.getpid() != parent:
        os._exit(0 if result == -1 else 1)
    assert result == 0
    assert len(list_segments(tmp_path / "s" / "log")) == 1


def test_a_child_forked_beside_a_writing_thread_waits_for_the_lock_only(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s", lock_timeout=0.05)
    inside, leave = threading.Event(), threading.Event()

    def write() -> None:
        with store.writing():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=write)
    thread.start()
    inside.wait()
    parent = os.getpid()

    def child() -> None:
        with pytest.raises(errors.StoreLockedError, match=f"by process {parent} on"), store.writing():
            pass

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            assert run_forked(child) == 0
    finally:
        leave.set()
        thread.join()


@pytest.mark.parametrize(
    ("place", "changes", "message"),
    [
        (1, {"row_id": 5}, "row ids are not dense"),
        (0, {"sequence": 1}, "not numbered 0 to 2"),
        (1, {"ingested_at": 1}, "stamps do not increase"),
        (2, {"ingested_at": 1 << 60}, "last row is not the one"),
        (2, {"kind": "retract"}, "last row is not the one"),
    ],
)
def test_rows_of_a_segment_that_do_not_fit_are_damage(
    tmp_path: Path, place: int, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "s"
    store = DiskStore(path, seal_bytes=1)
    entries = commit(store, document("a"), document("b"), document("c"))
    entries[place] = dataclasses.replace(entries[place], **changes)
    (segment,) = (path / "log").iterdir()
    data = encode_segment(store._log._codec, entries, start_position(store.store_id), store._log.position)
    segment.write_bytes(data)
    with pytest.raises(errors.StoreDamagedError, match=message):
        read(path)


def test_an_unknown_kind_in_a_segment_needs_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = DiskStore(path, seal_bytes=1)
    entries = commit(store, document("a"))
    (segment,) = (path / "log").iterdir()
    entries = [dataclasses.replace(entries[0], kind="forget")]
    segment.write_bytes(encode_segment(store._log._codec, entries, start_position(store.store_id), store._log.position))
    with pytest.raises(errors.StoreVersionError, match="'forget'"):
        read(path)
