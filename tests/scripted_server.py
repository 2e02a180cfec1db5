"""A server on localhost that speaks OpenAI's chat completions and Anthropic's messages, and answers by a script.

    with ModelServer() as server:
        server.script = lambda asked: say("Vendor B")
        ... base_url=server.openai_url, or server.anthropic_url ...

What it answers depends on the request alone, so that runs with many threads repeat. A script gets an `Asked` and
returns an `Answer`: `say`, `refuse`, `truncate`, `status`, `garbage`, `slow`, `reset`, `break_off`. A request that asks
for a stream gets one, in pieces of a few characters. `with_faults` spreads faults over any script by the digest of the
request. `server.counts` and `server.replies` count per digest: how often a request
came, and how often it was answered in full.
"""

import hashlib
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-do-not-write-me-anywhere"
"""The key that the fixture `model_keys` puts into the environment."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    provider: str
    """"openai" or "anthropic"."""
    model: str
    system: str
    prompt: str
    schema: Mapping[str, Any] | None
    """The JSON schema that the reply should have, however it was sent."""
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    """Names in small letters."""
    digest: str
    """SHA-256 of the body; the same for the same request."""
    times: int
    """How often it came before."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server does with a request."""

    text: str | None = ""
    refusal: str | None = None
    stopped: str = "end"
    """"end", "length" or "refusal", put into the provider's own words."""
    usage: tuple[int, int] | None = None
    """Tokens read and written; by default a quarter of the characters."""
    counted: bool = True
    """Whether the answer holds the usage; some local servers leave it out."""
    status: int = 200
    message: str = "scripted failure"
    """Of an answer with another status than 200."""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """A body in place of all the above."""
    delay: float = 0.0
    """Seconds between the head of the answer and its body; ends early when the server is stopped."""
    reset: bool = False
    """Breaks the connection instead of answering."""
    pieces: tuple[str, ...] | None = None
    """How a stream is cut into pieces; by default every seven characters."""
    break_after: int | None = None
    """Of a stream: how many pieces are sent before the connection breaks, or, with a delay, before it stalls."""
    ends_early: bool = False
    """A stream that breaks off with an orderly end of the body, as if it were done."""


Script = Callable[[Asked], Answer]


def say(text: str | None, **more: Any) -> Answer:
    """A plain reply."""
    return Answer(text=text, **more)


def refuse(reason: str = "I cannot help with that.") -> Answer:
    """The model declines."""
    return Answer(text=None, refusal=reason, stopped="refusal")


def truncate(text: str = "The answer begi") -> Answer:
    """The model ran into its limit of tokens."""
    return Answer(text=text, stopped="length")


