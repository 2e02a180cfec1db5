"""Models behind OpenAI's chat completions: OpenAI's own, and those of every server that speaks the same protocol."""

import os
import re
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from eval.errors import ModelError, RequestFailedError
from eval.models.base import Reply, Request, Stopped, Usage
from eval.models.failures import UnansweredError, checked_base_url, status_failure, without_keys

if TYPE_CHECKING:
    from openai import OpenAI

_KEY = "OPENAI_API_KEY"
_KEYS = (_KEY, "OPENAI_ADMIN_KEY")
_PLACEHOLDER_KEY = "none"

# Some local servers leave a model's thinking in front of its reply.
_THINKING = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)

_Structure = Literal["json_schema", "json_object", "none"]
_STRUCTURES: tuple[_Structure, ...] = get_args(_Structure)


@dataclass(frozen=True, slots=True)
class _Form:
    """What a server takes. Each step that a refusal teaches goes one way, so that asking comes to an end."""

    temperature: bool = True
    limit: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    limit_learnt: bool = False
    structure: _Structure = "json_schema"


class OpenAIChat:
    """One model, through the `openai` SDK, which also does the retries.

    The key is OPENAI_API_KEY; the server `base_url`, else OPENAI_BASE_URL, else OpenAI's. A server that is named needs
    no key: a placeholder is sent in its place.
    """

    def __init__(
        self, model: str, *, base_url: str | None = None, timeout: float = 120.0, max_retries: int = 5
    ) -> None:
        """Makes the client; nothing is sent.

        Args:
            model: the model's name at the server.
            base_url: the server, such as "http://localhost:11434/v1".
            timeout: seconds to wait for the next bytes of a reply.
            max_retries: how often the SDK repeats a request after 408, 409, 429, 5xx, a timeout or a lost connection.

        Raises:
            ModelError: the package or the key is missing.
            EvalError: the base URL is not usable.
        """
        self._model = model
        self._base_url = checked_base_url(base_url or os.environ.get("OPENAI_BASE_URL"))
        self._timeout = timeout
        self._attempts = max_retries + 1
        self._client = self._connect(max_retries)
        # Closed with its owner: left to the collector, open sockets may go before their client and be warned of.
        weakref.finalize(self, self._client.close)
        # Other servers may know the older name only, and would write without end if it were not taken.
        self._form = _Form(limit="max_tokens" if self._base_url else "max_completion_tokens")
        self._guard = threading.Lock()
        self._reached = False

    @property
    def name(self) -> str:
        """Provider and model."""
        return f"openai:{self._model}"

    @property
    def identity(self) -> Mapping[str, Any]:
        """What settles a reply beside the request."""
        return {"provider": "openai", "model": self._model, "base_url": self._base_url, "temperature": 0}

    def send(self, request: Request) -> tuple[Reply, bool]:
        """Asks; what the server does not take (temperature, schema, the name of the limit) is left out from then on.

        Returns:
            The reply, and whether the server counted its tokens.

        Raises:
            RequestFailedError, ModelError: see `Model.ask`.
        """
        form = self._form
        started = time.perf_counter()
        while True:
            completion, weaker = self._complete(request, form)
            if weaker is None:
                break
            form = weaker
        self._learn(form)
        return self._reply(completion, time.perf_counter() - started)

    def _connect(self, max_retries: int) -> "OpenAI":
        try:
            import openai
        except ImportError as error:
            raise ModelError(f"{self.name} needs the openai package ({error}); run: pip install openai") from error
        key = os.environ.get(_KEY) or (_PLACEHOLDER_KEY if self._base_url else None)
        if key is None:
            raise ModelError(f"{self.name} needs a key; set {_KEY}, or name a server of your own with --base-url")
        try:
            return openai.OpenAI(api_key=key, base_url=self._base_url, max_retries=max_retries, timeout=self._timeout)
        except openai.OpenAIError as error:
            failure = without_keys(str(error), _KEYS)
        raise ModelError(f"no client for {self.name}: {failure}")

    def _complete(self, request: Request, form: _Form) -> tuple[Any, _Form | None]:
        """Returns the completion, or the weaker form to ask in when the server refuses this one."""
        import openai

        # Raised below, outside the except blocks: an SDK error as context would carry the request and its key.
        failure: ModelError
        try:
            return self._client.chat.completions.create(**_parameters(self._model, request, form)), None
        except openai.APITimeoutError:
            failure = UnansweredError(
                f"{self.name}: {self._server} did not answer within {self._timeout:g} s, {self._attempts} times",
                self._attempts,
            )
        except openai.APIConnectionError as error:
            failure = self._connection_failure(error)
        except openai.APIStatusError as error:
            message = without_keys(str(error), _KEYS)
            weaker = _weaker(form, request, error.param, message) if error.status_code in (400, 422) else None
            if weaker is not None:
                return None, weaker
            failure = status_failure(self.name, self._server, error.status_code, message, key_variable=_KEY)
        except MemoryError:
            raise
        except Exception as error:  # the SDK lets a body that is no JSON through as it failed
            failure = self._unusable(f"{type(error).__name__}: {without_keys(str(error), _KEYS)}")
        raise failure

    def _connection_failure(self, error: Exception) -> ModelError:
        cause = error.__cause__ or error
        told = f"{self.name}: no connection to {self._server} ({without_keys(str(cause), _KEYS)})"
        if type(cause).__name__ != "ConnectError":
            return UnansweredError(told, self._attempts)
        if self._reached:
            return RequestFailedError(told)
        return ModelError(f"{told}; check the network and --base-url")

    def _learn(self, form: _Form) -> None:
        """Keeps what was refused, together with what other threads learnt meanwhile."""
        with self._guard:
            self._reached = True
            known = self._form
            self._form = _Form(
                temperature=form.temperature and known.temperature,
                limit=form.limit if form.limit_learnt else known.limit,
                limit_learnt=form.limit_learnt or known.limit_learnt,
                structure=max(form.structure, known.structure, key=_STRUCTURES.index),
            )

    def _reply(self, completion: Any, seconds: float) -> tuple[Reply, bool]:
        # The SDK does not check what a server sends: anything may be missing.
        try:
            choice = completion.choices[0]
            message = choice.message
            text, refusal = message.content, getattr(message, "refusal", None)
        except (AttributeError, IndexError, TypeError):
            raise self._unusable("it holds no message") from None
        billed = getattr(completion, "usage", None)
        usage = Usage(_count(billed, "prompt_tokens"), _count(billed, "completion_tokens"))
        stopped: Stopped = "end"
        if refusal or choice.finish_reason == "content_filter":
            stopped, text = "refusal", refusal or text
        elif choice.finish_reason == "length":
            stopped = "length"
        said = _THINKING.sub("", text) if isinstance(text, str) else ""
        return Reply(text=said, usage=usage, seconds=seconds, stopped=stopped), billed is not None

    def _unusable(self, why: str) -> RequestFailedError:
        return RequestFailedError(f"{self.name}: the answer of {self._server} is no chat completion ({why})")

    @property
    def _server(self) -> str:
        return urlsplit(str(self._client.base_url)).netloc.rpartition("@")[2]


def _parameters(model: str, request: Request, form: _Form) -> dict[str, Any]:
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
    return parameters


def _weaker(form: _Form, request: Request, parameter: str | None, message: str) -> _Form | None:
    """Returns the form without what the server refused; None if the refusal is about something else."""
    about = f"{parameter or ''} {message}".lower()
    if form.temperature and "temperature" in about:
        return replace(form, temperature=False)
    if not form.limit_learnt and ("max_tokens" in about or "max_completion_tokens" in about):
        other: Literal["max_completion_tokens", "max_tokens"] = (
            "max_tokens" if form.limit == "max_completion_tokens" else "max_completion_tokens"
        )
        return replace(form, limit=other, limit_learnt=True)
    # Servers word this in many ways, or only say that the request is bad. What the weaker form does not mend is told.
    if request.schema is not None and form.structure != _STRUCTURES[-1]:
        return replace(form, structure=_STRUCTURES[_STRUCTURES.index(form.structure) + 1])
    return None


def _count(usage: object, name: str) -> int:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and value >= 0 else 0
