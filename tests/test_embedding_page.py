"""docs/embedding.md is true: its Python runs and prints what the comments say, its commands run, its format holds."""

import contextlib
import hashlib
import io
import json
import re
import shlex
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from encoder_models import write_tiny_model
from support import WordEncoder

import mempp

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_python_blocks_print_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPP_ENCODER", str(write_tiny_model(tmp_path / "model")))
    real = mempp.open
    # A store of a model in a directory is opened with that directory, since it is not found by itself.
    monkeypatch.setattr(mempp, "open", lambda path, **options: real(path, encoder=tmp_path / "model", **options))
    names: dict[str, object] = {}
    printed = []
    for block in blocks("python"):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(block, "embedding.md", "exec"), names)
        printed.append(output.getvalue().split("\n")[:-1])
    assert printed == [["200"], ["(200, 201)", "(202,)"], ["25", "25", "50", "0"]]


def test_the_commands_run(tmp_path: Path) -> None:
    commands = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
    assert len(commands) == 7
    model, _ = write_tiny_model(tmp_path / "model"), write_tiny_model(tmp_path / "bge-small", seed=1)
    (tmp_path / "mail.jsonl").write_text("".join(f'{{"text": "the board {n}"}}\n' for n in range(6)))
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "mempp"
        given = [] if "--encoder" in words else ["--encoder", str(model)]
        done = subprocess.run(
            [sys.executable, "-m", *words, *given], cwd=tmp_path, capture_output=True, text=True, check=False,
            env={"PATH": "", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr}"
        if "--merge" in words:
            assert done.stderr.startswith("mempp: took in vectors of 6 documents in "), "the shards had nothing to do"
    for name, encoder in (("acme", "bge-small"), ("archive", "model")):
        with mempp.open(tmp_path / f"{name}.mempp", encoder=tmp_path / encoder) as memory:
            assert memory.stats().without_vector == 0


def test_a_vector_file_is_what_the_specification_says(tmp_path: Path) -> None:
    """Read with struct, json, zlib and hashlib alone, after docs/log-format.md."""
    encoder = WordEncoder(4)
    long = "A sentence of the minutes. " * 60
    with mempp.open(tmp_path / "s", encoder=encoder) as memory:
        memory.add_many([long, "short", "other", "last"], embed=False)
        head, entries = memory.head_digest, memory.head_sequence + 1
        memory.embed(shard=(1, 2), out=tmp_path / "v")
        store_id = json.loads((tmp_path / "s" / "store.json").read_text())["store_id"]
    data = (tmp_path / "v").read_bytes()
    chain, offset, seen = hashlib.sha256(b"mempp vector file 1\n").digest(), 0, 0
    found: dict[tuple[int, int], tuple[bytes, tuple[float, ...]]] = {}
    contents = []
    while offset < len(data):
        header = struct.unpack_from("<8sHHIQqQ32sII", data, offset)
        magic, version, content, count, sequence, stamp, length, digest, body_check, check = header
        body = data[offset + 80 : offset + 80 + length]
        assert (magic, version, stamp, sequence) == (b"\x93M++FRM\n", 1, 0, seen)
        assert (zlib.crc32(body), zlib.crc32(data[offset : offset + 76])) == (body_check, check)
        chain = hashlib.sha256(chain + body).digest()
        assert chain == digest
        contents.append(content)
        if content == 4:
            assert struct.unpack_from("<I", body) == (4,)
            rows = struct.unpack_from(f"<{count}q", body, 4)
            views = struct.unpack_from(f"<{count}i", body, 4 + 8 * count)
            digests = body[4 + 12 * count : 4 + 28 * count]
            numbers = struct.unpack_from(f"<{4 * count}f", body, 4 + 28 * count)
            assert len(body) == 4 + 28 * count + 16 * count
            for place, key in enumerate(zip(rows, views, strict=True)):
                found[key] = digests[16 * place : 16 * place + 16], numbers[4 * place : 4 * place + 4]
            seen += count
        else:
            fields = json.loads(body)
            if content == 3:
                assert fields == {
                    "format": "mempp-vector-file", "version": 1, "store_id": store_id, "identity": "test-words-4",
                    "dimensions": 4, "shard": [1, 2],
                }  # fmt: skip
        offset += 80 + length
    assert contents == [3, 4, 5]
    assert fields == {"vectors": seen, "log_sequence": entries, "log_rows": 4, "log_digest": head}
    assert {row for row, _ in found} == {0, 2}
    for row, text in ((0, long), (2, "other")):
        assert found[row, 0][0] == hashlib.blake2b(text.encode(), digest_size=16).digest()
        assert found[row, 0][1] == tuple(encoder.encode_documents([text])[0].tolist())
    assert sum(row == 0 for row, _ in found) > 2
