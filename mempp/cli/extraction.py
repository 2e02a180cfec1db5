"""What `mempp graph` and `mempp facts` have in common: options, and what they print."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import mempp
from mempp.cli.output import say, write_json
from mempp.cli.run import AT_FAULT

if TYPE_CHECKING:
    from mempp import ExtractionReport
    from mempp.llm import CachedModel

_TOLD = 20

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="openai:NAME, anthropic:NAME, or a name that tells (gpt-…, claude-…); with --base-url any name. By "
        "default that of MEMPP_MODEL.",
        show_default=False,
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="A server of your own, such as http://localhost:11434/v1; it needs no key.",
        show_default=False,
    ),
]
Rows = Annotated[
    list[int] | None,
    typer.Option("--row", metavar="ROW", help="Only this document; give it again for more.", show_default=False),
]
Again = Annotated[
    bool, typer.Option("--again", help="Also do documents again that were done by another model or wording.")
]
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", metavar="N", help="Calls that may be made.", show_default=False)
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="USD", help="US dollars that may be spent.", show_default=False),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", help="Documents that are asked about at a time.")
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the next bytes of the model.")
]
Retries = Annotated[
    int, typer.Option("--retries", metavar="N", help="How often a request that failed in passing is repeated.")
]


def reading_model(
    store: str, model: str | None, base_url: str | None, *, timeout: float = 120.0, retries: int = 5
) -> "CachedModel":
    """The model of a question to a store that is open for reading only; replies are kept beside it where they can be.

    Raises:
        InputError, ModelError: as `mempp.chat_model`.
    """
    from mempp.llm import ReplyCache

    cache = ReplyCache(Path(store) / "replies", required=False)
    return mempp.chat_model(model, base_url=base_url, cache=cache, timeout=timeout, max_retries=retries)


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
    yield "calls of the model", f"{report.asked:,}, and {report.cached:,} replies that were kept"
    yield "tokens", f"{report.usage.input_tokens:,} read, {report.usage.output_tokens:,} written"
    yield "cost", "not known" if report.cost is None else f"${report.cost:.4f}"


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
