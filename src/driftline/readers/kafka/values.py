"""Decodes Kafka values by the schemas of a registry: Avro, Protobuf and JSON Schema."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException, parse_schema

from driftline.core.schema.types import Struct
from driftline.errors import SetupError, UsageError
from driftline.readers.avro.binary import RecordReader, UnfitError, reader_of
from driftline.readers.avro.nodes import RecordNode, UnionNode
from driftline.readers.avro.values import marked, node_of
from driftline.readers.columnar.rows import Rows
from driftline.readers.kafka.registry import NoSchemaError, Registered, Registry
from driftline.readers.kafka.wire import Payloads, UnreadableError, Whole, WireDecoder, framed
from driftline.readers.rejects import Origin

T = TypeVar("T")
# The record around a value, so that it may be a union; without a namespace
_TOP = "__top__"


def around_values(
    registered: Registered, prepare: Callable[[Any], Any] = lambda schema: schema
) -> tuple[Any, dict[str, Any]]:
    """A record schema whose field ``value`` has the registered one, and all named types in it.

    Args:
        prepare: applied to each schema before it is parsed.
    """
    named: dict[str, Any] = {}
    # References first: the schema may name their types.
    for reference in registered.references.values():
        parse_schema(prepare(json.loads(reference.text)), named)
    field = {"name": "value", "type": prepare(json.loads(registered.text))}
    return parse_schema({"type": "record", "name": _TOP, "fields": [field]}, named), named


def whole_value(payload: bytes, read: Callable[[io.BytesIO], T]) -> T:
    """Read a payload to its end. Raises UnreadableError."""
    file = io.BytesIO(payload)
    try:
        value = read(file)
    except Exception as error:  # whatever hostile bytes lead a reader into
        raise UnreadableError(f"invalid Avro for its schema: {str(error) or type(error).__name__}") from error
    # Avro read by a wrong schema often yields values; what is left over is the only sign.
    if unread := len(payload) - file.tell():
        raise UnreadableError(f"invalid Avro for its schema: {unread} bytes follow the record")
    return value


class AvroDecoder:
    """Reads values of an Avro schema. Raises UsageError for one that a table cannot have.

    Args:
        keys: the values are keys, which may be plain; each comes as the only field of a record.
    """

    def __init__(self, schema: Registered, *, keys: bool = False) -> None:
        self._schema: Any = None
        try:
            self._schema, named = around_values(schema, marked)
            top = self._schema if keys else self._schema["fields"][0]["type"]
            node = node_of(top, named)
        except RecursionError as error:
            raise UsageError("its schema is nested too deeply") from error
        except (SchemaParseException, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"invalid Avro schema: {type(error).__name__}: {error}") from error
        branches = node.branches if isinstance(node, UnionNode) else (node,)
        records = [branch for branch in branches if isinstance(branch, RecordNode)]
        if len(records) < len(branches):
            raise UsageError("its values are not records")
        self.nodes = {branch.name: branch for branch in records}
        self._only, self._keys = records[0].name, keys
        self._reader: RecordReader | None = None
        # Without a reader of whole columns, records are read one by one.
        with suppress(UnfitError, RecursionError):
            self._reader = reader_of(top, named)

    def whole(self, payloads: Payloads) -> Whole | None:
        """Read all payloads as columns; None if records of this schema are read one by one."""
        if self._reader is None:
            return None
        numbers, arrays = self._reader.columns(payloads.data, payloads.starts, payloads.ends)
        return Whole(self._only, self._reader.struct, numbers, arrays)

    def record(self, payload: bytes) -> tuple[str, Mapping[str, Any]]:
        """Read one payload; returns the record's name and fields. Raises UnreadableError."""
        top: Any = whole_value(
            payload, lambda file: schemaless_reader(file, self._schema, None, return_record_name=True)
        )
        if self._keys:
            return self._only, top
        if (value := top["value"]) is None:
            raise UnreadableError("null is not a record")
        return value if type(value) is tuple else (self._only, value)


# Of the formats whose values need their schema
KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF"}


@dataclass(frozen=True, slots=True)
class Wire:
    """The encoding of values, or of ``keys``: a ``format`` of `KINDS`, and the registry of schemas.

    It is sent to tasks.
    """

    format: str
    registry: Registry
    keys: bool = False

    def decoder(self, number: int) -> WireDecoder:
        """The decoder for the schema with this id, made once in a process.

        Raises UnreadableError if there is no such schema, or none that a table can have; SetupError if the
        registry does not answer.
        """
        return self.once(number, Wire._new)

    def once(self, number: int, make: Callable[[Wire, int], T]) -> T:
        """The object that a function makes for the schema with this id, made once in a process.

        An error is not kept: the registry may have the schema later.
        """
        value: T = _made(make, self, number)
        return value

    def schema(self, number: int) -> Registered:
        """The schema with this id. Raises as `decoder` does."""
        kind = KINDS[self.format]
        try:
            schema = self.registry.schema(number)
        except NoSchemaError as error:
            raise UnreadableError(f"the registry has no schema {number}: {error}") from error
        if schema.kind != kind:
            raise UnreadableError(f"schema {number} is {schema.kind}, not {kind}")
        return schema

    def _new(self, number: int) -> WireDecoder:
        schema = self.schema(number)
        try:
            return AvroDecoder(schema, keys=self.keys) if self.format == "avro" else _protobuf(schema)
        except UsageError as error:
            raise UnreadableError(f"schema {number}: {error.message}") from error


@cache  # an id's schema never changes
def _made(make: Callable[[Wire, int], Any], wire: Wire, number: int) -> Any:
    return make(wire, number)


