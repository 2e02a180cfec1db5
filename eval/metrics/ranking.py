"""Scores of one ranking against the gold documents of its question; relevance is binary.

All four are None where the gold is empty: nothing can be scored, and 0 would say that something was missed. A gold
document that is named twice counts once. A document that is ranked twice is a fault of the system, and an error.
"""

import math
from collections.abc import Collection, Mapping, Sequence


def recall_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float | None:
    """The share of the gold documents that stand among the first k: |top k ∩ gold| / |gold|.

    With more than k gold documents it stays below 1 whatever the ranking, as in trec_eval.
    """
    relevant = _relevance(ranked, gold, k)
    return sum(relevant[:k]) / len(_distinct(gold)) if gold else None


def reciprocal_rank(ranked: Sequence[str], gold: Collection[str]) -> float | None:
    """1 / rank of the first gold document, ranks from 1, over the whole ranking; 0 if there is none in it."""
    relevant = _relevance(ranked, gold)
    if not gold:
        return None
    return 1 / (relevant.index(True) + 1) if any(relevant) else 0.0


def ndcg_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float | None:
    """Normalised discounted cumulative gain of the first k (Järvelin and Kekäläinen, 2002).

    DCG = Σ 1 / log₂(rank + 1) over the gold documents ranked 1 to k, divided by the DCG of a ranking that has
    min(k, |gold|) of them first; so 1 can be reached even with more than k gold documents.
    """
    relevant = _relevance(ranked, gold, k)
    if not gold:
        return None
    return _gain(relevant[:k]) / _gain([True] * min(k, len(_distinct(gold))))


def coverage(shares: Mapping[str, float], gold: Collection[str]) -> float | None:
    """How much of the gold evidence stands in an evidence text: the mean share over the gold documents.

    Args:
        shares: Document → the share of its text that stands there, above 0 up to 1; a document not named has 0.
        gold: The gold documents.
    """
    for document, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"the share of {document!r} is {share}; a share of a text is from 0 to 1")
    wanted = _distinct(gold)
    return math.fsum(shares.get(document, 0.0) for document in wanted) / len(wanted) if wanted else None


def _relevance(ranked: Sequence[str], gold: Collection[str], k: int = 1) -> list[bool]:
    if k < 1:
        raise ValueError(f"k is {k}; it must be 1 or more")
    if isinstance(ranked, str):
        raise TypeError("a ranking is a sequence of document ids, not one text")
    if len(set(ranked)) != len(ranked):
        twice = next(document for place, document in enumerate(ranked) if document in ranked[:place])
        raise ValueError(f"document {twice!r} is ranked twice; a ranking has each document once")
    wanted = _distinct(gold)
    return [document in wanted for document in ranked]


def _distinct(gold: Collection[str]) -> set[str]:
    if isinstance(gold, str):  # its letters would pass for document ids
        raise TypeError("gold is a collection of document ids, not one text")
    return set(gold)


def _gain(relevant: Sequence[bool]) -> float:
    return math.fsum(1 / math.log2(place + 2) for place, hit in enumerate(relevant) if hit)
