"""Result files that were edited or damaged are told in one line, whatever was done to them."""

import copy
import json

import pytest
from command import EXAMPLES, result, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_server import ModelServer

from eval.errors import EvalError
from eval.results import load


@pytest.fixture(scope="module")
def server():
    with ModelServer() as running:
        yield running


@pytest.fixture(scope="module")
def whole(server, tmp_path_factory) -> dict:
    """A result with answers and verdicts."""
    out = tmp_path_factory.mktemp("whole") / "r.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-x")
        models = ["--answer-model", "m", "--judge-model", "j", "--judge-repeats", 2, "--base-url", server.openai_url]
        run("run", "own", "--data", EXAMPLES, "--system", "lexical", "--limit", 4, "-q", *models, "--out", out)
    return result(out)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"rows": 1}', '{"rows": [], "format": "mempp-eval/99"}'])
def test_what_is_no_result_file_is_told(tmp_path, content):
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(EvalError, match=r"r\.json"):
        load(path)


@pytest.mark.parametrize("text", ["NaN", "[" * 200_000, '{"rows": NaN}', "\xff", "{" * 100_000])
def test_what_is_no_json_is_told(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(EvalError, match=r"r\.json is no result file"):
        load(path)


def places(value, way=()):
    """Every place in a value."""
    yield way
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(one, (*way, key))


ODD = (None, True, 5, -1, 1.5, 10**400, 1e308, "", "x", [], {}, [None], {"a": 1}, [[]], "k=x")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_edited_is_read_or_told_in_one_line(whole, server, tmp_path, monkeypatch, data):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    found = copy.deepcopy(whole)
    # Every top-level key as often as the many places in rows.
    ways = [way for way in places(found) if way]
    way = data.draw(st.sampled_from([one for one in ways if one[0] != "rows"]) | st.sampled_from(ways))
    inner = found
    for key in way[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()):
        del inner[way[-1]]
    else:
        inner[way[-1]] = data.draw(st.sampled_from(ODD))
    path, original = tmp_path / "edited.json", tmp_path / "whole.json"
    path.write_text(json.dumps(found))
    original.write_text(json.dumps(whole))
    rejudge = ["rejudge", path, "--judge-model", "j", "--base-url", server.openai_url, "-q", "--overwrite"]
    for command in (["report", path], ["compare", path, original, "--force"], rejudge):
        told = one_line(command)
        assert "unexpected" not in told, (command, way)


def one_line(command) -> str:
    """What a command says, however it ends."""
    try:
        return run(*command).stderr
    except AssertionError as error:
        return str(error)


@pytest.mark.parametrize("group", ["overall", "by_category"])
def test_an_edited_summary_is_noticed(whole, tmp_path, group):
    for value in (7, 0.123):
        found = copy.deepcopy(whole)
        means = found["summary"][group]
        (means if group == "overall" else next(iter(means.values())))["mrr"] = value
        path = tmp_path / "r.json"
        path.write_text(json.dumps(found))
        with pytest.raises(EvalError, match="mrr"):
            load(path)


def test_without_its_configuration_digest_a_result_is_not_gone_on_from(whole, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({name: value for name, value in whole.items() if name != "configuration_digest"}))
    own = ["run", "own", "--data", EXAMPLES, "--system", "lexical", "--recall-only", "--limit", 4, "-q"]
    assert "configuration_digest" in run(*own, "--out", path, "--resume", code=1).stderr
