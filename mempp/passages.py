"""The passage of a long text that matches a question best, for evidence that has no room for all of it."""

import math
import re
from collections import Counter

from mempp.indexes.analysis import question_terms, terms

_LONGEST_SEARCHED = 1_000_000  # characters
_PARTS = 4  # of a passage; its beginning is found to within one of them
_SHORTEST_PART = 20  # characters


def best_passage(text: str, question: str, length: int) -> int:
    """Where the passage of `length` characters begins that matches the question best; 0 where nothing matches.

    The text is cut into parts, and a passage is worth Σ idf(t) over the question's terms t in its parts, with the
    document frequency counted in the parts of this text: a word that stands everywhere in it tells nothing. Of
    passages equally good next to each other the middle one is taken, and one that begins shortly after a line does
    begins with it. Only the first million characters are searched.
    """
    wanted = set(question_terms(question))
    size = max(_SHORTEST_PART, length // _PARTS)
    spans = [
        match.span() for match in re.finditer(rf"(?s).{{1,{size}}}(?!\S)\s*|.{{{size}}}", text[:_LONGEST_SEARCHED])
    ]
    held = [wanted.intersection(terms(text[begin:end])) for begin, end in spans]
    frequency = Counter(term for of_part in held for term in of_part)
    idf = {term: math.log(1 + len(spans) / count) for term, count in frequency.items()}
    together = max(1, length // size)
    worth = [
        sum(idf[term] for term in sorted(set().union(*held[place : place + together]))) for place in range(len(spans))
    ]
    best = max(worth, default=0.0)
    if not best:
        return 0
    first = last = worth.index(best)
    while last + 1 < min(len(worth), first + together) and worth[last + 1] == best:
        last += 1
    begin = spans[(first + last) // 2][0]
    line = text.rfind("\n", begin - size // 2, begin) + 1 if begin > size // 2 else 0
    return max(0, min(line or begin, len(text) - length))
