"""Draws triples or cards from a store and prints a line at every step, until it is killed or done."""

import json
from pathlib import Path
from typing import IO, Any

import mempp


def main(arguments: dict[str, Any], output: IO[bytes]) -> None:
    """Arguments: path, base_url, method."""
    with mempp.open(Path(arguments["path"]), encoder="none") as memory:
        model = mempp.chat_model("openai:scripted", base_url=arguments["base_url"], max_retries=0, timeout=20)
        method = getattr(memory, arguments["method"])
        report = method(model=model, concurrency=4, progress=lambda done: say(output, {"documents": done}))
        say(output, {"finished": report.finished, "done": report.done})


def say(output: IO[bytes], message: dict[str, Any]) -> None:
    output.write(json.dumps(message).encode() + b"\n")
