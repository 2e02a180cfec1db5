"""Options that several commands share, and what they mean to the memory."""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

import mempp
from mempp.cli.output import moment, say
from mempp.dates import show
from mempp.errors import EncoderError, InputError

if TYPE_CHECKING:
    from mempp import Memory, Record, Settings
    from mempp.settings import EvidenceStyle

Store = Annotated[str, typer.Argument(metavar="STORE", help="The folder of the store.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]
Encoder = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="minilm, minilm-int8, openai, openai:MODEL, the folder of an ONNX model, or none. By default the store's "
        "own; where it has none yet, that of MEMPP_ENCODER, else minilm.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")]
Question = Annotated[str, typer.Argument(metavar="QUESTION", help="The question, any text.", show_default=False)]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="DATE",
        help="Only documents dated up to then; undated ones are out. auto: as the question says.",
        show_default=False,
    ),
]
AskedAt = Annotated[
    str | None,
    typer.Option(
        "--asked-at",
        metavar="DATE",
        help="When the question is asked, so that `last March` in it is understood; it bounds nothing.",
        show_default=False,
    ),
]
KnownAt = Annotated[
    str | None,
    typer.Option(
        "--known-at",
        metavar="DATE|N",
        help="Only what was stored up to then; a whole number is the sequence number of an entry.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="DATE", help="Only documents dated from then on.", show_default=False),
]
K = Annotated[
    int | None,
    typer.Option(
        "--k",
        "-k",
        metavar="N",
        help="At most this many hits; by default 24, with a preset 50. N // 4 of them, at most 3, are recency slots: "
        "below 4 there is none; with a preset always 3.",
        show_default=False,
    ),
]
Author = Annotated[
    list[str] | None,
    typer.Option("--author", metavar="NAME", help="Only by this author; give it again for more.", show_default=False),
]
Tag = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only with this tag; give it again for more.", show_default=False),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="ID", help="Only from this source; give it again for more.", show_default=False),
]
Thread = Annotated[
    list[str] | None,
    typer.Option("--thread", metavar="ID", help="Only of this thread; give it again for more.", show_default=False),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="KEY=VALUE",
        help="Only with this metadata. The same key again: any of the values; another key: both.",
        show_default=False,
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="DATE|N",
        help="Open the store as it stood then, by the time of storing, or after the entry with this sequence number.",
        show_default=False,
    ),
]
AllowDamaged = Annotated[
    bool,
    typer.Option("--allow-damaged", help="Read what is whole of a damaged store; a warning tells what is lost."),
]
Row = Annotated[int, typer.Argument(metavar="ROW", help="The row id, as `recall` shows it.", show_default=False)]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the entry.", show_default=False)
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset", metavar="NAME", help="Read settings of the paper: orgmembench, locomo or longmemeval.",
        show_default=False,
    ),
]  # fmt: skip


def bounds(
    *,
    as_of: str | None,
    known_at: str | None,
    since: str | None,
    author: Sequence[str] | None,
    tag: Sequence[str] | None,
    source: Sequence[str] | None,
    thread: Sequence[str] | None,
    where: Sequence[str] | None,
    asked_at: str | None = None,
) -> dict[str, Any]:
    """The bounds and filters of a question, as `Memory.recall` takes them.

    Raises:
        InputError: `--where` is not KEY=VALUE.
    """
    return {
        "as_of": as_of,
        "known_at": _moment_or_sequence(known_at),
        "since": since,
        "author": typed_all(author),
        "tags": typed_all(tag),
        "source": typed_all(source),
        "thread": typed_all(thread),
        "where": parse_where(typed_all(where) or ()) if where else None,
        "asked_at": asked_at,
    }


def asked(question: str, bounds: dict[str, Any]) -> dict[str, Any]:
    """The question and its bounds in time, as JSON output tells them."""
    from mempp import as_of_read

    times = {name: bounds[name] for name in ("as_of", "known_at", "since", "asked_at")}
    return {"question": question, **times, "as_of_read": moment(as_of_read(question, bounds))}


def tell_as_of(question: str, bounds: dict[str, Any]) -> None:
    """Say which as-of date `--as-of auto` read from the question."""
    from mempp import as_of_read

    if str(bounds["as_of"]).strip().casefold() == "auto":
        read = as_of_read(question, bounds)
        say("the question names no as-of date" if read is None else f"as of {show(read)}, read from the question")


