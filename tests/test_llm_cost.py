"""The budget: what is reserved, what is counted, and that a limit holds whatever threads do."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import ModelServer, echo, refuse, reset, say, slow, status, with_faults

from mempp.errors import CostLimitError, InputError, ModelRequestError
from mempp.llm import PRICES, Budget, Price, ReplyCache, Request, Usage, model, parse_price


def request(prompt: str = "hello", max_tokens: int = 100) -> Request:
    return Request(prompt=prompt, max_tokens=max_tokens)


def test_price_by_hand():
    assert Price(2, 8).of(Usage(1_000_000, 500_000)) == 6
    assert Price(2, 10, 272_000, 4, 15).of(Usage(272_000, 1000)) == pytest.approx(0.544 + 0.01)
    assert Price(2, 10, 272_000, 4, 15).of(Usage(272_001, 1000)) == pytest.approx(1.088004 + 0.015)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.15,0.60", ("", Price(0.15, 0.6))),
        ("0,0", ("", Price(0, 0))),
        ("gpt-x=1,2", ("gpt-x", Price(1, 2))),
        ("openai:llama3:8b=1,2", ("openai:llama3:8b", Price(1, 2))),
    ],
)
def test_parse_price(text: str, expected: tuple[str, Price]):
    assert parse_price(text) == expected


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "a,b", "-1,2", "nan,1", "inf,1", "=1,2", "gpt-x=1"])
def test_parse_price_refuses(text: str):
    with pytest.raises(InputError, match="IN,OUT"):
        parse_price(text)


def test_which_price_holds():
    plain = Budget()
    assert plain.price("openai:gpt-4o-mini") == plain.price("gpt-4o-mini") == PRICES["gpt-4o-mini"]
    assert plain.price("openai:gpt-4o-mini-2024-07-18") == PRICES["gpt-4o-mini"]
    assert plain.price("anthropic:claude-haiku-4-5-20251001") == PRICES["claude-haiku-4-5"]
    assert plain.price("openai:llama3") is None
    own = Budget(prices={"": Price(9, 9), "gpt-4o": Price(1, 1)})
    assert own.price("openai:gpt-4o") == Price(1, 1)
    assert own.price("openai:gpt-4o-mini") == own.price("llama3") == Price(9, 9)


def test_prices_are_sane():
    assert all(0 < price.input < price.output for price in PRICES.values())
    assert all(price.long_from is None or price.long_input > price.input for price in PRICES.values())


def test_a_limit_without_a_price_is_an_error():
    with pytest.raises(InputError, match="--price"):
        Budget(1.0).reserve("llama3", request())
    with pytest.raises(InputError, match="--price"):
        model("openai:llama3", base_url="http://localhost:1", budget=Budget(1.0))
    Budget(1.0, prices={"": Price(0, 0)}).reserve("llama3", request())


@pytest.mark.parametrize("limit", [-1.0, math.nan, math.inf])
def test_a_limit_that_is_none(limit: float):
    with pytest.raises(InputError, match="--max-cost"):
        Budget(limit)


def test_without_a_limit_what_is_not_priced_is_named():
    budget = Budget()
    budget.settle(budget.reserve("llama3", request()), Usage(10, 5))
    budget.settle(budget.reserve("gpt-4o", request()), Usage(1000, 100))
    assert budget.unpriced == ("llama3",)
    assert budget.spent == pytest.approx(0.0035)
    assert budget.usage == {"llama3": Usage(10, 5), "gpt-4o": Usage(1000, 100)}


@given(st.text(), st.text(), st.integers(1, 10_000))
def test_the_reservation_is_no_less_than_any_tokenizer_makes(system: str, prompt: str, max_tokens: int):
    reservation = Budget(prices={"": Price(1, 0)}).reserve("m", Request(system=system, prompt=prompt, max_tokens=1))
    assert reservation.cost * 1e6 >= len((system + prompt).encode(errors="surrogatepass"))
    written = Budget(prices={"": Price(0, 1)}).reserve("m", Request(prompt=prompt, max_tokens=max_tokens))
    assert written.cost * 1e6 == pytest.approx(max_tokens)


PRICE = {"": Price(0, 1)}  # one dollar a million tokens written, so that a request reserves max_tokens / 1e6


def test_reserving_waits_for_what_is_out():
    budget = Budget(100e-6, prices=PRICE)
    first = budget.reserve("m", request(max_tokens=80))
    waiting = threading.Event()
    done: list[str] = []

    def second() -> None:
        waiting.set()
        reservation = budget.reserve("m", request(max_tokens=80))
        done.append("reserved")
        budget.settle(reservation, Usage(0, 10))

    thread = threading.Thread(target=second)
    thread.start()
    assert waiting.wait(10)
    assert not done
    budget.settle(first, Usage(0, 10))
    thread.join(10)
    assert done == ["reserved"]
    assert budget.spent == pytest.approx(20e-6)


def test_reserving_does_not_wait_for_what_cannot_help():
    budget = Budget(100e-6, prices=PRICE)
    budget.reserve("m", request(max_tokens=80))
    with pytest.raises(CostLimitError, match="may cost"):
        budget.reserve("m", request(max_tokens=101))


def test_those_who_wait_are_told_when_nothing_came_back():
    budget = Budget(100e-6, prices=PRICE)
    first = budget.reserve("m", request(max_tokens=80))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(budget.reserve, "m", request(max_tokens=80))
        budget.settle(first, Usage(0, 80))
        with pytest.raises(CostLimitError):
            waiting.result(10)


def test_a_server_that_does_not_count_is_taken_to_have_used_all():
    budget = Budget(prices=PRICE)
    budget.settle(budget.reserve("m", request(max_tokens=80)), None)
    assert budget.spent == pytest.approx(80e-6)


@given(
    limit=st.integers(0, 3000),
    asked=st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1), st.sampled_from("sur")), max_size=40),
)
def test_the_limit_holds(limit: int, asked: list[tuple[int, float, str]]):
    budget = Budget(limit / 1e6, prices=PRICE)
    billed = 0.0
    for most, share, outcome in asked:
        try:
            reservation = budget.reserve("m", request(max_tokens=most))
        except CostLimitError:
            assert billed + most > limit - 1e-6
            continue
        used = int(most * share)
        if outcome == "s":
            budget.settle(reservation, Usage(0, used))
            billed += used
        elif outcome == "u":
            budget.unanswered(reservation, 1)
            billed += most
        else:
            budget.release(reservation)
    assert (budget.spent + budget.uncertain) * 1e6 == pytest.approx(billed)
    assert billed <= limit + 1e-6


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    with ModelServer() as running:
        yield running


def test_a_run_stops_before_its_limit(server: ModelServer, tmp_path):
    """What the server says it billed is never above the limit, and a second run asks for nothing that came before."""
    server.script = with_faults(
        lambda asked: say(f"answer {asked.digest}", usage=(400, 60)),
        {"no": (0.2, refuse()), "late": (0.2, status(429))},
    )
    price = Price(1, 10)
    answered: list[str] = []

    def run(limit: float) -> Budget:
        budget = Budget(limit, prices={"": price})
        asking = model(
            "m", base_url=server.openai_url, cache=ReplyCache(tmp_path), budget=budget, max_retries=3, timeout=10
        )

        def ask(number: int) -> bool:
            try:
                answered.append(asking.ask(request(f"question {number}")).text)
            except CostLimitError:
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            done = list(threads.map(ask, range(40)))
        assert 0 < sum(done) < 40
        return budget

    first = run(0.015)
    assert first.spent <= 0.015
    # What is left would not have paid for the largest reply at each of its four attempts.
    assert first.spent > 0.015 - 4 * price.of(Usage(1100, 100))
    before = dict(server.replies)
    second = run(0.012)
    assert 0 < second.spent <= 0.012
    assert all(server.replies[digest] == times for digest, times in before.items())
    assert not server.answered_again()


def test_cached_replies_cost_nothing(server: ModelServer, tmp_path):
    budget = Budget(1.0, prices={"": Price(1, 1)})
    asking = model("m", base_url=server.openai_url, cache=ReplyCache(tmp_path), budget=budget)
    asking.ask(request())
    spent, usage = budget.spent, budget.usage
    assert spent > 0
    asking.ask(request())
    assert (budget.spent, budget.usage) == (spent, usage)
    empty = Budget(0.0, prices={"": Price(1, 1)})
    again = model("m", base_url=server.openai_url, cache=ReplyCache(tmp_path), budget=empty)
    assert again.ask(request()).cached
    with pytest.raises(CostLimitError):
        again.ask(request("another"))
    assert sum(server.counts.values()) == 1


@pytest.mark.parametrize(
    ("fault", "attempts"),
    [(status(500), 0), (status(400), 0), (slow(), 2), (reset(), 2)],
    ids=["500", "400", "slow", "reset"],
)
def test_what_a_failure_costs(server: ModelServer, fault, attempts: int):
    """A refusal costs nothing; a reply that never came may have been billed at every attempt."""
    budget = Budget(1.0, prices=PRICE)
    asking = model("m", base_url=server.openai_url, budget=budget, max_retries=1, timeout=0.2)
    server.script = lambda asked: fault
    with pytest.raises(ModelRequestError):
        asking.ask(request(max_tokens=100))
    assert budget.spent == 0
    assert budget.uncertain == pytest.approx(attempts * 100e-6)
    server.script = echo
    asking.ask(request())
    assert budget.spent > 0
