"""What became of a row, and what came and changed between two moments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from mempp.dates import from_microseconds, to_microseconds
from mempp.errors import InputError, RowNotFoundError, quoted
from mempp.projection import Projection
from mempp.recall import Question, StateChange, States, check_question
from mempp.records import Record

TimeLine = Literal["ingest", "event"]
"""Which of the two times is meant: when it was put on record, or when it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One state entry of the log."""

    sequence: int
    ingested_at: datetime
    kind: str
    """supersede, archive, retract or reinstate."""
    row_id: int
    related: int | None = None
    """supersede: the row that replaced it; archive: the row it was archived into."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What became of one row."""

    record: Record
    changes: tuple[Change, ...]
    """The state entries about this row, in order."""
    replaced: tuple[Record, ...]
    """The older rows of its line: those it superseded, those they superseded, and so on; nearest first."""
    replaced_by: tuple[Record, ...]
    """The newer rows of its line: the one that superseded it, the one that superseded that, and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What came in and what changed state between two moments."""

    records: tuple[Record, ...]
    """The rows that came, by row id; each with the state that holds now."""
    states: tuple[Change, ...]
    """The state entries, in order."""


def history_of(projection: Projection, row_id: int, question: Question) -> History:
    """The state entries of a row and its line of supersession, both ways.

    Args:
        projection: the derived state.
        row_id: a row that exists.
        question: its known-at bound holds for entries and states.
    """
    view = projection.view(question)
    if row_id >= view.rows:
        raise RowNotFoundError(f"there was no row {row_id} then; the record had {view.rows} rows, numbered from 0")
    lost = projection.lost_rows
    changes = [change for change in projection.changes_up_to(question) if change.row_id == row_id]
    return History(
        record=projection.record(row_id, view),
        changes=tuple(_public(projection, change) for change in changes),
        replaced=tuple(projection.record(row, view) for row in _older(view.states, row_id) if row not in lost),
        replaced_by=tuple(projection.record(row, view) for row in _newer(view.states, row_id) if row not in lost),
    )


def _newer(states: States, row_id: int) -> list[int]:
    line = []
    current = states.superseded.get(row_id)
    while current is not None:  # ends: circles are refused when they are written
        line.append(current)
        current = states.superseded.get(current)
    return line


def _older(states: States, row_id: int) -> list[int]:
    by_newer: dict[int, list[int]] = {}
    for older, newer in states.superseded.items():
        by_newer.setdefault(newer, []).append(older)
    line: list[int] = []
    layer = [row_id]
    while layer:
        layer = sorted((older for newer in layer for older in by_newer.get(newer, ())), reverse=True)
        line += layer
    return line


def changes_between(projection: Projection, since: object, until: object, by: TimeLine) -> Changes:
    """What came in and what changed state from `since` to `until`, both included; None leaves an end open.

    By "ingest" time: what was put on record in that time, whatever it speaks of. By "event" time: the rows dated in
    that time, and the supersessions that took hold then (at the event date of the newer row); archiving, retracting and
    reinstating have no event date, since they are about the record and not about what happened.

    Raises:
        InputError: `by` is neither.
        InvalidDateError: a moment is no date.
    """
    if by not in get_args(TimeLine):
        raise InputError(f"by must be one of {', '.join(get_args(TimeLine))}, got {quoted(by)}")
    first = None if since is None else to_microseconds(since, "since", bare_date="start")
    last = None if until is None else to_microseconds(until, "until", bare_date="end")

    def within(moment: datetime | None) -> bool:
        if moment is None:
            return first is None and last is None
        stamp = to_microseconds(moment, "moment", bare_date="start")
        return (first is None or stamp >= first) and (last is None or stamp <= last)

    everything = check_question()
    records = {row: projection.record(row) for row in range(len(projection)) if row not in projection.lost_rows}
    changes = [_public(projection, change) for change in projection.changes_up_to(everything)]
    if by == "ingest":
        states = [change for change in changes if within(change.ingested_at)]
        return Changes(records=tuple(one for one in records.values() if within(one.ingested_at)), states=tuple(states))
    took_hold = _superseded_when(records, changes)
    states = [change for change, moment in took_hold if within(moment)]
    return Changes(records=tuple(one for one in records.values() if within(one.occurred_at)), states=tuple(states))


def _superseded_when(records: Mapping[int, Record], changes: Sequence[Change]) -> list[tuple[Change, datetime | None]]:
    return [
        (change, records[change.related].occurred_at if change.related is not None else None)
        for change in changes
        if change.kind == "supersede" and change.related in records
    ]


def _public(projection: Projection, change: StateChange) -> Change:
    return Change(
        sequence=change.sequence,
        ingested_at=from_microseconds(projection.stamp_of(change.sequence)),
        kind=change.kind,
        row_id=change.row_id,
        related=change.related,
        reason=change.reason,
    )
