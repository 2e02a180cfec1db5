"""The model of an operator: by name, by the environment, or as given; its replies are kept beside the store."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mempp.errors import InputError, MemppError, ModelError, ModelReplyError, quoted
from mempp.llm import (
    Budget,
    CachedModel,
    MemoryReplies,
    Model,
    Price,
    Replies,
    Reply,
    ReplyCache,
    Request,
    Usage,
    model,
    most_of,
    provider_of,
)

if TYPE_CHECKING:
    from mempp import Memory

REPLIES = "replies"
"""The folder of the replies, beside those of the store. It is derived: it may be removed, and no snapshot has it."""

# Replies of memories that have no folder, or may not write to it: they live as long as the memory.
_in_memory: "WeakKeyDictionary[Memory, MemoryReplies]" = WeakKeyDictionary()
_guard = threading.Lock()


def model_for(memory: "Memory", named: "str | Model | None", *, replies_required: bool) -> Model:
    """Returns the model that an operator asks.

    A model of ours (`mempp.chat_model`) that has no cache of its own keeps its replies beside the store. One of the
    caller's own keeps them as it will.

    Args:
        memory: whose operator it is.
        named: a name as `mempp.chat_model` takes it, an object as `mempp.llm.Model` describes it, or None for what
            MEMPP_MODEL names.
        replies_required: whether a reply that cannot be written is an error, as it is where losing it loses much.

    Raises:
        InputError: it is neither, or no model is named.
        ModelError: the SDK or the key is missing.
        StoreWriteError: replies are required, and cannot be written.
    """
    given: Any = named
    if given is not None and not isinstance(given, str) and not (hasattr(given, "name") and hasattr(given, "ask")):
        raise InputError(
            f"model is {quoted(given)}; give a name such as openai:gpt-4o-mini, or an object with `name` and `ask`, as "
            "mempp.chat_model(…) makes one"
        )
    if given is not None and not isinstance(given, str) and not isinstance(given.name, str):
        raise InputError(f"the name of the model is {quoted(given.name)}; it must be text, such as openai:gpt-4o-mini")
    asked: Model = model(given) if given is None or isinstance(given, str) else given
    if isinstance(asked, CachedModel) and asked.cache is None:
        asked = asked.with_cache(replies_of(memory, required=replies_required))
    if replies_required and isinstance(asked, CachedModel) and isinstance(asked.cache, ReplyCache):
        asked.cache.check()
    return asked


def replies_of(memory: "Memory", *, required: bool) -> Replies:
    """Where replies are kept for a memory: `STORE/replies`, or in memory where there is no store on disk.

    A memory that is open for reading only finds those of the store, and writes none.
    """
    on_disk = None if memory.path is None else ReplyCache(memory.path / REPLIES, required=required)
    if on_disk is not None and not memory.read_only:
        return on_disk
    with _guard:
        return _in_memory.setdefault(memory, MemoryReplies(behind=on_disk))


def read_by(read: Callable[[Reply], object]) -> Callable[[Reply], bool]:
    """For `Request.usable`: whether a reply can be read, so that it is worth keeping.

    Args:
        read: reads a reply, and raises ModelReplyError where it is of no use.
    """

    def usable(reply: Reply) -> bool:
        try:
            read(reply)
        except ModelReplyError:
            return False
        return True

    return usable


def ask_model(model: Model, request: Request) -> Reply:
    """Returns the reply of a model that may be the caller's own, and may do and give anything.

    Raises:
        ModelError: as `Model.ask`; or it failed in another way, or gave no reply.
        MemppError: what else of ours it raises.
    """
    try:
        return checked_reply(model, model.ask(request))
    except (MemppError, MemoryError):
        raise
    except Exception as error:
        raise ModelError(f"the model {quoted(model.name)} failed: {type(error).__name__}: {error}") from error


def checked_reply(model: Model, reply: object) -> Reply:
    """What a model gave for a reply.

    Raises:
        ModelError: it is none.
    """
    if not isinstance(reply, Reply):
        raise ModelError(f"the model {quoted(model.name)} failed: it gave {quoted(reply)}, no mempp.llm.Reply")
    if not isinstance(reply.text, str) or not isinstance(reply.usage, Usage):
        raise ModelError(
            f"the model {quoted(model.name)} failed: its reply holds the text {quoted(reply.text)} and the usage "
            f"{quoted(reply.usage)}"
        )
    return reply


def cost_of(model: Model, reply: Reply | None, request: Request | None) -> float | None:
    """US dollars of a reply by list prices, and the most that each attempt before it may have cost that was never
    answered: 0 for one that was kept, or where nothing was asked; None: not known, and no price of the model is."""
    if reply is None or request is None:
        return 0.0
    price = price_of(model)
    if price is None:
        return None
    if reply.cached:
        return 0.0
    # A server that does not count leaves both at 0.
    return None if reply.usage == Usage() else price.of(reply.usage) + reply.lost * price.of(most_of(request))


def name_of(model: str | Model | None) -> str | None:
    """The name of a model that need not be there, since nothing is asked; None where none is named.

    Raises:
        InputError: it is neither a name nor an object with one.
    """
    named = os.environ.get("MEMPP_MODEL", "").strip() or None if model is None else model
    if named is not None and not isinstance(named, str) and not isinstance(getattr(named, "name", None), str):
        raise InputError(f"model is {quoted(named)}; give a name such as openai:gpt-4o-mini, or an object with a name")
    return ":".join(provider_of(named)) if isinstance(named, str) else None if named is None else named.name


def price_of(model: str | Model | None) -> Price | None:
    """The price of a model that need not be there: by its own budget if it has one, else the list price.

    Raises:
        InputError: as `name_of`.
    """
    name, budget = name_of(model), getattr(model, "budget", None)
    return None if name is None else (budget if isinstance(budget, Budget) else Budget()).price(name)


def estimated_cost(model: str | Model | None, calls: Sequence[Usage]) -> float | None:
    """US dollars that calls of so many tokens would cost; None: no price is known."""
    price = price_of(model)
    return None if price is None else sum(map(price.of, calls))
