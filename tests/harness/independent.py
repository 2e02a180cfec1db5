"""A reader of stores after docs/log-format.md, on pyarrow, json, hashlib and zlib alone: nothing of mempp is used here.

It reads a store that nobody is writing. What it finds wrong it raises as `Wrong`.

    python independent.py STORE      prints rows, entries, torn bytes and the head digest
"""

import hashlib
import json
import re
import struct
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MAGIC = b"\x93M++FRM\n"
HEADER = struct.Struct("<8sHHIQqQ32sII")
KINDS = {"document", "supersede", "archive", "retract", "reinstate", "annotate", "encoder"}
ENTRIES, VECTORS = 1, 2
LOOSE = 256


class Wrong(Exception):  # noqa: N818
    """The store is not what docs/log-format.md says."""


@dataclass
class Contents:
    """What a store holds. `torn` counts the bytes at its end that are no whole commit."""

    store_id: str
    entries: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    sealed: int = 0
    torn: int = 0

    @property
    def head(self) -> str:
        return self.digests[-1].hex()

    def take(self, entry: dict[str, Any], data: bytes) -> None:
        """Append one entry, its numbers checked."""
        sequence = len(self.entries)
        check(entry["sequence"] == sequence, f"entry {sequence} is numbered {entry['sequence']}")
        check(entry["kind"] in KINDS, f"entry {sequence} is of the kind {entry['kind']!r}")
        if self.entries:
            check(entry["ingested_at"] >= self.entries[-1]["ingested_at"], f"the stamp of entry {sequence} goes back")
        if entry["kind"] == "document":
            check(entry["row_id"] == len(self.rows), f"entry {sequence} has the row id {entry['row_id']}")
            self.rows.append(entry)
        else:
            for spoken_of in (entry.get("row_id"), entry.get("related_row")):
                check(spoken_of is None or spoken_of < len(self.rows), f"entry {sequence} speaks of row {spoken_of}")
        self.entries.append(entry)
        self.digests.append(hashlib.sha256(self.digests[-1] + data).digest())

    def commits(self) -> list[list[dict[str, Any]]]:
        """The entries, commit by commit."""
        commits: dict[int, list[dict[str, Any]]] = {}
        for entry in self.entries:
            commits.setdefault(entry["ingested_at"], []).append(entry)
        return list(commits.values())


def read(store: Path) -> Contents:
    """The whole log of a store, its chain recomputed from the first entry on."""
    manifest = json.loads((store / "store.json").read_bytes())
    checksum = manifest.pop("checksum")
    check(crc_of_json(manifest) == checksum, "store.json does not match its checksum")
    check((manifest["format"], manifest["version"]) == ("mempp", 1), f"store.json tells {manifest}")
    contents = Contents(manifest["store_id"])
    contents.digests.append(hashlib.sha256(b"mempp log 1\n" + contents.store_id.encode()).digest())
    read_segments(store / "log", contents)
    contents.sealed = len(contents.entries)
    read_journals(store / "journal", contents)
    return contents


def read_segments(directory: Path, contents: Contents) -> None:
    names = sorted(
        tuple(int(part) for part in match.groups())
        for match in (re.fullmatch(r"(\d{20})-(\d{20})\.parquet", path.name) for path in directory.iterdir())
        if match
    )
    while True:
        wanted = len(contents.entries)
        first, last = max(((a, b) for a, b in names if a <= wanted <= b), key=lambda name: name[1], default=(0, -1))
        if last < 0:
            check(all(a < wanted for a, _ in names), f"the segment with sequence {wanted} is missing")
            return
        read_segment(directory / f"{first:020d}-{last:020d}.parquet", first, last, contents)


