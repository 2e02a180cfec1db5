"""A series: numbered items in sealed segments, then in journals. The log is one, each set of vectors another.

    segments/  …0000-…0999  …1000-…1999
    journal/                             …2000 (rotated)  …2400 (live)

The journal with the highest number is the live one; commits go to its end. Sealing first starts a new live journal, so
that the old one is final, then turns every old one into a segment and removes it. Every step may be the last before a
crash: a journal whose items are all in segments is passed over and removed by the next writer, an old one that is not
yet a segment is read as a journal and sealed by the next writer.
"""

from __future__ import annotations

import errno
import logging
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic

from mempp.errors import StoreDamagedError, StoreWriteError
from mempp.storage import files, segments
from mempp.storage.codec import Codec, ContentError, Item, NotYetError
from mempp.storage.entries import Position
from mempp.storage.frames import Frame, encode_frame
from mempp.storage.journal import journal_path, list_journals, read_journal, set_aside
from mempp.storage.read_ahead import FILES_AHEAD, ReadAhead

_ATTEMPTS = 6
_FIRST_PAUSE = 0.001
_logger = logging.getLogger("mempp.storage")


class _UnsettledError(StoreDamagedError):
    """Damage, unless a writer is just changing the files; so it is looked at again."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that ``recover`` took off the end."""

    path: Path
    offset: int
    size: int
    aside: Path | None


