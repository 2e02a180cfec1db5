"""Replies as they are written: the same text, usage and cost as without streaming, and what breaks off midway."""

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import (
    KEY,
    Answer,
    ModelServer,
    break_off,
    echo,
    garbage,
    refuse,
    reset,
    say,
    slow,
    status,
    transient,
    truncate,
)

from mempp.errors import CostLimitError, ModelError, ModelRequestError
from mempp.llm import Budget, CachedModel, MemoryReplies, Price, Reply, ReplyCache, Request, Usage, model, streamed
from mempp.llm.failures import UnansweredError
from mempp.llm.openai_chat import _WithoutThinking

pytestmark = pytest.mark.usefixtures("model_keys")

PROVIDERS = ("openai", "anthropic")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def made(server: ModelServer, provider: str, **arguments: Any) -> CachedModel:
    return model(f"{provider}:m", **{"base_url": server.url(provider), "max_retries": 2, "timeout": 5, **arguments})


def request(prompt: str = "Which vendor?", **more: Any) -> Request:
    return Request(**{"system": "Be short.", "prompt": prompt, "max_tokens": 50, **more})


def taken(asking: Any, of: Request) -> tuple[list[str], Reply]:
    pieces: list[str] = []
    return pieces, streamed(asking.stream(of), pieces.append)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_pieces_are_the_reply(server: ModelServer, provider: str) -> None:
    server.script = lambda asked: say("Vendor B, since March.", usage=(120, 7))
    pieces, reply = taken(made(server, provider), request())
    assert pieces == ["Vendor ", "B, sinc", "e March", "."]
    assert reply == Reply(text="".join(pieces), usage=Usage(120, 7), seconds=reply.seconds, stopped="end")
    assert reply.seconds > 0
    assert server.asked[0].body["stream"] is True


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("answer", [say("plain"), say(""), truncate("The answer begi"), refuse("No.")])
def test_streamed_or_not_the_reply_is_the_same(server: ModelServer, provider: str, answer: Answer) -> None:
    server.script = lambda asked: answer
    asking = made(server, provider)
    whole = asking.ask(request())
    _, reply = taken(asking, request())
    assert (reply.text, reply.stopped, reply.usage) == (whole.text, whole.stopped, whole.usage)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_reply_is_kept_and_comes_again_in_one_piece(server: ModelServer, provider: str, tmp_path: Path) -> None:
    asking = made(server, provider, cache=ReplyCache(tmp_path))
    pieces, first = taken(asking, request())
    assert len(pieces) > 1
    assert not first.cached
    assert taken(asking, request()) == ([first.text], asking.ask(request()))
    assert asking.ask(request()).cached
    assert list(server.counts.values()) == [1]


def test_a_kept_refusal_has_no_pieces(server: ModelServer) -> None:
    server.script = lambda asked: refuse("No.")
    asking = made(server, "openai", cache=MemoryReplies())
    assert taken(asking, request())[1].stopped == "refusal"
    pieces, again = taken(asking, request())
    assert (pieces, again.text, again.cached) == ([], "No.", True)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("fault", "told", "attempts"),
    [
        (break_off(), "broke off", 1),
        (break_off(ends_early=True), r"broke off \(it ended before the model was done\)", 1),
        (break_off(delay=30.0), r"broke off \(nothing more came within 0\.3 s\)", 1),
        (slow(), "broke off|did not answer", 1),
        (reset(), "no connection", 1),
        (status(500), "500", 0),
        (status(429), "429", 0),
        (status(401), "_API_KEY", 0),
        (garbage(), "it holds no event of a stream", 1),
        (garbage(b""), "it holds no event of a stream", 1),
        (garbage(b'event: message_start\ndata: {"a\n\n'), "JSON", 1),
        (garbage(b'event: error\ndata: {"error": {"message": "out of order"}}\n\n'), "out of order", 1),
        (garbage(b'event: message_start\ndata: {"choices": 7, "type": 5}\n\n'), "no (chat|mess)|broke off", None),
        (garbage(b"event: message_start\ndata: [1, 2]\n\n"), "no (chat|mess)|broke off", None),
    ],
)
def test_what_breaks_off_is_one_error_and_is_not_kept(
    server: ModelServer, provider: str, fault: Answer, told: str, attempts: int | None, tmp_path: Path
) -> None:
    budget = Budget(1.0, prices={"": Price(0, 1)})
    asking = made(server, provider, max_retries=0, timeout=0.3, cache=ReplyCache(tmp_path), budget=budget)
    server.script = lambda asked: fault
    with pytest.raises(ModelError, match=told) as caught:
        taken(asking, request(max_tokens=100))
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert not list(tmp_path.rglob("*.json"))
    assert budget.spent == 0
    if attempts is not None:
        assert budget.uncertain == pytest.approx(attempts * 100e-6)
        assert isinstance(caught.value, UnansweredError) == bool(attempts)
    server.script = lambda asked: say("fine again")
    assert taken(asking, request())[1].text == "fine again"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_passing_faults_before_the_first_byte_are_repeated(server: ModelServer, provider: str) -> None:
    server.script = transient(status(503), 2, lambda asked: say("at last"))
    assert taken(made(server, provider), request())[1].text == "at last"
    assert list(server.counts.values()) == [3]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_who_stops_taking_ends_the_request(server: ModelServer, provider: str) -> None:
    budget = Budget(1.0, prices={"": Price(0, 1)})
    cache = MemoryReplies()
    asking = made(server, provider, budget=budget, cache=cache)
    pieces = asking.stream(request(max_tokens=100))
    assert next(pieces)
    pieces.close()
    assert budget.uncertain == pytest.approx(100e-6)

    def stop(piece: str) -> None:
        raise ZeroDivisionError(piece)

    with pytest.raises(ZeroDivisionError):
        streamed(asking.stream(request("another", max_tokens=100)), stop)
    assert budget.uncertain == pytest.approx(200e-6)
    assert not taken(asking, request(max_tokens=100))[1].cached


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_same_may_be_asked_between_two_pieces(server: ModelServer, provider: str) -> None:
    asking = made(server, provider, cache=MemoryReplies())
    within: list[str] = []
    server.script = lambda asked: say("Vendor B, since March")
    reply = streamed(asking.stream(request()), lambda piece: within.append(asking.ask(request()).text))
    assert set(within) == {reply.text}


