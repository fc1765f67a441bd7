"""Help in groups, with examples for each command, and shell completion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from shlex import quote
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from driftline.cli.scope import Invocation
from driftline.core.history.batch_properties import rest_paths
from driftline.core.schema.naming import QUARANTINE
from driftline.core.schema.types import dotted
from driftline.core.settings.declarations import SETTINGS
from driftline.errors import DriftlineError

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Ingest data": ("ingest", "plan", "capture", "seek", "verify", "quarantine"),
    "Inspect tables": ("tables", "schema", "stats", "history", "query", "ui"),
    "Settle drift": ("view", "resolve", "promote", "replan", "split", "alter", "undo", "contract"),
    "Run a lake": (
        "init",
        "doctor",
        "compact",
        "clean",
        "drop",
        "erase",
        "expire",
        "relocate",
        "demo",
        "json-schema",
    ),
}
# What follows the command's name, in lines of 80 columns.
_EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "ingest": (
        "orders.jsonl --into shop.orders",
        "'in/*.csv.gz' --into shop.orders --policy widen --dry-run",
        "may.csv --into a.sales --hint \"day=date('dd.MM.yyyy')\"",
    ),
    "plan": ("orders.jsonl --into shop.orders --fail-on sibling",),
    "capture": (
        "in/ --into shop.orders --name orders --every 10s",
        "kafka://broker:9092/orders --into shop.orders --name orders",
    ),
    "seek": (
        "in/ --into shop.orders --name orders --to earliest --dry-run",
        "in/ --into shop.orders --name orders --to 2026-01-31 --yes",
    ),
    "verify": (
        "orders.jsonl --table shop.orders",
        "hooks.jsonl --table 'hooks.{event}'",
        "kafka://broker:9092/orders --table shop.orders",
    ),
    "quarantine": ("shop.orders", "shop.orders --replay", "shop.orders --discard --from bad.csv"),
    "tables": ("", "'hooks.{event}'"),
    "schema": ("shop.orders",),
    "stats": ("shop.orders", "shop.orders total 'customer.*' --exact", "--all --html pages"),
    "history": ("shop.orders", "shop.orders --diff 0 1"),
    "query": ("'select count(*) from shop.orders'", "'select * from shop.orders' --engine duckdb --json"),
    "ui": ("", "--port 9000 --no-open"),
    "view": ("shop.orders",),
    "resolve": ("shop.orders total --as 'decimal(10,2)' --dry-run",),
    "promote": ("shop.orders device.model", "shop.orders --all --dry-run"),
    "replan": ("shop.orders", "shop.orders total --apply"),
    "split": ("hooks.all --by event --dry-run", "hooks.all --into 'kinds.{event}'"),
    "alter": ("'alter table shop.orders rename column id to order_id'",),
    "undo": ("shop.orders",),
    "contract export": ("shop.orders > orders.yaml",),
    "contract check": ("shop.orders orders.yaml orders.jsonl",),
    "init": ("",),
    "doctor": ("",),
    "clean": ("--dry-run",),
    "compact": ("shop.orders --dry-run", "'shop.*'"),
    "drop": ("shop.orders --dry-run", "shop.orders --purge --yes"),
    "expire": ("shop.orders --older-than 7d --dry-run", "shop.orders --older-than 2026-01-31 --yes"),
    "erase": ("shop.orders --where \"customer_id = 'c-4711'\" --dry-run",),
    "relocate": ("--dry-run", "--yes", "shop.orders --to s3://bucket/lake --yes"),
    "demo": ("", "--files ."),
    "json-schema": ("ingest", "contract check"),
}


class GroupedCommands(TyperGroup):
    """Commands whose help lists them by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group. A command without a group is in the last one."""
        listed = self.list_commands(ctx)
        width = max(map(len, listed))
        grouped = {name for names in _GROUPS.values() for name in names}
        ungrouped = tuple(name for name in listed if name not in grouped)
        for title, names in {**_GROUPS, "More": ungrouped}.items():
            rows = [
                (f"{name:{width}}", command.get_short_help_str(formatter.width))
                for name in names
                if (command := self.get_command(ctx, name)) is not None and not command.hidden
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class CommandWithExamples(TyperCommand):
    """A command whose help ends in examples, and names its arguments without the types of Python."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section of the arguments, then one of the options."""
        sections: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                name, text = record
                is_argument = parameter.param_type_name == "argument"
                shown = name.partition(" <")[0] if is_argument else name
                sections[parameter.param_type_name].append((shown, text))
        for title, rows in sections.items():
            if rows:
                with formatter.section(f"{title.capitalize()}s"):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, each on a line that can be copied."""
        with formatter.section("Examples"):
            for example in examples(ctx.command_path.partition(" ")[2]):
                formatter.write(f"  {example}\n")


def examples(command: str) -> tuple[str, ...]:
    """The command lines that the help of a command shows."""
    return tuple(f"driftline {command} {line}".rstrip() for line in _EXAMPLES[command])


# Without those that a shell wants in quotes.
_TYPES = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "date",
    "timestamp",
    "timestamp_ntz",
    "binary",
)


def tables(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The lake's tables; none where it takes Spark to know them."""
    with suppress(DriftlineError):
        names = _scope(context).tables() or ()
        yield from sorted(
            name for name in names if name.startswith(incomplete) and not name.endswith(QUARANTINE)
        )


