"""Language models that answer and judge, by name: `model("gpt-4o-mini")`, `model("anthropic:claude-sonnet-4-6")`."""

import re

from eval.errors import EvalError
from eval.models.anthropic_messages import AnthropicMessages
from eval.models.base import Model, Provider, Reply, Request, Usage
from eval.models.cache import ReplyCache
from eval.models.client import CachedModel
from eval.models.cost import PRICES, PRICES_AS_OF, Budget, Price, parse_price
from eval.models.openai_chat import OpenAIChat

__all__ = [
    "PRICES",
    "PRICES_AS_OF",
    "Budget",
    "Model",
    "Price",
    "Reply",
    "ReplyCache",
    "Request",
    "Usage",
    "model",
    "parse_price",
    "provider_of",
]

_OPENAI = re.compile(r"(gpt-|chatgpt-|o\d)")
_ANTHROPIC = re.compile(r"claude-")


def provider_of(name: str, *, base_url: str | None = None) -> tuple[str, str]:
    """Returns (provider, the model's name there), by the prefix "openai:" or "anthropic:", else by the name.

    With a base URL, a name that tells nothing is one of a server that speaks OpenAI's protocol, as most do. The name
    itself may hold a colon ("llama3:8b").

    Raises:
        EvalError: the provider cannot be told, or the name is empty.
    """
    prefix, colon, rest = name.strip().partition(":")
    if colon and prefix in ("openai", "anthropic"):
        provider, model_name = prefix, rest.strip()
    elif _ANTHROPIC.match(name.strip()):
        provider, model_name = "anthropic", name.strip()
    elif _OPENAI.match(name.strip()) or base_url:
        provider, model_name = "openai", name.strip()
    else:
        raise EvalError(
            f"who serves the model {name[:80]!r} cannot be told: write openai:NAME or anthropic:NAME, or give "
            "--base-url for a server of your own"
        )
    if not model_name:
        raise EvalError(f"the model is {name[:80]!r}; give its name, such as openai:gpt-4o-mini")
    return provider, model_name


def model(
    name: str,
    *,
    base_url: str | None = None,
    cache: ReplyCache | None = None,
    budget: Budget | None = None,
    timeout: float = 120.0,
    max_retries: int = 5,
) -> Model:
    """Returns a model that many threads can ask at once, at temperature 0 where it takes one.

    Args:
        name: "gpt-4o-mini", "claude-sonnet-4-6", "openai:NAME", "anthropic:NAME"; any name with a base URL.
        base_url: the server; None for the SDK's own (OPENAI_BASE_URL, ANTHROPIC_BASE_URL, else the provider's).
        cache: where replies are kept; None to keep none.
        budget: what counts and limits the cost; models of one run share one.
        timeout: seconds to wait for the next bytes of a reply.
        max_retries: how often the SDK repeats a request after 408, 409, 429, 5xx, a timeout or a lost connection.

    Raises:
        ModelError: the SDK or the key is missing.
        EvalError: the provider cannot be told, the base URL is not usable, or a limit is set and no price is known.
    """
    provider, model_name = provider_of(name, base_url=base_url)
    make = OpenAIChat if provider == "openai" else AnthropicMessages
    served: Provider = make(model_name, base_url=base_url, timeout=timeout, max_retries=max_retries)
    if budget is not None:
        budget.check(served.name)
    return CachedModel(served, cache=cache, budget=budget)
