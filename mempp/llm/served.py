"""What the clients of both SDKs share: one call, its faults, and what a server was found not to take."""

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Generic, NoReturn, TypeVar
from urllib.parse import urlsplit

from mempp import remote
from mempp.errors import InputError, ModelError, ModelRequestError
from mempp.llm.base import Pieces, Reply, Request, Sent, Stopped, Usage
from mempp.llm.failures import UnansweredError, checked_base_url, status_failure, without_keys
from mempp.llm.keys import KeyFilter, keys_of

PLACEHOLDER_KEY = "none"
"""What is sent for a key to a server that is named and needs none; the SDKs insist on one."""
OWN_SERVER = "or name a server of your own with the base URL (base_url, --base-url)"

_MOST_TOKENS = 10**12

Form = TypeVar("Form")
"""What a server takes. Each step that a refusal teaches goes one way, so that asking comes to an end."""


class Served(ABC, Generic[Form]):
    """One model of one server, through its SDK, which also does the retries.

    A reply that is streamed is not asked for again by the SDK once its first bytes came: it breaks off.
    """

    provider: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]
    """Environment variables that hold a key; the first is the one that is told."""
    base_url_variable: ClassVar[str]
    answer: ClassVar[str]
    """What the server's answer is called in a message."""

    def __init__(
        self, model: str, *, base_url: str | None = None, timeout: float = 120.0, max_retries: int = 5
    ) -> None:
        """Makes the client; nothing is sent.

        Args:
            model: the model's name at the server.
            base_url: the server; for OpenAI's protocol such as "http://localhost:11434/v1", for Anthropic's it ends
                before "/v1".
            timeout: seconds that an attempt may take in whole; one that is streamed so many to its next bytes, and ten
                times as many in whole.
            max_retries: how often the SDK repeats a request after 408, 409, 429, 5xx, a timeout or a lost connection.

        Raises:
            ModelError: the package or the key is missing.
            InputError: the base URL is not usable.
        """
        self._model = model
        self._base_url = checked_base_url(base_url or os.environ.get(self.base_url_variable))
        self._timeout = timeout
        self._attempts = max_retries + 1
        try:
            self._sdk = self._import_sdk()
        except ImportError as error:
            raise ModelError(
                f"{self.name} needs the {self.provider} package ({error}); run: pip install {self.provider} (the extra "
                f"mempp[{self.provider}])"
            ) from error
        if any(key in (self._base_url or "") for key in keys_of(self.keys)):
            raise InputError(
                "the base URL (base_url, --base-url) holds the key, and is written into results and the folder of the "
                f"replies; give an address without it (the key is read from {self.keys[0]})"
            )
        for key in self.keys:
            if fault := remote.key_fault(os.environ.get(key)):
                raise ModelError(f"{self.name}: {key} {fault}")
        self._client = self._connect(max_retries)
        # Closed with its owner: left to the collector, open sockets may go before their client and be warned of.
        weakref.finalize(self, self._client.close)
        self._form = self._first_form()
        self._guard = threading.Lock()
        self._reached = False

    @property
    def name(self) -> str:
        """Provider and model."""
        return f"{self.provider}:{self._model}"

    @property
    def identity(self) -> Mapping[str, Any]:
        """What settles a reply beside the request."""
        return {"provider": self.provider, "model": self._model, "base_url": self._base_url, "temperature": 0}

    @property
    def attempts(self) -> int:
        """How often a request is sent at most."""
        return self._attempts

    def send(self, request: Request) -> Sent:
        """Asks; what the server does not take (temperature, schema, …) is left out from then on.

        Raises:
            ModelRequestError, ModelError: see `Model.ask`.
        """
        started = time.perf_counter()
        answer, lost = self._opened(request, stream=False)
        with _after(lost):
            reply, counted = self._read(answer, time.perf_counter() - started)
        return Sent(replace(reply, lost=lost), counted)

    def stream(self, request: Request) -> Pieces[Sent]:
        """Asks as `send` does, yields the text as it comes, and returns the same."""
        started = time.perf_counter()
        events, lost = self._opened(request, stream=True)
        with _after(lost):
            try:
                watched = self._watched(events)
                first = next(watched, None)
                if first is None:
                    raise self._unusable("it holds no event of a stream")
                text, stopped, usage = yield from self._told(chain([first], watched))
            finally:
                events.close()
            if stopped is None:
                raise self._broken_off("it ended before the model was done")
        seconds = time.perf_counter() - started
        reply = Reply(text=text, usage=usage or Usage(), seconds=seconds, stopped=stopped, lost=lost)
        return Sent(reply, usage is not None)

    # -- what each SDK does in its own way --------------------------------------------------------------------------

    @abstractmethod
    def _import_sdk(self) -> Any:
        """The SDK's module, imported only now. Raises ImportError."""

    @abstractmethod
    def _connect(self, max_retries: int) -> Any:
        """The SDK's client. Raises ModelError where there is no key."""

    @abstractmethod
    def _first_form(self) -> Form:
        """What a server is first taken to take."""

    @abstractmethod
    def _open(self, request: Request, form: Form, *, stream: bool) -> Any:
        """The SDK's answer, or its stream; raises as the SDK does."""

    @abstractmethod
    def _weaker(self, form: Form, request: Request, parameter: str | None, message: str) -> Form | None:
        """The form without what the server refused; None if the refusal is about something else."""

    @abstractmethod
    def _both(self, known: Form, learnt: Form) -> Form:
        """The form that leaves out what either leaves out."""

    @abstractmethod
    def _reply(self, answer: Any, seconds: float) -> tuple[Reply, bool]:
        """What an answer of the SDK says. Raises ModelRequestError where it is none."""

    @abstractmethod
    def _pieces(self, events: Iterator[Any]) -> Pieces[tuple[str, Stopped | None, Usage | None]]:
        """Yields the pieces of a stream; returns text, why it stopped (None: broken off), usage if it was told."""

    # -- what they share --------------------------------------------------------------------------------------------

    def _opened(self, request: Request, *, stream: bool) -> tuple[Any, int]:
        """Returns the SDK's answer, and how many attempts before it came to none."""
        form = self._form
        request = replace(request, system=_sendable(request.system), prompt=_sendable(request.prompt))
        with remote.counted() as attempts:
            while True:
                answer, weaker = self._tried(request, form, attempts, stream=stream)
                if weaker is None:
                    break
                form = weaker
        with self._guard:  # together with what other threads learnt meanwhile
            self._reached = True
            self._form = self._both(self._form, form)
        return answer, max(0, attempts.open - 1)

    def _tried(
        self, request: Request, form: Form, attempts: remote.Attempts, *, stream: bool
    ) -> tuple[Any, Form | None]:
        """Returns the answer, or the weaker form to ask in when the server refuses this one."""
        sdk = self._sdk
        # Raised below, outside the except blocks: an SDK error as context would carry the request and its key.
        failure: ModelError
        try:
            return self._open(request, form, stream=stream), None
        except sdk.APITimeoutError:
            failure = UnansweredError(
                f"{self.name}: {self._server} did not answer within {self._timeout:g} s ({self._attempts} attempt(s))",
                attempts.open,
            )
        except sdk.APIConnectionError as error:
            failure = self._connection_failure(error, attempts.open)
        except sdk.APIStatusError as error:
            message = self._hidden(error)
            weaker = None
            if error.status_code in (400, 422):
                weaker = self._weaker(form, request, getattr(error, "param", None), message)
            if weaker is not None:
                return None, weaker
            failure = status_failure(self.name, self._server, error.status_code, message, keys=self.keys)
            if attempts.open and isinstance(failure, ModelRequestError):
                failure = UnansweredError(str(failure), attempts.open)
        except MemoryError:
            raise
        except Exception as error:  # the SDK lets a body that is no JSON through as it failed
            failure = self._unusable(f"{type(error).__name__}: {self._hidden(error)}", attempts.open)
        raise failure

    def _read(self, answer: Any, seconds: float) -> tuple[Reply, bool]:
        """What an answer says, whatever it is, without a key that the server may have said back."""
        problem: Exception
        try:
            reply, counted = self._reply(answer, seconds)
        except (MemoryError, ModelError):
            raise
        except Exception as error:  # the SDK does not check what a server sends
            problem = error
        else:
            return replace(reply, text=KeyFilter(self.keys).whole(reply.text)), counted
        raise self._unusable(f"{type(problem).__name__}: {self._hidden(problem)}")

    def _told(self, events: Iterator[Any]) -> Pieces[tuple[str, Stopped | None, Usage | None]]:
        """The same of a stream."""
        filtered, problem = KeyFilter(self.keys), None
        pieces = self._pieces(events)
        with closing(pieces):
            while problem is None:
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    text, stopped, usage = end.value
                    if rest := filtered.rest():
                        yield rest
                    return KeyFilter(self.keys).whole(text), stopped, usage
                except (MemoryError, ModelError):
                    raise
                except Exception as error:
                    problem = error
                else:
                    if told := filtered.after(piece):
                        yield told
        raise self._unusable(f"{type(problem).__name__}: {self._hidden(problem)}")

    def _watched(self, events: Iterator[Any]) -> Iterator[Any]:
        """The events of a stream; a fault in the middle of it is told like any other."""
        while True:
            failure: ModelError
            try:
                event = next(events, None)
            except MemoryError:
                raise
            except Exception as error:
                failure = self._broken(error)
            else:
                if event is None:
                    return
                yield event
                continue
            raise failure

    def _broken(self, error: Exception) -> ModelError:
        told = f"{type(error).__name__}: {self._hidden(error.__cause__ or error)}"
        if isinstance(error, self._sdk.APITimeoutError) or "Timeout" in type(error).__name__:
            return self._broken_off(f"nothing more came within {self._timeout:g} s")
        if isinstance(error, ValueError | TypeError | AttributeError):
            return self._unusable(told)
        return self._broken_off(told)

    def _broken_off(self, why: str) -> UnansweredError:
        return UnansweredError(f"{self.name}: the answer of {self._server} broke off ({why})", 1)

    def _connection_failure(self, error: Exception, attempts: int) -> ModelError:
        cause = error.__cause__ or error
        told = f"{self.name}: no connection to {self._server} ({self._hidden(cause)})"
        if type(cause).__name__ != "ConnectError":
            return UnansweredError(told, attempts)
        if self._reached:
            return ModelRequestError(told)
        return ModelError(f"{told}; check the network and the base URL (base_url, --base-url)")

    def _unusable(self, why: str, attempts: int = 1) -> UnansweredError:
        return UnansweredError(f"{self.name}: the answer of {self._server} is no {self.answer} ({why})", attempts)

    def _no_key(self, told: str = "") -> NoReturn:
        raise ModelError(f"{self.name} needs a key; set {self.keys[0]}, {OWN_SERVER}{told}")

    def _hidden(self, error: BaseException) -> str:
        return without_keys(str(error), self.keys)

    @property
    def _server(self) -> str:
        return urlsplit(str(self._client.base_url)).netloc.rpartition("@")[2]


@contextmanager
def _after(lost: int) -> Iterator[None]:
    """A fault of an answer counts together with the attempts before it."""
    try:
        yield
    except UnansweredError as error:
        error.attempts += lost
        raise


def _sendable(text: str) -> str:
    """A text with a mark in place of each half character (a lone surrogate), which no request can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def count(usage: object, name: str) -> int | None:
    """A number of tokens in what a server says it counted; None where it says none, or none that can be."""
    value = getattr(usage, name, None)
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if usable else None


def counted(read: int | None, written: int | None) -> Usage | None:
    """What a server counted; None where it did not: a number is missing, or both are 0, as some say that do not."""
    return None if read is None or written is None or not (read or written) else Usage(read, written)
