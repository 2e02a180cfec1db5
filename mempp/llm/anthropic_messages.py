"""Models behind Anthropic's messages."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mempp import remote
from mempp.llm.base import Pieces, Reply, Request, Stopped, Usage
from mempp.llm.failures import without_keys
from mempp.llm.served import PLACEHOLDER_KEY, Served, count, counted

_READ = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

# The last version of the API that takes a temperature; models since Opus 4.7 refuse one under every version.
_VERSION_WITH_TEMPERATURE = "2023-06-01"


@dataclass(frozen=True, slots=True)
class _Form:
    """What the model takes."""

    temperature: bool = True
    schema: bool = True


class AnthropicMessages(Served[_Form]):
    """One model, through the `anthropic` SDK.

    The key is found as the SDK finds it (ANTHROPIC_API_KEY first); the server is `base_url`, else ANTHROPIC_BASE_URL,
    else Anthropic's. A server that is named needs no key: a placeholder is sent in its place.
    """

    provider: ClassVar[str] = "anthropic"
    keys: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    base_url_variable: ClassVar[str] = "ANTHROPIC_BASE_URL"
    answer: ClassVar[str] = "message"

    def _import_sdk(self) -> Any:
        import anthropic

        return anthropic

    def _connect(self, max_retries: int) -> Any:
        keyless = self._base_url is not None and not any(os.environ.get(name) for name in self.keys)
        told = ""
        try:
            client = self._sdk.Anthropic(
                api_key=PLACEHOLDER_KEY if keyless else None,
                base_url=self._base_url,
                max_retries=max_retries,
                timeout=self._timeout,
                http_client=remote.http_client(self._sdk, self._timeout),
            )
        except (self._sdk.AnthropicError, TypeError, ValueError) as error:
            told = f" ({without_keys(str(error), self.keys)})"
        else:
            # Newer SDKs also find credentials that are no environment variable.
            if client.api_key or client.auth_token or getattr(client, "credentials", None):
                return client
        return self._no_key(told)

    def _first_form(self) -> _Form:
        return _Form()

    def _open(self, request: Request, form: _Form, *, stream: bool) -> Any:
        return self._client.messages.create(**_parameters(self._model, request, form, stream))

    def _weaker(self, form: _Form, request: Request, parameter: str | None, message: str) -> _Form | None:
        about = message.lower()
        if form.temperature and "temperature" in about:
            return replace(form, temperature=False)
        told = ("output_config", "output config", "schema", "structured", "format")
        if request.schema is not None and form.schema and any(word in about for word in told):
            return replace(form, schema=False)
        return None

    def _both(self, known: _Form, learnt: _Form) -> _Form:
        return _Form(known.temperature and learnt.temperature, known.schema and learnt.schema)

    def _reply(self, answer: Any, seconds: float) -> tuple[Reply, bool]:
        # The SDK does not check what a server sends: anything may be missing.
        try:
            # Beside text there may be blocks of thinking.
            text = "".join(block.text for block in answer.content if block.type == "text")
            reason = answer.stop_reason
        except (AttributeError, TypeError):
            raise self._unusable("it holds no content") from None
        billed = getattr(answer, "usage", None)
        usage = counted(_read(billed), count(billed, "output_tokens"))
        return Reply(text=text, usage=usage or Usage(), seconds=seconds, stopped=_stopped(reason)), usage is not None

    def _pieces(self, events: Iterator[Any]) -> Pieces[tuple[str, Stopped | None, Usage | None]]:
        text, reason = "", None
        read: int | None = None
        written: int | None = None
        for event in events:
            kind = getattr(event, "type", None)
            if kind == "message_start":
                usage = getattr(getattr(event, "message", None), "usage", None)
                read, written = _read(usage), count(usage, "output_tokens")
            elif kind == "content_block_delta":
                piece = getattr(getattr(event, "delta", None), "text", None)  # a delta of thinking has none
                if isinstance(piece, str) and piece:
                    text += piece
                    yield piece
            elif kind == "message_delta":
                reason = getattr(getattr(event, "delta", None), "stop_reason", None) or reason
                usage = getattr(event, "usage", None)
                # These counts are of the whole message so far; those of what was read may be left out.
                read = _read(usage) or read
                written = count(usage, "output_tokens")
        return text, None if reason is None else _stopped(reason), counted(read, written)


def _read(usage: object) -> int | None:
    """Tokens that were read, those from and into the provider's cache too; None where the server says none."""
    counts = [count(usage, name) for name in _READ]
    return None if counts[0] is None else sum(one or 0 for one in counts)


def _stopped(reason: object) -> Stopped:
    if reason == "refusal":
        return "refusal"
    return "length" if reason in ("max_tokens", "model_context_window_exceeded") else "end"


def _parameters(model: str, request: Request, form: _Form, stream: bool) -> dict[str, Any]:
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
    if stream:
        parameters["stream"] = True
    return parameters
