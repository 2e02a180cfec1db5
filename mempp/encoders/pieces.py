"""Texts to piece numbers, cut at a model's maximum length, without tokenising what the cut throws away.

A tokenizer reads a whole text before it truncates: 10 MB took 9 s and 1.6 GB for the 256 pieces that are kept. Here a
prefix of the text is tokenised, and a longer one only when the pieces of the first are not surely those of the whole
text. When they are sure:

- A tokenizer splits text into words and each word into pieces, word by word. A word that is followed by another word
  within the prefix is complete, so its pieces are final, except that a special token such as `[SEP]` which the
  prefix's end cuts may look like two words; the last few characters are therefore never relied on.
- WordPiece turns a word above 100 characters into one `[UNK]`, so pieces of an incomplete word prove nothing.
- BPE and Unigram models of languages without spaces may see a whole text as one word. There a far-away character has
  no influence in practice; pieces that end in the first half of the prefix are taken as final.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mempp.errors import EncoderError, EncoderUnavailableError, quoted

_CHARACTERS_PER_PIECE = 12
_GROWTH = 4
# Characters that BERT's normaliser drops or reads as one space, and letters past the length where a word is [UNK]
# anyway. One of each is kept, so that no special token can arise that was not there.
_SQUEEZED_WORD = 200
_RUNS = re.compile(rf"[ \t\n\r]{{2,}}|\x00{{2,}}|(?<=[A-Za-z0-9]{{{_SQUEEZED_WORD}}})[A-Za-z0-9]+")


class PieceCutter:
    """Gives the piece numbers of a text, special tokens included, at most `max_length` of them.

    Equal to tokenising the whole text and truncating it on the right (see the module's docstring). Thread-safe.
    """

    def __init__(self, tokenizer_json: bytes, *, max_length: int, where: str) -> None:
        """Reads a `tokenizer.json`.

        Args:
            tokenizer_json: the content of the file; its own padding and truncation are turned off.
            max_length: pieces kept, special tokens counted in.
            where: the file's name, for messages.

        Raises:
            EncoderUnavailableError: the content is no tokenizer, or `max_length` leaves no room for text.
        """
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_buffer(tokenizer_json)
            facts: dict[str, Any] = json.loads(tokenizer_json)
        except MemoryError:
            raise
        except Exception as error:
            raise EncoderUnavailableError(
                f"{where} is no tokenizer that the tokenizers package reads ({error}); "
                "restore the file from the model's source"
            ) from error
        special = tokenizer.num_special_tokens_to_add(False)
        if max_length <= special:
            raise EncoderUnavailableError(
                f"a maximum length of {max_length} pieces leaves no room for text in {where}: "
                f"its special tokens alone are {special}; give a larger max_length"
            )
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=max_length)
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._where = where
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._unsure_characters = 16 + max((len(token) for token in added), default=0)
        model = facts.get("model") or {}
        self._needs_whole_words = model.get("type") not in ("BPE", "Unigram")
        self._squeeze = _squeezer(facts, added)

    @property
    def max_length(self) -> int:
        """The most pieces a text is given, special tokens counted in."""
        return self._max_length

    def token_number(self, token: str) -> int | None:
        """Returns the number of a token, None when the vocabulary lacks it."""
        number: int | None = self._tokenizer.token_to_id(token)
        return number

    def __call__(self, text: str) -> list[int]:
        """Returns the piece numbers of `text`; may be empty when the tokenizer adds no special tokens."""
        size = _CHARACTERS_PER_PIECE * self._max_length
        if len(text) > size:
            numbers = self._of_prefix(text, size)
            if numbers is not None:
                return numbers
            text = self._squeeze(text)
        while size < len(text):
            numbers = self._of_prefix(text, size)
            if numbers is not None:
                return numbers
            size *= _GROWTH
        return list(self._encode(text).ids)

    def _of_prefix(self, text: str, size: int) -> list[int] | None:
        """Returns the pieces of the first `size` characters where they surely are those of the text, else None."""
        encoding = self._encode(text[:size])
        if not encoding.overflowing:
            return None
        words: list[int | None] = encoding.word_ids
        last = max((position for position, word in enumerate(words) if word is not None), default=None)
        if last is None:
            return None
        end = encoding.offsets[last][1]
        if end > size - self._unsure_characters:
            return None
        final_word = next(word for word in reversed(encoding.overflowing[-1].word_ids) if word is not None)
        complete = words[last] != final_word
        if complete or (not self._needs_whole_words and end <= size // 2):
            return list(encoding.ids)
        return None

    def _encode(self, text: str) -> Any:
        try:
            return self._tokenizer.encode(text)
        except MemoryError:
            raise
        except BaseException as error:
            # A panic of the Rust library arrives as a BaseException that is no Exception.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise EncoderError(f"{self._where} could not cut {quoted(text)} into pieces: {error}") from error
            raise


def read_bytes(path: Path) -> bytes:
    """Returns the content of a model's file.

    Raises:
        EncoderUnavailableError: the operating system refuses it.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise EncoderUnavailableError(f"cannot read {path}: {error.strerror or error}") from error


def _squeezer(facts: dict[str, Any], added: list[str]) -> Callable[[str], str]:
    """Returns a function that shortens a text without changing its pieces, as far as is known for this tokenizer."""
    normalizer, pre_tokenizer, model = (facts.get(part) or {} for part in ("normalizer", "pre_tokenizer", "model"))
    known = (
        normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text") is True
        and pre_tokenizer.get("type") == "BertPreTokenizer"
        and model.get("type") == "WordPiece"
        and model.get("max_input_chars_per_word", 100) < _SQUEEZED_WORD
        and not any(re.search(r"\s|[A-Za-z0-9]{50}", token) for token in added)
    )
    return _squeezed if known else lambda text: text


def _squeezed(text: str) -> str:
    return _RUNS.sub(lambda run: run[0][0] if not run[0][0].isalnum() else "", text)
