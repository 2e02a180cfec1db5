"""`mempp.waiting`: what is there is taken; what never comes, or was cancelled, is given up."""

import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from mempp.waiting import taken, until_done


def test_what_is_there_is_taken_at_once() -> None:
    source: queue.SimpleQueue[int] = queue.SimpleQueue()
    source.put(1)
    source.put(2)
    assert (taken(source, 0), taken(source)) == (1, 2)


@pytest.mark.parametrize("seconds", [None, 30.0])
def test_it_waits_longer_than_one_look(seconds: float | None) -> None:
    source: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Timer(1.2, source.put, (7,)).start()
    assert taken(source, seconds) == 7


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.2, 0.5, 1.1])
def test_it_gives_up_in_time(seconds: float) -> None:
    start = time.monotonic()
    with pytest.raises(queue.Empty):
        taken(queue.SimpleQueue[int](), seconds)
    assert time.monotonic() - start >= seconds


def test_it_waits_until_the_end_whatever_comes_of_it() -> None:
    def fail() -> None:
        time.sleep(0.7)
        raise ValueError

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(fail)
        until_done(future)
        assert isinstance(future.exception(timeout=0), ValueError)


@pytest.mark.parametrize("waits_already", [False, True])
def test_what_was_cancelled_is_not_waited_for(waits_already: bool) -> None:
    go = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(go.wait)
        future: Future[None] = executor.submit(time.sleep, 0)
        waits = threading.Thread(target=until_done, args=(future,), daemon=True)
        if waits_already:
            waits.start()
            time.sleep(0.1)
        executor.shutdown(wait=False, cancel_futures=True)
        if not waits_already:
            waits.start()
        waits.join(20)
        go.set()
        assert not waits.is_alive()
