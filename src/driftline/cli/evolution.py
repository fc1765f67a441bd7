"""Commands that evolve a table, such as `alter`, `undo`, `resolve`, `promote`, `replan`, `quarantine`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from driftline.cli.grouped import fields, types_of_fields, waiting
from driftline.cli.options import Json, TableName, confirm, named, pairs, table_argument, writable, write_page
from driftline.core.schema.date_pattern import parse_hint
from driftline.core.schema.naming import is_pattern
from driftline.core.schema.text import counted, parse_span
from driftline.core.settings.fields import parse_path
from driftline.errors import DataError, DriftlineError, NeedsSpark, UsageError

if TYPE_CHECKING:
    from driftline.cli.scope import Invocation
    from driftline.lake import Lake, Table
    from driftline.operations.compact import Compacted


def alter(
    context: typer.Context,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="ALTER TABLE statements, separated by ;", show_default=False)
    ],
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Upgrade to format v3 too; this cannot be reversed.")
    ] = False,
    siblings: Annotated[
        bool, typer.Option("--siblings", help="RENAME also renames the other columns of the field.")
    ] = False,
    json: Json = False,
) -> None:
    """Change a table with ALTER TABLE statements, in one commit.

    Statements are those of Spark and Iceberg, or of DuckDB and DuckLake, separated by semicolons.
    RENAME TO must be the only change.
    """
    from driftline.cli.terminal import Progress, put, show
    from driftline.operations import alter as altering  # late: the other commands do without
    from driftline.report import tables

    # What cannot be read is said before Java starts.
    request = replace(altering.AlterRequest.of_sql(sql), siblings=siblings)
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
            altered = lake.alter(sql, upgrade=upgrade, siblings=siblings)
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


def drop(
    context: typer.Context,
    table: TableName,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete its files, too: all below the table's own location.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be dropped; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    json: Json = False,
) -> None:
    """Drop a table, with its quarantine and its view."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import tables

    confirm(f"drop takes {table} and its quarantine out of the lake", dry_run=dry_run, yes=yes)
    with Progress() as progress:
        lake = context.obj.open(progress, must_exist=True, writes=True)
        progress.phase("dropping")
        dropped = lake.table(table).drop(purge=purge, dry_run=dry_run)
    put(dropped.to_dict()) if json else show(tables.dropped(dropped))


