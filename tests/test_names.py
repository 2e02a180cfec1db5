"""Authors named by short forms: what matches, against a full scan, and what out-of-scope rows and huge texts do."""

import random
import re
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mempp
from mempp.indexes import TagIndex
from mempp.indexes.analysis import words
from mempp.indexes.names import short_forms
from mempp.indexes.stopwords import STOP_WORDS
from mempp.projection import Projection


@dataclass
class Row:
    authors: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)


def index_of(rows: list[Row]) -> TagIndex:
    index = TagIndex()
    add(index, rows)
    return index


def add(index: TagIndex, rows: list[Row]) -> None:
    index.names.add_rows([row.authors for row in rows])
    index.add([[*row.authors, *row.tags] for row in rows])


def counted(matches):
    return matches.row_ids, matches.n_labels


def everything(rows: list[Row]) -> np.ndarray:
    return np.ones(len(rows), np.bool_)


def found(authors: list[str], question: str, tags: tuple[str, ...] = ()) -> list[str]:
    """Which authors, of one row each, and then which tags are named."""
    rows = [Row(authors=[author]) for author in authors] + [Row(tags=[tag]) for tag in tags]
    matched, _ = counted(index_of(rows).matching(question, everything(rows), names=True))
    return [[*authors, *tags][row] for row in matched.tolist()]


PEOPLE = ["Ethan Brooks", "Maya Patel", "Aisha Patel", "Anna Maria Schmidt"]


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("what did Ethan say", ["Ethan Brooks"]),
        ("what did ethan say", ["Ethan Brooks"]),
        ("Ethan’s plan", ["Ethan Brooks"]),
        ("what did Brooks say", ["Ethan Brooks"]),
        ("the river brooks", []),
        ("Brooks run here", []),
        ("Dr. Brooks said", ["Ethan Brooks"]),
        ("what did mr brooks say", ["Ethan Brooks"]),
        ("Budget? E. Brooks knows", ["Ethan Brooks"]),
        ("E.Brooks", ["Ethan Brooks"]),
        ("E Brooks", ["Ethan Brooks"]),
        ("did J. Brooks agree", []),
        ("did X. Maya agree", []),
        ("did Ethan J. Brooks agree", ["Ethan Brooks"]),
        ("did Ethan B. agree", ["Ethan Brooks"]),
        ("did ethan b agree", ["Ethan Brooks"]),
        ("Brooks, Ethan", ["Ethan Brooks"]),
        ("ETHAN BROOKS", ["Ethan Brooks"]),
        ("Ms Patel", []),
        ("did Maya agree", ["Maya Patel"]),
        ("A. Patel", ["Aisha Patel"]),
        ("what did a. patel say", ["Aisha Patel"]),
        ("what did A Patel say", ["Aisha Patel"]),
        ("is there a patel here", []),
        ("Aisha Patel", ["Aisha Patel"]),
        ("Maya and Aisha Patel", ["Maya Patel", "Aisha Patel"]),
        ("Anna Schmidt", ["Anna Maria Schmidt"]),
        ("Anna M. Schmidt", ["Anna Maria Schmidt"]),
        ("Schmidt, Anna", ["Anna Maria Schmidt"]),
        ("Ethan Brooks and ethan and E. Brooks", ["Ethan Brooks"]),
        ("Nobody", []),
        ("", []),
    ],
)
def test_usual_forms_of_a_name(question: str, named: list[str]) -> None:
    assert found(PEOPLE, question) == named


