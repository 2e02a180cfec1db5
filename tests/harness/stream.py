"""A deterministic stream of work for writers, and the encoder that they use."""

import random
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from support import WordEncoder

from mempp import Document

# Latin, Cyrillic, Greek, Arabic, Devanagari, Thai, Chinese, Korean, emoji with joiners, what is odd in JSON or UTF-8
ALPHABETS = (
    "abcdefgh ijklmn opqrst uvwxyz ÄÖÜßéñ ",
    "бвгджзийклмн опрстуфх ",
    "αβγδεζηθ ικλμνξ ",
    "ابتثجح خدذرز ",
    "अआइईउऊ कखगघ ",
    "กขคงจฉชซ ",
    "会議決定 供應商",
    "회의결정 ",
    "👩‍💻🏳️‍🌈🧑🏽‍🚀 ",
    '\x00\x01\t\n\r\x1f\x7f\x85\u2028\u2029"\\/\ufeff\ufffd\uffff\U0010ffff ',
)


class HeadEncoder(WordEncoder):
    """WordEncoder over the first words of a text only, so that a long one costs no more than a short one."""

    def _vector(self, text: str) -> NDArray[np.float32]:
        return super()._vector(text[:60])


def text(chooser: random.Random) -> str:
    """0 to 20,000 characters, mostly few."""
    length = chooser.choices((0, 1, 3, 40, 200, 1000, 20_000), (3, 3, 3, 20, 20, 8, 1))[0]
    alphabet = chooser.choice(ALPHABETS)
    return "".join(chooser.choices(alphabet, k=chooser.randint(length // 2, length)))


def operations(seed: int) -> Iterator[tuple[str, list[Document]]]:
    """Endless: ("add" | "batch" | "supersede" | "retract" | "archive" | "reinstate" | "annotate", documents)."""
    chooser = random.Random(seed)
    number = 0
    while True:
        number += 1
        kind = chooser.choices(
            ("add", "batch", "supersede", "retract", "archive", "reinstate", "annotate"), (8, 6, 1, 1, 1, 1, 1)
        )[0]
        name = f"{seed}:{number}"
        size = {"add": 1, "batch": chooser.randint(2, 12)}.get(kind, 0)
        yield kind, make_batch(name, [text(chooser) for _ in range(size)])


def make_batch(name: str, texts: Sequence[str]) -> list[Document]:
    """Documents of one commit: each tells the batch, its size without the empty ones, and its place."""
    size = sum(bool(one.strip()) for one in texts)
    return [
        Document(
            text=one,
            occurred_at=f"2026-01-{place % 28 + 1:02d}",
            author=f"writer {place}",
            thread=name,
            metadata={"batch": name, "size": size, "place": place},
        )
        for place, one in enumerate(texts)
    ]
