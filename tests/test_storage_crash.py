"""Torn ends, damage, faults and crashes: what was acknowledged is there, all else is whole, absent or an error."""

from __future__ import annotations

import errno
import logging
import random
import re
import shutil
import warnings
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from storage_tools import ERRORS, Crash, Faults, batch, commit, document, read, read_torn

from mempp import errors
from mempp.storage import DiskStore, Entry, TornTailWarning, files, series
from mempp.storage.frames import HEADER_SIZE, Frame, encode_frame
from mempp.storage.segments import list_segments


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes beside these readers: what does not fit will not settle."""
    monkeypatch.setattr(series, "_FIRST_PAUSE", 0)


def journal_of(path: Path) -> Path:
    return max((path / "journal").glob("*.journal"))


def three_commits(path: Path) -> tuple[list[list[Entry]], list[int]]:
    """Three commits in one journal, and where each frame ends."""
    store = DiskStore(path)
    commits, ends = [], []
    for entries in ([document("a"), document("b")], [document("c " * 20)], [document("d"), Entry("retract", row_id=0)]):
        commits.append(commit(store, *entries))
        ends.append(journal_of(path).stat().st_size)
    return commits, ends


# --- torn ends ----------------------------------------------------------------------------------------------------


def test_the_journal_cut_at_every_byte_of_its_last_frame(tmp_path: Path) -> None:
    path = tmp_path / "s"
    commits, ends = three_commits(path)
    whole = journal_of(path).read_bytes()
    before = commits[0] + commits[1]
    for length in range(ends[1], ends[2]):
        journal_of(path).write_bytes(whole[:length])
        torn = length - ends[1]
        assert read_torn(path) == before
        store = DiskStore(path)
        if torn:
            with pytest.warns(TornTailWarning, match=f"{torn} bytes") as caught, store.writing() as entries:
                new = store.append([document("new")])
            aside = path / "journal" / f"{journal_of(path).name}.torn-{ends[1]}"
            assert len(caught) == 1
            assert str(aside) in str(caught[0].message)
            assert aside.read_bytes() == whole[ends[1] : length]
            aside.unlink()
        else:
            with store.writing() as entries:
                new = store.append([document("new")])
        assert entries == before
        assert new[0].row_id == 3
        assert read(path)[0] == before + new


def test_bytes_set_aside_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "s"
    _, ends = three_commits(path)
    for tail in (b"one", b"two", b"three"):
        with open(journal_of(path), "ab") as file:
            file.write(tail)
        with pytest.warns(TornTailWarning):
            commit(DiskStore(path))
    kept = sorted((path / "journal").glob("*.torn-*"))
    assert [file.name.split(".torn-")[1] for file in kept] == [f"{ends[2]}", f"{ends[2]}-1", f"{ends[2]}-2"]
    assert [file.read_bytes() for file in kept] == [b"one", b"two", b"three"]


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\x93M++FRM\n", b"\x93M++FRM\n" * 50, b"\xff" * 79, b"\n"])
def test_any_rubbish_at_the_end_is_torn(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "s"
    commits, ends = three_commits(path)
    with open(journal_of(path), "ab") as file:
        file.write(tail)
    store = DiskStore(path)
    with pytest.warns(TornTailWarning, match=f"{len(tail)} bytes"):
        assert store.refresh() == list(chain.from_iterable(commits))
    with pytest.warns(TornTailWarning), store.writing():
        pass
    assert journal_of(path).stat().st_size == ends[2]


def test_a_warning_that_is_an_error_loses_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "s"
    commits, _ = three_commits(path)
    with open(journal_of(path), "ab") as file:
        file.write(b"torn")
    store = DiskStore(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TornTailWarning), store.writing():
            pass
    with store.writing() as entries:
        assert entries == list(chain.from_iterable(commits))


# --- damage -------------------------------------------------------------------------------------------------------


def test_every_bit_flip_in_a_journal_is_damage_or_in_its_last_frame(tmp_path: Path) -> None:
    path = tmp_path / "s"
    commits, ends = three_commits(path)
    journal = journal_of(path)
    whole = journal.read_bytes()
    chooser = random.Random(1)
    for place in sorted(chooser.sample(range(len(whole) * 8), 250)):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        journal.write_bytes(flipped)
        if place // 8 < ends[1]:
            start = 0 if place // 8 < ends[0] else ends[0]
            with pytest.raises(errors.StoreDamagedError, match=rf"{journal.name} is damaged at byte {start}:"):
                DiskStore(path, read_only=True).refresh()
            with pytest.raises(errors.StoreDamagedError), DiskStore(path).writing():
                pass
            assert journal.read_bytes() == flipped
        else:
            with pytest.warns(TornTailWarning):
                assert DiskStore(path, read_only=True).refresh() == commits[0] + commits[1]


def reframe(path: Path, **changes: Any) -> None:
    """Append a frame with right checksums that does not fit."""
    store = DiskStore(path)
    store.refresh()
    position = store._log.position
    fields: dict[str, Any] = {
        "content": 1,
        "count": 1,
        "first_sequence": position.sequence,
        "stamp": position.stamp + 1,
        "digest": bytes(32),
        "body": b"{}",
    }
    with open(journal_of(path), "ab") as file:
        file.write(encode_frame(Frame(**{**fields, **changes})))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_sequence": 0}, "sequence 0 where 5 is next"),
        ({"first_sequence": 9}, "sequence 9 where 5 is next"),
        ({"stamp": 5}, "stamp 5 does not follow"),
        ({"count": 2}, "1 entries where its header tells 2"),
        ({"content": 2}, "no entries"),
        ({"body": b"[]"}, "unreadable"),
        ({"body": b"\xff"}, "unreadable"),
        ({"body": b'{"kind":"document"}'}, "lacks"),
        ({"body": b'{"kind":"document","sequence":"5","ingested_at":1}'}, "sequence has the wrong type"),
        ({"body": b'{"ingested_at":1,"kind":"document","sequence":5,"text":"x"}'}, "another sequence or stamp"),
    ],
)
def test_a_whole_frame_that_does_not_fit_is_damage(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "s"
    three_commits(path)
    reframe(path, **changes)
    with pytest.raises(errors.StoreDamagedError, match=message):
        DiskStore(path, read_only=True).refresh()


def test_frames_and_entries_of_a_newer_version_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for body in (b'{"kind":"forget","sequence":5}', b'{"kind":"document","sequence":5,"ingested_at":9,"colour":"red"}'):
        path = tmp_path / str(len(body))
        three_commits(path)
        reframe(path, body=body)
        with pytest.raises(errors.StoreVersionError):
            DiskStore(path, read_only=True).refresh()
    path = tmp_path / "frame"
    three_commits(path)
    with monkeypatch.context() as patch:
        patch.setattr("mempp.storage.frames.FORMAT", 2)
        with open(journal_of(path), "ab") as file:
            file.write(encode_frame(Frame(1, 1, 5, 0, bytes(32), b"{}")))
    for store in (DiskStore(path, read_only=True), DiskStore(path)):
        with pytest.raises(errors.StoreVersionError, match="format 2"):
            store.refresh()
    path = tmp_path / "segment"
    with monkeypatch.context() as patch:
        patch.setattr("mempp.storage.segments.FORMAT", 2)
        commit(DiskStore(path, seal_bytes=1), document("a"))
    with pytest.raises(errors.StoreVersionError, match="format 2"):
        DiskStore(path).refresh()


def sealed_store(path: Path) -> list[Entry]:
    """Four segments, one of three documents each, and a journal with one more."""
    store = DiskStore(path, seal_bytes=1)
    written: list[Entry] = []
    for number in range(4):
        written += commit(store, *(document(f"{number} {place} " * 5, authors=("a",), tags=("t",)) for place in "abc"))
        with store.writing():
            store.vectors("e", 4).append(batch(store.row_count - 3, 3))
    store.seal_bytes = 1 << 20
    written += commit(store, document("last"))
    assert len(list_segments(path / "log")) == 4
    return written


def test_sampled_bit_flips_in_a_segment_are_noticed_or_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written = sealed_store(path)
    segment = sorted((path / "log").iterdir())[1]
    whole = segment.read_bytes()
    chooser = random.Random(2)
    noticed: list[str] = []
    for place in chooser.sample(range(len(whole) * 8), 300):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        segment.write_bytes(flipped)
        try:
            found = read(path)[0]
        except errors.StoreError as error:
            noticed.append(str(error))
        else:
            assert found == written
    assert len(noticed) > 100
    assert all(segment.name in message for message in noticed)


def damaged(path: Path, match: str) -> None:
    with pytest.raises(errors.StoreDamagedError, match=match):
        DiskStore(path, read_only=True).refresh()
    with pytest.raises(errors.StoreDamagedError, match=match), DiskStore(path).writing():
        pass


def test_missing_truncated_exchanged_and_foreign_files_are_damage(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    sealed_store(origin)
    foreign = tmp_path / "foreign"
    sealed_store(foreign)
    names = [file.name for file in sorted((origin / "log").iterdir())]
    live = journal_of(origin).name

    def copy(name: str) -> Path:
        shutil.copytree(origin, tmp_path / name)
        return tmp_path / name

    path = copy("missing in the middle")
    (path / "log" / names[1]).unlink()
    damaged(path, rf"begins at sequence 3 is missing.*{names[2]}")

    path = copy("missing at the end")
    (path / "log" / names[3]).unlink()
    damaged(path, rf"journal {re.escape(str(path))}/journal/{9:020d}\.journal is missing")

    path = copy("missing journal")
    (path / "journal" / live).unlink()
    damaged(path, rf"{live} is missing")

    path = copy("all segments missing")
    shutil.rmtree(path / "log")
    damaged(path, "missing")

    for size in (0, 1, 100, (origin / "log" / names[2]).stat().st_size - 1):
        path = copy(f"truncated to {size}")
        with open(path / "log" / names[2], "r+b") as file:
            file.truncate(size)
        damaged(path, rf"{names[2]} is damaged")

    path = copy("foreign segment")
    shutil.copy(foreign / "log" / names[1], path / "log" / names[1])
    damaged(path, rf"{names[1]} is damaged: it belongs to another store")

    path = copy("foreign journal")
    shutil.copy(foreign / "journal" / live, path / "journal" / live)
    damaged(path, rf"{live} is damaged at byte 0: its digest does not continue")

    path = copy("renamed segment")
    shutil.copy(path / "log" / names[1], path / "log" / names[2])
    damaged(path, rf"{names[2]} is damaged: its footer tells the sequences 3 to 5")

    path = copy("a vector segment among the entries")
    shutil.copy(next((path / "vectors" / "e" / "segments").iterdir()), path / "log" / names[0])
    damaged(path, r"holds 'vectors' where 'entries' belong")


def test_a_segment_rewritten_with_other_content_breaks_the_links(tmp_path: Path) -> None:
    """The same store id and numbers, and yet another text: the next digest tells."""
    path = tmp_path / "s"
    store = DiskStore(path, seal_bytes=1 << 20)
    shutil.copytree(path, tmp_path / "forged")
    for place, text in ((path, "paid 10"), (tmp_path / "forged", "paid 99")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mempp.storage.disk.now", lambda: 5)
            store = DiskStore(place, seal_bytes=1)
            commit(store, document(text))
        commit(store, document("later"))
    name = str(list_segments(path / "log")[0])
    shutil.copy(tmp_path / "forged" / "log" / name, path / "log" / name)
    damaged(path, "its digest before the first entry is")


def test_an_old_journal_that_ends_early_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    _, ends = three_commits(path)
    old = journal_of(path)
    store = DiskStore(path, seal_bytes=1)
    with monkeypatch.context() as patch:
        patch.setattr("mempp.storage.series.Series._convert", lambda *_: None)
        commit(store)
        store.seal_bytes = 1 << 20
        commit(store, document("in the next journal"))
    whole = old.read_bytes()
    for length in (0, ends[0], ends[1], ends[1] + 10, ends[2] - 1):
        old.write_bytes(whole[:length])
        damaged(path, rf"{old.name} is damaged at byte")
        assert old.stat().st_size == length


def test_damage_keeps_a_follower_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "s"
    three_commits(path)
    follower = DiskStore(path, read_only=True)
    assert len(follower.refresh()) == 5
    digest = follower.head_digest
    with open(journal_of(path), "r+b") as file:
        file.truncate(100)
    with pytest.raises(errors.StoreDamagedError, match="become shorter"):
        follower.refresh()
    assert follower.head_digest == digest


# --- vectors are derived ------------------------------------------------------------------------------------------


def vectors_in(path: Path) -> list[int]:
    store = DiskStore(path, read_only=True)
    store.refresh()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornTailWarning)
        return [int(row) for one in store.vectors("e", 4).refresh() for row in one.row_ids]


def test_a_bad_vector_journal_is_cut_at_its_first_bad_frame(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = DiskStore(path)
    commit(store, *(document(str(number)) for number in range(12)))
    vectors = store.vectors("e", 4)
    for first in (0, 3, 6):
        with store.writing():
            vectors.append(batch(first, 3))
    journal = journal_of(path / "vectors" / "e")
    whole = journal.read_bytes()
    size = len(whole) // 3
    for place in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[place] ^= 0x10
        journal.write_bytes(flipped)
        left = list(range(place // size * 3))
        assert vectors_in(path) == left
        writer = DiskStore(path)
        with writer.writing():
            found = writer.vectors("e", 4)
            assert [int(row) for one in found.refresh() for row in one.row_ids] == left
            with pytest.warns(TornTailWarning, match="embedded again"):
                found.append(batch(9, 2))
        assert vectors_in(path) == [*left, 9, 10]


def test_vectors_ahead_of_a_log_that_lost_its_end_are_cut(tmp_path: Path) -> None:
    """Not possible while every commit is fsynced; a copy taken file by file can bring it about."""
    path = tmp_path / "s"
    store = DiskStore(path)
    commit(store, document("a"))
    size = journal_of(path).stat().st_size
    vectors = store.vectors("e", 4)
    with store.writing():
        vectors.append(batch(0, 1))
        store.append([document("b")])
        vectors.append(batch(1, 1))
    with open(journal_of(path), "r+b") as file:
        file.truncate(size)
    assert vectors_in(path) == [0]
    store = DiskStore(path)
    commit(store, document("another b"))
    with store.writing(), pytest.warns(TornTailWarning):
        store.vectors("e", 4).append(VectorsOfRowOne)
    found = DiskStore(path, read_only=True)
    found.refresh()
    assert [one.vectors.tolist() for one in found.vectors("e", 4).refresh()] == [
        batch(0, 1).vectors.tolist(),
        VectorsOfRowOne.vectors.tolist(),
    ]


VectorsOfRowOne = batch(1, 1)
np.negative(VectorsOfRowOne.vectors, out=VectorsOfRowOne.vectors)


def test_damage_in_a_vector_segment_is_an_error_and_removal_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sealed_store(path)
    segment = sorted((path / "vectors" / "e" / "segments").iterdir())[1]
    data = bytearray(segment.read_bytes())
    column = pq.ParquetFile(segment).metadata.row_group(0).column(2)
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    segment.write_bytes(data)
    store = DiskStore(path)
    store.refresh()
    with pytest.raises(errors.StoreDamagedError, match=segment.name):
        store.vectors("e", 4).refresh()
    shutil.rmtree(path / "vectors" / "e")
    vectors = store.vectors("e", 4)
    with store.writing():
        assert vectors.refresh() == []
        vectors.append(batch(0, 13))
    assert vectors_in(path) == list(range(13))


def test_vectors_of_another_encoder_store_or_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sealed_store(path)
    store = DiskStore(path)
    with pytest.raises(errors.EncoderMismatchError, match="4 dimensions"):
        store.vectors("e", 5)
    meta = path / "vectors" / "e" / "meta.json"
    text = meta.read_text()
    for old, new, kind in (
        ('"identity": "e"', '"identity": "f"', errors.EncoderMismatchError),
        ('"version": 1', '"version": 2', errors.StoreVersionError),
        (store.store_id, "0" * 32, errors.StoreDamagedError),
        ("{", "", errors.StoreDamagedError),
    ):
        meta.write_text(text.replace(old, new))
        with pytest.raises(kind):
            store.vectors("e", 4)


# --- faults of the file system ------------------------------------------------------------------------------------


class Scenario:
    """A writer's life with several sealings, of log and vectors; it remembers what was acknowledged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged: list[Entry] = []
        self.refused: list[errors.MemppError] = []

    def run(self) -> None:
        store: DiskStore | None = None
        for number in range(5):
            try:
                store = store or DiskStore(self.path, seal_bytes=900)
                entries = [document(f"{number} {'x' * 200}"), document(f"{number} second")]
                with store.writing() as others:
                    assert others == [] or self.refused
                    appended = store.append(entries)
                    self.acknowledged += appended
                    rows = [entry.row_id for entry in appended if entry.row_id is not None]
                    store.vectors("e", 60).append(batch(rows[0], len(rows), 60))
            except errors.MemppError as error:
                self.refused.append(error)

    def check(self) -> list[Entry]:
        """What is on disk: every acknowledged entry, and whole commits of two only; a writer goes on from there."""
        entries = read_torn(self.path)
        by_sequence = {entry.sequence: entry for entry in entries}
        assert [by_sequence.get(entry.sequence) for entry in self.acknowledged] == self.acknowledged
        assert [entry.sequence for entry in entries] == list(range(len(entries)))
        assert len(entries) % 2 == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornTailWarning)
            writer = DiskStore(self.path, seal_bytes=1)
            new = commit(writer, document("after"))
            with writer.writing():
                writer.vectors("e", 60).append(batch(0, 1, 60))
        assert read(self.path)[0] == entries + new
        assert not list(self.path.rglob("*.tmp"))
        assert len(list((self.path / "journal").glob("*.journal"))) == 1
        assert len(list((self.path / "vectors" / "e" / "journal").glob("*.journal"))) == 1
        reader = DiskStore(self.path, read_only=True)
        reader.refresh()
        for one in reader.vectors("e", 60).refresh():
            for row, vector in zip(one.row_ids, one.vectors, strict=True):
                assert row == 0 or vector[0] - int(row) / 8 in (0.0, 60.0 - 1 / 8)
        return entries


