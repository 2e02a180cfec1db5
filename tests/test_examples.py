"""The example record holds what its README promises: counts, dates, sources, scripts, gold evidence."""

import json
import re
from collections import Counter
from datetime import UTC, date, datetime, time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
KEYS = {"text", "occurred_at", "author", "tags", "source", "thread", "kind", "metadata"}
KINDS = {"mail", "chat", "minutes", "ticket", "decision", "document"}
CATEGORIES = {"current", "as_of", "provenance", "contradiction", "history", "audit"}
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
SCRIPTS = {"Japanese": "[\u3040-\u30ff\u4e00-\u9fff]", "Arabic": "[\u0620-\u064a]"}
# A document that holds a word of a fact's question in another sense, and the fact that it must not be taken for.
NOISE = [
    ("ticket-0001", "palisade gate", "vpn-vendor"),
    ("minutes-0003", "palisade gate", "vpn-vendor"),
    ("ticket-0002", "vendor", "vpn-vendor"),
    ("chat-0009", "launch", "launch-date"),
    ("chat-0028", "launch", "launch-date"),
    ("mail-0013", "retention", "sample-retention"),
    ("minutes-0002", "retention", "sample-retention"),
    ("document-0029", "dates", "launch-date"),
]


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


RECORD = _lines("record.jsonl")
BY_SOURCE = {row["source"]: row for row in RECORD}
QUESTIONS = _lines("questions.jsonl")
STATES = _lines("states.jsonl")
_FACTS_FILE = json.loads((FOLDER / "facts.json").read_text(encoding="utf-8"))
FACTS: list[dict[str, Any]] = _FACTS_FILE["facts"]
CONTRADICTIONS: list[dict[str, Any]] = _FACTS_FILE["contradictions"]
VERSIONS = [(fact["id"], version) for fact in FACTS for version in fact["versions"]]


def _moment(text: str) -> datetime:
    """The instant of an ISO 8601 text; a bare date is the start of its day in UTC; a time must name its zone."""
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return datetime.combine(date.fromisoformat(text), time.min, UTC)
    moment = datetime.fromisoformat(text)
    assert moment.tzinfo is not None, f"{text} names no zone"
    return moment


def _end_of_day(text: str) -> datetime:
    return datetime.combine(date.fromisoformat(text), time.max, UTC)


def _authors(row: dict[str, Any]) -> list[str]:
    author = row.get("author", [])
    return [author] if isinstance(author, str) else author


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _dated() -> list[dict[str, Any]]:
    return [row for row in RECORD if "occurred_at" in row]


# The record


def test_every_document_has_known_keys_of_the_right_types() -> None:
    for row in RECORD:
        assert set(row) <= KEYS, row["source"]
        assert row["text"].strip(), row["source"]
        assert row["kind"] in KINDS, row["source"]
        assert re.fullmatch(rf"{row['kind']}-\d{{4}}", row["source"])
        assert isinstance(row["thread"], str), row["source"]
        assert isinstance(row.get("metadata", {}), dict), row["source"]
        assert all(isinstance(tag, str) and tag.strip() for tag in row.get("tags", [])), row["source"]
        assert all(isinstance(author, str) and author.strip() for author in _authors(row)), row["source"]
        assert row.get("author", "absent") not in ("", [], None), row["source"]


def test_files_hold_real_characters_and_end_with_a_newline() -> None:
    for name in ("record.jsonl", "questions.jsonl", "states.jsonl", "facts.json"):
        raw = (FOLDER / name).read_bytes()
        assert raw.endswith(b"\n"), name
        assert b"\r" not in raw, name
        assert not re.search(rb"\\u[0-9a-fA-F]{4}", raw), f"{name} holds an escape"


def test_sources_are_unique_and_no_document_repeats_another() -> None:
    assert len(BY_SOURCE) == len(RECORD)
    identities = Counter((row["text"], tuple(_authors(row)), row.get("occurred_at"), row["thread"]) for row in RECORD)
    assert [identity for identity, count in identities.items() if count > 1] == []


