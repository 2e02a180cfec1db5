"""BM25 worked by hand, held against a full scan and against Tantivy; languages; syntax that is none."""

import math
import random
from typing import Any, Literal

import numpy as np
import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from mempp.errors import InputError
from mempp.indexes import LexicalIndex, Ranking, asked, bm25, postings
from mempp.indexes.analysis import question_terms, terms
from mempp.indexes.postings import Postings

Mode = Literal["any", "all"]


def index_of(texts: list[str]) -> LexicalIndex:
    index = LexicalIndex()
    index.add(texts)
    return index


def everything(n: int) -> np.ndarray:
    return np.ones(n, np.bool_)


def pairs(ranking: Ranking) -> list[tuple[int, float]]:
    return list(zip(ranking.row_ids.tolist(), ranking.scores.tolist(), strict=True))


def scan(texts: list[list[str]], question: str, allowed: list[bool], limit: int, mode: Mode) -> list[tuple[int, float]]:
    """Every row looked at, with dictionaries and loops; `texts` are analysed already."""
    asked = question_terms(question)
    rows = [row for row in range(len(allowed)) if allowed[row]]
    if not rows or not asked:
        return []
    frequency = {term: sum(1 for row in rows if term in texts[row]) for term in asked}
    mean = sum(len(texts[row]) for row in rows) / len(rows)
    asked.sort(key=frequency.__getitem__)  # sums are taken from the heaviest term to the lightest
    scored = []
    for row in rows:
        held = [term for term in asked if term in texts[row]]
        if not held or (mode == "all" and len(held) < len(asked)):
            continue
        score = 0.0
        for term in held:
            idf = math.log(1 + (len(rows) - frequency[term] + 0.5) / (frequency[term] + 0.5))
            tf = float(texts[row].count(term))
            score += idf * (1.2 + 1) * tf / (tf + 1.2 * (1 - 0.75 + 0.75 * (len(texts[row]) / mean)))
        scored.append((row, score))
    scored.sort(key=lambda pair: (-pair[1], -pair[0]))
    return scored[:limit]


def test_three_documents_by_hand() -> None:
    index = index_of(["apple banana", "apple apple cherry", "durian"])
    # N = 3, mean length 2. apple: df 2, idf ln(1 + 1.5 / 2.5) = ln 1.6. banana: df 1, idf ln(1 + 2.5 / 1.5) = ln(8/3).
    # Row 0: tf 1, length 2, so tf / (tf + 1.2 · 1) = 1 / 2.2; times 2.2: 1. Both terms: ln 1.6 + ln(8/3).
    # Row 1: tf 2, length 3, norm 1.2 · (0.25 + 0.75 · 1.5) = 1.65; 2.2 · 2 / 3.65.
    ranking = index.rank("apple banana", everything(3), 10)
    assert ranking.row_ids.tolist() == [0, 1]
    assert ranking.scores.tolist() == pytest.approx([math.log(1.6) + math.log(8 / 3), math.log(1.6) * 4.4 / 3.65])
    assert index.rank("apple banana", everything(3), 10, "all").row_ids.tolist() == [0]
    # Without row 1 in scope: N = 2, apple df 1, mean length 1.5.
    scoped = index.rank("apple", np.array([True, False, True]), 10)
    assert scoped.row_ids.tolist() == [0]
    assert scoped.scores.tolist() == pytest.approx([math.log(2) * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / 1.5))])


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    chance = random.Random(7)
    vocabulary = [f"term{number}x" for number in range(400)]
    weights = [1 / (rank + 1) for rank in range(400)]
    return [" ".join(chance.choices(vocabulary, weights, k=chance.randint(0, 12))) for _ in range(5_000)]


@pytest.mark.parametrize("by_looking_up", [0, 2, 8, 1_000_000], ids=["always", "soon", "as it is", "never"])
def test_equals_a_full_scan_in_200_random_scopes(
    corpus: list[str], monkeypatch: pytest.MonkeyPatch, by_looking_up: int
) -> None:
    looked_up: list[int] = []

    def look_up(holding: Any, rows: Any) -> Any:
        looked_up.append(len(rows))
        return asked.looked_up(holding, rows)

    monkeypatch.setattr(bm25, "looked_up", look_up)
    monkeypatch.setattr(bm25, "_BY_LOOKING_UP", by_looking_up)
    monkeypatch.setattr(bm25, "_BLOCK", 700)  # several blocks, the last one short
    monkeypatch.setattr(postings, "_SMALLEST_MERGE", 10_000)  # merged arrays and tails
    monkeypatch.setattr(postings, "_LARGEST_BLOCK", 5_000)
    index = index_of(corpus[:4_000])
    index.add(corpus[4_000:])
    assert len(index._postings._state.blocks) > 3
    assert index._postings._in_arrays
    assert index._postings._in_tails
    analysed = [terms(text) for text in corpus]
    chance = np.random.default_rng(3)
    some = 0
    for number in range(200):
        n_rows = int(chance.integers(1, 5_001)) if number % 2 else 5_000
        allowed = chance.random(n_rows) < chance.choice([0.001, 0.02, 0.3, 1.0])
        question = " ".join(f"term{int(400 * chance.random() ** 3)}x" for _ in range(chance.integers(1, 6)))
        limit = int(chance.choice([1, 10, 50, 6_000]))
        for mode in ("any", "all"):
            expected = scan(analysed, question, allowed.tolist(), limit, mode)
            assert pairs(index.rank(question, allowed, limit, mode)) == expected  # scores to the last bit
            some += len(expected)
    assert some > 10_000
    assert (len(looked_up) > 100) == (by_looking_up < 1_000_000)


