"""What a server, or a caller, may do that must not cost time without end, money without account, or a raw exception."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from extraction_tools import ScriptedModel, extractor
from extraction_tools import documents as facts_documents
from extraction_tools import memory_of as facts_memory
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import KEY, Answer, ModelServer, reset, say

import mempp
from mempp.encoders import OpenAIEncoder
from mempp.errors import (
    CostLimitError,
    EncoderError,
    InputError,
    MemppError,
    ModelError,
    ModelRequestError,
    StoreWriteError,
)
from mempp.llm import Budget, MemoryReplies, Price, Reply, ReplyCache, Request, Usage, object_of, parse_price, streamed
from mempp.llm.keys import KeyFilter

pytestmark = pytest.mark.usefixtures("model_keys")

PROVIDERS = ("openai", "anthropic")
DEAR = {"": Price(10, 40)}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(extractor) as running:
        yield running


def made(server: ModelServer, provider: str = "openai", **arguments: Any) -> Any:
    return mempp.chat_model(
        f"{provider}:m", **{"base_url": server.url(provider), "max_retries": 0, "timeout": 5, **arguments}
    )


def request(prompt: str = "Which vendor?") -> Request:
    return Request(prompt=prompt, max_tokens=50)


# -- time ---------------------------------------------------------------------------------------------------------


@contextmanager
def raw_server(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """A server that reads a request and then does as it likes, until the test is over."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=talk, args=(connection,), daemon=True).start()

        def talk(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65_536)
                answer(connection, over)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)


def drip(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
    while not over.wait(0.05):
        connection.sendall(b"a")


def interim(connection: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.05):
        connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")


def error_of(work: Callable[[], object]) -> Exception:
    """What it ends with, and that it ends."""
    outcome: list[Exception] = []

    def run() -> None:
        try:
            work()
        except MemppError as error:
            outcome.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(30)
    assert not running.is_alive(), "it waits for ever"
    return outcome[0]


@pytest.mark.parametrize("answer", [drip, interim])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_head_without_end_is_a_timeout(answer: Any, provider: str) -> None:
    with raw_server(answer) as url:
        model = mempp.chat_model(f"{provider}:m", base_url=url, timeout=0.4, max_retries=1)
        error = error_of(lambda: model.ask(request()))
    assert isinstance(error, ModelRequestError)
    assert "did not answer within 0.4 s (2 attempt(s))" in str(error)
    assert error.attempts == 2, "each may have been billed"


@pytest.mark.parametrize("answer", [drip, interim])
def test_an_encoder_does_not_wait_for_a_head_without_end(answer: Any) -> None:
    with raw_server(answer) as url:
        encoder = OpenAIEncoder("m", dimensions=4, base_url=f"{url}/v1", api_key="k", timeout=0.4, max_retries=0)
        error = error_of(lambda: encoder.encode_documents(["a text"]))
    assert isinstance(error, EncoderError)
    assert "did not answer within 0.4 s" in str(error)


def test_asking_between_two_pieces_does_not_wait_for_itself(server: ModelServer) -> None:
    server.script = lambda asked: say("It is so, and further", usage=(10, 10))
    # Room for one request at a time.
    model = made(server, budget=Budget(max_cost=0.02, prices={"": Price(10, 10)}))
    told: list[Any] = []

    def ask() -> None:
        pieces = model.stream(request())
        next(pieces)
        try:
            told.append(model.ask(request("another")))
        except CostLimitError as error:
            told.append(str(error))
        told.append("".join(pieces))
        told.append(model.ask(request("another")).text)  # with nothing out there is room again

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(30)
    assert not asking.is_alive(), "it waits for itself"
    assert "set aside for requests that are out" in told[0]
    assert told[1].endswith("and further")
    assert told[2] == "It is so, and further"


def test_a_fence_without_an_end_is_read_in_no_time() -> None:
    started = time.process_time()
    for text in ("```json\n{" + "\n" * 200_000, "```" + " " * 200_000 + "x", "\n" * 200_000 + "```json\n{}"):
        assert not object_of(reply(text), {"type": "object"}).fits
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "text", ["{}", "```\n{}\n```", " ```JSON \n{}```\n", "```json\n\n{}\n \n```  ", "\n\n```json\n{ }```"]
)
def test_fences_that_are_read(text: str) -> None:
    assert object_of(reply(text), {"type": "object"}).value == {}


@pytest.mark.parametrize(
    "text", ["```", "``````", "```{}```", "```python\n{}\n```", "```json\n{}", "{}\n```", "x ```\n{}\n```"]
)
def test_fences_that_are_none(text: str) -> None:
    assert not object_of(reply(text), {"type": "object"}).fits