@pytest.mark.parametrize(
    ("authors", "question", "named"),
    [
        (["ethan.brooks@helix.com"], "did Ethan agree", True),
        (["ethan.brooks@helix.com"], "ethan brooks", True),
        (["ethan.brooks@helix.com"], "did Helix agree", False),
        (["ethan_brooks"], "did Ethan agree", True),
        (["ethan-brooks"], "did ethan agree", True),
        (["ethan.brooks"], "E. Brooks", True),
        (["ebrooks"], "did Brooks agree", False),
        (["Ethan Brooks <ethan@helix.com>"], "Ethan Brooks", True),
        (["Ethan Brooks <ethan@helix.com>"], "did ethan agree", True),
        (["Brooks, Ethan"], "did Ethan agree", True),
        (["van Beethoven, Ludwig"], "Beethoven's ninth", True),
        (["Ethan Brooks, CFO"], "did Ethan agree", True),
        (["Ethan Brooks, CFO"], "did the CFO agree", False),
        (["Ethan Brooks (Finance)"], "did Ethan agree", True),
        (["Martin Luther Kling Jr."], "did Kling agree", True),
        (["Dr. Anil Rao"], "Dr. Rao", True),
        (["Dr. Rao"], "what did Rao say", True),
        (["Dr. Anil Rao"], "ask a dr", False),
        (["Liam O'Neil"], "what did O’Neil say", True),
        (["Liam O’Neil"], "L. O'Neil", True),
        (["Sara Al-Jabri"], "al-jabri's mail", True),
        (["Sara Al-Jabri"], "S. Al Jabri", True),
        (["Sara Al-Jabri"], "the Al project", False),
        (["Jean-Luc Picard"], "did jean luc agree", True),
        (["José Muñoz"], "what did munoz say", True),
        (["Jose Munoz"], "JOSÉ", True),
        (["Anna Sørensen"], "A. Sørensen", True),
        (["Иван Петров"], "что сказал Петров", True),
        (["田中 太郎"], "田中さん", False),
        (["田中 太郎"], "田中太郎さん", True),
        (["Finance Team"], "the finance plan", False),
        (["Vendor Board"], "which vendor", False),
        (["vendor-b"], "which vendor", False),
        (["Vega V2"], "which vega", False),
        (["night Kirov"], "last night", False),
        (["vpn@helix.com"], "the vpn", False),
        (["B. Stone"], "b stone", True),
        (["Eda B"], "the e b plan", False),
        (["E. Brooks"], "the e b plan", False),
        (["The Who"], "the who", False),
        (["The Who"], "about The Who", False),
        (["A. B. Carter"], "did a b test pass", False),
    ],
)
def test_labels_of_all_kinds(authors: list[str], question: str, named: bool) -> None:
    assert found(authors, question) == (authors if named else [])


@pytest.mark.parametrize(
    ("author", "question", "named"),
    [
        ("Will Smithson", "what will happen", False),
        ("Will Smithson", "Will it rain?", False),
        ("Will Smithson", "It rained. Will it stop?", False),
        ("Will Smithson", "what did Will say", True),
        ("Will Smithson", "Will's plan", True),
        ("Will Smithson", "WHAT WILL HAPPEN", False),
        ("Mark Twain", "mark the date", False),
        ("Mark Twain", "ask Mark", True),
        ("Mark Twain", "what did twain say", True),
        ("Rich Clay", "rich clay soil", True),  # the whole label stands there, as it does without names
        ("Rich A. Clay", "rich clay soil", False),
        ("Rich A. Clay", "did Rich Clay agree", True),
        ("Rich A. Clay", "Rich Clay agreed", True),
        ("Anna Best", "what is a best choice", False),
        ("Anna Best", "A best choice", False),
        ("Anna Best", "A. Best", True),
        ("Ian Grovers", "did I grovers", True),  # by the family name
        ("May Chen", "what happened in May", False),
        ("May Chen", "what happened between April and May", False),
        ("May Chen", "the May 2024 budget", False),
        ("May Chen", "the 3 May budget", False),
        ("May Chen", "May's budget", False),
        ("May Chen", "what did May say", True),
        ("May Chen", "did Ethan and May agree", True),
    ],
)
def test_names_that_are_words_need_to_be_written_as_names(author: str, question: str, named: bool) -> None:
    assert found([author], question) == ([author] if named else [])


