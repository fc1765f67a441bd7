"""Fills the columns of a struct from records: by each field's route its values go to every column that they
fit (seed rule 8, section 5 of the rules).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.defaults import default_of
from driftline.convert.rest import Collector
from driftline.convert.types import arrow_type, field_of, in_lists
from driftline.convert.values import Dims, Numbers, Records, Values
from driftline.core.planning.plan import ColumnRoute, FieldRoute, RecordRoute
from driftline.core.planning.shape import RECORD, MapOf
from driftline.core.schema.types import (
    LONG,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    Field,
    Map,
    Path,
    Primitive,
    Struct,
    Type,
    dotted,
    peel,
)

_MOMENTS = (TIMESTAMP, TIMESTAMP_NTZ)

LOST = "no column takes a value of the field"  # how the error begins, also where Spark tells of it


class Lost(Exception):
    """No column holds a value of a record: observing and converting disagree, and the batch must not be
    written.
    """

    def __init__(self, path: Path, value: object) -> None:
        super().__init__(f"{LOST} {dotted(path)}: {value!r}")
        self.path, self.value = path, value


def columns_of(
    struct: Struct, route: RecordRoute, records: Records, path: Path, collector: Collector | None
) -> list[pa.Array]:
    """Fill the fields of a struct, in their order, from records at ``path``.

    ``collector``: takes values that no column takes. Raises Lost for a value that neither takes.
    """
    by_name = {column.name: column for column in struct.fields}
    filled: dict[str, pa.Array] = {}
    for field in route.fields:
        # A column that cannot be written is known to the plan, which takes no
        # value there, and is not in the struct.
        column_routes = [column_route for column_route in field.columns if column_route.name in by_name]
        columns = [by_name[column_route.name] for column_route in column_routes]
        values = records.values(field) if columns or field.to_rest else None
        # Without one, a map beside a struct here or above has what no column takes.
        field_collector = None if collector is None or field.elsewhere else collector.field(field.key)
        if values is not None and not columns:
            assert field_collector is not None or field.elsewhere or path, (
                "what goes to the rest has a column for it"
            )
            if field_collector is not None:
                _aside(field_collector, values, None)
        elif values is not None:
            arrays = _fill(
                [c.type for c in columns], column_routes, field, values, (*path, field.key), field_collector
            )
            for column, array in zip(columns, arrays, strict=True):
                filled[column.name] = _or_default(array, column, values)
    return [
        filled[column.name] if column.name in filled else default_of(column, records.count)
        for column in struct.fields
    ]


def _or_default(filled: pa.Array, column: Field, values: Values) -> pa.Array:
    """The column's default where there is no value. An explicit null is no value, as everywhere."""
    if column.write_default is None:
        return filled
    missing = values.missing()
    return pc.if_else(missing, default_of(column, len(filled)), filled) if pc.any(missing).as_py() else filled


def _aside(collector: Collector, values: Values, stored: NDArray[np.bool_] | None) -> None:
    """Send values that no column holds to the rest; all values if ``stored`` is None."""
    for text in values.texts(stored, collector.contract):
        collector.add(text)


def _fill(
    types: Sequence[Type],
    column_routes: Sequence[ColumnRoute],
    field: FieldRoute,
    values: Values,
    path: Path,
    collector: Collector | None,
) -> list[pa.Array]:
    """Fill the columns of one field."""
    maps = {
        i: column_route for i, column_route in enumerate(column_routes) if isinstance(peel(types[i])[1], Map)
    }
    leaves = _maps({i: peel(types[i])[1] for i in maps}, maps, values, path, collector)
    variants: dict[int, pa.Array] = {}
    keeping: list[pa.Array] = []
    stored: list[NDArray[np.bool_]] = []
    for i, (type_, column_route) in enumerate(zip(types, column_routes, strict=True)):
        base = peel(type_)[1]
        if type_ == VARIANT:
            variants[i], valid = values.variants()
            stored.append(valid)
            continue
        if i not in leaves:
            leaves[i] = _leaves(base, column_route, values, path, collector)
        keeping.append(
            leaves[i]
            if base not in _MOMENTS
            else _leaves(base, _without_longs(column_route), values, path, None)
        )
    if len(keeping) != 1 or not values.are_all_in(keeping[0]):
        stored += [array.is_valid().to_numpy(zero_copy_only=False) for array in keeping]
        # A map may be planned for by its values alone, and have no column for its dimension.
        waits = bool(field.to_rest or maps)
        _account(values, reduce(np.logical_or, stored), path, collector if waits else None, field.elsewhere)
    return [
        variants[i] if i in variants else values.placed(leaves[i], in_lists(type_, leaves[i].type))
        for i, type_ in enumerate(types)
    ]


