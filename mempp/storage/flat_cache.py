"""``cache/<name>.flat``: named arrays that were derived from others, to be mapped into memory.

How such a file lies on the disk is in `mapped`. Its magic is 93 4D 2B 2B 46 4C 54 0A, its format 1. The header tells
the store, the name, what made it (``version``), what it was derived from (``origin``, a digest), the arrays and facts
about them. Whoever reads it names the same, or it is passed over; like all of ``cache/`` it is cheap to lose, and
reading and writing never fail.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mempp.errors import StoreError
from mempp.storage import mapped

_MAGIC = b"\x93M++FLT\n"
_FORMAT = 1
_DTYPES = frozenset({"|u1", "<f4"})

_logger = logging.getLogger("mempp.cache")


@dataclass(frozen=True, slots=True, eq=False)
class FlatArrays:
    """Arrays, and facts (JSON) about them."""

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


class FlatCache:
    """The files of one store's ``cache/`` that are mapped by name."""

    def __init__(self, path: Path, store_id: str) -> None:
        self.path = path
        self._store_id = store_id

    def load(self, name: str, version: str, origin: str) -> FlatArrays | None:
        """Map what was saved; None when there is nothing that is whole, of this store, this version and this origin.

        Every byte is read once, and checked against its SHA-256.
        """
        path = self._path(name)
        wanted = self._fields(name, version, origin)
        try:
            with mapped.reading(path, _MAGIC, _FORMAT) as file:
                header = file.header
                for field, value in wanted.items():
                    if header[field] != value:
                        raise mapped.UnusableError(f"its {field} is {str(header[field])[:60]!r}, not {value!r}")
                arrays = {}
                for key, dtype, shape, offset, digest in header["arrays"]:
                    if dtype not in _DTYPES:
                        raise ValueError(f"{str(key)[:40]!r} is of a type that no such file has")
                    arrays[str(key)] = file.array(dtype, tuple(map(int, shape)), int(offset), str(digest))
                return FlatArrays(arrays, dict(header["facts"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            _logger.warning("the cache %s cannot be read and is passed over: %s", path, error)
        except mapped.UnusableError as reason:
            _logger.info("the cache %s is passed over: %s", path, reason)
        except mapped.UNREADABLE as error:
            _logger.warning("the cache %s is damaged and is passed over: %s", path, error)
        return None

    def save(self, name: str, version: str, origin: str, flat: FlatArrays) -> bool:
        """Put these in place of what there was; tell whether that worked."""
        path = self._path(name)

        def body(sections: mapped.Sections) -> dict[str, Any]:
            layout = []
            for key, array in flat.arrays.items():
                stored = np.asarray(array, array.dtype.newbyteorder("<"))
                layout.append([key, stored.dtype.str, list(stored.shape), *sections.add([stored])])
            return {**self._fields(name, version, origin), "arrays": layout, "facts": dict(flat.facts)}

        try:
            mapped.write(path, _MAGIC, _FORMAT, body)
        except (OSError, StoreError) as error:
            _logger.warning("the cache %s could not be written, and opening will take longer: %s", path, error)
            return False
        return True

    def _path(self, name: str) -> Path:
        return self.path / f"{name}.flat"

    def _fields(self, name: str, version: str, origin: str) -> dict[str, str]:
        return {"store": self._store_id, "name": name, "version": version, "origin": origin}