def test_scores_are_those_of_tantivy(corpus: list[str]) -> None:
    """Over the whole index and documents shorter than 40 terms, whose lengths Tantivy keeps exactly."""
    texts = [text for text in corpus if text][:1_000]
    schema = tantivy.SchemaBuilder()
    schema.add_integer_field("row", stored=True)
    schema.add_text_field("text", tokenizer_name="whitespace")
    theirs = tantivy.Index(schema.build())
    writer = theirs.writer(num_threads=1)
    for row, text in enumerate(texts):
        writer.add_document(tantivy.Document(row=row, text=" ".join(terms(text))))
    writer.commit()
    writer.wait_merging_threads()
    theirs.reload()
    searcher = theirs.searcher()
    assert searcher.num_segments == 1
    ours = index_of(texts)
    for question in ("term0x", "term3x term40x", "term1x term2x term5x term100x"):
        parts = [
            (tantivy.Occur.Should, tantivy.Query.term_query(theirs.schema, "text", term))
            for term in question_terms(question)
        ]
        hits = searcher.search(tantivy.Query.boolean_query(parts), limit=2_000).hits
        expected = {searcher.doc(address)["row"][0]: score for score, address in hits}
        ranking = dict(pairs(ours.rank(question, everything(len(texts)), 2_000)))
        assert len(expected) > 10
        assert ranking == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("董事会决定更换供应商，VPN将于六月更新。", "供应商 更新"),
        ("董事会决定更换供应商", "更"),
        ("新しいネットワークの導入を決定した", "ネットワーク"),
        ("ﾈｯﾄﾜｰｸを導入", "ネットワーク"),
        ("회의에서 공급업체를 변경하기로 했다", "공급업체"),
        ("ที่ประชุมอนุมัติผู้ขายรายใหม่", "ผู้ขาย"),
        ("बोर्ड ने नए विक्रेता को मंज़ूरी दी", "विक्रेता"),
        ("وافَقَ المَجلِسُ على المُوَرِّد", "المورد"),
        ("הַדִּירֶקְטוֹרְיוֹן אִשֵּׁר", "הדירקטוריון"),
        ("Το συμβούλιο ενέκρινε τον ΠΡΟΜΗΘΕΥΤΉ", "προμηθευτη"),
        ("Совет утвердил нового поставщика Орёл", "ОРЕЛ"),
        ("Launched 🚀 today", "launch 🚀"),
        ("Patch CVE-2023-1234 now", "cve-2023-1234?"),
        ("Mail from ann.lee@example.com", "ann.lee@example.com"),
        ("Le résumé du café", "RESUME cafe"),
        ("Meeting in Zu\u0308rich", "Zürich"),
        ("The vendors’ gateways", "gateway vendor"),
    ],
)
def test_languages_and_identifiers(text: str, question: str) -> None:
    index = index_of(["unrelated words", text, "something else"])
    for mode in ("any", "all"):
        assert index.rank(question, everything(3), 10, mode).row_ids.tolist() == [1], mode


@pytest.mark.parametrize(
    "question",
    ['vendor AND "b', "+vendor -b", "vendor:b", "(vendor", "vendor*", "vendor~2^3", "[vendor TO b]", "\\vendor\x00/ b",
     "vendor\ud800b", "'; DROP TABLE vendor; --", "vendor NOT b OR"],
)  # fmt: skip
def test_a_question_has_no_syntax(question: str) -> None:
    index = index_of(["vendor b", "vendor", "table to"])
    assert set(index.rank(question, everything(2), 10).row_ids.tolist()) == {0, 1}


@pytest.mark.parametrize("question", ["", "  ", "what is it", "?!", "🚀", "\ud800", "unknown"])
def test_a_question_without_known_content_words_finds_nothing(question: str) -> None:
    index = index_of(["what is it", "vendor 🚀"])
    for mode in ("any", "all"):
        assert len(index.rank(question, everything(2), 10, mode)) == 0


