"""Conditions over records as they came, before a value has a column: kinds are those of the source.

Values compare as keys do: a number by its exact value, and never with a text. A field that is looked for in a
list, a text or another value that has no fields is unknown, as a comparison with null is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from driftline.core.schema.types import STRING, VARIANT, Map, Path, Primitive, Struct, Type
from driftline.core.settings.condition import (
    MESSAGE_KEY,
    Condition,
    IsNull,
    Junction,
    KeyAlone,
    Literal,
    Negation,
    OneOf,
)
from driftline.core.values import Number
from driftline.keys.identity import by_kind, key_text

Test: TypeAlias = "Callable[[Mapping[str, Any]], bool | None]"
Columns: TypeAlias = "Sequence[tuple[Type, pa.Array]]"

_HIDDEN = object()  # in place of a value that is looked for where no fields are


def record_test(condition: Condition) -> Test:
    """The condition as a function of a record of JSON, whose fractions are `Number`; None is unknown.

    >>> from driftline.core.settings.condition import OneOf
    >>> is_deleted = record_test(OneOf(("op",), ("d",)))
    >>> [is_deleted(record) for record in ({"op": "d"}, {"op": 1}, {})]
    [True, False, None]
    """
    match condition:
        case IsNull(path):
            return lambda record: None if (value := _value(record, path)) is _HIDDEN else value is None
        case OneOf(path, values):
            is_one = _is_one_of(values)
            return lambda record: is_one(_value(record, path))
        case KeyAlone():
            return lambda record: all(record[key] is None for key in record if key != MESSAGE_KEY)
        case Negation(part):
            test = record_test(part)
            return lambda record: None if (result := test(record)) is None else not result
        case Junction(parts, any_of):
            tests = [record_test(part) for part in parts]
            return lambda record: _joined((test(record) for test in tests), decides=any_of)


def _value(record: Any, path: Path) -> Any:
    for step in path:
        if type(record) is not dict:
            return None if record is None else _HIDDEN
        record = record.get(step)
    return record


def _is_one_of(values: Sequence[Literal]) -> Callable[[Any], bool | None]:
    texts = {value for value in values if type(value) is str}
    booleans = {value for value in values if type(value) is bool}
    numbers = {value for value in values if type(value) is Decimal}

    def is_one(value: Any) -> bool | None:
        """Compare a value with those of its kind."""
        match value:
            case None:
                return None
            case Number():
                return _decimal(value) in numbers
            case str():
                return value in texts
            case bool():
                return value in booleans
            case int():
                return value in numbers
            case _:
                return None if value is _HIDDEN else False

    return is_one


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:  # its exponent is beyond every literal's
        return None


def _joined(results: Iterable[bool | None], *, decides: bool) -> bool | None:
    """Join results of which one that ``decides`` is enough."""
    joined: bool | None = not decides
    for result in results:
        if result is decides:
            return decides
        joined = None if result is None else joined
    return joined


def holds(condition: Condition, batch: pa.RecordBatch, struct: Struct) -> pa.Array:
    """Flag the rows for which the condition is true; null where that is unknown.

    ``struct``: the types of the columns, by key, which may have several.
    """
    match condition:
        case IsNull(path):
            columns, hidden = _columns(batch, struct, path)
            return _unless(hidden, _all_null(columns, len(batch)))
        case OneOf(path, values):
            columns, hidden = _columns(batch, struct, path)
            null = _all_null(columns, len(batch))
            return _unless(pc.or_(hidden, null), _equal_one(columns, values, len(batch)))
        case KeyAlone():
            others = [
                (f.type, a)
                for f, a in zip(struct.fields, batch.columns, strict=True)
                if f.name != MESSAGE_KEY
            ]
            return _all_null(others, len(batch))
        case Negation(part):
            return pc.invert(holds(part, batch, struct))
        case Junction(parts, any_of):
            both = pc.or_kleene if any_of else pc.and_kleene
            parts_hold = (holds(part, batch, struct) for part in parts)
            return reduce(both, parts_hold, pa.repeat(not any_of, len(batch)))


def _columns(batch: pa.RecordBatch, struct: Struct, path: Path) -> tuple[Columns, pa.Array]:
    """The columns of the field at a path, and flags of the rows that hide it."""
    columns: Columns = [
        (f.type, array) for f, array in zip(struct.fields, batch.columns, strict=True) if f.name == path[0]
    ]
    hidden = pa.repeat(False, len(batch))
    for step in path[1:]:
        below: list[tuple[Type, pa.Array]] = []
        for type_, array in columns:
            match type_:
                case Struct(fields):
                    inner = zip(fields, array.flatten(), strict=True)
                    below += [(f.type, values) for f, values in inner if f.name == step]
                case Map(key, value) if key == STRING:
                    below.append((value, pc.map_lookup(array, step, "last")))
                case _:
                    hidden = pc.or_(hidden, array.is_valid())
        columns = below
    for type_, array in columns:
        if type_ == VARIANT:
            hidden = pc.or_(hidden, array.is_valid())
    return columns, hidden


def _all_null(columns: Columns, count: int) -> pa.Array:
    return reduce(pc.and_, (array.is_null() for _, array in columns), pa.repeat(True, count))


def _equal_one(columns: Columns, values: Sequence[Literal], count: int) -> pa.Array:
    """Flag the rows with one of the values in one of the columns."""
    flags = pa.repeat(False, count)
    for type_, array in columns:
        if not isinstance(type_, Primitive) or type_ == VARIANT:
            continue
        for kind, comparable in by_kind(array, type_):
            for value in values:
                if kind == _kind(value):
                    flags = pc.or_(flags, pc.equal(comparable, _comparable(value)).fill_null(False))
    return flags


def _unless(unknown: pa.Array, flags: pa.Array) -> pa.Array:
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), flags)


def _kind(value: Literal) -> str:
    """The kind of a literal, as `identity.by_kind` has them."""
    match value:
        case bool():
            return "boolean"
        case str():
            return "text"
        case _:
            return "whole" if value == value.to_integral_value() and abs(value) < 2**63 else "number"


def _comparable(value: Literal) -> str | int | bool | None:
    if isinstance(value, Decimal):
        return int(value) if _kind(value) == "whole" else key_text(value)
    return value
