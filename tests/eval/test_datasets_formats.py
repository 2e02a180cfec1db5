"""LongMemEval, LongBench, MemBench and one's own record, from small files in exactly the original formats."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_datasets import check_common_form, read

from eval.datasets import dataset
from eval.datasets.longbench import LONGEST, split
from eval.errors import DatasetError, EvalError


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def write_lines(path: Path, *values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")
    return path


# LongMemEval


def memory_item(name: str = "e47becba", **changes: Any) -> dict[str, Any]:
    turns = [
        {"role": "user", "content": "I graduated in Business Administration.", "has_answer": True},
        {"role": "assistant", "content": "Congratulations!", "has_answer": False},
        {"role": "user", "content": "Any tips for paperwork?", "has_answer": False},
    ]
    filler = [{"role": "user", "content": "Is kelp a plant?"}, {"role": "assistant", "content": "It is an alga."}]
    return {
        "question_id": name,
        "question_type": "single-session-user",
        "question": "What degree did I graduate with?",
        "answer": "Business Administration",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/20 (Sat) 02:57", "2023/05/21 (Sun) 10:00"],
        "haystack_session_ids": ["sharegpt_yywfIrx_0", "answer_280352e9", "sharegpt_yywfIrx_0"],
        "haystack_sessions": [filler, turns, filler],
        "answer_session_ids": ["answer_280352e9"],
        **changes,
    }


def test_longmemeval_turns(tmp_path):
    path = write(tmp_path / "longmemeval_s.json", [memory_item(), memory_item("two", answer=3)])
    collections = read("longmemeval", tmp_path)
    check_common_form(collections)
    one = collections[0]
    assert [document.id for document in one.documents] == [
        "sharegpt_yywfIrx_0_1", "sharegpt_yywfIrx_0_2", "answer_280352e9_1", "answer_280352e9_2", "answer_280352e9_3",
        "sharegpt_yywfIrx_0#2_1", "sharegpt_yywfIrx_0#2_2",
    ]  # fmt: skip
    gold = one.documents[2]
    assert gold.text == "20 May 2023, 2:57 am — user: I graduated in Business Administration."
    assert (gold.occurred_at, one.documents[3].occurred_at) == ("2023-05-20T02:57:00", "2023-05-20T02:57:01")
    assert (gold.authors, gold.thread) == (("user",), "session 2")
    (case,) = one.cases
    assert (case.id, case.category, case.evidence) == ("e47becba", "single-session-user", ("answer_280352e9_1",))
    assert (case.asked_at, case.as_of, case.unanswerable) == ("2023-05-30T23:40:00", None, False)
    assert collections[1].cases[0].answers == ("3",)
    assert dataset("longmemeval").files(tmp_path) == [path]


def test_longmemeval_sessions_and_rounds_map_the_evidence(tmp_path):
    path = write(tmp_path / "longmemeval_oracle", [memory_item()])
    (sessions,) = read("longmemeval", path, unit="session")
    assert [one.id for one in sessions.documents] == ["sharegpt_yywfIrx_0", "answer_280352e9", "sharegpt_yywfIrx_0#2"]
    assert sessions.cases[0].evidence == ("answer_280352e9",)
    assert sessions.documents[0].text == "20 May 2023, 2:21 am\nuser: Is kelp a plant?\nassistant: It is an alga."
    (rounds,) = read("longmemeval", path, unit="round", thread="withheld", as_of="question_date")
    assert [one.id for one in rounds.documents][1:3] == ["answer_280352e9_r1", "answer_280352e9_r3"]
    assert rounds.cases[0].evidence == ("answer_280352e9_r1",)
    assert rounds.documents[1].text.endswith("Administration.\nassistant: Congratulations!")
    assert rounds.documents[0].thread is None
    assert rounds.cases[0].as_of == rounds.cases[0].asked_at == "2023-05-30T23:40:00"


def test_longmemeval_abstention(tmp_path):
    path = write(tmp_path / "longmemeval_s.json", [memory_item("a_abs"), memory_item("b")])
    abstains, answers = read("longmemeval", path)
    assert (abstains.cases[0].unanswerable, abstains.cases[0].evidence) == (True, ())
    assert (answers.cases[0].unanswerable, answers.cases[0].evidence) == (False, ("answer_280352e9_1",))
    assert [one.id for one in read("longmemeval", path, abstention="off")] == ["b"]


def test_longmemeval_turns_without_content_are_none_and_keep_the_numbers_of_the_others(tmp_path):
    session = [{"role": "user", "content": " "}, {"role": "assistant", "content": "Hello", "has_answer": True}]
    item = memory_item(haystack_sessions=[[], session, []])
    (one,) = read("longmemeval", write(tmp_path / "x.json", [item]))
    assert [document.id for document in one.documents] == ["answer_280352e9_2"]
    assert one.cases[0].evidence == ("answer_280352e9_2",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"haystack_dates": []}, "3 'haystack_session_ids', 0 'haystack_dates' and 3 'haystack_sessions'"),
        ({"question_date": "yesterday"}, "'question_date' is no moment such as .*'yesterday'"),
        ({"question_date": "2023/13/30 (Tue) 23:40"}, "'question_date' is no moment"),
        (
            {"haystack_dates": ["2023/05/20 (Sat) 02:21", 7, ""]},
            r"'haystack_dates\[1\]' must be a text, is a number, 7",
        ),
        ({"haystack_sessions": [[], [{"role": "user"}], []]}, r"haystack_sessions\[1\]\[0\]: no 'content'"),
        ({"haystack_sessions": [[], [{"role": "cat", "content": "m"}], []]}, "'role' must be user or assistant"),
        ({"haystack_sessions": [[], "x", []]}, r"'haystack_sessions\[1\]' must be a list"),
        ({"haystack_sessions": [[], [], []]}, "the history holds no turn"),
        ({"question": None}, "'question' holds null"),
        ({"answer": ["x"]}, "'answer' must be a text, is a list"),
    ],
)
def test_longmemeval_says_what_is_wrong_and_in_which_item(tmp_path, changes, message):
    path = write(tmp_path / "longmemeval_s.json", [memory_item(), memory_item("two", **changes)])
    with pytest.raises(DatasetError, match=rf"longmemeval_s\.json: item 2 \(byte \d+\).*{message}"):
        read("longmemeval", path)


def test_longmemeval_refuses_what_it_cannot_choose_from(tmp_path):
    write(tmp_path / "longmemeval_s.json", [memory_item()])
    write(tmp_path / "longmemeval_m.json", [memory_item()])
    with pytest.raises(
        DatasetError, match=r"several files, name one of them: longmemeval_m\.json, longmemeval_s\.json"
    ):
        read("longmemeval", tmp_path)
    with pytest.raises(DatasetError, match=r"item 2 .*'question_id' 'e47becba' stands there already, in .*item 1"):
        read("longmemeval", write(tmp_path / "x.json", [memory_item(), memory_item()]))
    with pytest.raises(DatasetError, match="it holds no question"):
        read("longmemeval", write(tmp_path / "x.json", []))


def test_longmemeval_takes_memory_for_one_item_only(tmp_path):
    """The peak does not grow with the number of items: an array of gigabytes is read like a small one."""
    filler = [{"role": "user", "content": 'Ünïcode \\ "quoted" [brackets] {braces}, and more. ' * 40}] * 100

    def peak(items: int) -> int:
        path = tmp_path / "longmemeval_m.json"
        with path.open("w", encoding="utf-8") as stream:
            stream.write("[")
            for number in range(items):
                item = memory_item(f"q{number}", haystack_sessions=[filler, filler, filler])
                stream.write(("," if number else "") + json.dumps(item, ensure_ascii=number % 2 == 0))
            stream.write("]")
        tracemalloc.start()
        assert sum(len(one.documents) for one in dataset("longmemeval").read(path, {})) == 300 * items
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    few, many = peak(4), peak(24)
    assert many < 1.2 * few, (few, many)


def test_the_first_item_is_there_before_the_rest_is_read(tmp_path):
    whole = json.dumps([memory_item("one"), memory_item("two")])
    path = tmp_path / "longmemeval_s.json"
    path.write_text(whole[:-30], encoding="utf-8")
    reading = dataset("longmemeval").read(path, {})
    assert next(reading).id == "one"
    with pytest.raises(DatasetError, match=r"item 2 \(byte \d+\): the file ends inside it, at byte \d+: it is cut off"):
        next(reading)


# LongBench


def bench_line(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "input": "Who wrote it?",
        "context": "Passage 1:\nThe Book\nBy Ann.\n\nPassage 2:\nAnn\nA writer.\n",
        "answers": ["Ann", "Ann B."],
        "length": 12,
        "dataset": "hotpotqa",
        "language": "en",
        "all_classes": None,
        "_id": name,
        **changes,
    }


def test_longbench_passages_are_documents(tmp_path):
    write_lines(tmp_path / "data" / "hotpotqa.jsonl", bench_line("a"), bench_line("b"))
    write_lines(tmp_path / "data" / "hotpotqa_e.jsonl", bench_line("a"))
    write_lines(tmp_path / "data" / "gov_report.jsonl", bench_line("a", input="", context="word " * 1000))
    collections = read("longbench", tmp_path)
    check_common_form(collections)
    assert [one.id for one in collections] == ["gov_report:a", "hotpotqa:a", "hotpotqa:b"]
    report, first, _ = collections
    assert [(one.id, one.text) for one in first.documents] == [
        ("passage 1", "Passage 1:\nThe Book\nBy Ann.\n\n"),
        ("passage 2", "Passage 2:\nAnn\nA writer.\n"),
    ]
    (case,) = first.cases
    assert (case.text, case.category, case.answers, case.evidence) == (
        "Who wrote it?",
        "hotpotqa",
        ("Ann", "Ann B."),
        (),
    )
    assert report.cases[0].text.startswith("Summarise this report")
    assert [one.id for one in read("longbench", tmp_path, tasks="hotpotqa_e")] == ["hotpotqa_e:a"]
    assert [path.name for path in dataset("longbench").files(tmp_path)] == ["gov_report.jsonl", "hotpotqa.jsonl"]
    with pytest.raises(EvalError, match=r"tasks='hotpot' is not there \(did you mean 'hotpotqa'\?\)"):
        read("longbench", tmp_path, tasks="hotpot")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": " \n"}, "'context' is empty"),
        ({"answers": []}, "'answers' is missing or empty"),
        ({"answers": "Ann"}, "'answers' must be a list"),
        ({"input": ""}, "'input' is empty"),
        ({"_id": "a"}, "'_id' 'a' stands there already, in .*hotpotqa.jsonl:1"),
    ],
)
def test_longbench_says_what_is_wrong_and_in_which_line(tmp_path, changes, message):
    path = write_lines(tmp_path / "hotpotqa.jsonl", bench_line("a"), bench_line("b", **changes))
    with pytest.raises(DatasetError, match=rf"hotpotqa\.jsonl:2: {message}"):
        read("longbench", path)


words = st.text(st.sampled_from("ab \n\t.文"), min_size=1, max_size=60).filter(str.strip)


@given(st.lists(st.one_of(words, words.map(lambda text: text * 200)), min_size=1, max_size=12))
def test_nothing_of_a_context_is_lost_and_no_document_is_long_or_blank(parts):
    context = "\n".join(parts)
    documents = split(context)
    assert "".join(text for _, text in documents) == context
    assert len({name for name, _ in documents}) == len(documents)
    assert all(text.strip() for _, text in documents)
    # White space that belongs to nothing may hang on to a document beyond the limit.
    assert all(len(text.strip()) <= LONGEST for _, text in documents)


def test_what_stands_before_the_first_passage_is_kept_with_it():
    context = "Read this.\nParagraph 1: one\nParagraph 2: two, unlike Paragraph 3: three\n"
    assert split(context) == [
        ("passage 1", "Read this.\nParagraph 1: one\n"),
        ("passage 2", "Paragraph 2: two, unlike Paragraph 3: three\n"),
    ]
    assert [name for name, _ in split("文章1\n标题：一\n文章2\n标题：二")] == ["passage 1", "passage 2"]


@given(
    st.lists(words.filter(lambda text: "文" not in text), min_size=2, max_size=8),
    st.sampled_from(["Passage", "Paragraph"]),
)
def test_numbered_passages_are_found_wherever_they_count_up_from_one(texts, word):
    passages = [f"{word} {number}:\n{text}\n" for number, text in enumerate(texts, start=1)]
    assert [text for _, text in split("".join(passages))] == passages
    misnumbered = "".join([passages[0], *passages[2:], passages[1]]) if len(texts) > 2 else passages[1]
    assert all(name.startswith("part ") for name, _ in split(misnumbered))


# MemBench

TIME = "'2024-10-01 08:0{}' Tuesday"


def exchange(number: int, key: str = "mid", **more: Any) -> dict[str, Any]:
    sides = {"user": f"I like film {number}.", "assistant": f"Film {number}, noted."}
    return {key: number, **sides, "time": TIME.format(number), "place": "Boston, MA", **more}


def trajectory(messages: list[Any], targets: list[Any], **changes: Any) -> dict[str, Any]:
    question = {
        "qid": 0,
        "question": "What do I like?",
        "answer": "Drama",
        "target_step_id": targets,
        "choices": {"A": "Musical", "B": ["Drama", "Crime"], "C": 7, "D": "Horror"},
        "ground_truth": "B",
        "time": "'2024-10-01 09:00' Tuesday",
        **changes,
    }
    return {"tid": 0, "message_list": messages, "QA": question}


def test_membench_sessions_with_numbers_that_count_through(tmp_path):
    messages = [[exchange(0), exchange(1)], [exchange(2)]]
    path = write(
        tmp_path / "MemData" / "FirstAgent" / "highlevel.json", {"movie": [trajectory(messages, [[1, 0], [2, 1]])]}
    )
    (one,) = read("membench", tmp_path)
    check_common_form([one])
    assert one.id == "FirstAgent/highlevel/movie/0"
    assert [(document.id, document.thread) for document in one.documents] == [
        ("0", "session 1"), ("1", "session 1"), ("2", "session 2"),
    ]  # fmt: skip
    assert one.documents[1].text == (
        "1 October 2024, 8:01 am, Boston, MA — user: I like film 1.\nassistant: Film 1, noted."
    )
    assert one.documents[1].occurred_at == "2024-10-01T08:01:00"
    (case,) = one.cases
    assert (case.id, case.category) == ("FirstAgent/highlevel/movie/0:0", "highlevel")
    assert (case.evidence, case.answers, case.asked_at) == (("1", "2"), ("B",), "2024-10-01T09:00:00")
    assert case.choices == {"A": "Musical", "B": "Drama, Crime", "C": "7", "D": "Horror"}
    assert dataset("membench").files(tmp_path / "MemData" / "FirstAgent") == [path]


def test_membench_flat_messages_give_nothing_away(tmp_path):
    messages = [
        {"mid": 0, "message": "My aunt is Ada.", "time": TIME.format(0), "place": "Bath", "rel": "SECRET"},
        {"mid": 1, "message": "She paints.", "time": "", "place": "", "attr": "SECRET", "value": "SECRET"},
    ]
    write(
        tmp_path / "ThirdAgent" / "simple.json",
        {"roles": [trajectory(messages, [1])], "events": [trajectory(messages, [])]},
    )
    write(tmp_path / "FirstAgent" / "simple.json", {"roles": [trajectory([exchange(0)], [[0, 0]])]})
    collections = read("membench", tmp_path)
    check_common_form(collections)
    assert [one.id for one in collections] == [
        "FirstAgent/simple/roles/0",
        "ThirdAgent/simple/roles/0",
        "ThirdAgent/simple/events/0",
    ]
    roles = collections[1]
    assert [document.text for document in roles.documents] == [
        "1 October 2024, 8:00 am, Bath — My aunt is Ada.", "She paints.",
    ]  # fmt: skip
    assert roles.documents[1].occurred_at is None
    assert roles.cases[0].evidence == ("1",)
    assert collections[2].cases[0].evidence == ()
    assert "SECRET" not in str(collections)
    third = read("membench", tmp_path, agents="ThirdAgent", tasks="simple", scenarios="events")
    assert [one.id for one in third] == ["ThirdAgent/simple/events/0"]
    with pytest.raises(EvalError, match=r"no scenario 'films' in these files; there are: events, roles"):
        read("membench", tmp_path, scenarios="films")
    with pytest.raises(EvalError, match="agents='SecondAgent' is not there"):
        read("membench", tmp_path, agents="SecondAgent")


@pytest.mark.parametrize(
    ("messages", "targets", "evidence"),
    [
        ([[exchange(0, "sid")], [exchange(1, "sid")]], [[1, 1]], ("1",)),
        ([[exchange(0), exchange(1)], [exchange(0), exchange(1)]], [3, 0], ("3", "0")),  # RecMultiSession: places
        ([[exchange(0), exchange(1)], [exchange(0), exchange(1)]], [[3, 1]], ("3",)),
        ([[exchange(0), exchange(1)], [exchange(0), exchange(1)]], [[1, 1]], ("3",)),
        ([exchange(5), exchange(7)], [7, [5]], ("7", "5")),
        ([exchange(0), exchange(1)], [9, 1, 1], ("1",)),  # no such message; twice
        ([{"user_message": "Hello", "assistant_message": "Hi", "mid": "5"}], [5], ("5",)),
        ([{"user": "Hello"}, {"user": "Bye"}], [1], ("1",)),
    ],
)
def test_membench_targets_in_every_form(tmp_path, messages, targets, evidence):
    path = write(tmp_path / "simple.json", {"roles": [trajectory(messages, targets)]})
    (one,) = read("membench", path)
    assert one.cases[0].evidence == evidence


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (trajectory([], []), "'message_list' holds no message"),
        (trajectory([exchange(0)], [], ground_truth="E"), "QA: 'ground_truth' 'E' is none of the choices A, B, C, D"),
        (trajectory([exchange(0)], ["x"]), "'target_step_id' holds numbers or pairs"),
        (trajectory([exchange(0)], [[0, 1, 2]]), "'target_step_id' holds numbers or pairs"),
        (trajectory([[exchange(0), 4]], []), r"message_list\[0\]\[1\]: not a JSON object but a number, 4"),
        (trajectory([{"mid": 0}], []), r"message_list\[0\]: no 'message', 'user' or 'user_message'"),
        ({"tid": 0, "message_list": [exchange(0)]}, "no 'QA'; its keys are 'tid', 'message_list'"),
    ],
)
def test_membench_says_what_is_wrong_and_in_which_item(tmp_path, broken, message):
    path = write(tmp_path / "simple.json", {"roles": [trajectory([exchange(0)], [0]), broken]})
    with pytest.raises(DatasetError, match=rf"simple\.json: 'roles' item 2 \(byte \d+\).*{message}"):
        read("membench", path)


# One's own record


def own(tmp_path: Path, documents: list[Any], questions: list[Any]) -> Path:
    write_lines(tmp_path / "documents.jsonl", *documents)
    write_lines(tmp_path / "questions.jsonl", *questions)
    return tmp_path


def test_own_with_everything_and_with_as_little_as_possible(tmp_path):
    path = own(
        tmp_path,
        [
            {"id": "m1", "source": "x", "text": "Ann.", "occurred_at": "2024-W05-1", "authors": ["A", "B"], "kind": ""},
            {"text": "Bo.", "author": None, "tags": "t", "thread": "mail/1", "metadata": {"any": 1}},
        ],
        [
            {
                "id": "q", "category": "who", "text": "Who?", "as_of": "2024-06-01", "asked_at": "2024-06-02T10:00:00Z",
                "answers": ["A"], "evidence": ["m1", "line-2", "m1"], "choices": {"A": "Ann", "B": "Bo"},
                "rubric": ["names Ann", {"text": "and Bo", "weight": 0.5}],
            },
            {"question": "Why?", "unanswerable": True},
            {"text": "When?", "answer": "never", "as_of": None},
        ],
    )  # fmt: skip
    (record,) = read("own", path)
    check_common_form([record])
    first, second = record.documents
    assert (first.id, first.authors, first.occurred_at) == ("m1", ("A", "B"), "2024-W05-1")
    assert (second.id, second.authors, second.tags, second.thread) == ("line-2", (), ("t",), "mail/1")
    full, least, third = record.cases
    assert full.evidence == ("m1", "line-2")
    assert [(facet.text, facet.weight) for facet in full.rubric] == [("names Ann", 1.0), ("and Bo", 0.5)]
    assert (full.as_of, full.asked_at, dict(full.choices)) == (
        "2024-06-01", "2024-06-02T10:00:00Z", {"A": "Ann", "B": "Bo"},
    )  # fmt: skip
    assert (least.id, least.category, least.unanswerable) == ("line-2", "all", True)
    assert third.answers == ("never",)
    (withheld,) = read("own", path, thread="withheld")
    assert withheld.documents[1].thread is None


GOOD = {"id": "m1", "text": "Ann."}
ASKED = {"text": "Who?", "answers": ["Ann"]}


@pytest.mark.parametrize(
    ("document", "question", "message"),
    [
        ({"text": " "}, ASKED, r"documents\.jsonl:2: 'text' is empty"),
        ({"txt": "x"}, ASKED, r"documents\.jsonl:2: no 'text'; its keys are 'txt'"),
        ({"id": "m1", "text": "x"}, ASKED, r"documents\.jsonl:2: a document 'm1' stands there already, in .*:1"),
        ({"text": "x", "occurred_at": "May"}, ASKED, r"documents\.jsonl:2: 'occurred_at' is no date: 'May'"),
        ({"text": "x", "occurred_at": "2024-W05"}, ASKED, "'occurred_at' is no date"),
        ({"text": "x", "occurred_at": "2024-02-30"}, ASKED, "'occurred_at' is no date"),
        ({"text": "x", "author": 7}, ASKED, "'author' must be a text or a list of texts, is a number, 7"),
        ({"text": "x", "author": "a", "authors": "b"}, ASKED, "it has both 'author' and 'authors'"),
        ({"text": "x", "tags": ["a", 1]}, ASKED, r"'tags\[1\]' must be a text"),
        ({"text": "x\ud800"}, ASKED, r"'text' holds half a character \(a lone surrogate, '\\ud800'\)"),
        (GOOD | {"id": "m2"}, {"answers": ["x"]}, r"questions\.jsonl:1: no 'text'"),
        (GOOD | {"id": "m2"}, {"text": "Who?"}, "nothing can score this question"),
        (GOOD | {"id": "m2"}, ASKED | {"evidense": ["m1"]}, r"unknown key 'evidense' \(did you mean 'evidence'\?\)"),
        (GOOD | {"id": "m2"}, ASKED | {"evidence": ["m1x"]}, r"'evidence' names 'm1x' \(did you mean 'm1'\?\)"),
        (GOOD | {"id": "m2"}, ASKED | {"as_of": "2024-06"}, "'as_of' is no date: '2024-06'"),
        (GOOD | {"id": "m2"}, ASKED | {"choices": {"A": "x"}}, "'answers' must hold a letter of the choices A"),
        (GOOD | {"id": "m2"}, ASKED | {"rubric": [{"text": "x", "weight": 0}]}, "'weight' must be above 0"),
        (GOOD | {"id": "m2"}, ASKED | {"rubric": [3]}, r"rubric\[0\]: not a JSON object but a number, 3"),
        (GOOD | {"id": "m2"}, ASKED | {"unanswerable": "yes"}, "'unanswerable' must be true or false"),
    ],
)  # fmt: skip
def test_own_says_what_is_wrong_and_in_which_line(tmp_path, document, question, message):
    path = tmp_path
    for name, values in (("documents", [GOOD, document]), ("questions", [question])):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in values), encoding="utf-8")
    with pytest.raises(DatasetError, match=message):
        read("own", path)


def test_own_needs_both_files_and_something_in_them(tmp_path):
    with pytest.raises(DatasetError, match=r"no documents\.jsonl here; --data names a folder with documents\.jsonl"):
        read("own", tmp_path)
    write_lines(tmp_path / "documents.jsonl")
    with pytest.raises(DatasetError, match=r"questions\.jsonl: No such file"):
        read("own", tmp_path)
    write_lines(tmp_path / "questions.jsonl", ASKED)
    with pytest.raises(DatasetError, match="it holds no document"):
        read("own", tmp_path)
    write_lines(tmp_path / "documents.jsonl", GOOD)
    write_lines(tmp_path / "questions.jsonl")
    with pytest.raises(DatasetError, match="it holds no question"):
        read("own", tmp_path)
    write_lines(tmp_path / "questions.jsonl", ASKED | {"id": "q"}, ASKED | {"id": "q"})
    with pytest.raises(DatasetError, match=r"questions\.jsonl:2: a question 'q' stands there already, in .*:1"):
        read("own", tmp_path)
    with pytest.raises(DatasetError, match="not a folder"):
        read("own", tmp_path / "documents.jsonl")
