"""Damaged files: every damage is refused or told with the file's name, or changes no answer; none ends the interpreter.

`python benchmarks/kills.py damage` takes 500 bits of each kind of file instead of the few here.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import damaging
from harness.nursery import Nursery, nursery

FLIPS = 80
MAY_BE_UNEMBEDDED = ("vectors journal", "vectors segment")


@pytest.fixture(scope="module")
def server() -> Iterator[Nursery]:
    with nursery() as one:
        yield one


@pytest.mark.parametrize("kind", damaging.KINDS)
def test_no_damage_changes_an_answer_silently(tmp_path: Path, server: Nursery, kind: str) -> None:
    counts, faults = damaging.damage_all(server, tmp_path, kind, FLIPS, seed=7)
    assert not faults, "\n".join(faults[:10])
    if kind == "cache":
        assert set(counts) == {"harmless"}
    else:
        assert counts["refused"] + counts["warned"] > FLIPS / 2
    # The end of a journal of vectors that is gone at a whole frame leaves rows as if they were not embedded yet.
    assert counts["unembedded"] <= (3 if kind in MAY_BE_UNEMBEDDED else 0)


def test_two_segments_exchanged_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    damaging.build(path, 1)
    first, second = sorted((path / "log").glob("*.parquet"))[:2]
    aside = first.with_suffix(".aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    outcome, detail = damaging.open_damaged(path, first, "")
    assert outcome == "refused", detail
