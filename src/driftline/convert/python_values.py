"""Records of Python as columns of table types (rules 2.3), without changing a value.

A key whose values have several types occurs several times, once for each, like a union.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.declared import OVERFLOW, VOID, readings
from driftline.core.schema.types import Field, List, Path, Struct, Type, dotted
from driftline.errors import UsageError

Values = Sequence[Any]

_LONG, _DIGITS = 2**63, 38
_KINDS: tuple[tuple[type, str], ...] = (  # a class comes before those it is made of
    (bool, "boolean"), (int, "long"), (float, "double"), (str, "string"), (Decimal, "decimal"), (datetime, "moment"),
    (date, "date"), (time, "time"), (timedelta, "duration"), (UUID, "uuid"),
    (np.datetime64, "moment"), (np.timedelta64, "duration"),
    (bytes, "binary"), (bytearray, "binary"), (memoryview, "binary"), (Mapping, "record"),
    (list, "list"), (tuple, "list"), (np.ndarray, "list"),
)  # fmt: skip
_FINER = ("ns", "ps", "fs", "as")  # numpy's units below a microsecond
_NULLS = ("NoneType", "NaTType", "NAType")  # None, and those of pandas
_ARROW: dict[str, pa.DataType | None] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "whole": pa.decimal128(_DIGITS, 0),
    "huge": pa.string(),
    "double": pa.float64(),
    "string": pa.string(),
    "decimal": None,  # of as many digits as there are
    "instant": pa.timestamp("us", "UTC"),
    "fine instant": pa.timestamp("ns", "UTC"),
    "moment": pa.timestamp("us"),
    "fine moment": pa.timestamp("ns"),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
    "fine duration": pa.duration("ns"),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
}


class TypedValues(NamedTuple):
    """Values of one type; null for the others. ``overflow``: the type counts only if it has values."""

    type: Type
    array: pa.Array
    overflow: bool = False


def record_columns(records: Sequence[Mapping[str, Any]]) -> tuple[Struct, pa.RecordBatch]:
    """The columns of some records, and their types.

    Raises UsageError for a value that no table has, with its path.
    """
    return with_columns([(key, columns_of(values, (key,))) for key, values in _by_key(records, ())])


def with_columns(keys: Iterable[tuple[str, Sequence[TypedValues]]]) -> tuple[Struct, pa.RecordBatch]:
    """The columns of each key side by side, and their types."""
    columns = [(key, column) for key, typed in keys for column in typed]
    struct = Struct(tuple(Field(key, c.type, doc=OVERFLOW if c.overflow else None) for key, c in columns))
    return struct, pa.RecordBatch.from_arrays([c.array for _, c in columns], [f.name for f in struct.fields])


def columns_of(values: Values, path: Path) -> list[TypedValues]:
    """The columns of some values, one for each type. ``path``: where they are, for errors.

    >>> [(str(c.type), c.array.to_pylist()) for c in columns_of([1, "x", None], ("a",))]
    [('long', [1, None, None]), ('string', [None, 'x', None])]
    """
    classes = set(map(type, values))
    if any(issubclass(cls, (np.generic, np.ndarray)) for cls in classes):
        values = list(map(_of_numpy, values))
        classes = set(map(type, values))
    if any(cls.__name__ in _NULLS[1:] for cls in classes):
        values = [None if type(v).__name__ in _NULLS else v for v in values]
    kinds = {_kind(cls, path) for cls in classes} - {None}
    if not kinds:
        return [TypedValues(VOID, pa.nulls(len(values)))]
    if len(kinds) == 1 and not kinds & {"long", "moment", "duration"}:
        return _of_kind(values, str(kinds.pop()), path)
    return _merged(_of_kinds(values, [_exact_kind(value, path) for value in values], path))


def _of_numpy(value: Any) -> Any:
    """A value of numpy's as Python's own. Moments and durations stay that Python has none for."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.void) and value.dtype.names:
        return {name: value[name] for name in value.dtype.names}
    if not isinstance(value, (np.datetime64, np.timedelta64)):
        return value.item() if isinstance(value, np.generic) else value
    if np.isnat(value):
        return None
    if np.datetime_data(value.dtype)[0] in _FINER:
        value = value.astype(f"{value.dtype.kind}8[ns]")
        micros = value.astype(f"{value.dtype.kind}8[us]")
        value = micros if micros == value else value
    plain = value.item()
    return value if isinstance(plain, int) else plain


