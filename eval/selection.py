"""Which questions of a benchmark are asked: all, a fraction, or so many, spread over collections and categories.

The benchmark is read once for this before anything is asked, so a damaged file ends a run before money is spent.
"""

import hashlib
import json
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.cases import Dataset
from eval.errors import DatasetError, UsageError


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen, as the command line says it."""

    limit: int | None = None
    fraction: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit must be at least 1, got {self.limit}")
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise UsageError(f"--fraction must be above 0 and at most 1, got {self.fraction:g}")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The questions that are asked, in the benchmark's order."""

    order: Mapping[str, int]
    """Question id → its place among the chosen."""
    by_collection: Mapping[str, frozenset[str]]
    of: int
    """How many questions the benchmark has."""
    digest: str
    """SHA-256 of the chosen ids."""

    def __len__(self) -> int:
        return len(self.order)


def choose(dataset: Dataset, data: Path, options: Mapping[str, str], selection: Selection) -> Chosen:
    """Read the benchmark through and choose.

    Raises:
        DatasetError: the data is damaged, a question's id stands twice, or there is no question.
    """
    asked: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    collections: set[str] = set()
    for collection in dataset.read(data, options):
        if collection.id in collections:
            raise DatasetError(f"the collection {collection.id!r:.80} of {dataset.name} stands twice")
        collections.add(collection.id)
        for case in collection.cases:
            if case.id in seen:
                raise DatasetError(f"the question id {case.id!r:.80} of {dataset.name} stands twice")
            seen.add(case.id)
            asked.append((case.id, collection.id, case.category))
    if not asked:
        raise DatasetError(f"{data.name or data} holds no question of {dataset.name}; it expects {dataset.expects}")
    kept = _spread(_part(asked, selection), selection.limit)
    if not kept:
        raise UsageError(
            f"--fraction {selection.fraction} leaves none of the {len(asked)} questions; take a larger one"
        )
    by_collection: dict[str, set[str]] = defaultdict(set)
    for case_id, collection_id, _ in kept:
        by_collection[collection_id].add(case_id)
    ids = [case_id for case_id, _, _ in kept]
    return Chosen(
        order={case_id: place for place, case_id in enumerate(ids)},
        by_collection={name: frozenset(chosen) for name, chosen in by_collection.items()},
        of=len(asked),
        digest=hashlib.sha256(json.dumps(ids).encode()).hexdigest(),
    )


def _part(asked: Sequence[tuple[str, str, str]], selection: Selection) -> list[tuple[str, str, str]]:
    if selection.fraction is None:
        return list(asked)
    # By a hash of the id: a question is in or out whatever else the benchmark holds, and a larger fraction holds
    # a smaller one.
    least = selection.fraction * 2**64
    return [one for one in asked if _hash(selection.seed, one[0]) < least]


def _hash(seed: int, case_id: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{case_id}".encode()).digest()[:8], "big")


def _spread(asked: list[tuple[str, str, str]], limit: int | None) -> list[tuple[str, str, str]]:
    """The first so many, taken from the categories in turn and each time from the collection least taken from."""
    if limit is None or limit >= len(asked):
        return asked
    waiting: dict[str, dict[str, deque[int]]] = {}
    for place, (_, collection, category) in enumerate(asked):
        waiting.setdefault(category, {}).setdefault(collection, deque()).append(place)
    taken: Counter[str] = Counter()
    chosen: list[int] = []
    while len(chosen) < limit:
        for category in list(waiting):
            if len(chosen) == limit:
                break
            collections = waiting[category]
            name = min(collections, key=lambda one: (taken[one], collections[one][0]))
            chosen.append(collections[name].popleft())
            taken[name] += 1
            if not collections[name]:
                del collections[name]
            if not collections:
                del waiting[category]
    return [asked[place] for place in sorted(chosen)]