def count_calls(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    with monkeypatch.context() as patch:
        faults = Faults(patch, 1 << 30, None)
        scenario = Scenario(path)
        scenario.run()
    assert len(scenario.acknowledged) == 10
    assert len(list_segments(path / "log")) > 1
    assert scenario.check() == scenario.acknowledged
    return faults.calls


@pytest.mark.parametrize("name", ERRORS)
def test_a_fault_at_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    calls = count_calls(tmp_path / "count", monkeypatch)
    # Every call fails with one error; the others, which differ in their translation alone, at every ninth.
    for at in range(0, len(calls), 1 if name == "no space" else 9):
        scenario = Scenario(tmp_path / str(at))
        with monkeypatch.context() as patch:
            faults = Faults(patch, at, ERRORS[name])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TornTailWarning)
                scenario.run()
            assert faults.fired
        assert len(scenario.refused) <= 1, (calls[at], scenario.refused)
        for error in scenario.refused:
            expected = errors.StoreReadOnlyError if name in {"read-only", "no right"} else errors.StoreWriteError
            assert type(error) is expected, (calls[at], error)
        assert len(scenario.acknowledged) >= 8, calls[at]
        scenario.check()
        shutil.rmtree(scenario.path)


def test_a_crash_at_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the n-th call on nothing reaches the disk any more, as if the process had been killed there."""
    calls = count_calls(tmp_path / "count", monkeypatch)
    for at in range(len(calls)):
        scenario = Scenario(tmp_path / str(at))
        with monkeypatch.context() as patch:
            Faults(patch, at, None)
            with pytest.raises(Crash):
                scenario.run()
        if scenario.path.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TornTailWarning)
                commit(DiskStore(scenario.path))
            entries = scenario.check()
            assert len(entries) - len(scenario.acknowledged) in (0, 2), calls[at]
            shutil.rmtree(scenario.path)


def test_a_full_disk_for_good_refuses_every_commit_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    commits, _ = three_commits(path)
    store = DiskStore(path)
    real = files.write

    def full(descriptor: int, data: bytes | memoryview, offset: int) -> int:
        if len(data) > 40:
            return real(descriptor, data[:40], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        for _ in range(3):
            with pytest.raises(errors.StoreWriteError, match="No space left"):
                commit(store, document("x" * 500))
    assert commit(store, document("now"))[0].row_id == 5 - 1
    assert len(read(path)[0]) == len(list(chain.from_iterable(commits))) + 1


def test_a_failure_of_sealing_does_not_fail_the_commit_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    store = DiskStore(path, seal_bytes=1)
    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        with caplog.at_level(logging.WARNING, "mempp.storage"):
            written = commit(store, document("a")) + commit(store, document("b"))
    assert "sealing" in caplog.text
    assert list_segments(path / "log") == []
    assert read(path)[0] == written
    written += commit(store, document("c"))
    assert len(list_segments(path / "log")) == 3
    assert read(path)[0] == written


def test_the_order_of_calls_makes_every_commit_and_sealing_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    store = DiskStore(path, seal_bytes=1)
    commit(store, document("first"))
    with monkeypatch.context() as patch:
        faults = Faults(patch, 1 << 30, None)
        commit(store, document("second"))
    old, new, segment = f"{1:020d}.journal", f"{2:020d}.journal", f"{1:020d}-{1:020d}.parquet"
    assert [call for call in faults.calls if call[0] != "open_file"] == [
        ("write", old),
        ("sync", old),
        ("sync", "journal"),  # the first commit of a journal
        # acknowledged; sealing begins
        ("make_directory", "log"),
        ("make_directory", "journal"),
        ("sync", new),
        ("sync", "journal"),
        ("write", segment + ".tmp"),
        ("sync", segment + ".tmp"),
        ("rename", segment + ".tmp"),
        ("sync", "log"),
        ("remove", old),
        ("sync", "journal"),
    ]
    store.seal_bytes = 1 << 20
    commit(store, document("third"))
    with monkeypatch.context() as patch:
        faults = Faults(patch, 1 << 30, None)
        commit(store, document("fourth"))
    assert [call for call in faults.calls if call[0] != "open_file"] == [("write", new), ("sync", new)]


def test_creation_is_durable_before_it_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(monkeypatch, 1 << 30, None)
    DiskStore(tmp_path / "s")
    calls = [call for call in faults.calls if call[0] in {"sync", "rename"}]
    assert calls == [
        ("sync", f"{0:020d}.journal"),
        ("sync", "journal"),
        ("sync", "store.json.tmp"),
        ("sync", "s"),
        ("rename", "store.json.tmp"),
        ("sync", "s"),
        ("sync", tmp_path.name),
    ]


def test_the_header_is_80_bytes() -> None:
    assert HEADER_SIZE == 80
