"""Types as people write them, in the words of Spark, Iceberg or DuckDB: in statements, and for hints."""

from __future__ import annotations

from dataclasses import replace

from driftline.core.schema.naming import nearest
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UNKNOWN,
    UUID,
    VARIANT,
    Field,
    List,
    Map,
    Primitive,
    Struct,
    Type,
    decimal,
    fixed,
)
from driftline.core.schema.words import TokenKind, Word, Words
from driftline.errors import UsageError

# DuckLake's integers that ours have no type for, and the type that holds each.
HOLDS: dict[str, Primitive] = {
    "int8": INT,
    "int16": INT,
    "uint8": INT,
    "uint16": INT,
    "uint32": LONG,
    "uint64": decimal(20, 0),
}
# As Spark, Iceberg and DuckDB spell them. TIMESTAMP is Spark's: an instant; INT8 is DuckDB's: of 8 bytes.
TYPES: dict[str, Primitive] = {
    **dict.fromkeys(("boolean", "bool", "logical"), BOOLEAN),
    **dict.fromkeys(("tinyint", "byte", "int1"), Primitive("int8")),
    **dict.fromkeys(("smallint", "short", "int2", "int16"), Primitive("int16")),
    **dict.fromkeys(("utinyint", "uint8"), Primitive("uint8")),
    **dict.fromkeys(("usmallint", "uint16"), Primitive("uint16")),
    **dict.fromkeys(("uinteger", "uint32"), Primitive("uint32")),
    **dict.fromkeys(("ubigint", "uint64"), Primitive("uint64")),
    **dict.fromkeys(("int", "integer", "int4", "int32", "signed"), INT),
    **dict.fromkeys(("bigint", "long", "int8", "int64"), LONG),
    **dict.fromkeys(("float", "real", "float4", "float32"), FLOAT),
    **dict.fromkeys(("double", "float8", "float64"), DOUBLE),
    **dict.fromkeys(("string", "text", "varchar", "char", "bpchar"), STRING),
    **dict.fromkeys(("binary", "bytes", "blob", "bytea", "varbinary"), BINARY),
    **dict.fromkeys(("timestamp", "timestamptz", "timestamp_ltz"), TIMESTAMP),
    **dict.fromkeys(("timestamp_ntz", "datetime"), TIMESTAMP_NTZ),
    "date": DATE,
    "time": TIME,
    "uuid": UUID,
    "variant": VARIANT,
    "void": UNKNOWN,
    "unknown": UNKNOWN,
}


def parse_type(text: str) -> Type:
    """The type that a text names; fields inside have no ids yet.

    ``timestamp`` is an instant, as in Spark; ``record`` is a struct whose fields the data brings.
    Raises ValueError that says what is wrong.

    >>> str(parse_type("map<string, array<decimal(18,2)>>"))
    'map<string, list<decimal(18, 2)>>'
    >>> str(parse_type("list<record>")), str(parse_type("struct<a: long, b: text>"))
    ('list<struct<>>', 'struct<a: long, b: string>')
    """
    try:
        reader = _HintReader(text)
        type_ = reader.type()
        if not reader.done:
            reader.stop(f"nothing more expected {reader.here()}")
    except UsageError as error:
        why, hint = error.message.splitlines()[0], f"; {error.hint}" if error.hint else ""
        why = f": {why}" if text not in why else ""
        raise ValueError(f"{text!r} is not a type{why}{hint}") from None
    return type_


def storable(type_: Type) -> Type:
    """The driftline type that stores values of a type, at any depth.

    >>> str(storable(List(Primitive("int16"))))
    'list<int>'
    """
    match type_:
        case Primitive(name):
            return HOLDS.get(name, type_)
        case Struct(fields):
            return Struct(tuple(replace(f, type=storable(f.type)) for f in fields))
        case List(element):
            return replace(type_, element=storable(element))
        case Map(key, value):
            return replace(type_, key=storable(key), value=storable(value))