class Series(Generic[Item]):
    """Follows a series as a reader, and as a writer under the commit lock.

    ``durable`` is True for the log: commits are fsynced, a bad end is torn, anything else bad is damage. It is False
    for what is derived: commits are not fsynced, and the journal is cut at the first bad frame.

    ``sync_every`` tells when a commit to the log is fsynced: always (0), or when the last fsync is older than so many
    seconds. Frames written meanwhile are loose. ``settle`` makes up for it.
    """

    def __init__(
        self,
        segments_directory: Path,
        journal_directory: Path,
        codec: Codec[Item],
        start: Position,
        *,
        durable: bool,
        sync_every: float = 0.0,
    ) -> None:
        self.position = start
        self.unread_bytes = 0
        self._segments = segments_directory
        self._journals = journal_directory
        self._codec = codec
        self._durable = durable
        self._sync_every = sync_every
        self._synced_at = float("-inf")
        self._durable_to = 0  # so many bytes of the current journal, and then its name, are known to be durable
        self._sync_failed = False
        self._current: int | None = None
        self._offset = 0
        self._starts: dict[int, Position] = {}
        self._pending: list[Item] = []
        self.marks: list[Position] = []  # the places, within what was taken last, whose digest a file tells
        self._next_marks = [start]
        self._waiting = False  # derived only: what follows speaks of entries that the log has not reached
        self._broken = False  # derived only: journals that do not continue what is before them
        self._ahead: segments.SegmentName | None = None  # derived only: a segment that the log has not reached
        self._suspect = False

    # --- reading ----------------------------------------------------------------------------------------------

    def take(self) -> list[Item]:
        """Return the items read since the last call, and forget them."""
        items, self._pending = self._pending, []
        self.marks, self._next_marks = self._next_marks, [self.position]
        return items

    @property
    def live_path(self) -> Path:
        """The journal that was read last, or, where there is none, their directory."""
        return self._journals if self._current is None else journal_path(self._journals, self._current)

    @property
    def stops_short(self) -> bool:
        """Whether files hold more than was read: bytes that are no whole frame, or items that do not continue."""
        return bool(self.unread_bytes) or self._broken or self._waiting

    @property
    def is_waiting(self) -> bool:
        """Whether it stops short at items that speak of entries which the log, as read here, does not hold."""
        return self._waiting

    def is_at_end(self) -> bool:
        """Tell whether nothing has been written since the last reading. Raises OSError."""
        journals = list_journals(self._journals)
        return (
            self._current is not None
            and journals[-1:] == [self._current]
            and self.live_path.stat().st_size == self._offset
        )

    def read_on(self, *, locked: bool = False) -> None:
        """Read what was committed since; ``take`` hands it out. Safe beside a writer, needs no lock.

        Looks again a few times, with short pauses, at what does not fit; under the lock (``locked``) without pauses.

        Raises:
            StoreDamagedError: something is missing or altered. What came before it was read.
            StoreVersionError: something is of a newer format.
            OSError: a file cannot be read.
        """
        attempt = 0
        while True:
            before = self.position.sequence
            try:
                with ReadAhead() as ahead:
                    self._follow(ahead)
                return
            except FileNotFoundError as error:
                # Sealed while we looked: its items are in a segment now.
                self._current = None
                problem = StoreDamagedError(f"{error.filename} vanished. Restore the store from a snapshot.")
            except _UnsettledError as error:
                problem = StoreDamagedError(str(error))
            attempt = 0 if self.position.sequence > before else attempt + 1
            if attempt == _ATTEMPTS:
                raise problem
            if not locked:
                time.sleep(_FIRST_PAUSE * 2**attempt)

    def _follow(self, ahead: ReadAhead) -> None:
        self._broken = self._waiting = False
        self._ahead = None
        self.unread_bytes = 0
        while True:
            journals = list_journals(self._journals)
            if self._current is None:
                if self._read_segment(ahead):
                    continue
                if self.position.sequence not in journals:
                    self._missing(journals)
                    return
                self._enter(self.position.sequence)
            current = self._current
            assert current is not None
            following = next((first for first in journals if first > current), None)
            if not self._read_current(current, following) or following is None:
                return
            self._enter(following)

    def _enter(self, first: int) -> None:
        self._current = first
        self._offset = self._durable_to = 0
        self._starts[first] = self.position

    def _read_segment(self, ahead: ReadAhead) -> bool:
        sequence = self.position.sequence
        names = segments.list_segments(self._segments)
        name = max((name for name in names if name.first <= sequence <= name.last), key=lambda n: n.last, default=None)
        if name is None:
            later = next((name for name in names if name.first > sequence), None)
            if later is not None:
                raise _UnsettledError(
                    f"the segment that begins at sequence {sequence} is missing from {self._segments}: the next one is "
                    f"{later}. Restore it from a snapshot."
                )
            return False
        try:
            loaded = ahead.take(self._segments / str(name), [self._segments / str(one) for one in _after(name, names)])
            items, self.position = segments.read_segment(self._codec, self._segments, name, self.position, loaded)
            self._next_marks.append(self.position)
        except NotYetError:
            self._ahead = name
            self._waiting = True
            return False
        self._pending += items
        return True

    def _missing(self, journals: list[int]) -> None:
        """No journal begins where the segments end."""
        sequence = self.position.sequence
        if self._durable:
            raise _UnsettledError(
                f"the journal {journal_path(self._journals, sequence)} is missing: the segments in {self._segments} "
                f"end before sequence {sequence}, and the entries from there on are nowhere. Restore them from a "
                f"snapshot."
            )
        self._broken = any(first > sequence for first in journals)
        if any(first < sequence and not self._is_sealed(first) for first in journals):
            raise _UnsettledError(
                f"another process has cut the journals in {self._journals} below sequence {sequence}, up to which they "
                f"were read here. Open the store again."
            )

    def _is_sealed(self, first: int) -> bool:
        return any(name.first <= first <= name.last for name in segments.list_segments(self._segments))

    def _read_current(self, current: int, following: int | None) -> bool:
        """Read the journal on; return whether all of it was read."""
        path = journal_path(self._journals, current)
        reading = read_journal(path, self._offset)
        if reading.size < self._offset:
            raise _UnsettledError(
                f"the journal {path} has become shorter, {reading.size} bytes where {self._offset} were read. If a "
                f"write failed in another process, open the store again; else restore it from a snapshot."
            )
        for frame in reading.frames:
            try:
                items, position = self._codec.from_frame(frame, self.position)
            except (ContentError, NotYetError) as problem:
                if not self._durable:
                    self.unread_bytes = reading.size - self._offset
                    self._broken = following is not None
                    self._waiting = isinstance(problem, NotYetError)
                    return False
                raise _UnsettledError(
                    f"the journal {path} is damaged at byte {self._offset}: {problem}. Restore it from a snapshot."
                ) from problem
            if not frame.loose:
                self._durable_to = max(self._durable_to, self._offset)
            self._pending += items
            self.position = position
            self._next_marks.append(position)
            self._offset += frame.size
        self.unread_bytes = reading.rest
        if not self._durable:
            self._broken = following is not None and (reading.rest > 0 or following != self.position.sequence)
            return reading.rest == 0 and not self._broken
        if reading.resumes_at is not None:
            raise _UnsettledError(
                f"the journal {path} is damaged at byte {self._offset}: the commit there is unreadable, and a whole "
                f"one follows at byte {reading.resumes_at}. Restore it from a snapshot."
            )
        if following is not None and (reading.rest or following != self.position.sequence):
            raise _UnsettledError(
                f"the journal {path} is damaged at byte {self._offset}: its commits end before sequence "
                f"{self.position.sequence}, and the next journal begins at {following}. Restore it from a snapshot."
            )
        return reading.rest == 0

    # --- writing, under the commit lock -----------------------------------------------------------------------

    def recover(self) -> Cut | None:
        """Read on, then cut off the end what is no whole commit; return that. Raises as ``read_on``, OSError."""
        self.read_on(locked=True)
        self._suspect = False
        if self._durable:
            if not self.unread_bytes:
                return None
            assert self._current is not None
            path = journal_path(self._journals, self._current)
            cut = Cut(path, self._offset, self.unread_bytes, set_aside(path, self._offset))
            self._durable_to = self._offset
        else:
            derived_cut = self._cut_derived()
            if derived_cut is None:
                return None
            cut = derived_cut
        self.unread_bytes = 0
        return cut

    def _cut_derived(self) -> Cut | None:
        if self._ahead is not None:
            raise StoreDamagedError(
                f"the segment {self._segments / str(self._ahead)} speaks of entries that the log does not hold. Remove "
                f"the directory {self._segments.parent}: it is derived, and the rows are embedded again."
            )
        cuts = []
        if self.unread_bytes and self._current is not None:
            path = journal_path(self._journals, self._current)
            files.truncate(path, self._offset)
            cuts.append((path, self._offset, self.unread_bytes))
        if self._broken:
            last_whole = self.position.sequence if self._current is None else self._current
            for first in list_journals(self._journals):
                if first > last_whole:
                    path = journal_path(self._journals, first)
                    cuts.append((path, 0, path.stat().st_size))
                    files.remove(path)
            self._broken = False
        if self._current is None:
            self._start_journal()
        if not cuts:
            return None
        return Cut(cuts[0][0], cuts[0][1], sum(size for _, _, size in cuts), None)

    def _start_journal(self) -> None:
        files.make_directory(self._segments)
        files.make_directory(self._journals)
        files.write_durable(journal_path(self._journals, self.position.sequence), b"")
        files.fsync_directory(self._journals)
        self._enter(self.position.sequence)

    def append(self, frame: Frame, after: Position) -> None:
        """Write one commit and, for the log, make it durable when that is due. Under the lock, after ``recover``.

        A write that fails is taken back, and what was there before stays readable. Raises OSError.
        """
        if self._suspect or self._current is None:
            raise StoreWriteError("an earlier write failed and could not be taken back. Begin a new commit.")
        path = journal_path(self._journals, self._current)
        due = self._durable and time.monotonic() - self._synced_at >= self._sync_every
        if self._sync_failed or (self._durable and not self._sync_every):
            # Another process may have died between its write and its fsync. The frame written now says that all before
            # it was durable.
            self.settle()
        data = encode_frame(replace(frame, loose=self._durable and self._durable_to < self._offset))
        try:
            files.write_at(path, self._offset, data, durable=due)
            if due and self._durable_to == 0:
                # Whoever made the file may have died before its name was durable.
                files.fsync_directory(self._journals)
        except BaseException:
            # If it cannot be taken back either, the next recover() finds a torn end, or a whole commit that nobody
            # was told of, and takes that in as if another process had written it.
            self._suspect = True
            self._sync_failed = due
            try:
                files.truncate(path, self._offset)
                self._suspect = False
            except OSError as error:
                _logger.error("could not take back a failed write to %s: %s", path, error)
            raise
        self._offset += len(data)
        self.position = after
        if due:
            self._settled()

    def settle(self, *, rewrite: bool = True) -> None:
        """Make the commits that were read or written so far durable. Raises OSError.

        After an fsync that failed the system may take lost bytes for written ones, so they are written again; not
        without the commit lock (``rewrite=False``).
        """
        if not self._durable or self._current is None or self._durable_to == self._offset:
            self._sync_failed = False
            return
        path = journal_path(self._journals, self._current)
        failed, self._sync_failed = self._sync_failed, True
        if failed:
            if not rewrite:
                raise OSError(errno.EIO, "an earlier fsync failed; the next commit writes again what it concerned")
            data, _ = files.read_from(path, self._durable_to)
            files.write_at(path, self._durable_to, data[: self._offset - self._durable_to], durable=False)
        files.sync_file(path)
        if self._durable_to == 0:
            files.fsync_directory(self._journals)
        self._settled()

    def _settled(self) -> None:
        self._durable_to = self._offset
        self._synced_at = time.monotonic()
        self._sync_failed = False

    def is_full(self, seal_bytes: int) -> bool:
        """Tell whether the live journal is large enough to be sealed."""
        return self._current is not None and self._offset >= seal_bytes and self.position.sequence > self._current

    def seal(self, seal_bytes: int) -> None:
        """Start a new journal when the live one has ``seal_bytes``, and turn older ones into segments.

        Raises OSError or StoreDamagedError; every commit stays readable, and the next call goes on.
        """
        if self._current is None or self._suspect:
            return
        if self.is_full(seal_bytes):
            if self._durable:
                self.settle()
            else:
                files.sync_file(journal_path(self._journals, self._current))
            self._start_journal()
        journals = list_journals(self._journals)
        self._starts = {first: start for first, start in self._starts.items() if first in journals}
        for first in journals:
            if first < self._current:
                self._convert(first)

    def _convert(self, first: int) -> None:
        """Turn a journal that is final into a segment, unless it is in one, and remove it."""
        path = journal_path(self._journals, first)
        if self._is_sealed(first):
            # The crash may have come before the segment's name was durable.
            files.fsync_directory(self._segments)
        else:
            before = self._starts.get(first)
            if before is None:
                raise StoreDamagedError(f"the journal {path} continues nothing that was read. Restore from a snapshot.")
            position = before
            items: list[Item] = []
            reading = read_journal(path, 0)
            try:
                for frame in reading.frames:
                    frame_items, position = self._codec.from_frame(frame, position)
                    items += frame_items
            except (ContentError, NotYetError) as error:
                raise StoreDamagedError(f"the journal {path} cannot be sealed: {error}.") from error
            if reading.rest or not items:
                raise StoreDamagedError(f"the journal {path} cannot be sealed: {reading.rest} bytes are unreadable.")
            data = segments.encode_segment(self._codec, items, before, position)
            name = segments.SegmentName(before.sequence, position.sequence - 1)
            segments.write_segment(self._segments, name, data)
        files.remove(path)
        files.fsync_directory(self._journals)


def _after(name: segments.SegmentName, names: Sequence[segments.SegmentName]) -> list[segments.SegmentName]:
    """Return the next segments after one, of several that begin at one place the widest; ``names`` is sorted."""
    found: list[segments.SegmentName] = []
    while len(found) < FILES_AHEAD:
        place = bisect_right(names, segments.SegmentName(name.last + 1, sys.maxsize)) - 1
        if place < 0 or names[place].first != name.last + 1:
            break
        name = names[place]
        found.append(name)
    return found
