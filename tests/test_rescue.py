"""allow_damaged: what is whole comes back as it was, wherever it stands; what is lost leaves a placeholder."""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from storage_tools import batch, commit, document, read

from mempp import errors
from mempp.storage import DOCUMENT, DamageWarning, DiskStore, Entry, MemoryStore, compact_store, series, survey
from mempp.storage.entries import start_position
from mempp.storage.entry_codec import EntryCodec
from mempp.storage.frames import decode_frame
from mempp.storage.rescue import _fill


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_FIRST_PAUSE", 0)
    monkeypatch.setattr(survey, "_FIRST_PAUSE", 0)


def build(path: Path) -> list[Entry]:
    """Four segments of two documents and a retraction each; a journal of three commits of one document each."""
    store = DiskStore(path, seal_bytes=1)
    written: list[Entry] = []
    for number in range(4):
        written += commit(store, document(f"{number} a " * 9), document(f"{number} b"), Entry("retract", row_id=number))
        with store.writing():
            store.vectors("e", 4).append(batch(store.row_count - 2, 2))
    store.seal_bytes = 1 << 20
    for text in "xyz":
        written += commit(store, document(text))
    return written


def segment(path: Path, number: int) -> Path:
    return sorted((path / "log").glob("*.parquet"))[number]


def journal(path: Path) -> Path:
    return max((path / "journal").glob("*.journal"))


def rescue(path: Path) -> tuple[DiskStore, list[Entry], str]:
    store = DiskStore(path, read_only=True, allow_damaged=True)
    with pytest.warns(DamageWarning) as caught:
        entries = store.refresh()
    assert len(caught) == 1
    assert store.refresh() == []
    assert store.next_sequence >= len(entries)
    return store, entries, str(caught[0].message)


def check(store: DiskStore, entries: list[Entry], written: list[Entry], lost: set[int]) -> None:
    """Whole entries as they were, one placeholder for each lost row, dense row ids, rising sequences and stamps."""
    lost_rows = {written[sequence].row_id for sequence in lost if written[sequence].kind == DOCUMENT}
    assert store.lost_rows == lost_rows
    whole = [entry for entry in entries if not (entry.kind == DOCUMENT and entry.row_id in lost_rows)]
    assert whole == [entry for entry in written if entry.sequence not in lost]
    documents = [entry for entry in entries if entry.kind == DOCUMENT]
    assert [entry.row_id for entry in documents] == list(range(store.row_count))
    assert all(entry.text == "" for entry in documents if entry.row_id in lost_rows)
    sequences = [entry.sequence for entry in entries]
    assert sequences == sorted(set(sequences))
    assert all(entry.ingested_at >= 0 for entry in entries)
    stamps = [entry.ingested_at for entry in entries]
    assert stamps == sorted(stamps)


