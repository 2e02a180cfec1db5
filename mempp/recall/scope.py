"""The scope of a question: which rows it may see, as one bitset, decided before anything is ranked (paper, eq. 4)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from mempp.dates import DateLike, from_microseconds, to_microseconds
from mempp.errors import InputError, quoted
from mempp.recall.as_of_dates import as_of_named
from mempp.recall.states import States, Visibility, visibility
from mempp.recall.table import UNDATED, RowTable
from mempp.records import Record, canonical_json, labels, plain_text

Allowed = NDArray[np.bool_]
"""(rows,) bitset of the rows in scope."""

PermittedRows = Iterable[int] | Callable[[Record], bool]
"""The caller's own permitted rows: row ids, or a predicate over records."""


class Bounds(TypedDict, total=False):
    """What a question may be bounded and filtered by. A filter takes one value or several, any of them, case folded."""

    as_of: DateLike | None
    """Event-time bound: only rows dated up to then; undated rows are out. A bare date means the end of that day.
    "auto" takes it from the question, where that says "as of DATE" or "on record on DATE"; evidence and the explanation
    of each hit tell it as `as_of_read`. What stands there and is not one date for certain is an InputError."""
    asked_at: DateLike | None
    """When the question is asked, so that "last March" in it is understood, also in "as of last March" with
    `as_of="auto"`; otherwise it bounds nothing. A bare date means the end of that day. Default: `as_of`."""
    known_at: DateLike | int | None
    """Ingest-time bound: the record as it stood then; a whole number is a sequence number. Vectors have no place in
    known time: a row that was embedded later is found by its vector in questions about the past too."""
    since: DateLike | None
    """Only rows dated from then on. A bare date means the start of that day."""
    author: str | Iterable[str] | None
    tags: str | Iterable[str] | None
    source: str | Iterable[str] | None
    thread: str | Iterable[str] | None
    where: Mapping[str, Any] | None
    """Metadata keys and the values that they must have; in a list any element counts; None also means "no such key"."""
    rows: PermittedRows | None
    """The caller's own permitted rows: row ids, or a predicate over records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The bounds and filters of a question, checked; moments in microseconds UTC."""

    as_of: int | None = None
    known_at: int | None = None
    """Ingest time, microseconds UTC."""
    known_sequence: int | None = None
    """The same bound given as a sequence number."""
    asked_at: int | None = None
    """When the question is asked; for dates named in it alone."""
    since: int | None = None
    author: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    source: tuple[str, ...] | None = None
    thread: tuple[str, ...] | None = None
    where: tuple[tuple[str, tuple[object, ...]], ...] = ()
    row_ids: frozenset[int] | None = None
    predicate: Callable[[Record], bool] | None = None


def check_names(bounds: Mapping[str, object]) -> None:
    """Check that every name is a bound or a filter.

    Raises:
        TypeError: one is not; as for any argument that a function does not have, with the nearest name.
    """
    for name in bounds:
        if name not in Bounds.__annotations__:
            near = get_close_matches(name, Bounds.__annotations__, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(Bounds.__annotations__)}"
            raise TypeError(f"there is no argument {name!r}; {hint}")


def question_text(question: object) -> str:
    """The text of a question, checked.

    Raises:
        InputError: it is no text, empty, or holds a lone surrogate.
    """
    text = plain_text(question, "the question")
    if not text.strip():
        raise InputError("the question is empty; ask with at least one word")
    return text


def is_auto(as_of: object) -> bool:
    """Whether an as-of bound is to be read from the question."""
    return isinstance(as_of, str) and as_of.strip().casefold() == "auto"


def as_of_in(question: str, asked_at: DateLike | None = None) -> datetime | None:
    """The moment θ of an explicit "as of DATE" or "on record on DATE" in a question, for `as_of="auto"`.

    Raises:
        InputError: what stands there is not one date for certain; see `as_of_dates`.
    """
    asked = None if asked_at is None else to_microseconds(asked_at, "asked_at", bare_date="end")
    named = as_of_named(question_text(question), asked_at=asked)
    return None if named is None else from_microseconds(named[0])


