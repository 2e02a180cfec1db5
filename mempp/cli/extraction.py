"""What `mempp graph` and `mempp facts` have in common: options, and what they print."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mempp.cli.models import spent
from mempp.cli.output import say, write_json
from mempp.cli.run import AT_FAULT

if TYPE_CHECKING:
    from mempp import ExtractionReport

_TOLD = 20

Rows = Annotated[
    list[int] | None,
    typer.Option("--row", metavar="ROW", help="Only this document; give it again for more.", show_default=False),
]
Again = Annotated[
    bool, typer.Option("--again", help="Also do documents again that were done by another model or wording.")
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
        typer.Exit: calls failed.
    """
    if as_json:
        write_json({"store": store, **report.as_dict()})
    else:
        from mempp.cli.people import print_pairs

        print_pairs(_pairs(report, items))
    if not quiet:
        _beware(report)
    if report.failed:
        raise typer.Exit(AT_FAULT)


def _pairs(report: "ExtractionReport", items: str) -> Iterator[tuple[str, str]]:
    yield "documents", f"{report.documents:,}, and {report.known:,} that were done before"
    yield "  done", f"{report.done:,}, of which {report.empty:,} with nothing to draw"
    for name, count in (("not done", len(report.undone)), ("waiting", report.waiting)):
        if count:
            yield f"  {name}", f"{count:,}"
    yield items, f"{report.items:,}" + (f", and {report.dropped:,} of no use" if report.dropped else "")
    yield from spent(report)


def _beware(report: "ExtractionReport") -> None:
    for one in report.undone[:_TOLD]:
        say(f"nothing drawn from row {one.row}: {one.reason}")
    if len(report.undone) > _TOLD:
        say(f"nothing drawn from {len(report.undone) - _TOLD:,} documents more; see --json")
    if report.cut:
        rows = ", ".join(map(str, report.cut[:_TOLD])) + (", …" if len(report.cut) > _TOLD else "")
        say(f"only the beginning was read of long documents: rows {rows}")
    if report.stopped is not None:
        say(f"stopped at a limit; the same command goes on: {report.stopped}")
