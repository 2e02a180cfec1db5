"""The record on disk: one append-only log of entries, and the vectors of its rows. docs/log-format.md specifies it.

files, frames            system calls; how a commit lies in a journal
entries                  Entry, canonical bytes, hash chain, numbering
codec, entry_codec       entries as frame bodies and as Parquet columns
journal, segments        the two kinds of files of a series
series                   following, recovering, appending, sealing
layout, lock             store.json and the folders; the commit lock
store, disk, memory_store, vectors      the protocols and the stores
survey, verify, verify_vectors, rescue  reading a store in whatever state it is: proof, and what is whole of damage
compact                  merging small segments
"""

from mempp.storage.compact import CompactReport, compact_store
from mempp.storage.disk import DiskStore, Sync, open_store
from mempp.storage.entries import (
    ANNOTATE,
    ARCHIVE,
    DOCUMENT,
    ENCODER,
    KINDS,
    REINSTATE,
    RETRACT,
    SUPERSEDE,
    Entry,
    digest_of,
)
from mempp.storage.journal import TornTailWarning
from mempp.storage.memory_store import MemoryStore
from mempp.storage.rescue import DamageWarning
from mempp.storage.store import Store
from mempp.storage.survey import Problem
from mempp.storage.vectors import VectorBatch, VectorStore, check_identity
from mempp.storage.verify import VerifyReport, verify_store

__all__ = [
    "ANNOTATE",
    "ARCHIVE",
    "DOCUMENT",
    "ENCODER",
    "KINDS",
    "REINSTATE",
    "RETRACT",
    "SUPERSEDE",
    "CompactReport",
    "DamageWarning",
    "DiskStore",
    "Entry",
    "MemoryStore",
    "Problem",
    "Store",
    "Sync",
    "TornTailWarning",
    "VectorBatch",
    "VectorStore",
    "VerifyReport",
    "check_identity",
    "compact_store",
    "digest_of",
    "open_store",
    "verify_store",
]