def fields(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The paths of the columns of the table that the command line names."""
    yield from (path for path in _paths(context) if path.startswith(incomplete))


def listed_fields(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The paths of columns, several of which stand behind commas."""
    before, comma, begun = incomplete.rpartition(",")
    yield from (before + comma + path for path in _paths(context) if path.startswith(begun))


def types_of_fields(context: typer.Context, incomplete: str) -> Iterator[str]:
    """`PATH=TYPE`, by the table's columns."""
    yield from _assignments(dict.fromkeys(_paths(context), _TYPES), incomplete)


def waiting(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The paths that wait in the rest of the table that the command line names, as far as its properties
    have them.
    """
    with suppress(DriftlineError):
        table = _scope(context).offline(context.params.get("table") or "")
        paths = () if table is None else rest_paths(table.load().properties)
        yield from (quote(path) for path in paths if path.startswith(incomplete))


def settings(incomplete: str) -> Iterator[str]:
    """The settings of a table, with the values of the one that is written."""
    values = {
        name: setting.values if isinstance(setting.values, tuple) else ("", setting.default)
        for name, setting in SETTINGS.items()
    }
    yield from _assignments(values, incomplete)


def joined(words: Sequence[str], cursor: int) -> tuple[list[str], str]:
    """The words behind the command's name and before the cursor, and the one at the cursor.

    >>> joined(["driftline", "ingest", "--set", "policy", "=", "pr"], 5)
    (['ingest', '--set'], 'policy=pr')
    >>> joined(["driftline", "stats", ""], 2)
    (['stats'], '')
    """
    out: list[str] = []
    assigned = False
    for word in words[1 : cursor + 1]:
        if out and word and (word == "=" or assigned):
            out[-1] += word
        else:
            out.append(word)
        assigned = word == "="
    return out[:-1], out[-1] if out else ""


def _assignments(values: Mapping[str, Iterable[str]], incomplete: str) -> Iterator[str]:
    """Names, or the assignments of the only one that begins so: bash puts a blank behind a lone `name=`."""
    name, assigned, begun = incomplete.partition("=")
    matching = [key for key in values if key == name or (not assigned and key.startswith(name))]
    if len(matching) > 1 and name not in matching:
        yield from (f"{key}=" for key in matching)
        return
    for key in matching[:1] if name not in matching else [name]:
        yield from (f"{key}={value}" for value in values[key] if value.startswith(begun))


def _paths(context: typer.Context) -> list[str]:
    """The paths of the columns of the table that the command line names; none where it takes Spark to know
    them.
    """
    # Before the value of an option, click leaves arguments as they are.
    named = (context.params.get("table"), context.params.get("into"), *context.args)
    with suppress(DriftlineError):
        table = _scope(context).offline(next((name for name in named if name), ""))
        if table is not None:
            return [dotted(path) for path, _ in table.load().schema.walk()]
    return []


def _scope(context: typer.Context) -> Invocation:
    """The lake and the settings file that are named before the command."""
    flags = context.parent.params if context.parent is not None else {}
    return Invocation(flags.get("lake"), flags.get("config"))
