"""What is run by hand beside the tests says in one sentence what it lacks, and how it is called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

WITHOUT = "import runpy, sys; sys.modules['{}'] = None; sys.argv = ['check']; runpy.run_path('{}', run_name='__main__')"


def run(folder: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"} | more,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("arguments", [["-m", "benchmarks", "steps"], [ROOT / "tests" / "fidelity.py"]], ids=str)
def test_data_that_are_not_there(tmp_path: Path, arguments: list[object]) -> None:
    done = run(tmp_path, *arguments, MEMPP_DATA=str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "nowhere") in done.stderr
    assert "by MEMPP_DATA" in done.stderr or "or MEMPP_DATA" in done.stderr


def test_steps_tells_how_it_is_called(tmp_path: Path) -> None:
    told = run(tmp_path, "-m", "benchmarks", "steps", "--help").stdout
    assert "python -m benchmarks steps [--data FOLDER]" in told
    assert "MEMPP_DATA by default" in told


@pytest.mark.parametrize("missing", ["sentence_transformers", "torch"])
def test_the_check_of_minilm_names_the_extra(tmp_path: Path, missing: str) -> None:
    done = run(tmp_path, "-c", WITHOUT.format(missing, ROOT / "tests" / "check_minilm_fidelity.py"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "pip install '.[benchmarks]'" in done.stderr
