"""Work that several threads share. NumPy and onnxruntime let go of the interpreter's lock while they compute."""

import os
import threading
from collections.abc import Callable, Iterable

_MOST_WORKERS = 4  # more of them only wait for memory


def side_by_side(work: Callable[[int], None], items: Iterable[int], workers: int) -> None:
    """Do the work of every item, in this thread and in others that end with it. An error of one of them is raised here.

    Threads are made anew each time, which takes 0.1 ms, so that there are none that a forked process would miss.

    Args:
        work: what to do with an item.
        items: taken one after another by whoever is free.
        workers: how many threads are worth having; there are no more of them than processors.
    """
    workers = min(workers, _MOST_WORKERS, processors())
    if workers < 2:
        for item in items:
            work(item)
        return
    waiting = iter(items)
    taking = threading.Lock()
    failed: list[BaseException] = []

    def take() -> None:
        try:
            while not failed:
                with taking:
                    item = next(waiting, None)
                if item is None:
                    return
                work(item)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=take, name="mempp-worker", daemon=True) for _ in range(workers - 1)]
    for thread in threads:
        thread.start()
    take()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
