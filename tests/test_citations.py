"""Citations: read in many forms, put into one, checked against the evidence; the same however an answer is cut."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mempp.operators.citations import CitationReader

ROWS = (0, 3, 17, 18, 19, 23)


def read(*pieces: str, rows: tuple[int, ...] = ROWS) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    reader = CitationReader(rows)
    text = "".join([*map(reader.read, pieces), reader.rest()])
    return text, reader.citations, reader.unknown


@pytest.mark.parametrize(
    ("answer", "text", "cited", "unknown"),
    [
        ("Vendor B [row 17].", "Vendor B [17].", (17,), ()),
        ("Vendor B [17].", "Vendor B [17].", (17,), ()),
        ("B [row 17, row 23] and A [row 0].", "B [17, 23] and A [0].", (17, 23, 0), ()),
        ("B [17][23]", "B [17][23]", (17, 23), ()),
        ("B [Rows 23 and 17; 0]", "B [23, 17, 0]", (23, 17, 0), ()),
        ("B [rows 17-23]", "B [17, 18, 19, 23]", (17, 18, 19, 23), ()),
        ("B [rows 17 to 18, and 3]", "B [17, 18, 3]", (17, 18, 3), ()),
        ('B [row="17"]', "B [17]", (17,), ()),
        ("B 【17】", "B [17]", (17,), ()),
        ("B [record #3]", "B [3]", (3,), ()),
        ("B [99].", "B.", (), (99,)),
        ("B [row 99, row 17, row 4].", "B [17].", (17,), (99, 4)),
        ("B [17, 17] and [17]", "B [17] and [17]", (17,), ()),
        ("[99] B", "B", (), (99,)),
        ("one\n[99] B", "one\nB", (), (99,)),
        ("one [99]\n\ntwo", "one\n\ntwo", (), (99,)),
        ("- [99]\n- B [3]", "-\n- B [3]", (3,), (99,)),
        ("[99]", "", (), (99,)),
        ("  spaced  [3]  \n", "spaced  [3]", (3,), ()),
        ("see [the note] and [] and [a 3]", "see [the note] and [] and [a 3]", (), ()),
        ("not closed [17", "not closed [17", (), ()),
        ("nested [[17]] and [x [3]]", "nested [[17]] and [x [3]]", (17, 3), ()),
        ("at 3 [sic] of 17", "at 3 [sic] of 17", (), ()),
        ("a [00017] b [999999999999999999]", "a [17] b", (17,), (999999999999999999,)),
        ("B [9999999999999999999999]", "B", (), (9999999999999999999999,)),
        # Dates, quantities and notes are no citations.
        ("[2024-06-01]", "[2024-06-01]", (), ()),
        ("from [2024-01-05 to 2024-02-20] on", "from [2024-01-05 to 2024-02-20] on", (), ()),
        ("[3/17/2024] and [17.3.2024] and [2024-03]", "[3/17/2024] and [17.3.2024] and [2024-03]", (), ()),
        (
            "[17-19] percent, [3/17], [3.17], [$17], [17%], [17 EUR]",
            "[17-19] percent, [3/17], [3.17], [$17], [17%], [17 EUR]",
            (),
            (),
        ),
        ("[3 of 17] [17th] [v17] [17:23]", "[3 of 17] [17th] [v17] [17:23]", (), ()),
        # Whatever the dash, the comma, the brackets, the blank.
        ("B ［row 17］ ［99］", "B [17]", (17,), (99,)),
        ("B [row 17—row 19]", "B [17, 18, 19]", (17, 18, 19), ()),
        ("B [row 98‑99]", "B", (), (98, 99)),
        ("B [rows 17 through 19]", "B [17, 18, 19]", (17, 18, 19), ()),
        ("B [17、99] [17，3]", "B [17] [17, 3]", (17, 3), (99,)),
        ("B 【17†source】【99†source】", "B [17]", (17,), (99,)),
        ("B [row\u00a017] [row \u200b17]", "B [17] [17]", (17,), ()),
        ("B [row 17/row 99]", "B [17]", (17,), (99,)),
        (
            "B [17.] [row 17, row 3,] [row 17; and row 3] [row 17 and] [row no. 17] [row 17–] [^17]",
            "B [17] [17, 3] [17, 3] [17] [17] [17] [17]",
            (17, 3),
            (),
        ),
        (
            "B [" + ", ".join(f"row {row}" for row in range(60)) + "]",
            "B [0, 3, 17, 18, 19, 23]",
            ROWS,
            tuple(row for row in range(60) if row not in ROWS),
        ),
        # Rows among words: they stay where all are there, and are checked.
        ("B [see row 17]", "B [see row 17]", (17,), ()),
        ("B [see row 99]", "B", (), (99,)),
        ("B [row 17, p. 2] [row 99, p. 2]", "B [row 17, p. 2]", (17,), (99,)),
        ("B [row 17: the minutes] [row 99: minutes]", "B [row 17: the minutes]", (17,), (99,)),
        ("B [row 17, 2024-06-01]", "B [row 17, 2024-06-01]", (17,), ()),
        ("B [rows 17, 18, 2024-06-01]", "B [rows 17, 18, 2024-06-01]", (17, 18), ()),
        ("B [row 17 and row 99, minutes]", "B [17]", (17,), (99,)),
        ("B [rows 17, 99 and others]", "B [17]", (17,), (99,)),
        ("B [row 19-17]", "B [row 19-17]", (19, 17), ()),
        # Half characters.
        ("B \ud83c\udf89 [row 17]", "B \U0001f389 [17]", (17,), ()),
        ("B \ud83c [row 17]", "B \ufffd [17]", (17,), ()),
    ],
)
def test_by_hand(answer: str, text: str, cited: tuple[int, ...], unknown: tuple[int, ...]) -> None:
    assert read(answer) == (text, cited, unknown)
    assert read(*answer) == (text, cited, unknown)


@pytest.mark.parametrize(
    ("answer", "unchecked"),
    [
        ("[Zeile 99] [ligne 3] [строка 99] [行 99] [Zeile 99]", ("[Zeile 99]", "[ligne 3]", "[строка 99]", "[行 99]")),
        ("[17-19] [98–99] [3/17]", ("[17-19]", "[98–99]", "[3/17]")),
        ("[2024-06-01] [3/17/2024] [17 EUR] [$17] [note] [17] [99] [see row 17] [3 of 17] [a]", ()),
    ],
)
def test_what_looks_like_a_citation_and_is_none_is_told(answer: str, unchecked: tuple[str, ...]) -> None:
    reader = CitationReader(ROWS)
    assert all(one in reader.read(answer) + reader.rest() for one in unchecked[:1])
    assert reader.unchecked == unchecked


def test_pieces_come_as_early_as_they_can() -> None:
    reader = CitationReader(ROWS)
    assert [reader.read(piece) for piece in ("Vendor", " B ", "[ro", "w 1", "7]", ". And", " [no", "te")] == [
        "Vendor", " B", "", "", " [17]", ". And", "", "",
    ]  # fmt: skip
    assert reader.rest() == " [note"


PARTS = [
    "[row 17]",
    "[99]",
    "[row 3, row 4]",
    "word",
    " ",
    "  ",
    "\n",
    "[",
    "]",
    "【3】",
    "17",
    "row",
    ",",
    "-",
    "\t",
    "[x]",
    "see",
    "[row 3, p. 2]",
    "[17-19]",
    "\ud83c",
    "\udf89",
]


@given(
    st.lists(st.sampled_from(PARTS), max_size=25),
    st.lists(st.integers(0, 120), max_size=12),
)
def test_the_same_however_it_is_cut(parts: list[str], cuts: list[int]) -> None:
    answer = "".join(parts)
    ends = sorted({*(min(cut, len(answer)) for cut in cuts), len(answer)})
    pieces = [answer[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert read(*pieces) == read(answer)
    assert read(*answer) == read(answer)


@given(st.text(alphabet="[]row 0123456789,\n-x", max_size=80) | st.lists(st.sampled_from(PARTS)).map("".join))
@example("[ [99] 3]")
@example("[1[99]7]")
def test_what_is_cited_is_in_the_evidence_and_in_the_text(answer: str) -> None:
    text, cited, unknown = read(answer)
    assert set(cited) <= set(ROWS)
    assert not set(unknown) & set(ROWS)
    assert all(str(row) in text for row in cited)
    assert text == text.strip()
    # Whatever stands in brackets was checked: reading it again finds the same rows and nothing to drop.
    assert read(text) == (text, cited, ())


def test_a_hostile_answer_takes_no_time() -> None:
    started = time.process_time()
    spaces = " " * 200_000
    for count in (24, 60, 100):
        numbers = ", ".join(f"row {row}" for row in range(count))
        read(f"[{numbers} and others]", f"[{numbers}, …]", "[" + "1 " * 400 + "x]", "[" + ", and " * 160 + "1]")
    for answer in (spaces, "[" * 200_000, f"[{spaces}]", "[1" + ",1" * 100_000 + "]", "[ 1" * 60_000, "[ ] " * 50_000):
        read(*(answer[start : start + 4000] for start in range(0, len(answer), 4000)))
    assert time.process_time() - started < 20
