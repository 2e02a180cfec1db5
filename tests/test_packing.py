"""Evidence packed into a budget: random answers, and the order of packing against its definition."""

import math
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mempp.packing
from mempp.evidence import pack
from mempp.packing import packing_order
from mempp.recall import Explanation, Hit
from mempp.records import Record

WHEN = datetime(2024, 1, 1, tzinfo=UTC)
NOTICE = "The water in the north building is turned off on Monday from nine to noon for repairs, says the porter"
texts = st.one_of(
    st.text(max_size=60),
    st.integers(1, 400).map(lambda size: "word " * size),
    st.sampled_from([NOTICE, f"{NOTICE}.", f"{NOTICE} today", NOTICE.replace("water", "gas")]),
)


def hit(row, text, *, score=1.0, via="score", day=0, thread=None, authors=()):
    when = None if day is None else WHEN + timedelta(days=day, hours=row % 24)
    record = Record(row_id=row, text=text, ingested_at=WHEN, occurred_at=when, authors=authors, thread=thread)
    return Hit(record, score, via != "fill", Explanation(row, score, via, None, ()))


@st.composite
def answers(draw):
    scores = sorted(draw(st.lists(st.floats(-0.5, 3.0), min_size=1, max_size=16)), reverse=True)
    return [
        hit(
            row,
            draw(texts),
            score=score,
            via=draw(st.sampled_from(["score", "score", "score", "recency", "fill"])),
            day=draw(st.sampled_from([None, 0, 1, 2])),
            thread=draw(st.sampled_from([None, "a", "b"])),
            authors=draw(st.sampled_from([(), ("ann",), ("ann", 'b "x" <y>')])),
        )
        for row, score in enumerate(scores)
    ]


@given(
    hits=answers(),
    budget=st.one_of(st.integers(1, 300), st.integers(300, 6000)),
    style=st.sampled_from(["plain", "tagged"]),
    packing=st.sampled_from(["threads", "skip", "stop"]),
    order=st.sampled_from(["rank", "date"]),
)
def test_any_answer_in_any_budget(hits, budget, style, packing, order):
    evidence = pack(hits, max_chars=budget, style=style, packing=packing, order=order)
    assert 0 < len(evidence.text) <= budget
    assert 0 in evidence.row_ids
    assert sorted([*evidence.row_ids, *evidence.left_out]) == [one.row_id for one in hits]
    assert list(evidence.left_out) == sorted(evidence.left_out)
    for one in evidence.hits:
        assert one.row_id == 0 or one.record.text in evidence.text
    assert evidence.cut or hits[0].record.text in evidence.text
    keys = [
        (one.record.occurred_at is None, one.record.occurred_at or WHEN, one.row_id) if order == "date" else one.row_id
        for one in evidence.hits
    ]
    assert keys == sorted(keys)
    everything = pack(hits, max_chars=10**6, style=style, packing=packing, order=order)
    assert sorted(everything.row_ids) == [one.row_id for one in hits]
    if packing != "stop" and not evidence.cut:
        # None of what was left out would have had a place by itself.
        spare = budget - len(evidence.text)
        frame = len(everything.text) - sum(len(one.record.text) for one in hits)
        assert all(len(hits[row].record.text) + frame > spare for row in evidence.left_out)


def runs(text):
    words = text.casefold().split()
    return {tuple(words[place : place + 3]) for place in range(max(1, len(words) - 2))}


def day_of(one):
    return None if one.record.occurred_at is None else one.record.occurred_at.date()


@given(answers(), st.integers(1, 3000))
def test_threads_are_packed_by_worth(hits, budget):
    """By Σ exp(10 (s - best) / best) over Σ cost, whole threads; the best hit and the recency slots before them."""
    costs = [20 + len(one.record.text) for one in hits]
    best = max(one.score for one in hits)

    def unit(place):
        return hits[place].record.thread or place

    def weight(place):
        return math.exp(10 * (hits[place].score - best) / best) if best > 0 and hits[place].matched else 0.0

    def worth(place):
        thread = [other for other in range(len(hits)) if unit(other) == unit(place)]
        return sum(map(weight, thread)) / sum(costs[other] for other in thread)

    def first(place):
        return min(other for other in range(len(hits)) if unit(other) == unit(place))

    expected = [0]
    room, kept = budget // 2, 0
    for place in range(1, len(hits)):
        if hits[place].via == "recency" and (costs[place] <= room or not kept):
            expected.append(place)
            room, kept = room - costs[place], kept + 1
    by_worth = sorted(range(len(hits)), key=lambda place: (-worth(place), first(place), place))
    expected += [place for place in by_worth if place not in expected]
    repeats: list[int] = []
    for place, one in enumerate(hits):
        for other in range(place):
            if other in repeats or day_of(hits[other]) != day_of(one):
                continue
            mine, theirs = runs(one.record.text), runs(hits[other].record.text)
            if mine == theirs or len(mine & theirs) >= 0.9 * len(mine | theirs):
                repeats.append(place)
                break
    yielding = [place for place in expected if place in repeats]
    expected = [place for place in expected if place not in repeats] + yielding
    assert packing_order(hits, costs, budget, "threads") == expected
    assert packing_order(hits, costs, budget, "stop") == list(range(len(hits)))


