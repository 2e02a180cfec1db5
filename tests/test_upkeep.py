"""Proof, snapshots and compaction through Memory; what they check in depth stands in the tests of storage."""

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
