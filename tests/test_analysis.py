"""What terms a text has: scripts, accents, contractions, and that a question meets its document."""

import unicodedata

import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from mempp.indexes import analysis
from mempp.indexes.analysis import LONGEST_TERM, question_terms, term_counts, terms, words
from mempp.indexes.folding import fold
from mempp.indexes.stopwords import STOP_WORDS

ANY_TEXT = st.text(st.characters(), max_size=60)  # lone surrogates among them


@pytest.mark.parametrize(
    ("spelling", "folded"),
    [
        ("Café", "cafe"),
        ("Cafe\u0301", "cafe"),
        ("ＶＰＮ２０２４", "vpn2024"),
        ("İstanbul", "istanbul"),
        ("Straße", "strasse"),
        ("ﬁne", "fine"),
        ("Ἀθῆναι", "αθηναι"),
        ("ΟΔΌΣ", "οδοσ"),
        ("οδός", "οδοσ"),
        ("ᾳ", "α"),
        ("Ёлка", "елка"),
        ("за\u0301мок", "замок"),
        ("мой", "мой"),
        ("мои\u0306", "мой"),
        ("Її", "її"),
        ("שָׁלוֹם", "שלום"),
        ("مُحَمَّد", "محمد"),
        ("أَحْمَد", "احمد"),
        ("مـــرحبا", "مرحبا"),
        ("٢٠٢٤", "2024"),
        ("२०२४", "2024"),
        ("हिन्दी", "हिन्दी"),
        ("ｶﾞ", "ガ"),
        ("か\u3099", "が"),
        ("한국", "한국"),
        (unicodedata.normalize("NFD", "한국"), "한국"),
        ("ก่า", "ก่า"),
        ("don’t", "don't"),
        ("co\u00adoperate é", "cooperate e"),
        ("☎\ufe0f", "☎"),
        ("é\ud800x", "e x"),
    ],
)
def test_spellings_fold_to_one(spelling: str, folded: str) -> None:
    assert fold(spelling) == folded


@given(ANY_TEXT)
def test_canonically_equal_texts_fold_alike_and_folding_twice_changes_nothing(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    once = fold("é" + text)
    assert fold("é" + unicodedata.normalize("NFD", text)) == once
    assert fold(once) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The committees approved Vendor D.", ["committe", "approv", "vendor", "d"]),
        ("CVE-2023-1234", ["cve", "2023", "1234"]),
        ("anna.k@example.com wrote_to", ["anna", "k", "exampl", "com", "wrote"]),
        ("Don't, don’t, DON'T, dont, isn't", []),
        ("won't haven’t", []),
        ("Who won the haven?", ["won", "haven"]),
        ("We've I'd I'm they’re it's she'll", []),
        ("the board’s decision", ["board", "decis"]),
        ("Ｔｈｅ ＶＰＮ", ["vpn"]),
        ("smørrebrød", ["smorrebrod"]),
        ("👍🏽 🎉 1️⃣", ["1"]),
        ("更", ["更"]),
        ("更新", ["更", "新", "更新"]),
        ("VPN更新2024", ["vpn", "2024", "更", "新", "更新"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("ภาษา", ["ภ", "า", "ษ", "า", "ภา", "าษ", "ษา"]),
        ("", []),
        (" \t\n.,;", []),
        ("\ud800", []),
        ("x" * LONGEST_TERM, ["x" * LONGEST_TERM]),
        ("x" * (LONGEST_TERM + 1), []),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("更", ["更"]),
        ("更新", ["更新"]),
        ("VPN更新VPN 2024更新", ["vpn", "2024", "更新"]),
        ("회의에서", ["회의", "의에", "에서"]),
        ("vendor b vendor B vendors", ["vendor", "b"]),
        ("What is it and who are they?", []),
    ],
)
def test_question_terms(question: str, expected: list[str]) -> None:
    assert question_terms(question) == expected


@settings(max_examples=300)
@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_a_question_cut_out_between_spaces_asks_only_for_terms_of_its_document(before: str, q: str, after: str) -> None:
    assert set(question_terms(q)) <= set(terms(f"{before} {q} {after}"))


@given(st.text("在庫の確認会議を", min_size=2, max_size=12), st.data())
def test_any_part_of_an_unspaced_run_is_found(run: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(run) - 1))
    end = data.draw(st.integers(begin + 1, len(run)))
    assert set(question_terms(run[begin:end])) <= set(terms(run))


@given(st.text(st.characters(max_codepoint=127), max_size=80))
def test_the_fast_way_for_ascii_gives_the_same_terms(text: str) -> None:
    ascii_way, any_way, _ = analysis._analyzers()
    assert ascii_way.analyze(text) == any_way.analyze(text)


def test_every_stop_word_is_dropped_and_tantivys_own_are_among_them() -> None:
    for word in sorted(STOP_WORDS):
        assert terms(word) == question_terms(word.upper()) == [], word
    english = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.stopword("english")).build()
    theirs = (
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
        "this to was will with"
    )
    assert english.analyze(theirs) == []
    assert terms(theirs) == []


def test_words_keep_stop_words_and_cut_unspaced_scripts_into_characters() -> None:
    assert words("The Vendor-B’s 更新, don't") == ["the", "vendor", "b", "更", "新", "dont"]


def test_long_texts_are_analysed_in_pieces_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The Café’s vendor approved 更新。在庫確認, e\u0301 and don't " * 40
    whole = term_counts(text)
    for size in (1, 7, 100):
        monkeypatch.setattr(analysis, "_PIECE", size)
        assert term_counts(text) == whole


def test_a_run_of_marks_takes_no_quadratic_time_and_loses_no_letters() -> None:
    # Sorting 400,000 alternating marks as one run would take minutes.
    assert terms("zalgo" + "\u0301\u0316" * 200_000 + " end") == ["zalgo", "end"]


def test_five_million_characters() -> None:
    counts = term_counts("Vendor B delivered the gateway. " * 160_000)
    assert counts == {"vendor": 160_000, "b": 160_000, "deliv": 160_000, "gateway": 160_000}
