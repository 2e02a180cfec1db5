"""The contract of a Store, held by DiskStore and MemoryStore alike."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storage_tools import batch, commit, document

from mempp import errors
from mempp.storage import DiskStore, Entry, MemoryStore, Store, VectorBatch
from mempp.storage import store as store_module
from mempp.storage.entries import DIGEST_DOMAIN, canonical_bytes, parse_entry, prepare, start_position

Make = Callable[[], DiskStore | MemoryStore]


@pytest.fixture(params=["disk", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "disk":
        return lambda: DiskStore(tmp_path / "store", seal_bytes=400, lock_timeout=0.05)
    return lambda: MemoryStore(lock_timeout=0.05)


@pytest.fixture
def store(make: Make) -> DiskStore | MemoryStore:
    return make()


FULL = document(
    "Board approved Vendor B.",
    occurred_at=-62_135_596_800_000_000,
    authors=("board", "änn"),
    tags=("vpn", ""),
    source="<1@mail>",
    thread="t",
    document_kind="mail",
    metadata='{"a":[1,2.5,null]}',
)
LATER = [
    Entry("supersede", row_id=0, related_row=1),
    Entry("archive", row_id=0, related_row=1, reason="merged"),
    Entry("archive", row_id=1),
    Entry("retract", row_id=0, reason="wrong"),
    Entry("reinstate", row_id=0),
    Entry("annotate", row_id=1, label="fact", payload='["a"]', text="a fact"),
    Entry("encoder", payload='{"identity":"minilm"}'),
]


def as_store(store: DiskStore | MemoryStore) -> Store:
    return store  # mypy holds both against the Protocol here


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.refresh() == []
    assert re.fullmatch("[0-9a-f]{32}", store.store_id)
    assert store.head_digest == hashlib.sha256(b"mempp log 1\n" + store.store_id.encode()).hexdigest()
    assert (store.next_sequence, store.row_count) == (0, 0)
    assert store.created_at > 1_700_000_000_000_000
    assert not store.read_only


def test_append_numbers_entries_and_rows(store: Store) -> None:
    first = commit(store, FULL, document("b"))
    second = commit(store, *LATER, document(""))
    assert [entry.sequence for entry in first + second] == list(range(10))
    assert [entry.row_id for entry in first] == [0, 1]
    assert second[-1].row_id == 2
    assert len({entry.ingested_at for entry in first}) == 1
    assert first[0].ingested_at < second[0].ingested_at
    assert (store.next_sequence, store.row_count) == (10, 3)
    for given_entry, stored in zip([FULL, document("b"), *LATER, document("")], first + second, strict=True):
        for name in Entry.__dataclass_fields__:
            if name not in {"sequence", "ingested_at"} and (given_entry.kind, name) != ("document", "row_id"):
                assert getattr(stored, name) == getattr(given_entry, name), name


def test_own_entries_are_not_refreshed(store: Store) -> None:
    with store.writing() as others:
        assert others == []
        store.append([document("a")])
        assert store.append([document("b")])[0].row_id == 1
        assert store.append([]) == []
    assert store.refresh() == []


def test_stamps_increase_when_the_clock_stands_or_goes_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1000, 1000, 10, 2000])
    for module in ("mempp.storage.disk.now", "mempp.storage.memory_store.now"):
        monkeypatch.setattr(module, lambda: next(times))
    stamps = [commit(store, document(str(number)))[0].ingested_at for number in range(4)]
    assert stamps == [1000, 1001, 1002, 2000]
    assert store_module.now() > 2000


def test_the_chain_is_what_the_specification_says(store: Store) -> None:
    entries = commit(store, FULL, document("b")) + commit(store, *LATER)
    digest = hashlib.sha256(DIGEST_DOMAIN + store.store_id.encode()).digest()
    for entry in entries:
        fields = {
            name: list(value) if isinstance(value, tuple) else value
            for name in Entry.__dataclass_fields__
            if (value := getattr(entry, name)) is not None and value != ()
        }
        text = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(digest + text.encode()).digest()
    assert store.head_digest == digest.hex()


def test_both_stores_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, memory = DiskStore(tmp_path / "s", seal_bytes=100), MemoryStore()
    monkeypatch.setattr("mempp.storage.disk.now", lambda: 5)
    monkeypatch.setattr("mempp.storage.memory_store.now", lambda: 5)
    memory.store_id, memory._position = disk.store_id, start_position(disk.store_id)
    for entries in ([FULL, document("b")], LATER, [document("c")]):
        assert commit(disk, *entries) == commit(memory, *entries)
        assert disk.head_digest == memory.head_digest


WRONG = {
    "unknown kind": Entry("forget", row_id=0),
    "kind of a wrong type": Entry(7, row_id=0),  # type: ignore[arg-type]
    "document without text": Entry("document"),
    "document with a label": document(label="x"),
    "document with another row id": document(row_id=7),
    "supersede without by": Entry("supersede", row_id=0),
    "row that does not exist": Entry("retract", row_id=2),
    "negative row": Entry("retract", row_id=-1),
    "related row that does not exist": Entry("archive", row_id=0, related_row=9),
    "row of a wrong type": Entry("retract", row_id=True),
    "surrogate in text": document("a\ud800b"),
    "surrogate in tag": document(tags=("\udfff",)),
    "tags of a wrong type": document(tags="vpn"),
    "tag of a wrong type": document(tags=(1,)),
    "text of a wrong type": document(b"x"),  # type: ignore[arg-type]
    "date beyond 64 bits": document(occurred_at=1 << 63),
    "metadata no JSON": document(metadata="{"),
    "metadata no object": document(metadata="[]"),
    "metadata with NaN": document(metadata='{"a":NaN}'),
    "encoder without payload": Entry("encoder"),
    "annotation without label": Entry("annotate", row_id=0),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_entry_that_cannot_be_stored_is_refused_and_nothing_with_it(store: Store, what: str) -> None:
    commit(store, document("a"))
    digest = store.head_digest
    with store.writing(), pytest.raises(errors.InputError) as caught:
        store.append([document("good"), WRONG[what]])
    assert store.head_digest == digest
    assert len(str(caught.value)) < 400
    assert commit(store, document("b"))[0].row_id == 1


def test_an_entry_may_speak_of_a_row_earlier_in_its_commit_only(store: Store) -> None:
    with store.writing(), pytest.raises(errors.RowNotFoundError, match=r"row 0.*0 rows"):
        store.append([Entry("retract", row_id=0), document("a")])
    assert commit(store, document("a"), Entry("retract", row_id=0))[1].row_id == 0


def test_append_outside_writing_is_an_error(store: Store) -> None:
    vectors = store.vectors("e", 4)
    with pytest.raises(errors.StoreError, match="writing"):
        store.append([document("a")])
    with pytest.raises(errors.StoreError, match="writing"):
        vectors.append(batch(0, 1))
    with store.writing():
        thread_problem: list[BaseException] = []

        def other() -> None:
            try:
                store.append([document("a")])
            except errors.StoreError as error:
                thread_problem.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(thread_problem) == 1


def test_writing_inside_writing_is_an_error_and_leaves_the_outer_one(store: Store) -> None:
    with store.writing():
        with pytest.raises(errors.StoreError, match="inside itself"), store.writing():
            pass
        store.append([document("a")])
    assert store.row_count == 1


def test_another_thread_waits_for_its_turn_up_to_the_limit(store: Store) -> None:
    caught: list[BaseException] = []

    def other() -> None:
        try:
            with store.writing(timeout=0.01):
                pass
        except errors.StoreLockedError as error:
            caught.append(error)

    with store.writing():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(caught) == 1
    commit(store, document("a"))


def test_threads_append_densely(make: Make) -> None:
    store = make()

    def work(name: str) -> None:
        for number in range(25):
            with store.writing(timeout=30):
                store.append([document(f"{name} {number}")])

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (store.next_sequence, store.row_count) == (100, 100)


def test_an_exception_inside_writing_releases_it_and_keeps_what_was_appended(store: Store) -> None:
    def work() -> None:
        with store.writing():
            store.append([document("a")])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert commit(store, document("b"))[0].row_id == 1


def test_a_closed_store_says_so(store: Store) -> None:
    vectors = store.vectors("e", 4)
    store.close()
    store.close()
    for call in (store.refresh, lambda: store.append([]), vectors.refresh, lambda: store.vectors("e", 4)):
        with pytest.raises(errors.StoreClosedError):
            call()
    with pytest.raises(errors.StoreClosedError), store.writing():
        pass


# --- vectors ------------------------------------------------------------------------------------------------------


def joined(batches: list[VectorBatch]) -> tuple[list[int], list[int], list[list[float]]]:
    return (
        [int(row) for one in batches for row in one.row_ids],
        [int(view) for one in batches for view in one.views],
        [row.tolist() for one in batches for row in one.vectors],
    )


def test_vectors_come_back(store: Store) -> None:
    commit(store, *(document(str(number)) for number in range(20)))
    vectors = store.vectors("mini-lm_v2.onnx", 4)
    assert vectors.refresh() == []
    given_batches = [batch(0, 5), batch(5, 15), VectorBatch(np.array([3]), np.array([7], "i4"), np.ones((1, 4), "f4"))]
    for one in given_batches:
        with store.writing():
            assert vectors.refresh() == []
            vectors.append(one)
    with store.writing():
        vectors.append(batch(0, 0))
    assert vectors.refresh() == []
    assert joined(store.vectors("mini-lm_v2.onnx", 4).refresh()) == joined(given_batches)
    assert store.vectors("another", 3).refresh() == []


def test_vectors_of_one_handle_reach_another(store: Store) -> None:
    commit(store, document("a"), document("b"))
    one, two = store.vectors("e", 4), store.vectors("e", 4)
    with store.writing():
        one.append(batch(0, 1))
    assert joined(two.refresh()) == joined([batch(0, 1)])
    with store.writing():
        one.append(batch(1, 1))
    assert joined(two.refresh()) == joined([batch(1, 1)])


def test_vectors_that_do_not_fit_are_refused(store: Store) -> None:
    commit(store, document("a"))
    vectors = store.vectors("e", 4)
    with store.writing():
        vectors.append(batch(0, 1))
        for wrong in (batch(1, 1), batch(-1, 1), batch(0, 1, 3)):
            with pytest.raises(errors.MemppError):
                vectors.append(wrong)
        for number in (np.nan, np.inf):
            with pytest.raises(errors.InputError, match="finite"):
                vectors.append(VectorBatch(np.array([0]), np.array([0], "i4"), np.full((1, 4), number, "f4")))
    with pytest.raises(errors.EncoderMismatchError):
        store.vectors("e", 5)
    assert joined(store.vectors("e", 4).refresh()) == joined([batch(0, 1)])


@pytest.mark.parametrize("identity", ["", ".", "..", ".x", "a/b", "A", "ä", "a" * 101, "a\n", "a\0"])
def test_unsafe_identities_are_refused(store: Store, identity: str) -> None:
    with pytest.raises(errors.InputError, match="identity"):
        store.vectors(identity, 4)


@pytest.mark.parametrize("dimensions", [0, -1, True, 1.5, 65_537])
def test_dimensions_out_of_range_are_refused(store: Store, dimensions: int) -> None:
    with pytest.raises(errors.InputError, match="dimensions"):
        store.vectors("e", dimensions)


@pytest.mark.parametrize(
    "arrays",
    [
        (np.zeros(2, "i4"), np.zeros(2, "i4"), np.zeros((2, 4), "f4")),
        (np.zeros(2, "i8"), np.zeros(2, "i8"), np.zeros((2, 4), "f4")),
        (np.zeros(2, "i8"), np.zeros(2, "i4"), np.zeros((2, 4), "f8")),
        (np.zeros(2, "i8"), np.zeros(3, "i4"), np.zeros((2, 4), "f4")),
        (np.zeros(2, "i8"), np.zeros(2, "i4"), np.zeros((3, 4), "f4")),
        (np.zeros(2, "i8"), np.zeros(2, "i4"), np.zeros(8, "f4")),
        ([0, 1], np.zeros(2, "i4"), np.zeros((2, 4), "f4")),
    ],
)
def test_a_batch_checks_its_arrays(arrays: tuple[object, object, object]) -> None:
    with pytest.raises(errors.InputError):
        VectorBatch(*arrays)  # type: ignore[arg-type]


# --- round trips --------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40) | st.sampled_from(
    [
        "",
        "\0",
        "a\nb\r\n\t",
        "\u2028\u2029\x85",
        "e\u0301",
        "👩‍👩‍👧‍👦",
        "שלום עליכם",
        "\ufeff",
        '"\\/',
        "\x7f\x1f",
        "\U0010ffff",
    ]
)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
JSON_OBJECT = st.dictionaries(TEXT, TEXT | st.integers() | st.none(), max_size=3).map(json.dumps)


@st.composite
def commits(draw: st.DrawFn) -> list[list[Entry]]:
    """Commits that a store takes."""
    rows = 0
    result = []
    for size in draw(st.lists(st.integers(1, 4), max_size=6)):
        entries: list[Entry] = []
        for _ in range(size):
            kind = draw(st.sampled_from(["document", "document", "state", "encoder"])) if rows else "document"
            row = st.integers(0, max(rows - 1, 0))
            maybe = st.none() | TEXT
            if kind == "document":
                rows += 1
                labels = st.lists(TEXT, max_size=3).map(tuple)
                entry = Entry(
                    "document",
                    text=draw(TEXT),
                    occurred_at=draw(st.none() | INTEGERS),
                    authors=draw(labels),
                    tags=draw(labels),
                    source=draw(maybe),
                    thread=draw(maybe),
                    document_kind=draw(maybe),
                    metadata=draw(st.none() | JSON_OBJECT),
                )
            elif kind == "encoder":
                entry = Entry("encoder", payload=draw(JSON_OBJECT))
            else:
                state = draw(st.sampled_from(["supersede", "archive", "retract", "annotate"]))
                entry = {
                    "supersede": Entry("supersede", row_id=draw(row), related_row=draw(row)),
                    "archive": Entry("archive", row_id=draw(row), related_row=draw(st.none() | row)),
                    "retract": Entry("retract", row_id=draw(row), reason=draw(maybe)),
                    "annotate": Entry("annotate", row_id=draw(row), label=draw(TEXT), text=draw(maybe)),
                }[state]
            entries.append(entry)
        result.append(entries)
    return result


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(commits(), st.sampled_from([1, 300, 1 << 20]))
def test_a_reopened_store_gives_every_entry_back(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[Entry]], seal_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("round") / "store"
    store = DiskStore(path, seal_bytes=seal_bytes)
    follower = DiskStore(path, read_only=True)
    written, followed = [], []
    for entries in history:
        written += commit(store, *entries)
        followed += follower.refresh()
    again = DiskStore(path, read_only=True)
    assert again.refresh() == written == followed
    assert again.head_digest == store.head_digest == follower.head_digest
    assert (again.next_sequence, again.row_count) == (store.next_sequence, store.row_count)


@given(commits())
def test_canonical_bytes_parse_back_and_hold_no_line_feed(history: list[list[Entry]]) -> None:
    position = start_position("0" * 32)
    for entries in history:
        numbered, bodies, position = prepare(entries, position, 1)
        for entry, body in zip(numbered, bodies, strict=True):
            assert parse_entry(body) == entry
            assert canonical_bytes(parse_entry(body)) == body
            assert b"\n" not in body


@pytest.mark.parametrize("size", [1, 50_000_000])
def test_huge_text_next_to_small(tmp_path: Path, size: int) -> None:
    text = ("æ\0" * (size // 3 + 1))[:size]
    store = DiskStore(tmp_path / "s", seal_bytes=1000)
    written = commit(store, document("before"), document(text), document("after")) + commit(store, document("z"))
    assert DiskStore(tmp_path / "s", read_only=True).refresh() == written
    assert len(list((tmp_path / "s" / "log").glob("*.parquet"))) == (1 if size > 1000 else 0)
