"""Replies that are kept, so that nothing is asked, and paid for, twice."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, get_args

from mempp.errors import StoreWriteError
from mempp.llm.base import Reply, Request, Stopped, Usage

_FORMAT = 1
_STOPPED = get_args(Stopped)


class Replies(Protocol):
    """Where replies are kept, by the digest of the request. For many threads at once."""

    def get(self, digest: str) -> Reply | None:
        """Returns the reply of a request, marked as cached; None if there is none."""
        ...

    def put(self, digest: str, identity: Mapping[str, Any], request: Request, reply: Reply) -> None:
        """Keeps a reply; the last one for a digest is the one that stays.

        Raises:
            StoreWriteError: it cannot be kept.
        """
        ...


class MemoryReplies:
    """Replies that live as long as this object; with `behind`, those that lie there are found too, and none written."""

    def __init__(self, behind: Replies | None = None) -> None:
        self._behind = behind
        self._replies: dict[str, Reply] = {}

    def __repr__(self) -> str:
        return f"MemoryReplies({'' if self._behind is None else repr(self._behind)})"

    def get(self, digest: str) -> Reply | None:
        """Returns the reply of a request, marked as cached; None if there is none."""
        reply = self._replies.get(digest)
        return self._behind.get(digest) if reply is None and self._behind is not None else reply

    def put(self, digest: str, identity: Mapping[str, Any], request: Request, reply: Reply) -> None:
        """Keeps a reply."""
        self._replies[digest] = replace(reply, cached=True, lost=0)


class ReplyCache:
    """One file per reply, named by the SHA-256 of the full request.

    Several threads and processes may share a folder: files appear whole or not at all, by renaming. A file that is
    damaged, or of another format, is as good as none and is replaced. Prompts are not stored, only their digest.
    """

    def __init__(self, folder: str | os.PathLike[str], *, required: bool = True) -> None:
        """Prepares the cache; the folder is made with the first reply.

        Args:
            folder: where the files lie.
            required: whether a reply that cannot be written is an error; else it is not kept, and no more.
        """
        self.folder = Path(folder)
        self.required = required

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
            StoreWriteError: the folder cannot be written, and that is required.
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
            if not self.required:
                return
            raise self._failure(error) from error

    def check(self) -> None:
        """Make the folder, and make sure that a file can be written to it.

        Raises:
            StoreWriteError: it cannot be written, and that is required.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".", suffix=".part"):
                pass
        except OSError as error:
            if self.required:
                raise self._failure(error) from error

    def _failure(self, error: OSError) -> StoreWriteError:
        return StoreWriteError(
            f"the cache of replies cannot be written in {str(self.folder)!r}: {error.strerror or error}; free space or "
            "name another folder, else what is asked now is paid for again"
        )

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


def usable(request: Request, reply: Reply) -> bool:
    """Whether a reply may be kept, and served again, for a request."""
    return request.usable is None or request.usable(reply)


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
