"""What an index answers, and how the best rows are picked."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Allowed: TypeAlias = NDArray[np.bool_]
"""The scope of a question: `allowed[row_id]` is true for each row that it may see."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Row ids, best first, and their scores.

    Attributes:
        row_ids: distinct row ids, shape (n,).
        scores: scores in the same order, shape (n,), never increasing. Rows of equal rank keys stand later row first.
    """

    row_ids: NDArray[np.int64]
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.row_ids)

    @staticmethod
    def empty() -> "Ranking":
        """The ranking of no rows."""
        return Ranking(np.empty(0, np.int64), np.empty(0, np.float64))


def best_positions(row_ids: NDArray[np.int64], keys: tuple[NDArray[np.float64], ...], limit: int) -> NDArray[np.intp]:
    """Positions of the best rows: by the first key, then the next ones (all descending), then the later row.

    Exact however many rows are tied, and linear in their number: each key in turn admits what is surely in and passes
    on only the rows tied at the border.

    Args:
        row_ids: distinct row ids in any order, shape (n,).
        keys: arrays of shape (n,) without NaN.
        limit: how many positions at most.
    """
    if limit <= 0 or len(row_ids) == 0:
        return np.empty(0, np.intp)
    chosen: list[NDArray[np.intp]] = []
    border = np.arange(len(row_ids), dtype=np.intp)
    wanted = limit
    for key in (*keys, row_ids):
        if len(border) <= wanted:
            break
        values = key[border]
        cut = np.partition(values, len(values) - wanted)[len(values) - wanted]
        above = border[values > cut]
        chosen.append(above)
        wanted -= len(above)
        border = border[values == cut]
    chosen.append(border)
    positions = np.concatenate(chosen)
    order = np.lexsort((-row_ids[positions], *(-key[positions] for key in reversed(keys))))
    best: NDArray[np.intp] = positions[order][:limit]
    return best
