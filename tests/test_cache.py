"""Caches: opening with them, without them, with old, foreign and damaged ones gives the same answers."""

import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support import WordEncoder

import mempp
from mempp import caching
from mempp.adding import embed_rows
from mempp.indexes import LexicalIndex, TagIndex, VectorIndex, hnsw, links, postings
from mempp.indexes.held import Held
from mempp.indexes.postings import Postings
from mempp.projection import Projection
from mempp.storage import files
from mempp.storage.cache import Blob, CacheFolder

ENCODER = WordEncoder()
WORDS = ["vpn", "vendor", "budget", "office", "ferry", "alpha", "beta", "東京", "offices", "the", "Σίγμα"]
QUESTIONS = ["which vpn vendor", "alice on the ferry", "東京 office budget", "the", "topic a beta"]
SETTINGS = [mempp.Settings(), mempp.Settings(k=5, lexical_mode="all"), mempp.preset("orgmembench")]


@pytest.fixture(autouse=True)
def _small_caches_too(monkeypatch):
    monkeypatch.setattr(caching, "WORTH_ROWS", 1)
    monkeypatch.setattr(postings, "_ROWS_TOGETHER", 3)


def documents(numbers, seed=0):
    for number in numbers:
        chance = random.Random(f"{seed} {number}")
        yield {
            "text": " ".join(chance.choices(WORDS, k=chance.randint(1, 6))) + f" {seed}-{number}",
            "occurred_at": f"2024-01-{1 + number % 28:02}" if number % 5 else None,
            "author": chance.sample(["alice", "B. Stone", "carol"], number % 3),
            "tags": ["topic A", "Topic a", f"t{number % 4}"][: number % 4],
        }


def opened(path, **options):
    memory = mempp.open(path, encoder=ENCODER, **options)
    if not memory._store.read_only:
        memory._store.seal_bytes = 2500
    return memory


def answers_of(memory):
    """Everything that a caller could see of a memory, as plain values."""
    hits = [
        [(hit.record.row_id, hit.score, hit.matched, hit.record.text) for hit in found]
        for settings in SETTINGS
        for bounds in ({}, {"as_of": "2024-01-15"}, {"known_at": memory.head_sequence // 2})
        for found in memory.recall_many(QUESTIONS, settings=settings, **bounds)
    ]
    labels = [memory._projection.indexes.tags.matched_labels(question) for question in QUESTIONS]
    return hits, labels, [record.text for record in memory.records()], len(memory)


def answers(path):
    with opened(path, read_only=True) as memory:
        return answers_of(memory)


def without_caches(path):
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder, "store")
        shutil.copytree(path, bare, ignore=shutil.ignore_patterns("cache"))
        return answers(bare)


@pytest.fixture
def restored(monkeypatch):
    """How many rows each opening took from a cache."""
    rows = []
    restore = Projection.restore

    def noted(self, lexical, tags):
        rows.append(len(lexical))
        restore(self, lexical, tags)

    monkeypatch.setattr(Projection, "restore", noted)
    return rows


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "store") as memory:
        memory.add_many(documents(range(60)), batch_size=7)
    return tmp_path / "store"


# --- answers ------------------------------------------------------------------------------------------------------


@hypothesis_settings(max_examples=25)
@given(data=st.data())
def test_every_cache_gives_the_answers_of_none(data):
    with tempfile.TemporaryDirectory() as folder:
        path, kept = Path(folder, "store"), []
        added = 0
        for _ in range(data.draw(st.integers(1, 4))):
            with opened(path) as memory:
                for _ in range(data.draw(st.integers(1, 3))):
                    count = data.draw(st.integers(0, 12))
                    memory.add_many(documents(range(added, added + count)), batch_size=data.draw(st.integers(1, 5)))
                    added += count
                    if len(memory) > 1:
                        row = data.draw(st.integers(0, len(memory) - 1))
                        data.draw(st.sampled_from([memory.retract, memory.reinstate, lambda row: None]))(row)
            if (path / "cache").is_dir():
                kept.append(Path(folder, f"cache{len(kept)}"))
                shutil.copytree(path / "cache", kept[-1])
        expected = without_caches(path)
        assert answers(path) == expected
        if kept:
            shutil.rmtree(path / "cache")
            shutil.copytree(data.draw(st.sampled_from(kept)), path / "cache")
            assert answers(path) == expected


