"""Proof, copies and tidying of a store, as `Memory` offers them; a memory without a directory has none of it."""

from os import PathLike
from typing import Any

from mempp.errors import InputError
from mempp.storage import CompactReport, DiskStore, MemoryStore, Store, VerifyReport, compact_store, verify_store
from mempp.storage.snapshots import SnapshotReport, write_snapshot


def verify(store: Store, expect: str | None) -> VerifyReport:
    """Check the whole store on disk; see `verify_store`."""
    if isinstance(store, MemoryStore):
        return verify_store(store, expect=expect)
    return verify_store(_on_disk(store, "verified").path, expect=expect)


def snapshot(store: Store, target: str | PathLike[str], filesystem: Any, derived: bool) -> SnapshotReport:
    """Copy the store as it stands at one commit; see `write_snapshot`."""
    return write_snapshot(_on_disk(store, "copied"), target, filesystem=filesystem, derived=derived)


def compact(store: Store) -> CompactReport:
    """Merge small segments; see `compact_store`."""
    return compact_store(_on_disk(store, "compacted"))


def _on_disk(store: Store, what: str) -> DiskStore:
    if not isinstance(store, DiskStore):
        raise InputError(f"this memory has no directory, so nothing can be {what}; make it with mempp.open(path)")
    return store
