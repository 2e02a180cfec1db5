"""The table of content keys: as a dictionary of lists, for keys that collide too, and small."""

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import mempp
from mempp import content_keys
from mempp.content_keys import KEY_SIZE, RowsByKey

# The first eight bytes, read from the last of them to the first, tell the home: these have the first or the last.
homes = st.sampled_from([0, 1, 2**63, 2**64 - 2, 2**64 - 1]) | st.integers(0, 2**64 - 1)
keys = st.builds(lambda home, rest: home.to_bytes(8, "little") + bytes(7) + bytes([rest]), homes, st.integers(0, 5))


@given(st.lists(keys, max_size=60), st.integers(1, 4))
def test_as_a_dictionary_of_lists(given_keys: list[bytes], bits: int) -> None:
    ours, expected = RowsByKey(bits), dict[bytes, list[int]]()  # so few homes that it grows several times
    for row, key in enumerate(given_keys):
        assert ours.rows_of(key) == expected.get(key, [])
        ours.append(key)
        expected.setdefault(key, []).append(row)
    assert len(ours) == len(given_keys)
    for key in {*given_keys, bytes(KEY_SIZE), b"\xff" * KEY_SIZE}:
        assert ours.rows_of(key) == expected.get(key, [])


def test_it_takes_a_tenth_of_a_dictionary_of_lists() -> None:
    """In bytes a row: 16 of the key, 4 of each slot, of which half at most are taken, and the room of what grows."""
    every = [row.tobytes() for row in np.random.default_rng(1).integers(0, 256, (40_000, KEY_SIZE), np.uint8)]
    tracemalloc.start()
    try:
        ours = RowsByKey()
        for key in every:
            ours.append(key)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / len(every) < 36
    assert most / len(every) < 100
    assert [ours.rows_of(key) for key in every[::997]] == [[row] for row in range(0, len(every), 997)]


def test_rows_are_found_after_the_table_has_grown() -> None:
    with mempp.in_memory(encoder="none") as memory:
        documents = [f"note {number}" for number in range(3 << content_keys._FEWEST_BITS)]
        assert memory.add_many(documents, batch_size=500).added == len(documents)
        again = memory.add_many(documents[::-7])
        assert again.added == 0
        assert list(again.row_ids) == list(range(len(documents)))[::-7]


def test_rows_that_were_added_share_what_is_equal() -> None:
    """As those that are read from a segment do."""
    with mempp.in_memory(encoder="none") as memory:
        for number in range(3):  # values made anew each time, as a parser makes them
            fields = {"author": f"ann {'lee'}", "tags": ["".join("ab"), "c"], "thread": f"t {0}", "kind": "ma" + "il"}
            memory.add({"text": f"text {number}", **fields})
        first, *others = memory._projection._documents
        assert first.authors == ("ann lee",)
        for other in others:
            for name in ("authors", "tags", "thread", "document_kind"):
                assert getattr(other, name) is getattr(first, name)
