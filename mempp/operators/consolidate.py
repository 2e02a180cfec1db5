"""Consolidation C(R, τ): what was said twice, or has changed, is found and marked (Algorithm 2 of the paper).

A pass groups the current rows greedily by cosine (see `grouping`), and asks a model of each group of two or more how
its rows stand to one another:

    conflict      the row with the latest event date stays current, and every other is marked as superseded by it
    restatement   a second call writes one row that stands for all of them, and they are archived into it
    distinct      nothing changes, and the same group is not asked about again

A group whose reply is of no use stays as it is. What a pass changes may bring other rows together, so passes follow one
another until one finds nothing new: after that a second run has nothing to do.

Each group is one commit, in the order of the groups whatever order replies arrive in. It holds the changes of state and
what was decided (see `consolidation_log`), so a run that was killed goes on where it stopped.
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mempp.errors import EncoderError, InputError, MemppError, ModelRequestError, quoted
from mempp.llm import Model, Usage
from mempp.operators import consolidation_prompts as prompts
from mempp.operators.batch import CONCURRENCY, Ask, Batch, Done, Job, carrying
from mempp.operators.consolidation_log import (
    KIND,
    Rows,
    Run,
    Terms,
    mark_payload,
    no_such_run,
    outcome_payload,
    plan_payload,
    reason_of,
    remembered,
    runs_of,
    taken_back,
)
from mempp.operators.consolidation_report import ConsolidationReport, Group
from mempp.operators.grouping import first_rows, groups
from mempp.operators.models import estimated_cost, model_for, name_of
from mempp.progress import reporter
from mempp.records import ACTIVE, Document

if TYPE_CHECKING:
    from mempp import Draft, Memory
    from mempp.progress import Progress

LEFT_ALONE = ("pinned", "confidential")
"""Tags, case folded, of rows that never take part."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows that may be grouped."""

    rows: tuple[int, ...]
    """Row ids in ingest order: current, with a vector, not tagged `pinned` or `confidential`."""
    vectors: NDArray[np.float32]
    """(rows, dimensions)"""
    without_vector: int
    """How many others would be among them if they had a vector."""

    def grouped(self, threshold: float) -> list[Rows]:
        """Their groups of two or more."""
        return [tuple(self.rows[place] for place in one) for one in groups(first_rows(self.vectors, threshold))]


def candidates(memory: "Memory") -> Candidates:
    """The rows of a memory that may be grouped now."""
    current = [
        record.row_id
        for record in memory.records()
        if record.state == ACTIVE and not any(tag.casefold() in LEFT_ALONE for tag in record.tags)
    ]
    vectors = memory.vectors(current)
    have = vectors.any(axis=1)
    rows = tuple(np.array(current, dtype=np.int64)[have].tolist())
    return Candidates(rows, vectors[have], len(current) - len(rows))


def consolidate(
    memory: "Memory",
    *,
    model: str | Model | None = None,
    threshold: float = 0.85,
    dry_run: bool = False,
    again: bool = False,
    max_calls: int | None = None,
    max_cost: float | None = None,
    concurrency: int = CONCURRENCY,
    progress: "Progress" = False,
    run_id: str | None = None,
) -> ConsolidationReport:
    """See `Memory.consolidate` for arguments and errors."""
    threshold = _checked(threshold)
    if memory.encoder is None:
        raise InputError("consolidation compares vectors, and this memory was opened with encoder='none'")
    if dry_run:
        return _dry_run(memory, model, threshold, again=again)
    memory.commit(lambda draft: None)  # so that it is known to be writable before anything is paid for
    asked = model_for(memory, model, replies_required=True)
    batch = Batch(asked, concurrency=concurrency, max_calls=max_calls, max_cost=max_cost)
    terms = Terms(asked.name, threshold, prompts.VERSION)
    run = _run_to_go_on_with(memory, terms, run_id)
    with reporter(progress, "consolidating", None) as done:
        return _Consolidation(memory, batch, terms, run, done, again=again).execute()


def _dry_run(memory: "Memory", model: str | Model | None, threshold: float, *, again: bool) -> ConsolidationReport:
    found, runs = candidates(memory), runs_of(memory)
    known, spared = remembered(runs, name_of(model)), {} if again else taken_back(runs)
    grouped = found.grouped(threshold)
    new = [Group(rows=rows, outcome="waiting") for rows in grouped if rows not in known and rows not in spared]
    calls = [one for group in new for one in prompts.estimates([memory.get(row) for row in group.rows])]
    return ConsolidationReport(
        run_id=None,
        finished=not new,
        dry_run=True,
        candidates=len(found.rows),
        without_vector=found.without_vector,
        groups=tuple(new),
        undone=tuple(rows for rows in grouped if rows in spared),
        asked=0,
        cached=0,
        usage=sum(calls, Usage()),
        cost=estimated_cost(model, calls),
        stopped=None,
    )


def _checked(threshold: object) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold <= 1:
        raise InputError(f"threshold must be a cosine above 0 and at most 1, got {quoted(threshold)}")
    return float(threshold)


