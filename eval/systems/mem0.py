"""Mem0 through its own package, `mem0ai`, over the encoder of the other systems and without any model or network.

`infer=False` stores each document as it is; Mem0's own way, in which a model distils facts and overwrites them, needs a
key and is another system. Mem0 keeps its vectors in a local Qdrant in a temporary folder. `created_at` of a memory
cannot be bounded in this, so the event date stands in its metadata, and a search as of a date filters by it before
anything is ranked, undated documents left out.

`--set threshold=0.1` is the least score that Mem0 returns, its own default. Default k: 50, as for RAG. Evidence is
packed as for RAG, whole documents in rank order up to the first that does not fit.

Where fastembed or spaCy are installed, Mem0 uses them for keyword search and for entities of the question, and they
fetch their models when they are first used; without them nothing is fetched.
"""

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mempp
from eval.cases import Case, Collection
from eval.errors import EvalError, SystemUnavailableError, UsageError
from eval.systems.base import Ingest, Json, Options, Ranked, Retrieved, System
from eval.systems.encoders import RememberingEncoder, described, encoder_for, head_limit, mempp_errors
from eval.systems.options import parsed, positive_k, refuse_unknown
from eval.systems.packing import Block, Part, check_budgets, pack
from eval.systems.timeline import check_question, heading, moment, timeline

SYSTEMS = {"mem0": "Mem0 by its own package with inference off (pip install mem0ai); --set threshold=0.1"}
DEFAULT_K = 50
_OPTIONS: Mapping[str, object] = {"threshold": float}
_RECORD = {"user_id": "record"}
_DATE = "occurred_at_us"


def build(name: str, options: Options, encoder: mempp.Encoder | None = None) -> System:
    """The system.

    Raises:
        UsageError: an option is not usable.
        SystemUnavailableError: mem0ai or the encoder is not installed.
    """
    refuse_unknown(options, _OPTIONS, name)
    threshold = parsed(options.settings, _OPTIONS, name).get("threshold", 0.1)
    if not 0 <= threshold <= 1:
        raise UsageError(f"--set threshold={threshold}: the least score must be from 0 to 1")
    k = positive_k(options, DEFAULT_K)
    if find_spec("mem0") is None or find_spec("qdrant_client") is None:
        raise SystemUnavailableError("the system 'mem0' needs the package mem0ai; run: pip install mem0ai")
    return Mem0(k, threshold, options.as_of, encoder_for(options.encoder, encoder))


class Mem0:
    """See the module."""

    def __init__(self, k: int, threshold: float, as_of: bool, encoder: RememberingEncoder) -> None:
        self._k = k
        self._threshold = threshold
        self._as_of = as_of
        self._encoder = encoder

    @property
    def name(self) -> str:
        """Its name in results and tables."""
        return "mem0" if self._as_of else "mem0 (no as-of)"

    @property
    def configuration(self) -> Mapping[str, Json]:
        """Every setting that it runs with."""
        try:
            installed: str | None = version("mem0ai")
        except PackageNotFoundError:
            installed = None
        return {
            "system": "mem0",
            "mem0ai": installed,
            "infer": False,
            "vector_store": "qdrant, local",
            "keyword_search": find_spec("fastembed") is not None,
            "entities": find_spec("spacy") is not None,
            "k": self._k,
            "threshold": self._threshold,
            "as_of": self._as_of,
            "encoder": described(self._encoder),
        }

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of a table must know."""
        notes = ["inference off: whole documents are stored, no model distils, updates or deletes facts"]
        if find_spec("fastembed") is None:
            notes.append("fastembed is not installed, so Mem0 finds by vectors alone, without its keyword search")
        if self._as_of:
            notes.append("the as-of bound is a filter on metadata that this adapter writes; Mem0 has none of its own")
        limit = head_limit(self._encoder)
        if limit is not None:
            notes.append(f"the encoder reads only the first {limit - 2} word pieces of a document")
        return tuple(notes)

    @contextmanager
    def open(self, collection: Collection) -> Iterator["Mem0Session"]:
        """Take a collection in.

        Raises:
            EvalError: a document is not usable, or Mem0 failed.
            SystemUnavailableError: mem0ai cannot be loaded.
        """
        with tempfile.TemporaryDirectory(prefix="mem0-eval-") as folder:
            memory = _make(Path(folder), self._encoder)
            try:
                yield Mem0Session(
                    collection, memory, Path(folder), self._k, self._threshold, self._as_of, self._encoder
                )
            finally:
                with suppress(Exception):
                    memory.vector_store.client.close()
                with suppress(Exception):
                    memory.close()


class Mem0Session:
    """A Mem0 that holds the collection."""

    def __init__(
        self,
        collection: Collection,
        memory: Any,
        folder: Path,
        k: int,
        threshold: float,
        as_of: bool,
        encoder: RememberingEncoder,
    ) -> None:
        self._memory = memory
        self._k = k
        self._threshold = threshold
        self._as_of = as_of
        self._encoder = encoder
        record = timeline(collection)
        self._places = {one.id: place for place, one in enumerate(record.documents)}
        self._record = record
        self._lengths = {one.id: len(one.text) for one in record.documents}
        with mempp_errors("the encoder"):
            encoder.load()
        start = time.perf_counter()
        for place, document in enumerate(record.documents):
            at = record.moments[place]
            metadata: dict[str, Any] = {"document": document.id}
            if at is not None:
                metadata[_DATE] = _microseconds(at.isoformat(), document.id)
            with _mem0_errors(f"document {document.id!r}"):
                memory.add(document.text, infer=False, metadata=metadata, **_RECORD)
        seconds = time.perf_counter() - start
        stored = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        self.ingest = Ingest(documents=len(collection.documents), seconds=seconds, bytes_stored=stored)

    def retrieve(self, case: Case, budgets: Sequence[int]) -> Retrieved:
        """The documents of one search."""
        check_budgets(budgets)
        check_question(case)
        filters: dict[str, Any] = dict(_RECORD)
        if self._as_of and case.as_of is not None:
            filters[_DATE] = {"lte": _microseconds(case.as_of, case.id)}
        self._encoder.forget()
        start = time.perf_counter()
        found: list[dict[str, Any]] = []
        if self._places:
            with _mem0_errors(f"question {case.id!r}"):
                found = self._memory.search(case.text, top_k=self._k, threshold=self._threshold, filters=filters)[
                    "results"
                ]
        blocks = [self._block(one["metadata"]["document"]) for one in found]
        evidence = {budget: pack(blocks, self._lengths, budget) for budget in budgets[:1]}
        seconds = time.perf_counter() - start
        evidence |= {budget: pack(blocks, self._lengths, budget) for budget in budgets[1:]}
        ranked = tuple(Ranked(id=one["metadata"]["document"], score=float(one["score"])) for one in found)
        return Retrieved(ranked=ranked, evidence=evidence, seconds=seconds)

    def _block(self, name: str) -> Block:
        place = self._places[name]
        document = self._record.documents[place]
        line = heading(self._record.moments[place], document.authors)
        return Block(line, document.text, (Part(name, 0, len(document.text)),))


class _Embedding:
    """The encoder as Mem0 calls one."""

    def __init__(self, encoder: RememberingEncoder, config: Any) -> None:
        self._encoder = encoder
        self.config = config

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """One vector; a question's where Mem0 searches."""
        if memory_action == "search":
            vector = self._encoder.encode_question(text)
        else:
            vector = self._encoder.encode_documents([text])[0]
        values: list[float] = vector.tolist()
        return values

    def embed_batch(self, texts: Sequence[str], memory_action: str = "add") -> list[list[float]]:
        """One vector for each text."""
        return [self.embed(text, memory_action) for text in texts]


