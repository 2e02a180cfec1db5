"""Labels in questions: what matches, in what order, against a full scan."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mempp.indexes import Ranking, TagIndex
from mempp.indexes.analysis import words
from mempp.indexes.stopwords import STOP_WORDS


def index_of(labels: list[list[str]]) -> TagIndex:
    index = TagIndex()
    index.add(labels)
    return index


def rows(index: TagIndex, question: str, n: int, limit: int = 10) -> list[int]:
    return index.rank(question, np.ones(n, np.bool_), limit).row_ids.tolist()


def stands_in(label: list[str], asked: list[str]) -> bool:
    starts = range(len(asked) - len(label) + 1)
    return not STOP_WORDS.issuperset(label) and any(asked[start : start + len(label)] == label for start in starts)


def scan(labels: list[list[str]], question: str, allowed: list[bool], limit: int) -> list[tuple[int, int, float]]:
    """Row, number of matching labels and rarity of every row in scope, by loops over all labels."""
    asked = words(question)
    matching: dict[int, set[tuple[str, ...]]] = {}
    for row, permitted in enumerate(allowed):
        if permitted:
            distinct = {tuple(words(label)) for label in labels[row]}
            matching[row] = {label for label in distinct if stands_in(list(label), asked)}
    frequency: dict[tuple[str, ...], int] = {}
    for held in matching.values():
        for label in held:
            frequency[label] = frequency.get(label, 0) + 1
    found = []
    for row, held in matching.items():
        rarity = 0.0
        for count in sorted((frequency[label] for label in held), reverse=True):
            rarity += math.log(len(matching) / count)
        if held:
            found.append((row, len(held), rarity))
    found.sort(key=lambda item: (-item[1], -item[2], -item[0]))
    return found[:limit]


def agrees(ranking: Ranking, expected: list[tuple[int, int, float]]) -> bool:
    scores = [count + rarity / (1 + rarity) for _, count, rarity in expected]
    return ranking.row_ids.tolist() == [row for row, _, _ in expected] and ranking.scores.tolist() == scores


@pytest.mark.parametrize(
    ("label", "question", "matches"),
    [
        ("vendor-b", "Why did we choose Vendor B?", True),
        ("vendor-b", "Why vendor and b?", False),
        ("vendor-b", "b vendor", False),
        ("vpn gateway", "the VPN-Gateway's owner", True),
        ("Ann Lee", "What did ann   lee's team say?", True),
        ("ann.lee@example.com", "mail of ann.lee@example.com", True),
        ("José", "What does jose think?", True),
        ("jose", "José’s plan", True),
        ("O'Brien", "ask o’brien", True),
        ("更新", "VPN更新2024", True),
        ("新更", "VPN更新2024", False),
        ("VPN更新", "ＶＰＮ更新の件", True),
        ("田中", "田中さんは何と言った", True),
        ("the who", "who is the who", False),
        ("vendor d", "vendor d", True),
        ("d", "I'd say", False),
        ("s", "the board's", False),
        ("", "anything", False),
        ("🚀", "🚀", False),
        ("plans", "plan", False),
        ("plan", "", False),
        ("a very long label of many words indeed", "see a very long label of many words indeed", True),
        ("a very long label of many words indeed", "a very long label of many words", False),
    ],
)
def test_a_label_matches_when_its_words_stand_in_a_row(label: str, question: str, matches: bool) -> None:
    index = index_of([[label]])
    assert rows(index, question, 1) == ([0] if matches else [])
    assert index.matched_labels(question) == ([label] if matches else [])


def test_a_label_twice_on_a_row_counts_once() -> None:
    index = index_of([["vendor-b", "Vendor B", "VENDOR b"], ["vendor b", "vpn"]])
    ranking = index.rank("vendor b", np.ones(2, np.bool_), 10)
    assert ranking.row_ids.tolist() == [1, 0]
    assert ranking.scores.tolist() == [1.0, 1.0]
    assert index.matched_labels("Vendor B, vendor b: vpn") == ["vendor-b", "vpn"]


def test_more_labels_then_rarer_ones_then_later_rows() -> None:
    index = index_of([["ann", "bob"], ["carl"], ["ann"], ["bob"], ["ann"], ["bob"], ["ann"]])
    # carl stands on one row of 7, bob on three, ann on four.
    assert rows(index, "ann bob carl", 7) == [0, 1, 5, 3, 6, 4, 2]
    # Rarity is that of the scope: without rows 3 and 5 bob is as rare as carl, and row 0 alone has him.
    allowed = np.array([False, True, True, True, False, False, False])
    assert index.rank("ann bob carl", allowed, 10).row_ids.tolist() == [3, 2, 1]


def test_equals_a_full_scan_of_5000_rows_in_200_random_scopes() -> None:
    chance = random.Random(11)
    names = [f"{first}{joint}{last}" for first in ("ann", "bob", "the", "ve") for joint in ("", " ", "-") for last in
             ("lee", "kim", "a", "更", "")]  # fmt: skip
    labels = [chance.choices(names, k=chance.randint(0, 4)) for _ in range(5_000)]
    index = index_of(labels)
    some = 0
    for number in range(200):
        n_rows = chance.randint(1, 5_000) if number % 2 else 5_000
        share = chance.choice([0.001, 0.02, 0.3])
        allowed = [chance.random() < share for _ in range(n_rows)]
        question = " ".join(chance.choices([*names, "and", "更新"], k=chance.randint(0, 6)))
        limit = chance.choice([1, 10, 50, 6_000])
        expected = scan(labels, question, allowed, limit)
        assert agrees(index.rank(question, np.array(allowed), limit), expected)
        some += len(expected)
    assert some > 3_000


LABELS = st.lists(st.sampled_from(["a b", "b", "B.", "b c", "更", "更新", "the", "c-d", ""]), max_size=4)


@settings(max_examples=200)
@given(st.lists(LABELS, min_size=1, max_size=8), st.lists(LABELS, max_size=8), st.data())
def test_later_rows_change_nothing(labels: list[list[str]], later: list[list[str]], data: st.DataObject) -> None:
    question = data.draw(st.lists(st.sampled_from(["a", "b", "c", "d", "更新", "the"]), max_size=8).map(" ".join))
    allowed = data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels)))
    index = index_of(labels)
    expected = scan(labels, question, allowed, 5)
    assert agrees(index.rank(question, np.array(allowed), 5), expected)
    index.add(later)
    assert agrees(index.rank(question, np.array(allowed), 5), expected)
    assert agrees(index.rank(question, np.array(allowed + [False] * len(later)), 5), expected)
