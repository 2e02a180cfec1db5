"""`mempp embed`: vectors for the documents that have none yet."""

import time

import mempp
from mempp.cli.output import say, write_json
from mempp.cli.progress import duration, meter


def run(store: str, *, encoder: str | None, quiet: bool, as_json: bool) -> int:
    """Embed what has no vector, tell how much it was, and return the exit code.

    Raises:
        MemppError: the store or the encoder is at fault; what was embedded before is kept.
    """
    started = time.monotonic()
    with mempp.open(store, create=False, encoder=encoder) as memory, meter("embedding", quiet=quiet) as progress:
        missing = memory.stats().without_vector
        embedded = memory.embed(progress=lambda done: progress.show(done, done / missing if missing else None))
    if not quiet:
        plural = "document" if embedded == 1 else "documents"
        took = f" in {duration(time.monotonic() - started)}" if embedded else "; every document has its vector"
        say(f"embedded {embedded:,} {plural}{took}")
    if as_json:
        write_json({"store": store, "embedded": embedded})
    return 0