def test_size_kinds_and_authors() -> None:
    assert len(RECORD) >= 90
    kinds = Counter(row["kind"] for row in RECORD)
    assert set(kinds) == KINDS
    assert min(kinds.values()) >= 3
    authors = Counter(author for row in RECORD for author in _authors(row))
    assert len(authors) >= 10
    assert sum(count >= 3 for count in authors.values()) >= 10
    assert sum(len(_authors(row)) > 1 for row in RECORD) >= 5


def test_lengths_run_from_a_line_of_chat_to_reports() -> None:
    lengths = {row["source"]: len(row["text"].split()) for row in RECORD}
    assert sum(400 <= length <= 700 for length in lengths.values()) >= 5
    assert sum(row["kind"] == "chat" and lengths[row["source"]] <= 12 for row in RECORD) >= 5
    assert max(lengths.values()) <= 700


def test_threads_hold_several_documents() -> None:
    threads = Counter(row["thread"] for row in RECORD)
    assert sum(count >= 3 for count in threads.values()) >= 8


def test_dates_parse_span_two_years_and_mix_forms() -> None:
    moments = [_moment(row["occurred_at"]) for row in _dated()]
    assert date(2023, 1, 1) <= min(moments).date() <= date(2023, 1, 31)
    assert date(2025, 1, 1) <= max(moments).date() <= date(2025, 1, 31)
    bare = [row for row in _dated() if len(row["occurred_at"]) == 10]
    assert len(bare) >= 20
    assert len(_dated()) - len(bare) >= 20
    assert {row["occurred_at"][-6:] for row in _dated() if "T" in row["occurred_at"]} == {
        "+00:00",
        "+01:00",
        "+03:00",
        "+09:00",
    }
    assert len(RECORD) - len(_dated()) >= 6


def test_late_filed_documents_stand_after_much_later_ones() -> None:
    late = [place for place, row in enumerate(RECORD) if row.get("metadata", {}).get("late")]
    assert len(late) >= 3
    for place in late:
        row = RECORD[place]
        filed = row["metadata"]["filed"]
        assert row["occurred_at"].startswith("2023-")
        earlier = [_moment(other["occurred_at"]) for other in RECORD[:place] if "occurred_at" in other]
        assert (max(earlier) - _moment(row["occurred_at"])).days > 365
        assert _moment(filed) > max(earlier)


@pytest.mark.parametrize(("script", "pattern"), SCRIPTS.items())
def test_scripts_other_than_latin(script: str, pattern: str) -> None:
    substantive = [row["source"] for row in RECORD if len(re.findall(pattern, row["text"])) >= 80]
    assert len(substantive) >= 5, script


def test_near_duplicates_hold_the_text_that_they_repeat() -> None:
    forwarded = [row for row in RECORD if "forwarded" in row.get("metadata", {})]
    restated = [row for row in RECORD if "restates" in row.get("metadata", {})]
    assert len(forwarded) >= 2
    assert len(restated) >= 2
    for row in forwarded:
        original = BY_SOURCE[row["metadata"]["forwarded"]]
        paragraph = max(original["text"].split("\n\n"), key=len)
        assert f"> {paragraph}" in row["text"], row["source"]
        assert _moment(row["occurred_at"]) > _moment(original["occurred_at"])
    for row in restated:
        rule = _words(BY_SOURCE[row["metadata"]["restates"]]["text"])
        runs = {tuple(rule[start : start + 6]) for start in range(len(rule) - 5)}
        own = _words(row["text"])
        assert any(tuple(own[start : start + 6]) in runs for start in range(len(own) - 5)), row["source"]


def test_later_documents_talk_about_earlier_dates() -> None:
    looking_back = [
        row["source"]
        for row in _dated()
        if row["occurred_at"] >= "2024-03" and re.search(rf"\b({MONTHS}) 2023\b", row["text"])
    ]
    assert len(looking_back) >= 4


