"""Token F1 and BLEU-1 by hand, and against SQuAD's normalisation and the formulas written out a second time."""

import math
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eval.metrics.text import best, bleu1, f1, normalised

few_words = st.lists(
    st.sampled_from(["the", "a", "An", "vendor", "Vendor", "B", "VPN,", "12", "2022.", "well-known", "—", "’s"])
).map(" ".join)
printable = st.text(st.sampled_from(string.printable), max_size=40)
answers = few_words | printable


def squad_words(text):
    """As the evaluation script of SQuAD does it: lower, punctuation out, articles out, white space."""
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def shared_words(given, wanted):
    """Size of the multiset intersection, by crossing out."""
    left, shared = list(wanted), 0
    for word in given:
        if word in left:
            left.remove(word)
            shared += 1
    return shared


def f1_by_definition(given, wanted):
    if not given or not wanted:
        return 1.0 if not given and not wanted else 0.0
    precision, recall = shared_words(given, wanted) / len(given), shared_words(given, wanted) / len(wanted)
    return 0.0 if precision + recall == 0 else 2 * precision * recall / (precision + recall)


def bleu1_by_definition(given, wanted):
    if not given or not wanted:
        return 1.0 if not given and not wanted else 0.0
    clipped = sum(min(given.count(word), wanted.count(word)) for word in set(given))
    penalty = 1.0 if len(given) > len(wanted) else math.e ** (1 - len(wanted) / len(given))
    return penalty * clipped / sum(given.count(word) for word in set(given))


@given(printable)
@example("The a an THE")
@example("a-b the-x l'a a.")
@example("x\x0bthe\x0cy")
def test_normalisation_is_that_of_squad(text):
    assert normalised(text) == squad_words(text)


@given(answers, answers)
def test_against_the_definitions(answer, gold):
    given, wanted = squad_words(re.sub("[—’]", "", answer)), squad_words(re.sub("[—’]", "", gold))
    assert f1(answer, gold) == pytest.approx(f1_by_definition(given, wanted), abs=1e-12)
    assert bleu1(answer, gold) == pytest.approx(bleu1_by_definition(given, wanted), abs=1e-12)


@given(st.text(max_size=30), st.text(max_size=30))
def test_bounds_and_symmetry(answer, gold):
    assert 0 <= bleu1(answer, gold) <= 1
    assert 0 <= f1(answer, gold) == f1(gold, answer) <= 1
    assert f1(answer, answer) == bleu1(answer, answer) == 1
    assert (f1(answer, gold) == 0) == (bleu1(answer, gold) == 0)


def test_by_hand():
    # 4 words against 3; "vendor" is shared once, "b" once: P = 2/4, R = 2/3
    assert f1("Vendor B, vendor C", "the vendor B won") == pytest.approx(2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3))
    assert bleu1("Vendor B, vendor C", "the vendor B won") == 2 / 4  # longer than gold: no penalty
    assert bleu1("vendor B", "vendor B won today") == pytest.approx(math.exp(1 - 4 / 2))
    assert bleu1("vendor B", "vendor C") == 1 / 2  # of the same length: e⁰


@pytest.mark.parametrize("metric", [f1, bleu1])
def test_empty_answers(metric):
    assert metric("", "") == metric("the", " … ") == 1
    assert metric("", "Vendor B") == metric("?!", "Vendor B") == metric("Vendor B", "") == 0


@pytest.mark.parametrize("metric", [f1, bleu1])
def test_gold_that_is_a_number(metric):
    assert metric("2022", 2022) == metric("In 2022.", "in 2022") == metric("3.5", 3.5) == 1
    assert metric("four", 4) == 0


def test_a_missing_answer_is_no_word():
    with pytest.raises(TypeError, match="not NoneType"):
        f1("none", None)


def test_unicode():
    assert normalised("“Nia’s” – ¿café?") == normalised("'Nia's' - cafe\u0301") == ["nias", "café"]
    assert normalised("İstanbul") == normalised("i̇stanbul")
    assert normalised("á la") == ["á", "la"]  # no article comes out of a letter with an accent
    assert normalised("a\u0330 b") == ["a\u0330", "b"]  # nor of one that NFC cannot join
    assert normalised("$5 = €5") == ["5", "€5"]  # ASCII symbols go, as in SQuAD; others stay
    assert normalised("東京、2024年。 大阪") == ["東京2024年", "大阪"]
    assert f1("東京です", "東京") == 0  # one word each: documented, not wanted


def test_best_of_several_golds():
    assert best(f1, "Vendor B", ["nobody", "vendor B", "B"]) == 1
    assert best(bleu1, "Vendor B", ["nobody", "B"]) == 1 / 2
    assert best(f1, "Vendor B", []) is None
    with pytest.raises(TypeError, match="not one text"):
        best(f1, "B", "Vendor B")
