"""`driftline promote`."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.cli.options import Json, TableName


def promote(
    context: typer.Context,
    table: TableName,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]…", help="What waits at or below, as in payload.h.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that waits.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would come to be, write nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Make columns of what waits in the rest, in one commit.

    In old rows too. The limits of the table do not count here. undo takes it back.
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
