"""The commands and their options; what they do stands in the modules beside this one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import mempp
from mempp.cli import extraction, models, options
from mempp.cli.ask import ask_command
from mempp.cli.consolidate import consolidate_command
from mempp.cli.embed import embed_command, reembed_command
from mempp.cli.export import export_command
from mempp.cli.facts import facts_command
from mempp.cli.graph import graph_command
from mempp.cli.output import record_as_json, say, triple_as_json, write, write_json
from mempp.cli.run import INTERRUPTED
from mempp.cli.states import (
    changes_command,
    history_command,
    reinstate_command,
    retract_command,
    supersede_command,
)
from mempp.cli.upkeep import compact_command, restore_command, snapshot_command, verify_command
from mempp.cli.wording import in_words_of_the_command
from mempp.errors import InputError, MemppError

if TYPE_CHECKING:
    from mempp import GraphEvidence, Hit


class _Commands(TyperGroup):
    """The commands; what ends one of them is told in the words of the command line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Typer itself ends without a word.
            say("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except MemppError as error:
            in_words_of_the_command(error)
            raise


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def mempp_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """An organisation's record as a memory: dated documents, kept whole, asked as of any date.

    Exit codes: 0 done, 1 the store or the data is at fault, 2 wrong usage, 130 interrupted. Results go to stdout,
    messages to stderr. MEMPP_DEBUG=1 adds a traceback to an error.
    """
    if version:
        typer.echo(f"mempp {mempp.__version__}")
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


@app.command("add")
def add_command(
    store: options.Store,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files, folders, or - for standard input.", show_default=False),
    ],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Read every FILE as jsonl, csv, tsv, parquet or text, whatever its name.",
            show_default=False,
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", metavar="C", help="Between the cells of CSV, if no comma.", show_default=False),
    ] = None,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=KEY",
            help="Take a field from another key or column, such as text=body; give it again for more.",
            show_default=False,
        ),
    ] = None,
    author: Annotated[
        list[str] | None,
        typer.Option("--author", metavar="NAME", help="Author of documents that name none.", show_default=False),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Tag of documents that have none.", show_default=False),
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option("--thread", metavar="ID", help="Thread of documents that name none.", show_default=False),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="KIND", help="Kind of documents that name none.", show_default=False),
    ] = None,
    date: Annotated[
        str | None,
        typer.Option("--date", metavar="DATE", help="Event date of documents without one.", show_default=False),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Pass over documents that are not usable, and count them.")
    ] = False,
    no_embed: Annotated[
        bool, typer.Option("--no-embed", help="Leave the vectors for `mempp embed`; adding is then much faster.")
    ] = False,
    encoder: options.Encoder = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            metavar="N",
            help="Documents per commit; by default 64, with --no-embed 1000.",
            show_default=False,
        ),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Add documents to a store; what it holds already is not added again.

    The store is created if it is not there. Reads JSON Lines (.jsonl, .ndjson), CSV (.csv, .tsv), Parquet (.parquet),
    Markdown and text (.md, .markdown, .txt: one document per file), and folders of them. The fields of a document are
    text, occurred_at, author, tags, source, thread, kind and metadata; other keys go into metadata. The first document
    that is not usable ends the command, and what stands before it stays added; see --skip-bad.
    """
    from mempp.cli.add import Wishes, run
    from mempp.cli.sources.fields import Naming, check_defaults, parse_map
    from mempp.cli.sources.files import find_files

    if batch_size is not None and batch_size < 1:
        raise InputError(f"--batch-size must be at least 1, got {batch_size}")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise InputError(f"--delimiter takes one character, got {delimiter!r:.80}; for tabs give --format tsv")
    defaults = check_defaults(
        author=options.typed_all(author),
        tags=options.typed_all(tag),
        thread=thread and options.typed(thread),
        kind=kind and options.typed(kind),
        occurred_at=date,
    )
    wishes = Wishes(
        naming=Naming(names=parse_map(options.typed_all(maps) or []), defaults=defaults),
        embed=not no_embed,
        encoder=encoder,
        batch_size=batch_size or (1000 if no_embed else 64),
        skip_bad=skip_bad,
        quiet=quiet,
        as_json=as_json,
    )
    raise typer.Exit(run(store, find_files(files, format_name=file_format, delimiter=delimiter), wishes))


@app.command("recall")
def recall_command(
    store: options.Store,
    question: options.Question,
    as_of: options.AsOf = None,
    known_at: options.KnownAt = None,
    since: options.Since = None,
    asked_at: options.AskedAt = None,
    k: options.K = None,
    author: options.Author = None,
    tag: options.Tag = None,
    source: options.SourceOption = None,
    thread: options.Thread = None,
    where: options.Where = None,
    preset: options.PresetName = None,
    encoder: options.Encoder = None,
    at: options.At = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say of every hit why it is there.")] = False,
    as_json: options.Json = False,
) -> None:
    """Find the documents that answer a question.

    Dates are ISO 8601 text such as 2024-06-01 or 2024-06-01T09:30:00+02:00. A day without a time means its start in
    --since and its end in --as-of and --known-at. Finding nothing is no error.
    """
    bounds = options.bounds(
        as_of=as_of,
        known_at=known_at,
        since=since,
        asked_at=asked_at,
        author=author,
        tag=tag,
        source=source,
        thread=thread,
        where=where,
    )
    question, settings = options.typed(question), options.settings_of(preset)
    with options.open_to_read(store, encoder, at=at) as memory:
        extraction.tell_nothing_drawn(memory, graph=False, k=k, settings=settings)
        hits = memory.recall(question, k=k, settings=settings, **bounds)
        if not hits:
            options.tell_unknown(memory, bounds)
    if as_json:
        write_json({**options.asked(question, bounds), "hits": [_hit_as_json(hit, explain) for hit in hits]})
        return
    options.tell_as_of(question, bounds)
    if not hits:
        say("nothing found")
        return
    from mempp.cli.people import print_hits

    print_hits(hits, explain=explain)


@app.command("evidence")
def evidence_command(
    store: options.Store,
    question: options.Question,
    as_of: options.AsOf = None,
    known_at: options.KnownAt = None,
    since: options.Since = None,
    asked_at: options.AskedAt = None,
    k: options.K = None,
    author: options.Author = None,
    tag: options.Tag = None,
    source: options.SourceOption = None,
    thread: options.Thread = None,
    where: options.Where = None,
    preset: options.PresetName = None,
    encoder: options.Encoder = None,
    max_chars: Annotated[
        int, typer.Option("--max-chars", metavar="N", help="Characters the evidence has at most.")
    ] = 40_000,
    style: Annotated[
        str,
        typer.Option(
            "--style", metavar="STYLE", help="plain, or tagged: each document in a tag that its text cannot close."
        ),
    ] = "plain",
    graph: Annotated[
        bool,
        typer.Option(
            "--graph", help="Also what the entity graph adds, for one call of a language model; see `mempp graph`."
        ),
    ] = False,
    model: models.Model = None,
    base_url: models.BaseUrl = None,
    max_cost: models.MaxCost = None,
    price: models.Prices = None,
    timeout: models.Timeout = models.TIMEOUT,
    retries: models.Retries = models.RETRIES,
    at: options.At = None,
    as_json: options.Json = False,
) -> None:
    """Print what answers a question, for a model to read.

    On stdout stands the evidence and nothing else. Bounds and filters are those of `recall`. Documents are whole; only
    of a best one that is larger than the budget the passage that matches best is shown. Others so large are left out.
    With --graph a model names what the question is about; --model, --base-url, --max-cost, --price, --timeout and
    --retries are for that call alone. Its reply is kept in the folder `replies` of the store, as for `ask`. Where the
    call fails or would cost too much, exit code 1; without --graph the same question costs nothing.
    """
    bounds = options.bounds(
        as_of=as_of,
        known_at=known_at,
        since=since,
        asked_at=asked_at,
        author=author,
        tag=tag,
        source=source,
        thread=thread,
        where=where,
    )
    question, settings = options.typed(question), options.settings_of(preset)
    chosen_style = options.evidence_style(style)
    patience_given = (timeout, retries) != (models.TIMEOUT, models.RETRIES)
    if not graph and (patience_given or models.any_given(model, base_url, price, None, max_cost)):
        raise InputError(
            "--model, --base-url, --max-cost, --price, --timeout and --retries are for --graph; without it no model is "
            "asked"
        )
    packing: dict[str, Any] = {"max_chars": max_chars, "style": chosen_style, "k": k, "settings": settings, **bounds}
    found: GraphEvidence | None = None
    with options.open_to_read(store, encoder, at=at) as memory:
        extraction.tell_nothing_drawn(memory, graph=graph, k=k, settings=settings)
        if graph:
            asked = models.reading_model(
                store, model, base_url, timeout=timeout, retries=retries, max_cost=max_cost, prices=price
            )
            found = memory.graph_evidence(question, model=asked, **packing)
        evidence = memory.evidence(question, **packing) if found is None else found
        if not str(evidence):
            options.tell_unknown(memory, bounds)
    if as_json:
        row_ids = {"row_ids": list(evidence.row_ids), "left_out": list(evidence.left_out), "cut": evidence.cut}
        of_graph: dict[str, Any] = {}
        if found is not None:
            of_graph = {"triples": list(map(triple_as_json, found.triples)), **models.usage_as_json(found)}
        write_json({**options.asked(question, bounds), "evidence": str(evidence), **row_ids, **of_graph})
        return
    options.tell_as_of(question, bounds)
    if found is not None and found.asked:
        models.tell_usage(found)
    if not str(evidence):
        say("nothing found")
        return
    write(str(evidence))
    if evidence.cut:
        say(f"the best document is larger than {max_chars:,} characters; a passage of it is shown; see --max-chars")
    if evidence.left_out:
        plural = "document" if len(evidence.left_out) == 1 else "documents"
        say(f"{len(evidence.left_out)} {plural} more did not fit into {max_chars:,} characters; see --max-chars")


@app.command("show")
def show_command(
    store: options.Store,
    row: options.Row,
    at: options.At = None,
    allow_damaged: options.AllowDamaged = False,
    as_json: options.Json = False,
) -> None:
    """Show one document whole, with all that is stored of it."""
    with options.open_to_read(store, "none", at=at, allow_damaged=allow_damaged) as memory:
        record = memory.get(row)
    if as_json:
        write_json(record_as_json(record))
        return
    from mempp.cli.people import print_record

    print_record(record)


@app.command("stats")
def stats_command(store: options.Store, at: options.At = None, as_json: options.Json = False) -> None:
    """Count what a store holds.

    Documents by state, dates, authors, threads, entries of the log, documents without a vector, bytes on disk.
    """
    from mempp.cli.people import print_pairs
    from mempp.cli.stats import as_pairs

    with options.open_to_read(store, at=at) as memory:
        statistics = memory.stats()
    if as_json:
        write_json({"store": store, **statistics.as_dict()})
    else:
        print_pairs(as_pairs(statistics))


for _name, _function in (
    ("embed", embed_command),
    ("reembed", reembed_command),
    ("ask", ask_command),
    ("consolidate", consolidate_command),
    ("facts", facts_command),
    ("graph", graph_command),
    ("export", export_command),
    ("history", history_command),
    ("changes", changes_command),
    ("supersede", supersede_command),
    ("retract", retract_command),
    ("reinstate", reinstate_command),
    ("verify", verify_command),
    ("snapshot", snapshot_command),
    ("restore", restore_command),
    ("compact", compact_command),
):
    app.command(_name)(_function)


def _hit_as_json(hit: "Hit", explain: bool) -> dict[str, Any]:
    explanation = {"explanation": hit.explain().as_dict()} if explain else {}
    return {**record_as_json(hit.record), "score": hit.score, "matched": hit.matched, "via": hit.via, **explanation}