@pytest.mark.parametrize("packing", ["threads", "skip"])
def test_a_repeat_of_the_day_yields_and_versions_do_not(packing):
    hits = [
        hit(0, NOTICE, score=2.0),
        hit(1, f"{NOTICE} again", score=1.9),
        hit(2, f"{NOTICE} again", score=1.0, day=40),
        hit(3, "The porter turned the water off on Monday.", score=0.9),
        hit(4, f"{NOTICE} again", score=0.8, day=None),
    ]
    assert packing_order(hits, [len(one.record.text) for one in hits], 1000, packing)[-1] == 1
    whole = pack(hits, packing=packing)
    assert set(whole.row_ids) == {0, 1, 2, 3, 4}
    assert set(pack(hits, packing=packing, max_chars=len(whole.text) - 1).row_ids) == {0, 2, 3, 4}


def test_by_date_the_numbers_follow_the_dates_and_no_budget_is_passed():
    hits = [hit(row, f"text {row:02}", score=3 - row / 10, day=40 - row) for row in range(12)]
    evidence = pack(hits, order="date")
    assert evidence.row_ids == tuple(reversed(range(12)))
    assert evidence.text.startswith("[1] 2024-01-30")
    assert "[12] 2024-02-10\ntext 00" in evidence.text
    for budget in range(30, len(evidence.text) + 1):
        assert len(pack(hits, order="date", max_chars=budget).text) <= budget
    assert pack(hits, order="date", max_chars=len(evidence.text)).row_ids == evidence.row_ids


def test_not_all_pairs_of_a_long_answer_are_compared(monkeypatch):
    compared = []
    alike = mempp.packing._alike
    monkeypatch.setattr(mempp.packing, "_alike", lambda *pair: compared.append(pair) or alike(*pair))
    random = Random(1)
    hits = [hit(row, " ".join(f"w{random.randrange(300)}" for _ in range(60)), day=None) for row in range(400)]
    hits.append(hit(400, hits[7].record.text, day=None))
    assert packing_order(hits, [1] * 401, 10_000, "skip")[-1] == 400
    assert 0 < len(compared) < 2000


def versions(n_texts, n_words, random):
    """Versions of one page, half of each written anew, the shared half first in any alphabetical order."""
    shared = " ".join(f"a{random.randrange(10**6)}" for _ in range(n_words))
    return [shared + " " + " ".join(f"b{random.randrange(10**6)}" for _ in range(n_words)) for _ in range(n_texts)]


def test_what_versions_of_a_page_share_makes_no_pairs(monkeypatch):
    compared = []
    alike = mempp.packing._alike
    monkeypatch.setattr(mempp.packing, "_alike", lambda *pair: compared.append(pair) or alike(*pair))
    hits = [hit(row, text, day=None) for row, text in enumerate(versions(24, 600, Random(1)))]
    hits.append(hit(24, hits[3].record.text + " and so on", day=None))
    assert packing_order(hits, [1] * 25, 40_000, "skip")[-1] == 24
    assert len(compared) < 25


def test_each_pair_is_compared_once_and_the_work_has_an_end(monkeypatch):
    compared = []
    alike = mempp.packing._alike
    monkeypatch.setattr(mempp.packing, "_alike", lambda *pair: compared.append(pair) or alike(*pair))
    random = Random(2)
    # Every run stands in about half of the texts, so rarity tells nothing.
    pool = [f"p{number} q{number} r{number}" for number in range(60)]
    texts = [" ".join(random.sample(pool, 30)) for _ in range(120)]
    hits = [hit(row, text, day=0) for row, text in enumerate(texts)]
    packing_order(hits, [1] * 120, 40_000, "skip")
    assert len(compared) <= 120 * 119 / 2
    compared.clear()
    monkeypatch.setattr(mempp.packing, "_MOST_STEPS", 1000)
    packing_order(hits, [1] * 120, 40_000, "skip")
    assert len(compared) < 1000 / 30 + 1


def test_only_so_much_text_of_an_answer_is_compared(monkeypatch):
    monkeypatch.setattr(mempp.packing, "_COMPARED_TOGETHER", 3 * len(NOTICE))
    hits = [hit(0, "something else"), *(hit(row, NOTICE) for row in range(1, 6)), hit(6, "the end")]
    assert packing_order(hits, [1] * 7, 1000, "skip") == [0, 1, 3, 4, 5, 6, 2]
