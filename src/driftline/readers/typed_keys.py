"""Keys of messages as columns, beside values that are typed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import json
from numpy.typing import NDArray

from driftline.convert.declared import VOID
from driftline.convert.types import arrow_field, arrow_type
from driftline.core.schema.types import BOOLEAN, DOUBLE, LONG, STRING, Field, Struct, Type, decimal
from driftline.core.settings.condition import MESSAGE_KEY
from driftline.readers.columnar.rows import Rows
from driftline.readers.decoders import Wire
from driftline.readers.messages import OWN_KEY, key_text
from driftline.readers.wire import Payloads, UnreadableError
from driftline.readers.wire_values import Alike, RecordKind, WireValues, alike_of

_LONGS = range(-(2**63), 2**63)
_DIGITS = 38  # of the widest decimal


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Keys of one type. ``struct``: the field that has them, which has a column for each branch of a union;
    ``rows``: theirs in a batch of Kafka.
    """

    struct: Struct
    arrays: Sequence[pa.Array]
    rows: Sequence[int]


class MessageKeys:
    """In a task: reads keys, those in the wire format by their schema and others as texts."""

    def __init__(self, wire: Wire) -> None:
        self._wire = replace(wire, keys=True)
        self._framed = WireValues(self._wire)

    def beside(
        self, alike: Sequence[Alike], batch: pa.RecordBatch, *, nulls: bool
    ) -> tuple[list[Alike], Mapping[int, str]]:
        """The values with their messages' keys, by kind, and why others cannot be read, by row.

        ``nulls``: so are null values, which have a key alone.
        """
        columns, wrong = self._read(batch)
        keys = _Keys.of(columns, len(batch))
        of_nulls = _nulls(batch) if nulls else ()
        with_keys: list[Alike] = []
        for some in (*alike, *of_nulls):
            if any(f.name == MESSAGE_KEY for f in some.struct.fields):
                wrong |= dict.fromkeys(some.places, OWN_KEY)
            else:
                with_keys += keys.beside(some, batch)
        rows = {row for some in (*alike, *of_nulls) for row in some.places}
        return with_keys, {row: why for row, why in wrong.items() if row in rows}

    def _read(self, batch: pa.RecordBatch) -> tuple[list[KeyColumns], dict[int, str]]:
        keys = batch.column("key")
        is_framed = Payloads.of(keys).schemas >= 0
        framed, unreadable = self._framed.read(batch, pc.if_else(pa.array(is_framed), keys, None))
        texts = keys.to_pylist()
        wrong = {row: f"the message's key: {why}" for row, why in unreadable.items()}
        values: dict[Type, tuple[list[int], list[Any]]] = defaultdict(lambda: ([], []))
        for row in np.flatnonzero(~is_framed).tolist():
            try:
                type_, value = _typed_key(texts[row])
            except UnreadableError as error:
                wrong[row] = str(error)
                continue
            rows, some = values[type_]
            rows.append(row)
            some.append(value)
        plain = [
            KeyColumns(Struct((Field(MESSAGE_KEY, type_),)), [pa.array(some, arrow_type(type_))], rows)
            for type_, (rows, some) in values.items()
        ]
        return [*map(self._columns, framed), *plain], wrong

    def _columns(self, keys: Alike) -> KeyColumns:
        """Keys in the wire format: of Avro all types that the schema has for them, of Protobuf a message."""
        fields, arrays = keys.struct.fields, keys.rows.batch.columns
        if self._wire.format == "avro":
            named = Struct(tuple(replace(f, name=MESSAGE_KEY) for f in fields))
            return KeyColumns(named, arrays, keys.places)
        message = pa.StructArray.from_arrays(arrays, fields=[arrow_field(f) for f in fields])
        return KeyColumns(Struct((Field(MESSAGE_KEY, keys.struct),)), [message], keys.places)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a batch. ``group``: of each row, the number of its columns, -1 for a key that cannot be
    read; ``place``: its place in these.
    """

    columns: Sequence[KeyColumns]
    group: NDArray[np.int64]
    place: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Sequence[KeyColumns], count: int) -> _Keys:
        group, place = np.full(count, -1), np.zeros(count, np.int64)
        for number, some in enumerate(columns):
            group[some.rows], place[some.rows] = number, np.arange(len(some.rows))
        return cls(columns, group, place)

    def beside(self, values: Alike, batch: pa.RecordBatch) -> Iterator[Alike]:
        """The values with their keys, a kind for each type of these."""
        places = np.asarray(values.places, np.int64)
        groups = self.group[places]
        for number in np.unique(groups[groups >= 0]).tolist():
            chosen, keys = np.flatnonzero(groups == number), self.columns[number]
            rows = places[chosen]
            arrays = [
                *(array.take(pa.array(self.place[rows])) for array in keys.arrays),
                *(array.take(pa.array(chosen)) for array in values.rows.batch.columns),
            ]
            struct = Struct((*keys.struct.fields, *values.struct.fields))
            key = values.key._replace(keys=keys.struct)
            yield alike_of(key, struct, arrays, rows.tolist(), batch)


def _nulls(batch: pa.RecordBatch) -> list[Alike]:
    """The null values of a batch, by topic: records without fields."""
    rows = np.flatnonzero(batch.column(0).is_null().to_numpy(zero_copy_only=False))
    topics = batch.column(1).take(pa.array(rows)).to_pylist()
    empty = Rows(pa.RecordBatch.from_arrays([], []), "")
    return [
        Alike(
            RecordKind(topic, 0, "", null=True),
            Struct(()),
            empty,
            [r for r, t in zip(rows.tolist(), topics, strict=True) if t == topic],
        )
        for topic in dict.fromkeys(topics)
    ]


def _typed_key(key: bytes | None) -> tuple[Type, Any]:
    """The type and the value of a key that is a text. Raises UnreadableError.

    >>> _typed_key(b'{"id": 7}')[1], str(_typed_key(b'{"id": 7}')[0])
    ({'id': 7}, 'struct<id: long>')
    """
    value = _decode(key_text(key))
    return _type_of(value), value


def _double(text: str) -> float:
    if Decimal(text) != Decimal(repr(float(text))):
        raise UnreadableError(f"the message's key has the number {text}, which is no double")
    return float(text)


_decode = json.Decoder(float_hook=_double).decode


def _type_of(value: Any) -> Type:
    match value:
        case None:
            return VOID
        case bool():
            return BOOLEAN
        case int() if value in _LONGS:
            return LONG
        case int() if abs(value) < 10**_DIGITS:
            return decimal(_DIGITS, 0)
        case float():
            return DOUBLE
        case str():
            return STRING
        case dict() if value:
            return Struct(tuple(Field(name, _type_of(member)) for name, member in value.items()))
    raise UnreadableError("the message's key has a list, nothing at all, or more digits than a column")
