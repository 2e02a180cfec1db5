"""Reports, comparisons and tables from result files: made by small runs, or by hand where a figure is to be known."""

import copy
import json
import sys
from pathlib import Path

import pytest
from command import EXAMPLES, result, run

from eval.ablate import ABLATIONS
from eval.report import judge_table, locomo_table, longmemeval_table, report, sweep_table
from eval.results import FORMAT
from eval.summing import figures
from eval.tables import folded, markdown

NAMES = {"C1": "Supersession", "C2": "Decision Provenance"}


def made(
    system: str,
    scores: dict[str, list[dict]],
    *,
    benchmark: str = "orgmembench",
    model: str | None = None,
    study: str | None = None,
    variant: str | None = None,
    names: dict[str, str] | None = None,
    repeats: dict[str, list[list[float]]] | None = None,
) -> dict:
    """A result with these scores: category → one mapping for each question."""
    rows = []
    for category, each in scores.items():
        for number, values in enumerate(each):
            verdict = None
            if repeats is not None:
                verdict = {"repeats": repeats[category][number], "failed": 0, "unparsed": 0}
            rows.append(
                {
                    "id": f"{category}-{number}",
                    "collection": "c",
                    "category": category,
                    "gold": {"evidence": ["d"]},
                    "scores": values,
                    "answer": None,
                    "verdict": verdict,
                    "error": None,
                }
            )
    names = NAMES if names is None else names
    return {
        "format": FORMAT,
        "complete": True,
        **figures(rows, list(names)),
        "usage": None,
        "configuration": {
            "benchmark": benchmark,
            "dataset_options": {},
            "selection": {"of": len(rows)},
            "system": system,
            "study": study,
            "variant": variant,
            "models": None if model is None else {"answer": {"model": model}, "judge": {"model": "j"}},
        },
        "configuration_digest": "0" * 64,
        "data": {"title": benchmark, "sha256": "d" * 64},
        "category_names": names,
        "versions": {"mempp": "1"},
        "machine": {},
        "notes": [],
        "ingest_total": {"collections": 1, "documents": 1, "seconds": 1.0, "bytes_stored": 1},
        "ingest": [],
        "rows": rows,
    }


def judged(*values: float) -> list[dict]:
    return [{"judge": value} for value in values]


def test_table_1_weighs_by_questions_and_gives_the_deviation_over_repeats():
    scores = {"C1": judged(0.5, 1.0), "C2": judged(0.25)}
    repeats = {"C1": [[0.5, 0.5], [1.0, 1.0]], "C2": [[0.0, 0.5]]}
    table = judge_table([made("mempp", scores, model="m", repeats=repeats)])
    # Overall (0.5 + 1 + 0.25) / 3; repeats 0.5 and 0.6667, so a deviation of 0.1667 / √2.
    assert table.splitlines() == [
        "| Answered by | Method | Supersession | Decision Provenance | Overall |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| m | mempp | 75.0 | 25.0 | 58.3 ± 11.8 |",
    ]


def test_table_2_has_three_scores_per_category():
    one = {"judge": 1.0, "f1": 0.5, "bleu1": 0.25}
    lines = locomo_table([made("mempp", {"2": [one]}, model="m", names={"2": "Temporal"})]).splitlines()
    assert lines[0].startswith("| Answered by | Method | Temporal LLM | Temporal F1 | Temporal BLEU | Average LLM |")
    assert lines[2] == "| m | mempp | 100.0 | 50.0 | 25.0 | 100.0 | 50.0 | 25.0 |"


def test_table_3_has_a_line_per_type_and_a_column_per_method():
    results = [made(name, {"C1": judged(value)}, model="m") for name, value in (("a", 0.1), ("b", 0.2))]
    lines = longmemeval_table(results).splitlines()
    assert lines[0] == "| Answered by | Question type | a | b |"
    assert lines[2:] == ["| m | Supersession | 10.0 | 20.0 |", "| m | Average | 10.0 | 20.0 |"]


