"""Runs SQL on a lake in DuckDB, without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from driftline.errors import DataError, UsageError
from driftline.runtime.duckdb import database

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# DuckDB's types that Arrow has no values of, or none that Spark would print.
_NO_VALUES = (
    "VARIANT",
    "INTERVAL",
    "BIT",
    "UNION",
    "GEOMETRY",
    "UHUGEINT",
    "BIGNUM",
    "TIME_NS",
    "TIMETZ",
    "TIME WITH",
)
_AS_TEXT = "write CAST({} AS VARCHAR), or CAST({} AS JSON) of a VARIANT"
_DIALECT = "the SQL is DuckDB's, in which columns named like its words (at) stand in double quotes"
_TRAVEL = "leave out --engine duckdb: Spark has VERSION AS OF"
_KIND = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
_MISSING = re.compile(r'^Table with name "?([^"]+?)"? does not exist')
_ROWS = 2_000  # of a batch


@contextmanager
def query(
    lake: AbstractContextManager[duckdb.DuckDBPyConnection], sql: str, rows: int = _ROWS
) -> Iterator[pa.RecordBatchReader]:
    """The rows of a SELECT statement on a ``lake``, as they come, so many ``rows`` in a batch.

    Raises UsageError for another statement, or one that DuckDB does not parse; DataError where it fails;
    SetupError where DuckDB is not installed.
    """
    database()
    import duckdb

    try:
        _must_read(sql)
        with lake as connection:
            connection.execute("SET TimeZone = 'UTC'")
            result = connection.execute(sql)
            for name, type_, *_ in result.description or ():
                if any(word in str(type_) for word in _NO_VALUES):
                    raise UsageError(
                        f"SQL: column {name!r} of the result has DuckDB's type {type_}",
                        _AS_TEXT.format(name, name),
                    )
            yield result.to_arrow_reader(rows)
    except duckdb.Error as error:
        raise failure(error) from error
    except OSError as error:  # of Arrow, which has DuckDB's text
        raise DataError(f"SQL: {_told(error)}") from error


def _must_read(sql: str) -> None:
    """Raise UsageError unless the text is one statement that only reads."""
    import duckdb

    with duckdb.connect() as connection:
        statements = connection.extract_statements(sql)
    kinds = [statement.type.name for statement in statements]
    if kinds != ["SELECT"]:
        shown = "nothing" if not kinds else " and ".join(kind.lower().replace("_", " ") for kind in kinds)
        raise UsageError(
            f"SQL: a query in DuckDB is one SELECT statement, and this is {shown}; nothing of it was run",
            "`driftline ingest` fills tables, `driftline alter` changes them",
        )


def failure(error: Any) -> DataError | UsageError:
    """DuckDB's error in one line of ours."""
    import duckdb

    text = _told(error)
    if isinstance(error, duckdb.CatalogException) and (missing := _MISSING.search(text)):
        return DataError(f"SQL: there is no table {missing[1]}", "`driftline tables` lists what is there")
    if isinstance(error, duckdb.ParserException):
        return UsageError(f"SQL: {text}", _DIALECT)
    return DataError(f"SQL: {text}", _TRAVEL if "time travel" in text else None)


def _told(error: Exception) -> str:
    r"""The first line, without the kind of the error, and without names that DuckDB guesses.

    >>> _told(ValueError("Binder Error: Referenced column \"x\" not found!\nCandidate bindings: \"id\""))
    'Referenced column "x" not found'
    """
    return _KIND.sub("", str(error).split("\n", 1)[0]).rstrip("!.")
