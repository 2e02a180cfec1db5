"""Consolidates a store and prints a line at every step, until it is killed or done."""

import json
from pathlib import Path
from typing import IO, Any

from consolidation_tools import TopicEncoder

import mempp


class TellingEncoder(TopicEncoder):
    """Says when it is asked: a merged row is stored then, and has no vector yet."""

    def __init__(self, output: IO[bytes]) -> None:
        super().__init__()
        self.output = output

    def encode_documents(self, texts: Any) -> Any:
        say(self.output, {"encoding": len(texts)})
        return super().encode_documents(texts)


def main(arguments: dict[str, Any], output: IO[bytes]) -> None:
    """Arguments: path, base_url."""
    with mempp.open(Path(arguments["path"]), encoder=TellingEncoder(output)) as memory:
        model = mempp.chat_model("openai:scripted", base_url=arguments["base_url"], max_retries=0, timeout=20)
        report = memory.consolidate(model=model, concurrency=4, progress=lambda done: say(output, {"groups": done}))
        say(output, {"finished": report.finished, "run_id": report.run_id})


def say(output: IO[bytes], message: dict[str, Any]) -> None:
    output.write(json.dumps(message).encode() + b"\n")
