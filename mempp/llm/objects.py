"""An object out of a reply, checked against the JSON schema that was asked for.

Providers are asked for the form by their own means, but a reply may still be anything: a local server may know no
schemas, a reply may be cut, a model may refuse. What does not fit is told as a value, since one reply out of many that
cannot be read is no reason to end a run.

Of JSON Schema this checks what the schemas of this project, and the structured outputs of both providers, are made of:
`type` (one, or a list of them), `properties`, `required`, `additionalProperties` (a boolean or a schema), `items`,
`enum`, `const`, `anyOf`, `minItems`, `maxItems`, `minLength`, `maxLength`, `minimum`, `maximum`. A keyword that would
change what is allowed and is none of these is refused, not passed over.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mempp.errors import InputError, quoted
from mempp.llm.base import JsonSchema, Reply

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_CHECKED = {
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf",
    "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum",
}  # fmt: skip
_ONLY_TOLD = {"title", "description", "default", "examples", "$schema", "$id", "$comment"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a reply held: a value of the schema, or what is wrong with it."""

    value: Any = None
    """The object; None where there is a problem."""
    problem: str | None = None
    """One clear line; None where the value fits."""

    @property
    def fits(self) -> bool:
        """Whether there is a value."""
        return self.problem is None


def object_of(reply: Reply, schema: JsonSchema) -> Parsed:
    """Reads the object that a reply holds, and checks it.

    The text may stand in a fence of Markdown (```json); anything else around it is a problem, and so is a name that an
    object holds twice: readers do not agree which of the two holds.

    Raises:
        InputError: the schema holds a keyword that is not checked here.
    """
    check_schema(schema)
    shown = quoted(reply.text)
    if reply.stopped == "refusal":
        return Parsed(problem=f"the model declined: {shown}")
    if reply.stopped == "length":
        return Parsed(problem=f"the reply was cut at the most tokens allowed: {shown}")
    try:
        value = json.loads(_unfenced(reply.text), parse_constant=_no_constant, object_pairs_hook=_named_once)
    except (ValueError, RecursionError) as error:
        return Parsed(problem=f"the reply is no JSON ({error}): {shown}")
    try:
        problem = _problem(value, schema, "the reply")
    except RecursionError:
        problem = "the reply is nested too deep"
    return Parsed(value) if problem is None else Parsed(problem=f"{problem}: {shown}")


def check_schema(schema: JsonSchema) -> None:
    """Makes sure that everything a schema demands is checked.

    Raises:
        InputError: it holds a keyword, or a type, that is not checked here.
    """
    unknown = sorted(set(schema) - _CHECKED - _ONLY_TOLD)
    if unknown:
        raise InputError(f"the JSON schema holds {quoted(unknown[0])}, which is not checked here; leave it out")
    for name in _types(schema):
        if name not in _TYPES:
            raise InputError(f"the JSON schema names the type {quoted(name)}; there are {', '.join(_TYPES)}")
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    parts += [part for key in ("items", "additionalProperties") if isinstance(part := schema.get(key), Mapping)]
    for part in parts:
        check_schema(part)


def _unfenced(text: str) -> str:
    """A text without the fence around it, if there is one."""
    inner = text.strip()
    if len(inner) < 6 or not (inner.startswith("```") and inner.endswith("```")):
        return text
    language, newline, content = inner[3:-3].partition("\n")
    return content if newline and language.strip().lower() in ("", "json") else text


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for name, one in pairs:
        if name in value:
            raise ValueError(f"it names {quoted(name)} twice")
        value[name] = one
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _types(schema: JsonSchema) -> tuple[str, ...]:
    named = schema.get("type", ())
    return (named,) if isinstance(named, str) else tuple(named)


def _problem(value: Any, schema: JsonSchema, where: str) -> str | None:
    """The first thing in which a value does not fit; None if there is none."""
    types = _types(schema)
    if types and not any(_is(value, name) for name in types):
        return f"{where} is no {' or '.join(types)}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{where} is none of {quoted(list(schema['enum']))}"
    if "const" in schema and not _same(value, schema["const"]):
        return f"{where} is not {quoted(schema['const'])}"
    if "anyOf" in schema and all(_problem(value, part, where) is not None for part in schema["anyOf"]):
        return f"{where} fits none of the forms that are allowed"
    if isinstance(value, dict):
        return _object_problem(value, schema, where)
    if isinstance(value, list):
        return _array_problem(value, schema, where)
    if isinstance(value, str):
        return _size_problem(len(value), schema, "Length", where, "characters")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            return f"{where} is below {schema['minimum']}"
        if value > schema.get("maximum", value):
            return f"{where} is above {schema['maximum']}"
    return None


def _array_problem(value: Sequence[Any], schema: JsonSchema, where: str) -> str | None:
    part = schema.get("items", {})
    problems = (_problem(one, part, f"{where}[{place}]") for place, one in enumerate(value))
    return _size_problem(len(value), schema, "Items", where, "items") or next(filter(None, problems), None)


def _object_problem(value: Mapping[str, Any], schema: JsonSchema, where: str) -> str | None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} lacks {quoted(name)}"
    others = schema.get("additionalProperties", True)
    for name, one in value.items():
        part = properties.get(name, others)
        if part is False:
            return f"{where} holds {quoted(name)}, which was not asked for"
        if isinstance(part, Mapping):
            problem = _problem(one, part, f"{where}.{name:.40}")
            if problem is not None:
                return problem
    return None


def _size_problem(size: int, schema: JsonSchema, what: str, where: str, unit: str) -> str | None:
    if size < schema.get(f"min{what}", size):
        return f"{where} has {size} {unit}, fewer than {schema[f'min{what}']}"
    if size > schema.get(f"max{what}", size):
        return f"{where} has {size} {unit}, more than {schema[f'max{what}']}"
    return None


def _is(value: Any, name: str) -> bool:
    # In Python True is 1, in JSON it is not; 1.0 is an integer in JSON Schema.
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
