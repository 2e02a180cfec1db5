"""Running an ONNX sentence model on the CPU: threads, padded batches, pooling."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.base import unit_rows
from mempp.encoders.pieces import PieceCutter
from mempp.errors import EncoderError, EncoderUnavailableError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

# Measured on two cores: beyond some 2,000 padded pieces a batch no longer fits the cache and gets slower.
_PIECES_PER_BATCH = 2048
# Texts whose pieces are held at once; sorting by length happens among these.
_TEXTS_PER_ROUND = 2048

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len", "lasttoken")
"""How piece vectors become one; the names are those of sentence-transformers."""

_FED_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_INTEGERS: dict[str, type[np.integer]] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


@dataclass(frozen=True)
class SentenceModel:
    """A loaded model: text to unit vectors. Thread-safe.

    Attributes:
        cutter: text to piece numbers.
        session: the graph in onnxruntime.
        output: the graph's output that is read: (rows, d) when `pooling` is None, else (rows, pieces, d).
        pooling: one of `POOLINGS`, or None when the graph pools by itself.
        dimensions: components kept of each vector (the first ones).
        pad_number: the piece that fills short rows; masked, so its choice hardly matters.
        where: what to name in messages.
    """

    cutter: PieceCutter
    session: "InferenceSession"
    output: str
    pooling: str | None
    dimensions: int
    pad_number: int
    where: str

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns (n, dimensions) unit rows in the order of `texts`.

        Texts of about the same length go through the graph together, padded to the longest of them. Padding is masked
        but changes the order of additions: a text's vector may differ in the last bits with the company it is in
        (cosine above 0.999999), never more.

        Raises:
            EncoderError: the graph failed, or gave something else than such vectors.
        """
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), _TEXTS_PER_ROUND):
            rows = [self.cutter(text) or [self.pad_number] for text in texts[start : start + _TEXTS_PER_ROUND]]
            for batch in _batches([len(row) for row in rows]):
                vectors[[start + position for position in batch]] = self._run([rows[position] for position in batch])
        return vectors

    def _run(self, rows: list[list[int]]) -> NDArray[np.float32]:
        longest = max(len(row) for row in rows)
        numbers = np.full((len(rows), longest), self.pad_number, dtype=np.int64)
        mask = np.zeros((len(rows), longest), dtype=np.int64)
        for position, row in enumerate(rows):
            numbers[position, : len(row)] = row
            mask[position, : len(row)] = 1
        what = f"{self.where} failed on {len(rows)} texts of up to {longest} pieces"
        output = run_graph(self.session, self.output, self._feed(numbers, mask), what)
        expected = 2 if self.pooling is None else 3
        if output.ndim != expected or output.shape[0] != len(rows) or output.shape[-1] < self.dimensions:
            raise EncoderError(
                f"output {self.output!r} of {self.where} has shape {output.shape} for {len(rows)} texts; expected "
                f"{expected} axes and at least {self.dimensions} dimensions"
            )
        pooled = output if self.pooling is None else pool(output, mask, self.pooling)
        return unit_rows(pooled[:, : self.dimensions], of=self.where)

    @cached_property
    def _inputs(self) -> tuple[tuple[str, type[np.integer]], ...]:
        """Name and type of what the graph asks for; asked of the session once."""
        return tuple((one.name, _INTEGERS[one.type]) for one in self.session.get_inputs())

    def _feed(self, numbers: NDArray[np.int64], mask: NDArray[np.int64]) -> dict[str, NDArray[np.integer]]:
        feed: dict[str, NDArray[np.integer]] = {}
        for name, integer in self._inputs:
            match name:
                case "input_ids":
                    values = numbers
                case "attention_mask":
                    values = mask
                case "token_type_ids":
                    values = np.zeros_like(numbers)
                case _:
                    values = np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
            feed[name] = np.ascontiguousarray(values, dtype=integer)
        return feed


def run_graph(
    session: "InferenceSession", output: str, feed: Mapping[str, NDArray[np.integer]], what: str
) -> NDArray[np.floating]:
    """Returns one output of the graph.

    Raises:
        EncoderError: onnxruntime failed; the message begins with `what`.
    """
    try:
        (values,) = session.run([output], feed)
    except MemoryError:
        raise
    except Exception as error:
        raise EncoderError(f"{what}: {str(error)[:500]}") from error
    return np.asarray(values)


