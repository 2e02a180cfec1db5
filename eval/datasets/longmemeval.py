"""LongMemEval: 500 questions, each with a chat history of its own in which a few sessions hold the answer.

The files (`longmemeval_s`, `_m`, `_oracle`, of up to 2.7 GB) are one JSON array; an item is a collection, read one at a
time: `question_id`, `question_type`, `question`, `answer`, `question_date`, `haystack_session_ids`, `haystack_dates`,
`haystack_sessions` (each a list of `role`, `content` and, in sessions with evidence, `has_answer`) and
`answer_session_ids`.

A document is a turn (both sides), a round (a user's turn and what follows it) or a session. Ids are the original's:
the session id, for a turn with its number from 1 (`…_3`). A session id that stands twice in a history gets `#2`.
Evidence are the turns with `has_answer`, and for whole sessions those of `answer_session_ids`; a session named there
that the history does not hold is passed over. The event date is the moment of the session plus the number of the turn
in seconds, since sessions are dated and turns are not. The thread is the place of the session in the history, because
the original's session ids give the evidence away (`answer_…`).

A `question_id` that ends with `_abs` asks for what was never said: the right answer abstains. Such a question has no
evidence, as in the benchmark's own scoring of retrieval. The paper scores the other 470 (`abstention=off`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from eval.cases import Case, Collection, Dataset, EvalDocument, Options
from eval.datasets.common import check_options, entries, existing, spoken
from eval.datasets.items import Item
from eval.datasets.json_stream import stream_array
from eval.errors import DatasetError

_EXPECTS = "one of the files, such as longmemeval_s.json, or a folder that holds one of them"
_ROLES = ("user", "assistant")
_MOMENT = re.compile(r"(\d{4})/(\d{2})/(\d{2})(?:\s*\(\w+\))?(?:\s+(\d{2}):(\d{2}))?")
_OPTIONS = {
    "unit": "turn (default), round or session: what a document is; evidence follows",
    "as_of": "question_date: bound the search by the date of the question (default: no bound, as in the paper)",
    "abstention": "off: without the questions that must not be answered, as in the paper",
    "thread": "withheld: documents without the thread",
}


@dataclass(frozen=True, slots=True)
class _Session:
    """A session of a history, with a name that no other session there has."""

    id: str
    thread: str
    moment: datetime
    turns: list[Item]
    holds_answer: bool


def read(path: Path, options: Options) -> Iterator[Collection]:
    """One collection per question, in constant memory.

    Raises:
        EvalError: an option is not known.
        DatasetError: the file is missing, damaged or not of this form; with the item and the byte.
    """
    known = {
        "unit": ("turn", "round", "session"),
        "as_of": ("question_date", "none"),
        "abstention": ("on", "off"),
        "thread": ("withheld",),
    }
    check_options("longmemeval", options, known)
    return _read(_file(path), options)


def files(path: Path, options: Options | None = None) -> list[Path]:
    """The one file."""
    return [_file(path)]


def _file(path: Path) -> Path:
    if not existing(path, _EXPECTS).is_dir():
        return path
    there = [file for file in entries(path, "longmemeval_*") if file.suffix in ("", ".json")]
    if not there:
        raise DatasetError(f"{path}: no file longmemeval_*.json here; --data names {_EXPECTS}")
    if len(there) > 1:
        raise DatasetError(f"{path}: several files, name one of them: {', '.join(file.name for file in there)}")
    return there[0]


def _read(path: Path, options: Options) -> Iterator[Collection]:
    seen: dict[str, str] = {}
    for item in stream_array(path):
        name = item.text("question_id")
        if name in seen:
            raise item.fault(f"'question_id' {name!r:.60} stands there already, in {seen[name]}")
        seen[name] = item.place
        if not (name.endswith("_abs") and options.get("abstention") == "off"):
            yield _collection(name, item, options)
    if not seen:
        raise DatasetError(f"{path}: it holds no question")


def _collection(name: str, item: Item, options: Options) -> Collection:
    unit = options.get("unit", "turn")
    documents: list[EvalDocument] = []
    evidence: list[str] = []
    for session in _sessions(item):
        for document, gold in _documents(session, unit, withheld=options.get("thread") == "withheld"):
            documents.append(document)
            if gold:
                evidence.append(document.id)
    if not documents:
        raise item.fault("the history holds no turn")
    asked = _moment(item, "question_date", item.get("question_date")).isoformat()
    abstains = name.endswith("_abs")
    case = Case(
        id=name,
        category=item.text("question_type"),
        text=item.text("question"),
        as_of=asked if options.get("as_of") == "question_date" else None,
        asked_at=asked,
        answers=(item.words("answer"),),
        evidence=() if abstains else tuple(evidence),
        unanswerable=abstains,
    )
    return Collection(id=name, documents=tuple(documents), cases=(case,))


def _sessions(item: Item) -> Iterator[_Session]:
    names, dates = item.texts("haystack_session_ids"), item.values("haystack_dates")
    sessions = item.values("haystack_sessions")
    if not len(names) == len(dates) == len(sessions):
        raise item.fault(
            f"{len(names)} 'haystack_session_ids', {len(dates)} 'haystack_dates' and {len(sessions)} "
            f"'haystack_sessions' do not belong together"
        )
    gold = set(item.texts("answer_session_ids"))
    times: dict[str, int] = {}
    taken = set(names)
    for at, (name, date, turns) in enumerate(zip(names, dates, sessions, strict=True)):
        times[name] = times.get(name, 0) + 1
        unique = name
        while times[name] > 1 and unique in taken:
            unique = f"{name}#{times[name]}"
            times[name] += unique in taken
        taken.add(unique)
        where = f"haystack_sessions[{at}]"
        if not isinstance(turns, list):
            raise item.fault(f"{where!r} must be a list of turns")
        yield _Session(
            id=unique,
            thread=f"session {at + 1}",
            moment=_moment(item, f"haystack_dates[{at}]", date),
            turns=[Item.of(f"{item.place}, {where}[{number}]", turn) for number, turn in enumerate(turns)],
            holds_answer=unique in gold,
        )


def _documents(session: _Session, unit: str, *, withheld: bool) -> Iterator[tuple[EvalDocument, bool]]:
    """The documents of a session, and whether each is evidence."""
    lines: list[tuple[int, str, str, bool]] = []
    """Number from 1, role, content, has answer; a turn without content says nothing and is none."""
    for number, turn in enumerate(session.turns, start=1):
        role, content = turn.text("role"), turn.text("content", empty=True)
        if role not in _ROLES:
            raise turn.fault(f"'role' must be user or assistant, is {role!r:.60}")
        if content.strip():
            lines.append((number, role, content, turn.flag("has_answer")))
    groups: list[list[tuple[int, str, str, bool]]] = []
    for line in lines:
        if not groups or unit == "turn" or (unit == "round" and line[1] == "user"):
            groups.append([])
        groups[-1].append(line)
    for group in groups:
        first = group[0][0]
        said = "\n".join(f"{role}: {content}" for _, role, content, _ in group)
        lead, between = spoken(session.moment), "\n" if unit == "session" else " — "
        document = EvalDocument(
            id={"session": session.id, "round": f"{session.id}_r{first}", "turn": f"{session.id}_{first}"}[unit],
            text=f"{lead}{between}{said}",
            occurred_at=(session.moment + timedelta(seconds=first - 1)).isoformat(),
            authors=tuple(dict.fromkeys(role for _, role, _, _ in group)),
            thread=None if withheld else session.thread,
        )
        yield document, session.holds_answer if unit == "session" else any(line[3] for line in group)


def _moment(item: Item, key: str, value: object) -> datetime:
    """Read `2023/05/20 (Sat) 02:21`."""
    text = item.checked_text(key, value)
    if found := _MOMENT.fullmatch(text.strip()):
        try:
            return datetime(*(int(part or 0) for part in found.groups()))  # type: ignore[arg-type]
        except ValueError:
            pass
    raise item.fault(f"{key!r} is no moment such as '2023/05/20 (Sat) 02:21': {text!r:.60}")


LONGMEMEVAL = Dataset(
    name="longmemeval",
    title="LongMemEval (Wu et al. 2024)",
    where="https://huggingface.co/datasets/xiaowu0162/longmemeval (linked from github.com/xiaowu0162/LongMemEval)",
    licence="MIT",
    size="500 questions (30 of abstention); a history is about 50 sessions in _s (280 MB), 500 in _m (2.7 GB)",
    expects=_EXPECTS,
    categories={
        "single-session-preference": "Single-session preference",
        "single-session-assistant": "Single-session assistant",
        "temporal-reasoning": "Temporal reasoning",
        "multi-session": "Multi-session",
        "knowledge-update": "Knowledge update",
        "single-session-user": "Single-session user",
    },
    read=read,
    files=files,
    options=_OPTIONS,
    judge="longmemeval",
)
