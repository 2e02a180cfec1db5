"""Fact cards: standalone facts that a model draws from each document, with tags and event date; one call for each.

A card is an annotation of its document, of the kind "fact", and leads to it: with `Settings(weight_facts=…)` above 0
documents are also found by the words of their cards, and the document is what the evidence shows.
"""

from functools import partial
from typing import TYPE_CHECKING

from mempp.llm import Model, Usage, estimate_of, tokens_about
from mempp.operators import facts_prompts as prompts
from mempp.operators.batch import CONCURRENCY, Ask, Batch, Job
from mempp.operators.extraction import Drawn, Extraction, ExtractionReport, estimate, extract, shown
from mempp.operators.facts_prompts import MODES, Mode
from mempp.operators.models import model_for, name_of
from mempp.progress import reporter
from mempp.recall import PermittedRows
from mempp.records import FACT, FACTS, Record
from mempp.settings import check_choice

if TYPE_CHECKING:
    from mempp import Memory
    from mempp.progress import Progress


def extract_facts(
    memory: "Memory",
    *,
    model: str | Model | None = None,
    mode: Mode = "atomic",
    rows: PermittedRows | None = None,
    again: bool = False,
    dry_run: bool = False,
    max_calls: int | None = None,
    max_cost: float | None = None,
    concurrency: int = CONCURRENCY,
    progress: "Progress" = False,
) -> ExtractionReport:
    """See `Memory.extract_facts` for arguments and errors."""
    check_choice("mode", mode, MODES)
    if dry_run:
        return estimate(memory, model, _extraction(name_of(model), mode), rows=rows, again=again)
    memory.commit(lambda draft: None)  # so that it is known to be writable before anything is paid for
    asked = model_for(memory, model, replies_required=True)
    batch = Batch(asked, concurrency=concurrency, max_calls=max_calls, max_cost=max_cost)
    with reporter(progress, "documents", None) as done:
        return extract(memory, batch, _extraction(asked.name, mode), rows=rows, again=again, progress=done)


def _extraction(model: str | None, mode: Mode) -> Extraction:
    return Extraction(
        item=FACT,
        marker=FACTS,
        terms={"mode": mode, "model": model, "prompts": prompts.VERSION},
        kept_apart=("mode",),
        job=partial(_job, mode),
        estimates=partial(_estimates, mode),
    )


def _job(mode: Mode, record: Record) -> Job[Drawn]:
    request = prompts.cards_request(shown(record), mode)

    def work(ask: Ask) -> Drawn:
        return prompts.cards_of(ask(request), mode, record.occurred_at)

    return Job(work, (request,))


def _estimates(mode: Mode, record: Record) -> tuple[Usage]:
    """The cards are taken to be as long as the document."""
    request = prompts.cards_request(shown(record), mode)
    return (estimate_of(request, tokens_about(record.text) + 50),)
