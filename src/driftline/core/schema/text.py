"""Parses types, time spans and sizes as people write them, in Spark's, Iceberg's or DuckDB's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NoReturn, TypeVar

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
    Path,
    Primitive,
    Struct,
    Type,
    decimal,
    fixed,
)
from driftline.errors import UsageError

T = TypeVar("T")


class TokenKind(Enum):
    word = auto()  # a bare name or a keyword
    quoted = auto()  # a quoted name
    text = auto()
    number = auto()
    bytes = auto()
    symbol = auto()
    other = auto()  # a character of expressions alone
    end = auto()


@dataclass(frozen=True, slots=True)
class Word:
    """``value`` is without quotes; ``start`` and ``stop`` are where it stands."""

    kind: TokenKind
    value: str
    start: int
    stop: int


_TOKENS = re.compile(
    r"""
      (?P<skip>   \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<bytes>  [xX]'[0-9a-fA-F]*' )
    | (?P<text>   '(?:[^']|'')*' )
    | (?P<quoted>   `(?:[^`]|``)*` | "(?:[^"]|"")*" )
    | (?P<number> \d+(?:\.\d+)?(?:[eE][+-]?\d+)? | \.\d+(?:[eE][+-]?\d+)? )
    | (?P<word>   [^\W\d]\w* )
    | (?P<symbol> [][().,;=<>:+-] )
    | (?P<other>  [^'"`] )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(sql: str) -> list[Word]:
    """All words, and the end. Raises UsageError for an unclosed quote.

    >>> [t.value for t in tokens("DROP COLUMN `a``b`.\\"c\\" -- gone")]
    ['DROP', 'COLUMN', 'a`b', '.', 'c', '']
    """
    out, position = [], 0
    while position < len(sql):
        match = _TOKENS.match(sql, position)
        if match is None:
            quotes, thing = sql[position], "text" if sql[position] == "'" else "name"
            message = f"a {thing} that begins with {quotes} has no end; inside it, {quotes} is written twice"
            raise UsageError(f"{message}\n{pointed(sql, position, position + 1)}")
        position = match.end()
        kind, value = match.lastgroup, match.group()
        assert kind is not None
        if kind in ("text", "quoted"):
            quote = value[0]
            value = value[1:-1].replace(quote * 2, quote)
        elif kind == "bytes":
            value = value[2:-1]
        if kind != "skip":
            out.append(Word(TokenKind[kind], value, match.start(), position))
    out.append(Word(TokenKind.end, "", len(sql.rstrip()), len(sql.rstrip()) + 1))
    return out


