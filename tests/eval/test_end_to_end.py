"""Whole runs of the command with real SDKs against the scripted server: faults, kills, interrupts, judging again."""

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import EXAMPLES, KEY, result, run, start
from scripted_server import (
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
    truncate,
    with_faults,
)

FAULTS = {
    "429": (0.05, status(429)),
    "500": (0.05, status(500)),
    "reset": (0.03, reset()),
    "slow": (0.02, slow()),
    "garbage": (0.06, garbage()),
    "refuse": (0.07, refuse()),
    "truncate": (0.06, truncate()),
    "empty": (0.04, say("")),
}
QUESTIONS = 46


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def arguments(server: ModelServer, out: Path, *more: object) -> list[object]:
    models = ["--answer-model", "answerer", "--judge-model", "judge", "--base-url", server.openai_url]
    return ["run", "own", "--data", EXAMPLES, "--system", "lexical", *models, "--out", out, "-q", *more]


def scores(path: Path) -> list[dict]:
    """What a run found, without times and without what tells which reply came from the cache."""
    times = ("search_ms", "answer_ms", "judge_ms")
    return [
        {"id": row["id"], "text": row["answer"]["text"]} | {k: v for k, v in row["scores"].items() if k not in times}
        for row in result(path)["rows"]
    ]


def test_faults_are_counted_right_and_nothing_is_asked_twice(server, tmp_path):
    server.script = with_faults(echo, FAULTS)
    out = tmp_path / "r.json"
    command = arguments(server, out, "--judge-repeats", 2, "--timeout", 2, "--workers", 6)
    run(*command)
    found = result(out)
    assert found["complete"]
    assert len(found["rows"]) == QUESTIONS

    answered = Counter(_fault(asked) for asked in _firsts(server) if asked.schema is None)
    counts = found["counts"]
    assert answered.total() == QUESTIONS
    assert counts["answer_errors"] == answered["garbage"] + answered["refuse"] + answered["empty"]
    assert counts["answered"] == QUESTIONS - counts["answer_errors"]
    # A judge's request is the same in every repeat, so the same fault strikes each of them.
    judged = Counter(_fault(asked) for asked in _firsts(server) if asked.schema is not None)
    assert judged.total() == counts["answered"]
    assert counts["judge_errors"] == judged["garbage"]
    assert counts["unparsed_verdicts"] == 2 * (judged["refuse"] + judged["truncate"] + judged["empty"])
    for name in FAULTS:
        assert answered[name] + judged[name], f"no request met {name}: the test does not show it"
    for row in found["rows"]:
        if row["answer"]["error"]:
            assert row["scores"]["judge"] == row["scores"]["f1"] == 0.0
    assert found["usage"]["answer"]["requests"] == QUESTIONS - answered["garbage"]
    assert not server.answered_again(repeats=2)

    # Once more with --resume: only what failed is asked again, with the server well.
    before = server.counts.copy()
    server.script = echo
    run(*command, "--resume")
    asked_again = {digest for digest, n in server.counts.items() if n > before[digest]}
    known = {asked.digest: _fault(asked) for asked in _firsts(server)}
    assert {known[digest] for digest in asked_again if digest in before} == {"garbage"}
    assert not server.answered_again(repeats=2)
    mended = result(out)["counts"]
    assert mended["judge_errors"] == 0
    assert mended["answer_errors"] == answered["refuse"] + answered["empty"]

    text = out.read_text() + "".join(path.read_text() for path in (tmp_path / "eval-replies").rglob("*.json"))
    assert KEY not in text
    assert str(tmp_path) not in out.read_text()


def _firsts(server: ModelServer) -> list[Asked]:
    return [asked for asked in server.asked if asked.times == 0]


def _fault(asked: Asked) -> str | None:
    return fault_of(asked.digest, FAULTS)


class Gate:
    """Answers so many requests, and then holds every further one until it is opened; then they get what is told."""

    WORKERS = 4

    def __init__(self, server: ModelServer, after: int, then: Answer | None = None) -> None:
        self.server = server
        self.after = after
        self.then = then
        self.held = 0
        self.full = threading.Event()
        """Every worker waits: whatever was answered before has reached the cache."""
        self.open = threading.Event()

    def wait_for(self, process: subprocess.Popen[str]) -> None:
        """Until every worker waits; a process that has ended instead is told at once."""
        deadline = time.monotonic() + 60
        while not self.full.wait(0.05):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "the workers did not come"

    def __call__(self, asked: Asked) -> Answer:
        with self.server.guard:
            through = sum(self.server.replies.values())
            holds = through >= self.after and not self.open.is_set()
            self.held += holds
            if self.held == self.WORKERS:
                self.full.set()
        if holds:
            self.open.wait(30)
            return self.then or echo(asked)
        return echo(asked)


