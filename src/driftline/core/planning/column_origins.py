"""The origin of each column: which field's values it has, according to a plan's routes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from driftline.core.planning.own_columns import rest_column
from driftline.core.planning.plan import ColumnRoute, FieldRoute, RecordRoute
from driftline.core.planning.shape import Facet
from driftline.core.schema.types import Map, Path, Schema


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """The leaf column at ``column`` has the values of these types from the field at ``path``. ``exact``: they
    have its own type, so nothing is converted.
    """

    column: Path
    path: Path
    types: tuple[Facet, ...]
    exact: bool


def origins(route: RecordRoute, schema: Schema) -> Iterator[ColumnOrigin]:
    """The origins of all columns of ``schema`` that the route fills.

    Paths go through lists by ``element``, through maps by ``key`` and ``value``. The keys of objects that are
    maps have no path of their own: they come from the object's.
    """
    yield from _of_record(route, (), ())
    column = rest_column(schema.struct)
    if column is not None:
        for field in route.fields:
            for path in field.rest_paths((field.key,)):
                yield ColumnOrigin((column.name, "value"), path, (), exact=False)


def _of_record(route: RecordRoute, column: Path, path: Path) -> Iterator[ColumnOrigin]:
    for field in route.fields:
        yield from _of_field(field, column, (*path, field.key))


def _of_field(field: FieldRoute, column: Path, path: Path) -> Iterator[ColumnOrigin]:
    for route in field.columns:
        if route.takes:
            yield from _of_column(route, (*column, route.name), path)


def _of_column(column: ColumnRoute, schema_path: Path, path: Path) -> Iterator[ColumnOrigin]:
    inside, data_path = (
        (*schema_path, *("element",) * column.facet.dim),
        (*path, *("element",) * column.facet.dim),
    )
    exact = column.takes == (column.facet,) and column.unit is None
    if column.value is not None:
        yield ColumnOrigin((*inside, "key"), data_path, column.takes, exact)
        yield from _of_field(column.value, inside, (*data_path, "value"))
    elif column.record is not None:
        yield from _of_record(column.record, inside, data_path)
    elif not isinstance(column.type, Map):
        yield ColumnOrigin(inside, path, column.takes, exact)
