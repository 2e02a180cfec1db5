"""The façade: the only place where log, encoder and indexes meet.

A document goes add → log (durable) → encoder → indexes. A question goes scope → legs → fusion → slots → evidence.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from mempp import evidence as evidence_module
from mempp import state_entries, upkeep
from mempp.asking import answers, as_of_read
from mempp.content_keys import Repeats
from mempp.dates import DateLike
from mempp.embedding import Embedder
from mempp.encoders import Encoder
from mempp.engine import Engine, check_options
from mempp.errors import InputError, quoted
from mempp.evidence import Evidence
from mempp.history import Changes, History, TimeLine, changes_between, history_of
from mempp.ingest import DocumentLike
from mempp.intake import Intake
from mempp.operations import Operations
from mempp.progress import Progress
from mempp.projection import Projection, View
from mempp.recall import Bounds, Hit, check_names, check_question, question_text
from mempp.records import Annotation, Record
from mempp.settings import EvidenceStyle, Settings, from_environment, layered
from mempp.state_entries import Draft, Rows, checked_row
from mempp.statistics import Statistics, statistics_of
from mempp.storage import CompactReport, Store, VerifyReport
from mempp.storage.snapshots import SnapshotReport

if TYPE_CHECKING:
    from mempp.llm import Model
    from mempp.operators.ask import Answer
    from mempp.operators.graph_search import GraphOptions


class Memory(Intake, Operations):
    """An organisation's record, open for writing and asking. Made by `mempp.open()` and `mempp.in_memory()`.

    Any number of threads may use one Memory; writers take turns, and each recall sees one consistent state.
    """

    def __init__(
        self,
        store: Store,
        *,
        encoder: str | Path | Encoder | None = None,
        settings: Settings | None = None,
        repeats: Repeats = "exact",
        exact_up_to: int = 1_000_000,
        progress: Progress = False,
        at: DateLike | int | None = None,
    ) -> None:
        """Read the log of an opened store; see `mempp.open()`, which is the way to make one."""
        encoder = check_options(encoder, settings, repeats, exact_up_to)
        self._settings = layered(settings, from_environment())
        self._engine = Engine(
            store,
            encoder=encoder,
            windows=self._settings.windows,
            repeats=repeats,
            exact_up_to=exact_up_to,
            progress=progress,
            at=at,
        )

    @property
    def _store(self) -> Store:
        return self._engine.store

    @property
    def _projection(self) -> Projection:
        return self._engine.projection

    @property
    def _embedder(self) -> Embedder:
        return self._engine.embedder

    # -- writing --------------------------------------------------------------------------------------------------

    def supersede(self, old: Rows, *, by: int, reason: str | None = None) -> int:
        """Say that row `by` replaces row `old`, or several; they stay and are still found.

        Return the last entry's sequence number, as every change of state does.

        Raises:
            InputError: the rows are the same, or one of `old` already supersedes `by`, directly or not.
            RowNotFoundError: there is no such row.
        """
        return self.commit(lambda draft: draft.supersede(old, by=by, reason=reason))

    def archive(self, rows: Rows, *, into: int | None = None, reason: str | None = None) -> int:
        """Take rows out of retrieval because row `into` now stands for them. Return the last entry's sequence number.

        Raises:
            InputError: no rows; a row archived into itself, or into a row that is itself out of retrieval.
            RowNotFoundError: there is no such row.
        """
        return self.commit(lambda draft: draft.archive(rows, into=into, reason=reason))

    def merge(self, rows: Rows, document: DocumentLike, *, reason: str | None = None) -> int:
        """Add a row that stands for others, and archive these into it, in one commit; return its row id.

        As of dates before the latest of the originals, these are seen as before, and the merged row is not; see
        docs/operators.md. What the document does not say of itself is taken from them: their earliest event date (none
        where one of them is undated), every author and tag, the thread and the metadata that they share.

        Raises:
            InputError: no rows, the document is not usable or empty, or a row is out of retrieval already.
            RowNotFoundError: there is no such row.
            EncoderError: the encoder failed; a note says whether the row was stored.
        """
        made: list[int] = []
        self.commit(lambda draft: made.append(draft.merge(rows, document, reason=reason)))
        return made[-1]

    def retract(self, row: int, *, reason: str | None = None) -> int:
        """Take a row out of retrieval; its text stays in the log. Return the entry's sequence number.

        Rows that were archived into it stay archived, since retracting must not bring anything to light; reinstate them
        if they are to come back.

        Raises:
            RowNotFoundError: there is no such row.
        """
        return self.commit(lambda draft: draft.retract(row, reason=reason))

    def reinstate(self, row: int, *, reason: str | None = None) -> int:
        """Make a row active again, whatever its state was. Return the entry's sequence number.

        Raises:
            RowNotFoundError: there is no such row.
        """
        return self.commit(lambda draft: draft.reinstate(row, reason=reason))

    def annotate(self, row: int, kind: str, payload: object, text: str | None = None) -> int:
        """Add an annotation to a row: an entry that is no row. Return its sequence number.

        Args:
            row: the row it is about.
            kind: what sort of annotation; free text.
            payload: anything that JSON can hold.
            text: words of it, if it has any.

        Raises:
            InputError: the payload is not JSON.
            RowNotFoundError: there is no such row.
        """
        return self.commit(lambda draft: draft.annotate(row, kind, payload, text))

    def commit(self, build: Callable[[Draft], object], *, embed: bool = True) -> int:
        """Make several changes in one commit, all or none; return the last entry's sequence number, -1 for no change.

        Args:
            build: called with a `Draft`, which has the methods supersede, archive, merge, retract, reinstate and
                annotate. It is called while nobody else can write, so that what it reads of this memory still holds
                when the commit is made; it must not write to the memory itself. What it raises ends the commit.
            embed: False leaves the vectors of merged rows for `embed()`.
        """
        return state_entries.commit(self._engine, build, embed=embed)

    # -- asking ---------------------------------------------------------------------------------------------------

    def recall(
        self, question: str, *, k: int | None = None, settings: Settings | None = None, **bounds: Unpack[Bounds]
    ) -> list[Hit]:
        """The records that answer a question best, best first.

        Args:
            question: any text.
            k: how many hits at most.
            settings: how to rank; see `Settings` and `preset()`.
            **bounds: as_of, known_at, since, author, tags, source, thread, where, rows; see `Bounds`.

        Raises:
            InputError: the question is empty, or an argument is not usable.
            EncoderError: the question could not be embedded.
        """
        return self.recall_many([question], k=k, settings=settings, **bounds)[0]

    def recall_many(
        self,
        questions: Iterable[str],
        *,
        k: int | None = None,
        settings: Settings | None = None,
        **bounds: Unpack[Bounds],
    ) -> list[list[Hit]]:
        """Answer several questions on one and the same state of the record; otherwise as `recall`."""
        if isinstance(questions, str) or not isinstance(questions, Iterable):
            raise InputError(f"recall_many takes several questions, got {quoted(questions)}; for one use recall")
        asked = [question_text(question) for question in questions]
        chosen = self.settings_for(k, settings)
        return answers(asked, bounds, chosen, self._engine)

    def evidence(
        self,
        question: str,
        *,
        max_chars: int = 40_000,
        style: EvidenceStyle = "plain",
        show_supersession: bool = True,
        k: int | None = None,
        settings: Settings | None = None,
        **bounds: Unpack[Bounds],
    ) -> Evidence:
        """The answer to a question, rendered for a model to read and packed into a budget of characters.

        Args:
            question: any text.
            max_chars: the most characters that the evidence has. Of a best record that is larger the passage that
                matches best is shown; other records that are larger are left out.
            style: "plain", or "tagged" where documents are not trusted; see `mempp.evidence`.
            show_supersession: whether the heading of a superseded record says so, with row and date.
            k: how many hits are packed at most.
            settings: as in `recall`; its `packing` says how records are packed.
            **bounds: as in `recall`.

        Raises:
            InputError: as `recall`; or `max_chars` or `style` is not usable.
            EncoderError: the question could not be embedded.
        """
        hits = self.recall(question, k=k, settings=settings, **bounds)
        chosen = self.settings_for(k, settings)
        packed = evidence_module.pack(
            hits,
            max_chars=max_chars,
            style=style,
            packing=chosen.packing,
            order=chosen.evidence_order,
            show_supersession=show_supersession,
            question=question,
        )
        return replace(packed, as_of_read=as_of_read(question, bounds))

    def records(self, **bounds: Unpack[Bounds]) -> list[Record]:
        """The records in scope, by row id. Bounds and filters as in `recall`."""
        return list(self.iter_records(**bounds))

    def iter_records(self, **bounds: Unpack[Bounds]) -> Iterator[Record]:
        """The same one after another, as they are now, for a scope that is not to be in memory as a whole."""
        projection, view = self._projection, self._view(bounds)
        return (projection.record(row, view) for row in np.flatnonzero(view.scope.allowed).tolist())

    def get(self, row_id: int) -> Record:
        """One record by its row id, in whatever state.

        Raises:
            RowNotFoundError: there is no such row.
        """
        self._engine.check_open()
        return self._projection.record(self._row(row_id, "row_id"))

    def vectors(self, row_ids: Sequence[int]) -> NDArray[np.float32]:
        """(n, dimensions) the unit vectors of these rows, or of the heads of long ones.

        Zeros where a row has no vector yet; (n, 0) where the memory has no vectors at all.

        Raises:
            RowNotFoundError: there is no such row.
        """
        self._engine.check_open()
        rows = np.array([self._row(row, "row_ids") for row in row_ids], dtype=np.int64)
        index = self._projection.indexes.vectors
        return np.zeros((len(rows), 0), dtype=np.float32) if index is None else index.vectors_of(rows)[0]

    def annotations(
        self, row: int | None = None, *, kind: str | None = None, known_at: DateLike | int | None = None
    ) -> list[Annotation]:
        """The annotations of a row, or of all rows, in the order in which they were written."""
        self._engine.check_open()
        row_id = None if row is None else self._row(row, "row")
        return self._projection.annotations(row_id, kind, check_question(known_at=known_at))

    def history(self, row: int, *, known_at: DateLike | int | None = None) -> History:
        """What became of a row: the state entries about it, and its line of supersession, both ways.

        Raises:
            RowNotFoundError: there is no such row.
        """
        self._engine.check_open()
        return history_of(self._projection, self._row(row, "row"), check_question(known_at=known_at))

    def changes(
        self, since: DateLike | None = None, until: DateLike | None = None, *, by: TimeLine = "ingest"
    ) -> Changes:
        """What came in and what changed state from `since` to `until`, both included.

        Args:
            since: first moment; a bare date means the start of that day; None: from the beginning.
            until: last moment; a bare date means the end of that day; None: up to now.
            by: "ingest": when it was put on record. "event": when it happened; then a supersession counts from the
                event date of the newer row, and other state entries, which have no event date, do not count.
        """
        self._engine.check_open()
        return changes_between(self._projection, since, until, by)

    def stats(self) -> Statistics:
        """Counts of what the store holds."""
        self._engine.check_open()
        return statistics_of(self._projection, self._store, self._embedder)

    def ask(
        self,
        question: str,
        *,
        model: "str | Model | None" = None,
        k: int | None = None,
        settings: Settings | None = None,
        max_chars: int = 40_000,
        max_tokens: int = 4096,
        on_text: Callable[[str], object] | None = None,
        graph: "GraphOptions | bool" = False,
        **bounds: Unpack[Bounds],
    ) -> "Answer":
        """The answer to a question in words, by a language model that reads the evidence, with its sources.

        Args:
            question: any text.
            model: a name ("openai:gpt-4o-mini", "claude-sonnet-4-6"), or what `mempp.chat_model` makes; None: what
                the environment variable MEMPP_MODEL names.
            k: how many hits are read at most.
            settings: as in `recall`.
            max_chars: the most characters of evidence, from 4,000.
            max_tokens: the most tokens that the model may write, its thinking included.
            on_text: called with the answer piece by piece as it is written.
            graph: True or GraphOptions: also read what the entity graph adds, for one more call; see `graph_evidence`.
            **bounds: as in `recall`.

        Raises:
            InputError: as `recall`; or no model is named, or an argument is not usable.
            ModelError: the model cannot be asked, the request failed, or it gave no answer.
            EncoderError: the question could not be embedded.
        """
        from mempp.operators.ask import ask

        return ask(
            self,
            question,
            model=model,
            k=k,
            settings=settings,
            max_chars=max_chars,
            max_tokens=max_tokens,
            on_text=on_text,
            graph=graph,
            **bounds,
        )

    # -- proof and copies -----------------------------------------------------------------------------------------

    @property
    def head_digest(self) -> str:
        """Digest of the hash chain after the last entry known here, 64 hex digits; keep it elsewhere as proof."""
        return self._engine.head_digest

    def verify(self, *, expect: str | None = None) -> VerifyReport:
        """Check the whole store: the hash chain over every entry, every page, row ids, vectors. See `VerifyReport`.

        Args:
            expect: a head digest that was kept elsewhere; the chain must have had it at some point. Only this shows
                that nothing was cut off the end.

        Raises:
            InputError: `expect` is no digest.
            StoreError: a file cannot be read. What is damaged is told in the report.
        """
        self._engine.check_open()
        return upkeep.verify(self._store, expect)

    def snapshot(self, path: str | PathLike[str], *, filesystem: Any = None, derived: bool = True) -> SnapshotReport:
        """Copy the store as it stands at one commit, while others read and write it; `mempp.restore` brings it back.

        Args:
            path: a directory, new or with an earlier snapshot of this store, to which only what is new is copied; or a
                file whose name ends in .tar. A path, or a URI that pyarrow or fsspec knows.
            filesystem: a filesystem of pyarrow.fs or fsspec; `path` is then a path on it.
            derived: whether vectors come along; without them, `embed()` makes them again.

        Raises:
            InputError, NotAStoreError, StoreError: the target cannot take it.
            StoreDamagedError: the store is damaged.
        """
        self._engine.check_open()
        if self._engine.is_past:
            raise InputError("a snapshot holds the whole store; open the store without at= to make one")
        return upkeep.snapshot(self._store, path, filesystem, derived)

    def compact(self) -> CompactReport:
        """Merge small sealed segments into larger new ones: same entries, same chain. Others go on reading meanwhile.

        Raises:
            StoreError: the store is damaged, locked by another process, or cannot be written.
        """
        self._engine.check_writable()
        return upkeep.compact(self._store)

    def __len__(self) -> int:
        """How many rows there are, in any state."""
        return len(self._projection)

    # -- the object itself ----------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings that hold where a call gives none."""
        return self._settings

    def settings_for(self, k: int | None, settings: Settings | None) -> Settings:
        """The settings of a call: its arguments, its `settings`, those of the memory, in this order."""
        return layered(None if k is None else Settings(k=k), settings, self._settings)

    @property
    def encoder(self) -> Encoder | None:
        """The encoder; None when the memory was opened with encoder="none"."""
        return self._embedder.encoder

    @property
    def path(self) -> Path | None:
        """Where the store is; None for a memory without a directory."""
        return self._store.path

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written: opened with `read_only=True`, or as of the past with `at=`."""
        return self._store.read_only

    @property
    def head_sequence(self) -> int:
        """The sequence number of the last entry known here, -1 when there is none; usable as `known_at`."""
        return self._projection.last_sequence

    def refresh(self) -> int:
        """Take in what other processes wrote since; return how many entries came."""
        return self._engine.refresh()

    def close(self) -> None:
        """Release files and threads. The memory cannot be used afterwards; closing twice does nothing.

        Where many rows or vectors were stored it first writes the files of `cache/` that make later openings quick:
        some ten seconds for a million vectors. A `with` block that ends by an error does without those of the vectors.
        """
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._engine.close(in_order=kind is None)

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path))
        return f"<mempp.Memory {where}: {len(self)} rows{', closed' if self._engine.closed else ''}>"

    def _view(self, bounds: Bounds) -> View:
        self._engine.check_open()
        check_names(bounds)
        return self._projection.view(check_question(**bounds))

    def _row(self, row: object, name: str) -> int:
        return checked_row(row, name, len(self))
