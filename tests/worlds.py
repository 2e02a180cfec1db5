"""Small worlds for tests of the default read path: threads, days, undated rows, long rows with windows, dates named."""

from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies as st

WORDS = ["vpn", "vendor", "budget", "office", "ferry", "alpha", "beta", "東京", "offices", "the", "Σίγμα", "2024-01-05"]
AUTHORS = ["Alice Stone", "Bo Reed", "alice stone", "Alice Berg", "vendor"]
QUESTIONS = [
    "which vpn vendor",
    "what did Alice say of the budget on 2024-01-05?",
    "Alice Stone, office and ferry",
    "東京 alpha in early January 2024",
    "the",
    "beta vendor of Reed between January 3 and January 6",
    "Σίγμα ferry offices, who?",
]
"""Words, names in full and short, tags, dates with and without a year, stop words alone."""


@dataclass(frozen=True)
class Doc:
    """A document to be, and the same as `add` takes it."""

    text: str
    day: int | None
    thread: str | None
    author: str | None
    tag: str | None = None
    key: int = 0

    def fields(self) -> dict[str, object]:
        """As `add_many` takes it; its key goes into the metadata."""
        return {
            "text": self.text,
            "occurred_at": None if self.day is None else f"2024-01-{self.day:02}T{self.key % 24:02}:00:00Z",
            "thread": self.thread,
            "author": () if self.author is None else (self.author,),
            "tags": () if self.tag is None else (self.tag,),
            "metadata": {"key": self.key},
        }


short_texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
long_texts = st.tuples(short_texts, short_texts, st.sampled_from(WORDS)).map(
    lambda parts: f"{parts[0]}. " + f"{parts[1]} and so on. " * (700 // (len(parts[1]) + 12) + 10) + parts[2]
)
texts = st.one_of(short_texts, short_texts, short_texts, long_texts)
docs = st.builds(
    Doc,
    text=texts,
    day=st.one_of(st.integers(1, 5), st.integers(3, 9), st.none()),
    thread=st.sampled_from([None, None, "t1", "t2", "T1"]),
    author=st.sampled_from([None, *AUTHORS]),
    tag=st.sampled_from([None, None, "vpn", "ferry-office"]),
)


def numbered(given: list[Doc], first: int = 0) -> list[Doc]:
    """The documents with distinct keys and texts: of equal ones a record keeps one alone."""
    return [replace(doc, key=key, text=f"{doc.text} n{key}") for key, doc in enumerate(given, start=first)]


def random_docs(random: Random, count: int, *, threads: int = 3, alone: float = 0.5, days: int = 9) -> list[Doc]:
    """A larger world of any number of documents."""
    made = []
    for _ in range(count):
        words = [random.choice(WORDS) for _ in range(random.randint(1, 7))]
        text = " ".join(words)
        if random.random() < 0.15:
            text = f"{text}. " + "beta and alpha go on, as we said. " * 25 + random.choice(WORDS)
        made.append(
            Doc(
                text=text,
                day=None if random.random() < 0.1 else random.randint(1, days),
                thread=None if random.random() < alone else f"t{random.randint(1, threads)}",
                author=random.choice([None, *AUTHORS]),
                tag=random.choice([None, None, "vpn", "ferry-office"]),
            )
        )
    return numbered(made)