def test_a_cache_of_an_earlier_state_is_extended(store, restored):
    shutil.copytree(store / "cache", store.parent / "old")
    for _ in range(3):
        with opened(store) as memory:
            memory.add_many(documents(range(60 + len(memory), 90 + len(memory))), batch_size=1)
    expected = without_caches(store)
    shutil.rmtree(store / "cache")
    shutil.move(store.parent / "old", store / "cache")
    sealed = [name for name in os.listdir(store / "log") if name.endswith(".parquet")]
    assert len(sealed) > 3, "the position of the old cache lies within a segment, or at its end, by now"
    del restored[:]
    assert answers(store) == expected
    assert restored == [60]


@pytest.mark.parametrize("covered", range(1, 25))
def test_a_cache_may_end_anywhere_in_a_segment(tmp_path, covered, restored):
    path = tmp_path / "store"
    with opened(path) as memory:
        memory._store.seal_bytes = 1 << 30
        memory.add_many(documents(range(covered)), batch_size=1)
    shutil.copytree(path / "cache", tmp_path / "old")
    with opened(path) as memory:
        memory._store.seal_bytes = 1
        memory.add_many(documents(range(covered, 30)), batch_size=30)
    assert len(os.listdir(path / "log")) == 1
    shutil.rmtree(path / "cache")
    shutil.copytree(tmp_path / "old", path / "cache")
    del restored[:]
    assert answers(path) == without_caches(path)
    assert restored == [covered]


def test_the_cache_of_a_log_that_went_another_way_is_passed_over(store, restored):
    other = store.parent / "other"
    shutil.copytree(store, other)
    for path, seed in ((store, 1), (other, 2)):
        with opened(path) as memory:
            memory.add_many(documents(range(20), seed))
    shutil.rmtree(store / "cache")
    shutil.copytree(other / "cache", store / "cache")
    del restored[:]
    assert answers(store) == without_caches(store)
    assert restored == []


def test_the_cache_of_a_longer_log_is_passed_over(store, restored):
    shorter = store.parent / "shorter"
    shutil.copytree(store, shorter)
    with opened(store) as memory:
        memory.add_many(documents(range(60, 90)))
    shutil.rmtree(shorter / "cache")
    shutil.copytree(store / "cache", shorter / "cache")
    del restored[:]
    assert answers(shorter) == without_caches(shorter)
    assert restored == []


def test_another_version_of_the_analysis_is_passed_over(store, restored, monkeypatch):
    assert answers(store)
    assert restored == [60]
    monkeypatch.setattr(caching, "ANALYSIS_VERSION", 999)
    assert answers(store) == without_caches(store)
    assert restored == [60]


def test_500_flipped_bits_change_no_answer(tmp_path, restored):
    path = tmp_path / "store"
    with opened(path, exact_up_to=10) as memory:
        memory.add_many(documents(range(60)))
        memory._projection.indexes.vectors.wait_until_built()
    with opened(path, read_only=True) as memory:
        expected = [(hit.record.row_id, hit.score) for hit in memory.recall(QUESTIONS[0])]
    assert restored
    del restored[:]
    chance = random.Random(5)
    caches = sorted((path / "cache").iterdir())
    assert [cache.name for cache in caches] == ["graph.cache", "indexes.cache"]
    folder = CacheFolder(path / "cache", memory._store.store_id)
    for turn in range(500):
        cache = caches[turn % 2]
        data = cache.read_bytes()
        # Half of them in the first bytes, where every field is.
        bit = chance.randrange(8 * (min(len(data), 600) if turn % 4 < 2 else len(data)))
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        cache.write_bytes(damaged)
        version = caching._version() if cache.name == "indexes.cache" else hnsw.GRAPH_VERSION
        assert folder.read(cache.stem, version) is None, bit
        if turn % 5 < 2:
            with opened(path, read_only=True, exact_up_to=10) as memory:
                memory._projection.indexes.vectors.wait_until_built()
                assert [(hit.record.row_id, hit.score) for hit in memory.recall(QUESTIONS[0])] == expected
        cache.write_bytes(data)
    assert len(restored) == 100, "only where the graph was the damaged one"