class TypeReader(Words):
    """A cursor that reads types."""

    def type(self) -> Type:
        """Read a type, as the driftline type that holds it."""
        return storable(self.exact_type())

    def exact_type(self) -> Type:
        """The type of exactly this name, though driftline may have none so narrow."""
        type_ = self._type()
        while self.got("["):
            if not self.got("]"):
                self.stop("a list has no fixed length here", "write []")
            type_ = List(type_)
        return type_

    def _type(self) -> Type:
        token = self.now
        word = self.name("a type").lower()
        match word:
            case "array" | "list" | "map" | "struct" | "row":
                return self._nested(word)
            case "decimal" | "numeric" | "dec":
                return self.decimal(token)
            case "fixed":
                close = "]" if self.got("[") else self.open()
                length = self.number()
                self.need(close)
                return fixed(length)
            case "double":
                self.got("PRECISION")
            case "timestamp":
                if self.got("WITHOUT", "TIME", "ZONE"):
                    return TIMESTAMP_NTZ
                self.got("WITH", "TIME", "ZONE")
        return self._named(word, token)

    def _nested(self, word: str) -> Type:
        """The contents of the brackets of a nested type."""
        close = self.open()
        if word in ("struct", "row"):
            return self.struct(close)
        first_type = self.exact_type()
        if word != "map":
            self.need(close)
            return List(first_type)
        self.need(",")
        value = self.exact_type()
        self.need(close)
        return Map(first_type, value)

    def _named(self, word: str, token: Word) -> Type:
        """The type of this name. Raises UsageError if there is none."""
        if word not in TYPES or token.kind is not TokenKind.word:
            near = nearest(word, list(TYPES))
            self.stop(
                f"there is no type {token.value}",
                near
                or "types are boolean, int, long, float, double, decimal(p, s), date, time, timestamp, timestamp_ntz, string, "
                "uuid, binary, fixed(n), variant, struct<a: int>, list<int>, map<string, int>",
                token,
            )
        if TYPES[word] == STRING and self.got("("):  # varchar(10): Iceberg's strings have no length
            self.number()
            self.need(")")
        return TYPES[word]

    def open(self) -> str:
        """Read an opening bracket; returns the closing one."""
        if self.got("<"):
            return ">"
        self.need("(")
        return ")"

    def decimal(self, token: Word) -> Primitive:
        """Read the digits of a decimal; dialects have different defaults, so there is none."""
        if not self.got("("):
            self.stop(
                "how many digits? dialects differ in what a decimal has by itself",
                "write decimal(10, 2)",
                token,
            )
        precision = self.number()
        scale = self.number() if self.got(",") else 0
        self.need(")")
        if not (1 <= precision <= 38 and scale <= precision):
            self.stop(
                f"there is no decimal({precision}, {scale})",
                "1 to 38 digits, of them as many or fewer after the point",
                token,
            )
        return decimal(precision, scale)

    def struct(self, close: str) -> Struct:
        """Read the fields of a struct up to the closing bracket ``close``."""
        fields: list[Field] = []
        while True:
            token = self.now
            field = self.field()
            if field.name in {f.name for f in fields}:
                self.stop(f"there is a field {field.name} already", token=token)
            fields.append(field)
            if not self.got(","):
                self.need(close)
                return Struct(tuple(fields))

    def field(self) -> Field:
        """Read a field of a struct: ``name: type``, or without the colon."""
        name = self.name("a field's name")
        self.got(":")
        return Field(name, self.exact_type())


class _HintReader(TypeReader):
    """Reads types that columns of the data can be declared as."""

    def _type(self) -> Type:
        token = self.now
        if self.got("RECORD"):
            return Struct()
        type_ = TypeReader._type(self)
        if type_ == UNKNOWN:
            self.stop("a column without a type cannot be declared", token=token)
        if isinstance(type_, Map) and not isinstance(type_.key, Primitive):
            self.stop("a map's keys are of a primitive type", token=token)
        return type_
