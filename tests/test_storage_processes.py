"""Several processes at one store: they write in turn, readers follow beside them, a killed holder is no obstacle."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
from storage_tools import batch, commit, document, read, read_torn

from mempp import errors
from mempp.storage import DiskStore, Entry, TornTailWarning

CONTEXT = multiprocessing.get_context("fork")


def write_many(path: Path, name: str, count: int, seal_bytes: int) -> None:
    store = DiskStore(path, seal_bytes=seal_bytes, lock_timeout=60)
    seen: list[Entry] = []
    vectors = store.vectors("e", 4)
    for number in range(count):
        with store.writing() as others:
            seen += others
            own = store.append([document(f"{name} {number} {part}") for part in range(number % 3 + 1)])
            seen += own
            vectors.refresh()
            rows = [entry.row_id for entry in own if entry.row_id is not None]
            vectors.append(batch(rows[0], len(rows)))
    assert [entry.sequence for entry in seen] == list(range(len(seen)))


def follow(path: Path, done: Any) -> None:
    """Refresh until the writers are done: always a consistent prefix, in order, without a gap."""
    store = DiskStore(path, read_only=True)
    vectors = store.vectors("e", 4)
    entries, rows = 0, 0
    finished = False
    while not finished:
        finished = done.is_set()
        new = store.refresh()
        assert [entry.sequence for entry in new] == list(range(entries, entries + len(new)))
        entries += len(new)
        for one in vectors.refresh():
            rows += len(one)
            assert one.row_ids.max() < store.row_count
    entries += len(store.refresh())
    rows += sum(map(len, vectors.refresh()))
    assert entries == rows == DiskStore(path, read_only=True).refresh()[-1].sequence + 1


def start(target: Any, *arguments: Any) -> Any:
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


@pytest.mark.parametrize("seal_bytes", [1, 2000, 1 << 20])
def test_writers_and_readers_at_once(tmp_path: Path, seal_bytes: int) -> None:
    path = tmp_path / "s"
    DiskStore(path)
    done = CONTEXT.Event()
    readers = [start(follow, path, done) for _ in range(2)]
    writers = [start(write_many, path, name, 40, seal_bytes) for name in "abc"]
    for writer in writers:
        writer.join()
    done.set()
    for reader in readers:
        reader.join()
    assert [process.exitcode for process in writers + readers] == [0] * 5
    entries, _ = read(path)
    assert [entry.row_id for entry in entries] == list(range(len(entries)))
    texts = {entry.text for entry in entries}
    assert texts == {
        f"{name} {number} {part}" for name in "abc" for number in range(40) for part in range(number % 3 + 1)
    }
    assert len(texts) == len(entries)
    stamps = [entry.ingested_at for entry in entries]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == 120


def test_the_lock_names_its_holder_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "s"
    DiskStore(path)
    held = CONTEXT.Event()

    def hold() -> None:
        with DiskStore(path).writing():
            held.set()
            signal.pause()

    process = start(hold)
    held.wait()
    store = DiskStore(path, lock_timeout=0.05)
    with (
        pytest.raises(errors.StoreLockedError, match=rf"process {process.pid} on '{os.uname().nodename}'"),
        store.writing(),
    ):
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with store.writing(timeout=10):
        store.append([document("a")])


def acknowledge(path: Path, pipe: Any) -> None:
    store = DiskStore(path, seal_bytes=3000)
    vectors = store.vectors("e", 4)
    number = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornTailWarning)
        while True:
            number += 1
            texts = [f"{os.getpid()} {number} {part} {'x' * 100}" for part in range(number % 4 + 1)]
            with store.writing():
                appended = store.append([document(text) for text in texts])
            pipe.send([(entry.row_id, entry.text) for entry in appended])
            with store.writing():
                vectors.append(batch(appended[0].row_id or 0, len(appended)))


def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "s"
    DiskStore(path)
    acknowledged: dict[int, str] = {}
    chooser = random.Random(3)
    for _ in range(12):
        receiver, sender = CONTEXT.Pipe(duplex=False)
        process = start(acknowledge, path, sender)
        sender.close()
        for _ in range(chooser.randrange(1, 30)):
            acknowledged.update(receiver.recv())
        os.kill(process.pid, signal.SIGKILL)
        with contextlib.suppress(EOFError):
            while True:
                acknowledged.update(receiver.recv())
        process.join()
        receiver.close()
        entries = read_torn(path)
        assert [entry.row_id for entry in entries] == list(range(len(entries)))
        assert {row: entries[row].text for row in acknowledged} == acknowledged
        sizes: dict[int, int] = {}
        for entry in entries:
            sizes[entry.ingested_at] = sizes.get(entry.ingested_at, 0) + 1
        for entry in entries:
            assert entry.text is not None
            assert sizes[entry.ingested_at] == int(entry.text.split()[1]) % 4 + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornTailWarning)
        commit(DiskStore(path, seal_bytes=1), document("end"))
    assert len(read(path)[0]) >= len(acknowledged) > 50


def test_a_follower_keeps_up_when_its_journal_is_sealed_under_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    writer = DiskStore(path, seal_bytes=1 << 20)
    follower = DiskStore(path, read_only=True)
    seen: list[Entry] = []
    written: list[Entry] = []
    chooser = random.Random(4)
    for number in range(120):
        writer.seal_bytes = chooser.choice([1, 600, 1 << 20])
        written += commit(writer, *(document(f"{number} {part}") for part in range(chooser.randrange(1, 4))))
        if chooser.random() < 0.3:
            seen += follower.refresh()
            assert seen == written
    seen += follower.refresh()
    assert seen == written
    assert follower.head_digest == writer.head_digest
