"""The score of an answer that was graded facet by facet (OrgMemBench)."""

import math
from collections.abc import Sequence

from eval.cases import Facet


def rubric_score(facets: Sequence[Facet], marks: Sequence[float]) -> float:
    """Σ weight · mark / Σ weight, from 0 to 1: partial credit within a facet and over the facets.

    Dividing by the weights keeps a rubric whose weights do not add up to 1 on the same scale as the others.

    Args:
        facets: The parts of the rubric; weights of 0 or more, not all 0.
        marks: One mark for each facet in its order, from 0 (missed) to 1 (met).

    Raises:
        ValueError: Marks are missing, too many or outside 0 to 1, or the weights are at fault.
    """
    if len(marks) != len(facets):
        raise ValueError(f"{len(marks)} marks for {len(facets)} facets; each facet has one mark")
    for facet, mark in zip(facets, marks, strict=True):
        if not 0 <= mark <= 1:
            raise ValueError(f"mark {mark} for facet {facet.text[:80]!r}; a mark is from 0 to 1")
        if not (math.isfinite(facet.weight) and facet.weight >= 0):
            raise ValueError(f"weight {facet.weight} of facet {facet.text[:80]!r}; a weight is a number of 0 or more")
    whole = math.fsum(facet.weight for facet in facets)
    if whole <= 0:
        raise ValueError("the rubric has no facet with a weight above 0; there is nothing to grade by")
    earned = math.fsum(facet.weight * mark for facet, mark in zip(facets, marks, strict=True))
    return min(earned / whole, 1.0)
