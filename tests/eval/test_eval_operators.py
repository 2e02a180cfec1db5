"""Consolidation, fact cards and the entity graph as options of the system `mempp`, and as rows of the ablation."""

import json

import pytest
from command import EXAMPLES, result, run
from consolidation_tools import TopicEncoder, answer_to
from extraction_tools import extractor
from scripted_server import Answer, Asked, ModelServer, say, status

from eval.cases import Case, Collection, EvalDocument
from eval.errors import EvalError, UsageError
from eval.systems import system
from eval.systems.base import Options
from eval.systems.operators import Operators

DOCUMENTS = (
    EvalDocument(id="a", text="r1 note: E1 likes E2.", occurred_at="2024-01-10"),
    EvalDocument(id="b", text="r1 note: E1 likes E2, they say.", occurred_at="2024-02-10"),
    EvalDocument(id="c", text="c1 note: E2 helps E3.", occurred_at="2024-03-10"),
    EvalDocument(id="d", text="d1 nothing", occurred_at="2024-04-10"),
)


def script(asked: Asked) -> Answer:
    if asked.schema is not None and "label" not in asked.schema["properties"]:
        return extractor(asked)
    return say(answer_to(asked.prompt, merging=asked.schema is None))


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.chdir(tmp_path)
    with ModelServer(script) as running:
        yield running


def built(server: ModelServer, **settings: str):
    named = {"operator_model": "openai:gpt-4o-mini", "operator_base_url": server.openai_url}
    return system("mempp", Options(settings={**named, **settings}), encoder=TopicEncoder())


def asked(made, question: str, as_of: str | None = None, budget: int = 4000):
    case = Case(id="q", category="x", text=question, as_of=as_of)
    with made.open(Collection(id="c", documents=DOCUMENTS, cases=())) as session:
        return session.retrieve(case, [budget])


def test_a_merged_row_counts_as_the_documents_that_it_stands_for(server):
    made = built(server, consolidate="1")
    found = asked(made, "r1 merged")
    assert [one.id for one in found.ranked][:2] == ["a", "b"]
    assert "r1 merged of 0+1" in found.evidence[4000].text
    assert {name: share for name, share in found.evidence[4000].shares.items() if name in "ab"} == {"a": 1, "b": 1}
    before = asked(made, "r1 note", as_of="2024-01-31")
    assert [one.id for one in before.ranked] == ["a"]
    assert made.configuration["operators"]["consolidate"] is True
    assert "merged row counts" in made.notes[-1]


def test_the_graph_stands_behind_the_evidence_within_its_budget(server):
    found = asked(built(server, graph="1"), "What of E1?")
    text = found.evidence[4000].text
    assert "- 2024-03-10 | row 2 | E2 | helps | E3" in text
    assert len(text) <= 4000
    bounded = asked(built(server, graph="1"), "What of E1?", as_of="2024-02-20")
    assert "helps" not in bounded.evidence[4000].text
    free = asked(built(server, graph="undated"), "What of E1?", as_of="2024-02-20")
    assert "| E2 | helps | E3" in free.evidence[4000].text


def test_facts_turn_their_leg_on(server):
    made = built(server, facts="atomic")
    assert made.configuration["settings"]["weight_facts"] == 1.0
    found = asked(made, "who likes E2")
    assert "facts" in found.ranked[0].ranks
    assert built(server, facts="summary", weight_facts="0.5").configuration["settings"]["weight_facts"] == 0.5
    off = system("mempp", Options(), encoder=TopicEncoder())
    assert off.configuration["settings"]["weight_facts"] == 0.0
    assert "operators" not in off.configuration


def test_replies_are_kept_and_a_call_that_fails_ends_the_run(server):
    asked(built(server, graph="1"), "What of E1?")
    calls = len(server.asked)
    asked(built(server, graph="1"), "What of E1?")
    assert len(server.asked) == calls
    server.script = lambda asked: status(400) if "E2 helps" in asked.prompt else script(asked)
    with pytest.raises(EvalError, match="fact cards: 1 calls failed"):
        asked(built(server, facts="atomic"), "What of E1?")


def test_without_a_model_it_is_told(server):
    with pytest.raises(UsageError, match="no model is named"):
        system("mempp", Options(settings={"graph": "1"}), encoder=TopicEncoder())


def test_a_server_of_ones_own_is_named_by_an_option_of_the_operators(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for name in ("local-7b", "openai:local-7b"):
        with pytest.raises(UsageError if name == "local-7b" else EvalError, match="operator_base_url=URL") as caught:
            Operators.of({"consolidate": "1", "operator_model": name})
        assert "--base-url" not in str(caught.value)


def test_the_rows_of_the_ablation_run(server, tmp_path):
    common = ["ablate", "own", "--data", EXAMPLES, "--encoder", "none", "--recall-only", "-q", "--limit", 3]
    named = ["--set", "operator_model=openai:gpt-4o-mini", "--set", f"operator_base_url={server.openai_url}"]
    rows = [part for name in ("Mem++", "w/ consolidation", "w/ fact index", "Mem^g++") for part in ("--variant", name)]
    told = run(*common, *named, *rows, "--out", tmp_path / "t.json")
    assert "w/ consolidation: compares vectors, and there is no encoder; left out" in told.stderr
    kept = {path.name: result(path)["configuration"]["system_configuration"] for path in tmp_path.glob("t.*.json")}
    assert kept["t.w-fact-index.json"]["operators"]["facts"] == "atomic"
    assert kept["t.mem-gpp.json"]["operators"]["graph"] == "1"
    assert "operators" not in kept["t.mempp.json"]
    assert "sk-none" not in json.dumps(kept)
