"""LoCoMo: long conversations of two people, with questions and the turns that answer them.

`locomo10.json` is an array of conversations: `sample_id`, `conversation` (`session_N` with its turns,
`session_N_date_time`) and `qa`. A document is a turn: the session's date, the speaker and the text, then the caption of
a photo that the turn shares, as LoCoMo's own retrieval gives it. Its id is the `dia_id`, its thread the session. The
event date is the moment of the session plus the number of the turn in seconds, so that the order in a session is kept;
LoCoMo dates sessions, not turns.

Evidence: every `D1:2` in the strings of `evidence` (some hold several); ids that no turn has are passed over, since the
original has a few. A question without evidence keeps none, and its retrieval is not scored.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from eval.cases import Case, Collection, Dataset, EvalDocument, Options
from eval.datasets.common import MONTHS, check_options, chosen, entries, existing, spoken
from eval.datasets.items import Item
from eval.datasets.json_stream import stream_array
from eval.errors import DatasetError

_EXPECTS = "locomo10.json, or the folder that it lies in"
_CATEGORIES = {
    "2": "Temporal Reasoning",
    "3": "Open Domain",
    "1": "Multi-Hop",
    "4": "Single-Hop",
    "5": "Adversarial",
}
_ADVERSARIAL = "5"
_SESSION = re.compile(r"session_(\d+)")
_TURN = re.compile(r"D\d+:\d+")
_MOMENT = re.compile(r"(\d{1,2}):(\d{2})\s*([ap]m)\s+on\s+(\d{1,2})\s+([A-Za-z]+),?\s+(\d{4})", re.IGNORECASE)
_OPTIONS = {
    "unit": "turn (default) or session: what a document is; evidence follows",
    "captions": "off: without the captions of shared photos",
    "thread": "withheld: documents without the thread",
    "categories": "comma-separated, default 1,2,3,4; 5 is adversarial, left out in the paper",
}


def read(path: Path, options: Options) -> Iterator[Collection]:
    """One collection per conversation.

    Raises:
        EvalError: an option is not known.
        DatasetError: the file is missing, damaged or not of this form; with the item and the byte.
    """
    check_options(
        "locomo",
        options,
        {"unit": ("turn", "session"), "captions": ("on", "off"), "thread": ("withheld",), "categories": ()},
    )
    default = {"categories": ",".join(name for name in _CATEGORIES if name != _ADVERSARIAL)}
    categories = chosen("locomo", "categories", {**default, **options}, tuple(_CATEGORIES))
    return _read(_file(path), options, categories)


def files(path: Path, options: Options | None = None) -> list[Path]:
    """The one file."""
    return [_file(path)]


def _file(path: Path) -> Path:
    if not existing(path, _EXPECTS).is_dir():
        return path
    for candidate in (path / "locomo10.json", path / "data" / "locomo10.json"):
        if candidate.is_file():
            return candidate
    there = ", ".join(file.name for file in entries(path, "*.json")) or "none"
    raise DatasetError(f"{path}: no locomo10.json here; --data names {_EXPECTS} (JSON files here: {there})")


def _read(path: Path, options: Options, categories: tuple[str, ...]) -> Iterator[Collection]:
    seen: dict[str, str] = {}
    for item in stream_array(path):
        name = item.text("sample_id")
        if name in seen:
            raise item.fault(f"'sample_id' {name!r:.60} stands there already, in {seen[name]}")
        seen[name] = item.place
        yield _collection(name, item, options, categories)
    if not seen:
        raise DatasetError(f"{path}: it holds no conversation")


def _collection(name: str, item: Item, options: Options, categories: tuple[str, ...]) -> Collection:
    conversation = item.item("conversation")
    numbers = sorted(
        int(match[1]) for key in conversation.fields if (match := _SESSION.fullmatch(key)) and conversation.fields[key]
    )
    documents: list[EvalDocument] = []
    turns: dict[str, str] = {}
    """Turn → the document that holds it."""
    last: datetime | None = None
    for number in numbers:
        moment = _moment(conversation, f"session_{number}_date_time")
        last = moment if last is None else max(last, moment)
        session = conversation.items(f"session_{number}")
        for turn in session:
            if (dia_id := turn.text("dia_id")) in turns:
                raise turn.fault(f"'dia_id' {dia_id!r:.60} stands twice in the conversation")
            turns[dia_id] = f"session_{number}" if options.get("unit") == "session" else dia_id
        documents += _documents(number, moment, session, options)
    if not documents:
        raise conversation.fault("no session with turns")
    cases = []
    for index, question in enumerate(item.items("qa")):
        category = str(question.integer("category"))
        if category not in _CATEGORIES:
            raise question.fault(f"'category' {category} is not one of {', '.join(sorted(_CATEGORIES))}")
        if category in categories:
            cases.append(_case(f"{name}:{index}", category, question, turns, last))
    return Collection(id=name, documents=tuple(documents), cases=tuple(cases))


def _documents(number: int, moment: datetime, session: list[Item], options: Options) -> Iterator[EvalDocument]:
    thread = None if options.get("thread") == "withheld" else f"session_{number}"
    said = [(turn.text("speaker"), _said(turn, options)) for turn in session]
    if options.get("unit") == "session":
        yield EvalDocument(
            id=f"session_{number}",
            text="\n".join([spoken(moment), *(f"{speaker}: {text}" for speaker, text in said)]),
            occurred_at=moment.isoformat(),
            authors=tuple(dict.fromkeys(speaker for speaker, _ in said)),
            thread=thread,
        )
        return
    for at, (turn, (speaker, text)) in enumerate(zip(session, said, strict=True)):
        yield EvalDocument(
            id=turn.text("dia_id"),
            text=f"{spoken(moment)} — {speaker}: {text}",
            occurred_at=(moment + timedelta(seconds=at)).isoformat(),
            authors=(speaker,),
            thread=thread,
        )


def _said(turn: Item, options: Options) -> str:
    text = turn.text("text", empty=True)
    caption = turn.text_or_none("blip_caption") if options.get("captions") != "off" else None
    return f"{text} [shares a photo: {caption}]" if caption else text


def _case(name: str, category: str, item: Item, turns: dict[str, str], last: datetime | None) -> Case:
    adversarial = category == _ADVERSARIAL
    named = (turn for text in item.texts("evidence") for turn in _TURN.findall(text))
    return Case(
        id=name,
        category=category,
        text=item.text("question"),
        asked_at=last.isoformat() if last else None,
        # What an adversarial question has as its `adversarial_answer` is the trap, not the gold.
        answers=() if adversarial and "answer" not in item else (item.words("answer"),),
        evidence=tuple(dict.fromkeys(turns[turn] for turn in named if turn in turns)),
        unanswerable=adversarial,
    )


def _moment(item: Item, key: str) -> datetime:
    """Read `1:56 pm on 8 May, 2023`, whatever the locale."""
    text = item.text(key)
    months = [month.casefold() for month in MONTHS]
    found = _MOMENT.fullmatch(text.strip())
    if found and found[5].casefold() in months and 1 <= int(found[1]) <= 12:
        hour = int(found[1]) % 12 + (12 if found[3].casefold() == "pm" else 0)
        try:
            return datetime(int(found[6]), months.index(found[5].casefold()) + 1, int(found[4]), hour, int(found[2]))
        except ValueError:
            pass
    raise item.fault(f"{key!r} is no moment such as '1:56 pm on 8 May, 2023': {text!r:.60}")


LOCOMO = Dataset(
    name="locomo",
    title="LoCoMo (Maharana et al. 2024)",
    where="https://github.com/snap-research/locomo, data/locomo10.json",
    licence="CC BY-NC 4.0",
    size="10 conversations, 5,882 turns, 1,540 questions without the adversarial ones, 3 MB",
    expects=_EXPECTS,
    categories=_CATEGORIES,
    read=read,
    files=files,
    options=_OPTIONS,
)
