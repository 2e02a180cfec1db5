"""Citations in an answer: found, checked against the evidence that was sent, and put into one form.

A model is asked to cite as [row 17] or [row 17, row 23]. What stands in square brackets (`[]`, `【】`, `［］`; the
innermost ones, at most 1,000 characters) is read like this:

- a list of rows and nothing else: [row 17], [rows 17 and 23], [17, 23], with the word "row" or "record" also a range,
  [rows 17-19]. It becomes [17] or [17, 23], of the rows that the evidence has; others are dropped and reported;
- rows among other words, [see row 17], [row 17, p. 2]: stays as it is where the evidence has all of its rows; else it
  becomes those that the evidence has, and the others are reported;
- anything else stays as it is and cites nothing: a date, a quantity, a note. Where it looks like a citation all the
  same, [Zeile 17] or [17-19], it is reported as unchecked.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LONGEST = 1000
"""Characters between the brackets of a citation at most; so a reply of any kind is read in one pass."""
_OPEN, _CLOSE = "[【［", "]】］"
_BRACKETS = re.compile(rf"[\[【［]([^\[\]【】［］]{{1,{_LONGEST}}})[\]】］]")
_TOKEN = re.compile(r"\d+|[^\W\d_]+|\S")
_HALF = re.compile("[\ud800-\udfff]")

_KINDS = {
    **dict.fromkeys(("row", "record"), "row"),
    **dict.fromkeys(("rows", "records"), "rows"),
    **dict.fromkeys((",", ";", "&", "+", "、", "and"), "list"),
    **dict.fromkeys(("-", "‐", "–", "—", "−", "~", "to", "through"), "range"),
    **dict.fromkeys(("#", "=", ":", "^", '"', "'", "no", "nr", "number", "id", "ids"), "mark"),
    "/": "slash",
    ".": "stop",
}
"""Token, case folded → its kind; others are "number", "word" and "other"."""


class _Token(NamedTuple):
    kind: str
    number: int = -1


class CitationReader:
    """Takes an answer piece by piece, as it is written, and gives it back piece by piece, checked.

    What may become a citation is held back until it is one or none; so is white space, which goes with a citation that
    is dropped, and the first half of a character that comes in two. The pieces given back, joined, are the answer.
    """

    def __init__(self, row_ids: Iterable[int]) -> None:
        """Prepare for an answer from the evidence with these rows."""
        self._rows = frozenset(row_ids)
        self._held = ""  # what may be the beginning of a citation, or of a character
        self._space = ""  # white space behind what was told
        self._begun = False
        self._skipping = False
        self._in_brackets = False
        self._cited: dict[int, None] = {}
        self._unknown: dict[int, None] = {}
        self._unchecked: dict[str, None] = {}

    @property
    def citations(self) -> tuple[int, ...]:
        """Rows cited, each once, in the order of the answer."""
        return tuple(self._cited)

    @property
    def unknown(self) -> tuple[int, ...]:
        """Numbers cited that are no row of the evidence, each once; they were dropped."""
        return tuple(self._unknown)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What looks like a citation and was not read as one, with its brackets, each once; it stands in the answer."""
        return tuple(self._unchecked)

    def read(self, piece: str) -> str:
        """One more piece; returns what can be told."""
        self._held += piece
        opened, closed = _last(self._held, _OPEN), _last(self._held, _CLOSE)
        end = opened if opened > closed and len(self._held) - opened <= _LONGEST + 1 else len(self._held)
        if "\ud800" <= self._held[end - 1 : end] <= "\udbff":
            end -= 1  # its second half may be the next piece
        ready, self._held = self._held[:end], self._held[end:]
        return self._checked(ready)

    def rest(self) -> str:
        """What was still held back, at the end of the answer."""
        ready, self._held = self._held, ""
        return self._checked(ready)

    def _checked(self, text: str) -> str:
        text = _whole(text)
        parts: list[str] = []
        done = 0
        for found in _BRACKETS.finditer(text):
            put = self._put(found[1])
            if put is None:
                continue
            self._add(parts, text[done : found.start()])
            done = found.end()
            if put:
                self._add(parts, f"[{', '.join(map(str, put))}]")
            else:
                self._drop(parts)
        self._add(parts, text[done:])
        return "".join(parts)

    def _put(self, content: str) -> list[int] | None:
        """The rows that take the place of brackets with this content; None where they stay as they are."""
        tokens = _tokens(content)
        named = _listed(tokens)
        if named is None:
            mentioned = list(_mentioned(tokens))
            if all(row in self._rows for row in mentioned):
                self._cited.update(dict.fromkeys(mentioned))
                if not mentioned and _looks_like_a_citation(tokens):
                    self._unchecked[f"[{content}]"] = None
                return None
            named = [(row, row) for row in mentioned]
        known: dict[int, None] = {}
        for first, last in named:
            # Of a range the ends were named; of what lies between, the evidence says which rows there are.
            between = sorted(row for row in self._rows if first < row < last) if last > first else []
            for row in (first, *between, last):
                if row in self._rows:
                    known[row] = self._cited[row] = None
                else:
                    self._unknown[row] = None
        return list(known)

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
        opened, closed = _last(told, _OPEN), _last(told, _CLOSE)
        if opened != closed:  # else there is neither
            self._in_brackets = opened > closed


