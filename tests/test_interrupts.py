"""Ctrl-C inside Mem++: whatever is cut short, the same Memory goes on, and nothing acknowledged is lost."""

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from harness import independent
from harness.interrupting import Interrupter, count_lines
from harness.stream import HeadEncoder
from numpy.typing import NDArray

import mempp
from mempp.operators.batch import Account, _Crew

# An interrupt may come between the opening of a file and the `with` that would close it.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

PLACES = 60
STORE = 20


def batch(number: int) -> list[dict[str, str]]:
    return [{"text": f"note {place} of batch {number}", "thread": f"batch {number}"} for place in range(3)]


def open_memory(path: Path, seal_bytes: int) -> mempp.Memory:
    # A lock that an interrupt left behind must not hide behind a long wait.
    memory = mempp.open(path, encoder=HeadEncoder(), lock_timeout=1.0)
    memory._store.seal_bytes = seal_bytes  # type: ignore[attr-defined]
    memory.add("the first")
    return memory


def check(memory: mempp.Memory, number: int) -> None:
    """The batch that was cut short can be sent again, is there once, whole, and is found."""
    rows = memory.add_many(batch(number)).row_ids
    assert len(set(rows)) == 3
    assert [record.text for record in memory.records(thread=f"batch {number}")] == [
        one["text"] for one in batch(number)
    ]
    assert [memory.get(row or 0).text for row in rows] == [one["text"] for one in batch(number)]
    assert len(memory.recall(f"batch {number}", thread=f"batch {number}")) == 3
    assert memory.stats().without_vector == 0
    assert [record.row_id for record in memory.records()] == list(range(len(memory)))


@pytest.mark.parametrize("keep_error", [False, True], ids=["error dropped", "error kept"])
@pytest.mark.parametrize("seal_bytes", [1500, 1 << 20], ids=["sealing", "not sealing"])
def test_an_interrupt_at_any_line(tmp_path: Path, seal_bytes: int, keep_error: bool) -> None:
    """At sampled lines of Mem++ and of contextlib, exactly.

    An error that is kept, as an interactive session keeps the last one, keeps alive what it interrupted: a context
    manager of the store may then stay half open, with its lock.
    """
    chooser = random.Random(seal_bytes + keep_error)
    memory = open_memory(tmp_path / "counted", seal_bytes)
    places = count_lines(lambda: memory.add_many(batch(0)))
    memory.close()
    assert places > 1000
    interrupted = 0
    for number, at in enumerate(sorted(chooser.sample(range(places), PLACES))):
        if number % STORE == 0:
            memory.close()
            memory = open_memory(tmp_path / f"store-{number}", seal_bytes)
        interrupter = Interrupter(at)
        kept: BaseException | None = None
        try:
            with interrupter.watching():
                memory.add_many(batch(number))
        except KeyboardInterrupt as error:
            interrupted += 1
            kept = error if keep_error else None
        try:
            check(memory, number)
        except (AssertionError, mempp.MemppError) as error:
            raise AssertionError(f"after an interrupt in {interrupter.where}: {error}") from error
        del kept
        if number % STORE == STORE - 1:
            contents = independent.read(tmp_path / f"store-{number - STORE + 1}")
            assert [row["text"] for row in contents.rows] == [record.text for record in memory.records()]
    memory.close()
    assert interrupted > PLACES * 0.9


@pytest.mark.filterwarnings("ignore::mempp.storage.TornTailWarning")
def test_signals_at_random_moments(tmp_path: Path) -> None:
    """Real signals, sent by another thread to this one while it adds batches, and the store compared at the end."""
    chooser = random.Random(4)
    main = threading.main_thread().ident
    assert main is not None
    acknowledged: dict[int, str] = {}
    interrupts = 0
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    path = tmp_path / "store"
    try:
        memory = open_memory(path, 2000)
        number = 0
        until = time.monotonic() + 4
        while time.monotonic() < until:
            timer = threading.Timer(chooser.uniform(0.0005, 0.03), signal.pthread_kill, (main, signal.SIGINT))
            try:
                try:
                    timer.start()
                    while True:
                        number += 1
                        rows = memory.add_many(batch(number)).row_ids
                        acknowledged |= {row: one["text"] for row, one in zip(rows, batch(number), strict=True) if row}
                finally:
                    timer.join()
            except KeyboardInterrupt:
                interrupts += 1
            check(memory, number)
            rows = [record.row_id for record in memory.records(thread=f"batch {number}")]
            acknowledged |= {row: memory.get(row).text for row in rows}
    finally:
        signal.signal(signal.SIGINT, before)
    assert {row: memory.get(row).text for row in acknowledged} == acknowledged
    contents = independent.read(path)
    assert contents.head == memory._store.head_digest  # type: ignore[attr-defined]
    assert [row["text"] for row in contents.rows] == [record.text for record in memory.records()]
    memory.close()
    assert interrupts > 5


def test_another_process_can_write_after_an_interrupt(tmp_path: Path) -> None:
    """The lock that an interrupt has left behind is released by the next use of the same Memory."""
    memory = open_memory(tmp_path / "store", 1 << 20)
    other = mempp.open(tmp_path / "store", encoder=HeadEncoder(), lock_timeout=1.0)
    places = count_lines(lambda: memory.add("counted"))
    for at in range(0, places, 25):
        kept: BaseException | None = None
        try:
            with Interrupter(at).watching():
                memory.add(f"note {at}")
        except KeyboardInterrupt as error:
            kept = error
        memory.refresh()
        other.add(f"another note {at}")
        del kept
    memory.refresh()
    other.refresh()
    assert memory.records() == other.records()
    other.close()
    memory.close()


class HeardError(Exception):
    """Raised by the handler of the signal, in place of KeyboardInterrupt."""


@contextmanager
def only_others_get_the_signal(handler: Callable[..., None]) -> Iterator[None]:
    """The main thread is not woken by SIGINT, as when it comes between its last look and its wait."""
    before = signal.signal(signal.SIGINT, handler)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)


def interrupt_from_here(waiting: str) -> None:
    """Send SIGINT, which this thread gets, as soon as the main thread is within this function."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        if any(one.f_code.co_name == waiting for one, _ in traceback.walk_stack(frame)):
            break
        time.sleep(0.01)
    time.sleep(0.05)  # it is likely to wait by now; if not, it hears all the sooner
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_that_wakes_no_thread_is_heard_while_the_encoder_is_busy(tmp_path: Path) -> None:
    heard = threading.Event()
    in_time: list[bool] = []

    class Busy(HeadEncoder):
        def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
            interrupt_from_here("_collect")
            in_time.append(heard.wait(20))
            return super().encode_documents(texts)

    def handler(*_: object) -> None:
        heard.set()
        raise HeardError

    with mempp.open(tmp_path / "s", encoder=Busy()) as memory:
        memory.add_many(["a", "b"], embed=False)
        with only_others_get_the_signal(handler), pytest.raises(HeardError):
            memory.embed()
    assert in_time == [True]


def test_an_interrupt_that_wakes_no_thread_is_heard_while_a_model_is_asked() -> None:
    heard = threading.Event()
    in_time: list[bool] = []

    def handler(*_: object) -> None:
        heard.set()
        raise HeardError

    def work(job: str) -> tuple[str, Account]:
        interrupt_from_here("take")
        in_time.append(heard.wait(20))
        return job, Account()

    crew = _Crew[str](work, 1)  # type: ignore[arg-type]
    crew.put(0, "a job")  # type: ignore[arg-type]
    with only_others_get_the_signal(handler), pytest.raises(HeardError):
        crew.take()
    crew.stop(20, 1)
    assert in_time == [True]
