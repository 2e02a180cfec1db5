"""Stores that `scale --stores FOLDER` keeps, each with what adding took, so that a long run can be broken off.

    FOLDER/rows-1000000-384/lancedb/         the store
    FOLDER/rows-1000000-384/lancedb.json     written once it is whole: the figures, and what it was made of

A store without its file is one whose adding was broken off, and is made anew.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.peers import System
from benchmarks.report import load, now
from benchmarks.synthetic import SyntheticRecord


def folder_of(stores: Path, record: SyntheticRecord) -> Path:
    """Where the stores of one record lie."""
    return stores / f"rows-{record.rows}-{record.dimensions}"


def added(
    folder: Path, system: System, record: SyntheticRecord, add: Callable[[], dict[str, Any] | None]
) -> dict[str, Any] | None:
    """What adding took: by the file beside a store that is whole and was made of the same; else the store is made.

    Args:
        folder: where the stores of the record lie; what else lies under the system's name there is removed.
        system: whose store.
        record: the rows.
        add: adds them to a store in `folder/NAME`, which is empty; None where that failed.

    Returns:
        what `add` returned, now or in an earlier run, with `added_at` (UTC, ISO 8601) and `added_at_load`; None where
        adding failed.
    """
    store, file = folder / system.name, folder / f"{system.name}.json"
    made_of = {
        "rows": record.rows,
        "dimensions": record.dimensions,
        "seed": record.seed,
        "package": system.package,
        "version": _version(system.package),
    }
    if system.in_process and store.is_dir():  # a server may have made another table in the meantime
        figures = _read(file, made_of)
        if figures is not None:
            return figures
    file.unlink(missing_ok=True)  # first: a file tells of a store that is whole
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    began = {"added_at": now(), "added_at_load": load()}
    figures = add()
    if figures is None:
        return None
    figures = figures | began
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"made_of": made_of, "figures": figures}, indent=1) + "\n", encoding="utf-8")
    os.replace(part, file)
    return figures


def _read(file: Path, made_of: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        figures: dict[str, Any] = dict(content["figures"])
        return figures if content["made_of"] == made_of else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # from a source tree
        return None