def read_segment(path: Path, first: int, last: int, contents: Contents) -> None:
    table = pq.read_table(path, page_checksum_verification=True)
    footer = {k.decode(): v.decode() for k, v in table.schema.metadata.items() if k.startswith(b"mempp.")}
    checksum = footer.pop("mempp.checksum")
    check(crc_of_json(footer) == checksum, f"{path}: the footer does not match its checksum")
    check(footer["mempp.store"] == contents.store_id, f"{path} is of another store")
    check(table.num_rows == last - first + 1, f"{path} holds {table.num_rows} rows")
    check(footer["mempp.digest_before"] == contents.digests[first].hex(), f"{path} does not continue the chain")
    for name in ("ingested_at", "occurred_at"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(pa.int64()))
    for entry in table.to_pylist()[len(contents.entries) - first :]:
        kept = {key: value for key, value in entry.items() if value is not None and value != []}
        data = json.dumps(kept, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
        contents.take(kept, data)
    check(footer["mempp.digest_after"] == contents.head, f"{path}: the chain does not end as its footer tells")
    check(int(footer["mempp.first_row"]) + int(footer["mempp.rows"]) == len(contents.rows), f"{path}: its row count")


def read_journals(directory: Path, contents: Contents) -> None:
    names = sorted(int(path.stem) for path in directory.glob("*.journal"))
    following = [first for first in names if first >= contents.sealed]
    check(bool(following), f"there is no journal from sequence {contents.sealed} on")
    for place, first in enumerate(following):
        path = directory / f"{first:020d}.journal"
        check(first == len(contents.entries), f"{path} does not begin where the log ended, at {len(contents.entries)}")
        data = path.read_bytes()
        offset = 0
        while (frame := whole_frame(data, offset)) is not None:
            content, count, sequence, stamp, digest, body, offset = frame
            check(content == ENTRIES and sequence == len(contents.entries), f"{path}: a frame that does not fit")
            lines = body.split(b"\n")
            check(len(lines) == count, f"{path}: {len(lines)} entries in a frame of {count}")
            for line in lines:
                entry = json.loads(line)
                check(entry["ingested_at"] == stamp, f"{path}: an entry with another stamp than its commit")
                contents.take(entry, line)
            check(digest == contents.digests[-1], f"{path}: the chain does not end as a frame tells")
        rest = data[offset:]
        check(not rest or place == len(following) - 1, f"{path} is damaged at {offset}")
        at = rest.find(MAGIC, 1)
        while at >= 0:
            loose = len(rest) > at + 11 and rest[at + 11]
            check(
                bool(loose) or whole_frame(rest, at) is None, f"{path} is damaged at {offset}: a whole commit follows"
            )
            at = rest.find(MAGIC, at + 1)
        contents.torn = len(rest)


def whole_frame(data: bytes, offset: int) -> tuple[int, int, int, int, bytes, bytes, int] | None:
    """Content, count, sequence, stamp, digest, body and end of the frame at an offset; None when none is whole."""
    start = offset + HEADER.size
    if len(data) < start or not data.startswith(MAGIC, offset):
        return None
    _, version, content, count, sequence, stamp, length, digest, body_crc, crc = HEADER.unpack_from(data, offset)
    if zlib.crc32(data[offset : start - 4]) != crc:
        return None
    check(version == 1, f"a frame of version {version}")
    body = data[start : start + length]
    if len(body) != length or zlib.crc32(body) != body_crc:
        return None
    return content & ~LOOSE, count, sequence, stamp, digest, body, start + length


def read_vectors(folder: Path, dimensions: int) -> dict[int, tuple[float, ...]]:
    """The vectors of one encoder, of the rows' heads (view 0), by row; of a journal, up to its first bad frame."""
    vectors: dict[int, tuple[float, ...]] = {}
    wanted = 0
    for path in sorted((folder / "segments").glob("*.parquet")):
        table = pq.read_table(path, page_checksum_verification=True)
        first, last = (int(part) for part in path.stem.split("-"))
        check(first <= wanted, f"{path}: the vectors from {wanted} on are missing")
        columns = (table[name].to_pylist() for name in ("row_id", "view", "vector"))
        for row, view, vector in zip(*columns, strict=True):
            if view == 0:
                vectors[row] = tuple(vector)
        wanted = max(wanted, last + 1)
    for path in sorted((folder / "journal").glob("*.journal")):
        if int(path.stem) < wanted:
            continue
        if int(path.stem) > wanted:
            break
        data, offset = path.read_bytes(), 0
        while (frame := whole_frame(data, offset)) is not None:
            content, count, _, _, _, body, offset = frame
            check(content == VECTORS, f"{path}: a frame that holds no vectors")
            check(struct.unpack_from("<I", body)[0] == dimensions, f"{path}: other dimensions")
            rows = struct.unpack_from(f"<{count}q", body, 44)
            views = struct.unpack_from(f"<{count}i", body, 44 + 8 * count)
            numbers = struct.unpack_from(f"<{count * dimensions}f", body, 44 + 12 * count)
            for place, (row, view) in enumerate(zip(rows, views, strict=True)):
                if view:
                    continue
                vectors[row] = numbers[place * dimensions : (place + 1) * dimensions]
            wanted += count
    return vectors


def crc_of_json(fields: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True, separators=(',', ':')).encode()):08x}"


def check(condition: bool, message: str) -> None:
    if not condition:
        raise Wrong(message)


if __name__ == "__main__":
    found = read(Path(sys.argv[1]))
    print(f"{len(found.rows)} rows, {len(found.entries)} entries, {found.torn} torn bytes, head {found.head}")
