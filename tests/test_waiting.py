"""`mempp.waiting`: what is there is taken, and what never comes is given up in time."""

import queue
import threading
import time

import pytest

from mempp.waiting import taken


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
