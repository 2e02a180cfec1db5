"""Embedding in parts: shards of a store, encoded anywhere into vector files, and the files taken in.

Row r belongs to shard r mod n + 1 of n. So shards are of equal size whatever part of the record lacks vectors, and a
row stays in its shard when the record grows: a shard that is run again goes on with the file that it wrote.
"""

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from mempp.adding import check_encoder, encode_rows, keep
from mempp.checked_encoder import fault_of
from mempp.embedding import Embedder
from mempp.encoders.windows import windows_of
from mempp.encoding import Coder, View
from mempp.engine import Engine
from mempp.errors import EncoderMismatchError, InputError, StoreError, quoted
from mempp.progress import Progress, reporter
from mempp.projection import HEAD, Projection
from mempp.storage import VectorBatch
from mempp.storage.vector_file import DIGEST_BYTES, Binding, Origin, Part, VectorFile, text_digest
from mempp.storage.vector_file_writer import VectorFileWriter

_MOST_SHARDS = 10**9


def checked_shard(shard: object) -> tuple[int, int]:
    """A shard as (number, of), numbers from 1.

    Raises:
        InputError: it is no such pair.
    """
    if (
        not isinstance(shard, Sequence)
        or isinstance(shard, str)
        or len(shard) != 2
        or any(isinstance(part, bool) or not isinstance(part, int) for part in shard)
        or not 1 <= shard[0] <= shard[1] <= _MOST_SHARDS
    ):
        raise InputError(
            f"shard must be (number, of), such as (3, 16), with numbers from 1 to {_MOST_SHARDS:,}; got {quoted(shard)}"
        )
    return shard[0], shard[1]


def embed_shard(engine: Engine, shard: object, out: str | PathLike[str], progress: Progress) -> int:
    """Encode the rows of a shard that lack vectors, into a file; nothing of the store is written.

    Args:
        engine: the opened store, for reading only or not.
        shard: (number, of).
        out: the file. While it is being written its name ends in `.part`; when that is there, or the whole file of an
            earlier run, it is continued.
        progress: as in `Memory.embed`.

    Returns:
        how many rows were encoded now.

    Raises:
        InputError: the shard or the file is not usable, or the memory was opened without an encoder.
        EncoderError: the encoder failed; what was encoded is kept in the `.part`.
        StoreError: the file cannot be written.
    """
    number, of = checked_shard(shard)
    engine.check_open()
    check_encoder(engine)
    engine.refresh()
    embedder, projection = engine.embedder, engine.projection
    embedder.make_ready()
    identity = embedder.identity
    assert identity is not None, "an embedder that is not off has an encoder"
    texts = _Texts(projection)
    there = _There(embedder, texts)
    origin = Origin(engine.store.store_id, identity.name, identity.dimensions, (number, of))
    with VectorFileWriter(out, origin, there.take) as file:

        def keep_in_file(batch: VectorBatch, coder: Coder) -> int:
            file.append(Part(batch, texts.digests(batch)))
            there.note(batch)
            return len(np.unique(batch.row_ids))

        rows = [row for row in embedder.missing() if row % of == number - 1 and there.lacks(row)]
        with reporter(progress, f"embedding shard {number}/{of}", len(rows)) as done:
            encoded = encode_rows(engine, rows, lambda: there, keep_in_file, done)
        sequence, digest = engine.log_position()
        file.finish(Binding(sequence, len(projection), digest))
    return encoded


class _There:
    """The rows whose vectors a file holds already; encodes what it lacks."""

    def __init__(self, embedder: Embedder, texts: "_Texts") -> None:
        self._embedder = embedder
        self._texts = texts
        self._heads: set[int] = set()
        self._windows: set[int] = set()
        self.name = embedder.name

    def take(self, part: Part) -> bool:
        """Count a part that was written before; False: its texts are not those of the store."""
        if self._texts.fault_of(part) is not None:
            return False
        self.note(part.batch)
        return True

    def note(self, batch: VectorBatch) -> None:
        """Count vectors that the file holds."""
        self._heads |= set(batch.row_ids[batch.views == HEAD].tolist())
        self._windows |= set(batch.row_ids[batch.views != HEAD].tolist())

    def lacks(self, row: int) -> bool:
        """Whether the file lacks a view that the store lacks."""
        return bool(self.views_to_make([row])) if row in self._heads or row in self._windows else True

    def views_to_make(self, row_ids: Sequence[int]) -> list[View]:
        """The views that neither the store nor the file holds."""
        return [
            view
            for view in self._embedder.views_to_make(row_ids)
            if view.row not in (self._heads if view.view == HEAD else self._windows)
        ]

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """As of the embedder."""
        return self._embedder.encode(texts)