def _by_key(records: Sequence[Mapping[str, Any] | None], path: Path) -> Iterator[tuple[str, Values]]:
    for key in dict.fromkeys(chain.from_iterable(record for record in records if record is not None)):
        if not isinstance(key, str):
            raise UsageError(
                f"{dotted((*path, str(key)))}: a key of type {type(key).__name__}", "convert it to text"
            )
        yield key, [None if record is None else record.get(key) for record in records]


def _kind(cls: type, path: Path) -> str | None:
    kind = _known_kind(cls)
    if kind == "":
        raise UsageError(
            f"{dotted(path)}: a value of type {cls.__name__} cannot be stored in a table",
            hint="convert it to text",
        )
    return kind


@cache
def _known_kind(cls: type) -> str | None:
    """The kind of a class's values; None if it is no kind of value, empty if no table has such values."""
    if cls.__name__ in _NULLS:
        return None
    return next((kind for kind_class, kind in _KINDS if issubclass(cls, kind_class)), "")


def _exact_kind(value: Any, path: Path) -> str | None:
    """The kind, which depends on the size of whole numbers, and on the zone and precision of moments."""
    kind = _kind(type(value), path)
    if kind == "long":
        return kind if -_LONG <= value < _LONG else "whole" if abs(value) < 10**_DIGITS else "huge"
    if kind == "moment":
        is_fine = isinstance(value, np.datetime64) or getattr(value, "nanosecond", 0) > 0
        name = "instant" if getattr(value, "tzinfo", None) is not None else "moment"
        return f"fine {name}" if is_fine else name
    if kind == "duration":
        is_fine = isinstance(value, np.timedelta64) or getattr(value, "nanoseconds", 0) > 0
        return "fine duration" if is_fine else kind
    return kind


def _of_kinds(values: Values, kinds: Sequence[str | None], path: Path) -> Iterator[TypedValues]:
    for kind in dict.fromkeys(kind for kind in kinds if kind is not None):
        same_kind = [value if k == kind else None for value, k in zip(values, kinds, strict=True)]
        yield from _of_kind(same_kind, kind, path)


def _of_kind(values: Values, kind: str, path: Path) -> list[TypedValues]:
    """The columns of values that are all of one kind, or None."""
    if kind == "record":
        return [_records(values, path)]
    if kind == "list":
        return _lists(values, path)
    if kind == "huge":
        values = [None if value is None else str(value) for value in values]
    try:
        array = pa.array(values, _ARROW[kind], from_pandas=False)
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        raise UsageError(f"{dotted(path)}: {error}", hint="change that value, or drop the field") from error
    return [TypedValues(type_, read(array), overflow) for type_, read, overflow in readings(array.type, path)]


def _records(values: Values, path: Path) -> TypedValues:
    struct, batch = with_columns(
        [(key, columns_of(items, (*path, key))) for key, items in _by_key(values, path)]
    )
    if not struct.fields:
        return TypedValues(
            struct, pa.array([None if value is None else {} for value in values], pa.struct([]))
        )
    fields = [pa.field(f.name, a.type) for f, a in zip(struct.fields, batch.columns, strict=True)]
    mask = pa.array([value is None for value in values])
    return TypedValues(struct, pa.StructArray.from_arrays(batch.columns, fields=fields, mask=mask))


def _lists(values: Values, path: Path) -> list[TypedValues]:
    """The columns of lists: each list has all positions in each column, null where the value is in another
    one.
    """
    sizes = [0 if value is None else len(value) for value in values]
    items = [item for value in values if value is not None for item in value]
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int32))
    mask = pa.array([value is None for value in values])
    return [
        TypedValues(List(type_), pa.ListArray.from_arrays(offsets, array, mask=mask), overflow)
        for type_, array, overflow in columns_of(items, (*path, "element"))
    ]


def _merged(columns: Iterable[TypedValues]) -> list[TypedValues]:
    """Merge the columns of the same type."""
    by_type: dict[Type, TypedValues] = {}
    for column in columns:
        same_type = by_type.get(column.type)
        if same_type is None:
            by_type[column.type] = column
        else:
            array = pc.coalesce(same_type.array, column.array)
            by_type[column.type] = TypedValues(column.type, array, same_type.overflow and column.overflow)
    return list(by_type.values())
