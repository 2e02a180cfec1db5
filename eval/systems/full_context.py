"""Full context: the whole record in the prompt, and no memory.

Documents stand in event order, undated ones last (see `eval.systems.timeline`), each under its number, date and authors
as in the evidence of Mem++. A budget cuts this text from its beginning, in the middle of a document if need be, as the
benchmarks pass the first 40,000 characters. `ranked` is that same order; nothing was searched, so its scores are only
1, 1/2, 1/3, … by place. With `--k` only the first k documents are ranked; the evidence does not depend on it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import mempp
from eval.cases import Case, Collection
from eval.systems.base import Evidence, Ingest, Json, Options, Ranked, Retrieved, System
from eval.systems.options import positive_k, refuse_unknown
from eval.systems.packing import Block, Part, check_budgets, pack
from eval.systems.timeline import Timeline, heading, timeline

SYSTEMS = {"full-context": "No memory: the whole record in event order, cut to the budget from its beginning"}


def build(name: str, options: Options, encoder: mempp.Encoder | None = None) -> System:
    """The system; it has no options and needs no encoder."""
    del encoder
    refuse_unknown(options, {}, name)
    return FullContext(None if options.k is None else positive_k(options, 1), options.as_of)


class FullContext:
    """See the module."""

    def __init__(self, k: int | None, as_of: bool) -> None:
        self._k = k
        self._as_of = as_of

    @property
    def name(self) -> str:
        """Its name in results and tables."""
        return "full-context" if self._as_of else "full-context (no as-of)"

    @property
    def configuration(self) -> Mapping[str, Json]:
        """Every setting that it runs with."""
        return {"system": "full-context", "k": self._k, "as_of": self._as_of}

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of a table must know."""
        return ("the whole record in event order; a budget keeps its beginning. Its ranking is that order, no search",)

    @contextmanager
    def open(self, collection: Collection) -> Iterator["FullContextSession"]:
        """Take a collection in."""
        yield FullContextSession(collection, self._k, self._as_of)


class FullContextSession:
    """A collection in event order."""

    def __init__(self, collection: Collection, k: int | None, as_of: bool) -> None:
        start = time.perf_counter()
        self._timeline: Timeline = timeline(collection)
        self._k = k
        self._as_of = as_of
        documents = self._timeline.documents
        self._lengths = {one.id: len(one.text) for one in documents}
        self.ingest = Ingest(
            documents=len(collection.documents),
            seconds=time.perf_counter() - start,
            bytes_stored=sum(len(one.text.encode(errors="surrogatepass")) for one in documents),
        )

    def retrieve(self, case: Case, budgets: Sequence[int]) -> Retrieved:
        """The documents that a question may see, in event order."""
        check_budgets(budgets)
        start = time.perf_counter()
        visible = self._timeline.upto(case, bounded=self._as_of)
        evidence = {budget: self._evidence(visible, budget) for budget in budgets[:1]}
        seconds = time.perf_counter() - start
        evidence |= {budget: self._evidence(visible, budget) for budget in budgets[1:]}
        first = self._timeline.documents[: visible if self._k is None else min(visible, self._k)]
        ranked = tuple(Ranked(id=one.id, score=1 / place) for place, one in enumerate(first, start=1))
        return Retrieved(ranked=ranked, evidence=evidence, seconds=seconds)

    def _evidence(self, visible: int, budget: int) -> Evidence:
        return pack(self._blocks(visible), self._lengths, budget, cut_last=True)

    def _blocks(self, visible: int) -> Iterator[Block]:
        for place in range(visible):
            document = self._timeline.documents[place]
            line = heading(self._timeline.moments[place], document.authors)
            yield Block(line, document.text, (Part(document.id, 0, len(document.text)),))
