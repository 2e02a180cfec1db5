"""Counts of what a store holds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from mempp.dates import from_microseconds
from mempp.embedding import Embedder
from mempp.projection import Projection
from mempp.recall.table import UNDATED
from mempp.storage import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a store holds, as it is known here."""

    rows: int
    active: int
    superseded: int
    archived: int
    retracted: int
    lost: int
    """Rows that a damaged store, opened for rescue, no longer has."""
    undated: int
    first_date: datetime | None
    """The earliest event date of any row."""
    last_date: datetime | None
    """The latest event date of any row."""
    authors: int
    threads: int
    entries: int
    """Entries of the log: documents, state changes, annotations, encoders."""
    annotations: int
    annotations_by_kind: Mapping[str, int]
    """Such as "fact" and "facts", the cards and the marks of documents whose cards were drawn."""
    encoder: str | None
    """The encoder that the store uses."""
    without_vector: int
    """Rows whose head has no vector yet; windows of long rows are not counted."""
    bytes_on_disk: int | None
    """Size of all files of the store; None for a memory without a directory."""

    def as_dict(self) -> dict[str, Any]:
        """The counts as plain values, dates as ISO 8601 text."""
        values = asdict(self)
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def statistics_of(projection: Projection, store: Store, embedder: Embedder) -> Statistics:
    """Count what the projection and the store hold."""
    states, table = projection.states, projection.table
    lost = len(projection.lost_rows)
    hidden = [change.kind for row, change in states.hidden.items() if row not in projection.lost_rows]
    superseded = sum(row not in states.hidden and row not in projection.lost_rows for row in states.superseded)
    kinds = projection.annotation_kinds
    dates = table.occurred_at[table.occurred_at != UNDATED]
    return Statistics(
        rows=len(projection),
        active=len(projection) - len(hidden) - superseded - lost,
        lost=lost,
        superseded=superseded,
        archived=hidden.count("archive"),
        retracted=hidden.count("retract"),
        undated=len(projection) - len(dates),
        first_date=from_microseconds(int(np.min(dates))) if len(dates) else None,
        last_date=from_microseconds(int(np.max(dates))) if len(dates) else None,
        authors=table.distinct("author"),
        threads=table.distinct("thread"),
        entries=projection.last_sequence + 1,
        annotations=sum(kinds.values()),
        annotations_by_kind=kinds,
        encoder=embedder.name,
        without_vector=len(projection.rows_without_vectors()),
        bytes_on_disk=_size(store.path) if store.path is not None else None,
    )


def _size(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:  # sealed or removed by another process while we look
            continue
    return total
