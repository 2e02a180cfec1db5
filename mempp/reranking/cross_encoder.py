"""A cross-encoder that was exported to ONNX, from a directory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.base import checked_texts
from mempp.encoders.directory_settings import read_settings
from mempp.encoders.lazy import Lazy
from mempp.encoders.minilm import checked_threads
from mempp.encoders.pieces import read_bytes
from mempp.encoders.runtime import start_session
from mempp.errors import EncoderError, EncoderUnavailableError, InputError, quoted
from mempp.reranking.pairs import PairCutter, Pieces

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

_PIECES_PER_BATCH = 2048  # padded; as for sentence models, see `mempp.encoders.runtime`
_TEXTS_PER_ROUND = 2048
_LONGEST_PAIR = 1_000_000  # pieces; more than any model reads
_LOGITS = "logits"
_INTEGERS: dict[str, type[np.integer[Any]]] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


@dataclass(frozen=True)
class _Model:
    """A loaded model."""

    cutter: PairCutter
    session: "InferenceSession"
    output: str
    pad_number: int
    lower_case: bool
    where: str


class CrossEncoder:
    """A model's directory with `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`, as a re-ranker.

    For models of sentence-transformers' CrossEncoder kind: inputs input_ids, attention_mask and, where the model has
    types, token_type_ids; output `logits`, shape (n, 1) or (n, 2). The score lies in 0…1: 1 / (1 + e^-l)
    of one logit l, as sentence-transformers gives by default, and the softmax share of the second of two, whose class
    is "relevant". The order is that of the logits, up to 36; more than that is a score of 1.

    Maximum length, padding and lower-casing are read from tokenizer_config.json, sentence_bert_config.json and
    config.json where they lie beside. Calls from several threads run side by side.
    """

    def __init__(self, path: str | Path, *, max_length: int | None = None, threads: int | None = None) -> None:
        """Prepares the re-ranker; the model is read at the first score.

        Args:
            path: the directory.
            max_length: pieces kept of question and text together, special tokens counted in; None for the model's own.
            threads: threads per call; None for one per physical core that this process may use.

        Raises:
            InputError: an argument is not usable, or `path` is no directory.
        """
        if max_length is not None and (isinstance(max_length, bool) or not isinstance(max_length, int)):
            raise InputError(f"max_length is {quoted(max_length)}; give a whole number above 0")
        if max_length is not None and not 1 <= max_length <= _LONGEST_PAIR:
            raise InputError(f"max_length is {quoted(max_length)}; give a whole number from 1 to {_LONGEST_PAIR:,}")
        if not isinstance(path, str | Path) or path == "" or not _is_directory(path):
            raise InputError(f"{quoted(path)} is no directory; a cross-encoder's directory holds model.onnx")
        self._path = Path(path)
        self._max_length = max_length
        self._threads = checked_threads(threads)
        self._model = Lazy(self._load)

    def __repr__(self) -> str:
        return f"CrossEncoder({str(self._path)!r})"

    def load(self) -> None:
        """Reads the model now, rather than at the first score.

        Raises:
            EncoderUnavailableError: files are missing, broken, or not those of a cross-encoder.
        """
        self._model.get()

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """Returns how well each text answers the question, shape (n,), each in 0…1.

        The question stays whole and the text is cut at the model's maximum length (see `PairCutter`). A score may
        differ in its last bits with the texts it is computed with.

        Raises:
            InputError: the question or an item is no text.
            EncoderUnavailableError: as `load`.
            EncoderError: the model failed, or gave a number that is none.
        """
        if not isinstance(question, str):
            raise InputError(f"the question is {quoted(question)}, a {type(question).__name__}; give a text")
        if isinstance(texts, str):
            raise InputError(f"score takes a sequence of texts, not {quoted(texts)}: put a text in a list")
        (question,) = checked_texts([question])
        checked = checked_texts(texts)
        scores = np.empty(len(checked), np.float64)
        if not checked:
            return scores
        model = self._model.get()
        if model.lower_case:
            question, checked = question.lower(), [text.lower() for text in checked]
        for start in range(0, len(checked), _TEXTS_PER_ROUND):
            rows = model.cutter(question, checked[start : start + _TEXTS_PER_ROUND])
            for batch in _batches([len(row.numbers) for row in rows]):
                scores[[start + place for place in batch]] = _run(model, [rows[place] for place in batch])
        return scores

    def _load(self) -> _Model:
        model, tokenizer = self._file("model.onnx"), self._file("tokenizer.json")
        settings = read_settings(self._path)
        max_length = self._max_length or settings.max_length
        cutter = PairCutter(read_bytes(tokenizer), max_length=max_length, where=str(tokenizer))
        session = start_session(model, threads=self._threads, where=str(model))
        pad_number = settings.pad_number
        if pad_number is None and settings.pad_token is not None:
            pad_number = cutter.token_number(settings.pad_token)
        return _Model(
            cutter=cutter,
            session=session,
            output=_logits_of(session, model),
            pad_number=pad_number or 0,  # it is masked, so a model that names none is served by number 0
            lower_case=settings.lower_case,
            where=str(model),
        )

    def _file(self, name: str) -> Path:
        for candidate in (self._path / name, self._path / "onnx" / name):
            if candidate.is_file():
                return candidate
        raise EncoderUnavailableError(
            f"{self._path} holds neither {name} nor onnx/{name}; a cross-encoder's directory holds the model exported "
            "to ONNX (for sequence classification) and its tokenizer"
        )


def _is_directory(path: str | Path) -> bool:
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):  # a name longer than the system takes, a zero byte in it
        return False


def _logits_of(session: "InferenceSession", model: Path) -> str:
    """The output that is read: the one named logits, else the only one."""
    shapes = {output.name: output.shape for output in session.get_outputs()}
    name = _LOGITS if _LOGITS in shapes else next(iter(shapes)) if len(shapes) == 1 else None
    width = None if name is None else shapes[name][-1] if len(shapes[name]) == 2 else 0
    if name is None or (isinstance(width, int) and width not in (1, 2)):
        found = ", ".join(f"{output} {shape}" for output, shape in shapes.items())
        raise EncoderUnavailableError(
            f"{model} has the outputs {quoted(found, 200)}; a cross-encoder has one named {_LOGITS!r} with one or two "
            "numbers per pair: export it for sequence classification"
        )
    return name


def _run(model: _Model, rows: list[Pieces]) -> NDArray[np.float64]:
    """The scores of one batch, (n,)."""
    shape = (len(rows), max(len(row.numbers) for row in rows))
    fed = {
        "input_ids": np.full(shape, model.pad_number, np.int64),
        "attention_mask": np.zeros(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
        "position_ids": np.broadcast_to(np.arange(shape[1]), shape),
    }
    for place, row in enumerate(rows):
        fed["input_ids"][place, : len(row.numbers)] = row.numbers
        fed["attention_mask"][place, : len(row.numbers)] = 1
        fed["token_type_ids"][place, : len(row.numbers)] = row.types
    feed = {
        wanted.name: np.ascontiguousarray(fed[wanted.name], dtype=_INTEGERS[wanted.type])
        for wanted in model.session.get_inputs()
    }
    try:
        (output,) = model.session.run([model.output], feed)
    except MemoryError:
        raise
    except Exception as error:
        raise EncoderError(
            f"{model.where} failed on {len(rows)} pairs of up to {shape[1]} pieces: {str(error)[:500]}; if it takes "
            "fewer pieces, give CrossEncoder a smaller max_length"
        ) from error
    logits = np.asarray(output)
    if logits.dtype.kind != "f" or logits.shape not in ((len(rows), 1), (len(rows), 2)):
        raise EncoderError(
            f"output {model.output!r} of {model.where} has shape {logits.shape} and type {logits.dtype} for "
            f"{len(rows)} pairs; expected ({len(rows)}, 1) or ({len(rows)}, 2), floating"
        )
    wide = logits.astype(np.float64)
    if not np.isfinite(wide).all():
        raise EncoderError(f"{model.where} gave a logit that is no finite number; the model is faulty")
    odds = wide[:, 0] if wide.shape[1] == 1 else wide[:, 1] - wide[:, 0]
    # 1 / (1 + e^-x) without overflow.
    small = np.exp(-np.abs(odds))
    return np.asarray(np.where(odds >= 0, 1 / (1 + small), small / (1 + small)))


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Places grouped by length, for little padding; at most `_PIECES_PER_BATCH` padded pieces a group of several."""
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batches and (len(batches[-1]) + 1) * lengths[place] <= _PIECES_PER_BATCH:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches
