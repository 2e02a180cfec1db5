"""Stores that `scale --stores FOLDER` keeps, each with what adding took, so that a long run can be broken off.

    FOLDER/rows-1000000-384/lancedb/         the store
    FOLDER/rows-1000000-384/lancedb.json     written once it is whole: the figures, and what it was made of
    FOLDER/rows-1000000-384/lock             held by the run that uses them

A store without its file is one whose adding was broken off, and is made anew. What a library's version tells is all
that is known of the code that made a store: after a change to Mem++ itself remove its store.
"""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.peers import System
from benchmarks.report import load, now
from benchmarks.synthetic import SyntheticRecord


@contextmanager
def folder_of(stores: Path, record: SyntheticRecord) -> Iterator[Path]:
    """Where the stores of one record lie; no other run uses them meanwhile.

    Raises:
        SystemExit: another run does, or there can be no such folder; the message says so.
    """
    folder = stores / f"rows-{record.rows}-{record.dimensions}"
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((folder / "lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another run uses {folder}; wait for its end, or name another folder")
        except OSError as error:
            sys.exit(f"{folder} cannot hold stores: {error.strerror or error}")
        yield folder


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

    Raises:
        SystemExit: what lies under the system's name cannot be removed; the message says so.
    """
    store, file = folder / system.name, folder / f"{system.name}.json"
    made_of = {
        "rows": record.rows,
        "dimensions": record.dimensions,
        "seed": record.seed,
        "package": system.package,
        "version": _version(system.package),
    }
    # A server may have made another table in the meantime.
    if system.in_process and store.is_dir() and any(store.iterdir()):
        figures = _read(file, made_of)
        if figures is not None:
            return figures
    try:
        file.unlink(missing_ok=True)  # first: a file tells of a store that is whole
        if store.exists():
            shutil.rmtree(store)
        store.mkdir(parents=True)
    except OSError as error:
        sys.exit(
            f"{folder} cannot take a new store of {system.title} ({error}): remove what is in its place; if an earlier "
            "run was killed, what it started may still write there for a while"
        )
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
