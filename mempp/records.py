"""What goes in (`Document`), what comes out (`Record`), and what may change about a record (`State`)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from mempp.dates import DateLike, to_microseconds
from mempp.errors import InputError, quoted

Status = Literal["active", "superseded", "archived", "retracted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What later entries say about a record. Only this may change; the record itself never does.

    A superseded record is still found; an archived or retracted one is not, until `reinstate`. Where a record was
    both superseded and hidden, `status` names the hiding and `by` still names the newer record. In an answer to a
    question with `rows=`, `by` and `since` are None where that record is not among these.
    """

    status: Status = "active"
    by: int | None = None
    """Row id of the record that superseded this one."""
    since: datetime | None = None
    """Event date of that newer record, where it has one."""
    into: int | None = None
    """Row id of the record that this one was archived into."""
    reason: str | None = None
    """Why it was retracted, if a reason was given."""


ACTIVE = State()

FACT = "fact"
"""The kind of the annotations that hold a fact card of their row; the text is the card's."""
FACTS = "facts"
"""The kind of the annotation that says that cards were drawn from its row; only those behind the last one count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A document as stored: row `row_id` of the record, for ever."""

    row_id: int
    text: str
    ingested_at: datetime
    occurred_at: datetime | None = None
    authors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source: str | None = None
    thread: str | None = None
    kind: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    state: State = ACTIVE

    @property
    def author(self) -> str | None:
        """The first author, or None."""
        return self.authors[0] if self.authors else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An entry about a record that is no record itself: a fact card, a triple, a note."""

    sequence: int
    row_id: int
    kind: str
    payload: Any = field(hash=False)
    ingested_at: datetime
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddReport:
    """What became of the documents of one `add` or `add_many`."""

    row_ids: tuple[int | None, ...] = ()
    """For each document, in order: its row id, the existing one for a repeat, None for an empty text."""
    new_row_ids: tuple[int, ...] = ()
    """The row ids that were given out, ascending."""
    repeated: int = 0
    """How many documents repeated a row."""
    empty: int = 0
    """How many documents had no text, or white space only."""

    @property
    def added(self) -> int:
        """How many documents became rows."""
        return len(self.new_row_ids)

    @property
    def row_id(self) -> int | None:
        """The row id of the first document; for the report of `add`, which has one."""
        return self.row_ids[0] if self.row_ids else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a caller hands in. Only `text` is needed.

    Args:
        text: the whole document; kept byte for byte.
        occurred_at: event date, as a `datetime`, a `date` or ISO 8601 text; a bare date is the start of that day, UTC.
        author: one name or several.
        tags: one label or several.
        source: the document's identity outside (message id, URL, file, ticket).
        thread: what it belongs to (conversation, mail thread, ticket, page).
        kind: mail, chat, minutes, … — free text.
        metadata: anything that JSON can hold, by key.
    """

    text: str
    occurred_at: DateLike | None = None
    author: str | Iterable[str] | None = None
    tags: str | Iterable[str] | None = None
    source: str | None = None
    thread: str | None = None
    kind: str | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDocument:
    """A document whose every field was found usable, in the form in which it is stored."""

    text: str
    occurred_at: int | None
    authors: tuple[str, ...]
    tags: tuple[str, ...]
    source: str | None
    thread: str | None
    kind: str | None
    metadata: str | None


DOCUMENT_FIELDS = ("text", "occurred_at", "author", "tags", "source", "thread", "kind", "metadata")
"""The names that a document may have as a mapping; `authors` is taken for `author`."""


