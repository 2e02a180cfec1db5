"""What of the projection is cached in `cache/`, and how it comes back.

    indexes    postings of texts and labels; bound to a position of the log by its chain digest
    graph      links of the HNSW graph; bound to the vectors that it was made for by their digest
    codes-…    codes of the vectors in the flat file, of heads and of windows, to be mapped; bound in the same way

The log stays the only truth: texts, dates and states are always read from it, vectors from their files. A cache of an
earlier state is extended by what came since. Whatever cannot be used is built anew, and a log message says so.
Documents' content keys, by which repeats are recognised, are computed when the first document is added.
"""

import logging
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from mempp.errors import InputError
from mempp.indexes import LexicalIndex, TagIndex
from mempp.indexes.analysis import ANALYSIS_VERSION
from mempp.indexes.hnsw import GRAPH_VERSION
from mempp.indexes.kept_codes import CODES_VERSION, KeptCodes
from mempp.indexes.links import Links
from mempp.progress import Progress, reporter
from mempp.projection import NO_CODES, CodeKeepers, Projection
from mempp.storage import DOCUMENT, DiskStore, Entry, Store
from mempp.storage.cache import CACHE, Blob, CacheFolder, Pieces
from mempp.storage.codec import give_back
from mempp.storage.entries import canonical_bytes, chain
from mempp.storage.flat_cache import FlatArrays, FlatCache

INDEXES = "indexes"
GRAPH = "graph"
CODES = ("codes-heads", "codes-windows")

WORTH_ROWS = 256
"""Fewer rows are analysed faster than it is worth to write a file for them."""
WORTH_SHARE = 20
"""Caches are written again when the rows that they lack are one in so many of those that they hold."""

_logger = logging.getLogger("mempp.cache")


