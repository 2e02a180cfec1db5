"""Models behind Anthropic's messages."""

import os
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from eval.errors import ModelError, RequestFailedError
from eval.models.base import Reply, Request, Stopped, Usage
from eval.models.failures import UnansweredError, checked_base_url, status_failure, without_keys

if TYPE_CHECKING:
    from anthropic import Anthropic

_KEY = "ANTHROPIC_API_KEY"
_KEYS = (_KEY, "ANTHROPIC_AUTH_TOKEN")
_PLACEHOLDER_KEY = "none"

# The last version of the API that takes a temperature; models since Opus 4.7 refuse one under every version.
_VERSION_WITH_TEMPERATURE = "2023-06-01"


@dataclass(frozen=True, slots=True)
class _Form:
    """What the model takes; each step that a refusal teaches goes one way."""

    temperature: bool = True
    schema: bool = True


class AnthropicMessages:
    """One model, through the `anthropic` SDK, which also does the retries.

    The key is found as the SDK finds it (ANTHROPIC_API_KEY first); the server is `base_url`, else ANTHROPIC_BASE_URL,
    else Anthropic's. A server that is named needs no key: a placeholder is sent in its place.
    """

    def __init__(
        self, model: str, *, base_url: str | None = None, timeout: float = 120.0, max_retries: int = 5
    ) -> None:
        """Makes the client; nothing is sent. Arguments and errors as `OpenAIChat`; a base URL ends before "/v1"."""
        self._model = model
        self._base_url = checked_base_url(base_url or os.environ.get("ANTHROPIC_BASE_URL"))
        self._timeout = timeout
        self._attempts = max_retries + 1
        self._client = self._connect(max_retries)
        # Closed with its owner: left to the collector, open sockets may go before their client and be warned of.
        weakref.finalize(self, self._client.close)
        self._form = _Form()
        self._guard = threading.Lock()
        self._reached = False

    @property
    def name(self) -> str:
        """Provider and model."""
        return f"anthropic:{self._model}"

    @property
    def identity(self) -> Mapping[str, Any]:
        """What settles a reply beside the request."""
        return {"provider": "anthropic", "model": self._model, "base_url": self._base_url, "temperature": 0}

    def send(self, request: Request) -> tuple[Reply, bool]:
        """Asks; what the model does not take (temperature, schema) is left out from then on.

        Returns:
            The reply, and whether the server counted its tokens.

        Raises:
            RequestFailedError, ModelError: see `Model.ask`.
        """
        form = self._form
        started = time.perf_counter()
        while True:
            message, weaker = self._create(request, form)
            if weaker is None:
                break
            form = weaker
        with self._guard:
            self._reached = True
            self._form = _Form(self._form.temperature and form.temperature, self._form.schema and form.schema)
        return self._reply(message, time.perf_counter() - started)

    def _connect(self, max_retries: int) -> "Anthropic":
        try:
            import anthropic
        except ImportError as error:
            raise ModelError(
                f"{self.name} needs the anthropic package ({error}); run: pip install anthropic"
            ) from error
        keyless = self._base_url is not None and not any(os.environ.get(name) for name in _KEYS)
        told = ""
        try:
            client = anthropic.Anthropic(
                api_key=_PLACEHOLDER_KEY if keyless else None,
                base_url=self._base_url,
                max_retries=max_retries,
                timeout=self._timeout,
            )
        except (anthropic.AnthropicError, TypeError, ValueError) as error:
            told = f" ({without_keys(str(error), _KEYS)})"
        else:
            # Newer SDKs also find credentials that are no environment variable.
            if client.api_key or client.auth_token or getattr(client, "credentials", None):
                return client
        raise ModelError(f"{self.name} needs a key; set {_KEY}, or name a server of your own with --base-url{told}")

    def _create(self, request: Request, form: _Form) -> tuple[Any, _Form | None]:
        """Returns the message, or the weaker form to ask in when the server refuses this one."""
        import anthropic

        # Raised below, outside the except blocks: an SDK error as context would carry the request and its key.
        failure: ModelError
        try:
            return self._client.messages.create(**_parameters(self._model, request, form)), None
        except anthropic.APITimeoutError:
            failure = UnansweredError(
                f"{self.name}: {self._server} did not answer within {self._timeout:g} s, {self._attempts} times",
                self._attempts,
            )
        except anthropic.APIConnectionError as error:
            failure = self._connection_failure(error)
        except anthropic.APIStatusError as error:
            message = without_keys(str(error), _KEYS)
            weaker = _weaker(form, request, message) if error.status_code == 400 else None
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

    def _reply(self, message: Any, seconds: float) -> tuple[Reply, bool]:
        # The SDK does not check what a server sends: anything may be missing.
        try:
            # Beside text there may be blocks of thinking.
            text = "".join(block.text for block in message.content if block.type == "text")
            reason = message.stop_reason
        except (AttributeError, TypeError):
            raise self._unusable("it holds no content") from None
        usage = getattr(message, "usage", None)
        read = sum(
            _count(usage, name) for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        )
        stopped: Stopped = "end"
        if reason == "refusal":
            stopped = "refusal"
        elif reason in ("max_tokens", "model_context_window_exceeded"):
            stopped = "length"
        counted = Usage(read, _count(usage, "output_tokens"))
        return Reply(text=text, usage=counted, seconds=seconds, stopped=stopped), usage is not None

    def _unusable(self, why: str) -> RequestFailedError:
        return RequestFailedError(f"{self.name}: the answer of {self._server} is no message ({why})")

    @property
    def _server(self) -> str:
        return urlsplit(str(self._client.base_url)).netloc.rpartition("@")[2]


def _parameters(model: str, request: Request, form: _Form) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": [{"role": "user", "content": request.prompt}],
    }
    if request.system:
        parameters["system"] = request.system
    # Both are sent beside the SDK's own arguments: its releases since 1.0 know no temperature, earlier ones no
    # output_config. A forced tool would give the same form, but the newest models refuse one.
    extra: dict[str, Any] = {}
    if form.temperature:
        extra["temperature"] = 0
        parameters["extra_headers"] = {"anthropic-version": _VERSION_WITH_TEMPERATURE}
    if request.schema is not None and form.schema:
        extra["output_config"] = {"format": {"type": "json_schema", "schema": dict(request.schema)}}
    if extra:
        parameters["extra_body"] = extra
    return parameters


def _weaker(form: _Form, request: Request, message: str) -> _Form | None:
    """Returns the form without what the server refused; None if the refusal is about something else."""
    about = message.lower()
    if form.temperature and "temperature" in about:
        return replace(form, temperature=False)
    told = ("output_config", "output config", "schema", "structured", "format")
    if request.schema is not None and form.schema and any(word in about for word in told):
        return replace(form, schema=False)
    return None


def _count(usage: object, name: str) -> int:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and value >= 0 else 0
