"""Mem++: non-destructive memory for LLM agents over an organisation's record, in one process.

    import mempp

    with mempp.open("acme.mempp") as memory:
        memory.add("Board approved Vendor B.", occurred_at="2025-03-27", author="board", tags=["vpn"])
        hits = memory.recall("Which VPN vendor do we use?", as_of="2024-06-01")

Importing this module is cheap: NumPy, Arrow, Tantivy and the encoders load when a memory is first opened.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from typing import TYPE_CHECKING, Any

from mempp.dates import DateLike
from mempp.errors import (
    CostLimitError,
    EncoderError,
    EncoderMismatchError,
    EncoderUnavailableError,
    InputError,
    InvalidDateError,
    MemppError,
    ModelError,
    ModelReplyError,
    ModelRequestError,
    NotAStoreError,
    RowNotFoundError,
    StoreClosedError,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreVersionError,
    StoreWriteError,
)
from mempp.records import AddReport, Annotation, Document, Record, State
from mempp.settings import Settings, preset

if TYPE_CHECKING:
    from pathlib import Path

    from mempp.adding import Adding
    from mempp.asking import as_of_read
    from mempp.content_keys import Repeats
    from mempp.encoders import DirectoryEncoder, Encoder, EncoderIdentity, MiniLM, OpenAIEncoder
    from mempp.evidence import Evidence
    from mempp.history import Change, Changes, History
    from mempp.llm import chat_model
    from mempp.memory import Memory
    from mempp.operators.ask import Answer
    from mempp.operators.consolidation_report import ConsolidationReport
    from mempp.operators.extraction import ExtractionReport
    from mempp.operators.graph_search import GraphEvidence, GraphOptions, Triple
    from mempp.operators.undo import UndoReport
    from mempp.progress import Progress
    from mempp.recall import Explanation, Hit
    from mempp.reranking import CrossEncoder, Reranker, rerank
    from mempp.state_entries import Draft
    from mempp.statistics import Statistics
    from mempp.storage import CompactReport, DamageWarning, Sync, TornTailWarning, VerifyReport
    from mempp.storage.snapshots import RestoreReport, SnapshotReport

try:
    __version__ = version("mempp")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "AddReport",
    "Adding",
    "Annotation",
    "Answer",
    "Change",
    "Changes",
    "CompactReport",
    "ConsolidationReport",
    "CostLimitError",
    "CrossEncoder",
    "DamageWarning",
    "DirectoryEncoder",
    "Document",
    "Draft",
    "Encoder",
    "EncoderError",
    "EncoderIdentity",
    "EncoderMismatchError",
    "EncoderUnavailableError",
    "Evidence",
    "ExactSearchWarning",
    "Explanation",
    "ExtractionReport",
    "GraphEvidence",
    "GraphOptions",
    "History",
    "Hit",
    "InputError",
    "InvalidDateError",
    "Memory",
    "MemppError",
    "MiniLM",
    "ModelError",
    "ModelReplyError",
    "ModelRequestError",
    "NotAStoreError",
    "OpenAIEncoder",
    "Record",
    "Reranker",
    "RestoreReport",
    "RowNotFoundError",
    "Settings",
    "SnapshotReport",
    "State",
    "Statistics",
    "StoreClosedError",
    "StoreDamagedError",
    "StoreError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreVersionError",
    "StoreWriteError",
    "TornTailWarning",
    "Triple",
    "UndoReport",
    "VerifyReport",
    "as_of_read",
    "chat_model",
    "in_memory",
    "open",
    "preset",
    "rerank",
    "restore",
    "verify",
]

_LOADED_WHEN_USED = {
    "Adding": "mempp.adding",
    "Answer": "mempp.operators.ask",
    "Change": "mempp.history",
    "Changes": "mempp.history",
    "CompactReport": "mempp.storage",
    "ConsolidationReport": "mempp.operators.consolidation_report",
    "CrossEncoder": "mempp.reranking",
    "DamageWarning": "mempp.storage",
    "DirectoryEncoder": "mempp.encoders",
    "Draft": "mempp.state_entries",
    "Encoder": "mempp.encoders",
    "EncoderIdentity": "mempp.encoders",
    "Evidence": "mempp.evidence",
    "ExactSearchWarning": "mempp.indexes",
    "Explanation": "mempp.recall",
    "ExtractionReport": "mempp.operators.extraction",
    "GraphEvidence": "mempp.operators.graph_search",
    "GraphOptions": "mempp.operators.graph_search",
    "History": "mempp.history",
    "Hit": "mempp.recall",
    "Memory": "mempp.memory",
    "MiniLM": "mempp.encoders",
    "OpenAIEncoder": "mempp.encoders",
    "Reranker": "mempp.reranking",
    "RestoreReport": "mempp.storage.snapshots",
    "SnapshotReport": "mempp.storage.snapshots",
    "Statistics": "mempp.statistics",
    "TornTailWarning": "mempp.storage",
    "Triple": "mempp.operators.graph_search",
    "UndoReport": "mempp.operators.undo",
    "VerifyReport": "mempp.storage",
    "as_of_read": "mempp.asking",
    "chat_model": "mempp.llm",
    "rerank": "mempp.reranking",
}


def __getattr__(name: str) -> Any:
    if name in _LOADED_WHEN_USED:
        return getattr(import_module(_LOADED_WHEN_USED[name]), name)
    raise AttributeError(f"module 'mempp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def open(
    path: str | PathLike[str],
    *,
    read_only: bool = False,
    create: bool = True,
    encoder: "str | Path | Encoder | None" = None,
    settings: Settings | None = None,
    repeats: "Repeats" = "exact",
    exact_up_to: int = 1_000_000,
    lock_timeout: float = 30.0,
    sync: "Sync" = "commit",
    at: DateLike | int | None = None,
    allow_damaged: bool = False,
    progress: "Progress" = False,
) -> "Memory":
    """Open a store, or create it where there is none.

    Args:
        path: the directory of the store.
        read_only: write nothing, not even a lock; the store must exist.
        create: False refuses to create a store.
        encoder: "minilm", "openai", "openai:MODEL", a directory with an exported model, an Encoder, or "none" for
            a memory without vectors. Without it, the encoder that the store was made with; for a new store the
            environment variable MEMPP_ENCODER, else MiniLM.
        settings: how to rank where a call does not say.
        repeats: what `add` takes for a repeat. "exact": the same text, authors, event date and thread as a row in any
            state. "paper": the same text and authors as an active row.
        exact_up_to: number of vectors up to which no HNSW index is built, and a search is exact, but for a question
            that is near to nothing in scope: it finds nearly all of the nearest. See `Settings.exact`.
        lock_timeout: seconds to wait for another process's commit.
        sync: "commit": what `add` acknowledged is on the disk. "batch": at most once a second, which is faster; a power
            loss may take the commits of the last moments, whole ones, from the end. The death of the process takes
            nothing in either case.
        at: open the past, for reading only: the record as it stood at this moment (a date, of ingest time) or after
            the entry with this sequence number.
        allow_damaged: with `read_only`, read what is whole of a damaged store, for rescue. Rows that are lost are in no
            answer, and a warning names them.
        progress: shows the building of indexes that `cache/` does not hold, where that takes long. True: a line with
            rate and remaining time on stderr. A function: called with the number of rows done.

    Raises:
        NotAStoreError: the path holds something else, or nothing and `create` or `read_only` forbids to create.
        StoreVersionError: the store is of a newer format.
        StoreDamagedError: bytes of it are missing or altered.
        EncoderMismatchError: its vectors came from another encoder.
    """
    from mempp.engine import check_options
    from mempp.memory import Memory
    from mempp.storage import open_store

    encoder = check_options(encoder, settings, repeats, exact_up_to)  # before a store is made for nothing
    store = open_store(
        path,
        read_only=read_only or at is not None,
        create=create,
        lock_timeout=lock_timeout,
        sync=sync,
        allow_damaged=allow_damaged,
    )
    try:
        return Memory(
            store,
            encoder=encoder,
            settings=settings,
            repeats=repeats,
            exact_up_to=exact_up_to,
            progress=progress,
            at=at,
        )
    except BaseException:
        store.close()
        raise


def in_memory(
    *,
    encoder: "str | Path | Encoder | None" = None,
    settings: Settings | None = None,
    repeats: "Repeats" = "exact",
    exact_up_to: int = 1_000_000,
) -> "Memory":
    """A memory without a directory, gone when the process ends; for tests and evaluation. Arguments as in `open`."""
    from mempp.memory import Memory
    from mempp.storage import MemoryStore

    return Memory(MemoryStore(), encoder=encoder, settings=settings, repeats=repeats, exact_up_to=exact_up_to)


def restore(source: str | PathLike[str], to: str | PathLike[str], *, filesystem: Any = None) -> "RestoreReport":
    """Make a store of a snapshot. It appears at `to` whole and checked, or not at all.

    Args:
        source: the directory or the .tar file that `Memory.snapshot` made; a path or a URI.
        to: a directory that does not exist or is empty.
        filesystem: a filesystem of pyarrow.fs or fsspec; `source` is then a path on it.

    Raises:
        NotAStoreError: there is no snapshot at `source`, or `to` is not empty.
        StoreDamagedError: the snapshot is incomplete or altered; the message names the file.
        StoreVersionError: it is of a newer format.
        StoreError: it cannot be read, or `to` cannot be written.
    """
    from mempp.storage.snapshots import restore_snapshot

    return restore_snapshot(source, to, filesystem=filesystem)


def verify(path: str | PathLike[str], *, expect: str | None = None) -> "VerifyReport":
    """Check a whole store without opening it: the hash chain over every entry, every page, row ids, vectors.

    Args:
        path: the directory of the store.
        expect: a head digest that was kept elsewhere; the chain must have had it at some point. Only this shows that
            nothing was cut off the end.

    Raises:
        InputError: `expect` is no digest.
        NotAStoreError: there is no store at `path`.
        StoreVersionError: it is of a newer format.
        StoreError: a file cannot be read. What is damaged is told in the report.
    """
    from mempp.storage import verify_store

    return verify_store(path, expect=expect)
