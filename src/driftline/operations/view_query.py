"""The query of a view of tables: each of their fields as one column, by the fields' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.core.columns.siblings import DriftedColumns, FieldMerger, MergedField, drifted_fields
from driftline.core.schema.naming import Names, caseless
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import Path, Schema, Type, dotted
from driftline.core.settings.fields import parse_path
from driftline.core.settings.properties import from_properties
from driftline.errors import UsageError
from driftline.sql.fold import Fold
from driftline.sql.quoting import literal, name, null

if TYPE_CHECKING:
    from driftline.core.settings.table import TableSettings
    from driftline.formats.base import CatalogTable, State

TABLE_COLUMN = "_table"  # of a view of several tables: the name of that with the row


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """The view that a person wants.

    Attributes:
        of: the table, or a pattern of tables.
        types: of fields, by path.
        is_union: of several tables, with a column of their names.
    """

    name: str
    of: str
    types: Mapping[str, str]
    is_union: bool = False


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table whose rows a view shows."""

    table: CatalogTable
    schema: Schema
    settings: TableSettings

    @classmethod
    def of(cls, table: CatalogTable, state: State) -> ShownTable:
        """A table that exists."""
        return cls(table, state.schema, from_properties(state.properties))


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """The query of a view.

    Attributes:
        merged: the fields of all tables, each as one column, by the settings of each table.
        column: that of the tables' names, if there is one.
        fields: those that have columns of several types.
    """

    shown: Sequence[ShownTable]
    merged: Sequence[MergedField]
    column: str | None
    fields: tuple[DriftedColumns, ...]

    @classmethod
    def of(cls, request: ViewRequest, shown: Sequence[ShownTable]) -> ViewQuery:
        """The query that shows these tables as requested. Raises UsageError."""
        structs, types = [of_table.schema.struct for of_table in shown], wanted_types(request.types)
        first, merged = shown[0], list[MergedField]()
        fields: tuple[DriftedColumns, ...] = ()
        for of_table in shown:
            # Tables of a pattern mostly have the same settings, and to merge many wide ones takes time.
            if merged and of_table.settings.fields == first.settings.fields:
                merged.append(merged[0])
            else:
                merger = FieldMerger(of_table.settings.mark, of_table.settings.fields, types)
                merged.append(merger.record(structs))
                fields = fields or tuple(merger.drifted)
                for path in types.keys() - merger.met:
                    raise UsageError(
                        f"{request.of} has no field {dotted(path)}",
                        f"see driftline schema {first.table.name}",
                    )
            if of_table.settings.mark != first.settings.mark or merged[-1].type != merged[0].type:
                raise UsageError(
                    f"{of_table.table.name} has other settings than {first.table.name}, by which its columns are of other fields",
                    "name tables that have the same mark, and the same settings of paths",
                )
        names = Names({caseless(member.name) for member in merged[0].fields or ()})
        return cls(shown, merged, names.take(TABLE_COLUMN) if request.is_union else None, fields)

    @property
    def columns(self) -> list[tuple[str, str | None]]:
        """The columns, each with the key of its field, if it is one."""
        of_fields = [(member.name, member.key) for member in self.merged[0].fields or ()]
        return [*([] if self.column is None else [(self.column, None)]), *of_fields]

    @property
    def drifted(self) -> tuple[Path, ...]:
        """The drifted fields of tables, and those whose columns are of several types in them."""
        places = (
            place.keys
            for of_table in self.shown
            for place in drifted_fields(of_table.schema, of_table.settings.mark)
        )
        return tuple(dict.fromkeys([*places, *(of_field.path for of_field in self.fields)]))

    def selects(self, *, duckdb: bool = False) -> dict[str, str]:
        """The query of each table, in Spark's SQL. ``duckdb``: to be translated for DuckDB."""
        selects: dict[str, str] = {}
        for of_table, merged in zip(self.shown, self.merged, strict=True):
            fold, table = Fold(of_table.settings.mark, near=True, duckdb=duckdb), of_table.table.name
            before = [] if self.column is None else [f"{literal(table)} as {name(self.column)}"]
            selects[table] = select_list(fold, of_table.schema, merged, before, follows=bool(selects))
        return selects


def wanted_types(types: Mapping[str, str]) -> dict[Path, Type]:
    """Types of fields as a person writes them. Raises UsageError."""
    try:
        return {parse_path(path): parse_type(text) for path, text in types.items()}
    except ValueError as error:
        raise UsageError(str(error)) from error


def select_list(
    fold: Fold, schema: Schema, merged: MergedField, before: Sequence[str] = (), *, follows: bool = False
) -> str:
    """A table's fields, each as one column, behind the columns ``before``.

    ``follows``: the query is united with one before it, whose columns have the types.
    """
    assert merged.fields is not None
    listed = []
    for sql, member in zip(fold.struct([(schema.struct, "")], merged), merged.fields, strict=True):
        # The types of a wide table's fields are most of the text that each query on the view has to parse.
        column = "null" if follows and sql == null(member.field.type) else sql
        listed.append(column if column == name(member.name) else f"{column} as {name(member.name)}")
    return "select\n  " + ",\n  ".join([*before, *listed])
