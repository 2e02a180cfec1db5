"""Reads verdicts, marks and letters out of what models write. What is not clear is not guessed."""

import json
import re
from collections.abc import Mapping
from typing import Any

# Marks that models put around a word. Braces and commas are none: they show an object that broke off.
_MARKS = r"[\s*_`\"'.!:()-]*"
_BARE_VERDICT = re.compile(
    rf"{_MARKS}(?:(?:final\s+)?verdict{_MARKS}(?:is{_MARKS})?)?(correct|incorrect|wrong){_MARKS}", re.IGNORECASE
)
_VERDICTS = {"CORRECT": True, "WRONG": False, "INCORRECT": False}

# What stands before and after a value inside an object: a key, and another key or the end of the object.
_INSIDE_BEFORE = re.compile(r"\"\s*:\s*\[?\s*\Z")
_INSIDE_AFTER = re.compile(r"\s*\]?\s*(?:,\s*\"|\})")
_NEAR = 100


def json_object(text: str) -> dict[str, Any] | None:
    """Returns the one JSON object in a text, with or without words or a code fence around it; None if there is none.

    Of several objects the last one counts: models that think aloud end with their result. An object inside one that is
    broken is none: what it stood for there cannot be told.
    """
    decoder = json.JSONDecoder()
    found: dict[str, Any] | None = None
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except ValueError:
            start = text.find("{", start + 1)
            continue
        except RecursionError:  # thousands of braces; trying each would take long
            break
        if isinstance(value, dict):
            if _INSIDE_BEFORE.search(text, max(0, start - _NEAR), start) or _INSIDE_AFTER.match(text, end):
                return None
            found = value
        start = text.find("{", end)
    return found


def verdict_of(text: str) -> tuple[bool | None, str]:
    """Returns (whether the judge said CORRECT, its reason); (None, …) where it did not say one of CORRECT and WRONG.

    Takes {"verdict": "CORRECT", …}, or the bare word. A sentence is not read: "it does not match the correct answer"
    says CORRECT as little as "partially correct" does.
    """
    found = json_object(text)
    if found is not None:
        return _VERDICTS.get(str(found.get("verdict")).strip().upper()), str(found.get("reason", ""))
    bare = _BARE_VERDICT.fullmatch(text)
    return (None if bare is None else _VERDICTS[bare[1].upper()]), text.strip()


def marks_of(text: str, count: int) -> tuple[list[float | None], str]:
    """Returns (one mark for each facet, the judge's reason); None for each facet without a mark from 0 to 1.

    Takes {"facet_1": 0.5, …}, and {"marks": [0.5, …]} if it is as long as the rubric.
    """
    found = json_object(text)
    if found is None:
        return [None] * count, text.strip()
    listed = found.get("marks")
    if isinstance(listed, list):
        values = listed if len(listed) == count else [None] * count
    else:
        values = [found.get(f"facet_{number}") for number in range(1, count + 1)]
    return [_mark(value) for value in values], str(found.get("reason", ""))


def letter_of(text: str, choices: Mapping[str, str]) -> str | None:
    """Returns the letter that an answer chooses; None where it chooses none, or more than one.

    Tried in this order: the answer is a letter, with or without marks around it, or begins with one ("B. Paris",
    "(b) Paris"); it says so in words ("the answer is B"); it is the text of an option; one capital letter of an option
    stands in it alone.
    """
    plain = text.strip()
    found = json_object(plain)
    if found is not None and len(found) == 1:
        plain = str(next(iter(found.values()))).strip()
    by_letter = {letter.strip().upper(): letter for letter in choices}
    some = "|".join(re.escape(letter) for letter in sorted(by_letter, key=len, reverse=True))
    if not some:
        return None
    bare = re.fullmatch(rf"[\W_]*({some})[\W_]*", plain, re.IGNORECASE)
    if bare:
        return by_letter[bare[1].upper()]
    # Small letters are taken only where marks show that they are one: "the answer is a man" chooses nothing.
    named = re.findall(rf"(?i:answer|choice|option|letter)\s*(?i:is|:|=)?[\"'(\[*\s]*({some})(?![\w'])", plain)
    named += re.findall(rf"[(\[]({some})[)\]]", plain, re.IGNORECASE)
    leading = re.match(rf"[\"'(\[*]*({some})[\"'*]*[).:\]]", plain, re.IGNORECASE)
    if leading:
        named.append(leading[1])
    chosen = {by_letter[letter.upper()] for letter in named}
    if not chosen:
        chosen = {letter for letter, option in choices.items() if _same(option, plain)}
    if not chosen:
        chosen = {
            by_letter[letter.upper()]
            for letter in re.findall(rf"(?<![\w'])(?![AI]\s+(?!or\b|and\b)[a-z])({some})(?![\w'])", plain)
        }
    return chosen.pop() if len(chosen) == 1 else None


def _same(left: str, right: str) -> bool:
    return left.casefold().strip(" \t\n.\"'") == right.casefold().strip(" \t\n.\"'")


def _mark(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 1 else None  # not for NaN either
