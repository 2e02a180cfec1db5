"""What the commands that ask a language model have in common: options, the model, and what was spent."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import mempp
from mempp.cli.output import say
from mempp.errors import MemppError

if TYPE_CHECKING:
    from mempp import Answer, ConsolidationReport, ExtractionReport, GraphEvidence
    from mempp.llm import Budget, CachedModel

TIMEOUT, RETRIES = 120.0, 5
"""What `--timeout` and `--retries` are where they are not given."""

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
        help="A server of your own, such as http://localhost:11434/v1; it needs no key. By default that of "
        "OPENAI_BASE_URL or ANTHROPIC_BASE_URL.",
        show_default=False,
    ),
]
MaxCalls = Annotated[
    int | None,
    typer.Option(
        "--max-calls", metavar="N", help="Calls that may be made; replies that are kept are none.", show_default=False
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        metavar="USD",
        help="US dollars that may be spent. A call is made only where the most that it may cost fits, --retries "
        "included: a multiple of what it mostly costs.",
        show_default=False,
    ),
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
        "--timeout",
        metavar="SECONDS",
        help="How long an attempt may take; one that is streamed, to its next bytes, and ten times as long in all.",
    ),
]
Retries = Annotated[
    int, typer.Option("--retries", metavar="N", help="How often a request that failed in passing is repeated.")
]


@dataclass(frozen=True, slots=True)
class UnaskedModel:
    """What a dry run knows of a model: no key and no server are needed."""

    name: str
    budget: "Budget"


def unasked_model(model: str | None, base_url: str | None, prices: list[str] | None) -> UnaskedModel | None:
    """The model that a dry run names; None where none is named.

    Raises:
        InputError: who serves it cannot be told, or a price is none.
    """
    from mempp.llm import provider_of

    budget, name = _budget(None, prices), model or os.environ.get("MEMPP_MODEL", "").strip()
    return UnaskedModel(":".join(provider_of(name, base_url=base_url)), budget) if name else None


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


def operators_model(
    model: str | None, base_url: str | None, prices: list[str] | None, *, dry_run: bool, timeout: float, retries: int
) -> Any:
    """The model of an operator, as `working_model`; of a dry run, which asks nothing, as `unasked_model`."""
    if dry_run:
        return unasked_model(model, base_url, prices)
    return working_model(model, base_url, timeout=timeout, retries=retries, prices=prices)


def any_given(
    model: str | None,
    base_url: str | None,
    prices: list[str] | None,
    max_calls: int | None,
    max_cost: float | None,
) -> bool:
    """Whether an option was given that only a run which asks a model needs."""
    return bool(model or base_url or prices) or max_calls is not None or max_cost is not None


def reading_model(
    store: str,
    model: str | None,
    base_url: str | None,
    *,
    timeout: float,
    retries: int,
    max_cost: float | None,
    prices: list[str] | None,
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
    yield "cost", dollars(report.cost)


def tell_usage(asked: "Answer | GraphEvidence") -> None:
    """Say what the call that a question took has read, written and cost."""
    kept = "; the reply was kept from before" if asked.cached else ""
    usage = f"{asked.usage.input_tokens:,} tokens read, {asked.usage.output_tokens:,} written"
    say(f"{asked.model}: {usage}; cost {dollars(asked.cost)}{kept}")


def usage_as_json(asked: "Answer | GraphEvidence") -> dict[str, Any]:
    """The same for JSON output."""
    return {
        "model": asked.model,
        "usage": {"input_tokens": asked.usage.input_tokens, "output_tokens": asked.usage.output_tokens},
        "cost_usd": asked.cost,
        "cached": asked.cached,
    }


@contextmanager
def telling(tell: Callable[[Any], None], *, dry_run: bool) -> Iterator[None]:
    """Where Ctrl-C ends a run, or an error one that has done or spent something, tell its report first, as of a run
    that ended.

    At Ctrl-C say that what was done stays; a dry run has done nothing.
    """
    from mempp.llm import Usage

    try:
        yield
    except (MemppError, KeyboardInterrupt) as error:
        report, interrupted = getattr(error, "report", None), isinstance(error, KeyboardInterrupt)
        if report is not None and (interrupted or report.usage != Usage() or report.cached or report.cost):
            with suppress(typer.Exit):
                tell(report)
        if interrupted and not dry_run:
            say(
                "what was done stays, and the same command goes on from there; calls that were under way are not "
                "counted, and may be billed"
            )
        raise


def estimated(report: "ConsolidationReport | ExtractionReport") -> Iterator[tuple[str, str]]:
    """What a dry run says of tokens and cost, for people."""
    yield "tokens, estimated", f"{report.usage.input_tokens:,} read, {report.usage.output_tokens:,} written"
    yield "cost, estimated", dollars(report.cost)


def tell_limits(
    report: "ConsolidationReport | ExtractionReport", max_calls: int | None, max_cost: float | None
) -> None:
    """Of a dry run: which limit would stop the work before its end."""
    if max_calls is not None and report.calls_at_most > max_calls:
        say(f"--max-calls {max_calls:,} may stop it before the end: up to {report.calls_at_most:,} calls")
    if max_cost is not None and report.cost is None:
        say(f"--max-cost {max_cost:g} cannot be kept: no price is known; see --price")
    elif max_cost is not None and report.cost is not None and report.cost > max_cost:
        say(f"--max-cost {max_cost:g} may stop it before the end: {dollars(report.cost)} by the estimate")


def dollars(cost: float | None) -> str:
    """A cost for people."""
    return "not known" if cost is None else f"${cost:.4f}"
