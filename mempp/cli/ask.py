"""`mempp ask`: an answer in words, with its sources."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mempp.cli import extraction, models, options
from mempp.cli.output import emit, record_as_json, say, triple_as_json, visible, write, write_json

if TYPE_CHECKING:
    from mempp import Answer


def ask_command(
    store: options.Store,
    question: options.Question,
    model: models.Model = None,
    base_url: models.BaseUrl = None,
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
        int, typer.Option("--max-chars", metavar="N", help="Characters of evidence that the model reads at most.")
    ] = 40_000,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", help="Tokens that the model writes at most, thinking included.")
    ] = 4096,
    max_cost: models.MaxCost = None,
    price: models.Prices = None,
    timeout: models.Timeout = models.TIMEOUT,
    retries: models.Retries = models.RETRIES,
    at: options.At = None,
    graph: Annotated[
        bool,
        typer.Option("--graph", help="Also read what the entity graph adds, for one more call; see `mempp graph`."),
    ] = False,
    show_evidence: Annotated[
        bool, typer.Option("--show-evidence", help="Also print what the model read, after the sources.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Ask a question and get an answer in words, with its sources, from a language model.

    The model reads what `evidence` finds, and nothing else; bounds and filters are those of `recall`. Its citations are
    checked: [17] is row 17, and what names no row that the model was given is dropped, with a message. "Not on record."
    is an answer too; where nothing was found no model is asked. Exit code 0 says that there is an answer, not that it
    cites a record: a script looks at on_record and citations of --json. The key is read from OPENAI_API_KEY or
    ANTHROPIC_API_KEY. The reply is kept in the folder `replies` of the store, so that the same question on the same
    evidence is paid for once; nothing else is written, and nothing where the store cannot be written.
    """
    bounds = options.bounds(
        as_of=as_of,
        known_at=known_at,
        since=since,
        author=author,
        tag=tag,
        source=source,
        thread=thread,
        where=where,
        asked_at=asked_at,
    )
    question, settings = options.typed(question), options.settings_of(preset)
    with options.open_to_read(store, encoder, at=at) as memory:
        # The store is open for reading only, so that asking needs no right to write to it.
        asked = models.reading_model(
            store, model, base_url, timeout=timeout, retries=retries, max_cost=max_cost, prices=price
        )
        extraction.tell_nothing_drawn(memory, graph=graph, k=k, settings=settings)
        terminal = _Terminal() if sys.stdout.isatty() and not as_json else None
        try:
            answer = memory.ask(
                question,
                model=asked,
                k=k,
                settings=settings,
                max_chars=max_chars,
                max_tokens=max_tokens,
                on_text=None if terminal is None else terminal.show,
                graph=graph,
                **bounds,
            )
        finally:
            if terminal is not None:
                terminal.end()
    if as_json:
        write_json({**options.asked(question, bounds), **_as_json(answer, graph, show_evidence)})
        return
    if terminal is None:
        write(str(answer))
    _tell(answer, max_tokens)
    if show_evidence:
        write("")
        write(str(answer.evidence) or "(no evidence)")


class _Terminal:
    """The answer as it is written."""

    def __init__(self) -> None:
        self._at_line_start = True

    def show(self, piece: str) -> None:
        """One piece of it; nothing in it drives the terminal."""
        emit(visible(piece))
        self._at_line_start = piece.endswith("\n")

    def end(self) -> None:
        """The end of its last line, also where it broke off, so that what follows begins a new one."""
        if not self._at_line_start:
            emit("\n")
            self._at_line_start = True


def _tell(answer: "Answer", max_tokens: int) -> None:
    """What follows the answer: sources and date on stdout, what to beware of on stderr."""
    write("")
    if answer.sources:
        from mempp.cli.people import print_sources

        print_sources(answer.sources)
    write(f"Speaks for {answer.speaks_for}.")
    if answer.unknown_citations:
        numbers = ", ".join(map(str, answer.unknown_citations[:10]))
        more = "" if len(answer.unknown_citations) <= 10 else ", …"
        say(f"the model cited what it was not given; dropped from the answer: {numbers}{more}")
    if answer.unchecked_citations:
        told = ", ".join(visible(one[:40]) for one in answer.unchecked_citations[:10])
        say(f"it may be meant as a citation, and was not checked: {told}")
    if answer.on_record and not answer.citations:
        say("the answer cites no record; check it against `mempp evidence`")
    if answer.evidence.hits or answer.triples:
        models.tell_usage(answer)
    if answer.cut:
        say(f"the answer is cut: the model wrote {max_tokens:,} tokens; see --max-tokens")


def _as_json(answer: "Answer", graph: bool, show_evidence: bool) -> dict[str, Any]:
    evidence = {"evidence": str(answer.evidence)} if show_evidence else {}
    triples = {"triples": [triple_as_json(triple) for triple in answer.triples]} if graph else {}
    return {
        "answer": answer.text,
        "on_record": answer.on_record,
        "speaks_for": answer.speaks_for,
        "speaks_as_of": None if answer.as_of is None else answer.as_of.isoformat(),
        "citations": list(answer.citations),
        "unknown_citations": list(answer.unknown_citations),
        "unchecked_citations": list(answer.unchecked_citations),
        "sources": [record_as_json(record) for record in answer.sources],
        "row_ids": list(answer.evidence.row_ids),
        **models.usage_as_json(answer),
        "cut": answer.cut,
        **triples,
        **evidence,
    }
