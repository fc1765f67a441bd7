"""Values that stand in the paths of files: folders named ``column=value``, read as DuckDB reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from driftline.errors import DataError
from driftline.formats.ducklake.inlined import duckdb_type, for_spark
from driftline.runtime.duckdb import instance, literal

if TYPE_CHECKING:
    from driftline.formats.ducklake.columns import ColumnRow

_NULLS = ("null", "__hive_default_partition__")


def hive_values(paths: Mapping[str, str], columns: Mapping[str, ColumnRow], zone: str, table: str) -> Any:
    """An Arrow table: the second name of each path as ``path``, and its values as columns ``__h`` and the id.

    ``columns`` by key; ``zone``: of instants that name none. Raises
    DataError for a value that the type has not.
    """
    import duckdb
    import pyarrow as pa

    keys = [in_path(path) for path in paths]
    columns_of_values: dict[str, Any] = {"path": list(paths.values())}
    for key, row in columns.items():
        columns_of_values[f"__h{row.id}"] = pa.array(
            [_text(partition.get(key), row.type) for partition in keys], pa.string()
        )
    texts = pa.table(columns_of_values)  # noqa: F841  DuckDB finds the local variable by its name
    casts = ", ".join(
        f"{for_spark(f'CAST(__h{row.id} AS {duckdb_type(row, {})})', row, {})} AS __h{row.id}"
        for row in columns.values()
    )
    with instance() as connection:
        connection.execute(f"SET TimeZone = {literal(zone)}")
        try:
            return connection.execute(f"SELECT path, {casts} FROM texts").to_arrow_table()
        except duckdb.Error as error:
            raise DataError(
                f"{table}: a value in the path of a file does not fit its column: {str(error).splitlines()[0]}",
                hint=f"it is in one of {len(paths)} files, as {next(iter(paths))}",
            ) from error


def in_path(path: str) -> dict[str, str]:
    """The keys and values of a path, as they are spelled there; of a key that stands twice the first.

    >>> in_path("/in/a=1/b=x%20y/a=2/c=3.parquet"), in_path("/a=b=c/=1/d?=2/x")
    ({'a': '1', 'b': 'x%20y'}, {})
    """
    out: dict[str, str] = {}
    for part in re.split(r"[/\\\\]", path)[:-1]:
        key, sign, value = part.partition("=")
        if key and sign and not re.search(r"[=?\n]", key + value):
            out.setdefault(key, value)
    return out


def _text(value: str | None, type_: str) -> str | None:
    if value is None or value.lower() in _NULLS or (not value and type_.lower() != "varchar"):
        return None
    return unquote(value)
