"""`driftline quarantine`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict

import typer

from driftline.cli.options import Json, TableName, writable
from driftline.errors import UsageError


class ExportedJson(TypedDict):
    """The number of records that were written to a file."""

    table: str
    file: str
    records: int


def quarantine(
    context: typer.Context,
    table: TableName,
    replay: Annotated[bool, typer.Option("--replay", help="Ingest the records again, each once.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write them as JSON lines with their reasons.", show_default=False),
    ] = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Keep the records, but let them wait no longer.")
    ] = False,
    restore: Annotated[bool, typer.Option("--restore", help="Let discarded records wait again.")] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="With --discard, --restore: only records of this file or topic.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List quarantined records by reason, with samples."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import drift

    _check(replay=replay, export=export, discard=discard, restore=restore, source=source)
    with Progress() as progress:
        writes = replay or discard or restore
        of_table = context.obj.open(progress, table=table, writes=writes).table(table)
        if replay:
            settings = context.obj.config.tables.get(table, {})
            again = of_table.replay(
                settings=settings, progress=context.obj.interrupt.watching(progress.of("replay"))
            )
        elif export is not None:
            progress.phase("exporting")
            count = of_table.export_quarantine(export)
        elif discard or restore:
            progress.phase("marking")
            done = of_table.discard_quarantine(source) if discard else of_table.restore_quarantine(source)
        else:
            progress.phase("looking")
            waiting = of_table.quarantine()
    if replay:
        put(again.to_dict()) if json else show(drift.replayed(again))
    elif export is not None:
        exported: ExportedJson = {"table": table, "file": str(export), "records": count}
        put(exported) if json else typer.echo(f"{count} records in {export}")
    elif discard or restore:
        put(done.to_dict()) if json else show(drift.discarded(done))
    else:
        put(waiting.to_dict()) if json else show(drift.quarantine(waiting))


def _check(*, replay: bool, export: Path | None, discard: bool, restore: bool, source: str | None) -> None:
    """Raise UsageError if the options do not go together."""
    given = {"--replay": replay, "--export": export is not None, "--discard": discard, "--restore": restore}
    chosen = [option for option, is_given in given.items() if is_given]
    if len(chosen) > 1:
        hint = "run --export first, then the other" if export is not None else "run one after the other"
        raise UsageError(f"{' and '.join(chosen)} cannot be combined", hint)
    if source is not None and not (discard or restore):
        raise UsageError("--from goes with --discard or --restore")
    if export is not None:
        writable(export)
