"""What `mempp graph` and `mempp facts` have in common: options, and what they print."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mempp.cli import options
from mempp.cli.models import estimated, spent
from mempp.cli.output import one_line, say, write, write_json
from mempp.cli.run import AT_FAULT
from mempp.errors import InputError

if TYPE_CHECKING:
    from mempp import ExtractionReport, Memory, Settings
    from mempp.records import Annotation

_TOLD = 20
What = Literal["cards", "triples"]

Rows = Annotated[
    list[int] | None,
    typer.Option("--row", metavar="ROW", help="Only this document; give it again for more.", show_default=False),
]
Again = Annotated[
    bool, typer.Option("--again", help="Also do documents again that were done by another model or wording.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Only count the documents, and estimate tokens and cost; ask and write nothing."),
]
ListThem = Annotated[
    bool,
    typer.Option("--list", help="Only print what was drawn and counts, of --row or of all; ask and write nothing."),
]
Withdraw = Annotated[
    bool,
    typer.Option(
        "--withdraw", help="Let what was drawn, from --row or from all, count no longer; the next run draws it again."
    ),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", help="Documents that are asked about at a time.")
]


def tell(store: str, report: "ExtractionReport", items: str, *, as_json: bool, quiet: bool) -> None:
    """Print a report: counts on stdout, what to beware of on stderr.

    Args:
        store: its folder.
        report: what was done.
        items: what was drawn, for people: "cards" or "triples".
        as_json: whether stdout gets one JSON object instead.
        quiet: whether stderr gets nothing.

    Raises:
        typer.Exit: a document is not done.
    """
    if as_json:
        write_json({"store": store, **report.as_dict()})
    else:
        from mempp.cli.people import print_pairs

        print_pairs(_pairs(report, items))
    if not quiet:
        _beware(report)
    if not report.finished and not report.dry_run:
        raise typer.Exit(AT_FAULT)


def kept(
    store: str, what: What, rows: list[int] | None, *, listed: bool, withdraw: bool, asking: bool, as_json: bool
) -> bool:
    """List or withdraw what was drawn, where that was asked for; tell whether it was.

    Args:
        store: its folder.
        what: "cards" or "triples".
        rows: the documents; None for all.
        listed: whether to print them.
        withdraw: whether to withdraw them.
        asking: whether options for asking a model were given too.
        as_json: whether stdout gets one JSON object instead of text.

    Raises:
        InputError: options that do not go together.
    """
    if not (listed or withdraw):
        return False
    if asking or (listed and withdraw):
        raise InputError("--list and --withdraw go without one another, and without the options of a run")
    if withdraw:
        with options.open_to_write(store) as memory:
            count = memory.withdraw(what, rows=rows or None)
        if as_json:
            write_json({"store": store, "withdrawn": count})
        else:
            say(f"{count:,} {'document has' if count == 1 else 'documents have'} no {what} now; the log keeps the old")
        return True
    with options.open_to_read(store, "none") as memory:
        found = memory.drawn(what, rows=rows or None)
    if as_json:
        write_json({"store": store, what: [_item(one) for one in found]})
        return True
    for one in found:
        write(f"[{one.row_id}]  {one_line(_line(one))}")
    if not found:
        of_rows = " from these rows" if rows else ""
        say(f"no {what} are drawn{of_rows}; see `mempp {'facts' if what == 'cards' else 'graph'} --help`")
    return True


def tell_nothing_drawn(memory: "Memory", *, graph: bool, k: int | None, settings: "Settings | None") -> None:
    """Say so where a question counts on triples or cards, and there are none."""
    if graph and not memory.drawn("triples"):
        say("--graph adds nothing: no triples are drawn; see `mempp graph`")
    if memory.settings_for(k, settings).weight_facts > 0 and not memory.drawn("cards"):
        say("weight_facts (MEMPP_WEIGHT_FACTS) changes nothing: no cards are drawn; see `mempp facts`")


def _item(one: "Annotation") -> dict[str, Any]:
    payload = one.payload if isinstance(one.payload, dict) else {"payload": one.payload}
    return {"row_id": one.row_id, **({} if one.text is None else {"text": one.text}), **payload}


def _line(one: "Annotation") -> str:
    if one.text is not None:
        return one.text
    payload = one.payload if isinstance(one.payload, dict) else {}
    return " | ".join(str(payload.get(part, "?")) for part in ("subject", "relation", "object"))


def _pairs(report: "ExtractionReport", items: str) -> Iterator[tuple[str, str]]:
    yield "documents", f"{report.documents:,}, and {report.known:,} that were done before"
    if report.dry_run:
        yield "calls of a model", f"{report.calls_at_most:,} at most"
        yield from estimated(report)
        return
    yield "  done", f"{report.done:,}, of which {report.empty:,} with nothing to draw"
    for name, count in (("not done", len(report.undone)), ("waiting", report.waiting)):
        if count:
            yield f"  {name}", f"{count:,}"
    yield items, f"{report.items:,}" + (f", and {report.dropped:,} of no use" if report.dropped else "")
    yield from spent(report)


def _beware(report: "ExtractionReport") -> None:
    if report.undone:
        say("what is not done is asked about again by the same command; --model takes another model")
    for one in report.undone[:_TOLD]:
        say(f"nothing drawn from row {one.row}: {one.reason}")
    if len(report.undone) > _TOLD:
        say(f"nothing drawn from {len(report.undone) - _TOLD:,} documents more; see --json")
    if report.cut:
        rows = ", ".join(map(str, report.cut[:_TOLD])) + (", …" if len(report.cut) > _TOLD else "")
        say(f"only the beginning was read of long documents: rows {rows}")
    if report.stopped is not None:
        say(f"stopped at a limit: {report.stopped}")
