"""Grades answers: by a model against gold answers or a rubric, or, for multiple choice, by the letter."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eval.cases import Case
from eval.errors import EvalError, ModelRequestError
from eval.metrics.rubric import rubric_score
from eval.parsing import letter_of, marks_of, verdict_of
from eval.prompts import Prompt, load
from mempp.llm import JsonSchema, Model, Reply, Request, Usage

KINDS = ("binary", "rubric", "longmemeval", "choice")

# As in `answering`: room for models that think before they grade.
DEFAULT_MAX_TOKENS = 4096

_NOT_TOLD = "(The record does not tell; the right answer says so.)"

_PROMPTS: Mapping[str, Mapping[str, str]] = {
    "binary": {"binary": "judge_binary.v1", "rubric": "judge_rubric.v1"},
    "rubric": {"rubric": "judge_rubric.v1", "binary": "judge_binary.v1"},
    "longmemeval": {
        "general": "judge_longmemeval_general.v1",
        "temporal": "judge_longmemeval_temporal.v1",
        "update": "judge_longmemeval_update.v1",
        "preference": "judge_longmemeval_preference.v1",
        "abstention": "judge_longmemeval_abstention.v1",
    },
    "choice": {},
}

_VERDICT_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "verdict": {"type": "string", "enum": ["CORRECT", "WRONG"]}},
    "required": ["reason", "verdict"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How an answer was graded."""

    score: float
    """Mean of `repeats`, from 0 to 1."""
    repeats: tuple[float, ...]
    """One score for each time that the judge was asked; what could not be read, or failed, is 0."""
    marks: tuple[tuple[float, ...], ...] = ()
    """Of a rubric: for each repeat the mark of each facet, 0 where none could be read."""
    replies: tuple[Reply, ...] = ()
    """What the judge said, each time that it said something."""
    unparsed: int = 0
    """Repeats in which the grade, or that of some facet, could not be read."""
    failed: int = 0
    """Repeats in which the request failed; they are not cached and can be made again."""
    error: str | None = None
    """What failed first, or what could not be read."""
    details: tuple[str, ...] = ()
    """The judge's reason, for each repeat."""

    @property
    def usage(self) -> Usage:
        """Tokens of all replies."""
        return sum((reply.usage for reply in self.replies), Usage())

    @property
    def cached(self) -> bool:
        """Whether every reply came from the cache."""
        return bool(self.replies) and not self.failed and all(reply.cached for reply in self.replies)


class Judge(Protocol):
    """Grades one answer at a time; for many threads at once."""

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        ...

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """What the judge may be asked with, by role; none for one without a model."""
        ...

    def judge(self, case: Case, answer_text: str) -> Verdict:
        """Returns the verdict on an answer.

        Raises:
            CostLimitError: a request might exceed `--max-cost`.
            ModelError: no request to the judge can succeed (key, model, address or account are refused).
            EvalError: the question has nothing that it could be graded by.
        """
        ...


def judge_prompts(kind: str, override: str | Path | None = None) -> dict[str, Prompt]:
    """Returns the prompts of a kind of judge by role; `--judge-prompt FILE` stands for all roles of longmemeval, and
    for the one that binary and rubric are named by.

    Raises:
        EvalError: there is no such kind or prompt, or the prompt has no place for the answer.
    """
    if kind not in KINDS:
        raise EvalError(f"there is no judge {kind[:80]!r}; known are {', '.join(KINDS)}")
    prompts = {role: load(name) for role, name in _PROMPTS[kind].items()}
    if override is not None:
        other = load(override)
        if "answer" not in other.placeholders:
            raise EvalError(f"the judge prompt {str(override)!r} has no {{answer}}; write it where the answer goes")
        prompts |= dict.fromkeys(list(prompts) if kind == "longmemeval" else {kind} & set(prompts), other)
    return prompts


def judge_for(
    kind: str,
    model: Model | None = None,
    prompts: Mapping[str, Prompt] | None = None,
    repeats: int = 1,
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
) -> Judge:
    """Returns a judge.

    Args:
        kind: `Dataset.judge`: "binary", "rubric" (a question without one is graded by its gold answers), "longmemeval"
            (by the type of question; an abstention question only by whether the answer abstains), "choice".
        model: The judging model; None for "choice".
        prompts: Role → prompt, as `judge_prompts` returns them, which is the default.
        repeats: How often the judge is asked about one answer; the score is the mean.
        max_tokens: Most tokens of a judge's reply, its thinking included.

    Raises:
        EvalError: there is no such kind, a model is missing, or a number is below 1.
    """
    if kind == "choice":
        return ChoiceJudge()
    prompts = judge_prompts(kind) if prompts is None else prompts
    if model is None:
        raise EvalError(f"the judge {kind!r} needs a model; give --judge-model")
    if repeats < 1 or max_tokens < 1:
        raise EvalError(f"--judge-repeats is {repeats}, most tokens {max_tokens}; give 1 or more of each")
    return ModelJudge(kind, model, prompts, repeats, max_tokens)