class _Texts:
    """The texts of views, and their digests."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection

    def digests(self, batch: VectorBatch) -> NDArray[np.uint8]:
        """(n, 16) digests of the texts of views that there are."""
        digests = np.zeros((len(batch), DIGEST_BYTES), dtype=np.uint8)
        for row, places in _by_row(batch.row_ids).items():
            text = self._projection.text_of(row)
            views = batch.views[places]
            windows = windows_of(text) if (views != HEAD).any() else []
            for place, view in zip(places, views.tolist(), strict=True):
                of_view = text if view == HEAD else windows[view - 1]
                digests[place] = np.frombuffer(text_digest(of_view), np.uint8)
        return digests

    def fault_of(self, part: Part) -> str | None:
        """Why a part is not one of vectors of the store's texts; None where it is."""
        batch = part.batch
        rows = len(self._projection)
        outside = batch.row_ids[(batch.row_ids < 0) | (batch.row_ids >= rows)]
        if len(outside):
            return f"it holds a vector of row {outside[0]}, and the store has {rows} rows"
        for row, places in _by_row(batch.row_ids).items():
            views = sorted(batch.views[places].tolist())
            windows = len(windows_of(self._projection.text_of(row))) if views[-1] != HEAD else 0
            if [view for view in views if view != HEAD] != list(range(HEAD + 1, windows + 1)) or views.count(HEAD) > 1:
                return f"it does not hold the windows that the text of row {row} has here"
        wrong = (self.digests(batch) != part.digests).any(axis=1)
        if wrong.any():
            return f"its vector of row {batch.row_ids[wrong][0]} was made of another text"
        unusable = fault_of(batch.vectors)
        return None if unusable is None else f"it holds a vector {unusable}"


def _by_row(row_ids: NDArray[np.int64]) -> dict[int, list[int]]:
    """The places of each row."""
    places: dict[int, list[int]] = {}
    for place, row in enumerate(row_ids.tolist()):
        places.setdefault(row, []).append(place)
    return places


def merge_vectors(engine: Engine, paths: Iterable[str | PathLike[str]], progress: Progress) -> int:
    """Take vector files in. Every file is checked whole before anything of any is taken.

    What the store has is passed over, so the order does not matter and the same file may come again.

    Returns:
        how many rows got vectors.

    Raises:
        InputError: no files, or the memory was opened without an encoder.
        StoreDamagedError: a file is damaged.
        EncoderMismatchError: the vectors are of another encoder than the store's.
        StoreError: they are of another store, or of other texts than the store's; or it could not be read or written.
    """
    several = isinstance(paths, Iterable) and not isinstance(paths, str | bytes | PathLike)
    files = list(paths) if several else []
    if not files:
        raise InputError(f"merge_vectors takes the paths of one or more vector files, got {quoted(paths)}")
    engine.check_writable()
    check_encoder(engine)
    engine.refresh()
    coder = engine.embedder
    checked = [_Checked(engine, path) for path in files]
    engine.commit(lambda: engine.embedder.registration())
    taken = 0
    read = 0
    with reporter(progress, "merging vectors", sum(file.vectors for file in checked)) as done:
        for file in checked:
            for batch in file.batches():
                kept = keep(engine, batch, coder)
                if kept is None:
                    raise EncoderMismatchError(f"the store's encoder was changed while {file.name} was taken in")
                taken += kept
                read += len(batch)
                done(read)
    return taken


class _Checked:
    """A vector file, read whole, that fits the store."""

    def __init__(self, engine: Engine, path: str | PathLike[str]) -> None:
        self._file = VectorFile(path)
        self.name = self._file.name
        self.vectors = 0
        self._chains: list[bytes] = []
        _check_origin(self._file, engine)
        texts = _Texts(engine.projection)
        for part in self._file.parts():
            fault = texts.fault_of(part)
            if fault is not None:
                raise StoreError(f"the vector file {self.name} does not fit: {fault}; nothing was taken from it")
            self.vectors += len(part.batch)
            self._chains.append(part.chain)
        _check_binding(self._file, engine)

    def batches(self) -> Iterator[VectorBatch]:
        """Its vectors, read again.

        Raises:
            StoreError: the file is not any more what it was.
        """
        for part, chain in zip(self._file.parts(), self._chains, strict=False):
            if part.chain != chain:
                raise StoreError(f"the vector file {self.name} was changed while it was taken in; merge it again")
            yield part.batch


def _check_origin(file: VectorFile, engine: Engine) -> None:
    origin, store_id, identity = file.origin, engine.store.store_id, engine.embedder.identity
    assert identity is not None, "an embedder that is not off has an encoder"
    if origin.store_id != store_id:
        raise StoreError(
            f"the vector file {file.name} was made for another store, {quoted(origin.store_id)}; this one is {store_id}"
        )
    if (origin.identity, origin.dimensions) != (identity.name, identity.dimensions):
        # As long as the store has no vectors, any encoder may become its own.
        bare = len(engine.projection.rows_without_vectors()) == len(engine.projection)
        way = "; it has no vectors yet: open it with the encoder of the file to take these" if bare else ""
        raise EncoderMismatchError(
            f"the vectors in {file.name} come from {quoted(origin.identity)} with {origin.dimensions} dimensions; the "
            f"store's encoder is {identity.name!r} with {identity.dimensions}{way}"
        )


def _check_binding(file: VectorFile, engine: Engine) -> None:
    """Refuse what was made for another log, as far as that can be told without reading the log again.

    The texts' digests have been compared already: each vector is that of its row's text.
    """
    binding = file.binding
    assert binding is not None, "the file was read to its end"
    sequence, digest = engine.log_position()
    if binding.sequence > sequence:
        raise StoreError(
            f"the vector file {file.name} was made when the log had {binding.sequence} entries, and here it has "
            f"{sequence}: the end of the log may be lost; nothing was taken from it"
        )
    if binding.sequence == sequence and binding.digest != digest:
        raise StoreError(
            f"the vector file {file.name} was made for another log, with the head digest {quoted(binding.digest)}; "
            "nothing was taken from it"
        )
