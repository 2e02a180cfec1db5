"""Embedding in parts: any partition, in any order, however often, gives the vectors of one plain `embed`."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from encoder_models import write_tiny_model
from harness import independent
from harness.nursery import Nursery, nursery
from harness.stream import HeadEncoder
from hypothesis import given, settings
from hypothesis import strategies as st
from support import WordEncoder

import mempp
from mempp import encoding
from mempp.storage import VectorBatch, frames
from mempp.storage.vector_file import Binding, Origin, Part, VectorFile, text_digest
from mempp.storage.vector_file_writer import VectorFileWriter

ROOT = Path(__file__).parent.parent
ENCODER = WordEncoder()
LONG = "The ferry crosses the harbour twice a day. Nobody knows why it stops at noon.\n" * 12


def texts(count: int) -> list[str]:
    return [f"note {n} about the vpn of office {n % 7}" + (" " + LONG if n % 6 == 5 else "") for n in range(count)]


def all_vectors(store: Path, encoder: WordEncoder = ENCODER) -> dict[tuple[int, int], bytes]:
    """Every view's vector, as the store has it, and that none is there twice."""
    with mempp.open(store, read_only=True, encoder="none") as memory:
        vectors = memory._store.vectors(encoder.identity.name, encoder.identity.dimensions)
        batches = vectors.refresh()
    keys = [key for batch in batches for key in zip(batch.row_ids.tolist(), batch.views.tolist(), strict=True)]
    assert len(keys) == len(set(keys)), "a vector is in the store twice"
    rows = [vector.tobytes() for batch in batches for vector in batch.vectors]
    return dict(zip(keys, rows, strict=True))


def make_store(path: Path, count: int = 40, embedded: int = 0) -> Path:
    with mempp.open(path, encoder=ENCODER) as memory:
        memory.add_many(texts(count)[:embedded])
        memory.add_many(texts(count), embed=False)
    return path


def write_shard(store: Path, number: int, of: int, out: Path, encoder: WordEncoder = ENCODER) -> int:
    with mempp.open(store, read_only=True, encoder=encoder) as memory:
        return memory.embed(shard=(number, of), out=out)


def merge(store: Path, *files: Path) -> int:
    with mempp.open(store, encoder=ENCODER) as memory:
        return memory.merge_vectors(files)


@pytest.fixture(scope="module")
def server() -> Iterator[Nursery]:
    with nursery() as one:
        yield one


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[int, int], bytes]]:
    """A store without vectors, and what a plain embed gives it."""
    folder = tmp_path_factory.mktemp("plain")
    store = make_store(folder / "store")
    shutil.copytree(store, folder / "copy")
    with mempp.open(folder / "copy", encoder=ENCODER) as memory:
        assert memory.embed() == 40
    return store, all_vectors(folder / "copy")


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_partition_in_any_order_merged_repeatedly_is_the_plain_embed(
    plain: tuple[Path, dict[tuple[int, int], bytes]], data: st.DataObject
) -> None:
    source, wanted = plain
    of = data.draw(st.integers(1, 7), label="shards")
    order = data.draw(st.permutations(range(1, of + 1)), label="order")
    repeats = data.draw(st.lists(st.integers(1, of), max_size=3), label="merged again")
    some = data.draw(st.sets(st.integers(0, 39), max_size=10), label="embedded in the store meanwhile")
    together = data.draw(st.booleans(), label="all files in one call")
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        shutil.copytree(source, store)
        files = {number: Path(folder) / f"{number}.vectors" for number in range(1, of + 1)}
        counts = [write_shard(store, number, of, files[number]) for number in order]
        assert sum(counts) == 40
        with mempp.open(store, encoder=ENCODER) as memory:
            from mempp.adding import embed_rows

            embed_rows(memory._engine, sorted(some))
        sequence = [*order, *repeats]
        if together:
            taken = merge(store, *(files[number] for number in sequence))
        else:
            taken = sum(merge(store, files[number]) for number in sequence)
        assert taken == 40 - len(some)
        assert all_vectors(store) == wanted
        with mempp.open(store, encoder=ENCODER) as memory:
            assert memory.embed() == 0
        assert mempp.verify(store).ok


