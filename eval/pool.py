"""Threads that ask models while the next questions are retrieved; the thread that feeds them takes it back."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from mempp.waiting import taken

Job = TypeVar("Job")
Done = TypeVar("Done")


class Pool(Generic[Job, Done]):
    """`workers` daemon threads. A failed job is raised in the feeding thread, and nothing further is begun.

    Daemons, because an interrupted program must not wait for a request that takes minutes.
    """

    def __init__(self, work: Callable[[Job], Done], workers: int) -> None:
        self._work = work
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._waiting = 0
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """How many jobs were submitted and not yet taken as finished."""
        return self._waiting

    def submit(self, job: Job) -> None:
        """Hand a job over."""
        self._waiting += 1
        self._jobs.put(job)

    def finished(self, *, leave: int = 0) -> Iterator[Done]:
        """What is finished, in the order of finishing; waits until at most `leave` jobs are unfinished.

        Raises:
            BaseException: whatever a job raised.
        """
        while self._waiting:
            try:
                done = taken(self._finished, None if self._waiting > leave else 0)
            except queue.Empty:
                return
            self._waiting -= 1
            if isinstance(done, BaseException):
                self._stopped.set()
                raise done
            yield done

    def stop(self, seconds: float) -> list[Done]:
        """Begin nothing further, wait so long for what is under way, and give back what was finished."""
        self._stopped.set()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(seconds / max(len(self._threads), 1))
        finished: list[Done] = []
        while True:
            try:
                done = self._finished.get(block=False)
            except queue.Empty:
                return finished
            if not isinstance(done, BaseException):
                finished.append(done)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._stopped.is_set():
                continue
            try:
                self._finished.put(self._work(job))
            except BaseException as error:
                self._finished.put(error)
