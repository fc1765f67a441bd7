"""Converts records to table rows by a plan's routes, in Arrow (seed rule 8, section 5 of the rules).

A value goes to every column whose type it fits, at the column's dimension or a larger one. What a record
brings must end up in some column, or the batch fails.
"""

from __future__ import annotations

import pickle
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from functools import cached_property, reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.arrow_values import ArrowRecords
from driftline.convert.json_values import JsonRecords
from driftline.convert.leaves import Dims, Numbers, Records, Values, overlaid
from driftline.convert.rest import Collector
from driftline.convert.types import DEEPEST, arrow_schema, arrow_type, field_of, in_lists
from driftline.core.changes.defaults import literal_of, no_value
from driftline.core.planning.own_columns import rest_column
from driftline.core.planning.plan import ColumnRoute, FieldRoute, RecordRoute
from driftline.core.planning.shape import RECORD, Facet, MapOf
from driftline.core.schema.types import (
    JSON,
    LONG,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    Default,
    Expression,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    dotted,
    peel,
)
from driftline.core.settings.fields import FieldSettings, excluded_paths
from driftline.core.settings.table import TableSettings
from driftline.core.support import gc_paused, pickled
from driftline.errors import DataError

# What is another value for each row, by the expression of the default.
_EACH_ROW: dict[str, Callable[[], Any]] = {"uuid()": uuid.uuid4, "rand()": random.random}


def without_defaults(struct: Struct) -> Struct:
    """Remove the write defaults of rewritten rows: an existing null stays null, at any depth.

    >>> from driftline.core.schema.types import LONG
    >>> without_defaults(Struct((Field("a", LONG, write_default=7),))).fields[0].write_default
    """
    return Struct(tuple(replace(f, write_default=None, type=_inside(f.type)) for f in struct.fields))


def _inside(type_: Type) -> Type:
    match type_:
        case Struct():
            return without_defaults(type_)
        case List(element):
            return replace(type_, element=_inside(element))
        case Map(value=value):
            return replace(type_, value=_inside(value))
        case _:
            return type_


def default_of(column: Field, count: int) -> pa.Array:
    """Repeat ``count`` times the value of a record that lacks the column: its write default, or null.

    Raises DataError if the default is an expression that has no value here.
    """
    type_, default = arrow_type(column.type), column.write_default
    if default is None or not count:
        return pa.nulls(count, type_)
    if not isinstance(default, Expression):
        return pa.repeat(pa.scalar(_value(column.type, default), type_), count)
    # Another expression is computed once for the batch, before its tasks; here it can only be missing.
    if default.sql not in _EACH_ROW:
        raise DataError(no_value(column))
    values = (_EACH_ROW[default.sql]() for _ in range(count))
    return pa.array([v if isinstance(v, float) else _of_uuid(v, type_) for v in values], type_)


def _of_uuid(value: uuid.UUID, type_: pa.DataType) -> bytes | str:
    return str(value) if pa.types.is_string(type_) else value.bytes


def initial_default(column: Field) -> pa.Scalar | None:
    """Return the value that rows older than the column read as; None for null."""
    if column.initial_default is None or isinstance(column.initial_default, Expression):
        return None
    return pa.scalar(_value(column.type, column.initial_default), arrow_type(column.type))


def _value(type_: Type, default: Default) -> Any:
    value: Any = literal_of(type_, default)
    assert isinstance(type_, Primitive)
    match type_.name:
        case "date":
            return date.fromisoformat(value)
        case "timestamp" | "timestamp_ntz" | "timestamp_s" | "timestamp_ms":
            return datetime.fromisoformat(value)
        case "time":
            return time.fromisoformat(value)
        case "uuid" | "duckdb_uuid":
            return uuid.UUID(value).bytes
        case _:
            return str(value) if pa.types.is_string(arrow_type(type_)) else value


_MOMENTS = (TIMESTAMP, TIMESTAMP_NTZ)

# How the error begins, also where Spark tells of it
LOST = "no column takes a value of the field"


class Lost(Exception):
    """No column holds a value of a record: observing and converting disagree, and the batch must fail."""

    def __init__(self, path: Path, value: object) -> None:
        super().__init__(f"{LOST} {dotted(path)}: {value!r}")
        self.path, self.value = path, value