def _make(folder: Path, encoder: RememberingEncoder) -> Any:
    """A Mem0 in a folder, with this encoder.

    Mem0 takes encoders of its own list only, and one of them must be named; it is replaced before it is asked. The
    language model is named likewise and never asked: no key is needed, and none is read.
    """
    mem0 = _load(folder)
    with mempp_errors("the encoder"):
        dimensions = encoder.identity.dimensions
    unused = {"api_key": "not used"}
    with _mem0_errors("opening a store"):
        memory = mem0.Memory.from_config(
            {
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": str(folder / "qdrant"),
                        "collection_name": "record",
                        "embedding_model_dims": dimensions,
                        "on_disk": True,
                    },
                },
                "llm": {"provider": "openai", "config": unused},
                "embedder": {"provider": "openai", "config": {**unused, "embedding_dims": dimensions}},
                "history_db_path": str(folder / "history.db"),
            }
        )
    memory.embedding_model = _Embedding(encoder, memory.embedding_model.config)
    return memory


def _load(folder: Path) -> Any:
    """Import Mem0 so that it reports to nobody and writes nothing into the home directory.

    Raises:
        SystemUnavailableError: it cannot be imported, or was imported with its telemetry on.
    """
    wanted = {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder / "mem0")}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        mem0 = import_module("mem0")
        reports = bool(import_module("mem0.memory.telemetry").MEM0_TELEMETRY)
    except Exception as error:
        raise SystemUnavailableError(f"mem0ai cannot be loaded ({error}); run: pip install -U mem0ai") from error
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    if reports:
        raise SystemUnavailableError(
            "mem0 was imported with its telemetry on; set MEM0_TELEMETRY=False and start again"
        )
    # It warns for every document that keyword search is off, which the notes say once.
    logging.getLogger("mem0").setLevel(logging.ERROR)
    return mem0


@contextmanager
def _mem0_errors(what: str) -> Iterator[None]:
    """Tell whatever Mem0 or Qdrant raises as an error of the evaluation."""
    try:
        yield
    except (MemoryError, EvalError):
        raise
    except mempp.EncoderUnavailableError as error:
        raise SystemUnavailableError(f"{what}: {error}") from error
    except Exception as error:
        raise EvalError(f"Mem0, {what}: {type(error).__name__}: {error}") from error


def _microseconds(text: str, name: str) -> int:
    """A date as a number that Qdrant can compare; an as-of date means the end of its day."""
    since = moment(text, repr(name), end_of_day=True) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)
