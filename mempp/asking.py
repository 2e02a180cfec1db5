"""Questions on one state of the record: the read operator's rows as hits."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from mempp.engine import Engine
from mempp.projection import View
from mempp.recall import Bounds, Hit, as_of_in, read
from mempp.settings import Settings


def answers(
    questions: Sequence[str],
    bounds: Bounds,
    view_of: Callable[[Bounds], View],
    settings: Settings,
    engine: Engine,
) -> list[list[Hit]]:
    """The hits of each question.

    Args:
        questions: checked texts.
        bounds: as the caller gave them; with `as_of="auto"` each question is asked as of the date that it names.
        view_of: takes the state that a question with such bounds sees.
        settings: a whole Settings.
        engine: the opened store; taking a view may give it a new projection, so that is asked for afterwards.
    """
    if bounds.get("as_of") != "auto":
        view = view_of(bounds)
        return [answer(question, view, settings, engine) for question in questions]
    read_dates = [as_of_in(question) for question in questions]
    views = [view_of({**bounds, "as_of": as_of}) for as_of in read_dates]
    return [
        answer(question, view, settings, engine, as_of)
        for question, view, as_of in zip(questions, views, read_dates, strict=True)
    ]


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
    projection, embed = engine.projection, partial(engine.embedder.encode_question, question)
    return [
        Hit(
            projection.record(one.row_id, view),
            one.score,
            one.matched,
            replace(explanation, as_of_read=as_of_read),
        )
        for one, explanation in read(question, view.scope, projection.indexes, embed, settings)
    ]
