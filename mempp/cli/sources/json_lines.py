"""JSON Lines: one JSON object per line."""

import codecs
import json
from typing import BinaryIO

from mempp.cli.sources import Fault, Found, Reading, not_utf8


def read_json_lines(stream: BinaryIO, name: str) -> Reading:
    """Yield the object of every line; blank lines and a leading byte order mark are passed over.

    Only a line feed ends a line: U+2028 and its like may stand in a text. A key that stands twice in one object is a
    fault, because JSON parsers would keep the last value and drop the first without a word.
    """
    position = 0
    for number, line in enumerate(stream, start=1):
        position += len(line)
        place = f"{name}:{number}"
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            yield Fault(place, not_utf8(error.start, line[error.start]), position)
            continue
        if not text or text.isspace():
            continue
        parsed = _parse(text.rstrip("\r\n"))
        if isinstance(parsed, str):
            yield Fault(place, parsed, position)
        else:
            yield Found(place, parsed, position)


class _RepeatedKeyError(ValueError):
    pass


def _parse(text: str) -> dict[str, object] | str:
    """The object, or what is wrong with the line."""
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except _RepeatedKeyError as error:
        return f"the key {error.args[0]!r:.80} stands twice in one object"
    except json.JSONDecodeError as error:
        # What follows "Expecting value" is of use only with the text around it.
        around = text[max(0, error.pos - 20) : error.pos + 20]
        return f"not JSON: {error.msg} at column {error.pos + 1}, near {around!r}"
    except RecursionError:
        return "not usable JSON: nested too deep"
    except ValueError as error:  # an integer of more digits than Python converts
        return f"not usable JSON: {str(error).split(';')[0]}"
    if isinstance(value, dict):
        return value
    kind = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")
    return f"not a JSON object but {kind}: {text.strip()!r:.60}; JSON Lines holds one object per line"


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKeyError(key)
            seen.add(key)
    return value
