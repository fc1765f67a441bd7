"""Converts columns of any Arrow type to columns of table types (rules 2.3), each value unchanged.

A type without a single equivalent becomes several: a timestamp in nanoseconds is a timestamp, and text where
it is finer than a microsecond. Such a key occurs several times in the struct, and each of its values is in
one of the columns, which all have the same lists.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.kernels import decimal_text, nulls_of, time_text
from driftline.convert.leaves import scattered
from driftline.convert.types import arrow_type
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UUID,
    VARIANT,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Struct,
    Type,
    decimal,
    dotted,
)
from driftline.errors import DataError, UsageError

OVERFLOW = "overflow"  # the doc of a field whose type counts only where it has values
VOID = Primitive("void")  # the type of a column that only has nulls
_DIGITS = 38  # of the largest decimal

Read: TypeAlias = Callable[[pa.Array], pa.Array]


class LeafReading(NamedTuple):
    """A type of a column, and the function that reads its values of this type.

    Attributes:
        overflow: the type is for values that the column's own type does not hold.
    """

    type: Type
    read: Read
    overflow: bool = False

    def field(self, name: str) -> Field:
        """A field of the type."""
        return Field(name, self.type, doc=OVERFLOW if self.overflow else None)


def leaf_readings(type_: pa.DataType, path: Path) -> Iterator[LeafReading]:
    """The readings of a type. Raises UsageError for one that no table has."""
    for is_type, plain in _PLAIN:
        if is_type(type_):
            yield _cast_to(plain)
            return
    if pa.types.is_null(type_):
        yield LeafReading(VOID, lambda a: a)
    elif pa.types.is_date64(type_):
        yield LeafReading(DATE, lambda a: _where_whole(a, whole_days=True).cast(arrow_type(DATE)))
        # Arrow's date64 counts milliseconds, and nothing keeps a writer from moments within a day.
        yield LeafReading(TIMESTAMP_NTZ, lambda a: _where_whole(a, whole_days=False), overflow=True)
    elif pa.types.is_timestamp(type_):
        yield from _of_timestamp(type_)
    elif pa.types.is_time(type_) or pa.types.is_duration(type_):
        # No table has durations, a number does not say its unit, and libraries of frames count in several.
        yield LeafReading(STRING, time_text)
    elif pa.types.is_decimal(type_):
        yield from _of_decimal(type_)
    else:
        raise UsageError(
            f"{dotted(path)}: type {type_} cannot be stored in a table", hint="cast or drop the column"
        )


def _cast_to(plain: Primitive) -> LeafReading:
    # Bytes that are read as text, and are not UTF-8, are seen in the row that has them.
    return LeafReading(plain, lambda a: a.cast(arrow_type(plain), safe=plain != STRING))


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Primitive], ...] = (
    (pa.types.is_boolean, BOOLEAN),
    (pa.types.is_uint32, LONG),
    (pa.types.is_int64, LONG),
    # The widest of these numbers has twenty digits, which no long holds.
    (pa.types.is_uint64, decimal(20, 0)),
    (pa.types.is_integer, INT),
    (pa.types.is_float64, DOUBLE),
    (pa.types.is_floating, FLOAT),
    (pa.types.is_date32, DATE),
    (lambda t: t in (pa.string(), pa.large_string(), pa.string_view()), STRING),
    (lambda t: t in (pa.binary(), pa.large_binary(), pa.binary_view()), BINARY),
    (pa.types.is_fixed_size_binary, BINARY),
)


def _of_timestamp(type_: pa.TimestampType) -> Iterator[LeafReading]:
    plain = TIMESTAMP_NTZ if type_.tz is None else TIMESTAMP
    if type_.unit == "us":
        yield _cast_to(plain)
    elif type_.unit == "ns":
        yield LeafReading(plain, lambda a: _whole_micros(a, plain))
        yield LeafReading(STRING, lambda a: _finer(a, plain), overflow=True)
    else:
        # Seconds and milliseconds reach further than microseconds, in which all tables count.
        yield LeafReading(plain, lambda a: _near(a, plain))
        yield LeafReading(STRING, lambda a: _far(a, plain), overflow=True)


def _where_whole(days: pa.Array, *, whole_days: bool) -> pa.Array:
    """Read days that are counted in milliseconds: the midnights among them, or else the other moments."""
    millis = days.cast(pa.int64())
    midnights = pc.multiply(pc.divide(millis, _DAY), _DAY)
    chosen = pc.equal(millis, midnights) if whole_days else pc.not_equal(millis, midnights)
    moments = millis.cast(pa.timestamp("ms")).cast(arrow_type(TIMESTAMP_NTZ))
    return pc.if_else(chosen, moments, pa.scalar(None, moments.type))


_DAY = 86_400_000  # milliseconds
_MICROS = {"s": 10**6, "ms": 10**3}


def _is_far(values: pa.Array) -> NDArray[np.bool_]:
    """Flag moments that microseconds cannot reach, some 290,000 years from 1970."""
    most = (2**63 - 1) // _MICROS[values.type.unit]
    units = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    far: NDArray[np.bool_] = (units > most) | (units < -most)
    return far


def _near(values: pa.Array, plain: Primitive) -> pa.Array:
    far = _is_far(values)
    near = pc.if_else(pa.array(far), pa.scalar(None, values.type), values) if far.any() else values
    return near.cast(pa.timestamp("us", values.type.tz)).cast(arrow_type(plain))


def _far(values: pa.Array, plain: Primitive) -> pa.Array:
    """The text of values too far away for a timestamp."""
    far = np.flatnonzero(_is_far(values))
    units = values.take(pa.array(far)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    zone = "Z" if plain == TIMESTAMP else ""
    # numpy prints any year; Arrow's own cast to text ends at those of microseconds.
    texts = [f"{moment}{zone}" for moment in units.view(f"datetime64[{values.type.unit}]")]
    return scattered(len(values), [(far, pa.array(texts, pa.string()))], pa.string())


def _whole_micros(values: pa.Array, plain: Primitive) -> pa.Array:
    if values.type.unit == "us":  # a reader knows that none is finer
        return values.cast(arrow_type(plain))
    nanos = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    micros = pa.array(nanos // 1000, pa.int64(), mask=nulls_of(values) | (nanos % 1000 != 0))
    return micros.cast(arrow_type(plain))


def _finer(values: pa.Array, plain: Primitive) -> pa.Array:
    """The text, of nine digits, of values finer than a microsecond."""
    if values.type.unit == "us":
        return pa.nulls(len(values), pa.string())
    nanos = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    finer = nanos % 1000 != 0
    if not finer.any():
        return pa.nulls(len(values), pa.string())
    text = pc.replace_substring(
        values.cast(pa.timestamp("ns")).cast(pa.string()), " ", "T", max_replacements=1
    )
    text = pc.binary_join_element_wise(text, "Z", "") if plain == TIMESTAMP else text
    return pc.if_else(pa.array(finer), text, pa.scalar(None, pa.string()))


def _of_decimal(type_: Any) -> Iterator[LeafReading]:
    integer_digits, scale = type_.precision - type_.scale, max(type_.scale, 0)
    if integer_digits + scale <= _DIGITS:
        yield _cast_to(decimal(integer_digits + scale, scale))
        return
    # More digits than a table's decimal has: numbers go to the widest decimal of their scale, and
    # those beyond it become text.
    if scale <= _DIGITS:
        widest = decimal(_DIGITS, scale)
        yield LeafReading(
            widest, lambda a: _numbers(a, arrow_type(widest), lambda d: d if _fits(d, scale) else None)
        )
    yield LeafReading(
        STRING,
        lambda a: _numbers(a, pa.string(), lambda d: None if _fits(d, scale) else decimal_text(d)),
        overflow=scale <= _DIGITS,
    )


def _numbers(values: pa.Array, type_: pa.DataType, read: Callable[[Decimal], Any]) -> pa.Array:
    return pa.array([None if d is None else read(d) for d in values.to_pylist()], type_)


def _fits(number: Decimal, scale: int) -> bool:
    return scale <= _DIGITS and number.copy_abs() < Decimal(10) ** (_DIGITS - scale)


Leaves: TypeAlias = Callable[[pa.DataType, Path], Iterable[LeafReading]]


class Declared:
    """The columns of an Arrow schema.

    ``struct``: their types, by key; ``leaves``: the readings of types with nothing inside. Raises UsageError
    for a type that no table has, with its path, and for two columns of one name.

    >>> Declared(pa.schema({"at": pa.timestamp("ns"), "n": pa.uint8()})).struct.fields[-1].type
    Primitive(name='int', args=())
    """

    def __init__(self, schema: pa.Schema, leaves: Leaves = leaf_readings) -> None:
        _all_different(schema, ())
        self.schema, self.leaves = schema, leaves
        self._readings = [(n, f.name, r) for n, f in enumerate(schema) for r in _readings_of(f, leaves)]
        self.struct = Struct(tuple(reading.field(name) for _, name, reading in self._readings))

    def read(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Read the ``columns`` of the schema as those of the struct.

        Raises DataError for values that cannot be read, with their column.
        """
        arrays = []
        for number, name, reading in self._readings:
            try:
                arrays.append(reading.read(columns[number]))
            except pa.ArrowException as error:
                raise DataError(
                    f"{dotted((name,))}: {columns[number].type} has a value that cannot be read: {error}",
                    hint="cast or drop the column",
                ) from error
        return pa.RecordBatch.from_arrays(arrays, [f.name for f in self.struct.fields])


