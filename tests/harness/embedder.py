"""Embeds a store, or a shard of it, or merges, or embeds it with another encoder; prints a line for each round."""

import json
import warnings
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

import mempp
from harness.stream import HeadEncoder
from mempp import adding, encoding
from mempp.storage import TornTailWarning


class SlowEncoder(HeadEncoder):
    """HeadEncoder, slow enough for a kill to come in between."""

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        for _ in range(20):
            vectors = super().encode_documents(texts)
        return vectors


class OtherEncoder(SlowEncoder):
    """Another encoder than HeadEncoder."""

    def __init__(self) -> None:
        super().__init__(dimensions=12, name="other-words")

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return super().encode_documents([f"other {text}" for text in texts])


def main(arguments: dict[str, Any], output: IO[bytes]) -> None:
    """Arguments: path, job, and what the job needs. Rounds are small, so that a kill comes between them."""
    warnings.simplefilter("ignore", TornTailWarning)
    encoding.ROUND_TEXTS = 8
    encoding.CALL_TEXTS = 3
    adding.BATCH_SIZE = 4

    def say(message: dict[str, Any]) -> None:
        output.write(json.dumps(message).encode() + b"\n")

    def progress(done: int) -> None:
        say({"done": done})

    job = arguments["job"]
    with mempp.open(arguments["path"], encoder=SlowEncoder(), read_only=job == "shard") as memory:
        say({"opened": len(memory)})
        if job == "embed":
            count = memory.embed(progress=progress)
        elif job == "shard":
            shard: tuple[int, int] = tuple(arguments["shard"])
            count = memory.embed(shard=shard, out=arguments["out"], progress=progress)
        elif job == "merge":
            count = memory.merge_vectors(arguments["files"], progress=progress)
        elif job == "reembed":
            count = memory.reembed(OtherEncoder(), progress=progress)
        else:
            documents = [{"text": f"{arguments['name']} {n} " + "word " * (n % 9 * 40)} for n in range(200)]
            count = memory.add_many(documents, batch_size=4, progress=progress).added
        say({"count": count})
