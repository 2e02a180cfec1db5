"""MemBench: messages of a simulated user, and one multiple-choice question on each trajectory of them.

`MemData/<agent>/<task>.json` is an object: scenario (`roles`, `events`, `movie`, …) → trajectories. FirstAgent holds
dialogues with an assistant, ThirdAgent messages that an assistant reads. A trajectory is a collection: `tid`,
`message_list`, `QA`. `message_list` is flat or a list of sessions; a message has `mid` or `sid`, `time`, `place`, and
either `message` or the two sides of an exchange (`user` and `assistant`, or `user_message` and `assistant_message`).
Its fields `rel`, `attr` and `value` are what it was generated from and give the answer away; they are not read.

A document is a message or exchange, led by its time and place, as the benchmark shows them. Its id is its number, which
counts through all sessions of the trajectory; where the numbers begin anew in each session, its place there, from 0.

`QA` has `question`, `choices`, `ground_truth` (the letter), `time` and `target_step_id`, the evidence: numbers, or
pairs of number and session. A target that no message has is passed over.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from eval.cases import Case, Collection, Dataset, EvalDocument, Options
from eval.datasets.common import check_options, checked_choices, chosen, entries, existing, spoken
from eval.datasets.items import Item, shown
from eval.datasets.json_stream import stream_arrays
from eval.errors import DatasetError, UsageError

_EXPECTS = "the folder MemData, the folder of an agent in it, or the file of a task"
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2})")
_OPTIONS = {
    "agents": "comma-separated, such as FirstAgent; default all that are there",
    "tasks": "comma-separated names of files without .json; default all that are there",
    "scenarios": "comma-separated, such as roles,movie; default all",
    "thread": "withheld: documents without the thread, which is the session",
}


def read(path: Path, options: Options) -> Iterator[Collection]:
    """One collection per trajectory, file by file.

    Raises:
        EvalError: an option, an agent, a task or a scenario is not known; a scenario when all files are read.
        DatasetError: a file is missing, damaged or not of this form; with the item and the byte.
    """
    check_options("membench", options, {"agents": (), "tasks": (), "scenarios": (), "thread": ("withheld",)})
    return _read(files(path, options), options)


def files(path: Path, options: Options | None = None) -> list[Path]:
    """The files of the tasks, agent by agent."""
    if not existing(path, _EXPECTS).is_dir():
        return [path]
    found = entries(path, "MemData/*/*.json") or entries(path, "*/*.json") or entries(path, "*.json")
    if not found:
        raise DatasetError(f"{path}: no <agent>/<task>.json here; --data names {_EXPECTS}")
    given = options or {}
    agents = chosen("membench", "agents", given, tuple(dict.fromkeys(file.parent.name for file in found)))
    found = [file for file in found if file.parent.name in agents]
    tasks = chosen("membench", "tasks", given, tuple(dict.fromkeys(file.stem for file in found)))
    return [file for file in found if file.stem in tasks]


def _read(paths: list[Path], options: Options) -> Iterator[Collection]:
    wanted = [one.strip() for one in options["scenarios"].split(",")] if "scenarios" in options else None
    there: set[str] = set()
    for path in paths:
        counts: dict[str, int] = {}
        for scenario, item in stream_arrays(path):
            at = counts.get(scenario, 0)
            counts[scenario] = at + 1
            if wanted is None or scenario in wanted:
                yield _collection(f"{path.resolve().parent.name}/{path.stem}/{scenario}/{at}", path.stem, item, options)
        if not counts:
            raise DatasetError(f"{path}: it holds no trajectory")
        there |= counts.keys()
    if wanted is not None and (missing := [one for one in wanted if one not in there]):
        raise UsageError(
            f"membench: no scenario {missing[0]!r:.60} in these files; there are: {', '.join(sorted(there))}"
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """A message in its places."""

    item: Item
    session: int | None
    """From 0; None in a flat list."""
    number: int | None
    """Its `mid` or `sid`."""


def _collection(name: str, task: str, item: Item, options: Options) -> Collection:
    steps = list(_steps(item))
    if not steps:
        raise item.fault("'message_list' holds no message")
    numbers = [step.number for step in steps]
    # Numbers that begin anew in each session name no message; its place in the trajectory does.
    counted = None not in numbers and len(set(numbers)) == len(numbers)
    ids = [str(step.number) if counted else str(at) for at, step in enumerate(steps)]
    withheld = options.get("thread") == "withheld"
    documents = tuple(_document(step, id, withheld=withheld) for step, id in zip(steps, ids, strict=True))
    question = item.item("QA")
    choices = {letter: _plain(question, letter, text) for letter, text in question.item("choices").fields.items()}
    if (truth := question.text("ground_truth").strip()) not in choices:
        raise question.fault(f"'ground_truth' {truth!r:.60} is none of the choices {', '.join(choices) or '(none)'}")
    checked_choices(question, choices)
    moment = _moment(question)
    case = Case(
        id=f"{name}:{question.words('qid') if 'qid' in question else 0}",
        category=task,
        text=question.text("question"),
        asked_at=moment.isoformat() if moment else None,
        answers=(truth,),
        evidence=tuple(dict.fromkeys(ids[at] for at in _targets(question, steps, counted=counted))),
        choices=choices,
    )
    return Collection(id=name, documents=documents, cases=(case,))


def _steps(item: Item) -> Iterator[_Step]:
    for outer, value in enumerate(item.values("message_list")):
        nested = isinstance(value, list)
        for inner, message in enumerate(value if isinstance(value, list) else [value]):
            where = f"message_list[{outer}]" + (f"[{inner}]" if nested else "")
            step = Item.of(f"{item.place}, {where}", message)
            key = "mid" if "mid" in step else "sid"
            given = step.fields.get(key)
            if isinstance(given, str) and given.isascii() and given.isdigit():
                given = int(given)
            number = given if isinstance(given, int) and not isinstance(given, bool) else None
            yield _Step(item=step, session=outer if nested else None, number=number)


def _document(step: _Step, id: str, *, withheld: bool) -> EvalDocument:
    item = step.item
    moment = _moment(item)
    lead = ", ".join(part for part in (spoken(moment) if moment else None, item.text_or_none("place")) if part)
    if "message" in item:
        text = item.text("message")
    else:
        sides = [(side, key) for side in ("user", "assistant") for key in (side, f"{side}_message") if key in item]
        if not sides:
            raise item.fault(f"no 'message', 'user' or 'user_message'; its keys are {', '.join(item.fields) or 'none'}")
        text = "\n".join(f"{side}: {item.text(key, empty=True)}" for side, key in sides)
    return EvalDocument(
        id=id,
        text=f"{lead} — {text}" if lead else text,
        occurred_at=moment.isoformat() if moment else None,
        thread=None if withheld or step.session is None else f"session {step.session + 1}",
    )


def _targets(question: Item, steps: list[_Step], *, counted: bool) -> Iterator[int]:
    """Places in the trajectory of the messages that `target_step_id` names."""
    if "target_step_id" not in question:
        return
    places: dict[object, int] = {step.number if counted else at: at for at, step in enumerate(steps)}
    for target in question.values("target_step_id"):
        pair = target if isinstance(target, list) else [target]
        if not 1 <= len(pair) <= 2 or not all(isinstance(one, int) and not isinstance(one, bool) for one in pair):
            raise question.fault(f"'target_step_id' holds numbers or pairs of number and session, not {shown(target)}")
        at = places.get(pair[0])
        if len(pair) == 2 and not counted and (at is None or steps[at].session != pair[1]):
            inside = [place for place, step in enumerate(steps) if (step.number, step.session) == tuple(pair)]
            at = inside[0] if inside else None
        if at is not None:
            yield at


def _plain(question: Item, letter: str, value: object) -> str:
    """A choice as text; some are lists of titles."""
    if isinstance(value, list):
        return ", ".join(_plain(question, letter, one) for one in value)
    if isinstance(value, int | float):
        return str(value)
    return question.checked_text(f"choices[{letter}]", value, empty=True)


def _moment(item: Item) -> datetime | None:
    """Read `'2024-10-01 08:00' Tuesday`; None where the time is missing or of another form."""
    found = _MOMENT.search(item.text_or_none("time") or "")
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2]}") if found else None
    except ValueError:
        return None


MEMBENCH = Dataset(
    name="membench",
    title="MemBench (Tan et al. 2025)",
    where="https://github.com/import-myself/Membench, folder MemData",
    licence="MIT by its README; the repository has no licence file",
    size="19 files, about 26,600 questions, 650 MB",
    expects=_EXPECTS,
    categories={
        "simple": "Simple",
        "conditional": "Conditional",
        "comparative": "Comparative",
        "aggregative": "Aggregative",
        "post_processing": "Post-processing",
        "knowledge_update": "Knowledge update",
        "noisy": "Noisy",
        "lowlevel_rec": "Recommendation, low level",
        "RecMultiSession": "Recommendation, multi-session",
        "highlevel": "High level",
        "highlevel_rec": "Recommendation, high level",
    },
    read=read,
    files=files,
    options=_OPTIONS,
    judge="choice",
)
