"""In which order hits are packed into a budget of characters.

Evidence should hold what answers the question, not merely what ranks first: whole threads that matter, and more of the
short ones. Each hit has a weight that falls with its score, and a thread is worth the weights of its hits over the
characters that they cost:

    weight(r) = exp(SHARPNESS · (score(r) - best score) / best score)
    worth(thread) = Σ weight(r) / Σ cost(r)

Threads are packed by worth, each with its hits by rank: greedy for the knapsack. A hit without a thread is one of its
own. What repeats a hit of the same day almost word for word waits until everything else had its turn.
"""

import math
from collections.abc import Sequence

from mempp.recall import Hit
from mempp.settings import Packing

SHARPNESS = 10.0
ALIKE = 0.9
"""Share of common runs of three words from which two texts of one day count as the same."""
_RUN = 3
_LONGEST_COMPARED = 200_000  # characters


def packing_order(hits: Sequence[Hit], costs: Sequence[int], max_chars: int, packing: Packing) -> list[int]:
    """The places of the hits in the order in which they are packed.

    Args:
        hits: an answer, best first.
        costs: what each hit takes of the budget, in characters.
        max_chars: the budget; recency slots have room in up to half of it.
        packing: as in `mempp.Settings`; "stop" leaves the hits in their order.
    """
    places = list(range(len(hits)))
    if packing == "stop":
        return places
    if packing == "threads":
        places = _by_worth(hits, costs)
    reserved: list[int] = []
    room = max_chars // 2
    for place, hit in enumerate(hits):
        if place and hit.via == "recency" and (costs[place] <= room or not reserved):
            reserved.append(place)
            room -= costs[place]
    # The best hit comes in whatever the others are worth.
    ordered = list(dict.fromkeys([0, *reserved, *places]))
    repeats = _repeats(hits)
    return [place for place in ordered if place not in repeats] + [place for place in ordered if place in repeats]


def _by_worth(hits: Sequence[Hit], costs: Sequence[int]) -> list[int]:
    best = max(hit.score for hit in hits)
    threads: dict[object, list[int]] = {}
    for place, hit in enumerate(hits):
        thread = hit.record.thread
        threads.setdefault(("row", place) if thread is None else ("thread", thread), []).append(place)
    worth: dict[int, float] = {}
    for places in threads.values():
        weights = [
            math.exp(SHARPNESS * (hits[place].score - best) / best) if best > 0 and hits[place].matched else 0.0
            for place in places
        ]
        worth |= dict.fromkeys(places, sum(weights) / sum(costs[place] for place in places))
    # A thread has the place of its best hit among threads of equal worth.
    first = {place: places[0] for places in threads.values() for place in places}
    return sorted(range(len(hits)), key=lambda place: (-worth[place], first[place], place))


def _repeats(hits: Sequence[Hit]) -> set[int]:
    """The places whose text repeats, almost word for word, that of an earlier place of the same day."""
    days: dict[object, list[int]] = {}
    for place, hit in enumerate(hits):
        moment = hit.record.occurred_at
        if len(hit.record.text) <= _LONGEST_COMPARED:
            days.setdefault(None if moment is None else moment.date(), []).append(place)
    repeats: set[int] = set()
    for places in days.values():
        if len(places) < 2:
            continue
        # Texts so alike share one of the first few of their runs in any order, so that not all pairs need a look.
        kept: dict[tuple[str, ...], list[frozenset[tuple[str, ...]]]] = {}
        for place in places:
            runs = _runs(hits[place].record.text)
            first = sorted(runs)[: len(runs) - math.ceil(ALIKE * len(runs) - 1e-6) + 1]
            if any(_alike(runs, other) for run in first for other in kept.get(run, ())):
                repeats.add(place)
                continue
            for run in first:
                kept.setdefault(run, []).append(runs)
    return repeats


def _runs(text: str) -> frozenset[tuple[str, ...]]:
    words = text.casefold().split()
    if len(words) < _RUN:
        return frozenset([tuple(words)])
    return frozenset(zip(*(words[start:] for start in range(_RUN)), strict=False))


def _alike(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> bool:
    if not one or not other or min(len(one), len(other)) < ALIKE * max(len(one), len(other)):
        return False
    common = len(one & other)
    return common >= ALIKE * (len(one) + len(other) - common)
