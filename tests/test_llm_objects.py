"""Objects out of replies: what fits the schema, and that everything else is a problem in one line, never a crash."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import filled

from mempp.errors import InputError
from mempp.llm import Parsed, Reply, Usage, object_of
from mempp.llm.objects import check_schema

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "enum": ["conflict", "restatement", "distinct"]},
        "facts": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"text": {"type": "string", "minLength": 1}, "row": {"type": "integer", "minimum": 0}},
                "required": ["text", "row"],
                "additionalProperties": False,
            },
        },
        "date": {"anyOf": [{"type": "string", "maxLength": 10}, {"type": "null"}]},
        "sure": {"type": ["boolean", "null"]},
        "weight": {"type": "number", "maximum": 1},
        "version": {"const": 1},
    },
    "required": ["label", "facts"],
    "additionalProperties": False,
}
GOOD: dict[str, Any] = {
    "label": "conflict",
    "facts": [{"text": "B", "row": 3}],
    "date": None,
    "sure": True,
    "weight": 0.5,
    "version": 1,
}


def parsed(text: str, stopped: Any = "end", schema: Any = SCHEMA) -> Parsed:
    return object_of(Reply(text=text, usage=Usage(), seconds=0, stopped=stopped), schema)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"\n  {json.dumps(GOOD, indent=2)}\n",
        f"```json\n{json.dumps(GOOD)}\n```",
        f"```\n{json.dumps(GOOD)}\n```\n",
    ],
)
def test_what_fits(text: str) -> None:
    assert parsed(text) == Parsed(GOOD)
    assert parsed(text).fits


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"label": "same"}, "label is none of"),
        ({"label": None}, "label is no string"),
        ({"facts": []}, "0 items, fewer than 1"),
        ({"facts": [{"text": "B", "row": 1}] * 4}, "4 items, more than 3"),
        ({"facts": [{"text": "", "row": 1}]}, r"facts\[0\]\.text has 0 characters"),
        ({"facts": [{"text": "B", "row": -1}]}, r"facts\[0\]\.row is below 0"),
        ({"facts": [{"text": "B", "row": 1.5}]}, "row is no integer"),
        ({"facts": [{"text": "B", "row": True}]}, "row is no integer"),
        ({"facts": [{"text": "B"}]}, r"facts\[0\] lacks 'row'"),
        ({"facts": [{"text": "B", "row": 1, "who": 2}]}, "'who', which was not asked for"),
        ({"facts": {"text": "B"}}, "facts is no array"),
        ({"date": 7}, "none of the forms"),
        ({"date": "2024-06-01T"}, "none of the forms"),
        ({"sure": 1}, "no boolean or null"),
        ({"weight": 2}, "weight is above 1"),
        ({"weight": True}, "weight is no number"),
        ({"version": True}, "version is not 1"),
        ({"version": 2}, "version is not 1"),
        ({"more": 1}, "'more', which was not asked for"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], told: str) -> None:
    found = parsed(json.dumps({**GOOD, **change}))
    assert found.value is None
    assert not found.fits
    assert pytest.raises(AssertionError, match=told).matches(AssertionError(found.problem)), found.problem
    assert "\n" not in str(found.problem)


@pytest.mark.parametrize(
    ("text", "stopped", "told"),
    [
        ("I cannot help", "refusal", "declined"),
        (json.dumps(GOOD), "refusal", "declined"),
        ('{"label": "con', "length", "cut"),
        ("", "end", "no JSON"),
        ("Sure! " + json.dumps(GOOD), "end", "no JSON"),
        (json.dumps(GOOD) + "\n" + json.dumps(GOOD), "end", "no JSON"),
        ('{"weight": NaN}', "end", "NaN is no JSON"),
        ("[" * 100_000, "end", "no JSON"),
        ('{"a":' * 100_000, "end", "no JSON"),
        ("[]", "end", "the reply is no object"),
        ("null", "end", "the reply is no object"),
        ("{}", "end", "lacks 'label'"),
        ('"' + "x" * 100_000 + '"', "end", "no object"),
        ("\ud800", "end", "no JSON"),
        ("1" * 5000, "end", "no "),
    ],
)
def test_replies_of_any_kind(text: str, stopped: str, told: str) -> None:
    found = parsed(text, stopped)
    assert told in str(found.problem)
    assert len(str(found.problem)) < 400
    assert "\n" not in str(found.problem)


def test_a_keyword_that_is_not_checked_is_refused() -> None:
    for schema in (
        {"type": "object", "patternProperties": {}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}},
        {"type": "array", "items": {"$ref": "#"}},
        {"anyOf": [{"oneOf": []}]},
        {"additionalProperties": {"not": {}}},
        {"type": "text"},
    ):
        with pytest.raises(InputError, match="JSON schema"):
            check_schema(schema)
    check_schema({"type": "object", "description": "told only", "title": "t", "properties": {}})


@given(seed=st.text())
def test_what_a_schema_is_filled_with_fits_it(seed: str) -> None:
    schema = {**SCHEMA, "properties": {name: SCHEMA["properties"][name] for name in ("label", "facts", "weight")}}
    assert parsed(json.dumps(filled(schema, seed)), schema=schema).fits


@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_no_value_is_a_crash(value: Any) -> None:
    found = parsed(json.dumps(value))
    assert found.value is None
    assert found.problem
