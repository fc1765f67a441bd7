"""`driftline view`, `driftline resolve` and `driftline promote`: what a person does about drift."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.cli import complete
from driftline.cli.options import Json, TableName, pairs
from driftline.core.schema.date_pattern import parse_hint
from driftline.core.settings.fields import parse_path
from driftline.errors import UsageError


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
        lake = context.obj.open(progress, table=table, writes=not print_)
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


def resolve(
    context: typer.Context,
    table: TableName,
    field: Annotated[
        str,
        typer.Argument(
            metavar="FIELD",
            help="The field's path, as in items.price.",
            show_default=False,
            autocompletion=complete.fields,
        ),
    ],
    to: Annotated[
        str,
        typer.Option("--as", metavar="TYPE", help="The column's type, as in double or date('dd.MM.yyyy')."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the values that convert; write nothing.")
    ] = False,
    drop_rest: Annotated[bool, typer.Option("--drop-rest", help="Drop what does not convert.")] = False,
    json: Json = False,
) -> None:
    """Fold the columns of a drifted field into one, in one commit.

    A value converts exactly or not at all. What does not convert stays in a
    column beside it; undo restores everything.
    """
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import drift

    try:
        parse_path(field), parse_hint(to)  # before Spark starts
    except ValueError as error:
        raise UsageError(str(error)) from error
    with Progress() as progress:
        lake = context.obj.open(progress, table=table, writes=not dry_run)
        progress.remark(None if dry_run else lake.table(table).format.new_row_ids)
        resolved = lake.table(table).resolve(
            field,
            to,
            dry_run=dry_run,
            drop_rest=drop_rest,
            progress=context.obj.interrupt.watching(progress.of(field)),
        )
    put(resolved.to_dict()) if json else show(drift.resolved(resolved))


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
        lake = context.obj.open(progress, table=table, writes=not dry_run)
        progress.remark(None if dry_run else lake.table(table).format.new_row_ids)
        promoted = lake.table(table).promote(
            *(paths or ()),
            everything=everything,
            dry_run=dry_run,
            progress=context.obj.interrupt.watching(progress.of(table)),
        )
    put(promoted.to_dict()) if json else show(drift.promoted(promoted))
