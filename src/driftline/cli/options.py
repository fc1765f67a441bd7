"""Arguments and options shared by several commands."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from driftline.cli import grouped
from driftline.core.schema.naming import must_take_records, table_parts
from driftline.core.settings.properties import as_properties
from driftline.errors import UsageError

if TYPE_CHECKING:
    from driftline.cli.scope import Invocation
    from driftline.report.metrics import Metrics


NameT = TypeVar("NameT", str, str | None)


class Format(StrEnum):
    json = "json"
    csv = "csv"
    parquet = "parquet"
    avro = "avro"
    orc = "orc"
    excel = "excel"


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class Output(StrEnum):
    text = "text"
    json = "json"
    github = "github"
    junit = "junit"


class Engine(StrEnum):
    spark = "spark"
    duckdb = "duckdb"


class PolicyName(StrEnum):
    preserve = "preserve"
    widen = "widen"
    strict = "strict"


class OnDelete(StrEnum):
    hard = "hard"
    soft = "soft"


class OnMerge(StrEnum):
    replace_ = "replace"
    patch = "patch"


class Envelope(StrEnum):
    """The envelope of messages."""

    DEBEZIUM = "debezium"
    DEBEZIUM_UNWRAPPED = "debezium-unwrapped"
    MAXWELL = "maxwell"
    CANAL = "canal"
    OGG = "ogg"
    DMS = "dms"
    AUTO = "auto"


class OnSnapshot(StrEnum):
    merge = "merge"
    reconcile = "reconcile"


class OnConflict(StrEnum):
    fail = "fail"
    quarantine = "quarantine"


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Files, folders, globs, here, in a bucket (s3://...) or at https://; pipes; - is standard input.",
        show_default=False,
    ),
]


def named(context: typer.Context, name: NameT) -> NameT:
    """The name of a table, checked before Spark starts. Raises UsageError."""
    if name is not None:
        table_parts(name, two=context.obj.config.ducklake is not None)
    return name


def filled(context: typer.Context, name: str) -> str:
    """The name of a table that takes records, as `named` has it."""
    must_take_records(named(context, name))
    return name


Into = Annotated[
    str,
    typer.Option(
        metavar="NAMESPACE.TABLE",
        callback=filled,
        help="The table; created if it does not exist.",
        autocompletion=grouped.tables,
    ),
]
TableName = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE.TABLE",
        callback=named,
        help="The table.",
        show_default=False,
        autocompletion=grouped.tables,
    ),
]
AnyTable = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAMESPACE.TABLE]",
        callback=named,
        help="The table; all with --all.",
        show_default=False,
        autocompletion=grouped.tables,
    ),
]
PerFile = Annotated[
    bool, typer.Option("--batch-per-file", help="Ingest each file as its own batch, in name order.")
]
PolicyOption = Annotated[
    PolicyName | None,
    typer.Option(
        help="What to do with a value that does not fit. [default: the table's; preserve]", show_default=False
    ),
]
Conflict = Annotated[
    OnConflict | None,
    typer.Option(
        help="What to do with records that are refused. [default: the table's; quarantine]",
        show_default=False,
    ),
]
FormatOption = Annotated[
    Format | None,
    typer.Option(help="The files' format; needed if their extensions do not show it.", show_default=False),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting of the table; may be repeated.",
        show_default=False,
        autocompletion=grouped.settings,
    ),
]
Hints = Annotated[
    list[str] | None,
    typer.Option(
        "--hint",
        metavar="PATH=TYPE",
        help="Declare a field's type: amount=decimal(18,2); may be repeated.",
        show_default=False,
        autocompletion=grouped.types_of_fields,
    ),
]
Excludes = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="PATH",
        help="Do not ingest this field; may be repeated.",
        show_default=False,
        autocompletion=grouped.fields,
    ),
]
RowKeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="PATHS",
        help='Fields that identify a row, if the table is created now: "id" or "region, id".',
        show_default=False,
        autocompletion=grouped.listed_fields,
    ),
]
OrderBy = Annotated[
    str | None,
    typer.Option(
        metavar="PATHS",
        help='With a key: the change that is highest by these fields counts: "updated_at".',
        show_default=False,
        autocompletion=grouped.listed_fields,
    ),
]
DeleteWhen = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION",
        help="With a key: a record for which this is true deletes its row: \"op = 'd'\".",
        show_default=False,
    ),
]
DeleteMemory = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="With an order: how long deletes are remembered, so that late changes stay out: 36h.  [default: 7d]",
        show_default=False,
    ),
]
DeletesOption = Annotated[
    OnDelete | None,
    typer.Option(
        "--deletes",
        help="With a key: a delete removes its row (hard), or keeps it with a mark (soft).",
        show_default=False,
    ),
]
MergeOption = Annotated[
    OnMerge | None,
    typer.Option(
        "--merge",
        help="With a key: a record replaces its row (replace), or only the fields that it has (patch).",
        show_default=False,
    ),
]
EnvelopeOption = Annotated[
    Envelope | None,
    typer.Option(
        "--envelope",
        help="With a key: the envelope that a database's changes come in; it tells what each does to its row.",
        show_default=False,
    ),
]
OnSnapshotOption = Annotated[
    OnSnapshot | None,
    typer.Option(
        "--on-snapshot",
        help="With an envelope of Debezium's: rows that a snapshot taken again does not have stay (merge), or go (reconcile).",
        show_default=False,
    ),
]
PartitionBy = Annotated[
    str | None,
    typer.Option(
        metavar="TERMS",
        help='How to partition the table, if it is created now: "day(at), bucket(16, id)".',
        show_default=False,
    ),
]
SortBy = Annotated[
    str | None,
    typer.Option(
        metavar="TERMS", help='How to sort its files, if it is created now: "at desc".', show_default=False
    ),
]
FormatVersion = Annotated[
    int | None,
    typer.Option(
        metavar="2|3",
        min=2,
        max=3,
        help="Iceberg's format version, if the table is created now. [default: 2]",
        show_default=False,
    ),
]
OnChange = Annotated[
    str | None,
    typer.Option(
        "--on-change",
        metavar="CMD|URL",
        help="Run this command, or post JSON to this URL, on schema changes and quarantined records.",
        show_default=False,
    ),
]
MetricsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        metavar="FILE",
        help="Update this file of metrics after each batch, for a node exporter.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR",
        help="The character that separates CSV cells, or tab. [default: detected]",
        show_default=False,
    ),
]
Quote = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR",
        help="The character that quotes CSV cells, or none. [default: detected]",
        show_default=False,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The encoding of CSV: cp1252, latin1, utf-16, ... [default: UTF-8]",
        show_default=False,
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        metavar="SIGN", help="The decimal separator in CSV numbers: , or . [default: .]", show_default=False
    ),
]
Thousands = Annotated[
    str | None,
    typer.Option(
        metavar="SIGN",
        help="The thousands separator in CSV numbers: . or , [default: none]",
        show_default=False,
    ),
]
Escape = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR",
        help="The character that escapes quotes within quoted CSV cells, or none. [default: detected]",
        show_default=False,
    ),
]
HeaderOption = Annotated[
    str | None,
    typer.Option(
        "--header",
        metavar="auto|yes|no|NAME,…",
        help="Whether CSV begins with a header; or the columns' names. [default: auto, detected]",
        show_default=False,
    ),
]
SkipLines = Annotated[
    str | None,
    typer.Option(
        "--skip-lines",
        metavar="N",
        help="Skip the first N lines of CSV, such as titles.",
        show_default=False,
    ),
]
Comment = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR", help="Skip lines of CSV that begin with this character.", show_default=False
    ),
]
Records = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help='In JSON files: the path of the list that has the records: "items", "data.rows".',
        show_default=False,
    ),
]
Sheet = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The sheet of Excel workbooks; needed where there are several.",
        show_default=False,
    ),
]
MetadataOption = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        metavar="NAMES",
        help="Add where each row came from as column _source: some of file, line, topic, partition, offset, batch, time.",
        show_default=False,
    ),
]
Strings = Annotated[bool, typer.Option("--strings", help="Ingest all CSV cells as text.")]
AllHints = Annotated[
    bool, typer.Option("--hints", help="Print every hint; without it, many of them are one line.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The options of ingest, plan and capture that are settings of the table."""

    policy: PolicyOption = None
    on_conflict: Conflict = None
    hint: Hints = None
    exclude: Excludes = None
    key: RowKeyOption = None
    order_by: OrderBy = None
    delete_when: DeleteWhen = None
    delete_memory: DeleteMemory = None
    deletes: DeletesOption = None
    merge: MergeOption = None
    envelope: EnvelopeOption = None
    on_snapshot: OnSnapshotOption = None
    partition_by: PartitionBy = None
    sort_by: SortBy = None
    format_version: FormatVersion = None
    set_: Sets = None
    metadata: MetadataOption = None
    records: Records = None
    sheet: Sheet = None
    delimiter: Delimiter = None
    quote: Quote = None
    encoding: Encoding = None
    decimal: Decimal = None
    thousands: Thousands = None
    escape: Escape = None
    header: HeaderOption = None
    skip_lines: SkipLines = None
    comment: Comment = None

    def settings(self, scope: Invocation, table: str) -> dict[str, str]:
        """The table's settings: flags take precedence over the file. Raises UsageError for an invalid one."""
        flags = dict(_line(text) or _pair(text, "--set", "key=value") for text in self.set_ or ())
        flags |= dict(_line(text) or _hint(text) for text in self.hint or ())
        flags |= {f"exclude.{path}": "true" for path in self.exclude or ()}
        by_name = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("set_", "hint", "exclude")
        }
        flags |= {name: str(value) for name, value in by_name.items() if value is not None}
        as_properties(flags)  # report what is wrong with them before Spark starts
        return {**scope.config.tables.get(table, {}), **flags}


