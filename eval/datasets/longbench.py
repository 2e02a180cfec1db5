r"""LongBench: tasks over one long context each, which is cut into documents here so that a memory can be asked.

A task is a file of JSON Lines, `<task>.jsonl`: `input`, `context`, `answers`, `length`, `dataset`, `language`,
`all_classes` and `_id`. A line is a collection: its context in documents, its input the question. Where the context is
made of numbered passages (`Passage 1:`, `Paragraph 1:`, `文章1`, counted up from 1 at the beginnings of lines), each is
a document; elsewhere whole lines are joined up to 2,000 characters, and a longer line is cut at white space. Nothing is
lost: the documents in order are the context. LongBench names no evidence, so retrieval is not scored.

Where `input` alone is no question (summaries, counting, classification, completion), a sentence of our own in front of
it says what is asked. Files `<task>_e.jsonl` (LongBench-E) repeat many lines; they are read only if `tasks` names them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from eval.cases import Case, Collection, Dataset, EvalDocument, Options
from eval.datasets.common import check_options, chosen, entries, existing
from eval.datasets.items import Item
from eval.datasets.json_stream import read_lines
from eval.errors import DatasetError

LONGEST = 2_000
"""Characters of a document, where the context has no passages of its own."""

_EXPECTS = "a task's file, such as hotpotqa.jsonl, or the folder of them (data)"
_PASSAGE = re.compile(r"^(?:(?:Passage|Paragraph) (\d+):|(?:文章|段落)\s?(\d+)(?=\D|$))", re.MULTILINE)
_OPTIONS = {"tasks": "comma-separated names of files without .jsonl; default all but LongBench-E (*_e)"}
_CATEGORIES = {
    "narrativeqa": "NarrativeQA",
    "qasper": "Qasper",
    "multifieldqa_en": "MultiFieldQA-en",
    "multifieldqa_zh": "MultiFieldQA-zh",
    "hotpotqa": "HotpotQA",
    "2wikimqa": "2WikiMultihopQA",
    "musique": "MuSiQue",
    "dureader": "DuReader",
    "gov_report": "GovReport",
    "qmsum": "QMSum",
    "multi_news": "MultiNews",
    "vcsum": "VCSUM",
    "trec": "TREC",
    "triviaqa": "TriviaQA",
    "samsum": "SAMSum",
    "lsht": "LSHT",
    "passage_count": "PassageCount",
    "passage_retrieval_en": "PassageRetrieval-en",
    "passage_retrieval_zh": "PassageRetrieval-zh",
    "lcc": "LCC",
    "repobench-p": "RepoBench-P",
}
_ASKED = {
    "gov_report": "Summarise this report on one page.",
    "multi_news": "Summarise these news articles on one page.",
    "vcsum": "Summarise this meeting, in Chinese.",
    "samsum": "Summarise this dialogue as the examples do.",
    "trec": "Name the type of this question, as the examples do.",
    "lsht": "Name the class of this news article, in Chinese, as the examples do.",
    "passage_count": "How many different paragraphs are there, not counting repetitions? Answer with the number alone.",
    "passage_retrieval_en": "Which paragraph does this abstract summarise? Answer with its name, such as Paragraph 1.",
    "passage_retrieval_zh": "Which paragraph does this abstract summarise? Answer with its name, such as 段落1.",
    "lcc": "Write the line of code that comes next.",
    "repobench-p": "Write the line of code that comes next.",
}


def read(path: Path, options: Options) -> Iterator[Collection]:
    """One collection per line, task by task.

    Raises:
        EvalError: an option or a task is not known.
        DatasetError: a file is missing, damaged or not of this form; with the line.
    """
    check_options("longbench", options, {"tasks": ()})
    return _read(files(path, options))


def files(path: Path, options: Options | None = None) -> list[Path]:
    """The files of the tasks, in the order of their names."""
    if not existing(path, _EXPECTS).is_dir():
        return [path]
    found = entries(path, "*.jsonl") or entries(path, "data/*.jsonl")
    if not found:
        raise DatasetError(f"{path}: no <task>.jsonl here; --data names {_EXPECTS}")
    there = {file.stem: file for file in found}
    if options and "tasks" in options:
        return [there[task] for task in chosen("longbench", "tasks", options, tuple(there))]
    return [file for task, file in there.items() if not task.endswith("_e")] or found


def _read(paths: list[Path]) -> Iterator[Collection]:
    for path in paths:
        seen: dict[str, str] = {}
        for item in read_lines(path):
            name = item.words("_id")
            if name in seen:
                raise item.fault(f"'_id' {name!r:.60} stands there already, in {seen[name]}")
            seen[name] = item.place
            yield _collection(path.stem, name, item)
        if not seen:
            raise DatasetError(f"{path}: it holds no line")


def _collection(task: str, name: str, item: Item) -> Collection:
    asked = _ASKED.get(task.removesuffix("_e"), "")
    given = item.text("input", empty=bool(asked)).strip()
    answers = item.texts("answers")
    if not answers:
        raise item.fault("'answers' is missing or empty")
    case = Case(
        id=f"{task}:{name}",
        category=task,
        text="\n\n".join(part for part in (asked, given) if part),
        answers=answers,
    )
    documents = tuple(EvalDocument(id=part, text=text) for part, text in split(item.text("context")))
    return Collection(id=case.id, documents=documents, cases=(case,))


def split(context: str) -> list[tuple[str, str]]:
    """A context as documents: ids and texts that, one after the other, are the context.

    Args:
        context: not only white space.
    """
    starts = [found.start() for found in _PASSAGE.finditer(context)]
    numbers = [int(found[1] or found[2]) for found in _PASSAGE.finditer(context)]
    if len(starts) > 1 and numbers == list(range(1, len(starts) + 1)):
        # What stands before the first passage, if anything, belongs to it.
        edges = [0, *starts[1:], len(context)]
        return [(f"passage {at + 1}", context[edges[at] : edges[at + 1]]) for at in range(len(starts))]
    parts: list[str] = []
    for line in _pieces(context):
        if parts and (len(parts[-1]) + len(line) <= LONGEST or not line.strip() or not parts[-1].strip()):
            parts[-1] += line
        else:
            parts.append(line)
    return [(f"part {at}", text) for at, text in enumerate(parts, start=1)]


def _pieces(context: str) -> Iterator[str]:
    """Lines with their ends; a longer one in pieces, cut behind the last white space that fits."""
    for line in re.findall(r"[^\n]*\n|[^\n]+", context):
        while len(line) > LONGEST:
            cut = max(line.rfind(" ", 0, LONGEST), line.rfind("\t", 0, LONGEST)) + 1 or LONGEST
            yield line[:cut]
            line = line[cut:]
        if line:
            yield line


LONGBENCH = Dataset(
    name="longbench",
    title="LongBench (Bai et al. 2024)",
    where="https://huggingface.co/datasets/THUDM/LongBench, data.zip",
    licence="MIT (of the collection; each task keeps that of its source)",
    size="21 tasks, 4,750 questions, contexts of 1,000 to 20,000 words, about 200 MB",
    expects=_EXPECTS,
    categories=_CATEGORIES,
    read=read,
    files=files,
    options=_OPTIONS,
)
