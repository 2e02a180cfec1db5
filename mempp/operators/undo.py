"""A consolidation run is taken back as a unit, in one commit; nothing is deleted."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mempp.errors import InputError
from mempp.operators.consolidation_log import KIND, Decided, Run, mark_payload, no_such_run, runs_of
from mempp.records import State

if TYPE_CHECKING:
    from mempp import Change, Draft, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoReport:
    """What was taken back."""

    run_id: str
    reinstated: tuple[int, ...] = ()
    """Rows that are current again."""
    archived: tuple[int, ...] = ()
    """Merged rows that went out of retrieval."""
    left: tuple[int, ...] = ()
    """Rows of the run whose state was changed by others since, and that stay as they are."""

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def undo(memory: "Memory", run_id: str) -> UndoReport:
    """Take a consolidation run back: what it superseded or archived is current again, what it merged is archived.

    Rows whose state was changed by others since are left, also where it was given back the state that the run had given
    it; and with a row that others archived into a merged row, the merged row is left, for it stands for that row now.
    A group whose merged row was retracted is left, since undoing must not bring to light what somebody took out. What
    superseded a merged row since supersedes the rows that it stood for. What a later run made of a merged row stays;
    undo that run too if it is not wanted. A run that was undone changes nothing when it is undone again; it is not gone
    on with. Groups of the very same rows as it changed are left as they are by later runs, unless they are asked for
    (`consolidate(again=True)`); what it had found distinct is asked about again by the next run.

    Raises:
        InputError: there is no such run.
        StoreReadOnlyError: the memory cannot be written.
    """
    reports: list[UndoReport] = []

    def build(draft: "Draft") -> None:
        runs = runs_of(memory)
        run = runs.get(run_id) if isinstance(run_id, str) else None
        if run is None:
            raise no_such_run(run_id, runs)
        to_do = run.decided or run.unfinished
        reports.append(_undone(memory, draft, run) if to_do else UndoReport(run_id=run_id))

    memory.commit(build)
    return reports[-1]


def _undone(memory: "Memory", draft: "Draft", run: Run) -> UndoReport:
    merged = run.merged_rows
    superseded_here = {(row, one.row) for one in run.decided if one.label == "conflict" for row in one.rows}
    last = _LastChanges.of(memory)
    reinstated: list[int] = []
    archived: list[int] = []
    left: list[int] = []
    superseded_since: list[tuple[int, int]] = []
    for one in run.decided:
        taken_for = [] if one.label != "restatement" or one.row is None else _line(memory, one.row)
        if any(memory.get(row).state.status == "retracted" for row in taken_for):
            left += [*one.rows, taken_for[0]]
            continue
        for row in taken_for[:1]:
            others_in_it = last.archived_by_others(one)
            left += [*others_in_it, row] if others_in_it else []
            archived += [] if others_in_it or memory.get(row).state == State(status="archived") else [row]
        for row in one.rows if one.label != "distinct" else ():
            state = memory.get(row).state
            if row in merged or row == one.row or state.status == "active":
                continue  # archived with its own group, or never changed, or reinstated since
            if not (_is_from(one, state) and last.is_from(one, row)):
                left.append(row)
                continue
            reinstated.append(row)
            # What took the place of the merged row took that of what it stands for.
            newer = [(other, memory.get(other).state.by) for other in taken_for] + [(row, state.by)]
            others = [by for other, by in newer if by is not None and (other, by) not in superseded_here]
            superseded_since += [(row, by) for by in others[-1:]]
    if reinstated:
        draft.reinstate(reinstated, reason=f"undo of {run.run_id}")
    for row, by in superseded_since:
        with suppress(InputError):  # it would be a circle
            draft.supersede(row, by=by, reason=f"undo of {run.run_id}")
    if archived:
        draft.archive(archived, reason=f"undo of {run.run_id}")
    draft.annotate(run.anchor, KIND, mark_payload(run.run_id, "undone"))
    return UndoReport(
        run_id=run.run_id,
        reinstated=tuple(reinstated),
        archived=tuple(archived),
        left=tuple(dict.fromkeys(left)),
    )


@dataclass(frozen=True, slots=True)
class _LastChanges:
    """The last entry that superseded each row, and the last that archived it, reinstated since or not."""

    superseded: "Mapping[int, Change]"
    archived: "Mapping[int, Change]"
    into: "Mapping[int, Sequence[Change]]"
    """Row → the entries of the rows that are archived into it now."""

    @classmethod
    def of(cls, memory: "Memory") -> "_LastChanges":
        changes = memory.changes().states
        archived = {change.row_id: change for change in changes if change.kind == "archive"}
        into: dict[int, list[Change]] = {}
        for change in archived.values():
            if change.related is not None and memory.get(change.row_id).state.into == change.related:
                into.setdefault(change.related, []).append(change)
        return cls({change.row_id: change for change in changes if change.kind == "supersede"}, archived, into)

    def is_from(self, one: Decided, row: int) -> bool:
        """Whether the state that the run gave a row is of its own entry, and not of a later one that says the same."""
        change = (self.superseded if one.label == "conflict" else self.archived).get(row)
        return change is not None and change.sequence < one.sequence

    def archived_by_others(self, one: Decided) -> list[int]:
        """The rows that others archived into the merged row of a group since, and that still are."""
        into = () if one.row is None else self.into.get(one.row, ())
        return [change.row_id for change in into if change.sequence > one.sequence]


def _line(memory: "Memory", row: int) -> list[int]:
    """A row, the row that it was archived into, the row that this was archived into, and so on."""
    line = [row]
    while (into := memory.get(line[-1]).state.into) is not None and into not in line:
        line.append(into)
    return line


def _is_from(one: Decided, state: State) -> bool:
    """Whether the state of a row is what was decided of its group."""
    if one.label == "conflict":
        return state.status == "superseded" and state.by == one.row
    return state.status == "archived" and state.into == one.row
