"""The OpenAI encoder: the real SDK against a scripted server on localhost."""

import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from encoder_models import EmbeddingServer, Reply, embeddings_answer, made_up_vector

from mempp.encoders import OpenAIEncoder
from mempp.errors import EncoderError, EncoderUnavailableError, InputError

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with EmbeddingServer() as running:
        yield running


def encoder_of(server: EmbeddingServer, **arguments: Any) -> OpenAIEncoder:
    return OpenAIEncoder(**{"base_url": server.url, "api_key": KEY, "max_retries": 0, **arguments})


def expected(*texts: str, dimensions: int = 1536) -> np.ndarray:
    vectors = np.array([made_up_vector(text, dimensions) for text in texts])
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def fail_first(times: int, reply: Reply) -> Any:
    left = [times]

    def script(request: dict[str, Any]) -> Reply | None:
        left[0] -= 1
        return reply if left[0] >= 0 else None

    return script


def test_vectors_in_order_of_the_texts(server: EmbeddingServer) -> None:
    texts = [f"text {number}" for number in range(25)]
    vectors = encoder_of(server, batch_size=10).encode_documents(texts)
    np.testing.assert_allclose(vectors, expected(*texts), atol=1e-6)
    assert [len(request["input"]) for request in server.requests] == [10, 10, 5]
    assert {request["path"] for request in server.requests} == {"/v1/embeddings"}
    assert {request["model"] for request in server.requests} == {"text-embedding-3-small"}
    assert all("dimensions" not in request for request in server.requests)
    assert set(server.keys) == {f"Bearer {KEY}"}


def test_shuffled_index(server: EmbeddingServer) -> None:
    def shuffle(request: dict[str, Any]) -> Reply:
        answer = embeddings_answer(request)
        answer["data"] = answer["data"][2:] + answer["data"][1::-1]
        return Reply(body=answer)

    server.script = shuffle
    vectors = encoder_of(server).encode_documents(["a", "b", "c", "d"])
    np.testing.assert_allclose(vectors, expected("a", "b", "c", "d"), atol=1e-6)


def test_floats_instead_of_base64(server: EmbeddingServer) -> None:
    server.script = lambda request: Reply(body=embeddings_answer({**request, "encoding_format": "float"}))
    np.testing.assert_allclose(encoder_of(server).encode_question("a"), expected("a")[0], atol=1e-6)


def test_fewer_dimensions_are_asked_of_the_server(server: EmbeddingServer) -> None:
    encoder = encoder_of(server, dimensions=256)
    assert encoder.encode_question("a").shape == (256,)
    assert server.requests[0]["dimensions"] == 256
    assert encoder.identity.name == "openai-text-embedding-3-small-256"


def test_another_servers_model(server: EmbeddingServer) -> None:
    server.script = lambda request: Reply(body=embeddings_answer({**request, "dimensions": 8}))
    encoder = encoder_of(server, model="BAAI/bge-m3", dimensions=8)
    assert encoder.encode_question("a").shape == (8,)
    assert "dimensions" not in server.requests[0]
    assert encoder.identity.name != encoder_of(server, model="baai-bge-m3", dimensions=8).identity.name


def test_server_and_key_from_the_environment(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    OpenAIEncoder().encode_question("a")
    assert server.keys == [f"Bearer {KEY}"]


def test_rate_limit_then_success(server: EmbeddingServer) -> None:
    server.script = fail_first(
        2, Reply(429, {"error": {"message": "slow down", "type": "rate_limit"}}, {"Retry-After": "0.01"})
    )
    vectors = encoder_of(server, max_retries=2).encode_documents(["a"])
    np.testing.assert_allclose(vectors, expected("a"), atol=1e-6)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
def test_refusals_carry_the_servers_message(server: EmbeddingServer, status: int) -> None:
    server.script = lambda request: Reply(status, {"error": {"message": f"no, key {KEY} will not do", "type": "x"}})
    with pytest.raises(EncoderError, match=f"{status}.*no, key … will not do") as caught:
        encoder_of(server).encode_question("a")
    assert_hides_the_key(caught.value)


def test_retries_end(server: EmbeddingServer) -> None:
    server.script = lambda request: Reply(500, {"error": {"message": "broken"}}, {"Retry-After-Ms": "1"})
    with pytest.raises(EncoderError, match="broken"):
        encoder_of(server, max_retries=2).encode_question("a")
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "body",
    ["<html>captive portal</html>", "", "{", [], {}, {"data": None}, {"data": []}, {"data": [3]}, {"data": [{}]}, 7]
    + [
        {"data": [{"index": 0, "embedding": value}]}
        for value in (None, "x", "AAAA", [], ["a"], {}, [[1.0]], [1.0, 2.0])
    ]
    + [{"data": [{"index": index, "embedding": [1.0] * 1536}]} for index in (1, -1, None, "0", 0.5)]
    + [{"data": [{"index": 0, "embedding": [value] * 1536}]} for value in (0.0, None, float("nan"), 1e999)],
    ids=lambda body: repr(body)[:60],
)
def test_malformed_answers(server: EmbeddingServer, body: object) -> None:
    server.script = lambda request: Reply(body=body)
    with pytest.raises(EncoderError) as caught:
        encoder_of(server).encode_question("a")
    assert len(str(caught.value)) < 800