def test_a_file_cut_short_or_lengthened_is_passed_over(store):
    cache = store / "cache" / "indexes.cache"
    folder = CacheFolder(cache.parent, mempp.storage.open_store(store, read_only=True).store_id)
    data = cache.read_bytes()
    assert folder.read("indexes", caching._version()) is not None
    for size in [*range(700), *range(700, len(data), 97)]:
        cache.write_bytes(data[:size])
        assert folder.read("indexes", caching._version()) is None
    cache.write_bytes(data + b"\0")
    assert folder.read("indexes", caching._version()) is None


def test_what_is_no_index_is_passed_over_though_its_bytes_are_whole(store, restored, caplog):
    store_id = mempp.storage.open_store(store, read_only=True).store_id
    folder = CacheFolder(store / "cache", store_id)
    blob = folder.read("indexes", caching._version())
    # But for the terms: one cut short is a term.
    unfit = [(name, array[:-1]) for name, array in blob.arrays.items() if not name.endswith(".terms")]
    unfit += [(name, blob.arrays[name] + np.int64(1000)) for name in ("texts.rows", "texts.offsets", "labels.rows")]
    unfit += [(name, None) for name in blob.arrays]
    expected = without_caches(store)
    for name, wrong in unfit:
        arrays = {key: wrong if key == name else array for key, array in blob.arrays.items()}
        arrays = {key: array for key, array in arrays.items() if array is not None}
        assert folder.write("indexes", caching._version(), replace(blob, arrays=arrays))
        del restored[:]
        caplog.clear()
        assert answers(store) == expected
        assert (name, restored) == (name, [])
        assert "passed over" in caplog.text


def test_a_cache_with_counts_of_four_bytes_is_used(store, restored):
    """As they were written before counts had the fewest bytes."""
    store_id = mempp.storage.open_store(store, read_only=True).store_id
    folder = CacheFolder(store / "cache", store_id)
    blob = folder.read("indexes", caching._version())
    wide = {name: blob.arrays[name].astype("u4") for name in ("texts.counts", "labels.counts")}
    assert folder.write("indexes", caching._version(), replace(blob, arrays={**blob.arrays, **wide}))
    expected = without_caches(store)
    del restored[:]
    assert answers(store) == expected
    assert restored == [60]


# --- when they are written ----------------------------------------------------------------------------------------


def test_read_only_writes_nothing(store):
    shutil.rmtree(store / "cache")
    before = sorted(store.rglob("*"))
    answers(store)
    assert sorted(store.rglob("*")) == before


def test_no_cache_without_a_directory():
    with mempp.in_memory(encoder=ENCODER) as memory:
        memory.add_many(documents(range(60)))
        assert memory._engine._caches.graphs is None
        memory._engine._caches.save(memory._projection)


def test_written_at_opening_and_at_closing_when_enough_is_lacking(store, monkeypatch):
    cache = store / "cache" / "indexes.cache"
    first = cache.stat().st_ino, cache.stat().st_mtime_ns
    with opened(store) as memory:
        memory.add("a single one more")
    assert (cache.stat().st_ino, cache.stat().st_mtime_ns) == first, "one row in sixty is not worth it"
    with opened(store) as memory:
        memory.add_many(documents(range(100, 110)))
    assert (cache.stat().st_ino, cache.stat().st_mtime_ns) != first
    shutil.rmtree(store / "cache")
    with opened(store):
        assert cache.exists(), "a process that is killed later has not rebuilt for nothing"
    monkeypatch.setattr(caching, "WORTH_ROWS", 1000)
    shutil.rmtree(store / "cache")
    with opened(store):
        pass
    assert not cache.exists()


@pytest.mark.parametrize("primitive", ["make_directory", "open_file", "write", "rename"])
def test_a_cache_that_cannot_be_written_is_no_error(store, primitive, monkeypatch, caplog):
    shutil.rmtree(store / "cache")
    with opened(store, read_only=True) as memory:
        caches = caching.Caches(memory._store)
        memory._store.read_only = False

        def refuses(*arguments):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(files, primitive, refuses)
            caches.save(memory._projection)
        memory._store.read_only = True
    assert "could not be written" in caplog.text
    assert not (store / "cache").exists() or not os.listdir(store / "cache")


