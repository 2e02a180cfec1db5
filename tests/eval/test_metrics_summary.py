"""A summary, and a comparison of two runs, against plain recomputation."""

import json
import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.metrics.bootstrap import interval, paired_difference
from eval.metrics.compare import compare
from eval.metrics.summary import Row, summarise

values = st.none() | st.integers(0, 4).map(lambda quarters: quarters / 4)
scores = st.dictionaries(st.sampled_from(["recall@5", "mrr", "judge"]), values)
categories = st.sampled_from(["C1", "C2", "C3"])
runs = st.lists(st.builds(Row, categories, scores, collection=st.sampled_from(["x", "y"])), max_size=15)


def test_by_hand():
    rows = [
        Row("C1", {"mrr": 1.0, "judge": 0.5}),
        Row("C1", {"mrr": 0.0, "judge": None}),
        Row("C1", {"mrr": 0.5}),
        Row("C2", {"mrr": None, "judge": 0.0, "f1": None}),
    ]
    summary = summarise(rows, samples=100)
    assert summary.means() == {
        "overall": {"mrr": 0.5, "judge": 0.25},
        "by_category": {"C1": {"mrr": 0.5, "judge": 0.5}, "C2": {"judge": 0.0}},
    }
    assert summary.questions == {"C1": 3, "C2": 1}
    assert (summary.overall["mrr"].scored, summary.overall["mrr"].left_out) == (3, 1)
    assert (summary.by_category["C1"]["judge"].scored, summary.by_category["C1"]["judge"].left_out) == (1, 2)
    assert json.loads(json.dumps(summary.intervals()))["by_category"]["C2"]["judge"] == {
        "low": 0.0,
        "high": 0.0,
        "scored": 1,
        "left_out": 0,
    }


def test_overall_weighs_questions_not_categories():
    rows = [Row("many", {"judge": 1.0})] * 9 + [Row("few", {"judge": 0.0})]
    assert summarise(rows, samples=10).overall["judge"].mean == 0.9


@given(runs, st.booleans())
def test_against_recomputation(rows, over_collections):
    summary = summarise(rows, samples=20, over_collections=over_collections)
    parts = {"": (rows, summary.overall)}
    for category, estimates in summary.by_category.items():
        parts[category] = ([row for row in rows if row.category == category], estimates)
    assert set(parts) == {"", *(row.category for row in rows)}
    for members, estimates in parts.values():
        for metric in ("recall@5", "mrr", "judge"):
            scored = [row for row in members if row.values.get(metric) is not None]
            if not scored:
                assert metric not in estimates
                continue
            plain = [row.values[metric] for row in scored]
            clusters = [row.collection for row in scored] if over_collections else None
            around = interval(plain, samples=20, clusters=clusters)
            found = estimates[metric]
            assert found.mean == pytest.approx(fmean(plain))
            assert (found.low, found.high) == (around.low, around.high)
            assert (found.scored, found.left_out) == (len(scored), len(members) - len(scored))
    assert sum(summary.questions.values()) == len(rows)


def test_no_rows_no_figures():
    assert summarise([]).means() == {"overall": {}, "by_category": {}}


def test_a_value_that_is_no_number_is_an_error():
    with pytest.raises(ValueError, match=r"mrr of question 'q7' \(C1\) is nan"):
        summarise([Row("C1", {"mrr": math.nan}, question="q7")])


questions = st.dictionaries(st.integers(0, 11), scores, max_size=12)


@given(questions, questions, st.randoms())
def test_comparison_against_recomputation(a, b, shuffling):
    def run(scored):
        rows = [Row(f"C{n % 3}", values, question=f"q{n}", collection=f"x{n % 2}") for n, values in scored.items()]
        shuffling.shuffle(rows)
        return rows

    found = compare(run(a), run(b), samples=20)
    assert set(found.only_a) == {f"q{n}" for n in a.keys() - b.keys()}
    assert set(found.only_b) == {f"q{n}" for n in b.keys() - a.keys()}
    common = a.keys() & b.keys()
    assert set(found.by_category) == {f"C{n % 3}" for n in common}
    parts = [(common, found.overall)]
    parts += [({n for n in common if f"C{n % 3}" == category}, each) for category, each in found.by_category.items()]
    for members, estimates in parts:
        for metric in ("recall@5", "mrr", "judge"):
            both = [n for n in members if a[n].get(metric) is not None and b[n].get(metric) is not None]
            if not both:
                assert metric not in estimates
                continue
            ours, theirs = [a[n][metric] for n in both], [b[n][metric] for n in both]
            pair = estimates[metric]
            assert (pair.a, pair.b) == (pytest.approx(fmean(ours)), pytest.approx(fmean(theirs)))
            assert pair.difference == paired_difference(ours, theirs, samples=20)
            assert (pair.scored, pair.left_out) == (len(both), len(members) - len(both))


def test_comparison_over_collections():
    a = [Row("C1", {"mrr": 1.0}, question=str(n), collection=str(n // 5)) for n in range(10)]
    b = [Row("C1", {"mrr": 0.0}, question=str(n), collection=str(n // 5)) for n in range(10)]
    assert compare(a, b).overall["mrr"].difference.p_two_sided < 0.01
    over = compare(a, b, over_collections=True).overall["mrr"].difference
    assert over.p_two_sided == pytest.approx(0.5, abs=0.05)  # two collections: 2 of 4 flips


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([Row("C1", {})], [], "first run has no question id"),
        ([], [Row("C1", {}, question="q")] * 2, "'q' comes twice in the second run"),
        ([Row("C1", {}, question="q")], [Row("C2", {}, question="q")], "of 'C1' in '' in the first run, of 'C2'"),
        ([Row("C1", {}, "q", "x")], [Row("C1", {}, "q", "y")], "in 'x' in the first run"),
    ],
)
def test_runs_that_cannot_be_paired(a, b, message):
    with pytest.raises(ValueError, match=message):
        compare(a, b)
