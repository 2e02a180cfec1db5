"""Codes mapped from cache/: the same answers with the files as without them, whatever state these are in."""

import errno
import hashlib
import itertools
import logging
import mmap
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_flat_vectors import flipped
from test_kept_codes import BY_CODES, DIMENSIONS, drawn

import mempp
from mempp.encoders.base import EncoderIdentity
from mempp.indexes import codes, held, vectors
from mempp.storage import files, flat_vectors, mapped

ROWS = 300
QUESTIONS = ("ferry to the island", "who pays the vpn")


class Hashed:
    """A vector for each text, always the same."""

    def __init__(self, name: str = "hashed") -> None:
        self.identity = EncoderIdentity(name, DIMENSIONS, {"kind": "test"})

    def encode_documents(self, texts: list[str]) -> NDArray[np.float32]:
        return np.stack([self.encode_question(text) for text in texts])

    def encode_question(self, text: str) -> NDArray[np.float32]:
        return drawn(np.random.default_rng(list((self.identity.name + text).encode())), 1, turned=True)[0]


LIMITS = {flat_vectors: "WORTH", held: "_WORTH", vectors: "_CODED_FROM"}


@pytest.fixture(autouse=True, scope="module")
def _codes_for_few_vectors() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in LIMITS.items():
            patch.setattr(module, name, 50)
        patch.setattr(vectors, "scan_costs", lambda views: BY_CODES)
        yield


