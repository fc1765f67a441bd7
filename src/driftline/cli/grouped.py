"""The help of the command line: its commands in groups, each with examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand, TyperGroup

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Ingest data": ("ingest", "plan", "capture", "seek", "verify", "quarantine"),
    "Inspect tables": ("tables", "schema", "stats", "history", "query"),
    "Settle drift": ("view", "resolve", "promote", "alter", "undo", "contract"),
    "Run a lake": ("init", "doctor", "clean", "relocate", "demo", "json-schema"),
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
    "verify": ("orders.jsonl --table shop.orders",),
    "quarantine": ("shop.orders", "shop.orders --replay", "shop.orders --discard --from bad.csv"),
    "tables": ("",),
    "schema": ("shop.orders",),
    "stats": ("shop.orders", "shop.orders total 'customer.*' --exact", "--all --html pages"),
    "history": ("shop.orders", "shop.orders --diff 0 1"),
    "query": ("'select count(*) from shop.orders'", "'select * from shop.orders' --engine duckdb --json"),
    "view": ("shop.orders",),
    "resolve": ("shop.orders total --as 'decimal(10,2)' --dry-run",),
    "promote": ("shop.orders device.model", "shop.orders --all --dry-run"),
    "alter": ("'alter table shop.orders rename column id to order_id'",),
    "undo": ("shop.orders",),
    "contract export": ("shop.orders > orders.yaml",),
    "contract check": ("shop.orders orders.yaml orders.jsonl",),
    "init": ("",),
    "doctor": ("",),
    "clean": ("--dry-run",),
    "relocate": ("--dry-run", "--yes"),
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
