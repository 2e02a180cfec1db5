"""The `--set NAME=VALUE` of a system, read by the type that the value is to have."""

import json
import types
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin

from eval.errors import UsageError
from eval.systems.base import Options

MEANING = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def parsed(given: Mapping[str, str], hints: Mapping[str, object], system: str) -> dict[str, Any]:
    """The values that were set, each in the type that it is to have.

    Args:
        given: name → text, as it came from the command line.
        hints: name → type of every option that the system has: int, float, bool, str, a Literal, a union of these
            with None ("none"), a tuple of texts ("a,b"), or anything that JSON can write.
        system: name of the system, for the message.

    Raises:
        UsageError: the system has no such option, or the text is no value of its type.
    """
    for name in given:
        if name not in hints:
            near = get_close_matches(name, hints, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else _there_are(hints)
            raise UsageError(f"--set {name}=…: the system {system!r} has no option {name!r}; {hint}")
    return {name: _parse(name, hints[name], text) for name, text in given.items()}


def refuse_unknown(options: Options, hints: Mapping[str, object], system: str, *, preset: bool = False) -> None:
    """Refuse a preset for a system that has none, and options that it does not know.

    Raises:
        UsageError: one was given.
    """
    parsed(options.settings, hints, system)
    if options.preset is not None and not preset:
        raise UsageError(f"--preset {options.preset}: the system {system!r} has no presets; leave it out")


def positive_k(options: Options, default: int) -> int:
    """The number of results that was asked for.

    Raises:
        UsageError: it is below 1.
    """
    if options.k is None:
        return default
    if isinstance(options.k, bool) or not isinstance(options.k, int) or options.k < 1:
        raise UsageError(f"--k must be a whole number from 1, got {options.k!r}")
    return options.k


def _there_are(hints: Mapping[str, object]) -> str:
    return f"there are {', '.join(hints)}" if hints else "it takes no options"


def _parse(name: str, hint: object, text: str) -> object:
    value = text.strip()
    if get_origin(hint) in (Union, types.UnionType):
        members = get_args(hint)
        if type(None) in members and value.casefold() in ("none", ""):
            return None
        # The narrower type first: "3" is a whole number where both are allowed, and anything is a text.
        order: list[object] = [bool, int, float]
        kinds = sorted((one for one in members if one is not type(None)), key=lambda one: _place(one, order))
        for kind in kinds[:-1]:
            try:
                return _parse(name, kind, text)
            except UsageError:
                continue
        return _parse(name, kinds[-1], text)
    if get_origin(hint) is Literal:
        for choice in get_args(hint):
            if str(choice).casefold() == value.casefold():
                return choice
        raise _unusable(name, text, "one of " + ", ".join(map(str, get_args(hint))))
    if hint is bool:
        if value.casefold() in MEANING:
            return MEANING[value.casefold()]
        raise _unusable(name, text, "1 or 0")
    if hint is int:
        return _number(name, text, int, "a whole number")
    if hint is float:
        return _number(name, text, float, "a number")
    if hint is str:
        return text
    if get_origin(hint) is tuple and get_args(hint)[0] is str:
        return tuple(part for part in (part.strip() for part in value.split(",")) if part)
    try:
        return json.loads(value)
    except ValueError:
        raise _unusable(name, text, f"JSON for {hint}") from None


def _place(kind: object, order: list[object]) -> int:
    return order.index(kind) if kind in order else len(order)


def _number(name: str, text: str, kind: Callable[[str], int | float], what: str) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise _unusable(name, text, what) from None


def _unusable(name: str, text: str, wanted: str) -> UsageError:
    shown = text if len(text) <= 80 else text[:79] + "…"
    return UsageError(f"--set {name}={shown}: the value must be {wanted}")
