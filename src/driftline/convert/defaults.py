"""Defaults of columns as Arrow arrays."""

from __future__ import annotations

import uuid
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa

from driftline.convert.types import arrow_type
from driftline.core.changes.defaults import literal_of
from driftline.core.types import Field, Primitive


def default_of(column: Field, count: int) -> pa.Array:
    """``count`` times what a record without a value gets in the column: its write default, or null."""
    type_ = arrow_type(column.type)
    if column.write_default is None:
        return pa.nulls(count, type_)
    return pa.repeat(pa.scalar(_value(column), type_), count)


def _value(column: Field) -> Any:
    value: Any = literal_of(column.type, column.write_default)
    assert isinstance(column.type, Primitive)
    match column.type.name:
        case "date":
            return date.fromisoformat(value)
        case "timestamp" | "timestamp_ntz":
            return datetime.fromisoformat(value)
        case "time":
            return time.fromisoformat(value)
        case "uuid":
            return uuid.UUID(value).bytes
        case _:
            return value
