"""Rows of a table turned back into the records that they are of, as lines of JSON.

Of a field's columns the narrowest one with a value counts; what waits in the rest is opened at its paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from driftline.convert.declared import entries_of
from driftline.convert.leaves import by_list
from driftline.convert.promoter import Steps, nested
from driftline.convert.rest import json_values
from driftline.core.columns.siblings import SiblingGroup, families
from driftline.core.planning.conversions import NUMBERS
from driftline.core.planning.own_columns import is_type_key, rest_column, steps, type_key
from driftline.core.schema.naming import is_metadata
from driftline.core.schema.schema_json import type_of
from driftline.core.schema.types import STRING, Field, List, Map, Primitive, Struct, Type, children, peel
from driftline.core.settings.fields import FieldSettings
from driftline.core.values import Number, parse_values

# In the order in which a field's columns are asked. A day is not taken for the number that it fits; a number
# may be a moment, too.
_RANKS = {
    name: rank
    for rank, name in enumerate(
        ("boolean", "date", "int", "long", "float", "double", "decimal", "timestamp", "timestamp_ntz", "string")
    )
}  # fmt: skip
_MOMENTS = ("timestamp", "timestamp_ntz")
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}  # microseconds in one
_FLOATING = ("float", "double")
# Types whose values JSON spells: by themselves, or for a column that is there.
_SPELLED = frozenset({*_RANKS, "uuid", "time"})
# Those that JSON's values have by themselves.
_OF_JSON = frozenset(
    {"boolean", "long", "double", "date", "timestamp", "timestamp_ntz", "string"}
    | {"decimal(38, 0)", "decimal(38, 18)"}
)
_encode, _encode_sorted = msgspec.json.Encoder().encode, msgspec.json.Encoder(order="sorted").encode
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?")


def is_spelled(type_: Type) -> bool:
    """True if JSON spells the values of a column, so that a record can have them.

    >>> from driftline.core.schema.types import BINARY, LONG
    >>> is_spelled(List(LONG)), is_spelled(List(BINARY)), is_spelled(Map(LONG, STRING))
    (True, False, False)
    """
    match type_:
        case Primitive(name):
            return name in _SPELLED
        case List(element):
            return is_spelled(element)
        case Map(key, value):
            return key == STRING and is_spelled(value)
        case _:
            return True  # of its fields, those that are


def is_spelled_whole(type_: Type) -> bool:
    """True if JSON spells all that a column may have, in each field of its structs, too."""
    inner = children(type_)
    return is_spelled(type_) and all(is_spelled_whole(child.type) for child in inner)


def is_declared(type_: Type) -> bool:
    """True for a type that no value of JSON has by itself, so that someone has declared the column.

    >>> from driftline.core.schema.types import INT, LONG, decimal
    >>> [is_declared(type_) for type_ in (INT, LONG, decimal(38, 18), decimal(9, 2), Map(LONG, STRING))]
    [True, False, False, True, True]
    """
    match type_:
        case Primitive():
            return str(type_) not in _OF_JSON
        case Map(key):
            return key != STRING
        case _:
            return False


@dataclass(frozen=True, slots=True)
class RowRecords:
    """Turns rows with the columns of ``struct`` back into records.

    Attributes:
        mark: begins docs of evolved columns.
        field_settings: those of the table, for the units of epoch times.
        moments: a number that is equal to a moment in another column was the moment; else, the number.
        left_out: the ids of columns that are not read.
    """

    struct: Struct
    mark: str
    field_settings: FieldSettings
    moments: bool = False
    left_out: frozenset[int] = frozenset()

    def readings(self) -> Sequence[RowRecords]:
        """Both readings of numbers that are equal to moments, if fields have columns of both."""
        # A moment goes to columns of numbers, and a long to those of moments, so nothing tells what it was.
        return [self, replace(self, moments=True)] if _has_both(self.struct, self.mark) else [self]

    def lines(self, rows: pa.RecordBatch, *, in_order: bool = False) -> list[bytes]:
        """The record of each row, as a line of JSON.

        Args:
            rows: the rows.
            in_order: keys stand as in the rows; else sorted, so that equal records have equal lines.
        """
        records = self._records(self.struct, rows.columns, rows.num_rows, self.field_settings)
        read = Struct(tuple(f for f in self.struct.fields if f.id not in self.left_out))
        if (rest_field := rest_column(read)) is not None:
            column = rows.column([f.name for f in self.struct.fields].index(rest_field.name))
            for number, entries in enumerate(column.to_pylist()):
                if entries:
                    records[number] = _joined(records[number], opened(dict(entries)))
        return list(map(_encode if in_order else _encode_sorted, records))

    def _records(
        self, struct: Struct, columns: Sequence[pa.Array], count: int, field_settings: FieldSettings
    ) -> list[dict[str, Any]]:
        """The records of structs: a key for each field that has a value."""
        places = {id(f): place for place, f in enumerate(struct.fields)}
        records: list[dict[str, Any]] = [{} for _ in range(count)]
        for family in families([struct], self.mark):
            columns_in_order = self.order(family)
            inside = field_settings.of(family.key)
            values_by_column = [
                (peel(f.type), self._values(f.type, columns[places[id(f)]], inside)) for f in columns_in_order
            ]
            unit = (inside.epoch_unit or "ms") if self.moments else None
            for number, record in enumerate(records):
                parts = [
                    _HeldValue(dim, getattr(base, "name", ""), values[number])
                    for (dim, base), values in values_by_column
                    if values[number] is not None
                ]
                if parts:
                    record[family.key] = _one(parts, unit)
        return records

    def order(self, family: SiblingGroup) -> list[Field]:
        """The columns of a field that are read, in the order in which they are asked."""
        return sorted(filter(self._reads, family.columns), key=_rank)

    def _reads(self, column: Field) -> bool:
        return column.id not in self.left_out and is_spelled(column.type) and not is_metadata(column.doc)

    def _values(self, type_: Type, array: pa.Array, field_settings: FieldSettings) -> list[Any]:
        """The values of a column, as msgspec writes them; None for null."""
        match type_:
            case Struct(fields):
                columns = [array.field(place) for place in range(len(fields))]
                records = self._records(type_, columns, len(array), field_settings)
                valid = array.is_valid().to_pylist()
                return [record if is_there else None for record, is_there in zip(records, valid, strict=True)]
            case List(element):
                return by_list(self._values(element, array.flatten(), field_settings.inside(1)), array)
            case Map(_, value):
                lists = entries_of(array)
                flat = lists.flatten()
                values = self._values(value, flat.field(1), field_settings.of("value"))
                pairs = zip(flat.field(0).to_pylist(), values, strict=True)
                return [None if entries is None else dict(entries) for entries in by_list([*pairs], lists)]
            case Primitive(name):
                values = json_values(array, type_, points=name in _FLOATING)
                # Of floating points, a text is none of JSON's numbers.
                return [None if type(v) is str else v for v in values] if name in _FLOATING else values


def _has_both(type_: Type, mark: str) -> bool:
    """True if a field at any depth has a column of numbers and one of moments."""
    if isinstance(type_, Struct):
        for family in families([type_], mark):
            bases = {base.name for c in family.columns if isinstance(base := _innermost(c.type), Primitive)}
            if not bases.isdisjoint(NUMBERS) and not bases.isdisjoint(_MOMENTS):
                return True
    return any(_has_both(child.type, mark) for child in children(type_))


def _innermost(type_: Type) -> Type:
    """The type of the values in lists and maps."""
    base = peel(type_)[1]
    return _innermost(base.value) if isinstance(base, Map) else base


def _rank(column: Field) -> tuple[int, int]:
    """The order of a field's columns: those with fewer lists, then narrow types first."""
    dim, base = peel(column.type)
    return dim, _RANKS.get(base.name, len(_RANKS)) if isinstance(base, Primitive) else isinstance(base, Map)


