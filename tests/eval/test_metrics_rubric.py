"""The rubric score by its definition, and what it refuses."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.cases import Facet
from eval.metrics.rubric import rubric_score

graded = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), min_size=1).filter(
    lambda pairs: any(weight for weight, _ in pairs)
)


def test_by_hand():
    facets = [Facet("value", 0.5), Facet("date", 0.25), Facet("reason", 0.25)]
    assert rubric_score(facets, [1, 0, 0.5]) == 0.625
    assert rubric_score([Facet("value", 2.0), Facet("date", 1.0)], [1, 0]) == pytest.approx(2 / 3)


@given(graded)
def test_weighted_mean_of_marks(pairs):
    facets = [Facet(f"facet {number}", weight / 10) for number, (weight, _) in enumerate(pairs)]
    marks = [mark / 4 for _, mark in pairs]
    expected = Fraction(sum(weight * mark for weight, mark in pairs), 4 * sum(weight for weight, _ in pairs))
    score = rubric_score(facets, marks)
    assert score == pytest.approx(float(expected), abs=1e-12)
    assert 0 <= score <= 1


@given(st.lists(st.floats(0.01, 10), min_size=1))
def test_all_met_is_exactly_one(weights):
    facets = [Facet("met", weight) for weight in weights]
    assert rubric_score(facets, [1.0] * len(facets)) == 1
    assert rubric_score(facets, [0.0] * len(facets)) == 0


@pytest.mark.parametrize(
    ("facets", "marks", "message"),
    [
        ([Facet("a")], [], "0 marks for 1 facets"),
        ([Facet("a")], [1, 1], "2 marks for 1 facets"),
        ([Facet("a")], [1.5], "mark 1.5 for facet 'a'"),
        ([Facet("a")], [-0.5], "mark -0.5"),
        ([Facet("a")], [math.nan], "mark nan"),
        ([Facet("a", -1.0)], [1], "weight -1.0 of facet 'a'"),
        ([Facet("a", math.inf)], [1], "weight inf"),
        ([Facet("a", 0.0)], [1], "no facet with a weight above 0"),
        ([], [], "no facet"),
    ],
)
def test_what_is_refused(facets, marks, message):
    with pytest.raises(ValueError, match=message):
        rubric_score(facets, marks)
