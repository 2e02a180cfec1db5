"""Models through the real SDKs against a scripted server: replies, faults, what a server does not take, cache."""

import json
import logging
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scripted_server import (
    KEY,
    Answer,
    Asked,
    ModelServer,
    echo,
    fault_of,
    garbage,
    refuse,
    reset,
    say,
    slow,
    status,
    transient,
    truncate,
    with_faults,
)

from mempp.errors import InputError, ModelError, ModelRequestError, StoreWriteError
from mempp.llm import Budget, Model, Price, ReplyCache, Request, Usage, model, provider_of
from mempp.llm.cache import request_digest

pytestmark = pytest.mark.usefixtures("model_keys")

PROVIDERS = ("openai", "anthropic")
SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"type": "string", "enum": ["CORRECT", "WRONG"]}},
    "required": ["verdict"],
    "additionalProperties": False,
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def made(server: ModelServer, provider: str, **arguments: Any) -> Model:
    return model(f"{provider}:m", **{"base_url": server.url(provider), "max_retries": 2, "timeout": 5, **arguments})


def request(prompt: str = "Which vendor?", **more: Any) -> Request:
    return Request(**{"system": "Be short.", "prompt": prompt, "max_tokens": 50, **more})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_reply(server: ModelServer, provider: str) -> None:
    server.script = lambda asked: say("Vendor B", usage=(120, 7))
    reply = made(server, provider).ask(request())
    assert (reply.text, reply.usage, reply.stopped, reply.cached) == ("Vendor B", Usage(120, 7), "end", False)
    assert reply.seconds > 0
    (asked,) = server.asked
    assert (asked.provider, asked.model, asked.system, asked.prompt) == (provider, "m", "Be short.", "Which vendor?")
    assert asked.body["temperature"] == 0
    assert asked.body["max_tokens"] == 50
    assert KEY in asked.headers.get("authorization", "") + asked.headers.get("x-api-key", "")


@pytest.mark.parametrize(
    ("answer", "text", "stopped"),
    [
        (truncate("The answer begi"), "The answer begi", "length"),
        (refuse("No."), "No.", "refusal"),
        (say(""), "", "end"),
        (say(None), "", "end"),
    ],
)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_not_a_plain_reply(server: ModelServer, provider: str, answer: Answer, text: str, stopped: str) -> None:
    server.script = lambda asked: answer
    reply = made(server, provider).ask(request())
    assert (reply.text, reply.stopped) == (text, stopped)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("fault", [status(429), status(500), status(503), status(408)])
