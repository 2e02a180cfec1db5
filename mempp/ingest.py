"""Documents on their way in: checked, cut into batches, turned into entries, reported."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from mempp.content_keys import content_key
from mempp.errors import InputError
from mempp.projection import Projection
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


class Plan:
    """Which documents of a batch become rows, and which are there already."""

    def __init__(self) -> None:
        self.new: list[Entry] = []
        """An entry for each document that is to become a row."""
        self._places: list[int | None] = []  # a row that is there already, or -1 - (place in `new`)

    def make(self, batch: Sequence[CheckedDocument], projection: Projection) -> None:
        """Decide, on the state that the commit will follow."""
        place_of_key: dict[bytes, int] = {}
        for document in batch:
            if not document.text.strip():
                self._places.append(None)
                continue
            key = content_key(
                document.text, document.authors, document.occurred_at, document.thread, projection.repeats
            )
            place = projection.repeat_of(key)
            if place is None:
                place = place_of_key.get(key)
            if place is None:
                place = place_of_key[key] = -1 - len(self.new)
                self.new.append(document_entry(document, projection))
            self._places.append(place)

    def rows(self, new_row_ids: Sequence[int]) -> list[int | None]:
        """The row of each document of the batch; None for an empty text.

        Args:
            new_row_ids: the rows that the entries in `new` became.
        """
        return [new_row_ids[-1 - place] if place is not None and place < 0 else place for place in self._places]


def document_entry(document: CheckedDocument, projection: Projection) -> Entry:
    """The log entry of a document that is not stored yet."""
    share = projection.share
    return Entry(
        kind="document",
        text=document.text,
        occurred_at=document.occurred_at,
        authors=share(document.authors),
        tags=share(document.tags),
        source=document.source,
        thread=share(document.thread),
        document_kind=share(document.kind),
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
