"""The windows of a long text: pieces that an encoder reads whole, cut where sentences end.

An encoder reads the head of a text (MiniLM: 256 word pieces) and nothing after it. So a long text has further views:
windows of about `WINDOW` bytes that follow each other without a gap, and a row is as near to a question as the nearest
of its views. Bytes of UTF-8, not characters, because a script that takes three bytes a character also takes more
word pieces a character.
"""

import re
from itertools import pairwise

WINDOW = 500
"""Bytes of UTF-8, about 110 word pieces of English."""
SHORT = 700
"""Texts up to this many bytes have no windows: their head is all of them."""
MOST_WINDOWS = 512
"""A text of more has larger windows, about so many in number; of each the encoder then reads the head."""

_SENTENCE_ENDS = re.compile(r"(?<=[.!?\"'”’)\]])\s+|\n+|(?<=[。！？])(?![。！？])")
_WORD = re.compile(r"\S+\s*|\s+")


def has_windows(text: str) -> bool:
    """Whether `windows_of` gives any windows of a text that is not all white space."""
    return len(text) > SHORT or (4 * len(text) > SHORT and len(text.encode()) > SHORT)


def windows_of(text: str) -> list[str]:
    """The windows of a text, in order, none of white space only; empty for a short text.

    Joined they are the text, apart from windows of white space that are left out.
    """
    if not has_windows(text):
        return []
    size = len(text.encode())
    target = max(WINDOW, -(-size // MOST_WINDOWS))
    windows: list[str] = []
    current: list[str] = []
    filled = 0
    for part in _parts(text, target):
        cost = len(part.encode())
        if current and filled + cost > target:
            windows.append("".join(current))
            current, filled = [], 0
        current.append(part)
        filled += cost
    windows.append("".join(current))
    return [window for window in windows if window.strip()]


def _parts(text: str, largest: int) -> list[str]:
    """Sentences; those larger than a window in words; words larger than a window in pieces of it."""
    parts: list[str] = []
    ends = [match.end() for match in _SENTENCE_ENDS.finditer(text)]
    for start, end in pairwise([0, *ends, len(text)]):
        sentence = text[start:end]
        if len(sentence.encode()) <= largest:
            parts.append(sentence)
            continue
        for word in _WORD.findall(sentence):
            # A character has at most four bytes.
            step = len(word) if len(word.encode()) <= largest else max(1, largest // 4)
            parts += [word[place : place + step] for place in range(0, len(word), step)]
    return parts
