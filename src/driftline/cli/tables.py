"""Commands on a lake: `tables`, `clean`, `init` and `relocate`."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypedDict

import typer

from driftline.cli.options import AllTables, Json, OfPattern, confirm, table_argument
from driftline.config import FILE, redacted
from driftline.core.columns.statistics import iso
from driftline.core.schema.naming import QUARANTINE
from driftline.core.schema.text import counted
from driftline.core.settings.declarations import PATH_SETTINGS, SETTINGS, Setting
from driftline.core.support import as_json
from driftline.errors import NeedsSpark, UsageError
from driftline.ingest.pattern import Pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driftline.cli.scope import Invocation
    from driftline.formats.home import Relocation
    from driftline.formats.lakes import DroppedFolder
    from driftline.stats import Stats


class TableSummaryJson(TypedDict):
    """A table of the lake; ``records`` null: it takes a scan to count them.

    Attributes:
        pattern: that made the table, and ``named_by``: the values that named it.
    """

    table: str
    records: int | None
    leaf_columns: int
    drifted_fields: int
    quarantined: int
    rest: int
    at: str | None
    pattern: str | None
    named_by: list[list[str | None]]


TablesJson: TypeAlias = list[TableSummaryJson]


def tables(
    context: typer.Context,
    pattern: OfPattern = None,
    all_tables: AllTables = False,
    json: Json = False,
) -> None:
    """List the lake's tables with their row counts; those of a pattern in one line."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report import stats_text

    rows = _without_spark(context.obj, pattern)
    if rows is None:
        with Progress() as progress:
            opened = context.obj.open(progress, must_exist=True)
            progress.phase("looking at the tables")
            rows = (opened if pattern is None else opened.fan_out(pattern)).stats().tables
    if json:
        summaries: TablesJson = [_summary(row) for row in rows]
        put(summaries)
    elif not rows:
        typer.echo("no tables yet: driftline ingest FILES --into NAMESPACE.TABLE makes one")
    elif pattern is not None:
        show(stats_text.of_pattern(rows))
    else:
        show(stats_text.lake(rows, all_tables=all_tables, more="--all-tables"))


def _without_spark(scope: Invocation, pattern: str | None) -> Sequence[Stats] | None:
    """The tables from their metadata files; None if it takes Spark to read one of them."""
    from driftline.stats.lake import made_by  # late: the other commands do without

    names = scope.tables()
    if names is None:
        return None
    chosen = {name.removesuffix(QUARANTINE) for name in names}
    if pattern is not None:
        chosen = set(filter(Pattern.of(pattern).in_namespace, chosen))
    summaries = [_in_short(scope, name) for name in sorted(chosen)]
    readable = [summary for summary in summaries if summary is not None]
    if len(readable) < len(summaries):
        return None
    return readable if pattern is None else made_by(pattern, readable)


def _in_short(scope: Invocation, name: str) -> Stats | None:
    from driftline.stats.build import stats, waiting_alone  # late: the other commands do without

    if table := scope.offline(name):
        return stats(table, in_short=True)
    quarantine = scope.offline(name + QUARANTINE)
    return waiting_alone(name, quarantine) if quarantine else None


def _summary(stats: Stats) -> TableSummaryJson:
    time = None if stats.at is None else iso(stats.at)
    return as_json(TableSummaryJson, stats, leaf_columns=stats.leaves, rest=stats.waiting_values, at=time)


class CleanedFileJson(TypedDict):
    """A file that belongs to no snapshot."""

    path: str
    size: int


class DroppedFolderJson(TypedDict):
    """The folder of a table that was dropped. ``held``: older snapshots of the lake have its files."""

    table: str
    folder: str
    at: str
    files: int
    size: int
    held: bool
    deleted: bool


class CleanedJson(TypedDict):
    """The files that were deleted, or would be, and those of dropped tables.

    ``younger``: the number of files that stay for their age; null: not counted, as without a dry run.
    """

    deleted: bool
    files: list[CleanedFileJson]
    younger: int | None
    dropped: list[DroppedFolderJson]


def clean(
    context: typer.Context,
    older_than: Annotated[
        float, typer.Option(metavar="HOURS", min=0, help="Only files last modified at least this long ago.")
    ] = 24,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="Delete the files of dropped tables, too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files; delete nothing.")] = False,
    json: Json = False,
) -> None:
    """Delete files that belong to no snapshot, left by failed batches."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report.lines import clean as printable

    # First, as it may be refused.
    folders = context.obj.dropped(delete=dropped and not dry_run)
    with Progress() as progress:
        progress.phase(looking := "looking for files that no snapshot has")
        find = context.obj.clean
        try:
            orphans = find(older_than, dry_run=dry_run)
        except NeedsSpark:
            find = context.obj.open(progress, must_exist=True, writes=True).clean
            progress.phase(looking)
            orphans = find(older_than, dry_run=dry_run)
        # To look once more takes as long, so a run that deletes does without.
        younger = max(len(find(0, dry_run=True)) - len(orphans), 0) if dry_run else None
    if json:
        cleaned: CleanedJson = {
            "deleted": not dry_run,
            "files": [{"path": f.path, "size": f.size} for f in orphans],
            "younger": younger,
            "dropped": [
                as_json(DroppedFolderJson, f, held=f.is_held, deleted=dropped and not (dry_run or f.is_held))
                for f in folders
            ],
        }
        put(cleaned)
        return
    action = "to delete" if dry_run else "deleted"
    show(
        [
            *(printable(f.path) for f in orphans),
            f"{counted(len(orphans), 'file')} {action}, {sum(f.size for f in orphans):,} bytes",
            *([_younger(younger, older_than)] if younger else []),
            *(printable(_dropped(f, action if dropped else "--dropped deletes them")) for f in folders),
        ]
    )


def _younger(files: int, hours: float) -> str:
    """The line about files that are left for their age."""
    age = "an hour" if hours == 1 else f"{hours:g} hours"
    return f"left: {counted(files, 'file')} younger than {age}, which a batch may have yet to commit"


def _dropped(folder: DroppedFolder, fate: str) -> str:
    """The line about the folder of a dropped table; ``fate``: of its files."""
    from driftline.cli.terminal import human

    when = f", dropped on {folder.at[:10]}" if folder.at else ", dropped"
    if folder.is_held:
        fate = "older snapshots have them, and `driftline expire` of another table ends these"
    return f"{folder.table}: {counted(folder.files, 'file')}, {human(folder.size)}{when}: {fate}"


_HEAD = """\
# Settings of driftline for commands that run in this folder. Commented lines
# show the defaults. ${NAME} in a value is taken from the environment.

