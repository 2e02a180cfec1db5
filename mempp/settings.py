"""How a question is answered: every number of the read path, its default, its environment variable, the presets."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args

from mempp.errors import InputError, quoted

LexicalMode = Literal["any", "all"]
DateRule = Literal["event", "ingest"]
Packing = Literal["threads", "skip", "stop"]
Fusion = Literal["scores", "ranks"]
EvidenceOrder = Literal["rank", "date"]
EvidenceStyle = Literal["plain", "tagged"]

MOST_CONTEXT = 20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the read path. A field that is not given is taken from the next layer.

    Layers, first one wins: an argument of the call, `settings=` of the call, `settings=` of `open()`, the environment
    (`MEMPP_K`, `MEMPP_WEIGHT_VECTOR`, … in capitals), the default below. `Settings(k=5)` gives `k` and nothing else.
    """

    k: int = 24
    """How many hits an answer has at most."""
    fusion: Fusion = "scores"
    """Whether the legs are joined by the weighted sum of their values, or by reciprocal rank fusion ("ranks")."""
    weight_lexical: float = 1.5
    """Weight of the lexical leg in the fusion; 0 turns it off, and that of the thread's words with it."""
    weight_tags: float = 0.3
    """Weight of the tag leg (authors and tags named in the question); 0 turns it off."""
    weight_vector: float = 1.0
    """Weight of the vector leg; 0 turns it off, and that of the thread's vectors: then no question is embedded."""
    weight_thread_lexical: float = 0.5
    """Weight of the words of a row's thread as a whole; needs `context`."""
    weight_thread_vector: float = 0.75
    """Weight of the best vector in a row's thread; needs `context`."""
    weight_dates: float = 0.4
    """Weight of dates named in the question, held against event dates and dates that the texts name."""
    weight_facts: float = 0.0
    """Weight of the fact cards (see `Memory.extract_facts`) whose words the question has; 0 turns them off."""
    context: int = 2
    """How many neighbours in the thread, before and after, a row is scored with; 0: every row stands alone. At most
    20; 1 to 5 are within 0.01 of each other, and beyond 3 recall@5 falls."""
    windows: bool = True
    """Whether the vectors of a long document's windows count, or that of its head alone."""
    names: bool = True
    """Whether authors are known by the short forms of their names too ("Ethan", "A. Patel")."""
    candidates: int = 150
    """C: how many rows each index brings in at most; never fewer than k with `fusion="scores"`."""
    gamma: float = 60.0
    """γ of reciprocal rank fusion, score = Σ weight / (γ + rank), ranks from 0; with `fusion="scores"`, the default, it
    does nothing."""
    lexical_mode: LexicalMode = "any"
    """Whether a row must hold any content word of the question, or all of them."""
    thread_spread: float = 0.03
    """What the fourth row of one thread, and again each after it, loses of its score, so that others have a place."""
    recency_slots: int | None = None
    """s: how many of the k hits are kept for the latest-dated matches; None means min(3, k // 4)."""
    recency_floor: float = 0.9
    """A recency slot is only for a row with at least this share of the best score; 0: for any match."""
    ties: DateRule = "event"
    """Equal scores: the later event date first (undated last), or the row ingested later first."""
    undated: DateRule = "event"
    """In the recency slots an undated row counts as oldest ("event"), or as dated by its ingest time ("ingest")."""
    fill: bool = False
    """Whether hits fewer than k are filled up with unmatched rows in scope, most recently ingested first."""
    packing: Packing = "threads"
    """Evidence in a budget: threads as wholes, the best per character first ("threads"); rows in their order, passing
    over one that does not fit ("skip"), or ending at it ("stop")."""
    evidence_order: EvidenceOrder = "rank"
    """How records stand in the evidence: by rank, or by event date, so that a story unfolds."""
    exact: bool = False
    """Whether the vector leg finds the nearest rows for certain: without an HNSW index, and also for a question that is
    near to nothing, where it otherwise goes by what is usual among the best."""
    given: frozenset[str] = field(init=False, repr=False, compare=False)
    """The names of the fields that were given, and so win over the layers below."""

    def __new__(cls, **values: object) -> "Settings":
        """Note which fields are given; the dataclass itself sees only values."""
        self = object.__new__(cls)
        object.__setattr__(self, "given", frozenset(values))
        return self

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InputError: a value is out of its range or of a wrong type.
        """
        _whole("k", self.k, least=1)
        _whole("candidates", self.candidates, least=1)
        if self.recency_slots is not None:
            _whole("recency_slots", self.recency_slots, least=0)
        _whole("context", self.context, least=0)
        if self.context > MOST_CONTEXT:
            raise InputError(
                f"context must be at most {MOST_CONTEXT}, got {quoted(self.context)}; beyond 3 neighbours on each side "
                "it finds less"
            )
        for name in NAMES:
            if name.startswith("weight_"):
                _number(name, getattr(self, name), least=0.0, most=1e6)
        _number("thread_spread", self.thread_spread, least=0.0, most=1e6)
        _number("recency_floor", self.recency_floor, least=0.0, most=1.0)
        # The first rank is 0, so γ keeps the score finite.
        _number("gamma", self.gamma, least=1e-6, most=1e9)
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name in FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be True or False, got {quoted(getattr(self, name))}")

    @property
    def slots(self) -> int:
        """The number of recency slots that holds for this k."""
        return min(3, self.k // 4) if self.recency_slots is None else min(self.recency_slots, self.k)


_CHOICES: dict[str, tuple[str, ...]] = {
    "fusion": get_args(Fusion),
    "lexical_mode": get_args(LexicalMode),
    "ties": get_args(DateRule),
    "undated": get_args(DateRule),
    "packing": get_args(Packing),
    "evidence_order": get_args(EvidenceOrder),
}
NAMES = tuple(one.name for one in fields(Settings) if one.init)
"""The names of all settings."""
_OTHER_VARIABLES = {f"MEMPP_{name}" for name in ("CACHE", "DATA", "DEBUG", "ENCODER", "MODEL", "THOROUGH")}
"""Those that the encoders, the models, the command line, the benchmarks and the tests read."""
FLAGS = ("windows", "names", "fill", "exact")
"""Those that are True or False."""


def layered(*layers: Settings | None) -> Settings:
    """One whole Settings out of several: for each field the first layer that gives it, else the default."""
    values: dict[str, Any] = {}
    for layer in layers:
        if layer is None:
            continue
        if not isinstance(layer, Settings):
            raise InputError(f"settings must be a mempp.Settings, not {type(layer).__name__}: {quoted(layer)}")
        for name in layer.given:
            values.setdefault(name, getattr(layer, name))
    return Settings(**values)


def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings that the environment variables MEMPP_K, MEMPP_CONTEXT, … give; an empty one gives nothing.

    A variable MEMPP_… that is neither a setting nor read elsewhere, a misspelt one perhaps, is a warning.

    Raises:
        InputError: a variable does not hold a value of its kind.
    """
    environment = os.environ if environment is None else environment
    known = {f"MEMPP_{name.upper()}" for name in NAMES} | _OTHER_VARIABLES
    for variable in sorted(set(environment) - known):
        if variable.startswith("MEMPP_"):
            near = get_close_matches(variable, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            warnings.warn(f"the environment variable {variable} means nothing to mempp{meant}", stacklevel=2)
    values: dict[str, Any] = {}
    for name in NAMES:
        variable = f"MEMPP_{name.upper()}"
        text = environment.get(variable, "").strip()
        if text:
            values[name] = _parse(variable, name, text)
    for name, value in values.items():
        try:
            Settings(**{name: value})
        except InputError as error:
            raise InputError(f"the environment variable MEMPP_{name.upper()} is not usable: {error}") from None
    return Settings(**values)


def _parse(variable: str, name: str, text: str) -> object:
    if name in _CHOICES:
        return text.casefold()
    if name in FLAGS:
        meaning = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if text.casefold() not in meaning:
            raise InputError(f"the environment variable {variable} must be 1 or 0, got {quoted(text)}")
        return meaning[text.casefold()]
    try:
        return int(text) if name in ("k", "candidates", "context", "recency_slots") else float(text)
    except ValueError:
        raise InputError(f"the environment variable {variable} must be a number, got {quoted(text)}") from None


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number, got {quoted(value)}")
    if value < least:
        raise InputError(f"{name} must be at least {least}, got {quoted(value)}")


def _number(name: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InputError(f"{name} must be a number from {least:g} to {most:g}, got {quoted(value)}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Check that a value is one of a few texts.

    Raises:
        InputError: it is not.
    """
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {quoted(value)}")


def _paper(weight_vector: float, candidates: int, lexical_mode: LexicalMode) -> Settings:
    # Every field is given, so that neither the environment nor a better default ever changes a preset.
    return Settings(
        k=50,
        fusion="ranks",
        weight_lexical=1.0,
        weight_tags=1.0,
        weight_vector=weight_vector,
        weight_thread_lexical=0.0,
        weight_thread_vector=0.0,
        weight_dates=0.0,
        weight_facts=0.0,
        context=0,
        windows=False,
        names=False,
        candidates=candidates,
        gamma=60.0,
        lexical_mode=lexical_mode,
        thread_spread=0.0,
        recency_slots=3,
        recency_floor=0.0,
        ties="ingest",
        undated="ingest",
        fill=True,
        packing="stop",
        evidence_order="rank",
        exact=False,
    )


PRESETS: Mapping[str, Settings] = {
    "orgmembench": _paper(weight_vector=4.0, candidates=50, lexical_mode="all"),
    "locomo": _paper(weight_vector=2.0, candidates=200, lexical_mode="any"),
    "longmemeval": _paper(weight_vector=4.0, candidates=50, lexical_mode="all"),
}
"""The paper's Table 6 with its fixed numbers: k = 50, γ = 60, three recency slots."""


def preset(name: str) -> Settings:
    """The paper's settings for one benchmark: "orgmembench", "locomo" or "longmemeval".

    Raises:
        InputError: there is no preset of this name.
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise InputError(f"there is no preset {quoted(name)}; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]
