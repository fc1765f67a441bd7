"""Converts JSON values to the type of a column: exact, or None.

JSON has one kind of number and one of text. A number is judged by its text, as in observing (rule 2.1, and
"JSON has one kind of number" in section 3).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.convert.kernels import convert, converts
from driftline.convert.leaves import (
    Dims,
    Maps,
    Numbers,
    NumberText,
    assemble,
    bases_of,
    dimension,
    in_places,
    place,
    primitives_of,
    scattered,
    shred,
    variants_of,
    wrapped,
)
from driftline.convert.rest import element_at, json_text, lost_by_value, places_of
from driftline.convert.types import arrow_type
from driftline.core.planning.conversions import NARROW, NUMBERS
from driftline.core.planning.maps import is_word
from driftline.core.planning.plan import ColumnRoute, FieldRoute
from driftline.core.planning.shape import NUMBER_TEXT, RECORD, Base, Facet, FieldShape, MapOf
from driftline.core.schema.types import (
    BIG_INTEGER,
    BINARY,
    BOOLEAN,
    BOUNDS,
    DOUBLE,
    LONG,
    STRING,
    UUID,
    VARIANT,
    Primitive,
    SourceLocation,
    Type,
)
from driftline.core.settings.fields import FieldSettings, TextReading
from driftline.core.values import (
    DECLARED,
    Number,
    base_of,
    decimal_of,
    declared_string_base,
    has_value,
    is_single,
    mode_of,
    read_text,
    string_base,
)

TEXT = ("string", "date", "timestamp", "timestamp_ntz", "time", "uuid")


def takes_number(bases: Iterable[Base], natural: Primitive) -> bool:
    """True if a column that takes the types ``bases`` is offered a number of type ``natural`` (rule 2.1).

    A column of a declared number type takes every number that is exact in it.
    """
    if any(isinstance(b, Primitive) and b.name in NARROW for b in bases):
        return True
    return (STRING if natural == NUMBER_TEXT else natural) in bases


# Drifted values, too, are gathered by type and converted as a column, so that there is one table of
# conversions.
def numbers_as(texts: Sequence[str], natural: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    """Convert JSON numbers, as written, to ``target``: exact, or null.

    Args:
        natural: their type by rule 2.1.
    """
    match target.name:
        case "string":
            return pa.array(texts, pa.string())
        case "double" if natural == DOUBLE:
            return pa.array(list(map(float, texts)), pa.float64())
        case "int" | "long" | "double" | "timestamp" | "timestamp_ntz" if natural == LONG:
            return convert(pa.array(list(map(int, texts)), pa.int64()), LONG, target, unit)
        case name if name in BOUNDS and natural in (LONG, BIG_INTEGER):
            low, high = BOUNDS[name]
            numbers = [n if low <= n <= high else None for n in map(int, texts)]
            return pa.array(numbers, arrow_type(target))
        case "float" if natural in (LONG, DOUBLE):
            return pa.array([float(text) if is_single(text) else None for text in texts], pa.float32())
        case "decimal":
            return pa.array([decimal_of(text, target) for text in texts], arrow_type(target))
        case _:
            return pa.nulls(len(texts), arrow_type(target))


def texts_as(texts: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    """Convert JSON strings that are all of type ``source`` (rule 2.2) to ``target``."""
    if source == STRING or target in (STRING, BINARY):
        return convert(texts, STRING, target, unit)
    if source == UUID:
        listed = texts.to_pylist()
        values = pa.array([None if t is None else uuid.UUID(t).bytes for t in listed], arrow_type(UUID))
    else:
        values = texts.cast(arrow_type(source))
    return convert(values, source, target, unit)


_MAP = MapOf(STRING)
_NONE: frozenset[Base] = frozenset()


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """Parsed JSON objects.

    Attributes:
        dates: the setting of that name.
    """

    objects: Sequence[Mapping[str, object]]
    dates: str
    nulls: None = None

    @property
    def count(self) -> int:
        return len(self.objects)

    def values(self, route: FieldRoute) -> JsonValues | None:
        items = [record.get(route.key) for record in self.objects]
        return JsonValues(items, route, self.dates)


class JsonValues:
    """The values of one field of JSON objects, sorted by kind."""

    def __init__(self, values: Sequence[object], route: FieldRoute, dates: str) -> None:
        self._values, self._dates = values, dates
        dates = mode_of(dates, route.texts)
        self._shredded = shred(values)
        self._facets = (*route.shape.facets, *route.to_rest)
        self._waiting_maps = route.waiting_maps
        leaves, declared = self._shredded.leaves, primitives_of(route).intersection(DECLARED)
        self._spelled = _read_texts(leaves, route.texts)
        by_kind: dict[type, list[int]] = {Number: [], str: [], dict: [], bool: []}
        for number, leaf in enumerate(leaves):
            by_kind[type(leaf)].append(number)
        self._objects, self._booleans = by_kind[dict], by_kind[bool]
        # What is most frequent is recognised by identity: to hash a type takes longer than all the rest.
        longs: list[int] = []
        self._numbers: dict[Primitive, list[int]] = {}
        for number in by_kind[Number]:
            text: str = leaves[number]  # type: ignore[assignment]
            # Eighteen digits always fit 64 bits, and most numbers are such.
            base = LONG if len(text) <= 18 and text.isdigit() else base_of(text)
            (longs if base is LONG else self._numbers.setdefault(base, [])).append(number)
        if longs:
            self._numbers[LONG] = longs
        strings: list[int] = []
        self._texts: dict[Primitive, list[int]] = {}
        for number in by_kind[str]:
            text = leaves[number]  # type: ignore[assignment]
            base = declared_string_base(text, declared, dates) if declared else string_base(text, dates)
            (strings if base is STRING else self._texts.setdefault(base, [])).append(number)
        if strings:
            self._texts[STRING] = strings

    def primitives(self, target: Primitive, column_route: ColumnRoute) -> pa.Array:
        bases, leaves = bases_of(column_route), self._shredded.leaves
        if self._spelled and target in (STRING, BINARY, VARIANT):
            leaves = [self._spelled.get(n, leaf) for n, leaf in enumerate(leaves)]
        if target == VARIANT:
            fits = ({d for d in bases if d is not None} | {0}) if bases else ()
            dims = self._shredded.leaf_dims
            return variants_of(
                leaf if dims[n] in fits or n in self._shredded.idle else None for n, leaf in enumerate(leaves)
            )
        parts: list[tuple[Numbers, pa.Array]] = []
        if BOOLEAN in {b for bases_there in bases.values() for b in bases_there} and converts(
            BOOLEAN, target
        ):
            taken = self._at(
                self._booleans, {d for d, bases_there in bases.items() if BOOLEAN in bases_there}
            )
            # As they were read: each has one text, which a column of texts gets either way.
            booleans = pa.array([self._shredded.leaves[n] for n in taken], pa.bool_())
            parts.append((taken, convert(booleans, BOOLEAN, target)))
        for base, numbers in self._numbers.items():
            taken = self._at(
                numbers, {d for d, bases_there in bases.items() if takes_number(bases_there, base)}
            )
            texts: list[str] = [leaves[n] for n in taken]  # type: ignore[misc]
            parts.append((taken, numbers_as(texts, base, target, column_route.unit)))
        for base, numbers in self._texts.items():
            taken = self._at(
                numbers, {d for d, bases_there in bases.items() if _takes_text(target, bases_there, base)}
            )
            strings = pa.array([leaves[n] for n in taken], pa.string())
            if taken:
                parts.append((taken, texts_as(strings, base, target, column_route.unit)))
        return scattered(len(leaves), [part for part in parts if len(part[0])], arrow_type(target))

    def whole(self, type_: Primitive) -> tuple[pa.Array, NDArray[np.bool_]]:
        if type_ == VARIANT:
            array = variants_of(self._values)
        else:
            texts = [None if v is None else json_text(v, FieldSettings()) for v in self._values]
            array = pa.array(texts, pa.string())
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        return array, valid[np.asarray(self._shredded.owners, np.int64)]

    def _at(self, numbers: list[int], dims: AbstractSet[int | None]) -> list[int]:
        """The leaves of values of these dimensions."""
        if self._shredded.flat or not dims:
            return numbers if 0 in dims else []
        leaf_dims = self._shredded.leaf_dims
        return [n for n in numbers if leaf_dims[n] in dims]

    def records(self, column_route: ColumnRoute) -> tuple[JsonRecords, Numbers]:
        bases, shredded = bases_of(column_route), self._shredded
        taken = [
            n
            for n in self._objects
            # An object without a value decides no depth, so any column of objects may take it.
            if n in shredded.idle or RECORD in bases.get(shredded.leaf_dims[n], _NONE)
        ]
        return JsonRecords([shredded.leaves[n] for n in taken], self._dates), taken  # type: ignore[misc]

    def maps(self, route: FieldRoute, key: Type, dims: Dims) -> Maps | None:
        if key != STRING:
            return None
        shredded = self._shredded
        numbers = [
            n
            for n in self._objects
            if (shredded.leaf_dims[n] if has_value(shredded.leaves[n]) else None) in dims
        ]
        objects: list[Mapping[str, object]] = [shredded.leaves[n] for n in numbers]  # type: ignore[misc]
        if route.left_out or route.no_words:
            takes = partial(_takes_key, route)
            # The struct next to the map takes the other keys.
            objects = [{k: v for k, v in o.items() if takes(k)} for o in objects]
        offsets = np.zeros(len(objects) + 1, np.int32)
        np.cumsum([len(o) for o in objects], out=offsets[1:])
        keys = pa.array([key for o in objects for key in o], pa.string())
        values = [value for o in objects for value in o.values()]
        return Maps(pa.array(offsets), keys, JsonValues(values, route, self._dates), numbers)

    def scattered(self, leaves: pa.Array, numbers: Numbers) -> pa.Array:
        return in_places(len(self._shredded.leaves), leaves, numbers)

    def placed(self, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
        shredded, dim = self._shredded, dimension(type_)
        if shredded.flat and not (dim and shredded.hollow):
            whole = len(leaves) == len(self._values)
            return wrapped(leaves if whole else leaves.take(pa.array(shredded.trees, pa.int64())), type_)
        return assemble(place(shredded, leaves.is_valid().to_pylist(), dim), leaves, type_)

    def missing(self) -> pa.Array:
        return pa.array([value is None for value in self._values], pa.bool_())

    def places(self) -> Sequence[tuple[int, tuple[int, ...]]]:
        return places_of(self._shredded)

    def texts(self, stored: NDArray[np.bool_] | None, field_settings: FieldSettings) -> Iterator[NumberText]:
        if stored is None:
            for number, value in enumerate(self._values):
                if has_value(value):
                    yield NumberText(number, (), json_text(value, field_settings))
            return
        if self._waiting_maps:
            # The caller's flags are those of the other columns as well.
            stored = stored.copy()
            # A struct next to it has some keys of such a map, if any.
            stored[[n for n in self._objects if self._shredded.leaf_dims[n] in self._waiting_maps]] = False
        lost = [number for number in np.flatnonzero(~stored).tolist() if self._is_lost(number)]
        places = self.places() if lost else ()
        leaves = [number for number in range(len(places)) if has_value(self._shredded.leaves[number])]
        for value, within in lost_by_value(lost, places, leaves):
            item = element_at(self._values[value], within)
            yield NumberText(value, within, json_text(item, field_settings.inside(len(within))))

    def _is_lost(self, number: int) -> bool:
        """True if a leaf that no column holds is a value; an object without any is not."""
        leaf = self._shredded.leaves[number]
        return type(leaf) is not dict or (has_value(leaf) and self._planned(self._shredded.leaf_dims[number]))

    def are_all_in(self, leaves: pa.Array) -> bool:
        return not leaves.null_count and not self._waiting_maps

    def lost(self, stored: NDArray[np.bool_]) -> object | None:
        for number in np.flatnonzero(~stored).tolist():
            if self._is_lost(number):
                return self._shredded.leaves[number]
        return None

    def _planned(self, dim: int | None) -> bool:
        return any(f.dim == dim and f.base in (RECORD, _MAP) for f in self._facets)


def spelled(texts: pa.Array, reading: TextReading, dates: str) -> pa.Array:
    """Convert texts to the type that they are read as; null for one that does not spell a value of it.

    >>> spelled(pa.array(["12.50", "x", None]), TextReading(DOUBLE), "on").to_pylist()
    [12.5, None, None]
    """
    bases = (reading.type, LONG, DOUBLE) if reading.type.name in NUMBERS else (reading.type,)
    column = ColumnRoute("", reading.type, tuple(Facet(0, base) for base in dict.fromkeys(bases)))
    route = FieldRoute("", FieldShape(SourceLocation()), (column,), texts=reading)
    values = JsonValues(texts.to_pylist(), route, dates)
    return values.placed(values.primitives(reading.type, column), arrow_type(reading.type))


def _read_texts(leaves: list[object], reading: TextReading | None) -> dict[int, str]:
    """Replace texts by what they spell. Returns the replaced ones, by the number of their leaf."""
    spelled: dict[int, str] = {}
    if reading is None:
        return spelled
    for number, leaf in enumerate(leaves):
        if type(leaf) is str and (value := read_text(leaf, reading)) is not leaf:
            spelled[number], leaves[number] = leaf, value
    return spelled


def _takes_key(route: FieldRoute, key: str) -> bool:
    return key not in route.left_out and not (route.no_words and is_word(key))


def _takes_text(target: Primitive, bases: frozenset[Base], base: Primitive) -> bool:
    """True if a column of type ``target`` that takes the types ``bases`` takes strings of type ``base``."""
    if target in (STRING, BINARY):
        return any(isinstance(b, Primitive) and b.name in TEXT for b in bases)
    return base != STRING and base in bases and converts(base, target)
