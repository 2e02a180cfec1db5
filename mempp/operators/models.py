"""The model of an operator: by name, by the environment, or as given; its replies are kept beside the store."""

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mempp.errors import InputError, MemppError, ModelError, quoted
from mempp.llm import Budget, CachedModel, MemoryReplies, Model, Replies, Reply, ReplyCache, Request, Usage, model

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
    answered: 0 for one that was kept, or where nothing was asked; None: not known."""
    if reply is None or request is None or reply.cached:
        return 0.0
    budget = model.budget if isinstance(model, CachedModel) else Budget()
    price = budget.price(model.name)
    # A server that does not count leaves both at 0.
    if price is None or reply.usage == Usage():
        return None
    return price.of(reply.usage) + reply.lost * price.of(Budget().reserve(model.name, request).most)