def _tokens(content: str) -> list[_Token]:
    """What stands in brackets: numbers, words and single characters; white space and invisible characters are left out,
    and so is what follows a † (some models put the name of the source there)."""
    plain = unicodedata.normalize("NFKC", content.partition("†")[0])
    plain = "".join(one for one in plain if unicodedata.category(one) != "Cf")
    return [_token(found[0]) for found in _TOKEN.finditer(plain)]


def _token(text: str) -> _Token:
    if text.isdecimal():
        return _Token("number", int(text))
    return _Token(_KINDS.get(text.casefold(), "word" if text.isalpha() else "other"))


def _listed(tokens: list[_Token]) -> list[tuple[int, int]] | None:
    """First and last row of each item, where the tokens are a list of rows and nothing else; None where they are not.

        list = item (separator item)* separator? "."?      item = word? mark* number mark* (range word? mark* number)?

    A range, and a slash as separator, take the word "row" somewhere in the list: [10-20] and [1/2] are quantities.
    """
    explicit = any(one.kind in ("row", "rows") for one in tokens)
    if tokens and tokens[-1].kind == "stop":
        tokens = tokens[:-1]
    listed: list[tuple[int, int]] = []
    place = 0
    while place < len(tokens):
        place = _before_number(tokens, place)
        if _kind(tokens, place) != "number":
            return None
        first = last = tokens[place].number
        place = _behind_marks(tokens, place + 1)
        if _kind(tokens, place) == "range" and explicit:
            to = _before_number(tokens, place + 1)
            if _kind(tokens, to) == "number":
                last = tokens[to].number
                to = _behind_marks(tokens, to + 1)
            elif to < len(tokens):
                return None
            place = to
        if last < first:
            return None
        listed.append((first, last))
        begun = place
        while _kind(tokens, place) == "list" or (explicit and _kind(tokens, place) == "slash"):
            place += 1
        if place == begun and place < len(tokens):
            return None
    return listed or None


def _mentioned(tokens: list[_Token]) -> Iterator[int]:
    """The numbers behind the word "row", and those listed behind "rows", among other words."""
    for place, token in enumerate(tokens):
        if token.kind not in ("row", "rows"):
            continue
        at = _before_number(tokens, place)
        while _kind(tokens, at) == "number":
            yield tokens[at].number
            at += 1
            if _kind(tokens, at) == "range" and _kind(tokens, at + 1) == "number" and not _joined(tokens, at + 1):
                yield tokens[at + 1].number
                at += 2
            begun = at
            while token.kind == "rows" and _kind(tokens, at) == "list":
                at += 1
            if at == begun or _joined(tokens, at):
                break


def _joined(tokens: list[_Token], place: int) -> bool:
    """Whether a number goes on with a further one, as a date or a decimal does."""
    return _kind(tokens, place + 1) in ("range", "slash", "stop") and _kind(tokens, place + 2) == "number"


def _looks_like_a_citation(tokens: list[_Token]) -> bool:
    """Whether there are numbers behind one word at most, and nothing else; but no date."""
    listed = tokens[1:] if _kind(tokens, 0) == "word" else tokens
    numbers = [place for place, one in enumerate(listed) if one.kind == "number"]
    if not numbers or any(one.kind not in ("number", "list", "range", "slash", "mark") for one in listed):
        return False
    return not any(_joined(listed, place) and _joined(listed, place + 2) for place in numbers)


def _before_number(tokens: list[_Token], place: int) -> int:
    """The place behind the word "row", if it is there, and behind marks."""
    if _kind(tokens, place) not in ("row", "rows"):
        return _behind_marks(tokens, place)
    place += 1
    while _kind(tokens, place) in ("mark", "stop"):  # row no. 17
        place += 1
    return place


def _behind_marks(tokens: list[_Token], place: int) -> int:
    while _kind(tokens, place) == "mark":
        place += 1
    return place


def _kind(tokens: list[_Token], place: int) -> str:
    return tokens[place].kind if place < len(tokens) else ""


def _whole(text: str) -> str:
    """A text whose characters are whole: two halves (surrogates) become one, and a half alone a mark."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _HALF.search(text) else text


def _last(text: str, characters: str) -> int:
    """The place of the last of these characters, -1 if there is none."""
    return max(map(text.rfind, characters))
