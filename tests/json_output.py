"""The output of commands with --json, held against the schemas that `driftline json-schema` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from jsonschema import Draft202012Validator

from driftline.cli.json_schema import described, json_schema_of


class Ran(Protocol):
    """A command that has run."""

    code: int
    out: str


def command_of(argv: Sequence[str]) -> str:
    """The command of a command line that begins with it."""
    two = " ".join(argv[:2])
    return two if two in described() else argv[0]


def faults(commands: Mapping[str, Sequence[str]], done: Mapping[str, Ran]) -> Iterator[str]:
    """The places where the output of a command with --json is not as its schema says, strictly: nothing else is in it."""
    checked = 0
    for name, argv in commands.items():
        if "--json" not in argv:
            continue
        validator = Draft202012Validator(_closed(json_schema_of(command_of(argv))))
        for line in done[name].out.splitlines():
            checked += 1
            for error in validator.iter_errors(json.loads(line)):
                yield f"{name}: {error.json_path}: {error.message}"
    assert checked, "no command printed JSON"


def _closed(schema: Any) -> Any:
    """The schema, without room for properties that it does not name."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _closed(part) for key, part in schema.items()}
    return {**out, "additionalProperties": False} if isinstance(out.get("properties"), dict) else out