def erase(
    context: typer.Context,
    table: TableName,
    where: Annotated[
        str, typer.Option(metavar="SQL", help="A condition for the rows, in Spark's SQL.", show_default=False)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    json: Json = False,
) -> None:
    """Erase rows for good, with all files that have them."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import tables

    work = f"erase deletes rows of {table}, and its older snapshots"
    confirm(work, dry_run=dry_run, yes=yes, look="counts them")
    with Progress() as progress:
        lake = context.obj.open(progress, table=table, writes=True)
        erased = lake.table(table).erase(where, dry_run=dry_run, progress=progress.phase)
    put(erased.to_dict()) if json else show(tables.erased(erased))
    if erased.is_done and not erased.is_proved:
        raise typer.Exit(1)


def compact(
    context: typer.Context,
    table: Annotated[
        str,
        table_argument("The table; or tables, as in 'shop.*' or 'hooks.{event}'.", "NAMESPACE.TABLE|PATTERN"),
    ],
    sort: Annotated[
        bool, typer.Option("--sort", help="Also files that are not sorted by the table's order.")
    ] = False,
    drop_unused: Annotated[
        bool,
        typer.Option("--drop-unused", help="Also drop columns that came with drift and have no value."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written anew; change nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Write small and worn files anew; rows, their ids and the history stay."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import tables

    are_several = "*" in table or is_pattern(table)
    outcomes: list[Compacted] = []
    failures: dict[str, str] = {}
    with Progress() as progress:
        lake = context.obj.open(progress, must_exist=True, table=None if are_several else table, writes=True)
        chosen = _matching(lake, table) if are_several else [lake.table(table)]
        for each in chosen:
            try:
                on_step = progress.of(each.name)
                outcomes.append(
                    each.compact(sort=sort, drop_unused=drop_unused, dry_run=dry_run, progress=on_step)
                )
            except DriftlineError as error:
                if not are_several:
                    raise
                failures[each.name] = error.message
    for compacted in outcomes:
        put(compacted.to_dict()) if json else show(tables.compacted(compacted))
    if failures:
        raise DataError(
            f"{table}: {len(failures)} of {counted(len(chosen), 'table')} could not be compacted",
            "\n  ".join(f"{name}: {message}" for name, message in failures.items()),
        )


def _matching(lake: Lake, pattern: str) -> list[Table]:
    """The tables that a pattern names, or made if it has braces. Raises UsageError if there is none."""
    if is_pattern(pattern):
        return [lake.table(stats.table) for stats in lake.fan_out(pattern).stats(over_time=False).tables]
    tables = [table for table in lake.tables() if fnmatchcase(table.name, pattern)]
    if not tables:
        raise UsageError(f"no table's name is like {pattern}", "`driftline tables` lists the tables")
    return tables


def expire(
    context: typer.Context,
    table: TableName,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="AGE|TIME",
            help="End snapshots of this age, such as 7d or 12h, or from before a time (in UTC).",
            show_default=False,
        ),
    ],
    retain_last: Annotated[
        int, typer.Option(metavar="N", min=1, help="Snapshots that stay at any age, the last ones.")
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would end; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    json: Json = False,
) -> None:
    """End older snapshots, and delete the files that only they have."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import tables

    since = _age_or_time(older_than)
    confirm(f"expire ends older snapshots of {table}", dry_run=dry_run, yes=yes)
    with Progress() as progress:
        lake = context.obj.open(progress, table=table, writes=True)
        expired = lake.table(table).expire(
            since, retain_last=retain_last, dry_run=dry_run, progress=progress.phase
        )
    put(expired.to_dict()) if json else show(tables.expired(expired))


def _age_or_time(text: str) -> timedelta | datetime:
    """The age or time of ``--older-than``. Raises UsageError."""
    with suppress(ValueError):
        return timedelta(seconds=parse_span(text))
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    raise UsageError(
        f"--older-than: {text!r} is neither an age nor a time", hint="write 7d, 12h, or 2026-01-31T12:00Z"
    )


def show_layout(scope: Invocation, table: str, *, json: bool) -> None:
    """Print the layout of a table's data files, as text or as JSON."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import tables

    with Progress() as progress:
        lake = scope.open(progress, table=table)
        progress.phase("reading the list of files")
        shown = lake.table(table).layout()
    put(shown.to_dict()) if json else show(tables.layout(shown))


def view(
    context: typer.Context,
    table: Annotated[str, table_argument("The table; with --of, the view.")],
    tables: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="PATTERN",
            help="The rows of several tables, by the names of fields: those of 'hooks.*', or of 'hooks.{event}'.",
            show_default=False,
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            metavar="FIELD=TYPE",
            help="The type of a field, instead of its widest.",
            show_default=False,
            autocompletion=types_of_fields,
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

    Run it again to include new columns, and new tables of --of. For a catalog
    without views, the statement is printed.
    """
    from driftline.cli.terminal import Progress, put, show
    from driftline.operations.view_query import wanted_types  # late: brings the rules of folding
    from driftline.report import drift

    field_types = pairs(types, "--as", "field=type")
    wanted_types(field_types)  # what is wrong with them is said before Spark starts
    if tables is not None and name is not None:
        raise UsageError("--of has a view of its own name", f"leave out --name: {table} is the view")
    with Progress() as progress:
        existing = table if tables is None else None
        lake = context.obj.open(progress, must_exist=True, table=existing, writes=not print_)
        progress.phase("making the view")
        if tables is None:
            result = lake.table(table).view(name, types=field_types, make=not print_)
        else:
            result = lake.view(table, tables, types=field_types, make=not print_)
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
            autocompletion=fields,
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
            autocompletion=waiting,
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


def replan(
    context: typer.Context,
    table: TableName,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]…",
            help="Fields that may get other columns, with all below them, as in items.price. [default: all]",
            show_default=False,
            autocompletion=fields,
        ),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Give the table these columns, in one commit; undo reverts it.")
    ] = False,
    narrow: Annotated[
        bool, typer.Option("--narrow", help="Types may become narrower, and maps structs.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an HTML page of it.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Show the columns that a table would have, had all of it come in one batch.

    Its rows, what waits in the rest, and what waits in quarantine are planned
    again, by the rules and settings of today. Nothing is written without --apply.
    """
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import drift

    if html is not None:
        writable(html)
    with Progress() as progress:
        lake = context.obj.open(progress, table=table, writes=apply)
        progress.remark(lake.table(table).format.new_row_ids if apply else None)
        planned = lake.table(table).replan(
            *(paths or ()),
            narrow=narrow,
            apply=apply,
            progress=context.obj.interrupt.watching(progress.of(table)),
        )
    if json:
        put(planned.to_dict())
    elif html is None or apply:
        show(drift.replanned(planned))
    if html is not None:
        from driftline.report.page import replan_page

        write_page(html, replan_page(planned), tell=not json)


class ExportedJson(TypedDict):
    """The number of records that were written to a file."""

    table: str
    file: str
    records: int


def quarantine(
    context: typer.Context,
    table: TableName,
    replay: Annotated[bool, typer.Option("--replay", help="Ingest the records again, each once.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write them as JSON lines with their reasons.", show_default=False),
    ] = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Exclude the records from replays; they are kept.")
    ] = False,
    restore: Annotated[bool, typer.Option("--restore", help="Include discarded records again.")] = False,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="With --discard, --restore: only records of this file or topic; may be repeated.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List quarantined records by reason, with samples."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import drift

    _check(replay=replay, export=export, discard=discard, restore=restore, sources=sources)
    writes, words = replay or discard or restore, context.obj.words(table)
    if not (writes or export) and (listed := context.obj.waiting(table)):
        put(listed.to_dict()) if json else show(drift.quarantine(listed, words))
        return
    with Progress() as progress:
        of_table = context.obj.open(progress, table=table, writes=writes).table(table)
        if replay:
            settings = context.obj.settings(table)
            again = of_table.replay(
                settings=settings, progress=context.obj.interrupt.watching(progress.of("replay"))
            )
        elif export is not None:
            progress.phase("exporting")
            count = of_table.export_quarantine(export)
        elif discard or restore:
            progress.phase("marking")
            mark = of_table.discard_quarantine if discard else of_table.restore_quarantine
            done = mark(sources or None)
        else:
            progress.phase("looking")
            waiting = of_table.quarantine()
    if replay:
        put(again.to_dict()) if json else show(drift.replayed(again, words))
    elif export is not None:
        exported: ExportedJson = {"table": table, "file": str(export), "records": count}
        put(exported) if json else typer.echo(f"{count} records in {export}")
    elif discard or restore:
        put(done.to_dict()) if json else show(drift.discarded(done, words))
    else:
        put(waiting.to_dict()) if json else show(drift.quarantine(waiting, words))


def _check(
    *, replay: bool, export: Path | None, discard: bool, restore: bool, sources: list[str] | None
) -> None:
    """Raise UsageError if the options do not go together."""
    given = {"--replay": replay, "--export": export is not None, "--discard": discard, "--restore": restore}
    chosen = [option for option, is_given in given.items() if is_given]
    if len(chosen) > 1:
        hint = "run --export first, then the other" if export is not None else "run one after the other"
        raise UsageError(f"{' and '.join(chosen)} cannot be combined", hint)
    if sources and not (discard or restore):
        raise UsageError("--from goes with --discard or --restore")
    if export is not None:
        writable(export)
