"""Records as Arrow has them: a struct's arrays, each of one declared type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.convert.json_values import TEXT, takes_number, texts_as
from driftline.convert.kernels import convert, converts
from driftline.convert.lists import assemble, flattened, numbered, place, relist
from driftline.convert.types import arrow_type
from driftline.convert.values import Maps, Numbers, bases_of, primitives_of, scattered
from driftline.core.routes import ColumnRoute, FieldRoute
from driftline.core.shape import RECORD
from driftline.core.types import DOUBLE, LONG, STRING, Map, Primitive, Struct, Type, peel
from driftline.observe.dates import declared_string_base

_NUMBERS = (LONG, DOUBLE)


@dataclass(frozen=True, slots=True)
class ArrowRecords:
    """The fields of some records as arrays. ``struct``: their types. ``json``: numbers and strings are JSON's, which
    has one kind of each; else they have the types that are declared."""

    arrays: dict[str, pa.Array]
    struct: Struct
    count: int
    json: bool
    dates: str

    def values(self, route: FieldRoute) -> ArrowValues | None:
        column = self.struct.get(route.key)
        if column is None:
            return None
        return ArrowValues(self.arrays[route.key], column.type, route, self.json, self.dates)


class ArrowValues:
    """The values of one field, all of one type and one dimension."""

    def __init__(self, lists: pa.Array, type_: Type, route: FieldRoute, json: bool, dates: str) -> None:
        self._lists, self._json, self._dates = lists, json, dates
        self._dim, self._inner = peel(type_)
        self._leaves = flattened(lists)
        self._texts = {
            f.base for f in route.shape.facets if isinstance(f.base, Primitive) and f.base.name in TEXT
        }
        self._declared = primitives_of(route)

    def primitives(self, target: Primitive, column_route: ColumnRoute) -> pa.Array:
        source, bases = self._inner, bases_of(column_route).get(self._dim, frozenset())
        nothing = pa.nulls(len(self._leaves), arrow_type(target))
        if not isinstance(source, Primitive):
            return nothing
        if not self._json:
            return convert(self._leaves, source, target, column_route.unit) if source in bases else nothing
        if source == STRING:
            return self._of_texts(target, bases, column_route.unit)
        taken = takes_number(bases, source) if source in _NUMBERS else source in bases
        taken = taken or (source == DOUBLE and LONG in bases and target == DOUBLE)
        return (
            convert(self._leaves, source, target, column_route.unit)
            if taken and converts(source, target)
            else nothing
        )

    def _of_texts(self, target: Primitive, bases: frozenset[object], unit: str | None) -> pa.Array:
        nothing = pa.nulls(len(self._leaves), arrow_type(target))
        texts = [b for b in bases if isinstance(b, Primitive) and b.name in TEXT]
        if target.name in ("string", "binary"):
            return texts_as(self._leaves, STRING, target, unit) if texts else nothing
        date_types = [b for b in texts if b != STRING and converts(b, target)]
        if len(date_types) == 1 and self._texts == set(date_types):
            return texts_as(
                self._leaves, date_types[0], target, unit
            )  # observing has judged every string of the field
        found: dict[Primitive, list[int]] = {}
        for number, text in enumerate(self._leaves.to_pylist() if date_types else ()):
            if text is not None:
                base = declared_string_base(text, self._declared, self._dates)
                found.setdefault(base, []).append(number)
        parts = [
            (found[b], texts_as(self._leaves.take(pa.array(found[b])), b, target, unit))
            for b in date_types
            if b in found
        ]
        return scattered(len(self._leaves), parts, arrow_type(target))

    def records(self, column_route: ColumnRoute) -> tuple[ArrowRecords, Numbers]:
        takes = RECORD in bases_of(column_route).get(self._dim, frozenset())

        valid = self._leaves.is_valid()
        if not isinstance(self._inner, Struct):
            return ArrowRecords({}, Struct(), 0, self._json, self._dates), []
        numbers = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
        struct = self._inner if takes else Struct()
        leaves = self._leaves.filter(valid) if self._leaves.null_count else self._leaves
        arrays = {f.name: leaves.field(f.name) for f in struct.fields} if struct.fields else {}
        return ArrowRecords(arrays, struct, len(numbers), self._json, self._dates), numbers

    def maps(self, route: FieldRoute) -> Maps:
        assert isinstance(self._inner, Map)
        valid = self._leaves.is_valid()
        numbers = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
        leaves = self._leaves.filter(valid)
        offsets = leaves.offsets.to_numpy()
        entries = slice(int(offsets[0]), int(offsets[-1]))
        values = ArrowValues(leaves.items[entries], self._inner.value, route, self._json, self._dates)
        return Maps(pa.array(offsets - offsets[0]), leaves.keys[entries], values, numbers)

    def scattered(self, leaves: pa.Array, numbers: Numbers) -> pa.Array:
        return scattered(len(self._leaves), [(numbers, leaves)], leaves.type)

    def placed(self, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
        dim, inner = 0, type_
        while pa.types.is_list(inner):
            dim, inner = dim + 1, inner.value_type
        if dim == self._dim and (not dim or leaves.null_count == self._leaves.null_count):
            return relist(self._lists, leaves, type_)
        if dim < self._dim:
            return pa.nulls(len(self._lists), type_)
        apart = numbered(self._lists)
        return assemble(place(apart, leaves.is_valid().to_pylist(), dim), leaves, type_)

    def missing(self) -> pa.Array:
        return self._lists.is_null()

    def lost(self, held: NDArray[np.bool_]) -> object | None:
        if not isinstance(self._inner, Primitive):
            return None
        lost = np.flatnonzero(self._leaves.is_valid().to_numpy(zero_copy_only=False) & ~held)
        return self._leaves[int(lost[0])].as_py() if len(lost) else None
