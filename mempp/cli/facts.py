"""`mempp facts`: fact cards are drawn from the documents."""

import sys
from typing import Annotated, Any

import typer

from mempp.cli import extraction, models, options


def facts_command(
    store: options.Store,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="NAME",
            help="atomic: a card for each fact. summary: one for a document, or none. agent: as atomic, with what the "
            "assistant itself said told apart.",
        ),
    ] = "atomic",
    model: models.Model = None,
    base_url: models.BaseUrl = None,
    row: extraction.Rows = None,
    again: extraction.Again = False,
    max_calls: models.MaxCalls = None,
    max_cost: models.MaxCost = None,
    price: models.Prices = None,
    concurrency: extraction.Concurrency = 8,
    timeout: models.Timeout = 120.0,
    retries: models.Retries = 5,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Draw fact cards from the documents, by a language model; one call for each document.

    With MEMPP_WEIGHT_FACTS above 0, documents are also found by the words of their cards; otherwise no answer changes.
    Stopped or killed at any time, the same command goes on where it was. Replies are kept in the folder `replies` of
    the store. Exit code 1: calls failed; run the same command again.
    """
    chosen: Any = mode  # checked by the memory
    with options.open_to_write(store) as memory:
        report = memory.extract_facts(
            model=models.working_model(model, base_url, timeout=timeout, retries=retries, prices=price),
            mode=chosen,
            rows=row or None,
            again=again,
            max_calls=max_calls,
            max_cost=max_cost,
            concurrency=concurrency,
            progress=sys.stderr.isatty() and not quiet,
        )
    extraction.tell(store, report, "cards", as_json=as_json, quiet=quiet)
