"""One run: a benchmark's chosen questions put to one system, and, if asked, to an answering and a judging model.

Within a collection retrieval is sequential and done before its questions are answered, so that its times are honest;
models are asked by several threads. The results do not depend on how many.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from eval.cases import Case, Collection, Dataset
from eval.console import say
from eval.errors import FAULTS, CostLimitError, EvalError, ModelError, SystemUnavailableError
from eval.interrupts import Interrupts
from eval.pool import Pool
from eval.progress import Meter
from eval.results import JsonObject, Kept, RowsFile, digest, digest_of_text
from eval.scoring import BUDGETS, RECALL_KS, Scores, answer_scores, retrieval_scores
from eval.selection import Chosen, Selection
from eval.summing import assemble
from eval.systems.base import Retrieved, Session, System

DOCUMENTS_KEPT = 200
"""How many retrieved ids a row keeps; a system without a k ranks the whole collection."""
SECONDS_TO_FINISH = 15.0
"""How long an interrupted run waits for the replies that are under way."""
BLOCK = 256
"""Questions that are retrieved before they are answered; bounds the evidence held in memory."""
_ENDS_THE_RUN = (SystemUnavailableError, ModelError, CostLimitError)
"""What would meet every further question too; anything else fails one question or collection."""


class Asking(Protocol):
    """What is done with retrieved evidence: an answer, a verdict. See `eval.asking`."""

    @property
    def configuration(self) -> JsonObject:
        """Models, prompts and their digests."""
        ...

    def ask(self, case: Case, evidence: str) -> tuple[JsonObject, JsonObject | None, Scores]:
        """(answer, verdict, scores) as they stand in a row."""
        ...

    def costs(self, rows: Sequence[Mapping[str, Any]]) -> JsonObject:
        """Tokens, requests and dollars over rows."""
        ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything about a run but the system."""

    dataset: Dataset
    data: Path
    options: Mapping[str, str] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    chosen: Chosen
    data_digest: JsonObject
    ks: Sequence[int] = RECALL_KS
    budgets: Sequence[int] = BUDGETS
    as_of: bool = True
    asking: Asking | None = None
    workers: int = 1
    out: Path | None = None
    resume: bool = False
    overwrite: bool = False
    keep_evidence: bool = False
    quiet: bool = False
    study: str | None = None
    """"ablation" or "sweep-k" where this run is one of such a row."""
    variant: str | None = None
    """The row of the ablation, or "k=30" of the sweep."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    result: JsonObject
    ended_by: BaseException | None = None
    """What ended it early: an interrupt, a limit, a model that cannot be asked."""
    kept_in: Path | None = None
    """The result file; or the rows file, where a complete result of before was not replaced by a partial one."""


@dataclass(frozen=True, slots=True)
class _Job:
    case: Case
    evidence: str
    row: JsonObject


def configuration_of(plan: Plan, system: System) -> JsonObject:
    """All that decides the results, as plain values."""
    return {
        "benchmark": plan.dataset.name,
        "dataset_options": dict(sorted(plan.options.items())),
        "selection": {
            "limit": plan.selection.limit,
            "fraction": plan.selection.fraction,
            "seed": plan.selection.seed,
            "questions": len(plan.chosen),
            "of": plan.chosen.of,
            "sha256": plan.chosen.digest,
        },
        "system": system.name,
        "study": plan.study,
        "variant": plan.variant,
        "system_configuration": without_folders(dict(system.configuration)),
        "as_of": plan.as_of,
        "recall_ks": list(plan.ks),
        "budgets": list(plan.budgets),
        "models": None if plan.asking is None else plan.asking.configuration,
    }


def without_folders(value: Any) -> Any:
    """Plain values with absolute paths cut down to their last name: results tell nothing of a machine's folders."""
    if isinstance(value, Mapping):
        return {name: without_folders(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(one) for one in value]
    if isinstance(value, str) and value.startswith(("/", "~")) and "\n" not in value:
        return Path(value).name
    return value


def run(plan: Plan, system: System) -> Outcome:
    """Put the questions to the system; write the result file, if there is one, whatever ends the run.

    Raises:
        EvalError: the data or the files are at fault, or the system cannot be used; nothing is lost by it.
    """
    from eval.results import FORMAT, versions, write_atomically

    configuration = configuration_of(plan, system)
    installed = versions()
    ours = digest(
        {
            "format": FORMAT,
            "mempp": installed.get("mempp"),
            "configuration": configuration,
            "data": plan.data_digest["sha256"],
            # Decides no figure, but rows with and without their evidence do not belong into one file.
            **({"keep_evidence": True} if plan.keep_evidence else {}),
        }
    )
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts().watched())
        file = None if plan.out is None else stack.enter_context(RowsFile(plan.out, ours))
        kept = Kept()
        if file is not None and plan.out is not None:
            kept = file.begin(plan.out, resume=plan.resume, overwrite=plan.overwrite)
            kept.rows = {name: row for name, row in kept.rows.items() if name in plan.chosen.order}
        if kept.rows:
            say(f"{len(kept.rows)} of {len(plan.chosen)} questions are done already")
        running = _Run(plan, system, kept, file, interrupts)
        ended_by: BaseException | None = None
        try:
            running.all()
        except (KeyboardInterrupt, *FAULTS) as error:
            ended_by = error
            if isinstance(error, FAULTS) and not isinstance(error, CostLimitError) and not running.rows:
                raise  # nothing was done: there is no result to keep
        with interrupts.held():
            complete = len(running.rows) == len(plan.chosen)
            result = assemble(
                rows=[running.rows[name] for name in sorted(running.rows, key=plan.chosen.order.__getitem__)],
                ingest=list(running.ingest.values()),
                complete=complete,
                configuration=configuration,
                configuration_digest=ours,
                dataset=plan.dataset,
                data_digest=plan.data_digest,
                notes=[*system.notes, *_notes(plan, system)],
                installed=installed,
                costs=None if plan.asking is None else plan.asking.costs(list(running.rows.values())),
            )
            kept_in = plan.out
            if plan.out is not None and file is not None:
                if complete or not file.complete_before:
                    write_atomically(plan.out, result)
                else:
                    kept_in = file.path
                if complete:
                    file.remove()
    return Outcome(result, ended_by, kept_in)