def test_a_file_in_place_of_the_folder_is_no_error(store, caplog):
    shutil.rmtree(store / "cache")
    (store / "cache").write_text("no folder")
    with opened(store) as memory:
        assert answers_of(memory) == without_caches(store)
    assert "cannot be read" in caplog.text
    assert "could not be written" in caplog.text


def test_what_dead_writers_left_is_removed_and_what_living_write_is_not(tmp_path):
    folder = CacheFolder(tmp_path, "a" * 32)
    old, new = tmp_path / "x.cache.1.tmp", tmp_path / "x.cache.2.tmp"
    old.write_bytes(b"1")
    new.write_bytes(b"2")
    os.utime(old, (time.time() - 7200,) * 2)
    assert folder.write("x", "1", Blob(0, b"", {}))
    assert sorted(os.listdir(tmp_path)) == ["x.cache", new.name]


def test_an_interrupted_projection_is_not_cached(store):
    with opened(store) as memory:
        memory.add_many(documents(range(100, 130)))
        memory._engine._behind = True
        before = (store / "cache" / "indexes.cache").read_bytes()
    assert (store / "cache" / "indexes.cache").read_bytes() == before


# --- what is told -------------------------------------------------------------------------------------------------


def test_building_is_told_in_the_log_and_as_progress_and_nowhere_else(store, caplog, capsys):
    shutil.rmtree(store / "cache")
    seen = []
    with caplog.at_level(logging.INFO, "mempp"), opened(store, read_only=True, progress=seen.append):
        pass
    assert seen[-1] == 60
    assert "indexing the texts and labels of 60 rows" in caplog.text
    with opened(store, read_only=True):
        pass
    assert capsys.readouterr() == ("", "")
    with opened(store, read_only=True, progress=True):
        pass
    assert "60" in capsys.readouterr().err


# --- the graph ----------------------------------------------------------------------------------------------------


def graph_of(memory):
    index = memory._projection.indexes.vectors
    assert index.wait_until_built(60)
    return index._graph


def test_a_graph_is_kept_and_found_again(tmp_path, monkeypatch):
    path = tmp_path / "store"
    with opened(path, exact_up_to=50) as memory:
        memory.add_many(documents(range(120)))
    with opened(path, exact_up_to=50) as memory:
        size = graph_of(memory).size
        assert size == 120
        memory.add_many(documents(range(120, 130)))  # a tail
    kept = (path / "cache" / "graph.cache").read_bytes()

    def refuses(*arguments):
        raise AssertionError("the graph is built, though it was kept")

    monkeypatch.setattr(hnsw, "_build", refuses)
    with opened(path, exact_up_to=50, read_only=True) as memory:
        graph = graph_of(memory)
        assert graph.size == size
        question = ENCODER.encode_question("vpn ferry")
        index = memory._projection.indexes.vectors
        near = graph.nearest(question, 100, None)
        exact = np.argsort(-(index._vectors.values.part(0, size) @ question), kind="stable")[:100]
        assert len(set(near) & set(exact)) >= 95
    assert (path / "cache" / "graph.cache").read_bytes() == kept


def test_a_graph_of_other_vectors_is_built_anew(tmp_path):
    path = tmp_path / "store"
    with opened(path, exact_up_to=50) as memory:
        memory.add_many(documents(range(120)))
    with opened(path, exact_up_to=50) as memory:
        graph_of(memory)
    kept = (path / "cache" / "graph.cache").read_bytes()
    shutil.rmtree(path / "vectors")
    with opened(path, exact_up_to=50) as memory:
        # Embedded again, in another order.
        embed_rows(memory._engine, list(range(60, 120)))
        embed_rows(memory._engine, list(range(60)))
    with opened(path, exact_up_to=50) as memory:
        assert graph_of(memory).size == 120
    assert (path / "cache" / "graph.cache").read_bytes() != kept


