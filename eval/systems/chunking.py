"""Texts into chunks of N tokens. The chunks of a text are that text: nothing is lost, nothing stands in two of them."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

TokenStarts = Callable[[str], list[int]]
"""Text → the character at which each token starts, ascending."""

_SEGMENT = 20_000
_WORD = re.compile(r"\w+|[^\w\s]")


def words(text: str) -> list[int]:
    """Words and single marks, for encoders whose own tokens are not to be had."""
    return [match.start() for match in _WORD.finditer(text)]


def word_pieces(encode: Callable[[str], Any]) -> TokenStarts:
    """The word pieces of an encoder's tokenizer.

    A tokenizer reads a whole text at once, and 10 MB took it 1.6 GB. Word pieces never reach over white space, so the
    text is given to it in segments that end there.
    """

    def starts(text: str) -> list[int]:
        found: list[int] = []
        for begin, segment in _segments(text):
            found += [begin + start for start, end in encode(segment).offsets if end > start]
        return found

    return starts


def _segments(text: str) -> Iterator[tuple[int, str]]:
    begin = 0
    while begin < len(text):
        end = begin + _SEGMENT
        if end < len(text):
            # The last white space in reach; a text without any is cut where it stands.
            end = next((place for place in range(end, begin, -1) if text[place - 1].isspace()), end)
        yield begin, text[begin:end]
        begin = end


def chunk_bounds(text: str, size: int, starts: TokenStarts) -> list[tuple[int, int]]:
    """Where the chunks of `size` tokens begin and end, in characters; together they are the whole text.

    The last chunk may have fewer tokens. A character of several tokens is not cut, so a chunk may have a few more. A
    text without a token, such as one of control characters only, is one chunk.
    """
    cuts = [0, *starts(text)[size::size], len(text)]
    return [(begin, end) for begin, end in pairwise(cuts) if begin < end]
