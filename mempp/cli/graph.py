"""`mempp graph`: the entity graph is drawn from the documents."""

import sys
from functools import partial

from mempp.cli import extraction, models, options


def graph_command(
    store: options.Store,
    model: models.Model = None,
    base_url: models.BaseUrl = None,
    row: extraction.Rows = None,
    again: extraction.Again = False,
    dry_run: extraction.DryRun = False,
    list_them: extraction.ListThem = False,
    withdraw: extraction.Withdraw = False,
    max_calls: models.MaxCalls = None,
    max_cost: models.MaxCost = None,
    price: models.Prices = None,
    concurrency: extraction.Concurrency = 8,
    timeout: models.Timeout = models.TIMEOUT,
    retries: models.Retries = models.RETRIES,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Draw the entity graph from the documents, by a language model: who stands to whom how.

    Two calls for each document: the entities that it names, and the triples over these that it states. The graph is
    used by `ask --graph` and `evidence --graph`, and changes no other answer. Stopped or killed at any time, the same
    command goes on where it was. Replies are kept in the folder `replies` of the store. Exit code 1: a
    document was not done, because a call failed, its reply was of no use, or a limit was reached; the same command asks
    about it again.
    """
    asking = again or dry_run or models.any_given(model, base_url, price, max_calls, max_cost)
    if extraction.kept(store, "triples", row, listed=list_them, withdraw=withdraw, asking=asking, as_json=as_json):
        return
    with options.open_to_read(store, "none") if dry_run else options.open_to_write(store) as memory:
        asked = models.operators_model(model, base_url, price, dry_run=dry_run, timeout=timeout, retries=retries)
        tell = partial(extraction.tell, store, items="triples", as_json=as_json, quiet=quiet)
        with models.telling(tell, dry_run=dry_run):
            report = memory.build_graph(
                model=asked,
                rows=row or None,
                again=again,
                dry_run=dry_run,
                max_calls=max_calls,
                max_cost=max_cost,
                concurrency=concurrency,
                progress=sys.stderr.isatty() and not quiet,
            )
    tell(report)
    if dry_run and not quiet:
        models.tell_limits(report, max_calls, max_cost)