def with_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Expand a command's parameter of `TableOptions` into one for each option, as Typer reads signatures."""
    types = get_type_hints(TableOptions, include_extras=True)
    signature = inspect.signature(command, eval_str=True)
    options = [
        Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=types[f.name])
        for f in fields(TableOptions)
    ]
    parameters: list[Parameter] = []
    for parameter in signature.parameters.values():
        parameters += options if parameter.annotation is TableOptions else [parameter]

    @wraps(command)
    def expanded(**arguments: Any) -> None:
        """Run the command with its table options as one object."""
        values = {name: arguments.pop(name) for name in types}
        command(**arguments, options=TableOptions(**values))

    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {p.name: p.annotation for p in parameters}
    return expanded


def pairs(texts: Sequence[str] | None, flag: str, form: str) -> dict[str, str]:
    """The values of a repeated key=value flag. Raises UsageError."""
    return dict(_pair(text, flag, form) for text in texts or ())


def more_hints(*, all_hints: bool) -> str | None:
    """Name the flag that prints the hints a report leaves out; None if it prints all."""
    return None if all_hints else "--hints"


def writable(file: Path) -> None:
    """Raise UsageError if the file cannot be created, before Spark starts."""
    if file.is_dir():
        raise UsageError(f"{file} is a folder", hint=f"name a file, as in {file / 'out'}")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", hint="make it first")


def metrics(
    table: str, capture: str = "", *, address: str | None = None, file: Path | None = None
) -> Metrics | None:
    """Metrics that exist from the start of a command, so that a waiting one is visible too.

    None without an ``address`` and a ``file``.
    """
    if address is None and file is None:
        return None
    from driftline.report.metrics import Metrics

    if file is not None:
        writable(file)
    return Metrics(table, capture, address=address, file=file)


def _hint(text: str) -> tuple[str, str]:
    path, type_ = _pair(text, "--hint", "path=type")
    return f"hints.{path}", type_


def _line(text: str) -> tuple[str, str] | None:
    """A setting as reports print it for `driftline.toml`; None for any other text.

    >>> _line('dates = "instant"'), _line("dates=off"), _line('"a" = "b"')
    (('dates', 'instant'), None, None)
    """
    name, assigned, value = text.partition(" = ")
    if not assigned or '"' in name:
        return None
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return None
    return (name.strip(), parsed) if isinstance(parsed, str) else None


def _pair(text: str, flag: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{flag} {text}: there is no value", hint=f"write {flag} {form}")
    return key.strip(), value.strip()
