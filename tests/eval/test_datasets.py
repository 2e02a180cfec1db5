"""Every benchmark is read from its original files into the common form; here, those whose data is at hand."""

import re
from pathlib import Path

import fidelity
import pytest
from conftest import DATA, ROOT

from eval.cases import Collection
from eval.datasets import DATASETS, dataset
from eval.errors import DatasetError, EvalError


def read(name: str, path: Path, **options: str) -> list[Collection]:
    return list(dataset(name).read(path, options))


@pytest.fixture(scope="module")
def locomo() -> Path:
    path = DATA / "locomo" / "locomo10.json"
    if not path.is_file():
        pytest.skip(f"needs the LoCoMo data ({path}); set MEMPP_DATA")
    return path


def check_common_form(collections: list[Collection]) -> None:
    """What every consumer relies on, whatever the benchmark."""
    assert collections
    cases = [case for one in collections for case in one.cases]
    assert len({case.id for case in cases}) == len(cases)
    assert len({one.id for one in collections}) == len(collections)
    for one in collections:
        ids = [document.id for document in one.documents]
        assert len(set(ids)) == len(ids)
        assert ids
        assert all(document.text.strip() for document in one.documents)
        for case in one.cases:
            assert case.text.strip()
            assert case.category
            assert set(case.evidence) <= set(ids)
            assert len(set(case.evidence)) == len(case.evidence)


# The registry


def test_the_registry_names_every_benchmark_and_tells_all_about_it():
    assert list(DATASETS) == ["orgmembench", "locomo", "longmemeval", "longbench", "membench", "own"]
    for name, one in DATASETS.items():
        assert one.name == name
        assert one.judge in ("binary", "rubric", "longmemeval", "choice")
        for told in (one.title, one.where, one.licence, one.size, one.expects):
            assert told.strip()


def test_an_unknown_benchmark_is_refused_with_the_nearest_name():
    with pytest.raises(EvalError, match=r"no benchmark 'locmo' \(did you mean 'locomo'\?\).*orgmembench"):
        dataset("locmo")


@pytest.mark.parametrize("name", DATASETS)
def test_unknown_options_and_missing_paths_are_refused_before_anything_is_read(name, tmp_path):
    with pytest.raises(EvalError, match=rf"{name} has no option 'unitt'.*its options are"):
        dataset(name).read(tmp_path, {"unitt": "turn"})
    with pytest.raises(DatasetError, match=r"nowhere: No such file or directory; --data names"):
        dataset(name).read(tmp_path / "nowhere", {})
    with pytest.raises(DatasetError, match=r"--data names"):
        dataset(name).read(tmp_path, {})
    with pytest.raises(DatasetError):
        dataset(name).files(tmp_path)


@pytest.mark.parametrize("name", DATASETS)
def test_every_option_that_is_documented_is_taken(name, tmp_path):
    """A value that cannot be is refused by its own name, or the path is at fault; never the option's name."""
    for option in DATASETS[name].options:
        with pytest.raises(EvalError) as caught:
            dataset(name).read(tmp_path, {option: "no such value"})
        assert "has no option" not in str(caught.value)


# OrgMemBench


def test_orgmembench_is_as_the_fidelity_check_reads_it(orgmembench):
    (tier,) = read("orgmembench", orgmembench)
    check_common_form([tier])
    assert (tier.id, len(tier.documents), len(tier.cases)) == ("medium", 443, 39)
    assert len({document.thread for document in tier.documents}) == 157
    expected = [(one.text, one.occurred_at, one.source, one.thread) for one in fidelity.documents(orgmembench)]
    assert [(one.text, one.occurred_at, one.id, one.thread) for one in tier.documents] == expected
    asked = [(case.text, case.as_of, frozenset(case.evidence)) for case in tier.cases]
    assert asked == [(one.text, one.as_of, one.gold) for one in fidelity.questions(orgmembench)]
    assert not any(document.authors or document.tags for document in tier.documents)


def test_orgmembench_carries_as_of_only_in_audit_replay_and_a_weighted_rubric_everywhere(orgmembench):
    (tier,) = read("orgmembench", orgmembench)
    counts = {name: sum(case.category == name for case in tier.cases) for name in dataset("orgmembench").categories}
    assert counts == {"C1": 8, "C2": 8, "C3": 4, "C4": 8, "C5": 8, "C6": 3}
    assert {case.category for case in tier.cases if case.as_of} == {"C4"}
    assert sum(case.as_of is not None for case in tier.cases) == 8
    for case in tier.cases:
        assert sum(facet.weight for facet in case.rubric) == pytest.approx(1, abs=0.002)
        assert all("No credit if: " in facet.text for facet in case.rubric)
        assert len(case.answers) == 1
    first = tier.cases[0]
    assert first.answers[0].startswith("current value: Aisha Patel")
    assert "\nchange date: 2023-09-15\n" in first.answers[0]


def test_orgmembench_options_change_authors_and_thread_and_nothing_else(orgmembench):
    (plain,) = read("orgmembench", orgmembench)
    (tier,) = read("orgmembench", orgmembench, authors="headers", thread="withheld")
    assert all(re.fullmatch(r"P-\d{4}", document.authors[0]) for document in tier.documents)
    assert {document.thread for document in tier.documents} == {None}
    assert [one.text for one in tier.documents] == [one.text for one in plain.documents]
    assert tier.cases == plain.cases


