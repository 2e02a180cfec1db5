"""From the fields of a file to a document: names, defaults, and what a document does not have."""

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mempp.cli.sources import Found
from mempp.cli.sources.parquet import json_value
from mempp.errors import InputError
from mempp.records import DOCUMENT_FIELDS, check_document

_LISTS = ("author", "tags")
_SEPARATOR = ";"
"""Between authors, and between tags, in one cell of a CSV file."""

_OTHER_NAMES = {
    "body": "text",
    "content": "text",
    "message": "text",
    "date": "occurred_at",
    "datetime": "occurred_at",
    "time": "occurred_at",
    "timestamp": "occurred_at",
    "created_at": "occurred_at",
    "sent_at": "occurred_at",
    "from": "author",
    "sender": "author",
    "user": "author",
    "labels": "tags",
    "id": "source",
    "url": "source",
    "channel": "thread",
    "conversation": "thread",
    "thread_id": "thread",
    "type": "kind",
}
"""What other programs often call a field. It serves for hints only: a name alone does not prove a meaning."""

_MOST_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class Naming:
    """What the options of `add` say about fields."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Field of a document -> key in the files, from `--map`."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Field -> value for documents that have none."""


def parse_map(pairs: list[str]) -> dict[str, str]:
    """Read `--map field=key` options.

    Raises:
        InputError: not of this form, no field of a document, or a field named twice.
    """
    names: dict[str, str] = {}
    for pair in pairs:
        given, equals, key = pair.partition("=")
        name = "author" if given == "authors" else given
        if not equals or not key:
            raise InputError(f"--map takes FIELD=KEY, such as text=body, got {pair!r:.80}")
        if name not in DOCUMENT_FIELDS:
            close = difflib.get_close_matches(name, DOCUMENT_FIELDS, n=1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            raise InputError(
                f"--map {pair!r:.80}: a document has no field {given!r:.80}; {meant}"
                f"the fields are {', '.join(DOCUMENT_FIELDS)}, and the key in the file stands after the ="
            )
        if name in names:
            raise InputError(f"--map names {name!r} twice: {names[name]!r:.80} and {key!r:.80}")
        names[name] = key
    return names


def check_defaults(**given: object) -> dict[str, object]:
    """The defaults that were given (not None), by field.

    Raises:
        InputError: one of them is not usable in a document.
    """
    defaults = {name: value for name, value in given.items() if value is not None}
    try:
        check_document({"text": "", **defaults})
    except InputError as error:
        raise InputError(f"a default for documents is not usable: {error}") from None
    return defaults


class Fields:
    """Turns what readers find into documents, and notes each key that a document does not have, once."""

    def __init__(self, naming: Naming, note: Callable[[str], None]) -> None:
        self._naming = naming
        self._note = note
        self._unknown: set[str] = set()
        self._seen: set[str] = set()
        self._looked = False
        self._fields_of: dict[str, list[str]] = {}
        for name in DOCUMENT_FIELDS:
            self._fields_of.setdefault(naming.names.get(name, name), []).append(name)
        if "author" not in naming.names:
            self._fields_of.setdefault("authors", []).append("author")

    def document(self, found: Found) -> dict[str, object]:
        """The document that was found, checked.

        Raises:
            InputError: it is not usable; the message does not name the place.
        """
        if found.form == "file":
            source = os.fsencode(found.place).decode("utf-8", "replace")
            fields: dict[str, object] = {"text": found.fields["text"], "source": source}
        else:
            fields = self._named(found)
        checked = check_document(fields)
        for name, default in self._naming.defaults.items():
            value = checked.authors if name == "author" else getattr(checked, name)
            if value is None or value == ():
                fields[name] = default
        return fields

    def unused(self) -> list[str]:
        """`--map` options whose key no document had."""
        if not self._looked:
            return []
        return [f"{name}={key}" for name, key in self._naming.names.items() if key not in self._seen]

    def _named(self, found: Found) -> dict[str, object]:
        self._looked = True
        fields: dict[str, object] = {}
        rest: dict[str, object] = {}
        for key, value in found.fields.items():
            names = self._fields_of.get(key)
            if names is None:
                if found.form == "parquet":
                    value = json_value(value, key)
                # In a table every row has every column; a cell without a value is no key of its document.
                if not (found.form == "parquet" and value is None) and not (found.form == "csv" and value == ""):
                    rest[key] = value
                continue
            self._seen.add(key)
            for name in names:
                value_of_field = _from_cell(name, value) if found.form == "csv" else _from_value(name, value)
                if value_of_field is None and name != "text":
                    continue
                if name in fields:
                    raise InputError("it has both 'author' and 'authors'; give one of them")
                fields[name] = value_of_field
        for name in self._naming.names:
            # A document that lacks the mapped key, and has the field under its own name, is not to lose it.
            if name not in fields and name in rest:
                value = rest.pop(name)
                own = _from_cell(name, value) if found.form == "csv" else _from_value(name, value)
                if own is not None:
                    fields[name] = own
        if "text" not in fields:
            raise InputError(self._no_text(found))
        if fields["text"] is None:
            what = "column" if found.form == "parquet" else "key"
            raise InputError(f"no text: the {what} {self._naming.names.get('text', 'text')!r:.80} holds null")
        if rest:
            self._name_unknown(found, rest)
        metadata = _metadata(fields.get("metadata"), found, rest)
        if metadata is not None:
            fields["metadata"] = metadata
        return fields

    def _no_text(self, found: Found) -> str:
        key = self._naming.names.get("text", "text")
        what = "column" if found.form in ("csv", "parquet") else "key"
        there = ", ".join(repr(one) for one in found.fields) or "none"
        return f"no text: there is no {what} {key!r:.80}, only {there:.300}; name it with --map text=NAME"

    def _name_unknown(self, found: Found, rest: Mapping[str, object]) -> None:
        for key in rest:
            if key in self._unknown or len(self._unknown) > _MOST_NAMED:
                continue
            self._unknown.add(key)
            if len(self._unknown) > _MOST_NAMED:
                self._note("further keys that a document does not have are not named; all are kept in metadata")
                return
            hint = self._hint(key, found)
            if key in self._naming.names:
                why = f"is not used, since --map takes the {key} from {self._naming.names[key]!r:.80}"
            else:
                why = "is no field of a document"
            self._note(f"{found.place}: {key!r:.80} {why}; kept in metadata{hint}")

    def _hint(self, key: str, found: Found) -> str:
        folded = key.casefold().replace("-", "_").replace(" ", "_")
        # "authors" is a name for itself and not one to suggest.
        close = difflib.get_close_matches(folded, DOCUMENT_FIELDS, n=1, cutoff=0.75)
        name = close[0] if close else _OTHER_NAMES.get(folded)
        if name is None or name in self._naming.names or name in found.fields:
            return ""
        return f"; if it is the {name}, give --map {name}={key!s:.80}"


def _from_cell(name: str, cell: object) -> object:
    """A CSV cell as a field: empty means none; authors and tags are separated; numbers and dates stay text."""
    assert isinstance(cell, str)
    if name == "text":
        return cell
    if name in _LISTS:
        return [one for one in cell.split(_SEPARATOR) if one.strip()] or None
    return cell if cell.strip() else None


def _from_value(name: str, value: object) -> object:
    """A JSON or Arrow value as a field: numbers of tickets and threads become text."""
    if name in ("source", "thread") and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _metadata(given: object, found: Found, rest: Mapping[str, object]) -> dict[str, object] | None:
    """Given metadata together with the keys that a document does not have."""
    if isinstance(given, str) and found.form != "json":
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the column of metadata does not hold JSON: {error}: {given!r:.80}") from None
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"metadata must be an object, not {type(given).__name__}: {given!r:.80}")
    metadata = dict(given or {})
    if found.form == "parquet":
        metadata = {key: json_value(value, f"metadata.{key}") for key, value in metadata.items()}
    for key, value in rest.items():
        if key in metadata and metadata[key] != value:
            raise InputError(f"{key!r:.80} stands in metadata and beside it, with different values")
        metadata[key] = value
    return metadata or None
