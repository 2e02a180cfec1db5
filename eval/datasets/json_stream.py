"""JSON files as a stream of their items: an array's elements, an object's arrays, a line's object, one at a time.

LongMemEval is one array of up to 2.7 GB, so a file is never parsed whole: a scanner finds where a value ends, by quotes
and brackets alone, and the standard library's parser reads just that value. An event parser such as ijson streams as
well, but it tells no byte positions, keeps the last of two equal keys without a word, and turns a lone surrogate into
a question mark; an evaluation must not read a damaged file as if it were whole.
"""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from eval.datasets.items import Item, shown
from eval.errors import DatasetError

CHUNK = 1 << 20
"""Bytes read at once."""
LONGEST = 256 << 20
"""Bytes of one item or line; more means that a quote or bracket is missing, and would end in memory instead."""

_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_PLAIN = re.compile(rb'[^"\[\]{}]*+')
_SCALAR = re.compile(rb"[^\s,\[\]{}\":]*+")
_SPACE = re.compile(rb"[ \t\r\n]*+")
_FETCH = "fetch the file again"


def stream_array(path: Path) -> Iterator[Item]:
    """The objects of a file that holds one JSON array, each with its number (from 1) and byte position as its place.

    Raises:
        DatasetError: the file cannot be read, is cut off, is no array, or an item is no object; with the byte.
    """
    with _opened(path) as stream:
        scanner = _Scanner(stream, path)
        scanner.begin(b"[", "one JSON array, from '[' to ']'")
        yield from _elements(scanner, f"{path}: item ")
        scanner.end()


def stream_arrays(path: Path) -> Iterator[tuple[str, Item]]:
    """The objects of a file that holds one JSON object of arrays, each with the key of its array.

    Raises:
        DatasetError: the file cannot be read, is cut off, is not of this form, or an item is no object; with the byte.
    """
    with _opened(path) as stream:
        scanner = _Scanner(stream, path)
        scanner.begin(b"{", "one JSON object whose values are arrays")
        keys: set[str] = set()
        for position in scanner.values(b"}"):
            place = f"{path}: the key at byte {position}"
            key = scanner.parse(*scanner.value(place), place)
            if not isinstance(key, str):
                raise DatasetError(f"{place} is {shown(key)}, and must be a text")
            if key in keys:
                raise DatasetError(f"{place} stands there already: {key!r:.60}")
            keys.add(key)
            scanner.begin(b":", f"a ':' after the key {key!r:.60}")
            scanner.begin(b"[", f"an array under the key {key!r:.60}")
            for item in _elements(scanner, f"{path}: {key!r:.60} item "):
                yield key, item
        scanner.end()


def read_lines(path: Path) -> Iterator[Item]:
    """The objects of a JSON Lines file; blank lines and a byte order mark are passed over.

    Only a line feed ends a line, since U+2028 and its like may stand in a text.

    Raises:
        DatasetError: the file cannot be read, or a line is no JSON object; with the line.
    """
    with _opened(path) as stream:
        number = 0
        while line := stream.readline(LONGEST + 1):
            number += 1
            place = f"{path}:{number}"
            if len(line) > LONGEST:
                raise DatasetError(f"{place}: the line is longer than {LONGEST >> 20} MB; is this JSON Lines?")
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise DatasetError(f"{place}: not UTF-8 at byte {error.start + 1} of the line (0x{byte:02x})") from None
            if not text or text.isspace():
                continue
            text = text.rstrip("\r\n")
            try:
                value = _load(text)
            except json.JSONDecodeError as error:
                cut = "" if line.endswith(b"\n") else "; the line is the last and may be cut off"
                raise DatasetError(f"{place}: not JSON: {_told(error)} at column {error.pos + 1}{cut}") from None
            except (ValueError, RecursionError) as error:
                raise DatasetError(f"{place}: not usable JSON: {_reason(error)}") from None
            yield Item.of(place, value)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from None


def _elements(scanner: "_Scanner", name: str) -> Iterator[Item]:
    for number, position in enumerate(scanner.values(b"]"), start=1):
        place = f"{name}{number} (byte {position})"
        yield Item.of(place, scanner.parse(*scanner.value(place), place))


