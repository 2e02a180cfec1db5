"""Everything derived from the log, in memory: rows, states, annotations, the three indexes.

A projection in the sense of event sourcing: `apply` takes entries in, in order, and nothing else changes it, so
dropping it and applying the log again gives the same answers. One thread at a time applies; any number of threads
take a `View`, which is one consistent state and stays as it is.
"""

import json
import threading
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mempp.content_keys import Repeats, RowsByKey, content_key
from mempp.dates import from_microseconds
from mempp.encoders.windows import has_windows
from mempp.errors import RowNotFoundError
from mempp.indexes import CardIndex, LexicalIndex, TagIndex, VectorIndex
from mempp.indexes.hnsw import GraphKeeper
from mempp.indexes.kept_codes import CodeKeeper
from mempp.indexes.ranking import Allowed
from mempp.recall import NO_STATES, Indexes, Question, RowTable, Scope, StateChange, States, scope_of, state_of
from mempp.recall.mentioned_days import days_mentioned
from mempp.recall.states import ChangeKind, naming_only
from mempp.records import FACT, FACTS, Annotation, Record
from mempp.storage import ARCHIVE, REINSTATE, RETRACT, SUPERSEDE, Entry, VectorBatch
from mempp.storage.codec import give_back

HEAD = 0
"""The view of a row's head; 1, 2, … are its windows."""

CodeKeepers = tuple[CodeKeeper | None, CodeKeeper | None]
"""Where the codes of heads are kept, and those of windows."""

NO_CODES: CodeKeepers = (None, None)

Shared = TypeVar("Shared", str | None, tuple[str, ...])

_STAMP = attrgetter("ingested_at")
_STATES_KEPT = 16
_SHARED_VALUES = 1 << 14
_GIVEN_BACK_FROM = 1 << 20  # bytes
_ANALYSED_TOGETHER = 2048  # rows; their terms are in memory together
_FOR_EVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class View:
    """One consistent state of the record, bounded as a question asks."""

    scope: Scope
    states: States
    as_of: int | None
    rows: int
    """How many rows are known at the known-at time."""
    permitted: Callable[[int], bool] | None = None
    """Whether a row is among those that the caller permits (`rows=`), so that a state may name it; None: all are."""


