"""What a run leaves behind: rows while it lasts, one JSON file when it ends. docs/evaluation.md has the schema."""

import fcntl
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import mempp
from eval.errors import EvalError, UsageError
from eval.result_form import INGEST, ROW, FormError, check, check_result, parsed

FORMAT = "mempp-eval/1"
JsonObject = dict[str, Any]
_PACKAGES = ("numpy", "onnxruntime", "tantivy", "hnswlib", "openai", "anthropic", "mem0ai")


def digest(value: object) -> str:
    """SHA-256 of a JSON value in one canonical writing, 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_text(text: str) -> str:
    """SHA-256 of a text in UTF-8; lone surrogates, which some benchmarks hold, count as they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_files(files: Sequence[Path]) -> JsonObject:
    """One SHA-256 over the contents of files and their names below their common folder; their number and bytes.

    Raises:
        EvalError: one cannot be read.
    """
    paths = sorted(path.absolute() for path in files)
    if not paths:
        return {"sha256": hashlib.sha256().hexdigest(), "files": 0, "bytes": 0}
    base = paths[0].parent if len(paths) == 1 else Path(os.path.commonpath(paths))
    total, size = hashlib.sha256(), 0
    for path in paths:
        try:
            with path.open("rb") as file:
                one = hashlib.file_digest(file, "sha256").hexdigest()
                size += file.tell()
        except OSError as error:
            raise EvalError(f"cannot read {path}: {error.strerror or error}") from None
        total.update(f"{one}  {path.relative_to(base).as_posix()}\n".encode("utf-8", "surrogateescape"))
    return {"sha256": total.hexdigest(), "files": len(paths), "bytes": size}


