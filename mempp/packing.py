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
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from mempp.recall import Hit
from mempp.settings import Packing

SHARPNESS = 10.0
ALIKE = 0.9
"""Share of common runs of three words from which two texts of one day count as the same."""
_RUN = 3
_LONGEST_COMPARED = 200_000  # characters
_COMPARED_TOGETHER = 1_000_000  # characters of one answer; texts further down are taken for no repeats
_MOST_STEPS = 1_000_000  # runs looked at for one answer; what is left then is taken for no repeat


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
    room = _COMPARED_TOGETHER
    for place, hit in enumerate(hits):
        moment, length = hit.record.occurred_at, len(hit.record.text)
        if length <= min(_LONGEST_COMPARED, room):
            days.setdefault(None if moment is None else moment.date(), []).append(place)
            room -= length
    repeats: set[int] = set()
    steps = _MOST_STEPS
    for places in days.values():
        if len(places) > 1:
            found, steps = _repeating([_runs(hits[place].record.text) for place in places], steps)
            repeats |= {places[one] for one in found}
    return repeats


Runs = frozenset[tuple[str, ...]]


def _repeating(texts: Sequence[Runs], steps: int) -> tuple[set[int], int]:
    """Which of these texts are almost those of an earlier one that is none of them, and how many steps are left.

    Texts so alike share one of the first few of their runs in any one order (prefix filtering, Chaudhuri et al., 2006);
    in the order of rarity few others share those, however much of a form letter all have in common.
    """
    holders = Counter(chain.from_iterable(texts))
    kept: dict[tuple[str, ...], list[int]] = {}  # run → the texts that are kept and have it among their first
    repeating: set[int] = set()
    for place, runs in enumerate(texts):
        ordered = sorted(runs, key=lambda run: (holders[run], run))
        first = ordered[: len(runs) - math.ceil(ALIKE * len(runs) - 1e-6) + 1]
        others = {other: None for run in first for other in kept.get(run, ())}
        steps -= sum(len(kept.get(run, ())) for run in first)
        for other in others:
            if steps < 0:
                return repeating, steps
            steps -= min(len(runs), len(texts[other]))
            if _alike(runs, texts[other]):
                repeating.add(place)
                break
        else:
            for run in first:
                kept.setdefault(run, []).append(place)
    return repeating, steps


def _runs(text: str) -> Runs:
    words = text.casefold().split()
    if len(words) < _RUN:
        return frozenset([tuple(words)])
    return frozenset(zip(*(words[start:] for start in range(_RUN)), strict=False))


def _alike(one: Runs, other: Runs) -> bool:
    if not one or not other or min(len(one), len(other)) < ALIKE * max(len(one), len(other)):
        return False
    common = len(one & other)
    return common >= ALIKE * (len(one) + len(other) - common)
