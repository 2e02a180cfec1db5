"""The façade: the only place where log, encoder and indexes meet.

A document goes add → log (durable) → encoder → indexes. A question goes scope → legs → fusion → slots → evidence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np

from mempp import evidence as evidence_module
from mempp import state_entries, upkeep
from mempp.asking import answers
from mempp.dates import DateLike
from mempp.embedding import Embedder
from mempp.encoders import Encoder
from mempp.engine import Engine, check_options
from mempp.errors import InputError, MemppError, quoted
from mempp.evidence import Evidence
from mempp.history import Changes, History, TimeLine, changes_between, history_of
from mempp.ingest import BATCH_SIZE, DocumentLike, Plan, batches, report
from mempp.progress import Progress, reporter
from mempp.projection import Projection, Repeats, View
from mempp.recall import Bounds, Hit, as_of_in, check_names, check_question, question_text
from mempp.records import AddReport, Annotation, CheckedDocument, Document, Record, check_document
from mempp.settings import EvidenceStyle, Settings, from_environment, layered
from mempp.state_entries import checked_row
from mempp.statistics import Statistics, statistics_of
from mempp.storage import CompactReport, Entry, Store, VerifyReport
from mempp.storage.snapshots import SnapshotReport


class Memory:
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
        exact_up_to: int = 200_000,
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

    def add(
        self,
        text: DocumentLike,
        *,
        occurred_at: object = None,
        author: str | Iterable[str] | None = None,
        tags: str | Iterable[str] | None = None,
        source: str | None = None,
        thread: str | None = None,
        kind: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        embed: bool = True,
    ) -> AddReport:
        """Add one document; it is durable when this returns. A repeat or an empty text adds nothing.

        Args:
            text: the text, or a whole Document or mapping (then give no other field).
            occurred_at: event date; see `Document` for this and the other fields.
            author: one name or several.
            tags: one label or several.
            source: identity outside.
            thread: what it belongs to.
            kind: mail, chat, …
            metadata: anything that JSON can hold, by key.
            embed: False leaves the vector for `embed()`; until then the lexical and tag legs find the row.

        Raises:
            InputError: the document is not usable; nothing was added.
            StoreError: the store could not take it, or, where a note says so, only its vector.
            EncoderError: the encoder cannot be loaded, and nothing was added; or, where a note says so, it was added
                and could not be embedded. `embed()` does that later.
        """
        fields = {
            "occurred_at": occurred_at,
            "author": author,
            "tags": tags,
            "source": source,
            "thread": thread,
            "kind": kind,
            "metadata": metadata,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        if given and not isinstance(text, str):
            raise InputError(f"{next(iter(given))} was given beside a whole document; put it into the document")
        document = check_document({"text": text, **given} if isinstance(text, str) else text)
        self._engine.check_writable()
        rows, new = self._add_batch([document], embed)
        return report(rows, new)

    def add_many(
        self,
        documents: Iterable[DocumentLike],
        *,
        embed: bool = True,
        batch_size: int = BATCH_SIZE,
        progress: Progress = False,
    ) -> AddReport:
        """Add documents, one commit per batch: a batch is there whole or not at all.

        Args:
            documents: an iterable of Document, mapping or text; it is read as it is needed. An exception of its own
                passes through; the batches before are stored, the unfinished one is not.
            embed: as in `add`.
            batch_size: documents per commit.
            progress: True shows rate and remaining time on stderr; a function gets the number of documents done.

        Raises:
            InputError: a document is not usable; the message counts its place, and the batches before it are stored.
            StoreError: the store could not take a batch, or its vectors; the batches before it are stored.
            EncoderError: a batch was stored but not embedded; add the same again, or call `embed()`, to go on.
        """
        if isinstance(documents, str | Mapping | Document):
            raise InputError(f"add_many takes an iterable of documents, not one {type(documents).__name__}; use add")
        if not isinstance(documents, Iterable):
            raise InputError(f"add_many takes an iterable of documents, got {quoted(documents)}")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise InputError(f"batch_size must be a whole number from 1, got {quoted(batch_size)}")
        self._engine.check_writable()
        row_ids: list[int | None] = []
        new_row_ids: list[int] = []
        total = len(documents) if isinstance(documents, Sequence) else None
        with reporter(progress, "adding", total) as done:
            for batch in batches(documents, batch_size):
                rows, new = self._add_batch(batch, embed)
                row_ids += rows
                new_row_ids += new
                done(len(row_ids))
        return report(row_ids, new_row_ids)

    def _add_batch(self, batch: Sequence[CheckedDocument], embed: bool) -> tuple[list[int | None], list[int]]:
        """Store and, if asked, embed a batch; give the row of each document, and the new rows."""
        if embed:
            self._embedder.make_ready()
        rows, new = self._store_batch(batch)
        if embed:
            self._embed_rows([row for row in rows if row is not None])
        return rows, new

    def _store_batch(self, batch: Sequence[CheckedDocument]) -> tuple[list[int | None], list[int]]:
        """Commit the documents of a batch that are new; give the row of each, and the new rows."""
        plan = Plan()

        def build() -> list[Entry]:
            plan.make(batch, self._projection)
            return [*self._embedder.registration(), *plan.new] if plan.new else []

        committed = self._engine.commit(build)
        new = [entry.row_id for entry in committed if entry.kind == "document" and entry.row_id is not None]
        return plan.rows(new), new

    def embed(self, *, progress: Progress = False) -> int:
        """Embed every row that has no vector yet, in batches; return how many were embedded.

        Raises:
            EncoderError: the encoder failed; the batches before are kept.
        """
        self._engine.check_writable()
        if self._embedder.encoder is None:
            raise InputError("this memory was opened with encoder='none'; open it with an encoder to embed its rows")
        self.refresh()
        self._engine.commit(self._embedder.registration)
        missing = self._embedder.missing()
        embedded = 0
        with reporter(progress, "embedding", len(missing)) as done:
            for start in range(0, len(missing), BATCH_SIZE):
                embedded += self._embed_rows(missing[start : start + BATCH_SIZE])
                done(min(start + BATCH_SIZE, len(missing)))
        return embedded

    def _embed_rows(self, row_ids: Sequence[int]) -> int:
        """Embed those of these rows that have no vector; encode outside of every lock."""
        vectors = self._embedder.encode_missing(row_ids)
        if vectors is None:
            return 0
        try:
            with self._engine.commit_lock():
                return self._embedder.keep(vectors)
        except MemppError as error:
            rows = len(np.unique(vectors.row_ids))
            error.add_note(f"{rows} rows are stored and durable, but not embedded; embed() does that later")
            raise

    def supersede(self, old: int, *, by: int, reason: str | None = None) -> int:
        """Say that row `by` replaces row `old`; `old` stays and is still found. Return the entry's sequence number.

        Raises:
            InputError: the rows are the same, or `old` already supersedes `by`, directly or not.
            RowNotFoundError: there is no such row.
        """
        return self._engine.commit(lambda: state_entries.supersede(self._projection, old, by, reason))[-1].sequence

    def archive(self, rows: int | Iterable[int], *, into: int | None = None) -> int:
        """Take rows out of retrieval because row `into` now stands for them. Return the last entry's sequence number.

        Raises:
            InputError: no rows; a row archived into itself, or into a row that is itself out of retrieval.
            RowNotFoundError: there is no such row.
        """
        listed = list(rows) if isinstance(rows, Iterable) else [rows]
        return self._engine.commit(lambda: state_entries.archive(self._projection, listed, into))[-1].sequence

    def retract(self, row: int, *, reason: str | None = None) -> int:
        """Take a row out of retrieval; its text stays in the log. Return the entry's sequence number.

        Rows that were archived into it stay archived, since retracting must not bring anything to light; reinstate them
        if they are to come back.

        Raises:
            RowNotFoundError: there is no such row.
        """
        return self._engine.commit(lambda: state_entries.retract(self._projection, row, reason))[-1].sequence

    def reinstate(self, row: int, *, reason: str | None = None) -> int:
        """Make a row active again, whatever its state was. Return the entry's sequence number.

        Raises:
            RowNotFoundError: there is no such row.
        """
        return self._engine.commit(lambda: state_entries.reinstate(self._projection, row, reason))[-1].sequence

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
        committed = self._engine.commit(lambda: state_entries.annotate(self._projection, row, kind, payload, text))
        return committed[-1].sequence

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
        return answers(asked, bounds, self._view, chosen, self._engine)

    def evidence(
        self,
        question: str,
        *,
        max_chars: int = 40_000,
        style: EvidenceStyle = "plain",
        k: int | None = None,
        settings: Settings | None = None,
        **bounds: Unpack[Bounds],
    ) -> Evidence:
        """The answer to a question, rendered for a model to read and packed into a budget of characters.

        Args:
            question: any text.
            max_chars: the most characters that the evidence has.
            style: "plain", or "tagged" where documents are not trusted; see `mempp.evidence`.
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
            hits, max_chars=max_chars, style=style, packing=chosen.packing, order=chosen.evidence_order
        )
        return replace(packed, as_of_read=as_of_in(question)) if bounds.get("as_of") == "auto" else packed

    def records(self, **bounds: Unpack[Bounds]) -> list[Record]:
        """The records in scope, by row id. Bounds and filters as in `recall`."""
        view = self._view(bounds)
        return [self._projection.record(row, view) for row in np.flatnonzero(view.scope.allowed).tolist()]

    def get(self, row_id: int) -> Record:
        """One record by its row id, in whatever state.

        Raises:
            RowNotFoundError: there is no such row.
        """
        self._engine.check_open()
        return self._projection.record(self._row(row_id, "row_id"))

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
    def head_sequence(self) -> int:
        """The sequence number of the last entry known here, -1 when there is none; usable as `known_at`."""
        return self._projection.last_sequence

    def refresh(self) -> int:
        """Take in what other processes wrote since; return how many entries came."""
        return self._engine.refresh()

    def close(self) -> None:
        """Release files and threads. The memory cannot be used afterwards; closing twice does nothing."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path))
        return f"<mempp.Memory {where}: {len(self)} rows{', closed' if self._engine.closed else ''}>"

    def _view(self, bounds: Bounds) -> View:
        self._engine.check_open()
        check_names(bounds)
        return self._projection.view(check_question(**bounds))

    def _row(self, row: object, name: str) -> int:
        return checked_row(row, name, len(self))