def _all_different(fields: Iterable[pa.Field], path: Path) -> None:
    counts = Counter(f.name for f in fields)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        where = f"{dotted(path)}: " if path else ""
        raise UsageError(f"{where}two columns are named {twice[0]!r}", hint="rename one of them")


def entries_of(maps: pa.Array) -> pa.Array:
    """Maps as lists of structs, of a key and a value each."""
    if _has_nulls(maps.type):
        # Arrow's cast leaves too few values of the null type, at any depth.
        # A copy, as Arrow takes no slice with a mask
        offsets = pa.array(maps.offsets.to_numpy())
        pairs = pa.StructArray.from_arrays([maps.keys, maps.items], names=["key", "value"])
        return pa.ListArray.from_arrays(offsets, pairs, mask=maps.is_null() if maps.null_count else None)
    # Below a null struct a field that is never null has one: such a type cannot be cast to itself.
    key, item = (_nullable(type_) for type_ in (maps.type.key_type, maps.type.item_type))
    return maps.cast(pa.list_(pa.struct([pa.field("key", key), pa.field("value", item)])))


def _has_nulls(type_: pa.DataType) -> bool:
    types = (type_.field(i).type for i in range(type_.num_fields))
    return pa.types.is_null(type_) or any(map(_has_nulls, types))


