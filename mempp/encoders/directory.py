"""Any sentence-transformers model that was exported to ONNX, from a directory."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.base import EncoderIdentity, checked_texts
from mempp.encoders.directory_settings import DirectorySettings, read_settings
from mempp.encoders.lazy import Lazy
from mempp.encoders.minilm import checked_threads
from mempp.encoders.pieces import PieceCutter, read_bytes
from mempp.encoders.runtime import POOLINGS, SentenceModel, start_session
from mempp.errors import EncoderUnavailableError, InputError, quoted

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto

_POOLED_OUTPUT = "sentence_embedding"
_PIECE_OUTPUTS = ("last_hidden_state", "token_embeddings")
_GRAPH_POOLS = "graph"

# Digests of files by (path, size, modification time): hashing 500 MB again at every open would take a second.
_digests: dict[tuple[str, int, int], str] = {}


@dataclass(frozen=True)
class _Run:
    """How a model is run: all that its vectors depend on beside its files. `pooling` may be "graph"."""

    pooling: str
    dimensions: int
    max_length: int
    query_prefix: str
    document_prefix: str
    lower_case: bool
    pad_number: int


@dataclass(frozen=True)
class _Examined:
    """A directory after a look into its graph, without the weights having been given to onnxruntime."""

    run: _Run
    output: str
    identity: EncoderIdentity


class DirectoryEncoder:
    """A model's directory with `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`.

    Pooling, dimensions, maximum length, prefixes and lower-casing are read from the files that sentence-transformers
    writes beside them (modules.json, 1_Pooling/config.json, sentence_bert_config.json,
    config_sentence_transformers.json, tokenizer_config.json, config.json); an argument that is given wins. A graph
    with the output `sentence_embedding` pools by itself unless `pooling` is given. Every vector is scaled to length 1.

    The identity is a digest of the model's and the tokenizer's bytes and of these settings: a directory may be moved
    or renamed, but any change of what is computed makes another encoder. A text's vector may differ in its last bits
    with the texts it is encoded with (see `SentenceModel.encode`).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        pooling: str | None = None,
        dimensions: int | None = None,
        max_length: int | None = None,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        threads: int | None = None,
    ) -> None:
        """Prepares the encoder; the model is read at the first encode, its digest taken when the identity is asked.

        Args:
            path: the directory.
            pooling: one of mean, cls, max, mean_sqrt_len, lasttoken.
            dimensions: keep the first so many components (only sensible for models trained for it), or tell how
                many there are where neither the graph nor config.json does.
            max_length: pieces kept of a text, special tokens counted in.
            query_prefix: put before a question, such as "query: ".
            document_prefix: put before a document.
            threads: threads per call; None for one per physical core that this process may use.

        Raises:
            InputError: an argument is not usable, or `path` is no directory.
        """
        if pooling is not None and pooling not in POOLINGS:
            raise InputError(f"pooling {quoted(pooling)} is not one of {', '.join(POOLINGS)}")
        for name, number in (("dimensions", dimensions), ("max_length", max_length)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise InputError(f"{name} is {quoted(number)}; give a whole number above 0")
        for name, prefix in (("query_prefix", query_prefix), ("document_prefix", document_prefix)):
            if prefix is not None and not isinstance(prefix, str):
                raise InputError(f"{name} is {quoted(prefix)}; give a text")
        self._path = Path(path)
        if path == "" or not self._path.is_dir():
            raise InputError(f"{quoted(str(path))} is no directory; an encoder's directory holds model.onnx")
        self._pooling = pooling
        self._dimensions = dimensions
        self._max_length = max_length
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._threads = checked_threads(threads)
        self._recorded: EncoderIdentity | None = None
        self._examined = Lazy(self._examine)
        self._model = Lazy(self._load)

    @classmethod
    def from_identity(cls, recorded: EncoderIdentity) -> "DirectoryEncoder":
        """Returns the encoder that a store was made with; the files' digest is compared at the first encode.

        Raises:
            EncoderUnavailableError: the directory is gone, or the description is not one that this class wrote.
        """
        facts = recorded.description
        path = Path(str(facts.get("path")))
        if not path.is_dir():
            raise EncoderUnavailableError(
                f"the encoder {recorded.name} was made from {quoted(str(path))}, which is no directory now; pass "
                "encoder=DirectoryEncoder(path) with the place where the model lies, or put it back"
            )
        pooling = facts.get("pooling")
        given: dict[str, Any] = {
            name: facts.get(name) for name in ("dimensions", "max_length", "query_prefix", "document_prefix")
        }
        try:
            encoder = cls(path, pooling=None if pooling == _GRAPH_POOLS else pooling, **given)  # type: ignore[arg-type]
        except InputError as error:
            raise EncoderUnavailableError(f"the recorded encoder {recorded.name} cannot be built: {error}") from error
        encoder._recorded = recorded
        return encoder

    def __repr__(self) -> str:
        return f"DirectoryEncoder({str(self._path)!r})"

    @property
    def identity(self) -> EncoderIdentity:
        """Which vectors this encoder makes; reads the files once to take their digest.

        Raises:
            EncoderUnavailableError: files are missing, broken, or ask for what cannot be run.
        """
        return self._recorded or self._examined.get().identity

    def load(self) -> None:
        """Reads the model now, rather than at the first encode; errors as `encode_documents`."""
        self._model.get()

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns (n, dimensions) unit rows in the order of `texts`.

        Raises:
            InputError: an item is no text.
            EncoderUnavailableError: as `identity`, or the files are no longer those that a store was made with.
            EncoderError: the model failed.
        """
        return self._encode(texts, question=False)

    def encode_question(self, text: str) -> NDArray[np.float32]:
        """Returns one unit vector (dimensions,), with the prefix of questions; errors as `encode_documents`."""
        vector: NDArray[np.float32] = self._encode([text], question=True)[0]
        return vector

    def _encode(self, texts: Sequence[str], *, question: bool) -> NDArray[np.float32]:
        checked = checked_texts(texts)
        if not checked:
            return np.empty((0, self.identity.dimensions), dtype=np.float32)
        model = self._model.get()
        run = self._examined.get().run
        prefix = run.query_prefix if question else run.document_prefix
        prepared = [prefix + text for text in checked] if prefix else checked
        return model.encode([text.lower() for text in prepared] if run.lower_case else prepared)

    def _load(self) -> SentenceModel:
        examined = self._examined.get()
        if self._recorded is not None and self._recorded.name != examined.identity.name:
            raise EncoderUnavailableError(
                f"the files in {self._path} are no longer those of the encoder {self._recorded.name} (they are "
                f"{examined.identity.name}); put the model's original files back, or pass "
                "encoder=DirectoryEncoder(path)"
            )
        run = examined.run
        model, tokenizer = _model_file(self._path), _tokenizer_file(self._path)
        return SentenceModel(
            cutter=PieceCutter(read_bytes(tokenizer), max_length=run.max_length, where=str(tokenizer)),
            session=start_session(model, threads=self._threads, where=str(model)),
            output=examined.output,
            pooling=None if run.pooling == _GRAPH_POOLS else run.pooling,
            dimensions=run.dimensions,
            pad_number=run.pad_number,
            where=str(model),
        )

    def _examine(self) -> _Examined:
        """Looks at the files: what to run, and under which name."""
        model, tokenizer = _model_file(self._path), _tokenizer_file(self._path)
        settings = read_settings(self._path)
        graph = _read_graph(model)
        pooling, output, width = self._choose_output(graph, settings, model)
        if self._dimensions is not None and width is not None and self._dimensions > width:
            raise InputError(f"dimensions is {self._dimensions}, but the vectors of {model} have {width}")
        dimensions = self._dimensions or width
        if dimensions is None:
            raise EncoderUnavailableError(
                f"neither {model} nor the files beside it tell how long its vectors are: pass dimensions="
            )
        run = _Run(
            pooling=pooling,
            dimensions=dimensions,
            max_length=self._max_length or settings.max_length,
            query_prefix=settings.query_prefix if self._query_prefix is None else self._query_prefix,
            document_prefix=settings.document_prefix if self._document_prefix is None else self._document_prefix,
            lower_case=settings.lower_case,
            pad_number=_pad_number(settings, tokenizer),
        )
        if (run.query_prefix or run.document_prefix) and not settings.prefix_pooled and pooling != _GRAPH_POOLS:
            raise EncoderUnavailableError(
                f"{self._path} leaves the prefix out of the pooling (include_prompt: false), which is not supported"
            )
        # Names of files do not count: model.onnx may stand in the directory itself or in onnx/.
        digests = [_digest(file) for file in (tokenizer, model, *_external(graph, model))]
        facts = json.dumps([digests, asdict(run)], sort_keys=True, ensure_ascii=True)
        digest = hashlib.sha256(facts.encode()).hexdigest()
        description = {"kind": "directory", "path": str(self._path.resolve()), "digest": digest, **asdict(run)}
        return _Examined(run, output, EncoderIdentity(f"onnx-{dimensions}-{digest[:16]}", dimensions, description))

    def _choose_output(
        self, graph: "GraphProto", settings: DirectorySettings, model: Path
    ) -> tuple[str, str, int | None]:
        """Returns the pooling, the output that is read, and its width where known."""
        axes = {output.name: output.type.tensor_type.shape.dim for output in graph.output}
        widths = {name: dims[-1].dim_value or None if dims else None for name, dims in axes.items()}
        if self._pooling is None and _POOLED_OUTPUT in axes:
            return _GRAPH_POOLS, _POOLED_OUTPUT, widths[_POOLED_OUTPUT] or settings.dimensions
        if settings.graph_must_pool is not None and self._pooling is None:
            raise EncoderUnavailableError(
                f"{model} has no output {_POOLED_OUTPUT!r}, and {settings.graph_must_pool}: export the whole "
                "sentence-transformers model, so that the graph has that output, or give pooling="
            )
        named = [name for name in _PIECE_OUTPUTS if name in axes]
        output = next(iter(named + [name for name, dims in axes.items() if len(dims) == 3]), None)
        if output is None:
            raise EncoderUnavailableError(
                f"{model} has the outputs {quoted(', '.join(axes))}, none of them a vector per piece (three axes) "
                f"and none named {_POOLED_OUTPUT!r}: export it for feature extraction"
            )
        return self._pooling or settings.pooling, output, widths[output] or settings.dimensions


def _model_file(directory: Path) -> Path:
    for candidate in (directory / "model.onnx", directory / "onnx" / "model.onnx"):
        if candidate.is_file():
            return candidate
    raise EncoderUnavailableError(
        f"{directory} holds neither model.onnx nor onnx/model.onnx; export the model to ONNX (the hub page of most "
        "sentence-transformers models offers the file)"
    )


def _tokenizer_file(directory: Path) -> Path:
    for candidate in (directory / "tokenizer.json", directory / "onnx" / "tokenizer.json"):
        if candidate.is_file():
            return candidate
    raise EncoderUnavailableError(f"{directory} holds no tokenizer.json; take it from the model's source")


def _pad_number(settings: DirectorySettings, tokenizer: Path) -> int:
    """Returns the padding piece. It is masked, so a model that names none is served by number 0."""
    if settings.pad_number is not None:
        return settings.pad_number
    if settings.pad_token is None:
        return 0
    return (
        PieceCutter(read_bytes(tokenizer), max_length=1 << 20, where=str(tokenizer)).token_number(settings.pad_token)
        or 0
    )


def _read_graph(model: Path) -> "GraphProto":
    """Returns the graph, with the weights that lie in the file itself.

    Raises:
        EncoderUnavailableError: the file is unreadable or no ONNX model.
    """
    import onnx

    try:
        graph = onnx.load_model(str(model), load_external_data=False).graph
    except MemoryError:
        raise
    except Exception as error:
        raise EncoderUnavailableError(
            f"{model} is no readable ONNX model ({str(error)[:200]}); restore it from the model's source"
        ) from error
    if not graph.output:
        raise EncoderUnavailableError(f"{model} is an ONNX model without outputs; restore it from the model's source")
    return graph


def _external(graph: "GraphProto", model: Path) -> list[Path]:
    """Returns the files beside the model that hold weights of it, in the order of their names.

    Raises:
        EncoderUnavailableError: one is missing, or lies outside the model's directory.
    """
    from onnx import TensorProto

    names = {
        entry.value
        for tensor in _tensors(graph)
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    folder = model.parent
    for name in names:
        if not (folder / name).is_file() or Path(name).is_absolute() or ".." in Path(name).parts:
            raise EncoderUnavailableError(
                f"{model} keeps weights in {quoted(name)}, which is no file in {folder}; "
                "take it from the model's source"
            )
    return [folder / name for name in sorted(names)]


def _tensors(graph: "GraphProto") -> Iterator["TensorProto"]:
    """Every tensor of the graph, those in constants and in inner graphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)
            for inner in attribute.graphs:
                yield from _tensors(inner)


def _digest(path: Path) -> str:
    try:
        facts = path.stat()
        key = (str(path.resolve()), facts.st_size, facts.st_mtime_ns)
        if key not in _digests:
            with path.open("rb") as file:
                _digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return _digests[key]
    except OSError as error:
        raise EncoderUnavailableError(f"cannot read {path}: {error.strerror or error}") from error
