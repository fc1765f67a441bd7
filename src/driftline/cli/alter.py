"""`driftline alter`."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.cli.options import Json, named


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
    from driftline.operations.alter import AlterRequest
    from driftline.report import evolution

    name = AlterRequest.of_sql(sql).table  # what cannot be read is said before Spark starts
    named(context, name.removeprefix("lake.") if name.count(".") > 1 else name)
    with Progress() as progress:
        lake = context.obj.open(progress, must_exist=True, brief=True)
        progress.phase("altering")
        altered = lake.alter(sql, upgrade=upgrade)
    put(altered.to_dict()) if json else show(evolution.altered(altered))
