"""From the arguments of a command to runs: the benchmark is read and chosen from, models are made, runs follow."""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import mempp
from eval.asking import Asker, ModelOptions
from eval.cases import Dataset
from eval.console import AT_FAULT, DONE, INTERRUPTED, ReaderGoneError, say, write, write_json
from eval.datasets import dataset as dataset_named
from eval.errors import EvalError, SystemUnavailableError, UsageError
from eval.options import pairs
from eval.results import JsonObject, checked_out, digest_of_files, failed
from eval.run import Outcome, Plan, run
from eval.scoring import BUDGETS, RECALL_KS
from eval.selection import Selection, choose
from eval.summing import all_failed
from eval.systems import system as system_named
from eval.systems.base import Options, System
from eval.tables import side_by_side, summary_text

REPLIES = "eval-replies"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What `run`, `ablate` and `sweep-k` have in common, as the command line gives it."""

    benchmark: str
    data: Path
    k: int | None = None
    preset: str | None = None
    settings: Sequence[str] = ()
    dataset_options: Sequence[str] = ()
    no_as_of: bool = False
    encoder: str = "minilm"
    recall_only: bool = False
    models: ModelOptions = field(default_factory=ModelOptions)
    budget: Sequence[int] = ()
    limit: int | None = None
    fraction: float | None = None
    seed: int = 0
    workers: int = 4
    out: Path | None = None
    resume: bool = False
    overwrite: bool = False
    keep_evidence: bool = False
    quiet: bool = False
    as_json: bool = False

    def system_options(self) -> Options:
        """What the systems are given.

        Raises:
            UsageError: a `--set` is no NAME=VALUE.
        """
        return Options(
            k=self.k,
            preset=self.preset,
            settings=pairs(self.settings, "--set"),
            encoder=self.encoder,
            as_of=not self.no_as_of,
        )


@dataclass(frozen=True)
class Turn:
    """One run of a command."""

    system: System
    slug: str
    """What the name of its result file gets, where there are several."""
    study: str | None = None
    variant: str | None = None
    ks: Sequence[int] = RECALL_KS
    """Where recall is measured."""


def prepared(arguments: Arguments) -> Plan:
    """Read the benchmark through, choose questions, make the models. What is at fault is told before anything runs.

    Raises:
        EvalError: the data, a model or an argument is at fault.
    """
    if arguments.resume and arguments.out is None and arguments.models.answer_model is None:
        raise UsageError("--resume needs the --out of the run that is to go on")
    budgets = tuple(sorted(set(arguments.budget or BUDGETS)))
    if budgets[0] < 1:
        raise UsageError(f"--budget takes characters from 1, got {budgets[0]}")
    chosen_dataset = dataset_named(arguments.benchmark)
    options = pairs(arguments.dataset_options, "--option")
    selection = Selection(arguments.limit, arguments.fraction, arguments.seed)
    out = None if arguments.out is None else checked_out(arguments.out)
    if out is None and arguments.models.answer_model is not None:
        out = Path(f"eval-{chosen_dataset.name}.json")  # what was paid for is kept
        say(f"the result is kept in {out}; --out takes another name")
    asking = _asking(arguments, chosen_dataset, budgets, out)
    if asking is None and not arguments.recall_only:
        say("recall only: no model answers (--answer-model)")
    # The data is digested first: if it changes in between, a run that goes on later notices.
    data_digest = digest_of_files(chosen_dataset.files(arguments.data, options))
    return Plan(
        dataset=chosen_dataset,
        data=arguments.data,
        options=options,
        selection=selection,
        chosen=choose(chosen_dataset, arguments.data, options, selection),
        data_digest=data_digest,
        budgets=budgets,
        as_of=not arguments.no_as_of,
        asking=asking,
        workers=arguments.workers,
        out=out,
        resume=arguments.resume,
        overwrite=arguments.overwrite,
        keep_evidence=arguments.keep_evidence,
        quiet=arguments.quiet,
    )


def _asking(arguments: Arguments, dataset: Dataset, budgets: Sequence[int], out: Path | None) -> Asker | None:
    models = arguments.models
    if models.answer_model is None:
        for one in fields(ModelOptions):
            if getattr(models, one.name) != one.default:
                option = one.name.replace("_", "-")
                raise UsageError(f"--{option} needs --answer-model; without it a run is recall only")
        return None
    if arguments.recall_only:
        raise UsageError("--recall-only and --answer-model contradict each other; give one of them")
    if models.cache is None and out is not None:
        models = replace(models, cache=out.parent / REPLIES)
    asker = Asker(dataset, models, budgets)
    if asker.configuration["judge"] is None:
        say("no --judge-model: answers get F1 and BLEU-1 only; `python -m eval rejudge` can judge them later")
    return asker


def run_all(plan: Plan, turns: Sequence[Turn], *, as_json: bool) -> int:
    """One run after the other, each printed when it is done, and all side by side in the end; returns the exit code."""
    results: list[JsonObject] = []
    code = DONE
    for place, turn in enumerate(turns, start=1):
        own = replace(plan, study=turn.study, variant=turn.variant, ks=turn.ks)
        if plan.out is not None and len(turns) > 1:
            own = replace(own, out=plan.out.with_name(f"{plan.out.stem}.{turn.slug}{plan.out.suffix or '.json'}"))
        try:
            outcome = run(own, turn.system)
        except SystemUnavailableError as error:  # found out only when it was to take documents in
            if len(turns) == 1:
                raise
            say(f"left out: {error}")
            continue
        results.append(outcome.result)
        read = as_json or _shown(summary_text(outcome.result) + "\n")
        code = max(code, _told(outcome, own))
        if not read and plan.out is None and place < len(turns):
            say(f"nobody reads the output, and without --out nothing is kept: {len(turns) - place} runs are left out")
            return AT_FAULT
        if outcome.ended_by is not None:
            break
    if not results:
        raise EvalError("none of these systems can be used here")
    if as_json:
        brief = [{name: value for name, value in one.items() if name not in ("rows", "ingest")} for one in results]
        write_json(brief[0] if len(turns) == 1 else brief)
    elif len(results) > 1:
        _shown(side_by_side(results))
    return code


def _shown(text: str) -> bool:
    """Whether somebody read it. Runs whose results are kept go on without a reader."""
    try:
        write(text)
    except ReaderGoneError:
        return False
    return True


def _told(outcome: Outcome, plan: Plan) -> int:
    counts = outcome.result["counts"]
    if outcome.ended_by is not None:
        kept, on = "", ""
        if outcome.kept_in is not None:
            kept, on = f"; kept in {outcome.kept_in}", ", --resume goes on"
            if outcome.kept_in != plan.out:
                on = f", --resume --overwrite goes on; {plan.out} holds the complete run of before"
        said = f": {outcome.ended_by}" if str(outcome.ended_by) else ""
        what = "interrupted" if isinstance(outcome.ended_by, KeyboardInterrupt) else f"ended early{said}"
        say(f"{what}; {counts['questions']} of {len(plan.chosen)} questions are done{kept}{on}")
        return INTERRUPTED if isinstance(outcome.ended_by, KeyboardInterrupt) else AT_FAULT
    if plan.out is not None:
        say(f"result written to {plan.out}")
    again = sum(failed(row) for row in outcome.result["rows"])
    if again and plan.out is not None:
        say(f"{again} questions failed; the same command with --resume asks those again")
    if (why := all_failed(outcome.result["rows"])) is not None:
        say(why)
        return AT_FAULT
    return AT_FAULT if counts["retrieval_errors"] else DONE


def slug(text: str) -> str:
    """A name for a file: letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.replace("++", "pp").casefold()).strip("-") or "run"


