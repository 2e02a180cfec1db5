"""Models and servers for the tests of the encoders, made here: a tiny random BERT-like model, a scripted server."""

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

TINY_WIDTH = 12


def tiny_tokenizer() -> Tokenizer:
    """A BERT-like tokenizer that knows single characters and a few words."""
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    words = ["the", "board", "approved", "vendor", "kitchen", "word", "##ing", "##ed", "漢", "字"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *characters, *(f"##{c}" for c in characters), *words]
    tokenizer = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def tiny_graph(
    vocabulary: int,
    *,
    pooled: bool = False,
    inputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids"),
    integer: int = TensorProto.INT64,
    static_width: bool = True,
    seed: int = 0,
) -> onnx.ModelProto:
    """Piece vectors that depend on the piece, its place and (through masked attention) on all others.

    x = E[piece] (+ P[place], only when position_ids is an input); y = x + softmax(x·xᵀ + mask)·x.
    With `pooled`, a second output `sentence_embedding` is the first piece's vector, negated.
    """
    generator = np.random.default_rng(seed)
    weights = {
        "words": generator.standard_normal((vocabulary, TINY_WIDTH)).astype(np.float32),
        "places": generator.standard_normal((512, TINY_WIDTH)).astype(np.float32),
        "one": np.array(1, np.float32),
        "large": np.array(1e9, np.float32),
        "middle": np.array([1], np.int64),
        "first": np.array(0, np.int64),
    }
    nodes = [helper.make_node("Gather", ["words", "input_ids"], ["x0"])]
    x = "x0"
    if "position_ids" in inputs:
        nodes.append(helper.make_node("Gather", ["places", "position_ids"], ["place"]))
        nodes.append(helper.make_node("Add", [x, "place"], ["x1"]))
        x = "x1"
    if "token_type_ids" in inputs:
        nodes.append(helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT))
        weights["last"] = np.array([-1], np.int64)
        nodes.append(helper.make_node("Unsqueeze", ["types", "last"], ["types3"]))
        nodes.append(helper.make_node("Add", [x, "types3"], ["x2"]))
        x = "x2"
    nodes += [
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["mask", "one"], ["below"]),
        helper.make_node("Mul", ["below", "large"], ["far"]),
        helper.make_node("Unsqueeze", ["far", "middle"], ["far3"]),
        helper.make_node("Transpose", [x], ["xt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", [x, "xt"], ["products"]),
        helper.make_node("Add", ["products", "far3"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", x], ["mixed"]),
        helper.make_node("Add", [x, "mixed"], ["last_hidden_state"]),
    ]
    width = TINY_WIDTH if static_width else "width"
    outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "s", width])]
    if pooled:
        nodes.append(helper.make_node("Gather", ["last_hidden_state", "first"], ["cls"], axis=1))
        nodes.append(helper.make_node("Neg", ["cls"], ["sentence_embedding"]))
        outputs.append(helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["b", width]))
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, integer, ["b", "s"]) for name in inputs],
        outputs,
        [numpy_helper.from_array(values, name) for name, values in weights.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_tiny_model(
    directory: Path, files: Mapping[str, object] | None = None, *, place: str = "model.onnx", **graph: Any
) -> Path:
    """Writes model.onnx, tokenizer.json and the given JSON files by path; returns the directory."""
    tokenizer = tiny_tokenizer()
    model = directory / place
    model.parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(tiny_graph(tokenizer.get_vocab_size(), **graph), str(model))
    (directory / "tokenizer.json").write_text(tokenizer.to_str())
    for name, content in (files or {}).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


def made_up_vector(text: str, dimensions: int) -> list[float]:
    """A vector that depends on the text alone, not of length 1."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    vector: list[float] = (3 * np.random.default_rng(seed).standard_normal(dimensions)).astype(np.float32).tolist()
    return vector


@dataclass
class Reply:
    """What the server sends instead of vectors."""

    status: int = 200
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None


Script = Callable[[dict[str, Any]], Reply | None]


class EmbeddingServer:
    """Speaks the embeddings protocol on localhost. `script` may answer a request first; requests are kept."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.script: Script = lambda request: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append({"path": self.path, **request})
                outer.keys.append(self.headers["Authorization"])
                reply = outer.script(request) or Reply(body=embeddings_answer(request))
                if reply.hold is not None:
                    reply.hold.wait(timeout=30)
                content = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
                try:
                    self.send_response(reply.status)
                    kind = "text/html" if isinstance(reply.body, str) else "application/json"
                    headers = {"Content-Type": kind, **reply.headers}
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content.encode())))
                    self.end_headers()
                    self.wfile.write(content.encode())
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "EmbeddingServer":
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def embeddings_answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a faultless server."""
    dimensions = request.get("dimensions", 1536)
    items = []
    for index, text in enumerate(request["input"]):
        vector: object = made_up_vector(text, dimensions)
        if request.get("encoding_format") == "base64":
            vector = base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
        items.append({"object": "embedding", "index": index, "embedding": vector})
    return {
        "object": "list",
        "data": items,
        "model": request["model"],
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }
