"""DuckDB in this process, with the extensions that a DuckLake needs, out of their wheels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from driftline.errors import SetupError

if TYPE_CHECKING:
    import duckdb

HINT = "pip install 'driftline[ducklake]'"

_lock = RLock()


@contextmanager
def instance(*extensions: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with these extensions, for one thread at a time: two instances of a process would not see each
    other's locks on a catalog's file."""
    with _lock:
        cursor = database().cursor()
        try:
            for extension in extensions:
                cursor.execute(f"LOAD {literal(extension_path(extension))}")
            yield cursor
        finally:
            cursor.close()


@cache
def database() -> Any:
    """This process's DuckDB. Raises SetupError if it is not installed."""
    try:
        import duckdb
    except ImportError as error:
        raise SetupError("DuckDB is not installed.", hint=HINT) from error
    # No network: extensions come out of their wheels.
    return duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    )


def extension_path(name: str) -> str:
    """The extension out of its wheel; else its name, which DuckDB
    finds if it was installed into DuckDB itself.

    Raises SetupError where neither is there.
    """
    import duckdb

    spec = find_spec(f"duckdb_extension_{name}")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        if path.is_file():
            return str(path)
    installed = {
        row[0]
        for row in database().cursor().execute(
            "SELECT extension_name FROM duckdb_extensions() WHERE installed"
        ).fetchall()
    }  # fmt: skip
    if name in installed:
        return name
    raise SetupError(f"DuckDB {duckdb.__version__} has no extension {name!r}.", hint=HINT)


def literal(text: str) -> str:
    """A string literal of DuckDB's SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