def check_document(given: "Document | Mapping[str, Any] | str") -> CheckedDocument:
    """Check a document and bring it into the form in which it is stored.

    Raises:
        InputError: a field is missing, unknown, of a wrong type, or holds a lone surrogate; metadata is not JSON.
        InvalidDateError: `occurred_at` is no date.
    """
    document = _as_document(given)
    text = plain_text(document.text, "text")
    occurred_at = document.occurred_at
    return CheckedDocument(
        text=text,
        occurred_at=None if occurred_at is None else to_microseconds(occurred_at, "occurred_at", bare_date="start"),
        authors=labels(document.author, "author"),
        tags=labels(document.tags, "tags"),
        source=_optional_text(document.source, "source"),
        thread=_optional_text(document.thread, "thread"),
        kind=_optional_text(document.kind, "kind"),
        metadata=_metadata(document.metadata),
    )


def _as_document(given: "Document | Mapping[str, Any] | str") -> Document:
    if isinstance(given, Document):
        return given
    if isinstance(given, str):
        return Document(text=given)
    if not isinstance(given, Mapping):
        raise InputError(f"a document is a Document, a mapping or a text, not {type(given).__name__}: {quoted(given)}")
    fields = dict(given)
    if "authors" in fields:
        if "author" in fields:
            raise InputError("a document has both 'author' and 'authors'; give one of them")
        fields["author"] = fields.pop("authors")
    unknown = [str(name) for name in fields if name not in DOCUMENT_FIELDS]
    if unknown:
        raise InputError(
            f"a document has no field {quoted(unknown[0])}; the fields are {', '.join(DOCUMENT_FIELDS)}; "
            "put anything else into metadata"
        )
    if "text" not in fields:
        raise InputError(f"a document needs a text; given were only {', '.join(fields) or 'no fields'}")
    return Document(**fields)


def labels(value: object, name: str, *, strip: bool = True) -> tuple[str, ...]:
    """One label or several as a tuple: outer white space gone, empty ones and repeats left out, order kept.

    With `strip=False` outer white space stays, for comparing with what is stored as it came.

    Raises:
        InputError: it is no text and no iterable of texts.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        values: list[object] = [value]
    elif isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        values = list(value)
        if isinstance(value, set | frozenset):
            values.sort(key=str)  # a set has no order of its own; the stored order must not depend on hashing
    else:
        raise InputError(f"{name} must be a text or several texts, not {type(value).__name__}: {quoted(value)}")
    cleaned = (plain_text(one, name).strip() if strip else plain_text(one, name) for one in values)
    return tuple(dict.fromkeys(label for label in cleaned if label))


def plain_text(value: object, name: str) -> str:
    """A text that a caller gave, as a plain `str`.

    Raises:
        InputError: it is no text, or holds a lone surrogate, which no encoding can write.
    """
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, not {type(value).__name__}: {quoted(value)}")
    text = str.__str__(value)  # of a subclass (an enum, a NumPy string) the plain text that it is, whatever str() says
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} holds a lone surrogate, which is no character, at position {error.start}: "
            f"{text[max(0, error.start - 20) : error.start + 20]!r}; decode the source with errors='replace'"
        ) from None
    return text


def _optional_text(value: object, name: str) -> str | None:
    if value is None:
        return None
    return plain_text(value, name) or None


def _metadata(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InputError(f"metadata must be a mapping, not {type(value).__name__}: {quoted(value)}")
    return canonical_json(dict(value), "metadata") if value else None


def canonical_json(value: object, name: str) -> str:
    """JSON with sorted keys, no spaces, real characters: one text for one value.

    Raises:
        InputError: the value is not JSON (a NaN, a key that is no text, a date, a lone surrogate, a cycle, …).
    """
    _check_keys(value, name, depth=0)
    try:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}; turn dates and other objects into text first") from None
    return plain_text(text, name)


_DEEPEST = 100


def _check_keys(value: object, name: str, depth: int) -> None:
    # json.dumps turns the key 1 into "1" and True into "true" without a word; what comes back would differ.
    if depth > _DEEPEST:
        raise InputError(f"{name} is nested more than {_DEEPEST} deep, or refers to itself")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InputError(f"{name} has a key that is no text: {quoted(key)}")
            _check_keys(inner, name, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner, name, depth + 1)
