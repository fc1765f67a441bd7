"""SQL of a person at the page, within limits: a process of its own that reads the lake, and nothing else.

Three walls stand behind each other. Only one SELECT over the lake's tables is run, by DuckDB's own parse of
it. DuckDB opens no file outside the lake, and loads no extension. The process may write no file at all, and
is killed at its time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from driftline.core.schema.naming import caseless
from driftline.errors import DataError, DriftlineError, UsageError
from driftline.formats.open import EmbeddedLake
from driftline.runtime.duckdb import literal
from driftline.runtime.stores import configure, configured_kinds

if TYPE_CHECKING:
    import duckdb

SECONDS, ROWS = 10.0, 100
_BYTES = 4_000_000  # of an answer
_MEMORY = "1GB"
# Functions in FROM that read nothing.
_PURE = frozenset({"range", "generate_series", "unnest", "repeat"})
# What tells of the process, or waits.
_REFUSED = frozenset(
    {"current_setting", "getenv", "getvariable", "sleep_ms", "write_log", "nextval", "currval"}
)


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The rows of a query. Texts stand for themselves, other values as JSON; None is null.

    Attributes:
        more: there are more rows than these.
    """

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str | None]] = ()
    more: bool = False


class LimitedQueries:
    """Queries on a lake, one at a time, each in a process of its own; the next one waits for its question."""

    def __init__(self, lake: EmbeddedLake) -> None:
        self._lake = lake
        self._ready: subprocess.Popen[bytes] | None = None
        self._turn = Lock()

    def ask(self, sql: str, *, rows: int = ROWS, seconds: float = SECONDS) -> QueryAnswer:
        """Run a SELECT statement. Raises UsageError, DataError for it, and where it takes longer."""
        question = {
            "folder": str(self._lake.folder), "ducklake": self._lake.ducklake, "stores": configured_kinds(),
            "sql": sql, "rows": rows,
        }  # fmt: skip
        with self._turn:
            process, self._ready = self._ready or _started(), None
            try:
                printed = _answer_of(process, json.dumps(question).encode(), seconds)
            finally:
                self._ready = _started()
        answer = json.loads(printed)
        if "error" in answer:
            kind = UsageError if answer["usage"] else DataError
            raise kind(answer["error"], answer["hint"])
        return QueryAnswer(**answer)

    def close(self) -> None:
        """End the process that waits."""
        with self._turn:
            if self._ready is not None:
                self._ready.communicate()  # without a question it ends
                self._ready = None


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the server
    )


def _answer_of(process: subprocess.Popen[bytes], question: bytes, seconds: float) -> bytes:
    """The answer to a question that goes by the pipe: all users of a machine see arguments, and the catalog
    may have a password in its name.
    """
    with process:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready: its start does not count
        try:
            printed, _ = process.communicate(question, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise DataError(
                f"SQL: it took longer than {seconds:g} seconds, and was stopped", "ask for less"
            ) from None
    if process.returncode:
        raise DataError("SQL: the process that ran it has died", "it may have needed too much memory")
    return printed


def main() -> None:
    """Answer the question on standard input, on standard output."""
    import driftline.operations.duckdb_query  # late: the server does without; here nobody waits yet
    import driftline.report.row_json  # noqa: F401  the same

    print("ready", flush=True)
    text = sys.stdin.read()
    if not text:
        return
    question = json.loads(text)
    for kind, options in question["stores"].items():
        configure(kind, options)
    folder = question["folder"]
    lake = EmbeddedLake(folder if "://" in folder else Path(folder), question["ducklake"])
    _write_nothing()
    try:
        answer = asdict(_answered(lake, question["sql"], question["rows"]))
    except DriftlineError as error:
        answer = {"error": error.message, "hint": error.hint, "usage": isinstance(error, UsageError)}
    json.dump(answer, sys.stdout)


def _write_nothing() -> None:
    """Have the kernel refuse each byte that this process would write into a file."""
    with suppress(ImportError):
        import resource  # late: Windows has none

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answered(lake: EmbeddedLake, sql: str, limit: int) -> QueryAnswer:
    from driftline.operations.duckdb_query import query  # late: the same
    from driftline.report.row_json import row_objects

    rows: list[list[str | None]] = []
    size = 0
    with query(_confined(lake, sql), sql, limit + 1) as batches:
        names = batches.schema.names
        decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
        for batch in batches:
            for row in row_objects(batch, [str(i) for i in range(len(names))]):
                size += len(row)
                if len(rows) == limit or size > _BYTES:
                    return QueryAnswer(names, rows, more=True)
                rows.append([_text(bytes(cell)) for cell in decoder.decode(row).values()])
    return QueryAnswer(names, rows)


def _text(cell: bytes) -> str | None:
    if cell == b"null":
        return None
    return str(json.loads(cell)) if cell.startswith(b'"') else cell.decode()


@contextmanager
def _confined(lake: EmbeddedLake, sql: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the lake's tables, once it can reach nothing else."""
    names = frozenset(map(caseless, lake.names() or ()))
    with lake.in_duckdb(sql) as connection:
        _check(connection, sql, names)
        for setting in (
            "python_enable_replacements = false",
            "temp_directory = ''",
            f"memory_limit = '{_MEMORY}'",
            f"allowed_directories = [{', '.join(map(literal, lake.folders()))}]",
            "enable_external_access = false",
        ):
            connection.execute(f"SET {setting}")
        yield connection


def _check(connection: duckdb.DuckDBPyConnection, sql: str, names: frozenset[str]) -> None:
    """Raise UsageError for SQL that names anything but the lake's tables, by DuckDB's parse of it."""
    row = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    assert row is not None
    parsed = json.loads(row[0])
    if parsed["error"]:
        raise UsageError(
            f"SQL: {parsed['error_message']}", "write one SELECT statement over the lake's tables"
        )
    nodes = list(_nodes(parsed))
    local = {caseless(entry["key"]) for node in nodes for entry in (node.get("cte_map") or {}).get("map", ())}
    local |= {
        caseless(node["cte_name"]) for node in nodes if node.get("type") in ("RECURSIVE_CTE_NODE", "CTE_NODE")
    }
    for node in nodes:
        match node:
            case {"type": "BASE_TABLE", "schema_name": schema, "table_name": table}:
                name = caseless(f"{schema}.{table}" if schema else table)
                if name not in (names if schema else local) or node["catalog_name"] not in ("", "lake"):
                    raise UsageError(
                        f"SQL: the lake has no table {name}", "the page of the lake lists its tables"
                    )
            case {"type": "TABLE_FUNCTION", "function": {"function_name": function}} if function not in _PURE:
                raise UsageError(
                    f"SQL: {function}() in FROM is not run here", "only the lake's tables are read"
                )
            case {"type": "SHOW_REF"}:
                raise UsageError("SQL: only SELECT is run here", "the page of a table shows its columns")
            case {"class": "FUNCTION", "function_name": function} if function in _REFUSED:
                raise UsageError(f"SQL: {function}() is not run here", "only the lake's tables are read")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a parsed statement; not by recursion, as a person's SQL may be deep."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


if __name__ == "__main__":
    main()