def test_the_sdk_gets_over_passing_faults(server: ModelServer, provider: str, fault: Answer) -> None:
    server.script = transient(fault, 2, lambda asked: say("at last"))
    assert made(server, provider).ask(request()).text == "at last"
    assert list(server.counts.values()) == [3]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_timeout_and_a_broken_connection_are_repeated(server: ModelServer, provider: str) -> None:
    server.script = transient(slow(), 1, lambda asked: say("at last"))
    assert made(server, provider, timeout=0.2).ask(request("a")).text == "at last"
    server.script = transient(reset(), 1, lambda asked: say("at last"))
    assert made(server, provider).ask(request("b")).text == "at last"
    assert sorted(server.counts.values()) == [2, 2]
    assert sorted(server.replies.values()) == [1, 1]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (status(500, "out of order"), "out of order"),
        (status(400, "prompt is too long"), "prompt is too long"),
        (slow(), r"did not answer within 0.3 s \(1 attempt\(s\)\)"),
        (reset(), "no connection"),
        (garbage(), "no (chat completion|message)"),
        (garbage(b"<html>hello</html>"), "no (chat completion|message)"),
        (garbage(b"[1, 2]"), "no (chat completion|message)"),
        (garbage(b'{"choices": [], "content": 7}'), "no (chat completion|message)"),
        (garbage(b'{"choices": [{}], "content": null}'), "no (chat completion|message)"),
        (garbage(b'"just a string"'), "no (chat completion|message)"),
        (garbage(b""), "no (chat completion|message)"),
    ],
)
def test_one_request_fails(server: ModelServer, provider: str, fault: Answer, told: str) -> None:
    asking = made(server, provider, max_retries=0, timeout=0.3)
    server.script = lambda asked: say("fine")
    asking.ask(request("before"))
    server.script = lambda asked: fault
    with pytest.raises(ModelRequestError, match=told) as caught:
        asking.ask(request("failing"))
    assert "\n" not in str(caught.value)
    assert f"{provider}:m" in str(caught.value)
    server.script = lambda asked: say("fine again")
    assert asking.ask(request("after")).text == "fine again"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (status(401, "invalid key"), "_API_KEY"),
        (status(403, "not yours"), "may not use"),
        (status(404, "no such model"), "the model's name"),
        (status(402, "pay"), "no credit"),
        (status(429, "You exceeded your current quota", None), "no credit"),
        (status(400, "Your credit balance is too low"), "no credit"),
    ],
)
def test_no_request_can_succeed(server: ModelServer, provider: str, fault: Answer, told: str) -> None:
    server.script = lambda asked: fault
    with pytest.raises(ModelError, match=told) as caught:
        made(server, provider, max_retries=0).ask(request())
    assert not isinstance(caught.value, ModelRequestError)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_server_of_ones_own_that_wants_a_key_is_told_of(
    server: ModelServer, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = lambda asked: status(401, "who are you?")
    with pytest.raises(ModelError, match=f"; check {provider.upper()}_API_KEY$"):
        made(server, provider, max_retries=0).ask(request())
    monkeypatch.delenv(f"{provider.upper()}_API_KEY")
    with pytest.raises(ModelError, match=f"who are you.*; no key was sent; set {provider.upper()}_API_KEY$"):
        made(server, provider, max_retries=0).ask(request())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_server_that_is_not_there_ends_a_run_only_before_its_first_reply(provider: str) -> None:
    with ModelServer() as server:
        asking = made(server, provider, max_retries=0)
        late = made(server, provider, max_retries=0)
        asking.ask(request("before"))
    with pytest.raises(ModelRequestError, match=r"no connection to 127\.0\.0\.1"):
        asking.ask(request("after"))
    with pytest.raises(ModelError, match="base_url") as caught:
        late.ask(request("first"))
    assert not isinstance(caught.value, ModelRequestError)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_key_is_in_no_message_trace_or_file(server: ModelServer, provider: str, tmp_path: Path) -> None:
    asking = made(server, provider, max_retries=0, cache=ReplyCache(tmp_path))
    server.script = lambda asked: status(401, f"the key {KEY} is wrong")
    with pytest.raises(ModelError) as caught:
        asking.ask(request())
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is caught.value.__cause__ is None
    server.script = echo
    asking.ask(request())
    assert KEY not in repr(asking) + "".join(path.read_text() for path in tmp_path.rglob("*.json"))


def refusing(*names: str) -> Any:
    """A server that takes no parameter whose name is in its body, and says so."""

    def script(asked: Asked) -> Answer:
        for name in names:
            if f'"{name}"' in json.dumps(asked.body):
                return status(400, f"`{name}` is not supported with this model")
        return echo(asked)

    return script


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_that_takes_no_temperature_is_asked_without_from_then_on(server: ModelServer, provider: str) -> None:
    server.script = refusing("temperature")
    asking = made(server, provider)
    for number in range(3):
        asking.ask(request(f"question {number}"))
    assert ["temperature" in asked.body for asked in server.asked] == [True, False, False, False]


def test_anthropic_version_goes_with_the_temperature(server: ModelServer) -> None:
    server.script = refusing("temperature")
    made(server, "anthropic").ask(request())
    first, second = (asked.headers["anthropic-version"] for asked in server.asked)
    assert first == "2023-06-01"
    assert second >= first


def test_the_name_of_the_limit(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.script = refusing("max_tokens")
    asking = made(server, "openai")
    asking.ask(request("a"))
    asking.ask(request("b"))
    assert [asked.body.get("max_completion_tokens") for asked in server.asked] == [None, 50, 50]


def test_a_server_that_refuses_both_names_of_the_limit_is_not_asked_for_ever(server: ModelServer) -> None:
    server.script = refusing("max_tokens", "max_completion_tokens", "temperature", "response_format")
    with pytest.raises(ModelRequestError, match="not supported"):
        made(server, "openai").ask(request(schema=SCHEMA))
    assert len(server.asked) < 8


def test_schema_openai(server: ModelServer) -> None:
    reply = made(server, "openai").ask(request(schema=SCHEMA))
    assert json.loads(reply.text)["verdict"] in ("CORRECT", "WRONG")
    form = server.asked[0].body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"] == SCHEMA
    assert form["json_schema"]["strict"] is True


def test_schema_anthropic(server: ModelServer) -> None:
    reply = made(server, "anthropic").ask(request(schema=SCHEMA))
    assert json.loads(reply.text)["verdict"] in ("CORRECT", "WRONG")
    assert server.asked[0].body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}


def test_a_local_server_without_schemas(server: ModelServer) -> None:
    server.script = refusing("json_schema")
    asking = made(server, "openai")
    asking.ask(request("a", schema=SCHEMA))
    asking.ask(request("b", schema=SCHEMA))
    forms = [(asked.body.get("response_format") or {}).get("type") for asked in server.asked]
    assert forms == ["json_schema", "json_object", "json_object"]
    server.asked.clear()
    server.script = refusing("response_format")
    asking.ask(request("c", schema=SCHEMA))
    asking.ask(request("d", schema=SCHEMA))
    assert [asked.body.get("response_format") for asked in server.asked] == [{"type": "json_object"}, None, None]


def test_anthropic_model_without_schemas(server: ModelServer) -> None:
    server.script = refusing("output_config")
    asking = made(server, "anthropic")
    asking.ask(request("a", schema=SCHEMA))
    asking.ask(request("b", schema=SCHEMA))
    assert ["output_config" in asked.body for asked in server.asked] == [True, False, False]


def test_a_refusal_about_something_else_does_not_cost_the_schema(server: ModelServer) -> None:
    asking = made(server, "openai", max_retries=0)
    server.script = lambda asked: status(400, "this prompt is too long")
    with pytest.raises(ModelRequestError, match="too long"):
        asking.ask(request("long", schema=SCHEMA))
    server.asked.clear()
    server.script = echo
    asking.ask(request("short", schema=SCHEMA))
    assert [asked.body["response_format"]["type"] for asked in server.asked] == ["json_schema"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_threads_learn_at_the_same_time_is_kept(server: ModelServer, provider: str) -> None:
    server.script = refusing("temperature")
    asking = made(server, provider)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: asking.ask(request(f"question {number}", schema=SCHEMA)), range(24)))
    server.asked.clear()
    asking.ask(request("the last", schema=SCHEMA))
    assert len(server.asked) == 1
    assert server.asked[0].schema == SCHEMA


