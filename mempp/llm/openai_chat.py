"""Models behind OpenAI's chat completions: OpenAI's own, and those of every server that speaks the same protocol."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

from mempp import remote
from mempp.errors import ModelError
from mempp.llm.base import Pieces, Reply, Request, Stopped, Usage
from mempp.llm.failures import without_keys
from mempp.llm.served import PLACEHOLDER_KEY, Served, count, counted

_KEY = "OPENAI_API_KEY"

# Some local servers leave a model's thinking in front of its reply.
_THINKING = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
_THINKING_TAG, _THINKING_END = "<think>", "</think>"

_Structure = Literal["json_schema", "json_object", "none"]
_STRUCTURES: tuple[_Structure, ...] = get_args(_Structure)


@dataclass(frozen=True, slots=True)
class _Form:
    """What a server takes."""

    temperature: bool = True
    limit: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    limit_learnt: bool = False
    structure: _Structure = "json_schema"
    stream_usage: bool = True


class OpenAIChat(Served[_Form]):
    """One model, through the `openai` SDK.

    The key is OPENAI_API_KEY; the server `base_url`, else OPENAI_BASE_URL, else OpenAI's. A server that is named needs
    no key: a placeholder is sent in its place.
    """

    provider: ClassVar[str] = "openai"
    keys: ClassVar[tuple[str, ...]] = (_KEY, "OPENAI_ADMIN_KEY")
    base_url_variable: ClassVar[str] = "OPENAI_BASE_URL"
    answer: ClassVar[str] = "chat completion"

    def _import_sdk(self) -> Any:
        import openai

        return openai

    def _connect(self, max_retries: int) -> Any:
        key = os.environ.get(_KEY) or (PLACEHOLDER_KEY if self._base_url else None)
        if key is None:
            self._no_key()
        try:
            return self._sdk.OpenAI(
                api_key=key,
                base_url=self._base_url,
                max_retries=max_retries,
                timeout=self._timeout,
                http_client=remote.http_client(self._sdk, self._timeout),
            )
        except self._sdk.OpenAIError as error:
            failure = without_keys(str(error), self.keys)
        raise ModelError(f"no client for {self.name}: {failure}")

    def _first_form(self) -> _Form:
        # Other servers may know the older name only, and would write without end if it were not taken.
        return _Form(limit="max_tokens" if self._base_url else "max_completion_tokens")

    def _open(self, request: Request, form: _Form, *, stream: bool) -> Any:
        return self._client.chat.completions.create(**_parameters(self._model, request, form, stream))

    def _weaker(self, form: _Form, request: Request, parameter: str | None, message: str) -> _Form | None:
        about = f"{parameter or ''} {message}".lower()
        if form.temperature and "temperature" in about:
            return replace(form, temperature=False)
        if form.stream_usage and ("stream_options" in about or "include_usage" in about):
            return replace(form, stream_usage=False)
        if not form.limit_learnt and ("max_tokens" in about or "max_completion_tokens" in about):
            other: Literal["max_completion_tokens", "max_tokens"] = (
                "max_tokens" if form.limit == "max_completion_tokens" else "max_completion_tokens"
            )
            return replace(form, limit=other, limit_learnt=True)
        # Servers word this in many ways, or only say that the request is bad. What the weaker form does not mend is
        # told.
        if request.schema is not None and form.structure != _STRUCTURES[-1]:
            return replace(form, structure=_STRUCTURES[_STRUCTURES.index(form.structure) + 1])
        return None

    def _both(self, known: _Form, learnt: _Form) -> _Form:
        return _Form(
            temperature=learnt.temperature and known.temperature,
            limit=learnt.limit if learnt.limit_learnt else known.limit,
            limit_learnt=learnt.limit_learnt or known.limit_learnt,
            structure=max(learnt.structure, known.structure, key=_STRUCTURES.index),
            stream_usage=learnt.stream_usage and known.stream_usage,
        )

    def _reply(self, answer: Any, seconds: float) -> tuple[Reply, bool]:
        # The SDK does not check what a server sends: anything may be missing.
        try:
            choice = answer.choices[0]
            message = choice.message
            text, refusal = message.content, getattr(message, "refusal", None)
        except (AttributeError, IndexError, KeyError, TypeError):
            raise self._unusable("it holds no message") from None
        stopped = _stopped(choice.finish_reason, refusal)
        if stopped == "refusal":
            text = refusal or text
        usage = _usage(getattr(answer, "usage", None))
        said = _THINKING.sub("", text) if isinstance(text, str) else ""
        return Reply(text=said, usage=usage or Usage(), seconds=seconds, stopped=stopped), usage is not None

    def _pieces(self, events: Iterator[Any]) -> Pieces[tuple[str, Stopped | None, Usage | None]]:
        text, refusal, reason, billed = "", "", None, None
        thinking = _WithoutThinking()
        for event in events:
            billed = getattr(event, "usage", None) or billed
            # The last event, with the usage, has no choices; some servers send them as null.
            choices = getattr(event, "choices", None) or ()
            try:
                choice = choices[0] if choices else None
                delta = getattr(choice, "delta", None)
                written, declined = getattr(delta, "content", None), getattr(delta, "refusal", None)
                reason = getattr(choice, "finish_reason", None) or reason
            except (TypeError, KeyError, IndexError, AttributeError):
                raise self._unusable("an event of it holds no choice") from None
            refusal += declined if isinstance(declined, str) else ""
            piece = thinking.after(written) if isinstance(written, str) else ""
            if piece:
                text += piece
                yield piece
        rest = thinking.rest()
        if rest:
            text += rest
            yield rest
        stopped = None if reason is None else _stopped(reason, refusal)
        if stopped == "refusal":
            text = refusal or text
        return text, stopped, _usage(billed)


class _WithoutThinking:
    """Holds the beginning of a reply back as long as it may be a model's thinking, and leaves that out."""

    def __init__(self) -> None:
        self._held: str | None = ""
        self._thinking = False

    def after(self, piece: str) -> str:
        """What can be told after one more piece."""
        if self._held is None:
            return piece
        self._held += piece
        if self._thinking and _THINKING_END not in self._held:
            return ""
        start = self._held.lstrip()
        self._thinking = start.startswith(_THINKING_TAG)
        if _THINKING_TAG.startswith(start) or (start.startswith(_THINKING_TAG) and not _done_thinking(self._held)):
            return ""
        return self.rest()

    def rest(self) -> str:
        """What was held back, without thinking that came to its end."""
        told, self._held = _THINKING.sub("", self._held or ""), None
        return told


def _done_thinking(text: str) -> bool:
    """Whether thinking came to its end and words follow it: the white space between is left out with it."""
    found = _THINKING.match(text)
    return found is not None and found.end() < len(text)


def _stopped(reason: object, refusal: object) -> Stopped:
    if refusal or reason == "content_filter":
        return "refusal"
    return "length" if reason == "length" else "end"


def _usage(billed: object) -> Usage | None:
    return counted(count(billed, "prompt_tokens"), count(billed, "completion_tokens"))


def _parameters(model: str, request: Request, form: _Form, stream: bool) -> dict[str, Any]:
    messages = [{"role": "user", "content": request.prompt}]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    parameters: dict[str, Any] = {"model": model, "messages": messages, form.limit: request.max_tokens}
    if form.temperature:
        parameters["temperature"] = 0
    if request.schema is not None and form.structure == "json_schema":
        schema = {"name": "reply", "schema": dict(request.schema), "strict": True}
        parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif request.schema is not None and form.structure == "json_object":
        parameters["response_format"] = {"type": "json_object"}
    if stream:
        parameters["stream"] = True
        if form.stream_usage:
            parameters["stream_options"] = {"include_usage": True}
    return parameters
