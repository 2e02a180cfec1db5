"""What of an HNSW graph is worth keeping: its links. The vectors are kept elsewhere, and are eleven times as large.

hnswlib gives the whole state of an index as arrays and takes it back, without a file. Of this the links are kept, with
a digest of the vectors and rows that they were made for. It trusts what it is given, so that a wrong number would make
it read outside of its memory: all that it follows is checked first.

Level 0 holds for each element a count and its neighbours (at most 2 M), and an element of level l has as much (at most
M) for each of the levels 1 to l. Elements are numbered as they were added, which is not the order of the views when
several threads did it; `labels` tells the view of each.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.held import Held, little_endian

_BLOCK = 1 << 14  # vectors handled between two looks at the stop flag
_logger = logging.getLogger("mempp.indexes")


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The links of a graph over n views."""

    level_0: NDArray[np.uint32]
    """(n, 1 + 2 M): number of neighbours, then the neighbours."""
    upper: NDArray[np.uint32]
    """(sum of levels, 1 + M): the same for the levels above, element after element, from level 1 up."""
    levels: NDArray[np.int32]
    """(n,): the highest level of each element."""
    labels: NDArray[np.int64]
    """(n,): the view of each element."""
    entry: int
    """The element where a search begins."""
    digest: str
    """Of the views that it was made for; see `digest_of`."""

    @property
    def size(self) -> int:
        """Number of views."""
        return len(self.labels)


def digest_of(
    rows: NDArray[np.int64], vectors: Held[np.float32], stopped: Callable[[], bool] = lambda: False
) -> str | None:
    """SHA-256 of views in their order, their rows and vectors; None when it was stopped. 0.1 s for 100,000 × 384."""
    digest = hashlib.sha256(f"{vectors.shape}".encode())
    digest.update(np.ascontiguousarray(rows, "<i8").data)
    for part in little_endian(vectors, len(vectors)):
        if stopped():
            return None
        digest.update(part)
    return digest.hexdigest()


def links_of(index: Any, digest: str, dimensions: int) -> Links | None:
    """The links of a finished hnswlib index; None when this hnswlib does not tell them as expected."""
    try:
        state = index.__getstate__()[0]
        n, neighbours = int(state["cur_element_count"]), int(state["max_M0"])
        elements = state["data_level0"].view(np.uint8).reshape(-1, int(state["size_data_per_element"]))[:n]
        places = _places(neighbours, dimensions)
        if (state["offset_data"], state["label_offset"], elements.shape[1]) != places:
            raise ValueError("its elements are laid out in another way")
        return Links(
            level_0=np.ascontiguousarray(elements[:, : places[0]]).view(np.uint32),
            upper=state["link_lists"].view(np.uint32).reshape(-1, 1 + int(state["max_M"])).copy(),
            levels=state["element_levels"][:n].astype(np.int32),
            labels=np.ascontiguousarray(elements[:, places[1] :]).view(np.int64)[:, 0].copy(),
            entry=int(state["enterpoint_node"]),
            digest=digest,
        )
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        _logger.warning("this hnswlib does not tell its links (%s); the graph is built again at each opening", error)
        return None


def graph_of(
    links: Links,
    rows: NDArray[np.int64],
    vectors: Held[np.float32],
    m: int,
    ef_construction: int,
    seed: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Any | None:
    """An hnswlib index of these links over the first of the vectors.

    Args:
        links: links that were kept.
        rows: the row of each view, shape (n,) or more.
        vectors: the views, shape (n, dimensions) or more.
        m, ef_construction, seed: the settings with which the index would be built now.
        stopped: tells whether it is still wanted.

    Returns:
        None when they belong to other views or settings, are not sound, or it was stopped.
    """
    size = links.size
    if size > len(vectors) or digest_of(rows[:size], vectors.up_to(size), stopped) != links.digest:
        if not stopped():
            _logger.info("the links of a graph over %d vectors were made for others and are passed over", size)
        return None
    problem = _problem(links, m)
    if problem is not None:
        _logger.warning("the links of a graph over %d vectors are not sound and are passed over: %s", size, problem)
        return None
    try:
        import hnswlib

        empty = hnswlib.Index(space="ip", dim=vectors.shape[1])
        empty.init_index(max_elements=1, M=m, ef_construction=ef_construction, random_seed=seed)
        empty.set_ef(ef_construction)
        state = empty.__getstate__()[0]
        places = _places(2 * m, vectors.shape[1])
        if (state["offset_data"], state["label_offset"], state["size_data_per_element"]) != places:
            raise ValueError("its elements are laid out in another way")
        elements = np.empty((size, places[2]), np.uint8)
        elements[:, : places[0]] = links.level_0.view(np.uint8)
        elements[:, places[1] :] = links.labels.reshape(-1, 1).view(np.uint8)
        for start in range(0, size, _BLOCK):
            if stopped():
                return None
            part = slice(start, start + _BLOCK)
            elements[part, places[0] : places[1]] = vectors.take(links.labels[part]).view(np.uint8)
        state |= {
            "ep_added": True,
            "max_elements": size,
            "cur_element_count": size,
            "max_level": int(links.levels.max()),
            "enterpoint_node": links.entry,
            "label_lookup_external": links.labels.astype(np.uint64),
            "label_lookup_internal": np.arange(size, dtype=np.uint32),
            "element_levels": links.levels,
            "data_level0": elements.reshape(-1).view(np.int8),
            "link_lists": np.ascontiguousarray(links.upper).reshape(-1).view(np.int8),
        }
        index = hnswlib.Index.__new__(hnswlib.Index)
        index.__setstate__((state,))
    except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
        _logger.warning("this hnswlib takes no links (%s); the graph is built anew", error)
        return None
    return index


def _places(neighbours: int, dimensions: int) -> tuple[int, int, int]:
    """Where in an element the vector begins, where the label, and where it ends."""
    vector = 4 * (1 + neighbours)
    return vector, vector + 4 * dimensions, vector + 4 * dimensions + 8


def _problem(links: Links, m: int) -> str | None:
    """What is wrong with the links; None when a search that follows them stays inside."""
    size, levels = links.size, links.levels
    if not size or links.level_0.shape != (size, 1 + 2 * m) or levels.shape != (size,):
        return "level 0 has another shape"
    if levels.min() < 0 or links.upper.shape != (int(levels.sum()), 1 + m):
        return "the upper levels have another shape"
    if not np.array_equal(np.sort(links.labels), np.arange(size)):
        return "the labels are not those of the first views, each once"
    if not 0 <= links.entry < size or levels[links.entry] != levels.max():
        return "the entry is not on the highest level"
    starts = np.cumsum(levels) - levels
    level_of = np.arange(len(links.upper)) - np.repeat(starts, levels) + 1
    for name, table, level in (("level 0", links.level_0, np.zeros(size)), ("an upper level", links.upper, level_of)):
        counts, neighbours = table[:, 0], table[:, 1:]
        if len(table) and counts.max() >= table.shape[1]:
            return f"{name} has an element with {counts.max()} neighbours"
        used = np.arange(table.shape[1] - 1) < counts[:, None]
        inside = np.where(used, neighbours, links.entry)
        if len(table) and (inside.max() >= size or (levels[inside] < level[:, None]).any()):
            return f"{name} has a neighbour that is not on it"
    return None