def test_thinking_in_front_of_a_local_reply_is_left_out(server: ModelServer) -> None:
    server.script = lambda asked: say("<think>\nHm. B? Or C?\n</think>\n\nVendor B")
    assert made(server, "openai").ask(request()).text == "Vendor B"


def test_a_local_server_that_does_not_count(server: ModelServer) -> None:
    server.script = lambda asked: say("hello", counted=False)
    budget = Budget(1.0, prices={"": Price(1, 1)})
    assert made(server, "openai", budget=budget).ask(request()).usage == Usage(0, 0)
    assert budget.spent == pytest.approx((len("Be short.Which vendor?") + 1000 + 50) / 1e6)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_server_that_is_named_needs_no_key(
    server: ModelServer, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(f"{provider.upper()}_API_KEY")
    assert made(server, provider).ask(request()).text
    with pytest.raises(ModelError, match=f"needs a key; set {provider.upper()}_API_KEY"):
        model(f"{provider}:m")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", server.url(provider))
    assert model(f"{provider}:m").ask(request("by the variable")).text
    assert len(server.asked) == 2


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_missing_package_is_one_sentence(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, provider, None)
    with pytest.raises(ModelError, match=f"pip install {provider}"):
        model(f"{provider}:m")


def test_importing_loads_no_sdk() -> None:
    code = (
        "import sys, mempp.llm, mempp.operators.ask, eval.answering, eval.judging; "
        "print(sorted({'openai', 'anthropic', 'httpx2'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "base_url", "expected"),
    [
        ("gpt-4o-mini", None, ("openai", "gpt-4o-mini")),
        ("o3", None, ("openai", "o3")),
        ("o4-mini", None, ("openai", "o4-mini")),
        ("chatgpt-4o-latest", None, ("openai", "chatgpt-4o-latest")),
        ("claude-sonnet-4-6", None, ("anthropic", "claude-sonnet-4-6")),
        ("claude-sonnet-4-6", "http://localhost", ("anthropic", "claude-sonnet-4-6")),
        ("openai:claude-x", None, ("openai", "claude-x")),
        ("anthropic:gpt-x", None, ("anthropic", "gpt-x")),
        ("llama3:8b", "http://localhost", ("openai", "llama3:8b")),
        ("openai:llama3:8b", None, ("openai", "llama3:8b")),
        ("org/olmo", "http://localhost", ("openai", "org/olmo")),
    ],
)
def test_provider(name: str, base_url: str | None, expected: tuple[str, str]) -> None:
    assert provider_of(name, base_url=base_url) == expected


@pytest.mark.parametrize("name", ["llama3", "llama3:8b", "", "openai:", "olmo"])
def test_provider_that_cannot_be_told(name: str) -> None:
    with pytest.raises(InputError, match="openai:"):
        provider_of(name)


@pytest.mark.parametrize("base_url", ["localhost:8000", "ftp://x", "http://", "http://me:pw@host", "http://h/v1?key=x"])
def test_base_url_that_is_not_usable(base_url: str) -> None:
    with pytest.raises(InputError) as caught:
        model("openai:m", base_url=base_url)
    assert "pw" not in str(caught.value)


# The cache


@pytest.mark.parametrize("provider", PROVIDERS)
def test_nothing_is_asked_twice(server: ModelServer, provider: str, tmp_path: Path) -> None:
    asking = made(server, provider, cache=ReplyCache(tmp_path))
    first = asking.ask(request())
    again = asking.ask(request())
    elsewhere = made(server, provider, cache=ReplyCache(tmp_path)).ask(request())
    assert (again.cached, elsewhere.cached, first.cached) == (True, True, False)
    assert {again.text, elsewhere.text} == {first.text}
    assert (again.usage, again.seconds, again.stopped) == (first.usage, first.seconds, first.stopped)
    assert list(server.counts.values()) == [1]


def test_what_makes_a_request_another_one(server: ModelServer, tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path)
    asking = made(server, "openai", cache=cache)
    varied = [
        request(),
        request("Which vendor"),
        request(system="Be long."),
        request(system="Be short.W", prompt="hich vendor?"),
        request(max_tokens=51),
        request(schema=SCHEMA),
        request(repeat=1),
    ]
    assert [asking.ask(one).cached for one in varied] == [False] * len(varied)
    assert not model("openai:n", base_url=server.openai_url, cache=cache).ask(request()).cached
    assert not model("anthropic:m", base_url=server.anthropic_url, cache=cache).ask(request()).cached
    with ModelServer() as other:
        assert not made(other, "openai", cache=cache).ask(request()).cached
    assert [asking.ask(one).cached for one in varied] == [True] * len(varied)


def test_failures_are_not_cached_and_refusals_are(server: ModelServer, tmp_path: Path) -> None:
    asking = made(server, "openai", cache=ReplyCache(tmp_path), max_retries=0)
    server.script = lambda asked: status(500)
    with pytest.raises(ModelRequestError):
        asking.ask(request("a"))
    server.script = lambda asked: refuse("No.")
    assert not asking.ask(request("a")).cached
    reply = asking.ask(request("a"))
    assert (reply.cached, reply.stopped, reply.text) == (True, "refusal", "No.")


def test_threads_that_ask_the_same_at_once_share_one_reply(server: ModelServer, tmp_path: Path) -> None:
    everyone = threading.Barrier(8)
    server.script = lambda asked: say("once", delay=0.1)
    asking = made(server, "openai", cache=ReplyCache(tmp_path))

    def ask(_: int) -> str:
        everyone.wait(timeout=10)
        return asking.ask(request()).text

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {"once"}
    assert list(server.counts.values()) == [1]


def damages() -> list[Any]:
    return [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"answer", b"anzwer"),
        lambda content: re.sub(rb'"format":\d+', b'"format":99', content),
        lambda content: content.replace(b'"stopped"', b'"stoppe"'),
        lambda content: b"[" * 100_000,
        lambda content: b"null",
        lambda content: b"\xff\xfe",
    ]


