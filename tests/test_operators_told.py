"""What a newcomer met: replies of no use that were kept, limits that never suffice, dry runs, and what is told."""

import contextlib
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from extraction_tools import documents, extractor, log_of, memory_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_server import KEY, Asked, ModelServer, refuse, say

import mempp
from mempp.cli import main
from mempp.errors import CostLimitError, InputError, ModelReplyError
from mempp.llm import PRICES, Budget, CachedModel, MemoryReplies, Price, Reply, ReplyCache, Request, Usage, streamed
from mempp.llm.base import Sent
from mempp.operators.batch import Batch, Job

COMMANDS = ("facts", "graph")
METHODS = {"facts": "extract_facts", "graph": "build_graph"}
WHAT = {"facts": "cards", "graph": "triples"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    for name in ("OPENAI_BASE_URL", "OPENAI_ADMIN_KEY", "MEMPP_MODEL", "MEMPP_WEIGHT_FACTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    with mempp.open("store", encoder="none") as memory:
        memory.add_many(documents())


@pytest.fixture
def server():
    with ModelServer(lambda asked: say("So it is [row 1].") if asked.schema is None else extractor(asked)) as running:
        yield running


def command(*given: object, code: int = 0) -> SimpleNamespace:
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        returned = main([str(one) for one in given])
    done = SimpleNamespace(stdout=stdout.getvalue(), stderr=stderr.getvalue())
    assert returned == code, (given, returned, done)
    return done


def at(server: ModelServer, name: str = "openai:gpt-4o-mini") -> tuple[str, ...]:
    return "--model", name, "--base-url", server.openai_url, "--retries", "0"


class Scripted:
    """A provider that says one text after another."""

    name = "openai:gpt-4o-mini"

    def __init__(self, *texts: str, attempts: int = 1) -> None:
        self.identity = {"provider": "test"}
        self.texts = list(texts)
        self.attempts = attempts
        self.sent = 0

    def send(self, request: Request) -> Sent:
        self.sent += 1
        text = self.texts.pop(0)
        return Sent(Reply(text=text, usage=Usage(10, 1), seconds=0.0, stopped="end"), True)

    def stream(self, request):
        sent = self.send(request)
        yield sent.reply.text
        return sent


# -- only what is of use is kept ----------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
def test_a_reply_of_no_use_is_not_kept_and_an_old_one_is_asked_again(tmp_path, streaming):
    def asked(model: CachedModel, request: Request) -> Reply:
        return streamed(model.stream(request), lambda piece: None) if streaming else model.ask(request)

    cache = ReplyCache(tmp_path / "replies")
    plain = Request(prompt="how many?", max_tokens=10)
    picky = Request(prompt="how many?", max_tokens=10, usable=lambda reply: reply.text.isdigit())
    assert plain == picky, "it is no part of the request"
    assert hash(plain) == hash(picky)
    assert asked(CachedModel(Scripted("junk"), cache=cache), plain).text == "junk"  # from before, and kept
    provider = Scripted("worse", "17")
    model = CachedModel(provider, cache=cache)
    assert model.kept(plain) is not None
    assert model.kept(picky) is None
    assert [asked(model, picky).text for _ in range(3)] == ["worse", "17", "17"]
    assert provider.sent == 2
    assert model.kept(picky).text == "17"


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("answer", [say("  "), say("[row 999]"), refuse()])
def test_a_question_that_got_no_answer_can_be_asked_again(server, answer, streaming):
    server.script = lambda asked: answer
    on_text = (lambda piece: None) if streaming else None
    with mempp.open("store", encoder="none") as memory:
        model = mempp.chat_model("gpt-4o-mini", base_url=server.openai_url, max_retries=0)
        for _ in range(2):
            with pytest.raises(ModelReplyError):
                memory.ask("E1?", model=model, on_text=on_text)
        assert len(server.asked) == 2
        server.script = lambda asked: say("So it is [row 0].")
        assert not memory.ask("E1?", model=model, on_text=on_text).cached
        assert memory.ask("E1?", model=model, on_text=on_text).cached
        assert len(server.asked) == 3


def test_entities_that_cannot_be_read_are_asked_for_again(server):
    command("graph", "store", *at(server))
    script = server.script
    server.script = lambda asked: say("junk") if asked.prompt.startswith("The question:") else script(asked)
    command("evidence", "store", "What of E1?", "--graph", *at(server)[:4], code=1)
    server.script = script
    assert "E1 | likes" in command("evidence", "store", "What of E1?", "--graph", *at(server)[:4]).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_junk_replies_end_with_exit_code_1_and_do_no_harm_later(server, name):
    script = server.script
    server.script = lambda asked: say("junk")
    for _ in range(2):
        failed = command(name, "store", *at(server), code=1)
        assert "not done  " in failed.stdout
        assert "asked about again by the same command" in failed.stderr
    assert len(server.asked) == 48
    server.script = script
    report = json.loads(command(name, "store", *at(server), "--json").stdout)
    assert (report["done"], report["finished"], report["undone"]) == (24, True, [])


# -- dry runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_estimates_and_writes_nothing(server, name, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    before = {file: file.read_bytes() for file in Path("store").rglob("*") if file.is_file()}
    priced = json.loads(command(name, "store", "--dry-run", "--model", "gpt-4o-mini", "--json").stdout)
    usage = priced["usage"]
    assert (priced["dry_run"], priced["documents"], priced["done"], priced["finished"]) == (True, 24, 0, False)
    assert priced["calls_at_most"] == 24 * (1 if name == "facts" else 2)
    assert priced["cost"] == pytest.approx(PRICES["gpt-4o-mini"].of(Usage(**usage)))
    assert priced["cost"] > 0
    assert json.loads(command(name, "store", "--dry-run", "--json").stdout)["cost"] is None
    told = command(name, "store", "--dry-run", *at(server, "local"), "--max-calls", 3, "--max-cost", 1)
    assert "cost, estimated         not known" in told.stdout
    assert "--max-calls 3 may stop it before the end" in told.stderr
    assert "--max-cost 1 cannot be kept: no price is known; see --price" in told.stderr
    own = command(name, "store", "--dry-run", *at(server, "local"), "--price", "1000,1000", "--max-cost", 1)
    assert "cost, estimated         $" in own.stdout
    assert "--max-cost 1 may stop it before the end: $" in own.stderr
    assert {file: file.read_bytes() for file in Path("store").rglob("*") if file.is_file()} == before
    assert not server.asked


@pytest.mark.parametrize("name", COMMANDS)
def test_an_estimate_is_of_the_size_of_what_is_read(server, name):
    """The server counts a quarter of the characters that it is sent, without the schema."""
    script = server.script

    def counting(asked: Asked):
        return say(script(asked).text, usage=((len(asked.system) + len(asked.prompt)) // 4, 10))

    server.script = counting
    with mempp.open("store", encoder="none") as memory:
        model = mempp.chat_model("gpt-4o-mini", base_url=server.openai_url)
        estimate = getattr(memory, METHODS[name])(model=model, dry_run=True).usage
        real = getattr(memory, METHODS[name])(model=model).usage
    assert real.input_tokens <= estimate.input_tokens <= 2 * real.input_tokens


# -- limits -------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(size=st.integers(0, 5000), tokens=st.integers(1, 5000), attempts=st.integers(1, 7))
def test_one_rule_sets_money_aside_and_the_message_names_what_suffices(size, tokens, attempts):
    """An operator's max_cost and a Budget stop at the same limit, and what they say suffices does."""
    request = Request(prompt="x" * size, max_tokens=tokens)
    price = {"": Price(1000, 1000)}

    def by_batch(limit: float) -> str | None:
        model = CachedModel(Scripted("1", attempts=attempts), cache=MemoryReplies(), budget=Budget(prices=price))
        batch = Batch(model, concurrency=1, max_cost=limit)
        list(batch.run([Job(lambda ask: ask(request).text, (request,))]))
        return batch.stopped

    def by_budget(limit: float) -> str | None:
        try:
            CachedModel(Scripted("1", attempts=attempts), budget=Budget(limit, prices=price)).ask(request)
        except CostLimitError as error:
            return str(error)
        return None

    for run in (by_batch, by_budget):
        told = run(0.001)
        assert "can never suffice: the next step alone may cost $" in told
        assert ("attempts" in told) == (attempts > 1)
        enough = float(told.partition("may cost $")[2].partition(",")[0].partition(" ")[0])
        assert run(enough) is None
        assert "can never suffice" in run(enough - 0.01)


def test_a_price_is_asked_for_in_words_of_the_command_line(server):
    told = command("facts", "store", *at(server, "local"), "--max-cost", 1, code=2).stderr
    assert "--price IN,OUT" in told


# -- what is told -------------------------------------------------------------------------------------------------


def test_what_counts_on_nothing_is_told(server, monkeypatch):
    nothing = "--graph adds nothing: no triples are drawn; see `mempp graph`"
    assert nothing in command("ask", "store", "E1?", "--graph", *at(server)).stderr
    assert nothing in command("evidence", "store", "E1?", "--graph", *at(server)[:4]).stderr
    assert "no cards are drawn" not in command("recall", "store", "E1").stderr
    monkeypatch.setenv("MEMPP_WEIGHT_FACTS", "1")
    for question in (("recall", "store", "E1"), ("evidence", "store", "E1"), ("ask", "store", "E1?", *at(server))):
        assert "changes nothing: no cards are drawn; see `mempp facts`" in command(*question).stderr
    command("facts", "store", *at(server))
    command("graph", "store", *at(server))
    assert "drawn" not in command("recall", "store", "E1").stderr
    assert "drawn" not in command("ask", "store", "E1?", "--graph", *at(server)).stderr


def test_the_cost_of_a_model_without_a_price_is_never_a_figure(server):
    for _ in range(2):  # the second time all replies are kept
        told = command("ask", "store", "E1?", *at(server, "local"))
        assert "tokens read, " in told.stderr
        assert "cost not known" in told.stderr
        assert json.loads(command("ask", "store", "E1?", *at(server, "local"), "--json").stdout)["cost_usd"] is None
        assert "cost                    not known" in command("facts", "store", *at(server, "local")).stdout
    with mempp.open("store", encoder="none") as memory:
        model = mempp.chat_model("local", base_url=server.openai_url)
        assert memory.extract_facts(model=model, again=True, rows=[0]).cost is None


# -- without cards and triples again ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_drawn_is_listed_and_withdrawn(server, name):
    what = WHAT[name]
    assert f"no {what} are drawn" in command(name, "store", "--list").stderr
    command(name, "store", *at(server))
    drawn = json.loads(command(name, "store", "--list", "--json").stdout)[what]
    assert len(drawn) == 40
    of_row = command(name, "store", "--list", "--row", 1).stdout.splitlines()
    assert of_row == (
        ["[1]  E1 likes E2", "[1]  E2 helps E4"]
        if name == "facts"
        else ["[1]  E1 | likes | E2", "[1]  E2 | helps | E4"]
    )
    kind = name[:-1] if name == "facts" else "triple"
    assert json.loads(command("stats", "store", "--json").stdout)["annotations_by_kind"] == {kind: 40, name: 24}
    assert f"  {kind} " in command("stats", "store").stdout
    with mempp.open("store", read_only=True, encoder="none") as memory:
        head = memory.head_sequence
    assert "1 document has no" in command(name, "store", "--withdraw", "--row", 1).stderr
    assert command(name, "store", "--list", "--row", 1).stdout == ""
    assert json.loads(command(name, "store", "--withdraw", "--json").stdout)["withdrawn"] == 23
    assert json.loads(command(name, "store", "--withdraw", "--json").stdout)["withdrawn"] == 0
    with mempp.open("store", read_only=True, encoder="none") as memory:
        assert memory.drawn(what) == []
        if name == "facts":
            cards = mempp.Settings(weight_facts=1.0, weight_lexical=0.0, weight_tags=0.0)
            assert memory.recall("helps", settings=cards, known_at=head)
            assert not [hit for hit in memory.recall("helps", settings=cards) if hit.matched]
        else:
            model = mempp.chat_model("gpt-4o-mini", base_url=server.openai_url)
            assert memory.graph_evidence("What of E1?", model=model, known_at=head).triples
            assert not memory.graph_evidence("What of E1?", model=model).triples
    report = json.loads(command(name, "store", *at(server), "--json").stdout)
    assert (report["done"], report["asked"]) == (24, 0), "they are drawn again, from replies that are kept"
    assert json.loads(command(name, "store", "--list", "--json").stdout)[what] == drawn
    for wrong in (("--list", "--withdraw"), ("--list", "--again"), ("--withdraw", "--model", "gpt-4o-mini")):
        command(name, "store", *wrong, code=2)


def test_withdrawing_in_python():
    memory = memory_of()
    memory.annotate(3, "fact", {"tags": []}, text="by hand")
    assert [one.text for one in memory.drawn("cards", rows=[3])] == ["by hand"]
    before = log_of(memory)
    assert memory.withdraw("cards", rows=[4]) == 0
    assert log_of(memory) == before
    assert (memory.withdraw("cards"), memory.drawn("cards")) == (1, [])
    with pytest.raises(InputError, match="what must be one of cards, triples"):
        memory.drawn("facts")


# -- the environment ----------------------------------------------------------------------------------------------


def test_a_server_of_ones_own_by_the_environment(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
    monkeypatch.setenv("MEMPP_MODEL", "openai:local-7b")
    assert "So it is [1]." in command("ask", "store", "E1?").stdout
    assert json.loads(command("facts", "store", "--json").stdout)["finished"]
    assert {asked.model for asked in server.asked} == {"local-7b"}
