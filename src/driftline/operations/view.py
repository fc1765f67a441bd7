"""`view`: a view of the table with one column for each drifted field, in Spark's SQL or in DuckDB's.

Only the view is written. It follows the table if that changes its name or its columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from driftline.core.columns.siblings import DriftedColumns, FieldMerger, MergedField, drifted_fields
from driftline.core.schema.naming import VIEW_SUFFIX
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import Path, Schema, Type, dotted
from driftline.core.settings.fields import parse_path
from driftline.core.settings.properties import from_properties
from driftline.errors import DataError, DriftlineError, UsageError, no_table
from driftline.formats.lakes import OwnView, OwnViews
from driftline.operations.alter import Altered, AlterRequest, alter
from driftline.runtime.shown import Shown
from driftline.runtime.spark_conf import PLAIN, configured
from driftline.sql.fold import Fold
from driftline.sql.quoting import literal, name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.formats.base import CatalogTable
    from driftline.formats.lakes import Catalog

_OF, _TYPES = "driftline.view-of", "driftline.view-types"
_NO_VIEWS = ("not supported by catalog", "without view support", "ability.views", "does not support views")


class ViewFieldJson(TypedDict):
    """A field of the view, and the types of the columns that it is made of."""

    field: str
    type: str
    columns: dict[str, str]


class ViewJson(TypedDict):
    """A view of a table. ``new`` null: there was no view before. ``not_folded``: drifted fields that
    the view does not have as one column.
    """

    table: str
    view: str
    made: bool
    why: str | None
    fields: list[ViewFieldJson]
    not_folded: list[str]
    new: list[str] | None
    statement: str


@dataclass(frozen=True, slots=True, repr=False)
class View(Shown):
    """A view of a table. ``statement`` creates it; ``select`` is its query.

    If it is not ``in_catalog`` though requested, ``why`` is the reason. ``new``: columns that the previous
    view lacked, None if there was none. ``drifted``: the table's drifted fields, by keys of the data.
    """

    table: str
    name: str
    fields: tuple[DriftedColumns, ...]
    drifted: tuple[Path, ...]
    select: str
    statement: str
    in_catalog: bool
    why: str = ""
    new: tuple[str, ...] | None = None

    @property
    def not_folded(self) -> tuple[Path, ...]:
        """The drifted fields that are not folded: objects that are text there, and words next to a map."""
        folded = {f.path for f in self.fields}
        return tuple(path for path in self.drifted if path not in folded)

    def to_dict(self) -> ViewJson:
        """The form that `--json` prints."""
        return {
            "table": self.table,
            "view": self.name,
            "made": self.in_catalog,
            "why": self.why or None,
            "fields": [
                {
                    "field": dotted(f.path),
                    "type": type_name(f.type),
                    "columns": {c.name: type_name(c.type) for c in f.columns},
                }
                for f in self.fields
            ],
            "not_folded": [dotted(path) for path in self.not_folded],
            "new": None if self.new is None else list(self.new),
            "statement": self.statement,
        }


def view(
    catalog: Catalog,
    table: CatalogTable,
    *,
    view_name: str | None = None,
    types: Mapping[str, str] | None = None,
    make: bool = True,
) -> View:
    """Create, or recreate, the view of a table.

    ``view_name``: by default the table's name with `VIEW_SUFFIX`; ``types``: of fields, by path; ``make``
    False: only the statement is made. Raises UsageError, DataError.
    """
    state = table.load()
    if not state.exists:
        raise no_table(table.name)
    settings = from_properties(state.properties)
    settling = FieldMerger(settings.mark, settings.fields, wanted_types(types or {}))
    merged = settling.record([state.schema.struct])
    for path in settling.requested_types.keys() - settling.met:
        raise UsageError(f"{table.name} has no field {dotted(path)}", f"see driftline schema {table.name}")
    at = view_name or table.name + VIEW_SUFFIX
    if at.count(".") != table.name.count("."):
        raise UsageError(f"{at!r} is not a view name", "use namespace.view, as in shop.orders_settled")
    fold, views = Fold(settings.mark, near=True), catalog.own_views
    select = f"{select_list(fold, state.schema, merged)}\nfrom {catalog.sql_name(table.name)}"
    fields, full = tuple(settling.drifted), catalog.sql_name(at)
    if views is None:
        properties = {_OF: table.name, _TYPES: json.dumps(dict(types or {}))}
        statement = _statement(full, properties, merged, fields, select)
    else:
        names = tuple(m.name for m in merged.fields or ())
        definition = OwnView(names, table.name, dict(types or {}))
        selected = select_list(replace(fold, duckdb=True), state.schema, merged)
        statement = views.statement(at, definition, selected)
    drifted = tuple(dict.fromkeys(place.keys for place in drifted_fields(state.schema, settings.mark)))
    view = View(table.name, at, fields, drifted, select, statement, in_catalog=False)
    if not make:
        return view
    if views is not None:
        return _create_own(catalog, views, view, definition, selected)
    if not catalog.has_views:
        return _not_made(view, "the catalog keeps no views")
    catalog.check_writable()
    table.read()  # raises where Spark cannot
    created = _create(table.spark, view, full)
    if created.in_catalog:
        catalog.sync_view(created.name)
    return created


def _create_own(catalog: Catalog, views: OwnViews, view: View, definition: OwnView, selected: str) -> View:
    """Create a view in DuckDB's SQL."""
    catalog.check_writable()
    before = views.get(view.name)
    exists = before is not None or catalog.table(view.name).load().exists
    _check_ours(view, exists, None if before is None else before.of)
    views.create(view.name, definition, selected)
    new = None if before is None else tuple(c for c in definition.columns if c not in before.columns)
    return replace(view, in_catalog=True, new=new)


