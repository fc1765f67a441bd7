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
    json: Json = False,
) -> None:
    """List quarantined records by reason, with samples."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import drift

    if replay and export is not None:
        raise UsageError("--replay and --export cannot be combined", hint="run --export first, then --replay")
    if export is not None:
        writable(export)
    with Progress() as progress:
        of_table = context.obj.open(progress, table=table).table(table)
        if replay:
            settings = context.obj.config.tables.get(table, {})
            again = of_table.replay(
                settings=settings, progress=context.obj.interrupt.watching(progress.of("replay"))
            )
        elif export is not None:
            progress.phase("exporting")
            count = of_table.export_quarantine(export)
        else:
            progress.phase("looking")
            waiting = of_table.quarantine()
    if replay:
        put(again.to_dict()) if json else show(drift.replayed(again))
    elif export is not None:
        exported: ExportedJson = {"table": table, "file": str(export), "records": count}
        put(exported) if json else typer.echo(f"{count} records in {export}")
    else:
        put(waiting.to_dict()) if json else show(drift.quarantine(waiting))
