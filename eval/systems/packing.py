"""Pieces of documents, packed whole and in order into a budget of characters: evidence for systems without their own.

The form is that of the "plain" evidence of Mem++, so that answers differ by what was found and not by how it is shown.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eval.errors import EvalError
from eval.systems.base import Evidence

BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class Part:
    """Where the text of a document stands in a block."""

    id: str
    start: int
    """First character in the block's text."""
    end: int
    """Behind the last one."""


@dataclass(frozen=True, slots=True)
class Block:
    """What is packed whole: a heading, and a text that is made of parts of documents."""

    heading: str
    text: str
    parts: tuple[Part, ...]


def check_budgets(budgets: Sequence[int]) -> None:
    """Check the budgets.

    Raises:
        EvalError: one is below 1.
    """
    for budget in budgets:
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
            raise EvalError(f"a budget of evidence must be a whole number of characters from 1, got {budget!r}")


def pack(blocks: Iterable[Block], lengths: Mapping[str, int], budget: int, *, cut_last: bool = False) -> Evidence:
    """Pack blocks in order, up to the first that does not fit; the first is cut where it alone is larger.

    Args:
        blocks: best first; they are read no further than the budget goes.
        lengths: document id → characters of its whole text.
        budget: characters that the evidence has at most.
        cut_last: cut the block at which the budget ends, rather than leave it out.
    """
    texts: list[str] = []
    used = 0
    shown: dict[str, int] = defaultdict(int)
    for number, block in enumerate(blocks, start=1):
        between = BETWEEN if texts else ""
        head = f"{between}[{number}] {block.heading}".rstrip(" ") + "\n"
        room = budget - used - len(head)
        cut = len(block.text) > room
        if cut and texts and not cut_last:
            break
        text = block.text[: max(0, room)]
        texts.append((head + text)[: budget - used])
        used += len(texts[-1])
        for part in block.parts:
            shown[part.id] += max(0, min(part.end, len(text)) - part.start)
        if cut:
            break
    shares = {name: characters / lengths[name] for name, characters in shown.items() if characters}
    return Evidence(text="".join(texts), shares=shares)