def test_table_4_gives_the_change_from_the_full_system():
    results = [
        made("mempp", {"C1": judged(value)}, model="m", study="ablation", variant=name)
        for name, value in (("w/o tag leg", 0.55), ("w/o vector leg", 0.213), ("Mem++", 0.57))
    ]
    text = report(results)
    assert "| Mem++ | 57.0 |\n| w/o vector leg | 21.3 (-35.7) |\n| w/o tag leg | 55.0 (-2.0) |" in text


def test_table_7_sums_retrieved_tokens():
    def at(variant: str, characters: float, model: str) -> dict:
        scores = {"C1": [{"judge": 0.5, "retrieved_chars": characters}] * 2}
        return made("mempp", scores, model=model, study="sweep-k", variant=variant)

    results = [at("k=5", 2_000_000, "m"), at("k=5", 2_000_000, "n"), at("Full Context", 8_000_000, "m")]
    lines = sweep_table(results).splitlines()
    assert lines[0] == "| k | m: judge | n: judge | Retrieved tokens (characters / 4) |"
    assert lines[2:] == ["| 5 | 50.00 | 50.00 | 1.00M |", "| Full Context | 50.00 | – | 4.00M |"]


def test_a_run_that_is_not_complete_is_marked():
    partial = made("mempp", {"C1": judged(1.0)}, model="m") | {"complete": False}
    assert "mempp †" in report([partial])
    assert "† not complete" in report([partial])


def test_cells_cannot_break_a_table():
    assert markdown(["a|b"], [["c\nd"]]).splitlines() == ["| a\\|b |", "| --- |", "| c d |"]


