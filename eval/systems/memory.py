"""Mem++ itself, with every setting, and with one leg only: `lexical` (BM25) and `vector` (the encoder's reading).

`--preset` names a preset, `--k` and `--set NAME=VALUE` set fields of `mempp.Settings`, in this order the last wins;
below them stand the MEMPP_ variables of the environment and the defaults, with k = 50. The configuration tells what
holds in the end. Further options: `store=memory|disk` (disk: in a temporary folder), `style=plain|tagged` (of the
evidence), `repeats=exact|paper`, `exact_up_to=N` (vectors up to which search scans), and those of `operators`, which
have a language model work over the record. Documents are added in the collection's order, with the id as `source`.

`lexical` and `vector` turn the other legs, and the recency slots, off, whatever a preset says; `--set recency_slots=3`
brings the slots back.

Two documents of a collection may be one row to Mem++, because they repeat each other. Their ids share its place in the
ranking, one after the other, and its share of the evidence.
"""

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

import mempp
from eval.cases import Case, Collection, EvalDocument
from eval.errors import UsageError
from eval.systems.base import Evidence, Ingest, Json, Options, Ranked, Retrieved, System
from eval.systems.encoders import RememberingEncoder, described, encoder_for, head_limit, mempp_errors
from eval.systems.operators import OPTIONS as OPERATOR_OPTIONS
from eval.systems.operators import WEIGHT_FACTS, Operators
from eval.systems.options import parsed, positive_k
from eval.systems.packing import check_budgets
from eval.systems.timeline import check_collection, check_question, moment

SYSTEMS = {
    "mempp": "Mem++: words, names and tags, vectors, threads, dates; --preset, and every field of Settings by --set",
    "lexical": "Mem++ with its lexical leg alone: BM25",
    "vector": "Mem++ with its vector leg alone: the encoder over whole documents, as far as it reads them",
}
DEFAULT_K = 50
"""Hits of an evaluation, unless an option, a preset or the environment says otherwise: the paper's, and enough for
recall@50. (A memory's own default is 24.)"""
_OTHERS_OFF = {"context": 0, "windows": False}
_WEIGHTS = tuple(one.name for one in fields(mempp.Settings) if one.name.startswith("weight_"))
_ONE_LEG: Mapping[str, Mapping[str, Any]] = {
    leg: {**{name: 0.0 for name in _WEIGHTS if name != f"weight_{leg}"}, **_OTHERS_OFF} for leg in ("lexical", "vector")
}
_OPTIONS: Mapping[str, object] = {
    "store": Literal["memory", "disk"],
    "style": Literal["plain", "tagged"],
    "repeats": Literal["exact", "paper"],
    "exact_up_to": int,
}
_DEFAULTS = {"store": "memory", "style": "plain", "repeats": "exact", "exact_up_to": 1_000_000}


def setting_types() -> dict[str, object]:
    """The fields of `mempp.Settings` that can be set, and their types."""
    hints = get_type_hints(mempp.Settings)
    return {one.name: hints[one.name] for one in fields(mempp.Settings) if one.init}


def build(name: str, options: Options, encoder: mempp.Encoder | None = None) -> System:
    """The system.

    Raises:
        UsageError: a setting, preset, or option is not usable.
        SystemUnavailableError: the encoder is not installed.
    """
    types = setting_types()
    values = parsed(options.settings, {**types, **_OPTIONS, **OPERATOR_OPTIONS}, name)
    chosen = {key: value for key, value in values.items() if key in types}
    if options.k is not None:
        k = positive_k(options, 1)
        if chosen.setdefault("k", k) != k:
            raise UsageError(f"--k {k} and --set k={chosen['k']} disagree; give one of them")
    if options.preset is None and not os.environ.get("MEMPP_K", "").strip():
        chosen.setdefault("k", DEFAULT_K)
    if name in _ONE_LEG:
        for key, value in _ONE_LEG[name].items():
            if chosen.setdefault(key, value) != value:
                raise UsageError(f"--set {key}={chosen[key]}: {name!r} has one leg only; use 'mempp' to mix legs")
        chosen.setdefault("recency_slots", 0)
    operators = Operators.of(values)
    if "facts" in operators.switches:
        chosen.setdefault("weight_facts", WEIGHT_FACTS)
    remembering = None
    if name != "lexical" and (encoder is not None or options.encoder != "none"):
        remembering = encoder_for(options.encoder, encoder)
    elif name == "vector":
        raise UsageError("--encoder none: 'vector' finds by vectors only; name an encoder")
    return MemppSystem(name, options, chosen, {**_DEFAULTS, **values}, remembering, operators)


