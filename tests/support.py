"""Small stand-ins for tests: an encoder whose vectors follow the words of a text, and one that hangs."""

import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mempp.encoders import EncoderIdentity


class WordEncoder:
    """Unit vectors as sums of one pseudo-random vector per word: texts that share words are near each other."""

    def __init__(self, dimensions: int = 16, name: str = "test-words") -> None:
        self.identity = EncoderIdentity(f"{name}-{dimensions}", dimensions, {"kind": "test"})
        self.encoded: list[str] = []

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.encoded += texts
        return np.array([self._vector(text) for text in texts], dtype=np.float32).reshape(-1, self.identity.dimensions)

    def encode_question(self, text: str) -> NDArray[np.float32]:
        return self._vector(text)

    def _vector(self, text: str) -> NDArray[np.float32]:
        total = np.zeros(self.identity.dimensions)
        for word in re.findall(r"\w+", text.casefold()) or [text]:
            digest = hashlib.sha256(word.encode()).digest()
            seed = int.from_bytes(digest[:8], "little")
            total += np.random.default_rng(seed).standard_normal(self.identity.dimensions)
        norm = float(np.linalg.norm(total)) or 1.0
        return (total / norm).astype(np.float32)


class HangingEncoder(WordEncoder):
    """Hangs in its second call, which it tells by the file `hangs`, until the file `go` is there: in this folder."""

    calls = 0

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        HangingEncoder.calls += 1
        if HangingEncoder.calls == 2:
            Path("hangs").touch()
            while not Path("go").exists():
                time.sleep(0.01)
        return super().encode_documents(texts)
