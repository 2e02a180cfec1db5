"""The model of an operator: by name, by the environment, or as given; its replies are kept beside the store."""

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mempp.errors import InputError, quoted
from mempp.llm import Budget, CachedModel, MemoryReplies, Model, Replies, Reply, ReplyCache, Usage, model

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
    """
    given: Any = named
    if given is not None and not isinstance(given, str) and not (hasattr(given, "name") and hasattr(given, "ask")):
        raise InputError(
            f"model is {quoted(given)}; give a name such as openai:gpt-4o-mini, or an object with `name` and `ask`, as "
            "mempp.chat_model(…) makes one"
        )
    asked: Model = model(given) if given is None or isinstance(given, str) else given
    if isinstance(asked, CachedModel) and asked.cache is None:
        return asked.with_cache(replies_of(memory, required=replies_required))
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


def cost_of(model: Model, reply: Reply | None) -> float | None:
    """US dollars of a reply by list prices: 0 for one that was kept, or where nothing was asked; None: not known."""
    if reply is None or reply.cached:
        return 0.0
    budget = model.budget if isinstance(model, CachedModel) else Budget()
    price = budget.price(model.name)
    # A server that does not count leaves both at 0.
    return None if price is None or reply.usage == Usage() else price.of(reply.usage)
