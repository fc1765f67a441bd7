"""The command line application: it registers all commands."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from driftline import __version__
from driftline.cli.capture import capture, seek
from driftline.cli.contract import contract
from driftline.cli.evolution import (
    alter,
    compact,
    drop,
    erase,
    expire,
    history,
    promote,
    quarantine,
    replan,
    resolve,
    show_layout,
    undo,
    view,
)
from driftline.cli.fan_out import split
from driftline.cli.grouped import CommandWithExamples, GroupedCommands
from driftline.cli.ingest import ingest, plan
from driftline.cli.json_schema import json_schema
from driftline.cli.options import (
    Engine,
    Json,
    LogFormat,
    TableName,
)
from driftline.cli.process import log_as_json
from driftline.cli.scope import Invocation
from driftline.cli.stats import stats
from driftline.cli.tables import clean, init, relocate, tables
from driftline.cli.ui import ui
from driftline.cli.verify import verify
from driftline.core.schema.schema_json import to_json
from driftline.core.settings.properties import from_properties

app = typer.Typer(
    name="driftline",
    cls=GroupedCommands,
    help="Schema-evolving ingestion: drifting data goes in, plain Iceberg or DuckLake tables come out, no value is lost.",
    epilog="--lake, --config, --debug and --log-format may stand before or after the command.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"driftline {__version__}")
        raise typer.Exit


@app.callback()
def _all(
    context: typer.Context,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The lake: a folder, or s3://, gs:// or abfss:// with a catalog in driftline.toml. "
            "[env: DRIFTLINE_LAKE; default: lake]",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A settings file. [default: driftline.toml, if there]", show_default=False
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of errors. [env: DRIFTLINE_DEBUG]")
    ] = False,
    log_format: Annotated[
        LogFormat,
        typer.Option(help="json: log each step and batch as one JSON object per line on standard error."),
    ] = LogFormat.text,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    context.obj.lake, context.obj.file = lake, config
    if debug:
        os.environ["DRIFTLINE_DEBUG"] = "1"
    if log_format is LogFormat.json:
        log_as_json(context.obj.redact, debug=debug)


command = partial(app.command, cls=CommandWithExamples)
for function in (
    ingest, plan, capture, seek, verify, clean, relocate, alter, history, undo, compact, drop, erase, expire, view, resolve, promote, replan, split, quarantine, stats, tables, ui, init,
):  # fmt: skip
    command()(function)
command("json-schema")(json_schema)
app.add_typer(contract)


@command()
def schema(
    context: typer.Context,
    table: TableName,
    layout: Annotated[
        bool, typer.Option("--layout", help="Show partition specs and sort orders, and their files, instead.")
    ] = False,
    json: Json = False,
) -> None:
    """Print a table's schema; with --json as Iceberg's JSON."""
    if layout:
        show_layout(context.obj, table, json=json)
        return
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import tables as schema_text

    offline = context.obj.offline(table)
    with Progress() as progress:
        state = offline.load() if offline else context.obj.open(progress, table=table).table(table).state()
    if json:
        put(to_json(state.schema))
    else:
        show(schema_text.schema(table, state.schema, from_properties(state.properties).mark))


@command()
def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="The SELECT statement.", show_default=False)],
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Maximum number of rows; 0 for all. [default: 100, with --json all]",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(help="The engine that runs it; duckdb starts no Java, and takes DuckDB's SQL."),
    ] = Engine.spark,
    json: Json = False,
) -> None:
    """Run a SELECT statement; with --json one object per row."""
    from driftline.cli import rows
    from driftline.cli.terminal import Progress, out
    from driftline.runtime.failure import query_errors  # late: the other commands do without
    from driftline.runtime.read_only import must_begin_to_read  # late: the same

    shown = (limit or 0) if json or limit is not None else rows.LIMIT
    form = rows.Json if json else rows.Pages
    if engine is Engine.duckdb:
        with context.obj.in_duckdb(sql) as batches:
            form(rows.DuckDBRows(batches), shown).show(out(width=rows.ENDLESS))
        return
    must_begin_to_read(sql, context.obj.writes)
    with query_errors():
        with Progress() as progress:
            lake = context.obj.open(progress)
            progress.phase("running")
            result = form(rows.SparkRows(lake.query(sql)), shown)
        result.show(out(width=rows.ENDLESS))


@command()
def doctor(context: typer.Context, json: Json = False) -> None:
    """Check Java, Spark, jars, catalog, write access."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.operations.doctor import ChecksJson, checks
    from driftline.report import text

    scope: Invocation = context.obj
    with Progress() as progress:
        progress.phase("checking")
        checked = checks(scope.config.place, scope.config.catalog, scope.config.ducklake)
    ok = all(check.ok for check in checked)
    if json:
        shown: ChecksJson = {
            "ok": ok,
            "checks": [check.redacted(scope.redact).to_dict() for check in checked],
        }
        put(shown)
    else:
        show(text.checks(checked, scope.redact))
    if not ok:
        raise typer.Exit(3)


@command()
def demo(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the lake to look around in it.")] = False,
    files: Annotated[
        Path | None,
        typer.Option(
            "--files", metavar="DIR", help="Only copy the demo's files into this folder.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Ingest a week of drifting data into a new lake."""
    from driftline.cli.demo import CopiedJson, copy_files, run
    from driftline.cli.terminal import put

    if files is not None:
        copies: CopiedJson = {"files": [str(file) for file in copy_files(files)]}
        if json:
            put(copies)
        else:
            typer.echo("\n".join(copies["files"]))
        return
    run(context.obj, keep=keep, json=json)
