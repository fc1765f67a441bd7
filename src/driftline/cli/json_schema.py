"""`driftline json-schema`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

from driftline.core.schema.naming import nearest
from driftline.errors import UsageError

# The forms of the commands' output, which `as_json` fills; several where a flag changes what is printed.
_FORMS: Mapping[str, tuple[str, ...]] = {
    "alter": ("operations.alter.AlteredJson",),
    "capture": ("capture.targets.BatchJson", "capture.targets.PatternBatchJson"),
    "clean": ("cli.tables.CleanedJson",),
    "compact": ("operations.compact.CompactedJson",),
    "relocate": ("formats.home.RelocationJson",),
    "contract check": ("report.findings.ContractCheckJson",),
    "demo": ("ingest.result.ResultJson", "verify.verdict.VerdictJson", "cli.demo.CopiedJson"),
    "doctor": ("operations.doctor.ChecksJson",),
    "drop": ("operations.drop.DroppedJson",),
    "erase": ("operations.erase.ErasedJson",),
    "expire": ("operations.expire.ExpiredJson",),
    "history": ("core.history.entries.EntryJson", "operations.history.DifferenceJson"),
    "ingest": ("ingest.result.ResultJson", "ingest.fan_out.FanOutJson"),
    "plan": ("ingest.result.ResultJson", "ingest.fan_out.FanOutJson"),
    "promote": ("operations.promote.PromotedJson",),
    "quarantine": (
        "operations.listing.QuarantineJson",
        "operations.replay.ReplayJson",
        "operations.replay.DiscardedJson",
        "cli.evolution.ExportedJson",
    ),
    "query": ("cli.rows.RowJson",),
    "replan": ("operations.replan.ReplanJson",),
    "resolve": ("operations.resolve.ResolvedJson",),
    "schema": ("core.schema.schema_json.SchemaJson", "operations.layout.LayoutJson"),
    "seek": ("capture.seeking.SeekJson",),
    "split": ("operations.split.TableSplitJson",),
    "stats": ("stats.model.StatsJson", "stats.lake.LakeStatsJson"),
    "tables": ("cli.tables.TablesJson",),
    "undo": ("operations.undo.UndoneJson",),
    "verify": ("verify.verdict.VerdictJson", "verify.verdict.PatternVerdictJson"),
    "view": ("operations.view.ViewJson",),
}


def described() -> list[str]:
    """The commands whose JSON output has a schema."""
    return list(_FORMS)


def json_schema_of(command: str) -> dict[str, Any]:
    """The JSON Schema of each line that a command prints with --json.

    Raises UsageError if the command prints no JSON.
    """
    from msgspec.json import schema_components  # late: only this command makes schemas

    if command not in _FORMS:
        hint = nearest(command, described()) or f"one of {', '.join(_FORMS)}"
        raise UsageError(f"no JSON output of {command!r} is described", hint)
    forms = [_form(name) for name in _FORMS[command]]
    schemas, parts = schema_components(forms)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"driftline {command} --json",
        **(schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}),
        **({"$defs": dict(sorted(parts.items()))} if parts else {}),
    }


def _form(name: str) -> Any:
    module, _, form = name.rpartition(".")
    return getattr(import_module(f"driftline.{module}"), form)


def _commands(incomplete: str) -> Iterator[str]:
    yield from (command for command in _FORMS if command.startswith(incomplete))


def json_schema(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND",
            help="A command that has --json, such as ingest or contract check.",
            show_default=False,
            autocompletion=_commands,
        ),
    ],
) -> None:
    """Print the JSON Schema of a command's --json output.

    It describes each line that the command prints.
    """
    from driftline.cli.terminal import put

    put(json_schema_of(" ".join(command)))