def test_edges() -> None:
    empty = LexicalIndex()
    assert len(empty.rank("vendor", everything(0), 10)) == 0
    assert len(empty.rank("vendor", everything(5), 10)) == 0
    index = index_of(["", "", "vendor"])
    assert len(index) == 3
    assert len(index.rank("vendor", np.zeros(3, np.bool_), 10)) == 0
    assert len(index.rank("vendor", everything(2), 10)) == 0  # only empty texts in scope
    assert len(index.rank("vendor", everything(3), 0)) == 0
    assert index.rank("vendor", everything(9), 10).row_ids.tolist() == [2]
    with pytest.raises(InputError, match="'some'"):
        index.rank("vendor", everything(3), 10, "some")  # type: ignore[arg-type]


def test_ties_go_to_later_rows() -> None:
    index = index_of(["vendor b", "b vendor", "vendor c", "vendor b"])
    ranking = index.rank("vendor b", everything(4), 2)
    assert ranking.row_ids.tolist() == [3, 1]
    assert ranking.scores[0] == ranking.scores[1]


def test_a_text_of_five_megabytes() -> None:
    index = index_of(["short vendor", "filler text " * 430_000 + "needle"])
    assert index.rank("needle", everything(2), 5).row_ids.tolist() == [1]
    assert index.rank("needle filler", everything(2), 5, "all").row_ids.tolist() == [1]


WORDS = st.lists(st.sampled_from(["red", "green", "blue", "grey", "更新"]), max_size=6).map(" ".join)


@settings(max_examples=200, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=12), st.lists(WORDS, max_size=12), WORDS, st.data())
def test_later_rows_change_nothing(texts: list[str], later: list[str], question: str, data: st.DataObject) -> None:
    allowed = data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    index = index_of(texts)
    for mode in ("any", "all"):
        before = pairs(index.rank(question, np.array(allowed), 5, mode))
        assert before == scan([terms(text) for text in texts], question, allowed, 5, mode)
    before_any = pairs(index.rank(question, np.array(allowed), 5))
    index.add(later)
    assert pairs(index.rank(question, np.array(allowed), 5)) == before_any
    longer = np.array(allowed + [False] * len(later))
    assert pairs(index.rank(question, longer, 5)) == before_any


@settings(max_examples=100, deadline=None)
@given(st.lists(WORDS, max_size=30), st.lists(st.integers(0, 30), max_size=4), WORDS)
def test_freezing_and_keeping_the_arrays_change_nothing(texts: list[str], freezes: list[int], question: str) -> None:
    plain, frozen = LexicalIndex(), LexicalIndex()
    for number, text in enumerate(texts):
        plain.add([text])
        frozen.add([text])
        if number in freezes:
            frozen = LexicalIndex.from_arrays(frozen.arrays())
    for mode in ("any", "all"):
        expected = pairs(plain.rank(question, everything(len(texts)), 10, mode))
        assert pairs(frozen.rank(question, everything(len(texts)), 10, mode)) == expected
    assert len(frozen._postings) == len(plain._postings) == sum(len(set(terms(text))) for text in texts)


def test_the_kept_arrays_take_five_bytes_a_posting(corpus: list[str]) -> None:
    index = index_of(corpus)
    arrays = index.arrays()
    assert sum(piece.nbytes for name in ("rows", "counts") for piece in arrays[name]) == 5 * len(index._postings)
    reopened = LexicalIndex.from_arrays({name: values.copy() for name, values in arrays.items()})
    reopened.add(["term0x only"])
    assert len(reopened) == 5_001
    assert reopened.rank("only term0x", everything(5_001), 1).row_ids.tolist()


@pytest.mark.parametrize("damage", ["terms", "offsets", "rows", "counts", "lengths", "beyond", "terms twice"])
def test_arrays_that_do_not_fit_are_refused(damage: str) -> None:
    arrays = index_of(["vendor b", "vendor c"]).arrays()
    if damage == "beyond":
        arrays["lengths"] = arrays["lengths"][:1]
    elif damage == "terms twice":
        arrays["terms"] = np.frombuffer(b"vendor\nb\nb", np.uint8)
    elif damage == "lengths":
        del arrays["lengths"]
    else:
        arrays[damage] = arrays[damage][:-2]
    with pytest.raises(InputError, match=r"build"):
        LexicalIndex.from_arrays(arrays)


def test_postings_of_an_unknown_term_are_empty() -> None:
    rows, counts = Postings().find("nothing", 5)
    assert len(rows) == len(counts) == 0


def test_a_merge_in_the_middle_of_a_look_up_changes_nothing() -> None:
    """As when another thread adds: whatever the reader took hold of first stays as it is."""
    ours = Postings()
    for row in range(5):
        ours.add(row, {"vendor": row + 1})

    class Interrupted(dict[str, int]):
        def get(self, term: str, default: int | None = None) -> int | None:  # type: ignore[override]
            ours.freeze()
            ours.add(5, {"vendor": 9, "new": 1})
            return super().get(term, default)

    ours._numbers = Interrupted(ours._numbers)
    rows, counts = ours.find("vendor", 5)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert counts.tolist() == [1, 2, 3, 4, 5]