def test_a_name_that_an_object_holds_twice_is_a_problem() -> None:
    found = object_of(reply('{"label": "distinct", "label": "conflict"}'), {"type": "object"})
    assert found.problem is not None
    assert "it names 'label' twice" in found.problem


def reply(text: str) -> Reply:
    return Reply(text=text, usage=Usage(), seconds=0.0, stopped="end")


# -- answers of any kind ------------------------------------------------------------------------------------------


def body(provider: str, **more: Any) -> Answer:
    if provider == "openai":
        plain = {"choices": [{"finish_reason": "stop", "message": {"content": "It is so."}}]}
    else:
        plain = {"type": "message", "content": [{"type": "text", "text": "It is so."}], "stop_reason": "end_turn"}
    return Answer(raw=json.dumps({**plain, **more}).encode())


ODD = (
    {"0": 1},
    [],
    [None],
    [[]],
    ["x"],
    [{}],
    0,
    5,
    "x",
    True,
    None,
    {},
    [{"message": 5}],
    [{"text": 5, "type": "text"}],
)


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_answer_is_a_raw_exception(server: ModelServer, provider: str, odd: Any) -> None:
    server.script = lambda asked: body(provider, **{"choices" if provider == "openai" else "content": odd})
    model = made(server, provider)
    with suppress(MemppError):  # an answer without text may be read as an empty one
        assert model.ask(request()).text == ""
    report = facts_memory().extract_facts(model=model, rows=[0, 1])
    assert [one.row for one in report.undone] == [0, 1], "one document undone, and then the next"
    assert report.asked == 2


@pytest.mark.parametrize(
    "count", [10**400, 10**15, -1, 1.5, "none", None, [], True], ids=lambda count: repr(count)[:12]
)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_counts_that_cannot_be_are_no_counts(server: ModelServer, provider: str, count: Any) -> None:
    read, written = (
        ("prompt_tokens", "completion_tokens") if provider == "openai" else ("input_tokens", "output_tokens")
    )
    for usage in ({read: count, written: 5}, {read: 5, written: count}, count):
        server.script = lambda asked, usage=usage: body(provider, usage=usage)
        budget = Budget(prices=DEAR)
        answer = made(server, provider, budget=budget).ask(request())
        assert (answer.text, answer.usage) == ("It is so.", Usage())
        assert budget.spent >= 50 * 40 / 1e6, "booked as the most that it may be"


# -- money --------------------------------------------------------------------------------------------------------


def test_attempts_that_were_lost_before_a_reply_are_counted(server: ModelServer) -> None:
    server.script = lambda asked: reset() if asked.times < 3 else extractor(asked)
    budget = Budget(prices=DEAR)
    report = facts_memory().extract_facts(model=made(server, budget=budget, max_retries=5), rows=[0])
    assert (report.done, len(server.asked)) == (1, 4)
    assert budget.uncertain > 0
    assert report.cost == pytest.approx(budget.spent + budget.uncertain)
    # With the cache it is nothing.
    kept = made(server, budget=Budget(prices=DEAR), cache=MemoryReplies())
    assert facts_memory().extract_facts(model=kept, rows=[]).cost == 0.0


def test_the_limit_of_an_operator_holds_whatever_is_lost(server: ModelServer) -> None:
    server.script = lambda asked: reset() if asked.times < 3 else extractor(asked)
    for limit in (0.6, 1.3, 4.0):
        budget = Budget(prices=DEAR)
        memory, model = facts_memory(), made(server, budget=budget, max_retries=5)
        server.asked.clear()
        server.counts.clear()
        report = memory.extract_facts(model=model, max_cost=limit)
        assert report.cost == pytest.approx(budget.spent + budget.uncertain)
        assert report.cost <= limit
        assert report.stopped is not None
        assert "in 6 attempts" in report.stopped
        assert "max_retries, --retries" in report.stopped
    assert report.done > 0


def test_an_answer_counts_what_was_lost_before_it(server: ModelServer) -> None:
    memory = facts_memory()
    server.script = lambda asked: reset() if asked.times < 2 else say("So [row 0].", usage=(100, 10))
    budget = Budget(prices=DEAR)
    answer = memory.ask("E1", model=made(server, budget=budget, max_retries=3))
    assert answer.cost == pytest.approx(budget.spent + budget.uncertain)
    assert budget.uncertain > 0
    again = memory.ask("E1", model=made(server, budget=budget, max_retries=3))
    assert (again.cached, again.cost) == (True, 0.0)


