"""Converts Avro values to columns of table types (rules 2.3); union branches are types of one key.

Values are as fastavro reads them with `return_record_name`: a record in a union comes with its name. Those of
a logical type stay the numbers, bytes and texts that were written, since Python's dates end at the years 1
and 9999; `marked` makes the reader say which type they are of.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from io import BytesIO
from struct import unpack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from fastavro import schemaless_reader
from fastavro.read import LOGICAL_READERS

from driftline.convert.declared import VOID, LeafReading, Leaves, leaf_readings
from driftline.convert.kernels import decimal_text
from driftline.convert.types import arrow_type
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    UUID,
    Field,
    Path,
    Primitive,
    Type,
    decimal,
    dotted,
)
from driftline.errors import UsageError
from driftline.readers.avro.nodes import LeafNode, ListNode, MapNode, Node, RecordNode, UnionNode, text_array

# Before the name of a logical type whose values are read as they were written
_MARK = "driftline-"
_DIGITS = 38  # of the largest decimal


def node_of(schema: Any, named: Mapping[str, Any] | None = None) -> Node:
    """The node that turns the values of a schema into columns.

    Args:
        schema: as fastavro has parsed it after `marked`.
        named: the types it refers to.

    Raises UsageError for a recursive type, with its path.
    """
    return _Schema(named or {}, leaf_readings, LeafNode).node(schema, ())


def columns_of(
    schema: Mapping[str, Any], leaves: Leaves = leaf_readings, *, roomy: bool = False
) -> RecordNode:
    """The node of a file's records.

    Args:
        schema: As fastavro has parsed it after `marked`.
        leaves: The readings of dates and times, by the calendar of the file.
        roomy: Numbers have room for digits beyond their types, so that every record has columns.

    Raises:
        UsageError: Its values are not records, or a type is recursive.
    """
    node = _Schema({}, leaves, None if roomy else DecimalNode).node(schema, ())
    if not isinstance(node, RecordNode):
        raise UsageError("its values are not records", hint="an Avro file must hold records")
    return node


_PLAIN: dict[str, LeafNode] = {
    "null": LeafNode(VOID, ()),
    "boolean": LeafNode(BOOLEAN, (bool,)),
    "int": LeafNode(INT, (int,)),
    "long": LeafNode(LONG, (int,)),
    "float": LeafNode(FLOAT, (float,)),
    "double": LeafNode(DOUBLE, (float,)),
    "string": LeafNode(STRING, (str,)),
    "enum": LeafNode(STRING, (str,)),
    "bytes": LeafNode(BINARY, (bytes,)),
    "fixed": LeafNode(BINARY, (bytes,)),
}
_WIDER: dict[Type, Type] = {INT: LONG, FLOAT: DOUBLE}


# Logical types -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogicalNode:
    """Values of a logical type, read by the rules of an Arrow type.

    Attributes:
        kinds: the class that marks them.
        type: Arrow's.
        turn: what Arrow takes of one.
    """

    kinds: tuple[type, ...]
    type: pa.DataType
    readings: tuple[LeafReading, ...]
    turn: Callable[[Any], Any] | None = None

    def fields(self, key: str) -> list[Field]:
        """A field for each type that the values may have."""
        return [reading.field(key) for reading in self.readings]

    def arrays(self, values: Sequence[Any]) -> list[pa.Array]:
        """An array for each field."""
        if self.turn is not None:
            values = [None if value is None else self.turn(value) for value in values]
        if pa.types.is_temporal(self.type):
            return self.of_counts(pa.array(values, pa.int32() if self.type.bit_width == 32 else pa.int64()))
        array = text_array(values) if self.type == pa.string() else pa.array(values, self.type)
        return [reading.read(array) for reading in self.readings]

    def of_counts(self, counts: pa.Array) -> list[pa.Array]:
        """The arrays for days or times as they are counted."""
        return [reading.read(counts.view(self.type)) for reading in self.readings]

    def takes(self, value: Any) -> bool:
        """True if the value is marked as one of this type."""
        return type(value) in self.kinds


def _kind(base: type) -> type:
    """Make a class for the values of one logical type, so that a union's value shows its branch."""

    def new(cls: type, value: Any, *_: Any) -> Any:
        return base.__new__(cls, value)

    return type(base.__name__, (base,), {"__slots__": (), "__new__": new})


_COUNTED: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{local}timestamp-{name}"): pa.timestamp(unit, None if local else "UTC")
        for local in ("", "local-")
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
_SIZES = {"uuid": 16, "duration": 12}  # bytes of a fixed type
_KINDS: Mapping[tuple[str, str], type] = {
    **{key: _kind(int) for key in _COUNTED},
    ("string", "uuid"): _kind(str),
    **{
        key: _kind(bytes)
        for key in (
            ("fixed", "uuid"),
            ("fixed", "duration"),
            ("bytes", "decimal"),
            ("fixed", "decimal"),
            ("bytes", "big-decimal"),
        )
    },
}
LOGICAL_READERS.update({f"{base}-{_MARK}{name}": kind for (base, name), kind in _KINDS.items()})