class MemppSystem:
    """See the module."""

    def __init__(
        self,
        name: str,
        options: Options,
        chosen: Mapping[str, Any],
        extra: Mapping[str, Any],
        encoder: RememberingEncoder | None,
        operators: Operators,
    ) -> None:
        """Settle the settings: those chosen, then the preset's, then the environment's, then the defaults."""
        self._name = name
        self._options = options
        self._extra = {key: extra[key] for key in _OPTIONS}
        self._encoder = encoder
        self._operators = operators
        with mempp_errors(name, given=True):
            given: dict[str, Any] = {}
            if options.preset is not None:
                preset = mempp.preset(options.preset)
                given = {key: getattr(preset, key) for key in preset.given}
            self._settings = mempp.Settings(**{**given, **chosen})
            with mempp.in_memory(
                encoder="none",
                settings=self._settings,
                repeats=self._extra["repeats"],
                exact_up_to=self._extra["exact_up_to"],
            ) as memory:
                self._effective = memory.settings

    @property
    def name(self) -> str:
        """Its name in results and tables."""
        return self._name if self._options.as_of else f"{self._name} (no as-of)"

    @property
    def configuration(self) -> Mapping[str, Json]:
        """Every setting that it runs with."""
        settings: dict[str, Json] = {one: _json(getattr(self._effective, one)) for one in setting_types()}
        return {
            "system": self._name,
            "preset": self._options.preset,
            "settings": settings,
            "as_of": self._options.as_of,
            "encoder": None if self._encoder is None else described(self._encoder),
            **self._extra,
            **self._operators.configuration,
        }

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of a table must know."""
        return (*self._notes_on_environment(), *self._notes_on_vectors(), *self._operators.notes)

    def _notes_on_environment(self) -> Sequence[str]:
        taken = [
            f"{name}={os.environ[name]}"
            for name in sorted(f"MEMPP_{one.upper()}" for one in setting_types())
            if os.environ.get(name, "").strip()
        ]
        return (f"settings taken from the environment: {', '.join(taken)}",) if taken else ()

    def _notes_on_vectors(self) -> Sequence[str]:
        if self._name == "lexical":
            return ("BM25 alone: no vectors, no tags",)
        if self._encoder is None:
            return ("no encoder: the vector leg takes no part",)
        limit = head_limit(self._encoder)
        if limit is None or not self._effective.weight_vector or self._effective.windows:
            return ()
        return (f"the vector leg reads only the first {limit - 2} word pieces of a document",)

    @contextmanager
    def open(self, collection: Collection) -> Iterator["MemppSession"]:
        """Take a collection in.

        Raises:
            EvalError: a document is not usable.
            SystemUnavailableError: the encoder is not installed.
        """
        check_collection(collection)
        chosen: dict[str, Any] = {
            "encoder": self._encoder or "none",
            "settings": self._settings,
            "repeats": self._extra["repeats"],
            "exact_up_to": self._extra["exact_up_to"],
        }
        with tempfile.TemporaryDirectory(prefix="mempp-eval-") as folder:
            with mempp_errors(f"collection {collection.id!r}"):
                if self._extra["store"] == "disk":
                    memory = mempp.open(Path(folder) / "store.mempp", **chosen)
                else:
                    memory = mempp.in_memory(**chosen)
            with memory:
                yield MemppSession(
                    collection, memory, self._options.as_of, self._extra["style"], self._encoder, self._operators
                )


class MemppSession:
    """A memory that holds the collection."""

    def __init__(
        self,
        collection: Collection,
        memory: mempp.Memory,
        as_of: bool,
        style: Literal["plain", "tagged"],
        encoder: RememberingEncoder | None,
        operators: Operators,
    ) -> None:
        self._memory = memory
        self._as_of = as_of
        self._style: Literal["plain", "tagged"] = style
        self._encoder = encoder
        self._operators = operators
        self._documents = {one.id: one for one in collection.documents}
        self._ids: dict[int, list[str]] = defaultdict(list)
        if encoder is not None:
            with mempp_errors("the encoder"):
                encoder.load()
        start = time.perf_counter()
        with mempp_errors(f"collection {collection.id!r}"):
            report = memory.add_many([_document(one) for one in collection.documents], embed=encoder is not None)
            merged = operators.prepare(memory)
        seconds = time.perf_counter() - start
        for document, row in zip(collection.documents, report.row_ids, strict=True):
            if row is not None:
                self._ids[row].append(document.id)
        for row, originals in merged.items():
            self._ids[row] = [name for original in originals for name in self._ids[original]]
        self.ingest = Ingest(documents=len(collection.documents), seconds=seconds, bytes_stored=self._bytes_stored())

    def retrieve(self, case: Case, budgets: Sequence[int]) -> Retrieved:
        """The answer of one recall, and its evidence for each budget."""
        check_budgets(budgets)
        check_question(case)
        as_of = case.as_of if self._as_of else None
        if self._encoder is not None:
            self._encoder.forget()
        evidence: dict[int, Evidence] = {}
        with mempp_errors(f"question {case.id!r}"):
            start = time.perf_counter()
            # What a caller does: one question, one budget. What follows is for measuring only.
            first = None
            if budgets:
                first = self._evidence(case.text, budgets[0], as_of)
            hits = self._memory.recall(case.text, as_of=as_of) if first is None else None
            seconds = time.perf_counter() - start
            if hits is None:
                hits = self._memory.recall(case.text, as_of=as_of)
            for budget in budgets:
                again = first is not None and budget == budgets[0]
                packed = first if again and first is not None else self._evidence(case.text, budget, as_of)
                evidence[budget] = Evidence(text=packed.text, shares=self._shares(packed.text, packed.hits, as_of))
        ranked = tuple(
            Ranked(id=name, score=hit.score, ranks={leg.leg: leg.rank for leg in hit.explain().legs})
            for hit in hits
            for name in self._visible_ids(hit.row_id, as_of)
        )
        return Retrieved(ranked=ranked, evidence=evidence, seconds=seconds)

    def _evidence(self, question: str, budget: int, as_of: str | None) -> mempp.Evidence:
        graph = self._operators.graph
        if graph is None:
            return self._memory.evidence(question, max_chars=budget, style=self._style, as_of=as_of)
        return self._memory.graph_evidence(
            question, model=self._operators.model, graph=graph, max_chars=budget, style=self._style, as_of=as_of
        )

    def _shares(self, text: str, hits: Sequence[mempp.Hit], as_of: str | None) -> dict[str, float]:
        shares = {}
        for hit in hits:
            share = shown_share(hit.record.text, text)
            if share > 0:
                shares.update(dict.fromkeys(self._visible_ids(hit.row_id, as_of), share))
        return shares

    def _visible_ids(self, row: int, as_of: str | None) -> list[str]:
        """The documents that this row is, without those which were not there yet (`repeats=paper` joins dates)."""
        names = self._ids.get(row, [])
        if as_of is None or len(names) < 2:
            return names
        bound = moment(as_of, "a question", end_of_day=True)
        dates = {name: self._documents[name].occurred_at for name in names}
        return [name for name, date in dates.items() if date is not None and moment(date, name) <= bound]

    def _bytes_stored(self) -> int | None:
        statistics = self._memory.stats()
        if statistics.bytes_on_disk is not None:
            return statistics.bytes_on_disk
        texts = sum(len(self._documents[names[0]].text.encode()) for names in self._ids.values())
        if self._encoder is None:
            return texts
        return texts + 4 * self._encoder.identity.dimensions * (statistics.rows - statistics.without_vector)


def shown_share(text: str, evidence: str) -> float:
    """Which share of a packed record's text the evidence shows: 1, unless it was the first and was cut."""
    if text in evidence:
        return 1.0
    # Only the first record is ever cut. Its text begins behind its heading, which is the first line.
    _, _, shown = evidence.partition("\n")
    common = 0
    for ours, theirs in zip(text, shown, strict=False):
        if ours != theirs:
            break
        common += 1
    return common / len(text)


def _document(one: EvalDocument) -> mempp.Document:
    return mempp.Document(
        text=one.text, occurred_at=one.occurred_at, author=one.authors, tags=one.tags, source=one.id, thread=one.thread
    )


def _json(value: object) -> Json:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list | set | frozenset):
        return [_json(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _json(one) for key, one in value.items()}
    return str(value)