def _run_to_go_on_with(memory: "Memory", terms: Terms, run_id: str | None) -> Run | None:
    runs = runs_of(memory)
    if run_id is None:
        return next((run for run in reversed(runs.values()) if run.unfinished and run.terms == terms), None)
    run = runs.get(run_id) if isinstance(run_id, str) else None
    if run is None:
        raise no_such_run(run_id, runs)
    if not run.unfinished:
        raise InputError(f"run {run_id} is {'undone' if run.undone else 'finished'}; begin another without run_id")
    if run.terms != terms:
        raise InputError(
            f"run {run_id} was begun with model {quoted(run.terms.model)}, threshold {run.terms.threshold} and prompts "
            f"of version {run.terms.prompts}, not {quoted(terms.model)}, {terms.threshold} and {terms.prompts}; go on "
            "with the same, or begin another without run_id"
        )
    return run


@dataclass(frozen=True, slots=True)
class _Decision:
    """What the model decided of a group, or why it was not asked."""

    label: prompts.Label | None = None
    text: str = ""
    """restatement: the merged text."""
    reason: str | None = None
    too_long: bool = False


class _Consolidation:
    """One call: pass after pass until nothing new is found, a limit is reached, or calls failed."""

    def __init__(
        self,
        memory: "Memory",
        batch: Batch,
        terms: Terms,
        run: Run | None,
        progress: Callable[[int], None],
        *,
        again: bool,
    ) -> None:
        self._memory = memory
        self._batch = batch
        self._terms = terms
        self._run = run
        self._run_id = uuid.uuid4().hex[:12] if run is None else run.run_id
        self._anchor = None if run is None else run.anchor
        """The row that carries the marks of the run; None as long as nothing of it was written."""
        self._progress = progress
        self._again = again
        self._spared: dict[Rows, None] = {}
        """Groups that are left because an undone run had changed them, in the order in which they were met."""
        self._groups: list[Group] = []
        self._given_up: set[Rows] = set()
        """Groups that failed or were left: not to be asked about again in this call."""
        self._unembedded: Group | None = None
        """The group whose merged row the encoder failed at, which ends the run."""

    def execute(self) -> ConsolidationReport:
        memory = self._memory
        if self._merged_without_vector():  # it was killed between storing and embedding
            memory.embed()
        found = candidates(memory)
        with carrying(lambda: self._report(found, finished=False)):
            if self._run is None:
                complete = self._passes(self._new(found))
            else:
                self._pass(self._left_of(self._run), resumed=True)
                complete = self._batch.stopped is None and self._passes(self._new(candidates(memory)))
            if complete and self._anchor is not None:
                self._mark_finished(self._anchor)
        return self._report(found, finished=complete)

    def _report(self, found: Candidates, *, finished: bool) -> ConsolidationReport:
        account = self._batch.account
        return ConsolidationReport(
            run_id=None if self._anchor is None else self._run_id,
            finished=finished,
            dry_run=False,
            candidates=len(found.rows),
            without_vector=found.without_vector,
            groups=tuple(self._groups),
            undone=tuple(self._spared),
            asked=account.asked,
            cached=account.cached,
            usage=account.usage,
            cost=self._batch.cost,
            stopped=self._batch.stopped,
        )

    def _passes(self, plan: list[Rows]) -> bool:
        """Pass after pass; tell whether nothing is left to do."""
        while plan:
            outcomes = {group.outcome for group in self._pass(plan, resumed=False)}
            if outcomes & {"failed", "waiting"}:
                return False
            if not outcomes & {"conflict", "restatement"}:
                break
            plan = self._new(candidates(self._memory))
        return True

    def _new(self, found: Candidates) -> list[Rows]:
        """The groups that nothing is known of, and that nobody wanted left as they were."""
        runs = runs_of(self._memory)
        known = remembered(runs, self._terms.model) | self._given_up
        new = [rows for rows in found.grouped(self._terms.threshold) if rows not in known]
        spared = {} if self._again else taken_back(runs)
        self._spared |= {rows: None for rows in new if rows in spared}
        return [rows for rows in new if rows not in spared]

    def _left_of(self, run: Run) -> list[Rows]:
        """What a run has left of its plan, without what was treated and undone since the plan was made."""
        since = {} if self._again else taken_back(runs_of(self._memory))
        self._spared |= {rows: None for rows in run.left if since.get(rows, -1) > run.planned}
        return [rows for rows in run.left if rows not in self._spared]

    def _pass(self, plan: Sequence[Rows], *, resumed: bool) -> list[Group]:
        """Ask about groups, and write down what is decided, one by one in their order.

        When a call fails, the groups after it are asked about, and their replies kept, but nothing more is written: the
        next call goes on from there, as if there had been no failure. One that fails then, too, holds up nothing.

        Args:
            plan: the groups.
            resumed: whether it is what an earlier call has left of a plan; if not, the plan is written with the first
                outcome.
        """
        came: list[Group] = []
        in_log, held = resumed, False
        try:
            with self._batch.outcomes(map(self._job, plan)) as outcomes:
                for rows, done in zip(plan, outcomes, strict=False):
                    if held and done.error is None:
                        group = Group(rows=rows, outcome="waiting")
                    else:
                        group = self._settled(rows, done, None if in_log else plan)
                    in_log = in_log or group.outcome in ("conflict", "restatement", "distinct")
                    if group.outcome == "failed" and not resumed and not held:
                        held = True
                        if not in_log:
                            self._write_plan(plan)
                        in_log = True
                    came.append(group)
                    self._progress(len(self._groups) + len(came))
        finally:  # also of a pass that an error ends, for its report
            came += [] if self._unembedded is None else [self._unembedded]
            came += [Group(rows=rows, outcome="waiting") for rows in plan[len(came) :]]
            self._groups += came
        self._given_up |= {group.rows for group in came if group.outcome in ("failed", "left")}
        return came

    def _job(self, rows: Rows) -> Job[_Decision]:
        problem = self._changed(rows)
        shown = None if problem else prompts.shown([self._memory.get(row) for row in rows])
        if shown is None:
            told = problem or f"its {len(rows)} records do not fit into {prompts.MAX_CHARS:,} characters"
            return Job(lambda ask: _Decision(reason=told, too_long=problem is None), ())
        label, merge = prompts.label_request(shown), prompts.merge_request(shown)

        def work(ask: Ask) -> _Decision:
            decided = prompts.label_of(ask(label))
            return _Decision(decided, prompts.merged_text_of(ask(merge)) if decided == "restatement" else "")

        return Job(work, (label, merge))

    def _changed(self, rows: Rows) -> str | None:
        """Says which row of a group is not current any more, if one is not."""
        changed = [row for row in rows if self._memory.get(row).state != ACTIVE]
        return f"row {changed[0]} changed its state meanwhile" if changed else None

    def _settled(self, rows: Rows, done: Done[_Decision], plan: Sequence[Rows] | None) -> Group:
        """Write down what was decided of a group, unless one of its rows has changed meanwhile."""
        if done.error is not None:
            failed = isinstance(done.error, ModelRequestError)
            return Group(rows=rows, outcome="failed" if failed else "left", reason=str(done.error))
        decision = done.value
        assert decision is not None, "a job without an error has a value"
        made: list[Group] = []

        def build(draft: "Draft") -> None:
            problem = decision.reason or self._changed(rows)
            if problem is None:
                if plan is not None:
                    draft.annotate(rows[0], KIND, plan_payload(self._run_id, self._terms, plan))
                made.append(self._write(draft, rows, decision))
            else:
                too_long = decision.too_long and problem == decision.reason
                made.append(Group(rows=rows, outcome="left", reason=problem, too_long=too_long))

        before = self._memory.head_sequence
        try:
            self._memory.commit(build)
        except (EncoderError, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt):
                with suppress(MemppError):  # it may have been committed, and interrupted then
                    self._memory.refresh()
            if made and self._memory.head_sequence > before:  # it is stored, and a merged row may have no vector yet
                self._unembedded = made[-1]
                self._anchor = rows[0] if self._anchor is None else self._anchor
            raise
        if made[-1].outcome != "left" and self._anchor is None:
            self._anchor = rows[0]
        return made[-1]

    def _write(self, draft: "Draft", rows: Rows, decision: _Decision) -> Group:
        """The changes of state of one group, and what was decided."""
        assert decision.label is not None
        reason = reason_of(self._run_id)
        row = None
        if decision.label == "conflict":
            row = latest(draft, rows)
            draft.supersede([other for other in rows if other != row], by=row, reason=reason)
        elif decision.label == "restatement":
            row = draft.merge(rows, Document(text=decision.text), reason=reason)
        draft.annotate(rows[0], KIND, outcome_payload(self._run_id, self._terms, rows, decision.label, row))
        return Group(rows=rows, outcome=decision.label, row=row)

    def _write_plan(self, plan: Sequence[Rows]) -> None:
        self._anchor = plan[0][0] if self._anchor is None else self._anchor
        payload = plan_payload(self._run_id, self._terms, plan)
        self._memory.commit(lambda draft: draft.annotate(plan[0][0], KIND, payload))

    def _mark_finished(self, anchor: int) -> None:
        self._memory.commit(lambda draft: draft.annotate(anchor, KIND, mark_payload(self._run_id, "finished")))

    def _merged_without_vector(self) -> bool:
        rows = [row for run in runs_of(self._memory).values() for row in run.merged_rows]
        active = [row for row in rows if self._memory.get(row).state == ACTIVE]
        return not self._memory.vectors(active).any(axis=1).all()


def latest(draft: "Draft", rows: Sequence[int]) -> int:
    """The row of a conflict that stays current: the one with the latest event date.

    A merged row counts with the latest date of the rows that it stands for, and an undated row as earlier than any
    date. Among equals the one that was ingested last stays.
    """

    def key(row: int) -> tuple[bool, int, int]:
        moment = draft.whole_from(row)
        return moment is not None, moment or 0, row

    return max(rows, key=key)