def test_json_type_with_no_json_inside(server: EmbeddingServer) -> None:
    server.script = lambda request: Reply(body="{broken", headers={"Content-Type": "application/json"})
    with pytest.raises(EncoderError, match="no embeddings answer"):
        encoder_of(server).encode_question("a")


def test_wrong_count(server: EmbeddingServer) -> None:
    def drop_last(request: dict[str, Any]) -> Reply:
        answer = embeddings_answer(request)
        answer["data"].pop()
        return Reply(body=answer)

    server.script = drop_last
    with pytest.raises(EncoderError, match="2 vectors for 3 texts"):
        encoder_of(server).encode_documents(["a", "b", "c"])


def test_wrong_dimension(server: EmbeddingServer) -> None:
    server.script = lambda request: Reply(body=embeddings_answer({**request, "dimensions": 100}))
    with pytest.raises(EncoderError, match=r"\(100,\), expected \(1536,\)"):
        encoder_of(server).encode_question("a")


def test_timeout(server: EmbeddingServer) -> None:
    release = threading.Event()
    server.script = lambda request: Reply(body={}, hold=release)
    try:
        with pytest.raises(EncoderError, match=r"did not answer within 0\.2 s"):
            encoder_of(server, timeout=0.2).encode_question("a")
    finally:
        release.set()


def test_no_server() -> None:
    encoder = OpenAIEncoder(base_url="http://127.0.0.1:9/v1", api_key=KEY, max_retries=0)
    with pytest.raises(EncoderError, match=r"no connection to 127\.0\.0\.1:9") as caught:
        encoder.encode_question("a")
    assert_hides_the_key(caught.value)


def too_long_over(limit: int) -> Any:
    def script(request: dict[str, Any]) -> Reply | None:
        if max(len(text) for text in request["input"]) <= limit:
            return None
        message = "This model's maximum context length is 8192 tokens, however you requested 9000 tokens."
        return Reply(400, {"error": {"message": message, "type": "invalid_request_error"}})

    return script


def test_too_long_is_halved_and_neighbours_are_left_alone(server: EmbeddingServer) -> None:
    server.script = too_long_over(3000)
    long = "漢字" * 5000
    vectors = encoder_of(server).encode_documents(["a", "b", long, "c"])
    # 24,000 bytes are 8,000 characters; half of it is 4,000, half of that is taken.
    np.testing.assert_allclose(vectors, expected("a", "b", long[:2000], "c"), atol=1e-6)


def test_never_short_enough(server: EmbeddingServer) -> None:
    server.script = too_long_over(0)
    with pytest.raises(EncoderError, match="maximum context length"):
        encoder_of(server).encode_question("some words")
    assert len(server.requests) == 4  # 10, 5, 2 and 1 characters


def test_texts_are_cut_by_bytes_and_empty_ones_become_a_space(server: EmbeddingServer) -> None:
    encoder_of(server).encode_documents(["", "x" * 30_000, "é" * 30_000, "aa" + "漢" * 30_000])
    sent = server.requests[0]["input"]
    assert sent == [" ", "x" * 24_000, "é" * 12_000, "aa" + "漢" * 7_999]


def test_requests_are_bounded_by_size(server: EmbeddingServer) -> None:
    encoder_of(server).encode_documents(["x" * 24_000] * 60)
    assert [len(request["input"]) for request in server.requests] == [25, 25, 10]


def test_no_key(server: EmbeddingServer) -> None:
    with pytest.raises(EncoderUnavailableError, match="OPENAI_API_KEY"):
        OpenAIEncoder(base_url=server.url).encode_question("a")


def test_sdk_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(EncoderUnavailableError, match=r"pip install 'mempp\[openai\]'"):
        OpenAIEncoder(api_key=KEY).encode_question("a")


def assert_hides_the_key(error: BaseException) -> None:
    assert KEY not in "".join(traceback.format_exception(error))
    assert error.__context__ is None


def test_key_is_nowhere_to_be_read() -> None:
    encoder = OpenAIEncoder(api_key=KEY, base_url="http://localhost/v1/")
    assert KEY not in repr(encoder) + repr(encoder.identity)
    assert encoder.identity.description["base_url"] == "http://localhost/v1"


@pytest.mark.parametrize(
    "arguments",
    [
        {"model": ""},
        {"model": "unheard-of"},
        {"model": 3},
        {"dimensions": 1537},
        {"dimensions": 0},
        {"model": "text-embedding-ada-002", "dimensions": 100},
        {"batch_size": 0},
        {"batch_size": 2049},
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"timeout": 0},
        {"timeout": "60"},
        {"base_url": "localhost:8000"},
        {"base_url": "ftp://host/v1"},
        {"base_url": "http://user:password@host/v1"},
        {"base_url": "http://[broken"},
        {"base_url": 7},
    ],
)
def test_arguments_that_are_none(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        OpenAIEncoder(**arguments)
    assert "password@" not in str(caught.value)
