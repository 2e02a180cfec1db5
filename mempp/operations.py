"""The part of `Memory` by which a language model works on the record; each method imports its operator when called."""

from typing import TYPE_CHECKING, Unpack, cast

from mempp.progress import Progress
from mempp.recall import Bounds, PermittedRows
from mempp.settings import EvidenceStyle, Settings

if TYPE_CHECKING:
    from mempp.llm import Model
    from mempp.memory import Memory
    from mempp.operators.consolidation_report import ConsolidationReport
    from mempp.operators.extraction import ExtractionReport, What
    from mempp.operators.facts_prompts import Mode
    from mempp.operators.graph_search import GraphEvidence, GraphOptions
    from mempp.operators.undo import UndoReport
    from mempp.records import Annotation


class Operations:
    """What the operators (`mempp/operators/`) look like on a memory; `ask` stands with the other questions."""

    def consolidate(
        self,
        *,
        model: "str | Model | None" = None,
        threshold: float = 0.85,
        dry_run: bool = False,
        again: bool = False,
        max_calls: int | None = None,
        max_cost: float | None = None,
        concurrency: int = 8,
        progress: Progress = False,
        run_id: str | None = None,
    ) -> "ConsolidationReport":
        """Find with a language model what was said twice or has changed, and mark it; see docs/operators.md.

        Current rows that are alike are grouped, and the model is asked of each group, in one call, whether it is a
        conflict (the latest row then supersedes the others), a restatement (a second call then writes one row that
        stands for all of them, and they are archived into it) or distinct. Rows tagged `pinned` or `confidential` take
        no part. `undo` takes a run back.

        Args:
            model: a name as `mempp.chat_model` takes it, a model, or None for what MEMPP_MODEL names.
            threshold: the least cosine to the first row of a group; above 0 and at most 1.
            dry_run: only find the groups of the first pass, and estimate tokens and cost: nothing is asked and nothing
                written, no key is needed, and the limits limit nothing.
            again: also ask about groups of the very same rows that a run changed and `undo` took back; else they stay
                as they are, and stand in the report as `undone`.
            max_calls: calls that may be made. Replies that are kept do not count.
            max_cost: US dollars that may be spent, by list prices; each call is set aside with the most that it may
                cost.
            concurrency: groups that are asked about at a time; no outcome depends on it.
            progress: True shows a line on stderr; a function gets the number of groups done.
            run_id: the unfinished run to go on with; by default the latest with the same model and threshold, if any.

        Raises:
            InputError: an argument is not usable, or the memory has no encoder.
            StoreReadOnlyError: the memory cannot be written.
            ModelError: no call can succeed. What was decided before stands, `report` of the error tells it, and the
                next call goes on from there.
            EncoderError: a merged row is stored and could not be embedded; likewise.
        """
        from mempp.operators.consolidate import consolidate

        return consolidate(
            cast("Memory", self),
            model=model,
            threshold=threshold,
            dry_run=dry_run,
            again=again,
            max_calls=max_calls,
            max_cost=max_cost,
            concurrency=concurrency,
            progress=progress,
            run_id=run_id,
        )

    def undo(self, run_id: str) -> "UndoReport":
        """Take a run of `consolidate` back as a unit, in one commit; see `mempp.operators.undo`. Later runs leave the
        groups that it changed as they are then, unless `again` is given.

        Raises:
            InputError: there is no such run.
            StoreReadOnlyError: the memory cannot be written.
        """
        from mempp.operators.undo import undo

        return undo(cast("Memory", self), run_id)

    def build_graph(
        self,
        *,
        model: "str | Model | None" = None,
        rows: PermittedRows | None = None,
        again: bool = False,
        dry_run: bool = False,
        max_calls: int | None = None,
        max_cost: float | None = None,
        concurrency: int = 8,
        progress: Progress = False,
    ) -> "ExtractionReport":
        """Draw the entity graph from the documents with a language model; see docs/operators.md.

        Two calls for each document: the entities that it names, and the triples over these that it states; one where it
        names fewer than two. What was done is not done again, so a call goes on where the last one stopped. The graph
        is used by `graph_evidence`, and by `ask` with `graph=True`; it changes no other answer.

        Args:
            model: a name as `mempp.chat_model` takes it, a model, or None for what MEMPP_MODEL names.
            rows: the documents, by row id or by a predicate over records; None: all. What was archived or retracted
                takes no part.
            again: also do documents again that were done by another model or wording. What was drawn last counts.
            dry_run: only count the documents, and estimate tokens and cost: nothing is asked and nothing written, no
                key is needed, and the limits limit nothing.
            max_calls: calls that may be made. Replies that are kept do not count.
            max_cost: US dollars that may be spent, by list prices; each call is set aside with the most that it may
                cost.
            concurrency: documents that are asked about at a time; no outcome depends on it.
            progress: True shows a line on stderr; a function gets the number of documents dealt with.

        Raises:
            InputError: an argument is not usable.
            RowNotFoundError: one of the rows does not exist.
            StoreReadOnlyError: the memory cannot be written.
            ModelError: no call can succeed. What was done before stands, `report` of the error tells it, and the next
                call goes on from there.
        """
        from mempp.operators.graph import build_graph

        return build_graph(
            cast("Memory", self),
            model=model,
            rows=rows,
            again=again,
            dry_run=dry_run,
            max_calls=max_calls,
            max_cost=max_cost,
            concurrency=concurrency,
            progress=progress,
        )

    def drawn(self, what: "What", *, rows: PermittedRows | None = None) -> "list[Annotation]":
        """What counts of the "cards" or "triples" of the documents, in the order of the rows: what was drawn last.

        Args:
            what: "cards" (`extract_facts`) or "triples" (`build_graph`); those written by `annotate` are among them.
            rows: only those of these documents, by row id or by a predicate over records, as far as they are in scope;
                None: of all documents in any state.

        Raises:
            InputError: an argument is not usable.
            RowNotFoundError: one of the rows does not exist.
        """
        from mempp.operators.extraction import drawn

        return drawn(cast("Memory", self), what, rows)

    def withdraw(self, what: "What", *, rows: PermittedRows | None = None) -> int:
        """Let the "cards" or "triples" of documents count no longer, in one commit, as if none had been drawn.

        Nothing is deleted: questions with `known_at` from before find them still. `extract_facts` and `build_graph`
        draw from these documents again.

        Args:
            what: as in `drawn`.
            rows: as in `drawn`.

        Returns:
            How many documents this was for.

        Raises:
            InputError, RowNotFoundError: as `drawn`.
            StoreReadOnlyError: the memory cannot be written.
        """
        from mempp.operators.extraction import withdraw

        return withdraw(cast("Memory", self), what, rows)

    def extract_facts(
        self,
        *,
        model: "str | Model | None" = None,
        mode: "Mode" = "atomic",
        rows: PermittedRows | None = None,
        again: bool = False,
        dry_run: bool = False,
        max_calls: int | None = None,
        max_cost: float | None = None,
        concurrency: int = 8,
        progress: Progress = False,
    ) -> "ExtractionReport":
        """Draw fact cards from the documents with a language model, one call for each; see docs/operators.md.

        What was done is not done again, so a call goes on where the last one stopped. Cards change no answer as long as
        the setting `weight_facts` is 0, its default.

        Args:
            model: as in `build_graph`.
            mode: "summary": one card for a document, or none where nothing is worth keeping. "atomic": a card for each
                fact. "agent": the same, what the assistant itself said told apart. Documents that were done in another
                mode are done again, and what was drawn last counts.
            rows: as in `build_graph`.
            again: as in `build_graph`.
            dry_run: as in `build_graph`.
            max_calls: calls that may be made. Replies that are kept do not count.
            max_cost: US dollars that may be spent, by list prices.
            concurrency: as in `build_graph`.
            progress: as in `build_graph`.

        Raises:
            InputError, RowNotFoundError, StoreReadOnlyError, ModelError: as `build_graph`.
        """
        from mempp.operators.facts import extract_facts

        return extract_facts(
            cast("Memory", self),
            model=model,
            mode=mode,
            rows=rows,
            again=again,
            dry_run=dry_run,
            max_calls=max_calls,
            max_cost=max_cost,
            concurrency=concurrency,
            progress=progress,
        )

    def graph_evidence(
        self,
        question: str,
        *,
        model: "str | Model | None" = None,
        graph: "GraphOptions | bool" = True,
        max_chars: int = 40_000,
        style: EvidenceStyle = "plain",
        show_supersession: bool = True,
        k: int | None = None,
        settings: Settings | None = None,
        **bounds: Unpack[Bounds],
    ) -> "GraphEvidence":
        """`evidence`, and behind the records at most five triples of the entity graph; see `build_graph`.

        One call names the entities of the question; none is made where there is no graph, or nothing in scope. A triple
        is shown only where its document is in scope. Triples take a quarter of the characters at most.

        Args:
            question: any text.
            model: as in `build_graph`.
            graph: how to search; see `GraphOptions`.
            max_chars: the most characters that the whole text has.
            style: as in `evidence`.
            show_supersession: as in `evidence`.
            k: as in `evidence`.
            settings: as in `evidence`.
            **bounds: as in `recall`; they hold for triples too.

        Raises:
            InputError: as `evidence`; or no model is named.
            ModelError: the call failed, or the reply was of no use.
            EncoderError: the question could not be embedded.
        """
        from mempp.operators.graph_search import graph_evidence

        return graph_evidence(
            cast("Memory", self),
            question,
            model=model,
            graph=graph,
            max_chars=max_chars,
            style=style,
            show_supersession=show_supersession,
            k=k,
            settings=settings,
            **bounds,
        )
