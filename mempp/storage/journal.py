"""Journals: the unsealed tail, one frame per commit, in files named by the sequence of their first item."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mempp.errors import StoreVersionError
from mempp.storage import files
from mempp.storage.frames import Frame, decode_frame, find_frame

_NAME = re.compile(r"(\d{20})\.journal")


class TornTailWarning(RuntimeWarning):
    """The end of a journal was no whole commit and was set aside (or, by a reader, passed over)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a journal held from an offset on: its whole frames, then ``rest`` bytes that are no whole frame.

    ``resumes_at`` is the offset of a whole frame after those bytes that is not loose: one that was written when they
    were durable. There is none behind a torn end.
    """

    frames: list[Frame]
    rest: int
    resumes_at: int | None
    size: int


def journal_path(directory: Path, first: int) -> Path:
    """Return the path of the journal that begins at a sequence."""
    return directory / f"{first:020d}.journal"


def list_journals(directory: Path) -> list[int]:
    """Return the first sequences of the journals in a directory, in order."""
    matches = (_NAME.fullmatch(name) for name in files.list_names(directory))
    return sorted(int(match[1]) for match in matches if match)


def read_journal(path: Path, offset: int) -> Reading:
    """Read the frames of a journal from ``offset`` on.

    Raises:
        FileNotFoundError: it was sealed and removed.
        StoreVersionError: a frame is of a newer format.
    """
    data, size = files.read_from(path, offset)
    return parse_journal(path, data, offset, size)


def parse_journal(path: Path, data: bytes, offset: int, size: int) -> Reading:
    """Do the same with bytes that were read from ``path``, of ``size``, at ``offset``. Raises StoreVersionError."""
    frames = []
    place = 0
    try:
        while (frame := decode_frame(data, place)) is not None:
            frames.append(frame)
            place += frame.size
        resumes = find_frame(data, place + 1, loose=False) if place < len(data) else None
    except StoreVersionError as error:
        raise StoreVersionError(f"{path}: {error}") from error
    return Reading(frames, len(data) - place, None if resumes is None else offset + resumes, size)


def set_aside(path: Path, offset: int) -> Path:
    """Move the bytes of a journal from ``offset`` on to a file beside it; return that file's path. Raises OSError."""
    torn, _ = files.read_from(path, offset)
    number = 0
    while True:
        aside = path.with_name(f"{path.name}.torn-{offset}" + (f"-{number}" if number else ""))
        try:
            files.write_durable(aside, torn, exclusive=True)
            break
        except FileExistsError:
            number += 1
    files.fsync_directory(path.parent)
    files.truncate(path, offset)
    return aside
