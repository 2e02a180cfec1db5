"""The state of every row, as the entries up to a moment leave it.

`States` is immutable: a question that took one keeps one consistent picture while others write. A commit of state
changes makes a new one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mempp.dates import from_microseconds
from mempp.records import ACTIVE, State

ChangeKind = Literal["supersede", "archive", "retract", "reinstate"]

_NEVER = int(np.iinfo(np.int64).max)
_ALWAYS = int(np.iinfo(np.int64).min)
"""Earlier than any date; it also stands for "no event date" in a column."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """One state entry of the log: `row_id` is superseded by / archived into `related`, retracted, or reinstated."""

    sequence: int
    kind: ChangeKind
    row_id: int
    related: int | None = None
    reason: str | None = None
    made_of: bool = False
    """archive: whether `related` was added in the same commit, to stand for this row; its text holds this row's then,
    whatever becomes of this row."""


@dataclass(frozen=True)
class States:
    """Which rows are superseded, archived or retracted; rows not named are active.

    The last entry about a row wins, with one distinction: being superseded and being hidden are two things, so that
    superseding a retracted row does not bring it back. Reinstating clears both.
    """

    superseded: Mapping[int, int]
    """Row id → the row that superseded it."""
    supersessions: Mapping[int, tuple[int, ...]]
    """Row id → every row that superseded it, in order; as of a past date an earlier one of them may hold."""
    hidden: Mapping[int, StateChange]
    """Row id → the entry (archive or retract) that took it out of retrieval."""
    made_of: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Merged row → the rows that it was made of, for good."""

    def with_changes(self, changes: Iterable[StateChange]) -> "States":
        """The states after these further entries, in order."""
        superseded, supersessions, hidden = dict(self.superseded), dict(self.supersessions), dict(self.hidden)
        made_of = dict(self.made_of)
        for change in changes:
            row = change.row_id
            if change.kind == "supersede" and change.related is not None:
                superseded[row] = change.related
                supersessions[row] = (*supersessions.get(row, ()), change.related)
            elif change.kind == "reinstate":
                superseded.pop(row, None)
                supersessions.pop(row, None)
                hidden.pop(row, None)
            else:
                hidden[row] = change
            if change.made_of and change.related is not None:
                made_of[change.related] = (*made_of.get(change.related, ()), row)
        return replace(
            self,
            superseded=MappingProxyType(superseded),
            supersessions=MappingProxyType(supersessions),
            hidden=MappingProxyType(hidden),
            made_of=MappingProxyType(made_of),
        )

    def leads_to(self, row: int, target: int) -> bool:
        """Whether following the supersessions from `row` arrives at `target`."""
        current: int | None = row
        while current is not None and current != target:
            current = self.superseded.get(current)
        return current == target

    @cached_property
    def merged_groups(self) -> Mapping[int, tuple[int, ...]]:
        """Merged row → the rows that it was made of, and those archived into it that are older than itself.

        Only an older row can have gone into its text. A row archived into an older one (a duplicate into the
        original, say) is simply hidden, and the original is visible from its own date on.
        """
        groups = {merged: set(rows) for merged, rows in self.made_of.items()}
        for row, change in self.hidden.items():
            if change.kind == "archive" and change.related is not None and row < change.related:
                groups.setdefault(change.related, set()).add(row)
        return {merged: tuple(sorted(groups[merged])) for merged in sorted(groups)}


NO_STATES = States(superseded=MappingProxyType({}), supersessions=MappingProxyType({}), hidden=MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Visibility:
    """What the states mean for the scope of a question.

    A hidden row is in scope only of questions as of a moment before `hidden_from[row]`; a merged row only of
    questions as of `merged_from[row]` or later, or without an as-of date. Moments in microseconds UTC.
    """

    hidden_from: Mapping[int, int]
    merged_from: Mapping[int, int]

    def hidden_rows(self, as_of: int | None) -> NDArray[np.int64]:
        """The rows that a question as of this moment (None: of now) may not see, whatever their own date."""
        rows = [row for row, moment in self.hidden_from.items() if as_of is None or moment <= as_of]
        if as_of is not None:
            rows += [row for row, moment in self.merged_from.items() if moment > as_of]
        return np.array(rows, dtype=np.int64)


def visibility(states: States, occurred_at: NDArray[np.int64]) -> Visibility:
    """When hidden and merged rows may be seen; computed once for each `States`.

    A merged row holds text of its whole group, so it is visible from the latest event date of the group on; before
    that date its originals are. Groups may stand on groups.

    Args:
        states: the states that hold.
        occurred_at: (rows,) event dates in microseconds UTC; the smallest int64 where there is none.
    """
    known = states.__dict__.get("_visibility")
    if isinstance(known, Visibility):
        return known
    merged_from: dict[int, int] = {}
    for merged, originals in states.merged_groups.items():  # ascending, so a group's own merged rows come first
        dates = [merged_from.get(original, int(occurred_at[original])) for original in originals]
        merged_from[merged] = max([int(occurred_at[merged]), *dates])
    hidden_from: dict[int, int] = {}
    for row in sorted(states.hidden, reverse=True):  # what a row was archived into comes before the row
        change = states.hidden[row]
        into = change.related
        if change.kind != "archive" or into is None or into < row:
            hidden_from[row] = _ALWAYS
        elif occurred_at[into] != _ALWAYS:
            hidden_from[row] = merged_from[into]
        else:
            # An undated row is in no as-of scope, so it stands for nothing there; what it was archived into may.
            covered_from = hidden_from.get(into, _ALWAYS)
            hidden_from[row] = _NEVER if covered_from == _ALWAYS else covered_from
    seen = Visibility(hidden_from=hidden_from, merged_from=merged_from)
    object.__setattr__(states, "_visibility", seen)  # event dates never change, so neither does this
    return seen


def state_of(states: States, occurred_at: NDArray[np.int64], row: int, as_of: int | None) -> State:
    """The state of one row as a question as of this moment (None: of now) may know it.

    A supersession by a row dated later than the as-of date is not known then, and so is not told; the last of those
    that are known holds.
    """
    by = states.superseded.get(row)
    if by is not None and as_of is not None:
        known = [
            newer for newer in states.supersessions[row] if _ALWAYS < _whole_from(states, occurred_at, newer) <= as_of
        ]
        by = known[-1] if known else None
    since = None if by is None or occurred_at[by] == _ALWAYS else _whole_from(states, occurred_at, by)
    moment = None if since is None else from_microseconds(since)
    change = states.hidden.get(row)
    if change is not None and (as_of is None or visibility(states, occurred_at).hidden_from[row] <= as_of):
        if change.kind == "archive":
            return State(status="archived", by=by, since=moment, into=change.related)
        return State(status="retracted", by=by, since=moment, reason=change.reason)
    return ACTIVE if by is None else State(status="superseded", by=by, since=moment)


def naming_only(state: State, permitted: Callable[[int], bool]) -> State:
    """The state without the row that superseded it, and its date, where that row may not be named; the status stays."""
    return state if state.by is None or permitted(state.by) else replace(state, by=None, since=None)


def _whole_from(states: States, occurred_at: NDArray[np.int64], row: int) -> int:
    """The event date of a row; of a merged row the latest of its group, since it holds text of all of them."""
    own = int(occurred_at[row])
    if own == _ALWAYS or row not in states.merged_groups:
        return own
    return visibility(states, occurred_at).merged_from[row]
