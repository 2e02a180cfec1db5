"""From the evidence of a question to the part of its row that models make: the answer, the verdict, their scores."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.answering import Answer, Answerer
from eval.cases import Case, Dataset, Facet
from eval.console import say
from eval.errors import UsageError
from eval.judging import Judge, Verdict, judge_for, judge_prompts
from eval.prompts import Prompt, choice_prompt, load, prompt_for
from eval.results import JsonObject
from eval.scoring import Scores, answer_scores
from mempp.errors import InputError
from mempp.llm import Budget, Model, Price, ReplyCache, Usage, checked_base_url, model, parse_price


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What the command line says about models."""

    answer_model: str | None = None
    judge_model: str | None = None
    base_url: str | None = None
    judge_base_url: str | None = None
    judge_repeats: int = 1
    answer_prompt: str | None = None
    judge_prompt: str | None = None
    max_cost: float | None = None
    price: Sequence[str] = ()
    timeout: float = 120.0
    retries: int = 5
    cache: Path | None = None

    def budget(self) -> Budget:
        """Counts and limits the cost of one command.

        Raises:
            UsageError: a price or the limit is not usable.
        """
        with _given():
            prices: dict[str, Price] = dict(parse_price(text) for text in self.price)
            return Budget(self.max_cost, prices=prices)

    def check_prices(self, models: Sequence[str]) -> None:
        """Make sure that each price is that of a model that is asked, so that a misspelt name is not lost.

        Raises:
            UsageError: one is not.
        """
        for name, price in map(parse_price, self.price):
            if name and not any(Budget(prices={name: price}).price(model) is price for model in models):
                raise UsageError(f"--price names the model {name[:80]!r}, and those asked are {', '.join(models)}")


@contextmanager
def _given() -> Iterator[None]:
    """What the command line gives for models and is refused is wrong usage."""
    try:
        yield
    except InputError as error:
        raise UsageError(str(error)) from None


@dataclass(frozen=True, slots=True)
class _Part:
    """A model in its place, and how it is told in the result."""

    model: Model
    base_url: str | None
    prompts: Mapping[str, Prompt] = field(default_factory=dict)


def _part(name: str, base_url: str | None, options: ModelOptions, budget: Budget) -> _Part:
    cache = None if options.cache is None else ReplyCache(options.cache)
    with _given():
        url = checked_base_url(base_url)
        served = model(
            name, base_url=url, cache=cache, budget=budget, timeout=options.timeout, max_retries=options.retries
        )
    return _Part(served, url)


def _prompts_as_json(prompts: Mapping[str, Prompt]) -> JsonObject:
    return {
        role: {"name": one.name, "version": one.version, "sha256": one.digest} for role, one in sorted(prompts.items())
    }


class Grader:
    """The judge of a dataset, as rows hold its verdicts. Multiple choice is graded by its letter, without a model."""

    def __init__(self, kind: str, options: ModelOptions, budget: Budget) -> None:
        """Prepare the judge; without a judging model only multiple choice is graded.

        Raises:
            EvalError: the model or a prompt is not usable.
        """
        self._choice = judge_for("choice")
        self._judge: Judge | None = None
        self._name: str | None = None
        self.configuration: JsonObject | None = None
        if kind == "choice":
            if options.judge_model is not None:
                say("multiple choice is graded by the letter; --judge-model is not asked")
            self.configuration = {"kind": kind, "model": None, "prompts": {}, "repeats": 1}
        elif options.judge_model is not None:
            part = _part(options.judge_model, options.judge_base_url or options.base_url, options, budget)
            prompts = judge_prompts(kind, options.judge_prompt)
            self._judge = judge_for(kind, part.model, prompts, options.judge_repeats)
            self._name = part.model.name
            self.configuration = {
                "kind": kind,
                "model": self._name,
                "base_url": part.base_url,
                "prompts": _prompts_as_json(prompts),
                "repeats": options.judge_repeats,
            }
        elif options.judge_prompt is not None or options.judge_repeats != 1 or options.judge_base_url is not None:
            raise UsageError("--judge-prompt, --judge-repeats and --judge-base-url need --judge-model")

    @property
    def model_name(self) -> str | None:
        """The judging model, if there is one."""
        return self._name

    def grade(self, case: Case, answer: Mapping[str, Any]) -> tuple[JsonObject | None, Scores]:
        """(verdict as in a row, scores). An answer that failed has the score 0 and no verdict.

        Raises:
            CostLimitError, ModelError: as `Judge.judge`.
        """
        judge = self._choice if case.choices and case.answers else self._judge
        gradable = bool(case.answers or case.rubric or case.unanswerable)
        if judge is None or not gradable:
            return None, answer_scores(case, answer["text"], None)
        if answer["error"]:
            return None, answer_scores(case, None, 0.0)
        start = time.perf_counter()
        verdict = judge.judge(case, answer["text"])
        seconds = time.perf_counter() - start
        scores = answer_scores(case, answer["text"], verdict.score)
        if judge is self._judge and not verdict.cached and not verdict.failed:
            scores["judge_ms"] = 1000 * seconds
        return verdict_as_json(verdict), scores


