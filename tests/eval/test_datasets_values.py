"""Values that a reader takes are values that every system, judge and sum can work with; others are told by line."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mempp
from eval.datasets import dataset
from eval.datasets.items import LARGEST_WEIGHT
from eval.errors import DatasetError
from eval.metrics.rubric import rubric_score
from eval.systems.timeline import moment


def read(folder, *, document=None, question=None):
    """The one collection of a small record, with a document and a question of these further fields."""
    (folder / "documents.jsonl").write_text(
        json.dumps({"id": "d1", "text": "tea"})
        + "\n"
        + json.dumps({"id": "d2", "text": "x", **(document or {})})
        + "\n"
    )
    plain = {"text": "Which tea?", "evidence": ["d1"]}
    (folder / "questions.jsonl").write_text(json.dumps(plain) + "\n" + json.dumps(plain | (question or {})) + "\n")
    (collection,) = dataset("own").read(folder, {})
    return collection


days = st.sampled_from(["0001-01-01", "9999-12-31", "2024-06-01", "20240601", "2024-W01-1", "2024W011", "2024-02-30"])
times = st.sampled_from(
    [
        "",
        "T00:00:00",
        "T23:59:59",
        "T24:00",
        "T0930",
        " 09:30",
        "t09:30",
        "T09:30:00,123456789",
        "T09:30:00.5",
        "x09:30",
    ]
)
zones = st.sampled_from(["", "Z", "+14:00", "-14:00", "-0500", "+99:00", "+23:59:59.999999", "+23:59:59", "z"])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(day=days, time=times, zone=zones)
def test_a_date_that_is_read_is_one_that_every_system_takes(tmp_path, day, time, zone):
    text = day + time + zone
    try:
        collection = read(tmp_path, document={"occurred_at": text}, question={"as_of": text, "asked_at": text})
    except DatasetError:
        return
    assert collection.cases[1].as_of == text
    with mempp.in_memory(encoder="none") as memory:
        memory.add("x", occurred_at=text)
        memory.recall("x", as_of=text)
    moment(text, "it", end_of_day=True)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2024-06-01T09:30:00+23:59:59.999999"]
)
@pytest.mark.parametrize("key", ["occurred_at", "as_of", "asked_at"])
def test_a_date_that_no_system_takes_is_refused_with_its_line(tmp_path, text, key):
    file = "documents" if key == "occurred_at" else "questions"
    with pytest.raises(DatasetError, match=rf"{file}\.jsonl:2: '{key}'"):
        read(tmp_path, **{file[:-1]: {key: text}})


@pytest.mark.parametrize(
    "weight", ["1" + "0" * 400, "1" + "0" * 5000, "1e308", "1e999", "NaN", "0", "-1", "true", '"1"']
)
def test_a_weight_that_cannot_be_summed_is_refused_with_its_line(tmp_path, weight):
    with pytest.raises(DatasetError, match=r"questions\.jsonl:2"):
        read_raw(tmp_path, f'{{"text": "q", "rubric": [{{"text": "a", "weight": {weight}}}]}}')


def read_raw(folder, line):
    read(folder)
    with (folder / "questions.jsonl").open("r+") as file:
        first = file.readline()
        file.seek(0)
        file.truncate()
        file.write(first + line + "\n")
    return list(dataset("own").read(folder, {}))


@given(st.lists(st.tuples(st.floats(5e-324, LARGEST_WEIGHT), st.floats(0, 1)), min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_rubric_that_is_read_has_a_score(tmp_path, parts):
    facets = [{"text": "a", "weight": weight} for weight, _ in parts]
    case = read(tmp_path, question={"rubric": facets}).cases[1]
    assert 0 <= rubric_score(case.rubric, [mark for _, mark in parts]) <= 1


@pytest.mark.parametrize(
    "choices", [{"A": "Tokyo", "a": "Rome"}, {"A": "x", " A": "y"}, {"A": "y", " ": "x"}, {"ß": "x", "SS": "y"}]
)
def test_letters_that_an_answer_cannot_tell_apart_are_refused(tmp_path, choices):
    with pytest.raises(DatasetError, match=r"questions\.jsonl:2.*differ"):
        read(tmp_path, question={"choices": choices, "answers": [next(iter(choices))]})
    read(tmp_path, question={"choices": {"A": "Tokyo", "B": "Rome"}, "answers": ["A"]})
