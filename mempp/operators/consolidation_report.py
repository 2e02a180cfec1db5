"""What a call of `consolidate` found and did."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from mempp.llm import Usage

Outcome = Literal["conflict", "restatement", "distinct", "failed", "left", "waiting"]
"""What became of a group. conflict, restatement, distinct: its label. failed: a call failed, and may succeed another
time. left: it is too long to be sent, a reply was of no use, or a row changed its state meanwhile. waiting: its turn
did not come, since a limit was reached, a call before it failed, or nothing was to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group of two or more rows, and what became of it."""

    rows: tuple[int, ...]
    """Row ids, ascending; the others are near the first."""
    outcome: Outcome
    row: int | None = None
    """conflict: the row that stays current; restatement: the merged row."""
    reason: str | None = None
    """Of a group that failed or was left: why."""
    too_long: bool = False
    """Whether it was left because it is too long to be sent: the next call cannot ask about it either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationReport:
    """What a call of `consolidate` found and did."""

    run_id: str | None
    """What `undo` takes; None where nothing was written."""
    finished: bool
    """Whether all is done; if not, the next call goes on with the same run."""
    dry_run: bool
    candidates: int
    """Rows that were compared with one another at the beginning."""
    without_vector: int
    """Rows that were not, because they have no vector yet; `embed()` makes it."""
    groups: tuple[Group, ...]
    """The groups that were not known from before, pass by pass; of a dry run, those of the first pass."""
    undone: tuple[tuple[int, ...], ...] = ()
    """Groups that stayed as they are because an undone run had changed the very same rows; see `again`."""
    asked: int
    """Calls of the model that were made."""
    cached: int
    """Replies that were there from earlier calls."""
    usage: Usage
    """Tokens of the calls that were made; of a dry run an estimate, if every group takes two calls."""
    cost: float | None
    """US dollars of these by list prices; None where the price is not known, or a dry run names no model."""
    stopped: str | None
    """The limit that was reached, if one was."""

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many groups had each outcome."""
        return {one: len(self._of(one)) for one in get_args(Outcome)}

    @property
    def failed(self) -> tuple[Group, ...]:
        """The groups that failed or were left, each with its reason; their rows are untouched."""
        return tuple(group for group in self.groups if group.outcome in ("failed", "left"))

    @property
    def superseded(self) -> tuple[int, ...]:
        """Rows that were marked as superseded."""
        return tuple(row for group in self._of("conflict") for row in group.rows if row != group.row)

    @property
    def archived(self) -> tuple[int, ...]:
        """Rows that were archived into a merged row."""
        return tuple(row for group in self._of("restatement") for row in group.rows)

    @property
    def merged(self) -> tuple[int, ...]:
        """The merged rows that were added."""
        return tuple(group.row for group in self._of("restatement") if group.row is not None)

    @property
    def calls_at_most(self) -> int:
        """Calls that the waiting groups may take at most, those whose replies are kept included: two each."""
        return 2 * len(self._of("waiting"))

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            **asdict(self),
            "counts": self.counts,
            "superseded": self.superseded,
            "archived": self.archived,
            "merged": self.merged,
            "calls_at_most": self.calls_at_most,
        }

    def _of(self, outcome: Outcome) -> list[Group]:
        return [group for group in self.groups if group.outcome == outcome]
