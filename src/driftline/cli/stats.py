"""`driftline stats`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftline.cli.grouped import fields
from driftline.cli.options import AnyTable, Json, writable, write_page
from driftline.core.schema.naming import is_pattern, nearest
from driftline.core.schema.text import counted
from driftline.core.schema.types import dotted
from driftline.errors import UsageError

if TYPE_CHECKING:
    from driftline.cli.scope import Invocation
    from driftline.stats import Stats
    from driftline.stats.lake import LakeStats

_SIMILAR = 0.7  # of paths, so that only a slip gets a hint at another one


def stats(
    context: typer.Context,
    table: AnyTable = None,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]…",
            help="Only columns whose path contains one of these; * matches any text.",
            show_default=False,
            autocompletion=fields,
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Count every value, with a scan; adds distinct values.")
    ] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Every column of a wide table; without a table, every table.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write an HTML page; with --all, one per table into this folder.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show statistics of a table's columns, and which fields drifted.

    With --all: for all tables of the lake; of a pattern: for those that it made.
    """
    if table is not None and is_pattern(table):
        if paths:
            raise UsageError(
                f"{table}: paths are those of one table",
                "name one of its tables: `driftline tables` lists them",
            )
        _of_lake(context.obj, table, exact=exact, html=html, json=json)
    elif table is not None:
        _of_table(context.obj, table, paths or (), exact=exact, all_=all_, html=html, json=json)
    elif all_:
        _of_lake(context.obj, None, exact=exact, html=html, json=json)
    else:
        raise UsageError("no table given", "pass a table, or --all for every table of the lake")


def _of_table(
    scope: Invocation,
    table: str,
    paths: Sequence[str],
    *,
    exact: bool,
    all_: bool,
    html: Path | None,
    json: bool,
) -> None:
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import stats_text

    if html is not None:
        writable(html)
    over_time = html is not None
    measured = None if exact else _offline(scope, table, over_time=over_time)
    if measured is None:
        with Progress() as progress:
            lake = scope.open(progress, table=table, brief=not exact)
            measured = lake.table(table).stats(exact=exact, over_time=over_time, progress=progress.phase)
    for path in paths:
        if not measured.only(path).columns:
            near = nearest(path, [dotted(column.path) for column in measured.columns], _SIMILAR)
            raise UsageError(
                f"{table} has no column with {path!r} in its path", near or "--all lists every column"
            )
    shown = measured.only(*paths) if paths else measured
    if json:
        put(shown.to_dict())
    elif html is None:
        show(stats_text.stats(shown, all_columns=all_ or bool(paths)))
    if html is not None:
        from driftline.report.page import page

        write_page(html, page(measured), tell=not json)


def _of_lake(scope: Invocation, pattern: str | None, *, exact: bool, html: Path | None, json: bool) -> None:
    """Show the tables of the lake, or those that a pattern made."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import stats_text

    if html is not None and not html.is_dir():
        writable(html)
    with Progress() as progress:
        lake = scope.open(progress, must_exist=True)
        chosen = lake if pattern is None else lake.fan_out(pattern)
        measured = chosen.stats(exact=exact, over_time=html is not None, progress=progress.phase)
    if json:
        put(measured.to_dict())
    elif html is None:
        of_lake = partial(stats_text.lake, more="`driftline tables --all-tables`")
        show((of_lake if pattern is None else stats_text.of_pattern)(measured.tables))
    if html is not None:
        _write_all(html, measured, tell=not json)


def _write_all(folder: Path, lake: LakeStats, *, tell: bool) -> None:
    """The pages of all tables. What else is in the folder stays."""
    from driftline.report.page import INDEX, pages

    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be created: {error.strerror}") from error
    size = sum(write_page(folder / name, text, tell=False) for name, text in pages(lake))
    if tell:
        tables = counted(len(lake.tables), "table")
        typer.echo(f"{folder / INDEX}  {tables}, {size / 1000:.0f} kB; open it in any browser")


def _offline(scope: Invocation, table: str, *, over_time: bool) -> Stats | None:
    """The table's statistics, without Spark; None where that takes Spark."""
    from driftline.stats.build import stats  # late: the other commands do without

    offline = scope.offline(table)
    measured = None if offline is None else stats(offline, over_time=over_time)
    if offline is None or measured is None:
        return None
    return scope.naming_split(measured, offline)
