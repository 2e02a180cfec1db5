"""verify_store: a sound store is clean, every kind of damage is named with its file and its part of the record."""

from __future__ import annotations

import json
import multiprocessing
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from storage_tools import batch, commit, document, read

from mempp import errors
from mempp.storage import (
    DiskStore,
    Entry,
    MemoryStore,
    Problem,
    VectorBatch,
    VerifyReport,
    files,
    survey,
    verify_store,
)
from mempp.storage.entries import Position, canonical_bytes, chain, start_position
from mempp.storage.frames import Frame, decode_frame, encode_frame
from mempp.storage.segments import encode_segment, list_segments


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_FIRST_PAUSE", 0)


def build(path: Path) -> list[Entry]:
    """Four segments of three documents and a retraction each, a journal with three commits, vectors of all but one."""
    store = DiskStore(path, seal_bytes=1)
    written: list[Entry] = []
    for number in range(4):
        texts = [document(f"{number} {place} " * 5, authors=("a",), tags=("t",)) for place in "abc"]
        written += commit(store, *texts, Entry("retract", row_id=3 * number))
        with store.writing():
            store.vectors("e", 4).append(batch(store.row_count - 3, 3))
    store.seal_bytes = 1 << 20
    for text in ("x", "y", "z"):
        written += commit(store, document(text))
        if text != "z":
            with store.writing():
                store.vectors("e", 4).append(batch(store.row_count - 1, 1))
    store.close()
    return written


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, list[Entry]]:
    written = build(tmp_path / "s")
    return tmp_path / "s", written


def segment(path: Path, number: int) -> Path:
    return sorted((path / "log").glob("*.parquet"))[number]


def journal(path: Path) -> Path:
    return max((path / "journal").glob("*.journal"))


def only(report: VerifyReport) -> Problem:
    assert len(report.problems) == 1, report.problems
    assert not report.ok
    return report.problems[0]


def reached(problem: Problem) -> tuple[int | None, ...]:
    return problem.first_sequence, problem.last_sequence, problem.first_row, problem.last_row


