"""What a model draws from each document by itself: fact cards (`facts`), triples (`graph`).

One job and one commit for each document, in the order of the row ids whatever order replies arrive in. The commit holds
an annotation that says that the document was done, and with what ("marker"), and one for each thing drawn ("item"). So
a document of which nothing came is not asked about again, and a run that was killed goes on where it stopped.

A document may be done again, with another model, say. Nothing is taken back in a log: the items of a document that
count are those behind its last marker, as far as a question may know of it.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from mempp.errors import ModelReplyError, ModelRequestError
from mempp.evidence import tagged
from mempp.llm import Usage
from mempp.operators.batch import Batch, Done, Job
from mempp.recall import PermittedRows
from mempp.records import ACTIVE, Record

if TYPE_CHECKING:
    from mempp import Draft, Memory

MAX_CHARS = 40_000
"""The most characters of a document that a model reads; of a longer one its beginning."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A document of which nothing was drawn, because something went wrong."""

    row: int
    reason: str
    may_succeed: bool
    """Whether the same request may succeed another time. If not, the reply was of no use, and it is kept."""


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
    """Tokens of the calls that were made."""
    cost: float | None
    """US dollars of these by list prices; None where the price is not known."""
    stopped: str | None
    """The limit that was reached, if one was."""

    @property
    def waiting(self) -> int:
        """Documents that were not asked about, because a limit was reached."""
        return self.documents - self.done - len(self.undone)

    @property
    def failed(self) -> tuple[Undone, ...]:
        """The documents whose calls failed; the next call asks about them again."""
        return tuple(one for one in self.undone if one.may_succeed)

    @property
    def finished(self) -> bool:
        """Whether nothing is left that another call could do."""
        return not self.waiting and not self.failed

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
        ModelError: no request can succeed. What was done before stands, and the next call goes on from there.
    """
    markers = _Markers(memory, extraction, again=again)
    # An archived document is in scope where what stands for it is not among the rows; it takes no part all the same.
    chosen = [one for one in memory.records(rows=_there(memory, rows)) if one.state.into is None]
    records = [record for record in chosen if not markers.done(record.row_id)]
    written = empty = items = dropped = 0
    undone: list[Undone] = []
    cut: list[int] = []
    with closing(batch.run(map(extraction.job, records))) as outcomes:
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
                reason, may_succeed = str(drawn), isinstance(drawn, ModelRequestError)
                undone.append(Undone(row=record.row_id, reason=reason, may_succeed=may_succeed))
            progress(number)
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
        if payload is None:
            return False
        compared = terms if self._again else self._extraction.kept_apart
        return all(payload.get(name) == terms[name] for name in compared)

    def done_by_others(self, row: int) -> bool:
        """The same, with all that others have written meanwhile; called while nobody else can write."""
        if self._memory.head_sequence != self.head:
            self._read()
        return self.done(row)


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
