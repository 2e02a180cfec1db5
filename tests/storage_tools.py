"""Helpers of the storage tests."""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from mempp.storage import DOCUMENT, DiskStore, Entry, TornTailWarning, VectorBatch, files

PRIMITIVES = ("open_file", "write", "sync", "set_size", "rename", "remove", "make_directory")


def document(text: str = "text", **fields: Any) -> Entry:
    return Entry(DOCUMENT, text=text, **fields)


def commit(store: Any, *entries: Entry) -> list[Entry]:
    with store.writing():
        return store.append(entries)


def batch(first_row: int, count: int, dimensions: int = 4) -> VectorBatch:
    rows = np.arange(first_row, first_row + count)
    numbers = np.arange(count * dimensions, dtype=np.float32).reshape(count, dimensions) + first_row / 8
    return VectorBatch(rows, np.zeros(count, np.int32), numbers)


def read(path: Path) -> tuple[list[Entry], str]:
    """All entries and the head digest, read by a fresh store that writes nothing."""
    store = DiskStore(path, read_only=True)
    return store.refresh(), store.head_digest


def read_torn(path: Path) -> list[Entry]:
    """The same where the end may be torn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornTailWarning)
        return read(path)[0]


class Crash(BaseException):
    """The process ends here: no handler of an Exception sees it."""


class Faults:
    """Stands in for the primitives of ``files``: the n-th call fails, or everything from the n-th call on does.

    A failing write puts half of its bytes down first.
    """

    def __init__(self, monkeypatch: Any, at: int, error: int | None) -> None:
        self.calls: list[tuple[str, str]] = []
        self.at = at
        self.error = error
        self.real = {name: getattr(files, name) for name in PRIMITIVES}
        for name in PRIMITIVES:
            monkeypatch.setattr(files, name, self._replacement(name))

    @property
    def fired(self) -> bool:
        return len(self.calls) > self.at

    def _replacement(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            number = len(self.calls)
            subject = arguments[0]
            if isinstance(subject, int):
                subject = os.readlink(f"/proc/self/fd/{subject}")
            self.calls.append((name, Path(subject).name))
            if number < self.at or (self.error is not None and number > self.at):
                return self.real[name](*arguments)
            if name == "write" and number == self.at and len(arguments[1]) > 1:
                self.real["write"](arguments[0], arguments[1][: len(arguments[1]) // 2], arguments[2])
            if self.error is None:
                raise Crash
            raise OSError(self.error, os.strerror(self.error), str(arguments[0]))

        return call


ERRORS = {"no space": errno.ENOSPC, "input or output": errno.EIO, "read-only": errno.EROFS, "no right": errno.EACCES}
