"""The operator over the example record and over 100 documents of OrgMemBench, with MiniLM and a scripted server."""

import json
import random
import re
import threading
from pathlib import Path

import pytest
from scripted_server import ModelServer, say, status

import mempp
from eval.datasets import dataset
from mempp.llm import MemoryReplies

ROOT = Path(__file__).parent.parent
LABELS = ("conflict", "restatement", "distinct")
THRESHOLD = 0.7


def by_lot(asked):
    lot = random.Random(re.sub(r' row="\d+"', "", asked.prompt))  # not by the numbers of merged rows
    if asked.schema is None:
        return say(f"One text for all of them, number {lot.randrange(10**9)}.")
    return say(json.dumps({"label": lot.choice(LABELS)}))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with ModelServer(by_lot) as running:
        yield running


def example_record() -> list:
    return [json.loads(line) for line in (ROOT / "examples" / "record.jsonl").read_text(encoding="utf-8").splitlines()]


def organisation(folder: Path) -> list:
    found = [one for each in dataset("orgmembench").read(folder, {}) for one in each.documents][:100]
    return [
        mempp.Document(text=one.text, occurred_at=one.occurred_at, author=one.authors, thread=one.thread)
        for one in found
    ]


@pytest.fixture(scope="module", params=["examples", "orgmembench"])
def base(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "store"
    if request.param == "examples":
        documents = example_record()
    else:
        documents = organisation(request.getfixturevalue("orgmembench").parents[1])
    with mempp.open(path, encoder="minilm") as memory:
        memory.add_many(documents)
        memory.snapshot(path.parent / "base.tar")
    return path.parent / "base.tar"


def model_of(server):
    return mempp.chat_model("openai:gpt-4o-mini", base_url=server.openai_url, max_retries=0)


def test_calls_are_those_allowed_and_nothing_is_lost(base, server, tmp_path):
    mempp.restore(base, tmp_path / "store")
    with mempp.open(tmp_path / "store") as memory:
        texts = [memory.get(row).text for row in range(len(memory))]
        planned = memory.consolidate(dry_run=True, threshold=THRESHOLD)
        report = memory.consolidate(model=model_of(server), threshold=THRESHOLD)
        assert report.finished
        assert len(planned.groups) > 10
        assert [group.rows for group in report.groups][: len(planned.groups)] == [g.rows for g in planned.groups]
        assert report.asked == len(server.asked) == sum(1 + (g.outcome == "restatement") for g in report.groups)
        assert report.asked <= 2 * len(report.groups)
        assert {group.outcome for group in report.groups} == set(LABELS)
        assert [memory.get(row).text for row in range(len(texts))] == texts
        assert memory.consolidate(model=model_of(server), threshold=THRESHOLD).groups == ()
        memory.undo(report.run_id)
        assert {memory.get(row).state.status for row in range(len(texts))} == {"active"}
        assert [record.row_id for record in memory.records()] == list(range(len(texts)))


def test_a_failure_at_any_of_the_first_thirty_calls(base, server, tmp_path):
    """Every third of them, each in a run of its own on the same store; each is taken back, and asked about again."""
    mempp.restore(base, tmp_path / "store")
    with mempp.open(tmp_path / "store") as memory:
        rows = len(memory)
        states = None
        for nth in (0, *range(1, 31, 3)):
            counted = []
            guard = threading.Lock()

            def script(asked, counted=counted, guard=guard, nth=nth):
                with guard:
                    counted.append(1)
                    fails = len(counted) == nth
                return status(503) if fails else by_lot(asked)

            server.script = script
            model = mempp.chat_model(
                "openai:gpt-4o-mini", base_url=server.openai_url, max_retries=0, cache=MemoryReplies()
            )
            before = len(memory)
            first = memory.consolidate(model=model, threshold=THRESHOLD, again=True)
            assert first.finished == (len(counted) < nth or nth == 0)
            second = memory.consolidate(model=model, threshold=THRESHOLD, again=True)
            assert second.finished
            run_id = first.run_id or second.run_id
            assert second.run_id in (run_id, None)
            found = [memory.get(row).state.status for row in range(rows)], len(memory) - before
            states = states or found
            assert found == states, nth
            memory.undo(run_id)
