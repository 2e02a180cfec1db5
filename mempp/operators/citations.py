"""Citations in an answer: found, checked against the evidence that was sent, and put into one form.

A model is asked to cite as [row 17] or [row 17, row 23]; [17], [rows 17 and 23], [17-19], 【17】 and the like are read
too. What names a row of the evidence becomes [17] or [17, 23]; what names no such row is dropped and reported, so that
whatever stands in brackets in an answer was checked.
"""

import re
from collections.abc import Iterable, Iterator

_LONGEST = 300
"""Characters between the brackets of a citation at most; so a reply of any kind is read in one pass."""
_BRACKETS = re.compile(rf"[\[【]([^\[\]【】]{{1,{_LONGEST}}})[\]】]")
_NUMBER = r"(?:(?:rows?|records?)\s*)?[=:#]?\s*[\"']?(\d{1,18})[\"']?"
_ONE = re.compile(_NUMBER, re.IGNORECASE)
_SEPARATOR = r"\s*(?:,\s*and\b|,|;|&|\band\b|-|–|\bto\b)\s*"
_GROUP = re.compile(rf"\s*{_NUMBER}(?:{_SEPARATOR}{_NUMBER})*\s*", re.IGNORECASE)
_RANGE = re.compile(r"\s*(?:-|–|\bto\b)\s*", re.IGNORECASE)


class CitationReader:
    """Takes an answer piece by piece, as it is written, and gives it back piece by piece, checked.

    What may become a citation is held back until it is one or none; so is white space, which goes with a citation that
    is dropped. The pieces given back, joined, are the answer.
    """

    def __init__(self, row_ids: Iterable[int]) -> None:
        """Prepare for an answer from the evidence with these rows."""
        self._rows = frozenset(row_ids)
        self._held = ""  # what may be the beginning of a citation
        self._space = ""  # white space behind what was told
        self._begun = False
        self._skipping = False
        self._in_brackets = False
        self._cited: dict[int, None] = {}
        self._unknown: dict[int, None] = {}

    @property
    def citations(self) -> tuple[int, ...]:
        """Rows cited, each once, in the order of the answer."""
        return tuple(self._cited)

    @property
    def unknown(self) -> tuple[int, ...]:
        """Numbers cited that are no row of the evidence, each once; they were dropped."""
        return tuple(self._unknown)

    def read(self, piece: str) -> str:
        """One more piece; returns what can be told."""
        self._held += piece
        opened, closed = _last(self._held, "[【"), _last(self._held, "]】")
        end = opened if opened > closed and len(self._held) - opened <= _LONGEST + 1 else len(self._held)
        ready, self._held = self._held[:end], self._held[end:]
        return self._checked(ready)

    def rest(self) -> str:
        """What was still held back, at the end of the answer."""
        ready, self._held = self._held, ""
        return self._checked(ready)

    def _checked(self, text: str) -> str:
        parts: list[str] = []
        done = 0
        for found in _BRACKETS.finditer(text):
            if not _GROUP.fullmatch(found[1]):
                continue
            self._add(parts, text[done : found.start()])
            done = found.end()
            known = self._known(found[1])
            if known:
                self._add(parts, f"[{', '.join(map(str, known))}]")
            else:
                self._drop(parts)
        self._add(parts, text[done:])
        return "".join(parts)

    def _drop(self, parts: list[str]) -> None:
        """The white space before a citation goes with it; inside other brackets a mark stays, lest they become one."""
        self._space = self._space.rstrip(" \t")
        if self._in_brackets:
            self._add(parts, "…")
        elif not self._begun or self._space.endswith("\n"):
            self._skipping = True

    def _add(self, parts: list[str], text: str) -> None:
        if self._skipping:
            text = text.lstrip(" \t")
            self._skipping = not text
        text = self._space + text if self._begun else text.lstrip()
        told = text.rstrip()
        self._space = text[len(told) :]
        if not told:
            return
        self._begun = True
        parts.append(told)
        opened, closed = _last(told, "[【"), _last(told, "]】")
        if opened != closed:  # else there is neither
            self._in_brackets = opened > closed

    def _known(self, group: str) -> list[int]:
        """The rows of one citation that the evidence has."""
        known: dict[int, None] = {}
        for row in self._numbers(group):
            if row in self._rows:
                known[row] = self._cited[row] = None
            else:
                self._unknown[row] = None
        return list(known)

    def _numbers(self, group: str) -> Iterator[int]:
        last: int | None = None
        end = 0
        for found in _ONE.finditer(group):
            number = int(found[1])
            if last is not None and _RANGE.fullmatch(group[end : found.start()]):
                # Of a range the ends were named; of what lies between, the evidence says which rows there are.
                yield from sorted(row for row in self._rows if last < row < number)
            yield number
            last, end = number, found.end()


def _last(text: str, characters: str) -> int:
    """The place of the last of these characters, -1 if there is none."""
    return max(map(text.rfind, characters))
