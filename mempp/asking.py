"""Questions on one state of the record: the read operator's rows as hits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from mempp.dates import to_microseconds
from mempp.engine import Engine
from mempp.projection import View
from mempp.recall import Bounds, Hit, as_of_in, check_names, check_question, is_auto, read
from mempp.settings import Settings


def answers(questions: Sequence[str], bounds: Bounds, settings: Settings, engine: Engine) -> list[list[Hit]]:
    """The hits of each question, all on one state of the record.

    Args:
        questions: checked texts.
        bounds: as the caller gave them; with `as_of="auto"` each question is asked as of the date that it names.
        settings: a whole Settings.
        engine: the opened store.

    Raises:
        InputError: a bound or a filter is not usable, or an as-of date in a question cannot be read.
    """
    engine.check_open()
    check_names(bounds)
    if not is_auto(bounds.get("as_of")):
        view = engine.projection.view(check_question(**bounds))
        return [answer(question, view, settings, engine) for question in questions]
    # Read once, since a filter may be an iterable of one pass; and up to the last entry that is known now, since a
    # view is taken for each date.
    undated = bounds.copy()
    undated["as_of"] = None
    asked = check_question(**undated)
    last = engine.projection.last_sequence
    asked = replace(asked, known_sequence=last if asked.known_sequence is None else min(last, asked.known_sequence))
    places: dict[datetime | None, list[int]] = {}
    for place, question in enumerate(questions):
        places.setdefault(as_of_read(question, bounds), []).append(place)
    found: dict[int, list[Hit]] = {}
    for as_of, of_date in places.items():
        moment = None if as_of is None else to_microseconds(as_of, "as_of", bare_date="end")
        view = engine.projection.view(replace(asked, as_of=moment))
        found |= {place: answer(questions[place], view, settings, engine, as_of) for place in of_date}
    return [found[place] for place in range(len(questions))]


def as_of_read(question: str, bounds: Mapping[str, object]) -> datetime | None:
    """The as-of date that is read from a question with `as_of="auto"`; None without it, or where it names none.

    Raises:
        InputError: what the question names is not one date for certain.
    """
    asked_at: Any = bounds.get("asked_at")
    return as_of_in(question, asked_at) if is_auto(bounds.get("as_of")) else None


def answer(
    question: str, view: View, settings: Settings, engine: Engine, as_of_read: datetime | None = None
) -> list[Hit]:
    """The hits of a question, best first.

    Args:
        question: a checked text.
        view: the state that it sees.
        settings: a whole Settings.
        engine: the opened store that the view was taken of.
        as_of_read: the as-of date that was read from the question, if any; the hits tell it.
    """
    projection, indexes, embedder = engine.reading()
    embed = partial(embedder.encode_question, question)
    return [
        Hit(
            projection.record(one.row_id, view),
            one.score,
            one.matched,
            explanation if as_of_read is None else replace(explanation, as_of_read=as_of_read),
        )
        for one, explanation in read(question, view.scope, indexes, embed, settings)
    ]
