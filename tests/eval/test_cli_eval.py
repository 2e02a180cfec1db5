"""The command line: what it prints, what it refuses, and the figures that it must show on the real data."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import EXAMPLES, ROOT, result, run, start
from conftest import DATA
from support import WordEncoder

from eval.plan import options_for
from eval.progress import Meter, described, duration
from eval.systems import names
from eval.systems.base import Options

OWN = ["run", "own", "--data", EXAMPLES, "--system", "lexical"]
MODEL = ["--answer-model", "m", "--base-url", "http://localhost:1", "--out", "x.json"]


def test_a_run_as_a_process_prints_scores_per_category_and_overall(tmp_path):
    process = start(*OWN, "--recall-only", "--limit", 12, "--out", tmp_path / "r.json")
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    found = result(tmp_path / "r.json")
    for category in found["summary"]["by_category"]:
        assert re.search(rf"^{category} +\d+ +\d\.\d{{3}} \[\d\.\d{{3}}, \d\.\d{{3}}\]", stdout, re.MULTILINE)
    value = found["summary"]["overall"]["recall@5"]
    bounds = found["intervals"]["overall"]["recall@5"]
    assert f"{value:.3f} [{bounds['low']:.3f}, {bounds['high']:.3f}]" in stdout
    assert "recall only" in stdout
    assert stderr == f"eval: result written to {tmp_path / 'r.json'}\n"


def test_json_alone_on_stdout(tmp_path):
    told = json.loads(run(*OWN, "--recall-only", "--limit", 5, "--json").stdout)
    assert told["summary"]["overall"]["mrr"] > 0
    assert "rows" not in told
    two = json.loads(run(*OWN, "--system", "full-context", "--recall-only", "--limit", 5, "--json", "-q").stdout)
    assert [one["configuration"]["system"] for one in two] == ["lexical", "full-context"]


def test_recall_only_is_said_when_it_was_not_asked_for():
    assert "recall only: no model answers" in run(*OWN, "--limit", 2).stderr


def test_several_systems_make_several_files(tmp_path):
    command = [*OWN, "--system", "full-context", "--preset", "locomo", "--set", "gamma=10"]
    told = run(*command, "--recall-only", "--limit", 5, "--out", tmp_path / "r.json", "-q")
    assert {path.name for path in tmp_path.iterdir()} == {"r.lexical.json", "r.full-context.json"}
    assert result(tmp_path / "r.lexical.json")["configuration"]["system_configuration"]["settings"]["gamma"] == 10
    last = told.stdout.rstrip().splitlines()[-2:]
    assert [line.split()[0] for line in last] == ["lexical", "full-context"]


def test_settings_go_to_the_systems_that_have_them():
    both = Options(preset="locomo", settings={"gamma": "10", "stream": "1"})
    assert options_for("mempp", both, others={"rag-256"}).settings == {"gamma": "10"}
    rag = options_for("rag-256", both, others={"mempp"})
    assert (rag.preset, rag.settings) == (None, {"stream": "1"})
    assert options_for("mempp", both, others=set()) is both
    assert options_for("lexical", both, others={"mempp"}) is both
    assert options_for("rag-256", both, others={"full-context"}) is both


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, ""),
        (["run", "own"], 2, "--data"),
        (["nonsense"], 2, "nonsense"),
        ([*OWN, "--recall-only", "--answer-model", "m"], 2, "contradict"),
        ([*OWN, "--judge-model", "m"], 2, "--answer-model"),
        ([*OWN, "--max-cost", "1"], 2, "--answer-model"),
        ([*OWN, "--set", "gamma"], 2, "NAME=VALUE"),
        ([*OWN, "--set", "gamma=1", "--set", "gamma=2"], 2, "twice"),
        ([*OWN, "--set", "gama=1"], 2, "gamma"),
        ([*OWN, "--set", "gamma=x"], 2, "number"),
        ([*OWN, "--preset", "nonsense"], 2, "nonsense"),
        ([*OWN, "--option", "nonsense=1"], 2, "nonsense"),
        ([*OWN, "--k", "-1"], 2, "--k"),
        ([*OWN, "--k", "3", "--set", "k=4"], 2, "disagree"),
        ([*OWN, "--set", "gamma=-1"], 2, "gamma"),
        ([*OWN[:-1], "vector", "--encoder", "nope"], 2, "nope"),
        ([*OWN[:-1], "vector", "--encoder", "none"], 2, "none"),
        ([*OWN, "--encoder", "nope"], 2, "--encoder"),
        ([*OWN[:-1], "rag-256", "--system", "rag-0256", "--encoder", "none"], 2, "none"),
        ([*OWN[:-1], "rag-4"], 2, "16"),
        ([*OWN, "--option", "thread=nonsense"], 2, "withheld"),
        ([*OWN, "--price", "1,1"], 2, "--price needs --answer-model"),
        ([*OWN, "--judge-repeats", "3"], 2, "--judge-repeats needs --answer-model"),
        ([*OWN, "--base-url", "http://h"], 2, "--base-url needs --answer-model"),
        ([*OWN, "--cache", "c"], 2, "--cache needs --answer-model"),
        ([*OWN, "--timeout", "5"], 2, "--timeout needs --answer-model"),
        ([*OWN, *MODEL, "--price", "gpt-4o-mni=1,1"], 2, "gpt-4o-mni"),
        ([*OWN, *MODEL, "--price", "x"], 2, "IN,OUT"),
        ([*OWN, *MODEL, "--max-cost", "nan"], 2, "--max-cost"),
        ([*OWN, *MODEL, "--timeout", "inf"], 2, "timeout"),
        ([*OWN, *MODEL, "--timeout", "1e20"], 2, "timeout"),
        ([*OWN, *MODEL, "--judge-base-url", "http://h"], 2, "--judge-model"),
        ([*OWN, *MODEL[:2], "--base-url", "ftp://u:SECRET@h"], 2, "not shown"),
        ([*OWN, "--out", ""], 2, "--out"),
        ([*OWN, "--out", "/"], 2, "--out"),
        ([*OWN, "--out", ".."], 2, "--out"),
        ([*OWN, "--out", EXAMPLES], 2, "--out"),
        ([*OWN, "--budget", "0"], 2, "--budget"),
        ([*OWN, "--limit", "0"], 2, "--limit"),
        ([*OWN, "--fraction", "2"], 2, "--fraction"),
        ([*OWN, "--resume"], 2, "--out"),
        ([*OWN, "--system", "lexical"], 2, "twice"),
        ([*OWN[:-1], "mempq"], 2, "mempp"),
        (["run", "onw", "--data", EXAMPLES, "--system", "lexical"], 2, "own"),
        (["run", "own", "--data", "/nowhere", "--system", "lexical"], 1, "/nowhere"),
        ([*OWN, "--answer-model", "m"], 2, "--base-url"),
        ([*OWN, "--answer-model", "gpt-4o-mini", "--answer-prompt", "/nowhere", "--out", "x.json"], 1, ""),
        (["ablate", "own", "--data", EXAMPLES, "--variant", "w/o vektor leg"], 2, "w/o vector leg"),
        (["sweep-k", "own", "--data", EXAMPLES, "--k", "5,x"], 2, "'x'"),
        (["compare", "/nowhere", "/nowhere"], 1, "/nowhere"),
        (["report", "/nowhere"], 1, "/nowhere"),
        (["rejudge", "/nowhere"], 1, "/nowhere"),
    ],
)
def test_what_is_refused_is_told_in_one_line(arguments, code, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    told = run(*arguments, code=code)
    assert not told.stdout
    assert message in told.stderr
    assert "unexpected" not in told.stderr
    assert "SECRET" not in told.stderr
    if arguments:
        assert told.stderr.strip().splitlines()[-1].startswith("eval: ")
        assert len(told.stderr.strip().splitlines()) <= 2  # one of them may be the name of the result file


def test_one_system_under_two_names_is_told():
    both = [*OWN[:-1], "rag-256", "--system", "rag-0256", "--recall-only"]
    assert "are one system" in run(*both, code=2).stderr


def process(*arguments, **more):
    words = [sys.executable, "-m", "eval", *map(str, arguments)]
    return subprocess.Popen(words, cwd=ROOT, text=True, stderr=subprocess.PIPE, **more)


@pytest.mark.parametrize("kept", [True, False])
def test_a_reader_that_leaves_ends_no_run_that_is_kept(tmp_path, kept):
    both = [*OWN, "--system", "full-context", "--recall-only", "-q", "--limit", 3]
    reading, writing = os.pipe()
    os.close(reading)
    running = process(*both, *(["--out", tmp_path / "r.json"] if kept else []), stdout=writing)
    os.close(writing)
    stderr = running.communicate(timeout=120)[1]
    if kept:
        assert running.returncode == 0, stderr
        assert result(tmp_path / "r.full-context.json")["complete"]
    else:
        assert running.returncode == 1, stderr
        assert "1 runs are left out" in stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [[*OWN, "--recall-only", "-q", "--limit", "2"], ["datasets"], ["run", "--help"]])
def test_a_full_output_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        running = process(*arguments, stdout=full)
        stderr = running.communicate(timeout=120)[1]
    assert running.returncode == 1
    assert re.fullmatch(r"eval: cannot write to standard output: No space left on device\n", stderr), stderr


def test_the_exit_code_stays_where_nobody_reads_the_messages():
    gone, ours = os.pipe()
    os.close(gone)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "eval", "run", "nonsense"], stderr=ours, cwd=ROOT, env=kept, check=False
        )
    finally:
        os.close(ours)
    assert done.returncode == 2


def test_a_damaged_benchmark_is_told_before_anything_runs(tmp_path):
    (tmp_path / "documents.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "questions.jsonl").write_text('{"text": "b", "evidence": ["line-1"]}\n{"text": \n')
    told = run("run", "own", "--data", tmp_path, "--system", "lexical", code=1)
    assert "questions.jsonl" in told.stderr
    assert "2" in told.stderr


def test_rejudging_needs_answers(tmp_path):
    run(*OWN, "--recall-only", "--limit", 2, "--out", tmp_path / "r.json")
    assert "no answers" in run("rejudge", tmp_path / "r.json", "--judge-model", "m", code=1).stderr


def test_systems_and_datasets_are_listed():
    told = run("systems").stdout
    assert all(name in told for name, _ in names())
    assert {one["name"] for one in json.loads(run("systems", "--json").stdout)} == {name for name, _ in names()}
    for one in json.loads(run("datasets", "--json").stdout):
        assert all(one[key] for key in ("where", "licence", "size", "expects"))
    text = run("datasets").stdout
    assert "snap-research/locomo" in text
    assert "Supersession" in text


def test_every_command_has_help():
    for command in ("run", "ablate", "sweep-k", "compare", "report", "rejudge", "datasets", "systems"):
        assert "Usage" in run(command, "--help").stdout


def test_progress_tells_count_rate_and_remaining_time(capsys, monkeypatch):
    assert described(0, 10, 1.0, "taking in x") == "0 of 10 questions, taking in x"
    assert described(5, 10, 20.0, "") == "5 of 10 questions, 0.25/s, 20 s left"
    assert described(10, 10, 0.5, "") == "10 of 10 questions, 20/s"
    assert [duration(s) for s in (1.25, 59, 61, 7260)] == ["1.2 s", "59 s", "1 min 1 s", "2 h 1 min"]
    monkeypatch.setattr("eval.progress.SECONDS_BETWEEN_LINES", 0.01)
    with Meter("x", 2) as meter:
        meter.done()
        while "1 of 2 questions" not in (line := capsys.readouterr().err):
            assert not line or line.startswith("eval: x: ")
    assert Meter("x", 2, quiet=True).__enter__() is not None
    assert not capsys.readouterr().err


# The real data


@pytest.fixture
def words(monkeypatch):
    """An encoder that is fast, in place of MiniLM."""
    monkeypatch.setattr("eval.systems.encoders.mempp.in_memory", _with(WordEncoder()), raising=True)


def _with(encoder):
    import mempp

    before = mempp.in_memory

    def in_memory(**arguments):
        if arguments.get("encoder") == "minilm":
            arguments["encoder"] = encoder
        return before(**arguments)

    return in_memory


def test_the_preset_shows_the_figures_of_the_authors_engine(orgmembench, tmp_path):
    out = tmp_path / "r.json"
    command = ["run", "orgmembench", "--data", DATA / "orgmembench", "--system", "mempp", "--preset", "orgmembench"]
    told = run(*command, "--recall-only", "-q", "--out", out)
    found = result(out)
    assert found["counts"]["questions"] == 39
    overall = found["summary"]["overall"]
    for name, expected in {"coverage@40000": 0.626, "recall@5": 0.419, "recall@10": 0.517, "recall@20": 0.639}.items():
        assert overall[name] == pytest.approx(expected, abs=0.005), name
    for name in ("Supersession", "Decision Provenance", "Bi-temporal", "Audit Replay", "Contradiction", "Overall"):
        assert name in told.stdout
    assert not any(row["scores"]["evidence_chars"] > 40_000 for row in found["rows"])


def test_full_context_and_rag_stand_beside_it(orgmembench, words, tmp_path):
    command = ["run", "orgmembench", "--data", orgmembench, "--limit", 12, "--recall-only", "-q"]
    told = run(*command, "--system", "mempp", "--system", "rag-2048", "--system", "full-context")
    assert [line.split()[0] for line in told.stdout.rstrip().splitlines()[-3:]] == ["mempp", "rag-2048", "full-context"]


def test_locomo_is_scored_per_category(tmp_path):
    if not (DATA / "locomo").is_dir():
        pytest.skip("needs the LoCoMo data; set MEMPP_DATA")
    out = tmp_path / "r.json"
    command = ["run", "locomo", "--data", DATA / "locomo", "--system", "lexical", "--preset", "locomo"]
    told = run(*command, "--recall-only", "-q", "--out", out, "--fraction", "0.2")
    found = result(out)
    assert set(found["summary"]["by_category"]) == {"1", "2", "3", "4"}
    assert found["ingest_total"]["collections"] == 5
    assert 0.3 < found["summary"]["overall"]["recall@10"] < 0.8
    order = [told.stdout.index(name) for name in ("Temporal", "Open Domain", "Multi-Hop", "Single-Hop", "Overall")]
    assert order == sorted(order)