def _nullable(type_: pa.DataType) -> pa.DataType:
    """The type with nullable fields, at any depth."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, _nullable(f.type)) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(_nullable(type_.value_type))
    if pa.types.is_large_list(type_):
        return pa.large_list(_nullable(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_nullable(type_.key_type), _nullable(type_.item_type))
    return type_


def _readings_of(field: pa.Field, leaves: Leaves) -> Iterator[LeafReading]:
    """The readings of a column, whose field may name an extension type that this process does not know."""
    name, parameters = (
        (field.metadata or {}).get(f"ARROW:extension:{part}".encode(), b"").decode()
        for part in ("name", "metadata")
    )
    if name in _OF_PANDAS:
        yield from _OF_PANDAS[name](field.type, parameters, (field.name,), leaves)
    else:
        yield from readings(field.type, (field.name,), leaves)


def _of_period(type_: pa.DataType, parameters: str, path: Path, leaves: Leaves) -> Iterator[LeafReading]:
    """Periods of pandas: numbers that mean nothing without their frequency, so they are text."""
    from pandas import Period, PeriodIndex

    try:
        frequency = Period(ordinal=0, freq=json.loads(parameters)["freq"]).freq
    except (ValueError, TypeError, KeyError):
        yield from readings(type_, path, leaves)
        return

    def texts(ordinals: pa.Array) -> pa.Array:
        """The texts of periods."""
        numbers = ordinals.fill_null(0).to_numpy(zero_copy_only=False)
        spelled = PeriodIndex.from_ordinals(numbers, freq=frequency).astype(str)
        return pa.array(spelled.to_numpy(object), pa.string(), mask=nulls_of(ordinals))

    yield LeafReading(STRING, texts)


def _of_interval(type_: pa.StructType, parameters: str, path: Path, leaves: Leaves) -> Iterator[LeafReading]:
    """Intervals of pandas: records of both ends, and of which belong to it."""
    try:
        closed = str(json.loads(parameters)["closed"])
    except (ValueError, TypeError, KeyError):
        yield from readings(type_, path, leaves)
        return
    whole = pa.struct([*type_, pa.field("closed", pa.string())])

    def with_closed(ends: pa.Array) -> pa.Array:
        """The records with what the type says."""
        arrays = [*(ends.field(i) for i in range(type_.num_fields)), pa.repeat(closed, len(ends))]
        return pa.StructArray.from_arrays(arrays, fields=list(whole), mask=ends.is_null())

    yield from _after(with_closed, [_of_struct(whole, path, leaves)])


_OF_PANDAS = {"pandas.period": _of_period, "pandas.interval": _of_interval}


def readings(type_: pa.DataType, path: Path, leaves: Leaves = leaf_readings) -> Iterator[LeafReading]:
    """The types of a column of an Arrow type, and the reading of each.

    Raises UsageError for a type that no table has.
    """
    if isinstance(type_, pa.BaseExtensionType):
        if type_.extension_name == "arrow.uuid":
            yield LeafReading(UUID, lambda a: a.storage)
        elif type_.extension_name in _OF_PANDAS:
            parameters = type_.__arrow_ext_serialize__().decode()
            of_storage = _OF_PANDAS[type_.extension_name](type_.storage_type, parameters, path, leaves)
            yield from _after(lambda a: a.storage, of_storage)
        else:
            yield from _after(lambda a: a.storage, readings(type_.storage_type, path, leaves))
    elif pa.types.is_dictionary(type_):
        yield from _after(_decoded, readings(_plain_text(type_.value_type), path, leaves))
    elif pa.types.is_run_end_encoded(type_):
        yield from _after(pc.run_end_decode, readings(type_.value_type, path, leaves))
    elif pa.types.is_struct(type_):
        yield LeafReading(VARIANT, _variants) if _is_variant(type_) else _of_struct(type_, path, leaves)
    elif pa.types.is_map(type_):
        yield from _of_map(type_, path, leaves)
    elif _is_list(type_):
        for type_of, read, overflow in readings(type_.value_type, (*path, "element"), leaves):
            yield LeafReading(List(type_of), partial(_relisted, read=read), overflow)
    else:
        yield from leaves(type_, path)


def _plain_text(type_: pa.DataType) -> pa.DataType:
    """The plain type of texts: Arrow decodes no dictionary of views."""
    if type_ == pa.string_view():
        return pa.string()
    return pa.binary() if type_ == pa.binary_view() else type_


def _decoded(values: pa.DictionaryArray) -> pa.Array:
    words = values.dictionary.cast(_plain_text(values.dictionary.type))
    # A struct that is null may have a place in it all the same
    if not len(words):
        return pa.nulls(len(values), words.type)
    return pa.DictionaryArray.from_arrays(values.indices, words).dictionary_decode()


def _is_variant(type_: pa.StructType) -> bool:
    """True if Spark marks the struct as one of its VARIANTs."""
    return any((f.metadata or {}).get(b"variant") == b"true" for f in type_)


def _variants(values: pa.Array) -> pa.Array:
    fields = list(arrow_type(VARIANT))
    return pa.StructArray.from_arrays(
        [values.field(f.name) for f in fields], fields=fields, mask=values.is_null()
    )


def _after(decode: Read, readings: Iterable[LeafReading]) -> Iterator[LeafReading]:
    """Readings that decode their values first."""
    for type_, read, overflow in readings:
        yield LeafReading(type_, partial(_both, decode, read), overflow)


def _both(first: Read, then: Read, values: pa.Array) -> pa.Array:
    return then(first(values))


def _is_list(type_: pa.DataType) -> bool:
    kinds = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(is_kind(type_) for is_kind in kinds)


def _items(lists: pa.Array) -> pa.Array:
    """The elements of lists.

    Where all are null, Arrow's `flatten` makes an array of none, and knows none of structs with a UUID.
    """
    return lists.values[:0] if lists.null_count == len(lists) else lists.flatten()


def _relisted(lists: pa.Array, read: Read) -> pa.Array:
    items = read(_items(lists))
    offsets = np.zeros(len(lists) + 1, np.int32)
    # Offsets are made from the lengths: a slice or a view of lists need not begin at 0 nor be in order.
    np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), out=offsets[1:])
    mask = lists.is_null() if lists.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=mask)


def _of_struct(type_: pa.StructType, path: Path, leaves: Leaves) -> LeafReading:
    _all_different(type_, path)
    fields = [(f.name, [*readings(f.type, (*path, f.name), leaves)]) for f in type_]
    struct = Struct(
        tuple(reading.field(name) for name, field_readings in fields for reading in field_readings)
    )

    def read(structs: pa.Array) -> pa.Array:
        arrays = [
            reading.read(structs.field(i))
            for i, (_, field_readings) in enumerate(fields)
            for reading in field_readings
        ]
        if not arrays:
            return pa.array([None if null else {} for null in nulls_of(structs)], pa.struct([]))
        named = [pa.field(f.name, a.type) for f, a in zip(struct.fields, arrays, strict=True)]
        mask = structs.is_null() if structs.null_count else None
        return pa.StructArray.from_arrays(arrays, fields=named, mask=mask)

    return LeafReading(struct, read)


def _of_map(type_: pa.MapType, path: Path, leaves: Leaves) -> Iterator[LeafReading]:
    """Maps with plain keys as maps; others as lists of records with a key and a value."""
    keys = [*readings(type_.key_type, (*path, "key"), leaves)]
    values = [*readings(type_.item_type, (*path, "value"), leaves)]
    # There is no format whose maps all engines read with such keys.
    if len(keys) > 1 or not isinstance(keys[0].type, Primitive):
        record = _of_struct(pa.struct({"key": type_.key_type, "value": type_.item_type}), path, leaves)
        yield LeafReading(List(record.type), lambda a: _relisted(entries_of(a), record.read))
        return
    (key,) = keys
    for value in values:
        yield LeafReading(Map(key.type, value.type), partial(_remapped, key=key, value=value), value.overflow)


def _remapped(maps: pa.Array, key: LeafReading, value: LeafReading) -> pa.Array:
    entries = entries_of(maps)
    flat = _items(entries)
    keys, items = key.read(flat.field(0)), value.read(flat.field(1))
    lists = _relisted(entries, lambda _: pa.array(np.arange(len(flat))))
    pairs = pa.StructArray.from_arrays(
        [keys, items], fields=[pa.field("key", keys.type, nullable=False), pa.field("value", items.type)]
    )
    return pa.Array.from_buffers(
        pa.map_(keys.type, items.type), len(maps), lists.buffers()[:2], lists.null_count, 0, [pairs]
    )