class Shelf:
    """A GraphKeeper in memory."""

    def __init__(self, kept=None):
        self.kept = kept

    def load(self):
        return self.kept

    def keep(self, found):
        self.kept = found


@pytest.fixture(scope="module")
def made():
    numbers = np.random.default_rng(3)
    vectors = numbers.standard_normal((3000, 8), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    shelf = Shelf()
    index = VectorIndex(8, exact_up_to=1000, graphs=shelf)
    index.add_batches([(np.arange(3000), vectors, None)], 3000)
    assert index.wait_until_built(60)
    return vectors, shelf.kept, index._graph


def load(vectors, kept):
    return links.graph_of(kept, np.arange(len(vectors)), Held(vectors, vectors[:0]), 16, 200, 1)


def test_links_make_the_same_graph_again(made):
    vectors, kept, graph = made
    again = hnsw.Graph(load(vectors, kept), 3000)
    inside = np.arange(3000) % 3 != 0
    for question in vectors[:50]:
        for scope in (None, inside):
            assert np.array_equal(graph.nearest(question, 50, scope), again.nearest(question, 50, scope))
    assert links.links_of(again.index, kept.digest, 8).level_0.tobytes() == kept.level_0.tobytes()


def test_unsound_links_never_reach_the_native_code(made, monkeypatch):
    import hnswlib

    vectors, kept, _ = made
    assert kept.upper.size
    top = int(kept.levels.argmax())
    ground = int(kept.levels.argmin())
    unsound = []

    def changed(name, place, value):
        array = getattr(kept, name).copy()
        array[place] = value
        unsound.append(replace(kept, **{name: array}))

    changed("level_0", (5, 0), 33)
    changed("level_0", (5, 1), 3000)
    changed("level_0", (7, 0), 1 << 20)
    changed("upper", (0, 0), 17)
    changed("upper", (0, 1), 3000)
    changed("upper", (0, slice(0, 2)), (1, ground))
    changed("levels", top, -1)
    changed("levels", ground, 1)
    changed("labels", 0, 3000)
    changed("labels", 0, int(kept.labels[1]))
    unsound += [replace(kept, entry=3000), replace(kept, entry=-1), replace(kept, entry=ground)]
    unsound += [replace(kept, level_0=kept.level_0[:, :-1]), replace(kept, upper=kept.upper[:-1])]
    unsound.append(replace(kept, digest="0" * 64))

    def refuses(*arguments, **more):
        raise AssertionError("unsound links were taken for sound")

    monkeypatch.setattr(hnswlib, "Index", refuses)
    for wrong in unsound:
        assert load(vectors, wrong) is None
    assert load(vectors[:2999], kept) is None


# --- the parts ----------------------------------------------------------------------------------------------------

dtypes = st.sampled_from(["u1", "u2", "u4", "u8", "i4", "i8"])


@given(
    arrays=st.dictionaries(
        st.text(max_size=5), st.tuples(dtypes, st.lists(st.integers(0, 255) | st.just(-1), max_size=20)), max_size=4
    ),
    large=st.booleans(),
)
@example(arrays={"a": ("u4", [0, 255]), "b": ("i8", [-1])}, large=True)
def test_blobs_come_back_as_they_were(arrays, large):
    made = {name: np.array(values, "i8").astype(dtype) for name, (dtype, values) in arrays.items()}
    if large:
        made["large"] = np.arange(12, dtype="u4").reshape(3, 4) * 1_000_000
    with tempfile.TemporaryDirectory() as path:
        folder = CacheFolder(Path(path), "a" * 32)
        assert folder.write("kind", "1", Blob(7, b"\1" * 32, made, {"rows": 3}))
        blob = folder.read("kind", "1")
        assert (blob.sequence, blob.digest, blob.facts) == (7, b"\1" * 32, {"rows": 3})
        assert blob.arrays.keys() == made.keys()
        for name, array in made.items():
            come_back = blob.arrays[name].dtype
            assert come_back == array.dtype or (
                come_back.kind == array.dtype.kind == "u" and come_back.itemsize < array.itemsize
            )
            assert blob.arrays[name].shape == array.shape
            assert np.array_equal(blob.arrays[name], array)
        assert folder.read("kind", "2") is None
        assert CacheFolder(Path(path), "b" * 32).read("kind", "1") is None
        shutil.copy(Path(path, "kind.cache"), Path(path, "other.cache"))
        assert folder.read("other", "1") is None


@given(parts=st.lists(st.lists(st.integers(0, 70_000), max_size=9), min_size=1, max_size=4), wide=st.booleans())
@example(parts=[[1, 255], [], [256]], wide=False)
def test_what_is_written_in_pieces_is_read_whole(parts, wide):
    pieces = [np.array(part, "u4" if wide else np.min_scalar_type(max(part, default=0))) for part in parts]
    with tempfile.TemporaryDirectory() as path:
        folder = CacheFolder(Path(path), "a" * 32)
        whole = np.concatenate(pieces)
        assert folder.write("whole", "1", Blob(0, b"", {"n": whole, "after": np.arange(3)}))
        assert folder.write("pieces", "1", Blob(0, b"", {"n": pieces, "after": np.arange(3)}))
        for kind in ("whole", "pieces"):
            read = folder.read(kind, "1").arrays
            assert read["n"].tolist() == whole.tolist()
            assert not len(whole) or read["n"].dtype == np.min_scalar_type(int(whole.max()))
            assert read["after"].tolist() == [0, 1, 2]


WRITER = """
    import sys
    from pathlib import Path
    import numpy as np
    from mempp.storage.cache import Blob, CacheFolder
    folder = CacheFolder(Path(sys.argv[1]), "a" * 32)
    for turn in range(60):
        number = int(sys.argv[2]) + turn
        assert folder.write("x", "1", Blob(number, b"", {"n": np.full(20_000, number, np.uint32)}))
"""


def test_two_processes_write_one_cache(tmp_path):
    folder = CacheFolder(tmp_path, "a" * 32)
    assert folder.write("x", "1", Blob(0, b"", {"n": np.zeros(20_000, np.uint32)}))
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    writers = [subprocess.Popen([*command, first], env=environment) for first in ("1000", "5000")]
    while any(writer.poll() is None for writer in writers):
        blob = folder.read("x", "1")
        assert blob is not None
        assert (blob.arrays["n"] == blob.sequence).all()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert os.listdir(tmp_path) == ["x.cache"]


texts = st.lists(st.lists(st.sampled_from([*WORDS, "topic\na", "B. Stone"]), max_size=5), min_size=1, max_size=80)


@given(rows=texts, first=st.integers(0, 80))
def test_many_rows_at_once_are_as_one_by_one(rows, first):
    together, singly = Postings(), Postings()
    counts = [{word: row.count(word) for word in row} for row in rows]
    together.add_rows(0, counts[:first])
    together.add_rows(first, counts[first:])
    for row, of_row in enumerate(counts):
        singly.add(row, of_row)
    for word in {word for row in rows for word in row}:
        for one, other in zip(together.find(word, len(rows)), singly.find(word, len(rows)), strict=True):
            assert np.array_equal(one, other)
    assert len(together) == len(singly)
    assert together.terms() == singly.terms()


@given(rows=texts, first=st.integers(0, 80), question=st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join))
def test_indexes_go_on_from_their_arrays(rows, first, question):
    question += " topic a stone b stone"
    allowed = np.arange(len(rows)) % 4 != 1
    whole, part = TagIndex(), TagIndex()
    whole.add(rows)
    part.add(rows[:first])
    part = TagIndex.from_arrays(part.arrays())
    part.add(rows[first:])
    lexical, lexical_part = LexicalIndex(), LexicalIndex()
    lexical.add([" ".join(row) for row in rows])
    lexical_part.add([" ".join(row) for row in rows[:first]])
    lexical_part = LexicalIndex.from_arrays(lexical_part.arrays())
    lexical_part.add([" ".join(row) for row in rows[first:]])
    assert len(part) == len(whole)
    assert part.matched_labels(question) == whole.matched_labels(question)
    for one, other in ((whole, part), (lexical, lexical_part)):
        expected, found = one.rank(question, allowed, 10), other.rank(question, allowed, 10)
        assert np.array_equal(expected.row_ids, found.row_ids)
        assert np.array_equal(expected.scores, found.scores)
