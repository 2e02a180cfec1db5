"""The runner of the operators: order, limits, accounts, errors; with models of every speed."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempp.errors import CostLimitError, InputError, ModelError, ModelReplyError, ModelRequestError, StoreWriteError
from mempp.llm import CachedModel, MemoryReplies, Reply, Request, UnansweredError, Usage
from mempp.llm.base import Sent
from mempp.operators.batch import Batch, Job


class Model:
    """Replies by the number that begins a prompt; `errors` and `cached` name numbers, `seconds` makes them late."""

    def __init__(self, *, errors=None, cached=(), seconds=lambda number: 0.0, name="gpt-4o-mini"):
        self.name = name
        self.errors, self.cached, self.seconds = errors or {}, cached, seconds
        self.asked = []
        self.guard = threading.Lock()
        self.out = self.most_out = 0

    def ask(self, request):
        number = int(request.prompt.split()[0])
        with self.guard:
            self.asked.append(request.prompt)
            self.out += 1
            self.most_out = max(self.most_out, self.out)
        time.sleep(self.seconds(number))
        with self.guard:
            self.out -= 1
        if number in self.errors:
            raise self.errors[number]
        return Reply(text=str(number), usage=Usage(10, 1), seconds=0, stopped="end", cached=number in self.cached)

    def stream(self, request):
        raise NotImplementedError


def job(number, calls=1, most=None):
    requests = [Request(prompt=f"{number} {call}", max_tokens=100) for call in range(most or calls)]

    def work(ask):
        texts = [ask(request).text for request in requests[:calls]]
        return texts[0] if texts else str(number)

    return Job(work, requests)


def values(batch, jobs):
    return [done.value if done.error is None else type(done.error).__name__ for done in batch.run(jobs)]


@pytest.mark.parametrize("concurrency", [1, 2, 8, 50])
def test_outcomes_come_in_order_and_no_more_are_out_than_allowed(concurrency):
    model = Model(seconds=lambda number: 0.01 * (7 - number % 8))
    batch = Batch(model, concurrency=concurrency)
    assert values(batch, (job(number) for number in range(40))) == [str(number) for number in range(40)]
    assert model.most_out <= concurrency
    assert (model.most_out > 1) == (concurrency > 1)
    assert (batch.account.asked, batch.account.cached, batch.account.usage) == (40, 0, Usage(400, 40))
    assert batch.cost == pytest.approx(40 * (10 * 0.15 + 1 * 0.6) / 1e6)
    assert batch.stopped is None


def test_jobs_are_taken_as_they_are_needed():
    taken = []

    def jobs():
        for number in range(10_000):
            taken.append(number)
            yield job(number)

    outcomes = Batch(Model(), concurrency=2).run(jobs())
    assert next(outcomes).value == "0"
    outcomes.close()
    assert len(taken) < 50


def test_failed_calls_and_useless_replies_are_outcomes():
    errors = {3: ModelRequestError("no"), 5: ModelReplyError("refused"), 7: UnansweredError("late", 6)}
    model = Model(errors=errors)
    batch = Batch(model, concurrency=4)
    found = values(batch, map(job, range(10)))
    assert [found[place] for place in (3, 5, 7)] == ["ModelRequestError", "ModelReplyError", "UnansweredError"]
    assert [one for one in found if one.isdigit()] == ["0", "1", "2", "4", "6", "8", "9"]
    assert batch.account.asked == 10
    assert batch.cost > 6 * 100 * 0.6 / 1e6, "six attempts may have been billed, each with all that it was allowed"


@pytest.mark.parametrize("error", [ModelError("no key"), StoreWriteError("disk full")])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_an_error_that_ends_all_is_raised_in_its_turn(error, concurrency):
    model = Model(errors={5: error}, seconds=lambda number: 0.03 if number < 5 else 0.0)
    outcomes = Batch(model, concurrency=concurrency).run(map(job, range(1000)))
    assert [next(outcomes).value for _ in range(5)] == ["0", "1", "2", "3", "4"]
    with pytest.raises(type(error)):
        next(outcomes)
    assert len(model.asked) < 100


def test_replies_that_were_on_their_way_at_an_error_are_counted():
    model = Model(errors={0: ModelError("no key")}, seconds=lambda number: 0.05 * (number > 0))
    batch = Batch(model, concurrency=4)
    with pytest.raises(ModelError):
        list(batch.run(map(job, range(4))))
    assert batch.account.asked == len(model.asked) == 4


def test_a_limit_of_the_callers_own_model_ends_it():
    batch = Batch(Model(errors={4: CostLimitError("own limit")}), concurrency=3)
    assert values(batch, map(job, range(9))) == ["0", "1", "2", "3"]
    assert batch.stopped == "own limit"


def test_what_is_out_when_a_models_own_limit_is_met_is_counted():
    model = Model(errors={0: CostLimitError("own limit")}, seconds=lambda number: 0.05 * number)
    batch = Batch(model, concurrency=4)
    assert values(batch, map(job, range(9))) == []
    assert batch.stopped == "own limit"
    assert batch.account.asked == len(model.asked) - 1 == 3, "all but the one that was not sent"


def test_attempts_that_were_lost_before_a_reply_are_counted():
    model = Model()
    model.ask = lambda request: Reply(text="1", usage=Usage(10, 1), seconds=0, stopped="end", lost=3)
    batch = Batch(model)
    values(batch, [job(1)])
    assert batch.cost > 3 * 100 * 0.6 / 1e6


class Sending:
    """A provider that counts what was sent."""

    name, identity, attempts = "gpt-4o-mini", {"model": "gpt-4o-mini"}, 1

    def __init__(self):
        self.sent = []

    def send(self, request):
        self.sent.append(request.prompt)
        return Sent(Reply(text=request.prompt, usage=Usage(10, 1), seconds=0, stopped="end"), True)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8),
    st.integers(0, 6),
    st.sampled_from([1, 2, 5]),
)
def test_with_replies_kept_every_call_that_a_limit_allows_brings_a_run_further(shapes, max_calls, concurrency):
    """Limits hold, what is kept costs nothing, and the same call again and again comes to the end."""
    jobs = [job(number, calls, calls + more) for number, (calls, more) in enumerate(shapes)]
    provider, replies = Sending(), MemoryReplies()
    total = sum(calls for calls, _ in shapes)
    for sent_before in range(0, total + 1, max(1, max_calls)):
        batch = Batch(CachedModel(provider, cache=replies), concurrency=concurrency, max_calls=max_calls)
        done = values(batch, jobs)
        assert batch.account.asked == len(provider.sent) - sent_before == min(max_calls, total - sent_before)
        assert len(set(provider.sent)) == len(provider.sent), "nothing is paid for twice"
        if not max_calls:
            break
    if max_calls or not total:
        assert (len(done), batch.stopped) == (len(jobs), None)
    else:
        first = next(number for number, (calls, _) in enumerate(shapes) if calls)
        assert len(done) == first
        assert batch.stopped.startswith("max_calls=0 can never suffice: the next step alone may take 1 call")
    kept = Batch(CachedModel(provider, cache=replies), concurrency=concurrency, max_calls=0)
    assert len(values(kept, jobs)) == (len(jobs) if max_calls or not total else first)
    assert kept.account.asked == 0


def test_no_thread_is_left_behind():
    before = threading.active_count()
    values(Batch(Model(), concurrency=8), map(job, range(20)))
    outcomes = Batch(Model(), concurrency=8).run(map(job, range(20)))
    next(outcomes)
    outcomes.close()
    until = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=12),
    st.integers(0, 20),
    st.sampled_from([1, 2, 5]),
)
def test_which_jobs_a_limit_lets_begin_is_told_by_a_plain_rule(shapes, max_calls, concurrency):
    """Job i is begun when what those before it took, and the most that it may take, stays within."""
    jobs = [job(number, calls, max(calls, most)) for number, (calls, most, _) in enumerate(shapes)]
    cached = [number for number, (_, _, kept) in enumerate(shapes) if kept]
    batch = Batch(Model(cached=cached), concurrency=concurrency, max_calls=max_calls)
    spent, begun = 0, 0
    for number, (calls, most, _) in enumerate(shapes):
        if spent + (max(calls, most) or 0) > max_calls:
            break
        spent += 0 if number in cached else calls
        begun += 1
    assert len(values(batch, jobs)) == begun
    assert batch.account.asked == spent
    assert (batch.stopped is None) == (begun == len(jobs))


def test_a_price_that_is_not_known():
    batch = Batch(Model(name="who"), concurrency=1)
    assert batch.cost is None, "also where nothing was asked, or all was kept"
    values(batch, [job(1)])
    assert batch.cost is None
    with pytest.raises(InputError, match="no price is known for who"):
        Batch(Model(name="who"), max_cost=1.0)


def test_a_server_that_does_not_count_costs_what_it_may_have_written():
    model = Model()
    model.ask = lambda request: Reply(text="1", usage=Usage(), seconds=0, stopped="end")
    batch = Batch(model)
    values(batch, [job(1)])
    assert batch.cost >= 100 * 0.6 / 1e6


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"concurrency": True}, {"max_calls": -1}, {"max_calls": "3"}, {"max_cost": -0.1}]
)
def test_arguments_that_are_not_usable(wrong):
    with pytest.raises(InputError):
        Batch(Model(), **wrong)