def wanted_types(types: Mapping[str, str]) -> dict[Path, Type]:
    """Types of fields as a person writes them. Raises UsageError."""
    try:
        return {parse_path(path): parse_type(text) for path, text in types.items()}
    except ValueError as error:
        raise UsageError(str(error)) from error


def select_list(fold: Fold, schema: Schema, merged: MergedField) -> str:
    assert merged.fields is not None
    columns = fold.struct([(schema.struct, "")], merged)
    listed = [
        sql if sql == name(m.name) else f"{sql} as {name(m.name)}"
        for sql, m in zip(columns, merged.fields, strict=True)
    ]
    return "select\n  " + ",\n  ".join(listed)


def remade(catalog: Catalog, table: CatalogTable) -> View | None:
    """Recreate the table's view with its settings, if one of the usual name exists.

    Raises UsageError, DataError.
    """
    types = _types_of_view(catalog, table)
    return None if types is None else view(catalog, table, types=types)


def moved(catalog: Catalog, before: CatalogTable, table: CatalogTable) -> View | None:
    """Move the view of a renamed table to the new name, if one of the usual name exists.

    Raises UsageError, DataError.
    """
    types = _types_of_view(catalog, before)
    if types is None:
        return None
    moved_view = view(catalog, table, types=types)
    drop_view(catalog, before)
    return moved_view


def drop_view(catalog: Catalog, table: CatalogTable) -> None:
    """Drop the table's view of the usual name."""
    name = table.name + VIEW_SUFFIX
    if catalog.own_views is not None:
        catalog.own_views.drop(name)
        return
    table.spark.sql(f"drop view {catalog.sql_name(name)}")
    catalog.sync_view(name)


def has_view(catalog: Catalog, table: CatalogTable) -> bool:
    """True if the table has a view of the usual name that driftline made."""
    return _types_of_view(catalog, table) is not None


def _types_of_view(catalog: Catalog, table: CatalogTable) -> dict[str, str] | None:
    """The types that the table's view was created with; None if there is none of the usual name."""
    if catalog.own_views is not None:
        existing = catalog.own_views.get(table.name + VIEW_SUFFIX)
        return dict(existing.types) if existing is not None and existing.of == table.name else None
    if not catalog.has_views:
        return None
    with configured(table.spark, PLAIN):
        properties = _properties(table.spark, catalog.sql_name(table.name + VIEW_SUFFIX))
    if properties.get(_OF) != table.name:
        return None
    types: dict[str, str] = json.loads(properties.get(_TYPES, "{}"))
    return types


