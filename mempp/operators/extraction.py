"""What a model draws from each document by itself: fact cards (`facts`), triples (`graph`).

One job and one commit for each document, in the order of the row ids whatever order replies arrive in. The commit holds
an annotation that says that the document was done, and with what ("marker"), and one for each thing drawn ("item"). So
a document of which nothing came is not asked about again, and a run that was killed goes on where it stopped.

A document may be done again, with another model, say. Nothing is taken back in a log: the items of a document that
count are those behind its last marker, as far as a question may know of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from mempp.errors import ModelReplyError, ModelRequestError
from mempp.evidence import tagged
from mempp.llm import Model, Usage
from mempp.operators.batch import Batch, Done, Job, carrying
from mempp.operators.models import estimated_cost
from mempp.operators.triples import EXTRACTED, TRIPLE
from mempp.recall import PermittedRows
from mempp.records import ACTIVE, FACT, FACTS, Annotation, Record
from mempp.settings import check_choice

if TYPE_CHECKING:
    from mempp import Draft, Memory

WITHDRAWN = "withdrawn"
"""In a marker: what was drawn from its document was withdrawn, and it is not done."""
MAX_CHARS = 40_000
"""The most characters of a document that a model reads; of a longer one its beginning."""


What = Literal["cards", "triples"]
KINDS: Mapping[str, tuple[str, str]] = {"cards": (FACT, FACTS), "triples": (TRIPLE, EXTRACTED)}
"""What is drawn → the kind of its annotations, and of the markers."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What came of one document."""

    items: tuple[tuple[Any, str | None], ...]
    """The payload and the text of each annotation."""
    dropped: int = 0
    """How many others were of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What is drawn, and how it is written down."""

    item: str
    """The kind of the annotations that hold what was drawn."""
    marker: str
    """The kind of the annotation that says that a document was done."""
    terms: Mapping[str, Any]
    """With what it is drawn; stands in each marker."""
    kept_apart: tuple[str, ...] = ()
    """The terms that make a document one to be done again when they differ, whether or not that was asked for."""
    job: Callable[[Record], Job[Drawn]]
    estimates: Callable[[Record], Sequence[Usage]]
    """Roughly the tokens of each call that a document may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A document of which nothing was drawn, because something went wrong."""

    row: int
    reason: str
    failed: bool
    """Whether a call failed. If not, a reply came and was of no use. Neither is kept: the next call asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionReport:
    """What a call of `build_graph` or `extract_facts` did."""

    documents: int
    """Documents that were to be asked about."""
    known: int
    """Documents that were done before, and were left as they are."""
    done: int
    """Documents that were done now, and stand in the log."""
    empty: int
    """How many of these had nothing to draw."""
    items: int
    """Cards or triples that were written."""
    dropped: int
    """Cards or triples of the replies that were of no use, such as a triple about what is no entity of the document."""
    cut: tuple[int, ...]
    """Documents of which the model read the beginning alone, because they are longer than it is given."""
    undone: tuple[Undone, ...]
    """Documents of which nothing was drawn, each with its reason."""
    asked: int
    """Calls of the model that were made."""
    cached: int
    """Replies that were there from earlier calls."""
    usage: Usage
    """Tokens of the calls that were made; of a dry run an estimate."""
    cost: float | None
    """US dollars of these by list prices; None where the price is not known, or a dry run names no model."""
    stopped: str | None
    """The limit that was reached, if one was."""
    dry_run: bool = False
    calls_at_most: int = 0
    """Of a dry run: calls that its documents may take, those whose replies are kept included."""

    @property
    def waiting(self) -> int:
        """Documents that were not asked about, because a limit was reached or nothing was to be asked."""
        return self.documents - self.done - len(self.undone)

    @property
    def failed(self) -> tuple[Undone, ...]:
        """The undone documents whose calls failed; the others had a reply that was of no use."""
        return tuple(one for one in self.undone if one.failed)

    @property
    def finished(self) -> bool:
        """Whether all documents are done; if not, the next call asks about the others."""
        return not self.waiting and not self.undone

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**asdict(self), "waiting": self.waiting, "finished": self.finished}


def extract(
    memory: "Memory",
    batch: Batch,
    extraction: Extraction,
    *,
    rows: PermittedRows | None,
    again: bool,
    progress: Callable[[int], None],
) -> ExtractionReport:
    """Ask about each document that is not done yet, and write down what comes.

    Args:
        memory: the record.
        batch: asks the model.
        extraction: what is drawn.
        rows: the documents, by row id or by a predicate; None: all. Those out of retrieval take no part.
        again: whether documents that were done with other terms are done again.
        progress: called with the number of documents that are dealt with.

    Raises:
        RowNotFoundError: one of the rows does not exist.
        ModelError: no request can succeed. What was done before stands, `report` of the error tells it, and the next
            call goes on from there.
    """
    markers = _Markers(memory, extraction, again=again)
    chosen, records = _waiting(memory, markers, rows)
    written = empty = items = dropped = 0
    undone: list[Undone] = []
    cut: list[int] = []

    def report() -> ExtractionReport:
        account = batch.account
        return ExtractionReport(
            documents=len(records),
            known=len(chosen) - len(records),
            done=written,
            empty=empty,
            items=items,
            dropped=dropped,
            cut=tuple(cut),
            undone=tuple(undone),
            asked=account.asked,
            cached=account.cached,
            usage=account.usage,
            cost=batch.cost,
            stopped=batch.stopped,
        )

    with carrying(report), batch.outcomes(map(extraction.job, records)) as outcomes:
        for number, (record, done) in enumerate(zip(records, outcomes, strict=False), start=1):
            if len(record.text) > MAX_CHARS:
                cut.append(record.row_id)
            drawn = _drawn(done)
            if isinstance(drawn, Drawn):
                _write(memory, markers, extraction, record.row_id, drawn)
                written += 1
                empty += not drawn.items
                items += len(drawn.items)
                dropped += drawn.dropped
            else:
                failed = isinstance(drawn, ModelRequestError)
                undone.append(Undone(row=record.row_id, reason=str(drawn), failed=failed))
            progress(number)
    return report()


def estimate(
    memory: "Memory", model: str | Model | None, extraction: Extraction, *, rows: PermittedRows | None, again: bool
) -> ExtractionReport:
    """What `extract` would ask about, and roughly what it would take; nothing is asked and nothing written.

    Raises:
        RowNotFoundError: one of the rows does not exist.
        InputError: the model is neither a name nor an object with one.
    """
    chosen, records = _waiting(memory, _Markers(memory, extraction, again=again), rows)
    calls = [one for record in records for one in extraction.estimates(record)]
    return ExtractionReport(
        documents=len(records),
        known=len(chosen) - len(records),
        done=0,
        empty=0,
        items=0,
        dropped=0,
        cut=tuple(record.row_id for record in records if len(record.text) > MAX_CHARS),
        undone=(),
        asked=0,
        cached=0,
        usage=sum(calls, Usage()),
        cost=estimated_cost(model, calls),
        stopped=None,
        dry_run=True,
        calls_at_most=len(calls),
    )


def drawn(memory: "Memory", what: What, rows: PermittedRows | None = None) -> list[Annotation]:
    """See `Memory.drawn` for arguments and errors."""
    item, marker = _kinds(what)
    permitted = None if rows is None else {record.row_id for record in memory.records(rows=_there(memory, rows))}
    items: dict[int, list[Annotation]] = {}
    both = [*memory.annotations(kind=item), *memory.annotations(kind=marker)]
    for one in sorted(both, key=lambda annotation: annotation.sequence):
        if one.kind == marker:
            items.pop(one.row_id, None)
        elif permitted is None or one.row_id in permitted:
            items.setdefault(one.row_id, []).append(one)
    return [one for row in sorted(items) for one in items[row]]


def withdraw(memory: "Memory", what: What, rows: PermittedRows | None = None) -> int:
    """See `Memory.withdraw` for arguments and errors."""
    _, marker = _kinds(what)
    permitted = None if rows is None else {record.row_id for record in memory.records(rows=_there(memory, rows))}
    withdrawn: list[int] = []

    def build(draft: "Draft") -> None:
        last = {one.row_id: one.payload for one in memory.annotations(kind=marker)}
        done = {row for row, payload in last.items() if not (isinstance(payload, dict) and payload.get(WITHDRAWN))}
        found = done | {one.row_id for one in drawn(memory, what)}
        withdrawn[:] = sorted(found if permitted is None else found & permitted)
        for row in withdrawn:
            draft.annotate(row, marker, {WITHDRAWN: True, "items": 0})

    memory.commit(build)
    return len(withdrawn)


def _kinds(what: What) -> tuple[str, str]:
    check_choice("what", what, tuple(KINDS))
    return KINDS[what]


def shown(record: Record) -> str:
    """A document as a prompt shows it: tagged as evidence is, without its state, so that nothing later is told."""
    return tagged([replace(record, text=record.text[:MAX_CHARS], state=ACTIVE)])


def checked_text(text: str, what: str) -> str:
    """A text of a reply that can be stored.

    Raises:
        ModelReplyError: it holds a lone surrogate, which a reply can send as an escape.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ModelReplyError(f"{what}: the reply holds a lone surrogate, which is no character") from None
    return text


