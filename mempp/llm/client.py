"""A model as those who ask see it: the cache first, then the budget, then the server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mempp.llm.base import Pieces, Provider, Reply, Request, Sent
from mempp.llm.cache import Replies, request_digest, usable
from mempp.llm.cost import Budget, Reservation
from mempp.llm.failures import UnansweredError


class CachedModel:
    """Asks a provider for what the cache does not hold, and only for what the budget allows.

    A reply of which the request says that it is of no use (`Request.usable`) is given to whoever asked, and not kept;
    one that lies in the cache all the same, from before, counts as none.

    Threads that ask the same at the same time are served by one request. (Processes that do may each send theirs.)
    """

    def __init__(self, provider: Provider, *, cache: Replies | None = None, budget: Budget | None = None) -> None:
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

    @property
    def attempts(self) -> int:
        """How often a request is sent at most."""
        return self._provider.attempts

    @property
    def budget(self) -> Budget:
        """What counts the cost."""
        return self._budget

    @property
    def cache(self) -> Replies | None:
        """Where replies are kept; None where they are not."""
        return self._cache

    def with_cache(self, cache: Replies | None) -> "CachedModel":
        """The same model, client and budget, with its replies kept there."""
        return CachedModel(self._provider, cache=cache, budget=self._budget)

    def kept(self, request: Request) -> Reply | None:
        """Returns the reply that the cache has for a request, if it has one; nothing is sent."""
        return None if self._cache is None else self._found(request_digest(self._provider.identity, request), request)

    def ask(self, request: Request) -> Reply:
        """Returns the reply; see `Model.ask` for what it raises.

        Raises:
            StoreWriteError: the cache cannot be written, so that going on would pay for replies that are lost.
        """
        if self._cache is None:
            return self._send(request)
        digest = request_digest(self._provider.identity, request)
        with self._turn(digest):
            reply = self._found(digest, request)
            if reply is None:
                reply = self._send(request)
                self._keep(digest, request, reply)
            return reply

    def stream(self, request: Request) -> Pieces[Reply]:
        """Yields the text as it is written and returns the reply; see `Model.stream`. Only a whole reply is kept.

        Raises:
            StoreWriteError: as `ask`, after the last piece.
        """
        if self._cache is None:
            return (yield from self._streamed(request))
        # No turn is held: whoever takes the pieces may do anything between two of them, and ask the same again.
        digest = request_digest(self._provider.identity, request)
        reply = self._found(digest, request)
        if reply is None:
            reply = yield from self._streamed(request)
            self._keep(digest, request, reply)
        elif reply.text and reply.stopped != "refusal":
            yield reply.text
        return reply

    def _found(self, digest: str, request: Request) -> Reply | None:
        reply = None if self._cache is None else self._cache.get(digest)
        return reply if reply is None or usable(request, reply) else None

    def _keep(self, digest: str, request: Request, reply: Reply) -> None:
        if self._cache is not None and usable(request, reply):
            self._cache.put(digest, self._provider.identity, request, reply)

    def _send(self, request: Request) -> Reply:
        with self._reserved(request) as bill:
            sent = self._provider.send(request)
            bill.settle(sent)
        return sent.reply

    def _streamed(self, request: Request) -> Pieces[Reply]:
        with self._reserved(request) as bill:
            try:
                sent = yield from self._provider.stream(request)
            except GeneratorExit:
                bill.unanswered(1)  # nobody waits for the rest, which may be billed all the same
                raise
            bill.settle(sent)
        return sent.reply

    @contextmanager
    def _reserved(self, request: Request) -> Iterator["_Bill"]:
        bill = _Bill(self._budget, self._budget.reserve(self.name, request, self._provider.attempts))
        try:
            yield bill
        except UnansweredError as error:
            # The server may have made the reply, and billed it, each time that it was asked.
            bill.unanswered(error.attempts)
            raise
        finally:
            bill.release()

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


class _Bill:
    """What is reserved for one request, until the first of three ends comes to it."""

    def __init__(self, budget: Budget, reservation: Reservation) -> None:
        self._budget = budget
        self._reservation: Reservation | None = reservation

    def settle(self, sent: Sent) -> None:
        if (reservation := self._taken()) is not None:
            self._budget.settle(reservation, sent.reply.usage if sent.counted else None, sent.reply.lost)

    def unanswered(self, attempts: int) -> None:
        if (reservation := self._taken()) is not None:
            self._budget.unanswered(reservation, attempts)

    def release(self) -> None:
        if (reservation := self._taken()) is not None:
            self._budget.release(reservation)

    def _taken(self) -> Reservation | None:
        reservation, self._reservation = self._reservation, None
        return reservation


class _Turn:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
