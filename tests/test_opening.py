"""Short ways of opening a large store: entries made by columns, rows counted from the end, garbage looked for later."""

import gc
import weakref
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempp.caching import _rows_of
from mempp.engine import _uncollected
from mempp.indexes import names, postings
from mempp.projection import Projection
from mempp.storage.entries import FIELDS, Entry, canonical_bytes, entries_of

TEXT = st.none() | st.text(max_size=3)
NUMBER = st.none() | st.integers(-5, 5)
VALUES = {
    "kind": st.sampled_from(["document", "annotate", "encoder"]),
    "sequence": st.integers(-1, 9),
    "ingested_at": st.integers(-1, 9),
    "authors": st.lists(st.text(max_size=2), max_size=2).map(tuple),
    "tags": st.lists(st.text(max_size=2), max_size=2).map(tuple),
    "row_id": NUMBER,
    "related_row": NUMBER,
    "occurred_at": NUMBER,
}


@given(st.lists(st.tuples(*(VALUES.get(name, TEXT) for name in FIELDS)), max_size=6))
def test_entries_of_columns_are_those_made_one_by_one(rows: list[tuple[object, ...]]) -> None:
    expected = [Entry(*row) for row in rows]  # type: ignore[arg-type]
    made = entries_of([[row[place] for row in rows] for place in range(len(FIELDS))], len(rows))
    assert made == expected
    assert [type(entry) for entry in made] == [Entry] * len(rows)
    assert list(map(hash, made)) == list(map(hash, expected))
    assert list(map(canonical_bytes, made)) == list(map(canonical_bytes, expected))
    if made:
        with pytest.raises(AttributeError):
            made[0].kind = "x"  # type: ignore[misc]


@given(st.lists(st.booleans(), max_size=12), st.data())
def test_rows_are_counted_from_the_end(documents: list[bool], data: st.DataObject) -> None:
    entries = [
        Entry(kind="document" if is_document else "annotate", row_id=sum(documents[:place]) if is_document else 0)
        for place, is_document in enumerate(documents)
    ]
    sequence = data.draw(st.integers(0, len(entries)))
    assert _rows_of(entries, sequence) == sum(documents[:sequence])


@given(st.lists(st.integers(1, 4), max_size=8), st.sets(st.integers(1, 30)))
def test_commits_are_told_by_their_stamps(sizes: list[int], cuts: set[int]) -> None:
    """Wherever the entries are cut into parts, within a commit too."""
    stamps = [10 * commit for commit, size in enumerate(sizes) for _ in range(size)]
    entries = [
        Entry(kind="document" if place % 3 else "encoder", sequence=place, ingested_at=stamp, text="x")
        for place, stamp in enumerate(stamps)
    ]
    projection = Projection(exact_up_to=10)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(entries)), len(entries)]
    for start, end in pairwise(bounds):
        projection.apply(entries[start:end])
    for place, stamp in enumerate(stamps):
        assert projection.stamp_of(place) == stamp
    assert projection._last_sequences == [stamps.index(stamp) + stamps.count(stamp) - 1 for stamp in sorted({*stamps})]
    assert len(projection) == sum(entry.kind == "document" for entry in entries)


class Node:
    """Something that holds itself."""

    def __init__(self) -> None:
        self.me = self


def test_what_was_read_counts_as_old_and_garbage_is_still_found() -> None:
    gc.collect()
    assert gc.isenabled()
    with _uncollected():
        assert not gc.isenabled()
        kept = [[number] for number in range(5_000)]
        lost = weakref.ref(Node())
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    young = {id(one) for generation in (0, 1) for one in gc.get_objects(generation)}
    assert not young.intersection(map(id, kept))
    assert lost() is not None
    gc.collect()
    assert lost() is None


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.collect()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with _uncollected():
            kept = [[number] for number in range(1_000)]
        assert gc.get_freeze_count() >= frozen - 1_000 > 0
        assert len(kept) == 1_000
    finally:
        gc.unfreeze()
    gc.disable()
    try:
        with _uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@given(st.lists(st.lists(st.lists(st.sampled_from("abcd"), max_size=3), max_size=9), max_size=5), st.integers(0, 9))
def test_rows_that_hold_the_same_are_noted_as_if_one_by_one(parts: list[list[list[str]]], together: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "_ROWS_TOGETHER", together)
        alike, plain, row = postings.Postings(), postings.Postings(), 0
        for part in parts:
            kinds = {tuple(terms): kind for kind, terms in enumerate(dict.fromkeys(map(tuple, part)))}
            counts = [{term: terms.count(term) for term in terms} for terms in kinds]
            alike.add_alike(row, counts, np.array([kinds[tuple(terms)] for terms in part], np.int64))
            for place, terms in enumerate(part):
                plain.add(row + place, {term: terms.count(term) for term in terms})
            row += len(part)
        found, expected = alike.arrays(), plain.arrays()
    assert alike.terms() == plain.terms()
    assert {name: postings.whole(array).tolist() for name, array in found.items()} == {
        name: postings.whole(array).tolist() for name, array in expected.items()
    }


@given(st.lists(st.lists(st.sampled_from(["Ethan Brooks", "B. Stone", "board", "Ann Lee"]), max_size=3), max_size=90))
def test_authors_of_rows_are_told_alike_however_many_come_together(authors: list[list[str]]) -> None:
    at_once, one_by_one = names.NameForms(), names.NameForms()
    at_once.add_rows(authors)
    for of_row in authors:
        one_by_one.add_rows([of_row])
    assert at_once._authorships.values.tolist() == one_by_one._authorships.values.tolist()
    assert at_once._authorships.values.tolist() == [
        [row, at_once._numbers[author]] for row, of_row in enumerate(authors) for author in of_row
    ]
    assert at_once._numbers == one_by_one._numbers
    for author in at_once._numbers:
        rows = [row for row, of_row in enumerate(authors) if author in of_row]
        assert at_once._rows_of.find(author, len(authors))[0].tolist() == rows
        assert one_by_one._rows_of.find(author, len(authors))[0].tolist() == rows