class _Markers:
    """The last marker of each row; read again only where somebody else has written meanwhile."""

    def __init__(self, memory: "Memory", extraction: Extraction, *, again: bool) -> None:
        self._memory = memory
        self._extraction = extraction
        self._again = again
        self._read()

    def _read(self) -> None:
        self.head = self._memory.head_sequence
        markers = self._memory.annotations(kind=self._extraction.marker)
        self._last = {one.row_id: one.payload for one in markers if isinstance(one.payload, dict)}

    def done(self, row: int) -> bool:
        """Whether a document needs nothing further."""
        payload, terms = self._last.get(row), self._extraction.terms
        if payload is None or payload.get(WITHDRAWN):
            return False
        compared = terms if self._again else self._extraction.kept_apart
        return all(payload.get(name) == terms[name] for name in compared)

    def done_by_others(self, row: int) -> bool:
        """The same, with all that others have written meanwhile; called while nobody else can write."""
        if self._memory.head_sequence != self.head:
            self._read()
        return self.done(row)


def _waiting(memory: "Memory", markers: _Markers, rows: PermittedRows | None) -> tuple[list[Record], list[Record]]:
    """The documents that take part, and those of them that are not done yet."""
    # An archived document is in scope where what stands for it is not among the rows; it takes no part all the same.
    chosen = [one for one in memory.records(rows=_there(memory, rows)) if one.state.into is None]
    return chosen, [record for record in chosen if not markers.done(record.row_id)]


def _there(memory: "Memory", rows: PermittedRows | None) -> PermittedRows | None:
    """The rows, all of which must be there."""
    if rows is None or callable(rows) or isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        return rows  # what is none of these, `records` refuses
    listed = list(rows)
    for row in listed:
        memory.get(row)
    return listed


def _drawn(done: Done[Drawn]) -> Drawn | ModelRequestError | ModelReplyError:
    if done.error is not None:
        return done.error
    assert done.value is not None, "a job without an error has a value"
    return done.value


def _write(memory: "Memory", markers: _Markers, extraction: Extraction, row: int, drawn: Drawn) -> None:
    """One commit of what was drawn from one document, unless another process has done it meanwhile."""

    def build(draft: "Draft") -> None:
        if markers.done_by_others(row):
            return
        draft.annotate(row, extraction.marker, {**extraction.terms, "items": len(drawn.items)})
        for payload, text in drawn.items:
            draft.annotate(row, extraction.item, payload, text)

    last = memory.commit(build)
    if last == markers.head + 1 + len(drawn.items):
        markers.head = last  # nothing but this came in between