def status(code: int, message: str = "scripted failure", retry_after: float | None = 0.01) -> Answer:
    """An HTTP error. A wait of 0.01 s keeps retries fast."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return Answer(status=code, message=message, headers=headers)


def garbage(body: bytes = b'{"choices": [{"mess') -> Answer:
    """Status 200 with a body that is no JSON."""
    return Answer(raw=body)


def slow(seconds: float = 30.0) -> Answer:
    """The head comes at once, the body late: with a shorter timeout it never comes."""
    return Answer(text="too late", delay=seconds)


def reset() -> Answer:
    """The connection breaks."""
    return Answer(reset=True)


def break_off(text: str = "The answer begins and", after: int = 2, **more: Any) -> Answer:
    """A stream that ends in the middle."""
    return Answer(text=text, break_after=after, **more)


def echo(asked: Asked) -> Answer:
    """A reply for anything: of the form of the schema if there is one, else a few words; by the digest."""
    if asked.schema is None:
        return say(f"answer {asked.digest[:8]}")
    return say(json.dumps(filled(asked.schema, asked.digest)))


def filled(schema: Mapping[str, Any], seed: str) -> Any:
    """Returns a value of a schema's form, chosen by the seed. Numbers are 0, 0.5 or 1."""
    draw = int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16)
    if "enum" in schema:
        return schema["enum"][draw % len(schema["enum"])]
    kind = schema.get("type")
    if kind == "object":
        return {name: filled(part, f"{seed}/{name}") for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [filled(schema.get("items", {}), f"{seed}/0")]
    if kind in ("number", "integer"):
        return (0, 0.5, 1)[draw % 3] if kind == "number" else draw % 2
    if kind == "boolean":
        return bool(draw % 2)
    return f"scripted {seed[:8]}"


def with_faults(script: Script, faults: Mapping[str, tuple[float, Answer]], *, first: int = 1) -> Script:
    """Puts faults before a script: name → (share of the requests that it strikes, what then is answered).

    Which fault strikes a request is drawn from its digest. Faults that the SDK gets over (another status than 200, a
    broken connection, a delay) strike only the first `first` arrivals of a request; the others strike every time.
    """

    def scripted(asked: Asked) -> Answer:
        name = fault_of(asked.digest, faults)
        if name is not None:
            answer = faults[name][1]
            passing = answer.status != 200 or answer.reset or answer.delay > 0
            if not passing or asked.times < first:
                return answer
        return script(asked)

    return scripted


def fault_of(digest: str, faults: Mapping[str, tuple[float, Answer]]) -> str | None:
    """Returns the name of the fault that strikes a request, None if none does."""
    draw, upper = int(digest[:12], 16) / 16**12, 0.0
    for name, (share, _) in faults.items():
        upper += share
        if draw < upper:
            return name
    return None


class ModelServer:
    """The server; a context manager. `script` may be replaced at any time."""

    def __init__(self, script: Script = echo) -> None:
        self.script = script
        self.counts: Counter[str] = Counter()
        self.replies: Counter[str] = Counter()
        self.asked: list[Asked] = []
        self.guard = threading.Lock()
        self.stopping = threading.Event()
        self.connections: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> "ModelServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        with self.guard:
            for connection in self.connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @property
    def address(self) -> str:
        """Such as "http://127.0.0.1:40123"."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """Base URL for models of OpenAI's protocol."""
        return f"{self.address}/v1"

    @property
    def anthropic_url(self) -> str:
        """Base URL for models of Anthropic's protocol."""
        return self.address

    def url(self, provider: str) -> str:
        """Base URL for models of "openai" or "anthropic"."""
        return self.openai_url if provider == "openai" else self.anthropic_url

    def answered_again(self, repeats: int = 1) -> list[str]:
        """Digests that were answered in full more often than `repeats`: what was asked, and paid for, again."""
        with self.guard:
            return [digest for digest, times in self.replies.items() if times > repeats]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of the server's business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    # Head and body go out in separate writes; without this the second may wait 40 ms for the first's acknowledgement.
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        with self.server.owner.guard:
            self.server.owner.connections.add(self.connection)

    def finish(self) -> None:
        with self.server.owner.guard:
            self.server.owner.connections.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        owner = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        path = self.path.partition("?")[0]
        provider = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}.get(path)
        if provider is None:
            self._send(404, {}, json.dumps({"error": {"message": f"no such path {path}"}}).encode())
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        with owner.guard:
            asked = _asked(provider, body, headers, digest, owner.counts[digest])
            owner.counts[digest] += 1
            owner.asked.append(asked)
        answer = owner.script(asked)
        if answer.reset:
            # Without lingering the closed socket sends a reset instead of an orderly end.
            self._break()
            return
        if body.get("stream") and answer.status == 200 and answer.raw is None:
            self._stream(asked, answer)
            return
        self._send(
            answer.status, answer.headers, _content(asked, answer), answer.delay, whole=_is_whole(answer) and digest
        )

    def _send(
        self, code: int, headers: Mapping[str, str], content: bytes, delay: float = 0.0, whole: str | bool = False
    ) -> None:
        owner = self.server.owner
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.flush()
        if delay and (owner.stopping.wait(delay) or self._left()):
            self.close_connection = True
            return
        # Counted before it is sent: a client that has its reply finds it counted.
        if isinstance(whole, str):
            with owner.guard:
                owner.replies[whole] += 1
        self.wfile.write(content)

    def _break(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _stream(self, asked: Asked, answer: Answer) -> None:
        """Server-sent events in chunks; the delay, if any, comes before the piece at which it would break."""
        owner = self.server.owner
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        events = (_openai_events if asked.provider == "openai" else _anthropic_events)(asked, answer)
        for number, event in enumerate(events):
            if answer.break_after is not None and number > answer.break_after:
                if answer.ends_early:
                    break
                if not answer.delay:
                    self._break()
                    return
            if answer.delay and number == (answer.break_after or 0) and owner.stopping.wait(answer.delay):
                self.close_connection = True
                return
            self._chunk(event)
        else:
            with owner.guard:
                owner.replies[asked.digest] += 1
        with suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: str) -> None:
        data = event.encode("utf-8", "surrogatepass")
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _left(self) -> bool:
        """Whether the client gave up; a write would not tell, since the first one to a closed peer succeeds."""
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps the tests' output clean."""


