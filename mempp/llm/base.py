"""What is asked of a language model, and what comes back, whoever serves it."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

Stopped = Literal["end", "length", "refusal"]
"""Why a model stopped: it was done, it ran into `max_tokens`, or it declined."""

JsonSchema = Mapping[str, Any]
"""A JSON schema of an object whose properties are all required; see `mempp.llm.objects` for what it may hold."""


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
    """Form of the reply. A server that knows no schemas is asked without: `object_of` checks what came."""
    repeat: int = 0
    """0, 1, 2, … for a request that is made several times on purpose."""
    usable: "Callable[[Reply], bool] | None" = field(default=None, compare=False, repr=False)
    """Tells whether a reply is of use; None: every one is. Others are not kept, and if one is found all the same, the
    model is asked again. It is no part of what the request is."""


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
    lost: int = 0
    """Attempts before it that came to no answer: the server may have done, and billed, the work each time."""


class Sent(NamedTuple):
    """A reply as its provider gives it."""

    reply: Reply
    counted: bool
    """Whether the server told its usage; some local servers do not count."""


Result = TypeVar("Result")

Pieces = Generator[str, None, Result]
"""A reply as it is written: pieces of its text, then, as the value of the generator, all of it. The pieces joined are
the reply's text; of a refusal there may be none. Closing the generator ends the request."""


class Model(Protocol):
    """A model that can be asked by many threads at once."""

    @property
    def name(self) -> str:
        """Provider and model, such as "openai:gpt-4o-mini"."""
        ...

    def ask(self, request: Request) -> Reply:
        """Returns the reply, from the cache if the same was asked before.

        Raises:
            ModelRequestError: this request failed, after the SDK's retries; others may succeed.
            ModelError: none can succeed: the key or the model is refused, the account is empty.
            CostLimitError: the request might exceed the limit of the cost; it was not sent.
        """
        ...

    def stream(self, request: Request) -> Pieces[Reply]:
        """Yields the text as it is written and returns the whole reply; a cached reply comes in one piece.

        A model that cannot stream may yield `ask(request).text` and return the reply.

        Raises:
            ModelRequestError, ModelError, CostLimitError: as `ask`; also after some pieces, when the reply breaks off.
        """
        ...


class Provider(Protocol):
    """Sends requests to one model of one server. `llm/client.py` puts cache and budget before it."""

    @property
    def name(self) -> str:
        """Provider and model, such as "openai:gpt-4o-mini"."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """What, beside the request, settles the reply: provider, model, server, temperature. Without any key."""
        ...

    @property
    def attempts(self) -> int:
        """How often a request is sent at most."""
        ...

    def send(self, request: Request) -> Sent:
        """Returns the reply.

        Raises:
            ModelRequestError, ModelError: as `Model.ask`.
            UnansweredError: no answer came, or none of use, although the server may have made one.
        """
        ...

    def stream(self, request: Request) -> Pieces[Sent]:
        """Yields the text as it is written and returns what `send` does; raises as `send`."""
        ...


def streamed(pieces: Pieces[Result], on_text: Callable[[str], object]) -> Result:
    """Returns what comes after the pieces, each of which is handed on as it comes.

    Args:
        pieces: what `Model.stream` returns.
        on_text: called with each piece; what it raises ends the request and passes through.
    """
    try:
        while True:
            on_text(next(pieces))
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        pieces.close()
