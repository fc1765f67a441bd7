"""`driftline stats`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftline.cli.options import Json, TableName, writable
from driftline.errors import UsageError

if TYPE_CHECKING:
    from driftline.cli.scope import Scope
    from driftline.stats import Stats


def stats(
    context: typer.Context,
    table: TableName,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH", help="Only columns with this in their path; * is any text.", show_default=False
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Count every value, with a scan; adds distinct values.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Every column of a wide table.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it as one page for a browser.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Show what is in a table, column by column, and what drifted."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import stats_text

    if html is not None:
        writable(html)
    found = None if exact else _offline(context.obj, table)
    if found is None:
        with Progress() as progress:
            lake = context.obj.open(progress, must_exist=True, brief=not exact)
            found = lake.table(table).stats(exact=exact, progress=progress.phase)
    shown = found if path is None else found.only(path)
    if path is not None and not shown.columns:
        raise UsageError(f"{table} has no column with {path!r} in its path", "--all lists every column")
    if json:
        put(shown.to_dict())
    elif html is None:
        show(stats_text.stats(shown, all_columns=all_ or path is not None))
    if html is not None:
        _write(html, found, tell=not json)


def _offline(scope: Scope, table: str) -> Stats | None:
    """The table's statistics, without Spark; None where that takes Spark."""
    from driftline.stats.offline import stats

    offline = scope.offline(table)
    return None if offline is None else stats(offline)


def _write(file: Path, found: Stats, *, tell: bool) -> None:
    from driftline.report.page import page

    try:
        size = file.write_bytes(page(found).encode(errors="backslashreplace"))
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    if tell:
        typer.echo(f"{file}  {size / 1000:.0f} kB, one file, to be opened in any browser")
