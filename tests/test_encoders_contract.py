"""One suite over every encoder: what mempp.memory relies on."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from encoder_models import EmbeddingServer, write_tiny_model
from encoder_texts import ODD_TEXTS, varied_texts

from mempp.encoders import (
    DirectoryEncoder,
    Encoder,
    EncoderIdentity,
    MiniLM,
    OpenAIEncoder,
    load_encoder,
    resolve_encoder,
)
from mempp.encoders.lazy import Lazy
from mempp.errors import EncoderUnavailableError, InputError

Make = Callable[[], Encoder]


@pytest.fixture(scope="module")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as running:
        yield running


@pytest.fixture(scope="module", params=["minilm", "minilm-int8", "directory", "openai"])
def make(request: pytest.FixtureRequest, tiny_directory: Path, server: EmbeddingServer) -> Make:
    if request.param.startswith("minilm"):
        # One for the module: starting it anew for every test would take most of the time.
        shared = resolve_encoder(request.param)
        return lambda: shared
    if request.param == "directory":
        return lambda: DirectoryEncoder(tiny_directory)
    return lambda: OpenAIEncoder(base_url=server.url, api_key="key", batch_size=7)


def assert_close(left: np.ndarray, right: np.ndarray) -> None:
    cosines = np.einsum("...j,...j->...", left.astype(np.float64), right.astype(np.float64))
    assert np.min(cosines) >= 0.999999


def test_rows_are_unit_float32_in_order(make: Make) -> None:
    encoder = make()
    texts = varied_texts(50)
    vectors = encoder.encode_documents(texts)
    assert vectors.shape == (50, encoder.identity.dimensions)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert_close(vectors, np.stack([encoder.encode_documents([text])[0] for text in texts]))
    assert_close(vectors[::-1], encoder.encode_documents(texts[::-1]))


def test_question_is_one_unit_vector(make: Make) -> None:
    encoder = make()
    vector = encoder.encode_question("Which vendor?")
    assert vector.shape == (encoder.identity.dimensions,)
    assert vector.dtype == np.float32
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5


def test_no_texts_give_no_rows(make: Make) -> None:
    encoder = make()
    vectors = encoder.encode_documents([])
    assert vectors.shape == (0, encoder.identity.dimensions)
    assert vectors.dtype == np.float32


def test_same_texts_same_bits(make: Make) -> None:
    encoder = make()
    texts = varied_texts(20)
    np.testing.assert_array_equal(encoder.encode_documents(texts), encoder.encode_documents(texts))


def test_different_texts_differ(make: Make) -> None:
    vectors = make().encode_documents(["The board approved vendor B.", "The kitchen is closed on Monday."])
    assert float(vectors[0] @ vectors[1]) < 0.99


@pytest.mark.parametrize(
    "text",
    [*ODD_TEXTS, "words and more words. " * 50_000, "a" * 1_000_000, " " * 1_000_000, "漢字" * 500_000],
    ids=lambda text: ascii(text[:12]) + str(len(text)),
)
def test_odd_texts(make: Make, text: str) -> None:
    encoder = make()
    vectors = encoder.encode_documents([text, "plain"])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert_close(vectors[1], encoder.encode_documents(["plain"])[0])


@pytest.mark.parametrize(
    "bad", [["fine", 3], ["fine", None], ["lone \ud800 surrogate"], "one text", [b"bytes"], None, 7]
)
def test_what_is_no_text_is_refused(make: Make, bad: object) -> None:
    with pytest.raises(InputError):
        make().encode_documents(bad)  # type: ignore[arg-type]


def test_several_threads(make: Make) -> None:
    encoder = make()
    texts = varied_texts(32)
    expected = encoder.encode_documents(texts)
    start = threading.Barrier(4)

    def encode(part: int) -> np.ndarray:
        start.wait(timeout=30)
        return encoder.encode_documents(texts[part::4])

    with ThreadPoolExecutor(4) as pool:
        for part, vectors in enumerate(pool.map(encode, range(4))):
            assert_close(vectors, expected[part::4])


def test_identity_is_stable_and_builds_the_encoder_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = make()
    identity = encoder.identity
    assert identity == make().identity
    description = json.loads(json.dumps(dict(identity.description)))
    assert description == dict(identity.description)
    if isinstance(encoder, OpenAIEncoder):
        monkeypatch.setenv("OPENAI_BASE_URL", str(description["base_url"]))
        monkeypatch.setenv("OPENAI_API_KEY", "key")
    again = load_encoder(identity.name, description)
    assert type(again) is type(encoder)
    assert again.identity == identity
    assert_close(again.encode_question("Which vendor?"), encoder.encode_question("Which vendor?"))


def test_another_name_than_recorded_is_refused(make: Make) -> None:
    identity = make().identity
    with pytest.raises(EncoderUnavailableError, match="other-name"):
        load_encoder("other-name", identity.description).encode_question("x")


# --- choosing ---


def test_resolve(tiny_directory: Path) -> None:
    assert isinstance(resolve_encoder("minilm"), MiniLM)
    assert resolve_encoder("openai").identity.name == "openai-text-embedding-3-small-1536"
    assert resolve_encoder("openai:text-embedding-3-large").identity.dimensions == 3072
    assert isinstance(resolve_encoder(tiny_directory), DirectoryEncoder)
    assert isinstance(resolve_encoder(str(tiny_directory)), DirectoryEncoder)


def test_resolve_takes_an_object_without_asking_its_identity() -> None:
    class Own:
        @property
        def identity(self) -> EncoderIdentity:
            raise AssertionError("asked")

        def encode_documents(self, texts: object) -> object: ...

        def encode_question(self, text: str) -> object: ...

    own = Own()
    assert resolve_encoder(own) is own  # type: ignore[arg-type, comparison-overlap]


@pytest.mark.parametrize("choice", ["MiniLM2", "", "no/such/directory", 7, None, MiniLM, object(), "x" * 5000, "nul\0"])
def test_resolve_lists_what_it_takes(choice: object) -> None:
    with pytest.raises(InputError, match="openai:<model>") as caught:
        resolve_encoder(choice)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("description", "what"),
    [
        ({"kind": "custom"}, "pass that encoder object"),
        ({}, "pass that encoder object"),
        ({"kind": "openai", "model": "unheard-of"}, "dimensions"),
        ({"kind": "directory", "path": "/no/such/place", "dimensions": 8}, "no directory now"),
        ({"kind": "directory", "dimensions": "many"}, "not usable"),
        ({"kind": "minilm"}, "use the version"),
    ],
)
def test_load_says_what_to_do(description: dict[str, object], what: str) -> None:
    with pytest.raises(EncoderUnavailableError, match=what):
        load_encoder("some-encoder", description)


def test_no_key_goes_to_an_address_that_only_the_store_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    identity = OpenAIEncoder(base_url="http://stranger.example/v1").identity
    with pytest.raises(EncoderUnavailableError, match="OPENAI_BASE_URL"):
        load_encoder(identity.name, identity.description)


@pytest.mark.parametrize("name", ["", "Upper", "with/slash", ".hidden", "..", "x" * 101, "ümlaut"])
def test_names_that_name_no_folder(name: str) -> None:
    with pytest.raises(InputError, match="folder"):
        EncoderIdentity(name, 3, {})


@pytest.mark.parametrize("dimensions", [0, -1, 1.5, True, "3", None])
def test_dimensions_that_are_none(dimensions: object) -> None:
    with pytest.raises(InputError, match="dimensions"):
        EncoderIdentity("name", dimensions, {})  # type: ignore[arg-type]


# --- what building and importing may not do ---


def test_building_loads_nothing_heavy(tiny_directory: Path) -> None:
    code = (
        "import sys, mempp.encoders as e\n"
        f"e.MiniLM().identity; e.DirectoryEncoder({str(tiny_directory)!r}); e.OpenAIEncoder().identity\n"
        "heavy = {'onnx', 'onnxruntime', 'openai', 'tokenizers', 'safetensors', 'all_minilm_l6_v2'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_lazy_value_is_made_once_and_errors_are_not_kept() -> None:
    calls = []

    def fail_first() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise OSError
        return 7

    lazy = Lazy(fail_first)
    with pytest.raises(OSError):  # noqa: PT011
        lazy.get()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: lazy.get(), range(64))) == {7}
    assert len(calls) == 2


def test_several_threads_make_a_lazy_value_once() -> None:
    second = threading.Event()
    calls: list[int] = []

    def make() -> int:
        calls.append(1)
        if len(calls) > 1:
            second.set()
        second.wait(timeout=0.3)  # long enough for another thread to come in, if it could
        return 7

    lazy = Lazy(make)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: lazy.get(), range(16))) == {7}
    assert len(calls) == 1


def test_a_forked_child_makes_its_own_lazy_value() -> None:
    code = (
        "import os, sys; from mempp.encoders.lazy import Lazy\n"
        "lazy = Lazy(os.getpid); assert lazy.get() == os.getpid()\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0 if lazy.get() == os.getpid() else 3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_forked_child_encodes(tiny_directory: Path) -> None:
    # In a process of its own: forking pytest's process would copy its threads' locks.
    code = (
        "import os, sys, warnings; from mempp.encoders import DirectoryEncoder\n"
        "warnings.simplefilter('ignore')\n"
        f"e = DirectoryEncoder({str(tiny_directory)!r}, threads=2)\n"
        "parent = e.encode_documents(['some words'] * 300)\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0 if (e.encode_documents(['some words'] * 300) == parent).all() else 3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
