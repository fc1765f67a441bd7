"""Puts drifted values back into their rows: they were cut out because their types are not the columns'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from driftline.convert.fill import columns_of
from driftline.convert.rest import Collector
from driftline.convert.values import Numbers, Records, overlaid
from driftline.core.planning.plan import RecordRoute
from driftline.core.planning.shape import RECORD, Facet
from driftline.core.schema.types import Path, Struct


class DriftedValues(NamedTuple):
    """Values of one field, as parsed from JSON, and the row of each."""

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

    ``path``: of the struct's records. ``collector``: takes values that no column takes.
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
