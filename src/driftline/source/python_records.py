"""Records as programs hold them: dicts, and objects with named fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from driftline.errors import UsageError

_TYPES = (bytes, bytearray, date, datetime, time, Decimal, UUID)  # of values that stay what they are
# What gives an object's fields: of Pydantic's models, Spark's rows, named tuples.
_METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("model_dump", {}),
    ("asDict", {"recursive": True}),
    ("_asdict", {}),
)


def as_record(item: Any) -> Mapping[Any, Any] | None:
    """Return an object's fields by name, or None for what has none.

    Args:
        item: A dict or other mapping, a dataclass, a Pydantic model, a msgspec struct, a named tuple or a row
            of Spark's. Their classes are none of these.

    >>> from collections import namedtuple
    >>> as_record(namedtuple("Order", "id total")(1, 2.5))
    {'id': 1, 'total': 2.5}
    """
    if isinstance(item, Mapping):
        return item
    if isinstance(item, type):
        return None
    if is_dataclass(item):
        return asdict(item)  # type: ignore[arg-type]
    if isinstance(item, msgspec.Struct):
        fields: dict[str, Any] = msgspec.to_builtins(item, builtin_types=_TYPES)
        return fields
    for method, options in _METHODS:
        if callable(read := getattr(item, method, None)):
            record: Mapping[Any, Any] = read(**options)
            return record
    return None


def as_records(items: Iterable[Any]) -> Iterator[Mapping[Any, Any]]:
    """Yield each item's fields by name. Raises UsageError for an item without any, by its number from 0."""
    for number, item in enumerate(items):
        record = item if type(item) is dict else as_record(item)
        if record is None:
            raise UsageError(
                f"item {number} is {with_article(type(item).__name__)}, not a dict",
                hint="pass dicts, dataclasses, Pydantic models, msgspec structs or named tuples",
            )
        yield record


def with_article(noun: str) -> str:
    """Put a or an in front of a class's name.

    >>> with_article("Order"), with_article("dict"), with_article("NoneType")
    ('an Order', 'a dict', 'a NoneType')
    """
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"
