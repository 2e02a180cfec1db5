"""What the clients of models and of embeddings share: keys that never show, addresses, and an end to waiting."""

import json
import re
import socket
import threading
import time
import traceback
from collections.abc import Iterator

import pytest
from scripted_server import ModelServer, garbage, reset, say, slow, status, transient

from mempp.encoders.openai_encoder import OpenAIEncoder
from mempp.errors import CostLimitError, EncoderError, InputError, MemppError, ModelRequestError
from mempp.llm import Budget, Price, Request, UnansweredError, model
from mempp.remote import LONGEST_WAIT, checked_address, key_fault, without_keys

SECRET = "sk-verysecret123"
PROVIDERS = ("openai", "anthropic")
PRICE = {"": Price(0, 1)}  # one dollar a million tokens written


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def trickling() -> Iterator[str]:
    """A server whose answers begin at once and never end: one blank every 0.02 s."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopping = threading.Event()

    def trickle(connection: socket.socket) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(head)
                while not stopping.wait(0.02):
                    connection.sendall(b"1\r\n \r\n")
            except OSError:
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=trickle, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stopping.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def asking(url: str, provider: str = "openai", **more):
    base = url if provider == "anthropic" else f"{url}/v1"
    return model(f"{provider}:m", **{"base_url": base, "max_retries": 0, "timeout": 0.3, **more})


def request(prompt: str = "Which vendor?") -> Request:
    return Request(prompt=prompt, max_tokens=100)


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", " ", "\t", "é", "\u2028"])
@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "api_key", "encoder"])
def test_a_key_that_no_header_can_carry_is_refused_and_never_shown(server, monkeypatch, end, name):
    key = SECRET + end
    if name != "api_key":
        monkeypatch.setenv("OPENAI_API_KEY" if name == "encoder" else name, key)

    def made():
        if name in ("api_key", "encoder"):
            return OpenAIEncoder(api_key=key if name == "api_key" else None).load()
        return asking(server.address, name.partition("_")[0].lower())

    with pytest.raises(MemppError, match="perhaps at its end") as caught:
        made()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", [SECRET, f"{SECRET}\r", f" {SECRET}\n", 'sk-"quoted"', r"sk-back\slash", "sk-é"])
def test_keys_are_taken_out_however_they_are_written(key):
    header = f"Bearer {key}"
    forms = (header, header.strip(), repr(header), json.dumps(header), repr(header.encode()), repr(header.strip()))
    for told in forms:
        hidden = without_keys(f"Illegal header value {told}", [key], 400)
        assert "…" in hidden
        assert not re.search("secret|quoted|slash|é|xc3", hidden), hidden


def test_keys_with_odd_characters_are_keys():
    assert key_fault(None) is key_fault("") is key_fault("sk-A_b.c/9+~=") is None


@pytest.mark.parametrize(
    "url",
    [
        "ftp://u:SECRET@h",
        "h:8000/v1?key=SECRET",
        "http://u:SECRET@h/v1",
        "https://h/v1?key=SECRET",
        "https://h/#SECRET",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_shown(url):
    for call in (
        lambda: model("m", base_url=url),
        lambda: OpenAIEncoder(base_url=url),
        lambda: checked_address(url, "x"),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://h", "h:8000", "http://", "http://h:99999", 5])
def test_what_is_no_address_is_shown(url):
    with pytest.raises(InputError, match="give an http or https address"):
        checked_address(url, "x")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e20, LONGEST_WAIT + 1, True, "5"])
def test_a_wait_that_no_system_takes_is_refused(seconds):
    with pytest.raises(InputError, match="timeout is"):
        model("gpt-4o", timeout=seconds)
    with pytest.raises(InputError, match="timeout is"):
        OpenAIEncoder(timeout=seconds)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_longest_wait_is_taken_by_the_system(server, provider):
    server.script = lambda asked: say("B")
    assert asking(server.address, provider, timeout=LONGEST_WAIT).ask(request()).text == "B"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_that_trickles_in_comes_to_an_end(trickling, provider):
    budget = Budget(1.0, prices=PRICE)
    started = time.monotonic()
    with pytest.raises(UnansweredError, match=r"did not answer within 0\.3 s"):
        asking(trickling, provider, max_retries=1, budget=budget).ask(request())
    assert time.monotonic() - started < 20
    assert budget.uncertain == pytest.approx(200e-6)  # both attempts


def test_embeddings_that_trickle_in_come_to_an_end(trickling):
    encoder = OpenAIEncoder(base_url=trickling, timeout=0.3, max_retries=0)
    with pytest.raises(EncoderError, match="did not answer"):
        encoder.encode_question("x")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("fault", "lost"),
    [(slow(), 2), (reset(), 2), (status(429), 0), (status(500), 0)],
    ids=["slow", "reset", "429", "500"],
)
def test_attempts_before_an_answer_count_where_they_may_be_billed(server, provider, fault, lost):
    server.script = transient(fault, 2, lambda asked: say("at last", usage=(0, 10)))
    budget = Budget(1.0, prices=PRICE)
    assert asking(server.address, provider, max_retries=2, budget=budget).ask(request()).text == "at last"
    assert budget.spent == pytest.approx(10e-6)
    assert budget.uncertain == pytest.approx(lost * 100e-6)


@pytest.mark.parametrize("then", [status(500), garbage()], ids=["500", "garbage"])
def test_attempts_before_a_failure_count_as_well(server, then):
    server.script = transient(slow(), 1, lambda asked: then)
    budget = Budget(1.0, prices=PRICE)
    with pytest.raises(ModelRequestError):
        asking(server.address, max_retries=1, budget=budget).ask(request())
    # A 500 is not billed; an answer of no use may be.
    assert budget.uncertain == pytest.approx((1 if then.status == 500 else 2) * 100e-6)


def test_a_limit_holds_whatever_is_repeated(server):
    server.script = lambda asked: slow()
    budget = Budget(250e-6, prices=PRICE)
    with pytest.raises(CostLimitError, match="3 attempt"):
        asking(server.address, max_retries=2, budget=budget).ask(request())
    assert not server.counts
    with pytest.raises(UnansweredError):
        asking(server.address, max_retries=1, budget=budget).ask(request())
    assert sum(server.counts.values()) * 100e-6 == pytest.approx(budget.uncertain) == 200e-6
    with pytest.raises(CostLimitError):
        asking(server.address, max_retries=0, budget=budget).ask(request())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_half_a_character_does_not_keep_a_request_from_being_sent(server, provider):
    server.script = lambda asked: say("B")
    assert asking(server.address, provider).ask(request("x\ud800y 😀")).text == "B"
    assert server.asked[0].prompt == "x\ufffdy 😀"
