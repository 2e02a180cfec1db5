"""A model as answerers and judges see it: the cache first, then the budget, then the server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eval.models.base import Provider, Reply, Request
from eval.models.cache import ReplyCache, request_digest
from eval.models.cost import Budget
from eval.models.failures import UnansweredError


class CachedModel:
    """Asks a provider for what the cache does not hold, and only for what the budget allows.

    Threads that ask the same at the same time are served by one request. (Processes that do may each send theirs.)
    """

    def __init__(self, provider: Provider, *, cache: ReplyCache | None = None, budget: Budget | None = None) -> None:
        self._provider = provider
        self._cache = cache
        self._budget = budget if budget is not None else Budget()
        self._guard = threading.Lock()
        self._asking: dict[str, _Turn] = {}

    def __repr__(self) -> str:
        return f"CachedModel({self.name!r})"

    @property
    def name(self) -> str:
        """Provider and model."""
        return self._provider.name

    def ask(self, request: Request) -> Reply:
        """Returns the reply; see `Model.ask` for what it raises.

        Raises:
            EvalError: the cache's folder cannot be written, so that going on would pay for replies that are lost.
        """
        if self._cache is None:
            return self._send(request)
        digest = request_digest(self._provider.identity, request)
        with self._turn(digest):
            reply = self._cache.get(digest)
            if reply is None:
                reply = self._send(request)
                self._cache.put(digest, self._provider.identity, request, reply)
            return reply

    def _send(self, request: Request) -> Reply:
        reservation = self._budget.reserve(self.name, request)
        usage = None
        try:
            reply, counted = self._provider.send(request)
            usage = reply.usage if counted else None
        except UnansweredError as error:
            # The server may have made the reply, and billed it, each time that it was asked.
            self._budget.unanswered(reservation, error.attempts)
            raise
        except BaseException:
            self._budget.release(reservation)
            raise
        self._budget.settle(reservation, usage)
        return reply

    @contextmanager
    def _turn(self, digest: str) -> Iterator[None]:
        """Lets one thread at a time ask for one digest."""
        with self._guard:
            turn = self._asking.setdefault(digest, _Turn())
            turn.threads += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._guard:
                turn.threads -= 1
                if not turn.threads:
                    del self._asking[digest]


class _Turn:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