@pytest.mark.parametrize(
    ("authors", "question", "named"),
    [
        (["Ethan Adams", "Ethan Brooks"], "did Ethan agree", []),
        (["Ethan Adams", "Ethan Brooks"], "did Ethan A. agree", ["Ethan Adams"]),
        (["Ethan Adams", "Ethan Brooks"], "did Ethan a week ago agree", []),
        (["Ian Grover", "Una Grover"], "should I grover it", []),
        (["Ian Grover", "Una Grover"], "should I Grover it", []),
        (["Anna Best", "Bob Best"], "A Best Choice", []),
        (["Anna Sørensen", "Bo Sørensen"], "did A. Sørensen agree", ["Anna Sørensen"]),
        (["Ethan Brooks", "Ethan Patel", "Maya Brooks"], "Brooks, Ethan", ["Ethan Brooks"]),
        (["Ian Grover", "Una Grover"], "I. Grover", ["Ian Grover"]),
        (["Maya Schmidt", "Anna Maria Schmidt"], "A. M. Schmidt", ["Anna Maria Schmidt"]),
        (["Ethan", "Ethan Brooks"], "did Ethan agree", ["Ethan"]),
        (["Ethan Brooks", "ethan.brooks@x.com"], "did Ethan agree", ["Ethan Brooks", "ethan.brooks@x.com"]),
        (["Ethan Brooks", "ethan.brooks@x.com"], "Ethan Brooks", ["Ethan Brooks", "ethan.brooks@x.com"]),
        (["Ethan Brooks", "Ethan J. Brooks"], "did Ethan agree", ["Ethan Brooks", "Ethan J. Brooks"]),
    ],
)
def test_a_form_of_two_people_names_neither(authors: list[str], question: str, named: list[str]) -> None:
    assert found(authors, question) == named


def test_tags_have_no_short_forms_and_longer_ones_take_their_words() -> None:
    assert found([], "ethan", ("Ethan Brooks",)) == []
    assert found(["Ethan Brooks"], "the Brooks River plan", ("brooks-river",)) == ["brooks-river"]
    assert found(["Ethan Brooks"], "the Brooks River plan, the Brooks River", ("brooks-river",)) == ["brooks-river"]
    assert found(["Maya Patel"], "the Maya road", ("maya-road", "maya")) == ["maya-road", "maya"]
    # A tag of the same words stands beside the author, one within a longer form does not keep the form from matching.
    assert found(["Anil Patel"], "did patel agree", ("patel",)) == ["Anil Patel", "patel"]
    assert found(["Anil Patel", "Maya Patel"], "did M. Patel agree", ("patel",)) == ["Maya Patel", "patel"]


def test_a_label_named_in_two_ways_counts_once() -> None:
    rows = [Row(["Ethan Brooks", "ETHAN BROOKS"]), Row(["Ethan Brooks"], ["vpn"])]
    index = index_of(rows)
    for question in ("Ethan", "Ethan Brooks and Ethan", "E. Brooks, Ethan"):
        matched, n_labels = counted(index.matching(question, everything(rows), names=True))
        assert (matched.tolist(), n_labels.tolist()) == ([0, 1], [1, 1])
    matched, n_labels = counted(index.matching("Ethan's VPN", everything(rows), names=True))
    assert (matched.tolist(), n_labels.tolist()) == ([0, 1], [1, 2])
    ranking = index.rank("Ethan's VPN", everything(rows), 10, names=True)
    assert ranking.row_ids.tolist() == [1, 0]
    assert ranking.scores.tolist() == [2 + np.log(2) / (1 + np.log(2)), 1.0]


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (Row(["ethan brooks"]), Row(["Ethan Brooks"])),  # the same words, of which only the second is a name
        (Row(tags=["Ethan Brooks"]), Row(["Ethan Brooks"])),
        (Row(["Ethan Brooks"]), Row(["Ethan Adams"])),
        (Row(["Ethan Brooks"]), Row(tags=["ethan"])),
        (Row(["Ethan Brooks"]), Row(["Ethan"])),
        (Row(["Brooks Ethan"]), Row(["Brooks, Ethan"])),
    ],
)
def test_rows_out_of_scope_give_and_take_no_form(inside: Row, outside: Row) -> None:
    for question in ("did Ethan agree", "E. Brooks", "Ethan B.", "B. Ethan"):
        alone = index_of([inside]).matching(question, np.array([True]), names=True).row_ids.tolist()
        for rows, allowed, place in (([inside, outside], [True, False], 0), ([outside, inside], [False, True], 1)):
            index = index_of(rows)
            matched = index.matching(question, np.array(allowed), names=True).row_ids.tolist()
            assert matched == [place for _ in alone]
            if place == 0:
                assert index.matching(question, np.array([True]), names=True).row_ids.tolist() == alone


