"""`driftline alter`, `driftline history`, `driftline undo`, and `driftline schema --layout`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from driftline.cli.options import Json, TableName, named
from driftline.errors import NeedsSpark

if TYPE_CHECKING:
    from driftline.cli.scope import Invocation


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
    from driftline.operations import alter as altering
    from driftline.report import tables

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
            lake = context.obj.open(progress, must_exist=True, brief=True, writes=True)
            progress.phase("altering")
            altered = lake.alter(sql, upgrade=upgrade)
    put(altered.to_dict()) if json else show(tables.altered(altered))


def history(
    context: typer.Context,
    table: TableName,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="A B", help="Show the changes from schema version A to B.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """List the changes of a table: when, by whom, for which rule."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.operations.history import history as read  # late: the other commands do without
    from driftline.report import tables

    offline = context.obj.offline(table)
    with Progress() as progress:
        at_table = offline or context.obj.open(progress, table=table).table(table).format
        progress.phase("reading the log")
        changes = read(at_table)
    if diff is not None:
        difference = changes.diff(*diff)
        put(difference.to_dict()) if json else show(tables.difference(difference))
    elif json:
        for entry in changes.entries:
            put(entry.to_dict())
    else:
        show(tables.history(changes))


def undo(
    context: typer.Context,
    table: TableName,
    to: Annotated[
        int | None,
        typer.Option(metavar="VERSION", help="Go back to this schema version.", show_default=False),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Undo even if values written since become unreadable.")
    ] = False,
    json: Json = False,
) -> None:
    """Undo the last change of a table; all values come back."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import tables

    with Progress() as progress:
        lake = context.obj.open(progress, table=table, writes=True)
        progress.phase("taking back")
        undone = lake.table(table).undo(to=to, yes=yes)
    put(undone.to_dict()) if json else show(tables.undone(undone))


def show_layout(scope: Invocation, table: str, *, json: bool) -> None:
    """Print the layout of a table's data files, as text or as JSON."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import tables

    with Progress() as progress:
        lake = scope.open(progress, table=table)
        progress.phase("reading the list of files")
        shown = lake.table(table).layout()
    put(shown.to_dict()) if json else show(tables.layout(shown))
