"""The script of `driftline demo`: a user's steps, in order."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import typer

from driftline.cli import rows
from driftline.cli.terminal import Progress, out, put, show
from driftline.core.settings.surfaces import in_flags
from driftline.errors import UsageError
from driftline.report import text
from driftline.report.tables import drifted
from driftline.runtime.disk import NEW, delete_folder
from driftline.runtime.java import QUICK

if TYPE_CHECKING:
    from driftline.cli.scope import Invocation
    from driftline.lake import Lake, Table

DATA = Path(__file__).parents[1] / "demo" / "data"
TABLE = "shop.events"

# Each file, and what happened at the source that day.
DAYS = (
    ("2026-03-02", "Monday: orders, payments and parcels of a web shop"),
    ("2026-03-03", "Tuesday: a new app sends more about customers and devices"),
    ("2026-03-04", "Wednesday: a cart may hold several items, one object becomes a list"),
    ("2026-03-05", "Thursday: customer ids are being moved from numbers to UUIDs"),
    ("2026-03-06", 'Friday: a marketplace joins, its amounts are text: "49,90 EUR"'),
    (
        "2026-03-07",
        "Saturday: a new payment gateway, with epoch times, ledger numbers beyond 64 bits, long rates",
    ),
    (
        "2026-03-08",
        "Sunday: delivery by the hour, a Coupon beside coupon, and a writer that dies in mid-line",
    ),
)

QUERIES = (
    (
        "Revenue a day, whether a total came as a number or as text",
        """\
select date(at) as day, count(*) as orders,
       sum(coalesce(total, replace(replace(total_string, ' EUR'), ',', '.'))::decimal(10, 2)) as revenue
from shop.events where event = 'order_placed'
group by 1 order by 1""",
    ),
    (
        "The best customers, with the ids that they had before and after the move",
        """\
select customer.name, count(*) as orders,
       collect_set(coalesce(customer.id_string, cast(customer.id as string))) as ids
from shop.events where event = 'order_placed'
group by 1 order by orders desc, 1 limit 3""",
    ),
)


class CopiedJson(TypedDict):
    """The copies of the demo's files."""

    files: list[str]


def copy_files(folder: Path) -> list[Path]:
    """Copy the demo's files into a folder, and return the copies.

    Raises UsageError if a file would be overwritten.
    """
    copies = [folder / f"{day}.jsonl" for day, _ in DAYS]
    for copy in copies:
        if copy.exists():
            raise UsageError(f"{copy} already exists", hint="use another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for copy in copies:
        shutil.copyfile(DATA / copy.name, copy)
    return copies


def run(scope: Invocation, *, keep: bool, json: bool) -> None:
    """The whole demo. The lake is a temporary one, unless one is named with --lake."""
    # Java's better compiler takes longer here than it saves.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK)
    files = [str(DATA / f"{day}.jsonl") for day, _ in DAYS]
    with _folder(scope.lake, keep=keep) as folder:
        with Progress() as progress:
            lake = replace(scope, lake=str(folder)).open(progress)
        table = lake.table(TABLE)
        if table.format.load().exists:
            raise UsageError(
                f"the lake in {folder} has a table {TABLE} already", hint="name a new folder with --lake"
            )
        if json:
            for file in files:
                put(table.ingest(file).to_dict())
            verdict = table.verify(files, "json")
            put(verdict.to_dict())
            raise typer.Exit(0 if verdict.ok else 1)
        typer.echo(
            f"A shop's events, one file a day, go into the table {TABLE}. The table does not exist yet."
        )
        _week(table, files)
        _outcome(table)
        _queries(lake)
        _proof(table, files)
        _ending(folder, stays=keep or scope.lake is not None)


def _week(table: Table, files: list[str]) -> None:
    hints: set[str] = set()
    for file, (_, story) in zip(files, DAYS, strict=True):
        _headline(story)
        with Progress(table.lake.spark) as progress:
            result = table.ingest(file, progress=progress.of(Path(file).name))
        show(
            text.batch(
                result, Path(file).name, near=DATA, hints_before=hints, more_hints="--json", words=in_flags
            )
        )


def _outcome(table: Table) -> None:
    _headline("The fields that drifted, and the columns that hold them now")
    show(drifted(table.schema().schema))


def _queries(lake: Lake) -> None:
    for title, sql in QUERIES:
        _headline(title)
        typer.echo("".join(f"  {line}\n" for line in sql.splitlines()))
        with Progress(lake.spark) as progress:
            progress.phase("running")
            pages = rows.Pages(rows.SparkRows(lake.sql(sql)), 0)
        pages.show(out(width=rows.ENDLESS))


def _proof(table: Table, files: list[str]) -> None:
    _headline("Is everything there? All seven files against the table, value by value")
    with Progress(table.lake.spark) as progress:
        progress.phase("comparing source and table")
        verdict = table.verify(files, "json")
    show(text.verdict(verdict, table.name))
    if not verdict.ok:
        raise typer.Exit(1)


def _ending(folder: Path, *, stays: bool) -> None:
    _headline("Now with data of your own")
    typer.echo(
        "  driftline ingest YOUR.jsonl --into shop.mine      json, csv, parquet, avro, orc; files, folders, -"
    )
    typer.echo("  driftline schema shop.mine")
    typer.echo("  driftline query 'select * from shop.mine'")
    if stays:
        typer.echo(f"\nThe lake of this demo is in {folder}:")
        typer.echo(f"  driftline --lake {folder} schema {TABLE}")
        typer.echo(
            f"  driftline --lake {folder} query 'select reason, source, line, raw from {TABLE}__quarantine'"
        )
    else:
        typer.echo("\nThe lake of this demo is gone again; `driftline demo --keep` leaves it there.")


def _headline(title: str) -> None:
    typer.echo()
    typer.secho(title, bold=True)


@contextmanager
def _folder(named: str | None, *, keep: bool) -> Iterator[Path]:
    """The lake's folder: the one that is named, else a temporary one that goes away unless it is kept."""
    if named is not None:
        yield Path(named)
        return
    folder = Path(tempfile.mkdtemp(prefix="driftline-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            delete_folder(folder, NEW)
