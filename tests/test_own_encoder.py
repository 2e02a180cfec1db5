"""Encoders of the caller's own that misbehave: only errors of Mem++ come out, and what was stored stays in order."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import WordEncoder

import mempp
from mempp.storage import Entry, entries


class Unarrayable:
    def __array__(self, *arguments: object, **options: object) -> np.ndarray:
        raise RuntimeError("I am no array")


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Odd(WordEncoder):
    """Gives what it is told to give."""

    def __init__(self, give: Callable[[list[str]], object]) -> None:
        super().__init__()
        self.give = give

    def encode_documents(self, texts):
        return self.give(texts)

    def encode_question(self, text):
        return self.give([text])


def fails(error: BaseException) -> Callable[[list[str]], object]:
    def give(texts: list[str]) -> object:
        raise error

    return give


def empties(texts: list[str]) -> object:
    texts.clear()
    return np.zeros((0, 16), np.float32)


GIVEN: dict[str, tuple[Callable[[list[str]], object], str]] = {
    "an array that raises": (lambda texts: Unarrayable(), "no array of vectors: RuntimeError: I am no array"),
    "fewer, of a list that it emptied": (empties, r"shape .*expected"),
    "numbers beyond float32": (lambda texts: np.full((len(texts), 16), 1e300), "not finite"),
    "numbers beyond float32, one": (lambda texts: np.eye(len(texts), 16) * -1e300, "not finite"),
    "ragged lists": (lambda texts: [[1.0], [1.0, 2.0]], "no array of vectors|shape"),
    "words": (lambda texts: ["one"] * len(texts), "no array of vectors"),
    "nothing": (lambda texts: None, "no array of vectors"),
    "a number": (lambda texts: 1.0, "shape"),
    "many types": (
        lambda texts: np.zeros(len(texts), np.dtype([(f"field {n}", "f4") for n in range(500)])),
        "no array of vectors",
    ),
    "an error that cannot be told": (fails(UnspeakableError()), "UnspeakableError: .it has no message"),
    "an error of a page": (fails(OSError("<html>" * 10_000)), "failed: OSError: <html>"),
    "a recursion without end": (fails(RecursionError("too deep")), "failed: RecursionError"),
}


@pytest.mark.parametrize("given", GIVEN)
def test_only_errors_of_mempp_come_out(given: str) -> None:
    give, message = GIVEN[given]
    with mempp.in_memory(encoder=Odd(give)) as memory:
        for use in (
            lambda: memory.add("first"),
            lambda: memory.add_many(["second", "third"]),
            memory.embed,
            lambda: memory.reembed(renamed(Odd(give))),
        ):
            with pytest.raises(mempp.EncoderError, match=message) as caught:
                use()
            assert len(str(caught.value)) < 500
        assert len(memory) >= 2
        assert memory.stats().without_vector == len(memory)


def renamed(encoder: Odd) -> Odd:
    encoder.identity = mempp.EncoderIdentity("another", 16, {"kind": "test"})
    return encoder


@pytest.mark.parametrize("given", GIVEN)
def test_nor_do_they_from_a_question(given: str) -> None:
    give, _ = GIVEN[given]
    with mempp.in_memory(encoder=WordEncoder()) as memory:
        memory.add("first")
        memory._embedder._encoder = Odd(give)
        with pytest.raises(mempp.EncoderError):
            memory.recall("first")


def test_a_list_that_an_encoder_empties_is_its_own() -> None:
    class Popping(WordEncoder):
        def encode_documents(self, texts):
            vectors = super().encode_documents(texts)
            texts.clear()
            return vectors

    with mempp.in_memory(encoder=Popping()) as memory:
        memory.add_many(["a", "b", "c"])
        assert memory.stats().without_vector == 0


def test_memory_that_is_out_is_no_error_of_an_encoder() -> None:
    class Full(WordEncoder):
        calls = 0

        def encode_documents(self, texts):
            Full.calls += 1
            raise MemoryError

    class FullIdentity(WordEncoder):
        @property
        def identity(self):
            raise MemoryError

        @identity.setter
        def identity(self, value): ...

    class FullLoad(WordEncoder):
        def load(self) -> None:
            raise MemoryError

    class FullArray(Unarrayable):
        def __array__(self, *arguments: object, **options: object) -> np.ndarray:
            raise MemoryError

    for encoder in (Full(), FullIdentity(), FullLoad(), Odd(lambda texts: FullArray())):
        with mempp.in_memory(encoder=encoder) as memory:
            for use in (lambda: memory.add("a"), lambda: memory.add_many(["b"])):
                with pytest.raises(MemoryError):
                    use()
    Full.calls = 0
    with mempp.in_memory(encoder=Full()) as memory, pytest.raises(MemoryError):
        memory.add_many(["b"])
    assert Full.calls == 1, "leaving the block tried it again"


def test_a_load_that_cannot_be_looked_up() -> None:
    class Bad(WordEncoder):
        @property
        def load(self) -> object:
            raise LookupError("no such thing")

    with mempp.in_memory(encoder=Bad()) as memory:
        with pytest.raises(mempp.EncoderError, match="LookupError: no such thing"):
            memory.add("a")
        assert len(memory) == 0


@pytest.mark.parametrize("changes", ["name", "dimensions"])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 8, 13])
def test_an_identity_that_changes_is_told(changes: str, after: int) -> None:
    class Changing(WordEncoder):
        asked = 0

        @property
        def identity(self):
            self.asked += 1
            late = self.asked > after
            name = f"name-{self.asked}" if late and changes == "name" else "name"
            return mempp.EncoderIdentity(name, 17 if late and changes == "dimensions" else 16, {"kind": "test"})

        @identity.setter
        def identity(self, value): ...

        def _vector(self, text):
            return np.eye(1, 16, dtype=np.float32)[0]

    with mempp.in_memory(encoder=Changing()) as memory:
        # From 0 on every call gives another name; dimensions that are wrong from the beginning are told by the shape.

        def add_text_after_text() -> None:
            for n in range(20):
                memory.add_many([f"text {n}"])

        with pytest.raises(mempp.EncoderError, match=r"called itself|shape"):
            add_text_after_text()
        with pytest.raises(mempp.EncoderError):
            memory.add("more")


@pytest.mark.parametrize("description", [None, 5, ["kind"], {"kind": object()}, {5: "kind"}])
def test_a_description_that_json_cannot_hold(description: object) -> None:
    encoder = WordEncoder()
    encoder.identity = mempp.EncoderIdentity("name", 16, description)  # type: ignore[arg-type]
    with mempp.in_memory(encoder=encoder) as memory:
        with pytest.raises(mempp.InputError, match="encoder"):
            memory.add("a")
        assert len(memory) == 0


ENTRY = {"name": "name", "dimensions": 16, "description": {"kind": "test"}}


@pytest.mark.parametrize(
    "payload",
    [
        "[" * 100_000, "{", "[]", "5", *(json.dumps({**ENTRY, **change}) for change in (
            {"dimensions": float("inf")}, {"dimensions": "16"}, {"dimensions": 10**9}, {"dimensions": None},
            {"name": 5}, {"name": "../.."}, {"description": 5}, {"description": None},
        )),
    ],
    ids=lambda payload: payload[:60],
)  # fmt: skip
def test_an_entry_that_tells_of_no_encoder_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, payload: str
) -> None:
    with mempp.open(tmp_path / "s", encoder="none") as memory, monkeypatch.context() as patch:
        memory.add("about the ferry")
        patch.setattr(entries, "_validate", lambda entry, row: None)  # another program may have written it
        memory._engine.commit(lambda: [Entry(kind="encoder", payload=payload)])
    for encoder in (None, WordEncoder()):
        with pytest.raises(mempp.StoreDamagedError, match="encoder='none'") as caught:
            mempp.open(tmp_path / "s", encoder=encoder)
        assert len(str(caught.value)) < 500
    with mempp.open(tmp_path / "s", encoder="none") as memory:
        assert memory.recall("ferry")[0].record.text == "about the ferry"


@pytest.mark.parametrize(
    "change", [b"[" * 100_000, {"version": float("inf")}, {"version": "1"}, {"version": 0}, {"version": True}],
    ids=lambda change: repr(change)[:40],
)  # fmt: skip
def test_an_unreadable_description_of_vectors_is_damage(tmp_path: Path, change: object) -> None:
    encoder = WordEncoder()
    with mempp.open(tmp_path / "s", encoder=encoder) as memory:
        memory.add("a")
    meta = tmp_path / "s" / "vectors" / encoder.identity.name / "meta.json"
    if isinstance(change, bytes):
        meta.write_bytes(change)
    else:
        meta.write_text(json.dumps({**json.loads(meta.read_text()), **change}))  # type: ignore[dict-item]
    with pytest.raises(mempp.StoreDamagedError, match="unreadable"):
        mempp.open(tmp_path / "s", encoder=encoder)
