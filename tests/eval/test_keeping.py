"""What a run leaves behind: it goes on from there, loses nothing, and replaces nothing that it was not told to."""

import subprocess
import sys
from dataclasses import replace

import pytest
from command import EXAMPLES, ROOT, result
from command import run as command
from scripted_server import ModelServer, slow
from test_run import FakeAsking, FakeSystem, collection, dataset, plan_for, without_times

from eval.errors import EvalError, SystemUnavailableError
from eval.results import load, rows_path
from eval.run import run


def test_an_interrupted_run_leaves_a_partial_result_and_goes_on(tmp_path):
    data = dataset(collection("c", 5), collection("d", 5))
    out = tmp_path / "r.json"
    first = FakeSystem(stop_at="d-q2")
    outcome = run(plan_for(data, out=out), first)
    assert isinstance(outcome.ended_by, KeyboardInterrupt)
    partial = load(out)
    assert not partial["complete"]
    assert partial["counts"]["questions"] == 7
    assert rows_path(out).exists()

    second = FakeSystem()
    result = run(plan_for(data, out=out, resume=True), second).result
    assert second.opened == ["d"]
    assert second.asked == ["d-q2", "d-q3", "d-q4"]
    assert load(out)["complete"]
    assert not rows_path(out).exists()
    assert without_times(result) == without_times(run(plan_for(data), FakeSystem()).result)
    assert result["ingest_total"]["collections"] == 2


def test_a_finished_run_is_not_run_again_when_resumed(tmp_path):
    plan = plan_for(dataset(collection("c", 3)), out=tmp_path / "r.json")
    run(plan, FakeSystem())
    again = FakeSystem()
    assert run(replace(plan, resume=True), again).result["complete"]
    assert not again.opened


def test_failed_questions_are_asked_again_when_resumed(tmp_path):
    plan = plan_for(dataset(collection("c", 4)), out=tmp_path / "r.json")
    run(plan, FakeSystem(fails=frozenset({"c-q1"})))
    mended = FakeSystem()
    result = run(replace(plan, resume=True), mended).result
    assert mended.asked == ["c-q1"]
    assert result["counts"]["retrieval_errors"] == 0


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_dropped(tmp_path, cut):
    plan = plan_for(dataset(collection("c", 5)), out=tmp_path / "r.json")
    run(plan, FakeSystem(stop_at="c-q3"))
    rows = rows_path(plan.out)
    plan.out.unlink()  # as after kill -9: rows only
    rows.write_bytes(rows.read_bytes()[:-cut])
    again = FakeSystem()
    result = run(replace(plan, resume=True), again).result
    # The first byte from the end is the line feed alone, and the line is whole without it.
    assert again.asked == (["c-q3", "c-q4"] if cut == 1 else ["c-q2", "c-q3", "c-q4"])
    assert result["complete"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (1, "\0"),
        (1, "{}"),
        (1, "["),
        (3, '{"row":5}'),
        (3, '{"row":{"id":"q1"}}'),
        (3, '{"ingest":{"collection":"c"}}'),
        (3, "NaN"),
        (3, "[" * 200_000),
        (3, '{"other":1}'),
    ],
)
def test_a_damaged_line_is_told_and_nothing_is_lost(tmp_path, line, text):
    plan = plan_for(dataset(collection("c", 4)), out=tmp_path / "r.json")
    run(plan, FakeSystem(stop_at="c-q2"))
    rows = rows_path(plan.out)
    plan.out.unlink()
    lines = rows.read_text().splitlines()
    lines[line - 1] = text
    rows.write_text("\n".join(lines) + "\n")
    before = rows.read_bytes()
    for changed in (replace(plan, resume=True), plan):
        with pytest.raises(EvalError, match=rf"r\.json\.rows\.jsonl:{line}, .*damaged"):
            run(changed, FakeSystem())
        assert rows.read_bytes() == before
    assert run(replace(plan, overwrite=True), FakeSystem()).result["complete"]


def test_a_head_that_is_not_whole_is_told(tmp_path):
    plan = plan_for(dataset(collection("c", 4)), out=tmp_path / "r.json")
    rows_path(plan.out).write_text('{"format":"mempp-ev')
    with pytest.raises(EvalError, match=r"rows\.jsonl:1"):
        run(replace(plan, resume=True), FakeSystem())
    rows_path(plan.out).write_text("")  # as a kill before the first line leaves it
    assert run(plan, FakeSystem()).result["complete"]


def test_another_configuration_does_not_go_on_and_does_not_overwrite(tmp_path):
    data = dataset(collection("c", 4))
    plan = plan_for(data, out=tmp_path / "r.json")
    run(plan, FakeSystem(stop_at="c-q2"))
    other = FakeSystem(configuration={"k": 4})
    with pytest.raises(EvalError, match="another configuration"):
        run(replace(plan, resume=True), other)
    with pytest.raises(EvalError, match="--overwrite"):
        run(plan, other)
    with pytest.raises(EvalError, match="another configuration"):
        run(replace(plan, resume=True, data_digest={"sha256": "other data"}), FakeSystem())
    assert load(plan.out)["configuration"]["system_configuration"] == {"k": 3}
    assert run(replace(plan, overwrite=True), other).result["complete"]


