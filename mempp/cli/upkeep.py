"""`mempp verify`, `snapshot`, `restore` and `compact`: proof, copies and tidying of a store."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

import mempp
from mempp.cli import options
from mempp.cli.output import say, write_json
from mempp.cli.run import AT_FAULT
from mempp.cli.stats import size

if TYPE_CHECKING:
    from mempp import VerifyReport


def verify_command(
    store: options.Store,
    expect: Annotated[
        str | None,
        typer.Option(
            "--expect",
            metavar="DIGEST",
            help="A head digest that was kept elsewhere; the chain must have had it at some point.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check every byte of a store: the hash chain over all entries, checksums, row ids, vectors.

    Prints the head digest; keep it elsewhere and give it later as --expect, which alone shows that nothing was cut off
    the end. Exit code 1: the store is damaged, or never had the expected digest. Writes nothing.
    """
    report = mempp.verify(store, expect=expect)
    if as_json:
        write_json({"store": store, **report.as_dict()})
    else:
        from mempp.cli.people import print_pairs

        print_pairs(_verified(report))
    if not report.ok:
        count = len(report.problems)
        say(f"{store} is not sound: {count} {'problem' if count == 1 else 'problems'}; restore it from a snapshot")
        raise typer.Exit(AT_FAULT)


def snapshot_command(
    store: options.Store,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A new folder, a folder with an earlier snapshot of this store, or a new file .tar.",
            show_default=False,
        ),
    ],
    no_vectors: Annotated[
        bool,
        typer.Option("--no-vectors", help="Leave out the vectors; after `restore`, `mempp embed` makes them anew."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Copy a store as it stands at one commit, while others read and write it.

    Into a folder with an earlier snapshot only what is new is copied. TARGET may be a URI that pyarrow or fsspec knows,
    such as s3://bucket/acme.
    """
    # Open for writing where it can be: beside writers that never pause, the copy then takes its turn among them.
    read_only = not os.access(store, os.W_OK)
    with mempp.open(store, create=False, read_only=read_only, encoder="none") as memory:
        report = memory.snapshot(target, derived=not no_vectors)
    if as_json:
        write_json({"store": store, **asdict(report)})
        return
    from mempp.cli.people import print_pairs

    pairs = [
        ("snapshot", report.target),
        ("documents", f"{report.rows:,}"),
        ("entries of the log", f"{report.entries:,}"),
        ("files copied", f"{report.files_copied:,} ({size(report.bytes_copied)})"),
        ("files there before", f"{report.files_present:,}"),
        *(("copied again", f"{name} (it was missing or altered)") for name in report.repaired),
        ("head digest", report.head_digest),
    ]
    print_pairs(pairs)


def restore_command(
    snapshot: Annotated[
        str,
        typer.Argument(
            metavar="SNAPSHOT", help="The folder or .tar file of a snapshot, or its URI.", show_default=False
        ),
    ],
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="The new store: no folder yet, or an empty one.", show_default=False)
    ],
    as_json: options.Json = False,
) -> None:
    """Make a store of a snapshot. Everything is checked first: it appears whole, or not at all."""
    report = mempp.restore(snapshot, store)
    if as_json:
        write_json({"snapshot": snapshot, **asdict(report), "path": str(report.path)})
        return
    from mempp.cli.people import print_pairs

    pairs = [
        ("store", str(report.path)),
        ("documents", f"{report.rows:,}"),
        ("entries of the log", f"{report.entries:,}"),
        ("files", f"{report.files:,} ({size(report.bytes)})"),
        ("head digest", report.head_digest),
    ]
    print_pairs(pairs)


def compact_command(store: options.Store, as_json: options.Json = False) -> None:
    """Merge small files of a store into larger ones: the same entries, the same digests, fewer files.

    Never needed; a store that grew by many small additions opens faster after it.
    """
    with options.open_to_write(store) as memory:
        report = memory.compact()
    if as_json:
        write_json({"store": store, **asdict(report)})
        return
    from mempp.cli.people import print_pairs

    pairs = [
        ("segments", f"{report.segments_before:,} before, {report.segments_after:,} now"),
        ("on disk", f"{size(report.bytes_before)} before, {size(report.bytes_after)} now"),
    ]
    print_pairs(pairs)


def _verified(report: "VerifyReport") -> Iterator[tuple[str, str]]:
    yield "sound", "yes" if report.ok else "no"
    for problem in report.problems:
        yield "problem", _problem(problem)
    for note in report.notes:
        yield "note", note
    yield "documents", f"{report.rows:,}"
    yield "entries of the log", f"{report.entries:,}"
    yield "commits", f"{report.commits:,}"
    for identity, count in report.vectors.items():
        yield "vectors", f"{count:,} of {identity}"
    if report.expected_at is not None:
        yield "expected digest", f"after {report.expected_at:,} of {report.entries:,} entries"
    yield "head digest", report.head_digest or "none"


def _problem(problem: Any) -> str:
    where = [
        *_range("sequence", problem.first_sequence, problem.last_sequence),
        *_range("row", problem.first_row, problem.last_row),
    ]
    return f"{problem.file}: {problem.what}{' (' + ', '.join(where) + ')' if where else ''}"


def _range(name: str, first: int | None, last: int | None) -> Iterator[str]:
    if first is not None:
        if last is None:
            yield f"{name}s from {first} on"
        else:
            yield f"{name} {first}" if first == last else f"{name}s {first} to {last}"