class Caches:
    """The caches of one opened store; of a store in memory there are none."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._folder = CacheFolder(store.path / CACHE, store.store_id) if isinstance(store, DiskStore) else None
        self._covered = 0  # rows that the cache of the indexes holds
        self.graphs = None if self._folder is None else KeptGraphs(self._folder, writable=not store.read_only)
        """Where the projection's vector index keeps its graph."""
        self.codes: CodeKeepers = NO_CODES
        """Where the projection's vector indexes find the codes of their first vectors."""
        if isinstance(store, DiskStore):
            flat = FlatCache(store.path / CACHE, store.store_id)
            heads, windows = (CodesFile(flat, name, writable=not store.read_only) for name in CODES)
            self.codes = heads, windows

    def begin(self, projection: Projection, entries: Sequence[Entry], progress: Progress = False) -> None:
        """Apply all entries of the log to a new projection, with the help of the caches.

        Args:
            projection: the projection; nothing was applied to it.
            entries: what the store's first refresh returned, just now.
            progress: how to show the building of what the caches do not hold, where that takes long.
        """
        give_back()
        restored = self._restored(entries)
        self._covered = 0
        if restored is not None:
            projection.restore(*restored)
            self._covered = len(restored[0])
        lacking = _rows_of(entries, len(entries)) - self._covered
        if not self._is_worth(lacking):
            projection.apply(entries)
            return
        which = "no usable cache holds" if restored is None else f"came after the {self._covered} in the cache"
        _logger.info("indexing the texts and labels of %d rows of %s, which %s", lacking, self._store.path, which)
        with reporter(progress, "indexing", lacking) as done:
            projection.apply(entries, analysed=done)
        self.save(projection)

    def save(self, projection: Projection) -> None:
        """Write the caches when they lack enough to be worth it. Never fails; only for the thread that applies."""
        store, folder = self._store, self._folder
        if folder is None or store.read_only or not self._is_worth(len(projection) - self._covered):
            return
        if projection.last_sequence + 1 != store.next_sequence:
            return  # the store has read more than was applied: its digest is that of another state
        give_back()
        indexes = projection.indexes
        arrays: dict[str, Pieces] = {}
        for name, index in (("texts", indexes.lexical), ("labels", indexes.tags)):
            arrays |= {f"{name}.{part}": array for part, array in index.arrays().items()}
        blob = Blob(store.next_sequence, bytes.fromhex(store.head_digest), arrays, {"rows": len(projection)})
        if folder.write(INDEXES, _version(), blob):
            self._covered = len(projection)

    def _is_worth(self, lacking: int) -> bool:
        return lacking >= max(WORTH_ROWS, self._covered // WORTH_SHARE)

    def _restored(self, entries: Sequence[Entry]) -> tuple[LexicalIndex, TagIndex] | None:
        """The indexes of the first rows, if a cache holds them that was made of this log."""
        if self._folder is None or not isinstance(self._store, DiskStore):
            return None
        blob = self._folder.read(INDEXES, _version())
        if blob is None:
            return None
        if _digest_at(self._store, entries, blob.sequence) != blob.digest:
            _logger.info("the cache of the indexes of %s was made of another log and is passed over", self._store.path)
            return None
        rows = _rows_of(entries, blob.sequence)
        try:
            lexical = LexicalIndex.from_arrays(_part(blob.arrays, "texts"))
            tags = TagIndex.from_arrays(_part(blob.arrays, "labels"))
            if not len(lexical) == len(tags) == rows:
                raise InputError(f"it holds {len(lexical)} texts and {len(tags)} rows of labels of {rows} rows")
        except InputError as error:
            _logger.warning("the cache of the indexes of %s is passed over: %s", self._store.path, error)
            return None
        return lexical, tags


class KeptGraphs:
    """The cache of an HNSW graph, as `mempp.indexes.hnsw.GraphKeeper` wants it."""

    def __init__(self, folder: CacheFolder, *, writable: bool) -> None:
        self._folder = folder
        self._writable = writable

    def load(self) -> Links | None:
        """The links that were kept, if any; whether they fit the vectors is for the index to find out."""
        blob = self._folder.read(GRAPH, GRAPH_VERSION)
        if blob is None:
            return None
        try:
            return Links(
                level_0=np.asarray(blob.arrays["level_0"], np.uint32),
                upper=np.asarray(blob.arrays["upper"], np.uint32),
                levels=np.asarray(blob.arrays["levels"], np.int32),
                labels=np.asarray(blob.arrays["labels"], np.int64),
                entry=int(blob.facts["entry"]),
                digest=str(blob.facts["digest"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            _logger.warning("the cache of a graph in %s is passed over: %r", self._folder.path, error)
            return None

    def keep(self, links: Links) -> None:
        """Keep these links, if the store is writable."""
        if self._writable:
            arrays = {name: getattr(links, name) for name in ("level_0", "upper", "levels", "labels")}
            facts = {"entry": links.entry, "digest": links.digest}
            self._folder.write(GRAPH, GRAPH_VERSION, Blob(0, b"", arrays, facts))


class CodesFile:
    """The cache of the codes of an index's first vectors, as `mempp.indexes.kept_codes.CodeKeeper` wants it."""

    def __init__(self, cache: FlatCache, name: str, *, writable: bool) -> None:
        self._cache = cache
        self._name = name
        self._writable = writable

    def load(self, digest: str) -> KeptCodes | None:
        """The codes of vectors with this SHA-256, mapped, if they were kept."""
        found = self._cache.load(self._name, CODES_VERSION, digest)
        if found is None:
            return None
        try:
            return KeptCodes.from_arrays(found.arrays, found.facts)
        except InputError as error:
            _logger.warning("the cache %s in %s is passed over: %s", self._name, self._cache.path, error)
            return None

    def keep(self, digest: str, codes: KeptCodes) -> None:
        """Keep these codes, if the store is writable."""
        if self._writable:
            self._cache.save(self._name, CODES_VERSION, digest, FlatArrays(codes.arrays(), codes.facts()))


def _rows_of(entries: Sequence[Entry], sequence: int) -> int:
    """How many rows the first entries of a log hold: their ids are dense."""
    documents = (entries[place] for place in range(sequence - 1, -1, -1) if entries[place].kind == DOCUMENT)
    last = next(documents, None)
    return 0 if last is None or last.row_id is None else last.row_id + 1


def _digest_at(store: DiskStore, entries: Sequence[Entry], sequence: int) -> bytes | None:
    """The chain digest after the first `sequence` entries; None when there are fewer, or it cannot be told.

    Files tell it after each segment and each commit in a journal; within a segment it is computed from its beginning.
    """
    before = [mark for mark in store.marks if mark.sequence <= sequence]
    if sequence > len(entries) or not before or store.marks[0].sequence:
        return None
    digest = before[-1].digest
    for entry in entries[before[-1].sequence : sequence]:
        digest = chain(digest, canonical_bytes(entry))
    return digest


def _part(arrays: Mapping[str, Pieces], name: str) -> dict[str, Pieces]:
    return {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}


def _version() -> str:
    """Whatever decides what terms a text has: the analysis, Python's tables of characters, Tantivy's."""
    try:
        tantivy = version("tantivy")
    except PackageNotFoundError:  # found on the path, but not installed
        tantivy = "unknown"
    return f"analysis {ANALYSIS_VERSION}, unicode {unicodedata.unidata_version}, tantivy {tantivy}"
