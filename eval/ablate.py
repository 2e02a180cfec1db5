"""The ablations of the paper's Table 4, and of Mem++'s own default. A row of `ABLATIONS` is in every table."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from eval.systems.base import Options
from eval.systems.operators import model_named


@dataclass(frozen=True, slots=True)
class Ablation:
    """Mem++ with something changed."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """What it changes, as `--set` would: fields of `mempp.Settings`, options of the system `mempp`."""
    asks_model: bool = False
    """Whether a language model works over the record first; see `eval.systems.operators`."""


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
    "w/ consolidation": Ablation({"consolidate": "1"}, asks_model=True),
    "w/ fact index": Ablation({"facts": "atomic"}, asks_model=True),
    "Mem^g++": Ablation({"graph": "1"}, asks_model=True),
}


def missing(ablation: Ablation, options: Options) -> str | None:
    """What is missing for a row, given the options of the command; None where nothing is."""
    if ablation.asks_model and not model_named(options.settings):
        return "needs a model (--set operator_model=NAME)"
    if "consolidate" in ablation.settings and options.encoder == "none":
        return "compares vectors, and there is no encoder"
    return None