def test_the_tier_is_found_from_above_and_the_files_are_those_read(orgmembench):
    above = orgmembench.parent.parent
    (tier,) = read("orgmembench", above)
    assert tier == read("orgmembench", orgmembench)[0]
    files = dataset("orgmembench").files(above)
    assert len(files) == len(set(files)) == 446
    assert all(file.is_file() for file in files)


# LoCoMo


def test_locomo_counts_categories_and_order_of_the_paper(locomo):
    conversations = read("locomo", locomo)
    check_common_form(conversations)
    assert [one.id for one in conversations] == ["conv-26", "conv-30", "conv-41", "conv-42", "conv-43"]
    assert [len(one.documents) for one in conversations] == [419, 369, 663, 629, 680]
    cases = [case for one in conversations for case in one.cases]
    assert list(dataset("locomo").categories) == ["2", "3", "1", "4", "5"]
    assert {name: sum(case.category == name for case in cases) for name in "12345"} == {
        "1": 142, "2": 156, "3": 46, "4": 418, "5": 0,
    }  # fmt: skip
    assert all(case.answers and not case.unanswerable and case.as_of is None for case in cases)
    assert [case.id for case in cases if not case.evidence] == ["conv-26:30", "conv-26:46"]
    assert sum(case.answers[0].isdigit() for case in cases) >= 6, "answers that are numbers in the file are texts here"


def test_locomo_turns_lead_with_date_and_speaker_and_keep_their_order(locomo):
    first = read("locomo", locomo)[0]
    by_id = {document.id: document for document in first.documents}
    assert by_id["D1:1"].text == ("8 May 2023, 1:56 pm — Caroline: Hey Mel! Good to see you! How have you been?")
    assert by_id["D1:5"].text.endswith(
        "[shares a photo: a photo of a dog walking past a wall with a painting of a woman]"
    )
    assert (by_id["D1:1"].occurred_at, by_id["D1:5"].occurred_at) == ("2023-05-08T13:56:00", "2023-05-08T13:56:04")
    assert (by_id["D1:5"].authors, by_id["D1:5"].thread) == (("Caroline",), "session_1")
    # The file holds moments of sessions that have no turns; the last one with turns counts.
    assert first.cases[0].asked_at == "2023-10-22T09:55:00"
    for one in read("locomo", locomo):
        for session in {document.thread for document in one.documents}:
            moments = [document.occurred_at for document in one.documents if document.thread == session]
            assert moments == sorted(set(moments))


def test_locomo_evidence_of_malformed_entries_is_read_as_the_turns_that_are_there(locomo):
    cases = {case.id: case for one in read("locomo", locomo) for case in one.cases}
    assert cases["conv-26:37"].evidence == ("D8:6", "D9:17"), "two ids in one string"
    assert cases["conv-42:88"].evidence == ("D1:18", "D1:20"), "a stray 'D'"
    assert "D10:19" not in cases["conv-42:58"].evidence, "no turn has it"
    assert len(cases["conv-42:58"].evidence) == 6
    assert len(cases["conv-43:18"].evidence) == 6, "'D:11:26' is no id"


def test_locomo_options(locomo):
    turns, sessions = read("locomo", locomo), read("locomo", locomo, unit="session")
    check_common_form(sessions)
    for one, other in zip(turns, sessions, strict=True):
        assert len(other.documents) == len({document.thread for document in one.documents})
        for case, whole in zip(one.cases, other.cases, strict=True):
            expected = dict.fromkeys(f"session_{turn[1:].partition(':')[0]}" for turn in case.evidence)
            assert whole.evidence == tuple(expected)
        for document in one.documents:
            (session,) = [whole for whole in other.documents if whole.id == document.thread]
            assert document.text.partition(" — ")[2] in session.text
    bare = read("locomo", locomo, captions="off", thread="withheld")
    documents = [document for one in bare for document in one.documents]
    assert not any("[shares a photo: " in document.text or document.thread for document in documents)
    adversarial = [case for one in read("locomo", locomo, categories="5") for case in one.cases]
    assert len(adversarial) == 237
    assert all(case.unanswerable for case in adversarial)
    assert [case.answers for case in adversarial if case.answers] == [("No",)] * 2, "the trap is never gold"
    everything = [case.id for one in read("locomo", locomo, categories="1,2,3,4,5") for case in one.cases]
    assert len(everything) == 999
    assert {case.id for case in adversarial} < set(everything)
    with pytest.raises(EvalError, match=r"categories='6' is not there"):
        read("locomo", locomo, categories="4,6")


# The examples as one's own record


def test_the_examples_are_read_as_they_are():
    (record,) = read("own", ROOT / "examples")
    check_common_form([record])
    assert (record.id, len(record.documents), len(record.cases)) == ("examples", 116, 46)
    assert sum(document.occurred_at is None for document in record.documents) == 8
    assert all(case.evidence and case.answers for case in record.cases)
    assert sum(case.as_of is not None for case in record.cases) > 0
    by_id = {document.id: document for document in record.documents}
    assert by_id["document-0001"].authors == ("Marguerite Lisle",)
    assert by_id["document-0001"].tags == ("policy", "office days", "people")
    assert [path.name for path in dataset("own").files(ROOT / "examples")] == ["record.jsonl", "questions.jsonl"]


def test_reading_again_gives_the_same(locomo, orgmembench):
    for name, path in (("locomo", locomo), ("orgmembench", orgmembench), ("own", ROOT / "examples")):
        assert read(name, path) == read(name, path)