@dataclass(frozen=True, slots=True)
class _HeldValue:
    """The value that one column has for a field: inside ``dim`` lists, of a ``base`` type if it is plain."""

    dim: int
    base: str
    value: Any

    def of(self, value: Any) -> _HeldValue:
        """A part of the value."""
        return _HeldValue(max(self.dim - 1, 0), self.base, value)


def _one(parts: Sequence[_HeldValue], unit: str | None) -> Any:
    """One value of the parts that several columns have of it, in the order in which they are asked."""
    first = parts[0]
    if len(parts) == 1:
        return first.value
    if isinstance(first.value, list):
        lists = [p for p in (_unwrapped(part, first) for part in parts) if p is not None]
        columns = [[part.of(value) for value in part.value] for part in lists]
        places = ([p for p in row if p.value is not None] for row in zip(*columns, strict=True))
        return [_one(of_place, unit) if of_place else None for of_place in places]
    if isinstance(first.value, dict):
        objects = [part.value for part in parts if isinstance(part.value, dict)]
        keys = dict.fromkeys(key for value in objects for key in value)
        values = {key: [_HeldValue(0, "", o[key]) for o in objects if o.get(key) is not None] for key in keys}
        return {key: _one(of_key, unit) if of_key else None for key, of_key in values.items()}
    return _scalar(
        sorted(filter(None, map(_plain, parts)), key=lambda part: _RANKS.get(part.base, len(_RANKS))), unit
    )