def test_wide_tables_are_folded_with_every_column_once():
    header = [f"column {i}" for i in range(30)]
    tables = folded(["name"], header, [(["x"], [str(i) for i in range(30)])])
    assert len(tables) > 1
    assert all(max(map(len, table.splitlines())) <= 120 for table in tables)
    found = [int(cell) for table in tables for cell in table.splitlines()[2].split()[1:]]
    assert found == list(range(30))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Results of real small runs."""
    folder = tmp_path_factory.mktemp("runs")
    common = ["own", "--data", EXAMPLES, "--encoder", "none", "--recall-only", "-q", "--limit", 12]
    told = run("ablate", *common, "--out", folder / "ablation.json")
    assert told.stderr.count("; left out") == sum(one.asks_model for one in ABLATIONS.values())
    told = run("sweep-k", *common, "--k", "5,300", "--k", 10, "--out", folder / "sweep.json")
    assert "fill" in told.stderr
    run("run", *common, "--system", "mempp", "--system", "full-context", "--out", folder / "run.json")
    return folder


def test_a_report_of_everything(runs, tmp_path):
    pytest.importorskip("matplotlib")
    files = sorted(runs.glob("*.json"))
    built = sum(not one.asks_model for one in ABLATIONS.values())
    assert len(files) == built + 4 + 2
    run("report", *files, "--out", tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    for part in ("### Retrieval", "### Time, tokens, cost", "### Score over k (Table 7)", "## Ablation (Table 4)"):
        assert part in text
    order = [line.split(" | ")[0][2:] for line in text.partition("(Table 7)")[2].splitlines() if line.startswith("| ")]
    assert order[:6] == ["k", "---", "5", "10", "300", "Full Context"]
    # Every figure of the table is that of the file.
    overall = result(runs / "run.mempp.json")["summary"]["overall"]
    assert f"{overall['ndcg@10']:.3f} [" in text
    pictures = {path.name for path in (tmp_path / "report").glob("*.png")}
    assert pictures == {
        "own-k.png",
        "own-coverage.png",
        "own-categories-recall-10.png",
        "own-categories-coverage-40000.png",
    }
    for name in pictures:
        assert (tmp_path / "report" / name).read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_markdown_and_a_message(runs, tmp_path, monkeypatch):
    for name in [one for one in sys.modules if one.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = run("report", runs / "run.mempp.json", "--out", tmp_path)
    assert "matplotlib is not installed" in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]


def test_a_sweep_above_c_fills_up_for_every_k(runs):
    for k in (5, 10, 300):
        settings = result(runs / f"sweep.k{k}.json")["configuration"]["system_configuration"]["settings"]
        assert settings["fill"] is True
        assert settings["k"] == k
    most = result(runs / "sweep.k300.json")["rows"]
    assert max(row["retrieved_count"] for row in most) > 100


def test_compare_pairs_by_question(runs, tmp_path):
    a, b = runs / "run.mempp.json", runs / "run.full-context.json"
    told = json.loads(run("compare", a, b, "--json").stdout)
    ours, theirs = ({row["id"]: row["scores"]["mrr"] for row in result(path)["rows"]} for path in (a, b))
    one = told["overall"]["mrr"]
    assert one["difference"] == pytest.approx(sum(ours[name] - theirs[name] for name in ours) / len(ours))
    assert one["wins"] == sum(ours[name] > theirs[name] for name in ours)
    assert one["low"] <= one["difference"] <= one["high"]
    text = run("compare", a, b, "--metric", "mrr").stdout
    assert "Overall" in text
    assert "recall@5" not in text
    assert "do not share" in run("compare", a, b, "--metric", "nonsense", code=1).stderr

    same = json.loads(run("compare", a, a, "--json").stdout)
    assert all(one["difference"] == 0 == one["wins"] for one in same["overall"].values())


@pytest.mark.parametrize("what", ["data", "questions", "options", "benchmark"])
def test_compare_refuses_what_is_not_the_same(runs, tmp_path, what):
    other = copy.deepcopy(result(runs / "run.full-context.json"))
    if what == "data":
        other["data"]["sha256"] = "f" * 64
    elif what == "questions":
        other |= {"rows": other["rows"][1:], **figures(other["rows"][1:], list(other["category_names"]))}
    elif what == "options":
        other["configuration"]["dataset_options"] = {"thread": "withheld"}
    else:
        other["configuration"]["benchmark"] = "locomo"
    path = tmp_path / "other.json"
    path.write_text(json.dumps(other))
    assert "--force" in run("compare", runs / "run.mempp.json", path, code=1).stderr
    assert "warning" in run("compare", runs / "run.mempp.json", path, "--force").stderr


def test_a_report_does_not_mix_data(runs, tmp_path):
    other = result(runs / "run.full-context.json")
    other["data"]["sha256"] = "f" * 64
    path = tmp_path / "other.json"
    path.write_text(json.dumps(other))
    assert "different data" in run("report", runs / "run.mempp.json", path, code=1).stderr


def test_compare_narrows_what_it_prints_as_json_too(runs):
    a, b = runs / "run.mempp.json", runs / "run.full-context.json"
    told = json.loads(run("compare", a, b, "--metric", "mrr", "--json").stdout)
    assert list(told["overall"]) == ["mrr"]
    assert all(list(pairs) == ["mrr"] for pairs in told["by_category"].values())
    assert "do not share" in run("compare", a, b, "--metric", "nonsense", "--json", code=1).stderr


def test_compare_says_which_run_is_not_complete(runs, tmp_path):
    whole = result(runs / "run.mempp.json")
    path = tmp_path / "part.json"
    rows = whole["rows"][:5]
    path.write_text(json.dumps({**whole, "complete": False, "rows": rows, **figures(rows, list(NAMES))}))
    for a, b, name in ((path, path, "A"), (runs / "run.mempp.json", path, "B")):
        told = run("compare", a, b, "--force")
        assert f"{name} (mempp) is not complete: the run was ended early, after 5 questions" in told.stderr
        assert f"{name} (mempp) is not complete" in told.stdout
        assert json.loads(run("compare", a, b, "--force", "--json").stdout)["complete"][name.lower()] is False
