"""The entity graph of a record (the paper's Mem^g++): who stands to whom how, drawn from each document by a model.

Two calls for each document: which entities it names, and which relations between these it states; one where it names
fewer than two. Each triple is an annotation of its document, of the kind "triple", and counts in a question only where
its document does. `graph_search` uses them.
"""

from typing import TYPE_CHECKING

from mempp.llm import Model, Usage, estimate_of, tokens_about
from mempp.operators import graph_prompts as prompts
from mempp.operators.batch import CONCURRENCY, Ask, Batch, Job
from mempp.operators.extraction import Drawn, Extraction, ExtractionReport, estimate, extract, shown
from mempp.operators.models import model_for, name_of
from mempp.operators.triples import EXTRACTED, TRIPLE
from mempp.progress import reporter
from mempp.recall import PermittedRows
from mempp.records import Record

if TYPE_CHECKING:
    from mempp import Memory
    from mempp.progress import Progress


def build_graph(
    memory: "Memory",
    *,
    model: str | Model | None = None,
    rows: PermittedRows | None = None,
    again: bool = False,
    dry_run: bool = False,
    max_calls: int | None = None,
    max_cost: float | None = None,
    concurrency: int = CONCURRENCY,
    progress: "Progress" = False,
) -> ExtractionReport:
    """See `Memory.build_graph` for arguments and errors."""
    if dry_run:
        return estimate(memory, model, _extraction(name_of(model)), rows=rows, again=again)
    memory.commit(lambda draft: None)  # so that it is known to be writable before anything is paid for
    asked = model_for(memory, model, replies_required=True)
    batch = Batch(asked, concurrency=concurrency, max_calls=max_calls, max_cost=max_cost)
    with reporter(progress, "documents", None) as done:
        return extract(memory, batch, _extraction(asked.name), rows=rows, again=again, progress=done)


def _extraction(model: str | None) -> Extraction:
    terms = {"model": model, "prompts": prompts.VERSION}
    return Extraction(item=TRIPLE, marker=EXTRACTED, terms=terms, job=_job, estimates=_estimates)


def _job(record: Record) -> Job[Drawn]:
    text = shown(record)
    first = prompts.entities_request(text)

    def work(ask: Ask) -> Drawn:
        entities = prompts.entities_of(ask(first))
        if len(entities) < 2:
            return Drawn(())
        statements, dropped = prompts.statements_of(ask(prompts.triples_request(text, entities)), entities)
        items = tuple(
            ({"subject": one.subject, "relation": one.relation, "object": one.object}, None) for one in statements
        )
        return Drawn(items, dropped)

    return Job(work, (first, prompts.largest_triples_request(text)))


def _estimates(record: Record) -> tuple[Usage, Usage]:
    """The triples are taken to be as long as the document, and the entities a quarter of that."""
    text = shown(record)
    length = tokens_about(record.text)
    first = estimate_of(prompts.entities_request(text), length // 4 + 20)
    return first, estimate_of(prompts.triples_request(text, ()), length + 50)