class Projection:
    """The derived state of one store."""

    def __init__(
        self,
        *,
        repeats: Repeats = "exact",
        exact_up_to: int,
        graphs: GraphKeeper | None = None,
        codes: CodeKeepers = NO_CODES,
    ) -> None:
        self._graphs = graphs
        self._codes = codes
        self._repeats = repeats
        self._exact_up_to = exact_up_to
        self._lock = threading.RLock()
        self._documents: list[Entry] = []
        self._annotations: list[Entry] = []
        self._table = RowTable()
        self._states = NO_STATES
        self._changes: list[StateChange] = []
        self._past_states: dict[int, States] = {}
        self._stamps: list[int] = []
        self._last_sequences: list[int] = []
        self._shared = lru_cache(_SHARED_VALUES)(_itself)
        self._rows_by_key = RowsByKey()  # of the first rows, brought up to date when asked
        self._restored = 0  # rows that restored indexes hold, and that are still to be applied
        self._lexical = LexicalIndex()
        self._tags = TagIndex()
        self._vectors: VectorIndex | None = None
        self._windows: VectorIndex | None = None
        self._cards = CardIndex()
        self._cards_read = 0  # annotations that it was told of
        self._days: dict[int, tuple[int, ...]] = {}  # row → the days that its text names, found when first asked for
        self.lost_rows: frozenset[int] = frozenset()
        """Rows that a damaged store no longer has; only where it was opened for rescue."""
        self.encoder: str | None = None
        """Which encoder the store now uses, as its entry tells (JSON)."""

    def __len__(self) -> int:
        return len(self._table)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last entry; -1 when there is none."""
        return self._last_sequences[-1] if self._last_sequences else -1

    @property
    def states(self) -> States:
        """The states that hold now."""
        return self._states

    @property
    def indexes(self) -> Indexes:
        """The three indexes."""
        return Indexes(self._lexical, self._tags, self._vectors, self._windows, self._up_to_date_cards)

    def _up_to_date_cards(self) -> CardIndex:
        """The index of the fact cards; a memory that never asks for it never reads them."""
        with self._lock:
            new = [one for one in self._annotations[self._cards_read :] if _card_or_marker(one)]
            cards = [(one.row_id or 0, one.sequence, one.text if one.label == FACT else None) for one in new]
            try:
                self._cards.add(cards)
            except BaseException:  # an interrupt: it may hold them by half
                self._cards, self._cards_read = CardIndex(), 0
                raise
            self._cards_read = len(self._annotations)
            return self._cards

    # -- taking in ------------------------------------------------------------------------------------------------

    def restore(self, lexical: LexicalIndex, tags: TagIndex) -> None:
        """Begin with indexes that hold the first rows already; the first `apply` must bring at least those rows."""
        assert not len(self._table), "indexes are restored before anything is applied"
        assert len(lexical) == len(tags), "both hold the same rows"
        self._lexical, self._tags, self._restored = lexical, tags, len(lexical)

    def apply(self, entries: Sequence[Entry], *, analysed: Callable[[int], None] = lambda rows: None) -> None:
        """Take in the next entries of the log; several commits at once appear together.

        Args:
            entries: the entries.
            analysed: called with the number of rows of them whose texts are in the index, now and then.
        """
        if not entries:
            return
        documents = [entry for entry in entries if entry.kind == "document"]
        others = [] if len(documents) == len(entries) else [entry for entry in entries if entry.kind != "document"]
        self._tags.names.add_rows([entry.authors for entry in documents])
        # The indexes first: a view is cut to the rows of the table, so it never sees what is only half there.
        for start in range(self._restored, len(documents), _ANALYSED_TOGETHER):
            part = documents[start : start + _ANALYSED_TOGETHER]
            self._lexical.add([entry.text or "" for entry in part])
            self._tags.add([(*entry.authors, *entry.tags) for entry in part])
            analysed(start + len(part) - self._restored)
        self._restored = 0
        with self._lock:
            self._documents += documents
            self._table.append(documents)
            stamps = self._table.ingested_at
            changes = [_state_change(entry, stamps) for entry in others if entry.kind in _STATE_KINDS]
            self._changes += changes
            self._states = self._states.with_changes(changes) if changes else self._states
            for entry in others:
                if entry.kind == "annotate":
                    self._annotations.append(entry)
                elif entry.kind == "encoder":
                    self.encoder = entry.payload
            for stamp, commit in groupby(entries, _STAMP):
                (last,) = deque(commit, maxlen=1)
                if self._stamps and self._stamps[-1] == stamp:
                    self._last_sequences[-1] = last.sequence
                else:
                    self._stamps.append(stamp)
                    self._last_sequences.append(last.sequence)

    def start_vectors(self, dimensions: int, batches: list[VectorBatch]) -> Callable[[], None]:
        """Make vector indexes of these vectors; calling what is returned puts them in place of those there were.

        Whoever holds the old ones can go on with them.
        """
        of_heads, of_windows = self._codes
        vectors = VectorIndex(dimensions, exact_up_to=self._exact_up_to, graphs=self._graphs, codes=of_heads)
        windows = VectorIndex(dimensions, exact_up_to=self._exact_up_to, codes=of_windows)
        _add_vectors(vectors, windows, batches)

        def put() -> None:
            before = self._vectors, self._windows
            self._vectors, self._windows = vectors, windows
            _close(*before)

        return put

    def apply_vectors(self, batches: list[VectorBatch]) -> None:
        """Take in vectors of rows. It empties the list, so that as few vectors as possible are in memory twice."""
        if self._vectors is not None and self._windows is not None:
            _add_vectors(self._vectors, self._windows, batches)

    def mapped_vectors(self) -> tuple[int, int]:
        """How many vectors, windows included, are mapped from a file, and how many there are."""
        both = [index for index in (self._vectors, self._windows) if index is not None]
        return sum(index.mapped for index in both), sum(map(len, both))

    def keep_codes(self, batches: list[VectorBatch]) -> None:
        """Keep the codes of the vectors that a file holds, heads and windows, given as they are mapped from it."""
        for batch in batches:
            index = self._vectors if not len(batch) or batch.views[0] == HEAD else self._windows
            if index is not None and batch.digest is not None:
                index.keep_codes(len(batch), batch.digest)

    def renew_lock_after_fork(self) -> bool:
        """In a forked child: tell whether no thread of the parent was inside; if one was, the lock is made anew."""
        free = self._lock.acquire(blocking=False)
        if free:
            self._lock.release()
        else:
            self._lock = threading.RLock()
        return free

    def close(self) -> None:
        """Stop what runs in the background."""
        _close(self._vectors, self._windows)

    # -- asking ---------------------------------------------------------------------------------------------------

    def view(self, question: Question) -> View:
        """The state that a question sees: its scope, and the states at its known-at time.

        The caller's predicate over records is applied after the lock is released; it may use the memory itself.
        """
        with self._lock:
            bound = self._sequence_bound(question)
            rows = self._table.rows_up_to(bound)
            states = self._states_up_to(bound)
            allowed = self._allowed(question, states, rows)
            table = self._table
            scope = Scope(
                allowed=allowed,
                occurred_at=table.occurred_at[:rows],
                ingested_at=table.ingested_at[:rows],
                threads=table.threads,
                days_of=self._days_of,
                asked_at=question.asked_at if question.asked_at is not None else question.as_of,
                known_up_to=min(bound, self.last_sequence),
            )
        view = View(scope, states, question.as_of, rows)
        if question.row_ids is not None:
            return replace(view, permitted=question.row_ids.__contains__)
        predicate = question.predicate
        if predicate is None:
            return view
        # Asked of archived and retracted rows too: where what stands for a row is left out, the row itself answers.
        passing = np.flatnonzero(self._allowed(question, NO_STATES, rows)).tolist()
        asked = {row: bool(predicate(self.record(row, view))) for row in passing}
        only = replace(question, row_ids=frozenset(row for row in passing if asked[row]), predicate=None)
        scope = replace(scope, allowed=self._allowed(only, states, rows))

        def permitted(row: int) -> bool:
            if row not in asked:  # another filter leaves it out
                asked[row] = row not in self.lost_rows and bool(predicate(self.record(row, view)))
            return asked[row]

        return replace(view, scope=scope, permitted=permitted)

    def _allowed(self, question: Question, states: States, rows: int) -> Allowed:
        """The scope's bitset, all applied but the predicate."""
        with self._lock:
            allowed = scope_of(question, self._table, states, rows)
        allowed[[row for row in self.lost_rows if row < rows]] = False
        return allowed

    def _days_of(self, row: int) -> tuple[int, ...]:
        """The days that the text of a row names; a text never changes, so neither do they."""
        days = self._days.get(row)
        if days is None:
            entry = self._documents[row]
            year = None if entry.occurred_at is None else from_microseconds(entry.occurred_at).year
            days = self._days[row] = days_mentioned(entry.text or "", year=year)
        return days

    def _sequence_bound(self, question: Question) -> int:
        """The last sequence that a question may know of."""
        bound = _FOR_EVER if question.known_sequence is None else question.known_sequence
        if question.known_at is not None:
            commits = bisect_right(self._stamps, question.known_at)
            bound = min(bound, self._last_sequences[commits - 1] if commits else -1)
        return bound

    def _states_up_to(self, bound: int) -> States:
        count = bisect_right(self._changes, bound, key=lambda change: change.sequence)
        if count == len(self._changes):
            return self._states
        if count not in self._past_states:
            if len(self._past_states) >= _STATES_KEPT:
                self._past_states.pop(next(iter(self._past_states)))
            self._past_states[count] = NO_STATES.with_changes(self._changes[:count])
        return self._past_states[count]

    def changes_up_to(self, question: Question) -> list[StateChange]:
        """The state entries that a question may know of, in order."""
        with self._lock:
            bound = self._sequence_bound(question)
            return self._changes[: bisect_right(self._changes, bound, key=lambda change: change.sequence)]

    def stamp_of(self, sequence: int) -> int:
        """When the entry with this sequence was put on record, microseconds UTC."""
        return self._stamps[bisect_left(self._last_sequences, sequence)]

    def record(self, row_id: int, view: View | None = None) -> Record:
        """A row as a record, its state as the view knows it; without a view, as it is now.

        Raises:
            RowNotFoundError: there is no such row.
        """
        documents = self._documents
        if not 0 <= row_id < len(documents):
            raise RowNotFoundError(f"there is no row {row_id}; the record has {len(documents)} rows, numbered from 0")
        if row_id in self.lost_rows:
            raise RowNotFoundError(f"row {row_id} is lost: the store is damaged; restore it from a snapshot")
        entry = documents[row_id]
        states, as_of = (self._states, None) if view is None else (view.states, view.as_of)
        state = state_of(states, self._table.occurred_at, row_id, as_of)
        return Record(
            row_id=row_id,
            text=entry.text or "",
            ingested_at=from_microseconds(entry.ingested_at),
            occurred_at=None if entry.occurred_at is None else from_microseconds(entry.occurred_at),
            authors=entry.authors,
            tags=entry.tags,
            source=entry.source,
            thread=entry.thread,
            kind=entry.document_kind,
            metadata={} if entry.metadata is None else json.loads(entry.metadata),
            state=state if view is None or view.permitted is None else naming_only(state, view.permitted),
        )

    def annotations(self, row_id: int | None, kind: str | None, question: Question) -> list[Annotation]:
        """The annotations of a row (None: of all rows) of one kind (None: of all kinds), in order."""
        with self._lock:
            bound = self._sequence_bound(question)
            found = [entry for entry in self._annotations if entry.sequence <= bound]
        return [
            Annotation(
                sequence=entry.sequence,
                row_id=entry.row_id or 0,
                kind=entry.label or "",
                payload=json.loads(entry.payload or "null"),
                ingested_at=from_microseconds(entry.ingested_at),
                text=entry.text,
            )
            for entry in found
            if row_id in (None, entry.row_id) and kind in (None, entry.label)
        ]

    def share(self, value: Shared) -> Shared:
        """The one object for equal values of documents that came lately, so that rows share them in memory.

        Those that are read from segments share them already.
        """
        return cast(Shared, self._shared(value))

    @property
    def repeats(self) -> Repeats:
        """What counts as a repeat."""
        return self._repeats

    def repeat_of(self, key: bytes) -> int | None:
        """The row that a document with this content key repeats, if any.

        "exact": the same text, authors, event date and thread as a row in any state, so that a nightly import does
        not bring back what was retracted. "paper": the same text and authors as an active row. Only the thread that
        applies may ask.
        """
        for row in range(len(self._rows_by_key), len(self._documents)):
            entry = self._documents[row]
            of_row = content_key(entry.text or "", entry.authors, entry.occurred_at, entry.thread, self._repeats)
            self._rows_by_key.append(of_row)
        rows = self._rows_by_key.rows_of(key)
        if self._repeats == "paper":
            rows = [row for row in rows if row not in self._states.hidden]
        return rows[0] if rows else None

    def rows_without_vectors(self, row_ids: Sequence[int] | None = None) -> list[int]:
        """The rows (of these, or of all) whose head has no vector yet, ascending."""
        return self._lacking(self._vectors, row_ids)

    def rows_without_windows(self, row_ids: Sequence[int] | None = None) -> list[int]:
        """The rows (of these, or of all) that are long enough for windows, and whose windows have no vectors yet."""
        return [row for row in self._lacking(self._windows, row_ids) if has_windows(self.text_of(row))]

    def _lacking(self, index: VectorIndex | None, row_ids: Sequence[int] | None) -> list[int]:
        if row_ids is None:
            rows = len(self._table)
            have = np.zeros(rows, dtype=np.bool_) if index is None else index.rows_with_vectors(rows)
            return [int(row) for row in np.flatnonzero(~have)]
        asked = np.unique(np.asarray(row_ids, np.int64))
        lacking: list[int] = (asked if index is None else asked[~index.have_vectors(asked)]).tolist()
        return lacking

    def text_of(self, row_id: int) -> str:
        """The text of a row."""
        return self._documents[row_id].text or ""

    @property
    def table(self) -> RowTable:
        """The columns of the rows; for statistics."""
        return self._table

    @property
    def annotation_kinds(self) -> dict[str, int]:
        """How many annotations there are of each kind, by name."""
        return dict(sorted(Counter(entry.label or "" for entry in self._annotations).items()))


