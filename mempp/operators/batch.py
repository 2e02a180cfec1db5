"""The runner of every operator that asks a model often: bounded concurrency, limits, outcomes in order, accounts.

Jobs are begun in order and come out in order, whatever order their replies arrive in. A limit is kept by what a job
may take at most: job i is begun when what the jobs before it took, and what i may take, stays within. While some of
those are still out, each counts with its most; so which jobs are begun depends on no timing.

The first job that does not fit is begun by itself where replies are kept: those cost nothing, and each request that is
sent has to fit. So a run goes on through what was paid for before, and a limit of one call brings it one call further.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from mempp.errors import CostLimitError, InputError, MemppError, ModelReplyError, ModelRequestError, quoted
from mempp.llm import (
    Budget,
    CachedModel,
    Model,
    Reply,
    Request,
    UnansweredError,
    Usage,
    most_of,
    never_suffices,
)
from mempp.operators.models import ask_model
from mempp.waiting import taken

Value = TypeVar("Value")

Ask = Callable[[Request], Reply]
"""Asks the model of the batch, and keeps account."""

CONCURRENCY = 8
"""Requests that are out at a time, where the caller does not say."""
_AHEAD = 8
"""Jobs begun before an unfinished one, in concurrencies: one slow reply then does not hold up all others."""
_GRACE = 10.0
"""Seconds that a batch which ends with an error waits for the replies that are under way, and paid for."""


@contextmanager
def carrying(report: Callable[[], object]) -> Iterator[None]:
    """Let an error or an interrupt that ends a run tell, as `report`, what was done and spent before it."""
    try:
        yield
    except (MemppError, KeyboardInterrupt) as error:
        vars(error)["report"] = report()
        raise


@dataclass(frozen=True, slots=True)
class Job(Generic[Value]):
    """One piece of work with a model."""

    work: Callable[[Ask], Value]
    """Runs in a thread of its own. It may raise ModelReplyError where a reply is of no use."""
    most: Sequence[Request]
    """The requests that it makes at most, each at most once."""


@dataclass(slots=True)
class Account:
    """What was asked and what it cost."""

    asked: int = 0
    """Requests that were sent; the repeats of the SDK, after a fault in passing, do not count."""
    cached: int = 0
    """Replies that were there from an earlier request."""
    usage: Usage = field(default_factory=Usage)
    """Tokens of the replies that were asked for."""
    cost: float = 0.0
    """US dollars of these by list prices, and the most that each attempt may have cost that was never answered."""

    def add(self, other: "Account") -> None:
        """Count another's too."""
        self.asked += other.asked
        self.cached += other.cached
        self.usage += other.usage
        self.cost += other.cost


@dataclass(frozen=True, slots=True)
class Done(Generic[Value]):
    """What became of one job: a value, or the error for which it has none."""

    value: Value | None = None
    error: ModelRequestError | ModelReplyError | None = None
    """ModelRequestError: the request failed, and may succeed another time. ModelReplyError: the reply is of no use."""


class _WithinLimits(Job[Value]):
    """A job each of whose requests has to fit, because all of them together may not; nothing else is out."""


