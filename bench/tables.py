"""Reads the tables of all contestants as Arrow, by libraries that are not the product's, for the check."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from contestants import Table

Names = tuple[str, ...]
"""Names from the outermost struct to the innermost. Lists and maps have none of their own."""

MARK = "upsolver_evolved_from:"
_DLT_VARIANT = re.compile(r"__v_[a-z]+$")
_BATCH = 100_000  # rows


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of the same columns. ``key`` tells which field of the data a column holds, None if it holds none."""

    batches: Iterable[pa.RecordBatch]
    key: Callable[[Names], Names | None]


def parts(table: Table) -> Iterator[Part]:
    """The table, and those of its children if it has any."""
    if table.naming == "dlt":
        yield from _dlt(table)
    elif table.reader == "iceberg":
        yield _iceberg(Path(table.location), table.naming)
    elif table.reader == "parquet":
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET arrow_lossless_conversion = true")
            # Each file by its own types: the union of a column of texts and one of JSON has no rows.
            for file in sorted(glob(table.location)):
                place = file.replace("'", "''")
                yield Part(_rows(connection, f"read_parquet('{place}')"), lambda names: names)
    else:
        with _attached(table) as connection:
            comments = _ducklake_comments(connection, table) if table.naming == "driftline" else {}
            yield Part(_rows(connection, f"lk.{table.name}"), _by_comment(comments))


def data_key(table: Table) -> Callable[[Names], Names]:
    """The name of a field of the data in comparisons with the table's columns."""
    if table.naming != "dlt":
        return lambda names: names
    from dlt.common.normalizers.naming.snake_case import NamingConvention

    naming = NamingConvention()
    return lambda names: _dlt_name([naming.normalize_identifier(name) for name in names])


def extension(name: str) -> str:
    """The file of one of DuckDB's extensions, out of its wheel."""
    found = find_spec(f"duckdb_extension_{name}")
    assert found is not None
    folder = Path(next(iter(found.submodule_search_locations or [])))
    return str(folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension")


def _by_comment(comments: dict[Names, str | None]) -> Callable[[Names], Names]:
    """Each name of a column's path replaced by the key of its mark, if its comment has one."""

    def key(names: Names) -> Names:
        return tuple(_marked(comments.get(names[: i + 1]) or "") or name for i, name in enumerate(names))

    return key


def _marked(comment: str) -> str | None:
    first = comment.split("\n", 1)[0]
    if not first.startswith(MARK):
        return None
    key = first.removeprefix(MARK)
    return str(json.loads(key)) if key.startswith('"') else key


def _iceberg(folder: Path, naming: str) -> Part:
    from pyiceberg.table import StaticTable

    newest = max(
        (folder / "metadata").glob("*.metadata.json"), key=lambda file: int(re.sub(r"\D.*", "", file.name))
    )
    table = StaticTable.from_metadata(str(newest))
    comments = dict(_iceberg_comments(table.schema().as_struct(), ())) if naming == "driftline" else {}
    return Part(table.scan().to_arrow_batch_reader(), _by_comment(comments))


def _iceberg_comments(kind: Any, names: Names) -> Iterator[tuple[Names, str | None]]:
    from pyiceberg.types import ListType, MapType, StructType

    match kind:
        case StructType():
            for field in kind.fields:
                yield (*names, field.name), field.doc
                yield from _iceberg_comments(field.field_type, (*names, field.name))
        case ListType():
            yield from _iceberg_comments(kind.element_type, names)
        case MapType():
            yield from _iceberg_comments(kind.value_type, names)


def _attached(table: Table) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET arrow_lossless_conversion = true")  # columns of type JSON arrive as such
    if table.reader == "ducklake":
        connection.execute(f"LOAD '{extension('ducklake')}'")
    prefix = "ducklake:" if table.reader == "ducklake" else ""
    connection.execute(f"ATTACH '{prefix}{table.location}' AS lk (READ_ONLY)")
    return connection


def _rows(connection: duckdb.DuckDBPyConnection, name: str) -> pa.RecordBatchReader:
    return connection.sql(f"SELECT * FROM {name}").to_arrow_reader(_BATCH)


def _ducklake_comments(connection: duckdb.DuckDBPyConnection, table: Table) -> dict[Names, str | None]:
    """DuckLake keeps comments of nested columns too, in the catalog's tables."""
    meta = "__ducklake_metadata_lk"
    schema, name = table.name.split(".")
    rows = connection.execute(
        f"SELECT c.column_id, c.parent_column, c.column_name, g.value FROM {meta}.ducklake_column c "
        f"JOIN {meta}.ducklake_table t ON t.table_id = c.table_id AND t.end_snapshot IS NULL "
        f"JOIN {meta}.ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL "
        f"LEFT JOIN {meta}.ducklake_column_tag g ON g.table_id = c.table_id AND g.column_id = c.column_id "
        "AND g.key = 'comment' AND g.end_snapshot IS NULL "
        "WHERE c.end_snapshot IS NULL AND t.table_name = ? AND s.schema_name = ?",
        [name, schema],
    ).fetchall()
    kinds = {id_: (parent, column) for id_, parent, column, _ in rows}
    types = dict(
        connection.execute(
            f"SELECT column_id, column_type FROM {meta}.ducklake_column WHERE end_snapshot IS NULL"
        ).fetchall()
    )

    def names(id_: int) -> Names:
        parent, column = kinds[id_]
        above = names(parent) if parent in kinds else ()
        return above if parent in kinds and types[parent] in ("list", "map") else (*above, column)

    return {names(id_): comment for id_, _, _, comment in rows if comment}


def _dlt(table: Table) -> Iterator[Part]:
    """A table and a child table for each list: `table__list`, whose column `value` holds elements that are no objects."""
    if table.reader == "iceberg":
        folder = Path(table.location)
        for child in sorted(folder.parent.glob(f"{folder.name}*")):
            if child.name == folder.name or child.name.startswith(f"{folder.name}__"):
                yield Part(_iceberg(child, "own").batches, _dlt_key(child.name, folder.name))
        return
    schema, _, root = table.name.rpartition(".")
    with _attached(table) as connection:
        found = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'lk' AND schema_name = ?", [schema]
        ).fetchall()
        for (name,) in sorted(found):
            if name == root or name.startswith(f"{root}__"):
                yield Part(_rows(connection, f'lk.{schema}."{name}"'), _dlt_key(name, root))


def _dlt_key(name: str, root: str) -> Callable[[Names], Names | None]:
    from dlt.common.normalizers.naming.snake_case import NamingConvention

    naming = NamingConvention()
    above = re.sub(r"(__list)+$", "", name[len(root) :].removeprefix("__"))

    def key(names: Names) -> Names | None:
        column = _DLT_VARIANT.sub("", names[0])
        if column.startswith("_dlt_"):
            return None
        inside = map(naming.normalize_identifier, names[1:])  # of JSON text
        return _dlt_name([*([above] if above else []), column, *inside])

    return key


def _dlt_name(names: list[str]) -> Names:
    """`value` is a column of elements as well as a field of that name, so that neither is told from the other."""
    return ("__".join(names).removesuffix("__value"),)