_FILTERS: dict[str, tuple[str, Callable[["Record"], Sequence[str | None]]]] = {
    "author": ("author", lambda record: record.authors),
    "tags": ("tag", lambda record: record.tags),
    "source": ("source", lambda record: (record.source,)),
    "thread": ("thread", lambda record: (record.thread,)),
}
_LOOKED_THROUGH = 100_000  # rows; of a larger store no value is proposed


def tell_unknown(memory: "Memory", bounds: dict[str, Any]) -> None:
    """Say which values of filters no document has, and which one may be meant: they match whole, not in part."""
    for name, (shown, values_of) in _FILTERS.items():
        for value in bounds[name] or ():
            if memory.records(**{name: value}):
                continue
            records = memory.records() if len(memory) <= _LOOKED_THROUGH else []
            known = {label.casefold(): label for record in records for label in values_of(record) if label}
            folded = value.casefold()
            near = [one for one in sorted(known) if folded in one] or get_close_matches(folded, known, n=1)
            meant = f"; did you mean {known[near[0]]!r:.80}?" if near else ""
            say(f"no document has the {shown} {value!r:.80}{meant}")


def _moment_or_sequence(text: str | None) -> str | int | None:
    if text is not None and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return text


_SURROGATE = re.compile("[\ud800-\udfff]")


def typed(text: str) -> str:
    """A text of the command line in its characters.

    Where the locale is not UTF-8 (LC_ALL=C), Python hands over bytes of UTF-8 as lone surrogates.
    """
    if not _SURROGATE.search(text):
        return text
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        return text


def typed_all(texts: Sequence[str] | None) -> list[str] | None:
    """Texts of the command line in their characters; None for none."""
    return [typed(text) for text in texts] if texts else None


def parse_where(pairs: Sequence[str]) -> dict[str, list[object]]:
    """Read `--where key=value` options; a value that reads as a JSON number, true, false or null means that, too.

    Raises:
        InputError: not of this form.
    """
    wanted: dict[str, list[object]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--where takes KEY=VALUE, such as project=apollo, got {pair!r:.80}")
        values = wanted.setdefault(key, [])
        values.append(text)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if value is None or isinstance(value, bool | int) or (isinstance(value, float) and abs(value) < float("inf")):
            values.append(value)
    return wanted


def evidence_style(name: str) -> "EvidenceStyle":
    """The style of evidence that `--style` names.

    Raises:
        InputError: there is no such style.
    """
    styles: dict[str, EvidenceStyle] = {"plain": "plain", "tagged": "tagged"}
    if name not in styles:
        raise InputError(f"--style must be plain or tagged, got {name!r:.80}")
    return styles[name]


def settings_of(preset: str | None) -> "Settings | None":
    """The settings that `--preset` names.

    Raises:
        InputError: there is no such preset.
    """
    return None if preset is None else mempp.preset(preset)


@contextmanager
def open_to_read(
    store: str, encoder: str | None = None, *, at: str | None = None, allow_damaged: bool = False
) -> "Iterator[Memory]":
    """A store opened for reading only; nothing is created or written.

    Args:
        store: its folder.
        encoder: as in `mempp.open`.
        at: what `--at` says.
        allow_damaged: whether a damaged store is read in part.

    Raises:
        StoreError: there is no store, or it is at fault.
        InvalidDateError: `at` is neither a date nor a whole number.
        EncoderError: the question could not be embedded; the message says how to ask without.
    """
    try:
        with mempp.open(
            store,
            read_only=True,
            create=False,
            encoder=encoder,
            at=_moment_or_sequence(at),
            allow_damaged=allow_damaged,
        ) as memory:
            yield memory
    except EncoderError as error:
        raise type(error)(f"{error}; --encoder none asks without vectors") from error


@contextmanager
def open_to_write(store: str) -> "Iterator[Memory]":
    """A store that is there, opened for entries that need no encoder.

    Raises:
        StoreError: there is no store, or it is at fault.
    """
    with mempp.open(store, create=False, encoder="none") as memory:
        yield memory
