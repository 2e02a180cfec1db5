"""Question and text as one row of pieces, cut to a model's maximum length.

A tokenizer's post-processor puts a pair together as [before] question [between] text [after], with pieces of its own
and a type for each part ([CLS] … [SEP] … [SEP] with types 0 and 1 for BERT). That frame is read once, from a pair of
two words; question and text are cut into pieces one by one, by `PieceCutter`, which does not tokenise what the cut
throws away. The row equals what the tokenizer itself makes of the pair with truncation "only_second".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mempp.encoders.pieces import PieceCutter
from mempp.errors import EncoderUnavailableError

_TEXTS_SHARE = 4
"""A question too long to stay whole is cut so that one piece in so many is left for the text."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """One row for the model: piece numbers, and the type of each."""

    numbers: list[int]
    types: list[int]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The pieces around question and text, and the types of the parts."""

    before: Pieces
    between: Pieces
    after: Pieces
    question_type: int
    text_type: int

    def __len__(self) -> int:
        return len(self.before.numbers) + len(self.between.numbers) + len(self.after.numbers)


class PairCutter:
    """Gives the pieces of question-text pairs, at most `max_length` of each. Thread-safe."""

    def __init__(self, tokenizer_json: bytes, *, max_length: int, where: str) -> None:
        """Reads a `tokenizer.json`.

        Args:
            tokenizer_json: the content of the file; its own padding and truncation are not used.
            max_length: pieces kept of a pair, special tokens counted in.
            where: the file's name, for messages.

        Raises:
            EncoderUnavailableError: the content is no tokenizer, it makes no pairs, or `max_length` leaves no room.
        """
        self._cutter = PieceCutter(tokenizer_json, max_length=max_length, where=where)  # also checks the content
        self._frame, self._n_before, self._n_after = _read_frames(tokenizer_json, where)
        self._room = max_length - len(self._frame)
        self._for_text = max(1, self._room // _TEXTS_SHARE)
        if self._room < 2:
            raise EncoderUnavailableError(
                f"a maximum length of {max_length} pieces leaves no room for a question and a text in {where}: the "
                f"special tokens of a pair alone are {len(self._frame)}; give a larger max_length"
            )

    def token_number(self, token: str) -> int | None:
        """Returns the number of a token, None when the vocabulary lacks it."""
        return self._cutter.token_number(token)

    def __call__(self, question: str, texts: Sequence[str]) -> list[Pieces]:
        """Returns one row for each text.

        The question stays whole and the text is cut. Only of a question that leaves the text less than a quarter of
        the room the end is cut too.

        Raises:
            EncoderError: the tokenizer failed.
        """
        frame = self._frame
        asked = self._bare(question)[: self._room - self._for_text]
        head = [*frame.before.numbers, *asked, *frame.between.numbers]
        head_types = [*frame.before.types, *[frame.question_type] * len(asked), *frame.between.types]
        rows = []
        for text in texts:
            read = self._bare(text)[: self._room - len(asked)]
            numbers = [*head, *read, *frame.after.numbers]
            rows.append(Pieces(numbers, [*head_types, *[frame.text_type] * len(read), *frame.after.types]))
        return rows

    def _bare(self, text: str) -> list[int]:
        """The pieces of a text without the special tokens that stand around a single one."""
        numbers = self._cutter(text)
        return numbers[self._n_before : len(numbers) - self._n_after]


def _read_frames(tokenizer_json: bytes, where: str) -> tuple[_Frame, int, int]:
    """What stands around a pair, and how many special tokens stand before and after a single text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(tokenizer_json)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    pair, single = tokenizer.encode("a", "a"), tokenizer.encode("a")
    questions, texts = _places(pair, 0), _places(pair, 1)
    singles = _places(single, 0)
    if not (questions and texts and singles) or questions[-1] > texts[0]:
        raise EncoderUnavailableError(
            f"{where} does not put a pair together as question, then text; a cross-encoder's tokenizer must"
        )

    def part(start: int, end: int) -> Pieces:
        return Pieces(list(pair.ids[start:end]), list(pair.type_ids[start:end]))

    frame = _Frame(
        before=part(0, questions[0]),
        between=part(questions[-1] + 1, texts[0]),
        after=part(texts[-1] + 1, len(pair.ids)),
        question_type=int(pair.type_ids[questions[0]]),
        text_type=int(pair.type_ids[texts[0]]),
    )
    return frame, singles[0], len(single.ids) - singles[-1] - 1


def _places(encoding: Any, sequence: int) -> list[int]:
    """Where the pieces of the first (0) or second (1) text stand."""
    return [place for place, of in enumerate(encoding.sequence_ids) if of == sequence]