class _Scanner:
    """Where values begin and end in a stream of JSON; holds one chunk beside the value asked for."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._buffer = stream.read(CHUNK)
        self._at = len(codecs.BOM_UTF8) if self._buffer.startswith(codecs.BOM_UTF8) else 0
        self._base = 0
        """Byte of the file at which the buffer begins."""

    @property
    def position(self) -> int:
        """Byte of the file that is read next, from 0."""
        return self._base + self._at

    def begin(self, byte: bytes, what: str) -> None:
        """Take one byte that must come next."""
        found = self._next()
        if found != byte:
            raise DatasetError(f"{self._path}: byte {self.position}: {what} was expected, found {self._around(found)}")
        self._at += 1

    def end(self) -> None:
        """Only white space may follow."""
        if found := self._next():
            raise DatasetError(f"{self._path}: byte {self.position}: {self._around(found)} after the end of the JSON")

    def values(self, close: bytes) -> Iterator[int]:
        """Positions of the values of a container up to its closing bracket; the caller takes each before the next."""
        first = True
        while True:
            found = self._next()
            if found == close and first:
                break
            if not first:
                if found == close:
                    break
                if found != b",":
                    self._unexpected(found, f"',' or {close.decode()!r}")
                self._at += 1
                found = self._next()
            if found in (b"", b",", b":", b"]", b"}"):
                self._unexpected(found, "a value")
            first = False
            yield self.position
        self._at += 1

    def value(self, place: str) -> tuple[int, bytes]:
        """The bytes of the value that begins here, and where that is."""
        self._next()
        start = self.position
        pieces: list[bytes] = []
        size = depth = 0
        in_string = False
        begun = self._at
        while True:
            done = short = False
            if in_string:
                self._at = self._match(_IN_STRING)
                # What may be left is half an escape, which must be seen whole.
                short = self._buffer[self._at : self._at + 1] != b'"'
                if not short:
                    self._at += 1
                    in_string = False
                    done = depth == 0
            elif depth:
                self._at = self._match(_PLAIN)
                byte = self._buffer[self._at : self._at + 1]
                if byte:
                    self._at += 1
                    in_string = byte == b'"'
                    depth += (byte in b"[{") - (byte in b"]}")
                    done = depth == 0
            else:
                byte = self._buffer[self._at : self._at + 1]
                if byte in (b'"', b"[", b"{") and self.position == start:
                    self._at += 1
                    in_string, depth = byte == b'"', int(byte != b'"')
                else:
                    self._at = self._match(_SCALAR)
                    done = self._at < len(self._buffer)
            if done:
                pieces.append(self._buffer[begun : self._at])
                return start, b"".join(pieces)
            if short or self._at == len(self._buffer):
                pieces.append(self._buffer[begun : self._at])
                size += self._at - begun
                if size > LONGEST:
                    raise DatasetError(
                        f"{place} is longer than {LONGEST >> 20} MB; a quote or bracket is missing in it"
                    )
                if not self._more():
                    if not depth and not in_string:
                        return start, b"".join(pieces)
                    raise DatasetError(
                        f"{place}: the file ends inside it, at byte {self._base + len(self._buffer)}: "
                        f"it is cut off; {_FETCH}"
                    )
                begun = self._at

    def parse(self, start: int, raw: bytes, place: str) -> object:
        """The value of these bytes, which begin at byte `start`."""
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = start + error.start
            raise DatasetError(f"{place}: not UTF-8 at byte {byte} (0x{raw[error.start]:02x}); {_FETCH}") from None
        try:
            return _load(text)
        except json.JSONDecodeError as error:
            byte = start + len(text[: error.pos].encode("utf-8"))
            raise DatasetError(f"{place}: not JSON at byte {byte}: {_told(error)}") from None
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{place}: not usable JSON: {_reason(error)}") from None

    def _next(self) -> bytes:
        """The next byte that is no white space, not taken; empty at the end of the file."""
        while True:
            self._at = self._match(_SPACE)
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._more():
                return b""

    def _match(self, pattern: re.Pattern[bytes]) -> int:
        found = pattern.match(self._buffer, self._at)
        return found.end() if found else self._at

    def _more(self) -> bool:
        chunk = self._stream.read(CHUNK)
        self._base += self._at
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def _around(self, found: bytes) -> str:
        if not found:
            return "the end of the file"
        return repr(self._buffer[self._at : self._at + 20].decode("utf-8", "replace"))

    def _unexpected(self, found: bytes, what: str) -> None:
        hint = f"; it is cut off, {_FETCH}" if not found else ""
        raise DatasetError(f"{self._path}: byte {self.position}: {what} expected, found {self._around(found)}{hint}")


def _told(error: json.JSONDecodeError) -> str:
    near = error.doc[max(0, error.pos - 20) : error.pos + 20]
    return f"{error.msg}, near {near!r}"


def _reason(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error).split(";")[0]


def _load(text: str) -> object:
    return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r:.60} stands twice in one object")
            seen.add(key)
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")
