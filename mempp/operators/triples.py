"""The triples of a memory, read from its annotations: who stands to whom how, by which document.

Names are merged conservatively: two are one entity where they are equal after NFKC, case folding and folding of white
space. Nothing else is guessed: "Ann" and "Ann Bond" are two entities.
"""

import threading
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mempp.dates import DateLike, from_microseconds, to_microseconds
from mempp.evidence import one_line
from mempp.records import Annotation

if TYPE_CHECKING:
    from mempp import Memory

TRIPLE = "triple"
"""The kind of the annotations that hold a triple: payload subject, relation, object."""
EXTRACTED = "graph"
"""The kind of the annotation that says that a document was done; only the triples behind the last one count."""
LONGEST_NAME = 200
"""Characters of an entity or a relation; what is longer is no name."""
_FOR_EVER = (1 << 63) - 1


def key_of(name: str) -> str:
    """What two spellings of one entity have in common."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).split())


@dataclass(frozen=True, slots=True)
class Statement:
    """Subject, relation and object, as written."""

    subject: str
    relation: str
    object: str

    @property
    def keys(self) -> tuple[str, str, str]:
        """What is equal for two that say the same."""
        return key_of(self.subject), key_of(self.relation), key_of(self.object)


@dataclass(frozen=True, slots=True)
class Edge:
    """One triple of the log."""

    row: int
    """The document that it was drawn from."""
    statement: Statement
    subject: str
    """Key of the entity."""
    object: str
    sequence: int
    """The entry that holds it."""
    replaced: int
    """The entry with which its document was done again, from which on it does not count."""


class Graph:
    """All triples of a memory up to one entry, by entity. It is not changed once it is made."""

    def __init__(self, annotations: Iterable[Annotation]) -> None:
        """Read them.

        Args:
            annotations: in the order of the log; what is neither a triple nor the mark of an extraction is passed over.
        """
        self._edges: list[Edge] = []
        self._by_entity: dict[str, list[int]] = {}
        self._stamps: list[datetime] = []
        self._sequences: list[int] = []
        names = _Names()
        open_since: dict[int, list[tuple[int, Statement]]] = {}
        closed: list[tuple[int, int, Statement, int]] = []
        for annotation in annotations:
            row = annotation.row_id
            self._stamps.append(annotation.ingested_at)
            self._sequences.append(annotation.sequence)
            if annotation.kind == EXTRACTED:
                before = open_since.pop(row, [])
                closed += [(sequence, row, one, annotation.sequence) for sequence, one in before]
            elif annotation.kind == TRIPLE and (statement := names.statement(annotation.payload)) is not None:
                open_since.setdefault(row, []).append((annotation.sequence, statement))
        closed += [(sequence, row, one, _FOR_EVER) for row, some in open_since.items() for sequence, one in some]
        for sequence, row, statement, replaced in sorted(closed, key=lambda one: one[0]):
            subject, object_ = names.keys[statement.subject], names.keys[statement.object]
            for end in {subject, object_}:
                self._by_entity.setdefault(end, []).append(len(self._edges))
            self._edges.append(Edge(row, statement, subject, object_, sequence, replaced))

    def bound(self, known_at: DateLike | int | None) -> int:
        """The last entry that a question with this known-at time may know of.

        Raises:
            InvalidDateError: it is no date.
        """
        if known_at is None:
            return _FOR_EVER - 1
        if isinstance(known_at, int) and not isinstance(known_at, bool):
            return known_at
        moment = from_microseconds(to_microseconds(known_at, "known_at", bare_date="end"))
        commits = bisect_right(self._stamps, moment)
        return self._sequences[commits - 1] if commits else -1

    @property
    def read(self) -> int:
        """How many annotations were read."""
        return len(self._sequences)

    def __len__(self) -> int:
        """How many triples there are, those that were replaced too."""
        return len(self._edges)

    def __contains__(self, entity: str) -> bool:
        """Whether an entity, by its key, stands in any triple."""
        return entity in self._by_entity

    def touching(self, entities: Collection[str], bound: int) -> list[Edge]:
        """The triples that touch one of these entities and count up to the entry `bound`, in the order of the log."""
        places = sorted({place for entity in entities for place in self._by_entity.get(entity, ())})
        edges = (self._edges[place] for place in places)
        return [edge for edge in edges if edge.sequence <= bound < edge.replaced]


# The graph of each memory, and the last entry that was known when it was read.
_graphs: "WeakKeyDictionary[Memory, tuple[int, Graph]]" = WeakKeyDictionary()
_guard = threading.Lock()


def graph_of(memory: "Memory") -> Graph:
    """The graph of a memory as it is now; looked for anew only after something was written."""
    head = memory.head_sequence
    with _guard:
        known = _graphs.get(memory)
    if known is not None and known[0] == head:
        return known[1]
    annotations = [*memory.annotations(kind=TRIPLE), *memory.annotations(kind=EXTRACTED)]
    if known is not None and known[1].read == len(annotations):  # what was written is nothing of it
        graph = known[1]
    else:
        graph = Graph(sorted(annotations, key=lambda one: one.sequence))
    with _guard:
        _graphs[memory] = head, graph
    return graph


class _Names:
    """Names as read, each looked at once: most stand in many triples."""

    def __init__(self) -> None:
        self._cleaned: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        """Name on one line → key."""

    def statement(self, payload: Any) -> Statement | None:
        """The triple that a payload holds, if it is one."""
        if not isinstance(payload, dict):
            return None
        subject, relation, object_ = (self._name(payload.get(part)) for part in ("subject", "relation", "object"))
        return Statement(subject, relation, object_) if subject and relation and object_ else None

    def _name(self, given: Any) -> str | None:
        if not isinstance(given, str) or len(given) > LONGEST_NAME:
            return None
        name = self._cleaned.get(given)
        if name is None:
            name = self._cleaned[given] = one_line(given)
            self.keys[name] = key_of(name)
        return name
