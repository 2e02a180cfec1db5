"""Windows of long texts, evidence packed by threads, as-of dates read from the question."""

import time
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import WordEncoder

import mempp
from mempp.encoders.windows import MOST_WINDOWS, SHORT, WINDOW, has_windows, windows_of

LONG = " ".join(f"Sentence {number} speaks of the ferry." for number in range(60)) + " The turbine is rented out."


@given(st.text(alphabet=st.sampled_from("ab .!?\n。日é"), max_size=4000))
def test_windows_are_the_text_in_pieces(text):
    windows = windows_of(text)
    assert bool(windows) <= has_windows(text)
    if len(text.encode()) <= SHORT:
        assert windows == []
    else:
        # Only white space is left out between them.
        rest = text
        for window in windows:
            before, found, rest = rest.partition(window)
            assert found
            assert not before.strip()
        assert not rest.strip()
    assert all(window.strip() and len(window.encode()) <= WINDOW for window in windows)


@pytest.mark.parametrize(
    "text", ["a" * 3_000_000, "word " * 600_000, "." * 3_000_000, "日本。" * 300_000, "a\n" * 1_500_000]
)
def test_huge_texts_have_bounded_windows_in_linear_time(text):
    def seconds(part: str) -> float:
        started = time.perf_counter()
        windows = windows_of(part)
        assert len(windows) <= 1.05 * MOST_WINDOWS
        return time.perf_counter() - started

    seconds(text[:1000])
    small = min(seconds(text[: len(text) // 10]) for _ in range(3))
    assert min(seconds(text) for _ in range(2)) < 60 * max(small, 1e-3)


def test_a_long_text_is_as_near_as_the_nearest_of_its_views():
    encoder = WordEncoder()
    asked = encoder.encode_question("turbine rented")
    nearest = max(float(encoder.encode_question(view) @ asked) for view in [LONG, *windows_of(LONG)])
    assert nearest > float(encoder.encode_question(LONG) @ asked) + 0.05

    def value(leg: str, **settings: object) -> float:
        (hit,) = memory.recall("turbine rented", settings=mempp.Settings(**settings))  # type: ignore[arg-type]
        return next(one.leg_score for one in hit.explain().legs if one.leg == leg)

    with mempp.in_memory(encoder=encoder) as memory:
        memory.add(LONG)
        assert value("thread_vector") == pytest.approx(nearest, abs=1e-5)
        assert value("vector", context=0) == pytest.approx(nearest, abs=1e-5)
        assert value("vector", context=0, fusion="ranks") == pytest.approx(nearest, abs=1e-5)
        assert value("thread_vector", windows=False) == pytest.approx(
            float(encoder.encode_question(LONG) @ asked), abs=1e-5
        )


def test_embed_makes_the_windows_that_an_older_store_lacks(tmp_path):
    encoder = WordEncoder()
    with mempp.open(tmp_path / "s", encoder=encoder, settings=mempp.Settings(windows=False)) as memory:
        memory.add_many([LONG, "short"])
        assert encoder.encoded == [LONG, "short"]
        assert memory.embed() == 0
    encoder.encoded.clear()
    with mempp.open(tmp_path / "s", encoder=encoder) as memory:
        assert memory.stats().without_vector == 0
        assert memory.embed() == 1
        assert encoder.encoded == windows_of(LONG)
        assert memory.embed() == 0
        assert memory.verify().ok
        asked = memory.recall("turbine rented")
        memory.snapshot(tmp_path / "copy.tar")
    encoder.encoded.clear()
    with mempp.open(tmp_path / "s", encoder=encoder) as memory:
        assert memory.recall("turbine rented") == asked
    mempp.restore(tmp_path / "copy.tar", tmp_path / "restored")
    with mempp.open(tmp_path / "restored", encoder=encoder) as memory:
        assert memory.recall("turbine rented") == asked
    assert encoder.encoded == []


RECORD = [
    ("Vendor A runs the VPN.", "2024-01-10", "vpn"),
    ("Vendor A runs the VPN. Yes.", "2024-01-10", "noise"),
    ("Vendor A runs the VPN.", "2025-01-10", "vpn"),
    ("Vendor B is cheaper. " * 20, "2024-03-01", "vpn"),
    ("The VPN was slow. " * 20, "2024-04-01", "slow"),
    ("Lunch at noon.", None, None),
]


@pytest.fixture
def memory():
    with mempp.in_memory(encoder=WordEncoder()) as memory:
        for text, day, thread in RECORD:
            memory.add(text, occurred_at=day, thread=thread)
        yield memory


@given(budget=st.integers(1, 3000), packing=st.sampled_from(["threads", "skip", "stop"]))
def test_evidence_never_exceeds_its_budget_and_holds_the_best(budget, packing):
    with mempp.in_memory(encoder="none") as memory:
        for text, day, thread in RECORD:
            memory.add(text, occurred_at=day, thread=thread)
        settings = mempp.Settings(packing=packing, recency_slots=0)
        best = memory.recall("vpn vendor", settings=settings)[0]
        evidence = memory.evidence("vpn vendor", max_chars=budget, settings=settings)
        assert len(str(evidence)) <= budget
        assert best.row_id in evidence.row_ids
        assert sorted([*evidence.row_ids, *evidence.left_out]) == sorted(
            hit.row_id for hit in memory.recall("vpn vendor", settings=settings)
        )


def test_a_repeat_of_the_same_day_yields_and_a_version_of_another_day_does_not():
    notice = "The water in the north building is turned off on Monday from nine to noon for repairs, says the porter"
    with mempp.in_memory(encoder="none") as memory:
        memory.add(f"{notice}.", occurred_at="2024-01-10")
        memory.add(f"{notice}. Regards", occurred_at="2024-01-10")
        memory.add(f"{notice}. Regards", occurred_at="2024-02-10")
        memory.add("Water costs more.", occurred_at="2024-01-10")
        assert len(memory.evidence("water north building").row_ids) == 4
        room = len(str(memory.evidence("water north building"))) - 20
        assert len(set(memory.evidence("water north building", max_chars=room).row_ids) & {0, 1}) == 1
        assert {2, 3} <= set(memory.evidence("water north building", max_chars=room).row_ids)


def test_evidence_by_date(memory):
    evidence = memory.evidence("vpn vendor lunch", settings=mempp.Settings(evidence_order="date", fill=True))
    dates = [hit.record.occurred_at for hit in evidence.hits]
    assert dates == sorted(dates, key=lambda date: (date is None, date or datetime.max))
    assert set(evidence.row_ids) == set(range(len(RECORD)))


def test_as_of_is_read_from_the_question_only_when_asked(memory):
    question = "Which vendor runs the VPN, as of 1 June 2024?"
    assert 2 in {hit.row_id for hit in memory.recall(question)}
    hits = memory.recall(question, as_of="auto")
    assert {hit.row_id for hit in hits} <= {0, 1, 3, 4}
    assert all(hit.explain().as_of_read == datetime.fromisoformat("2024-06-01T23:59:59.999999+00:00") for hit in hits)
    assert "as of 2024-06-01" in str(hits[0].explain())
    assert hits[0].explain().as_dict()["as_of_read"].startswith("2024-06-01")
    assert hits == memory.recall(question, as_of="auto")
    evidence = memory.evidence(question, as_of="auto")
    assert evidence.as_of_read is not None
    assert memory.evidence(question).as_of_read is None
    undated = memory.recall("Which vendor runs the VPN?", as_of="auto")
    assert {hit.row_id for hit in undated} == {hit.row_id for hit in memory.recall("Which vendor runs the VPN?")}
    assert undated[0].explain().as_of_read is None
    two = memory.recall_many([question, "VPN vendor?"], as_of="auto")
    assert [one[0].explain().as_of_read is None for one in two] == [False, True]
    with pytest.raises(mempp.InvalidDateError):
        memory.recall(question, as_of="automatic")
    assert hits == memory.recall(question, as_of="AUTO")
    with pytest.raises(mempp.InputError, match="05/06/2024"):
        memory.recall("Which vendor runs the VPN, as of 05/06/2024?", as_of="auto")
    asked = memory.evidence("Which vendor runs the VPN, as of last June?", as_of="auto", asked_at="2024-12-01")
    assert asked.as_of_read == datetime.fromisoformat("2024-06-30T23:59:59.999999+00:00")


def test_many_questions_with_dates_of_their_own_see_one_state():
    with mempp.in_memory(encoder="none") as memory:
        for month in range(1, 7):
            memory.add(f"vpn vendor {month}", author="it", occurred_at=f"2024-0{month}-01")
        dates = ["2024-03-31", "2024-05-31", "2024-03-31", None]
        questions = [f"vpn vendor, as of {date}" if date else "vpn vendor" for date in dates]
        single = [memory.recall(question, as_of="auto") for question in questions]
        assert [len(hits) for hits in single] == [3, 5, 3, 6]
        # An iterable that can be read once filters every question, not only the first.
        assert memory.recall_many(questions, as_of="auto", rows=iter(range(6)), author=iter(["it"])) == single
        asked_of = []

        def permitted(record):
            asked_of.append(record.row_id)
            memory.add(f"vpn vendor, note {len(asked_of)}", occurred_at="2024-01-02")
            return True

        # What the predicate itself adds, and what another thread would, is no part of the answers; and rows are looked
        # at once for each date, not for each question.
        assert memory.recall_many(questions, as_of="auto", rows=permitted) == single
        assert sorted(asked_of) == sorted([*range(3), *range(5), *range(6)])


def test_rows_that_are_no_list_are_refused(memory):
    for rows in (np.array(3), np.array([[0, 1]])):
        with pytest.raises(mempp.InputError, match="dimension"):
            memory.recall("vpn", rows=rows)


def test_an_explanation_says_what_comes_from_neighbours_and_counts_places_from_1():
    with mempp.in_memory(encoder="none") as memory:
        memory.add_many(
            [mempp.Document(text=text, thread="t") for text in ("vpn vendor", "thanks", "vpn vendor", "other")]
        )
        hits = {hit.row_id: hit for hit in memory.recall("vpn")}
        assert "lexical, with its neighbours: 0." in str(hits[1].explain())
        assert "(place 1)" in str(hits[1].explain()) + str(hits[0].explain())
        ranks = [leg.rank for hit in hits.values() for leg in hit.explain().legs if leg.leg == "thread_lexical"]
        assert len(ranks) > 1
        assert set(ranks) == {0}  # all are of one thread, so none is better
        alone = memory.recall("vpn", settings=mempp.Settings(context=0))
        assert "neighbours" not in str(alone[0].explain())


def test_dates_named_bring_rows_of_that_time_forward(memory):
    def dated(question: str, **more: object) -> dict[int, float]:
        hits = memory.recall(question, **more)  # type: ignore[arg-type]
        return {
            hit.row_id: next((leg.leg_score for leg in hit.explain().legs if leg.leg == "dates"), 0.0) for hit in hits
        }

    values = dated("vendor and VPN in March 2024")
    assert values[3] == 0.5
    assert values[3] > values[4] > values[0]
    assert not any(dated("vendor and VPN last March").values())
    assert dated("vendor and VPN last March", asked_at="2024-10-01")[3] == 0.5
    assert dated("vendor and VPN last March", as_of="2024-10-01")[3] == 0.5


def test_rows_out_of_scope_change_no_score():
    encoder = WordEncoder()
    with mempp.in_memory(encoder=encoder) as alone, mempp.in_memory(encoder=encoder) as crowded:
        for text, day, thread in RECORD[:5]:
            alone.add(text, occurred_at=day, thread=thread, author="alice")
            crowded.add(text, occurred_at=day, thread=thread, author="alice")
            crowded.add(f"{text} the vpn, later", occurred_at="2026-01-01", thread=thread, author="Alice Stone")
            crowded.add(f"{text} the vpn, by another", occurred_at=day, thread=thread, author="bob")
        asked = {"as_of": "2025-06-01", "author": "alice"}
        for question in ("vpn vendor", "what did Alice say on 10 January 2024 of the VPN?", "slow"):
            ours = [(hit.record.text, hit.record.occurred_at, hit.score) for hit in alone.recall(question, **asked)]
            theirs = [(hit.record.text, hit.record.occurred_at, hit.score) for hit in crowded.recall(question, **asked)]
            assert ours == theirs


def test_vectors_of_rows():
    from mempp.indexes import VectorIndex

    index = VectorIndex(2)
    index.add([3, 1], [[1.0, 0.0], [0.0, 1.0]])
    vectors, have = index.vectors_of(np.array([0, 1, 3, 9]))
    assert have.tolist() == [False, True, True, False]
    assert vectors.tolist() == [[0, 0], [0, 1], [1, 0], [0, 0]]
