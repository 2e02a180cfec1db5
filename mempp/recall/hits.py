"""A hit: a record of the answer that can explain itself."""

from dataclasses import asdict, dataclass
from typing import Any

from mempp.dates import show
from mempp.recall.slots import Via
from mempp.records import Record


@dataclass(frozen=True, slots=True)
class LegShare:
    """What one leg did for a hit."""

    leg: str
    """lexical, tags or vector."""
    rank: int
    """Place in the leg's list, from 0."""
    leg_score: float
    """The leg's own score: BM25, cosine similarity, or number of matching labels."""
    weight: float
    added: float
    """weight / (γ + rank): its part of the fused score."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a record is in the answer; `str()` of it is for people, `as_dict()` for programs."""

    row_id: int
    score: float
    via: Via
    """"score": among the best by fused score; "recency": a recency slot; "fill": unmatched, ingested most recently."""
    gamma: float
    legs: tuple[LegShare, ...]

    def __str__(self) -> str:
        measures = {"lexical": "BM25", "tags": "labels", "vector": "cosine"}
        parts = [
            f"  {leg.leg}: rank {leg.rank} of 0, 1, …, {measures[leg.leg]} {leg.leg_score:.4f}, "
            f"adds {leg.weight:g} / ({self.gamma:g} + {leg.rank}) = {leg.added:.5f}"
            for leg in self.legs
        ]
        reasons = {
            "score": "among the best by fused score",
            "recency": "recency slot: one of the latest-dated of the remaining matches",
            "fill": "matched by no leg; fills a place as the most recently ingested in scope",
        }
        return "\n".join([f"score {self.score:.5f}, {reasons[self.via]}", *parts])

    def as_dict(self) -> dict[str, Any]:
        """The explanation as plain values."""
        return asdict(self)


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
