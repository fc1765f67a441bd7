"""`driftline resolve`."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.cli import complete
from driftline.cli.options import Json, TableName
from driftline.core.planning.contract import parse_path
from driftline.core.schema.date_pattern import parse_hint
from driftline.errors import UsageError


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
        lake = context.obj.open(progress, table=table)
        progress.remark(None if dry_run else lake.table(table).format.new_row_ids)
        resolved = lake.table(table).resolve(
            field,
            to,
            dry_run=dry_run,
            drop_rest=drop_rest,
            progress=context.obj.interrupt.watching(progress.of(field)),
        )
    put(resolved.to_dict()) if json else show(drift.resolved(resolved))
