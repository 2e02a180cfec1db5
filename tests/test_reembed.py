"""Another encoder for a store: a second set of vectors, a switch when it is complete; everybody goes on meanwhile."""

import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from encoder_models import write_tiny_model
from harness import independent
from harness.embedder import OtherEncoder
from harness.nursery import Nursery, nursery
from harness.stream import HeadEncoder
from support import WordEncoder

import mempp
from mempp import reembedding
from mempp.encoders.windows import windows_of


class Other(WordEncoder):
    """Other vectors of the same texts."""

    def _vector(self, text: str) -> np.ndarray:
        return super()._vector(f"in other words {text}")


OLD, NEW = WordEncoder(16, "old"), Other(16, "new")
LONG = "The ferry crosses the harbour twice a day. Nobody knows why it stops at noon.\n" * 12
WORDS = mempp.Settings(weight_vector=0)


class Turned(WordEncoder):
    """As WordEncoder, with every vector turned round, and questions too: the same answers by other vectors."""

    def _vector(self, text: str) -> np.ndarray:
        return -super()._vector(text)


def texts(count: int) -> list[str]:
    return [f"note {n} about the vpn of office {n % 7}" + (" " + LONG if n % 6 == 5 else "") for n in range(count)]


def scores(memory: mempp.Memory) -> list[tuple[int, float]]:
    return [(hit.record.row_id, hit.score) for hit in memory.recall("vpn of office 3", k=10)]


@pytest.fixture(scope="module")
def server() -> Iterator[Nursery]:
    with nursery() as one:
        yield one


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with mempp.open(tmp_path / "s", encoder=OLD) as memory:
        memory.add_many(texts(30))
    return tmp_path / "s"


def test_after_the_switch_the_store_is_as_if_made_with_the_new_encoder(store: Path, tmp_path: Path) -> None:
    with mempp.open(tmp_path / "made anew", encoder=NEW) as memory:
        memory.add_many(texts(31))
        wanted = scores(memory)
    with mempp.open(store, encoder=OLD) as memory:
        before = scores(memory)
        told: list[int] = []
        assert memory.reembed(NEW, progress=told.append) == 30
        assert told[-1] == 30
        assert memory.encoder is NEW
        assert memory.stats().encoder == "new-16"
        assert memory.stats().without_vector == 0
        memory.add(texts(31)[30])
        assert scores(memory) == wanted != before
        assert memory.reembed(NEW) == 0
    assert {path.name for path in (store / "vectors").iterdir()} == {"old-16", "new-16"}
    with pytest.raises(mempp.EncoderMismatchError, match=r"new-16.*old-16.*reembed"):
        mempp.open(store, encoder=OLD)
    with mempp.open(store, encoder=NEW) as memory:
        assert scores(memory) == wanted
        assert memory.embed() == 0
        # Back again: only what came since is embedded.
        assert memory.reembed(OLD) == 1
    report = mempp.verify(store)
    assert report.ok
    with mempp.open(store, encoder=OLD) as memory:
        memory.snapshot(tmp_path / "copy")
    mempp.restore(tmp_path / "copy", tmp_path / "restored")
    assert {path.name for path in (tmp_path / "restored" / "vectors").iterdir()} == {"old-16", "new-16"}


def test_the_past_is_asked_with_the_encoder_of_its_time(store: Path) -> None:
    with mempp.open(store, encoder=OLD) as memory:
        then, before = memory.head_sequence, scores(memory)
        memory.reembed(NEW)
        memory.add("a note that came later")
        now = memory.head_sequence
    with mempp.open(store, at=then, encoder=OLD) as past:
        assert past.stats().encoder == "old-16"
        assert scores(past) == before
    with pytest.raises(mempp.EncoderMismatchError):
        mempp.open(store, at=then, encoder=NEW)
    with mempp.open(store, at=now, encoder=NEW) as past:
        assert past.stats().encoder == "new-16"