def columns_of(
    struct: Struct, route: RecordRoute, records: Records, path: Path, collector: Collector | None
) -> list[pa.Array]:
    """Fill the fields of a struct, in order, from records at ``path``.

    Args:
        struct: the struct.
        route: the route that fills it.
        records: the records.
        path: the path of the records.
        collector: takes values that no column takes.

    Raises:
        Lost: neither a column nor the collector takes a value.
    """
    by_name = {column.name: column for column in struct.fields}
    filled: dict[str, pa.Array] = {}
    for field in route.fields:
        # A column that cannot be written is known to the plan, which takes no
        # value there, and is not in the struct.
        column_routes = [column_route for column_route in field.columns if column_route.name in by_name]
        columns = [by_name[column_route.name] for column_route in column_routes]
        values = records.values(field) if columns or field.to_rest else None
        # Without one, a map next to a struct here or above has what no column takes.
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
    """Fill in the column's default for absent values. An explicit null counts as absent, as everywhere."""
    if column.write_default is None:
        return filled
    missing = values.missing()
    return pc.if_else(missing, default_of(column, len(filled)), filled) if pc.any(missing).as_py() else filled


def _aside(collector: Collector, values: Values, stored: NDArray[np.bool_] | None) -> None:
    """Send values that no column holds to the rest; all values if ``stored`` is None."""
    for text in values.texts(stored, collector.field_settings):
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
    # All map columns of the field together: an entry is lost only if none of them takes it.
    leaves = _maps({i: peel(types[i])[1] for i in maps}, maps, values, path, collector)
    held_whole: dict[int, pa.Array] = {}
    keeping: list[pa.Array] = []
    stored: list[NDArray[np.bool_]] = []
    for i, (type_, column_route) in enumerate(zip(types, column_routes, strict=True)):
        base = peel(type_)[1]
        if isinstance(type_, Primitive) and type_ in (VARIANT, JSON):
            held_whole[i], valid = values.whole(type_)
            stored.append(valid)
            continue
        if i not in leaves:
            leaves[i] = _leaves(base, column_route, values, path, collector)
        # A timestamp made from a number does not count as stored: only the number itself proves that nothing
        # is lost (`_without_longs`).
        keeping.append(
            leaves[i]
            if base not in _MOMENTS
            else _leaves(base, _without_longs(column_route), values, path, None)
        )
    # With one column the count of nulls decides; flags of each leaf are made only where they are needed.
    if len(keeping) != 1 or not values.are_all_in(keeping[0]):
        stored += [array.is_valid().to_numpy(zero_copy_only=False) for array in keeping]
        # A map may be planned for by its values alone, and have no column for its dimension.
        waits = bool(field.to_rest or maps)
        _account(values, reduce(np.logical_or, stored), path, collector if waits else None, field.elsewhere)
    return [
        held_whole[i] if i in held_whole else values.placed(leaves[i], in_lists(type_, leaves[i].type))
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
    # Observing has planned a column for each value, so this never happens unless both disagree.
    elif (lost := values.lost(stored)) is not None and not elsewhere:
        raise Lost(path, lost)


def _leaves(
    base: Type, column_route: ColumnRoute, values: Values, path: Path, collector: Collector | None
) -> pa.Array:
    """Convert the leaves of a field's values to the type ``base`` of a column."""
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
    """Remove longs from the types that a column takes.

    A timestamp column does not keep the number that was routed to it (seed rule 10).
    """
    return replace(column_route, takes=tuple(f for f in column_route.takes if f.base != LONG))


def _maps(
    types: Mapping[int, Type],
    column_routes: Mapping[int, ColumnRoute],
    values: Values,
    path: Path,
    collector: Collector | None,
) -> dict[int, pa.Array]:
    """Fill the map columns of a field: a map's value goes, under its key, to every column that it fits."""
    out: dict[int, pa.Array] = {}
    by_key: dict[Type, dict[int, FieldRoute]] = {}
    for i, column_route in column_routes.items():
        if column_route.value is not None:
            by_key.setdefault(types[i].key, {})[i] = column_route.value  # type: ignore[union-attr]
    for key, value_routes in by_key.items():
        parts: dict[int, list[tuple[pa.Array, Numbers]]] = {}
        for dims, places in _by_dimension({i: column_routes[i] for i in value_routes}):
            columns = tuple(value_routes[i].columns[0] for i in places)
            to_rest = frozenset().union(*(value_routes[i].to_rest for i in places))
            # The map columns share keys and entries, so their values are converted as columns of one field.
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
            arrays = [array for array, _ in pieces]
            # As leaves are numbered; a copy of what is in order costs a wide map as much as all its values.
            out[i] = values.scattered(arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays), numbers)
    none = {i: pa.nulls(0, arrow_type(types[i])) for i in column_routes if i not in out}
    return out | {i: values.scattered(array, []) for i, array in none.items()}


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


class DriftedValues(NamedTuple):
    """Parsed JSON values of one field, and the row of each."""

    rows: Sequence[int]
    values: Sequence[object]


# By path: the rows, and for each a record that has the value.
DriftedRecords: TypeAlias = Mapping[Path, tuple[Numbers, Records]]


