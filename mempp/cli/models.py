"""What the commands that ask a language model have in common: options, the model, and what was spent."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import mempp

if TYPE_CHECKING:
    from mempp import ConsolidationReport, ExtractionReport
    from mempp.llm import Budget, CachedModel

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
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", metavar="N", help="Calls that may be made.", show_default=False)
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="USD", help="US dollars that may be spent.", show_default=False),
]
Prices = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="[MODEL=]IN,OUT",
        help="US dollars per million tokens read and written, where the list price does not hold.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", help="How long an attempt may take; one that is streamed, to its next bytes."
    ),
]
Retries = Annotated[
    int, typer.Option("--retries", metavar="N", help="How often a request that failed in passing is repeated.")
]


def working_model(
    model: str | None, base_url: str | None, *, timeout: float, retries: int, prices: list[str] | None
) -> "CachedModel":
    """The model of an operator that writes; the operator keeps its limits, and the replies beside the store.

    Raises:
        InputError, ModelError: as `mempp.chat_model` and `mempp.llm.parse_price`.
    """
    return mempp.chat_model(
        model, base_url=base_url, budget=_budget(None, prices), timeout=timeout, max_retries=retries
    )


def reading_model(
    store: str,
    model: str | None,
    base_url: str | None,
    *,
    timeout: float = 120.0,
    retries: int = 5,
    max_cost: float | None = None,
    prices: list[str] | None = None,
) -> "CachedModel":
    """The model of a question to a store that is open for reading only; replies are kept beside it where they can be.

    Raises:
        InputError, ModelError: as `mempp.chat_model` and `mempp.llm.parse_price`.
    """
    from mempp.llm import ReplyCache

    cache = ReplyCache(Path(store) / "replies", required=False)
    budget = _budget(max_cost, prices)
    return mempp.chat_model(model, base_url=base_url, cache=cache, budget=budget, timeout=timeout, max_retries=retries)


def _budget(max_cost: float | None, prices: list[str] | None) -> "Budget":
    from mempp.llm import Budget, parse_price

    return Budget(max_cost, prices=dict(map(parse_price, prices or ())))


def spent(report: "ConsolidationReport | ExtractionReport") -> Iterator[tuple[str, str]]:
    """What a report says of calls, tokens and cost, for people."""
    yield "calls of the model", f"{report.asked:,}, and {report.cached:,} replies that were kept"
    yield "tokens", f"{report.usage.input_tokens:,} read, {report.usage.output_tokens:,} written"
    yield "cost", "not known" if report.cost is None else f"${report.cost:.4f}"
