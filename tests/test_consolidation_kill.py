"""Consolidation killed with SIGKILL at random steps, and run again: the log is that of a run that nothing disturbed."""

import random
import shutil
import warnings

import pytest
from consolidation_tools import ScriptedModel, TopicEncoder, documents, labeller, log_of, look
from harness import independent
from harness.nursery import nursery
from scripted_server import ModelServer

import mempp
from mempp.storage import TornTailWarning

KILLS = 6


@pytest.fixture(scope="module")
def processes():
    with nursery() as one:
        yield one


def without_model(log):
    return [(entry.kind, entry.row_id, entry.related_row, entry.text, entry.label) for entry in log]


def opened(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornTailWarning)
        return mempp.open(path, encoder=TopicEncoder())


def test_killed_and_run_again_it_is_as_if_nothing_had_been(tmp_path, processes, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    base = tmp_path / "base"
    with mempp.open(base, encoder=TopicEncoder()) as memory:
        memory.add_many(documents())
    shutil.copytree(base, tmp_path / "undisturbed")
    with mempp.open(tmp_path / "undisturbed", encoder=TopicEncoder()) as memory:
        memory.consolidate(model=ScriptedModel())
        wanted, log = look(memory), without_model(log_of(memory))
    chooser = random.Random(17)
    kills, killed_at = 0, []
    with ModelServer(labeller) as server:
        number = 0
        while kills < KILLS:
            number += 1
            path = tmp_path / f"store-{number}"
            shutil.copytree(base, path)
            runs = set()
            while True:
                child = processes.start("consolidator", path=str(path), base_url=server.openai_url)
                end, seen = chooser.randrange(1, 40), []
                for message in child.lines():
                    seen.append(message)
                    if len(seen) == end and kills < KILLS:
                        child.kill()
                        kills += 1
                code = child.wait()
                if code == 0:
                    assert seen[-1]["finished"]
                    runs.add(seen[-1]["run_id"])
                    break
                assert code == -9
                killed_at.append(next(iter(seen[-1])))
                with opened(path) as memory:
                    assert [memory.get(row).text for row in range(50)] == [one.text for one in documents()]
                    runs |= {one.payload["run"] for one in memory.annotations(kind="consolidation")}
            assert len(runs - {None}) == 1, "it goes on with the run that was killed"
            with opened(path) as memory:
                assert look(memory) == wanted
                assert without_model(log_of(memory)) == log
                assert memory.stats().without_vector == 0
                assert memory.verify().ok
                assert memory.consolidate(model=ScriptedModel(), dry_run=True).finished is False, "another model"
                known = mempp.chat_model("openai:scripted", base_url=server.openai_url)
                assert memory.consolidate(model=known, dry_run=True).groups == ()
            contents = independent.read(path)
            assert [row["text"] for row in contents.rows][:50] == [one.text for one in documents()]
        # A request that was on its way at a kill may be asked again, and no other.
        assert len(server.answered_again(number)) <= 4 * KILLS
    assert {"encoding", "groups"} <= set(killed_at), f"kills met too few kinds of steps: {killed_at}"
