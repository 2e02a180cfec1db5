"""What a system is to the harness: it takes the documents of a collection in, and retrieves for a question."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from eval.cases import Case, Collection

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """What taking a collection in cost."""

    documents: int
    seconds: float
    bytes_stored: int | None
    """Bytes that the system keeps on disk or, for systems in memory only, of texts and vectors; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One retrieved document in its place."""

    id: str
    score: float
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Leg → rank there, from 0; empty for systems without legs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an answering model would read within one budget of characters."""

    text: str
    shares: Mapping[str, float]
    """Document id → share of its text that stands in the evidence, above 0 up to 1; whole rows are 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """The answer of a system to one question."""

    ranked: tuple[Ranked, ...]
    """Documents, best first, each once."""
    evidence: Mapping[int, Evidence]
    """Budget in characters → evidence, for each budget asked."""
    seconds: float
    """Time of the search, rendering included, without any answering model."""


class Session(Protocol):
    """One collection, taken in."""

    @property
    def ingest(self) -> Ingest:
        """What taking it in cost."""
        ...

    def retrieve(self, case: Case, budgets: Sequence[int]) -> Retrieved:
        """Ranked documents and evidence for a question; as of `case.as_of` where the system can bound."""
        ...


class System(Protocol):
    """A memory, or what would be used instead of one. Adding one is a file in this folder with a `build`."""

    @property
    def name(self) -> str:
        """Its name in results and tables."""
        ...

    @property
    def configuration(self) -> Mapping[str, Json]:
        """Every setting that it runs with."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of a table must know, e.g. that the encoder reads only the head of a chunk."""
        ...

    def open(self, collection: Collection) -> AbstractContextManager[Session]:
        """Take a collection in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line gives a system; each takes what it knows."""

    k: int | None = None
    preset: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """`--set NAME=VALUE`: fields of `mempp.Settings`, or options of another system."""
    encoder: str = "minilm"
    """"minilm", "openai:MODEL", or the folder of a sentence-transformers ONNX export."""
    as_of: bool = True
    """Whether a question's as-of date bounds the search (`--no-as-of` turns it off)."""


Build = Callable[[str, Options], System]
"""(name as given, options) → the system. Raises EvalError, SystemUnavailableError."""
