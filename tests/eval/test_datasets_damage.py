"""Damaged files are told with file and position; nothing damaged is read as if it were whole."""

import codecs
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_datasets import check_common_form, read
from test_datasets_formats import bench_line, exchange, memory_item, trajectory

from eval.datasets import dataset, json_stream
from eval.errors import DatasetError, EvalError

# Small benchmarks in the original formats, one for each reader


def make_orgmembench(folder: Path) -> Path:
    tier = folder / "helix" / "medium"
    (tier / "source_of_truth").mkdir(parents=True)
    (tier / "corpus" / "EV-1").mkdir(parents=True)
    events = [{"id": "EV-1", "occurred_at": "2023-01-15", "recorded_at": "2023-01-16", "type": "decision"}]
    index, questions = [], []
    for number in (1, 2):
        slot = f"ART-EV-1-{number}"
        header = f"<!-- artefact_metadata\nslot_id: {slot}\ngenre: note\nauthor: P-000{number}\n-->\n\n"
        path = f"corpus/EV-1/{slot}.md"
        (tier / path).write_text(f"{header}Text {number}: naïve.\n", encoding="utf-8")
        index.append({"slot_id": slot, "path": path, "event_id": "EV-1"})
        questions.append(
            {
                "id": f"Q-{number}",
                "category": "C4",
                "text": "What held?",
                "paraphrases": ["What was it?"],
                "ground_truth_answer": {"as_of_date": "2023-03-12", "asof_facts": ["It held."], "replacements": []},
                "rubric_subpoints": [
                    {"id": "s1", "max_score": 0.333, "criterion": "Says it held.", "fail_criterion": "Does not."}
                ],
                "evidence_artefact_ids": [slot],
                "metadata": {},
            }
        )
    for name, lines in (
        ("corpus_index.jsonl", index),
        ("source_of_truth/events.jsonl", events),
        ("benchmark_v0.0.jsonl", questions),
    ):
        (tier / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return tier


def make_locomo(folder: Path) -> Path:
    turns = [{"speaker": "Ann", "dia_id": f"D1:{n}", "text": f"Hé {n}", "blip_caption": "a cat"} for n in (1, 2)]
    conversation = {"speaker_a": "Ann", "speaker_b": "Bo", "session_1_date_time": "12:05 am on 8 May, 2023"}
    asked = {"question": "Who?", "answer": 2022, "evidence": ["D1:2; D9:9"], "category": 1}
    trap = {"question": "Why?", "adversarial_answer": "x", "evidence": [], "category": 5}
    sample = {"sample_id": "conv-1", "conversation": conversation | {"session_1": turns}, "qa": [asked, trap]}
    path = folder / "locomo10.json"
    path.write_text(json.dumps([sample, sample | {"sample_id": "conv-2"}], ensure_ascii=False), encoding="utf-8")
    return path


def make_longmemeval(folder: Path) -> Path:
    path = folder / "longmemeval_s.json"
    path.write_text(json.dumps([memory_item("é1"), memory_item("2_abs")], ensure_ascii=False), encoding="utf-8")
    return path


def make_longbench(folder: Path) -> Path:
    path = folder / "hotpotqa.jsonl"
    path.write_text("".join(json.dumps(bench_line(name), ensure_ascii=False) + "\n" for name in "é2"), encoding="utf-8")
    return path


def make_membench(folder: Path) -> Path:
    path = folder / "simple.json"
    both = {"roles": [trajectory([[exchange(0)], [exchange(1)]], [[1, 1]])], "é": [trajectory([exchange(0)], [0])]}
    path.write_text(json.dumps(both, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def make_own(folder: Path) -> Path:
    documents = [{"id": "m1", "text": "Ann é.", "occurred_at": "2024-05-01"}, {"text": "Bo", "author": ["A"]}]
    questions = [{"text": "Who?", "answers": ["Ann"], "evidence": ["m1"], "as_of": "2024-06-01"}]
    for name, lines in (("documents", documents), ("questions", questions)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {
    "orgmembench": make_orgmembench,
    "locomo": make_locomo,
    "longmemeval": make_longmemeval,
    "longbench": make_longbench,
    "membench": make_membench,
    "own": make_own,
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_small_benchmarks_are_read_whole(name, tmp_path):
    collections = read(name, MAKERS[name](tmp_path))
    check_common_form(collections)
    assert sum(len(one.cases) for one in collections) == {"own": 1}.get(name, 2)


# Any damage, any reader


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_a_byte_is_an_error_of_ours_or_no_matter(name, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged")
    path = MAKERS[name](folder)
    file = data.draw(st.sampled_from(sorted(folder.rglob("*.*"))).filter(Path.is_file))
    whole = file.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    new = data.draw(st.sampled_from([b"", b"\x00", b"\xff", b'"', b"{", b"]", b"\\", b"7", b"\n", b",", b"\xc3"]))
    file.write_bytes(whole[:at] + new + whole[at + 1 :])
    told = ""
    try:
        check_common_form(read(name, path))
    except EvalError as error:
        told = str(error)
    assert not told or str(folder) in told, "the file is named"
    assert len(told) < 1_000


@pytest.mark.parametrize("name", ["locomo", "longmemeval", "membench"])
def test_an_array_that_is_cut_off_anywhere_is_refused(name, tmp_path):
    path = MAKERS[name](tmp_path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7 if len(whole) > 500 else 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DatasetError, match=re.escape(str(path)) + r".*byte \d+"):
            read(name, path)
    path.write_bytes(whole + b" \n")
    check_common_form(read(name, path))


@pytest.mark.parametrize("name", ["longbench", "own"])
def test_a_line_that_is_cut_off_is_refused_with_its_number(name, tmp_path):
    path = MAKERS[name](tmp_path)
    file = path if path.is_file() else path / "documents.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    for length in range(1, len(lines[1]) - 1):
        file.write_bytes(lines[0] + lines[1][:length])
        with pytest.raises(DatasetError, match=rf"{re.escape(str(file))}:2: not .*(cut off|UTF-8 at byte)"):
            read(name, path)


@pytest.mark.parametrize("name", MAKERS)
def test_byte_order_marks_and_windows_line_ends_do_not_matter(name, tmp_path):
    path = MAKERS[name](tmp_path)
    expected = read(name, path)
    for file in tmp_path.rglob("*.json*"):
        file.write_bytes(codecs.BOM_UTF8 + file.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert read(name, path) == expected


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_no_utf8_is_told_with_its_byte(name, tmp_path):
    path = MAKERS[name](tmp_path)
    file = path if path.is_file() else min(path.rglob("*.md" if name == "orgmembench" else "documents.jsonl"))
    whole = file.read_bytes()
    at = max(whole.find("é".encode()), whole.find("ï".encode()))
    file.write_bytes(whole[:at] + b"\xe9" + whole[at + 2 :])
    with pytest.raises(DatasetError, match=r"not UTF-8 at byte (\d+).*\(0xe9\)") as caught:
        read(name, path)
    byte = int(re.search(r"not UTF-8 at byte (\d+)", str(caught.value))[1])
    in_lines = file.suffix == ".jsonl"
    assert byte == (at + 1 - (whole.rfind(b"\n", 0, at) + 1) if in_lines else at)


# The stream of an array

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.text(st.sampled_from('ab"\\[]{},:\né/'), max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


def as_text(value: Any, ascii_only: bool, indent: int | None) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8")


@given(
    st.lists(st.dictionaries(st.text(max_size=3), values, max_size=3), max_size=5),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([None, 0, 2]),
)
def test_a_stream_gives_what_the_parser_gives_however_the_chunks_fall(
    tmp_path_factory, items, chunk, ascii_only, indent
):
    path = tmp_path_factory.mktemp("stream") / "x.json"
    raw = as_text(items, ascii_only, indent)
    path.write_bytes(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK", chunk)
        read = list(json_stream.stream_array(path))
    assert [item.fields for item in read] == items
    for number, item in enumerate(read, start=1):
        found = re.search(r": item (\d+) \(byte (\d+)\)$", item.place)
        assert int(found[1]) == number
        value, _ = json.JSONDecoder().raw_decode(raw[int(found[2]) :].decode("utf-8"))
        assert value == item.fields


@given(
    st.dictionaries(
        st.text(max_size=4), st.lists(st.dictionaries(st.text(max_size=3), values, max_size=2), max_size=3)
    ),
    st.integers(1, 9),
)
def test_an_object_of_arrays_is_streamed_in_order(tmp_path_factory, arrays, chunk):
    path = tmp_path_factory.mktemp("stream") / "x.json"
    path.write_bytes(as_text(arrays, False, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK", chunk)
        read = [(key, item.fields) for key, item in json_stream.stream_arrays(path)]
    assert read == [(key, value) for key, array in arrays.items() for value in array]


@settings(max_examples=200)
@given(
    st.lists(st.dictionaries(st.text(max_size=2), values, max_size=2), min_size=1, max_size=3),
    st.data(),
    st.integers(1, 5),
)
def test_no_damage_of_an_array_passes_that_the_parser_refuses(tmp_path_factory, items, data, chunk):
    raw = as_text(items, False, None)
    at = data.draw(st.integers(0, len(raw) - 1))
    raw = (
        raw[:at]
        + data.draw(st.sampled_from([b"", b'"', b"[", b"}", b",", b":", b"\\", b"x", b"\xff", b"1 2"]))
        + raw[at + 1 :]
    )
    path = tmp_path_factory.mktemp("stream") / "x.json"
    path.write_bytes(raw)
    told, read = "", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK", chunk)
        try:
            read = [item.fields for item in json_stream.stream_array(path)]
        except DatasetError as error:
            told = str(error)
    if told:
        assert re.search(r"byte \d+", told)
    else:
        assert read == json.loads(raw)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "byte 0: one JSON array, from '\\[' to ']' was expected, found the end of the file"),
        (b'{"a": 1}', r"byte 0: one JSON array, .* was expected, found '{\"a\": 1}'"),
        (b"[]]", "byte 2: ']' after the end"),
        (b"[{}{}]", "byte 3: ',' or ']' expected, found '{}]'"),
        (b"[{},]", "byte 4: a value expected, found ']'"),
        (b"[,{}]", "byte 1: a value expected, found ',{}]'"),
        (b'[{"a": 1}, 7]', r"item 2 \(byte 11\): not a JSON object but a number, 7"),
        (b'[{"a": 1, "a": 2}]', r"item 1 \(byte 1\): not usable JSON: the key 'a' stands twice"),
        (b'[{"a": NaN}]', "NaN is no JSON value"),
        (b'[{"a": tru}]', "not JSON at byte 7: Expecting value"),
        ('[{"é": tru}]'.encode(), "not JSON at byte 8: Expecting value"),
        (b'[{"a": ' + b"9" * 5_000 + b"}]", "not usable JSON: Exceeds the limit"),
        (b"[{}, {" + b'"a": [' * 5_000, "the file ends inside it"),
        (b'[{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}]", "nested too deep"),
        (b'[{"a": "' + b"x" * 3_000 + b'"}]', "is longer than 0 MB; a quote or bracket is missing in it"),
    ],
)  # fmt: skip
def test_each_kind_of_damage_has_its_message(tmp_path, monkeypatch, raw, message):
    if "longer" in message:
        monkeypatch.setattr(json_stream, "CHUNK", 100)
        monkeypatch.setattr(json_stream, "LONGEST", 1_000)
    path = tmp_path / "x.json"
    path.write_bytes(raw)
    with pytest.raises(DatasetError, match=re.escape(str(path)) + ".*" + message):
        list(json_stream.stream_array(path))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"a" 1}', "byte 5: a ':' after the key 'a' was expected, found '1}'"),
        (b'{"a": 1}', "byte 6: an array under the key 'a' was expected"),
        (b'{"a": [], "a": []}', "the key at byte 10 stands there already: 'a'"),
        (b"{7: []}", "the key at byte 1 is a number, 7, and must be a text"),
        (b'{"a": [{}], "b": [{}, ', "byte 22: a value expected, found the end of the file; it is cut off"),
        (b'{"a": [{}, 1]}', r"'a' item 2 \(byte 11\): not a JSON object"),
    ],
)
def test_each_kind_of_damage_of_an_object_of_arrays(tmp_path, raw, message):
    path = tmp_path / "x.json"
    path.write_bytes(raw)
    with pytest.raises(DatasetError, match=message):
        list(json_stream.stream_arrays(path))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"a": 1}\n\n [1]\n', "x.jsonl:3: not a JSON object but a list, \\[1\\]"),
        (b'{"a": 1}\n{"a": }\n', "x.jsonl:2: not JSON: Expecting value, near '{\"a\": }' at column 7$"),
        (b'{"a": 1, "a": 1}\n', "x.jsonl:1: not usable JSON: the key 'a' stands twice"),
        (b"\xff\xfe{\x00}\x00", r"x.jsonl:1: not UTF-8 at byte 1 of the line \(0xff\)"),
        (b"x" * 3_000, "x.jsonl:1: the line is longer than 0 MB"),
    ],
)
def test_each_kind_of_damage_of_lines(tmp_path, monkeypatch, raw, message):
    monkeypatch.setattr(json_stream, "LONGEST", 2_000)
    path = tmp_path / "x.jsonl"
    path.write_bytes(raw)
    with pytest.raises(DatasetError, match=message):
        list(json_stream.read_lines(path))


def test_only_a_line_feed_ends_a_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes('{"a": "1\u20282\x85"}\n'.encode())
    assert [item.fields for item in json_stream.read_lines(path)] == [{"a": "1\u20282\x85"}]


def test_a_folder_in_place_of_a_file_is_told(tmp_path):
    with pytest.raises(DatasetError, match="cannot be read: Is a directory"):
        list(json_stream.stream_array(tmp_path))


# What contradicts itself


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("corpus_index.jsonl", "EV-1-2.md", "EV-1-3.md", r"EV-1-3\.md: cannot be read: .*index\.jsonl:2 names"),
        ("corpus_index.jsonl", '"corpus/EV-1/ART-EV-1-2.md"', '"../../../x.md"', r"index\.jsonl:2: 'path' leads out"),
        ("corpus_index.jsonl", '"slot_id": "ART-EV-1-2"', '"slot_id": "ART-EV-1-1"', r":2: 'slot_id' .*, in .*:1"),
        ("corpus_index.jsonl", '"event_id": "EV-1"', '"event_id": "EV-9"', r":1: the event 'EV-9' has no date"),
        ("source_of_truth/events.jsonl", "2023-01-15", "2023-01", r"events\.jsonl:1: 'occurred_at' is no date"),
        ("benchmark_v0.0.jsonl", '["ART-EV-1-2"]', '["ART-7"]', r"benchmark_v0\.0\.jsonl:2: .* names 'ART-7'"),
        ("benchmark_v0.0.jsonl", "2023-03-12", "March", ":1, ground_truth_answer: 'as_of_date' is no date: 'March'"),
        ("benchmark_v0.0.jsonl", "0.333", "0", r":1, rubric_subpoints\[0\]: 'max_score' must be above 0"),
        ("corpus/EV-1/ART-EV-1-1.md", "Text 1: naïve.", " ", "no text behind the header"),
    ],
)  # fmt: skip
def test_orgmembench_tells_what_contradicts_what(tmp_path, file, old, new, message):
    tier = make_orgmembench(tmp_path)
    edit(tier / file, old, new)
    with pytest.raises(DatasetError, match=message):
        read("orgmembench", tier)