def put(
    arrays: Sequence[pa.Array],
    struct: Struct,
    route: RecordRoute,
    drifted: DriftedRecords,
    path: Path,
    collector: Collector | None,
) -> list[pa.Array]:
    """Put drifted values into the columns of a struct, and of the structs inside it.

    Args:
        arrays: the columns.
        struct: the struct.
        route: the route that fills it.
        drifted: the values.
        path: the path of the struct's records.
        collector: takes values that no column takes.
    """
    filled = list(arrays)
    places = {column.name: place for place, column in enumerate(struct.fields)}
    fields = {field.key: field for field in route.fields}
    for key, values in _by_key(drifted, len(path)).items():
        field, field_path = fields[key], (*path, key)
        columns = [(places[column.name], column) for column in field.columns if column.name in places]
        if field_path in values:
            rows, records = values.pop(field_path)
            field_struct = Struct(tuple(struct.fields[place] for place, _ in columns))
            within = None if collector is None else collector.rows(rows)
            arrays_of_field = columns_of(field_struct, RecordRoute((field,)), records, path, within)
            for (place, _), array in zip(columns, arrays_of_field, strict=True):
                # These rows are null already, but where the column has a default.
                if array.null_count < len(array) or struct.fields[place].write_default is not None:
                    filled[place] = overlaid(filled[place], rows, array)
        for place, column in columns if values else ():
            column_type = struct.fields[place].type
            if isinstance(column_type, Struct) and column.record and Facet(0, RECORD) in column.takes:
                field_collector = None if collector is None or field.elsewhere else collector.field(key)
                filled[place] = _struct(
                    filled[place], column_type, column.record, values, field_path, field_collector
                )
    return filled


def _by_key(drifted: DriftedRecords, depth: int) -> dict[str, dict[Path, tuple[Numbers, Records]]]:
    by_key: dict[str, dict[Path, tuple[Numbers, Records]]] = {}
    for path, records in drifted.items():
        by_key.setdefault(path[depth], {})[path] = records
    return by_key


def _struct(
    array: pa.Array,
    struct: Struct,
    route: RecordRoute,
    drifted: DriftedRecords,
    path: Path,
    collector: Collector | None,
) -> pa.Array:
    """Put drifted values into a column of structs."""
    fields = list(array.type)
    filled = put([array.field(i) for i in range(len(fields))], struct, route, drifted, path, collector)
    return pa.StructArray.from_arrays(
        filled, fields=fields, mask=array.is_null() if array.null_count else None
    )


def cuts_variants(struct: Struct, field_settings: FieldSettings) -> bool:
    """True if a table of ``struct`` has VARIANT or JSON columns and the field settings exclude any field."""
    excludes = next(excluded_paths(field_settings), None) is not None
    return excludes and any(f.type in (VARIANT, JSON) for _, f in Schema(struct).walk())


def cut_record(record: Mapping[str, object], field_settings: FieldSettings) -> dict[str, object]:
    """Remove the excluded fields from a parsed record, at any depth.

    >>> from driftline.core.settings.fields import OfPaths, field_settings
    >>> cut_record({"v": [{"a": 1, "b": 2}], "b": 3}, field_settings(paths=OfPaths(exclude=[("v", "b")])))
    {'v': [{'a': 1}], 'b': 3}
    """
    return {
        key: cut_value(value, field_settings.of(key))
        for key, value in record.items()
        if not field_settings.of(key).excluded
    }


def cut_value(value: object, field_settings: FieldSettings) -> object:
    """Remove the excluded fields from a value of a record."""
    if type(value) is dict:
        return cut_record(value, field_settings)
    return [cut_value(item, field_settings.inside(1)) for item in value] if type(value) is list else value


def cut_columns(
    arrays: Sequence[pa.Array], struct: Struct, field_settings: FieldSettings
) -> tuple[list[pa.Array], Struct]:
    """Remove the excluded fields from columns of records, and from their types, at any depth."""
    pairs = [
        (replace(f, type=type_), cut_array)
        for f, array in zip(struct.fields, arrays, strict=True)
        if not field_settings.of(f.name).excluded
        for cut_array, type_ in [_cut_array(array, f.type, field_settings.of(f.name))]
    ]
    return [array for _, array in pairs], Struct(tuple(f for f, _ in pairs))