@pytest.mark.usefixtures("server")
def test_others_meet_the_switch(store: Path, tmp_path: Path) -> None:
    """A model on disk can be built again by whoever reads the entry; an encoder of the caller's own cannot."""
    model = write_tiny_model(tmp_path / "model")
    with (
        mempp.open(store, encoder=OLD) as writer,
        mempp.open(store, encoder=OLD, read_only=True) as reader,
        mempp.open(store, encoder="none") as plain,
        mempp.open(store, encoder=OLD) as switching,
    ):
        before = scores(reader)
        switching.reembed(model)
        name = switching.stats().encoder
        # Whoever has not met the entry yet goes on.
        assert scores(reader) == before
        reader.refresh()
        assert reader.stats().encoder == name
        assert scores(reader) == scores(switching) != before
        # A writer meets it in its next commit, and embeds with the new encoder.
        writer.add_many(["the board approved a vendor", "another one"])
        assert writer.stats().without_vector == 0
        switching.refresh()
        assert switching.stats().without_vector == 0
        plain.refresh()
        assert plain.recall("vpn of office 3")
        switching.reembed(NEW)
        reader.refresh()
        assert reader.recall("vpn", settings=WORDS)
        with pytest.raises(mempp.EncoderUnavailableError, match=r"'new-16'.*pass that encoder"):
            reader.recall("vpn")
        rows = len(writer)
        writer.refresh()
        with pytest.raises(mempp.EncoderUnavailableError, match="new-16"):
            writer.add("c")
        assert writer.add("d", embed=False).added == 1
        assert len(writer) == rows + 1
        switching.refresh()
        assert switching.embed() == 1


def test_rows_that_come_meanwhile_are_embedded_before_the_switch(store: Path) -> None:
    with mempp.open(store, encoder=OLD) as other:

        class Disturbed(WordEncoder):
            left = 3

            def encode_documents(self, texts):
                if self.left:
                    self.left -= 1
                    other.add(f"meanwhile {self.left}")
                return super().encode_documents(texts)

        with mempp.open(store, encoder=OLD) as memory:
            memory.refresh()
            assert memory.reembed(Disturbed(16, "new")) == 33
            assert memory.stats().without_vector == 0
            assert len(memory) == 33


