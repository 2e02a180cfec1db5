"""The ablations of the paper's Table 4, and of Mem++'s own default. A row of `ABLATIONS` is in every table."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import mempp


@dataclass(frozen=True, slots=True)
class Ablation:
    """Mem++ with something changed."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """What it changes, as `--set` would: fields of `mempp.Settings`, options of the system `mempp`."""
    needs: str | None = None
    """A method of `mempp.Memory` without which it is not built yet."""


FULL = "Mem++"
ABLATIONS: Mapping[str, Ablation] = {
    FULL: Ablation(),
    "w/o vector leg": Ablation({"weight_vector": "0"}),
    "w/o lexical leg": Ablation({"weight_lexical": "0"}),
    "w/o tag leg": Ablation({"weight_tags": "0"}),
    "w/o context": Ablation({"context": "0"}),
    "w/o thread legs": Ablation({"weight_thread_lexical": "0", "weight_thread_vector": "0"}),
    "w/o windows": Ablation({"windows": "0"}),
    "w/o dates": Ablation({"weight_dates": "0"}),
    "w/o short names": Ablation({"names": "0"}),
    "w/o thread spread": Ablation({"thread_spread": "0"}),
    "w/o recency slots": Ablation({"recency_slots": "0"}),
    "rank fusion": Ablation({"fusion": "ranks"}),
    "packed by rank": Ablation({"packing": "skip"}),
    "w/ consolidation": Ablation({"consolidate": "1"}, needs="consolidate"),
    "w/ fact index": Ablation({"extract_facts": "1"}, needs="extract_facts"),
    "Mem^g++": Ablation({"extract_graph": "1"}, needs="extract_graph"),
}


def missing(ablation: Ablation) -> bool:
    """Whether this Mem++ does not have what the row needs."""
    return ablation.needs is not None and not hasattr(mempp.Memory, ablation.needs)