def _cut_array(array: pa.Array, type_: Type, field_settings: FieldSettings) -> tuple[pa.Array, Type]:
    if isinstance(type_, List):
        items, element = _cut_array(array.values, type_.element, field_settings.inside(1))
        if element == type_.element:
            return array, type_
        mask = array.is_null() if array.null_count else None
        # A copy, as Arrow takes no slice with a mask
        offsets = pa.array(array.offsets.to_numpy())
        return pa.ListArray.from_arrays(offsets, items, mask=mask), replace(type_, element=element)
    if not isinstance(type_, Struct):
        return array, type_
    fields, struct = cut_columns([array.field(i) for i in range(len(type_.fields))], type_, field_settings)
    if struct == type_:
        return array, type_
    named = [pa.field(f.name, a.type) for f, a in zip(struct.fields, fields, strict=True)]
    if not named:
        nulls = array.is_null().to_pylist()
        return pa.array([None if null else {} for null in nulls], pa.struct([])), struct
    return pa.StructArray.from_arrays(fields, fields=named, mask=array.is_null()), struct


@dataclass(frozen=True)
class Converter:
    """Fills the columns of ``struct`` from records, by the ``route`` of a plan.

    >>> from driftline.core.planning.planner import plan
    >>> from driftline.core.schema.types import Schema
    """

    struct: Struct
    route: RecordRoute
    settings: TableSettings

    def __reduce__(self) -> Any:
        # As one text with its own depth: a plan for a wide table is pickled as calls, which is ten times as
        # fast as dataclasses with slots (core/support.py).
        return _restored, (pickled((self.struct, self.route, self.settings), DEEPEST),)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows: the table's columns with their field ids."""
        return arrow_schema(self.struct)

    def of_json(self, records: Sequence[Mapping[str, object]]) -> pa.RecordBatch:
        """Convert parsed JSON objects, as `driftline.core.values.parse` returns them, to rows.

        Raises Lost for a value that no column takes.
        """
        field_settings = self.settings.fields
        # A VARIANT takes its value whole, so excluded fields have to go before it is built.
        if cuts_variants(self.struct, field_settings):
            records = [cut_record(record, field_settings) for record in records]
        return self._rows(JsonRecords(records, self.settings.dates))

    def of_arrow(
        self,
        batch: pa.RecordBatch,
        struct: Struct,
        *,
        json: bool,
        drifted: Mapping[Path, DriftedValues] | None = None,
    ) -> pa.RecordBatch:
        """Convert Arrow columns to rows.

        Args:
            batch: the columns.
            struct: their types by key, in their order; `Declared` gives both.
            json: the columns were parsed from JSON, which has one kind of number, and one of string.
            drifted: values of records that are null in the columns, by a path that leads through no list.

        Raises:
            Lost: no column takes a value.
        """
        arrays, drifted, field_settings = batch.columns, drifted or {}, self.settings.fields
        if cuts_variants(self.struct, field_settings):
            arrays, struct = cut_columns(arrays, struct, field_settings)
            drifted = {
                path: DriftedValues(rows, [cut_value(value, field_settings.at(path)) for value in values])
                for path, (rows, values) in drifted.items()
            }
        records = ArrowRecords(arrays, struct, batch.num_rows, json, self.settings.dates)
        return self._rows(records, drifted)

    @gc_paused()
    def _rows(self, records: Records, drifted: Mapping[Path, DriftedValues] | None = None) -> pa.RecordBatch:
        column = rest_column(self.struct) if self.route.has_rest else None
        collector = None if column is None else Collector.of(records.count, self.settings.fields)
        route = self.route
        if collector is not None and isinstance(records, ArrowRecords) and records.count:
            route = _with_scalars_aside(route, records, collector)
        arrays = columns_of(self.struct, route, records, (), collector)
        if drifted:
            dates = self.settings.dates
            drifted_records = {
                path: (rows, JsonRecords([{path[-1]: value} for value in values], dates))
                for path, (rows, values) in drifted.items()
            }
            arrays = put(arrays, self.struct, self.route, drifted_records, (), collector)
        if collector is not None:
            # Last, when all columns have said what they lack.
            arrays[self.struct.fields.index(column)] = collector.entries.array()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _with_scalars_aside(route: RecordRoute, records: ArrowRecords, collector: Collector) -> RecordRoute:
    """Send the scalar fields without a column to the rest together; returns the route of the others."""
    # One by one, each costs a dozen calls of Arrow, and a wide file has tens of thousands of them.
    waiting: dict[str, Primitive] = {}
    others: list[FieldRoute] = []
    for field in route.fields:
        whole = bool(field.to_rest) and not (field.columns or field.elsewhere)
        if whole and (type_ := records.scalar(field.key)) is not None:
            waiting[field.key] = type_
        else:
            others.append(field)
    # The entries of a row stand in the order of the fields.
    if not waiting or any(field.has_rest for field in others):
        return route
    texts = records.scalar_texts(waiting)
    for key, type_ in waiting.items():
        collector.add_scalars(key, texts[key], type_)
    return RecordRoute(tuple(others))


def _restored(fields: bytes) -> Converter:
    return Converter(*pickle.loads(fields))  # noqa: S301  our own bytes
