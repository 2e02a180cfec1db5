"""`mempp consolidate`: what was said twice or has changed is found and marked; a run is taken back."""

import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

import mempp
from mempp.cli import models, options
from mempp.cli.output import say, write, write_json
from mempp.cli.run import AT_FAULT
from mempp.errors import InputError

if TYPE_CHECKING:
    from mempp import ConsolidationReport, Memory

_REASONS_TOLD = 20


def consolidate_command(
    store: options.Store,
    model: models.Model = None,
    base_url: models.BaseUrl = None,
    threshold: Annotated[
        float,
        typer.Option("--threshold", metavar="COSINE", help="How alike documents must be to be asked about together."),
    ] = 0.85,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show the groups, and estimate calls, tokens and cost; ask and write nothing."
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also ask about groups that a run changed and --undo took back.")
    ] = False,
    max_calls: models.MaxCalls = None,
    max_cost: models.MaxCost = None,
    price: models.Prices = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", help="Groups that are asked about at a time.")
    ] = 8,
    timeout: models.Timeout = models.TIMEOUT,
    retries: models.Retries = models.RETRIES,
    undo: Annotated[
        str | None,
        typer.Option("--undo", metavar="RUN_ID", help="Take this run back, instead of a new one.", show_default=False),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Find documents that say the same or contradict one another, by a language model, and mark them.

    Documents that are alike are shown to the model in groups, one or two calls for each. Conflict: the latest stays
    current, the others are marked as superseded and are still found. Restatement: a text that stands for all of them is
    added, and they are archived. Distinct: nothing changes. Documents tagged pinned or confidential take no part.
    Stopped or killed at any time, the same command goes on where it was. Replies are kept in the folder `replies` of
    the store. --undo takes a whole run back, and its groups stay so. To the default encoder, which knows English,
    texts in other languages seem alike that are not: look at --dry-run first. Exit code 1: a group was left as it is,
    because a call failed, the reply was of no use, or a limit was reached; the same command tries again. A group that
    is too long to be sent is told of, and is no fault.
    """
    if undo is not None:
        if dry_run or again or price or any(one is not None for one in (model, base_url, max_calls, max_cost)):
            raise InputError("--undo goes without the options of a new run")
        _undo(store, options.typed(undo), as_json=as_json)
        return
    with mempp.open(store, create=False, read_only=dry_run) as memory:
        asked = models.operators_model(model, base_url, price, dry_run=dry_run, timeout=timeout, retries=retries)

        def tell(report: "ConsolidationReport") -> None:
            if as_json:
                write_json({"store": store, **report.as_dict()})
            else:
                _print(memory, report)
            if not quiet:
                _tell(store, report)

        with models.telling(tell, dry_run=dry_run):
            report = memory.consolidate(
                model=asked,
                threshold=threshold,
                dry_run=dry_run,
                again=again,
                max_calls=max_calls,
                max_cost=max_cost,
                concurrency=concurrency,
                progress=sys.stderr.isatty() and not quiet,
            )
        tell(report)
    if dry_run and not quiet:
        models.tell_limits(report, max_calls, max_cost)
    if not dry_run and (not report.finished or any(not group.too_long for group in report.failed)):
        raise typer.Exit(AT_FAULT)


def _undo(store: str, run_id: str, *, as_json: bool) -> None:
    with options.open_to_write(store) as memory:
        report = memory.undo(run_id)
    if as_json:
        write_json({"store": store, **report.as_dict()})
        return
    if not (report.reinstated or report.archived or report.left):
        say(f"no document is in a state that run {run_id} gave it; nothing to undo, and it is not gone on with")
        return
    say(
        f"run {run_id} is undone: {_documents(len(report.reinstated))} current again, "
        f"{_documents(len(report.archived))} archived that had been merged; the next run leaves its groups as they are "
        "(else --again)"
    )
    if report.left:
        rows = ", ".join(map(str, report.left[:_REASONS_TOLD]))
        say(f"left as they are, since others have changed them: rows {rows}{_more(len(report.left))}")


def _print(memory: "Memory", report: "ConsolidationReport") -> None:
    from mempp.cli.people import print_pairs, print_sources

    if report.dry_run:
        for number, group in enumerate(report.groups, start=1):
            write(f"group {number}, {len(group.rows)} documents")
            print_sources([memory.get(row) for row in group.rows])
            write("")
    print_pairs(_pairs(report))


def _pairs(report: "ConsolidationReport") -> Iterator[tuple[str, str]]:
    yield "documents compared", f"{report.candidates:,}"
    yield "groups", f"{len(report.groups):,}"
    if report.dry_run:
        yield "calls of a model", f"{len(report.groups):,} to {report.calls_at_most:,}"
        yield from models.estimated(report)
        return
    for outcome, count in report.counts.items():
        if count or outcome in ("conflict", "restatement", "distinct"):
            yield f"  {outcome}", f"{count:,}"
    yield "superseded", _documents(len(report.superseded))
    yield "merged", f"{_documents(len(report.archived))} into {len(report.merged):,}"
    yield from models.spent(report)
    if report.run_id is not None:
        yield "run", report.run_id


def _tell(store: str, report: "ConsolidationReport") -> None:
    """What to beware of."""
    if report.without_vector:
        say(f"{_documents(report.without_vector)} without a vector took no part; see `mempp embed`")
    for group in report.failed[:_REASONS_TOLD]:
        rows = ", ".join(map(str, group.rows[:_REASONS_TOLD]))
        say(f"untouched: rows {rows}{_more(len(group.rows))}: {group.reason}")
    if len(report.failed) > _REASONS_TOLD:
        say(f"{len(report.failed) - _REASONS_TOLD:,} groups more were left untouched; see --json")
    if report.stopped is not None:
        say(f"stopped at a limit: {report.stopped}")
    if report.undone:
        groups = f"{len(report.undone):,} {'group' if len(report.undone) == 1 else 'groups'}"
        say(f"{groups} stayed as they are, because a run that changed them was undone; --again asks about them")
    if report.run_id is not None:
        say(f"to take all of it back: mempp consolidate {shlex.quote(store)} --undo {report.run_id}")


def _documents(count: int) -> str:
    return f"{count:,} {'document' if count == 1 else 'documents'}"


def _more(count: int) -> str:
    return "" if count <= _REASONS_TOLD else ", …"
