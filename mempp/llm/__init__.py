"""Language models, by name: `model("gpt-4o-mini")`, `model("anthropic:claude-sonnet-4-6")`.

Only the optional operators use them (`mempp/operators/`), and whoever imports this package; nothing here is loaded, and
no model is asked, when a memory is written or read.
"""

import os
import re

from mempp.errors import InputError, quoted
from mempp.llm.anthropic_messages import AnthropicMessages
from mempp.llm.base import JsonSchema, Model, Pieces, Provider, Reply, Request, Stopped, Usage, streamed
from mempp.llm.cache import MemoryReplies, Replies, ReplyCache
from mempp.llm.client import CachedModel
from mempp.llm.cost import (
    PRICES,
    PRICES_AS_OF,
    Budget,
    Price,
    estimate_of,
    most_of,
    never_suffices,
    parse_price,
    tokens_about,
)
from mempp.llm.failures import UnansweredError, checked_base_url
from mempp.llm.objects import Parsed, object_of
from mempp.llm.openai_chat import OpenAIChat
from mempp.remote import LONGEST_WAIT

__all__ = [
    "PRICES",
    "PRICES_AS_OF",
    "Budget",
    "CachedModel",
    "JsonSchema",
    "MemoryReplies",
    "Model",
    "Parsed",
    "Pieces",
    "Price",
    "Replies",
    "Reply",
    "ReplyCache",
    "Request",
    "Stopped",
    "UnansweredError",
    "Usage",
    "chat_model",
    "checked_base_url",
    "estimate_of",
    "model",
    "most_of",
    "never_suffices",
    "object_of",
    "parse_price",
    "provider_of",
    "streamed",
    "tokens_about",
]

_OPENAI = re.compile(r"(gpt-|chatgpt-|o\d)")
_ANTHROPIC = re.compile(r"claude-")


def provider_of(name: str, *, base_url: str | None = None) -> tuple[str, str]:
    """Returns (provider, the model's name there), by the prefix "openai:" or "anthropic:", else by the name.

    With a base URL, a name that tells nothing is one of a server that speaks OpenAI's protocol, as most do. The name
    itself may hold a colon ("llama3:8b").

    Raises:
        InputError: the provider cannot be told, or the name is empty.
    """
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"the model is {quoted(name)}; give its name, such as openai:gpt-4o-mini")
    prefix, colon, rest = name.strip().partition(":")
    if colon and prefix in ("openai", "anthropic"):
        provider, model_name = prefix, rest.strip()
    elif _ANTHROPIC.match(name.strip()):
        provider, model_name = "anthropic", name.strip()
    elif _OPENAI.match(name.strip()) or base_url:
        provider, model_name = "openai", name.strip()
    else:
        raise InputError(
            f"who serves the model {quoted(name)} cannot be told: write openai:NAME or anthropic:NAME, or give the "
            "base URL of a server of your own (base_url, --base-url)"
        )
    if not model_name:
        raise InputError(f"the model is {quoted(name)}; give its name, such as openai:gpt-4o-mini")
    return provider, model_name


def model(
    name: str | None = None,
    *,
    base_url: str | None = None,
    cache: Replies | None = None,
    budget: Budget | None = None,
    timeout: float = 120.0,
    max_retries: int = 5,
) -> CachedModel:
    """Returns a model that many threads can ask at once, at temperature 0 where it takes one; `mempp.chat_model`.

    Args:
        name: "gpt-4o-mini", "claude-sonnet-4-6", "openai:NAME", "anthropic:NAME"; any name with a base URL. None: what
            the environment variable MEMPP_MODEL names.
        base_url: the server; None for the SDK's own (OPENAI_BASE_URL, ANTHROPIC_BASE_URL, else the provider's).
        cache: where replies are kept; with None, operators keep them beside the store, and others nowhere.
        budget: what counts and limits the cost; models of one run share one.
        timeout: seconds that an attempt may take in whole; one that is streamed so many to its next bytes, and ten
            times as many in whole.
        max_retries: how often the SDK repeats a request after 408, 409, 429, 5xx, a timeout or a lost connection.

    Raises:
        ModelError: the SDK or the key is missing.
        InputError: no model is named, the provider cannot be told, an argument is not usable, or a limit is set and no
            price is known.
    """
    if name is None:
        name = os.environ.get("MEMPP_MODEL", "").strip()
        if not name:
            raise InputError(
                "no model is named: give one (model=, --model), or set MEMPP_MODEL; such as openai:gpt-4o-mini or "
                "anthropic:claude-sonnet-4-6"
            )
    provider, model_name = provider_of(name, base_url=base_url)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST_WAIT:
        raise InputError(f"timeout is {quoted(timeout)}; give seconds above 0, at most a day ({LONGEST_WAIT:,.0f})")
    if isinstance(max_retries, bool) or not isinstance(max_retries, int) or not 0 <= max_retries <= 1000:
        raise InputError(f"max_retries is {quoted(max_retries)}; give a whole number from 0 to 1000")
    if budget is not None and not isinstance(budget, Budget):
        raise InputError(f"budget is {quoted(budget)}; give a mempp.llm.Budget, such as Budget(max_cost=5.0)")
    if cache is not None and not (hasattr(cache, "get") and hasattr(cache, "put")):
        raise InputError(f"cache is {quoted(cache)}; give an object with `get` and `put`, such as mempp.llm.ReplyCache")
    make = OpenAIChat if provider == "openai" else AnthropicMessages
    served: Provider = make(model_name, base_url=base_url, timeout=timeout, max_retries=max_retries)
    if budget is not None:
        budget.check(served.name)
    return CachedModel(served, cache=cache, budget=budget)


chat_model = model
"""The same under the name that it has in `mempp`."""
