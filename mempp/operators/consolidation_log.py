"""What consolidation has written into the log, read back: its runs, what they decided, what they have left to do.

A run writes annotations of the kind "consolidation", each with the run's id:

- a plan, in the commit of the first outcome of each pass (or by itself, where the first call failed): the groups of the
  pass, so that a run that was killed goes on with the very same groups;
- an outcome for each group that was decided, in the commit of the changes of state that it led to;
- "finished" when nothing is left to do, and "undone" when it was undone, which takes back the outcomes before it; the
  groups that it had changed are then known as such, so that no later run changes them again unasked.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mempp.errors import InputError, quoted
from mempp.operators.consolidation_prompts import VERSION, Label
from mempp.records import Annotation

if TYPE_CHECKING:
    from mempp import Memory

KIND = "consolidation"
"""The kind of the annotations."""
Rows = tuple[int, ...]
_RUNS_TOLD = 20


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run was made with; another run with the same terms would decide the same."""

    model: str
    threshold: float
    prompts: str


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided of one group."""

    rows: Rows
    label: Label
    row: int | None
    """conflict: the row that superseded the others; restatement: the row that stands for all of them."""
    sequence: int
    """Of the annotation that tells it; the state entries of the group come before it in the same commit."""


@dataclass(slots=True)
class Run:
    """One run, as the log tells."""

    run_id: str
    terms: Terms
    anchor: int
    """The row that its first annotation is about, and its marks too."""
    plan: tuple[Rows, ...] = ()
    """The groups of its latest pass."""
    planned: int = -1
    """The entry that tells the plan."""
    decided: list[Decided] = field(default_factory=list)
    """In order; those that were undone are not among them."""
    taken_back: dict[Rows, int] = field(default_factory=dict)
    """The groups that it changed and that were undone → the entry that says so."""
    finished: bool = False
    undone: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether a further call goes on with it."""
        return bool(self.plan) and not self.finished and not self.undone

    @property
    def left(self) -> tuple[Rows, ...]:
        """The groups of its latest pass of which nothing is decided."""
        known = {one.rows for one in self.decided}
        return tuple(rows for rows in self.plan if rows not in known)

    @property
    def merged_rows(self) -> set[int]:
        """The rows that it merged, and that were not taken back."""
        return {one.row for one in self.decided if one.label == "restatement" and one.row is not None}


def reason_of(run_id: str) -> str:
    """The reason that the state entries of a run carry."""
    return f"consolidation {run_id}"


def plan_payload(run_id: str, terms: Terms, plan: Sequence[Rows]) -> dict[str, Any]:
    """The annotation that tells the groups of a pass."""
    return {"run": run_id, **_terms_payload(terms), "plan": [list(rows) for rows in plan]}


def outcome_payload(run_id: str, terms: Terms, rows: Rows, label: Label, row: int | None) -> dict[str, Any]:
    """The annotation that tells what was decided of a group."""
    return {"run": run_id, **_terms_payload(terms), "rows": list(rows), "label": label, "row": row}


def mark_payload(run_id: str, mark: str) -> dict[str, Any]:
    """The annotation that says "finished" or "undone"."""
    return {"run": run_id, mark: True}


def runs_of(memory: "Memory") -> dict[str, Run]:
    """Every run by its id, in the order in which they began; annotations of another form are passed over."""
    runs: dict[str, Run] = {}
    for annotation in memory.annotations(kind=KIND):
        with suppress(KeyError, TypeError, ValueError):
            _read(annotation, runs)
    return runs


def no_such_run(run_id: object, runs: Mapping[str, Run]) -> InputError:
    """The error of a caller who names a run that is not there."""
    known = ", ".join(list(runs)[-_RUNS_TOLD:][::-1]) or "none"
    return InputError(f"there is no run {quoted(run_id)}; known are {known}{' …' if len(runs) > _RUNS_TOLD else ''}")


def remembered(runs: Mapping[str, Run], model: str | None) -> set[Rows]:
    """Groups that were found distinct, by this model or, for None, by any, and by today's wording."""
    return {
        one.rows
        for run in runs.values()
        if run.terms.prompts == VERSION and model in (None, run.terms.model)
        for one in run.decided
        if one.label == "distinct"
    }


def taken_back(runs: Mapping[str, Run]) -> dict[Rows, int]:
    """The groups that any run changed and that were undone → the last entry that says so."""
    found: dict[Rows, int] = {}
    for run in runs.values():
        for rows, sequence in run.taken_back.items():
            found[rows] = max(sequence, found.get(rows, -1))
    return found


def _terms_payload(terms: Terms) -> dict[str, Any]:
    return {"model": terms.model, "threshold": terms.threshold, "prompts": terms.prompts}


def _read(annotation: Annotation, runs: dict[str, Run]) -> None:
    payload = annotation.payload
    run_id = payload["run"]
    if run_id not in runs:
        terms = Terms(str(payload["model"]), float(payload["threshold"]), str(payload["prompts"]))
        runs[run_id] = Run(run_id, terms, annotation.row_id)
    run = runs[run_id]
    if "plan" in payload:
        run.plan, run.planned = tuple(tuple(rows) for rows in payload["plan"]), annotation.sequence
    elif "label" in payload:
        run.decided.append(Decided(tuple(payload["rows"]), payload["label"], payload["row"], annotation.sequence))
    elif "finished" in payload:
        run.finished = True
    elif "undone" in payload:
        run.undone = True
        run.taken_back |= {one.rows: annotation.sequence for one in run.decided if one.label != "distinct"}
        run.decided.clear()
