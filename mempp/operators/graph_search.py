"""Evidence with what the entity graph adds to it (the paper's Mem^g++): at most five triples behind the records.

One call names the entities of the question; from these the graph is searched, hop by hop. A triple counts only where
its document is in the scope of the question, and its own entry is known by its known-at time; so no path leads over
what a question may not see. Triples are taken in this order:

    1. fewer hops from the entities of the question
    2. more of the question's entities at its ends
    3. the later event date of its document, undated ones last
    4. the later row; within a document, as the model wrote them

Of triples that say the same the first is taken, and triples that say the same are those whose three names are.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Unpack, cast
from xml.sax.saxutils import quoteattr

import mempp
from mempp.dates import show
from mempp.errors import InputError, quoted
from mempp.evidence import Evidence, pack, superseded, unused_tag
from mempp.llm import Model, Reply, Request, Usage
from mempp.operators import graph_prompts as prompts
from mempp.operators.batch import whole
from mempp.operators.models import ask_model, cost_of, model_for
from mempp.operators.triples import Edge, Graph, graph_of, key_of
from mempp.recall import Bounds, is_auto, question_text
from mempp.records import Record
from mempp.settings import EvidenceStyle, Settings

if TYPE_CHECKING:
    from mempp import Memory

MAX_TRIPLES = 5
"""The paper's."""
MAX_HOPS = 2
FRONTIER = 100
"""Entities from which a hop goes on: those at the ends of most triples that were found, then by name."""
PLAIN_HEADING = "Relations that a model drew from records (date | row | subject | relation | object):"
_SHARE = 4  # triples take at most this part of the characters of the evidence
_BETWEEN = "\n\n"
_IN_TIME = ("as_of", "since", "known_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """How the graph is searched."""

    max_triples: int = MAX_TRIPLES
    """How many triples are shown at most."""
    hops: int = MAX_HOPS
    """How far from the entities of the question a triple may be, in triples: 1 or 2."""
    undated: bool = False
    """Whether triples count whatever their documents' dates and whenever they were stored, as in the paper: they can
    then tell of what came after the as-of date. For comparison only. Filters, and the caller's own `rows`, hold."""

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InputError: one is not usable.
        """
        whole(self.max_triples, "max_triples")
        if whole(self.hops, "hops", least=1) > MAX_HOPS:
            raise InputError(f"hops must be 1 or {MAX_HOPS}, got {quoted(self.hops)}")
        if not isinstance(self.undated, bool):
            raise InputError(f"undated must be True or False, got {quoted(self.undated)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Triple:
    """A triple of the evidence; it leads back to its document."""

    subject: str
    relation: str
    object: str
    record: Record
    """The document that it was drawn from."""
    hops: int
    """1: it touches an entity of the question; 2: it touches what such a triple touches."""

    @property
    def row_id(self) -> int:
        """Row id of the document."""
        return self.record.row_id


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEvidence(Evidence):
    """Evidence whose text ends with the triples; `hits` and `row_ids` are those of the records, as ever."""

    triples: tuple[Triple, ...]
    """As they stand in the text."""
    entities: tuple[str, ...]
    """What the question names, as the model wrote it."""
    known_entities: tuple[str, ...]
    """Those of them that stand in a triple of the memory, in the question's scope or not."""
    model: str
    """Who named the entities."""
    usage: Usage
    cost: float | None
    """US dollars of the call by list prices, 0 where none was made; None: not known."""
    asked: bool
    """Whether the model was asked for the entities, or its reply was taken from an earlier call."""
    cached: bool
    """Whether the reply was there from an earlier call."""


def graph_evidence(
    memory: "Memory",
    question: str,
    *,
    model: str | Model | None = None,
    graph: GraphOptions | bool = True,
    max_chars: int = 40_000,
    style: EvidenceStyle = "plain",
    show_supersession: bool = True,
    k: int | None = None,
    settings: Settings | None = None,
    **bounds: Unpack[Bounds],
) -> GraphEvidence:
    """See `Memory.graph_evidence` for arguments and errors."""
    options = options_of(graph)
    asked = model_for(memory, model, replies_required=False)
    given = {name: list(value) if isinstance(value, Iterator) else value for name, value in bounds.items()}
    hits = memory.recall(question, k=k, settings=settings, **cast(Bounds, given))
    chosen = memory.settings_for(k, settings)
    packed = partial(
        pack,
        hits,
        style=style,
        packing=chosen.packing,
        order=chosen.evidence_order,
        show_supersession=show_supersession,
        question=question,
    )
    evidence = packed(max_chars=max_chars)  # before anything is paid for, so that what is not usable is told
    read = mempp.as_of_read(question, given)
    given.pop("asked_at", None)
    if is_auto(given.get("as_of")):
        given["as_of"] = read
    if options.undated:
        given = {name: value for name, value in given.items() if name not in _IN_TIME}
    known = graph_of(memory)
    named: list[str] = []
    found: list[Triple] = []
    request: Request | None = None
    reply: Reply | None = None
    if options.max_triples and len(known) and (hits or memory.records(**cast(Bounds, given))):
        request = prompts.question_request(question_text(question))
        reply = ask_model(asked, request)
        named = prompts.entities_of(reply)
        found = search(memory, known, named, options, given)
    render = _Section([hit.record.text for hit in hits], style, show_supersession)
    shown = render.fitting(found, max_chars // _SHARE)
    section = render.text(shown)
    if section and hits:
        evidence = packed(max_chars=max_chars - len(section) - len(_BETWEEN))
    parts: dict[str, Any] = {one.name: getattr(evidence, one.name) for one in fields(Evidence)}
    parts |= {"text": _BETWEEN.join(filter(None, (evidence.text, section))), "as_of_read": read}
    return GraphEvidence(
        **parts,
        triples=tuple(shown),
        entities=tuple(named),
        known_entities=tuple(name for name in named if key_of(name) in known),
        model=asked.name,
        usage=Usage() if reply is None else reply.usage,
        cost=cost_of(asked, reply, request),
        asked=reply is not None,
        cached=reply is not None and reply.cached,
    )


def options_of(graph: GraphOptions | bool) -> GraphOptions:
    """The options that a caller gave, or those that hold where it gave True.

    Raises:
        InputError: it is neither.
    """
    if isinstance(graph, GraphOptions):
        return graph
    if graph is not True:
        raise InputError(f"graph must be True or a GraphOptions, got {quoted(graph)}")
    return GraphOptions()


def search(
    memory: "Memory", graph: Graph, names: Iterable[str], options: GraphOptions, bounds: Mapping[str, Any]
) -> list[Triple]:
    """The triples that are reached from these entities, best first, at most as many as are wanted.

    Args:
        memory: the record.
        graph: its triples.
        names: the entities of the question.
        options: how to search.
        bounds: those that hold for triples.
    """
    bound = graph.bound(bounds.get("known_at"))
    asked = frozenset(map(key_of, names))
    frontier: Collection[str] = asked
    visited: set[str] = set(asked)
    reached: dict[int, Edge] = {}
    found: dict[tuple[str, str, str], Triple] = {}
    for hops in range(1, options.hops + 1):
        edges = [edge for edge in graph.touching(frontier, bound) if edge.sequence not in reached]
        records = _in_scope(memory, {edge.row for edge in edges}, bounds)
        edges = [edge for edge in edges if edge.row in records]
        for edge in sorted(edges, key=lambda edge: _order(edge, records[edge.row], asked)):
            triple = Triple(
                subject=edge.statement.subject,
                relation=edge.statement.relation,
                object=edge.statement.object,
                record=records[edge.row],
                hops=hops,
            )
            found.setdefault(edge.statement.keys, triple)
        if len(found) >= options.max_triples:
            break  # what is further away comes behind these
        reached |= {edge.sequence: edge for edge in edges}
        ends = Counter(end for edge in edges for end in (edge.subject, edge.object) if end not in visited)
        frontier = sorted(ends, key=lambda end: (-ends[end], end))[:FRONTIER]
        visited.update(frontier)
    return list(found.values())[: options.max_triples]


def _order(edge: Edge, record: Record, asked: Collection[str]) -> tuple[int, float, int, int]:
    """Where a triple stands among those of as many hops; the least first."""
    named = (edge.subject in asked) + (edge.object in asked)
    date = record.occurred_at
    return -named, inf if date is None else -date.timestamp(), -edge.row, edge.sequence


def _in_scope(memory: "Memory", rows: Set[int], bounds: Mapping[str, Any]) -> dict[int, Record]:
    """The records among these rows that a question may see."""
    permitted = bounds.get("rows")
    looked_at = _with_what_stands_for_them(memory, rows, bounds.get("known_at"))
    wanted: Any = looked_at
    if callable(permitted):
        wanted = lambda record: record.row_id in looked_at and permitted(record)  # noqa: E731 - a predicate
    elif permitted is not None:
        wanted = looked_at & {int(row) for row in permitted}
    if not rows or (not callable(wanted) and not wanted):
        return {}
    records = memory.records(**cast(Bounds, {**bounds, "rows": wanted}))
    return {record.row_id: record for record in records if record.row_id in rows}


def _with_what_stands_for_them(memory: "Memory", rows: Set[int], known_at: Any) -> Set[int]:
    """The rows, and those that they were archived into, then known: an archived row is in scope where what stands for
    it is not, so whether it is cannot be seen from the row alone."""
    found, layer = set(rows), set(rows)
    while layer:
        records = memory.records(rows=layer, known_at=known_at)
        layer = {record.state.into for record in records if record.state.into is not None} - found
        found |= layer
    return found


class _Section:
    """Triples as the evidence shows them, in a section of their own.

    In "tagged" style each is a tag without content, whose attributes are escaped, so that no name can close it or
    imitate another; the name of the tag stands in no text of a record.
    """

    def __init__(self, texts: Sequence[str], style: EvidenceStyle, show_supersession: bool) -> None:
        self._tag = unused_tag("triple", texts) if style == "tagged" else None
        self._show_supersession = show_supersession

    def fitting(self, triples: Sequence[Triple], room: int) -> list[Triple]:
        """The first of them, as many as have room in so many characters."""
        shown = list(triples)
        while shown and len(self.text(shown)) > room:
            shown.pop()
        return shown

    def text(self, triples: Sequence[Triple]) -> str:
        """The section; empty without triples."""
        if not triples:
            return ""
        lines = [self._line(number, triple) for number, triple in enumerate(triples, start=1)]
        return "\n".join(lines if self._tag else [PLAIN_HEADING, *lines])

    def _line(self, number: int, triple: Triple) -> str:
        record, date = triple.record, show(triple.record.occurred_at)
        state = superseded(record) if self._show_supersession else None
        if self._tag is None:
            line = f"- {date} | row {record.row_id} | {triple.subject} | {triple.relation} | {triple.object}"
            return line if state is None else f"{line} | {state}"
        attributes = {"number": str(number), "row": str(record.row_id), "date": date}
        if state is not None:
            attributes["state"] = state
        attributes |= {"subject": triple.subject, "relation": triple.relation, "object": triple.object}
        return f"<{self._tag} {' '.join(f'{name}={quoteattr(value)}' for name, value in attributes.items())}/>"
