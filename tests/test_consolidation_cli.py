"""`mempp consolidate` as a process: what is printed where, exit codes, and taking a run back."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from consolidation_tools import TopicEncoder, documents, labeller
from scripted_server import ModelServer, status

import mempp
from mempp.cli import main
from mempp.operators import consolidation_prompts

KEY = "sk-do-not-write-me-anywhere"


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def server():
    with ModelServer(labeller) as running:
        yield running


@pytest.fixture
def store(tmp_path, monkeypatch):
    path = tmp_path / "acme"
    with mempp.open(path, encoder=TopicEncoder()) as memory:
        memory.add_many(documents())
    # The command opens a store with the encoder that the store names; this one only tests know.
    real = mempp.open
    monkeypatch.setattr(
        mempp, "open", lambda *a, encoder=None, **more: real(*a, encoder=encoder or TopicEncoder(), **more)
    )
    return str(path)


def run(capsys, *arguments):
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_a_run_and_its_undoing(capsys, server, store):
    options = ("--model", "openai:gpt-4o-mini", "--base-url", server.openai_url, "--retries", "0")
    code, out, err = run(capsys, "consolidate", store, *options, "--json")
    assert code == 0
    report = json.loads(out)
    assert report["counts"]["conflict"] == 9
    assert report["finished"]
    assert f"mempp consolidate {store} --undo {report['run_id']}" in err
    code, out, err = run(capsys, "consolidate", store, *options)
    assert (code, err) == (0, "")
    assert "calls of the model      0, and 0 replies that were kept" in out
    code, out, err = run(capsys, "consolidate", store, "--undo", report["run_id"])
    assert (code, out) == (0, "")
    assert "is undone: 27 documents current again, 8 documents archived that had been merged" in err
    code, out, err = run(capsys, "consolidate", store, *options)
    assert (code, "superseded              0 documents" in out) == (0, True), "undo lasts"
    assert "16 groups stayed as they are, because a run that changed them was undone; --again asks about them" in err
    code, out, err = run(capsys, "consolidate", store, *options, "--again", "--json")
    assert (code, len(json.loads(out)["superseded"])) == (0, len(report["superseded"]))
    run(capsys, "consolidate", store, "--undo", json.loads(out)["run_id"])
    code, out, err = run(capsys, "consolidate", store, "--undo", report["run_id"], "--json")
    assert (code, json.loads(out)["reinstated"]) == (0, [])
    code, _, err = run(capsys, "consolidate", store, "--undo", "nonsense")
    assert code == 2
    assert "known are " in err
    assert report["run_id"] in err
    code, _, err = run(capsys, "consolidate", store, "--undo", report["run_id"], "--dry-run")
    assert (code, err.count("\n")) == (2, 1)
    code, out, err = run(capsys, "consolidate", store, *options, "--max-calls", "5", "--quiet")
    assert code == 0, "replies that are kept do not count"


def test_a_dry_run(capsys, server, store, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    code, out, err = run(capsys, "consolidate", store, "--dry-run")
    assert (code, err) == (0, "")
    assert "group 1, 2 documents" in out
    assert "[0]  2024-01-01  author 0  c0 note 0" in out
    assert "calls of a model        23 to 46" in out
    code, out, _ = run(capsys, "consolidate", store, "--dry-run", "--json", "--threshold", "0.9999")
    assert (code, json.loads(out)["groups"]) == (0, [])
    assert not server.asked


def test_limits_and_failures(capsys, server, store):
    options = ("--model", "gpt-4o-mini", "--base-url", server.openai_url, "--retries", "0")
    code, out, err = run(capsys, "consolidate", store, *options, "--max-calls", "3")
    assert code == 1, "something is left"
    assert "stopped at a limit: max_calls=3: 3 were made, and the next may take 1 call; the same again goes on" in err
    code, out, err = run(capsys, "consolidate", store, *options, "--max-cost", "0.0001")
    assert code == 1
    assert "max_cost=0.0001 can never suffice: the next step alone may cost $0.00" in err
    assert "goes on" not in err
    server.script = lambda asked: status(500, f"oops {KEY}") if "c3" in asked.prompt else labeller(asked)
    code, out, err = run(capsys, "consolidate", store, *options)
    assert code == 1
    assert "untouched: rows 3, 24: openai:gpt-4o-mini: 127.0.0.1" in err
    server.script = lambda asked: status(401)
    code, out, err = run(capsys, "consolidate", store, *options)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "before that" not in err, "nothing was done"
    server.script = labeller
    assert run(capsys, "consolidate", store, *options)[0] == 0
    assert not server.answered_again()
    assert KEY not in out + err
    for wrong in (("--threshold", "2"), ("--max-calls", "-1"), ("--max-cost", "x"), ("--model", "who")):
        code, out, err = run(capsys, "consolidate", store, *wrong)
        assert (code, out, err.count("\n")) == (2, "", 1), wrong


def test_a_group_too_long_to_be_sent_is_told_of_and_is_no_fault(capsys, server, store, monkeypatch):
    options = ("--model", "gpt-4o-mini", "--base-url", server.openai_url, "--retries", "0")
    monkeypatch.setattr(consolidation_prompts, "MAX_CHARS", 400)
    with mempp.open(store) as memory:
        long = [memory.add(f"c99 {'x' * size}").row_id for size in (20, 400)]
    for _ in range(2):
        code, _, err = run(capsys, "consolidate", store, *options)
        assert code == 0, err
        assert f"untouched: rows {long[0]}, {long[1]}: its 2 records do not fit into 400 characters" in err
    server.script = lambda asked: status(500) if "d98" in asked.prompt else labeller(asked)
    with mempp.open(store) as memory:
        memory.add_many(["d98 one", "d98 two"])
    assert run(capsys, "consolidate", store, *options)[0] == 1, "this one may succeed another time"


def test_an_error_that_ends_a_run_tells_what_was_done_before_it(capsys, server, store):
    options = ("--model", "gpt-4o-mini", "--base-url", server.openai_url, "--retries", "0", "--concurrency", "1")
    server.script = lambda asked: status(401) if "c3" in asked.prompt else labeller(asked)
    code, out, err = run(capsys, "consolidate", store, *options)
    assert code == 1
    assert re.search(r"^superseded +[1-9]", out, re.MULTILINE), out
    assert re.search(rf"^calls of the model +{len(server.asked)}, and", out, re.MULTILINE)
    run_id = re.search(r"^run +(\w+)$", out, re.MULTILINE).group(1)
    assert f"to take all of it back: mempp consolidate {store} --undo {run_id}\n" in err
    assert "answered 401" in err.splitlines()[-1]
    server.script = lambda asked: status(401) if "c5" in asked.prompt else labeller(asked)
    code, out, err = run(capsys, "consolidate", store, *options, "--json")
    report = json.loads(out)
    assert (code, report["run_id"], report["finished"]) == (1, run_id, False)
    assert report["counts"]["waiting"] > 0
    assert run(capsys, "consolidate", store, "--undo", run_id)[0] == 0


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["for people", "json"])
def test_ctrl_c_tells_what_was_done_before_it(capsys, server, store, more):
    options = ("--model", "gpt-4o-mini", "--base-url", server.openai_url, "--retries", "0", "--concurrency", "1")
    sent, released = threading.Event(), threading.Event()

    def interrupting(asked):
        if "c3" not in asked.prompt or sent.is_set():
            return labeller(asked)
        sent.set()
        os.kill(os.getpid(), signal.SIGINT)
        released.wait(30)
        return labeller(asked)

    server.script = interrupting
    code, out, err = run(capsys, "consolidate", store, *options, *more)
    released.set()
    assert code == 130
    if more:
        report = json.loads(out)
        assert not report["finished"]
        told = (report["run_id"], report["asked"], len(report["superseded"]))
    else:
        found = [
            re.search(rf"^{name} +(\w+)", out, re.MULTILINE) for name in ("run", "calls of the model", "superseded")
        ]
        told = (found[0][1], int(found[1][1]), int(found[2][1]))
    assert told[1] == len(server.asked) - 1, "that under way is not counted"
    with mempp.open(store) as memory:
        assert told[2] == memory.stats().superseded > 0
    assert f"to take all of it back: mempp consolidate {store} --undo {told[0]}\n" in err
    assert "calls that were under way are not counted" in err


def test_ctrl_c_before_the_first_reply_tells_that_nothing_was_done(capsys, server, store):
    sent, released = threading.Event(), threading.Event()

    def interrupting(asked):
        if not sent.is_set():
            sent.set()
            os.kill(os.getpid(), signal.SIGINT)
            released.wait(30)
        return labeller(asked)

    server.script = interrupting
    options = ("--model", "gpt-4o-mini", "--base-url", server.openai_url, "--concurrency", "1", "--json")
    code, out, _ = run(capsys, "consolidate", store, *options)
    released.set()
    assert code == 130
    report = json.loads(out)
    assert (report["asked"], report["finished"], report["superseded"]) == (0, False, [])


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_interrupted_run_says_that_what_was_done_stays(capsys, server, store, monkeypatch, dry_run):
    def interrupted(self, **arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(mempp.Memory, "consolidate", interrupted)
    options = ("--model", "gpt-4o-mini", "--base-url", server.openai_url, *(("--dry-run",) if dry_run else ()))
    code, out, err = run(capsys, "consolidate", store, *options)
    assert (code, out) == (130, "")
    assert ("what was done stays, and the same command goes on" in err) == (not dry_run)


def test_no_store_is_made(tmp_path):
    root = Path(__file__).resolve().parent.parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MEMPP_", "OPENAI_"))}
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(root)]))
    ended = subprocess.run(
        [sys.executable, "-m", "mempp", "consolidate", str(tmp_path / "nothing"), "--dry-run"],
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": path},
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "nothing").exists()


def test_a_price_of_ones_own(capsys, server, store):
    options = ("--model", "unknown", "--base-url", server.openai_url, "--retries", "0", "--max-cost", "5")
    code, out, err = run(capsys, "consolidate", store, *options)
    assert (code, out) == (2, "")
    assert "no price is known for openai:unknown" in err
    code, out, err = run(capsys, "consolidate", store, *options, "--price", "1,nothing")
    assert (code, out, server.asked) == (2, "", [])
    assert "--price" in err
    code, out, err = run(capsys, "consolidate", store, *options, "--price", "unknown=1000,1000", "--json")
    report = json.loads(out)
    assert code == 1
    assert report["stopped"].startswith(("max_cost=5.0: $", "max_cost=5.0 can never suffice"))
    assert report["cost"] == pytest.approx(0.11 * report["asked"])
    code, out, err = run(capsys, "consolidate", store, "--undo", "x", "--price", "1,1")
    assert code == 2


def test_a_run_of_which_only_the_plan_was_written(capsys, server, store):
    server.script = lambda asked: status(500)
    options = ("--model", "gpt-4o-mini", "--base-url", server.openai_url, "--retries", "0")
    code, out, err = run(capsys, "consolidate", store, *options, "--json")
    run_id = json.loads(out)["run_id"]
    assert (code, f"--undo {run_id}" in err) == (1, True)
    code, out, err = run(capsys, "consolidate", store, "--undo", run_id)
    assert code == 0
    assert f"no document is in a state that run {run_id} gave it" in err
    server.script = labeller
    code, out, err = run(capsys, "consolidate", store, *options, "--json")
    assert (code, json.loads(out)["finished"]) == (0, True)
    assert json.loads(out)["run_id"] != run_id
