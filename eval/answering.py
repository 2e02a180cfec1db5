"""Asks a model to answer a question from the evidence that a system found."""

from dataclasses import dataclass, field

from eval.cases import Case
from eval.errors import EvalError, ModelRequestError
from eval.prompts import Prompt
from mempp.llm import Model, Request, Stopped, Usage

# Thinking counts as written: a model that thinks needs room for it before a short answer. What is not written costs
# nothing, but is reserved while the request is out.
DEFAULT_MAX_TOKENS = 4096

_NO_EVIDENCE = "(nothing was found)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of asking one question."""

    text: str
    """Empty where there is none, and then `error` says why."""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    cached: bool = False
    stopped: Stopped = "end"
    error: str | None = None
    """The request failed, or the model declined or said nothing. A failed request is not cached: it can be repeated."""


class Answerer:
    """A model and a prompt. For many threads at once."""

    def __init__(
        self,
        model: Model,
        prompt: Prompt,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        *,
        choice_prompt: Prompt | None = None,
    ) -> None:
        """Prepares an answerer.

        Args:
            model: what is asked.
            prompt: how.
            max_tokens: the most that an answer may have.
            choice_prompt: what multiple-choice questions are asked with if the prompt has no {choices}.

        Raises:
            EvalError: the prompt has no place for the question, or `max_tokens` is below 1.
        """
        if "question" not in prompt.placeholders:
            raise EvalError(f"the answer prompt {prompt.name!r} has no {{question}}; write it where the question goes")
        if max_tokens < 1:
            raise EvalError(f"the most tokens of an answer are {max_tokens}; give 1 or more")
        self.model = model
        self.prompt = prompt
        self.choice_prompt = prompt if choice_prompt is None or "choices" in prompt.placeholders else choice_prompt
        self.max_tokens = max_tokens

    def answer(self, case: Case, evidence: str) -> Answer:
        """Returns the answer to a question from its evidence.

        Raises:
            CostLimitError: the request might exceed `--max-cost`.
            ModelError: no request to this model can succeed (key, model, address or account are refused).
        """
        system, prompt = (self.choice_prompt if case.choices else self.prompt).fill(
            {
                "question": case.text,
                "evidence": evidence if evidence.strip() else _NO_EVIDENCE,
                "asked_at": case.asked_at,
                "as_of": case.as_of,
                "choices": choices_text(case) if case.choices else None,
            }
        )
        try:
            reply = self.model.ask(Request(system=system, prompt=prompt, max_tokens=self.max_tokens))
        except ModelRequestError as error:
            return Answer(text="", error=str(error))
        text, problem = reply.text.strip(), None
        if reply.stopped == "refusal":
            text, problem = "", f"{self.model.name} declined to answer: {text[:200] or 'no reason given'}"
        elif not text and reply.stopped == "length":
            problem = f"{self.model.name} wrote {self.max_tokens} tokens and came to no answer; allow more"
        elif not text:
            problem = f"{self.model.name} returned an empty answer"
        return Answer(
            text=text,
            usage=reply.usage,
            seconds=reply.seconds,
            cached=reply.cached,
            stopped=reply.stopped,
            error=problem,
        )


def choices_text(case: Case) -> str:
    """Returns the options of a multiple-choice question, one a line: "A. text"."""
    return "\n".join(f"{letter}. {text}" for letter, text in case.choices.items())
