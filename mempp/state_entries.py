"""The entries of one commit that change the state of rows, add rows that stand for others, or say something of them.

They are built inside the commit lock, on the state that the commit will follow; so two processes cannot each make half
of a circle.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from mempp.adding import embed_rows
from mempp.dates import to_microseconds
from mempp.engine import Engine
from mempp.errors import InputError, RowNotFoundError, quoted
from mempp.ingest import DocumentLike, document_entry
from mempp.projection import Projection
from mempp.recall import StateChange, States
from mempp.recall.states import ChangeKind, visibility
from mempp.recall.table import UNDATED
from mempp.records import CheckedDocument, Record, canonical_json, check_document, plain_text
from mempp.storage import ANNOTATE, ARCHIVE, REINSTATE, RETRACT, SUPERSEDE, Entry

Rows = int | Iterable[int]
"""One row id or several."""

_KINDS: dict[ChangeKind, str] = {
    "supersede": SUPERSEDE,
    "archive": ARCHIVE,
    "retract": RETRACT,
    "reinstate": REINSTATE,
}


def checked_row(row: object, name: str, rows: int) -> int:
    """A row id that a caller gave, as an integer.

    Args:
        row: what the caller gave.
        name: the argument's name, for the message.
        rows: how many rows there are.

    Raises:
        InputError: it is no whole number.
        RowNotFoundError: there is no such row.
    """
    if isinstance(row, bool) or not isinstance(row, int | np.integer):
        raise InputError(f"{name} must be a row id, a whole number, got {quoted(row)}")
    if not 0 <= row < rows:
        raise RowNotFoundError(f"there is no row {quoted(row)}; the record has {rows} rows, numbered from 0")
    return int(row)


class Draft:
    """One commit in the making; `Memory.commit` hands it to a function of the caller's.

    Each change is checked against the state that those before it leave. A row that was added here may be spoken of at
    once. When a method raises, the commit is not made, unless the caller catches the error.
    """

    def __init__(self, projection: Projection) -> None:
        """Nothing is changed yet.

        Args:
            projection: the state that the commit will follow.
        """
        self._projection = projection
        self._states: States = projection.states
        self._rows = len(projection)
        self.entries: list[Entry] = []
        """What was made so far, in order."""
        self.new_rows: list[int] = []
        """The rows that the documents among it will be."""

    def whole_from(self, row: int) -> int | None:
        """The event date, microseconds UTC, from which the whole text of a row is known; None for an undated row.

        Its own date or, of a merged row, the latest of those that it stands for.
        """
        column = self._projection.table.occurred_at
        own = int(column[checked_row(row, "row", len(self._projection))])
        if own == UNDATED:
            return None
        merged = row in self._states.made_of or any(change.related == row for change in self._states.hidden.values())
        return visibility(self._states, column).merged_from.get(row, own) if merged else own

    def supersede(self, old: Rows, *, by: int, reason: str | None = None) -> None:
        """Say that row `by` replaces a row or several; see `Memory.supersede`.

        Raises:
            InputError: no rows; the rows are the same, or one already supersedes `by`, directly or not.
            RowNotFoundError: there is no such row.
        """
        older = self._checked(old, "old", "supersede")
        newer = checked_row(by, "by", self._rows)
        for row in older:
            if self._states.leads_to(newer, row):
                raise InputError(f"row {row} cannot be superseded by row {newer}: that would be a circle")
        self._change("supersede", older, newer, reason)

    def archive(self, rows: Rows, *, into: int | None = None, reason: str | None = None) -> None:
        """Take rows out of retrieval, into another row where one is given; see `Memory.archive`.

        Raises:
            InputError: no rows; a row archived into itself, or into a row that is itself out of retrieval.
            RowNotFoundError: there is no such row.
        """
        wanted = self._checked(rows, "rows", "archive")
        target = None if into is None else checked_row(into, "into", self._rows)
        if target in wanted:
            raise InputError(f"row {target} cannot be archived into itself")
        if target in self._states.hidden:
            raise InputError(f"row {target} is archived or retracted itself; reinstate it or choose another row")
        self._change("archive", wanted, target, reason)

    def retract(self, rows: Rows, *, reason: str | None = None) -> None:
        """Take rows out of retrieval; see `Memory.retract`. RowNotFoundError: there is no such row."""
        self._change("retract", self._checked(rows, "row", "retract"), None, reason)

    def reinstate(self, rows: Rows, *, reason: str | None = None) -> None:
        """Make rows active again; see `Memory.reinstate`. RowNotFoundError: there is no such row."""
        self._change("reinstate", self._checked(rows, "row", "reinstate"), None, reason)

    def annotate(self, row: int, kind: str, payload: object, text: str | None = None) -> None:
        """Say something about a row; see `Memory.annotate`.

        Raises:
            InputError: the kind is no text, or the payload is not JSON.
            RowNotFoundError: there is no such row.
        """
        if not isinstance(kind, str) or not kind:
            raise InputError(f"the kind of an annotation must be a text, got {quoted(kind)}")
        about = checked_row(row, "row", self._rows)
        payload = canonical_json(payload, "payload")
        self.entries.append(Entry(kind=ANNOTATE, row_id=about, label=kind, payload=payload, text=text))

    def merge(self, rows: Rows, document: DocumentLike, *, reason: str | None = None) -> int:
        """Add a row that stands for others, and archive these into it; see `Memory.merge`. Return its row id.

        Raises:
            InputError: no rows, the document is not usable or empty, or a row is out of retrieval already.
            RowNotFoundError: there is no such row.
        """
        wanted = self._checked(rows, "rows", "merge")
        for row in wanted:
            if row in self._states.hidden:
                raise InputError(f"row {row} is archived or retracted already; reinstate it or leave it out")
        new = len(self._projection) + len(self.new_rows)
        if any(row >= len(self._projection) for row in wanted):
            raise InputError("a row that is being added in the same commit cannot be merged into another")
        merged = _standing_for([self._projection.record(row) for row in wanted], check_document(document))
        self.entries.append(document_entry(merged, self._projection))
        self.new_rows.append(new)
        self._rows += 1
        self._change("archive", wanted, new, reason)
        return new

    def _checked(self, rows: object, name: str, verb: str) -> list[int]:
        """The rows that a caller gave, each once."""
        listed = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, str | bytes) else [rows]
        wanted = list(dict.fromkeys(checked_row(row, name, self._rows) for row in listed))
        if not wanted:
            raise InputError(f"{verb} needs at least one row")
        return wanted

    def _change(self, kind: ChangeKind, rows: list[int], related: int | None, reason: str | None) -> None:
        if reason is not None:
            reason = plain_text(reason, "reason")
        made_of = related is not None and related >= len(self._projection)
        changes = [StateChange(-1, kind, row, related, reason, made_of) for row in rows]
        self._states = self._states.with_changes(changes)
        self.entries += [Entry(kind=_KINDS[kind], row_id=row, related_row=related, reason=reason) for row in rows]


def commit(engine: Engine, build: Callable[[Draft], object], *, embed: bool = True) -> int:
    """One commit of what a function puts into a draft. Arguments, value and errors as of `Memory.commit`."""
    drafts: list[Draft] = []

    def entries() -> list[Entry]:
        draft = Draft(engine.projection)
        build(draft)
        drafts.append(draft)
        if not draft.new_rows:
            return draft.entries
        if embed:
            engine.embedder.make_ready()  # so that a row is not stored first and then cannot be embedded
        return [*engine.embedder.registration(), *draft.entries]

    committed = engine.commit(entries)
    if embed and drafts[-1].new_rows:
        embed_rows(engine, drafts[-1].new_rows)
    return committed[-1].sequence if committed else -1


def _standing_for(originals: list[Record], document: CheckedDocument) -> CheckedDocument:
    """The document of a merged row; what it does not say of itself is taken from the rows that it stands for.

    Their earliest event date, but none where one of them has none: an as-of question must not see what cannot be dated,
    and goes on to see the dated ones. Every author and tag; the thread, and the metadata, that all of them share.
    """
    if not document.text.strip():
        raise InputError("the text of a merged row is empty")
    dates = [record.occurred_at for record in originals]
    dated = [date for date in dates if date is not None]
    threads = {record.thread for record in originals}
    shared = originals[0].metadata.items()
    metadata = {key: value for key, value in shared if all(_has(record, key, value) for record in originals)}
    filled: dict[str, Any] = {
        "occurred_at": to_microseconds(min(dated), "occurred_at", bare_date="start") if dates == dated else None,
        "authors": tuple(dict.fromkeys(author for record in originals for author in record.authors)),
        "tags": tuple(dict.fromkeys(tag for record in originals for tag in record.tags)),
        "thread": threads.pop() if len(threads) == 1 else None,
        "metadata": canonical_json(metadata, "metadata") if metadata else None,
    }
    return replace(document, **{name: value for name, value in filled.items() if getattr(document, name) in (None, ())})


def _has(record: Record, key: str, value: object) -> bool:
    return key in record.metadata and canonical_json(record.metadata[key], key) == canonical_json(value, key)
