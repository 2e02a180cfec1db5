"""From text to terms: the same road for documents and questions.

    fold → cut out runs of scripts without spaces → tokenise → fold to ASCII → lower case → stop words → English stems
                        └→ each character, and each two neighbours

Tantivy tokenises, filters and stems. A run of Chinese, Japanese, Korean, Thai, Lao, Khmer or Burmese is indexed by its
characters and by its pairs of neighbours; a question asks for the pairs, or for the character where it stands alone.
So a question's word is found wherever its characters stand in a row, at the price of a few false matches.
Emoji and punctuation are in no term.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from mempp.indexes.folding import UNSPACED, fold
from mempp.indexes.stopwords import STOP_WORDS

if TYPE_CHECKING:
    import tantivy

ANALYSIS_VERSION = 1
"""Counts the changes to what terms a text has. Whoever caches postings keeps it with them."""

LONGEST_TERM = 255
"""Longer words (bytes, UTF-8) are no words: encoded attachments and the like."""

_RUN = re.compile(f"[{UNSPACED}]+")
_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")
# What an apostrophe cuts off is no word of its own; cut off here, because "d" and "m" alone may be names of things.
_CONTRACTION = re.compile(r"'(?:s|d|m|ll|ve|re)\b", re.IGNORECASE)
# "won't" is not "won": it is kept as one word, and that is a stop word.
_NEGATION = re.compile(r"(?<=[nN])'(?=[tT]\b)")
# Texts are analysed in pieces of about this many characters, so that a huge one does not become a huge list of terms.
_PIECE = 1_000_000
_PLACE_TO_CUT = re.compile(r"[\s。、，．]")


@cache
def _analyzers() -> "tuple[tantivy.TextAnalyzer, tantivy.TextAnalyzer, tantivy.TextAnalyzer]":
    """Terms of ASCII text, terms of any text, words of any text (neither stems nor stop words)."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    # The simple tokeniser is three times as fast and cuts ASCII in the same places, but cuts at combining marks too.
    any_script = Tokenizer.regex(r"[\p{L}\p{M}\p{N}]+")
    stop_words = sorted(STOP_WORDS)
    ascii_terms, all_terms = (
        TextAnalyzerBuilder(tokenizer)
        .filter(Filter.remove_long(LONGEST_TERM + 1))
        .filter(Filter.ascii_fold())
        .filter(Filter.lowercase())
        .filter(Filter.custom_stopword(stop_words))
        .filter(Filter.stemmer("english"))
        .build()
        for tokenizer in (Tokenizer.simple(), any_script)
    )
    words = TextAnalyzerBuilder(any_script).filter(Filter.ascii_fold()).filter(Filter.lowercase()).build()
    return ascii_terms, all_terms, words


def _normalised(text: str) -> str:
    text = fold(text)
    if "'" in text:
        text = _CONTRACTION.sub(" ", _NEGATION.sub("", text))
    return text


def words(text: str) -> list[str]:
    """The folded words of a text in order, stop words among them, not stemmed; unspaced scripts one character each."""
    text = _normalised(text)
    if not text.isascii():
        text = _UNSPACED_CHARACTER.sub(r" \g<0> ", text)
    return _analyzers()[2].analyze(text)


def terms(text: str) -> list[str]:
    """The terms by which a document is indexed: stems in order, then characters and pairs of unspaced runs.

    Their number is the length of the document in BM25.
    """
    text = _normalised(text)
    if text.isascii():
        return _analyzers()[0].analyze(text)
    found = _analyzers()[1].analyze(_RUN.sub(" ", text))
    for run in _RUN.findall(text):
        found.extend(run)
        found.extend(_pairs(run))
    return found


def question_terms(question: str) -> list[str]:
    """The distinct terms that a question asks for, in the order of `terms`: stems first, then unspaced runs.

    Any string is a question; there is no syntax. Empty when it holds no content word.
    """
    text = _normalised(question)
    if text.isascii():
        return list(dict.fromkeys(_analyzers()[0].analyze(text)))
    found = _analyzers()[1].analyze(_RUN.sub(" ", text))
    for run in _RUN.findall(text):
        found.extend(_pairs(run) if len(run) > 1 else run)
    return list(dict.fromkeys(found))


def term_counts(text: str) -> Counter[str]:
    """How often each term of `terms` occurs in a document of any length."""
    counts: Counter[str] = Counter()
    for piece in _pieces(text):
        counts.update(terms(piece))
    return counts


def _pairs(run: str) -> Iterator[str]:
    return (first + second for first, second in pairwise(run))


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _PIECE:
        place = _PLACE_TO_CUT.search(text, start + _PIECE)
        if place is None:
            break
        yield text[start : place.start()]
        start = place.start()
    yield text[start:]
