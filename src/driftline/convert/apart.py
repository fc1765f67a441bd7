"""Puts values that were cut out of their records, as their types differ from the columns', back into their
rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from driftline.convert.fill import columns_of
from driftline.convert.rest import Collector
from driftline.convert.values import Numbers, Records, overlaid
from driftline.core.planning.routes import RecordRoute
from driftline.core.planning.shape import RECORD, Facet
from driftline.core.schema.types import Path, Struct


class Apart(NamedTuple):
    """Values of one field, as parsed from JSON, one for each of these rows."""

    rows: Sequence[int]
    values: Sequence[object]


# By path: the rows, and for each a record that has the value.
ApartRecords: TypeAlias = Mapping[Path, tuple[Numbers, Records]]


def put(
    arrays: Sequence[pa.Array],
    struct: Struct,
    route: RecordRoute,
    apart: ApartRecords,
    path: Path,
    rest: Collector | None,
) -> list[pa.Array]:
    """Put the values ``apart`` into the columns of a ``struct`` and of the structs below.

    ``path``: of the struct's records. ``rest``: takes values that no column takes.
    """
    filled = list(arrays)
    places = {column.name: place for place, column in enumerate(struct.fields)}
    fields = {field.key: field for field in route.fields}
    for key, values in _by_key(apart, len(path)).items():
        field, at = fields[key], (*path, key)
        columns = [(places[column.name], column) for column in field.columns if column.name in places]
        if at in values:
            rows, records = values.pop(at)
            own = Struct(tuple(struct.fields[place] for place, _ in columns))
            within = None if rest is None else rest.rows(rows)
            arrays_of_field = columns_of(own, RecordRoute((field,)), records, path, within)
            for (place, _), array in zip(columns, arrays_of_field, strict=True):
                filled[place] = overlaid(filled[place], rows, array)
        for place, column in columns if values else ():
            inner = struct.fields[place].type
            if isinstance(inner, Struct) and column.record and Facet(0, RECORD) in column.takes:
                below = None if rest is None or field.elsewhere else rest.field(key)
                filled[place] = _struct(filled[place], inner, column.record, values, at, below)
    return filled


def _by_key(apart: ApartRecords, depth: int) -> dict[str, dict[Path, tuple[Numbers, Records]]]:
    by_key: dict[str, dict[Path, tuple[Numbers, Records]]] = {}
    for path, records in apart.items():
        by_key.setdefault(path[depth], {})[path] = records
    return by_key


def _struct(
    array: pa.Array,
    struct: Struct,
    route: RecordRoute,
    apart: ApartRecords,
    path: Path,
    rest: Collector | None,
) -> pa.Array:
    """Put the values ``apart`` into a column of structs."""
    fields = list(array.type)
    inner = put([array.field(i) for i in range(len(fields))], struct, route, apart, path, rest)
    return pa.StructArray.from_arrays(
        inner, fields=fields, mask=array.is_null() if array.null_count else None
    )
