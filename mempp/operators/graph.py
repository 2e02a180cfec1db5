"""The entity graph of a record (the paper's Mem^g++): who stands to whom how, drawn from each document by a model.

Two calls for each document: which entities it names, and which relations between these it states; one where it names
fewer than two. Each triple is an annotation of its document, of the kind "triple", and counts in a question only where
its document does. `graph_search` uses them.
"""

from typing import TYPE_CHECKING

from mempp.llm import Model
from mempp.operators import graph_prompts as prompts
from mempp.operators.batch import CONCURRENCY, Ask, Batch, Job
from mempp.operators.extraction import Drawn, Extraction, ExtractionReport, extract, shown
from mempp.operators.models import model_for
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
    max_calls: int | None = None,
    max_cost: float | None = None,
    concurrency: int = CONCURRENCY,
    progress: "Progress" = False,
) -> ExtractionReport:
    """See `Memory.build_graph` for arguments and errors."""
    memory.commit(lambda draft: None)  # so that it is known to be writable before anything is paid for
    asked = model_for(memory, model, replies_required=True)
    batch = Batch(asked, concurrency=concurrency, max_calls=max_calls, max_cost=max_cost)
    extraction = Extraction(
        item=TRIPLE, marker=EXTRACTED, terms={"model": asked.name, "prompts": prompts.VERSION}, job=_job
    )
    with reporter(progress, "documents", None) as done:
        return extract(memory, batch, extraction, rows=rows, again=again, progress=done)


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
