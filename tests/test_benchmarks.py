"""`python -m benchmarks`: every command runs at a tiny size, and what `scale` counts against is right."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA, ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks import __main__ as command
from benchmarks import exact, growth, kept_stores, report, scale
from benchmarks.peers import SYSTEMS, Scope, System
from benchmarks.synthetic import BLOCK, SyntheticRecord, load_questions, save_questions

PEERS = ("chromadb", "lancedb")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`python -m benchmarks` in a process of its own, away from the source tree's folder."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "MEMPP_DATA": str(DATA)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


# The commands


@pytest.mark.parametrize("name", command.COMMANDS)
def test_every_command_tells_its_options(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", sys.argv)
    with pytest.raises(SystemExit) as ended:
        command.main([name, "--help"])
    assert ended.value.code == 0
    assert "usage: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("ingest --only file --file-gigabytes 0.0002", "0.00 GB"),
        ("recall --rows 300 --rounds 1", "default"),
        ("open --rows 300 --runs 1", "without cache/"),
        ("kills kills --count 1 --seed 1", "nothing lost"),
    ],
)
def test_commands_without_data_run(arguments, expected):
    done = run(*arguments.split())
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("encode --documents 2 --turns 3 --rounds 1", "| Mem++, int8 |"),
        ("ingest --only turns --turns 10 --runs 1", "| turns of LoCoMo | 10 |"),
    ],
)
def test_commands_over_public_data_run(arguments, expected, orgmembench):
    if not (DATA / "locomo").is_dir():
        pytest.skip("needs LoCoMo; set MEMPP_DATA")
    done = run(*arguments.split())
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_wrong_usage_is_one_sentence(capsys):
    assert command.main(["encoed"]) == 2
    assert command.main([]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"there is no benchmark 'encoed': one of {', '.join(command.COMMANDS)}"
    assert second.startswith("name a benchmark: one of encode, ")


def test_what_is_missing_is_one_sentence(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "needs_something.py").write_text("def main():\n    import not_installed.part\n")
    monkeypatch.setitem(command.COMMANDS, "steps", "needs_something")
    monkeypatch.setitem(command.COMMANDS, "kills", "benchmarks.not_written")
    assert command.main(["steps"]) == 1
    assert command.main(["kills"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("the benchmark 'steps' needs not_installed, which is not installed: pip install")
    assert second == "the benchmark 'kills' is not in this source tree: benchmarks.not_written is missing"


def test_scale_and_growth_from_end_to_end(tmp_path):
    sizes = ["--sizes", "300", "--dimensions", "16", "--systems", "mempp", *PEERS]
    quick = ["--questions", "2", "--rounds", "2", "--openings", "1", "--figures", "median", "quickest", "processor"]
    done = run("scale", *sizes, *quick, "--out", tmp_path / "made" / "scale.json")
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "made" / "scale.json").read_text())
    assert content["command"] == "scale"
    assert content["machine"]["bandwidth"] > 1e6
    assert {(one["rows"], one["system"]) for one in content["results"]} == {
        (rows, name) for rows in (300,) for name in ("mempp", *PEERS)
    }
    for one in content["results"]:
        if find_spec(SYSTEMS[one["system"]].package) is None:
            assert one["note"] == f"not installed: pip install {one['system']}"
            assert one["note"] in done.stdout
            continue
        assert "note" not in one
        assert one["bytes_on_disk"] > 4 * 16 * one["rows"]
        assert one["resident_bytes"] > one["resident_before_bytes"] > 1e6
        assert one["first_answer_seconds"] > one["open_seconds"] > 0
        counts = {cell["scope"]: cell["in_scope"] for cell in one["cells"]}
        rows = one["rows"]
        expected = {"100 %": rows, "50 %": rows // 2, "10 %": rows // 10, "1 %": rows // 100, "one row": 1}
        assert counts == {**expected, "one author": counts["one author"]}
        assert all(0 < cell["quickest_ms"] <= cell["median_ms"] for cell in one["cells"])
        recalls = [cell["recall"] for cell in one["cells"] if cell["recall"] is not None]
        assert min(recalls) == 1 if one["system"] == "mempp" else np.mean(recalls) > 0.9
    for variant in ("vectors alone", "vectors alone, exact=True", "whole, preset locomo", "whole, default"):
        assert done.stdout.count(f"| Mem++, {variant} ") == 3

    drawn = run("growth", tmp_path / "made" / "scale.json", "--out", tmp_path / "plots")
    assert drawn.returncode == 0, drawn.stderr
    files = [Path(line) for line in drawn.stdout.splitlines()]
    assert [file.name for file in files] == ["growth-questions.png", "growth-costs.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_a_system_that_fails_is_told_and_the_others_are_measured(tmp_path):
    unknown = System("unknown", "Unknown", "benchmarks.peers.unknown", "mempp")
    server = System("pgvector", "PostgreSQL", "benchmarks.peers.pgvector", "mempp", in_process=False)
    plan = scale.Plan(questions=1, rounds=1, openings=2)
    record = SyntheticRecord(120, 8)
    results = scale.measure(record, [unknown, server, SYSTEMS["mempp"]], plan, tmp_path, lambda what: None)
    assert results[0]["note"].startswith("failed at adding: ended with code 1: KeyError: 'unknown'")
    assert results[1]["note"] == "no server: set MEMPP_BENCHMARK_POSTGRES"
    assert results[0]["cells"] == results[1]["cells"] == []
    assert "note" not in results[2]
    assert {cell["recall"] for cell in results[2]["cells"]} == {1.0, None}
    printed = scale.tables(results, {"bandwidth": 1e9}, 8)
    assert "KeyError: 'unknown'" in printed
    assert "| Mem++, vectors alone " in printed


def test_stores_that_are_kept_are_asked_again_and_not_added_again(tmp_path):
    record = SyntheticRecord(120, 8)
    plan = scale.Plan(questions=1, rounds=1, openings=1)
    told: list[str] = []
    first = scale.measure(record, [SYSTEMS["mempp"]], plan, tmp_path, told.append)
    assert told.count("120 rows: Mem++ takes them in") == 1
    again = scale.measure(record, [SYSTEMS["mempp"]], plan, tmp_path, told.append)
    assert told.count("120 rows: Mem++ takes them in") == 1
    of_adding = ("added_at", "added_at_load", "add_seconds", "finish_seconds", "add_processor_seconds")
    assert [first[0][name] for name in of_adding] == [again[0][name] for name in of_adding]
    assert {cell["recall"] for cell in again[0]["cells"]} == {1.0, None}
    facts = {"bandwidth": 1e9, "time": first[0]["added_at"]}
    assert "earlier run" not in scale.tables(first, facts, 8)
    told = f"Added in an earlier run: Mem++ {first[0]['added_at']} (load {first[0]['added_at_load']})."
    assert told in scale.tables(again, facts | {"time": "9999-01-01T00:00:00+00:00"}, 8)


def test_a_store_is_kept_only_where_it_is_whole_and_of_the_same_rows_and_package(tmp_path, monkeypatch):
    system, record, calls = SYSTEMS["mempp"], SyntheticRecord(120, 8), []
    whole = {"add_seconds": 1.5}

    def add(outcome=whole):
        assert list((tmp_path / "mempp").iterdir()) == [], "a store is made in an empty folder"
        (tmp_path / "mempp" / "rows").write_text("all")
        calls.append(outcome)
        return outcome

    def added(record=record, system=system, add=add):
        return kept_stores.added(tmp_path, system, record, add)

    figures = added()
    assert figures["add_seconds"] == 1.5
    assert added() == figures
    assert len(calls) == 1

    def break_off():
        (tmp_path / "mempp" / "rows").write_text("half")
        raise KeyboardInterrupt

    other = SyntheticRecord(120, 8, seed=2)
    with pytest.raises(KeyboardInterrupt):
        added(other, add=break_off)
    assert added()["add_seconds"] == 1.5  # neither the half store nor the figures of the one before are taken
    assert len(calls) == 2
    monkeypatch.setattr(kept_stores, "version", lambda package: "another")
    added()
    assert len(calls) == 3
    for damaged in ("", "{}", "[]", '{"made_of": 1, "figures": 2}'):
        (tmp_path / "mempp.json").write_text(damaged)
        added()
    assert len(calls) == 7
    assert added(add=lambda: add(None)) is not None  # whole: nothing is added
    (tmp_path / "mempp" / "rows").unlink()
    added()  # what was emptied by hand is no store
    assert len(calls) == 8
    shutil.rmtree(tmp_path / "mempp")
    assert added(add=lambda: add(None)) is None
    assert not (tmp_path / "mempp.json").exists()
    server = dataclasses.replace(system, in_process=False)
    for _ in range(2):  # what a server holds by now, nobody here knows
        added(system=server)
    assert len(calls) == 11


def test_a_folder_of_stores_has_one_run_and_says_what_is_wrong(tmp_path):
    record = SyntheticRecord(120, 8)
    with kept_stores.folder_of(tmp_path, record) as folder:
        with pytest.raises(SystemExit, match="another run uses"), kept_stores.folder_of(tmp_path, record):
            pass
        (folder / "mempp").write_text("no folder")
        with pytest.raises(SystemExit, match="remove what is in its place"):
            kept_stores.added(folder, SYSTEMS["mempp"], record, dict)
    with kept_stores.folder_of(tmp_path, record):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="cannot hold stores"), kept_stores.folder_of(tmp_path / "file", record):
        pass


def test_growth_refuses_other_files(tmp_path):
    (tmp_path / "other.json").write_text('{"command": "encode"}')
    for name, message in (("other.json", "is no file that"), ("missing.json", "cannot read")):
        with pytest.raises(SystemExit, match=message):
            growth.read([tmp_path / name])


# The synthetic record


@given(rows=st.integers(1, 400), seed=st.integers(0, 5))
@example(rows=BLOCK + 7, seed=1)
@settings(max_examples=10)
def test_a_record_is_the_same_each_time_and_block_by_block(rows, seed):
    record, again = SyntheticRecord(rows, 12, seed), SyntheticRecord(rows, 12, seed)
    blocks = list(record.blocks())
    assert sum(map(len, blocks)) == rows
    for number in reversed(range(len(blocks))):
        block, other = blocks[number], again.block(number)
        assert (block.first, block.texts, block.authors) == (number * BLOCK, other.texts, other.authors)
        assert np.array_equal(block.vectors, other.vectors)
        assert np.array_equal(block.dates, other.dates)
        np.testing.assert_allclose(np.linalg.norm(block.vectors, axis=1), 1, atol=1e-5)
    texts = [text for block in blocks for text in block.texts]
    assert len({*texts}) == rows
    assert max(map(len, texts)) <= 700  # beyond, Mem++ would want windows, and more vectors than its peers get
    assert record.dates.min() >= np.datetime64("2015-01-01").astype("datetime64[s]").astype(int)


def test_questions_are_near_their_rows_and_survive_a_file(tmp_path):
    record = SyntheticRecord(300)
    asked = record.questions(4)
    vectors = record.block(0).vectors
    assert np.argmax(asked.vectors @ vectors.T, axis=1).tolist() == [0, 99, 199, 299]
    assert f"What did {record.block(0).authors[199]} say about" in asked.texts[2]
    save_questions(asked, tmp_path / "questions.npz")
    kept = load_questions(tmp_path / "questions.npz")
    assert kept.texts == asked.texts
    assert np.array_equal(kept.vectors, asked.vectors)


# What recall is counted against


def test_nearest_rows_are_those_of_a_plain_loop():
    record = SyntheticRecord(BLOCK + 40, 6)
    blocks = list(record.blocks())
    vectors = np.concatenate([block.vectors for block in blocks]).astype(np.float64)
    authors = [author for block in blocks for author in block.authors]
    sources = [source for block in blocks for source in block.sources]
    scopes = exact.scopes_of(record)
    questions = record.questions(3).vectors
    found = exact.nearest(record, questions, scopes, 20)
    for name, scope in scopes.items():
        allowed = [
            row
            for row in range(record.rows)
            if (scope.until is None or record.dates[row] <= scope.until)
            and scope.author in (None, authors[row])
            and scope.source in (None, sources[row])
        ]
        for question, rows in zip(questions, found[name], strict=True):
            best = sorted(allowed, key=lambda row: -float(vectors[row] @ question.astype(np.float64)))[:20]
            assert rows == best, name


def test_a_scope_by_date_has_the_share_it_says():
    record = SyntheticRecord(2000, 4)
    scopes = exact.scopes_of(record)
    assert [int(exact.allowed_in(record, scopes[name]).sum()) for name in exact.SHARES] == [2000, 1000, 200, 20]
    assert exact.allowed_in(record, scopes["one row"]).sum() == 1
    assert 0 < exact.allowed_in(record, scopes["one author"]).sum() < 100
    assert exact.allowed_in(record, Scope("none", author="nobody")).sum() == 0


def test_recall_worked_by_hand():
    assert exact.recall([[1, 2, 9], []], [[1, 2, 3, 4], [5]]) == 0.25
    assert exact.recall([[]], [[]]) == 1


# Reports


def test_tables_are_aligned_markdown():
    assert report.table(["a", "long head"], [["x", 1], ["yyyy", None]]).splitlines() == [
        "| a    | long head |",
        "|------|-----------|",
        "| x    | 1         |",
        "| yyyy |           |",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (0, "0"),
        (0.01234, "0.0123"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
        (12345.6, "12,346"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert report.significant(value) == text


def test_facts_and_json(tmp_path):
    facts = report.machine()
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["cores"] >= 1
    assert "GB/s" in report.machine_line(facts)
    report.write_json(tmp_path / "new" / "x.json", "scale", {"out": tmp_path, "sizes": [1, 2]}, machine=facts)
    kept = json.loads((tmp_path / "new" / "x.json").read_text())
    assert kept == {
        "command": "scale",
        "arguments": {"out": str(tmp_path), "sizes": [1, 2]},
        "machine": facts,
    }
    with pytest.raises(SystemExit, match="cannot write"):
        report.write_json(tmp_path, "scale", {})
