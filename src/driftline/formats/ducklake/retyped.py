"""Reads files with a column in an earlier type that Spark does not read as the later one.

Spark itself widens within a family. For other promotions, most of which are DuckDB's, the file's own type is
read and cast. Only the files know their types: DuckDB compacts old ones without changing them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from driftline.errors import DataError
from driftline.formats.ducklake.engine import instance
from driftline.formats.ducklake.files import plain, unchanged
from driftline.formats.ducklake.types import SYNONYMS, promotes, read_type, spark_name

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection
    from driftline.formats.ducklake.snapshot import LakeState

_NESTED = ("struct", "list", "map")
# What Parquet has, as type and annotation, in DuckLake's words.
_TYPES = {
    "BOOLEAN": "boolean",
    "INT32": "int32",
    "INT32 INT_8": "int8",
    "INT32 INT_16": "int16",
    "INT32 INT_32": "int32",
    "INT32 UINT_8": "uint8",
    "INT32 UINT_16": "uint16",
    "INT32 UINT_32": "uint32",
    "INT64": "int64",
    "INT64 INT_64": "int64",
    "INT64 UINT_64": "uint64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "INT32 DATE": "date",
    "INT64 TIMESTAMP_MILLIS": "timestamp_ms",
    "BYTE_ARRAY": "blob",
    "BYTE_ARRAY UTF8": "varchar",
    "BYTE_ARRAY JSON": "varchar",
}


def earlier_types(
    connection: Connection, state: LakeState, files: Mapping[int, tuple[str, int, int]]
) -> dict[int, frozenset[tuple[int, str]]]:
    """By file: the columns that it has in another type than the table has now, and in which.

    ``files``: path, size and first snapshot by id. Empty, and no file is opened, where Spark reads all that
    there can be. Raises DataError where a file is not as it was registered.
    """
    assert state.table is not None
    now = {row.id: _known(row.type) for row in state.columns if row.type.lower() not in _NESTED}
    spans: dict[int, list[tuple[int, int | None, str]]] = {}
    for column, begin, end, kind in connection.rows(
        "SELECT column_id, begin_snapshot, end_snapshot, column_type FROM meta.ducklake_column WHERE table_id = ?",
        [state.table.id],
    ):
        if int(column) in now:
            span = int(begin), None if end is None else int(end), _known(str(kind))
            spans.setdefault(int(column), []).append(span)
    changed = {
        i: spans[i] for i, kind in now.items() if any(_strange(old, kind) for _, _, old in spans.get(i, ()))
    }
    if not changed or not files:
        return {}
    unchanged({path: size for path, size, _ in files.values()}, f"table {state.table.id}")
    footers = _footers([path for path, _, _ in files.values()], changed)
    out = {}
    for id_, (path, _, begin) in files.items():
        types_of = footers.get(path, {})
        # Spark writes no ids for elements, keys and values: they have the type that the table had then.
        has = {i: types_of.get(i) or _at(span, begin) or now[i] for i, span in changed.items()}
        out[id_] = frozenset((i, kind) for i, kind in has.items() if kind != now[i] and _readable(kind))
    return out


def _strange(old: str, new: str) -> bool:
    """True if Spark does not read the old type as the new one by itself."""
    return old != new and not (promotes(old, new) and new != "uint64")


def _known(kind: str) -> str:
    return re.sub(r",\s*", ",", SYNONYMS.get(kind.lower(), kind.lower()))


def _at(spans: Collection[tuple[int, int | None, str]], snapshot: int) -> str | None:
    return next((k for begin, end, k in spans if begin <= snapshot and (end is None or snapshot < end)), None)


def _readable(kind: str) -> bool:
    try:
        spark_name(read_type(kind), "")
    except DataError:
        return False
    return True


def _footers(paths: list[str], columns: Collection[int]) -> dict[str, dict[int, str]]:
    out: dict[str, dict[int, str]] = {}
    with instance() as duckdb:
        rows = duckdb.execute(
            "SELECT file_name, field_id, type, converted_type, logical_type, precision, scale FROM parquet_schema(?) "
            "WHERE field_id IS NOT NULL",
            [[plain(path) for path in paths]],
        ).fetchall()
    for file, column, *kind in rows:
        type_ = _kind(*kind) if column in columns else None
        if type_ is not None:
            out.setdefault(file, {})[int(column)] = type_
    return out


def _kind(
    type_: str | None, converted: str | None, logical: Any, precision: int | None, scale: int | None
) -> str | None:
    """DuckLake's type of a column of Parquet's; None for one that has none here."""
    if converted == "DECIMAL":
        return f"decimal({precision},{scale})"
    if converted == "TIMESTAMP_MICROS":
        return "timestamptz" if re.search(r"isAdjustedToUTC=(1|true)", str(logical)) else "timestamp"
    return _TYPES.get(" ".join(filter(None, (type_, converted))))