def check_question(
    *,
    as_of: DateLike | None = None,
    known_at: DateLike | int | None = None,
    asked_at: DateLike | None = None,
    since: DateLike | None = None,
    author: str | Iterable[str] | None = None,
    tags: str | Iterable[str] | None = None,
    source: str | Iterable[str] | None = None,
    thread: str | Iterable[str] | None = None,
    where: Mapping[str, Any] | None = None,
    rows: PermittedRows | None = None,
) -> Question:
    """Read the bounds and filters that a caller gave.

    Raises:
        InputError: a filter is of a wrong type.
        InvalidDateError: a bound is no date.
    """
    sequence: int | None = None
    moment: int | None = None
    if isinstance(known_at, int) and not isinstance(known_at, bool):
        sequence = known_at
    elif known_at is not None:
        moment = to_microseconds(known_at, "known_at", bare_date="end")
    row_ids, predicate = _permitted(rows)
    return Question(
        as_of=None if as_of is None else to_microseconds(as_of, "as_of", bare_date="end"),
        asked_at=None if asked_at is None else to_microseconds(asked_at, "asked_at", bare_date="end"),
        known_at=moment,
        known_sequence=sequence,
        since=None if since is None else to_microseconds(since, "since", bare_date="start"),
        author=None if author is None else labels(author, "author"),
        tags=None if tags is None else labels(tags, "tags"),
        source=None if source is None else labels(source, "source", strip=False),
        thread=None if thread is None else labels(thread, "thread", strip=False),
        where=_where(where),
        row_ids=row_ids,
        predicate=predicate,
    )


def _where(where: Mapping[str, Any] | None) -> tuple[tuple[str, tuple[object, ...]], ...]:
    if where is None:
        return ()
    if not isinstance(where, Mapping) or not all(isinstance(key, str) for key in where):
        raise InputError(f"where must map metadata keys to values, got {quoted(where)}")
    return tuple((key, _where_values(key, value)) for key, value in where.items())


def _where_values(key: str, given: object) -> tuple[object, ...]:
    values = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    values = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    for value in values:
        canonical_json(value, f"where[{quoted(key)}]")  # what is no JSON can be in no metadata
    return values


def _permitted(rows: PermittedRows | None) -> tuple[frozenset[int] | None, Callable[[Record], bool] | None]:
    if rows is None:
        return None, None
    if callable(rows):
        return None, rows
    if isinstance(rows, str | bytes | bytearray | Mapping) or not isinstance(rows, Iterable):
        raise InputError(f"rows must be row ids or a predicate over records, got {quoted(rows)}")
    if isinstance(rows, np.ndarray) and rows.ndim != 1:
        raise InputError(f"rows must be row ids in one dimension, got an array of shape {rows.shape}")
    listed: list[object] = list(rows.tolist() if isinstance(rows, np.ndarray) else rows)
    row_ids = set()
    for row in listed:
        if isinstance(row, bool) or not isinstance(row, int | np.integer):
            raise InputError(f"rows must hold row ids, got {quoted(row)}; for a rule use a function of a record")
        row_ids.add(int(row))
    return frozenset(row_ids), None


def scope_of(question: Question, table: RowTable, states: States, rows: int) -> Allowed:
    """The bitset of the rows in scope, all bounds and filters applied except the caller's predicate.

    Args:
        question: bounds and filters.
        table: the columns of the rows.
        states: the states that hold at the question's known-at time.
        rows: how many rows are known at that time; the length of the bitset.
    """
    occurred_at = table.occurred_at[:rows]
    allowed = np.ones(rows, dtype=np.bool_)
    if question.as_of is not None:
        allowed &= (occurred_at <= question.as_of) & (occurred_at != UNDATED)
    if question.since is not None:
        allowed &= occurred_at >= question.since
    for field in ("author", "tags", "source", "thread"):
        wanted = getattr(question, field)
        if wanted is not None:
            allowed &= _mask(table.rows_with(field, wanted, rows), rows)
    for key, values in question.where:
        allowed &= _mask(table.rows_where(key, values, rows), rows)
    if question.row_ids is not None:
        known = [row for row in question.row_ids if 0 <= row < rows]
        allowed &= _mask(np.array(known, dtype=np.int64), rows)
    if states.hidden or states.made_of:
        _hide(allowed, question, states, table.occurred_at)
    return allowed


