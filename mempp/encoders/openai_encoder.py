"""OpenAI's embeddings, or those of any server that speaks the same protocol. Needs the extra `openai`."""

import hashlib
import os
import re
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from mempp.encoders.base import Description, EncoderIdentity, checked_texts, unit_rows
from mempp.encoders.lazy import Lazy
from mempp.errors import EncoderError, EncoderUnavailableError, InputError, quoted
from mempp.remote import LONGEST_WAIT, checked_address, http_client, key_fault, without_keys

if TYPE_CHECKING:
    from openai import OpenAI

DEFAULT_MODEL = "text-embedding-3-small"
_DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
_SHORTENABLE = ("text-embedding-3-small", "text-embedding-3-large")

# The models take 8,191 tokens a text and 300,000 a request. Counted in UTF-8 bytes, a token of cl100k is three bytes
# or more in English, numbers, Chinese and most else, so these are below both; what is denser is halved when refused.
_BYTES_PER_TEXT = 24_000
_BYTES_PER_REQUEST = 600_000
_MOST_TEXTS_PER_REQUEST = 2048
_TOO_LONG = re.compile(
    r"maximum (context|input|sequence|number of tokens)|max(imum)?[_ ](input[_ ])?tokens|max_tokens_per_request"
    r"|too (long|many tokens|large)|context[_ ]length|tokens? (limit|per request)|must have less than .* tokens",
    re.IGNORECASE,
)