def _notes(plan: Plan, system: System) -> list[str]:
    notes = []
    settings = system.configuration.get("settings")
    k = settings.get("k") if isinstance(settings, Mapping) else system.configuration.get("k")
    beyond = [one for one in plan.ks if isinstance(k, int) and one > k]
    if beyond:
        names = ", ".join(f"recall@{one}" for one in beyond)
        notes.append(f"{names} counts the {k} documents that this system gives at most")
    return notes


class _Run:
    """The state of a run: what is done, and what is under way."""

    def __init__(self, plan: Plan, system: System, kept: Kept, file: RowsFile | None, interrupts: Interrupts) -> None:
        self.plan = plan
        self.system = system
        self.rows = kept.rows
        self.ingest = kept.ingest
        self._file = file
        self._interrupts = interrupts
        self._meter = Meter(plan.variant or system.name, len(plan.chosen) - len(self.rows), quiet=plan.quiet)
        self._pool: Pool[_Job, JsonObject] | None = None
        if plan.asking is not None:
            self._pool = Pool(self._asked, plan.workers)

    def all(self) -> None:
        """Every chosen question that is not done."""
        with self._meter:
            try:
                self._collections()
                self._take(leave=0)
            except (KeyboardInterrupt, *FAULTS) as error:
                self._wind_up(asked_to=isinstance(error, KeyboardInterrupt))
                raise

    def _collections(self) -> None:
        left = len(self.plan.chosen) - len(self.rows)
        if not left:
            return
        for collection in self.plan.dataset.read(self.plan.data, self.plan.options):
            wanted = self.plan.chosen.by_collection.get(collection.id, frozenset())
            cases = [case for case in collection.cases if case.id in wanted and case.id not in self.rows]
            if not cases:
                continue
            self._collection(collection, cases)
            left -= len(cases)
            if not left:
                return
        raise EvalError(f"the data of {self.plan.dataset.name} changed while it was read: {left} questions are gone")

    def _collection(self, collection: Collection, cases: Sequence[Case]) -> None:
        self._meter.doing(f"taking in {collection.id} ({len(collection.documents):,} documents)")
        lengths = {one.id: len(one.text) for one in collection.documents}
        with ExitStack() as stack:
            try:
                session = stack.enter_context(self.system.open(collection))
            except _ENDS_THE_RUN:
                raise
            except Exception as error:  # a fault of the system: these questions are failed, the others are not
                for case in cases:
                    self._failed(case, collection, error, lengths)
                return
            self._keep_ingest(collection, session)
            self._meter.doing(f"asking {collection.id}")
            for start in range(0, len(cases), BLOCK):
                block = cases[start : start + BLOCK]
                jobs = [self._retrieve(session, collection, case, lengths) for case in block]
                if self._pool is not None:
                    for job in filter(None, jobs):
                        self._pool.submit(job)
                    self._take(leave=BLOCK)

    def _keep_ingest(self, collection: Collection, session: Session) -> None:
        cost = session.ingest
        value = {
            "collection": collection.id,
            "documents": cost.documents,
            "seconds": cost.seconds,
            "bytes_stored": cost.bytes_stored,
        }
        with self._interrupts.held():
            self.ingest[collection.id] = value
            if self._file is not None:
                self._file.append("ingest", value)

    def _retrieve(
        self, session: Session, collection: Collection, case: Case, lengths: Mapping[str, int]
    ) -> _Job | None:
        try:
            # The largest budget, which the answering model reads, comes first: systems time that one.
            retrieved = session.retrieve(case, sorted(self.plan.budgets, reverse=True))
            row = self._row(case, collection, retrieved, lengths)
        except _ENDS_THE_RUN:
            raise
        except Exception as error:
            self._failed(case, collection, error, lengths)
            return None
        if self._pool is None:
            self._keep([row])
            return None
        return _Job(case, retrieved.evidence[max(self.plan.budgets)].text, row)

    def _row(
        self, case: Case, collection: Collection, retrieved: Retrieved | None, lengths: Mapping[str, int]
    ) -> JsonObject:
        plan = self.plan
        ranked = () if retrieved is None else retrieved.ranked
        places = {one.id: place for place, one in enumerate(ranked, 1)}
        row: JsonObject = {
            "id": case.id,
            "collection": collection.id,
            "category": case.category,
            **case_as_json(case),
            "retrieved": [
                {"id": one.id, "score": round(float(one.score), 9), "ranks": dict(one.ranks)}
                for one in ranked[:DOCUMENTS_KEPT]
            ],
            "retrieved_count": len(ranked),
            "gold_ranks": {name: places.get(name) for name in case.evidence},
            "evidence": {},
            "answer": None,
            "verdict": None,
            "scores": retrieval_scores(case, retrieved, ks=plan.ks, budgets=plan.budgets, lengths=lengths),
            "error": None,
        }
        if retrieved is not None:
            for budget in plan.budgets:
                evidence = retrieved.evidence[budget]
                row["evidence"][str(budget)] = {
                    "shares": dict(evidence.shares),
                    "characters": len(evidence.text),
                    "sha256": digest_of_text(evidence.text),
                } | ({"text": evidence.text} if plan.keep_evidence else {})
        return row

    def _failed(self, case: Case, collection: Collection, error: Exception, lengths: Mapping[str, int]) -> None:
        say(f"question {case.id} failed in {self.system.name}: {type(error).__name__}: {str(error)[:300]}")
        row = self._row(case, collection, None, lengths)
        row["error"] = f"{type(error).__name__}: {str(error)[:1000]}"
        if self.plan.asking is not None:
            row["scores"] |= answer_scores(case, None, 0.0)
        self._keep([row])

    def _asked(self, job: _Job) -> JsonObject:
        assert self.plan.asking is not None
        answer, verdict, scores = self.plan.asking.ask(job.case, job.evidence)
        return {**job.row, "answer": answer, "verdict": verdict, "scores": job.row["scores"] | scores}

    def _take(self, *, leave: int) -> None:
        if self._pool is not None:
            for row in self._pool.finished(leave=leave):
                self._keep([row])

    def _keep(self, rows: Iterable[JsonObject]) -> None:
        for row in rows:
            with self._interrupts.held():
                self.rows[row["id"]] = row
                if self._file is not None:
                    self._file.append("row", row)
            self._meter.done()

    def _wind_up(self, *, asked_to: bool) -> None:
        if self._pool is None or not self._pool.waiting:
            return
        if asked_to:
            say("finishing the requests under way; interrupt again to drop them")
        try:
            self._keep(self._pool.stop(SECONDS_TO_FINISH))
        except KeyboardInterrupt:
            say("dropped")


def case_as_json(case: Case) -> JsonObject:
    """What a judge needs of a question, so that a result can be judged again without the benchmark."""
    return {
        "question": case.text,
        "as_of": case.as_of,
        "asked_at": case.asked_at,
        "gold": {
            "answers": list(case.answers),
            "evidence": list(case.evidence),
            "rubric": [{"text": one.text, "weight": one.weight} for one in case.rubric],
            "choices": dict(case.choices),
            "unanswerable": case.unanswerable,
        },
    }
