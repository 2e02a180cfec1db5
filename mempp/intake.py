"""The half of `Memory` by which documents come in and get their vectors."""

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from mempp import adding, reembedding, shards
from mempp.encoders import Encoder
from mempp.engine import Engine
from mempp.errors import InputError, quoted
from mempp.ingest import BATCH_SIZE, DocumentLike
from mempp.progress import Progress
from mempp.records import AddReport, check_document


class Intake:
    """What adds documents to an opened store, and embeds them."""

    _engine: Engine

    def add(
        self,
        text: DocumentLike,
        *,
        occurred_at: object = None,
        author: str | Iterable[str] | None = None,
        tags: str | Iterable[str] | None = None,
        source: str | None = None,
        thread: str | None = None,
        kind: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        embed: bool = True,
    ) -> AddReport:
        """Add one document; it is durable when this returns. A repeat or an empty text adds nothing.

        Args:
            text: the text, or a whole Document or mapping (then give no other field).
            occurred_at: event date; see `Document` for this and the other fields.
            author: one name or several.
            tags: one label or several.
            source: identity outside.
            thread: what it belongs to.
            kind: mail, chat, …
            metadata: anything that JSON can hold, by key.
            embed: False leaves the vector for `embed()`; until then the lexical and tag legs find the row.

        Raises:
            InputError: the document is not usable; nothing was added.
            StoreError: the store could not take it, or, where a note says so, only its vector.
            EncoderError: the encoder cannot be loaded, and nothing was added; or, where a note says so, it was added
                and could not be embedded. `embed()` does that later.
        """
        fields = {
            "occurred_at": occurred_at,
            "author": author,
            "tags": tags,
            "source": source,
            "thread": thread,
            "kind": kind,
            "metadata": metadata,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        if given and not isinstance(text, str):
            raise InputError(f"{next(iter(given))} was given beside a whole document; put it into the document")
        document = check_document({"text": text, **given} if isinstance(text, str) else text)
        return adding.add_one(self._engine, document, embed=embed)

    def add_many(
        self,
        documents: Iterable[DocumentLike],
        *,
        embed: bool = True,
        batch_size: int = BATCH_SIZE,
        progress: Progress = False,
    ) -> AddReport:
        """Add documents, one commit per batch: a batch is there whole or not at all.

        Args:
            documents: an iterable of Document, mapping or text; it is read as it is needed. An exception of its own
                passes through; the batches before are stored, the unfinished one is not.
            embed: as in `add`.
            batch_size: documents per commit.
            progress: True shows rate and remaining time on stderr; a function gets the number of documents done.

        Raises:
            InputError: a document is not usable; the message counts its place, and the batches before it are stored. Or
                `batch_size` or `progress` is not usable.
            StoreError: the store could not take a batch, or its vectors; the batches before it are stored.
            EncoderError: a batch was stored but not embedded; add the same again, or call `embed()`, to go on.
        """
        shown = _checked(progress)
        return adding.add_many(self._engine, documents, embed=embed, batch_size=batch_size, progress=shown)

    def adding(self, *, embed: bool = True, done: Callable[[int], None] = lambda documents: None) -> adding.Adding:
        """Add batch after batch, as they come, each with a report of its own; see `mempp.adding.Adding`.

        For streams without end, and where every batch is to be acknowledged: a context manager with `add(documents)`.

        Args:
            embed: as in `add`.
            done: called, once for every batch, with the number of documents that are stored and have their vectors.
        """
        return adding.Adding(self._engine, embed=embed, done=done)

    def embed(
        self,
        *,
        shard: tuple[int, int] | None = None,
        out: str | PathLike[str] | None = None,
        progress: Progress = False,
    ) -> int:
        """Embed every row that lacks vectors, in rounds that are kept one by one; return how many were embedded.

        Args:
            shard: (3, 16) takes the third of 16 parts of the rows, and nothing is written to the store, which may be
                open for reading only: the vectors go to the file `out`, for `merge_vectors`. See docs/embedding.md.
            out: the vector file of the shard. Run again after an interruption, it goes on where it was.
            progress: as in `add_many`.

        Raises:
            InputError: only one of `shard` and `out` is given, or one of them is not usable; or the memory was opened
                with encoder="none".
            EncoderError: the encoder failed; the rounds before are kept.
            StoreError: the store or the file could not be written.
        """
        _checked(progress)
        if shard is None and out is None:
            return adding.embed_missing(self._engine, progress)
        if shard is None or out is None:
            raise InputError("shard= and out= belong together: the vectors of a shard go to a file")
        return shards.embed_shard(self._engine, shard, out, progress)

    def merge_vectors(self, paths: Iterable[str | PathLike[str]], *, progress: Progress = False) -> int:
        """Take in vector files that `embed(shard=…, out=…)` wrote; return how many rows got vectors.

        All files are checked before anything of any is taken. In any order, and twice without harm.

        Raises:
            InputError: no files, what cannot be a path, or the memory was opened with encoder="none".
            StoreDamagedError: a file is damaged.
            EncoderMismatchError: its vectors are of another encoder than the store's.
            StoreError: they are of another store or of other texts; or the store could not take them.
        """
        return shards.merge_vectors(self._engine, paths, _checked(progress))

    def reembed(self, encoder: str | Path | Encoder, *, progress: Progress = False) -> int:
        """Embed every row with another encoder, then make it the store's; return how many rows were embedded.

        The store goes on with its old encoder until the new vectors are complete; interrupted, it goes on where it was.

        Args:
            encoder: as in `mempp.open`.
            progress: as in `add_many`.

        Raises:
            InputError: `encoder` names none.
            EncoderMismatchError: vectors by its name are there with other dimensions.
            EncoderError: the encoder failed; the rounds before are kept.
            StoreError: the store could not be written.
        """
        return reembedding.reembed(self._engine, encoder, _checked(progress))


def _checked(progress: Progress) -> Progress:
    if isinstance(progress, bool) or callable(progress):
        return progress
    raise InputError(f"progress must be True, False or a function of the number of items done, got {quoted(progress)}")
