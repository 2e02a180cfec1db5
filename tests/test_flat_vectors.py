"""Vectors mapped from cache/: the same answers with the file as without it, whatever state the file is in."""

import errno
import logging
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import mempp
from mempp.encoders.base import EncoderIdentity
from mempp.indexes import held
from mempp.storage import files, flat_vectors

ROWS = 300
QUESTIONS = ("ferry to the island", "who pays the vpn")


class Hashed:
    """A vector for each text, always the same."""

    identity = EncoderIdentity("hashed", 16, {"kind": "test"})

    def encode_documents(self, texts: list[str]) -> NDArray[np.float32]:
        return np.stack([self.encode_question(text) for text in texts])

    def encode_question(self, text: str) -> NDArray[np.float32]:
        drawn = np.random.default_rng(list(text.encode())).standard_normal(16)
        vector: NDArray[np.float32] = (drawn / np.linalg.norm(drawn)).astype(np.float32)
        return vector


def add(memory: mempp.Memory, first: int, count: int) -> None:
    long = " and then the minutes of a long meeting go on about it" * 60
    memory.add_many(
        mempp.Document(text=f"ferry {number} island vpn {number % 7}" + (long if number % 40 == 0 else ""))
        for number in range(first, first + count)
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose vectors are mostly sealed, heads and windows, opened twice since."""
    monkeypatch.setattr(flat_vectors, "WORTH", 50)
    monkeypatch.setattr(held, "_WORTH", 50)
    path = tmp_path / "store"
    with mempp.open(path, encoder=Hashed()) as memory:
        memory._store.seal_bytes = 6_000
        for first in range(0, ROWS, 50):
            add(memory, first, 50)
    with mempp.open(path, encoder=Hashed()):
        pass
    return path


def flat_file(store: Path) -> Path:
    return store / "cache" / "vectors-hashed.flat"


def answers(path: Path, *, read_only: bool = True) -> list[list[tuple[int, float]]]:
    with mempp.open(path, encoder=Hashed(), read_only=read_only) as memory:
        return [[(hit.row_id, hit.score) for hit in memory.recall(question, k=50)] for question in QUESTIONS]


def mapped(path: Path) -> tuple[int, int]:
    """How many heads and how many windows lie in a file."""
    with mempp.open(path, encoder=Hashed(), read_only=True) as memory:
        indexes = memory._projection.indexes
        assert indexes.vectors is not None
        assert indexes.windows is not None
        return len(indexes.vectors._vectors.values.first), len(indexes.windows._vectors.values.first)


def test_heads_and_windows_are_mapped_and_answers_are_the_same(store: Path) -> None:
    heads, windows = mapped(store)
    assert heads > ROWS - 100
    assert windows > 0
    with_file = answers(store)
    flat_file(store).unlink()
    assert mapped(store) == (0, 0)  # a reader writes nothing
    assert not flat_file(store).exists()
    assert answers(store) == with_file


def test_later_vectors_come_behind_and_the_file_grows_when_it_is_worth_it(store: Path) -> None:
    before = flat_file(store).stat().st_ino
    with mempp.open(store, encoder=Hashed()) as memory:
        memory._store.seal_bytes = 6_000
        add(memory, ROWS, 20)
        first = [[(hit.row_id, hit.score) for hit in memory.recall(question, k=50)] for question in QUESTIONS]
    assert answers(store) == first
    with mempp.open(store, encoder=Hashed()) as memory:
        assert flat_file(store).stat().st_ino == before
        memory._store.seal_bytes = 6_000
        add(memory, ROWS + 20, 200)
    second = answers(store, read_only=False)  # written here
    assert flat_file(store).stat().st_ino != before
    assert mapped(store)[0] > ROWS + 100
    flat_file(store).unlink()
    assert answers(store) == second


def flipped(at: int) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return flip


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-4096]),
    "cut in the header": lambda path: path.write_bytes(path.read_bytes()[:60]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + bytes(4096)),
    "magic": flipped(0),
    "format": flipped(8),
    "header": flipped(100),
    "row ids": flipped(4096),
    "last vector": flipped(-4096),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a dangling link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_passed_over(store: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    right = answers(store)
    DAMAGE[damage](flat_file(store))
    with caplog.at_level(logging.INFO, "mempp.cache"):
        assert mapped(store) == (0, 0)
    assert answers(store) == right
    assert answers(store, read_only=False) == right
    assert damage == "a dangling link" or "vectors-hashed.flat" in caplog.text


def test_a_file_of_other_segments_is_passed_over(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with mempp.open(other, encoder=Hashed()) as memory:
        memory._store.seal_bytes = 6_000
        for first in range(0, ROWS, 50):
            add(memory, first + 1000, 50)
    right = answers(other)
    (other / "cache").mkdir(exist_ok=True)
    shutil.copy(flat_file(store), flat_file(other))
    assert mapped(other) == (0, 0)
    assert answers(other) == right
    # Vectors that were made again, in other batches, are other segments.
    kept = flat_file(store).read_bytes()
    shutil.rmtree(store / "vectors")
    with mempp.open(store, encoder=Hashed()) as memory:
        memory._store.seal_bytes = 3_000
        memory.embed()
    flat_file(store).write_bytes(kept)
    assert mapped(store) == (0, 0)


def test_compacting_makes_it_of_no_use_and_the_next_writer_makes_it_anew(store: Path) -> None:
    right = answers(store)
    with mempp.open(store, encoder=Hashed()) as memory:
        memory.compact()
    assert answers(store) == right
    assert answers(store, read_only=False) == right
    assert mapped(store)[0] > ROWS - 100


def test_a_shorter_log_does_not_get_vectors_of_rows_that_it_does_not_hold(store: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(store, older)
    right = answers(older)
    with mempp.open(store, encoder=Hashed()) as memory:
        memory._store.seal_bytes = 6_000
        add(memory, ROWS, 200)
    answers(store, read_only=False)
    shutil.rmtree(older / "vectors")
    shutil.copytree(store / "vectors", older / "vectors")
    shutil.copy(flat_file(store), flat_file(older))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mempp.TornTailWarning)
        assert mapped(older) == (0, 0)
        assert answers(older) == right


def test_a_full_disk_does_not_hinder_opening(
    store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = answers(store)
    flat_file(store).unlink()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, mempp.open(store, encoder=Hashed(), read_only=True):
        patch.setattr(files, "write", full)
        assert answers(store, read_only=False) == right
    assert "could not be written" in caplog.text
    assert not [name for name in (store / "cache").iterdir() if name.name.startswith("vectors-")]


def test_the_file_of_another_encoder_goes(store: Path) -> None:
    stale = store / "cache" / "vectors-older.flat"
    stale.write_bytes(b"x")
    flat_file(store).unlink()
    answers(store, read_only=False)
    assert flat_file(store).exists()
    assert not stale.exists()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=6), st.data())
def test_two_parts_read_as_one(parts: list[tuple[int, bool]], data: st.DataObject) -> None:
    chance = np.random.default_rng(len(parts))
    vectors = held.HeldVectors(3)
    whole = np.empty((0, 3), np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "_WORTH", 10)
        for count, writable in parts:
            new = chance.standard_normal((count, 3)).astype(np.float32)
            new.flags.writeable = writable
            before = vectors.values
            vectors.extend(new)
            whole = np.concatenate((whole, new))
            assert len(before) == len(whole) - count
    values = vectors.values
    assert values.shape == whole.shape
    start, end = sorted((data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, len(whole)))))
    assert np.array_equal(values.part(start, end), whole[start:end])
    assert np.array_equal(np.concatenate((values.up_to(end).first, values.up_to(end).later)), whole[:end])
    if len(whole):
        chosen = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=30)), np.int64)
        assert np.array_equal(values.take(chosen), whole[chosen])
