"""Whether a word of a question that is also an English word is meant as a name: "will", "may", "Brooks".

Read from the question as it is written, since analysis folds case and drops punctuation:

- such a name alone must have a capital within a sentence ("ask Mark", not "Mark the date"), or a title before it
  ("mr brooks"), or a possessive after it ("Will's plan");
- a name that is a month or a season must not stand as a date does ("in May", "May 2024");
- in a form of several words one word that is no English word is enough; otherwise each must have a capital;
- an initial that is a word of its own ("a", "i", "s", "t") needs its dot, or capitals on both ("A. Patel", "A Patel").
"""

import re
from functools import cached_property

from mempp.indexes.analysis import words
from mempp.indexes.stopwords import STOP_WORDS

TITLES = frozenset(("dr", "mr", "mrs", "ms", "miss", "mx", "prof", "professor", "sir", "herr", "frau"))

_WORDLIKE = """
    amber angel art ash baker banks barber basil bell best bill bird bishop black blue bob bond brand bridge bridges
    brook brooks brown buck burns bush butler carol carpenter case cash chance charity chase chip christian church
    clay cliff cook cross daisy dale dawn day dean drew duke earl early east fair faith field fields fisher flowers
    ford forest fox frank freeman french frost gale garden gates gene ginger glass glen gold golden good grace grant
    gray green guy hall hand harmony hart hazel heath heather hill hills holly hope house hunt hunter iris ivy jack
    jade jasmine jay jean jewel job joy key keys king knight lake lamb lance lane law light lily little long lord love
    low mark marsh martin mason masters max mercy merit miles mill miller mills misty moon moss new nice noble north
    old olive page park parker parks pat patience pearl penny peter pike pope poppy porter post potter power powers
    price prince quick ray reading rich rivers rob robin rock rocky rose ruby rusty sage sales sandy savage sharp
    shepherd short sky small smith snow south sparks star steel stern stone storm street strong sue sun sunny swan
    swift taylor terry tower towers trainer tucker turner vale valley van victor violet wade walker ward waters weaver
    week weeks wells west white wild will wise wolf wood woods worth yard young
"""
_TIMES = frozenset(("jan", "april", "march", "may", "june", "august", "spring", "summer", "autumn", "winter"))
_COMMON = frozenset(_WORDLIKE.split()) | _TIMES | STOP_WORDS
_BEFORE = "in on since until till by of from before after during last next this early mid late end start between each"
_BEFORE_TIMES = frozenset(_BEFORE.split())
_BETWEEN_TIMES = frozenset(("and", "or", "to", "through"))
_TOKEN = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"[.!?:\n]")


class Capitals:
    """How the words of one question are written. Nothing is read before it is asked for."""

    def __init__(self, question: str) -> None:
        self._question = question

    def allow(self, form: str) -> bool:
        """Whether the question's writing lets a form, words joined by spaces, be a name."""
        parts = form.split(" ")
        whole = [part for part in parts if len(part) > 1]
        common = _COMMON.issuperset(whole)
        if len(parts) == 1:
            return not common or form in self._alone
        if common and not self._capital.issuperset(whole):
            return False
        for place in (0, len(parts) - 1):
            if len(parts[place]) == 1 and parts[place] in STOP_WORDS:
                pair = " ".join(parts[:2] if place == 0 else parts[-2:])
                if pair not in self._dotted and (common or parts[place] == "i" or pair not in self._both_capital):
                    return False
        return True

    def has_initial(self, before: str, word: str) -> bool:
        """Whether a word of the question stands after this one, an initial with its dot."""
        return len(before) == 1 and f"{before} {word}" in self._dotted

    @property
    def _alone(self) -> set[str]:
        """Words that are written as a name in at least one place."""
        return self._read[0]

    @property
    def _capital(self) -> set[str]:
        """Words that have a capital in at least one place, at the beginning of a sentence too."""
        return self._read[1]

    @property
    def _dotted(self) -> set[str]:
        """Neighbours of which one is an initial with a dot."""
        return self._read[2]

    @property
    def _both_capital(self) -> set[str]:
        """Neighbours of which one is a single letter, both with a capital."""
        return self._read[3]

    @cached_property
    def _read(self) -> tuple[set[str], set[str], set[str], set[str]]:
        """All four in one pass, linear in the length of the question."""
        alone: set[str] = set()
        capital: set[str] = set()
        dotted: set[str] = set()
        both_capital: set[str] = set()
        text = self._question
        before_last, last, last_folded, end = "", "", "", 0
        for match in _TOKEN.finditer(text):
            token, between = match[0], text[end : match.start()]
            folded = token.lower() if token.isascii() else " ".join(words(token))
            is_capital = token[0].isupper() and (len(token) == 1 or not token.isupper())
            after_title = last_folded in TITLES
            if is_capital:
                capital.add(folded)
            as_time = folded in _TIMES and (
                last_folded in _BEFORE_TIMES
                or last.isdigit()
                or _digit_follows(text, match.end())
                or (last_folded in _BETWEEN_TIMES and (before_last in _TIMES or before_last.isdigit()))
            )
            if after_title or (is_capital and not as_time and _stands_alone(match, folded, between)):
                alone.add(folded)
            if 1 in (len(last), len(token)):
                pair = f"{last_folded.rpartition(' ')[2]} {folded.partition(' ')[0]}"
                dot_after = len(token) == 1 and text.startswith(".", match.end())
                if (len(last) == 1 and between.startswith(".")) or dot_after:
                    dotted.add(pair)
                if last[:1].isupper() and token[0].isupper():
                    both_capital.add(pair)
            before_last, last, last_folded, end = last_folded, token, folded, match.end()
        return alone, capital, dotted, both_capital


def _stands_alone(match: re.Match[str], folded: str, between: str) -> bool:
    """Whether the capital of a word, after what stands between it and the one before, is that of a name."""
    begins = len(between) == match.start() or _SENTENCE_END.search(between) is not None
    return not begins or (folded not in _TIMES and match.string[match.end() : match.end() + 2] in ("'s", "’s"))


def _digit_follows(text: str, place: int) -> bool:
    rest = text[place : place + 4].lstrip(" ,.-/")
    return rest[:1].isdigit()
