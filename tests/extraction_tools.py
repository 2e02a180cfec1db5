"""A record whose facts are known, and a scripted model that draws them: for the entity graph and the fact cards.

A text is made of sentences "E1 likes E2." about entities E0, E1, …; a text without any says nothing. The model reads
the record of the prompt as it was written, so that what it draws depends on the text alone.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from scripted_server import Answer, Asked, say

import mempp
from mempp.llm import Reply, Request, Usage

_RECORD = re.compile(r"<(record-\w+)[^>]*>\n(.*?)\n</\1>", re.DOTALL)
_SENTENCE = re.compile(r"\b(E\d+) (\w+) (E\d+)\b")
_DATE = re.compile(r"on (\S+)\.")


def documents() -> list[mempp.Document]:
    """24 documents in order: 20 with two sentences each, about 10 entities in a ring; four that state nothing."""
    made = []
    for place in range(24):
        if place % 6 == 5:
            text = f"note {place} says nothing of interest"
        else:
            one, other = place % 10, (place + 1) % 10
            text = f"note {place}: E{one} likes E{other}. E{other} helps E{(place + 3) % 10}."
        date = None if place % 8 == 7 else f"2024-{place % 12 + 1:02}-10"
        made.append(mempp.Document(text=text, occurred_at=date, author=f"author {place % 3}", tags=[f"tag{place % 2}"]))
    return made


def record_of(prompt: str) -> str:
    """The text of the record that a prompt shows."""
    found = _RECORD.search(prompt)
    assert found is not None, prompt
    return found[2]


def sentences(text: str) -> list[tuple[str, str, str]]:
    return _SENTENCE.findall(text)


def answer_to(prompt: str, schema: Mapping[str, Any] | None, system: str) -> str:
    """What the model says."""
    asked = set((schema or {}).get("properties", {}))
    if asked == {"entities"}:
        text = prompt if prompt.startswith("The question:") else record_of(prompt)
        return json.dumps({"entities": list(dict.fromkeys(re.findall(r"\bE\d+\b", text)))})
    text = record_of(prompt)
    if asked == {"triples"}:
        parts = ("subject", "relation", "object")
        return json.dumps({"triples": [dict(zip(parts, one, strict=True)) for one in sentences(text)]})
    assert asked == {"cards"}, asked
    card = schema["properties"]["cards"]["items"]["properties"]
    cards = []
    for subject, relation, object_ in sentences(text):
        date = _DATE.search(text)
        one = {"text": f"{subject} {relation} {object_}", "tags": [relation], "date": date[1] if date else ""}
        cards.append(one | ({"said_by": "agent" if "I:" in text else "others"} if "said_by" in card else {}))
    return json.dumps({"cards": cards[:1] if "exactly one card" in system else cards})


def extractor(asked: Asked) -> Answer:
    """As a script of the server."""
    return say(answer_to(asked.prompt, asked.schema, asked.system), usage=(100, 10))


class ScriptedModel:
    """The same as an object of the protocol."""

    def __init__(self, name: str = "test:extractor") -> None:
        self.name = name
        self.requests: list[Request] = []

    def ask(self, request: Request) -> Reply:
        self.requests.append(request)
        text = "It is so [row 0]."
        if request.schema is not None:
            text = answer_to(request.prompt, request.schema, request.system)
        return Reply(text=text, usage=Usage(100, 10), seconds=0.0, stopped="end")

    def stream(self, request: Request) -> Any:
        raise NotImplementedError


def memory_of(given: list[mempp.Document] | None = None) -> mempp.Memory:
    memory = mempp.in_memory(encoder="none")
    memory.add_many(documents() if given is None else given)
    return memory


def log_of(memory: mempp.Memory, *, by_row: bool = False) -> list[tuple[Any, ...]]:
    """Every annotation without times and the model's name; sorted by row where the order of commits may differ."""
    entries = [(one.row_id, one.kind, _without_model(one.payload), one.text) for one in memory.annotations()]
    return sorted(entries, key=lambda entry: entry[0]) if by_row else entries


def _without_model(payload: Any) -> str:
    kept = {name: value for name, value in payload.items() if name != "model"} if isinstance(payload, dict) else payload
    return json.dumps(kept, sort_keys=True)
