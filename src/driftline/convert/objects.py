"""Records as JSON has them: Python objects, whose numbers keep their text (`driftline.observe.parse`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.convert.json_values import TEXT, numbers_as, takes_number, texts_as
from driftline.convert.kernels import convert, converts
from driftline.convert.lists import assemble, place, shred
from driftline.convert.types import arrow_type
from driftline.convert.values import Maps, Numbers, bases_of, primitives_of, scattered
from driftline.core.routes import ColumnRoute, FieldRoute
from driftline.core.shape import RECORD, Base, MapOf
from driftline.core.types import BOOLEAN, STRING, Primitive
from driftline.observe.dates import declared_string_base
from driftline.observe.numbers import base_of
from driftline.observe.parse import Number

_MAP = MapOf(STRING)
_NONE: frozenset[Base] = frozenset()


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """JSON objects, parsed. ``dates``: the setting of that name."""

    objects: Sequence[Mapping[str, object]]
    dates: str

    @property
    def count(self) -> int:
        return len(self.objects)

    def values(self, route: FieldRoute) -> JsonValues | None:
        found = [record.get(route.key) for record in self.objects]
        return JsonValues(found, route, self.dates)


class JsonValues:
    """The values of one field of JSON objects, sorted by what they are."""

    def __init__(self, values: Sequence[object], route: FieldRoute, dates: str) -> None:
        self._values, self._dates = values, dates
        self._apart = shred(values)
        self._booleans: list[int] = []
        self._numbers: list[tuple[int, Primitive]] = []
        self._texts: dict[Primitive, list[int]] = {}
        self._objects: list[int] = []
        self._facets = route.shape.facets
        declared = primitives_of(route)
        for number, leaf in enumerate(self._apart.leaves):
            if type(leaf) is dict:
                self._objects.append(number)
            elif type(leaf) is bool:
                self._booleans.append(number)
            elif type(leaf) is Number:
                self._numbers.append((number, base_of(leaf)))
            else:
                assert isinstance(leaf, str)
                self._texts.setdefault(declared_string_base(leaf, declared, dates), []).append(number)

    def primitives(self, target: Primitive, way: ColumnRoute) -> pa.Array:
        bases = bases_of(way)
        dims, leaves = self._apart.leaf_dims, self._apart.leaves
        parts: list[tuple[Sequence[int], pa.Array]] = []

        def add(numbers: Sequence[int], made: pa.Array) -> None:
            if numbers:
                parts.append((numbers, made))

        if converts(BOOLEAN, target):
            taken = [n for n in self._booleans if BOOLEAN in bases.get(dims[n], _NONE)]
            add(taken, convert(pa.array([leaves[n] for n in taken], pa.bool_()), BOOLEAN, target))
        taken = [n for n, base in self._numbers if takes_number(bases.get(dims[n], _NONE), base)]
        add(taken, numbers_as([str(leaves[n]) for n in taken], target, way.unit))
        for base, numbers in self._texts.items():
            if target.name in ("string", "binary"):
                taken = [n for n in numbers if _text_among(bases.get(dims[n], _NONE))]
            elif base != STRING and converts(base, target):
                taken = [n for n in numbers if base in bases.get(dims[n], _NONE)]
            else:
                continue
            texts = pa.array([leaves[n] for n in taken], pa.string())
            add(taken, texts_as(texts, base, target, way.unit))
        return scattered(len(leaves), parts, arrow_type(target))

    def records(self, way: ColumnRoute) -> tuple[JsonRecords, Numbers]:
        bases, apart = bases_of(way), self._apart
        taken = [
            n for n in self._objects if n in apart.hollow or RECORD in bases.get(apart.leaf_dims[n], _NONE)
        ]
        return JsonRecords([apart.leaves[n] for n in taken], self._dates), taken  # type: ignore[misc]

    def maps(self, route: FieldRoute) -> Maps:
        objects = [self._apart.leaves[n] for n in self._objects]
        offsets = np.zeros(len(objects) + 1, np.int32)
        np.cumsum([len(o) for o in objects], out=offsets[1:])  # type: ignore[arg-type]
        keys = pa.array([key for o in objects for key in o], pa.string())  # type: ignore[attr-defined]
        values = [value for o in objects for value in o.values()]  # type: ignore[attr-defined]
        return Maps(pa.array(offsets), keys, JsonValues(values, route, self._dates), self._objects)

    def scattered(self, leaves: pa.Array, numbers: Numbers) -> pa.Array:
        return scattered(len(self._apart.leaves), [(numbers, leaves)], leaves.type)

    def placed(self, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
        dim, inner = 0, type_
        while pa.types.is_list(inner):
            dim, inner = dim + 1, inner.value_type
        fits = leaves.is_valid().to_pylist()
        return assemble(place(self._apart, fits, dim), leaves, type_)

    def missing(self) -> pa.Array:
        return pa.array([value is None for value in self._values], pa.bool_())

    def lost(self, held: NDArray[np.bool_]) -> object | None:
        for number in np.flatnonzero(~held).tolist():
            leaf = self._apart.leaves[number]
            # An object that the plan knows to hold no value needs no column.
            if type(leaf) is not dict or (leaf and self._planned(self._apart.leaf_dims[number])):
                return leaf
        return None

    def _planned(self, dim: int | None) -> bool:
        return any(f.dim == dim and f.base in (RECORD, _MAP) for f in self._facets)


def _text_among(bases: frozenset[Base]) -> bool:
    return any(isinstance(b, Primitive) and b.name in TEXT for b in bases)
