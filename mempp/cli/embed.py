"""`mempp embed` and `mempp reembed`: vectors for documents that have none, in one go or in parts; another encoder."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

import mempp
from mempp.cli import options
from mempp.cli.interrupts import answered
from mempp.cli.output import say, write_json
from mempp.cli.progress import duration, meter
from mempp.cli.sources.files import SourceFileError
from mempp.errors import InputError


def embed_command(
    store: options.Store,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Vector files, with --merge.", show_default=False),
    ] = None,
    encoder: options.Encoder = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            help="Only the I-th of N parts of the documents, I from 1, and into a file: the store is not written to.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="The vector file of --shard.", show_default=False),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Take in the vector files FILE, instead of embedding.")
    ] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Embed the documents that have no vector yet.

    Such are those added with --no-embed, and those whose adding was interrupted. It may be interrupted itself at any
    time: what was embedded is kept, and the same command goes on. With --shard and --out the work is shared among
    machines that can read the store, with the store's own encoder; --merge takes in what they wrote, in any order, and
    twice without harm.
    """
    if encoder == "none":
        raise InputError("--encoder none makes no vectors; leave it out for the store's own encoder, or name one")
    with _other_than_none():
        _run(store, files, encoder, shard, out, merge, quiet=quiet, as_json=as_json)


