"""Frames: how one commit lies in a journal file.

A frame is a header of 80 bytes, little-endian, followed by its body:

    offset  size  field
         0     8  magic  93 4D 2B 2B 46 52 4D 0A
         8     2  format, 1
        10     2  content: 1 entries, 2 vectors; plus 256 if the frame is loose
        12     4  count of items in the body
        16     8  sequence of the first item
        24     8  stamp, signed: microseconds since 1970 UTC
        32     8  length of the body
        40    32  chain digest after the last item (zeros for vectors)
        72     4  CRC-32 of the body
        76     4  CRC-32 of the 76 bytes before

A frame is loose when bytes before it in its journal may not have been durable when it was written. One that is not
proves that they were, so that unreadable bytes before it are damage.

The magic begins with a byte that UTF-8 never begins a character with, so that the text of a document can never be
taken for a frame.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from mempp.errors import StoreVersionError

MAGIC = b"\x93M++FRM\n"
FORMAT = 1
ENTRIES = 1
VECTORS = 2
LOOSE = 256

_HEADER = struct.Struct("<8sHHIQqQ32sI")
_CHECK = struct.Struct("<I")
HEADER_SIZE = _HEADER.size + _CHECK.size


@dataclass(frozen=True, slots=True)
class Frame:
    """One commit as it was read: header fields and body, both checksums already verified."""

    content: int
    count: int
    first_sequence: int
    stamp: int
    digest: bytes
    body: bytes
    loose: bool = False

    @property
    def size(self) -> int:
        """Length in the file, in bytes."""
        return HEADER_SIZE + len(self.body)


def encode_frame(frame: Frame) -> bytes:
    """Return the bytes of a frame: header, then body."""
    header = _HEADER.pack(
        MAGIC,
        FORMAT,
        frame.content | (LOOSE if frame.loose else 0),
        frame.count,
        frame.first_sequence,
        frame.stamp,
        len(frame.body),
        frame.digest,
        zlib.crc32(frame.body),
    )
    return b"".join((header, _CHECK.pack(zlib.crc32(header)), frame.body))


def decode_frame(data: bytes, start: int) -> Frame | None:
    """Return the frame that begins at ``start``, or None when none does, whole and with both checksums right.

    Raises:
        StoreVersionError: the header is whole, but of a newer format.
    """
    body_start = start + HEADER_SIZE
    if len(data) < body_start or not data.startswith(MAGIC, start):
        return None
    header = data[start : start + _HEADER.size]
    (check,) = _CHECK.unpack_from(data, start + _HEADER.size)
    if zlib.crc32(header) != check:
        return None
    _, version, content, count, first_sequence, stamp, length, digest, body_check = _HEADER.unpack(header)
    if version != FORMAT:
        raise StoreVersionError(
            f"a journal frame at byte {start} is of format {version}, and this version of Mem++ reads format {FORMAT}. "
            f"Install a newer mempp."
        )
    if len(data) - body_start < length:
        return None
    body = data[body_start : body_start + length]
    if zlib.crc32(body) != body_check:
        return None
    return Frame(content & ~LOOSE, count, first_sequence, stamp, digest, body, bool(content & LOOSE))


def find_frame(data: bytes, start: int, *, loose: bool = True) -> int | None:
    """Return where the first whole frame at or after ``start`` begins, or None.

    With ``loose=False`` those that are loose are passed over; what is found then tells damage from a torn end.
    """
    place = data.find(MAGIC, start)
    while place >= 0:
        frame = decode_frame(data, place)
        if frame is not None and (loose or not frame.loose):
            return place
        place = data.find(MAGIC, place + 1)
    return None
