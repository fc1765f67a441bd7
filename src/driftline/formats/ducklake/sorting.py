"""A table's sort keys: expressions of DuckDB's, which name columns and so follow their renames."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from driftline.core.layout import IDENTITY, SortField
from driftline.core.types import Field, Schema
from driftline.errors import DataError
from driftline.formats.ducklake.engine import instance, quoted

_SELECT = "SELECT "


@dataclass(frozen=True, slots=True)
class SortKey:
    """A row of ``ducklake_sort_expression``."""

    expression: str
    descending: bool
    nulls_first: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the expression names, as it spells them; none where DuckDB cannot read it."""
        return tuple(names[-1] for names in _references(_parsed(self.expression)))

    @property
    def is_column(self) -> bool:
        """Whether it is a column and no more."""
        return [node.get("class") for node in _expressions(_parsed(self.expression))] == ["COLUMN_REF"]

    def renamed(self, names: Mapping[str, str]) -> SortKey:
        """The key after columns were renamed: ``names`` are the new ones by the old, in lower case."""
        if not any(column.lower() in names for column in self.columns):
            return self
        tree = _parsed(self.expression)
        for reference in _references(tree):
            reference[-1] = names.get(reference[-1].lower(), reference[-1])
        with instance() as duckdb:
            row = duckdb.execute(
                "SELECT json_deserialize_sql(CAST(? AS JSON))", [json.dumps(tree)]
            ).fetchone()
        assert row is not None
        return replace(self, expression=str(row[0]).removeprefix(_SELECT))

    def field(self, schema: Schema) -> SortField | None:
        """The key as a sort field; None where it is more than a column of the schema."""
        if not self.is_column:
            return None
        column = column_of(schema, self.columns[0])
        if column is None:
            return None
        return SortField(column.id, IDENTITY, self.descending, self.nulls_first)


def column_of(schema: Schema, name: str) -> Field | None:
    """The column that DuckDB takes the name for."""
    found = [f for f in schema.struct.fields if f.name.lower() == name.lower()]
    return next((f for f in found if f.name == name), found[0] if found else None)


def key_of(field: SortField, schema: Schema, table: str) -> SortKey:
    """A sort field as the catalog has it. Raises DataError where DuckLake does not sort by such."""
    column = top_column(schema, field.source, table)
    if field.transform != IDENTITY:
        raise DataError(
            f"{table}: a DuckLake table is sorted by columns, not by {field.transform}({column.name})"
        )
    return SortKey(quoted(column.name), field.descending, field.nulls_first)


def top_column(schema: Schema, column: int, table: str) -> Field:
    """The column of this id. Raises DataError where it is a nested one, by which DuckLake lays out nothing."""
    for path, field in schema.walk():
        if field.id == column:
            if len(path) > 1:
                raise DataError(
                    f"{table}: DuckLake does not partition or sort by {'.'.join(path)}, which is nested"
                )
            return field
    raise DataError(
        f"{table} is partitioned or sorted by a column that is gone",
        f"ALTER TABLE {table} RESET PARTITIONED BY; ALTER TABLE {table} RESET SORTED BY",
    )


def _parsed(expression: str) -> Any:
    with instance() as duckdb:
        row = duckdb.execute("SELECT json_serialize_sql(?)", [_SELECT + expression]).fetchone()
    assert row is not None
    return json.loads(row[0])


def _expressions(tree: Any) -> list[Any]:
    statements = tree.get("statements") or [{}]
    found: list[Any] = statements[0].get("node", {}).get("select_list", [])
    return found


def _references(tree: Any) -> Iterator[list[str]]:
    """The names of each reference to a column, which may be changed in place."""
    if isinstance(tree, list):
        for item in tree:
            yield from _references(item)
    elif isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield tree["column_names"]
        for value in tree.values():
            yield from _references(value)
