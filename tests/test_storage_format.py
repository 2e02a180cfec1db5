"""docs/log-format.md says what the code does: its example, its tables, its program."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import struct
import subprocess
import sys
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from storage_tools import batch, commit, document

from mempp import errors
from mempp.cli import main
from mempp.storage import KINDS, DiskStore, Entry
from mempp.storage.disk import DEFAULT_SEAL_BYTES
from mempp.storage.entries import Position, canonical_bytes, parse_entry, prepare, start_position
from mempp.storage.entry_codec import SCHEMA
from mempp.storage.frames import Frame, encode_frame
from mempp.storage.segments import encode_segment

PAGE = (Path(__file__).parent.parent / "docs" / "log-format.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    found = re.findall(rf"<!-- example: {name} -->\n```\w*\n(.*?)\n```", PAGE, re.DOTALL)
    assert len(found) == 1, name
    return str(found[0])


def test_the_worked_example() -> None:
    lines = block("entries").split("\n")
    digests = [line.split()[1] for line in block("digests").split("\n")]
    header = bytes.fromhex(block("header"))
    # by the standard library alone
    digest = hashlib.sha256(b"mempp log 1\n0123456789abcdef0123456789abcdef").digest()
    assert digest.hex() == digests[0]
    for line, expected in zip(lines, digests[1:], strict=True):
        digest = hashlib.sha256(digest + line.encode()).digest()
        assert digest.hex() == expected
    body = "\n".join(lines).encode()
    start = struct.pack(
        "<8sHHIQqQ32sI", b"\x93M++FRM\n", 1, 1, 2, 0, 1796 * 10**12, len(body), digest, zlib.crc32(body)
    )
    assert header == start + struct.pack("<I", zlib.crc32(start))
    assert f"is {len(header) + len(body)} bytes long" in PAGE
    # by the code
    entries = [parse_entry(line.encode()) for line in lines]
    assert [canonical_bytes(entry).decode() for entry in entries] == lines
    numbered, bodies, after = prepare(entries, start_position("0123456789abcdef0123456789abcdef"), 1796 * 10**12)
    assert numbered == entries
    assert after == Position(2, 1, 1796 * 10**12, digest)
    frame = Frame(1, 2, 0, after.stamp, after.digest, b"\n".join(bodies))
    assert encode_frame(frame) == header + body


def test_every_kind_field_and_column_is_documented() -> None:
    documented = re.findall(r"^\| `(\w+)` \| `(?:row_id|payload)`", PAGE, re.MULTILINE)
    assert documented == list(KINDS)
    fields = PAGE.split("## Entries")[1].split("| kind |")[0]
    columns = PAGE.split("| column | Arrow type |")[1].split("Null stands")[0]
    for name in Entry.__dataclass_fields__:
        assert f"`{name}`" in fields
        assert f"`{name}`" in columns
    names = re.findall(r"`(\w+)`", columns)
    assert names == SCHEMA.names
    for row in columns.split("\n"):
        cells = [cell.strip() for cell in row.split("|")]
        for name in re.findall(r"`(\w+)`", row):
            field = SCHEMA.field(name)
            kind = "list<string>, element not null" if pa.types.is_list(field.type) else str(field.type)
            assert kind.replace("tz=", "") == cells[2]
            assert field.nullable == (cells[3] == "yes")


def test_every_footer_key_is_documented(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "s", seal_bytes=1)
    commit(store, document("a"))
    with store.writing():
        store.vectors("e", 4).append(batch(0, 1))
    paths = list((tmp_path / "s").rglob("*.parquet"))
    assert len(paths) == 2
    for path in paths:
        for key in pq.read_metadata(path).metadata:
            assert key == b"ARROW:schema" or f"`{key.decode()}`" in PAGE


def test_the_reader_reads(tmp_path: Path) -> None:
    program = tmp_path / "reader.py"
    program.write_text(block("reader"), encoding="utf-8")
    assert len(block("reader").split("\n")) <= 51
    store = DiskStore(tmp_path / "s", seal_bytes=1)
    for number in range(3):
        commit(store, document(f"text {number}", occurred_at=0 if number else None), Entry("retract", row_id=0))

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, program, tmp_path / "s"], capture_output=True, text=True, check=False, timeout=60
        )

    assert run().stdout == "0 None text 0\n1 1970-01-01 00:00:00+00:00 text 1\n2 1970-01-01 00:00:00+00:00 text 2\n"
    sorted((tmp_path / "s" / "log").iterdir())[1].unlink()
    failed = run()
    assert failed.returncode == 1
    assert "does not continue" in failed.stderr
    for path in (tmp_path / "s" / "log").iterdir():
        path.unlink()
    commit_after_loss = encode_frame(Frame(1, 1, 6, 0, bytes(32), b'{"kind":"retract","row_id":0,"sequence":6}'))
    next((tmp_path / "s" / "journal").iterdir()).write_bytes(commit_after_loss)
    assert "does not continue" in run().stderr


def test_merged_segments_are_read_as_specified(tmp_path: Path) -> None:
    """What a later compaction may do: one segment with the entries of two, beside them or instead of them."""
    path = tmp_path / "s"
    store = DiskStore(path, seal_bytes=1)
    written = [
        *commit(store, document("a"), document("b")),
        *commit(store, document("c")),
        *commit(store, document("d")),
    ]
    codec = store._log._codec
    start = start_position(store.store_id)
    after = Position(3, 3, written[2].ingested_at, codec.digest_after(written[:3], start.digest))
    (path / "log" / f"{0:020d}-{2:020d}.parquet").write_bytes(encode_segment(codec, written[:3], start, after))
    follower = DiskStore(path, read_only=True)
    assert follower.refresh() == written
    for first, last in ((0, 1), (2, 2)):
        (path / "log" / f"{first:020d}-{last:020d}.parquet").unlink()
    again = DiskStore(path, read_only=True)
    assert again.refresh() == written
    assert again.head_digest == follower.head_digest == store.head_digest
    # one that claims other entries in the same place is noticed by its successor
    forged = Position(3, 3, written[2].ingested_at, bytes(32))
    (path / "log" / f"{0:020d}-{2:020d}.parquet").write_bytes(encode_segment(codec, written[:3], start, forged))
    with pytest.raises(errors.StoreDamagedError, match="digest before the first entry"):
        DiskStore(path, read_only=True).refresh()


def test_the_footer_checksum_is_what_the_page_says(tmp_path: Path) -> None:
    commit(DiskStore(tmp_path / "s", seal_bytes=1), document("a"))
    (path,) = (tmp_path / "s" / "log").iterdir()
    footer = {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items()}
    del footer["ARROW:schema"]
    checksum = footer.pop("mempp.checksum")
    text = json.dumps(footer, sort_keys=True, separators=(",", ":"))
    assert checksum == f"{zlib.crc32(text.encode()):08x}"


def test_the_sql_reads_what_is_active(tmp_path: Path) -> None:
    import duckdb

    store = DiskStore(tmp_path / "s", seal_bytes=1)
    days = {day: int(datetime(2024, 5, day, tzinfo=UTC).timestamp() * 1_000_000) for day in (1, 2, 3)}
    commit(store, document("first", authors=("ann", "bo"), occurred_at=days[1]))
    commit(store, document("retracted", authors=("ann",), occurred_at=days[2]), Entry("retract", row_id=1))
    commit(store, document("back", authors=("ann",), occurred_at=days[3]), Entry("retract", row_id=2))
    commit(store, Entry("reinstate", row_id=2), document("undated", authors=("ann",)))
    sql = block("sql").replace("STORE", str(tmp_path / "s"))
    found = [(author, row, text) for author, _, row, text in duckdb.sql(sql).fetchall()]
    assert found == [("ann", 2, "back"), ("ann", 0, "first"), ("bo", 0, "first")]


def read(tmp_path: Path, *arguments: Path) -> str:
    """What the page's program prints."""
    program = tmp_path / "reader.py"
    program.write_text(block("reader"), encoding="utf-8")
    done = subprocess.run([sys.executable, program, *arguments], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.mark.parametrize("seal_bytes", [1 << 30, 700, 1], ids=["nothing sealed", "in part", "all"])
def test_reader_and_sql_read_a_store_whatever_is_sealed(tmp_path: Path, seal_bytes: int) -> None:
    import duckdb

    store = DiskStore(tmp_path / "s", seal_bytes=seal_bytes)
    may = int(datetime(2024, 5, 1, tzinfo=UTC).timestamp() * 1_000_000)
    commit(store, document("first", authors=("ann",), occurred_at=may), document("two\nlines"))
    commit(store, Entry("retract", row_id=0), document("in\u2028June", authors=("bo",), occurred_at=may + 1))
    commit(store, document("last", authors=("ann",), occurred_at=may, metadata='{"a":1}'))
    segments = len(list((tmp_path / "s" / "log").iterdir()))
    assert segments == {1 << 30: 0, 700: 1, 1: 3}[seal_bytes]
    day = "2024-05-01 00:00:00"
    shown = f"0 {day}+00:00 first\n1 None two\nlines\n2 {day}.000001+00:00 in\u2028June\n3 {day}+00:00 last\n"
    assert read(tmp_path, tmp_path / "s") == shown
    assert read(tmp_path, tmp_path / "s", tmp_path / "entries.parquet") == ""
    table = pq.read_table(tmp_path / "entries.parquet")
    assert sorted(table.column_names) == sorted(SCHEMA.names)
    assert table.column("sequence").to_pylist() == list(range(5))
    assert table.column("metadata").to_pylist()[-1] == '{"a":1}'
    sql = block("sql").replace("STORE/log/*.parquet", str(tmp_path / "entries.parquet"))
    assert [row[2] for row in duckdb.sql(sql).fetchall()] == [3, 2]


def test_when_there_is_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size that the page names, and its command for a store of which nothing is sealed."""
    assert f"leaves it at {DEFAULT_SEAL_BYTES >> 20} MiB or more" in PAGE
    monkeypatch.chdir(tmp_path)
    commit(DiskStore(tmp_path / "STORE"), document("one"), document("two"), Entry("retract", row_id=0))
    (command,) = re.findall(r"`mempp (export STORE [^`]+)`", PAGE)
    assert main(shlex.split(command)) == 0
    assert pq.read_table("documents.parquet").column("text").to_pylist() == ["one", "two"]
