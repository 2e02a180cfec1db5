"""Files in the user's cache directory that are dear to make and checked before they are used.

A cached file is one header line, `mempp-cache 1 <SHA-256 of the rest in hex>`, and the content. Files are written
beside their place and renamed into it, so a reader sees a whole file or none, and the last of several writers wins
with the same content.
"""

import contextlib
import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

_HEADER = b"mempp-cache 1 "
_HEADER_LENGTH = len(_HEADER) + 64 + 1


def cache_directory() -> Path:
    """Returns $MEMPP_CACHE, else $XDG_CACHE_HOME/mempp, else ~/.cache/mempp; an empty variable counts as unset.

    Raises:
        RuntimeError: none of the variables is set and the user has no home directory.
    """
    if own := os.environ.get("MEMPP_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "mempp"
    return Path.home() / ".cache" / "mempp"


def cached(name: str, make: Callable[[], bytes]) -> bytes:
    """Returns the content cached under `name`, making it first where it is missing or damaged.

    Where the cache cannot be written, the content is made in memory and a RuntimeWarning says so.

    Args:
        name: a file name that changes whenever the content would.
        make: returns the content; its errors pass.
    """
    try:
        path = cache_directory() / name
    except RuntimeError as error:
        content = make()
        _warn(name, str(error))
        return content
    content_or_none = _read(path)
    if content_or_none is not None:
        return content_or_none
    content = make()
    try:
        _write(path, content)
    except OSError as error:
        _warn(str(path), error.strerror or str(error))
    return content


def _read(path: Path) -> bytes | None:
    """Returns the content of a cached file, None when it is missing, unreadable or not what was written."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_LENGTH)
            content = file.read()
    except OSError:
        return None
    digest = hashlib.sha256(content).hexdigest().encode()
    return content if header == _HEADER + digest + b"\n" else None


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_HEADER + hashlib.sha256(content).hexdigest().encode() + b"\n")
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _warn(path: str, reason: str) -> None:
    warnings.warn(
        f"cannot keep {path} in the cache ({reason}): it is built in memory in every process; "
        "set MEMPP_CACHE to a directory that can be written",
        RuntimeWarning,
        stacklevel=2,
    )