def for_each(names: Sequence[str], arguments: Arguments) -> list[Turn]:
    """A turn for each system; one that is not available here is left out with a message, unless it is the only one.

    Raises:
        EvalError: a system is not known, is named twice, or an option is not usable.
    """
    if len(set(names)) < len(names):
        raise UsageError("a --system is given twice")
    turns = []
    for name in names:
        try:
            system = system_named(name, options_for(name, arguments.system_options(), others=set(names) - {name}))
        except SystemUnavailableError as error:
            if len(names) == 1:
                raise
            say(f"left out: {error}")
            continue
        turns.append(Turn(system, slug(system.name)))
    if not turns:
        raise EvalError("none of these systems can be used here")
    if len({turn.slug for turn in turns}) < len(turns):
        raise UsageError(f"two of {', '.join(names)} are one system, and would be one result; leave one out")
    if arguments.encoder not in ("minilm", "none") and WITHOUT_ENCODER.issuperset(names):
        raise UsageError(f"--encoder {arguments.encoder}: {' and '.join(names)} use none; leave it out")
    return turns


MEMPP_SYSTEMS = frozenset(("mempp", "lexical", "vector"))
WITHOUT_ENCODER = frozenset(("lexical", "full-context"))


def options_for(name: str, options: Options, *, others: Set[str]) -> Options:
    """The options of a system beside others: presets and settings are Mem++'s own, and what is none of them is not.

    Beside none of another kind, a system is given everything, and refuses what it does not know.
    """
    if len({one in MEMPP_SYSTEMS for one in {name, *others}}) == 1:
        return options
    known = {one.name for one in fields(mempp.Settings) if one.init}
    ours = name in MEMPP_SYSTEMS
    settings = {key: value for key, value in options.settings.items() if (key in known) == ours}
    return replace(options, preset=options.preset if ours else None, settings=settings)