def test_what_is_there_stays_without_resume_or_overwrite(tmp_path):
    plan = plan_for(dataset(collection("c", 4)), out=tmp_path / "r.json")
    run(plan, FakeSystem(stop_at="c-q2"))
    files = (plan.out, rows_path(plan.out))
    before = [path.read_bytes() for path in files]
    with pytest.raises(EvalError, match="--resume goes on from it, --overwrite"):
        run(plan, FakeSystem())
    assert [path.read_bytes() for path in files] == before
    plan.out.unlink()  # as after kill -9: rows only
    with pytest.raises(EvalError, match="an unfinished run"):
        run(plan, FakeSystem())
    assert files[1].read_bytes() == before[1]
    again = FakeSystem()
    assert run(replace(plan, overwrite=True), again).result["complete"]
    assert len(again.asked) == 4
    with pytest.raises(EvalError, match="holds a run already"):
        run(plan, FakeSystem())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json"]


@pytest.mark.parametrize("same", [True, False])
def test_a_complete_result_is_never_replaced_by_a_partial_one(tmp_path, same):
    plan = plan_for(dataset(collection("c", 4)), out=tmp_path / "r.json")
    run(plan, FakeSystem())
    before = plan.out.read_bytes()
    configuration = {"k": 3 if same else 4}
    outcome = run(replace(plan, overwrite=True), FakeSystem(stop_at="c-q2", configuration=configuration))
    assert plan.out.read_bytes() == before
    assert outcome.kept_in == rows_path(plan.out)
    assert not outcome.result["complete"]
    limited = FakeAsking(limit=0)
    run(replace(plan, overwrite=True, asking=limited), FakeSystem())
    assert plan.out.read_bytes() == before

    run(replace(plan, overwrite=True), FakeSystem(stop_at="c-q2", configuration=configuration))
    rest = FakeSystem(configuration=configuration)
    result = run(replace(plan, overwrite=True, resume=True), rest).result
    assert rest.asked == ["c-q2", "c-q3"]
    assert result["complete"]
    assert load(plan.out)["configuration"]["system_configuration"] == configuration
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_rows_with_and_without_their_evidence_are_not_mixed(tmp_path):
    plan = plan_for(dataset(collection("c", 4)), out=tmp_path / "r.json")
    run(plan, FakeSystem(stop_at="c-q2"))
    with pytest.raises(EvalError, match="another configuration"):
        run(replace(plan, resume=True, keep_evidence=True), FakeSystem())


def test_nothing_done_is_begun_anew(tmp_path):
    """A run that ended before its first question, for a wrong key or the like, leaves nothing that is in the way."""
    plan = plan_for(dataset(collection("c", 4)), out=tmp_path / "r.json")

    class Absent(FakeSystem):
        def retrieve(self, case, budgets):
            raise SystemUnavailableError("not installed")

    with pytest.raises(SystemUnavailableError):
        run(plan, Absent())
    assert run(plan, FakeSystem()).result["complete"]


@pytest.mark.parametrize("blocks", [0, 1, 2, 4, 8, 16, 40])
def test_a_full_disk_is_one_line_and_what_was_written_goes_on(tmp_path, blocks):
    out = tmp_path / "r.json"
    arguments = ["run", "own", "--data", EXAMPLES, "--system", "lexical", "--recall-only", "-q", "--limit", 30]
    shell = f'ulimit -f {blocks}; exec "$0" -m eval "$@"'
    words = ["bash", "-c", shell, sys.executable, *map(str, arguments), "--out", str(out)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "unexpected" not in done.stderr
    assert "cannot write" in done.stderr.splitlines()[-1]
    assert not out.exists()
    told = command(*arguments, "--out", out, "--resume")
    assert result(out)["complete"]
    if blocks >= 8:
        assert "are done already" in told.stderr


def test_with_a_judge_that_never_answers_the_run_is_no_success(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    own = ["run", "own", "--data", EXAMPLES, "--system", "lexical", "--limit", 3, "-q", "--retries", 0]
    with ModelServer() as server:
        models = ["--answer-model", "m", "--judge-model", "j", "--base-url", server.openai_url]
        plain = server.script
        server.script = lambda asked: plain(asked) if asked.model == "m" else slow()
        out = tmp_path / "r.json"
        assert (
            "every request to the judge failed" in command(*own, *models, "--timeout", 0.5, "--out", out, code=1).stderr
        )
        rejudge = ["rejudge", out, "--judge-model", "j2", "--base-url", server.openai_url, "--retries", 0, "-q"]
        assert "--overwrite asks again" in command(*rejudge, "--timeout", 0.5, code=1).stderr
        server.script = plain
        command(*rejudge, "--overwrite")
        server.script = lambda asked: slow()
        told = command(*own, *models, "--timeout", 0.5, "--out", tmp_path / "b.json", "--cache", tmp_path / "c", code=1)
        assert "every request to the answering model failed" in told.stderr
