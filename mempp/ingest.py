"""Documents on their way in: checked, cut into batches, turned into entries, reported."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from mempp.errors import InputError
from mempp.records import AddReport, CheckedDocument, Document, check_document
from mempp.storage import Entry

BATCH_SIZE = 64
"""Documents of `add_many` that make one commit: enough that fsync costs nothing, few enough to show progress."""
BATCH_CHARS = 8_000_000
"""A batch ends earlier when its texts have this many characters."""

DocumentLike = Document | Mapping[str, Any] | str
"""What `add` and `add_many` take for a document."""


def report(row_ids: Sequence[int | None], new: Sequence[int]) -> AddReport:
    """What became of documents whose rows, and of them new rows, are these."""
    empty = sum(row is None for row in row_ids)
    return AddReport(
        row_ids=tuple(row_ids), new_row_ids=tuple(new), repeated=len(row_ids) - len(new) - empty, empty=empty
    )


def document_entry(document: CheckedDocument) -> Entry:
    """The log entry of a document that is not stored yet."""
    return Entry(
        kind="document",
        text=document.text,
        occurred_at=document.occurred_at,
        authors=document.authors,
        tags=document.tags,
        source=document.source,
        thread=document.thread,
        document_kind=document.kind,
        metadata=document.metadata,
    )


def batches(documents: Iterable[DocumentLike], size: int) -> Iterator[list[CheckedDocument]]:
    """Checked documents in lists of at most `size`, shorter where their texts are long."""
    checked = _checked(documents)
    while batch := list(islice(checked, 1)):
        chars = len(batch[0].text)
        while len(batch) < size and chars < BATCH_CHARS and (more := list(islice(checked, 1))):
            batch += more
            chars += len(more[0].text)
        yield batch


def _checked(documents: Iterable[DocumentLike]) -> Iterator[CheckedDocument]:
    for place, document in enumerate(documents, start=1):
        try:
            yield check_document(document)
        except InputError as error:
            raise type(error)(f"document {place} of those handed in: {error}") from None