def _statement(
    full: str,
    properties: Mapping[str, str],
    merged: MergedField,
    fields: tuple[DriftedColumns, ...],
    select: str,
) -> str:
    columns_of = {f.path[0]: ", ".join(c.name for c in f.columns) for f in fields if len(f.path) == 1}
    comments = {
        m.key: f" comment {literal(f'one of {columns_of[m.key]}')}"
        for m in merged.fields or ()
        if m.key in columns_of
    }
    listed = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
    columns = ",\n  ".join(f"{name(m.name)}{comments.get(m.key, '')}" for m in merged.fields or ())
    return (
        f"create or replace view {full} (\n  {columns}\n)\n"
        f"comment {literal(f'{properties[_OF]}, each field as one column')}\n"
        f"tblproperties ({listed})\nas {select}"
    )


def _create(spark: SparkSession, view: View, full: str) -> View:
    from pyspark.errors import PySparkException

    with configured(spark, PLAIN):
        before = _columns_before(spark, view, full)
        try:
            spark.sql(view.statement)
        except PySparkException as error:
            text = str(error)
            if any(sign in text.lower() for sign in _NO_VIEWS):
                return _not_made(view, "this catalog keeps no views")
            if "ALREADY_EXISTS" in text:
                raise DataError(
                    f"there is a table {view.name} already", "name the view otherwise: --name NAME"
                ) from error
            raise DataError(f"view {view.name} cannot be created: {text.splitlines()[0]}") from error
        now = spark.table(full).columns
    new = None if before is None else tuple(c for c in now if c not in before)
    return replace(view, in_catalog=True, new=new)


def _columns_before(spark: SparkSession, view: View, full: str) -> list[str] | None:
    """The columns of the existing view. Raises DataError for somebody else's view."""
    from pyspark.errors import PySparkException

    try:
        columns = [row.col_name for row in spark.sql(f"describe {full}").collect()]
    except PySparkException:  # there is no such view
        return None
    _check_ours(view, True, _properties(spark, full).get(_OF))
    return columns


def _check_ours(view: View, exists: bool, table: str | None) -> None:
    """Raise DataError for somebody else's view. ``table``: of which driftline made the existing one."""
    if exists and table != view.table:
        whose = "not a view that driftline made" if table is None else f"a view of {table}"
        raise DataError(f"{view.name} already exists, and {whose}", "pass another name: --name NAME")


def _properties(spark: SparkSession, full: str) -> dict[str, str]:
    """The properties of a view; empty if there is none."""
    from pyspark.errors import PySparkException

    try:
        return {row.key: row.value for row in spark.sql(f"show tblproperties {full}").collect()}
    except PySparkException:
        return {}


def _not_made(view: View, why: str) -> View:
    return replace(view, why=why)


def altered(
    lake: Catalog, catalog: str, table: CatalogTable, request: AlterRequest, *, upgrade: bool
) -> Altered:
    """Alter a table of the lake; its view follows if the table gets another name.

    ``catalog``: the name that statements may give the lake.
    """
    result = alter(table, request, catalog=catalog, upgrade=upgrade)
    if result.table == table.name:
        return result
    try:
        view = moved(lake, table, lake.table(result.table))
    except DriftlineError as error:
        return replace(result, notes=(*result.notes, f"its view is to be made again: {error.message}"))
    return replace(result, notes=(*result.notes, f"its view is {view.name} now")) if view else result


def view_note(lake: Catalog, table: CatalogTable) -> tuple[str, ...]:
    """Make the table's view follow it, if there is one; returns a note on that."""
    try:
        view = remade(lake, table)
    except DriftlineError as error:
        return (f"the view of {table.name} is to be made again: {error.message}",)
    return (f"view {view.name} was made again",) if view else ()
