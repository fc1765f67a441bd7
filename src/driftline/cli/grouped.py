"""The help of the command line, with its commands in groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Ingest data": ("ingest", "plan", "capture", "verify", "quarantine"),
    "Inspect tables": ("tables", "schema", "stats", "history", "query"),
    "Settle drift": ("view", "resolve", "promote", "alter", "undo", "contract"),
    "Run a lake": ("init", "doctor", "clean", "demo", "json-schema"),
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
