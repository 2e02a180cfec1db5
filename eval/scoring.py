"""From what a system gave and a model answered to the scores of one question, under the names that results use."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.cases import Case
from eval.metrics import ranking, text
from eval.metrics.summary import Row, Summary, summarise
from eval.systems.base import Retrieved

RECALL_KS = (5, 10, 20, 50)
NDCG_K = 10
BUDGETS = (5_000, 10_000, 20_000, 40_000)
Scores = dict[str, float | None]


def retrieval_scores(
    case: Case,
    retrieved: Retrieved | None,
    *,
    ks: Sequence[int],
    budgets: Sequence[int],
    lengths: Mapping[str, int],
) -> Scores:
    """Scores of what was retrieved; a retrieval that failed (None) scores 0, and has no times.

    Args:
        case: the question.
        retrieved: what the system gave.
        ks: where recall is measured.
        budgets: characters in which coverage is measured.
        lengths: document id → characters of its text.
    """
    ranked = [] if retrieved is None else [one.id for one in retrieved.ranked]
    gold = case.evidence
    scores: Scores = {f"recall@{k}": ranking.recall_at(ranked, gold, k) for k in ks}
    scores["mrr"] = ranking.reciprocal_rank(ranked, gold)
    scores[f"ndcg@{NDCG_K}"] = ranking.ndcg_at(ranked, gold, NDCG_K)
    for budget in budgets:
        shares = {} if retrieved is None else retrieved.evidence[budget].shares
        scores[f"coverage@{budget}"] = ranking.coverage(shares, gold)
    if retrieved is not None:
        scores["search_ms"] = 1000 * retrieved.seconds
        scores["retrieved_chars"] = float(sum(lengths.get(one, 0) for one in ranked))
        scores["evidence_chars"] = float(len(retrieved.evidence[max(budgets)].text))
    return scores


def answer_scores(case: Case, answer: str | None, judged: float | None) -> Scores:
    """Scores of an answer; None for the answer where there is none because something failed.

    F1 and BLEU-1 are left out where the right answer is that the record does not tell, and for multiple choice.
    """
    scores: Scores = {}
    if case.answers and not case.unanswerable and not case.choices:
        given = answer or ""
        scores["f1"] = text.best(text.f1, given, case.answers)
        scores["bleu1"] = text.best(text.bleu1, given, case.answers)
    scores["judge"] = judged
    return scores


def summary_of(rows: Sequence[Mapping[str, Any]], categories: Sequence[str] = ()) -> Summary:
    """Means and intervals over the rows of a result; categories in the order given, then as they come."""
    order = {name: place for place, name in enumerate(categories)}
    ordered = sorted(rows, key=lambda row: order.get(row["category"], len(order)))
    return summarise(metric_rows(ordered))


def metric_rows(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows of a result as `eval.metrics` takes them, metrics in the order of the tables."""
    names = sorted({name for row in rows for name in row["scores"]}, key=_place)
    return [
        Row(
            category=row["category"],
            values={name: row["scores"][name] for name in names if name in row["scores"]},
            question=row["id"],
            collection=row["collection"],
        )
        for row in rows
    ]


_ORDER = ("recall", "mrr", "ndcg", "coverage", "f1", "bleu1", "judge", "search_ms", "answer_ms", "judge_ms")


def _place(name: str) -> tuple[int, int, str]:
    kind, _, number = name.partition("@")
    return (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), int(number or 0), name)


def is_score(name: str) -> bool:
    """Whether a metric is a share from 0 to 1 in which more is better; times, tokens and characters are not."""
    return name.partition("@")[0] in _ORDER[:7]
