"""Speed, memory and scale of Mem++, beside what a user would pick instead.

    python -m benchmarks encode      texts a second, milliseconds a question, beside sentence-transformers
    python -m benchmarks ingest      adding beside bare encoding, and the memory that a large file takes
    python -m benchmarks recall      a question under the default settings in a large record
    python -m benchmarks open        opening a store, with caches and without
    python -m benchmarks scale       adding, questions, reopening and memory by size, beside chromadb and lancedb
    python -m benchmarks growth      plots of what scale measured
    python -m benchmarks grouping    the grouping of rows for consolidation
    python -m benchmarks kills       crash safety by hand
    python -m benchmarks steps       what each part of the default settings is worth

`python -m benchmarks COMMAND --help` tells the options. What the peers need: pip install '.[benchmarks]'.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

COMMANDS = {
    "encode": "benchmarks.encode",
    "ingest": "benchmarks.ingest",
    "recall": "benchmarks.recall",
    "open": "benchmarks.opening",
    "scale": "benchmarks.scale",
    "growth": "benchmarks.growth",
    "grouping": "benchmarks.grouping",
    "kills": "benchmarks.kills",
    "steps": "benchmarks.steps",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, 2 for wrong usage."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if not given or given[0] not in COMMANDS:
        wrong = f"there is no benchmark {given[0]!r}" if given else "name a benchmark"
        print(f"{wrong}: one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    name, *rest = given
    if find_spec(COMMANDS[name]) is None:
        print(f"the benchmark {name!r} is not in this source tree: {COMMANDS[name]} is missing", file=sys.stderr)
        return 1
    # Some of them read the process's arguments themselves; all are found with these.
    sys.argv = [f"python -m benchmarks {name}", *rest]
    try:
        return import_module(COMMANDS[name]).main() or 0
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        print(
            f"the benchmark {name!r} needs {package}, which is not installed: pip install '.[benchmarks]'",
            file=sys.stderr,
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
