"""A record whose groups are known, a scripted labeller for it, and what a memory looks like without times and run ids.

The first word of a text is its topic: texts of one topic are near each other (0.99 and more), others are not. Its
letter tells how the group is labelled: c conflict, r restatement, d distinct. A merged text names the rows that it was
made of; that of topic r9 begins with c9, so that it meets what is left of that topic in a second pass.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scripted_server import Answer, Asked, say

import mempp
from mempp.encoders import EncoderIdentity
from mempp.llm import Reply, Request, Usage

DIMENSIONS = 32
LABELS = {"c": "conflict", "r": "restatement", "d": "distinct"}
_TOPIC = re.compile(r"^([crd]\d+)\b", re.MULTILINE)


class TopicEncoder:
    """Unit vectors that follow the first word of a text, and a little the rest."""

    def __init__(self) -> None:
        self.identity = EncoderIdentity("test-topics", DIMENSIONS, {"kind": "test"})

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self.encode_question(text) for text in texts], np.float32).reshape(-1, DIMENSIONS)

    def encode_question(self, text: str) -> NDArray[np.float32]:
        vector = _direction(text.split()[0]) + 0.05 * _direction(text)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


def _direction(text: str) -> NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    vector = np.random.default_rng(seed).standard_normal(DIMENSIONS)
    return vector / np.linalg.norm(vector)


def documents() -> list[mempp.Document]:
    """24 topics, mostly two documents each, in mixed order; a few without a date."""
    topics = [f"{letter}{number}" for letter in "crd" for number in range(7)]
    texts = [f"{topic} note {place}" for place in range(2) for topic in topics]
    texts += ["c1 note 2", "r1 note 2", "d1 note 2", "r9 note 0", "c9 note 0", "r9 note 1", "c9 note 1", "z single"]
    return [
        mempp.Document(
            text=text,
            occurred_at=None if place % 11 == 10 else f"2024-{place % 12 + 1:02}-{place % 28 + 1:02}",
            author=f"author {place % 5}",
            tags=[f"tag {place % 3}"],
            thread="all",
            metadata={"all": True, "place": place},
        )
        for place, text in enumerate(texts)
    ]


def labeller(asked: Asked) -> Answer:
    """Answers as the topic of the first record tells."""
    return say(answer_to(asked.prompt, merging=asked.schema is None), usage=(100, 10))


def answer_to(prompt: str, *, merging: bool) -> str:
    topic = _TOPIC.findall(prompt)[0]
    if not merging:
        return json.dumps({"label": LABELS[topic[0]]})
    rows = re.findall(r'^<record-\w+ number="\d+" row="(\d+)"', prompt, re.MULTILINE)
    return f"{'c9' if topic == 'r9' else topic} merged of {'+'.join(rows)}"


class ScriptedModel:
    """The labeller as an object of the protocol."""

    name = "test:labeller"

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def ask(self, request: Request) -> Reply:
        self.requests.append(request)
        text = answer_to(request.prompt, merging=request.schema is None)
        return Reply(text=text, usage=Usage(100, 10), seconds=0.0, stopped="end")

    def stream(self, request: Request) -> Any:
        raise NotImplementedError


def memory_of(given: Sequence[mempp.Document] | None = None) -> mempp.Memory:
    memory = mempp.in_memory(encoder=TopicEncoder())
    memory.add_many(documents() if given is None else given)
    return memory


def look(memory: mempp.Memory) -> list[Any]:
    """Every row with its state; without times of ingestion."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [replace(memory.get(row), ingested_at=epoch) for row in range(len(memory))]


def log_of(memory: mempp.Memory) -> list[Any]:
    """Every entry, without times of ingestion and with the ids of runs replaced by numbers."""
    numbers: dict[str, str] = {}

    def numbered(text: str | None) -> str | None:
        return text and re.sub(r"\b[0-9a-f]{12}\b", lambda m: numbers.setdefault(m[0], f"run {len(numbers)}"), text)

    memory._store.rewind()
    entries = memory._store.refresh()
    return [
        replace(entry, ingested_at=0, reason=numbered(entry.reason), payload=numbered(entry.payload))
        for entry in entries
        if entry.kind != "encoder"
    ]