@pytest.mark.parametrize("damage", damages())
def test_a_damaged_entry_is_a_miss(server: ModelServer, tmp_path: Path, damage: Any) -> None:
    asking = made(server, "openai", cache=ReplyCache(tmp_path))
    first = asking.ask(request())
    (path,) = tmp_path.rglob("*.json")
    whole = path.read_bytes()
    assert damage(whole) != whole
    path.write_bytes(damage(whole))
    assert asking.ask(request()) == first.__class__(**{**_fields(first), "seconds": asking.ask(request()).seconds})
    assert list(server.counts.values()) == [2]
    assert json.loads(path.read_bytes())["reply"]["text"] == first.text


def _fields(reply: Any) -> dict[str, Any]:
    return {name: getattr(reply, name) for name in ("text", "usage", "seconds", "stopped", "cached")}


def test_an_entry_of_another_request_is_a_miss(server: ModelServer, tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path)
    asking = made(server, "openai", cache=cache)
    asking.ask(request("a"))
    (path,) = tmp_path.rglob("*.json")
    other = request_digest(asking._provider.identity, request("b"))  # type: ignore[attr-defined]
    (tmp_path / other[:2]).mkdir(exist_ok=True)
    (tmp_path / other[:2] / f"{other}.json").write_bytes(path.read_bytes())
    assert cache.get(other) is None


