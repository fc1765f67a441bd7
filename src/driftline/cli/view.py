"""`driftline view`."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.cli import complete
from driftline.cli.options import Json, TableName, pairs


def view(
    context: typer.Context,
    table: TableName,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            metavar="FIELD=TYPE",
            help="The type of a field, instead of its widest.",
            show_default=False,
            autocompletion=complete.types_of_fields,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE.VIEW",
            help="The view's name. [default: the table's name and _settled]",
            show_default=False,
        ),
    ] = None,
    print_: Annotated[bool, typer.Option("--print", help="Print the statement; create nothing.")] = False,
    json: Json = False,
) -> None:
    """Create a view that shows each drifted field as one column.

    Run it again to include new columns. For a catalog without views, the statement is printed.
    """
    from driftline.cli.terminal import Progress, put, show
    from driftline.operations.view import wanted_types  # late: brings the rules of folding
    from driftline.report import drift

    field_types = pairs(types, "--as", "field=type")
    wanted_types(field_types)  # what is wrong with them is said before Spark starts
    with Progress() as progress:
        lake = context.obj.open(progress, table=table)
        progress.phase("making the view")
        result = lake.table(table).view(name, types=field_types, make=not print_)
    if json:
        put(result.to_dict())
    elif print_:
        typer.echo(result.statement)
    else:
        show(drift.view(result))
        if not result.in_catalog:
            typer.echo(result.select)
