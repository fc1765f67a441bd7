"""`view`: a view of a table, or of several, with one column for each drifted field.

It is in Spark's SQL, or in DuckDB's where the catalog keeps such views.

Only the view is written. That of a table follows it if the table changes its name or its columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypedDict

from driftline.core.columns.siblings import DriftedColumns
from driftline.core.schema.naming import QUARANTINE, VIEW_SUFFIX, is_pattern
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Field, Path, dotted
from driftline.errors import DataError, DriftlineError, UsageError, no_table
from driftline.formats.lakes import Catalog, OwnView, OwnViews
from driftline.ingest.pattern import OTHER, Pattern
from driftline.ingest.route import named_values
from driftline.operations.alter import Altered, AlterRequest, alter
from driftline.operations.view_query import ShownTable, ViewQuery, ViewRequest
from driftline.runtime.shown import Shown
from driftline.runtime.spark_conf import PLAIN, configured
from driftline.sql.quoting import literal, name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.formats.base import CatalogTable

_OF, _TYPES = "driftline.view-of", "driftline.view-types"
_NO_VIEWS = ("not supported by catalog", "without view support", "ability.views", "does not support views")


class ViewFieldJson(TypedDict):
    """A field of the view, and the types of the columns that it is made of."""

    field: str
    type: str
    columns: dict[str, str]


class ViewJson(TypedDict):
    """A view of a table. ``new`` null: there was no view before. ``not_folded``: drifted fields that
    the view does not have as one column. ``tables``: those whose rows it shows.
    """

    table: str
    view: str
    made: bool
    why: str | None
    fields: list[ViewFieldJson]
    not_folded: list[str]
    new: list[str] | None
    statement: str
    tables: list[str]


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
    tables: tuple[str, ...] = ()

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
                    "columns": _types_of(f.columns),
                }
                for f in self.fields
            ],
            "not_folded": [dotted(path) for path in self.not_folded],
            "new": None if self.new is None else list(self.new),
            "statement": self.statement,
            "tables": list(self.tables),
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
    request = ViewRequest(view_name or table.name + VIEW_SUFFIX, table.name, types or {})
    return _made(catalog, request, [ShownTable.of(table, state)], make=make)


def view_of_tables(
    catalog: Catalog,
    view_name: str,
    pattern: str,
    *,
    types: Mapping[str, str] | None = None,
    make: bool = True,
) -> View:
    """Create, or recreate, a view of the rows of several tables, by the names of fields.

    Args:
        view_name: ``namespace.view``.
        pattern: of tables: with ``*`` for any text, or with braces.
        types: of fields, by path.
        make: False: only the statement is made.

    Raises:
        UsageError: No table has such a name, among others.
        DataError: The view cannot be created.
    """
    request = ViewRequest(view_name, pattern, types or {}, is_union=True)
    return _made(catalog, request, list(_tables_like(catalog, pattern)), make=make)


def _tables_like(catalog: Catalog, pattern: str) -> Sequence[ShownTable]:
    """The tables that a pattern names, by name. Raises UsageError if there is none."""
    made_by = Pattern.of(pattern) if is_pattern(pattern) else None
    names = [
        name
        for name in sorted(catalog.tables())
        if (made_by.in_namespace(name) if made_by else fnmatchcase(name, pattern))
        if not name.endswith(QUARANTINE)
    ]
    states = {name: state for name in names if (state := catalog.table(name).load()).exists}
    if made_by is not None:
        of_pattern = {name for name, state in states.items() if named_values(made_by, state.properties)}
        beside = {f"{name.rpartition('.')[0]}.{OTHER}" for name in of_pattern}
        states = {name: state for name, state in states.items() if name in of_pattern | beside}
    if not states:
        raise UsageError(f"no table's name is like {pattern}", "`driftline tables` lists the tables")
    return [ShownTable.of(catalog.table(name), state) for name, state in states.items()]


def _made(catalog: Catalog, request: ViewRequest, shown: Sequence[ShownTable], *, make: bool) -> View:
    """Create the view of these tables. Raises UsageError, DataError."""
    at, table = request.name, shown[0].table
    if at.count(".") != table.name.count("."):
        raise UsageError(f"{at!r} is not a view name", "use namespace.view, as in shop.orders_settled")
    query, views, full = ViewQuery.of(request, shown), catalog.own_views, catalog.sql_name(at)
    select = "\nunion all\n".join(
        f"{selected}\nfrom {catalog.sql_name(of_table)}" for of_table, selected in query.selects().items()
    )
    definition = OwnView(tuple(column for column, _ in query.columns), request.of, dict(request.types))
    selects = {} if views is None else query.selects(duckdb=True)
    statement = (
        _statement(full, definition, query, select)
        if views is None
        else views.statement(at, definition, selects)
    )
    tables = tuple(of_table.table.name for of_table in shown)
    view = View(
        request.of, at, query.fields, query.drifted, select, statement, in_catalog=False, tables=tables
    )
    if not make:
        return view
    if views is not None:
        return _create_own(catalog, views, view, definition, selects)
    if not catalog.has_views:
        return _not_made(view, "the catalog keeps no views")
    catalog.check_writable()
    for of_table in shown:
        of_table.table.read()  # raises where Spark cannot
    created = _create(table.spark, view, full)
    if created.in_catalog:
        catalog.sync_view(created.name)
    return created


def _create_own(
    catalog: Catalog, views: OwnViews, view: View, definition: OwnView, selects: Mapping[str, str]
) -> View:
    """Create a view in DuckDB's SQL."""
    catalog.check_writable()
    before = views.get(view.name)
    exists = before is not None or catalog.table(view.name).load().exists
    _check_ours(view, exists, None if before is None else before.of)
    views.create(view.name, definition, selects)
    new = None if before is None else tuple(c for c in definition.columns if c not in before.columns)
    return replace(view, in_catalog=True, new=new)


def _types_of(columns: Sequence[Field]) -> dict[str, str]:
    """The types of columns by name, which several tables may have."""
    types: dict[str, dict[str, None]] = {}
    for column in columns:
        types.setdefault(column.name, {})[type_name(column.type)] = None
    return {name: ", ".join(of_name) for name, of_name in types.items()}


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


def _statement(full: str, definition: OwnView, query: ViewQuery, select: str) -> str:
    """The statement that creates a view in Spark's SQL. ``full``: its name, quoted."""
    comments: dict[str | None, str] = {}  # of fields that are no fields of others
    for of_field in query.fields:
        if len(of_field.path) == 1:
            columns = ", ".join(dict.fromkeys(column.name for column in of_field.columns))
            comments[of_field.path[0]] = f" comment {literal(f'one of {columns}')}"
    properties = {_OF: str(definition.of), _TYPES: json.dumps(dict(definition.types))}
    listed = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
    named = ",\n  ".join(f"{name(column)}{comments.get(key, '')}" for column, key in query.columns)
    return (
        f"create or replace view {full} (\n  {named}\n)\n"
        f"comment {literal(f'{definition.of}, each field as one column')}\n"
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
