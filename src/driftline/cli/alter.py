"""`driftline alter`."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.cli.options import Json, named
from driftline.errors import NeedsSpark


def alter(
    context: typer.Context,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="ALTER TABLE statements, separated by ;", show_default=False)
    ],
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Upgrade to format v3 too; this cannot be reversed.")
    ] = False,
    json: Json = False,
) -> None:
    """Change a table with ALTER TABLE statements, in one commit.

    Statements are those of Spark and Iceberg, or of DuckDB and DuckLake, separated by semicolons.
    RENAME TO must be the only change.
    """
    from driftline.cli.terminal import Progress, put, show
    from driftline.operations import alter as altering  # late: the other commands do without
    from driftline.report import evolution

    request = altering.AlterRequest.of_sql(sql)  # what cannot be read is said before Java starts
    name = altering.local_name(request.table, "lake")
    named(context, name)
    interrupt = context.obj.interrupt
    interrupt.outcome = f"stopped: `driftline history {name}` tells if the change took place"
    with Progress() as progress:
        try:
            progress.phase("altering")
            with context.obj.alterable(name, renames=request.new_name is not None) as table:
                altered = altering.alter(table, request, catalog="lake", upgrade=upgrade)
        except NeedsSpark:
            lake = context.obj.open(progress, must_exist=True, brief=True)
            progress.phase("altering")
            altered = lake.alter(sql, upgrade=upgrade)
    put(altered.to_dict()) if json else show(evolution.altered(altered))
