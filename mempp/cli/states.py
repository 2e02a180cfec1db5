"""`mempp history` and `changes`, and the commands that change a row's state."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mempp.cli import options
from mempp.cli.output import moment, record_as_json, say, write_json

if TYPE_CHECKING:
    from mempp import Change


def history_command(store: options.Store, row: options.Row, as_json: options.Json = False) -> None:
    """Show what became of a document: every change of its state, what it replaced, and what replaced it."""
    with options.open_to_read(store, "none") as memory:
        history = memory.history(row)
    if as_json:
        write_json(
            {
                "record": record_as_json(history.record),
                "changes": [_change_as_json(change) for change in history.changes],
                "replaced_by": [record_as_json(record) for record in history.replaced_by],
                "replaced": [record_as_json(record) for record in history.replaced],
            }
        )
        return
    from mempp.cli.people import print_history

    print_history(history)


def changes_command(
    store: options.Store,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="DATE", help="From then on; a day means its start.", show_default=False),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="DATE", help="Up to then; a day means its end.", show_default=False),
    ] = None,
    by: Annotated[
        str,
        typer.Option("--by", metavar="TIME", help="ingest: when it was stored; event: when it happened."),
    ] = "ingest",
    as_json: options.Json = False,
) -> None:
    """List the documents that came, and the changes of state, between two moments.

    By event time, a supersession counts from the event date of the newer document, and other changes of state, which
    have no event date, are left out.
    """
    time_line: Any = by  # Memory.changes checks it
    with options.open_to_read(store, "none") as memory:
        changes = memory.changes(since, until, by=time_line)
    if as_json:
        write_json(
            {
                "since": since,
                "until": until,
                "by": by,
                "records": [record_as_json(record) for record in changes.records],
                "states": [_change_as_json(change) for change in changes.states],
            }
        )
        return
    if not changes.records and not changes.states:
        say("no changes")
        return
    from mempp.cli.people import print_changes

    print_changes(changes)


def supersede_command(
    store: options.Store,
    old: Annotated[int, typer.Argument(metavar="OLD", help="The row id of what no longer holds.", show_default=False)],
    new: Annotated[int, typer.Argument(metavar="NEW", help="The row id of what replaces it.", show_default=False)],
    as_json: options.Json = False,
) -> None:
    """Say that one document replaces another; the older one stays and is still found, marked as superseded."""
    with options.open_to_write(store) as memory:
        sequence = memory.supersede(old, by=new)
    _tell(store, old, sequence, f"is superseded by row {new}", as_json)


def retract_command(
    store: options.Store, row: options.Row, reason: options.Reason = None, as_json: options.Json = False
) -> None:
    """Take a document out of every answer; its text stays in the log. `reinstate` brings it back."""
    with options.open_to_write(store) as memory:
        sequence = memory.retract(row, reason=None if reason is None else options.typed(reason))
    _tell(store, row, sequence, "is retracted", as_json)


def reinstate_command(
    store: options.Store, row: options.Row, reason: options.Reason = None, as_json: options.Json = False
) -> None:
    """Make a document active again, whether it was superseded, archived or retracted."""
    with options.open_to_write(store) as memory:
        sequence = memory.reinstate(row, reason=None if reason is None else options.typed(reason))
    _tell(store, row, sequence, "is active again", as_json)


def _tell(store: str, row: int, sequence: int, what: str, as_json: bool) -> None:
    if as_json:
        write_json({"store": store, "row_id": row, "sequence": sequence})
    else:
        say(f"row {row} {what} (entry {sequence})")


def _change_as_json(change: "Change") -> dict[str, Any]:
    return {**asdict(change), "ingested_at": moment(change.ingested_at)}