_STATE_KINDS: dict[str, ChangeKind] = {
    SUPERSEDE: "supersede",
    ARCHIVE: "archive",
    RETRACT: "retract",
    REINSTATE: "reinstate",
}


def _itself(value: object) -> object:
    return value


def _card_or_marker(entry: Entry) -> bool:
    """Whether an annotation is a fact card with words, or says that cards were drawn."""
    return entry.label == FACTS or (entry.label == FACT and bool(entry.text))


def _state_change(entry: Entry, stamps: NDArray[np.int64]) -> StateChange:
    """A state entry, given when each row was ingested: the stamp of its commit."""
    assert entry.row_id is not None, "storage refuses a state entry without a row"
    kind, into = _STATE_KINDS[entry.kind], entry.related_row
    made_of = kind == "archive" and into is not None and int(stamps[into]) == entry.ingested_at
    return StateChange(entry.sequence, kind, entry.row_id, into, entry.reason, made_of)


def _add_vectors(vectors: VectorIndex, windows: VectorIndex, batches: list[VectorBatch]) -> None:
    """Put heads and windows into their indexes, and empty the list."""
    if not batches:
        return
    heads = sum(int(np.count_nonzero(batch.views == HEAD)) for batch in batches)
    of_windows = [batch for batch in batches if len(batch) and batch.views.max() > HEAD]
    vectors.add_batches(_one_by_one(batches, heads=True), heads)
    windows.add_batches(_one_by_one(of_windows, heads=False), sum(map(len, of_windows)))


def _close(*indexes: VectorIndex | None) -> None:
    for index in indexes:
        if index is not None:
            index.close()


def _one_by_one(
    batches: list[VectorBatch], *, heads: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], str | None]]:
    """Take the batches out of the list, first to last, and give what there is in them of heads, or of windows."""
    batches.reverse()
    while batches:
        batch = batches.pop()
        wanted = (batch.views == HEAD) == heads
        if wanted.all():
            yield batch.row_ids, batch.vectors, batch.digest
        elif wanted.any():
            yield batch.row_ids[wanted], batch.vectors[wanted], None
        large = batch.vectors.nbytes > _GIVEN_BACK_FROM
        del batch
        if large:
            give_back()