def test_texts_of_any_kind_come_back_from_the_cache(server: ModelServer, tmp_path: Path) -> None:
    text = 'päper "quoted"\n\u2028 \U0001f600 \ud800 \x00 {braces}'
    server.script = lambda asked: say(text)
    asking = made(server, "openai", cache=ReplyCache(tmp_path))
    assert asking.ask(request()).text == asking.ask(request()).text == text


def test_a_cache_that_cannot_be_written_ends_the_run(server: ModelServer, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(StoreWriteError, match="cannot be written"):
        made(server, "openai", cache=ReplyCache(blocked)).ask(request())


WRITER = """
import sys
from pathlib import Path
from mempp.llm import Reply, Request, Usage
from mempp.llm.cache import ReplyCache, request_digest
cache = ReplyCache(Path(sys.argv[1]))
for round in range(40):
    for number in range(10):
        request = Request(prompt=f"question {number}", max_tokens=5)
        digest = request_digest({"model": "m"}, request)
        found = cache.get(digest)
        assert found is None or found.text == f"answer {number}" * 500, found
        cache.put(digest, {"model": "m"}, request,
                  Reply(text=f"answer {number}" * 500, usage=Usage(1, 2), seconds=0.5, stopped="end"))
"""


def test_several_processes_write_the_same_entries(tmp_path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[1] for process in running] == ["", "", ""]
    assert len(list(tmp_path.rglob("*.json"))) == 10
    assert not list(tmp_path.rglob("*.part"))


# Many requests with faults


@pytest.mark.parametrize("provider", PROVIDERS)
def test_many_threads_with_faults_and_a_second_run(server: ModelServer, provider: str, tmp_path: Path) -> None:
    faults = {
        "limit": (0.2, status(429)),
        "broken": (0.2, status(500)),
        "gone": (0.1, reset()),
        "refused": (0.1, refuse()),
        "cut": (0.1, truncate()),
    }
    server.script = with_faults(echo, faults, first=2)
    requests = [request(f"question {number}") for number in range(60)]

    def run() -> list[Any]:
        asking = made(server, provider, cache=ReplyCache(tmp_path), max_retries=3)
        with ThreadPoolExecutor(16) as threads:
            return list(threads.map(asking.ask, requests))

    first, counts = run(), dict(server.counts)
    second = run()
    assert [reply.text for reply in first] == [reply.text for reply in second]
    assert all(reply.cached for reply in second)
    assert dict(server.counts) == counts
    assert not server.answered_again()
    struck = {fault_of(digest, faults) for digest in counts}
    assert struck == {None, *faults}
    for digest, times in counts.items():
        assert times == (3 if fault_of(digest, faults) in ("limit", "broken", "gone") else 1)
    assert {reply.stopped for reply in first} == {"end", "refusal", "length"}


def test_the_sdk_logs_no_key(server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        made(server, "openai").ask(request())
        made(server, "anthropic").ask(request())
    assert KEY not in caplog.text