def _run(
    store: str,
    files: list[str] | None,
    encoder: str | None,
    shard: str | None,
    out: str | None,
    merge: bool,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    if merge:
        if shard is not None or out is not None:
            raise InputError("--merge goes without --shard and --out")
        if not files:
            raise InputError("--merge needs the vector files to take in: mempp embed STORE --merge FILE...")
        _merge(store, options.typed_all(files) or [], encoder=encoder, quiet=quiet, as_json=as_json)
        return
    if files:
        raise InputError(f"vector files such as {files[0]!r:.80} are taken in with --merge")
    if (shard is None) != (out is None):
        raise InputError("--shard and --out belong together: the vectors of a part go to a file")
    if shard is not None and out is not None:
        _shard(store, parse_shard(shard), options.typed(out), encoder=encoder, quiet=quiet, as_json=as_json)
    else:
        _embed(store, encoder=encoder, quiet=quiet, as_json=as_json)


def reembed_command(
    store: options.Store,
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder",
            metavar="NAME",
            help="The new encoder: minilm, minilm-int8, openai, openai:MODEL, or the folder of an ONNX model.",
            show_default=False,
        ),
    ],
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Embed all documents with another encoder, and make that the store's.

    The new vectors are made beside the old ones, and the store goes on with its old encoder until they are complete,
    those of documents that came meanwhile included. Interrupted, the same command goes on where it was. The old vectors
    stay, for the past (see --at).
    """
    if encoder == "none":
        raise InputError("--encoder none makes no vectors; name the new encoder")
    started = time.monotonic()
    # The old encoder is not needed for this, so it need not be there.
    with _other_than_none(), mempp.open(store, create=False) as memory:
        before, rows = memory.stats().encoder, len(memory)
        with _counting("embedding", rows, f"the encoder is still {before}", quiet=quiet) as progress:
            embedded = memory.reembed(encoder, progress=progress)
        after = memory.stats().encoder
    if not quiet:
        changed = f"the encoder is now {after}" if after != before else f"the encoder is {after}, as before"
        say(f"embedded {_documents(embedded)} in {duration(time.monotonic() - started)}; {changed}")
    if as_json:
        write_json({"store": store, "embedded": embedded, "encoder": after, "encoder_before": before})


def parse_shard(text: str) -> tuple[int, int]:
    """Read `I/N`.

    Raises:
        InputError: it is not of this form.
    """
    number, slash, of = text.partition("/")
    if not slash or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (number, of)):
        raise InputError(f"--shard takes I/N, such as 3/16, got {text!r:.80}")
    if not 1 <= int(number) <= int(of):
        raise InputError(f"--shard {text!r:.80}: the parts of {int(of)} are 1/{int(of)} to {int(of)}/{int(of)}")
    return int(number), int(of)


def _embed(store: str, *, encoder: str | None, quiet: bool, as_json: bool) -> None:
    started = time.monotonic()
    with (
        mempp.open(store, create=False, encoder=encoder) as memory,
        _counting("embedding", memory.stats().without_vector, "", quiet=quiet) as progress,
    ):
        embedded = memory.embed(progress=progress)
    if not quiet:
        took = f" in {duration(time.monotonic() - started)}" if embedded else "; every document has its vector"
        say(f"embedded {_documents(embedded)}{took}")
    if as_json:
        write_json({"store": store, "embedded": embedded})


def _shard(store: str, shard: tuple[int, int], out: str, *, encoder: str | None, quiet: bool, as_json: bool) -> None:
    started = time.monotonic()
    number, of = shard
    _check_out(out, store)
    was_there = os.path.exists(out)
    with mempp.open(store, read_only=True, create=False, encoder=encoder) as memory:
        missing = memory.stats().without_vector / of
        with _counting("embedding", missing, f"they are in {out}.part", quiet=quiet) as progress:
            embedded = memory.embed(shard=shard, out=out, progress=progress)
    if not quiet:
        took = f" in {duration(time.monotonic() - started)}"
        if not embedded:
            took = "; the file had all of them" if was_there else "; no document of this shard lacks a vector"
        say(f"embedded {_documents(embedded)} of shard {number}/{of} into {out}{took}")
    if as_json:
        write_json({"store": store, "shard": list(shard), "out": out, "embedded": embedded})


def _merge(store: str, files: Sequence[str], *, encoder: str | None, quiet: bool, as_json: bool) -> None:
    started = time.monotonic()
    for file in files:
        if os.path.isdir(file):
            raise SourceFileError(f"{file!r:.300} is a folder; --merge takes vector files, as --shard writes them")
        if not os.path.lexists(file):
            raise SourceFileError(f"there is no file {file!r:.300}; --merge takes vector files, as --shard writes them")
    with mempp.open(store, create=False, encoder=encoder) as memory:
        with _counting("merging", None, "", quiet=quiet) as progress:
            merged = memory.merge_vectors(files, progress=progress)
        missing = memory.stats().without_vector
    if not quiet:
        rest = f"; {_documents(missing)} still without" if missing else "; every document has its vector"
        say(f"took in vectors of {_documents(merged)} in {duration(time.monotonic() - started)}{rest}")
    if as_json:
        write_json({"store": store, "files": list(files), "merged": merged, "without_vector": missing})


@contextmanager
def _counting(verb: str, whole: float | None, more: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show progress; at Ctrl-C say how much of it stays.

    Args:
        verb: what is being done.
        whole: how many documents there are to be done, where that is known.
        more: what else the answer to Ctrl-C tells.
        quiet: whether no progress is wanted.
    """
    kept = 0
    with meter(verb, quiet=quiet) as progress:

        def show(done: int) -> None:
            nonlocal kept
            kept = done
            progress.show(done, done / whole if whole else None)

        def tell() -> None:
            with suppress(RuntimeError):  # it was about to be drawn
                progress.__exit__(None, None, None)  # the bar goes now, not when the encoder's call has ended
            what = {"merging": "vectors taken in"}.get(verb, "documents embedded")
            stays = f"{kept:,} {what} before stay" if kept else f"no further {what}"
            rest = f" ({more})" if more and kept else ""
            say(f"interrupted; {stays}{rest}; the same command goes on. Ending; Ctrl-C again does not wait")

        with answered(tell):
            yield show


@contextmanager
def _other_than_none() -> Iterator[None]:
    """Let an error that tells which encoders there are leave out "none", which makes no vectors."""
    try:
        yield
    except InputError as error:
        error.args = (str(error).replace('"none", ', ""), *error.args[1:])
        raise


def _check_out(out: str, store: str) -> None:
    """Refuse a file that cannot be made, before the encoder is loaded.

    Raises:
        SourceFileError: there is no such folder, or it is a folder.
        InputError: it lies within the store.
    """
    try:
        path, inside = os.path.realpath(out), os.path.realpath(store)
    except ValueError:  # a NUL in the path
        raise InputError(f"{out!r:.300} is no name of a file") from None
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise SourceFileError(f"--out {out!r:.300} is a folder; name a file")
    if not os.path.isdir(folder):
        raise SourceFileError(f"there is no folder {folder!r:.300} for the file of --out; make it first")
    if path.startswith(inside + os.sep):
        raise InputError(f"--out {out!r:.300} lies within the store; name a file elsewhere")


def _documents(count: int) -> str:
    return "1 document" if count == 1 else f"{count:,} documents"
