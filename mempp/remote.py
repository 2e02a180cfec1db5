"""What the clients of a server share, whichever SDK speaks to it: its address, its key, and an end to waiting.

An SDK's timeout is one for the next bytes: a server that sends a blank now and then is waited for without end. The
HTTP client made here gives each attempt a time in which the head of its answer must be there, and one for the whole.
"""

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mempp.errors import InputError, quoted
from mempp.head_limit import with_head_limit

LONGEST_WAIT = 86_400.0
"""Seconds. Above some weeks the operating system takes no timeout."""
STREAM_FACTOR = 10
"""A reply that is streamed may take so many times the timeout in whole; between two pieces it is the timeout."""

_KEY = re.compile(r"[!-~]+")


@dataclass(slots=True)
class Attempts:
    """How often one call was sent, the SDK's repeats included."""

    sent: int = 0
    refused: int = 0
    """Answered with a status other than 2xx, which is not billed."""

    @property
    def open(self) -> int:
        """Those that came to no answer, or to one that was taken; a server may have billed each of them."""
        return self.sent - self.refused


_ATTEMPTS: ContextVar[Attempts | None] = ContextVar("_ATTEMPTS", default=None)


@contextmanager
def counted() -> Iterator[Attempts]:
    """Counts what the clients of `http_client` send meanwhile in this thread."""
    attempts = Attempts()
    token = _ATTEMPTS.set(attempts)
    try:
        yield attempts
    finally:
        _ATTEMPTS.reset(token)


def http_client(sdk: Any, timeout: float) -> Any:
    """Returns the HTTP client that an SDK would make for itself, with an end to each attempt: `timeout` seconds after
    it was sent, `STREAM_FACTOR` times as many for a stream of events, and `timeout` for the head of the answer. The SDK
    takes it for a timeout like any other.
    """

    def sending(request: Any) -> None:
        request.extensions["mempp_sent"] = time.monotonic()
        if (attempts := _ATTEMPTS.get()) is not None:
            attempts.sent += 1

    def answered(response: Any) -> None:
        if (attempts := _ATTEMPTS.get()) is not None and not response.is_success:
            attempts.refused += 1
        streamed = response.headers.get("content-type", "").startswith("text/event-stream")
        until = response.request.extensions["mempp_sent"] + timeout * (STREAM_FACTOR if streamed else 1)
        response.stream = _within(response, until)

    client = sdk.DefaultHttpxClient(timeout=timeout, event_hooks={"request": [sending], "response": [answered]})
    return with_head_limit(client, timeout)


def _within(response: Any, until: float) -> Any:
    # Whichever release of httpx the SDK uses, it tells streams by its own class.
    http, stream = sys.modules[type(response).__module__.partition(".")[0]], response.stream

    class Within(http.SyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            for chunk in stream:
                if time.monotonic() > until:
                    raise http.ReadTimeout("the answer was not whole in time", request=response.request)
                yield chunk

        def close(self) -> None:
            stream.close()

    return Within()


def checked_address(url: str, name: str) -> str:
    """Returns a server's address without a slash at its end. What is refused is not shown: a key may stand in it.

    Args:
        url: the address.
        name: what the message calls it.

    Raises:
        InputError: it is no http address, or carries a user name, password, query or fragment: it is written into
            stores and results.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except (ValueError, AttributeError, TypeError):
        usable = False
    secret = isinstance(url, str) and any(mark in url for mark in "@?#")
    if not usable:
        shown = "no address (and is not shown, for it may hold a key)" if secret else quoted(url)
        raise InputError(f"{name} is {shown}; give an http or https address, such as http://localhost:8000")
    if secret:
        raise InputError(
            f"{name} may carry no user name, password, query or fragment, for it is written into stores and results; "
            "give the key in the provider's environment variable"
        )
    return url.rstrip("/")


def key_fault(key: str | None) -> str | None:
    """Returns what is wrong with a key that no HTTP header can carry, such as one with a line break at its end."""
    if not key or _KEY.fullmatch(key):
        return None
    return "holds a blank, a line break or another character that no key has, perhaps at its end; set it again without"


def without_keys(message: str, keys: Iterable[str | None], limit: int) -> str:
    """Returns a message of an SDK or a server in one line of at most so many characters, with the keys taken out, also
    as a message may have changed them: stripped, or escaped."""
    forms = {form for key in keys if key for plain in (key, key.strip()) for form in _written(plain) if form}
    for form in sorted(forms, key=len, reverse=True):
        message = message.replace(form, "…")
    message = " ".join(message.split())
    return message if len(message) <= limit else message[: limit - 1] + "…"


def _written(key: str) -> tuple[str, ...]:
    return key, repr(key)[1:-1], json.dumps(key)[1:-1], repr(key.encode(errors="surrogateescape"))[2:-1]
