"""Answer a question from the record, in words, with its sources: evidence → model → citations that are checked."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from mempp.dates import from_microseconds, to_microseconds
from mempp.errors import InputError, ModelReplyError, quoted
from mempp.evidence import Evidence
from mempp.llm import Model, Reply, Request, Usage, streamed
from mempp.operators.citations import CitationReader
from mempp.operators.graph_search import GraphEvidence, GraphOptions, Triple, graph_evidence
from mempp.operators.models import ask_model, checked_reply, cost_of, model_for, read_by
from mempp.operators.prompts import NOT_ON_RECORD, ask_prompt, ask_system, day_or_moment
from mempp.recall import Bounds, is_auto
from mempp.records import Record
from mempp.settings import Settings

if TYPE_CHECKING:
    from mempp import Memory

DEFAULT_MAX_TOKENS = 4096
"""Thinking counts as written: a model that thinks needs room for it before a short answer."""
LEAST_CHARS = 4000
"""Below this much evidence a single record may not fit into its tag, and what stands in no tag could speak for us."""

_ABSTAINS = re.compile(rf"[\W_]*{re.escape(NOT_ON_RECORD.rstrip('.'))}[ *_]*(?:[.:;,!?(\[…–—\n-]|\Z)", re.IGNORECASE)
"""The words and then an end: "Not on record before March, …" is an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a question. `str(answer)` is the text with its citations."""

    text: str
    """The answer; a citation stands in it as [17] or [17, 23], with row ids."""
    on_record: bool
    """False where the record does not tell: nothing was in scope or found, and no model was asked; or it abstained."""
    citations: tuple[int, ...]
    """Row ids that are cited, each once, in the order of the text; all of them are in the evidence, as records or as
    the documents of triples."""
    unknown_citations: tuple[int, ...]
    """Numbers that the model cited and that are no row of the evidence; they were dropped from the text."""
    unchecked_citations: tuple[str, ...]
    """What looks like a citation and is none that could be read, such as "[Zeile 17]"; it stands in the text."""
    speaks_for: str
    """The date that the answer speaks for, in words: "the record as of 2024-06-01", "everything on record up to …"."""
    as_of: datetime | None
    """The same as a moment, where the question was bounded by one or, with `as_of="auto"`, named one."""
    evidence: Evidence
    """What the model read."""
    model: str
    """Provider and model, such as "openai:gpt-4o-mini"."""
    usage: Usage
    """Tokens of the reply, and with `graph` of that which named the entities; those of a cached one were paid for
    before."""
    cost: float | None
    """US dollars of this call by list prices, 0 for a cached reply and where no model was asked; None: not known, as it
    always is of a model that no price is known of."""
    cached: bool
    """Whether the reply was there from an earlier call."""
    cut: bool
    """Whether the model ran into `max_tokens` before it was done."""

    @property
    def triples(self) -> tuple[Triple, ...]:
        """The triples of the entity graph that the model read too; none without `graph`."""
        return self.evidence.triples if isinstance(self.evidence, GraphEvidence) else ()

    @property
    def sources(self) -> tuple[Record, ...]:
        """The records that are cited, in the order of `citations`."""
        records = {triple.row_id: triple.record for triple in self.triples}
        records |= {hit.row_id: hit.record for hit in self.evidence.hits}
        return tuple(records[row] for row in self.citations)

    def __str__(self) -> str:
        return self.text


def ask(
    memory: "Memory",
    question: str,
    *,
    model: "str | Model | None" = None,
    k: int | None = None,
    settings: Settings | None = None,
    max_chars: int = 40_000,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    on_text: Callable[[str], object] | None = None,
    graph: GraphOptions | bool = False,
    **bounds: Unpack[Bounds],
) -> Answer:
    """Answer a question from the evidence that the memory has for it, by a language model; `Memory.ask`.

    Nothing is written to the log. The reply is kept in `STORE/replies` (in memory for a memory without a directory, or
    one that is open for reading only), so that the same question on the same evidence is paid for once.

    Args:
        memory: the record.
        question: any text.
        model: a name ("openai:gpt-4o-mini", "claude-sonnet-4-6"), what `mempp.chat_model` returns (one client for many
            questions, a server of your own, a limit of the cost), or any object as `mempp.llm.Model` describes. None:
            what the environment variable MEMPP_MODEL names.
        k: how many hits are read at most.
        settings: as in `Memory.recall`.
        max_chars: the most characters of evidence, from 4,000.
        max_tokens: the most tokens that the model may write, its thinking included.
        on_text: called with the answer piece by piece as it is written, citations already checked; the pieces joined
            are the text.
        graph: True, or how to search: the model also reads what the entity graph adds; see `Memory.graph_evidence`.
            That takes one more call.
        **bounds: as in `Memory.recall`; with `as_of="auto"` the date that the question names.

    Raises:
        InputError: as `Memory.recall`; or no model is named, or an argument is not usable.
        ModelError: the model cannot be asked (no package, no key, refused), or the request failed (ModelRequestError),
            or the model declined or said nothing (ModelReplyError), or it might cost too much (CostLimitError).
        EncoderError: the question could not be embedded.
    """
    for name, value, least in (("max_chars", max_chars, LEAST_CHARS), ("max_tokens", max_tokens, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} must be a whole number from {least:,}, got {quoted(value)}")
    asked = model_for(memory, model, replies_required=False)
    bounds = cast(Bounds, {name: list(one) if isinstance(one, Iterator) else one for name, one in bounds.items()})
    common: dict[str, Any] = {"max_chars": max_chars, "style": "tagged", "k": k, "settings": settings, **bounds}
    evidence: Evidence
    if graph is False:
        evidence = memory.evidence(question, **common)
    else:
        evidence = graph_evidence(memory, question, model=asked, graph=graph, **common)
    triples = evidence.triples if isinstance(evidence, GraphEvidence) else ()
    bound = _Bound.of(bounds, evidence)
    if not evidence.hits and not triples:
        if on_text is not None:
            on_text(NOT_ON_RECORD)
        speaks_for = bound.speaks_for(memory, bounds)
        return _answer(NOT_ON_RECORD, CitationReader(()), speaks_for, bound, evidence, asked)
    prompt = ask_prompt(question, str(evidence), as_of=bound.told, known_at=bound.known_at, asked_at=bound.asked_at)
    given = (*evidence.row_ids, *(triple.row_id for triple in triples))
    request = Request(
        system=ask_system(triples=bool(triples)),
        prompt=prompt,
        max_tokens=max_tokens,
        usable=read_by(lambda reply: _read(reply, given, asked.name, max_tokens)),
    )
    reader = CitationReader(given)
    parts: list[str] = []

    def told(piece: str) -> None:
        if piece:
            parts.append(piece)
            if on_text is not None:
                on_text(piece)

    reply = _reply(asked, request, None if on_text is None else lambda piece: told(reader.read(piece)))
    _check(reply, asked.name, max_tokens)
    if on_text is None:
        told(reader.read(reply.text))
    told(reader.rest())
    if not parts:
        raise _nothing_said(reply, asked.name)
    speaks_for = bound.speaks_for(memory, bounds)
    return _answer("".join(parts), reader, speaks_for, bound, evidence, asked, request=request, reply=reply)


def _reply(model: Model, request: Request, on_text: Callable[[str], object] | None) -> Reply:
    if on_text is None:
        return ask_model(model, request)
    if hasattr(model, "stream"):
        return checked_reply(model, streamed(model.stream(request), on_text))
    reply = ask_model(model, request)  # an object of the caller's that does not stream
    on_text(reply.text)
    return reply


def _check(reply: Reply, model: str, max_tokens: int) -> None:
    """Raise ModelReplyError where a reply is no answer."""
    text = reply.text.strip()
    if reply.stopped == "refusal":
        raise ModelReplyError(f"{model} declined to answer: {quoted(text, 200) if text else 'it gave no reason'}")
    if not text and reply.stopped == "length":
        raise ModelReplyError(
            f"{model} wrote {max_tokens:,} tokens and came to no answer; allow more (max_tokens, --max-tokens)"
        )
    if not text:
        raise ModelReplyError(f"{model} returned an empty answer; ask in other words, or another model")


def _read(reply: Reply, given: tuple[int, ...], model: str, max_tokens: int) -> str:
    """The whole answer in a reply; raises ModelReplyError where there is none."""
    _check(reply, model, max_tokens)
    reader = CitationReader(given)
    text = reader.read(reply.text) + reader.rest()
    if not text:
        raise _nothing_said(reply, model)
    return text


def _nothing_said(reply: Reply, model: str) -> ModelReplyError:
    return ModelReplyError(f"{model} said nothing but {quoted(reply.text)}, which are no rows that it was given")


@dataclass(frozen=True, slots=True)
class _Bound:
    """The dates of a question, as they are told."""

    as_of: datetime | None
    known_at: str | None
    asked_at: str | None

    @classmethod
    def of(cls, bounds: Bounds, evidence: Evidence) -> "_Bound":
        """From the bounds of a question that was asked with them, so that they are known to be usable."""
        given = bounds.get("as_of")
        as_of = evidence.as_of_read if is_auto(given) else _moment(given, "as_of")
        known: Any = bounds.get("known_at")
        asked_at = _moment(bounds.get("asked_at"), "asked_at")
        if known is not None:
            known = f"entry {known}" if isinstance(known, int) else _shown(_moment(known, "known_at"))
        return cls(as_of, known, _shown(asked_at))

    @property
    def told(self) -> str | None:
        return _shown(self.as_of)

    def speaks_for(self, memory: "Memory", bounds: Bounds) -> str:
        """What an answer with these bounds speaks for, in words."""
        if self.as_of is not None:
            told = f"the record as of {self.told}"
            return told if self.known_at is None else f"{told}, as it was stored by {self.known_at}"
        if self.known_at is not None:
            return f"everything that was stored by {self.known_at}"
        return "everything on record" + _up_to(memory, bounds)


def _up_to(memory: "Memory", bounds: Bounds) -> str:
    """The latest event date of the rows in scope of a question without as-of date, in words; nothing where no row is in
    scope, so that none is told of that the question may not see."""
    last = memory.stats().last_date
    if last is None:
        return ", none of it dated"
    since = _moment(bounds.get("since"), "since", bare_date="start")
    records: list[Record] = []
    # Mostly the last of all rows is in scope; else all in scope are looked at.
    for first in (last if since is None else max(last, since), since):
        records = memory.records(**cast(Bounds, {**bounds, "as_of": None, "since": first}))
        dates = [one.occurred_at for one in records if one.occurred_at is not None]
        if dates:
            return f" up to {day_or_moment(max(dates))}"
    return ", none of it dated" if records else ""


def _moment(value: Any, name: str, *, bare_date: Literal["start", "end"] = "end") -> datetime | None:
    return None if value is None else from_microseconds(to_microseconds(value, name, bare_date=bare_date))


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else day_or_moment(moment)


def _answer(
    text: str,
    reader: CitationReader,
    speaks_for: str,
    bound: _Bound,
    evidence: Evidence,
    model: Model,
    *,
    request: Request | None = None,
    reply: Reply | None = None,
) -> Answer:
    named = evidence if isinstance(evidence, GraphEvidence) else None
    costs = [cost_of(model, reply, request), *([named.cost] if named else [])]
    return Answer(
        text=text,
        on_record=reply is not None and _ABSTAINS.match(text) is None,
        citations=reader.citations,
        unknown_citations=reader.unknown,
        unchecked_citations=reader.unchecked,
        speaks_for=speaks_for,
        as_of=bound.as_of,
        evidence=evidence,
        model=model.name,
        usage=(Usage() if reply is None else reply.usage) + (named.usage if named else Usage()),
        cost=None if None in costs else sum(one for one in costs if one is not None),
        cached=reply is not None and reply.cached and (named is None or named.cached or not named.asked),
        cut=reply is not None and reply.stopped == "length",
    )
