"""How the faults of both SDKs become one clear line, without a key in it."""

import os
import re
from collections.abc import Iterable, Sequence

from mempp import remote
from mempp.errors import ModelError, ModelRequestError

_EMPTY_ACCOUNT = re.compile(
    r"insufficient_quota|exceeded your current quota|billing_not_active|credit balance is too low|billing hard limit"
    r"|spend limit",
    re.IGNORECASE,
)
_LONGEST_MESSAGE = 400


class UnansweredError(ModelRequestError):
    """No attempt came to an answer of use; the server may still have done, and billed, the work at some of them."""

    def __init__(self, message: str, attempts: int) -> None:
        super().__init__(message)
        self.attempts = attempts


def checked_base_url(base_url: str | None) -> str | None:
    """Returns the address without a slash at its end.

    Raises:
        InputError: it is no http address, or carries a user name, password or query: it is written into results.
    """
    if not base_url:
        return None
    return remote.checked_address(base_url, "the base URL (base_url, --base-url)")


def without_keys(message: str, names: Iterable[str]) -> str:
    """Returns a message of the SDK or the server in one line of sane length, the keys of these variables taken out."""
    return remote.without_keys(message, map(os.environ.get, names), _LONGEST_MESSAGE)


def status_failure(model: str, server: str, status: int, message: str, *, keys: Sequence[str]) -> ModelError:
    """Returns the error for an answer of status 4xx or 5xx, after the SDK's retries.

    A plain `ModelError` where no other request can succeed either: the key, the model or the address is refused, or
    the account is empty. `ModelRequestError` for the rest.

    Args:
        model: the model's name.
        server: the server's name.
        status: the code.
        message: what the server says.
        keys: the environment variables that may hold a key, that which people set first.
    """
    told = f"{server} answered {status}: {message}"
    if status == 401:
        hint = "check" if any(map(os.environ.get, keys)) else "no key was sent; set"
        return ModelError(f"{model}: {told}; {hint} {keys[0]}")
    if status == 403:
        return ModelError(f"{model}: {told}; the key may not use this model")
    if status == 404:
        return ModelError(f"{model}: {told}; check the model's name and the base URL (base_url, --base-url)")
    if status == 402 or _EMPTY_ACCOUNT.search(message):
        return ModelError(f"{model}: {told}; the account has no credit left")
    return ModelRequestError(f"{model}: {told}")
