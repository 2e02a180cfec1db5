"""What every benchmark tells in the same way: tables in Markdown, JSON files, and facts about the machine."""

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

_PACKAGES = ("numpy", "pyarrow", "tantivy", "hnswlib", "onnxruntime", "chromadb", "lancedb", "psycopg")
_PROBE = 256 << 20  # bytes: more than any cache holds
_TRIES = 5


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown, its columns aligned; a cell that is None stays empty."""
    cells = [[str(head) for head in heads], *[["" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(heads))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def significant(value: float | None) -> str | None:
    """A measured number with three significant digits, thousands apart; None stays None."""
    if value is None:
        return None
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def machine() -> dict[str, Any]:
    """Facts about this machine and what is installed, as plain values; measuring takes about a second.

    Returns:
        `time` (UTC, ISO 8601), `processor`, `cores` that this process may use, `memory_gigabytes`, `load` (of the last
        minute: how many processes wanted a core), `bandwidth` (bytes a second, see `bandwidth`), `python`, `system`,
        `versions` of packages that are installed.
    """
    versions = {}
    for name in ("mempp", *_PACKAGES):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "time": now(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load": load(),
        "bandwidth": bandwidth(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions,
    }


def now() -> str:
    """This moment in UTC, as ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def load() -> float:
    """How many processes wanted a core in the last minute."""
    return round(os.getloadavg()[0], 2)


def machine_line(facts: Mapping[str, Any]) -> str:
    """The facts in one line, to stand above a table."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return (
        f"{facts['time']}; {facts['processor']}, {facts['cores']} cores, {facts['memory_gigabytes']} GB, load "
        f"{facts['load']}, memory read at {facts['bandwidth'] / 1e9:.1f} GB/s; Python {facts['python']}, {versions}"
    )


def bandwidth() -> float:
    """Bytes that all cores together read from memory in a second, the best of a few tries."""
    threads = os.cpu_count() or 1
    numbers = np.ones(_PROBE // 4, np.float32)
    parts = np.array_split(numbers, threads)
    seconds = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_TRIES):
            began = time.perf_counter()
            list(pool.map(np.max, parts))
            seconds.append(time.perf_counter() - began)
    return numbers.nbytes / min(seconds)


def write_json(path: Path, command: str, arguments: Mapping[str, Any], **measured: Any) -> None:
    """Write what a command measured, with its arguments; parent folders are made.

    Raises:
        SystemExit: the file cannot be written; the message says why.
    """
    content = {"command": command, "arguments": {name: _plain(value) for name, value in arguments.items()}, **measured}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        sys.exit(f"cannot write {path}: {error.strerror or error}")


def resident(*, peak: bool = False) -> int:
    """Resident bytes of this process, now or at their highest; from /proc, so on Linux."""
    key = "VmHWM:" if peak else "VmRSS:"
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status tells no {key}")


def bytes_in(folder: Path) -> int:
    """Size of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _plain(value: object) -> object:
    return (
        str(value) if isinstance(value, Path) else [_plain(one) for one in value] if isinstance(value, list) else value
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
