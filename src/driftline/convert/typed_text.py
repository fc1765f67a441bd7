"""Values that stand as text beside their type, given back: what `row_text` writes, read."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from driftline.core.schema.types import List, Map, Primitive, Struct, Type

_READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
    "time": time.fromisoformat,
    "uuid": lambda text: uuid.UUID(text).bytes,
    "binary": base64.b64decode,
    "fixed": base64.b64decode,
    "string": str,
    "boolean": lambda text: {"true": True, "false": False}[text],
}


def typed_value(value: Any, type_: Type) -> Any:
    """A parsed JSON value as pyarrow takes it for the type.

    >>> from driftline.core.schema.types import BINARY, List
    >>> typed_value(["AP8=", None], List(BINARY))
    [b'\\x00\\xff', None]

    Raises ValueError where Python has no such value, of a year beyond 9999, say.
    """
    if value is None or isinstance(value, bool):
        return value
    match type_:
        case Struct(fields):
            types = {f.name: f.type for f in fields}
            if len(types) < len(fields):
                raise ValueError("a key stands several times")
            return {key: typed_value(item, types[key]) for key, item in value.items()}
        case List(element):
            return [typed_value(item, element) for item in value]
        case Map(key_type, item_type):
            return {typed_value(key, key_type): typed_value(item, item_type) for key, item in value.items()}
        case Primitive(name) if name in _READ:
            return _READ[name](value)
    raise ValueError(f"{type_} has no values")
