"""Arguments and options shared by several commands."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from driftline.cli import grouped
from driftline.core.schema.naming import is_pattern, must_take_records, table_parts
from driftline.core.settings.declarations import PATH_SETTINGS, SETTINGS, Flag, SettingArguments
from driftline.core.settings.properties import as_properties
from driftline.errors import UsageError
from driftline.files.endings import FileFormat
from driftline.ingest.pattern import Pattern

if TYPE_CHECKING:
    from driftline.cli.scope import Invocation
    from driftline.report.metrics import Metrics


NameT = TypeVar("NameT", str, str | None)


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class Output(StrEnum):
    text = "text"
    json = "json"
    github = "github"
    junit = "junit"


class ChangeKind(StrEnum):
    new = "new"
    widen = "widen"
    sibling = "sibling"
    map = "map"
    rest = "rest"
    quarantine = "quarantine"
    expect = "expect"


class Engine(StrEnum):
    spark = "spark"
    duckdb = "duckdb"


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Files, folders or globs, local, in a bucket (s3://...) or at https://; pipes; - is standard input.",
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


def made(name: str | None) -> str | None:
    """The pattern of tables, if one is given. Raises UsageError."""
    if name is not None:
        Pattern.of(name)
    return name


def checked(context: typer.Context, name: NameT) -> NameT:
    """The name of a table, or a pattern of tables, checked before Spark starts. Raises UsageError."""
    if name is None or not is_pattern(name):
        return named(context, name)
    Pattern.of(name)
    return name


def tables(context: typer.Context, name: str) -> str:
    """The name of a table that takes records, or a pattern of tables."""
    if not is_pattern(checked(context, name)):
        must_take_records(name)
    return name


IntoTables = Annotated[
    str,
    typer.Option(
        metavar="NAMESPACE.TABLE",
        callback=tables,
        help="The table; created if it does not exist. With braces, as in hooks.{event}: many, by a field.",
        autocompletion=grouped.tables,
    ),
]


def table_argument(help_: str, metavar: str = "NAMESPACE.TABLE") -> Any:
    """The argument that names a table, which the shell completes."""
    return typer.Argument(
        metavar=metavar, callback=named, help=help_, show_default=False, autocompletion=grouped.tables
    )


TableName = Annotated[str, table_argument("The table.")]
AnyTable = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAMESPACE.TABLE]",
        callback=checked,
        help="The table, or a pattern of tables, as hooks.{event}; all with --all.",
        show_default=False,
        autocompletion=grouped.tables,
    ),
]
OfPattern = Annotated[
    str | None,
    typer.Argument(
        metavar="[PATTERN]",
        callback=made,
        help="Only the tables that a pattern made, as hooks.{event}, with the values that named them.",
        show_default=False,
    ),
]
PerFile = Annotated[
    bool, typer.Option("--batch-per-file", help="Ingest each file as its own batch, in name order.")
]
FormatOption = Annotated[
    FileFormat | None,
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
Strings = Annotated[bool, typer.Option("--strings", help="Ingest all CSV cells as text.")]
NoKeep = Annotated[
    bool,
    typer.Option("--no-keep", help="Settings for reading files, and hints, count for this batch alone."),
]
FailOn = Annotated[
    list[ChangeKind] | None,
    typer.Option(
        "--fail-on",
        metavar="KIND",
        help="End with exit code 1 where there is such a change: new, widen, sibling, map, rest, quarantine, "
        "expect; may be repeated.",
        show_default=False,
    ),
]
Audited = Annotated[
    bool,
    typer.Option(
        "--audit",
        help="Check the batch by --fail-on, --at-most and --verify before its commit; if it fails, nothing of it is "
        "kept.",
    ),
]
AtMost = Annotated[
    int | None,
    typer.Option(
        "--at-most",
        metavar="N",
        min=0,
        help="With --audit: the batch fails if there are more violations of expectations.",
        show_default=False,
    ),
]
Verified = Annotated[
    bool,
    typer.Option("--verify", help="With --audit: the batch fails unless the table has each of its records."),
]
AllHints = Annotated[
    bool, typer.Option("--hints", help="Print every hint; without it, many of them are one line.")
]
MaxTables = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Tables that a pattern makes at most; other records go to _other. [default: 200]",
    ),
]
AllTables = Annotated[bool, typer.Option("--all-tables", help="Print a line for each table of a pattern.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]


# The settings that have a flag, and those of paths, whose flag may be repeated.
_FLAGS = {name: setting.flag for name, setting in SETTINGS.items() if setting.flag is not None}
_PATH_FLAGS = {name: setting.flag for name, setting in PATH_SETTINGS.items() if setting.flag is not None}
_COMPLETIONS = {
    "hints": grouped.types_of_fields,
    "exclude": grouped.fields,
    "key": grouped.listed_fields,
    "order_by": grouped.listed_fields,
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of ingest, plan and capture that are settings of the table, by parameter."""

    values: Mapping[str, Any]

    def settings(self, scope: Invocation, table: str) -> dict[str, str]:
        """The table's settings: flags take precedence over the file. Raises UsageError for an invalid one."""
        flags = dict(_line(text) or _pair(text, "--set", "key=value") for text in self.values["set_"] or ())
        for name, flag in _PATH_FLAGS.items():
            texts = self.values[flag.name or name] or ()
            flags |= dict(_line(text) or _of_path(name, flag, text) for text in texts)
        values = {name: self.values[flag.name or name] for name, flag in _FLAGS.items()}
        flags |= {name: value for name, value in values.items() if value is not None}
        as_properties(flags)  # report what is wrong with them before Spark starts
        return {**scope.settings(table), **flags}


