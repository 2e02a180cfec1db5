"""RAG: fixed chunks of N tokens, embedded, the nearest to the question first. `rag-2048` has N = 2048; N from 16.

Tokens are the word pieces of the encoder where its tokenizer is to be had (MiniLM, a folder), else words and marks.

- Without more, chunks lie inside documents: each document is cut from its own beginning, its last chunk is what is
  left, and no chunk has text of two documents. What is embedded is the text alone; evidence shows it under its number,
  date and authors, as Mem++ does.
- `--set stream=1`: the documents are joined in event order into one stream, each under a line with date and authors,
  and the stream is cut, as RAG on a conversation does. These lines count as tokens and are embedded.

The as-of bound. Inside documents, chunks of later and of undated documents are not searched. In the stream, what is
dated up to a moment is the beginning of the stream (see `eval.systems.timeline`), so its chunks are those of the whole
stream, except that the last ends where the record ended then; that one is cut there and embedded again, before the
search is timed. Either way no text, vector or date of a later document has any part in what is found or shown: the
result is that of a RAG built at that time. `--no-as-of` searches everything, as the paper's RAG does.

Search scans all chunks in scope (exact cosine; equal ones in the order of the record). At most k chunks are packed,
whole and in rank order, up to the first that does not fit; the first is cut where it alone is larger. `ranked` has the
documents of the ranked chunks by their best one, k at most. Default k: 50, the paper's.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import mempp
from eval.cases import Case, Collection
from eval.errors import UsageError
from eval.systems.base import Ingest, Json, Options, Ranked, Retrieved, System
from eval.systems.chunking import TokenStarts, chunk_bounds, word_pieces, words
from eval.systems.encoders import RememberingEncoder, described, encoder_for, head_limit, mempp_errors, tokenizer_for
from eval.systems.options import parsed, positive_k, refuse_unknown
from eval.systems.packing import BETWEEN, Block, Part, check_budgets, pack
from eval.systems.timeline import Timeline, check_question, heading, timeline

SYSTEMS = {
    "rag-N": "RAG with chunks of N tokens over the encoder, e.g. rag-2048; --set stream=1 chunks across documents"
}
DEFAULT_K = 50
SMALLEST = 16
_BATCH = 256
_OPTIONS: Mapping[str, object] = {"stream": bool}


def build(name: str, options: Options, encoder: mempp.Encoder | None = None) -> System:
    """The system.

    Raises:
        UsageError: N is below 16, or an option is not usable.
        SystemUnavailableError: the encoder or its tokenizer is not installed.
    """
    size = int(name.removeprefix("rag-"))
    if size < SMALLEST:
        raise UsageError(f"{name}: a chunk has at least {SMALLEST} tokens")
    refuse_unknown(options, _OPTIONS, name)
    chosen = parsed(options.settings, _OPTIONS, name)
    remembering = encoder_for(options.encoder, encoder)
    encode = tokenizer_for(remembering, options.encoder)
    return Rag(
        size=size,
        k=positive_k(options, DEFAULT_K),
        stream=bool(chosen.get("stream", False)),
        as_of=options.as_of,
        encoder=remembering,
        tokens="words and marks" if encode is None else "word pieces of the encoder",
        starts=words if encode is None else word_pieces(encode),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rag:
    """See the module."""

    size: int
    k: int
    stream: bool
    as_of: bool
    encoder: RememberingEncoder
    tokens: str
    starts: TokenStarts

    @property
    def name(self) -> str:
        """Its name in results and tables."""
        return f"rag-{self.size}" + (" stream" if self.stream else "") + ("" if self.as_of else " (no as-of)")

    @property
    def configuration(self) -> Mapping[str, Json]:
        """Every setting that it runs with."""
        return {
            "system": f"rag-{self.size}",
            "chunk_tokens": self.size,
            "tokens": self.tokens,
            "stream": self.stream,
            "k": self.k,
            "as_of": self.as_of,
            "encoder": described(self.encoder),
        }

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of a table must know."""
        where = "across documents, in event order" if self.stream else "inside documents"
        notes = [f"chunks of {self.size} tokens ({self.tokens}) {where}"]
        limit = head_limit(self.encoder)
        # Two of the pieces are the special ones at the ends.
        if limit is not None and self.size > limit - 2:
            notes.append(f"the encoder reads only the first {limit - 2} word pieces of a chunk of {self.size}")
        return tuple(notes)

    @contextmanager
    def open(self, collection: Collection) -> Iterator["RagSession"]:
        """Take a collection in.

        Raises:
            EvalError: a document is not usable, or the encoder failed.
        """
        yield RagSession(collection, self)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk, and where it stands in the record."""

    block: Block
    begin: int
    """Its first character in the stream; without a stream, the place of its document in event order."""
    end: int
    """Behind its last character in the stream; without a stream, the place of the next document."""


class RagSession:
    """The chunks of a collection with their vectors, in event order."""

    def __init__(self, collection: Collection, system: Rag) -> None:
        with mempp_errors("the encoder"):
            system.encoder.load()
        start = time.perf_counter()
        self._system = system
        self._timeline = timeline(collection)
        self._lengths = {one.id: len(one.text) for one in self._timeline.documents}
        if system.stream:
            self._chunks, self._ends = _stream_chunks(self._timeline, system.size, system.starts)
        else:
            self._chunks = _document_chunks(self._timeline, system.size, system.starts)
            self._ends = list(range(1, len(self._timeline.documents) + 1))
        self._last: dict[int, tuple[Chunk, NDArray[np.float32]] | None] = {}
        self._lock = threading.Lock()
        with mempp_errors(f"collection {collection.id!r}"):
            self._vectors = self._embed([one.block.text for one in self._chunks])
        stored = sum(len(one.block.text.encode()) for one in self._chunks) + self._vectors.nbytes
        self.ingest = Ingest(
            documents=len(collection.documents), seconds=time.perf_counter() - start, bytes_stored=stored
        )

    def retrieve(self, case: Case, budgets: Sequence[int]) -> Retrieved:
        """The documents of the nearest chunks, and these chunks as evidence."""
        check_budgets(budgets)
        check_question(case)
        visible = self._timeline.upto(case, bounded=self._system.as_of)
        self._system.encoder.forget()
        with mempp_errors(f"question {case.id!r}"):
            chunks, vectors = self._scope(visible)
            start = time.perf_counter()
            found = self._search(case.text, chunks, vectors)
        blocks = [chunk.block for chunk, _ in found[: self._system.k]]
        evidence = {budget: pack(blocks, self._lengths, budget) for budget in budgets[:1]}
        seconds = time.perf_counter() - start
        evidence |= {budget: pack(blocks, self._lengths, budget) for budget in budgets[1:]}
        return Retrieved(ranked=self._ranked(found), evidence=evidence, seconds=seconds)

    def _search(
        self, question: str, chunks: Sequence[Chunk], vectors: NDArray[np.float32]
    ) -> list[tuple[Chunk, float]]:
        if not chunks:
            return []
        scores = vectors @ self._system.encoder.encode_question(question)
        return [(chunks[place], float(scores[place])) for place in np.argsort(-scores, kind="stable").tolist()]

    def _ranked(self, found: Sequence[tuple[Chunk, float]]) -> tuple[Ranked, ...]:
        best: dict[str, float] = {}
        for chunk, score in found:
            for part in chunk.block.parts:
                best.setdefault(part.id, score)
            if len(best) >= self._system.k:
                break
        return tuple(Ranked(id=name, score=score) for name, score in list(best.items())[: self._system.k])

    def _scope(self, visible: int) -> tuple[Sequence[Chunk], NDArray[np.float32]]:
        """The chunks, and their vectors, of the first `visible` documents."""
        if visible == len(self._timeline.documents):
            return self._chunks, self._vectors
        limit = self._ends[visible - 1] if visible else 0
        whole = 0
        while whole < len(self._chunks) and self._chunks[whole].end <= limit:
            whole += 1
        last = self._cut_last(whole, limit)
        if last is None:
            return self._chunks[:whole], self._vectors[:whole]
        return [*self._chunks[:whole], last[0]], np.vstack([self._vectors[:whole], last[1]])

    def _cut_last(self, place: int, limit: int) -> tuple[Chunk, NDArray[np.float32]] | None:
        """The chunk in which the record ends at `limit`, cut there and embedded as it stood then; None if none does."""
        if place == len(self._chunks) or self._chunks[place].begin >= limit:
            return None
        with self._lock:
            if limit not in self._last:
                chunk = self._chunks[place]
                text = chunk.block.text[: limit - chunk.begin]
                parts = tuple(
                    Part(part.id, part.start, min(part.end, len(text)))
                    for part in chunk.block.parts
                    if part.start < len(text)
                )
                cut = Chunk(Block(chunk.block.heading, text, parts), chunk.begin, limit)
                self._last[limit] = (cut, self._embed([text])) if text.strip() else None
            return self._last[limit]

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        encoder = self._system.encoder
        rows = [encoder.encode_documents(texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
        return np.vstack(rows) if rows else np.empty((0, encoder.identity.dimensions), dtype=np.float32)


def _document_chunks(record: Timeline, size: int, starts: TokenStarts) -> list[Chunk]:
    chunks = []
    for place, document in enumerate(record.documents):
        line = heading(record.moments[place], document.authors)
        for begin, end in chunk_bounds(document.text, size, starts):
            text = document.text[begin:end]
            chunks.append(Chunk(Block(line, text, (Part(document.id, 0, len(text)),)), place, place + 1))
    return chunks


def _stream_chunks(record: Timeline, size: int, starts: TokenStarts) -> tuple[list[Chunk], list[int]]:
    """The chunks of the joined stream, and where in it each document's text ends."""
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    length = 0
    for place, document in enumerate(record.documents):
        head = (BETWEEN if pieces else "") + heading(record.moments[place], document.authors) + "\n"
        pieces += [head, document.text]
        spans.append((length + len(head), length + len(head) + len(document.text)))
        length = spans[-1][1]
    stream = "".join(pieces)
    chunks = []
    first = 0
    for begin, end in chunk_bounds(stream, size, starts):
        while first < len(spans) and spans[first][1] <= begin:
            first += 1
        parts = []
        for place in range(first, len(spans)):
            if spans[place][0] >= end:
                break
            parts.append(
                Part(record.documents[place].id, max(spans[place][0], begin) - begin, min(spans[place][1], end) - begin)
            )
        chunks.append(Chunk(Block("", stream[begin:end], tuple(parts)), begin, end))
    return chunks, [end for _, end in spans]
