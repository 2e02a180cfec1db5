"""How the faults of both SDKs become one clear line, without a key in it."""

import os
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from eval.errors import EvalError, ModelError, RequestFailedError

_EMPTY_ACCOUNT = re.compile(
    r"insufficient_quota|exceeded your current quota|billing_not_active|credit balance is too low|billing hard limit"
    r"|spend limit",
    re.IGNORECASE,
)
_LONGEST_MESSAGE = 400


class UnansweredError(RequestFailedError):
    """Every attempt timed out or lost its connection; the server may still have done, and billed, the work."""

    def __init__(self, message: str, attempts: int) -> None:
        super().__init__(message)
        self.attempts = attempts


def checked_base_url(base_url: str | None) -> str | None:
    """Returns the address without a slash at its end.

    Raises:
        EvalError: it is no http address, or carries a user name, password or query: it is written into results.
    """
    if not base_url:
        return None
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise EvalError(
            f"--base-url is {base_url[:80]!r}; give an http or https address, such as http://localhost:8000"
        )
    if parts.username or parts.password or parts.query:
        raise EvalError(
            "the base URL carries a user name, a password or a query, and would be written into results; give the key "
            "in the provider's environment variable"
        )
    return base_url.rstrip("/")


def without_keys(message: str, names: Iterable[str]) -> str:
    """Returns a message of the SDK or the server in one line of sane length, the keys of these variables taken out."""
    for name in names:
        key = os.environ.get(name)
        if key:
            message = message.replace(key, "…")
    message = " ".join(message.split())
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"


def status_failure(model: str, server: str, status: int, message: str, *, key_variable: str) -> ModelError:
    """Returns the error for an answer of status 4xx or 5xx, after the SDK's retries.

    A plain `ModelError` where no other request can succeed either: the key, the model or the address is refused, or
    the account is empty. `RequestFailedError` for the rest.
    """
    told = f"{server} answered {status}: {message}"
    if status == 401:
        return ModelError(f"{model}: {told}; check {key_variable}")
    if status == 403:
        return ModelError(f"{model}: {told}; the key may not use this model")
    if status == 404:
        return ModelError(f"{model}: {told}; check the model's name and --base-url")
    if status == 402 or _EMPTY_ACCOUNT.search(message):
        return ModelError(f"{model}: {told}; the account has no credit left")
    return RequestFailedError(f"{model}: {told}")
