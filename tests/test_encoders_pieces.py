"""Cutting a long text before it is tokenised gives the pieces of the whole text, truncated."""

import json

import pytest
from encoder_models import tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mempp.encoders.minilm import find_archive, read_member
from mempp.encoders.pieces import PieceCutter
from mempp.errors import EncoderUnavailableError

LIMIT = 12  # so that the first prefix is 144 characters, and a text of some hundreds is long


def byte_level_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["the board approved the vendor, and the vendor the board"] * 5, trainer)
    tokenizer.add_special_tokens(["<s>", "<|end of text|>"])
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=120, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(["the board approved the vendor", "会议决定将项目推迟到六月由王伟负责"] * 5, trainer)
    return tokenizer


def minilm_tokenizer() -> Tokenizer:
    return Tokenizer.from_buffer(read_member(find_archive(), "tokenizer.json"))


TOKENIZERS = {
    "minilm": minilm_tokenizer(),
    "tiny": tiny_tokenizer(),
    "byte-level": byte_level_bpe(),
    "unigram": unigram(),
}
CUTTERS = {
    name: PieceCutter(tokenizer.to_str().encode(), max_length=LIMIT, where=name)
    for name, tokenizer in TOKENIZERS.items()
}


def uncut(name: str, text: str) -> list[int]:
    """The reference: the whole text tokenised, then truncated."""
    tokenizer = Tokenizer.from_str(TOKENIZERS[name].to_str())
    tokenizer.no_padding()
    tokenizer.enable_truncation(LIMIT)
    numbers: list[int] = tokenizer.encode(text).ids
    return numbers


# Runs whose ends fall before, on and after the first prefixes' ends, of the kinds that make few pieces of many
# characters or change their pieces when they are cut.
RUN = st.one_of(
    st.tuples(
        st.sampled_from([" ", "\n", "\0", "\u00a0", "\u3000", "\u200b", "a", "é", "\u0301", "0", "漢", "-", "[", "🙂"]),
        st.integers(1, 700),
    ).map(lambda run: run[0] * run[1]),
    st.tuples(st.sampled_from(["the board ", "vendor", "ab\0", "e\u0301", "x" * 99 + " "]), st.integers(1, 60)).map(
        lambda run: run[0] * run[1]
    ),
    st.sampled_from(["[SEP]", "[CLS]", "[UNK]", "<s>", "<|end of text|>", "[SE", "##ing", "\x85", "\ufffd", "ﬁ"]),
    st.text(max_size=20),
)
LONG_TEXT = st.lists(RUN, max_size=12).map("".join)


@pytest.mark.parametrize("name", list(TOKENIZERS))
@settings(max_examples=300)
@given(text=LONG_TEXT)
def test_cut_equals_uncut(name: str, text: str) -> None:
    assert CUTTERS[name](text) == uncut(name, text)


@pytest.mark.parametrize("name", list(TOKENIZERS))
@pytest.mark.parametrize("letters", [7, 8, 9, 10, 11])
def test_what_straddles_the_end_of_the_prefix(name: str, letters: int) -> None:
    """The pieces that are kept end just before, in and after something that the prefix's end cuts in two."""
    for straddling in ("vendorvendorvendor", "[SEP]", "<|end of text|>", "x" * 120, "e" + "\u0301" * 9, "漢字" * 8):
        for shift in range(len(straddling[:20])):
            head = "a " * letters
            text = "\u3000" * (144 - len(head) - shift) + head + straddling + " the board" * 40
            assert CUTTERS[name](text) == uncut(name, text)


def test_long_texts_are_read_only_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    cutter = CUTTERS["minilm"]
    read: list[int] = []
    encode = cutter._encode
    monkeypatch.setattr(cutter, "_encode", lambda text: (read.append(len(text)), encode(text))[1])
    for text in (
        "words and more. " * 100_000,
        "a" * 1_000_000,
        " " * 1_000_000 + "late",
        "\0" * 1_000_000,
        "漢" * 10**6,
    ):
        read.clear()
        cutter(text)
        assert sum(read) < 2000, text[:5]


def test_own_truncation_and_padding_of_the_file_are_turned_off() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(5)
    cutter = PieceCutter(tokenizer.to_str().encode(), max_length=50, where="file")
    assert len(cutter("a b c d e f g h")) == 10


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b"[]", json.dumps({"version": "1.0"}).encode(), b"\xff"])
def test_what_is_no_tokenizer(content: bytes) -> None:
    with pytest.raises(EncoderUnavailableError, match=r"the/tokenizer\.json"):
        PieceCutter(content, max_length=256, where="the/tokenizer.json")


def test_no_room_for_text() -> None:
    with pytest.raises(EncoderUnavailableError, match="larger max_length"):
        PieceCutter(tiny_tokenizer().to_str().encode(), max_length=2, where="file")