def _is_whole(answer: Answer) -> bool:
    return answer.status == 200 and answer.raw is None


def _asked(provider: str, body: dict[str, Any], headers: dict[str, str], digest: str, times: int) -> Asked:
    messages = body.get("messages", [])
    if provider == "openai":
        system = "\n".join(message["content"] for message in messages if message["role"] == "system")
        schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
    else:
        system = body.get("system", "")
        schema = ((body.get("output_config") or {}).get("format") or {}).get("schema")
    prompt = "\n".join(message["content"] for message in messages if message["role"] == "user")
    return Asked(
        provider=provider,
        model=body.get("model", ""),
        system=system,
        prompt=prompt,
        schema=schema,
        body=body,
        headers=headers,
        digest=digest,
        times=times,
    )


def _content(asked: Asked, answer: Answer) -> bytes:
    if answer.raw is not None:
        return answer.raw
    if answer.status != 200:
        error = {"type": "scripted_error", "message": answer.message}
        return json.dumps({"type": "error", "error": error}).encode()
    text = answer.text
    read, written = answer.usage or (len(asked.system + asked.prompt) // 4, len(text or "") // 4)
    make = _openai_body if asked.provider == "openai" else _anthropic_body
    body = make(asked, answer, read, written)
    if not answer.counted:
        del body["usage"]
    return json.dumps(body).encode()


def _openai_body(asked: Asked, answer: Answer, read: int, written: int) -> dict[str, Any]:
    reason = {"end": "stop", "length": "length", "refusal": "stop"}[answer.stopped]
    message = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    return {
        "id": f"chatcmpl-{asked.digest[:12]}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": asked.model,
        "choices": [{"index": 0, "finish_reason": reason, "message": message, "logprobs": None}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _anthropic_body(asked: Asked, answer: Answer, read: int, written: int) -> dict[str, Any]:
    text = answer.refusal if answer.text is None else answer.text
    return {
        "id": f"msg_{asked.digest[:12]}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": {"end": "end_turn", "length": "max_tokens", "refusal": "refusal"}[answer.stopped],
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
    }


def _cut(answer: Answer, text: str | None) -> list[str]:
    text = text or ""
    return list(answer.pieces) if answer.pieces is not None else [text[i : i + 7] for i in range(0, len(text), 7)]


def _usage(asked: Asked, answer: Answer) -> tuple[int, int]:
    return answer.usage or (len(asked.system + asked.prompt) // 4, len(answer.text or "") // 4)


def _openai_events(asked: Asked, answer: Answer) -> list[str]:
    head = {
        "id": f"chatcmpl-{asked.digest[:12]}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": asked.model,
    }

    def event(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}]}

    events = [event({"role": "assistant", "content": ""})]
    events += [event({"content": piece}) for piece in _cut(answer, answer.text)]
    if answer.refusal is not None:
        events.append(event({"refusal": answer.refusal}))
    events.append(event({}, {"end": "stop", "length": "length", "refusal": "stop"}[answer.stopped]))
    if answer.counted and (asked.body.get("stream_options") or {}).get("include_usage"):
        read, written = _usage(asked, answer)
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        events.append({**head, "choices": [], "usage": usage})
    return [f"data: {json.dumps(one)}\n\n" for one in events] + ["data: [DONE]\n\n"]


def _anthropic_events(asked: Asked, answer: Answer) -> list[str]:
    read, written = _usage(asked, answer)
    whole = _anthropic_body(asked, answer, read, 1)
    message = {**whole, "content": [], "stop_reason": None}
    end: dict[str, Any] = {
        "type": "message_delta",
        "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
        "usage": {"output_tokens": written},
    }
    if not answer.counted:
        del message["usage"], end["usage"]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
    ]
    events += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in _cut(answer, answer.refusal if answer.text is None else answer.text)
    ]
    events += [{"type": "content_block_stop", "index": 0}, end, {"type": "message_stop"}]
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events]


def transient(answer: Answer, times: int = 1, then: Script = echo) -> Script:
    """Answers so the first `times` arrivals of each request, then by another script."""
    return lambda asked: answer if asked.times < times else then(asked)
