"""`mempp graph`, `mempp facts`, and `--graph` of `ask` and `evidence`, as a user runs them."""

import contextlib
import io
import json
import os
import re
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from extraction_tools import documents, extractor
from scripted_server import Answer, Asked, ModelServer, say, status

import mempp
from mempp.cli import main

COMMANDS = {"facts": 24, "graph": 44}


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.chdir(tmp_path)
    with mempp.open("store", encoder="none") as memory:
        memory.add_many(documents())
    with ModelServer(script) as running:
        yield running


def script(asked: Asked) -> Answer:
    return say("E1 likes E2 [row 1], see [row 21].") if asked.schema is None else extractor(asked)


def run(server: ModelServer, command: str, *arguments: object, code: int = 0) -> SimpleNamespace:
    given = [command, "store", *map(str, arguments), "--model", "openai:gpt-4o-mini", "--base-url", server.openai_url]
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        returned = main(given)
    done = SimpleNamespace(stdout=stdout.getvalue(), stderr=stderr.getvalue())
    assert returned == code, (given, returned, done)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_printed_and_what_json_gives(server, command):
    first = json.loads(run(server, command, "--json", "--max-calls", 10, code=1).stdout)
    assert first["asked"] <= 10
    assert first["stopped"].startswith("max_calls=10")
    assert (first["finished"], first["documents"], first["done"] + first["waiting"]) == (False, 24, 24)
    told = run(server, command)
    assert f"{24 - first['done']}, and {first['done']} that were done before" in told.stdout
    assert "calls of the model" in told.stdout
    assert len(server.asked) == COMMANDS[command]
    again = json.loads(run(server, command, "--json", "-q").stdout)
    assert (again["documents"], again["known"], again["asked"], again["finished"]) == (0, 24, 0, True)
    with mempp.open("store", read_only=True, encoder="none") as memory:
        assert len(memory.annotations(kind="fact" if command == "facts" else "triple")) == 40


@pytest.mark.parametrize("command", COMMANDS)
def test_exit_codes_and_messages(server, command):
    server.script = lambda asked: status(400, "no") if "note 3:" in asked.prompt else script(asked)
    failed = run(server, command, "--retries", 0, code=1)
    assert "nothing drawn from row 3: openai:gpt-4o-mini" in failed.stderr
    server.script = lambda asked: say("{}") if "note 3:" in asked.prompt else script(asked)
    assert "nothing drawn from row 3: no " in run(server, command, code=1).stderr
    Path("new.jsonl").write_text('{"text": "note 77: E1 likes E9."}')
    assert main(["add", "store", "new.jsonl", "-q", "--no-embed"]) == 0
    server.script = lambda asked: status(401)
    assert "check OPENAI_API_KEY" in run(server, command, code=1).stderr
    run(server, command, "--row", 99, code=1)
    run(server, command, "--max-calls", -1, code=2)
    run(server, command, "--concurrency", "0", code=2)
    Path("nothing").mkdir()
    assert main([command, "nothing", "--model", "openai:gpt-4o-mini", "--base-url", server.openai_url]) == 1
    assert not list(Path("nothing").iterdir())


def test_modes(server):
    report = json.loads(run(server, "facts", "--mode", "summary", "--json").stdout)
    assert (report["items"], report["empty"]) == (20, 4)
    assert "mode must be one of summary, atomic, agent" in run(server, "facts", "--mode", "all", code=2).stderr


def test_ask_and_evidence_with_the_graph(server):
    without = run(server, "ask", "What of E1 and E2?", "--json", "--encoder", "none")
    assert "triples" not in json.loads(without.stdout)
    run(server, "graph")
    answer = json.loads(run(server, "ask", "What of E1 and E2?", "--graph", "--json", "--k", 1).stdout)
    assert len(answer["triples"]) == 5
    assert answer["triples"][0] == {
        "subject": "E1",
        "relation": "likes",
        "object": "E2",
        "row_id": 21,
        "occurred_at": "2024-10-10T00:00:00+00:00",
        "hops": 1,
    }
    assert set(answer["citations"]) <= {*answer["row_ids"], *(one["row_id"] for one in answer["triples"])}
    assert answer["citations"] == [21], "the row of a triple counts as evidence, another does not"
    evidence = run(server, "evidence", "What of E1 and E2?", "--graph", "--style", "tagged", "--as-of", "2024-03-31")
    assert "<triple-" in evidence.stdout
    assert 'date="2024-1' not in evidence.stdout
    as_json = json.loads(run(server, "evidence", "What of E1 and E2?", "--graph", "--json").stdout)
    assert [one["row_id"] for one in as_json["triples"]] == [one["row_id"] for one in answer["triples"]]
    shown = run(server, "ask", "What of E1 and E2?", "--graph", "--show-evidence")
    assert "<triple-" in shown.stdout
    assert "are for --graph" in run(server, "evidence", "E1?", code=2).stderr


def test_the_call_that_evidence_makes_for_the_graph_has_the_limits_of_ask(server):
    run(server, "graph")
    server.asked.clear()
    question = ("evidence", "Who likes E1?", "--graph", "--price", "1000,1000", "--retries", "2")
    limited = run(server, *question, "--max-cost", "0.5", code=1)
    assert "the cost limit of $0.5 can never suffice" in limited.stderr
    assert "in 3 attempts" in limited.stderr
    assert not server.asked
    found = run(server, *question, "--max-cost", "500")
    assert "E1 | likes" in found.stdout
    assert re.search(r"^mempp: openai:gpt-4o-mini: \d+ tokens read, \d+ written; cost \$\d", found.stderr, re.MULTILINE)
    told = json.loads(run(server, *question, "--max-cost", "0", "--json").stdout)  # the reply was kept
    assert told["cached"]
    assert set(told) >= {"model", "usage", "cost_usd", "triples", "evidence"}
    assert len(server.asked) == 1


@pytest.mark.parametrize("option", [("--timeout", 3), ("--retries", 2), ("--price", "1,1"), ("--max-cost", 1)])
def test_options_of_the_call_need_graph(server, option):
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        assert main(["evidence", "store", "E1?", *map(str, option)]) == 2
    assert "are for --graph" in stderr.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_prints_what_was_done_and_asked(server, command):
    sent, released = threading.Event(), threading.Event()

    def interrupting(asked: Asked) -> Answer:
        if "note 9:" in asked.prompt and not sent.is_set():
            sent.set()
            os.kill(os.getpid(), signal.SIGINT)
            released.wait(30)
        return script(asked)

    server.script = interrupting
    stopped = run(server, command, "--json", "--concurrency", 1, code=130)
    released.set()
    report = json.loads(stopped.stdout)
    assert 0 < report["asked"] < COMMANDS[command]
    assert 0 < report["done"] < 24
    with mempp.open("store", read_only=True, encoder="none") as memory:
        assert report["items"] == len(memory.annotations(kind="fact" if command == "facts" else "triple"))
    assert "calls that were under way are not counted" in stopped.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_price_of_ones_own(server, command):
    found = json.loads(run(server, command, "--json", "--price", "1000,1000", "--max-cost", "1000").stdout)
    assert found["finished"]
    assert found["cost"] == pytest.approx(0.11 * found["asked"])
    assert "--price" in run(server, command, "--price", "much", code=2).stderr


def test_a_limit_of_the_cost_of_a_question(server):
    limited = run(server, "ask", "Who likes E1?", "--max-cost", "0.5", "--price", "1000,1000", code=1)
    assert "the cost limit of $0.5 can never suffice" in limited.stderr
    assert "in 6 attempts" in limited.stderr
    assert "--retries 0; then $" in limited.stderr
    assert not server.asked
    found = json.loads(run(server, "ask", "Who likes E1?", "--max-cost", "500", "--price", "10,10", "--json").stdout)
    usage = found["usage"]
    assert found["cost_usd"] == pytest.approx((usage["input_tokens"] + usage["output_tokens"]) * 10 / 1e6)
    assert "--price" in run(server, "ask", "Who likes E1?", "--price", "", code=2).stderr
    server.script = lambda asked: say("It does [Zeile 1] [row 0].")
    told = run(server, "ask", "Who likes E2 and E1?")
    assert "it may be meant as a citation, and was not checked: [Zeile 1]" in told.stderr