def quoted(name: str) -> str:
    """A name in SQL's own quotes.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def pointed(sql: str, start: int, stop: int) -> str:
    """The line of SQL with carets below a part of it, both indented.

    >>> pointed("DROP\\nCOLUMN a", 12, 13)
    '  COLUMN a\\n         ^'
    """
    first = sql.rfind("\n", 0, start) + 1
    last = sql.find("\n", start)
    line = sql[first : len(sql) if last < 0 else last]
    stop = min(stop, first + len(line) + 1)
    shown = "".join(c if c.isprintable() else " " for c in line)
    return f"  {shown}\n  {' ' * (start - first)}{'^' * max(stop - start, 1)}"


class Words:
    """A cursor over the words of a text. Its errors are UsageErrors that point at the offending word."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens = tokens(sql)
        self.at = 0

    @property
    def now(self) -> Word:
        """The word under the cursor; raises UsageError for a character that has no meaning."""
        token = self.tokens[self.at]
        if token.kind is TokenKind.other:
            self.stop(f"{token.value!r} has no meaning here", token=token)
        return token

    @property
    def done(self) -> bool:
        """True at the end of the text."""
        return self.now.kind is TokenKind.end

    @property
    def last(self) -> Word:
        """The word read last."""
        return self.tokens[self.at - 1]

    def next(self) -> Word:
        """Read a word. At the end the cursor stays."""
        token = self.now
        self.at += token.kind is not TokenKind.end
        return token

    def sees(self, *words: str) -> bool:
        """True if these keywords or symbols come next."""
        ahead = self.tokens[self.at : self.at + len(words)]
        return len(ahead) == len(words) and all(
            t.kind in (TokenKind.word, TokenKind.symbol) and t.value.upper() == w
            for t, w in zip(ahead, words, strict=True)
        )

    def got(self, *words: str) -> bool:
        """Read these keywords or symbols, if they come next."""
        is_next = self.sees(*words)
        self.at += len(words) * is_next
        return is_next

    def need(self, *words: str) -> None:
        """Read these keywords or symbols; raises UsageError if one is missing."""
        for word in words:
            if not self.got(word):
                self.stop(f"{word} is missing {self.here()}")

    def here(self) -> str:
        """The cursor's place, for an error: before a word, or at the end.

        >>> words = Words("ADD x")
        >>> words.got("ADD"), words.here(), words.name(), words.here()
        (True, "before 'x'", 'x', 'at the end')
        """
        return "at the end" if self.done else f"before {self.now.value!r}"

    def stop(self, message: str, hint: str | None = None, token: Word | None = None) -> NoReturn:
        """Raise a UsageError that points at ``token``, or else at the word under the cursor."""
        token = token or self.now
        raise UsageError(f"{message}\n{pointed(self.sql, token.start, token.stop)}", hint)

    def listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Read one or more items separated by commas."""
        out = [read()]
        while self.got(","):
            out.append(read())
        return tuple(out)

    def enclosed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Read a list up to its closing bracket; the opening one is already read."""
        out = self.listed(read)
        self.need(")")
        return out

    def name(self, sought: str = "a name") -> str:
        """Read a name, quoted or not.

        Args:
            sought: the name's role, for errors.
        """
        token = self.now
        if token.kind is TokenKind.text:
            self.stop(f"{sought} stands in backticks or double quotes, or in none")
        if token.kind not in (TokenKind.word, TokenKind.quoted):
            self.stop(f"{sought} is missing {self.here()}")
        return self.next().value

    def path(self, sought: str = "a column") -> Path:
        """Read names separated by dots."""
        out = [self.name(sought)]
        while self.got("."):
            out.append(self.name(sought))
        return tuple(out)

    def number(self) -> int:
        """Read a whole number."""
        if self.now.kind is not TokenKind.number or not self.now.value.isdecimal():
            self.stop(f"a whole number is missing {self.here()}")
        return int(self.next().value)

    def text(self, sought: str) -> str:
        """Read text in single quotes.

        Args:
            sought: its role, for errors.
        """
        if self.now.kind is not TokenKind.text:
            self.stop(f"{sought} in single quotes is missing {self.here()}")
        return self.next().value


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
        # Varchar(10): Iceberg's strings have no length
        if TYPES[word] == STRING and self.got("("):
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


_SPAN = re.compile(r"(\d+(?:\.\d+)?) *(ms|[smhd])")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SIZE = re.compile(r"(\d+) *([kmg]b)?")
_BYTES = {"": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30}


def parse_span(text: str) -> float:
    """The seconds of a span of time. Raises ValueError, without a unit too.

    >>> [parse_span(text) for text in ("500ms", "10s", "90m", "7d")]
    [0.5, 10.0, 5400.0, 604800.0]
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a span of time: write 500ms, 10s, 5m, 36h, 7d")
    return float(match[1]) * _SECONDS[match[2]]


def parse_size(text: str) -> int:
    """The bytes of a size in memory. Raises ValueError.

    >>> parse_size("256mb"), parse_size("1 GB"), parse_size("0")
    (268435456, 1073741824, 0)
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a size: write 256mb, 1gb, 0")
    return int(match[1]) * _BYTES[match[2] or ""]


def with_article(noun: str) -> str:
    """Put a or an in front of a class's name.

    >>> with_article("Order"), with_article("dict"), with_article("NoneType")
    ('an Order', 'a dict', 'a NoneType')
    """
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"


def counted(count: int, singular: str, plural: str = "") -> str:
    """A count with its noun.

    Args:
        plural: the noun's plural, unless that is ``singular`` plus an s.

    >>> counted(1, "record"), counted(0, "record"), counted(2, "batch", "batches")
    ('1 record', '0 records', '2 batches')
    """
    return f"{count} {noun(count, singular, plural)}"


def noun(count: int, singular: str, plural: str = "") -> str:
    """The noun alone, in the form that follows the count."""
    return singular if count == 1 else plural or f"{singular}s"