@pytest.mark.parametrize(("source", "word", "fact"), NOISE)
def test_noise_matches_the_word_and_is_no_deciding_document(source: str, word: str, fact: str) -> None:
    assert word in BY_SOURCE[source]["text"].lower()
    deciding = {name for owner, version in VERSIONS if owner == fact for name in version["sources"]}
    assert deciding
    assert source not in deciding


# The facts


def test_facts_counts() -> None:
    assert len({fact["id"] for fact in FACTS}) == len(FACTS) >= 14
    changes = {fact["id"]: len(fact["versions"]) - 1 for fact in FACTS}
    assert min(changes.values()) >= 1
    assert max(changes.values()) >= 3
    values = [[version["value"] for version in fact["versions"]] for fact in FACTS]
    assert any(len(one) >= 3 and one[0] == one[-1] != one[1] for one in values)
    assert all(earlier != later for one in values for earlier, later in pairwise(one))
    assert all(fact["name"].strip() and fact["question"].strip() for fact in FACTS)


@pytest.mark.parametrize(("fact", "version"), VERSIONS)
def test_a_deciding_document_says_its_value_on_its_day(fact: str, version: dict[str, Any]) -> None:
    assert version["sources"], fact
    assert version["key_words"], fact
    for source in version["sources"]:
        text = BY_SOURCE[source]["text"].casefold()
        for words in version["key_words"]:
            assert words.casefold() in text, f"{source} does not say {words}"
    decided = date.fromisoformat(version["from"])
    assert date.fromisoformat(BY_SOURCE[version["sources"][0]]["occurred_at"][:10]) == decided
    assert date.fromisoformat(version.get("effective", version["from"])) >= decided


@pytest.mark.parametrize("fact", FACTS, ids=[fact["id"] for fact in FACTS])
def test_versions_follow_one_another(fact: dict[str, Any]) -> None:
    versions = fact["versions"]
    days = [version["from"] for version in versions]
    assert days == sorted(set(days))
    for earlier, later in pairwise(versions):
        assert earlier["superseded_by"] == later["sources"][0]
        assert earlier.get("effective", earlier["from"]) < later.get("effective", later["from"])
    assert versions[-1]["superseded_by"] is None


def test_announcements_without_authority_were_corrected_by_somebody_else() -> None:
    announced = [(fact, one) for fact in FACTS for one in fact.get("unauthorised", [])]
    assert len(announced) >= 3
    for fact, one in announced:
        said, corrected = BY_SOURCE[one["source"]], BY_SOURCE[one["corrected_by"]]
        assert one["value"] not in [version["value"] for version in fact["versions"]]
        assert all(words in said["text"] for words in one["key_words"])
        assert not set(_authors(said)) & set(_authors(corrected))
        assert _moment(said["occurred_at"]) < _moment(corrected["occurred_at"])
        assert one["source"] not in [source for version in fact["versions"] for source in version["sources"]]


def test_contradictions() -> None:
    assert len({one["id"] for one in CONTRADICTIONS}) == len(CONTRADICTIONS) >= 5
    assert sum(one["resolved_by"] is None for one in CONTRADICTIONS) >= 2
    assert sum(one["resolved_by"] is not None for one in CONTRADICTIONS) >= 2
    for one in CONTRADICTIONS:
        first, second = (BY_SOURCE[source] for source in one["sources"])
        assert not set(_authors(first)) & set(_authors(second)), one["id"]
        assert first["author"], one["id"]
        if one["resolved_by"] is not None:
            settled = _moment(BY_SOURCE[one["resolved_by"]]["occurred_at"])
            assert settled > max(_moment(first["occurred_at"]), _moment(second["occurred_at"])), one["id"]


# The questions