def test_a_killed_run_goes_on_without_asking_anything_twice(server, tmp_path):
    gate = Gate(server, after=41, then=reset())
    server.script = gate
    out = tmp_path / "r.json"
    process = start(*arguments(server, out))
    gate.wait_for(process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    gate.open.set()
    assert not out.exists()
    rows = (tmp_path / "r.json.rows.jsonl").read_text().splitlines()
    assert 5 <= sum('{"row"' in line for line in rows) < QUESTIONS

    # The rows' file as a kill in the middle of a write would leave it.
    with (tmp_path / "r.json.rows.jsonl").open("a") as file:
        file.write('{"row":{"id":"q-0')
    server.script = echo
    told = run(*arguments(server, out, "--resume")).stderr
    assert "questions are done already" in told
    assert not server.answered_again()
    assert result(out)["complete"]

    whole = tmp_path / "whole.json"
    asked = sum(server.counts.values())
    run(*arguments(server, whole))
    assert sum(server.counts.values()) == asked  # every reply was kept
    assert scores(whole) == scores(out)
    assert result(whole)["usage"]["answer"]["cached"] == QUESTIONS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_is_under_way_and_leaves_a_partial_result(server, tmp_path, number):
    gate = Gate(server, after=30)
    server.script = gate
    out = tmp_path / "r.json"
    process = start(*arguments(server, out))
    gate.wait_for(process)
    process.send_signal(number)
    line = process.stderr.readline()
    assert "finishing the requests under way" in line
    gate.open.set()
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "--resume goes on" in stderr
    assert "NOT COMPLETE" in stdout
    partial = result(out)
    assert not partial["complete"]
    assert 10 <= len(partial["rows"]) < QUESTIONS

    run(*arguments(server, out, "--resume"))
    assert not server.answered_again()
    assert result(out)["complete"]
    assert len(result(out)["rows"]) == QUESTIONS
    assert not (tmp_path / "r.json.rows.jsonl").exists()


def test_the_number_of_workers_changes_nothing(server, tmp_path):
    one, many = tmp_path / "one" / "r.json", tmp_path / "many" / "r.json"
    run(*arguments(server, one, "--workers", 1, "--limit", 12))
    run(*arguments(server, many, "--workers", 8, "--limit", 12))
    assert scores(one) == scores(many)


def test_the_cost_limit_is_kept_and_a_higher_one_goes_on(server, tmp_path):
    out = tmp_path / "r.json"
    prices = ["--price", "1,1", "--price", "judge=2,2"]
    told = run(*arguments(server, out, *prices, "--max-cost", 0.1), code=1).stderr
    assert "cost limit" in told
    partial = result(out)
    assert not partial["complete"]
    assert 0 < partial["usage"]["spent_now_usd"] <= 0.1
    run(*arguments(server, out, *prices, "--max-cost", 5, "--resume"))
    whole = result(out)
    assert whole["complete"]
    assert not server.answered_again()
    usage = whole["usage"]
    by_hand = sum(row["answer"]["input_tokens"] + row["answer"]["output_tokens"] for row in whole["rows"])
    assert usage["answer"]["cost_usd"] == pytest.approx(by_hand / 1e6)
    read = usage["judge"]["input_tokens"] + usage["judge"]["output_tokens"]
    assert usage["cost_usd"] == pytest.approx((by_hand + 2 * read) / 1e6)


def test_a_key_that_is_refused_ends_the_run_with_one_line(server, tmp_path):
    server.script = lambda asked: status(401, "wrong key")
    done = run(*arguments(server, tmp_path / "r.json"), code=1)
    assert done.stderr.count("\n") == 1
    assert "wrong key" in done.stderr
    assert KEY not in done.stderr


def test_rejudge_asks_the_judge_alone(server, tmp_path):
    out = tmp_path / "r.json"
    run(*arguments(server, out, "--limit", 10))
    answers = [asked.digest for asked in server.asked if asked.schema is None]
    before = result(out)
    command = ["rejudge", out, "--judge-model", "other", "--base-url", server.openai_url, "--judge-repeats", 3, "-q"]
    told = run(*command)
    again = result(tmp_path / "r.rejudged.json")
    assert [asked.digest for asked in server.asked if asked.schema is None] == answers
    assert sum(asked.model == "other" for asked in server.asked) == 30
    assert again["configuration"]["models"]["judge"]["model"] == "openai:other"
    assert again["judging"]["repeats"] == 3
    assert [row["answer"] for row in again["rows"]] == [row["answer"] for row in before["rows"]]
    for row, old in zip(again["rows"], before["rows"], strict=True):
        assert {k: v for k, v in row["scores"].items() if not k.startswith("judge")} == {
            k: v for k, v in old["scores"].items() if not k.startswith("judge")
        }
        assert row["scores"]["judge"] == pytest.approx(sum(row["verdict"]["repeats"]) / 3)
    assert "Judge: 3 repeats" in told.stdout
    assert "--overwrite" in run(*command, code=1).stderr
    run(*command, "--overwrite")
    assert sum(asked.model == "other" for asked in server.asked) == 30  # all from the cache

    refused = run("compare", out, tmp_path / "r.rejudged.json", code=1)
    assert "judges differ" in refused.stderr
    run("compare", out, tmp_path / "r.rejudged.json", "--force")


def test_answers_alone_are_judged_later(server, tmp_path):
    out = tmp_path / "r.json"
    command = ["run", "own", "--data", EXAMPLES, "--system", "lexical", "--answer-model", "answerer", "--limit", 5]
    told = run(*command, "--base-url", server.openai_url, "--out", out)
    assert "rejudge" in told.stderr
    assert "judge" not in result(out)["summary"]["overall"]
    assert "f1" in result(out)["summary"]["overall"]
    run("rejudge", out, "--judge-model", "judge", "--base-url", server.openai_url)
    assert "judge" in result(tmp_path / "r.rejudged.json")["summary"]["overall"]


def test_anthropic_models_are_asked_by_their_own_sdk(server, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    out = tmp_path / "r.json"
    models = ["--answer-model", "anthropic:answerer", "--judge-model", "anthropic:judge"]
    command = ["run", "own", "--data", EXAMPLES, "--system", "lexical", *models, "--limit", 4, "--out", out]
    run(*command, "--base-url", server.anthropic_url)
    assert {asked.provider for asked in server.asked} == {"anthropic"}
    assert result(out)["counts"]["judged"] == 4


def test_multiple_choice_needs_no_judge(server, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "documents.jsonl").write_text(json.dumps({"id": "d", "text": "The sky is blue."}) + "\n")
    question = {"text": "Which colour is the sky?", "choices": {"A": "red", "B": "blue"}, "answers": ["B"]}
    (folder / "questions.jsonl").write_text(json.dumps(question) + "\n")
    server.script = lambda asked: say("B. blue")
    out = tmp_path / "r.json"
    models = ["--answer-model", "m", "--base-url", server.openai_url]
    run("run", "own", "--data", folder, "--system", "lexical", *models, "--out", out)
    assert result(out)["summary"]["overall"]["judge"] == 1.0
    assert "f1" not in result(out)["summary"]["overall"]


def test_choices_are_asked_with_their_options(server, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "documents.jsonl").write_text(json.dumps({"id": "d", "text": "The sky is blue."}) + "\n")
    questions = [
        {"text": "Which colour is the sky?", "choices": {"A": "crimson", "B": "azure"}, "answers": ["B"]},
        {"text": "What is blue?", "answers": ["the sky"]},
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
    server.script = lambda asked: say("B")
    command = ["run", "own", "--data", folder, "--system", "lexical", "--answer-model", "m", "--workers", 1]
    run(*command, "--base-url", server.openai_url, "--out", tmp_path / "r.json")
    with_choices, plain = server.asked
    assert "A. crimson\nB. azure" in with_choices.prompt
    assert with_choices.system != plain.system
    answer = result(tmp_path / "r.json")["configuration"]["models"]["answer"]
    assert (answer["prompt"]["name"], answer["choice_prompt"]["name"]) == ("answer", "answer_choice")


def test_cost_is_of_each_reply_and_the_cache_is_counted_reply_by_reply(server, tmp_path, monkeypatch):
    from mempp.llm import Price, cost

    monkeypatch.setattr(cost, "PRICES", {"m": Price(1, 0), "j": Price(1, 0, 1000, 10, 0)})
    server.script = lambda asked: say(echo(asked).text, usage=(600, 0))
    command = ["run", "own", "--data", EXAMPLES, "--system", "lexical", "--limit", 3, "-q", "--cache", tmp_path / "c"]
    models = ["--answer-model", "openai:m", "--judge-model", "openai:j", "--base-url", server.openai_url]
    run(*command, *models, "--judge-repeats", 2, "--out", tmp_path / "a.json")
    usage = result(tmp_path / "a.json")["usage"]
    # Two repeats read 1,200 tokens, but neither of them above 1,000.
    assert usage["judge"]["cost_usd"] == pytest.approx(3 * 2 * 600e-6)
    assert usage["spent_now_usd"] == pytest.approx(usage["cost_usd"])
    run(*command, *models, "--judge-repeats", 3, "--out", tmp_path / "b.json")
    judge = result(tmp_path / "b.json")["usage"]["judge"]
    assert (judge["requests"], judge["cached"]) == (9, 6)
