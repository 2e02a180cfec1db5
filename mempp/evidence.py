"""The evidence: records of an answer, rendered with number, date and author, and packed into a budget of characters.

Two styles. "plain" heads each text with one line; a text could imitate such a line. "tagged" encloses each text in a
tag whose name stands in none of the texts, so that nothing inside can close it; use it where documents are not
trusted. In both the texts stand verbatim.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import get_args
from xml.sax.saxutils import quoteattr

from mempp.dates import show
from mempp.errors import InputError, quoted
from mempp.packing import packing_order
from mempp.passages import best_passage
from mempp.recall import Hit
from mempp.records import Record
from mempp.settings import EvidenceOrder, EvidenceStyle, Packing, check_choice

_BETWEEN = "\n\n"
_BREAKING = ("Cc", "Zl", "Zp")
"""Unicode categories of control characters and of line and paragraph separators."""
_BIDIRECTIONAL = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
"""Embeddings, overrides and isolates: they let a heading be shown in another order than it has."""
LONGEST_NAMES = 200
"""Characters that the authors take in a heading at most, so that a heading cannot push out the text."""
_SHARED_FROM = 1000
"""Characters of a budget from which a first record that must be cut leaves room for others."""
_CUT_BEFORE = "[cut]\n"
Render = Callable[[int, Record, str], str]
"""(number, record, text) → the record as the model reads it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an answering model reads. `str(evidence)` is the text."""

    text: str
    hits: tuple[Hit, ...]
    """The hits that were packed, in the order in which they stand in the text."""
    left_out: tuple[int, ...]
    """Row ids of the hits that did not fit, in rank order."""
    cut: bool
    """Whether the best record alone was larger than the budget, and stands there cut to a passage."""
    as_of_read: datetime | None = None
    """The as-of date that was read from the question, with `as_of="auto"`; None where it names none."""

    @property
    def row_ids(self) -> tuple[int, ...]:
        """Row ids of the packed records, in the order in which they stand in the text."""
        return tuple(hit.row_id for hit in self.hits)

    def __str__(self) -> str:
        return self.text


def pack(
    hits: Sequence[Hit],
    *,
    max_chars: int = 40_000,
    style: EvidenceStyle = "plain",
    packing: Packing = "threads",
    order: EvidenceOrder = "rank",
    show_supersession: bool = True,
    question: str | None = None,
) -> Evidence:
    """Render hits and pack whole records into a budget.

    A record is never cut, unless the first alone is larger than the budget: then the passage of it that matches the
    question best is shown, and a note says so. Any other record that is larger than the budget is left out.

    Args:
        hits: an answer, best first.
        max_chars: the most characters the text may have; it is never longer, and never empty when there are hits.
        style: "plain" or "tagged".
        packing: "threads": threads as wholes, the best per character first; see `mempp.packing`. "skip": in rank
            order, records that do not fit are passed over for later ones that do. In both, room is kept for the recency
            slots, up to half of the budget, and a record that repeats another of the same day almost word for word
            yields its place. "stop": in rank order, ending at the first record that does not fit (as the benchmarks
            count).
        order: how the records stand in the text: by "rank", or by "date", the earliest first and undated ones last.
        show_supersession: whether a heading says that the record was superseded, by which row and since when.
        question: what the hits answer, to choose the passage of a record that must be cut; without it, the beginning.

    Raises:
        InputError: `max_chars` is below 1, or style, packing or order is unknown.
    """
    if isinstance(max_chars, bool) or not isinstance(max_chars, int) or max_chars < 1:
        raise InputError(f"max_chars must be a whole number from 1, got {quoted(max_chars)}")
    check_choice("style", style, get_args(EvidenceStyle))
    check_choice("packing", packing, get_args(Packing))
    check_choice("order", order, get_args(EvidenceOrder))
    if not hits:
        return Evidence("", (), (), cut=False)
    texts = [hit.record.text for hit in hits]
    plain = partial(_plain, show_supersession)
    render = plain if style == "plain" else _tagged(texts, show_supersession)
    # The number that a record gets is at most its place in the answer, so this cost is never too small.
    costs = [
        len(render(place, hit.record, "")) + len(hit.record.text) + (len(_BETWEEN) if place > 1 else 0)
        for place, hit in enumerate(hits, start=1)
    ]
    if costs[0] > max_chars:
        return _cut_first(hits, costs, max_chars, render, plain, packing, order, question)
    packed = _take(packing_order(hits, costs, max_chars, packing), costs, max_chars, packing)
    return _evidence(hits, _shown(hits, packed, order), render)


def tagged(records: Sequence[Record]) -> str:
    """Whole records, numbered from 1, as the "tagged" style shows them: no text can close the tag that it stands in."""
    render = _tagged([record.text for record in records], show_supersession=True)
    return _BETWEEN.join(render(number, record, record.text) for number, record in enumerate(records, start=1))


def _take(order: Sequence[int], costs: Sequence[int], budget: int, packing: Packing) -> list[int]:
    packed = []
    for place in order:
        if costs[place] <= budget:
            packed.append(place)
            budget -= costs[place]
        elif packing == "stop":
            break
    return sorted(packed)


def _shown(hits: Sequence[Hit], packed: Sequence[int], order: EvidenceOrder) -> list[int]:
    """The packed places in the order in which they stand in the text."""
    if order == "rank":
        return list(packed)
    dates = [hits[place].record.occurred_at for place in packed]
    latest = max((date for date in dates if date is not None), default=None)
    keyed = [(date is None, date or latest, place) for date, place in zip(dates, packed, strict=True)]
    return [place for _, _, place in sorted(keyed)]


def _evidence(hits: Sequence[Hit], packed: Sequence[int], render: Render, first_text: str | None = None) -> Evidence:
    parts = [
        render(
            number, hits[place].record, first_text if first_text is not None and place == 0 else hits[place].record.text
        )
        for number, place in enumerate(packed, start=1)
    ]
    kept = set(packed)
    return Evidence(
        text=_BETWEEN.join(parts),
        hits=tuple(hits[place] for place in packed),
        left_out=tuple(hit.row_id for place, hit in enumerate(hits) if place not in kept),
        cut=first_text is not None,
    )


def _cut_first(
    hits: Sequence[Hit],
    costs: Sequence[int],
    max_chars: int,
    render: Render,
    plain: Render,
    packing: Packing,
    shown_by: EvidenceOrder,
    question: str | None,
) -> Evidence:
    """The first record cut to the budget; by default it leaves half of a budget of use to whole records after it."""
    others: list[int] = []
    if packing != "stop" and max_chars >= _SHARED_FROM:
        order = [place for place in packing_order(hits, costs, max_chars // 2, packing) if place]
        others = _take(order, costs, max_chars - max_chars // 2, packing)
    room = max_chars - sum(costs[place] for place in others)
    text = hits[0].record.text
    frame = len(render(1, hits[0].record, ""))
    note = f"[cut here: the record has {len(text):,} characters and is larger than the budget]"
    shown = room - frame - len(note) - 1
    if shown < 1:
        # Not even the note fits: what can be shown is the head of the record, cut with a mark; in plain style, since
        # a tag that is cut would stand open.
        whole = plain(1, hits[0].record, text[:max_chars])
        mark = "[cut]" if max_chars > 2 * len("[cut]") else ""
        return Evidence(whole[: max_chars - len(mark)] + mark, (hits[0],), tuple(h.row_id for h in hits[1:]), cut=True)
    passage = _passage(text, question, shown, note)
    return _evidence(hits, _shown(hits, [0, *others], shown_by), render, first_text=passage)


def _passage(text: str, question: str | None, length: int, note: str) -> str:
    """What is shown of a text in `length` characters, with the note where it is cut."""
    before = length - len(_CUT_BEFORE)
    begin = best_passage(text, question, before) if question is not None and before > 0 else 0
    if not begin:
        return f"{text[:length]}\n{note}"
    if begin + length >= len(text):
        return f"{note}\n{text[len(text) - length :]}"
    return f"{_CUT_BEFORE}{text[begin : begin + before]}\n{note}"


def _plain(show_supersession: bool, number: int, record: Record, text: str) -> str:
    heading = f"[{number}] {show(record.occurred_at)}"
    if record.authors:
        heading += " | " + _names(record.authors)
    state = superseded(record) if show_supersession else None
    if state is not None:
        heading += f" | {state}"
    return f"{heading}\n{text}"


def _tagged(texts: Sequence[str], show_supersession: bool) -> Render:
    tag = unused_tag("record", texts)

    def render(number: int, record: Record, text: str) -> str:
        attributes = f'number="{number}" row="{record.row_id}" date="{show(record.occurred_at)}"'
        if record.authors:
            attributes += " author=" + quoteattr(_names(record.authors))
        state = superseded(record) if show_supersession else None
        if state is not None:
            attributes += f' state="{state}"'
        return f"<{tag} {attributes}>\n{text}\n</{tag}>"

    return render


def unused_tag(kind: str, texts: Sequence[str]) -> str:
    """A tag name ("KIND-…") that stands in none of the texts; the same texts always give the same name."""
    digest = hashlib.sha256("\0".join(texts).encode())
    folded = [text.lower() for text in texts]
    tag = f"{kind}-{digest.hexdigest()[:8]}"
    while any(tag in text for text in folded):
        digest.update(b"again")
        tag = f"{kind}-{digest.hexdigest()[:8]}"
    return tag


def superseded(record: Record) -> str | None:
    """What the model is told of a row that a newer one replaced, so that a correction reaches it; None of others."""
    by, since = record.state.by, record.state.since
    if by is None:  # the newer one may not be named, or there is none
        return "superseded" if record.state.status == "superseded" else None
    return f"superseded by row {by}" + ("" if since is None else f" since {show(since)}")


def _names(authors: Sequence[str]) -> str:
    """The authors on one line of bounded length."""
    names = ", ".join(one_line(author[: LONGEST_NAMES + 1]) for author in authors[: LONGEST_NAMES // 2])
    return names if len(names) <= LONGEST_NAMES else names[: LONGEST_NAMES - 1] + "…"


def one_line(name: str) -> str:
    """A name without line breaks and control characters, so that it cannot imitate a heading."""
    spaced = "".join(
        " " if character in _BIDIRECTIONAL or unicodedata.category(character) in _BREAKING else character
        for character in name
    )
    return " ".join(spaced.split())
