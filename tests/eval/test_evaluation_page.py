"""docs/evaluation.md is true: every command in it runs, those with models against the scripted server."""

import json
import re
import shlex
from pathlib import Path

import pytest
from command import EXAMPLES, KEY, ROOT, result, run
from conftest import DATA
from scripted_server import ModelServer
from support import WordEncoder

import mempp
from eval.results import FORMAT
from eval.systems.encoders import RememberingEncoder

TEXT = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)[3:]
    for block in re.findall(r"^```console\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with the data that the page names; a small LongMemEval in its format, because it is not here."""
    if not (DATA / "orgmembench").is_dir():
        pytest.skip("needs the benchmarks' data; set MEMPP_DATA")
    (tmp_path / "data").mkdir()
    (tmp_path / "examples").symlink_to(EXAMPLES)
    for name in ("orgmembench", "locomo"):
        (tmp_path / "data" / name).symlink_to(DATA / name)
    item = {
        "question_id": "q1",
        "question_type": "multi-session",
        "question": "Which tea do I like?",
        "answer": "Assam",
        "question_date": "2023/05/30 (Tue) 10:00",
        "haystack_session_ids": ["s1"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "I like Assam tea.", "has_answer": True},
                {"role": "assistant", "content": "Noted."},
            ]
        ],
        "answer_session_ids": ["s1"],
    }
    (tmp_path / "data" / "longmemeval_s.json").write_text(json.dumps([item, {**item, "question_id": "q2_abs"}]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_run_in_the_order_of_the_page(folder, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    in_memory = mempp.in_memory
    encoder = RememberingEncoder(WordEncoder(), documents=True)

    def with_words(**arguments):
        if isinstance(arguments.get("encoder"), str) and arguments["encoder"] != "none":
            arguments["encoder"] = encoder
        return in_memory(**arguments)

    monkeypatch.setattr(mempp, "in_memory", with_words)
    assert len(COMMANDS) >= 20
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_url)
        for command in COMMANDS:
            words = [str(path) for word in command for path in _spread(word, folder)]
            if words[0] in ("run", "ablate", "sweep-k") and "--help" not in words:
                words += ["--limit", "2", "-q"]
            assert run(*words).stdout.strip(), words
        assert {asked.model for asked in server.asked} >= {"gpt-4.1-mini", "gpt-4o-mini", "claude-sonnet-4-6"}
    for number in (1, 2, 3, 4, 7):
        text = (folder / "results" / f"table{number}" / "report.md").read_text()
        assert f"(Table {number})" in text


def _spread(word: str, folder: Path) -> list[str]:
    """A pattern of file names as a shell gives it."""
    if "*" not in word:
        return [word]
    found = sorted(str(path.relative_to(folder)) for path in folder.glob(word))
    assert found, word
    return found


def test_the_page_describes_every_field_of_a_result(tmp_path):
    out = tmp_path / "r.json"
    run("run", "own", "--data", EXAMPLES, "--system", "lexical", "--recall-only", "--limit", 2, "--out", out)
    found = result(out)
    assert FORMAT in TEXT
    for name in [*found, *found["rows"][0], *found["rows"][0]["gold"]]:
        assert f"`{name}`" in TEXT, name
    for name in found["summary"]["overall"]:
        kind, at, _ = name.partition("@")
        assert f"`{kind}{at}" in TEXT, name


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)", TEXT))
def test_links_lead_somewhere(link):
    assert link.startswith("https://") or (ROOT / "docs" / link).exists()