# --- against a full scan ------------------------------------------------------------------------------------------

# Names of which no part is an English word, so that the reference needs no sense of how the question is written.
GIVEN = ["Ethan", "Maya", "Bela", "Jean-Luc", "José"]
MIDDLE = ["", "", "Kira", "Luc"]
FAMILY = ["Patel", "O'Neil", "Maya", "Kirov"]
AUTHORS = st.one_of(
    st.tuples(st.sampled_from(GIVEN), st.sampled_from(MIDDLE), st.sampled_from(FAMILY)).map(
        lambda parts: " ".join(filter(None, parts))
    ),
    st.sampled_from(["Ethan", "patel", "ethan patel", "Patel, Maya", "maya.patel@x.com", "Data Team", "田中", "the"]),
)
TAGS = st.sampled_from(["ethan", "bela", "bela patel", "patel kirov", "Maya Patel", "k", "vpn", "the", ""])
ROWS = st.lists(st.builds(Row, st.lists(AUTHORS, max_size=2), st.lists(TAGS, max_size=2)), min_size=1, max_size=7)
ASKED = ["Ethan", "Maya", "Bela", "jean-luc", "jose", "Patel", "o'neil", "Kirov", "Kira", "luc", "e", "m", "k", "p",
         "b", "j", "vpn", "the", "田中", "x com", "data", "and"]  # fmt: skip
QUESTIONS = st.lists(st.sampled_from(ASKED), max_size=8).map(" ".join)


def forms_of(author: str) -> list[str]:
    """The forms of an author of these worlds, person first; written down from the rules, not from the code."""
    if author in ("patel", "Ethan", "ethan patel", "田中", "the", "Data Team"):
        return []
    if author == "Patel, Maya" or "@" in author:
        author = "Maya Patel"
    given, *middle, family = (" ".join(words(part)) for part in author.split(" "))
    forms = [f"{given} {family}", f"{family} {given}", given, family, f"{given[0]} {family}", f"{given} {family[0]}"]
    if middle:
        forms += [f"{given} {middle[0]} {family}", f"{given} {middle[0][0]} {family}"]
        forms += [f"{given[0]} {middle[0][0]} {family}"]
    return forms


def scan(rows: list[Row], question: str, allowed: list[bool]) -> dict[int, set[str]]:
    """Row → the labels, as words, that are named: by trying all spans of the question on all authors in scope."""
    asked = words(question)
    in_scope = [row for row, permitted in enumerate(allowed) if permitted]
    spans = [(start, end) for start in range(len(asked)) for end in range(start + 1, len(asked) + 1)]
    text = {(start, end): " ".join(asked[start:end]) for start, end in spans}
    labels = {" ".join(words(label)) for row in in_scope for label in (*rows[row].authors, *rows[row].tags)}
    labels = {label for label in labels if label and not STOP_WORDS.issuperset(label.split(" "))}
    people: dict[str, dict[str, set[str]]] = {}  # form → person → spellings
    for author in {author for row in in_scope for author in rows[row].authors}:
        forms = forms_of(author)
        key = " ".join(words(author))
        for form in (*forms, *([key] if key in labels else [])):
            people.setdefault(form, {}).setdefault(forms[0] if forms else key, set()).add(author)
    taken: set[int] = set()
    spellings: set[str] = set()
    for size in range(len(asked), 0, -1):
        of_size = [span for span in spans if span[1] - span[0] == size]
        in_full = [span for span in of_size if text[span] in labels]
        open_before = set(taken)
        for span in in_full:
            taken |= set(range(*span))
        for span in of_size:
            against = open_before if span in in_full else taken
            if text[span] in people and against.isdisjoint(range(*span)):
                taken |= set(range(*span))
                if len(people[text[span]]) == 1:
                    (named,) = people[text[span]].values()
                    spellings |= named
    named_in_full = {text[span] for span in spans if text[span] in labels}
    matching: dict[int, set[str]] = {}
    for row in in_scope:
        keys = {" ".join(words(label)) for label in (*rows[row].authors, *rows[row].tags)} & named_in_full
        keys |= {" ".join(words(author)) for author in rows[row].authors if author in spellings}
        if keys:
            matching[row] = keys
    return matching


