"""OrgMemBench: dated artefacts of a fictional company, and questions on what changed, who decided, and what held when.

A tier (`helix/medium`) is a folder of `corpus_index.jsonl` (slot, path, event of each artefact), the artefacts below
`corpus/`, `source_of_truth/events.jsonl` and `benchmark_v0.0.jsonl`. Documents are as the benchmark's own loader gives
them: the header is stripped from the text, the date is `occurred_at` of the artefact's event, the thread is the event,
and no author is passed. Only the questions that carry `as_of_date` in their ground truth (category C4) have an as-of
date; C3 names its dates in the text, and a reader must not look into the gold for them. `paraphrases` are left alone.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from eval.cases import Case, Collection, Dataset, EvalDocument, Facet, Options
from eval.datasets.common import check_options, existing, iso_date, read_text, unique
from eval.datasets.items import Item
from eval.datasets.json_stream import read_lines
from eval.errors import DatasetError

INDEX, EVENTS, QUESTIONS = "corpus_index.jsonl", "source_of_truth/events.jsonl", "benchmark_v0.0.jsonl"
_EXPECTS = f"the folder of a tier (with {INDEX}), such as helix/medium, or a folder above it"
_DEPTH = 4
_HEADER = re.compile(r"\A<!-- artefact_metadata\r?\n(.*?)-->\s*", re.DOTALL)
_AUTHOR = re.compile(r"^author:[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_OPTIONS = {
    "tier": "which tier, where --data holds several: its name (medium) or path (helix/medium)",
    "authors": "headers: authors from the artefacts' headers, which the benchmark's own loader does not pass",
    "thread": "withheld: documents without the thread",
}


def read(path: Path, options: Options) -> Iterator[Collection]:
    """One collection: a tier. See the module for what a document is.

    Raises:
        EvalError: an option is not known.
        DatasetError: a file is missing, damaged or contradicts another; with file and line.
    """
    check_options("orgmembench", options, {"tier": (), "authors": ("headers",), "thread": ("withheld",)})
    (tier,) = _tiers(path, options, several=False)
    return _read(tier, options)


def files(path: Path, options: Options | None = None) -> list[Path]:
    """The files of the tier; of all tiers, where the options do not choose one of several."""
    found: list[Path] = []
    for tier in _tiers(path, options or {}, several=True):
        found += [tier / INDEX, tier / EVENTS, tier / QUESTIONS]
        found += [_artefact(tier, item) for item in read_lines(tier / INDEX)]
    return found


def _tiers(path: Path, options: Options, *, several: bool) -> list[Path]:
    existing(path, _EXPECTS)
    tiers = [path] if (path / INDEX).is_file() else []
    for depth in range(1, _DEPTH + 1):
        if tiers:
            break
        tiers = sorted(index.parent for index in path.glob("*/" * depth + INDEX))
    names = ", ".join(str(tier.relative_to(path)) for tier in tiers)
    if not tiers:
        raise DatasetError(f"{path}: no {INDEX} here or below; --data names {_EXPECTS}")
    if wanted := options.get("tier"):
        parts = tuple(part for part in wanted.split("/") if part)
        there = [tier for tier in tiers if tier.resolve().parts[-len(parts) :] == parts]
        if not there:
            raise DatasetError(f"{path}: no tier {wanted!r:.60}; there are: {names}")
        tiers = there
    if len(tiers) > 1 and not several:
        raise DatasetError(f"{path}: several tiers; choose one with tier=NAME or name its folder: {names}")
    return tiers


def _read(tier: Path, options: Options) -> Iterator[Collection]:
    dates = {item.text("id"): iso_date(item, "occurred_at") for item in unique(read_lines(tier / EVENTS), "id")}
    documents = tuple(_document(tier, item, dates, options) for item in unique(read_lines(tier / INDEX), "slot_id"))
    if not documents:
        raise DatasetError(f"{tier / INDEX}: it names no artefact")
    ids = {document.id for document in documents}
    cases = tuple(_case(item, ids) for item in unique(read_lines(tier / QUESTIONS), "id"))
    if not cases:
        raise DatasetError(f"{tier / QUESTIONS}: it holds no question")
    yield Collection(id=tier.resolve().name, documents=documents, cases=cases)


def _artefact(tier: Path, item: Item) -> Path:
    path = tier / item.text("path")
    if not path.resolve().is_relative_to(tier.resolve()):
        raise item.fault(f"'path' leads out of the tier: {item.text('path')!r:.80}")
    return path


def _document(tier: Path, item: Item, dates: dict[str, str | None], options: Options) -> EvalDocument:
    event = item.text("event_id")
    if (date := dates.get(event)) is None:
        raise item.fault(f"the event {event!r:.60} has no date in {tier / EVENTS}")
    path = _artefact(tier, item)
    whole = read_text(path, item.place)
    text = _HEADER.sub("", whole)
    if not text.strip():
        raise DatasetError(f"{path}: no text behind the header")
    authors: tuple[str, ...] = ()
    if options.get("authors") == "headers" and (header := _HEADER.match(whole)):
        authors = tuple(name for name in _AUTHOR.findall(header[1]) if name)
    return EvalDocument(
        id=item.text("slot_id"),
        text=text,
        occurred_at=date,
        authors=authors,
        thread=None if options.get("thread") == "withheld" else event,
    )


def _case(item: Item, ids: set[str]) -> Case:
    truth = item.item("ground_truth_answer")
    evidence = tuple(dict.fromkeys(item.texts("evidence_artefact_ids")))
    if missing := [one for one in evidence if one not in ids]:
        raise item.fault(f"'evidence_artefact_ids' names {missing[0]!r:.60}, which {INDEX} does not have")
    return Case(
        id=item.text("id"),
        category=item.text("category"),
        text=item.text("text"),
        as_of=iso_date(truth, "as_of_date"),
        answers=(_answer(truth),),
        evidence=evidence,
        rubric=tuple(_facet(facet) for facet in item.items("rubric_subpoints")),
    )


def _facet(item: Item) -> Facet:
    """A sub-point: what earns its `max_score`, and what fails it."""
    text = item.text("criterion").strip()
    if fails := item.text_or_none("fail_criterion"):
        text += f"\nNo credit if: {fails.strip()}"
    return Facet(text=text, weight=item.weight("max_score"))


def _answer(truth: Item) -> str:
    """The ground truth as lines of `name: value`, in the order of the file."""
    return "\n".join(f"{name.replace('_', ' ')}: {_plain(value)}" for name, value in truth.fields.items())


def _plain(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(_plain(one) for one in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_plain(one)}" for name, one in value.items())
    return str(value).strip()


ORGMEMBENCH = Dataset(
    name="orgmembench",
    title="OrgMemBench (Gardner 2026)",
    where="https://github.com/JackCGardner/OrgMemBench, folder datasets",
    licence="CC BY 4.0",
    size="medium tier: 443 documents in 157 threads, 73 questions, 2 MB; small 14 and large 113 questions",
    expects=_EXPECTS,
    categories={
        "C1": "Supersession",
        "C2": "Decision Provenance",
        "C3": "Bi-temporal",
        "C4": "Audit Replay",
        "C5": "Justification Chain",
        "C6": "Contradiction",
    },
    read=read,
    files=files,
    options=_OPTIONS,
    judge="rubric",
)
