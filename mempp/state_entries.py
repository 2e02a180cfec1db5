"""The entries that change the state of rows or say something about them, checked against the state that holds.

They are built inside the commit lock, on the state that the commit will follow; so two processes cannot each make half
of a circle.
"""

from collections.abc import Iterable

import numpy as np

from mempp.errors import InputError, RowNotFoundError, quoted
from mempp.projection import Projection
from mempp.records import canonical_json
from mempp.storage import ANNOTATE, ARCHIVE, REINSTATE, RETRACT, SUPERSEDE, Entry


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


def supersede(projection: Projection, old: int, by: int, reason: str | None) -> list[Entry]:
    """Row `by` replaces row `old`.

    Raises:
        InputError: the rows are the same, or `old` already supersedes `by`, directly or not.
        RowNotFoundError: there is no such row.
    """
    older = checked_row(old, "old", len(projection))
    newer = checked_row(by, "by", len(projection))
    if projection.states.leads_to(newer, older):
        raise InputError(f"row {older} cannot be superseded by row {newer}: that would be a circle")
    return [Entry(kind=SUPERSEDE, row_id=older, related_row=newer, reason=reason)]


def archive(projection: Projection, rows: Iterable[int], into: int | None) -> list[Entry]:
    """Rows go out of retrieval, into another row where one is given.

    Raises:
        InputError: no rows; a row archived into itself, or into a row that is itself out of retrieval.
        RowNotFoundError: there is no such row.
    """
    target = None if into is None else checked_row(into, "into", len(projection))
    wanted = dict.fromkeys(checked_row(row, "rows", len(projection)) for row in rows)
    if not wanted:
        raise InputError("archive needs at least one row")
    if target in wanted:
        raise InputError(f"row {target} cannot be archived into itself")
    if target in projection.states.hidden:
        raise InputError(f"row {target} is archived or retracted itself; reinstate it or choose another row")
    return [Entry(kind=ARCHIVE, row_id=row, related_row=target) for row in wanted]


def retract(projection: Projection, row: int, reason: str | None) -> list[Entry]:
    """A row goes out of retrieval. RowNotFoundError: there is no such row."""
    return [Entry(kind=RETRACT, row_id=checked_row(row, "row", len(projection)), reason=reason)]


def reinstate(projection: Projection, row: int, reason: str | None) -> list[Entry]:
    """A row becomes active again. RowNotFoundError: there is no such row."""
    return [Entry(kind=REINSTATE, row_id=checked_row(row, "row", len(projection)), reason=reason)]


def annotate(projection: Projection, row: int, kind: str, payload: object, text: str | None) -> list[Entry]:
    """Something said about a row.

    Raises:
        InputError: the kind is no text, or the payload is not JSON.
        RowNotFoundError: there is no such row.
    """
    if not isinstance(kind, str) or not kind:
        raise InputError(f"the kind of an annotation must be a text, got {quoted(kind)}")
    about = checked_row(row, "row", len(projection))
    return [Entry(kind=ANNOTATE, row_id=about, label=kind, payload=canonical_json(payload, "payload"), text=text)]
