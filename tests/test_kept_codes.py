"""Codes that were kept: the same products and answers as with codes made anew, and no damaged file is taken."""

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mempp.errors import InputError
from mempp.indexes import VectorIndex, codes, held, turning, vectors
from mempp.indexes.codes import Codes, CodeStore
from mempp.indexes.costs import ScanCosts
from mempp.indexes.kept_codes import CODES_VERSION, KeptCodes
from mempp.storage.flat_cache import FlatArrays, FlatCache

BY_CODES = ScanCosts(scan=1.0, gather=1.0, codes=0.0)
DIMENSIONS = 128


def drawn(chance: np.random.Generator, n: int, *, turned: bool, dimensions: int = DIMENSIONS) -> NDArray[np.float32]:
    """Unit vectors; turned: with most of their length in a few directions."""
    values = chance.standard_normal((n, dimensions))
    if turned:
        values /= 1 + np.arange(dimensions) / 4
    made: NDArray[np.float32] = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return made


def read_only(array: NDArray[np.generic]) -> NDArray[np.generic]:
    copied = array.copy()
    copied.flags.writeable = False
    return copied


def again(kept: KeptCodes) -> KeptCodes:
    """What comes back of a file."""
    return KeptCodes.from_arrays({name: read_only(array) for name, array in kept.arrays().items()}, kept.facts())