def expected_ranking(matching: dict[int, set[str]], n_allowed: int) -> list[tuple[int, float]]:
    frequency: dict[str, int] = {}
    for keys in matching.values():
        for key in keys:
            frequency[key] = frequency.get(key, 0) + 1
    found = []
    for row, keys in matching.items():
        rarity = 0.0
        for count in sorted((frequency[key] for key in keys), reverse=True):
            rarity += float(np.log(n_allowed / count))
        found.append((len(keys), rarity, row))
    found.sort(reverse=True)
    return [(row, count + rarity / (1 + rarity)) for count, rarity, row in found]


@settings(max_examples=600)
@given(rows=ROWS, later=ROWS, question=QUESTIONS, data=st.data())
def test_equals_a_full_scan_whatever_lies_outside_the_scope(
    rows: list[Row], later: list[Row], question: str, data: st.DataObject
) -> None:
    allowed = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    matching = scan(rows, question, allowed)
    index = index_of(rows)
    scope = np.array(allowed)
    for step in range(3):
        matched, n_labels = counted(index.matching(question, scope, names=True))
        assert matched.dtype == n_labels.dtype == np.int64
        assert dict(zip(matched.tolist(), n_labels.tolist(), strict=True)) == {r: len(k) for r, k in matching.items()}
        assert matched.tolist() == sorted(matching)
        ranking = index.rank(question, scope, 50, names=True)
        expected = expected_ranking(matching, sum(allowed))
        assert ranking.row_ids.tolist() == [row for row, _ in expected]
        assert ranking.scores.tolist() == pytest.approx([score for _, score in expected], abs=1e-12)
        best = index.rank(question, scope, 2, names=True)
        assert best.row_ids.tolist() == ranking.row_ids.tolist()[:2]
        if step == 0:
            add(index, later)
        else:
            scope = np.array(allowed + [False] * len(later))
    # Names only add: what labels in full match is matched still.
    plain, n_plain = counted(index.matching(question, scope))
    assert set(plain.tolist()) <= set(matching)
    assert all(count <= len(matching[row]) for row, count in zip(plain.tolist(), n_plain.tolist(), strict=True))


@given(rows=ROWS, question=QUESTIONS)
def test_without_names_authors_are_labels_like_any_other(rows: list[Row], question: str) -> None:
    noted, plain = index_of(rows), TagIndex()
    plain.add([[*row.authors, *row.tags] for row in rows])
    expected, ranking = plain.rank(question, everything(rows), 9), noted.rank(question, everything(rows), 9)
    assert ranking.row_ids.tolist() == expected.row_ids.tolist()
    assert ranking.scores.tolist() == expected.scores.tolist()
    matched, _ = counted(noted.matching(question, everything(rows)))
    assert matched.tolist() == sorted(expected.row_ids.tolist())
    assert noted.matched_labels(question) == plain.matched_labels(question)
    # With no author noted, names make no difference.
    assert plain.rank(question, everything(rows), 9, names=True).row_ids.tolist() == expected.row_ids.tolist()


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_an_author_and_a_question(author: str, question: str) -> None:
    forms = short_forms(author)
    assert all(form and form == " ".join(form.split()) for form in forms)
    rows = [Row([author])]
    index = index_of(rows)
    assert index.matching(question, everything(rows), names=True).row_ids.tolist() in ([], [0])
    for form in forms:
        assert re.fullmatch(r"\S+( \S+)*", form)
    labels = [label for label in (author,) if words(label) and not STOP_WORDS.issuperset(words(label))]
    if labels and len(words(author)) <= 16:
        assert index.matching(author, everything(rows), names=True).row_ids.tolist() == [0]


