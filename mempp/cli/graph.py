"""`mempp graph`: the entity graph is drawn from the documents."""

import sys

from mempp.cli import extraction, models, options


def graph_command(
    store: options.Store,
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
    """Draw the entity graph from the documents, by a language model: who stands to whom how.

    Two calls for each document: the entities that it names, and the triples over these that it states. The graph is
    used by `ask --graph` and `evidence --graph`, and changes no other answer. Stopped or killed at any time, the same
    command goes on where it was. Replies are kept in the folder `replies` of the store. Exit code 1: calls failed; run
    the same command again.
    """
    with options.open_to_write(store) as memory:
        report = memory.build_graph(
            model=models.working_model(model, base_url, timeout=timeout, retries=retries, prices=price),
            rows=row or None,
            again=again,
            max_calls=max_calls,
            max_cost=max_cost,
            concurrency=concurrency,
            progress=sys.stderr.isatty() and not quiet,
        )
    extraction.tell(store, report, "triples", as_json=as_json, quiet=quiet)