def everything_of(found: Codes, question: NDArray[np.float32], inside: NDArray[np.bool_]) -> list[bytes]:
    """All that a search reads of codes, to the last bit."""
    told: list[NDArray[np.float32]] = [np.array(found.most)]
    halves = found.turned(question)
    chosen = np.flatnonzero(inside)
    for plane, half in zip(found.planes, halves, strict=False):
        asked = plane.asked(half)
        bounds = np.zeros(len(chosen), np.float32)
        told += [plane.products(asked, None), plane.products(asked, chosen, bounds), bounds, plane.bounds(asked)]
        told += [plane.bounds(asked, None, chosen), plane.part(len(plane) // 3, len(plane)).bounds(asked)]
        told += [plane.part(len(plane) // 3, len(plane)).products(asked, None)]
        told += [plane.scales, plane.errors, plane.lengths]
    return [array.tobytes() for array in told]


@pytest.mark.parametrize("turned", [True, False])
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 700), st.lists(st.integers(0, 200), max_size=3), st.integers(1, 400))
def test_the_same_products_wherever_the_kept_part_ends(
    turned: bool, seed: int, first: int, later: list[int], block: int
) -> None:
    chance = np.random.default_rng(seed)
    given_vectors = drawn(chance, first + sum(later), turned=turned)
    turn = turning.turn_for(drawn(chance, 500, turned=turned)) if turned else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "_WORTH", 1)
        patch.setattr(codes, "BLOCK", block)
        anew = CodeStore(DIMENSIONS, turn)
        anew.extend(given_vectors[:first])
        kept = CodeStore.beginning_with(again(KeptCodes(anew.snapshot(), 1.0)).codes)
        before, size = kept.snapshot(), first
        for count in later:
            for store in (anew, kept):
                store.extend(given_vectors[size : size + count])
            size += count
        assert len(kept) == len(anew) == size
        found, expected = kept.snapshot(), anew.snapshot()
        assert found.shape == (size, DIMENSIONS)
        assert len(found.head.values.first) == first  # not copied
        question = drawn(chance, 1, turned=turned)[0]
        inside = chance.random(size) < chance.choice([0.05, 0.5, 1.0])
        assert everything_of(found, question, inside) == everything_of(expected, question, inside)
        assert len(before) == first  # what a reader holds stays


class Shelf:
    """A CodeKeeper in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, KeptCodes] = {}

    def load(self, digest: str) -> KeptCodes | None:
        return again(self.kept[digest]) if digest in self.kept else None

    def keep(self, digest: str, codes: KeptCodes) -> None:
        self.kept[digest] = codes


@pytest.mark.parametrize("views_per_row", [1, 3])
@pytest.mark.parametrize("turned", [True, False])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.002, 0.5, 1.0]), later=st.sampled_from([0, 1, 900]))
def test_an_index_answers_the_same_with_kept_codes(
    views_per_row: int, turned: bool, seed: int, share: float, later: int
) -> None:
    chance = np.random.default_rng(seed)
    first, n = 2_000, 2_000 + later
    views = drawn(chance, n, turned=turned)
    views[chance.integers(0, n, n // 8)] = views[chance.integers(n)]  # many are equal
    views.flags.writeable = False
    rows = np.arange(n) // views_per_row
    rows = rows if seed % 2 else chance.permutation(rows)
    digest = hashlib.sha256(views[:first].tobytes()).hexdigest()
    shelf, made = Shelf(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_CODED_FROM", 1_000)
        patch.setattr(held, "_WORTH", 1_000)
        patch.setattr(codes, "BLOCK", 512)
        encoded = codes._encoded
        patch.setattr(codes, "_encoded", lambda block: made.append(len(block)) or encoded(block))
        answers = []
        for keeper in (None, shelf, shelf):
            made.clear()
            index = VectorIndex(DIMENSIONS, codes=keeper)
            index.add_batches([(rows[:first], views[:first], digest), (rows[first:], views[first:], None)], n)
            index._costs = BY_CODES
            allowed = np.random.default_rng(seed).random(n // views_per_row - seed % 50) < share
            for question in (views[seed % n], drawn(np.random.default_rng(seed), 1, turned=False)[0]):
                for exact in (True, False):
                    ranking = index.rank(question, allowed, 20, exact=exact)
                    answers.append((ranking.row_ids.tolist(), ranking.scores.tolist(), index._views.largest_norm))
    assert sum(made) == later * (2 if turned else 1)  # the last one encoded nothing that was kept
    assert answers[:4] == answers[4:8] == answers[8:]
    assert list(shelf.kept) == [digest]


def test_codes_of_another_shape_and_of_part_of_the_vectors_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_CODED_FROM", 100)
    chance = np.random.default_rng(1)
    views = drawn(chance, 400, turned=True)
    for size, dimensions in ((300, DIMENSIONS), (800, DIMENSIONS // 2)):
        shelf = Shelf()
        store = CodeStore(dimensions)
        store.extend(drawn(chance, size, turned=True, dimensions=dimensions))
        shelf.kept["digest"] = KeptCodes(store.snapshot(), 1.0)
        index = VectorIndex(DIMENSIONS, codes=shelf)
        index.add_batches([(np.arange(400), views, "digest")], 400)
        assert shelf.kept["digest"].codes.shape == (400, DIMENSIONS)


def unfit(kept: KeptCodes) -> dict[str, tuple[dict[str, NDArray[np.generic]], dict[str, float]]]:
    arrays, facts = kept.arrays(), kept.facts()
    return {
        "no tail": ({name: array for name, array in arrays.items() if name != "tail.values"}, facts),
        "short": (arrays | {"head.errors": arrays["head.errors"][:-1]}, facts),
        "short tail": ({name: array[:-1] if "tail" in name else array for name, array in arrays.items()}, facts),
        "another type": (arrays | {"head.values": arrays["head.values"].astype(np.float32)}, facts),
        "one axis": (arrays | {"head.values": arrays["head.values"].reshape(-1)}, facts),
        "another turn": (arrays | {"turn": arrays["turn"][:64, :64]}, facts),
        "another head": (arrays, facts | {"turn_head": 32}),
        "not finite": (arrays, facts | {"most_error": float("inf")}),
        "no number": (arrays, facts | {"largest_norm": "x"}),
        "lacking": (arrays, {name: fact for name, fact in facts.items() if name != "turn_error"}),
    }


@pytest.fixture(scope="module")
def some_codes() -> KeptCodes:
    views = drawn(np.random.default_rng(2), 600, turned=True)
    store = CodeStore(DIMENSIONS, turning.turn_for(views))
    store.extend(views)
    return KeptCodes(store.snapshot(), 1.0)


@pytest.mark.parametrize(
    "what",
    [
        "no tail",
        "short",
        "short tail",
        "another type",
        "one axis",
        "another turn",
        "another head",
        "not finite",
        "no number",
        "lacking",
    ],
)
def test_arrays_that_do_not_fit_are_refused(some_codes: KeptCodes, what: str) -> None:
    assert again(some_codes).codes.shape == (600, DIMENSIONS)
    with pytest.raises(InputError, match="no codes"):
        KeptCodes.from_arrays(*unfit(some_codes)[what])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_arrays_come_back_from_a_file_and_no_flipped_bit_does(data: st.DataObject) -> None:
    numbers = np.random.default_rng(data.draw(st.integers(0, 1000)))
    arrays: dict[str, NDArray[np.generic]] = {
        "bytes": numbers.integers(0, 256, (data.draw(st.integers(0, 50)), 7)).astype(np.uint8),
        "floats": numbers.standard_normal(data.draw(st.integers(0, 3000))).astype(np.float32),
        "none": np.empty((0, 4), np.float32),
    }
    facts = {"most": data.draw(st.floats(allow_nan=False)), "head": 64}
    with tempfile.TemporaryDirectory() as folder:
        cache = FlatCache(Path(folder), "0" * 32)
        assert cache.save("codes", "1", "digest", FlatArrays(arrays, facts))
        found = cache.load("codes", "1", "digest")
        assert found is not None
        assert found.facts == facts
        assert {name: (array.tobytes(), array.shape) for name, array in found.arrays.items()} == {
            name: (array.tobytes(), array.shape) for name, array in arrays.items()
        }
        assert not any(array.flags.writeable for array in found.arrays.values() if array.size)
        assert cache.load("codes", "2", "digest") is None
        assert cache.load("codes", "1", "other") is None
        assert FlatCache(Path(folder), "1" * 32).load("codes", "1", "digest") is None
        path = Path(folder, "codes.flat")
        whole = path.read_bytes()
        begins = [4096] + [4096 * (1 + -(-arrays["bytes"].nbytes // 4096))] * bool(arrays["floats"].size)
        used = [*range(48 + int.from_bytes(whole[12:16], "little"))]
        used += [4096 + at for at in range(arrays["bytes"].nbytes)]
        used += [begins[-1] + at for at in range(arrays["floats"].nbytes)]
        at = data.draw(st.sampled_from(used))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(damaged)
        assert cache.load("codes", "1", "digest") is None


def test_who_changes_what_codes_mean_changes_their_version() -> None:
    """Files of one version are taken as they are: codes and scales that differ from these need another version."""
    values = (np.arange(40 * 64) * 7919 % 1009 - 504).reshape(40, 64).astype(np.float32) / np.float32(3000)
    store = CodeStore(64)
    store.extend(values)
    plane = store.snapshot().head
    told = hashlib.sha256(plane.values.part(0, 40).tobytes() + plane.scales.tobytes()).hexdigest()
    assert (CODES_VERSION, told) == (
        "codes 1: bytes from -127, turned, head and tail",
        "e4c44f6aa3aaded0958b9d42c2c7b9ec4eeb406b286184cb5d9b6cc7e840f929",
    )
    wide = values.astype(np.float64)
    coded = plane.scales[:, None].astype(np.float64) * (plane.values.part(0, 40).astype(np.float64) - 128)
    assert (np.linalg.norm(wide - coded, axis=1) <= plane.errors).all()
    assert (np.linalg.norm(coded, axis=1) <= plane.lengths).all()