def _plain(part: _HeldValue) -> _HeldValue | None:
    """The plain value of a column, out of the lists that a column of lists has around it."""
    value = part.value
    for _ in range(part.dim):
        if not isinstance(value, list) or len(value) != 1:
            return None
        value = value[0]
    return None if value is None or isinstance(value, list | dict) else _HeldValue(0, part.base, value)


def _unwrapped(part: _HeldValue, first: _HeldValue) -> _HeldValue | None:
    """The list of a column as long as the first one; a deeper column has it inside further lists."""
    value, dim = part.value, part.dim
    while dim > first.dim and isinstance(value, list) and len(value) == 1 and value[0] is not None:
        value, dim = value[0], dim - 1
    fits = dim == first.dim and isinstance(value, list) and len(value) == len(first.value)
    return _HeldValue(dim, part.base, value) if fits else None


def _scalar(parts: Sequence[_HeldValue], unit: str | None) -> Any:
    """A plain value, of columns that it was converted for; ``unit``: in which a number may be a moment."""
    first = parts[0].value
    text = next((part.value for part in parts if part.base == "string"), None)
    moment = next((part.value for part in parts if part.base in _MOMENTS), None)
    if isinstance(text, str) and isinstance(first, msgspec.Raw):
        return _written(text, first)
    if moment is None or parts[0].base == "date":
        return first
    if not isinstance(first, msgspec.Raw):
        return first if text is None else text
    return moment if unit is not None and _is_moment(bytes(first), moment, unit) else first


def _written(text: str, number: msgspec.Raw) -> Any:
    """The value that went to a column of numbers, and to one of texts, which has it as it was written.

    A text itself goes to no column of numbers: that took a number, a boolean as 1 or 0, or a date's time.
    """
    if _JSON_NUMBER.fullmatch(text):
        return msgspec.Raw(text.encode())
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        Decimal(text)  # such as +5 in a cell of CSV
    except ArithmeticError:
        return text
    return number


def _is_moment(number: bytes, moment: str, unit: str) -> bool:
    """True if a number counts the time of a moment."""
    instant = datetime.fromisoformat(moment)
    micros = (instant.replace(tzinfo=instant.tzinfo or UTC) - _EPOCH) // _MICROSECOND
    count = Decimal(micros * 1000) if unit == "ns" else Decimal(micros) / _UNITS[unit]
    return Decimal(number.decode()) == count


_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def opened(entries: Mapping[str, str]) -> dict[str, Any]:
    """Nest what waits in the rest of a row as a record, without what JSON does not spell.

    >>> opened({"a.b": "true", "a.c[1]": '"x"'})
    {'a': {'b': True, 'c': [None, 'x']}}
    """
    locations = dict(_spelled_locations(entries))
    record: dict[str, Any] = {}
    for location, text in locations.items():
        # Of a value that stands there whole, a part may too: two columns of its field lack different parts.
        if not any(location[:end] in locations for end in range(1, len(location))):
            record = _joined(record, nested(location, _as_written(*parse_values([text.encode()]))))
    return record


def _spelled_locations(entries: Mapping[str, str]) -> Iterator[tuple[Steps, str]]:
    for path, text in entries.items():
        if not is_type_key(path):
            spelled = entries.get(type_key(path))
            if spelled is None or is_spelled(type_of(spelled)):
                yield steps(path), text


def _as_written(value: Any) -> Any:
    """A parsed value whose numbers are printed as they were written."""
    if isinstance(value, dict):
        return {key: _as_written(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_as_written(member) for member in value]
    return msgspec.Raw(value.encode()) if isinstance(value, Number) else value


def _joined(stored: Any, waiting: Any) -> Any:
    """Join what columns have of a value with the parts of it that wait."""
    if stored is None or waiting is None:
        return waiting if stored is None else stored
    if isinstance(stored, dict) and isinstance(waiting, dict):
        keys = {**stored, **waiting}
        return {key: _joined(stored.get(key), waiting.get(key)) for key in keys}
    if isinstance(stored, list) and isinstance(waiting, list):
        longest = max(len(stored), len(waiting))
        padded = [[*values, *[None] * (longest - len(values))] for values in (stored, waiting)]
        return [_joined(*pair) for pair in zip(*padded, strict=True)]
    return waiting  # whole, where columns have a part of it
