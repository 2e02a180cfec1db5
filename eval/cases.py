"""The common form of every benchmark: collections of documents, and the questions asked of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalDocument:
    """One document of a collection, as a memory takes it in."""

    id: str
    """Its name in the benchmark; gold evidence names it. Unique in its collection."""
    text: str
    occurred_at: str | None = None
    """ISO 8601 event date or moment."""
    authors: tuple[str, ...] = ()
    thread: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facet:
    """One weighted part of a rubric."""

    text: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question with everything it is graded by."""

    id: str
    """Unique in the whole benchmark."""
    category: str
    text: str
    as_of: str | None = None
    """Event-time bound that the question carries; ISO 8601. A bare date means the end of that day."""
    asked_at: str | None = None
    """When the question is asked, if the benchmark says; told to the answering model. ISO 8601."""
    answers: tuple[str, ...] = ()
    """Gold answers, any of them right."""
    evidence: tuple[str, ...] = ()
    """Gold document ids; empty where the benchmark gives none, and then retrieval is not scored."""
    rubric: tuple[Facet, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    """Letter → text, for multiple choice; `answers` then holds the letter."""
    unanswerable: bool = False
    """Whether the right answer is that the record does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Documents that are one record, and the questions asked of it. Each collection has a memory of its own."""

    id: str
    documents: tuple[EvalDocument, ...]
    cases: tuple[Case, ...]


Options = Mapping[str, str]
"""Further options of a reader, from `--option NAME=VALUE`; a reader refuses those it does not know."""


class Files(Protocol):
    """The files that a reader reads; without the options, all that it might (several tiers, every task)."""

    def __call__(self, path: Path, options: Options | None = None, /) -> list[Path]:
        """Those below the path that `--data` names. Raises DatasetError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A benchmark that can be read: who made it, where it is to be had, and the reader of its original files."""

    name: str
    title: str
    where: str
    """Where the files are to be had."""
    licence: str
    size: str
    """How much it is, in documents and questions and megabytes."""
    expects: str
    """Which file or folder `--data` names."""
    categories: Mapping[str, str]
    """Category → its name in the paper's table, in the order of the table."""
    read: Callable[[Path, Options], Iterator[Collection]]
    """Read lazily, collection by collection. Raises DatasetError naming file and position."""
    files: Files
    """The files that `read` reads, for the digest in the result."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Option → what it does."""
    judge: str = "binary"
    """How an answer is judged: "binary", "rubric", "longmemeval" (by question type) or "choice" (no model)."""