# --- as part of a store -------------------------------------------------------------------------------------------


def test_a_store_knows_its_authors_after_opening_again(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("mempp.caching.WORTH_ROWS", 1)
    restored = []
    restore = Projection.restore

    def noted(self: Projection, lexical: object, tags: TagIndex) -> None:
        restored.append(len(tags))
        restore(self, lexical, tags)  # type: ignore[arg-type]

    monkeypatch.setattr(Projection, "restore", noted)
    path = tmp_path / "store"

    def named(memory: mempp.Memory, n_rows: int) -> list[int]:
        tags = memory._projection.indexes.tags
        matched: list[int] = tags.matching("did Ethan agree", np.ones(n_rows, np.bool_), names=True).row_ids.tolist()
        return matched

    documents = [{"text": f"note {n}", "author": ["Ethan Brooks", "Maya Patel"][n % 2]} for n in range(8)]
    with mempp.open(path, encoder=None) as memory:
        memory.add_many(documents[:5])
        memory.add_many(documents[5:])
        assert named(memory, 8) == [0, 2, 4, 6]
    for _ in range(2):
        with mempp.open(path, encoder=None) as memory:
            assert named(memory, 8) == [0, 2, 4, 6]
            memory.add("note 8", author="Ethan Brooks", tags=["vpn"])
            assert named(memory, 9) == [0, 2, 4, 6, 8]
    with mempp.open(path, encoder=None) as memory:
        memory.add("note 9", author="Ethan Adams")
        assert named(memory, 10) == []
        assert named(memory, 9) == [0, 2, 4, 6, 8]
    assert restored[0] == 8


def test_many_threads_ask_while_one_adds() -> None:
    chance = random.Random(8)
    names = [f"{first} {last}" for first in ("Ethan", "Maya", "Bela", "Kira") for last in ("Patel", "Kirov", "Luc")]
    names += [f"{a}{b}en Patel" for a in "BDFGKLMNPRST" for b in "aeiou"]
    rows = [Row([chance.choice(names[: 4 + n // 5])], ["vpn"] * (n % 2)) for n in range(900)]
    questions = ["did Ethan agree", "Patel", "B. Patel on the VPN", "Kirov and Maya"]
    scope = np.random.default_rng(2).random(len(rows)) < 0.02
    sizes = range(30, len(rows) + 1, 30)

    def answer(index: TagIndex, size: int, question: str) -> list[int]:
        matched: list[int] = index.matching(question, scope[:size], names=True).row_ids.tolist()
        return matched

    expected = {(n, question): answer(index_of(rows[:n]), n, question) for n in sizes for question in questions}
    assert sum(map(len, expected.values())) > 150
    index, added, answers, faults = TagIndex(), 0, 0, []
    done = threading.Event()

    def ask(seed: int) -> None:
        nonlocal answers
        chance = random.Random(seed)
        try:
            while not done.is_set() or answers < 20:
                known = [size for size in sizes if size <= added]
                for size in known[-1:] + chance.choices(known, k=1) if known else []:
                    question = chance.choice(questions)
                    if answer(index, size, question) != expected[size, question]:
                        faults.append((size, question))
                    answers += 1
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for start in range(0, len(rows), 30):
            add(index, rows[start : start + 30])
            added = start + 30
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert faults == []
    assert answers >= 20


def test_a_form_of_many_people_is_of_the_one_in_scope() -> None:
    rows = [Row([f"{a}{b}{c}en Patel", "Data Team"]) for a in "BDFGKL" for b in "aeiou" for c in "lmnr"]
    index = index_of(rows)
    for number in range(len(rows)):
        allowed = np.zeros(len(rows), np.bool_)
        allowed[number] = True
        assert index.matching("did Patel agree", allowed, names=True).row_ids.tolist() == [number]
        allowed[(number + 9) % len(rows)] = True
        assert index.matching("did Patel agree", allowed, names=True).row_ids.tolist() == []


# --- huge ---------------------------------------------------------------------------------------------------------


def seconds(index: TagIndex, question: str, allowed: np.ndarray) -> float:
    start = time.process_time()
    index.matching(question, allowed, names=True)
    return time.process_time() - start


@pytest.mark.parametrize("kind", ["full", "forms", "will", "initials", "ambiguous", "apart"])
def test_a_long_question_costs_in_proportion_to_its_length(kind: str) -> None:
    """Four times the text and four times the names in it: a quadratic step would take 16 times as long."""
    chance = random.Random(5)
    names = [f"{''.join(chance.choices('bcdfgk', k=6)).title()} {''.join(chance.choices('lmnprt', k=6)).title()}"
             for _ in range(2_000)]  # fmt: skip
    rows = [Row([name]) for name in [*names, "Will Smith", "Ann Patel", "Abe Patel"]]
    index, allowed = index_of(rows), everything(rows)

    def question(size: int) -> str:
        some = names[:size]
        return {
            "full": " ".join(some * 5) + " filler" * (20 * size),
            "forms": " ".join(name.split()[1] for name in some * 20),
            "will": "will " * (40 * size),
            "initials": " ".join(f"a {name.split()[1]}" for name in some * 10),
            "ambiguous": "a patel " * (20 * size),
            "apart": "." * (80 * size) + " Will ",
        }[kind]

    index.matching(question(100), allowed, names=True)
    small = min(seconds(index, question(500), allowed) for _ in range(3))
    large = min(seconds(index, question(2_000), allowed) for _ in range(3))
    assert large < 9 * small + 0.02


def test_a_question_of_a_megabyte_is_answered_in_proportion() -> None:
    rows = [Row([name]) for name in (*PEOPLE, "Will Smith", "Ann Patel", "Abe Patel")]
    index, allowed = index_of(rows), everything(rows)
    for words_of_it in ("Ethan Brooks ", "a patel ", "A. ", "Will "):
        small, large = (
            min(seconds(index, (words_of_it * size)[:size], allowed) for _ in range(3)) for size in (125_000, 1_000_000)
        )
        assert large < 24 * small + 0.05  # eight times the text; a quadratic step would take 64 times as long


def test_many_spellings_of_one_person_are_noted_in_proportion() -> None:
    """Eight times the spellings: a quadratic step would take 64 times as long."""

    def noted(size: int) -> float:
        rows = [Row([f"Slack Bridge <u{number}@x.com>"]) for number in range(size)]
        start = time.process_time()
        index = index_of(rows)
        spent = time.process_time() - start
        assert len(index.matching("what did Slack Bridge say", everything(rows), names=True).row_ids) == size
        return spent

    small, large = min(noted(1_500) for _ in range(3)), noted(12_000)
    assert large < 24 * small + 0.05


@pytest.mark.parametrize("name", ["orgmembench", "locomo", "longmemeval"])
def test_presets_know_no_short_forms(name: str) -> None:
    with mempp.in_memory(encoder="none") as memory:
        for number, author in enumerate(("Ethan Brooks", "Maya Patel")):
            memory.add(f"note {number}", author=author)
        for question, n_tagged in (("did Ethan agree", 0), ("did Ethan Brooks agree", 1)):
            hits = memory.recall(question, settings=mempp.preset(name))
            legs = [leg.leg for hit in hits for leg in hit.explain().legs]
            assert legs.count("tags") == n_tagged
        default = memory.recall("did Ethan agree")
        assert [leg.leg for hit in default for leg in hit.explain().legs].count("tags") == 1