def with_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Expand a command's parameter of `TableOptions` into one for each option, as Typer reads signatures."""
    signature = inspect.signature(command, eval_str=True)
    options = list(_options())
    parameters: list[Parameter] = []
    for parameter in signature.parameters.values():
        parameters += options if parameter.annotation is TableOptions else [parameter]

    @wraps(command)
    def expanded(**arguments: Any) -> None:
        """Run the command with its table options as one object."""
        values = {option.name: arguments.pop(option.name) for option in options}
        command(**arguments, options=TableOptions(values))

    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {p.name: p.annotation for p in parameters}
    return expanded


def _options() -> Iterator[Parameter]:
    """Yield an option for each setting with a flag, in their order, and ``--set`` for all others."""
    for name in SettingArguments.__annotations__:
        if name in _FLAGS:
            yield _option(name, _FLAGS[name], SETTINGS[name].values)
        if name in _PATH_FLAGS:
            yield _option(name, _PATH_FLAGS[name], None, repeated=True)
    yield Parameter("set_", Parameter.KEYWORD_ONLY, default=None, annotation=Sets)


def _option(name: str, flag: Flag, values: object, *, repeated: bool = False) -> Parameter:
    """Make the option of a setting: a choice of its ``values`` where no metavar tells what it takes."""
    named = flag.name or name
    is_choice = flag.metavar is None and isinstance(values, tuple)
    type_: Any = list[str] if repeated else Literal.__getitem__(values) if is_choice else str
    type_ = bool if values == ("true", "false") else type_
    option = typer.Option(
        f"--{named.replace('_', '-')}",
        metavar=flag.metavar,
        help=flag.help,
        show_default=False,
        autocompletion=_COMPLETIONS.get(name),
    )
    return Parameter(named, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[type_ | None, option])


def confirm(work: str, *, dry_run: bool, yes: bool, look: str = "shows what it would do") -> None:
    """Raise UsageError for a command that does the ``work`` only if it is told to.

    ``look``: what a dry run does.
    """
    if not (dry_run or yes):
        raise UsageError(f"{work}, only with --yes", hint=f"--dry-run {look}")


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


def write_page(file: Path, text: str, *, tell: bool) -> int:
    """Write an HTML page, and ``tell`` so; returns the number of bytes."""
    try:
        size = file.write_bytes(text.encode(errors="backslashreplace"))
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    if tell:
        typer.echo(f"{file}  {size / 1000:.0f} kB, one file; open it in any browser")
    return size


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


def _of_path(name: str, flag: Flag, text: str) -> tuple[str, str]:
    """Read a setting of a path: PATH=VALUE, NAME:VALUE, or the PATH for which it is true."""
    form = (flag.metavar or "").lower()
    if ":" in form:
        path, value = _pair(text, f"--{flag.name or name}", form, ":")
        return f"{name}.{path}", value
    if "=" not in form:
        return f"{name}.{text}", "true"
    path, value = _pair(text, f"--{flag.name or name}", form)
    return f"{name}.{path}", value


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


def _pair(text: str, flag: str, form: str, sign: str = "=") -> tuple[str, str]:
    key, between, value = text.partition(sign)
    if not between:
        raise UsageError(f"{flag} {text}: there is no value", hint=f"write {flag} {form}")
    return key.strip(), value.strip()
