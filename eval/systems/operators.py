"""What a language model adds to Mem++: three options of the system `mempp`, off by default.

- `consolidate=1`: the record is consolidated once it is taken in.
- `facts=summary|atomic|agent`: fact cards are drawn from every document; `weight_facts` is then 1, unless it is set.
- `graph=1`: the entity graph is drawn (the paper's Mem^g++), and the evidence of every question ends with its triples,
  within the same budget; that takes one call for each question. `graph=undated` lets triples in whatever their dates,
  as in the paper.

`operator_model=NAME` names the model (by default that of MEMPP_MODEL), `operator_base_url=URL` a server of your own,
`operator_replies=FOLDER` where replies are kept, so that a run that is made again pays for them once.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mempp
from eval.errors import EvalError
from eval.systems.base import Json
from eval.systems.encoders import mempp_errors
from mempp.llm import ReplyCache

SWITCHES: Mapping[str, object] = {
    "consolidate": bool,
    "facts": Literal["none", "summary", "atomic", "agent"],
    "graph": Literal["0", "1", "undated"],
}
"""Option → its type; each turns an operator on."""
OPTIONS: Mapping[str, object] = {
    **SWITCHES,
    "operator_model": str | None,
    "operator_base_url": str | None,
    "operator_replies": str,
}
DEFAULTS: Mapping[str, Any] = {
    "consolidate": False,
    "facts": "none",
    "graph": "0",
    "operator_model": None,
    "operator_base_url": None,
    "operator_replies": "eval-replies",
}


WEIGHT_FACTS = 1.0
"""That of the cards' leg where cards are drawn and no other is set."""


def model_named(settings: Mapping[str, str]) -> bool:
    """Whether these settings, or the environment, name the model of the operators."""
    return bool(settings.get("operator_model", "").strip() or os.environ.get("MEMPP_MODEL", "").strip())


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators of a system, and the model that they ask."""

    switches: Mapping[str, Any]
    model: Any
    """A `mempp.llm.Model`; None where no operator is on."""
    base_url: str | None

    @staticmethod
    def of(values: Mapping[str, Any]) -> "Operators":
        """From the options of a system.

        Raises:
            EvalError: an operator is on and its model cannot be asked.
        """
        values = {**DEFAULTS, **values}
        switches = {name: values[name] for name in SWITCHES if values[name] != DEFAULTS[name]}
        if not switches:
            return Operators({}, None, None)
        with mempp_errors(f"--set {next(iter(switches))}=… (--set operator_model=NAME)", given=True):
            try:
                model = mempp.chat_model(
                    values["operator_model"],
                    base_url=values["operator_base_url"],
                    cache=ReplyCache(values["operator_replies"]),
                )
            except (mempp.InputError, mempp.ModelError) as error:
                # --base-url is that of the answering model here, and the operators have one of their own.
                told = str(error).replace("(base_url, --base-url)", "(--set operator_base_url=URL)")
                raise type(error)(told) from error
        return Operators(switches, model, values["operator_base_url"])

    @property
    def configuration(self) -> Mapping[str, Json]:
        """What settles what they do; nothing where none is on."""
        if not self.switches:
            return {}
        return {"operators": {**self.switches, "model": self.model.name, "base_url": self.base_url}}

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of a table must know."""
        told = {
            "consolidate": "consolidated: a merged row counts as every document that it stands for",
            "graph": "evidence ends with triples of the entity graph, within its budget; search times hold a call of a "
            "model, or the reading of its reply",
        }
        return tuple(note for name, note in told.items() if name in self.switches)

    @property
    def graph(self) -> mempp.GraphOptions | None:
        """How the graph is searched for a question; None where it is not."""
        how = self.switches.get("graph")
        return None if how is None else mempp.GraphOptions(undated=how == "undated")

    def prepare(self, memory: mempp.Memory) -> Mapping[int, Sequence[int]]:
        """Run them over a memory.

        Returns:
            merged row → the rows that it stands for, in the order in which they were merged.

        Raises:
            EvalError: calls failed. Those that succeeded are kept: another run asks only for the others.
            MemppError: no call can succeed.
        """
        merged: dict[int, Sequence[int]] = {}
        if "consolidate" in self.switches:
            report = memory.consolidate(model=self.model)
            _check("consolidation", [group.reason for group in report.groups if group.outcome == "failed"])
            merged = {
                group.row: group.rows
                for group in report.groups
                if group.outcome == "restatement" and group.row is not None
            }
        if "facts" in self.switches:
            drawn = memory.extract_facts(model=self.model, mode=self.switches["facts"])
            _check("fact cards", [one.reason for one in drawn.failed])
        if "graph" in self.switches:
            drawn = memory.build_graph(model=self.model)
            _check("entity graph", [one.reason for one in drawn.failed])
        return merged


def _check(what: str, reasons: Sequence[str | None]) -> None:
    """Refuse a record over which the model worked in part only."""
    if reasons:
        raise EvalError(
            f"{what}: {len(reasons)} calls failed ({reasons[0]}); run it again, and only these are asked for"
        )
