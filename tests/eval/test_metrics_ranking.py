"""Recall, reciprocal rank and nDCG by hand and against trec_eval; coverage by its definition."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eval.metrics.ranking import coverage, ndcg_at, recall_at, reciprocal_rank

documents = st.sampled_from([f"D{number}" for number in range(30)])
rankings = st.lists(documents, unique=True, max_size=30)
golds = st.sets(documents, min_size=1, max_size=12)
DEPTHS = (1, 2, 3, 5, 10, 20, 50)


def test_by_hand():
    ranked, gold = ["c", "a", "d", "b"], ["a", "b", "x"]
    assert recall_at(ranked, gold, 1) == 0
    assert recall_at(ranked, gold, 2) == pytest.approx(1 / 3)
    assert recall_at(ranked, gold, 50) == pytest.approx(2 / 3)
    assert reciprocal_rank(ranked, gold) == 1 / 2
    # gold at ranks 2 and 4 of three: (1/log2(3) + 1/log2(5)) / (1 + 1/log2(3) + 1/2)
    assert ndcg_at(ranked, gold, 10) == pytest.approx((0.630930 + 0.430677) / 2.130930, abs=1e-6)
    assert ndcg_at(["a", "b"], gold, 2) == 1  # the ideal has only two places


@given(rankings, golds)
@example([], {"D1"})
@example(["D1"], {"D1", "D2"})
def test_against_trec_eval(ranked, gold):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    depths = ",".join(map(str, DEPTHS))
    evaluator = pytrec_eval.RelevanceEvaluator(
        {"q": dict.fromkeys(gold, 1)}, {f"recall.{depths}", f"ndcg_cut.{depths}", "recip_rank"}
    )
    # trec_eval drops a question that retrieved nothing; an unjudged document is the same as nothing.
    scores = {document: len(ranked) - place for place, document in enumerate(ranked)} or {"unjudged": 1}
    expected = evaluator.evaluate({"q": {document: float(score) for document, score in scores.items()}})["q"]
    for k in DEPTHS:
        assert recall_at(ranked, gold, k) == pytest.approx(expected[f"recall_{k}"], abs=1e-12)
        assert ndcg_at(ranked, gold, k) == pytest.approx(expected[f"ndcg_cut_{k}"], abs=1e-12)
    assert reciprocal_rank(ranked, gold) == pytest.approx(expected["recip_rank"], abs=1e-12)


@given(rankings, golds, st.integers(1, 40))
def test_a_gold_document_named_twice_counts_once(ranked, gold, k):
    twice = [*gold, *gold]
    assert recall_at(ranked, twice, k) == recall_at(ranked, gold, k)
    assert ndcg_at(ranked, twice, k) == ndcg_at(ranked, gold, k)
    assert coverage(dict.fromkeys(ranked, 1.0), twice) == coverage(dict.fromkeys(ranked, 1.0), gold)


@given(rankings, golds)
def test_whole_rows_cover_what_recall_finds(ranked, gold):
    assert coverage(dict.fromkeys(ranked, 1.0), gold) == recall_at(ranked, gold, max(1, len(ranked)))


@given(st.dictionaries(documents, st.integers(1, 64)), golds)
def test_coverage_is_the_mean_share(parts, gold):
    expected = sum((Fraction(parts.get(document, 0), 64) for document in gold), Fraction()) / len(gold)
    assert coverage({document: part / 64 for document, part in parts.items()}, gold) == pytest.approx(float(expected))


def test_without_gold_nothing_is_scored():
    assert recall_at(["a"], (), 5) is None
    assert reciprocal_rank(["a"], ()) is None
    assert ndcg_at(["a"], (), 5) is None
    assert coverage({"a": 1.0}, ()) is None


def test_an_empty_ranking_scores_nothing():
    assert recall_at([], ["a"], 5) == ndcg_at([], ["a"], 5) == reciprocal_rank([], ["a"]) == coverage({}, ["a"]) == 0


@pytest.mark.parametrize("gold", [["a"], []])
@pytest.mark.parametrize("score", [lambda r, g: recall_at(r, g, 1), reciprocal_rank, lambda r, g: ndcg_at(r, g, 1)])
def test_a_document_ranked_twice_is_an_error(score, gold):
    with pytest.raises(ValueError, match="'b' is ranked twice"):
        score(["a", "b", "c", "b"], gold)


@pytest.mark.parametrize("score", [recall_at, ndcg_at])
@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_an_error(score, k):
    with pytest.raises(ValueError, match=f"k is {k};"):
        score(["a"], ["a"], k)


def test_one_id_in_place_of_several_is_an_error():
    with pytest.raises(TypeError, match="not one text"):
        recall_at(["a"], "a", 1)
    with pytest.raises(TypeError, match="not one text"):
        reciprocal_rank("abc", ["a"])
    with pytest.raises(TypeError, match="not one text"):
        coverage({"a": 1.0}, "a")


@pytest.mark.parametrize("share", [1.01, -0.1, math.nan])
def test_a_share_outside_0_to_1_is_an_error(share):
    with pytest.raises(ValueError, match="share of 'a'"):
        coverage({"a": share}, ["b"])