def tree(path: Path) -> dict[str, tuple[int, int]]:
    return {str(one): (one.stat().st_mtime_ns, one.stat().st_size) for one in path.rglob("*")}


def test_a_shard_writes_nothing_to_the_store_and_only_what_is_lacking_to_the_file(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s", embedded=10)
    (store / "lock").unlink()
    before = tree(store)
    assert write_shard(store, 2, 3, tmp_path / "v") == len([row for row in range(10, 40) if row % 3 == 1])
    assert tree(store) == before
    file = VectorFile(tmp_path / "v")
    assert file.origin.shard == (2, 3)
    rows = np.concatenate([part.batch.row_ids for part in file.parts()])
    assert set(rows.tolist()) == {row for row in range(10, 40) if row % 3 == 1}
    assert file.binding is not None
    assert file.binding.rows == 40
    assert not (tmp_path / "v.part").exists()


def test_run_again_a_shard_goes_on_with_its_file(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s", 20)
    assert write_shard(store, 1, 2, tmp_path / "v") == 10
    counting = WordEncoder()
    assert write_shard(store, 1, 2, tmp_path / "v", counting) == 0
    assert counting.encoded == []
    make_store(store, 30)
    assert write_shard(store, 1, 2, tmp_path / "v", counting) == 5
    assert merge(store, tmp_path / "v") == 15


def test_a_file_is_written_over_only_by_its_own_shard(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s", 6)
    (tmp_path / "letter").write_text("Dear board,")
    with pytest.raises(mempp.InputError, match=r"no vector file.*name another file"):
        write_shard(store, 1, 2, tmp_path / "letter")
    write_shard(store, 1, 2, tmp_path / "v")
    with pytest.raises(mempp.InputError, match="holds vectors of shard 1/2"):
        write_shard(store, 2, 2, tmp_path / "v")
    with pytest.raises(mempp.StoreError, match="cannot write the vector file"):
        write_shard(store, 1, 2, tmp_path / "nowhere" / "v")


def started(folder: Path) -> bytes:
    """What another shard's run has left under the temporary name."""
    write_shard(make_store(folder / "t", 8), 1, 2, folder / "other")
    return (folder / "other").read_bytes()[:-100]


@pytest.mark.parametrize("what", ["a letter", "another shard's", "a folder", "a pipe"])
def test_neither_is_what_bears_the_name_of_the_part(tmp_path: Path, what: str) -> None:
    store, part = make_store(tmp_path / "s", 6), tmp_path / "v.part"
    if what == "a folder":
        part.mkdir()
    elif what == "a pipe":
        os.mkfifo(part)
    else:
        part.write_bytes(b"Dear board," if what == "a letter" else started(tmp_path))
    before = part.read_bytes() if part.is_file() else None
    with pytest.raises(mempp.InputError, match=r"v\.part.*not written over: move it away, or name another file"):
        write_shard(store, 2, 2, tmp_path / "v")
    assert (part.read_bytes() if part.is_file() else None) == before
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize("kept", [0, 1, 9, 40, 100, None])
def test_a_part_that_was_torn_in_its_header_is_made_anew(tmp_path: Path, kept: int | None) -> None:
    store = make_store(tmp_path / "s", 6)
    write_shard(store, 1, 2, tmp_path / "v")
    whole = bytearray((tmp_path / "v").read_bytes())
    if kept is None:
        whole[90] ^= 1
    (tmp_path / "w.part").write_bytes(whole[:kept])
    assert write_shard(store, 1, 2, tmp_path / "w") == 3
    assert merge(store, tmp_path / "w") == 3


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link(tmp_path: Path, there: bool) -> None:
    store = make_store(tmp_path / "s", 6)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "v").symlink_to(tmp_path / "elsewhere" / "real")
    if there:
        write_shard(store, 1, 2, tmp_path / "elsewhere" / "real")
    assert write_shard(store, 1, 2, tmp_path / "v") == (0 if there else 3)
    assert (tmp_path / "v").is_symlink()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["real"]
    assert merge(store, tmp_path / "v") == 3


@pytest.mark.parametrize("shard", [(0, 3), (4, 3), (1, 0), (1.0, 2), "1/2", (1,), None, (True, 2), (1, 10**5000)])
def test_what_is_no_shard(tmp_path: Path, shard: object) -> None:
    store = make_store(tmp_path / "s", 2)
    with mempp.open(store, encoder=ENCODER) as memory:
        with pytest.raises(mempp.InputError, match="shard"):
            memory.embed(shard=shard, out=tmp_path / "v")  # type: ignore[arg-type]
        with pytest.raises(mempp.InputError, match="belong together"):
            memory.embed(shard=(1, 2))
        for paths in ([], "v", b"v", Path("v"), [""], [None], [b"v"], 5, None, iter(()), ["."], ["a\0"], ["\ud800"]):
            with pytest.raises(mempp.InputError):
                memory.merge_vectors(paths)  # type: ignore[arg-type]
    with mempp.open(store, encoder="none") as memory:
        for use in (
            lambda: memory.embed(shard=(1, 2), out=tmp_path / "v"),
            lambda: memory.merge_vectors([tmp_path / "v"]),
            memory.embed,
        ):
            with pytest.raises(mempp.InputError, match="encoder='none'"):
                use()


NO_FILES = [".", "/", "", " ", "a\0b", "\ud800", "n" * 252, "n" * 300, "n" * 5000, f"{'folder/' * 800}v", b"v", 5, None]


@pytest.mark.parametrize("out", NO_FILES, ids=lambda out: repr(out)[:12])
def test_what_is_no_path_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: object) -> None:
    """252 characters are a name, but not with .part behind it."""
    store = make_store(tmp_path / "s", 2)
    monkeypatch.chdir(tmp_path)
    with mempp.open(store, encoder=ENCODER) as memory:
        with pytest.raises(mempp.InputError) as caught:
            memory.embed(shard=(1, 1), out=out)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 250
        with pytest.raises(mempp.StoreError if out == "n" * 252 else mempp.InputError) as caught:
            memory.merge_vectors([out])  # type: ignore[list-item]
        assert len(str(caught.value)) < 500
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_long_paths_are_cut_in_messages(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s", 2)
    deep = tmp_path.joinpath(*["folder"] * 200)
    with mempp.open(store, encoder=ENCODER) as memory:
        for use in (lambda: memory.merge_vectors([deep]), lambda: memory.embed(shard=(1, 1), out=deep)):
            with pytest.raises(mempp.StoreError, match="No such file") as caught:
                use()
            assert len(str(caught.value)) < 600


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s", 2)
    os.mkfifo(tmp_path / "pipe")
    with mempp.open(store, encoder=ENCODER) as memory:
        with pytest.raises(mempp.StoreError, match="pipe or a device"):
            memory.merge_vectors([tmp_path / "pipe"])
        with pytest.raises(mempp.InputError, match=r"pipe or a device.*not written over"):
            memory.embed(shard=(1, 1), out=tmp_path / "pipe")


def test_a_shard_by_another_encoder_than_the_one_registered(tmp_path: Path) -> None:
    """As long as the store has no vectors, merging with that encoder makes it the store's."""
    store = make_store(tmp_path / "s", 4)
    other = WordEncoder(name="other")
    assert write_shard(store, 1, 1, tmp_path / "v", other) == 4
    with pytest.raises(mempp.EncoderMismatchError, match="no vectors yet: open it with the encoder of the file"):
        merge(store, tmp_path / "v")
    write_shard(store, 1, 1, tmp_path / "own")
    with mempp.open(store, encoder=other) as memory:
        # What is refused changes nothing, the store's encoder neither.
        with pytest.raises(mempp.EncoderMismatchError):
            memory.merge_vectors([tmp_path / "own"])
        with mempp.open(store, encoder="none") as reader:
            assert reader.stats().encoder == ENCODER.identity.name
        assert memory.merge_vectors([tmp_path / "v"]) == 4
    with mempp.open(store, encoder="none") as memory:
        assert memory.stats().encoder == other.identity.name


def test_the_note_of_a_failure_counts_what_the_file_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(WordEncoder):
        def encode_documents(self, given):
            if len(self.encoded) >= 10:
                raise OSError("no network")
            return super().encode_documents(given)

    monkeypatch.setattr(encoding, "CALL_TEXTS", 5)
    store = make_store(tmp_path / "s", 5)
    with mempp.open(store, encoder=ENCODER) as memory:
        memory.add_many([f"short {n}" for n in range(15)], embed=False)
    with pytest.raises(mempp.EncoderError) as caught:
        write_shard(store, 1, 1, tmp_path / "v", Fails())
    assert caught.value.__notes__[0].startswith("10 rows are stored")
    assert write_shard(store, 1, 1, tmp_path / "v") == 10


# -- crafted: every checksum is right, and what it holds is not ------------------------------------------------------


def crafted(store: Path, path: Path, header: object, end: object) -> Path:
    """A vector file without vectors: a dict changes the fields of what is right, bytes take its place."""
    with mempp.open(store, read_only=True, encoder="none") as memory:
        store_id, digest, entries = memory._store.store_id, memory.head_digest, memory.head_sequence + 1
    origin = {"format": "mempp-vector-file", "version": 1, "store_id": store_id, "dimensions": 16, "shard": [1, 1]}
    origin["identity"] = ENCODER.identity.name
    binding = {"vectors": 0, "log_sequence": entries, "log_rows": 1, "log_digest": digest}
    chain, data = hashlib.sha256(b"mempp vector file 1\n").digest(), b""
    for content, right, change in ((3, origin, header), (5, binding, end)):
        body = change if isinstance(change, bytes) else json.dumps({**right, **change}).encode()  # type: ignore[dict-item]
        chain = hashlib.sha256(chain + body).digest()
        data += frames.encode_frame(frames.Frame(content, 1, 0, 0, chain, body))
    path.write_bytes(data)
    return path


DEEP = b"[" * 200_000
BAD_HEADERS = [
    DEEP, b"{", b"\xff", b"[]", {"version": 0}, {"version": True}, {"version": 1.0}, {"version": -1}, {"version": "1"},
    {"shard": "12"}, {"shard": [0, 1]}, {"shard": [2, 1]}, {"shard": [1.0, 1]}, {"shard": [1, float("inf")]},
    {"shard": {"1": 1, "2": 2}}, {"shard": [1]}, {"shard": ["1", "1"]}, {"shard": [1, 10**30]}, {"store_id": 5},
    {"store_id": None}, {"identity": ["x"]}, {"identity": 5}, {"dimensions": 16.0}, {"dimensions": float("nan")},
    {"dimensions": 10**30},
]  # fmt: skip
BAD_ENDS = [
    DEEP, b"{", {"vectors": False}, {"vectors": 0.0}, {"log_sequence": float("inf")}, {"log_sequence": "7"},
    {"log_sequence": 1.5}, {"log_sequence": -1}, {"log_sequence": True}, {"log_sequence": None},
    {"log_rows": float("inf")}, {"log_rows": "1"}, {"log_rows": [1]}, {"log_digest": "x"}, {"log_digest": 5},
    {"log_digest": "0" * 63}, {"log_digest": "\ud800" * 64}, {"log_digest": None},
]  # fmt: skip


@pytest.mark.parametrize(
    ("header", "end"),
    [*((bad, {}) for bad in BAD_HEADERS), *(({}, bad) for bad in BAD_ENDS)],
    ids=lambda change: repr(change)[:40],
)
def test_a_crafted_file_is_damaged(tmp_path: Path, header: object, end: object) -> None:
    store = make_store(tmp_path / "s", 2)
    with mempp.open(store, encoder=ENCODER) as memory:
        with pytest.raises(mempp.StoreDamagedError, match="damaged at byte") as caught:
            memory.merge_vectors([crafted(store, tmp_path / "v", header, end)])
        assert len(str(caught.value)) < 700
        assert memory.merge_vectors([crafted(store, tmp_path / "good", {}, {})]) == 0
        # Continued, it is no obstacle.
        assert memory.embed(shard=(1, 1), out=tmp_path / "v") == 2


def test_a_newer_format_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s", 2)
    crafted(store, tmp_path / "v", {"version": 2}, {})
    (tmp_path / "w.part").write_bytes((tmp_path / "v").read_bytes())
    with mempp.open(store, encoder=ENCODER) as memory:
        with pytest.raises(mempp.StoreVersionError, match=r"/v' cannot be read here.*format 2"):
            memory.merge_vectors([tmp_path / "v"])
        with pytest.raises(mempp.InputError, match=r"w\.part.*format 2.*not written over"):
            memory.embed(shard=(1, 1), out=tmp_path / "w")


# -- what is refused --------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_refused_whole(shard_file: tuple[Path, Path, bytes], data: st.DataObject) -> None:
    """Any byte changed, any end cut, bytes put behind: one sentence, and nothing of it is taken."""
    store, folder, whole = shard_file
    kind = data.draw(st.sampled_from(["flip", "cut", "more", "swap", "forge"]))
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    if kind == "flip":
        damaged[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del damaged[place:]
    elif kind == "more":
        damaged += bytes([place % 256]) * (place % 5 + 1)
    elif kind == "forge":
        # Another vector under a right checksum; only the digest over all parts tells.
        starts = [at for at in range(len(whole)) if whole.startswith(frames.MAGIC, at)]
        frame = frames.decode_frame(whole, starts[1])
        assert frame is not None
        body = bytearray(frame.body)
        body[-1] ^= 0x80
        damaged[starts[1] : starts[2]] = frames.encode_frame(replace(frame, body=bytes(body)))
    else:
        # Two whole parts in the wrong order: every checksum of its own is right.
        starts = [at for at in range(len(whole)) if whole.startswith(frames.MAGIC, at)]
        parts = [whole[a:b] for a, b in zip(starts, [*starts[1:], len(whole)], strict=True)]
        parts[1], parts[2] = parts[2], parts[1]
        damaged = bytearray(b"".join(parts))
    (folder / "damaged").write_bytes(damaged)
    with mempp.open(store, encoder=ENCODER) as memory:
        with pytest.raises(mempp.StoreError) as caught:
            memory.merge_vectors([folder / "good", folder / "damaged"])
        assert "damaged" in str(caught.value)
        assert len(str(caught.value)) < 500
        assert memory.stats().without_vector == 40


@pytest.fixture(scope="module")
def shard_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, bytes]:
    folder = tmp_path_factory.mktemp("damage")
    store = make_store(folder / "store")
    before, encoding.ROUND_TEXTS = encoding.ROUND_TEXTS, 8
    batch, sys.modules["mempp.adding"].BATCH_SIZE = sys.modules["mempp.adding"].BATCH_SIZE, 4  # type: ignore[attr-defined]
    try:
        write_shard(store, 1, 2, folder / "half")
        write_shard(store, 2, 2, folder / "good")
    finally:
        encoding.ROUND_TEXTS = before
        sys.modules["mempp.adding"].BATCH_SIZE = batch  # type: ignore[attr-defined]
    assert len(list(VectorFile(folder / "half").parts())) > 2
    return store, folder, (folder / "half").read_bytes()


def forged(store: Path, path: Path, **change: object) -> Path:
    """A whole vector file with one thing wrong."""
    with mempp.open(store, read_only=True, encoder="none") as memory:
        store_id, digest, entries = memory._store.store_id, memory.head_digest, memory.head_sequence + 1
        text = memory.get(0).text
    origin = {"store_id": store_id, "identity": ENCODER.identity.name, "dimensions": 16, "shard": (1, 1)}
    vector = ENCODER.encode_documents([text]).astype(np.float32)
    part = {"row": 0, "view": 0, "text": text, "vector": vector}
    binding = {"sequence": entries, "rows": 1, "digest": digest}
    for given_parts in (origin, part, binding):
        given_parts.update({key: value for key, value in change.items() if key in given_parts})
    with VectorFileWriter(path, Origin(**origin), lambda part: True) as file:  # type: ignore[arg-type]
        batch = VectorBatch(np.array([part["row"]]), np.array([part["view"]], np.int32), part["vector"])
        file.append(Part(batch, np.frombuffer(text_digest(str(part["text"])), np.uint8).reshape(1, -1)))
        file.finish(Binding(**binding))  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"store_id": "0" * 32}, mempp.StoreError, "another store"),
        ({"identity": "other-16"}, mempp.EncoderMismatchError, "come from 'other-16'"),
        ({"dimensions": 8, "vector": np.eye(1, 8, dtype=np.float32)}, mempp.EncoderMismatchError, "with 8 dimensions"),
        ({"row": 5}, mempp.StoreError, "row 5, and the store has 5 rows"),
        ({"row": -1}, mempp.StoreError, "row -1"),
        ({"view": 1}, mempp.StoreError, "windows that the text of row 0 has"),
        ({"view": -1}, mempp.StoreError, "windows that the text of row 0 has"),
        ({"text": "another text"}, mempp.StoreError, "row 0 was made of another text"),
        ({"row": 1}, mempp.StoreError, "row 1 was made of another text"),
        ({"vector": np.full((1, 16), np.nan, np.float32)}, mempp.StoreError, "not finite"),
        ({"vector": np.full((1, 16), 1e30, np.float32)}, mempp.StoreError, "not finite"),
        ({"vector": np.full((1, 16), 3, np.float32)}, mempp.StoreError, "of length 12"),
        ({"sequence": 7}, mempp.StoreError, "the log had 7 entries"),
        ({"digest": "00" * 32}, mempp.StoreError, "another log"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, object], error: type[Exception], message: str
) -> None:
    store = make_store(tmp_path / "s", 5)
    with mempp.open(store, encoder=ENCODER) as memory:
        with pytest.raises(error, match=message):
            memory.merge_vectors([forged(store, tmp_path / "bad", **change)])
        assert memory.stats().without_vector == 5
        # The same file with nothing wrong is taken.
        assert memory.merge_vectors([forged(store, tmp_path / "good")]) == 1