def test_several_tiers_are_listed_and_one_is_chosen(tmp_path):
    medium = make_orgmembench(tmp_path)
    small = medium.parent / "small"
    medium.rename(small)
    make_orgmembench(tmp_path / "other").rename(medium)
    with pytest.raises(DatasetError, match=r"several tiers; .*tier=NAME.*: medium, small$"):
        read("orgmembench", tmp_path / "helix")
    (one,) = read("orgmembench", tmp_path, tier="helix/small")
    assert one.id == "small"
    reader = dataset("orgmembench")
    assert {
        path.parent.name for path in reader.files(tmp_path, {"tier": "small"}) if path.name == "corpus_index.jsonl"
    } == {"small"}
    assert len(reader.files(tmp_path)) == 10
    with pytest.raises(DatasetError, match="no tier 'large'; there are: helix/medium, helix/small"):
        read("orgmembench", tmp_path, tier="large")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"dia_id": "D1:2"', '"dia_id": "D1:1"', r"item 1 .*, session_1\[1\]: 'dia_id' 'D1:1' stands twice"),
        ("12:05 am on 8 May, 2023", "13:05 am on 8 May, 2023", "'session_1_date_time' is no moment such as"),
        ("12:05 am on 8 May, 2023", "12:05 am on 31 June, 2023", "'session_1_date_time' is no moment such as"),
        ("session_1_date_time", "session_2_date_time", "no 'session_1_date_time'; its keys are"),
        ('"category": 1', '"category": 6', r"qa\[0\]: 'category' 6 is not one of 1, 2, 3, 4, 5"),
        ('"category": 1', '"category": "1"', r"qa\[0\]: 'category' must be a whole number, is a text, '1'"),
        ('"answer": 2022, ', "", r"qa\[0\]: no 'answer'"),
        ('"evidence": ["D1:2; D9:9"]', '"evidence": [1]', r"'evidence\[0\]' must be a text, is a number, 1"),
        ('"conv-2"', '"conv-1"', r"item 2 \(byte \d+\): 'sample_id' 'conv-1' stands there already, in .*item 1"),
        ('"session_1": ', '"session_x": ', "no session with turns"),
    ],
)  # fmt: skip
def test_locomo_tells_what_is_wrong_and_where(tmp_path, old, new, message):
    path = make_locomo(tmp_path)
    edit(path, old, new)
    with pytest.raises(DatasetError, match=message):
        read("locomo", path, categories="1,2,3,4,5")


def test_sessions_come_in_the_order_of_their_numbers(tmp_path):
    path = make_locomo(tmp_path)
    sample = json.loads(path.read_text(encoding="utf-8"))[0]
    for number in (10, 2):
        turn = {"speaker": "Bo", "dia_id": f"D{number}:1", "text": "Hi"}
        moment = f"1:00 pm on {number + 10} May, 2023"
        sample["conversation"] |= {f"session_{number}": [turn], f"session_{number}_date_time": moment}
    path.write_text(json.dumps([sample]), encoding="utf-8")
    (one,) = read("locomo", path)
    assert [document.id for document in one.documents] == ["D1:1", "D1:2", "D2:1", "D10:1"]
    assert one.cases[0].asked_at == "2023-05-20T13:00:00"


def test_midnight_and_noon(tmp_path):
    path = make_locomo(tmp_path)
    assert read("locomo", path)[0].documents[0].occurred_at == "2023-05-08T00:05:00"
    edit(path, "12:05 am", "12:05 pm")
    first = read("locomo", path)[0].documents[0]
    assert (first.occurred_at, first.text[:22]) == ("2023-05-08T12:05:00", "8 May 2023, 12:05 pm —")
