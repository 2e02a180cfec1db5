"""What is asked of a language model, and what comes back, whoever serves it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Stopped = Literal["end", "length", "refusal"]
"""Why a model stopped: it was done, it ran into `max_tokens`, or it declined."""

JsonSchema = Mapping[str, Any]
"""A JSON schema of an object whose properties are all required."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that were billed: what was read, and what was written (a model's own thinking is written too)."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a model. Two equal requests have one reply: the second is taken from the cache."""

    prompt: str
    system: str = ""
    max_tokens: int
    """Most tokens to be written, thinking included."""
    schema: JsonSchema | None = None
    """Form of the reply. A server that knows no schemas is asked without: the reply may then be anything."""
    repeat: int = 0
    """0, 1, 2, … for a request that is made several times on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model said."""

    text: str
    """May be empty; of a refusal, its wording if it has one."""
    usage: Usage
    seconds: float
    """From asking to the whole reply, the SDK's retries and their waiting included; a cached reply keeps its first."""
    stopped: Stopped
    cached: bool = False


class Model(Protocol):
    """A model that can be asked by many threads at once."""

    @property
    def name(self) -> str:
        """Provider and model, such as "openai:gpt-4o-mini"."""
        ...

    def ask(self, request: Request) -> Reply:
        """Returns the reply, from the cache if the same was asked before.

        Raises:
            RequestFailedError: this request failed, after the SDK's retries; others may succeed.
            ModelError: none can succeed: the key or the model is refused, the account is empty.
            CostLimitReached: the request might exceed `--max-cost`; it was not sent.
        """
        ...


class Provider(Protocol):
    """Sends requests to one model of one server. `models/client.py` puts cache and budget before it."""

    @property
    def name(self) -> str:
        """Provider and model, such as "openai:gpt-4o-mini"."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """What, beside the request, settles the reply: provider, model, server, temperature. Without any key."""
        ...

    def send(self, request: Request) -> tuple[Reply, bool]:
        """Returns the reply, and whether its usage is known (some local servers do not count).

        Raises:
            RequestFailedError, ModelError: as `Model.ask`.
            Unanswered: no answer came although the server may have made one.
        """
        ...
