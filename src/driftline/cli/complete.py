"""Names that the shell completes: tables of an embedded lake, paths of a table's columns, settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from shlex import quote

import typer

from driftline.cli.scope import Invocation
from driftline.core.history.batch_properties import rest_paths
from driftline.core.schema.naming import QUARANTINE
from driftline.core.schema.types import dotted
from driftline.core.settings.properties import SETTINGS
from driftline.errors import DriftlineError

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
