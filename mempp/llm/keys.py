"""Keys of providers, kept out of what a server says: replies are kept on disk, and are told."""

import os
import re
from collections.abc import Iterable

_SHORTEST = 16
"""Characters of a key that is looked for. A server of one's own may be given "none" or "test", which are words."""


def keys_of(names: Iterable[str]) -> list[str]:
    """The keys that these environment variables hold, the longest first; short ones, which may be words, are not."""
    keys = {key.strip() for name in names if (key := os.environ.get(name))}
    return sorted((key for key in keys if len(key) >= _SHORTEST), key=len, reverse=True)


class KeyFilter:
    """Puts "…" in place of each key, in a text that comes piece by piece.

    What may be the beginning of a key is held back. The pieces given back, joined, are `whole` of the text.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Prepare for a text in which the keys of these environment variables may stand."""
        self._keys = keys_of(names)
        self._pattern = re.compile("|".join(map(re.escape, self._keys)) or r"(?!)")
        self._held = ""

    def whole(self, text: str) -> str:
        """A whole text without them."""
        return self._pattern.sub("…", text)

    def after(self, piece: str) -> str:
        """What can be told after one more piece."""
        if not self._keys:
            return piece
        text = self._held + piece
        parts: list[str] = []
        place = 0
        for found in self._pattern.finditer(text):
            parts += (text[place : found.start()], "…")
            place = found.end()
        held = self._beginning(text[place:])
        parts.append(text[place : len(text) - held])
        self._held = text[len(text) - held :]
        return "".join(parts)

    def rest(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """How many characters at the end may begin a key."""
        most = min(len(self._keys[0]) - 1, len(text))
        return next((size for size in range(most, 0, -1) if any(key.startswith(text[-size:]) for key in self._keys)), 0)
