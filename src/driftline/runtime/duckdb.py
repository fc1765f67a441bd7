"""DuckDB in this process, with extensions installed as wheels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from driftline.errors import SetupError
from driftline.runtime.stores import configured, is_google, is_s3, is_stored

if TYPE_CHECKING:
    import duckdb

HINT = "pip install 'driftline[duckdb]', or 'driftline[ducklake]' for a DuckLake"
# The extra that brings an extension, if not `ducklake`
_BRINGS = {"avro": "duckdb", "iceberg": "duckdb"}
# No network: extensions come out of their wheels.
_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}

_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')  # of a name
# What DuckDB leaves without quotes has no blank
_NAME = re.compile(r'(?:"(?:[^"]|"")*"|[^." ]+|\.)+')
_SECRET = {
    "access_key": "KEY_ID",
    "secret_key": "SECRET",
    "session_token": "SESSION_TOKEN",
    "region": "REGION",
}

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


@contextmanager
def alone(*extensions: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB of its own with these extensions, for work that opens no catalog's file.

    Raises SetupError if DuckDB or an extension is not installed.
    """
    paths = [extension_path(extension) for extension in extensions]
    import duckdb

    with duckdb.connect(config=_OFFLINE) as connection:
        # In a notebook, and under `python -c`, a query of two seconds would print one amid our output.
        connection.execute("SET enable_progress_bar = false")
        for path in paths:
            connection.execute(f"LOAD {literal(path)}")
        yield connection


def must_be_installed() -> None:
    """Raise SetupError if DuckDB is not installed."""
    if find_spec("duckdb") is None:
        raise SetupError("DuckDB is not installed.", hint=HINT)


@cache
def database() -> Any:
    """This process's DuckDB. Raises SetupError if it is not installed."""
    must_be_installed()
    import duckdb

    return duckdb.connect(config=_OFFLINE)


def extension_path(name: str) -> str:
    """The extension out of its wheel; else its name, which DuckDB
    finds if it was installed into DuckDB itself.

    Raises SetupError where neither is there.
    """
    shared = database()
    import duckdb

    spec = find_spec(f"duckdb_extension_{name}")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        if path.is_file():
            return str(path)
    installed = {
        row[0]
        for row in shared.cursor().execute(
            "SELECT extension_name FROM duckdb_extensions() WHERE installed"
        ).fetchall()
    }  # fmt: skip
    if name in installed:
        return name
    extra = _BRINGS.get(name, "ducklake")
    raise SetupError(
        f"DuckDB {duckdb.__version__} has no extension {name!r}.", hint=f"pip install 'driftline[{extra}]'"
    )


def reach(connection: duckdb.DuckDBPyConnection, place: str) -> None:
    """Have DuckDB read and write files in the bucket of a URI, with the keys that tasks have; a path needs
    nothing.

    Raises SetupError for a store that is neither S3 nor Google's, without what DuckDB needs for it, and where
    keys are unknown.
    """
    if not is_stored(place):
        return
    if not (is_s3(place) or is_google(place)):
        raise SetupError(f"{place}: DuckDB reaches S3 and Google's store alone")
    # Its own extension reads S3; a DuckLake in Google's store asks for it, too, and then reads by Arrow.
    connection.execute(f"LOAD {literal(extension_path('httpfs'))}")
    if is_google(place):
        _reach_by_arrow(connection)
        return
    connection.execute("SET GLOBAL s3_url_compatibility_mode = true")  # a path is a key, and no glob
    bucket = place.partition("://")[2].partition("/")[0]
    parts = {"SCOPE": place.partition("://")[0] + f"://{bucket}/", **_secret(configured(place))}
    listed = ", ".join(f"{key} {literal(value)}" for key, value in parts.items())
    connection.execute(f"CREATE OR REPLACE TEMPORARY SECRET {identifier(f's3 {bucket}')} (TYPE s3, {listed})")


def _reach_by_arrow(connection: duckdb.DuckDBPyConnection) -> None:
    """Have DuckDB open files of Google's store by Arrow; what it opens takes the keys of that moment."""
    try:
        from driftline.runtime.duckdb_files import StoredFiles
    except ImportError as error:
        raise SetupError(
            "DuckDB opens files of Google's store by fsspec, which is not installed.",
            hint="pip install 'driftline[gcs]'",
        ) from error
    # For Google's store httpfs takes HMAC keys or a bearer token. Arrow logs in with a service account or the
    # machine's, as most have one, and renews what expires.
    if StoredFiles.protocol not in connection.list_filesystems():
        connection.register_filesystem(StoredFiles())


def _secret(options: Mapping[str, str]) -> dict[str, str]:
    """The options of S3 in DuckDB's words; keys that are not among them are the environment's."""
    settings = dict(options)
    if settings.get("anonymous") != "true" and "access_key" not in settings:
        from driftline.runtime.aws import keys  # late: brings botocore, which few need

        settings |= keys(options)
    scheme, slashes, host = settings.get("endpoint", "").rstrip("/").rpartition("://")
    out = {word: settings[key] for key, word in _SECRET.items() if key in settings}
    if host:
        path_style = settings.get("path_style") != "false"
        out |= {"ENDPOINT": host, "USE_SSL": str(scheme != "http" or not slashes).lower()}
        out |= {"URL_STYLE": "path" if path_style else "vhost"}
    return out


def plain(path: str) -> str:
    """Return a path in which DuckDB finds no glob; after `reach` it looks for none in URIs.

    >>> plain("/a[1]/*.parquet")
    '/a[[]1]/[*].parquet'
    """
    return path if is_stored(path) else re.sub(r"[\[*?]", lambda m: f"[{m[0]}]", path)


def literal(text: str) -> str:
    """A string literal of DuckDB's SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def identifier(text: str) -> str:
    """A quoted name of DuckDB's SQL.

    >>> identifier('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + text.replace('"', '""') + '"'


def parts_of(name: str) -> list[str]:
    """The parts of a table's name as DuckDB writes it, without an alias behind it.

    >>> parts_of('lake."a.b"."say ""x"" now"'), parts_of('shop."AS AS" AS o')
    (['lake', 'a.b', 'say "x" now'], ['shop', 'AS AS'])
    """
    written = _NAME.match(name)
    parts = _PART.findall(written[0] if written else name)
    return [quoted.replace('""', '"') if quoted else plain for quoted, plain in parts]
