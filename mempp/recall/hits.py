"""A hit: a record of the answer that can explain itself."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from mempp.dates import show
from mempp.recall.slots import Via
from mempp.records import Record


@dataclass(frozen=True, slots=True)
class LegShare:
    """What one leg did for a hit."""

    leg: str
    """lexical, vector, thread_lexical, thread_vector, tags, dates or facts."""
    rank: int
    """Place in the leg's list, from 0; equal values have the same place, that of the first of them, where values are
    summed."""
    leg_score: float
    """What the leg says of the row; see `mempp.recall.legs`. With `fusion="ranks"` and no context the index's own
    score: BM25, cosine similarity, or number of matching labels."""
    weight: float
    added: float
    """Its part of the fused score: weight · leg_score, or, with `fusion="ranks"`, weight / (γ + rank)."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a record is in the answer; `str()` of it is for people, `as_dict()` for programs."""

    row_id: int
    score: float
    via: Via
    """"score": among the best by fused score; "recency": a recency slot; "fill": unmatched, ingested most recently."""
    gamma: float | None
    """γ of reciprocal rank fusion; None where the legs' values are summed."""
    legs: tuple[LegShare, ...]
    as_of_read: datetime | None = None
    """The as-of date that was read from the question, with `as_of="auto"`; None where it names none."""
    context: int = 0
    """How many neighbours on each side the row was scored with."""

    def __str__(self) -> str:
        reasons = {
            "score": "among the best by fused score",
            "recency": "recency slot: one of the latest-dated of the remaining matches",
            "fill": "matched by no leg; fills a place as the most recently ingested in scope",
        }
        spread = sum(leg.added for leg in self.legs) - self.score
        parts = [f"score {self.score:.5f}, {reasons[self.via]}", *map(self._line, self.legs)]
        if self.as_of_read is not None:
            parts.insert(0, f"as of {show(self.as_of_read)}, read from the question")
        if self.gamma is None and spread > 1e-9:
            parts.append(f"  less {spread:.5f}, because three or more rows of its thread come before it")
        return "\n".join(parts)

    def _line(self, leg: LegShare) -> str:
        name = leg.leg
        if self.context and name in ("lexical", "vector"):
            name += ", with its neighbours"  # so a row that matches no word has a value all the same
        if self.gamma is None:
            return f"  {name}: {leg.leg_score:.4f} × {leg.weight:g} adds {leg.added:.5f} (place {leg.rank + 1})"
        measures = {} if self.context else {"lexical": "BM25", "tags": "labels", "vector": "cosine"}
        return (
            f"  {name}: place {leg.rank + 1}, {measures.get(leg.leg, 'value')} {leg.leg_score:.4f}, "
            f"adds {leg.weight:g} / ({self.gamma:g} + {leg.rank}) = {leg.added:.5f}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The explanation as plain values."""
        read = None if self.as_of_read is None else self.as_of_read.isoformat()
        return {**asdict(self), "as_of_read": read}


@dataclass(frozen=True, slots=True, repr=False)
class Hit:
    """One record of an answer, in its place."""

    record: Record
    score: float
    """Fused score; 0 for a row that no leg matched."""
    matched: bool
    """Whether any leg found the record; False for rows that only fill places."""
    explanation: Explanation

    @property
    def row_id(self) -> int:
        """Row id of the record."""
        return self.record.row_id

    @property
    def via(self) -> Via:
        """What brought the record into the answer: score, recency or fill."""
        return self.explanation.via

    def __repr__(self) -> str:
        text = self.record.text if len(self.record.text) <= 60 else self.record.text[:59] + "…"
        return f"<Hit row {self.row_id}, {show(self.record.occurred_at)}, score {self.score:.5f}: {text!r}>"

    def explain(self) -> Explanation:
        """Rank in each leg, what each added to the score, and whether a recency slot brought it."""
        return self.explanation
