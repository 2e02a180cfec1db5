"""Event order and the as-of bound, for systems that have none of their own. Dates are read as Mem++ reads them.

A bare date of a document is the start of its day, a bare as-of date the end of its day, a moment without a zone is
UTC. Documents are put in event order: by date, those of one moment in the order of the collection, undated ones last.
So what is dated up to a moment is always the beginning of that order. An as-of bound leaves undated documents out,
since nobody can say that they were there by then; a question without one sees everything.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from eval.cases import Case, Collection, EvalDocument
from eval.errors import EvalError


def moment(text: str, what: str, *, end_of_day: bool = False) -> datetime:
    """An ISO 8601 date or moment, in UTC.

    Args:
        text: the date.
        what: what it belongs to, for the message.
        end_of_day: whether a bare date means the last microsecond of its day, rather than the first.

    Raises:
        EvalError: it is no date.
    """
    stripped = text.strip()
    try:
        # A time has a colon or a T; week dates have a W but no T.
        if ":" in stripped or "T" in stripped.upper() or " " in stripped:
            read = datetime.fromisoformat(stripped.replace(",", "."))
            return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
        day = date.fromisoformat(stripped)
    except (ValueError, OverflowError):
        raise EvalError(f"{what} has the date {text!r}, which is no ISO 8601 date such as 2024-06-01") from None
    return datetime.combine(day, time.max if end_of_day else time.min, tzinfo=UTC)


def shown(at: datetime | None) -> str:
    """A date as the evidence of Mem++ shows it: the day alone at midnight UTC, "undated" for none."""
    if at is None:
        return "undated"
    if at.timetz() == time.min.replace(tzinfo=UTC):
        return at.date().isoformat()
    return at.isoformat().replace("+00:00", "Z")


def check_collection(collection: Collection) -> None:
    """Check that every document can be told from the others.

    Raises:
        EvalError: two documents have one id.
    """
    seen: set[str] = set()
    for document in collection.documents:
        if document.id in seen:
            raise EvalError(f"collection {collection.id!r} has two documents with the id {document.id!r}")
        seen.add(document.id)


def check_question(case: Case) -> None:
    """Check that there is something to search for.

    Raises:
        EvalError: the question is empty.
    """
    if not case.text.strip():
        raise EvalError(f"question {case.id!r} is empty")


@dataclass(frozen=True, slots=True)
class Timeline:
    """The documents of a collection that have a text, in event order."""

    documents: tuple[EvalDocument, ...]
    moments: tuple[datetime | None, ...]
    dated: tuple[datetime, ...]
    """The moments of those that have one: the beginning of `moments`."""

    def upto(self, case: Case, *, bounded: bool) -> int:
        """How many documents, from the first, a question may see.

        Raises:
            EvalError: the as-of date of the question is no date.
        """
        if not bounded or case.as_of is None:
            return len(self.documents)
        return bisect_right(self.dated, moment(case.as_of, f"question {case.id!r}", end_of_day=True))


def timeline(collection: Collection) -> Timeline:
    """Put the documents in event order; those without a text are left out, as a memory leaves them out.

    Raises:
        EvalError: two documents have one id, or a date is no date.
    """
    check_collection(collection)
    kept = [one for one in collection.documents if one.text.strip()]
    moments = [None if one.occurred_at is None else moment(one.occurred_at, f"document {one.id!r}") for one in kept]
    last = datetime.max.replace(tzinfo=UTC)
    order = sorted(range(len(kept)), key=lambda place: (moments[place] is None, moments[place] or last))
    in_order = tuple(moments[place] for place in order)
    return Timeline(tuple(kept[place] for place in order), in_order, tuple(at for at in in_order if at is not None))


def heading(at: datetime | None, authors: Sequence[str]) -> str:
    """The line before a text: date, and authors where there are any; on one line whatever a name holds."""
    names = ", ".join(" ".join(author.split()) for author in authors)
    names = names if len(names) <= 200 else names[:199] + "…"
    return shown(at) + (f" | {names}" if names else "")
