"""The README is true: its Python runs, in order, and its commands run too."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_server import ModelServer, say

import mempp

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_python_blocks_run_each_by_itself_and_print_what_is_shown(tmp_path, monkeypatch):
    """In order, in one folder; but no block needs a name of another one."""
    monkeypatch.chdir(tmp_path)
    printed = []
    with ModelServer(lambda asked: say("Vendor A [row 0].")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-readme")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        for block in blocks("python"):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(block, "README.md", "exec"), {})
            printed.append(output.getvalue())
    shown = blocks("text")[0]
    assert printed[0].endswith(shown)
    assert printed[1].startswith("2 0 (2, 3)")
    assert printed[2] == "Vendor A [0]. the record as of 2024-06-01 (0,)\n"
    assert printed[3].startswith("True\n")


def test_commands_run(tmp_path):
    commands = [line for block in blocks("console") for line in block.splitlines() if line.startswith("mempp ")]
    assert len(commands) >= 5
    os.symlink(ROOT / "examples", tmp_path / "examples")
    for command in commands:
        words = shlex.split(command, comments=True)
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if words[1] != "add":
            assert done.stdout.strip(), command


def test_every_method_is_named():
    words = set(re.findall(r"\w+", TEXT))
    assert [name for name in dir(mempp.Memory) if not name.startswith("_") and name not in words] == []


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)", TEXT))
def test_links_lead_somewhere(link):
    assert link.startswith("https://") or (ROOT / link).exists()
