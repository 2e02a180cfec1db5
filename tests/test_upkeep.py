"""Proof, snapshots and compaction through Memory; what they check in depth stands in the tests of storage."""

import os
import shutil

import pytest
from support import WordEncoder

import mempp


@pytest.fixture
def memory(tmp_path):
    with mempp.open(tmp_path / "store", encoder=WordEncoder()) as made:
        made._store.seal_bytes = 500
        for n in range(20):
            made.add(f"text {n} " + "x" * 50, occurred_at=f"2024-01-{n + 1:02}")
        made.retract(3)
        yield made


def test_verify_and_a_digest_kept_elsewhere(memory):
    kept = memory.head_digest
    entries = memory.head_sequence + 1
    memory.add("later")
    report = memory.verify(expect=kept)
    assert report.ok
    assert (report.expected_at, report.rows, report.head_digest) == (entries, 21, memory.head_digest)
    assert not memory.verify(expect="0" * 64).ok
    with pytest.raises(mempp.InputError, match="digest"):
        memory.verify(expect="abc")


@pytest.mark.parametrize("name", ["copy", "copy.tar"])
def test_snapshot_and_restore_give_the_same_answers(memory, tmp_path, name):
    before = memory.recall("text 7", as_of="2024-01-15")
    head, digest = memory.head_sequence, memory.head_digest
    memory.snapshot(tmp_path / name)
    memory.add("text later")
    mempp.restore(tmp_path / name, tmp_path / "restored")
    with mempp.open(tmp_path / "restored", encoder=WordEncoder()) as restored:
        assert restored.recall("text 7", as_of="2024-01-15") == before
        assert (restored.head_sequence, restored.head_digest) == (head, digest)
        assert restored.stats().without_vector == 0
        assert restored.get(3).state.status == "retracted"
        assert restored.add("text later").row_id == 20
        assert restored.verify().ok


def test_compacting_keeps_entries_chain_and_answers(memory, tmp_path):
    before = memory.recall("text 7")
    digest = memory.head_digest
    segments = len(list((tmp_path / "store" / "log").iterdir()))
    memory.compact()
    assert len(list((tmp_path / "store" / "log").iterdir())) < segments
    assert memory.recall("text 7") == before
    assert memory.verify(expect=digest).ok
    memory.add("after")
    with mempp.open(tmp_path / "store", encoder=WordEncoder()) as again:
        assert len(again) == 21
        assert again.recall("text 7", known_at=20) == memory.recall("text 7", known_at=20)


def test_batch_sync_tells_what_it_is(tmp_path):
    with mempp.open(tmp_path / "store", sync="batch", encoder="none") as memory:
        for n in range(50):
            memory.add(f"text {n}")
    with mempp.open(tmp_path / "store", read_only=True, encoder="none") as memory:
        assert len(memory) == 50
        assert memory.verify().ok
    with pytest.raises(mempp.InputError, match="sync"):
        mempp.open(tmp_path / "other", sync="never")


def test_a_memory_without_a_directory_says_so():
    with mempp.in_memory(encoder="none") as memory:
        memory.add("a text")
        for use in (lambda: memory.snapshot("x"), memory.compact):
            with pytest.raises(mempp.InputError, match=r"mempp\.open"):
                use()


def test_a_memory_that_was_open_across_a_restore_in_place_writes_nothing(tmp_path):
    """The restored store has the same id, and its entries may be as many and as long as those that were read."""
    path = tmp_path / "store"
    with mempp.open(path, encoder="none") as agent:
        agent.add("one")
        agent.snapshot(tmp_path / "copy")
        agent.add("AAAA")
        shutil.rmtree(path)
        mempp.restore(tmp_path / "copy", path)
        with mempp.open(path, encoder="none") as other:
            other.add("BBBB")
        with pytest.raises(mempp.StoreError, match="another store"):
            agent.refresh()
        with pytest.raises(mempp.StoreError, match="another store"):
            agent.add("three")
    with mempp.open(path, encoder="none") as memory:
        assert [record.text for record in memory.records()] == ["one", "BBBB"]


def test_the_past_has_its_own_digest_and_no_snapshot(memory, tmp_path):
    kept = memory.head_digest
    moment = memory.head_sequence
    memory.add("later")
    with mempp.open(tmp_path / "store", at=moment, encoder=WordEncoder()) as past:
        assert past.head_digest == kept
        with pytest.raises(mempp.InputError, match="at="):
            past.snapshot(tmp_path / "copy")


def test_a_snapshot_goes_only_where_it_can_be_named_again(memory, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    memory.snapshot(tmp_path / "copy.tar")
    for use in (
        lambda: memory.snapshot("."),
        lambda: mempp.restore(tmp_path / "copy.tar", "."),
        lambda: memory.snapshot("/tmp/x\udcff"),
    ):
        with pytest.raises(mempp.InputError):
            use()
    with pytest.raises(mempp.StoreError):
        memory.snapshot(tmp_path / ("x" * 300))
    assert list(here.iterdir()) == []


def test_a_digest_with_white_space_around_it(memory):
    assert memory.verify(expect=f" {memory.head_digest}\n").ok


def test_a_clock_beyond_all_dates_writes_nothing(memory, monkeypatch):
    from mempp.storage import disk

    monkeypatch.setattr(disk, "now", lambda: 253_402_300_800 * 10**6)
    with pytest.raises(mempp.StoreWriteError, match="clock"):
        memory.add("from the far future")
    monkeypatch.undo()
    assert memory.add("now").added == 1
    assert memory.recall("now")


def test_a_store_that_is_made_while_it_is_opened(tmp_path, monkeypatch):
    from mempp.storage import layout

    path = tmp_path / "store"
    look = layout._names

    def made_in_between(where):
        monkeypatch.setattr(layout, "_names", look)
        mempp.open(where, encoder="none").close()
        return look(where)

    monkeypatch.setattr(layout, "_names", made_in_between)
    with mempp.open(path, encoder="none") as memory:
        assert memory.add("text").row_id == 0


def test_a_pipe_in_place_of_a_cache_is_passed_over(memory, tmp_path):
    memory.close()
    cache = tmp_path / "store" / "cache"
    cache.mkdir(exist_ok=True)
    os.mkfifo(cache / "indexes.cache")
    with mempp.open(tmp_path / "store", read_only=True, encoder="none") as again:
        assert len(again) == 20