def _hide(allowed: Allowed, question: Question, states: States, occurred_at: NDArray[np.int64]) -> None:
    """Take the rows out of a bitset that their state keeps from it.

    A merged row is out before the latest date of its group. A retracted row is out; so is one that was archived into
    nothing, or into an older row. A row that was archived into a newer one, which stands for it, is out where that one
    is in; where a filter leaves that one out, the row itself answers. It also is out where that one was taken out.

    Args:
        allowed: the rows that bounds and filters let through; changed in place.
        question: bounds and filters.
        states: the states that hold.
        occurred_at: (rows,) event dates.
    """
    as_of = question.as_of
    seen = visibility(states, occurred_at)
    if not _is_filtered(question):  # then what stands for a row is in wherever the row would be
        allowed[seen.hidden_rows(as_of)] = False
        return
    if as_of is not None:
        allowed[[row for row, moment in seen.merged_from.items() if moment > as_of]] = False
    taken_out, layers = _hidden_of(states, seen)
    taken_out = taken_out.hidden_at(as_of)
    # Rows whose text the scope has, in whichever row; and those that were taken out, which nothing brings back.
    answered = allowed.copy()
    answered[taken_out.rows] = True
    allowed[taken_out.rows] = False
    for layer in layers:
        hidden = layer.hidden_at(as_of)
        answers = answered[hidden.into]
        allowed[hidden.rows] &= ~answers
        answered[hidden.rows] |= answers


class _Hidden(NamedTuple):
    """Hidden rows, as columns: the row, what it was archived into, and from when on it is hidden."""

    rows: NDArray[np.int64]
    into: NDArray[np.int64]
    moments: NDArray[np.int64]

    def hidden_at(self, as_of: int | None) -> "_Hidden":
        """Those that are hidden from a question as of this moment (None: of now)."""
        return self if as_of is None else _Hidden(*(column[self.moments <= as_of] for column in self))


def _hidden_of(states: States, seen: Visibility) -> tuple[_Hidden, list[_Hidden]]:
    """The rows that were taken out, and those that other rows stand for; these in layers, in which what stands for a
    row comes before the row. Computed once for each `States`."""
    known = states.__dict__.get("_hidden_of")
    if known is not None:
        return cast(tuple[_Hidden, list[_Hidden]], known)
    depths: dict[int, int] = {}
    layers: list[list[tuple[int, int, int]]] = [[]]
    for row in sorted(states.hidden, reverse=True):
        change = states.hidden[row]
        into = change.related if change.kind == "archive" else None
        depth = 0 if into is None or into < row else depths.get(into, 0) + 1
        depths[row] = depth
        if depth == len(layers):
            layers.append([])
        layers[depth].append((row, row if into is None else into, seen.hidden_from[row]))
    taken_out, *others = [_Hidden(*np.array(layer, dtype=np.int64).reshape(-1, 3).T) for layer in layers]
    object.__setattr__(states, "_hidden_of", (taken_out, others))  # event dates never change, so neither does this
    return taken_out, others


def _is_filtered(question: Question) -> bool:
    """Whether there is a bound that a row may keep, and the row that stands for it may not."""
    given = (question.since, question.author, question.tags, question.source, question.thread, question.row_ids)
    return bool(question.where) or any(one is not None for one in given)


def _mask(row_ids: NDArray[np.int64], rows: int) -> Allowed:
    mask = np.zeros(rows, dtype=np.bool_)
    mask[row_ids] = True
    return mask