class Asker:
    """Answers, and grades the answers."""

    def __init__(self, dataset: Dataset, options: ModelOptions, budgets: Sequence[int]) -> None:
        """Prepare both models.

        Raises:
            UsageError: there is no answering model.
            EvalError: a model, a key, a price or a prompt is missing or not usable.
        """
        if options.answer_model is None:
            raise UsageError("--answer-model is missing; without it a run is recall only")
        self._budget = options.budget()
        part = _part(options.answer_model, options.base_url, options, self._budget)
        prompt = prompt_for(dataset.name) if options.answer_prompt is None else load(options.answer_prompt)
        self._answerer = Answerer(part.model, prompt, choice_prompt=choice_prompt())
        self._grader = Grader(dataset.judge, options, self._budget)
        options.check_prices([name for name in (part.model.name, self._grader.model_name) if name is not None])
        self._configuration: JsonObject = {
            "answer": {
                "model": part.model.name,
                "base_url": part.base_url,
                **_prompts_as_json({"prompt": prompt, "choice_prompt": self._answerer.choice_prompt}),
                "max_tokens": self._answerer.max_tokens,
                "evidence_characters": max(budgets),
            },
            "judge": self._grader.configuration,
        }

    @property
    def configuration(self) -> JsonObject:
        """Models, prompts and their digests."""
        return self._configuration

    def ask(self, case: Case, evidence: str) -> tuple[JsonObject, JsonObject | None, Scores]:
        """(answer, verdict, scores) as they stand in a row.

        Raises:
            CostLimitError, ModelError: what would meet every further question too.
        """
        answer = answer_as_json(self._answerer.answer(case, evidence))
        verdict, scores = self._grader.grade(case, answer)
        if not answer["failed"]:
            scores["answer_ms"] = 1000 * answer["seconds"]
            scores["input_tokens"] = float(answer["input_tokens"])
            scores["output_tokens"] = float(answer["output_tokens"])
        return answer, verdict, scores

    def costs(self, rows: Sequence[Mapping[str, Any]]) -> JsonObject:
        """Tokens, requests and dollars over rows, and what this command spent."""
        return costs(rows, self._budget, self._answerer.model.name, self._grader.model_name)


def answer_as_json(answer: Answer) -> JsonObject:
    """An answer as a row holds it; "failed" marks a request that can be made again, unlike a refusal."""
    return {
        "text": answer.text,
        "error": answer.error,
        # Whatever came from a model took its time, which a cached reply keeps.
        "failed": answer.error is not None and not answer.cached and answer.seconds == 0.0,
        "stopped": answer.stopped,
        "input_tokens": answer.usage.input_tokens,
        "output_tokens": answer.usage.output_tokens,
        "seconds": answer.seconds,
        "cached": answer.cached,
    }


def verdict_as_json(verdict: Verdict) -> JsonObject:
    """A verdict as a row holds it."""
    return {
        "score": verdict.score,
        "repeats": list(verdict.repeats),
        "marks": [list(one) for one in verdict.marks],
        "unparsed": verdict.unparsed,
        "failed": verdict.failed,
        "error": verdict.error,
        "details": list(verdict.details),
        "input_tokens": verdict.usage.input_tokens,
        "output_tokens": verdict.usage.output_tokens,
        "cached": verdict.cached,
        "replies": [
            {
                "input_tokens": reply.usage.input_tokens,
                "output_tokens": reply.usage.output_tokens,
                "cached": reply.cached,
            }
            for reply in verdict.replies
        ],
    }


def case_of(row: Mapping[str, Any]) -> Case:
    """The question of a row, as a judge needs it."""
    gold = row["gold"]
    return Case(
        id=row["id"],
        category=row["category"],
        text=row["question"],
        as_of=row["as_of"],
        asked_at=row["asked_at"],
        answers=tuple(gold["answers"]),
        evidence=tuple(gold["evidence"]),
        rubric=tuple(Facet(one["text"], one["weight"]) for one in gold["rubric"]),
        choices=gold["choices"],
        unanswerable=gold["unanswerable"],
    )


def costs(
    rows: Sequence[Mapping[str, Any]], budget: Budget, answer_model: str | None, judge_model: str | None
) -> JsonObject:
    """Tokens, requests and dollars over rows by part, whoever paid for them; and what this command spent itself.

    Dollars are list prices, None where a model's price is not known.
    """
    answers = [row["answer"] for row in rows if row["answer"] is not None and not row["answer"]["failed"]]
    verdicts = [row["verdict"] for row in rows if row["verdict"] is not None and judge_model is not None]
    # Results that were written before verdicts told their replies one by one have the sums alone.
    judged = [reply for verdict in verdicts for reply in verdict.get("replies", [verdict])]
    parts = {
        "answer": _cost_of(answers, budget, answer_model),
        "judge": _cost_of(judged, budget, judge_model),
    }
    dollars = [part["cost_usd"] for part in parts.values()]
    return {
        **parts,
        "cost_usd": None if None in dollars else sum(dollars),
        "spent_now_usd": budget.spent,
        "spent_now_at_most_usd": budget.spent + budget.uncertain,
        "spent_now_unpriced": list(budget.unpriced),
    }


def _cost_of(replies: Sequence[Mapping[str, Any]], budget: Budget, name: str | None) -> JsonObject:
    # Reply by reply: a price may have tiers.
    price = None if name is None else budget.price(name)
    known = price is not None or not replies
    dollars = sum(price.of(Usage(one["input_tokens"], one["output_tokens"])) for one in replies) if price else 0.0
    return {
        "requests": len(replies),
        "cached": sum(bool(one["cached"]) for one in replies),
        "input_tokens": sum(one["input_tokens"] for one in replies),
        "output_tokens": sum(one["output_tokens"] for one in replies),
        "cost_usd": dollars if known else None,
    }