def test_a_row_that_comes_just_before_the_switch_holds_it_up(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last look outside the commit lock and the lock."""
    real = reembedding._Target.lacking
    came: list[int] = []
    with mempp.open(store, encoder=OLD) as memory, mempp.open(store, encoder=OLD) as other:

        def disturbed(self: reembedding._Target) -> list[int]:
            found = real(self)
            if not found and not came:
                came.append(other.add("just now").new_row_ids[0])
            return found

        monkeypatch.setattr(reembedding._Target, "lacking", disturbed)
        assert memory.reembed(NEW) == 31
        assert memory.stats().without_vector == 0
    assert set(independent.read_vectors(store / "vectors" / "new-16", 16)) == set(range(31))


def test_windows_made_by_the_old_encoder_do_not_get_among_those_of_the_new(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch was made by a process that does without windows; those under way are made again."""
    monkeypatch.setattr("mempp.embedding.load_encoder", lambda name, description: NEW)
    started, switched = threading.Event(), threading.Event()

    class Waiting(WordEncoder):
        def encode_documents(self, texts):
            started.set()
            assert switched.wait(20)
            return super().encode_documents(texts)

    with mempp.open(store, encoder=OLD, settings=mempp.Settings(windows=False)) as switching:

        def switch() -> None:
            assert started.wait(20)
            switching.reembed(NEW)
            switched.set()

        thread = threading.Thread(target=switch)
        with mempp.open(store, encoder=Waiting(16, "old")) as memory:
            thread.start()
            row = memory.add_many(["late " + LONG]).new_row_ids[0]
            thread.join()
            assert memory.stats().encoder == "new-16"
            batches = memory._store.vectors("new-16", 16).refresh()  # type: ignore[attr-defined]
    windows = {
        int(view): vector
        for batch in batches
        for key, view, vector in zip(batch.row_ids, batch.views, batch.vectors, strict=True)
        if key == row and view
    }
    wanted = NEW.encode_documents(windows_of("late " + LONG))
    assert np.array_equal(np.array([windows[view] for view in sorted(windows)]), wanted)


def test_an_adding_under_way_goes_over_to_the_new_encoder(store: Path) -> None:
    """What the old encoder was making when the switch came is not kept."""
    with mempp.open(store, encoder=OLD) as switching:
        started, switched = threading.Event(), threading.Event()
        real = OLD.encode_documents

        class Waiting(WordEncoder):
            def encode_documents(self, texts):
                started.set()
                assert switched.wait(20)
                return real(texts)

        def switch() -> None:
            assert started.wait(20)
            switching.reembed(NEW)
            switched.set()

        thread = threading.Thread(target=switch)
        with mempp.open(store, encoder=Waiting(16, "old")) as memory:
            thread.start()
            assert memory.add_many([f"late {n}" for n in range(5)]).added == 5
            thread.join()
            # The switch waited for the vectors of these rows, and they are not made again.
            assert memory.stats().encoder == "new-16"
            assert memory.stats().without_vector == 0
    old = independent.read_vectors(store / "vectors" / "old-16", 16)
    assert set(old) == set(range(30))
    new = independent.read_vectors(store / "vectors" / "new-16", 16)
    assert set(new) == set(range(35))


@pytest.mark.parametrize("on_disk", [True, False])
def test_no_answer_mixes_the_two_encoders(tmp_path: Path, on_disk: bool) -> None:
    """Questions and rows turned round together give the same scores; of a mixed pair they would all be negative."""
    forth, back = WordEncoder(16, "forth"), Turned(16, "back")
    settings = mempp.Settings(
        weight_lexical=0, weight_tags=0, weight_dates=0, context=0, thread_spread=0, weight_thread_lexical=0,
        weight_thread_vector=0, fusion="ranks", recency_slots=0, k=5,
    )  # fmt: skip
    with mempp.open(tmp_path / "s", encoder=forth) if on_disk else mempp.in_memory(encoder=forth) as memory:
        memory.add_many(texts(40))
        done = threading.Event()
        wrong: list[object] = []
        asked = [0]

        def ask() -> None:
            while not done.is_set():
                try:
                    found = [hit.record.row_id for hit in memory.recall("vpn of office 3", settings=settings)]
                except BaseException as error:
                    wrong.append(error)
                    return
                asked[0] += 1
                if found != wanted:
                    wrong.append(found)

        wanted = [hit.record.row_id for hit in memory.recall("vpn of office 3", settings=settings)]
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for encoder in (back, forth) * 8:
            memory.reembed(encoder)
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[0]
    assert asked[0] > 10


def test_what_cannot_be_the_new_encoder(store: Path) -> None:
    class Failing(WordEncoder):
        def encode_documents(self, texts):
            raise RuntimeError("out of order")

    with mempp.open(store, encoder=OLD) as memory:
        before = scores(memory)
        with pytest.raises(mempp.InputError, match="none"):
            memory.reembed("none")
        with pytest.raises(mempp.InputError, match="no encoder"):
            memory.reembed("nonsense")
        with pytest.raises(mempp.EncoderError, match="out of order"):
            memory.reembed(Failing(8, "failing"))
        assert memory.stats().encoder == "old-16"
        assert scores(memory) == before
    with mempp.open(store, encoder=OLD, read_only=True) as memory, pytest.raises(mempp.StoreReadOnlyError):
        memory.reembed(NEW)
    with mempp.in_memory(encoder=OLD) as memory:
        assert memory.reembed(NEW) == 0
        memory.add("alpha")
        assert memory.stats().encoder == "new-16"


@pytest.mark.parametrize("on_disk", [True, False])
def test_an_encoder_of_the_same_name_and_other_dimensions(tmp_path: Path, on_disk: bool) -> None:
    class Same(WordEncoder):
        def __init__(self) -> None:
            super().__init__(8)
            self.identity = mempp.EncoderIdentity(OLD.identity.name, 8, {"kind": "test"})

    with mempp.open(tmp_path / "s", encoder=OLD) if on_disk else mempp.in_memory(encoder=OLD) as memory:
        memory.add_many(texts(3))
        with pytest.raises(mempp.EncoderMismatchError, match=r"8 dimensions.*of 16; give it another name"):
            memory.reembed(Same())
        # Nor one whose name an earlier encoder had.
        memory.reembed(NEW)
        with pytest.raises(mempp.EncoderMismatchError, match="dimensions"):
            memory.reembed(Same())
        memory.reembed(OLD)
        assert memory.stats().encoder == "old-16"
    if on_disk:
        with pytest.raises(mempp.EncoderMismatchError, match="give it another name"):
            mempp.open(tmp_path / "s", encoder=Same())
    # Where both came to a store without an encoder, the second stores nothing.
    with mempp.open(tmp_path / "t", encoder=OLD) as first, mempp.open(tmp_path / "t", encoder=Same()) as second:
        first.add("one")
        with pytest.raises(mempp.EncoderMismatchError, match="give it another name"):
            second.add("two")
        assert len(second) == 1


@pytest.mark.parametrize("way", ["refresh", "commit", "after an interrupt"])
def test_opened_with_another_encoder_before_there_were_vectors(tmp_path: Path, way: str) -> None:
    """As after a switch: the store's encoder is followed, or it is told that it cannot be made."""
    model = write_tiny_model(tmp_path / "model")
    path = tmp_path / "s"
    with mempp.open(path, encoder=model) as one, mempp.open(path, encoder=OLD) as two:
        one.add_many(texts(3), embed=False)
        two.refresh()
        # Without vectors of the other, this encoder may still become the store's.
        assert two.stats().encoder == "old-16"
        assert one.embed() == 3
        if way == "commit":
            two.annotate(0, "note", {})
        else:
            two._engine._behind = way == "after an interrupt"
            two.refresh()
        assert two.stats().encoder == one.stats().encoder == two.encoder.identity.name
        assert two.stats().without_vector == 0
        assert scores(two) == scores(one)
        two.add("one more of them")
        assert two.stats().without_vector == 0
    with mempp.open(tmp_path / "t", encoder=NEW) as one, mempp.open(tmp_path / "t", encoder=OLD) as two:
        one.add_many(texts(3))
        two.refresh()
        with pytest.raises(mempp.EncoderUnavailableError, match="new-16"):
            two.recall("vpn")
        with pytest.raises(mempp.EncoderUnavailableError, match="new-16"):
            two.add("nothing is stored")
        assert len(two) == 3
        assert two.recall("vpn", settings=WORDS)


@pytest.mark.filterwarnings("ignore::mempp.storage.TornTailWarning")
def test_killed_at_any_moment_and_run_again(tmp_path: Path, server: Nursery) -> None:
    """The store has one complete set of vectors at any time, and each run goes on where the one before was killed."""
    chooser = random.Random(3)
    old, new = HeadEncoder(), OtherEncoder()
    store = tmp_path / "s"
    with mempp.open(store, encoder=old) as memory:
        memory.add_many(texts(120))
    kills, had = 0, 0
    for _ in range(8):
        child = server.start("embedder", path=str(store), job="reembed")
        lines = child.lines()
        for _ in range(chooser.randrange(1, 4)):
            next(lines, None)
        child.kill()
        switched = any("count" in line for line in lines)
        kills += child.wait() == -signal.SIGKILL
        with mempp.open(store, read_only=True, encoder="none") as memory:
            encoder = memory.stats().encoder
        if encoder == new.identity.name:
            break
        assert not switched
        with mempp.open(store, encoder=old) as memory:  # a writer goes on meanwhile
            assert memory.stats().without_vector == 0
            memory.add(f"meanwhile {len(memory)}")
        folder = store / "vectors" / new.identity.name
        made = len(independent.read_vectors(folder, new.identity.dimensions)) if folder.exists() else 0
        assert made >= had
        had = made
    assert kills > 2
    assert had > 0
    with mempp.open(store, encoder=None) as memory:
        memory.reembed(OtherEncoder())
        count = len(memory)
        assert memory.stats().without_vector == 0
        rows = [memory.get(row).text for row in range(count)]
    found = independent.read_vectors(store / "vectors" / new.identity.name, new.identity.dimensions)
    assert np.array_equal(np.array([found[row] for row in range(count)], np.float32), new.encode_documents(rows))
    assert mempp.verify(store).ok


def test_two_processes_embed_anew_at_once(tmp_path: Path, server: Nursery) -> None:
    store = tmp_path / "s"
    with mempp.open(store, encoder=HeadEncoder()) as memory:
        memory.add_many(texts(60))
    children = [server.start("embedder", path=str(store), job="reembed") for _ in range(2)]
    for child in children:
        *_, last = child.lines()
        assert child.wait() == 0, last
    with mempp.open(store, encoder=OtherEncoder()) as memory:
        assert memory.stats().encoder == OtherEncoder().identity.name
        assert memory.embed() == 0
        entries = [line for line in independent.read(store).entries if line["kind"] == "encoder"]
    assert len(entries) == 2, "the switch is in the log once"