def _account(
    values: Values, stored: NDArray[np.bool_], path: Path, collector: Collector | None, elsewhere: bool
) -> None:
    """Send values that no column holds to the rest, if there is one.

    Raises Lost if they are not ``elsewhere`` either.
    """
    if collector is not None:
        _aside(collector, values, stored)
    elif (lost := values.lost(stored)) is not None and not elsewhere:
        raise Lost(path, lost)


def _leaves(
    base: Type, column_route: ColumnRoute, values: Values, path: Path, collector: Collector | None
) -> pa.Array:
    """The leaves of a field's values in a column of the type ``base``, its lists aside."""
    if isinstance(base, Primitive):
        return values.primitives(base, column_route)
    assert isinstance(base, Struct), base
    records, numbers = values.records(column_route)
    record_collector = (
        None if collector is None else collector.leaves(values).records(numbers, column_route.facet.dim)
    )
    fields_of_records = columns_of(
        base, column_route.record or RecordRoute(), records, path, record_collector
    )
    fields = [field_of(f, array.type) for f, array in zip(base.fields, fields_of_records, strict=True)]
    structs = pa.StructArray.from_arrays(fields_of_records, fields=fields, mask=records.nulls)
    return values.scattered(structs, numbers)


def _without_longs(column_route: ColumnRoute) -> ColumnRoute:
    """Remove longs from what a column takes: a number routed to a timestamp column is not kept by it (seed
    rule 10).
    """
    return replace(column_route, takes=tuple(f for f in column_route.takes if f.base != LONG))


def _maps(
    types: Mapping[int, Type],
    column_routes: Mapping[int, ColumnRoute],
    values: Values,
    path: Path,
    collector: Collector | None,
) -> dict[int, pa.Array]:
    """Fill the map columns of a field: each value of a map goes to every column that it fits, under
    its key.
    """
    out = {i: values.scattered(pa.nulls(0, arrow_type(types[i])), []) for i in column_routes}
    by_key: dict[Type, dict[int, FieldRoute]] = {}
    for i, column_route in column_routes.items():
        if column_route.value is not None:
            by_key.setdefault(types[i].key, {})[i] = column_route.value  # type: ignore[union-attr]
    for key, value_routes in by_key.items():
        parts: dict[int, list[tuple[pa.Array, Numbers]]] = {}
        for dims, places in _by_dimension({i: column_routes[i] for i in value_routes}):
            columns = tuple(value_routes[i].columns[0] for i in places)
            to_rest = frozenset().union(*(value_routes[i].to_rest for i in places))
            together = replace(value_routes[places[0]], columns=columns, to_rest=to_rest)
            maps = values.maps(together, key, dims)
            if maps is None:
                continue
            value_types = [types[i].value for i in places]  # type: ignore[union-attr]
            dim = max(column_routes[i].facet.dim for i in places)
            items_collector = None if collector is None else collector.leaves(values).maps(maps, dim)
            filled = _fill(value_types, columns, together, maps.values, (*path, "value"), items_collector)
            for i, items in zip(places, filled, strict=True):
                array = pa.MapArray.from_arrays(maps.offsets, maps.keys, items, type=arrow_type(types[i]))
                parts.setdefault(i, []).append((array, maps.numbers))
        for i, pieces in parts.items():
            numbers = np.concatenate([np.asarray(part, np.int64) for _, part in pieces])
            order = np.argsort(numbers)  # as leaves are numbered
            array = pa.concat_arrays([part for part, _ in pieces]).take(pa.array(order))
            out[i] = values.scattered(array, numbers[order])
    return out


def _by_dimension(column_routes: Mapping[int, ColumnRoute]) -> Iterable[tuple[Dims, Sequence[int]]]:
    """Group the columns that take maps of the same dimensions: only these may hold them.

    All take objects without values.
    """
    taken = {
        i: {f.dim for f in route.takes if f.base == RECORD or isinstance(f.base, MapOf)}
        for i, route in column_routes.items()
    }
    by_places: dict[Sequence[int], set[int | None]] = {tuple(taken): {None}}
    for dim in sorted(set().union(*taken.values())):
        by_places.setdefault(tuple(i for i, dims in taken.items() if dim in dims), set()).add(dim)
    return [(dims, places) for places, dims in by_places.items()]