def pool(vectors: NDArray[np.floating], mask: NDArray[np.int64], pooling: str) -> NDArray[np.float32]:
    """Returns one vector per row, (rows, d), from piece vectors (rows, pieces, d), as sentence-transformers does.

    Args:
        vectors: one vector per piece.
        mask: (rows, pieces), 1 for a piece of the text and 0 for padding, which follows the text; no row all 0.
        pooling: `mean`: Σ vᵢ / n; `mean_sqrt_len`: Σ vᵢ / √n; `max`: per component; `cls`: the first piece;
            `lasttoken`: the last one.
    """
    values = np.asarray(vectors, dtype=np.float32)
    lengths = mask.sum(axis=1)
    match pooling:
        case "cls":
            return values[:, 0]
        case "lasttoken":
            return np.asarray(values[np.arange(len(values)), lengths - 1])
        case "max":
            return np.asarray(np.where(mask[:, :, None] == 1, values, -np.inf).max(axis=1))
    # Masked padding is multiplied away; np.where first, since a padded position may hold NaN, and NaN × 0 is NaN.
    total = np.where(mask[:, :, None] == 1, values, np.float32(0)).sum(axis=1)
    divisor = lengths if pooling == "mean" else np.sqrt(lengths)
    return np.asarray(total / divisor[:, None], dtype=np.float32)


def start_session(model: bytes | Path, *, threads: int | None, where: str) -> "InferenceSession":
    """Starts onnxruntime on a graph, on the CPU, with options of this session only.

    The one thing set for the whole process: onnxruntime's telemetry is off, since nothing here speaks to anybody.

    Args:
        model: the serialised graph, or its file (needed when weights lie in files beside it).
        threads: threads within an operator; None for one per physical core that this process may use.
        where: the model's name, for messages.

    Raises:
        EncoderUnavailableError: onnxruntime does not take the graph, or it asks for inputs that a text cannot give.
    """
    import onnxruntime

    if hasattr(onnxruntime, "disable_telemetry_events"):
        onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores() if threads is None else threads
    options.inter_op_num_threads = 1
    # Waiting threads spin while a run lasts, which saves a fifth of a question's time on two cores, and stop with it:
    # left spinning between runs they would cost every other thread a core.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3
    try:
        session: InferenceSession = onnxruntime.InferenceSession(
            str(model) if isinstance(model, Path) else model, options, providers=["CPUExecutionProvider"]
        )
    except MemoryError:
        raise
    except Exception as error:
        raise EncoderUnavailableError(
            f"onnxruntime does not take {where} ({str(error)[:500]}); restore the file from the model's source"
        ) from error
    for graph_input in session.get_inputs():
        if graph_input.name not in _FED_INPUTS or graph_input.type not in _INTEGERS:
            raise EncoderUnavailableError(
                f"{where} asks for the input {graph_input.name!r} of {graph_input.type}; a sentence model may ask for "
                f"{', '.join(_FED_INPUTS)}, as int64 or int32: export it for feature extraction"
            )
    return session


def usable_cores() -> int:
    """Returns how many physical cores this process may use, at least 1.

    Two hyper-threads of a core count once: matrix products gain nothing from the second.
    """
    try:
        processors = os.sched_getaffinity(0)
    except AttributeError:  # not on macOS
        return max(1, os.cpu_count() or 1)
    cores: set[Any] = set()
    for processor in processors:
        siblings = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text())
        except OSError:
            cores.add(processor)
    return max(1, min(len(cores), _processor_quota()))


def _processor_quota() -> int:
    """Returns the whole processors that the container's quota grants, a large number where there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return 1 << 16


def _batches(lengths: list[int]) -> list[list[int]]:
    """Returns positions grouped for few padded pieces: by length, at most `_PIECES_PER_BATCH` a group if above one."""
    batches: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda position: lengths[position]):
        if batches and (len(batches[-1]) + 1) * lengths[position] <= _PIECES_PER_BATCH:
            batches[-1].append(position)
        else:
            batches.append([position])
    return batches