class OpenAIEncoder:
    """Embeds over the network with the `openai` SDK, which also does the retries.

    The key comes from `api_key` or OPENAI_API_KEY, the server from `base_url` or OPENAI_BASE_URL, else it is OpenAI's.
    Neither is part of the identity's name; the key is in no description, repr or message.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        dimensions: int | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        batch_size: int = 256,
        max_retries: int = 5,
        timeout: float = 60.0,
    ) -> None:
        """Prepares the encoder; nothing is imported or sent before the first encode.

        Args:
            model: the model's name at the server.
            dimensions: None for all that the model has. Fewer can be asked of text-embedding-3-small and -large; of a
                model not known here it tells how many the server returns, and is required.
            base_url: the server, such as "http://localhost:8000/v1".
            api_key: the key.
            batch_size: texts per request, at most 2,048.
            max_retries: how often the SDK repeats a request after 408, 409, 429, 5xx or a lost connection.
            timeout: seconds to wait for one answer.

        Raises:
            InputError: an argument is not usable.
        """
        if not isinstance(model, str) or not model.strip():
            raise InputError(f"model is {quoted(model)}; give the model's name, such as {DEFAULT_MODEL!r}")
        for name, number, least in (
            ("dimensions", dimensions, 1),
            ("batch_size", batch_size, 1),
            ("max_retries", max_retries, 0),
        ):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
                raise InputError(f"{name} is {quoted(number)}; give a whole number of {least} or more")
        if batch_size > _MOST_TEXTS_PER_REQUEST:
            raise InputError(f"batch_size is {batch_size}; a request takes at most {_MOST_TEXTS_PER_REQUEST} texts")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST_WAIT:
            raise InputError(f"timeout is {quoted(timeout)}; give seconds above 0, at most a day ({LONGEST_WAIT:,.0f})")
        full = _DIMENSIONS.get(model)
        if dimensions is None and full is None:
            raise InputError(
                f"how many dimensions {quoted(model)} has is not known here: pass dimensions= (known: "
                f"{', '.join(_DIMENSIONS)})"
            )
        if full is not None and dimensions not in (None, full):
            assert dimensions is not None
            if model not in _SHORTENABLE or dimensions > full:
                most = f"from 1 to {full}" if model in _SHORTENABLE else f"only {full}"
                raise InputError(f"dimensions is {dimensions}; {model} gives {most}")
        self._model = model
        self._base_url = None if base_url is None else checked_address(base_url, "base_url")
        self._api_key = api_key
        self._batch_size = batch_size
        self._max_retries = max_retries
        self._timeout = float(timeout)
        self._identity = _identity(model, dimensions or full or 0, self._base_url)
        # A model that cannot be shortened may refuse the parameter.
        self._sent_dimensions = dimensions if full is not None and dimensions != full else None
        self._client = Lazy(self._connect)

    def __repr__(self) -> str:
        return f"OpenAIEncoder({self._model!r}, dimensions={self._identity.dimensions}, base_url={self._base_url!r})"

    @property
    def identity(self) -> EncoderIdentity:
        """Which vectors this encoder makes: model and dimensions."""
        return self._identity

    def load(self) -> None:
        """Makes the client now, rather than at the first encode; the server is not asked.

        Raises:
            EncoderUnavailableError: the SDK is not installed, or there is no key.
        """
        self._client.get()

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns (n, dimensions) unit rows in the order of `texts`.

        A text over the model's limit is cut: to 24,000 bytes of UTF-8, and by half as long as the server still calls
        it too long. An empty text is sent as one space, since the server takes none.

        Raises:
            InputError: an item is no text.
            EncoderUnavailableError: the SDK is not installed, or there is no key.
            EncoderError: the server refused or failed after the retries, with its message; or its answer is not one
                vector per text of the right length.
        """
        checked = [_cut(text) for text in checked_texts(texts)]
        if not checked:
            return np.empty((0, self._identity.dimensions), dtype=np.float32)
        client = self._client.get()
        rows = [self._embed(client, batch) for batch in _batches(checked, self._batch_size)]
        return np.concatenate(rows)

    def encode_question(self, text: str) -> NDArray[np.float32]:
        """Returns one unit vector (dimensions,); errors as `encode_documents`."""
        vector: NDArray[np.float32] = self.encode_documents([text])[0]
        return vector

    def _connect(self) -> "OpenAI":
        try:
            import openai
        except ImportError as error:
            raise EncoderUnavailableError(
                f"the openai package is not usable here ({error}); run: pip install 'mempp[openai]'"
            ) from error
        if fault := key_fault(self._api_key or os.environ.get("OPENAI_API_KEY")):
            name = "api_key" if self._api_key else "OPENAI_API_KEY"
            raise EncoderUnavailableError(f"no client for {self._model}: {name} {fault}")
        try:
            client = openai.OpenAI(
                api_key=self._api_key,
                base_url=self._base_url,
                max_retries=self._max_retries,
                timeout=self._timeout,
                http_client=http_client(openai, self._timeout),
            )
        except openai.OpenAIError as error:
            failure = self._hidden(str(error))
        else:
            # Closed with its owner: left to the collector, open sockets may go before their client and be warned of.
            weakref.finalize(self, client.close)
            return client
        raise EncoderUnavailableError(f"no client for {self._model}: {failure}; set OPENAI_API_KEY or pass api_key=")

    def _embed(self, client: "OpenAI", batch: list[str]) -> NDArray[np.float32]:
        """Returns the vectors of one request, of several smaller ones where the server calls it too long."""
        import openai

        parameters: dict[str, Any] = {} if self._sent_dimensions is None else {"dimensions": self._sent_dimensions}
        # Raised below, outside the except blocks: an SDK error as context would carry the request and its key.
        failure: EncoderError
        try:
            answer = client.embeddings.create(input=batch, model=self._model, **parameters)
            return self._vectors(answer, len(batch))
        except EncoderError as error:
            failure = EncoderError(str(error))
        except openai.APITimeoutError:
            failure = EncoderError(
                f"{self._server(client)} did not answer within {self._timeout:g} s "
                f"({self._max_retries + 1} attempt(s)); try again later or give a longer timeout="
            )
        except openai.APIConnectionError as error:
            failure = EncoderError(
                f"no connection to {self._server(client)} ({self._hidden(str(error.__cause__ or error))}); "
                "check the network and base_url"
            )
        except openai.APIStatusError as error:
            message = self._hidden(str(error))
            if error.status_code in (400, 413) and _TOO_LONG.search(message) and (len(batch) > 1 or len(batch[0]) > 1):
                return self._embed_shorter(client, batch)
            failure = EncoderError(f"{self._server(client)} refused to embed with {self._model}: {message}")
        except openai.OpenAIError as error:
            failure = EncoderError(f"{self._server(client)} failed: {self._hidden(str(error))}")
        except MemoryError:
            raise
        except Exception as error:
            failure = EncoderError(
                f"the answer of {self._server(client)} is no embeddings answer "
                f"({type(error).__name__}: {self._hidden(str(error))}); check base_url"
            )
        raise failure

    def _embed_shorter(self, client: "OpenAI", batch: list[str]) -> NDArray[np.float32]:
        if len(batch) == 1:
            return self._embed(client, [batch[0][: len(batch[0]) // 2]])
        middle = len(batch) // 2
        return np.concatenate([self._embed(client, batch[:middle]), self._embed(client, batch[middle:])])

    def _vectors(self, answer: Any, count: int) -> NDArray[np.float32]:
        """Returns the answer's vectors by their index, unit rows."""
        items = list(answer.data)
        if len(items) != count:
            raise EncoderError(f"{self._model} gave {len(items)} vectors for {count} texts; check base_url")
        indexes = [item.index for item in items]
        if sorted(indexes) != list(range(count)):
            raise EncoderError(f"{self._model} numbered its {count} vectors {quoted(indexes)}; check base_url")
        rows = [np.asarray(item.embedding, dtype=np.float64) for item in sorted(items, key=lambda item: item.index)]
        shape = (self._identity.dimensions,)
        for row in rows:
            if row.shape != shape:
                raise EncoderError(
                    f"{self._model} gave a vector of shape {row.shape}, expected {shape}; "
                    "pass the dimensions= that the server returns, or check base_url"
                )
        return unit_rows(np.stack(rows), of=self._model)

    def _server(self, client: "OpenAI") -> str:
        return urlsplit(str(client.base_url)).netloc.rpartition("@")[2]

    def _hidden(self, message: str) -> str:
        """Returns a message of the SDK or the server, without the key, at a sane length."""
        return without_keys(message, (self._api_key, os.environ.get("OPENAI_API_KEY")), 500)


def _identity(model: str, dimensions: int, base_url: str | None) -> EncoderIdentity:
    safe = re.sub(r"[^a-z0-9._-]", "-", model.lower())[:60]
    # Two models may become one safe name; a digest of the true name keeps them apart.
    name = safe if safe == model else f"{safe}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"
    description: Description = {"kind": "openai", "model": model, "dimensions": dimensions, "base_url": base_url}
    return EncoderIdentity(f"openai-{name}-{dimensions}", dimensions, description)


def _cut(text: str) -> str:
    # Three bytes of a character may be cut away at the end; "ignore" drops what is left of it.
    short = text[:_BYTES_PER_TEXT].encode()[:_BYTES_PER_TEXT].decode(errors="ignore")
    return short or " "


def _batches(texts: list[str], most: int) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if batch and (len(batch) == most or size + length > _BYTES_PER_REQUEST):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += length
    yield batch
