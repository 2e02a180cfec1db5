"""A record of any size that is the same each time: texts by Zipf's law, clustered vectors, authors, dates, threads.

It is made block by block, each block from its own seed, so that a million rows never stand in memory together, and so
that several processes make the same rows without handing them over.

Vectors are clustered as those of texts are: 256 topics, each a direction of its own; about it a spread in 48 directions
that all topics share, and a little noise in all. Dates rise with the row over ten years; one row in twenty is an old
one that came in late. One author in a hundred wrote a given row; threads are of five rows in a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BLOCK = 5000
"""Rows of a block."""
AUTHORS = 100
DIMENSIONS = 384
_WORDS = 50_000
_WORDS_A_TEXT = 60
_TOPICS = 256
_SPREAD = 48
_LATE = 0.05
_START = int(datetime(2015, 1, 1, tzinfo=UTC).timestamp())
_SPAN = 10 * 365 * 86_400
_GIVEN = ("Alva", "Bram", "Cleo", "Dario", "Edda", "Farid", "Greta", "Hugo", "Ines", "Jonas")
_FAMILY = ("Brenner", "Castillo", "Dvorak", "Eriksen", "Fontane", "Grau", "Hashimi", "Ivanova", "Jansen", "Keller")


@dataclass(frozen=True)
class Block:
    """Rows `first` to `first + len(block)` of a record."""

    first: int
    texts: list[str]
    vectors: NDArray[np.float32]
    """(n, dimensions) unit vectors."""
    dates: NDArray[np.int64]
    """(n,) event dates, seconds since 1970 UTC."""
    authors: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def sources(self) -> list[str]:
        """The identity of each row outside, another for each."""
        return [source_of(row) for row in range(self.first, self.first + len(self))]

    @property
    def threads(self) -> list[str]:
        """The thread of each row."""
        return [f"thread {row // 5}" for row in range(self.first, self.first + len(self))]


@dataclass(frozen=True)
class Asked:
    """Questions: texts and their unit vectors, (n, dimensions)."""

    texts: list[str]
    vectors: NDArray[np.float32]


@dataclass(frozen=True)
class SyntheticRecord:
    """A record of `rows` rows. The same arguments give the same rows."""

    rows: int
    dimensions: int = DIMENSIONS
    seed: int = 1

    @cached_property
    def dates(self) -> NDArray[np.int64]:
        """(rows,) event dates, seconds since 1970 UTC."""
        random = np.random.default_rng([self.seed, 1])
        at = (np.arange(self.rows) + random.random(self.rows)) / self.rows
        late = random.random(self.rows) < _LATE
        at[late] *= random.random(int(late.sum()))
        return _START + (at * _SPAN).astype(np.int64)

    @cached_property
    def author_numbers(self) -> NDArray[np.int64]:
        """(rows,) which of the authors wrote each row."""
        return np.random.default_rng([self.seed, 2]).integers(AUTHORS, size=self.rows)

    def blocks(self) -> Iterator[Block]:
        """All rows in order."""
        for number in range(-(-self.rows // BLOCK)):
            yield self.block(number)

    def block(self, number: int) -> Block:
        """Rows from `number * BLOCK` on."""
        first = number * BLOCK
        size = min(BLOCK, self.rows - first)
        random = np.random.default_rng([self.seed, 3, number])
        places = random.choice(_WORDS, size=(size, _WORDS_A_TEXT), p=self._chances)
        words = self._words
        inside = slice(first, first + size)
        return Block(
            first=first,
            texts=[" ".join([words[place] for place in row]) + "." for row in places.tolist()],
            vectors=self._vectors(random, size),
            dates=self.dates[inside],
            authors=[author_name(number) for number in self.author_numbers[inside].tolist()],
        )

    def questions(self, count: int) -> Asked:
        """Questions about rows spread over the record: near their vectors, with words of theirs; one in three names
        the author of its row.
        """
        random = np.random.default_rng([self.seed, 4])
        rows = np.linspace(0, self.rows - 1, count).astype(np.int64).tolist()
        texts, vectors = [], []
        for place, row in enumerate(rows):
            block = self.block(row // BLOCK)
            within = row % BLOCK
            words = block.texts[within].rstrip(".").split()
            chosen = " ".join(random.choice(words, size=6, replace=False).tolist())
            asker = f"What did {block.authors[within]} say about" if place % 3 == 2 else "What was decided about"
            texts.append(f"{asker} {chosen}?")
            vectors.append(block.vectors[within] + 0.6 * self._noise(random, 1)[0])
        return Asked(texts, _unit(np.array(vectors, np.float32)))

    def _vectors(self, random: np.random.Generator, size: int) -> NDArray[np.float32]:
        topics = random.choice(_TOPICS, size=size, p=self._topic_chances)
        spread = random.standard_normal((size, _SPREAD), dtype=np.float32) @ self._directions
        return _unit(self._centres[topics] + 0.9 * _unit(spread) + 0.3 * self._noise(random, size))

    def _noise(self, random: np.random.Generator, size: int) -> NDArray[np.float32]:
        return random.standard_normal((size, self.dimensions), dtype=np.float32) / np.float32(self.dimensions**0.5)

    @cached_property
    def _centres(self) -> NDArray[np.float32]:
        random = np.random.default_rng([self.seed, 5])
        return _unit(random.standard_normal((_TOPICS, self.dimensions), dtype=np.float32))

    @cached_property
    def _directions(self) -> NDArray[np.float32]:
        return np.random.default_rng([self.seed, 6]).standard_normal((_SPREAD, self.dimensions), dtype=np.float32)

    @cached_property
    def _topic_chances(self) -> NDArray[np.float64]:
        return _normed(1 / np.arange(10, _TOPICS + 10))

    @cached_property
    def _words(self) -> list[str]:
        random = np.random.default_rng([self.seed, 7])
        syllables = [first + second for first in "bcdfghklmnprstvwz" for second in "aeiou"]
        lengths = 2 + np.arange(_WORDS) % 3
        drawn = random.integers(len(syllables), size=(_WORDS, 4)).tolist()
        return [
            "".join(syllables[one] for one in row[:size]) for row, size in zip(drawn, lengths.tolist(), strict=True)
        ]

    @cached_property
    def _chances(self) -> NDArray[np.float64]:
        return _normed(1 / np.arange(10, _WORDS + 10) ** 1.07)


def save_questions(asked: Asked, file: Path) -> None:
    """Write questions to a file of NumPy's format."""
    np.savez(file, texts=np.array(asked.texts), vectors=asked.vectors)


def load_questions(file: Path) -> Asked:
    """Read what `save_questions` wrote."""
    with np.load(file) as kept:
        return Asked(kept["texts"].tolist(), kept["vectors"])


def author_name(number: int) -> str:
    """The name of an author, 0 to 99."""
    return f"{_GIVEN[number % 10]} {_FAMILY[number // 10]}"


def source_of(row: int) -> str:
    """The identity outside of a row."""
    return f"message-{row}@example.org"


def _normed(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    chances: NDArray[np.float64] = weights / weights.sum()
    return chances


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
