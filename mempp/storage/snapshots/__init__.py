"""Snapshot and restore: a copy of a store as it stood at one commit. docs/snapshots.md tells users, and the format.

capture        what a store holds at one commit, while others write; read and checked
manifest       snapshot.json: every file with size and SHA-256; names
archive        the one kind of tar file that is written and read
places         where a snapshot lies: a local disk, or a filesystem of pyarrow or fsspec
write, restore
"""

from mempp.storage.snapshots.restore import RestoreReport, restore_snapshot
from mempp.storage.snapshots.write import SnapshotReport, write_snapshot

__all__ = ["RestoreReport", "SnapshotReport", "restore_snapshot", "write_snapshot"]