def test_a_file_changed_while_it_is_taken_in_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mempp import shards

    store = make_store(tmp_path / "s", 6)
    forged(store, tmp_path / "v")
    real = shards._check_binding

    def meanwhile(file: VectorFile, engine: object) -> None:
        real(file, engine)  # type: ignore[arg-type]
        (tmp_path / "v").unlink()
        (tmp_path / "v.part").unlink(missing_ok=True)
        forged(store, tmp_path / "v", vector=-ENCODER.encode_documents([texts(6)[0]]))

    monkeypatch.setattr(shards, "_check_binding", meanwhile)
    with mempp.open(store, encoder=ENCODER) as memory:
        with pytest.raises(mempp.StoreError, match="changed while it was taken in"):
            memory.merge_vectors([tmp_path / "v"])
        assert memory.stats().without_vector == 6


def test_what_is_no_file_and_no_vector_file(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s", 2)
    (tmp_path / "letter").write_text("Dear board,")
    (tmp_path / "empty").write_bytes(b"")
    with mempp.open(store, encoder=ENCODER) as memory:
        for name, message in (("nothing", "No such file"), ("letter", "no vector file"), ("empty", "no vector file")):
            with pytest.raises(mempp.StoreError, match=message):
                memory.merge_vectors([tmp_path / name])
        with pytest.raises(mempp.StoreError, match="cannot read"):
            memory.merge_vectors([tmp_path])
    with mempp.open(store, read_only=True, encoder=ENCODER) as memory, pytest.raises(mempp.StoreReadOnlyError):
        memory.merge_vectors([tmp_path / "letter"])


# -- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::mempp.storage.TornTailWarning")
def test_shards_killed_and_run_again_merged_by_several_processes(tmp_path: Path, server: Nursery) -> None:
    chooser = random.Random(9)
    encoder = HeadEncoder()
    store = tmp_path / "s"
    with mempp.open(store, encoder=encoder) as memory:
        memory.add_many(texts(150), embed=False)
    files = [str(tmp_path / f"{number}.vectors") for number in (1, 2, 3)]
    kills = resumed = 0
    for number, file in enumerate(files, start=1):
        for attempt in range(5):
            child = server.start("embedder", path=str(store), job="shard", shard=[number, 3], out=file)
            lines = child.lines()
            last: dict[str, int] = {}
            for place, line in enumerate(lines):
                last = line
                if attempt < 4 and place == chooser.randrange(1, 4):
                    child.kill()
            status = child.wait()
            kills += status == -signal.SIGKILL
            resumed += "count" in last and last["count"] < 50
    assert kills > 2
    assert resumed > 2, "no run went on where one before had been killed"
    merging = [server.start("embedder", path=str(store), job="merge", files=chooser.sample(files, 3)) for _ in range(3)]
    counts = []
    for child in merging:
        *_, last = child.lines()
        assert child.wait() == 0
        counts.append(last["count"])
    assert sum(counts) >= 150
    vectors = all_vectors(store, encoder)
    assert {row for row, view in vectors if view == 0} == set(range(150))
    identity = encoder.identity
    found = independent.read_vectors(store / "vectors" / identity.name, identity.dimensions)
    wanted = encoder.encode_documents(texts(150))
    assert np.array_equal(np.array([found[row] for row in range(150)], np.float32), wanted)


def test_two_processes_do_not_write_one_file(tmp_path: Path, server: Nursery) -> None:
    store = tmp_path / "s"
    with mempp.open(store, encoder=HeadEncoder()) as memory:
        memory.add_many(texts(30), embed=False)
    origin = Origin("0" * 32, "x", 4, (1, 1))
    with VectorFileWriter(tmp_path / "v", origin, lambda part: True):
        child = server.start("embedder", path=str(store), job="shard", shard=[1, 1], out=str(tmp_path / "v"))
        assert [line for line in child.lines() if "count" in line] == []
        assert child.wait() == 1
    (tmp_path / "v.part").unlink()
    child = server.start("embedder", path=str(store), job="shard", shard=[1, 1], out=str(tmp_path / "v"))
    *_, last = child.lines()
    assert (child.wait(), last["count"]) == (0, 30)


def test_the_commands(tmp_path: Path) -> None:
    """`add --no-embed`, `embed --shard` on a copy of the store, `embed --merge`, `reembed`; a model of one's own."""
    model = str(write_tiny_model(tmp_path / "model"))
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "the board approved vendor {n}"}}\n' for n in range(9)))

    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "mempp", *arguments], cwd=tmp_path, capture_output=True, text=True,
            env={"PATH": "", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stderr + done.stdout

    run("add", "s", "a.jsonl", "--no-embed", "--encoder", model)
    shutil.copytree(tmp_path / "s", tmp_path / "elsewhere")
    assert "embedded 5 documents of shard 1/2 into one" in run(
        "embed", "elsewhere", "--shard", "1/2", "--out", "one", "--encoder", model
    )
    run("embed", "s", "--shard", "2/2", "--out", "two", "--encoder", model)
    assert "took" not in run("embed", "s", "--merge", "two", "letter", code=1)
    assert '"merged": 9' in run("embed", "s", "--merge", "two", "one", "two", "--json", "--encoder", model)
    assert "embedded 0 documents" in run("embed", "s", "--encoder", model)
    for wrong in (
        ["--shard", "0/2", "--out", "x"], ["--shard", "3", "--out", "x"], ["--shard", "1/2"], ["--out", "x"],
        ["--merge"], ["one"], ["--merge", "one", "--shard", "1/2"],
    ):  # fmt: skip
        assert len(run("embed", "s", *wrong, code=2).splitlines()) == 1
    other = str(write_tiny_model(tmp_path / "other", seed=1))
    assert "the encoder is now" in run("reembed", "s", "--encoder", other)
    assert "as before" in run("reembed", "s", "--encoder", other)
    assert "vendor 3" in run("recall", "s", "vendor 3", "--encoder", other)
