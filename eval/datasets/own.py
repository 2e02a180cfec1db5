"""Your own record: a folder with `documents.jsonl` and `questions.jsonl`, one JSON object per line.

`documents.jsonl` (`record.jsonl` serves as well, so `--data examples` is an example) holds what `mempp add` takes:

    {"id": "mail-17", "text": "The board chose Northlight.", "occurred_at": "2024-09-12", "author": "M. Lisle",
     "thread": "mail/vpn", "tags": ["vpn"]}

Only `text` is needed. `occurred_at` is ISO 8601; `author` (or `authors`) and `tags` are a text or a list of them. The
id is `id`, else `source`, else `line-N` by the line of the file; no two documents share it. Other keys are not read.

`questions.jsonl`:

    {"id": "q-1", "category": "current", "text": "Which VPN vendor do we use?", "as_of": "2024-10-01",
     "answers": ["Northlight"], "evidence": ["mail-17"]}

| key | what it is |
|---|---|
| `text` (or `question`) | the question; the only key that is always needed |
| `id` | unique; without it `line-N` |
| `category` | for the table; without it `all` |
| `as_of` | the question is about what was known then: the search sees no later document; a bare date means its end |
| `asked_at` | when it is asked; told to the answering model only |
| `answers` (or `answer`) | gold: a text or a list of them, any of which is right |
| `evidence` | ids of all the documents that a complete answer rests on; without it retrieval is not scored |
| `rubric` | instead of a yes or no: parts that are graded one by one, `{"text": …, "weight": 1}` or just texts |
| `choices` | letter → text, letters that differ in more than case; `answers` then holds the letter |
| `unanswerable` | true: the right answer is that the record does not tell |

A question needs at least one of `answers`, `evidence`, `rubric` and `unanswerable`, else nothing could score it. A key
that is not in this table is an error, so that a misspelt one is not lost.
"""

from collections.abc import Iterator
from pathlib import Path

from eval.cases import Case, Collection, Dataset, EvalDocument, Facet, Options
from eval.datasets.common import check_options, checked_choices, existing, iso_date, nearest
from eval.datasets.items import Item
from eval.datasets.json_stream import read_lines
from eval.errors import DatasetError

_DOCUMENTS = ("documents.jsonl", "record.jsonl")
_QUESTIONS = "questions.jsonl"
_EXPECTS = (
    "a folder with documents.jsonl (or record.jsonl) and questions.jsonl; their form is told in eval/datasets/own.py"
)
_KEYS = (
    "text", "question", "id", "category", "as_of", "asked_at", "answers", "answer", "evidence", "rubric", "choices",
    "unanswerable",
)  # fmt: skip
_OPTIONS = {"thread": "withheld: documents without the thread"}


def read(path: Path, options: Options) -> Iterator[Collection]:
    """One collection: the folder.

    Raises:
        EvalError: an option is not known.
        DatasetError: a file is missing or a line is not of this form; with the line.
    """
    check_options("own", options, {"thread": ("withheld",)})
    documents, questions = files(path)
    return _read(path, documents, questions, options)


def files(path: Path, options: Options | None = None) -> list[Path]:
    """The two files."""
    if not existing(path, _EXPECTS).is_dir():
        raise DatasetError(f"{path}: not a folder; --data names {_EXPECTS}")
    for name in _DOCUMENTS:
        if (path / name).exists():
            return [path / name, existing(path / _QUESTIONS, _EXPECTS)]
    raise DatasetError(f"{path}: no documents.jsonl here; --data names {_EXPECTS}")


def _read(path: Path, documents: Path, questions: Path, options: Options) -> Iterator[Collection]:
    record: dict[str, tuple[str, EvalDocument]] = {}
    for item in read_lines(documents):
        document = _document(item, withheld=options.get("thread") == "withheld")
        if document.id in record:
            raise item.fault(f"a document {document.id!r:.60} stands there already, in {record[document.id][0]}")
        record[document.id] = (item.place, document)
    if not record:
        raise DatasetError(f"{documents}: it holds no document")
    cases: dict[str, tuple[str, Case]] = {}
    for item in read_lines(questions):
        case = _case(item)
        if case.id in cases:
            raise item.fault(f"a question {case.id!r:.60} stands there already, in {cases[case.id][0]}")
        for name in case.evidence:
            if name not in record:
                raise item.fault(
                    f"'evidence' names {name!r:.60}{nearest(name, record)}, which {documents.name} has not"
                )
        cases[case.id] = (item.place, case)
    if not cases:
        raise DatasetError(f"{questions}: it holds no question")
    yield Collection(
        id=path.resolve().name,
        documents=tuple(document for _, document in record.values()),
        cases=tuple(case for _, case in cases.values()),
    )


def _line(item: Item) -> str:
    return f"line-{item.place.rpartition(':')[2]}"


def _either(item: Item, one: str, other: str) -> str:
    """Which of two names for the same thing an item uses."""
    if one in item and other in item:
        raise item.fault(f"it has both {one!r} and {other!r}; give one of them")
    return other if other in item else one


def _document(item: Item, *, withheld: bool) -> EvalDocument:
    return EvalDocument(
        id=item.text_or_none("id") or item.text_or_none("source") or _line(item),
        text=item.text("text"),
        occurred_at=iso_date(item, "occurred_at"),
        authors=item.text_or_texts(_either(item, "author", "authors")),
        thread=None if withheld else item.text_or_none("thread"),
        tags=item.text_or_texts("tags"),
    )


def _case(item: Item) -> Case:
    for key in item.fields:
        if key not in _KEYS:
            raise item.fault(f"unknown key {key!r:.60}{nearest(key, _KEYS)}; the keys are {', '.join(_KEYS)}")
    case = Case(
        id=item.text_or_none("id") or _line(item),
        category=item.text_or_none("category") or "all",
        text=item.text(_either(item, "text", "question")),
        as_of=iso_date(item, "as_of"),
        asked_at=iso_date(item, "asked_at"),
        answers=item.text_or_texts(_either(item, "answers", "answer")),
        evidence=tuple(dict.fromkeys(item.text_or_texts("evidence"))),
        rubric=_rubric(item),
        choices=_choices(item),
        unanswerable=item.flag("unanswerable"),
    )
    if not (case.answers or case.evidence or case.rubric or case.unanswerable):
        raise item.fault("nothing can score this question; give answers, evidence, a rubric or unanswerable")
    if case.choices and not (case.answers and set(case.answers) <= set(case.choices)):
        raise item.fault(f"'answers' must hold a letter of the choices {', '.join(case.choices)}")
    return case


def _rubric(item: Item) -> tuple[Facet, ...]:
    facets = []
    for at, value in enumerate(item.values("rubric") if "rubric" in item else []):
        if isinstance(value, str):
            facets.append(Facet(item.checked_text(f"rubric[{at}]", value)))
            continue
        part = Item.of(f"{item.place}, rubric[{at}]", value)
        weight = part.weight("weight") if "weight" in part else 1.0
        facets.append(Facet(part.text("text"), weight))
    return tuple(facets)


def _choices(item: Item) -> dict[str, str]:
    if "choices" not in item:
        return {}
    choices = item.item("choices")
    return checked_choices(choices, {letter: choices.text(letter) for letter in choices.fields})


OWN = Dataset(
    name="own",
    title="Your own record",
    where="you write it; examples/ is one",
    licence="yours",
    size="examples/: 116 documents, 46 questions",
    expects=_EXPECTS,
    categories={},
    read=read,
    files=files,
    options=_OPTIONS,
)
