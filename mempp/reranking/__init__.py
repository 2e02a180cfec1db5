"""Re-ranking: the first hits of an answer in the order of a model that reads question and text together.

Optional, and nothing of it runs by itself: `memory.recall` gives hits, `rerank` reorders them. The package is not named
as its function, since importing `mempp.rerank` as a module would put the module in the place of the function.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mempp.errors import EncoderError, InputError, quoted
from mempp.recall import Hit, LegShare, question_text
from mempp.reranking.base import Reranker
from mempp.reranking.cross_encoder import CrossEncoder

__all__ = ["CrossEncoder", "Reranker", "rerank"]


def rerank(
    question: str, hits: Sequence[Hit], reranker: Reranker, *, depth: int = 50, weight: float = 1.0
) -> list[Hit]:
    """The same hits, the first `depth` of them in the order of a re-ranker.

    The re-ranker joins the fusion as one more leg, of weight w, and the other legs' weights are multiplied by 1 - w:

        score = (1 - w) · score before + w · s           where the legs' values were summed, s the re-ranker's score
        score = (1 - w) · score before + w / (γ + rank)  with `fusion="ranks"`; equal s have the same rank

    So with w = 1 it decides alone. Equal scores stay in the order they had. No hit comes in or goes out, and each keeps
    its `via` and `matched`: a record of a recency slot is still marked so where the re-ranker moves it. Its explanation
    has one more leg, "reranker". Hits behind the first `depth` keep place and score; the scores of the two parts are
    not of one scale.

    Args:
        question: the question that the hits answer.
        hits: as `Memory.recall` gave them, all of one answer.
        reranker: a `CrossEncoder`, or any object with the method of `Reranker`.
        depth: how many hits, from the first on, are scored and reordered.
        weight: w, above 0 and at most 1. Below 1 the re-ranker's scores should lie in 0…1, as a CrossEncoder's do.

    Raises:
        InputError: an argument is not usable.
        EncoderError: the re-ranker gave too few or too many scores, or one that is no finite number. What an object of
            the caller's own raises passes through.
    """
    asked = question_text(question)
    hits = _checked_hits(hits)
    _check_numbers(depth, weight)
    if isinstance(reranker, type) or not isinstance(reranker, Reranker):
        raise InputError(
            f"the reranker is {quoted(reranker)}; give a CrossEncoder(path), or an object with score(question, texts)"
        )
    first = hits[:depth]
    if not first:
        return hits
    scores = _checked_scores(reranker.score(asked, [hit.record.text for hit in first]), len(first), reranker)
    # The place among distinct scores: how many hits have a higher one.
    ranks = len(scores) - np.searchsorted(np.sort(scores), scores, side="right")
    reordered = [
        _rescored(hit, score, rank, float(weight))
        for hit, score, rank in zip(first, scores.tolist(), ranks.tolist(), strict=True)
    ]
    reordered.sort(key=lambda hit: -hit.score)  # stable
    return reordered + hits[depth:]


def _rescored(hit: Hit, score: float, rank: int, weight: float) -> Hit:
    explanation = hit.explanation
    gamma = explanation.gamma
    kept = 1 - weight
    added = weight * score if gamma is None else weight / (gamma + rank)
    legs = [replace(leg, weight=kept * leg.weight, added=kept * leg.added) for leg in explanation.legs]
    fused = kept * hit.score + added
    explanation = replace(explanation, score=fused, legs=(*legs, LegShare("reranker", rank, score, weight, added)))
    return replace(hit, score=fused, explanation=explanation)


def _check_numbers(depth: object, weight: object) -> None:
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
        raise InputError(f"depth is {quoted(depth)}; give a whole number of hits to reorder, 0 or more")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1:
        raise InputError(f"weight is {quoted(weight)}; give a number above 0 and at most 1")


def _checked_hits(hits: object) -> list[Hit]:
    checked = list(hits) if isinstance(hits, Sequence) and not isinstance(hits, str | bytes) else None
    if checked is None or not all(isinstance(hit, Hit) for hit in checked):
        raise InputError(f"rerank takes the hits that memory.recall gave, not {quoted(hits)}")
    return checked


def _checked_scores(given: object, count: int, reranker: Reranker) -> NDArray[np.float64]:
    """The scores as float64, shape (count,)."""
    of = type(reranker).__name__
    try:
        scores = np.asarray(given)
        if scores.dtype.kind not in "fiu":
            raise TypeError(f"of type {scores.dtype}")
        with np.errstate(over="ignore"):  # a wider float beyond float64 becomes infinite, and is told below
            scores = scores.astype(np.float64)
    except MemoryError:
        raise
    except Exception as error:  # an array of another library may raise anything
        raise EncoderError(f"the re-ranker {of} gave {quoted(given)} ({error}); it must give numbers") from error
    if scores.shape != (count,):
        raise EncoderError(
            f"the re-ranker {of} gave scores of shape {scores.shape} for {count} texts; it must give one number for "
            f"each, shape ({count},)"
        )
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        raise EncoderError(
            f"the re-ranker {of} gave the score {scores[bad[0]]} for text {bad[0]} of {count}; the model behind it is "
            "faulty: leave it out, or mend it"
        )
    return scores