def marked(schema: Any, unknown: set[str] | None = None) -> Any:
    """The schema with a mark on each logical type that its base may have, and no other logical type.

    Args:
        unknown: gets a sentence about each of the others, whose values are those of their base.
    """
    if isinstance(schema, list):
        return [marked(branch, unknown) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: value for name, value in schema.items() if name != "logicalType"}
    base, name = schema.get("type"), schema.get("logicalType")
    if isinstance(base, dict | list):
        out["type"] = marked(base, unknown)
    elif name is not None:
        if isinstance(name, str) and _is_sound(schema, str(base), name):
            out["logicalType"] = _MARK + name
        elif unknown is not None:
            unknown.add(f"{name} is no logical type of {base}, so its values are read as {base}")
    for place in ("items", "values"):
        if place in out:
            out[place] = marked(out[place], unknown)
    if isinstance(out.get("fields"), list):
        out["fields"] = [_field(f, unknown) for f in out["fields"]]
    return out


def _field(field: Any, unknown: set[str] | None) -> Any:
    has_type = isinstance(field, dict) and "type" in field
    return {**field, "type": marked(field["type"], unknown)} if has_type else field


def _is_sound(schema: Mapping[str, Any], base: str, name: str) -> bool:
    """True if the type may stand on its base; by the specification it counts for nothing otherwise."""
    if (base, name) not in _KINDS:
        return False
    if name == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if type(precision) is not int or type(scale) is not int:
            return False
        return 0 <= scale <= precision > 0 and (base == "bytes" or _has_room(schema.get("size"), precision))
    return base != "fixed" or schema.get("size") == _SIZES[name]


def _has_room(size: Any, precision: int) -> bool:
    """True if so many bytes hold each number of so many digits."""
    return type(size) is int and size > 0 and 10**precision <= 2 ** (8 * size - 1)


def _exact(data: bytes, scale: int) -> Decimal:
    """A decimal with all of its digits; fastavro's own reader rounds to the precision of the type."""
    sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -scale))


class DecimalNode(LeafNode):
    """Decimals of a file. Those with more digits than their type stay in the array, which is then invalid."""

    def arrays(self, values: Sequence[Any]) -> list[pa.Array]:
        """One array."""
        type_ = arrow_type(self.base)
        (widest,) = LeafNode(decimal(_DIGITS, type_.scale), self.kinds, self.turn).arrays(values)
        # The buffers are those of the widest decimal under the narrower type: a full validation then tells
        # which rows have too many digits (`checked`).
        return [pa.Array.from_buffers(type_, len(widest), widest.buffers(), widest.null_count)]


def _number_readings(number: Callable[[bytes], Decimal | None], scale: int) -> tuple[LeafReading, ...]:
    """The readings of bytes that may be a number.

    They are the widest decimal of a ``scale``, text where it does not hold the number, and the bytes where
    there is none.
    """

    def reading(type_: Primitive, read: Callable[[bytes, Decimal | None], Any]) -> LeafReading:
        """The reading of each value of its own."""

        def array(values: pa.Array) -> pa.Array:
            """The values that are of this type."""
            items = [None if data is None else read(data, number(data)) for data in values.to_pylist()]
            return pa.array(items, arrow_type(type_))

        return LeafReading(type_, array, overflow=type_ in (STRING, BINARY))

    return (
        reading(decimal(_DIGITS, scale), lambda _, n: n if n is not None and _holds(n, scale) else None),
        reading(STRING, lambda _, n: None if n is None or _holds(n, scale) else decimal_text(n)),
        reading(BINARY, lambda data, n: data if n is None else None),
    )


