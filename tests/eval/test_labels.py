"""Runs are told apart in a report, and what does not belong into one table is refused."""

import copy
import json
from pathlib import Path

import pytest
from command import EXAMPLES, result, run
from scripted_server import ModelServer
from test_report import judged, made

from eval.errors import EvalError
from eval.labels import told_apart
from eval.report import longmemeval_table, report

OWN = ["own", "--data", EXAMPLES, "-q"]


def first_cells(text: str, heading: str) -> list[str]:
    """The first column of the first table after a heading."""
    lines = text.partition(heading)[2].lstrip("\n").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| "))
    cells = []
    for line in lines[start + 2 :]:
        if not line.startswith("| "):
            break
        cells.append(line.split(" | ")[0].removeprefix("| "))
    return cells


def test_runs_of_one_system_are_named_by_what_differs(tmp_path):
    others = {"full": [], "few": ["--limit", 5], "withheld": ["--option", "thread=withheld"], "k": ["--k", 3]}
    others |= {"again": [], "preset": ["--preset", "locomo"]}
    files = []
    for name, more in others.items():
        files.append(tmp_path / f"{name}.json")
        run("run", *OWN, "--system", "lexical", "--recall-only", "--out", files[-1], *more)
    text = run("report", *files, files[0]).stdout
    names = first_cells(text, "### Retrieval")
    assert len(names) == len(set(names)) == len(others)
    by_name = dict(zip(others, names, strict=True))
    assert "limit=5" in by_name["few"]
    assert "thread=withheld" in by_name["withheld"]
    assert "k=3" in by_name["k"]
    assert "preset=locomo" in by_name["preset"]
    assert by_name["full"].endswith("full.json]")
    assert by_name["again"].endswith("again.json]")
    assert first_cells(text, "### Time, tokens, cost") == names
    assert all(f"**{name}**" in text for name in names)


def test_alone_a_run_has_its_plain_name(tmp_path):
    out = tmp_path / "r.json"
    run("run", *OWN, "--system", "lexical", "--system", "full-context", "--recall-only", "--limit", 3, "--out", out)
    text = run("report", tmp_path / "r.lexical.json", tmp_path / "r.full-context.json").stdout
    assert first_cells(text, "### Retrieval") == ["lexical", "full-context"]


def test_answering_models_and_judges_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    files = []
    with ModelServer() as server:
        for model, judge in (("m1", "j"), ("m2", "j"), ("m2", "other")):
            files.append(tmp_path / f"{model}-{judge}.json")
            models = ["--answer-model", model, "--judge-model", judge, "--base-url", server.openai_url]
            run("run", *OWN, "--system", "lexical", "--limit", 3, *models, "--out", files[-1])
    text = run("report", *files).stdout
    names = first_cells(text, "### Retrieval")
    assert len(set(names)) == 3
    assert names == [f"lexical (judge=openai:{one}" for one in ("j), openai:m1", "j), openai:m2", "other), openai:m2")]


def test_table_3_keeps_a_column_for_each_run():
    results = [made("mempp", {"C1": judged(value)}, benchmark="longmemeval", model="m") for value in (0.9, 0.1)]
    results[1]["configuration"]["system_configuration"] = {"settings": {"k": 5}}
    header, _, line, _ = longmemeval_table(told_apart(results, [Path("a"), Path("b")])).splitlines()
    assert header == "| Answered by | Question type | mempp | mempp (k=5) |"
    assert line == "| m | Supersession | 90.0 | 10.0 |"


def test_table_4_has_a_column_for_each_answering_model():
    results = [
        made("mempp", {"C1": judged(value)}, model=model, study="ablation", variant=name)
        for name, model, value in (
            ("Mem++", "gpt", 0.9),
            ("Mem++", "claude", 0.1),
            ("w/o tag leg", "gpt", 0.8),
            ("w/o tag leg", "claude", 0.3),
        )
    ]
    text = report(results)
    assert "| Variant | orgmembench, gpt | orgmembench, claude |" in text
    assert "| Mem++ | 90.0 | 10.0 |\n| w/o tag leg | 80.0 (-10.0) | 30.0 (+20.0) |" in text


@pytest.mark.parametrize("study", [("ablation", "Mem++", "w/o tag leg"), ("sweep-k", "k=5", "k=10")])
@pytest.mark.parametrize("what", ["twice", "questions", "options", "judge", "preset", "encoder"])
def test_what_is_not_of_one_study_is_refused(study, what):
    name, *variants = study
    one, other = (made("mempp", {"C1": judged(0.5)}, model="m", study=name, variant=variant) for variant in variants)
    report([one, other])
    configuration = other["configuration"] = copy.deepcopy(other["configuration"])
    if what == "twice":
        configuration["variant"] = variants[0]
    elif what == "questions":
        configuration["selection"]["sha256"] = "0" * 64
    elif what == "options":
        configuration["dataset_options"] = {"thread": "withheld"}
    elif what == "judge":
        configuration["models"]["judge"] = {"model": "another"}
    else:
        configuration["system_configuration"] = {what: "another"}
    with pytest.raises(EvalError, match=r"a\.json and b\.json .*report them apart"):
        report(told_apart([one, other], [Path("a.json"), Path("b.json")]))


@pytest.mark.parametrize("category", ["$x^$", "$\\foo$", "cost $_$", "$", "\\$x^$", "_hidden", "a|b\n# h"])
def test_categories_are_drawn_as_they_are_written(tmp_path, category):
    pytest.importorskip("matplotlib")
    (tmp_path / "documents.jsonl").write_text('{"id": "d1", "text": "tea"}\n')
    questions = [{"text": "Tea?", "category": one, "evidence": ["d1"]} for one in (category, "b")]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
    out = tmp_path / "r.json"
    run("run", "own", "--data", tmp_path, "--system", "lexical", "--recall-only", "-q", "--out", out)
    assert category in result(out)["summary"]["by_category"]
    run("report", out, "--out", tmp_path / "report")
    assert (tmp_path / "report" / "own-coverage.png").exists()