def rewrite(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


# --- sound stores -------------------------------------------------------------------------------------------------


def test_a_sound_store_is_clean_and_its_chain_is_the_one_computed_by_hand(store: tuple[Path, list[Entry]]) -> None:
    path, written = store
    report = verify_store(path)
    digest = start_position(report.store_id).digest
    for entry in written:
        digest = chain(digest, canonical_bytes(entry))
    assert (report.entries, report.rows, report.commits) == (19, 15, 7)
    assert report.head_digest == digest.hex() == read(path)[1]
    assert report.ok
    assert report.notes == ()
    assert report.vectors == {"e": 14}
    assert json.loads(json.dumps(report.as_dict()))["ok"] is True


def test_an_empty_store_is_clean(tmp_path: Path) -> None:
    DiskStore(tmp_path / "s")
    report = verify_store(tmp_path / "s")
    assert report.ok
    assert (report.entries, report.rows, report.commits) == (0, 0, 0)
    assert report.head_digest == start_position(report.store_id).digest.hex()


def test_an_expected_digest_is_found_at_every_point_and_no_other_is(store: tuple[Path, list[Entry]]) -> None:
    path, written = store
    digest = start_position(verify_store(path).store_id).digest
    for number, entry in enumerate([None, *written]):
        digest = digest if entry is None else chain(digest, canonical_bytes(entry))
        report = verify_store(path, expect=digest.hex().upper() if number % 2 else digest.hex())
        assert report.ok
        assert report.expected_at == number
    assert verify_store(path).expected_at is None
    report = verify_store(path, expect="0" * 64)
    assert report.expected_at is None
    assert "never had the expected digest" in only(report).what
    for wrong in ("", "0" * 63, "g" * 64, digest.hex()[:16], 7):
        with pytest.raises(errors.InputError, match="no digest"):
            verify_store(path, expect=wrong)  # type: ignore[arg-type]


def test_only_an_expected_digest_shows_that_the_end_was_cut_off(store: tuple[Path, list[Entry]]) -> None:
    path, _ = store
    head = verify_store(path).head_digest
    data = journal(path).read_bytes()
    first = decode_frame(data, 0)
    assert first is not None
    journal(path).write_bytes(data[: first.size])
    shutil.rmtree(path / "vectors")
    assert verify_store(path).ok
    assert "cut off" in only(verify_store(path, expect=head)).what


def test_what_is_no_store_raises(tmp_path: Path) -> None:
    with pytest.raises(errors.NotAStoreError):
        verify_store(tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    with pytest.raises(errors.NotAStoreError):
        verify_store(tmp_path / "file")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_store_in_memory_tells_what_it_can() -> None:
    memory = MemoryStore()
    start = memory.head_digest
    commit(memory, document("a"), document("b"))
    report = verify_store(memory, expect=memory.head_digest)
    assert (report.ok, report.entries, report.rows, report.expected_at) == (True, 2, 2, 2)
    assert "recomputed" in report.notes[0]
    assert verify_store(memory, expect=start).expected_at == 0
    earlier = memory.head_digest
    commit(memory, document("c"))
    assert verify_store(memory, expect=earlier).expected_at == 2
    assert "never had" in only(verify_store(memory, expect="0" * 64)).what
    memory._entries[1] = replace(memory._entries[1], text="altered")
    assert "its entries have the digest" in only(verify_store(memory)).what


def test_it_writes_nothing(store: tuple[Path, list[Entry]], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("open_file", "write", "sync", "set_size", "rename", "remove", "make_directory"):
        monkeypatch.setattr(files, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
    assert verify_store(store[0]).ok


# --- notes: what is no damage -------------------------------------------------------------------------------------


def test_torn_ends_stale_journals_and_left_overs_are_notes(store: tuple[Path, list[Entry]]) -> None:
    path, written = store
    with open(journal(path), "ab") as file:
        file.write(b"torn")
    vectors = max((path / "vectors" / "e" / "journal").glob("*"))
    with open(vectors, "ab") as file:
        file.write(b"torn too")
    (path / "journal" / f"{0:020d}.journal").write_bytes(b"whatever it holds, it was sealed")
    (path / "journal" / f"{16:020d}.journal.torn-7").write_bytes(b"x")
    (path / "log" / "x.parquet.tmp").write_bytes(b"x")
    report = verify_store(path)
    assert report.ok
    assert report.entries == len(written)
    text = "\n".join(report.notes)
    for part in ("the last 4 bytes", "last 8 bytes", "stale journal", "set aside", "interrupted write"):
        assert part in text
    assert len(report.notes) == 5


# --- damage of the log --------------------------------------------------------------------------------------------


def test_a_missing_segment_is_named_with_what_it_held(store: tuple[Path, list[Entry]]) -> None:
    path, written = store
    segment(path, 1).unlink()
    report = verify_store(path)
    problem = only(report)
    assert "missing" in problem.what
    assert problem.file == f"log/{4:020d}-{7:020d}.parquet"
    assert reached(problem) == (4, 7, 3, 5)
    assert report.entries == len(written) - 4
    assert report.head_digest == read_head(store[1], report)


def read_head(written: list[Entry], report: VerifyReport) -> str:
    digest = start_position(report.store_id).digest
    for entry in written:
        digest = chain(digest, canonical_bytes(entry))
    return digest.hex()


def test_a_missing_journal_is_told(store: tuple[Path, list[Entry]]) -> None:
    path, _ = store
    journal(path).unlink()
    report = verify_store(path)
    assert any("the journal is missing" in one.what and one.file.startswith("journal/") for one in report.problems)


@pytest.mark.parametrize(
    ("size", "message"), [(0, "is empty"), (1, "cut short|begin"), (200, "cut short"), (-1, "cut short")]
)
def test_a_truncated_segment(store: tuple[Path, list[Entry]], size: int, message: str) -> None:
    path, _ = store
    data = segment(path, 2).read_bytes()
    segment(path, 2).write_bytes(data[:size])
    problem = only(verify_store(path))
    assert problem.file == f"log/{segment(path, 2).name}"
    assert re.search(message, problem.what), problem.what
    assert reached(problem) == (8, 11, 6, 8)


def test_overwritten_segments(store: tuple[Path, list[Entry]]) -> None:
    path, _ = store
    size = segment(path, 2).stat().st_size
    segment(path, 2).write_bytes(b"\0" * size)
    assert "zeros" in only(verify_store(path)).what
    segment(path, 2).write_bytes(b"hello" * 100)
    assert "overwritten or replaced" in only(verify_store(path)).what


def test_exchanged_segments_are_both_named(store: tuple[Path, list[Entry]]) -> None:
    path, _ = store
    first, second = segment(path, 1), segment(path, 2)
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    report = verify_store(path)
    assert [problem.file for problem in report.problems] == [f"log/{first.name}", f"log/{second.name}"]
    assert all("exchanged or renamed" in problem.what for problem in report.problems)


def test_a_segment_of_another_store(store: tuple[Path, list[Entry]], tmp_path: Path) -> None:
    path, _ = store
    build(tmp_path / "other")
    shutil.copy(segment(tmp_path / "other", 1), segment(path, 1))
    problem = only(verify_store(path))
    assert "another store" in problem.what
    assert reached(problem) == (4, 7, 3, 5)


def forge(path: Path, number: int, change: Any, *, keep_digest: bool) -> None:
    """Rewrite a segment with other texts, right checksums, and the old digest or the one that fits."""
    store = DiskStore(path, read_only=True)
    entries = store.refresh()
    codec = store._log._codec
    name = list_segments(path / "log")[number]
    earlier, start = entries[: name.first], start_position(store.store_id)
    rows = sum(entry.kind == "document" for entry in earlier)
    stamp = earlier[-1].ingested_at if earlier else -1
    before = Position(name.first, rows, stamp, codec.digest_after(earlier, start.digest))
    inside = entries[name.first : name.last + 1]
    altered = [change(entry) for entry in inside]
    digest = codec.digest_after(inside if keep_digest else altered, before.digest)
    rows = sum(entry.kind == "document" for entry in inside)
    after = Position(name.last + 1, before.row + rows, inside[-1].ingested_at, digest)
    (path / "log" / str(name)).write_bytes(encode_segment(codec, altered, before, after))


def test_altered_content_under_right_checksums_breaks_the_chain(store: tuple[Path, list[Entry]]) -> None:
    path, written = store
    forge(path, 1, lambda entry: replace(entry, text="forged") if entry.text else entry, keep_digest=True)
    problem = only(verify_store(path))
    assert "content was altered" in problem.what
    assert reached(problem) == (4, 7, 3, 5)
    # a forger who computes the digest anew is found by the next segment
    forge_path = path.with_name("second")
    build(forge_path)
    forge(forge_path, 1, lambda entry: replace(entry, text="forged") if entry.text else entry, keep_digest=False)
    assert "another log" in verify_store(forge_path).problems[-1].what  # the vectors noticed, too
    shutil.rmtree(forge_path / "vectors")
    problem = only(verify_store(forge_path))
    assert "does not continue" in problem.what
    assert problem.file == f"log/{segment(forge_path, 2).name}"
    assert verify_store(path).entries == len(written) - 4


def test_a_damaged_row_group_is_named_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mempp.storage.entry_codec.GROUP_ROWS", 4)
    store = DiskStore(tmp_path / "s", seal_bytes=1)
    commit(store, *(document(f"text {number}") for number in range(10)), Entry("retract", row_id=2))
    path = segment(tmp_path / "s", 0)
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(5)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 1
    path.write_bytes(data)
    report = verify_store(tmp_path / "s")
    problem = only(report)
    assert "row group 1 is damaged" in problem.what
    assert reached(problem) == (4, 7, 4, 7)
    assert report.entries == 7


def test_everything_wrong_is_told_at_once(store: tuple[Path, list[Entry]]) -> None:
    path, _ = store
    segment(path, 3).unlink()
    segment(path, 1).write_bytes(segment(path, 1).read_bytes()[:-3])
    data = bytearray(journal(path).read_bytes())
    data[85] ^= 1
    journal(path).write_bytes(data)
    shutil.rmtree(path / "vectors" / "e" / "journal")
    meta = path / "vectors" / "e" / "segments"
    sorted(meta.iterdir())[0].write_bytes(b"PAR1")
    report = verify_store(path)
    assert [problem.file.split("/")[0] for problem in report.problems] == ["vectors", "log", "log", "journal"]
    assert {problem.first_sequence for problem in report.problems} == {None, 4, 12, 16}


def test_frames_missing_doubled_and_exchanged(store: tuple[Path, list[Entry]]) -> None:
    path, _ = store
    data = journal(path).read_bytes()
    frames: list[Frame] = []
    place = 0
    while place < len(data):
        frame = decode_frame(data, place)
        assert frame is not None
        frames.append(frame)
        place += frame.size
    first, second, third = map(encode_frame, frames)
    for content, message, sequences in (
        (first + third, "missing", (17, 17)),
        (second + third, "missing", (16, 16)),
        (first + first + second + third, "out of order", (None, None)),
        (first + third + second, "missing|out of order", None),
        (first + b"x" * len(second) + third, "no whole commit", (17, 17)),
    ):
        journal(path).write_bytes(content)
        report = verify_store(path)
        assert not report.ok
        assert re.search(message, report.problems[0].what), report.problems
        assert all(problem.file == f"journal/{journal(path).name}" for problem in report.problems)
        if sequences is not None:
            assert (report.problems[0].first_sequence, report.problems[0].last_sequence) == sequences


def test_every_sampled_bit_flip_is_told_or_harmless(store: tuple[Path, list[Entry]]) -> None:
    path, written = store
    chooser = random.Random(3)
    targets = [segment(path, 1), journal(path), path / "store.json"]
    targets += [sorted((path / "vectors" / "e" / "segments").iterdir())[1], path / "vectors" / "e" / "meta.json"]
    for target in targets:
        whole = target.read_bytes()
        told = 0
        for place in chooser.sample(range(len(whole) * 8), 60):
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            target.write_bytes(flipped)
            try:
                report = verify_store(path)
            except errors.StoreError:
                told += 1
                continue
            if report.ok and not report.notes:
                assert read(path)[0] == written
            else:
                told += 1
                named = [problem.file for problem in report.problems] + [note.split(":")[0] for note in report.notes]
                assert str(target.relative_to(path)) in named, (named, target)
        assert told > 15
        target.write_bytes(whole)
    assert verify_store(path).ok


def test_damage_of_store_json(store: tuple[Path, list[Entry]]) -> None:
    path, written = store
    (path / "store.json").unlink()
    report = verify_store(path)
    assert only(report).file == "store.json"
    assert report.entries == len(written)
    (path / "store.json").write_text("{")
    assert "unreadable" in only(verify_store(path)).what
    shutil.rmtree(path / "log")
    report = verify_store(path)
    assert not report.ok
    assert report.entries == 0


def test_a_bogus_name_hides_nothing_else(store: tuple[Path, list[Entry]]) -> None:
    path, written = store
    (path / "log" / f"{4:020d}-{99_999:020d}.parquet").write_bytes(b"PAR1 nothing PAR1")
    report = verify_store(path)
    assert only(report).first_sequence is None
    assert report.entries == len(written)


# --- vectors ------------------------------------------------------------------------------------------------------


def vector_problem(path: Path) -> Problem:
    problem = only(verify_store(path))
    assert problem.file.startswith("vectors/e/")
    assert problem.first_sequence is None
    return problem


def test_vectors_of_rows_that_do_not_exist_and_of_another_log(store: tuple[Path, list[Entry]], tmp_path: Path) -> None:
    path, _ = store
    other = tmp_path / "other"
    build(other)
    vectors = path / "vectors" / "e"
    place = max((vectors / "journal").iterdir())
    whole = place.read_bytes()
    foreign = max((other / "vectors" / "e" / "journal").iterdir()).read_bytes()
    place.write_bytes(foreign)
    assert "another log" in verify_store(path).problems[0].what
    frame = decode_frame(whole, 0)
    assert frame is not None
    body = bytearray(frame.body)
    body[44:52] = (99).to_bytes(8, "little")
    place.write_bytes(encode_frame(Frame(frame.content, frame.count, frame.first_sequence, 0, bytes(32), bytes(body))))
    assert "row 99, and the log has 15 rows" in vector_problem(path).what
    body = bytearray(frame.body)
    body[-4:] = np.float32("nan").tobytes()
    place.write_bytes(encode_frame(Frame(frame.content, frame.count, frame.first_sequence, 0, bytes(32), bytes(body))))
    assert "not finite" in vector_problem(path).what


def test_missing_and_damaged_files_of_vectors(store: tuple[Path, list[Entry]]) -> None:
    path, _ = store
    vectors = path / "vectors" / "e"
    saved = path.with_name("saved")
    shutil.copytree(vectors, saved)

    def again() -> None:
        shutil.rmtree(vectors)
        shutil.copytree(saved, vectors)

    sorted((vectors / "segments").iterdir())[1].unlink()
    assert "3 to 5 is missing" in vector_problem(path).what
    again()
    (vectors / "meta.json").unlink()
    assert "missing" in vector_problem(path).what
    again()
    (vectors / "meta.json").write_text(
        (vectors / "meta.json").read_text().replace('"dimensions": 4', '"dimensions": 5')
    )
    assert {problem.file.split("/")[0] for problem in verify_store(path).problems} == {"vectors"}
    again()
    data = bytearray(max((vectors / "journal").iterdir()).read_bytes())
    data[90] ^= 1
    max((vectors / "journal").iterdir()).write_bytes(data)
    assert "embedded again" in vector_problem(path).what
    again()
    assert verify_store(path).ok


def test_vectors_ahead_of_a_log_that_was_cut_are_told(store: tuple[Path, list[Entry]]) -> None:
    path, _ = store
    data = journal(path).read_bytes()
    first = decode_frame(data, 0)
    assert first is not None
    journal(path).write_bytes(data[: first.size])
    problem = only(verify_store(path))
    assert "vectors speak of a log of 18 entries, and this one has 17: its end was cut off" in problem.what


# --- beside writers -----------------------------------------------------------------------------------------------


def keep_writing(path: Path, stop: Any) -> None:
    store = DiskStore(path, seal_bytes=3000)
    store.refresh()
    vectors = store.vectors("e", 4)
    vectors.refresh()
    number = 0
    while not stop.is_set():
        with store.writing():
            new = store.append([document(f"text {number} " * 20), Entry("retract", row_id=0)])
            assert new[0].row_id is not None
            vectors.append(VectorBatch(np.array([new[0].row_id]), np.zeros(1, np.int32), np.ones((1, 4), np.float32)))
        number += 1


def test_beside_a_writer_a_prefix_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "s"
    DiskStore(path)
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    writer = context.Process(target=keep_writing, args=(path, stop))
    writer.start()
    try:
        before = heads = 0
        while before < 300:
            report = verify_store(path)
            assert report.ok, report.problems
            assert report.entries >= before
            assert report.entries % 2 == 0
            assert report.entries == 2 * report.rows
            heads += report.entries > before
            before = report.entries
            assert writer.is_alive()
        assert heads > 3
    finally:
        stop.set()
        writer.join(30)
    assert writer.exitcode == 0
    assert verify_store(path).ok