def test_questions_counts() -> None:
    assert len({question["id"] for question in QUESTIONS}) == len(QUESTIONS) >= 25
    categories = Counter(question["category"] for question in QUESTIONS)
    assert set(categories) == CATEGORIES
    assert min(categories.values()) >= 4
    assert categories["as_of"] >= 10
    for question in QUESTIONS:
        assert set(question) == {"id", "category", "text", "as_of", "answers", "evidence"}
        assert question["text"].strip(), question["id"]
        assert question["answers"], question["id"]
        assert all(answer.strip() for answer in question["answers"]), question["id"]
        assert (question["as_of"] is not None) or question["category"] != "as_of", question["id"]


@pytest.mark.parametrize("question", QUESTIONS, ids=[question["id"] for question in QUESTIONS])
def test_evidence_exists_and_is_not_later_than_the_question(question: dict[str, Any]) -> None:
    assert question["evidence"]
    assert len(set(question["evidence"])) == len(question["evidence"])
    for source in question["evidence"]:
        happened = BY_SOURCE[source]["occurred_at"]
        if question["as_of"] is not None:
            assert _moment(happened) <= _end_of_day(question["as_of"]), source


def _in_force(fact: dict[str, Any], as_of: str | None) -> dict[str, Any]:
    decided: list[dict[str, Any]] = [
        version for version in fact["versions"] if as_of is None or version["from"] <= as_of
    ]
    in_force = [version for version in decided if as_of is None or version.get("effective", version["from"]) <= as_of]
    assert decided[-1] is in_force[-1], f"{fact['id']} as of {as_of} falls between a decision and its effect"
    return in_force[-1]


def test_questions_about_a_fact_have_the_version_in_force_as_gold() -> None:
    by_text = {fact["question"]: fact for fact in FACTS}
    asked = [question for question in QUESTIONS if question["category"] in ("current", "as_of")]
    assert len(asked) >= 20
    for question in asked:
        version = _in_force(by_text[question["text"]], question["as_of"])
        assert question["answers"][0] == version["value"], question["id"]
        assert question["evidence"] == version["sources"], question["id"]


def test_the_demo_question_answers_differently_then_and_now() -> None:
    asked = {question["as_of"]: question for question in QUESTIONS if question["text"] == "Which VPN vendor do we use?"}
    assert asked[None]["answers"][0] == "Northlight"
    assert asked["2024-06-01"]["answers"][0] == "Palisade Gate"
    # Nothing else in the record even names the subject, so both are clearly the best match of their day.
    naming = {row["source"] for row in RECORD if "vpn" in _words(row["text"])}
    assert naming == {asked[None]["evidence"][0], asked["2024-06-01"]["evidence"][0]}
    content = set(_words("Which VPN vendor do we use?"))
    shared = {source: len(content & set(_words(BY_SOURCE[source]["text"]))) for source in naming}
    assert shared[asked[None]["evidence"][0]] > shared[asked["2024-06-01"]["evidence"][0]]
    assert all({"vpn", "vendor"} <= set(BY_SOURCE[source]["tags"]) for source in naming)


# The state changes


def test_states_name_documents_and_keep_the_evidence() -> None:
    superseded = [one for one in STATES if set(one) == {"supersede", "by"}]
    retracted = [one for one in STATES if set(one) == {"retract", "reason"}]
    assert len(superseded) + len(retracted) == len(STATES)
    assert len(superseded) >= 3
    assert len(retracted) >= 2
    successor = {name: version["superseded_by"] for _, version in VERSIONS for name in version["sources"]}
    for one in superseded:
        assert successor[one["supersede"]] == one["by"]
    evidence = {source for question in QUESTIONS for source in question["evidence"]}
    for one in retracted:
        assert one["retract"] in BY_SOURCE
        assert one["reason"].strip()
        assert one["retract"] not in evidence


def test_the_readme_counts_what_is_there() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    authors = {author for row in RECORD for author in _authors(row)}
    for words in (
        f"{len(RECORD)} documents",
        f"{len(FACTS)} facts",
        f"{len(CONTRADICTIONS)} contradictions",
        f"{len(QUESTIONS)} questions",
        f"{len(STATES)} state changes",
        f"by {len(authors)} authors",
    ):
        assert words in readme, words