def _protobuf(schema: Registered) -> WireDecoder:
    try:
        from driftline.readers.kafka.protobuf import ProtobufDecoder
    except ImportError as error:  # it comes with an extra
        raise SetupError("Protobuf needs its runtime.", "pip install 'driftline[registry]'") from error
    return ProtobufDecoder(schema)


class RecordKind(NamedTuple):
    """The traits that records of one kind share: their topic, the id of their schema and the record's name.

    Attributes:
        keys: the types of their messages' keys, where these are read.
        null: their values are null.
    """

    topic: str
    schema: int
    name: str
    keys: Struct | None = None
    null: bool = False


Records: TypeAlias = tuple[list[int], list[Mapping[str, Any]]]  # by their rows in a batch of Kafka
# What Arrow raises for values of no column
_WRONG = (
    pa.ArrowException,
    ValueError,
    TypeError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class Alike:
    """Records of one kind.

    Attributes:
        places: their rows in the batch of Kafka.
    """

    key: RecordKind
    struct: Struct
    rows: Rows
    places: Sequence[int]


class WireValues:
    """In a task: decodes values of one format."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._decoders: dict[int, WireDecoder | UnreadableError] = {}

    def read(self, batch: pa.RecordBatch, values: pa.Array) -> tuple[list[Alike], Mapping[int, str]]:
        """The records among the ``values`` of a batch of Kafka's, by kind, and why others are none, by row.

        A null is neither.
        """
        records, unread = self._whole(batch, values)
        single, unreadable = self._single(batch, values, unread)
        return records + single, unreadable

    def _whole(self, batch: pa.RecordBatch, values: pa.Array) -> tuple[list[Alike], Sequence[int]]:
        """The records that are read at once, and the rows that are not."""
        topics = batch.column(1).dictionary_encode()
        payloads, codes = Payloads.of(values), topics.indices.to_numpy()
        unread = values.is_valid().to_numpy(zero_copy_only=False).copy()
        alike = []
        # One number for each pair of a schema and a topic; below 0 for values without a schema.
        kinds = payloads.schemas * len(topics.dictionary) + codes
        for kind in np.unique(kinds[unread & (payloads.schemas >= 0)]).tolist():
            number, code = divmod(kind, len(topics.dictionary))
            rows = np.flatnonzero(unread & (kinds == kind))
            with suppress(UnreadableError):  # which is said of each of them
                read = self._decoder(number).whole(payloads.some(rows))
                if read is not None and len(read.numbers):
                    rows = rows[read.numbers]
                    unread[rows] = False
                    key = RecordKind(topics.dictionary[code].as_py(), number, read.name)
                    alike.append(alike_of(key, read.struct, read.arrays, rows.tolist(), batch))
        return alike, np.flatnonzero(unread).tolist()

    def _single(
        self, batch: pa.RecordBatch, values: pa.Array, rows: Sequence[int]
    ) -> tuple[list[Alike], dict[int, str]]:
        """The records of these rows, read one by one, and the reasons of those that are none."""
        some_values, topics = (
            column.take(pa.array(rows, pa.int64())).to_pylist() for column in (values, batch.column(1))
        )
        records: dict[RecordKind, Records] = defaultdict(lambda: ([], []))
        unreadable: dict[int, str] = {}
        for row, value, topic in zip(rows, some_values, topics, strict=True):
            try:
                number, payload = framed(value)
                decoder = self._decoder(number)
                name, record = decoder.record(payload)
                if not decoder.nodes[name].nodes:
                    raise UnreadableError(f"{name} has no fields")
            except UnreadableError as error:
                unreadable[row] = str(error)
                continue
            places, some = records[RecordKind(topic, number, name)]
            places.append(row)
            some.append(record)
        alike = []
        for key, (places, some) in records.items():
            node = self._decoder(key.schema).nodes[key.name]
            arrays, wrong = _arrays(node, some)
            unreadable |= {places[i]: why for i, why in wrong.items()}
            places = [row for i, row in enumerate(places) if i not in wrong]
            alike.append(alike_of(key, node.struct, arrays, places, batch))
        return alike, unreadable

    def _decoder(self, number: int) -> WireDecoder:
        if number not in self._decoders:
            try:
                self._decoders[number] = self._wire.decoder(number)
            except UnreadableError as error:
                # Kept for this task alone: else each of its records would ask the registry again.
                self._decoders[number] = error
        decoder = self._decoders[number]
        if isinstance(decoder, UnreadableError):
            raise decoder
        return decoder


def alike_of(
    key: RecordKind, struct: Struct, arrays: Sequence[pa.Array], places: Sequence[int], batch: pa.RecordBatch
) -> Alike:
    """Records of one kind: columns, and the rows of a batch of Kafka's that these are of."""
    columns = pa.RecordBatch.from_arrays(arrays, [f.name for f in struct.fields])
    rows = Rows(columns, key.topic, origin=lambda number: origin_of(batch, places[number]))
    return Alike(key, struct, rows, places)


def origin_of(batch: pa.RecordBatch, row: int) -> Origin:
    """The origin of a row of Kafka's."""
    topic, partition, offset = (batch.column(i)[row].as_py() for i in range(1, 4))
    key = batch.column("key")[row].as_py() if "key" in batch.schema.names else None
    return Origin(topic=topic, partition=partition, offset=offset, key=key)


def _arrays(
    node: RecordNode, records: Sequence[Mapping[str, Any]]
) -> tuple[list[pa.Array], Mapping[int, str]]:
    """The columns of those records that have some; and why others have not."""
    try:
        return node.columns(records), {}
    except _WRONG:
        # Arrow does not say which record it refuses, so each is tried alone.
        wrong: dict[int, str] = {}
    for i, record in enumerate(records):
        try:
            node.columns([record])
        except _WRONG as error:
            wrong[i] = f"no column can have it: {error}"
    return node.columns([record for i, record in enumerate(records) if i not in wrong]), wrong
