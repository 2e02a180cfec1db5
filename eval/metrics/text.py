"""Overlap of an answer with a gold answer, word by word: token F1 and BLEU-1 (the paper's equations 8 and 9).

Both compare *normalised* words: lower case, punctuation deleted, the articles "a", "an", "the" left out, split at white
space. That is the normalisation of SQuAD (Rajpurkar et al., 2016), with two extensions that change nothing for ASCII
text: punctuation is Unicode's too (as in MLQA, Lewis et al., 2020), so that ’ and — go as ' and - do, and the text is
brought to NFC first, so that "é" is one letter however it was typed.

What follows from it: punctuation is deleted, not replaced, so "well-known" is one word and "$1,000.50" is "100050".
There is no stemming, and a number is not its word: "4" and "four" share nothing. Scripts without spaces (Japanese,
Chinese, Thai) come out as one word per stretch between spaces, so that F1 there is close to exact match; do not compare
it with that of other languages. A gold answer of articles alone ("A", the letter of a choice) has no words left:
multiple choice is scored by its letter, not here.

Two texts without words agree and score 1; one without words against one with words scores 0 (as SQuAD 2.0 does).
BLEU-1 is unsmoothed and per question; programs that call NLTK with smoothing give a little more than 0 where no word is
shared, and those that stem (LoCoMo's own) or keep articles differ too. Compare figures of one program only.
"""

import math
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

Text = str | int | float
"""Gold answers of some benchmarks are numbers; they are compared as written."""

ARTICLES = frozenset(("a", "an", "the"))
ASCII_PUNCTUATION = frozenset(string.punctuation)  # with $ + < = > ^ ` | ~, which Unicode counts among the symbols


def normalised(text: Text) -> list[str]:
    """The words by which an answer is compared, in order; empty if none are left."""
    if not isinstance(text, str | int | float):  # None would become the word "none"
        raise TypeError(f"an answer is a text or a number, not {type(text).__name__}")
    kept = "".join(c for c in unicodedata.normalize("NFC", str(text).lower()) if not _is_punctuation(c))
    return [word for word in kept.split() if word not in ARTICLES]


def f1(answer: Text, gold: Text) -> float:
    """Token F1 = 2PR / (P + R), with P = |Â ∩ A| / |Â| and R = |Â ∩ A| / |A| over multisets of words."""
    given, wanted, shared = _counted(answer, gold)
    if not given or not wanted:
        return float(given == wanted)
    return 2 * shared / (given + wanted)  # the same with P and R multiplied out, and defined where both are 0


def bleu1(answer: Text, gold: Text) -> float:
    """BLEU-1 = BP · |Â ∩ A| / |Â|, with BP = 1 if |Â| > |A| and exp(1 - |A| / |Â|) otherwise."""
    given, wanted, shared = _counted(answer, gold)
    if not given or not wanted:
        return float(given == wanted)
    return math.exp(min(0.0, 1 - wanted / given)) * shared / given


def best(metric: Callable[[Text, Text], float], answer: Text, golds: Iterable[Text]) -> float | None:
    """The highest score of an answer over the gold answers, any of which is right; None if there are none."""
    if isinstance(golds, str):
        raise TypeError("golds are several answers, not one text")
    return max((metric(answer, gold) for gold in golds), default=None)


def _counted(answer: Text, gold: Text) -> tuple[int, int, int]:
    """How many words the answer has, the gold answer has, and they share, repeated words as often as both have them."""
    given, wanted = Counter(normalised(answer)), Counter(normalised(gold))
    return given.total(), wanted.total(), (given & wanted).total()


def _is_punctuation(character: str) -> bool:
    return character in ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")