def test_a_sound_store_is_read_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written = build(path)
    store = DiskStore(path, read_only=True, allow_damaged=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.refresh() == written
    assert store.lost_rows == frozenset() == MemoryStore().lost_rows
    more = commit(DiskStore(path), document("more"))
    assert store.refresh() == more


def test_it_is_for_reading_only(tmp_path: Path) -> None:
    build(tmp_path / "s")
    with pytest.raises(errors.InputError, match="read_only"):
        DiskStore(tmp_path / "s", allow_damaged=True)
    store = DiskStore(tmp_path / "s", read_only=True, allow_damaged=True)
    with pytest.raises(errors.StoreReadOnlyError), store.writing():
        pass


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("harm", [remove, cut])
@pytest.mark.parametrize("numbers", [[0], [1], [3], [0, 1], [1, 3], [0, 1, 2, 3]])
def test_segments_that_are_gone(tmp_path: Path, harm: Any, numbers: list[int]) -> None:
    path = tmp_path / "s"
    written = build(path)
    victims = [segment(path, number) for number in numbers]
    for victim in victims:
        harm(victim)
    with pytest.raises(errors.StoreDamagedError):
        DiskStore(path, read_only=True).refresh()
    store, entries, message = rescue(path)
    lost = {sequence for number in numbers for sequence in range(3 * number, 3 * number + 3)}
    check(store, entries, written, lost)
    assert f"{len(lost)} entries that are known of are lost, among them {2 * len(numbers)} rows" in message
    assert victims[0].name[:20] in message
    assert store.head_digest == head_digest(written, store)


def head_digest(written: list[Entry], store: DiskStore) -> str:
    return EntryCodec(store.store_id).digest_after(written, start_position(store.store_id).digest).hex()


def test_a_damaged_row_group_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mempp.storage.entry_codec.GROUP_ROWS", 3)
    path = tmp_path / "s"
    written = commit(DiskStore(path, seal_bytes=1), *(document(f"text {number}") for number in range(10)))
    for group, lost in ((0, {0, 1, 2}), (1, {3, 4, 5}), (3, {9})):
        place = segment(path, 0)
        whole = place.read_bytes()
        chunk = pq.ParquetFile(place).metadata.row_group(group).column(5)
        data = bytearray(whole)
        data[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 1
        place.write_bytes(data)
        store, entries, _ = rescue(path)
        check(store, entries, written, lost)
        place.write_bytes(whole)


def test_frames_behind_a_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written = build(path)
    data = bytearray(journal(path).read_bytes())
    first = decode_frame(bytes(data), 0)
    assert first is not None
    for place, lost in ((90, {12}), (first.size + 90, {13})):
        flipped = bytearray(data)
        flipped[place] ^= 1
        journal(path).write_bytes(flipped)
        store, entries, message = rescue(path)
        check(store, entries, written, lost)
        assert journal(path).name in message


def test_a_missing_journal_and_a_missing_store_json(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written = build(path)
    journal(path).unlink()
    (path / "store.json").unlink()
    store, entries, _ = rescue(path)
    assert entries == written[:12]
    assert store.row_count == 8
    shutil.rmtree(path / "log")
    (path / "store.json").write_text("{")
    with pytest.raises((errors.StoreDamagedError, errors.NotAStoreError)):
        DiskStore(path, read_only=True, allow_damaged=True)


def test_damage_while_it_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written = build(path)
    store = DiskStore(path, read_only=True, allow_damaged=True)
    assert store.refresh() == written
    more = commit(DiskStore(path), document("one")) + commit(DiskStore(path), document("two"))
    data = bytearray(journal(path).read_bytes())
    data[data.index(b'"one"')] ^= 1
    journal(path).write_bytes(data)
    with pytest.warns(DamageWarning):
        found = store.refresh()
    assert [entry.sequence for entry in found] == [15, 16]
    assert found[1] == more[1]
    assert store.lost_rows == {more[0].row_id}


def test_left_overs_of_a_merge_serve_when_the_wide_segment_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written = build(path)
    shutil.copy(segment(path, 2), tmp_path / "narrow")
    name = segment(path, 2).name
    compact_store(DiskStore(path))
    shutil.copy(tmp_path / "narrow", path / "log" / name)
    wide = segment(path, 0)
    cut(wide)
    store, entries, _ = rescue(path)
    check(store, entries, written, {*range(6), 9, 10, 11})


def test_damaged_vectors_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written = build(path)
    vectors = sorted((path / "vectors" / "e" / "segments").iterdir())
    cut(vectors[2])
    store = DiskStore(path, read_only=True, allow_damaged=True)
    assert store.refresh() == written
    with pytest.warns(DamageWarning, match=vectors[2].name):
        found = store.vectors("e", 4).refresh()
    assert [int(row) for one in found for row in one.row_ids] == [0, 1, 2, 3]
    (path / "vectors" / "e" / "meta.json").write_text("{")
    with pytest.warns(DamageWarning, match="meta.json"):
        assert store.vectors("e", 4).refresh() == []
    with pytest.raises(errors.StoreDamagedError):
        DiskStore(path, read_only=True).vectors("e", 4)


def test_sampled_damage_gives_only_what_was_written(tmp_path: Path) -> None:
    """Any entry that comes back under a number is the one that was written under it."""
    path = tmp_path / "s"
    written = build(path)
    chooser = random.Random(5)
    rescued = 0
    targets = [segment(path, 1), segment(path, 3), journal(path)]
    for target in targets:
        whole = target.read_bytes()
        for _ in range(60):
            damaged = bytearray(whole)
            start = chooser.randrange(len(whole))
            for place in range(start, min(len(whole), start + chooser.choice((1, 8, 200)))):
                damaged[place] = chooser.randrange(256)
            target.write_bytes(damaged)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                store = DiskStore(path, read_only=True, allow_damaged=True)
                entries = store.refresh()
            for entry in entries:
                if entry.row_id in store.lost_rows and entry.kind == DOCUMENT:
                    assert entry.text == ""
                else:
                    assert entry == written[entry.sequence]
            documents = [entry.row_id for entry in entries if entry.kind == DOCUMENT]
            assert documents == list(range(store.row_count))
            assert len(entries) >= 9
            rescued += bool(store.lost_rows)
        target.write_bytes(whole)
    assert rescued > 50
    assert read(path)[0] == written


def test_placeholders_worked_by_hand() -> None:
    def doc(sequence: int, row: int) -> Entry:
        return Entry(DOCUMENT, sequence=sequence, ingested_at=10 * sequence, row_id=row, text=f"{row}")

    retract = Entry("retract", sequence=4, ingested_at=40, row_id=1)
    # 1, 2 are lost, one of them row 1; 4 speaks of it; 5 is lost and no row; the last two rows are lost behind 6
    entries, lost, rows = _fill({0: doc(0, 0), 3: doc(3, 2), 4: retract, 6: doc(6, 3)}, 9, 6)
    assert lost == {1, 4, 5}
    assert rows == 6
    assert [(entry.sequence, entry.row_id, entry.ingested_at) for entry in entries] == [
        (0, 0, 0),
        (1, 1, 0),
        (3, 2, 30),
        (4, 1, 40),
        (6, 3, 60),
        (7, 4, 60),
        (8, 5, 60),
    ]
    # a document whose row cannot be reached is lost as well, and so are the rows that do not fit
    entries, lost, rows = _fill({0: doc(0, 0), 2: doc(2, 9)}, 3, 10)
    assert ([entry.sequence for entry in entries], lost, rows) == ([0, 1, 2], {1, 2}, 3)
