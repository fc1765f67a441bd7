"""`driftline json-schema`: every command with --json has a schema, and each is one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator

from driftline.cli import main
from driftline.cli.commands import app
from driftline.cli.json_schema import described, json_schema_of
from driftline.errors import UsageError
from json_output import command_of
from system import test_capture_cli, test_cli, test_cli_alter, test_cli_ducklake, test_settle


def with_json(group: Any, before: str = "") -> Iterator[str]:
    """The names of the commands that have --json."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from with_json(command, f"{before}{name} ")
        elif any("--json" in parameter.opts for parameter in command.params):
            yield before + name


def test_each_command_with_json_has_a_schema() -> None:
    assert sorted(with_json(typer.main.get_command(app))) == sorted(described())


def test_the_output_of_each_is_checked() -> None:
    """By `json_output.faults`, in these modules and in the test of the demo."""
    modules = (test_capture_cli, test_cli, test_cli_alter, test_cli_ducklake, test_settle)
    ran = {command_of(argv) for module in modules for argv in module.COMMANDS.values() if "--json" in argv}
    assert ran >= set(described()) - {"demo"}


@pytest.mark.parametrize("command", described())
def test_it_is_a_schema(command: str) -> None:
    Draft202012Validator.check_schema(json_schema_of(command))


def test_it_says_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["json-schema", "ingest"])
    form = json.loads(capsys.readouterr().out)["$defs"]["ResultJson"]
    assert form["properties"]["rows_read"] == {"type": "integer"}
    assert "conflicts" in form["properties"] and "conflicts" not in form["required"]


def test_another_name() -> None:
    with pytest.raises(UsageError, match="'ingst'") as caught:
        json_schema_of("ingst")
    assert caught.value.hint == "did you mean ingest?"
