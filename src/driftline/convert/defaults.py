"""Defaults of columns as Arrow arrays."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa

from driftline.convert.types import arrow_type
from driftline.core.changes.defaults import literal_of, no_value
from driftline.core.schema.types import Default, Expression, Field, List, Map, Primitive, Struct, Type
from driftline.errors import DataError

# What is another value for each row, by the expression of the default.
_EACH_ROW: dict[str, Callable[[], Any]] = {"uuid()": lambda: str(uuid.uuid4()), "rand()": random.random}


def without_defaults(struct: Struct) -> Struct:
    """The struct for rewritten rows: an existing null stays null, at any depth.

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
    """An array of ``count`` times the value of a record without one in the column: its write default, or
    null.

    Raises DataError if the default is an expression that has no value here.
    """
    type_, default = arrow_type(column.type), column.write_default
    if default is None or not count:
        return pa.nulls(count, type_)
    if not isinstance(default, Expression):
        return pa.repeat(pa.scalar(_value(column.type, default), type_), count)
    if default.sql not in _EACH_ROW:
        raise DataError(no_value(column))
    return pa.array([_EACH_ROW[default.sql]() for _ in range(count)], type_)


def initial_default(column: Field) -> pa.Scalar | None:
    """The value that rows older than the column read as; None for null."""
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
        case "uuid":
            return uuid.UUID(value).bytes
        case _:
            return str(value) if pa.types.is_string(arrow_type(type_)) else value