class ChoiceJudge:
    """Compares the letter that an answer chooses with the right one. Asks no model."""

    kind = "choice"
    prompts: Mapping[str, Prompt] = {}

    def judge(self, case: Case, answer_text: str) -> Verdict:
        """Returns 1 for the right letter, 0 for another, and 0 with `unparsed` where no letter can be told."""
        if not case.choices or not case.answers:
            raise EvalError(f"question {case.id!r} has no choices or no answer; it cannot be graded by its letter")
        if not answer_text.strip():
            return _nothing_said(case, 1)
        letter = letter_of(answer_text, case.choices)
        if letter is None:
            told = f"no letter can be told from {answer_text[:80]!r}"
            return Verdict(score=0.0, repeats=(0.0,), unparsed=1, error=told)
        score = float(any(letter.casefold() == gold.strip().casefold() for gold in case.answers))
        return Verdict(score=score, repeats=(score,), details=(letter,))


@dataclass(frozen=True, slots=True)
class _Grade:
    """One repeat."""

    score: float
    marks: tuple[float, ...]
    parsed: bool
    reason: str


class ModelJudge:
    """Asks a model for a verdict or for marks, several times where that is wished."""

    def __init__(self, kind: str, model: Model, prompts: Mapping[str, Prompt], repeats: int, max_tokens: int) -> None:
        """See `judge_for`."""
        self.kind = kind
        self.model = model
        self.prompts = prompts
        self.repeats = repeats
        self.max_tokens = max_tokens

    def judge(self, case: Case, answer_text: str) -> Verdict:
        """Returns the verdict; see `Judge.judge`. An empty answer has the score 0, and no model is asked."""
        role = _role(self.kind, case)
        if role != "rubric" and not case.answers and not case.unanswerable:
            raise EvalError(f"question {case.id!r} has neither a gold answer nor a rubric; it cannot be judged")
        if not answer_text.strip():
            return _nothing_said(case, self.repeats)
        system, prompt = self.prompts[role].fill(
            {
                "question": case.text,
                "answer": answer_text,
                "gold": _gold(case, role),
                "as_of": case.as_of,
                "asked_at": case.asked_at,
                "facets": _facets(case) if case.rubric else None,
            }
        )
        schema = _marks_schema(len(case.rubric)) if role == "rubric" else _VERDICT_SCHEMA
        grades: list[_Grade] = []
        replies: list[Reply] = []
        failures: list[str] = []
        for repeat in range(self.repeats):
            request = Request(system=system, prompt=prompt, max_tokens=self.max_tokens, schema=schema, repeat=repeat)
            try:
                reply = self.model.ask(request)
            except ModelRequestError as error:
                failures.append(str(error))
                grades.append(_Grade(0.0, (0.0,) * len(case.rubric) if role == "rubric" else (), True, ""))
                continue
            replies.append(reply)
            grades.append(_rubric_grade(case, reply) if role == "rubric" else _binary_grade(reply))
        unread = [grade for grade in grades if not grade.parsed]
        problem = failures[0] if failures else None
        if problem is None and unread:
            problem = f"the judge's reply cannot be read: {unread[0].reason[:120]!r}"
        return Verdict(
            score=sum(grade.score for grade in grades) / len(grades),
            repeats=tuple(grade.score for grade in grades),
            marks=tuple(grade.marks for grade in grades) if role == "rubric" else (),
            replies=tuple(replies),
            unparsed=len(unread),
            failed=len(failures),
            error=problem,
            details=tuple(grade.reason for grade in grades),
        )


def _role(kind: str, case: Case) -> str:
    if kind == "longmemeval":
        return _longmemeval_role(case)
    if kind == "binary":
        return "rubric" if case.rubric and not case.answers else "binary"
    return "rubric" if case.rubric else "binary"


def _longmemeval_role(case: Case) -> str:
    if case.unanswerable:
        return "abstention"
    for word in ("temporal", "update", "preference"):
        if word in case.category:
            return word
    return "general"


def _gold(case: Case, role: str) -> str | None:
    if case.unanswerable and role == "binary":
        return "\n".join((_NOT_TOLD, *case.answers))
    if case.answers:
        return "\n".join(case.answers)
    return _NOT_TOLD if case.unanswerable else None


def _facets(case: Case) -> str:
    return "\n".join(f"{number}. {facet.text}" for number, facet in enumerate(case.rubric, start=1))


def _marks_schema(count: int) -> JsonSchema:
    """One named number for each facet, so that a model cannot shift them. Bounds are told in the prompt: not every
    provider takes them in a schema."""
    names = [f"facet_{number}" for number in range(1, count + 1)]
    properties: dict[str, dict[str, str]] = {"reason": {"type": "string"}}
    properties |= {name: {"type": "number"} for name in names}
    return {"type": "object", "properties": properties, "required": ["reason", *names], "additionalProperties": False}


def _binary_grade(reply: Reply) -> _Grade:
    # What was cut off, or declined, is no verdict, whatever its words.
    correct, reason = verdict_of(reply.text) if reply.stopped == "end" else (None, reply.text)
    return _Grade(float(bool(correct)), (), correct is not None, reason)


def _rubric_grade(case: Case, reply: Reply) -> _Grade:
    text = reply.text if reply.stopped == "end" else ""
    marks, reason = marks_of(text, len(case.rubric))
    read = tuple(mark if mark is not None else 0.0 for mark in marks)
    return _Grade(rubric_score(case.rubric, read), read, None not in marks, reason or reply.text)


def _nothing_said(case: Case, repeats: int) -> Verdict:
    marks = ((0.0,) * len(case.rubric),) * repeats if case.rubric else ()
    return Verdict(score=0.0, repeats=(0.0,) * repeats, marks=marks, details=("no answer",) * repeats)