def test_a_limit_of_the_cost_holds(server: ModelServer) -> None:
    asking = made(server, "openai", budget=Budget(0.0, prices={"": Price(1, 1)}))
    with pytest.raises(CostLimitError, match="may cost"):
        taken(asking, request())
    assert not server.asked


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_billed(server: ModelServer, provider: str) -> None:
    budget = Budget(prices={"": Price(1, 10)})
    server.script = lambda asked: say("hello", usage=(100, 20))
    taken(made(server, provider, budget=budget), request())
    assert budget.spent == pytest.approx(300e-6)
    server.script = lambda asked: say("hello", counted=False)
    _, reply = taken(made(server, provider, budget=budget), request("uncounted"))
    assert reply.usage == Usage()
    assert budget.spent > 300e-6 + 50 * 10e-6


def test_a_server_that_cannot_count_a_stream_is_asked_without(server: ModelServer) -> None:
    def script(asked: Any) -> Answer:
        return status(400, "unknown field stream_options") if "stream_options" in asked.body else echo(asked)

    server.script = script
    asking = made(server, "openai")
    assert taken(asking, request("a"))[1].text
    assert taken(asking, request("b"))[1].text
    assert ["stream_options" in asked.body for asked in server.asked] == [True, False, False]


@given(
    text=st.sampled_from(
        [
            "<think>\nHm. B? Or C?\n</think>\n\nVendor B",
            "  <think>a</think>b<think>c</think>",
            "<think>never ends",
            "<think>only</think>  \n",
            "<thin ice",
            "  <",
            "< think>x",
            "plain\n",
            "",
        ]
    ),
    cuts=st.lists(st.integers(0, 45)),
)
def test_thinking_in_front_is_left_out_however_it_is_cut(text: str, cuts: list[int]) -> None:
    from mempp.llm.openai_chat import _THINKING

    ends = sorted({*(min(cut, len(text)) for cut in cuts), len(text)})
    filter_ = _WithoutThinking()
    told = [filter_.after(text[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    assert "".join([*told, filter_.rest()]) == _THINKING.sub("", text)


def test_thinking_in_front_of_a_stream(server: ModelServer) -> None:
    server.script = lambda asked: say("<think>\nHm. B? Or C?\n</think>\n\nVendor B")
    pieces, reply = taken(made(server, "openai"), request())
    assert "".join(pieces) == reply.text == "Vendor B"


def test_no_key_is_logged(server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for provider in PROVIDERS:
            taken(made(server, provider), request())
    assert KEY not in caplog.text


def test_replies_in_memory_before_those_on_disk(server: ModelServer, tmp_path: Path) -> None:
    on_disk = ReplyCache(tmp_path)
    made(server, "openai", cache=on_disk).ask(request("a"))
    over = made(server, "openai", cache=MemoryReplies(behind=on_disk))
    assert over.ask(request("a")).cached
    assert not over.ask(request("b")).cached
    assert over.ask(request("b")).cached
    assert len(list(tmp_path.rglob("*.json"))) == 1


def test_a_cache_that_is_not_required_is_done_without(server: ModelServer, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    asking = made(server, "openai", cache=ReplyCache(blocked, required=False))
    assert not asking.ask(request()).cached
    assert not asking.ask(request()).cached


def test_requests_fail_one_by_one(server: ModelServer) -> None:
    server.script = lambda asked: status(500)
    with pytest.raises(ModelRequestError):
        taken(made(server, "openai", max_retries=0), request())