# lake = "lake"         # the folder of the lake, relative to this file
# format = "iceberg"    # or "ducklake"

# An Iceberg catalog instead of a folder, with its Spark properties:
# [catalog]
# type = "rest"
# uri = "https://catalog.example.com"
# token = "${CATALOG_TOKEN}"

# Access to object stores, unless set in the environment
# (AWS_ACCESS_KEY_ID, ...):
# [store.s3]
# endpoint = "https://minio.example.com"
# region = "us-east-1"
# access_key = "${STORE_KEY}"
# secret_key = "${STORE_SECRET}"

# Clients of captures: Kafka, with settings of librdkafka or Java, and the
# schema registry, with settings of confluent-kafka.
# [kafka]
# security.protocol = "SASL_SSL"
# sasl.mechanism = "SCRAM-SHA-512"
# sasl.username = "alice"
# sasl.password = "${KAFKA_PASSWORD}"
# [registry]
# url = "https://registry.example.com"
# basic.auth.user.info = "me:${REGISTRY_PASSWORD}"

# Settings of a table; --set KEY=VALUE of a command overrides them.
# [tables."shop.orders"]
"""


def init() -> None:
    """Write a driftline.toml with all settings, commented out."""
    try:
        with Path(FILE).open("x", encoding="utf-8") as file:
            file.write(text())
    except FileExistsError:
        raise UsageError(f"there is a {FILE} in this folder already", "edit it, or rename it first") from None
    except OSError as error:
        raise UsageError(f"{FILE}: cannot be written: {error.strerror}") from error
    typer.echo(f"{FILE}  every setting, commented out")


def text() -> str:
    """The file: each setting with its default, what it decides and the values it may have."""
    lines = [_HEAD.rstrip()]
    for name, setting in SETTINGS.items():
        lines += [*_about(setting), f'# {name} = "{setting.default}"']
    for name, setting in PATH_SETTINGS.items():
        path, example = setting.example
        value = setting.default or (setting.values[0] if isinstance(setting.values, tuple) else example)
        lines += [*_about(setting), f'# "{name}.{path}" = "{value}"']
    return "\n".join(lines) + "\n"


def _about(setting: Setting) -> list[str]:
    """A setting's purpose and its values, as lines of comment."""
    values = ", ".join(f'"{value}"' for value in setting.values) if isinstance(setting.values, tuple) else ""
    words = f"{setting.about} One of {values}." if values else setting.about
    return ["#", *(f"# {line}" for line in wrap(words, 78))]


def relocate(
    context: typer.Context,
    table: Annotated[
        str | None,
        table_argument(
            "The table to copy with --to; without it, the lake's paths are repaired.", "[NAMESPACE.TABLE]"
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="LAKE", help="The table's new lake: a folder, URI or driftline.toml."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    json: Json = False,
) -> None:
    """Repair the paths of a moved or copied lake, or copy a table to another lake."""
    from driftline.cli.terminal import Progress, put, show

    if (table is None) != (to is None):
        raise UsageError(
            "a table is relocated to another lake", "give both: driftline relocate NAMESPACE.TABLE --to LAKE"
        )
    work = "rewrites the paths in the lake's metadata" if to is None else f"copies the files of {table}"
    confirm(f"relocate {work}", dry_run=dry_run, yes=yes)
    with Progress() as progress:
        relocation = context.obj.relocate(progress, table, to, dry_run=dry_run)
    if json:
        put(relocation.to_dict())
    else:
        show(_relocated(relocation, None if to is None else redacted(to)))


def _relocated(relocation: Relocation, to: str | None) -> list[str]:
    """The report; ``to``: the lake that got a table, None if a whole lake was relocated."""
    from driftline.cli.terminal import human

    tables = counted(len(relocation.tables), "table")
    files = counted(relocation.files, "metadata file")
    work = f"{files} {'written' if relocation.is_done else 'to write'} anew"
    if to is not None:
        copied = f"{counted(relocation.copied, 'file')} {'copied' if relocation.is_done else 'to copy'}"
        origin = f"from {relocation.home} to {to}"
        work = f"{copied}, {human(relocation.bytes)}; {work}"
        effect = f"complete there; {relocation.home} keeps its own until you drop it"
    elif relocation.is_copy:
        origin, effect = f"a copy of the lake at {relocation.home}", "a lake of its own now"
    else:
        origin, effect = f"moved from {relocation.home}", "complete here"
    done = effect if relocation.is_done else "dry run, nothing is written"
    return [origin, *(f"  {name}" for name in relocation.tables), f"{tables}, {work}: {done}"]
