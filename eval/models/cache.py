"""Replies on disk, so that nothing is asked, and paid for, twice."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from eval.errors import EvalError
from eval.models.base import Reply, Request, Usage

_FORMAT = 1
_STOPPED = ("end", "length", "refusal")


class ReplyCache:
    """One file per reply, named by the SHA-256 of the full request.

    Several threads and processes may share a folder: files appear whole or not at all, by renaming. A file that is
    damaged, or of another format, is as good as none and is replaced. Prompts are not stored, only their digest.
    """

    def __init__(self, folder: Path) -> None:
        """Prepares the cache; the folder is made with the first reply."""
        self.folder = folder

    def __repr__(self) -> str:
        return f"ReplyCache({str(self.folder)!r})"

    def get(self, digest: str) -> Reply | None:
        """Returns the reply stored for a request's digest, marked as cached; None if there is none that is whole."""
        try:
            entry = json.loads(self._path(digest).read_bytes())
            stored = entry["reply"]
            if entry["format"] != _FORMAT or entry["request"] != digest or entry["check"] != _check(stored):
                return None
            return _reply(stored)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def put(self, digest: str, identity: Mapping[str, Any], request: Request, reply: Reply) -> None:
        """Stores a reply; the last one stored for a digest is the one that stays.

        Raises:
            EvalError: the folder cannot be written.
        """
        stored = {
            "text": reply.text,
            "usage": [reply.usage.input_tokens, reply.usage.output_tokens],
            "seconds": reply.seconds,
            "stopped": reply.stopped,
        }
        entry = {
            "format": _FORMAT,
            "request": digest,
            "about": {**identity, "max_tokens": request.max_tokens, "repeat": request.repeat},
            "reply": stored,
            "check": _check(stored),
        }
        path = self._path(digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, _canonical(entry))
        except OSError as error:
            raise EvalError(
                f"the cache of replies cannot be written in {str(self.folder)!r}: {error.strerror or error}; free "
                "space or name another folder, else what is asked now is paid for again"
            ) from error

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.json"


def request_digest(identity: Mapping[str, Any], request: Request) -> str:
    """Returns the SHA-256 of everything that settles a reply: provider, model, server, temperature, and the request."""
    return hashlib.sha256(
        _canonical(
            {
                "format": _FORMAT,
                "identity": dict(identity),
                "system": request.system,
                "prompt": request.prompt,
                "max_tokens": request.max_tokens,
                "schema": request.schema,
                "repeat": request.repeat,
            }
        )
    ).hexdigest()


def _reply(stored: Mapping[str, Any]) -> Reply:
    text, (read, written), seconds = stored["text"], stored["usage"], stored["seconds"]
    if not (isinstance(text, str) and isinstance(read, int) and isinstance(written, int)):
        raise TypeError("not a reply")
    if stored["stopped"] not in _STOPPED:
        raise ValueError("not a reply")
    return Reply(text=text, usage=Usage(read, written), seconds=float(seconds), stopped=stored["stopped"], cached=True)


def _check(stored: object) -> str:
    return hashlib.sha256(_canonical(stored)).hexdigest()


def _canonical(value: object) -> bytes:
    # A lone surrogate, which a model can send as an escape, has no UTF-8: ASCII escapes keep it.
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


def _write(path: Path, content: bytes) -> None:
    """Writes beside the path, then renames. Not synced: after a power loss an empty file is a miss."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