def add(memory: mempp.Memory, first: int, count: int) -> None:
    memory._store.seal_bytes = 20_000
    long = " and then the minutes of a long meeting go on about it" * 60
    for start in range(first, first + count, 50):
        memory.add_many(
            mempp.Document(
                text=f"ferry {number} island vpn {number % 7}" + (long if number % 10 == 0 else ""),
                occurred_at=f"2024-01-{1 + number % 28:02}",
            )
            for number in range(start, start + 50)
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "store"
    with mempp.open(path, encoder=Hashed()) as memory:
        add(memory, 0, ROWS)
    with mempp.open(path, encoder=Hashed()):
        pass
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A store whose vectors are mostly sealed, heads and windows, opened once since."""
    return Path(shutil.copytree(made, tmp_path / "store"))


def file_of(store: Path, what: str = "heads") -> Path:
    return store / "cache" / f"codes-{what}.flat"


def answers_of(memory: mempp.Memory) -> list[list[tuple[int, float]]]:
    found = [
        memory.recall(question, settings=mempp.Settings(k=50, exact=exact), **bounds)
        for question in QUESTIONS
        for exact in (True, False)
        for bounds in ({}, {"as_of": "2024-01-12"}, {"known_at": ROWS // 2})
    ]
    return [[(hit.row_id, hit.score) for hit in hits] for hits in found]


def answers(path: Path, *, read_only: bool = True) -> list[list[tuple[int, float]]]:
    with mempp.open(path, encoder=Hashed(), read_only=read_only) as memory:
        return answers_of(memory)


def from_file(memory: mempp.Memory) -> tuple[int, int]:
    """How many codes of heads and of windows lie in a file."""
    indexes = memory._projection.indexes
    found = []
    for index in (indexes.vectors, indexes.windows):
        assert index is not None
        views = index._views
        assert views.codes is not None
        assert len(views.codes) == len(views)
        found.append(len(views.codes.head.values.first))
    return found[0], found[1]


def mapped_of(path: Path) -> tuple[int, int]:
    with mempp.open(path, encoder=Hashed(), read_only=True) as memory:
        return from_file(memory)


def test_codes_of_heads_and_windows_are_mapped_and_answers_are_the_same(store: Path) -> None:
    heads, windows = mapped_of(store)
    assert heads > ROWS - 60
    assert windows > 100
    right = answers(store)
    file_of(store).unlink()
    file_of(store, "windows").unlink()
    assert mapped_of(store) == (0, 0)
    assert answers(store) == right
    assert not file_of(store).exists()  # a reader writes nothing
    assert answers(store, read_only=False) == right
    assert mapped_of(store) == (heads, windows)


def test_codes_are_kept_under_the_digest_of_the_vectors_themselves(store: Path) -> None:
    with mempp.open(store, encoder=Hashed(), read_only=True) as memory:
        indexes = memory._projection.indexes
        for what, index in (("heads", indexes.vectors), ("windows", indexes.windows)):
            assert index is not None
            digest = hashlib.sha256(index._vectors.values.first.tobytes()).hexdigest()
            assert f'"origin": "{digest}"'.encode() in file_of(store, what).read_bytes()[:4096]


def test_nothing_is_encoded_that_was_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    encoded = codes._encoded
    monkeypatch.setattr(codes, "_encoded", lambda block: made.append(len(block)) or encoded(block))
    monkeypatch.setattr(vectors, "turn_for", lambda _: pytest.fail("it was turned anew"))
    with mempp.open(store, encoder=Hashed(), read_only=True) as memory:
        heads, windows = from_file(memory)
        indexes = memory._projection.indexes
        assert indexes.vectors is not None
        assert indexes.windows is not None
        assert indexes.vectors._views.codes.tail is not None
        assert sum(made) == 2 * (len(indexes.vectors) - heads + len(indexes.windows) - windows)


def test_later_vectors_come_behind_and_the_file_grows_with_the_flat_vectors(store: Path) -> None:
    inode, heads = file_of(store).stat().st_ino, mapped_of(store)[0]
    with mempp.open(store, encoder=Hashed()) as memory:
        add(memory, ROWS, 50)
        first = answers_of(memory)
    assert answers(store) == first
    with mempp.open(store, encoder=Hashed()) as memory:
        assert file_of(store).stat().st_ino == inode
        assert from_file(memory)[0] == heads
        add(memory, ROWS + 50, 200)
    second = answers(store, read_only=False)  # written here
    assert file_of(store).stat().st_ino != inode
    assert mapped_of(store)[0] > ROWS + 100
    shutil.rmtree(store / "cache")
    assert answers(store) == second


def test_a_writer_that_added_many_leaves_what_readers_map(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fresh"
    with mempp.open(path, encoder=Hashed()) as memory:
        add(memory, 0, ROWS)
        right = answers_of(memory)
    names = {file.name for file in (path / "cache").iterdir()}
    assert {"codes-heads.flat", "codes-windows.flat"} < names
    assert mapped_of(path) == mapped_of(store)
    assert answers(path) == right == answers(store)
    monkeypatch.setattr(vectors, "turn_for", lambda _: pytest.fail("it was turned anew"))
    with mempp.open(path, encoder=Hashed()) as memory:  # and the next writer finds nothing to do
        inode = file_of(path).stat().st_ino
        add(memory, ROWS, 20)
    assert file_of(path).stat().st_ino == inode


@pytest.mark.parametrize("why", ["few", "an error", "a full disk", "other vectors", "no order"])
def test_where_it_is_not_worth_it_or_cannot_be_a_writer_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    path = tmp_path / "fresh"
    if why == "few":
        monkeypatch.setattr(flat_vectors, "WORTH", 10_000)
    if why == "a full disk":

        def full(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, "no space left on the device")

        monkeypatch.setattr(mapped, "write", full)
    if why == "other vectors":  # as if the series had another order than the index
        monkeypatch.setattr(vectors, "sha256_of", lambda *_: "0" * 64)
    try:
        with mempp.open(path, encoder=Hashed()) as memory:
            add(memory, 0, ROWS)
            right = answers_of(memory)
            if why == "an error":
                raise ZeroDivisionError
            if why == "no order":
                (path / "vectors").rename(tmp_path / "elsewhere")
    except ZeroDivisionError:
        pass
    if why == "no order":
        (tmp_path / "elsewhere").rename(path / "vectors")
    assert not file_of(path).exists()
    assert bool(list((path / "cache").glob("vectors-*.flat"))) == (why == "other vectors")
    monkeypatch.undo()
    monkeypatch.setattr(vectors, "scan_costs", lambda views: BY_CODES)
    assert answers(path) == right


def put(path: Path, text: str, new: str) -> None:
    """Change the header, and make its digest right."""
    data = path.read_bytes()
    length = int.from_bytes(data[12:16], "little")
    header = data[48 : 48 + length].replace(text.encode(), new.encode())
    assert header != data[48 : 48 + length]
    assert len(header) == length
    path.write_bytes(data[:16] + hashlib.sha256(header).digest() + header + data[48 + length :])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-4096]),
    "cut in the header": lambda path: path.write_bytes(path.read_bytes()[:60]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + bytes(4096)),
    "magic": flipped(0),
    "format": flipped(8),
    "header": flipped(100),
    "turn": flipped(4096 + 5),
    "codes": flipped(4096 + DIMENSIONS**2 * 4 + 7),
    "middle": lambda path: flipped(path.stat().st_size // 2)(path),
    "lengths": lambda path: flipped(path.stat().st_size - 4096 + 2)(path),
    "another store": lambda path: put(path, '"store": "', '"store":"0'),
    "another version": lambda path: put(path, "codes 1", "codes 0"),
    "other vectors": lambda path: put(path, '"origin": "', '"origin":"0'),
    "other types": lambda path: put(path, "|u1", "<f4"),
    "types not there": lambda path: put(path, "|u1", "|O8"),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a dangling link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_passed_over_and_replaced(store: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    right, whole = answers(store), mapped_of(store)
    for what in ("heads", "windows"):
        DAMAGE[damage](file_of(store, what))
    with caplog.at_level(logging.INFO, "mempp.cache"):
        assert mapped_of(store) == (0, 0)
    assert damage == "a dangling link" or "codes-heads.flat" in caplog.text
    assert answers(store) == right
    assert answers(store, read_only=False) == right
    if damage != "a directory":
        assert mapped_of(store) == whole


def test_the_file_of_another_store_is_passed_over(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with mempp.open(other, encoder=Hashed()) as memory:
        add(memory, 1000, ROWS)
    right = answers(other)
    shutil.copy(file_of(store), file_of(other))
    assert mapped_of(other)[0] == 0
    assert answers(other) == right


def test_codes_of_an_older_or_another_state_are_passed_over(store: Path) -> None:
    older = file_of(store).read_bytes()
    with mempp.open(store, encoder=Hashed()) as memory:
        add(memory, ROWS, 250)
    right = answers(store, read_only=False)
    assert mapped_of(store)[0] > ROWS + 100
    file_of(store).write_bytes(older)
    assert mapped_of(store)[0] == 0
    assert answers(store) == right


def test_an_encoder_changed_by_reembed_gets_codes_of_its_own(store: Path) -> None:
    older = file_of(store).read_bytes()
    other = Hashed("other")
    with mempp.open(store, encoder=Hashed()) as memory:
        memory._store.seal_bytes = 20_000
        memory.reembed(other)
        right = answers_of(memory)
    with mempp.open(store, encoder=other) as memory:
        assert answers_of(memory) == right
    with mempp.open(store, encoder=other, read_only=True) as memory:
        assert from_file(memory)[0] > ROWS - 60
        assert answers_of(memory) == right
    file_of(store).write_bytes(older)
    with mempp.open(store, encoder=other, read_only=True) as memory:
        assert from_file(memory)[0] == 0
        assert answers_of(memory) == right


def test_compacting_leaves_the_codes_of_use(store: Path) -> None:
    right = answers(store)
    with mempp.open(store, encoder=Hashed()) as memory:
        memory.compact()
    assert answers(store, read_only=False) == right  # the flat vectors are made anew
    assert mapped_of(store)[0] > ROWS - 60
    assert answers(store) == right


def test_what_codes_mean_is_part_of_the_file(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mempp.caching.CODES_VERSION", "codes 2")
    assert mapped_of(store) == (0, 0)
    answers(store, read_only=False)
    assert mapped_of(store)[0] > ROWS - 60


def test_a_full_disk_does_not_hinder_opening(
    store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = answers(store)
    file_of(store).unlink()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        assert answers(store, read_only=False) == right
    assert "could not be written" in caplog.text
    assert not [name for name in (store / "cache").iterdir() if name.name.startswith("codes-heads")]


@pytest.mark.parametrize(("mapped_before", "named"), [(0, "vectors-hashed.flat"), (1, "codes-heads.flat")])
def test_a_file_that_cannot_be_read_is_not_called_damaged(
    mapped_before: int, named: str, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = answers(store)
    real, asked = mmap.mmap, itertools.count()

    def refuses(*arguments: Any, **more: Any) -> mmap.mmap:
        if next(asked) < mapped_before:
            return real(*arguments, **more)
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(mapped.mmap, "mmap", refuses)
        assert answers(store) == right
    assert f"{named} cannot be read" in caplog.text
    assert "damaged" not in caplog.text


def test_a_mapped_file_is_held_open_once(store: Path) -> None:
    with mempp.open(store, encoder=Hashed(), read_only=True) as memory:
        assert all(from_file(memory))
        held = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    flat = [name for name in held if name.startswith(str(store.resolve())) and name.endswith(".flat")]
    assert len(flat) == len(set(flat)) == 3  # vectors, codes of heads, codes of windows


def test_where_bytes_are_multiplied_wrongly_kept_codes_are_not_used(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = answers(store)
    monkeypatch.setattr(vectors, "products_work", lambda: False)
    monkeypatch.setattr(codes, "byte_product", lambda *_: pytest.fail("it was asked"))
    with mempp.open(store, encoder=Hashed(), read_only=True) as memory:
        assert answers_of(memory) == right


def test_a_mapped_file_that_is_replaced_stays(store: Path, tmp_path: Path) -> None:
    """Another process adds, and replaces the files that are mapped here; a forked child asks as well."""
    right = answers(store)
    program = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_codes_in_cache as tests
        for module, name in tests.LIMITS.items():
            setattr(module, name, 50)
        from pathlib import Path
        with tests.mempp.open(Path({str(store)!r}), encoder=tests.Hashed()) as memory:
            tests.add(memory, tests.ROWS, 250)
        with tests.mempp.open(Path({str(store)!r}), encoder=tests.Hashed()) as memory:
            pass
        """
    )
    with mempp.open(store, encoder=Hashed(), read_only=True) as memory:
        inode = file_of(store).stat().st_ino
        assert from_file(memory)[0] > ROWS - 60
        subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
        assert file_of(store).stat().st_ino != inode
        assert answers_of(memory) == right
        child = os.fork()
        if not child:
            os._exit(0 if answers_of(memory) == right else 1)
        assert os.waitpid(child, 0)[1] == 0
        memory.refresh()
        assert from_file(memory)[0] > ROWS - 60
        assert answers_of(memory) == answers(store)
