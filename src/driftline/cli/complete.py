"""Names that the shell completes: tables of an embedded lake, paths of a table's columns, settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import typer

from driftline.cli.scope import Invocation
from driftline.core.schema.table_name import QUARANTINE
from driftline.core.schema.types import dotted
from driftline.errors import DriftlineError
from driftline.settings import SETTINGS


def tables(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The lake's tables; none where it takes Spark to know them."""
    with suppress(DriftlineError):
        names = _scope(context).tables() or ()
        yield from sorted(
            name for name in names if name.startswith(incomplete) and not name.endswith(QUARANTINE)
        )


def fields(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The paths of the columns of the table that the command line names."""
    with suppress(DriftlineError):
        table = _scope(context).offline(context.params.get("table") or "")
        paths = () if table is None else (dotted(path) for path, _ in table.load().schema.walk())
        yield from (path for path in paths if path.startswith(incomplete))


def settings(incomplete: str) -> Iterator[str]:
    """The settings of a table, with the values of the one that is written."""
    name, assigned, begun = incomplete.partition("=")
    if not assigned:
        yield from (f"{key}=" for key in SETTINGS if key.startswith(name))
    elif name in SETTINGS and isinstance(values := SETTINGS[name].values, tuple):
        yield from (f"{name}={value}" for value in values if value.startswith(begun))


def _scope(context: typer.Context) -> Invocation:
    """The lake and the settings file that are named before the command."""
    flags = context.parent.params if context.parent is not None else {}
    return Invocation(flags.get("lake"), flags.get("config"))