class Batch:
    """Asks one model for many jobs, and keeps the accounts of them all. `run` may be called again and again."""

    def __init__(
        self,
        model: Model,
        *,
        concurrency: int = CONCURRENCY,
        max_calls: int | None = None,
        max_cost: float | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            model: the model; it is asked by several threads.
            concurrency: how many jobs are out at a time.
            max_calls: requests that may be sent; replies that are there already do not count.
            max_cost: US dollars that may be spent, by list prices. Each request counts as often as the SDK may send it
                until its reply came: a server may bill every attempt.

        Raises:
            InputError: an argument is not usable, or the cost is limited and no price of the model is known.
        """
        self._model = model
        self._concurrency = whole(concurrency, "concurrency", least=1)
        self._max_calls = None if max_calls is None else whole(max_calls, "max_calls")
        self._max_cost = None if max_cost is None else _dollars(max_cost)
        ours = model if isinstance(model, CachedModel) else None
        self._price = (Budget() if ours is None else ours.budget).price(model.name)
        self._attempts = 1 if ours is None else ours.attempts
        self._keeping = ours if ours is not None and ours.cache is not None else None
        if self._max_cost is not None and self._price is None:
            raise InputError(
                f"no price is known for {model.name}, so max_cost cannot be kept; use max_calls (--max-calls), or give "
                "a price in US dollars per million tokens: --price IN,OUT, in Python "
                "mempp.chat_model(…, budget=mempp.llm.Budget(prices=…))"
            )
        self.account = Account()
        """Of all jobs that came to an end."""
        self.stopped: str | None = None
        """Why no further job is begun, where a limit is reached."""
        self._awaited = False
        self._open: dict[int, Account] = {}
        """Of jobs that were begun and are not in `account`, by identity."""

    @property
    def cost(self) -> float | None:
        """US dollars by list prices; None where no price is known, whether or not all replies were kept."""
        return None if self._price is None else self.account.cost

    @contextmanager
    def outcomes(self, jobs: Iterable[Job[Value]]) -> Iterator[Iterator[Done[Value]]]:
        """`run`, closed at the end.

        Where an error of the caller's ends it, what is under way is waited for and counted, since it is paid for; an
        interrupt waits for nothing.
        """
        with closing(self.run(jobs)) as outcomes:
            try:
                yield outcomes
            except MemppError:
                self._awaited = True
                raise

    def run(self, jobs: Iterable[Job[Value]]) -> Generator[Done[Value], None, None]:
        """The outcome of each job, in order; fewer where a limit is reached, and `stopped` then says which.

        The jobs are taken as they are needed. Between two outcomes the caller may do as it likes; other requests go on
        meanwhile. When the iterator is closed early nothing further is begun.

        Raises:
            ModelError: no request can succeed; raised when all jobs before the one that met it have come out.
            MemppError: a job raised it (the cache of replies cannot be written, say); likewise.
        """
        source = iter(jobs)
        upcoming = next(source, None)
        crew: _Crew[Value] = _Crew(self._work, self._concurrency)
        out: dict[int, Job[Value]] = {}
        finished: dict[int, Done[Value] | BaseException] = {}
        begun = given = 0
        doomed = False
        try:
            while True:
                while not doomed and upcoming is not None and self._may_begin(upcoming, out, ahead=begun - given):
                    out[begun] = upcoming
                    crew.put(begun, upcoming)
                    begun += 1
                    upcoming = next(source, None)
                if given in finished:
                    outcome = finished.pop(given)
                    if isinstance(outcome, CostLimitError):
                        # What is out is paid for; it is waited for as it would have been without the limit.
                        self._count(crew.stop(None, len(out)))
                        self.stopped = str(outcome)
                        return
                    if isinstance(outcome, BaseException):
                        raise outcome
                    given += 1
                    yield outcome
                elif out:
                    number, outcome, account = crew.take()
                    del out[number]
                    self._add(account)
                    finished[number] = outcome
                    # No request can succeed any more; what was begun before it comes out, and nothing else is begun.
                    doomed = doomed or (isinstance(outcome, BaseException) and not isinstance(outcome, CostLimitError))
                elif upcoming is not None and self._keeping is not None:
                    out[begun] = upcoming
                    crew.put(begun, _WithinLimits(upcoming.work, upcoming.most))
                    begun += 1
                    upcoming = next(source, None)
                else:
                    break
            if upcoming is not None:
                self.stopped = self._limit(upcoming.most, self.account)
        except (MemppError, GeneratorExit, KeyboardInterrupt) as error:
            awaited = self._awaited or isinstance(error, MemppError)
            self._count(crew.stop(_GRACE if awaited else 0, len(out)))
            for account in [*self._open.values()]:  # what jobs still under way were answered so far
                self._add(account)
            raise
        finally:
            crew.stop(0, 0)

    def _count(self, finished: "Iterable[tuple[int, object, Account]]") -> None:
        for _, _, account in finished:
            self._add(account)

    def _add(self, account: Account) -> None:
        self._open.pop(id(account), None)
        self.account.add(account)

    def _may_begin(self, job: Job[Any], out: Mapping[int, Job[Any]], *, ahead: int) -> bool:
        if len(out) >= self._concurrency or ahead >= self._concurrency * _AHEAD:
            return False
        return self._fits([request for one in (job, *out.values()) for request in one.most], self.account)

    def _fits(self, requests: Sequence[Request], account: Account) -> bool:
        """Whether both limits allow these requests too."""
        if self._max_calls is not None and account.asked + len(requests) > self._max_calls:
            return False
        return self._max_cost is None or account.cost + sum(map(self._most, requests)) <= self._max_cost

    def _limit(self, requests: Sequence[Request], account: Account) -> str:
        """Which limit these requests would not keep, and what is to be done."""
        if self._max_calls is not None and account.asked + len(requests) > self._max_calls:
            calls = f"{len(requests)} {'call' if len(requests) == 1 else 'calls'}"
            if len(requests) > self._max_calls:
                return (
                    f"max_calls={self._max_calls} can never suffice: the next step alone may take {calls}; give at "
                    "least that (max_calls, --max-calls)"
                )
            return (
                f"max_calls={self._max_calls}: {account.asked} were made, and the next may take {calls}; the same "
                "again goes on"
            )
        most = sum(map(self._most, requests))
        if self._max_cost is not None and most > self._max_cost:
            return f"max_cost={self._max_cost} {never_suffices(most, self._attempts)}"
        often = f", in {self._attempts} attempts at each call (max_retries, --retries)," if self._attempts > 1 else ""
        return (
            f"max_cost={self._max_cost}: ${account.cost:.4f} are spent, and the next may take{often} ${most:.4f}; "
            "the same again goes on"
        )

    def _most(self, request: Request) -> float:
        """US dollars that a request costs at most, sent as often as it may be."""
        return self._most_of_one(request) * self._attempts

    def _most_of_one(self, request: Request) -> float:
        return 0.0 if self._price is None else self._price.of(most_of(request))

    def _work(self, job: Job[Value]) -> tuple["Done[Value] | BaseException", Account]:
        account = Account()
        self._open[id(account)] = account

        def ask(request: Request) -> Reply:
            if isinstance(job, _WithinLimits):
                self._check_limits(request, account)
            return self._ask(request, account)

        try:
            return Done(job.work(ask)), account
        except (ModelRequestError, ModelReplyError) as error:
            return Done(error=error), account
        except BaseException as error:  # raised by `run`, in its turn
            return error, account

    def _check_limits(self, request: Request, of_job: Account) -> None:
        """Raise CostLimitError where a request is to be sent and does not fit."""
        account = replace(self.account)
        account.add(of_job)
        if not self._fits([request], account) and (self._keeping is None or self._keeping.kept(request) is None):
            raise CostLimitError(self._limit([request], account))

    def _ask(self, request: Request, account: Account) -> Reply:
        try:
            reply = ask_model(self._model, request)
        except CostLimitError:
            raise
        except UnansweredError as error:
            account.asked += 1
            account.cost += self._most_of_one(request) * error.attempts
            raise
        except MemppError:
            account.asked += 1
            raise
        if reply.cached:
            account.cached += 1
        else:
            account.asked += 1
            account.usage += reply.usage
            # A server that does not count may have written as much as it was allowed to.
            counted = self._price is not None and reply.usage != Usage()
            account.cost += self._price.of(reply.usage) if self._price and counted else self._most_of_one(request)
            account.cost += self._most_of_one(request) * reply.lost
        return reply


class _Crew(Generic[Value]):
    """Daemon threads, because an interrupted program must not wait for a request that takes minutes."""

    def __init__(self, work: Callable[[Job[Value]], tuple[Done[Value] | BaseException, Account]], threads: int) -> None:
        self._work = work
        self._jobs: queue.SimpleQueue[tuple[int, Job[Value]] | None] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[tuple[int, Done[Value] | BaseException, Account]] = queue.SimpleQueue()
        self._most = threads
        self._threads = 0
        self._stopped = threading.Event()

    def put(self, number: int, job: Job[Value]) -> None:
        """Hand over a job. Threads are started as they are needed."""
        self._jobs.put((number, job))
        if self._threads < min(self._most, number + 1):
            self._threads += 1
            threading.Thread(target=self._serve, daemon=True).start()

    def take(self) -> tuple[int, Done[Value] | BaseException, Account]:
        """The next job that is finished; waits for it."""
        return taken(self._finished)

    def stop(self, seconds: float | None, unfinished: int) -> list[tuple[int, Done[Value] | BaseException, Account]]:
        """Begin nothing further; wait so long (None: to the end) for what is under way, and give what was finished."""
        self._stopped.set()
        for _ in range(self._threads):
            self._jobs.put(None)
        ended: list[tuple[int, Done[Value] | BaseException, Account]] = []
        until = None if seconds is None else time.monotonic() + seconds
        with suppress(queue.Empty):
            while len(ended) < unfinished:
                left = None if until is None else max(0.0, until - time.monotonic())
                ended.append(taken(self._finished, left))
        return ended

    def _serve(self) -> None:
        while (given := self._jobs.get()) is not None:
            number, job = given
            if self._stopped.is_set():
                self._finished.put((number, Done(), Account()))
                continue
            outcome, account = self._work(job)
            self._finished.put((number, outcome, account))


def whole(value: object, name: str, *, least: int = 0) -> int:
    """A whole number that a caller gave.

    Raises:
        InputError: it is none, or below the least.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number from {least}, got {quoted(value)}")
    return value


def _dollars(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError(f"max_cost must be US dollars from 0, got {quoted(value)}")
    return float(value)