def test_replies_that_cannot_be_written_are_known_before_anything_is_paid_for(
    server: ModelServer, tmp_path: Path
) -> None:
    with mempp.open(tmp_path / "store", encoder="none") as memory:
        memory.add_many(facts_documents())
        (tmp_path / "store" / "replies").write_bytes(b"")
        for operator in (memory.extract_facts, memory.build_graph):
            with pytest.raises(StoreWriteError, match="replies cannot be written"):
                operator(model=made(server))
            with pytest.raises(StoreWriteError, match="replies cannot be written"):
                operator(model=made(server, cache=ReplyCache(tmp_path / "store" / "replies")))
        assert not server.asked
        (tmp_path / "store" / "replies").unlink()
        assert memory.extract_facts(model=made(server)).done == 24
    assert not list((tmp_path / "store" / "replies").glob("*.part")), "the trial leaves nothing behind"


# -- keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("told", [f"you sent {KEY} [row 0]", f"{KEY}{KEY}", f"{KEY[:-1]} and {KEY}x{KEY[:9]}"])
def test_a_key_that_the_server_says_back_is_kept_nowhere(
    server: ModelServer, provider: str, told: str, tmp_path: Path
) -> None:
    server.script = lambda asked: say(told)
    cache = ReplyCache(tmp_path)
    answer = made(server, provider, cache=cache).ask(request())
    pieces: list[str] = []
    whole = streamed(made(server, provider).stream(request()), pieces.append)
    assert answer.text == whole.text == "".join(pieces) == told.replace(KEY, "…")
    assert not [path for path in tmp_path.rglob("*.json") if KEY in path.read_text()]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_address_with_the_key_in_it_is_refused(server: ModelServer, provider: str) -> None:
    with pytest.raises(InputError, match="holds the key") as caught:
        mempp.chat_model(f"{provider}:m", base_url=f"{server.address}/{KEY}/v1")
    assert KEY not in str(caught.value)


@given(st.text("ab", max_size=40), st.lists(st.integers(0, 40), max_size=8))
def test_keys_are_found_however_a_text_is_cut(text: str, cuts: list[int]) -> None:
    key = "abaababaabaababaababa"
    before = os.environ.get("MEMPP_TEST_KEY")
    os.environ["MEMPP_TEST_KEY"] = key
    try:
        text += key + text[::-1] + key[:12]
        ends = sorted({*(min(cut, len(text)) for cut in cuts), len(text)})
        reader = KeyFilter(["MEMPP_TEST_KEY", "MEMPP_TEST_NO_KEY"])
        told = "".join(reader.after(text[start:end]) for start, end in zip([0, *ends], ends, strict=False))
        assert told + reader.rest() == reader.whole(text) == text.replace(key, "…")
    finally:
        os.environ.pop("MEMPP_TEST_KEY") if before is None else os.environ.update(MEMPP_TEST_KEY=before)


def test_words_are_no_keys(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    server.script = lambda asked: say("none of them")
    assert made(server).ask(request()).text == "none of them"


# -- arguments ----------------------------------------------------------------------------------------------------


class GivesNothing(ScriptedModel):
    def ask(self, request: Request) -> Any:
        return None


class Nameless(ScriptedModel):
    def __init__(self) -> None:
        super().__init__()
        self.name: Any = 5


@pytest.mark.parametrize("wrong", [5, 0.5, [], object(), Nameless()], ids=lambda wrong: type(wrong).__name__)
def test_what_is_no_model(wrong: Any) -> None:
    memory = mempp.in_memory()
    memory.add("E1 likes E2")
    for ask in (
        lambda: memory.consolidate(model=wrong, dry_run=True),
        lambda: memory.consolidate(model=wrong),
        lambda: memory.extract_facts(model=wrong),
        lambda: memory.ask("E1", model=wrong),
    ):
        with pytest.raises(InputError, match="model"):
            ask()


def test_what_is_no_run() -> None:
    memory = mempp.in_memory()
    for wrong in ([], {}, 5, "x"):
        with pytest.raises(InputError, match="there is no run"):
            memory.consolidate(model=ScriptedModel(), run_id=wrong)


def test_a_model_that_gives_no_reply() -> None:
    memory = facts_memory()
    with pytest.raises(ModelError, match="'test:extractor' failed: it gave None"):
        memory.ask("E1", model=GivesNothing())
    memory.annotate(0, "triple", {"subject": "E1", "relation": "likes", "object": "E2"})
    with pytest.raises(ModelError, match="it gave None"):
        memory.graph_evidence("E1", model=GivesNothing())


def test_prices_and_budgets_of_another_kind() -> None:
    for wrong in (lambda: parse_price(5), lambda: Budget(prices=5), lambda: Budget(prices={"m": 5})):  # type: ignore[arg-type,dict-item]
        with pytest.raises(InputError, match="price"):
            wrong()
    for name in ("budget", "cache"):
        with pytest.raises(InputError, match=name):
            mempp.chat_model("openai:m", base_url="http://localhost", **{name: 5})