def _holds(number: Decimal, scale: int) -> bool:
    """True if the widest decimal of a scale holds the number."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(text)
    return not text or (exponent >= -scale and len(text) + exponent <= _DIGITS - scale)


_BIG_SCALE = 18  # of a decimal where each value has its own scale, as of one in JSON
_FARTHEST = 10_000  # a scale beyond which a number is not written out


def _big_decimal(data: bytes) -> Decimal | None:
    """A number of the type big-decimal: its digits as bytes, and its own scale. None if it is none."""
    file = BytesIO(data)
    try:
        digits: Any = schemaless_reader(file, "bytes", None)
        scale: Any = schemaless_reader(file, "int", None)
    except (EOFError, ValueError, IndexError, OverflowError):
        return None
    if file.tell() < len(data) or not digits or abs(scale) > _FARTHEST:
        return None
    return _exact(digits, scale)


def _duration_text(data: bytes) -> str:
    """A duration of ISO 8601: its months, days and milliseconds do not add up to one number."""
    months, days, millis = unpack("<III", data)
    text = f"{months}M" * bool(months) + f"{days}D" * bool(days)
    seconds = decimal_text(_exact(millis.to_bytes(8, "big"), 3))
    return f"P{text}T{seconds}S" if millis or not text else f"P{text}"


def _uuid_readings() -> tuple[LeafReading, ...]:
    """The readings of texts: those that spell a UUID, and the others."""

    def uuids(texts: pa.Array) -> pa.Array:
        """The UUIDs."""
        spelled = texts.cast(pa.binary()).to_pylist()
        return pa.array([None if text is None else _uuid(text) for text in spelled], arrow_type(UUID))

    def others(texts: pa.Array) -> pa.Array:
        """The other texts."""
        return pc.if_else(uuids(texts).is_null(), texts, pa.scalar(None, texts.type))

    return LeafReading(UUID, uuids), LeafReading(STRING, others, overflow=True)


def _uuid(text: bytes) -> bytes | None:
    try:
        return uuid.UUID(text.decode()).bytes
    except ValueError:
        return None


def _as_is(type_: Primitive) -> tuple[LeafReading, ...]:
    return (LeafReading(type_, lambda values: values),)


def _logical(schema: Mapping[str, Any], leaves: Leaves, decimals: type[LeafNode] | None) -> Node | None:
    """The node of a type that `marked` has marked.

    Args:
        decimals: the node of a decimal within 38 digits; None: one with room for any digits.
    """
    base, name = schema["type"], str(schema.get("logicalType")).removeprefix(_MARK)
    if (base, name) not in _KINDS:
        return None
    kinds = (_KINDS[base, name],)
    if (base, name) in _COUNTED:
        type_ = _COUNTED[base, name]
        return LogicalNode(kinds, type_, tuple(leaves(type_, ())))
    match name:
        case "decimal":
            scale = int(schema.get("scale", 0))
            exact = partial(_exact, scale=scale)
            if schema["precision"] > _DIGITS:
                return LeafNode(STRING, kinds, lambda data: decimal_text(exact(data)))
            if decimals is None:
                return LogicalNode(kinds, pa.binary(), _number_readings(exact, scale))
            return decimals(decimal(schema["precision"], scale), kinds, exact)
        case "big-decimal":
            return LogicalNode(kinds, pa.binary(), _number_readings(_big_decimal, _BIG_SCALE))
        case "uuid" if base == "string":
            return LogicalNode(kinds, pa.string(), _uuid_readings())
        case "uuid":
            return LogicalNode(kinds, arrow_type(UUID), _as_is(UUID))
        case _:
            return LogicalNode(kinds, pa.string(), _as_is(STRING), _duration_text)


class _Schema:
    """Walks a schema; names that it has met stand for their types."""

    def __init__(self, named: Mapping[str, Any], leaves: Leaves, decimals: type[LeafNode] | None) -> None:
        """``leaves``, ``decimals``: as `_logical` takes them."""
        self._named = dict(named)
        self._leaves, self._decimals = leaves, decimals
        # Below a decimal with room for any digits an integer has some, too.
        self._plain = _PLAIN if decimals else {**_PLAIN, "int": _PLAIN["long"]}
        self._open: set[str] = set()

    def node(self, schema: Any, path: Path) -> Node:
        """The node for the values of a schema."""
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            if schema in self._plain:
                return self._plain[schema]
            schema = self._named[schema]
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
        if (logical := _logical(schema, self._leaves, self._decimals)) is not None:
            return logical
        match kind:
            case "array":
                return ListNode(self.node(schema["items"], (*path, "element")))
            case "map":
                return MapNode(self.node(schema["values"], (*path, "value")))
            case str() if kind in self._plain:
                return self._plain[kind]
            case _:
                return self.node(kind, path)

    def _record(self, schema: Mapping[str, Any], path: Path) -> RecordNode:
        name = schema["name"]
        # Only a type inside itself is recursive; the same type in two fields is not.
        if name in self._open:
            raise UsageError(
                f"{dotted(path)}: the type {name} is recursive, and a column type cannot be",
                hint="write the file without this field, or limit its depth",
            )
        self._named[name] = schema
        self._open.add(name)
        fields = tuple((f["name"], self.node(f["type"], (*path, f["name"]))) for f in schema["fields"])
        self._open.remove(name)
        aliases = tuple(
            (f["name"], tuple(map(str, f["aliases"]))) for f in schema["fields"] if f.get("aliases")
        )
        return RecordNode(name, fields, aliases)

    def _union(self, branches: Sequence[Any], path: Path) -> Node:
        nodes = [self.node(branch, path) for branch in branches if branch != "null"]
        # Python has one type for narrow and wide ones.
        types = [node.fields("")[0].type for node in nodes]
        nodes = [node for node, type_ in zip(nodes, types, strict=True) if _WIDER.get(type_) not in types]
        return nodes[0] if len(nodes) == 1 else UnionNode(tuple(nodes)) if nodes else _PLAIN["null"]
