"""`driftline promote`."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.cli import complete
from driftline.cli.options import Json, TableName


def promote(
    context: typer.Context,
    table: TableName,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]…",
            help="Paths to promote, with all below them, as in payload.h.",
            show_default=False,
            autocompletion=complete.waiting,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Promote everything.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the columns that would be added; write nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Turn fields that wait in the rest into columns, in one commit.

    Old rows are filled too. The table's limits do not apply here. undo reverts it.
    """
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import drift

    with Progress() as progress:
        lake = context.obj.open(progress, table=table)
        progress.remark(None if dry_run else lake.table(table).format.new_row_ids)
        promoted = lake.table(table).promote(
            *(paths or ()),
            everything=everything,
            dry_run=dry_run,
            progress=context.obj.interrupt.watching(progress.of(table)),
        )
    put(promoted.to_dict()) if json else show(drift.promoted(promoted))
