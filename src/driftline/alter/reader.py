"""Reading SQL word by word: what all of its parts share, names, types and literals."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import NoReturn, TypeVar

from driftline.alter.tokens import Kind, Token, pointed, tokens
from driftline.core.changes.values import Literal
from driftline.core.types import (
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
    Path,
    Primitive,
    Struct,
    Type,
    decimal,
    fixed,
)
from driftline.errors import UsageError

T = TypeVar("T")

# As Spark, Iceberg and DuckDB spell them. TIMESTAMP is Spark's: an instant.
TYPES: dict[str, Primitive] = {
    **dict.fromkeys(("boolean", "bool", "logical"), BOOLEAN),
    **dict.fromkeys(("tinyint", "byte", "int1", "utinyint", "uint8"), INT),
    **dict.fromkeys(("smallint", "short", "int2", "int16", "usmallint", "uint16"), INT),
    **dict.fromkeys(("int", "integer", "int4", "int32", "signed"), INT),
    **dict.fromkeys(("bigint", "long", "int8", "int64", "uinteger", "uint32"), LONG),
    **dict.fromkeys(("ubigint", "uint64"), decimal(20, 0)),
    **dict.fromkeys(("hugeint", "int128"), decimal(38, 0)),
    **dict.fromkeys(("float", "real", "float4", "float32"), FLOAT),
    **dict.fromkeys(("double", "float8", "float64"), DOUBLE),
    **dict.fromkeys(("string", "text", "varchar", "char", "bpchar"), STRING),
    **dict.fromkeys(("binary", "blob", "bytea", "varbinary"), BINARY),
    **dict.fromkeys(("timestamp", "timestamptz", "timestamp_ltz"), TIMESTAMP),
    **dict.fromkeys(("timestamp_ntz", "datetime"), TIMESTAMP_NTZ),
    "date": DATE,
    "time": TIME,
    "uuid": UUID,
    "variant": VARIANT,
    "void": UNKNOWN,
    "unknown": UNKNOWN,
}


class Reader:
    """A cursor over the words of a text. Errors are UsageErrors that point at the word they stumble over."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens = tokens(sql)
        self.at = 0

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    @property
    def done(self) -> bool:
        return self.now.kind is Kind.end

    @property
    def last(self) -> Token:
        return self.tokens[self.at - 1]

    def next(self) -> Token:
        token = self.now
        self.at += token.kind is not Kind.end
        return token

    def sees(self, *words: str) -> bool:
        """Whether these keywords or symbols come next."""
        ahead = self.tokens[self.at : self.at + len(words)]
        return len(ahead) == len(words) and all(
            t.kind in (Kind.word, Kind.symbol) and t.value.upper() == w
            for t, w in zip(ahead, words, strict=True)
        )

    def got(self, *words: str) -> bool:
        """Reads these keywords or symbols, if they come next."""
        found = self.sees(*words)
        self.at += len(words) * found
        return found

    def need(self, *words: str) -> None:
        for word in words:
            if not self.got(word):
                self.stop(f"{word} is missing {self.here()}")

    def here(self) -> str:
        return "at the end" if self.done else f"before {self.now.value!r}"

    def stop(self, message: str, hint: str | None = None, token: Token | None = None) -> NoReturn:
        token = token or self.now
        raise UsageError(f"{message}\n{pointed(self.sql, token.start, token.stop)}", hint)

    def listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """One or more, parted by commas."""
        out = [read()]
        while self.got(","):
            out.append(read())
        return tuple(out)

    def enclosed(self, read: Callable[[], T], close: str = ")") -> tuple[T, ...]:
        """A list up to a closing bracket, whose opening one is read."""
        out = self.listed(read)
        self.need(close)
        return out

    # Names ----------------------------------------------------------------------------------------------------

    def name(self, what: str = "a name") -> str:
        token = self.now
        if token.kind is Kind.text:
            self.stop(f"{what} stands in backticks or double quotes, or in none")
        if token.kind not in (Kind.word, Kind.quoted):
            self.stop(f"{what} is missing {self.here()}")
        return self.next().value

    def path(self, what: str = "a column") -> Path:
        """Names with dots between them."""
        out = [self.name(what)]
        while self.got("."):
            out.append(self.name(what))
        return tuple(out)

    # Literals -------------------------------------------------------------------------------------------------

    def literal(self) -> Literal:
        for word, value in (("NULL", None), ("TRUE", True), ("FALSE", False)):
            if self.got(word):
                return value
        for word in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NTZ", "TIME", "UUID"):
            if self.sees(word) and self.tokens[self.at + 1].kind is Kind.text:
                self.next()
        sign = "-" if self.got("-") else ""
        token = self.now
        if token.kind is Kind.number or (token.kind is Kind.text and not sign):
            self.next()
            number = token.kind is Kind.number
            return _number(sign + token.value) if number else token.value
        if token.kind is Kind.bytes and not sign:
            if len(token.value) % 2:
                self.stop("bytes have two digits each")
            return bytes.fromhex(self.next().value)
        if token.kind is Kind.quoted:
            self.stop(f"{token.value!r} in these quotes is a name", "a text stands in single quotes")
        return self.stop(
            "a default is a literal", "a number, 'text', TRUE, FALSE, NULL, DATE '2026-01-31', X'00ff'"
        )

    # Types ----------------------------------------------------------------------------------------------------

    def type(self) -> Type:
        made = self._type()
        while self.got("["):
            if not self.got("]"):
                self.stop("a list has no fixed length here", "write []")
            made = List(made)
        return made

    def _type(self) -> Type:
        token = self.now
        word = self.name("a type").lower()
        match word:
            case "array" | "list":
                close = self.open()
                element = self.type()
                self.need(close)
                return List(element)
            case "map":
                close = self.open()
                key = self.type()
                self.need(",")
                value = self.type()
                self.need(close)
                return Map(key, value)
            case "struct" | "row":
                close = self.open()
                return Struct(self.enclosed(self.field, close))
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
        if word not in TYPES or token.kind is not Kind.word:
            self.stop(
                f"there is no type {token.value}",
                "types are boolean, int, long, float, double, decimal(p, s), date, time, timestamp, timestamp_ntz, string, "
                "uuid, binary, fixed(n), variant, struct<a: int>, list<int>, map<string, int>",
                token,
            )
        if TYPES[word] == STRING and self.got("("):  # varchar(10): Iceberg's strings have no length
            self.number()
            self.need(")")
        return TYPES[word]

    def open(self) -> str:
        """An opening bracket; returns the closing one."""
        if self.got("<"):
            return ">"
        self.need("(")
        return ")"

    def decimal(self, token: Token) -> Primitive:
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
            self.stop(f"there is no decimal({precision}, {scale})", "at most 38 digits", token)
        return decimal(precision, scale)

    def number(self) -> int:
        if self.now.kind is not Kind.number or not self.now.value.isdecimal():
            self.stop(f"a whole number is missing {self.here()}")
        return int(self.next().value)

    def field(self) -> Field:
        """A field of a struct: ``name: type``, or without the colon."""
        name = self.name("a field's name")
        self.got(":")
        type_ = self.type()
        required, doc = False, None
        while True:
            if self.got("NOT", "NULL"):
                required = True
            elif self.got("COMMENT"):
                doc = self.text("a comment")
            else:
                return Field(name, type_, required=required, doc=doc)

    def text(self, what: str) -> str:
        if self.now.kind is not Kind.text:
            self.stop(f"{what} in single quotes is missing {self.here()}")
        return self.next().value


def _number(text: str) -> int | Decimal:
    return int(text) if text.lstrip("-").isdecimal() else Decimal(text)