def versions() -> JsonObject:
    """The versions of what the figures depend on; packages that are absent are left out."""
    found: JsonObject = {"mempp": mempp.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> JsonObject:
    """Cores, memory and system; nothing that names the machine or its user."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    found: JsonObject = {"cores": cores, "system": f"{platform.system()} {platform.machine()}"}
    try:
        found["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        found["memory_gib"] = None
    return found


def write_atomically(path: Path, value: JsonObject) -> None:
    """Write one JSON file whole or not at all.

    Raises:
        EvalError: the disk or the folder refuses.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
        ) as file:
            temporary = file.name
            json.dump(value, file, ensure_ascii=True, indent=1, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # temporary files are made for their owner alone
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise EvalError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def load(path: Path) -> JsonObject:
    """Read a result file.

    Raises:
        EvalError: it is missing, damaged, or of another format.
    """
    try:
        value = parsed(path.read_bytes())
    except OSError as error:
        raise EvalError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise EvalError(f"{path} is no result file: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("rows"), list):
        raise EvalError(f"{path} is no result file of `python -m eval run`")
    if value.get("format") != FORMAT:
        raise EvalError(f"{path} is of the format {value.get('format')!r:.60}; this version reads {FORMAT!r}")
    try:
        check_result(value)
    except FormError as error:
        raise EvalError(f"{path} is damaged or was edited: {error}; take it from a copy, or run again") from None
    return value


@dataclass
class Kept:
    """What an earlier run of the same configuration left: finished rows by question id, ingest by collection."""

    rows: dict[str, JsonObject] = field(default_factory=dict)
    ingest: dict[str, JsonObject] = field(default_factory=dict)


class RowsFile:
    """`OUT.rows.jsonl`: a head with the digest of the configuration, then one line per finished question.

    Every line is handed to the operating system as soon as it is made, so a killed process loses none. Only one
    process writes it at a time.
    """

    complete_before = False
    """Whether the result file, when this began, held a complete run."""

    def __init__(self, out: Path, configuration_digest: str) -> None:
        self.path = rows_path(out)
        self._head = {"format": FORMAT, "configuration_digest": configuration_digest}
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._locked()
        except OSError as error:
            raise EvalError(f"cannot write {self.path}: {error.strerror or error}") from None

    def _locked(self) -> BinaryIO:
        while True:
            file = open(self.path, "ab")  # noqa: SIM115 - closed by __exit__
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file.fileno()).st_ino == os.stat(self.path).st_ino:
                    return file
            except BlockingIOError:
                file.close()
                raise EvalError(f"another run is writing {self.path}; wait for it, or give another --out") from None
            except FileNotFoundError:
                pass
            file.close()  # it was replaced or removed since it was opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What a full disk did not take would fail once more when it is closed.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            if not self.path.stat().st_size:  # nothing was begun
                self.path.unlink()

    def begin(self, out: Path, *, resume: bool, overwrite: bool) -> Kept:
        """Make the file ready, and give back what is kept of an earlier run.

        What is there already, complete or not, stays unless `resume` goes on from it or `overwrite` begins anew. With
        both, a run that was begun with `overwrite` goes on from its rows.

        Raises:
            EvalError: something is there already; or `resume`, and it is of another configuration, or damaged.
        """
        result = _result_there(out, overwrite=overwrite)
        self.complete_before = result is not None and bool(result["complete"])
        if overwrite and not resume:
            self._rewrite([])
            return Kept()
        ours = self._head["configuration_digest"]
        kept, theirs = self._read()
        if not resume:
            if result is None and not kept.rows:
                self._rewrite([])
                return kept
            there, done = (self.path, "an unfinished") if result is None else (out, "a")
            raise EvalError(
                f"{there} holds {done} run already; --resume goes on from it, --overwrite begins anew, and another "
                "--out leaves it as it is"
            )
        if overwrite:
            result = None
        for name, other in ((self.path, theirs), (out, result and result["configuration_digest"])):
            if other is not None and other != ours:
                raise EvalError(
                    f"{name} is of another configuration, so this run cannot go on from it; "
                    "give the same arguments (data and versions included), or --overwrite in place of --resume"
                )
        if result is not None:
            rows = {row["id"]: row for row in result["rows"]}
            kept = Kept(rows | kept.rows, {one["collection"]: one for one in result["ingest"]} | kept.ingest)
        kept.rows = {name: row for name, row in kept.rows.items() if not failed(row)}
        lines = [{"ingest": one} for one in kept.ingest.values()] + [{"row": row} for row in kept.rows.values()]
        self._rewrite(lines)  # without the torn last line and the failed questions
        return kept

    def append(self, kind: str, value: JsonObject) -> None:
        """Add a line: kind "row" or "ingest".

        Raises:
            EvalError: the disk refuses.
        """
        self._write(_line({kind: value}))

    def remove(self) -> None:
        """The result file holds everything now."""
        self.path.unlink(missing_ok=True)

    def _rewrite(self, lines: Sequence[JsonObject]) -> None:
        beside = self.path.with_name(f".{self.path.name}.new")
        try:
            file = open(beside, "wb")  # noqa: SIM115 - it becomes the rows file
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # locked before it can be found under its name
            file.write(b"".join(_line(value) for value in [self._head, *lines]))
            file.flush()
            os.replace(beside, self.path)
        except OSError as error:
            raise EvalError(f"cannot write {self.path}: {error.strerror or error}") from None
        self._file.close()
        self._file = file

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise EvalError(f"cannot write {self.path}: {error.strerror or error}") from None

    def _read(self) -> tuple[Kept, str | None]:
        """What is kept, and the digest of its configuration; None for a file that holds nothing yet."""
        kept, head = Kept(), None
        # A kill may tear the last line only, and the first is written whole, with the file's name.
        *lines, last = self.path.read_bytes().split(b"\n")
        if lines and _whole(last):
            lines.append(last)
        elif last and not lines:
            raise self._damaged(1, "it is not whole")
        for number, line in enumerate(lines, start=1):
            try:
                value = parsed(line)
                if number == 1:
                    check(value, {"configuration_digest": str, "format": str})
                    head = str(value["configuration_digest"])
                elif isinstance(value, dict) and "row" in value:
                    check(value, {"row": ROW})
                    kept.rows[value["row"]["id"]] = value["row"]
                else:
                    check(value, {"ingest": INGEST})
                    kept.ingest[value["ingest"]["collection"]] = value["ingest"]
            except (ValueError, FormError) as error:
                raise self._damaged(number, str(error)) from None
        return kept, head

    def _damaged(self, line: int, why: str) -> EvalError:
        what = "which tells of what run it is" if line == 1 else "a finished question"
        return EvalError(
            f"{self.path}:{line}, {what}, is damaged: {why}; mend the line"
            + (", or begin anew with --overwrite" if line == 1 else " or take it out, and its question is asked again")
        )


def _whole(line: bytes) -> bool:
    try:
        return bool(line) and isinstance(parsed(line), dict)
    except ValueError:
        return False


def _result_there(out: Path, *, overwrite: bool) -> JsonObject | None:
    """The result file, if there is one. One that cannot be read may only be overwritten."""
    if not out.exists():
        return None
    try:
        return load(out)
    except EvalError:
        if overwrite:
            return None
        raise


def checked_out(out: Path) -> Path:
    """The path of a file that is to be written.

    Raises:
        UsageError: it names no file.
    """
    if not out.name or out.name == ".." or out.is_dir():
        raise UsageError(f"--out is {str(out)!r}, which is a folder; give the name of a file")
    return out


def rows_path(out: Path) -> Path:
    """Where the rows of a run that is not finished stand."""
    return out.with_name(f"{out.name}.rows.jsonl")


def failed(row: Mapping[str, Any]) -> bool:
    """Whether retrieval or a request failed, so that `--resume` asks the question again. A refusal is an answer."""
    parts = (row.get("answer"), row.get("verdict"))
    return bool(row.get("error")) or any(part is not None and bool(part.get("failed")) for part in parts)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
