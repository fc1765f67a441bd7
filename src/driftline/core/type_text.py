"""Types as people write them, in Spark's words or Iceberg's: for hints and for columns declared by hand."""

from __future__ import annotations

import re

from driftline.core.types import Field, List, Map, Primitive, Struct, Type, decimal, fixed

_NAMES = {
    "boolean": "boolean", "bool": "boolean",
    "byte": "int", "tinyint": "int", "short": "int", "smallint": "int", "int": "int", "integer": "int",
    "long": "long", "bigint": "long",
    "float": "float", "real": "float",
    "double": "double",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp", "timestamptz": "timestamp", "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "string": "string", "text": "string", "varchar": "string",
    "binary": "binary", "bytes": "binary", "blob": "binary",
    "uuid": "uuid",
    "variant": "variant",
}  # fmt: skip
_TOKEN = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[<>(),:\[\]]))"
)


def parse_type(text: str) -> Type:
    """The type that a text names; fields inside have no ids yet.

    ``timestamp`` is an instant, as in Spark; ``record`` is a struct whose fields the data brings. Raises ValueError
    that says what is wrong.

    >>> str(parse_type("map<string, array<decimal(18,2)>>"))
    'map<string, list<decimal(18, 2)>>'
    >>> str(parse_type("list<record>")), str(parse_type("struct<a: long, b: text>"))
    ('list<struct<>>', 'struct<a: long, b: string>')
    """
    reader = _Reader(text)
    type_ = reader.type()
    reader.end()
    return type_


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def peek(self) -> tuple[str, bool, int]:
        """The next word or sign, whether it was quoted, and where it ends."""
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            return "", False, self.at
        quoted = (
            match[1].replace("``", "`") if match[1] else match[2].replace('""', '"') if match[2] else None
        )
        return (match[3], False, match.end()) if quoted is None else (quoted, True, match.end())

    def take(self, *signs: str) -> str:
        word, quoted, end = self.peek()
        if signs and (quoted or word not in signs):
            raise self.wrong(f"{' or '.join(signs)} expected")
        self.at = end
        return word

    def end(self) -> None:
        if self.text[self.at :].strip():
            raise self.wrong("nothing more expected")

    def wrong(self, why: str) -> ValueError:
        return ValueError(
            f"{self.text!r} is not a type: {why} at {self.text[self.at :].strip()[:20] or 'its end'!r}"
        )

    def type(self) -> Type:
        at = self.at
        word = self.take().lower()
        if word == "record":
            inner: Type = Struct()
        elif word in ("list", "array"):
            self.take("<")
            inner = List(self.type())
            self.take(">")
        elif word == "map":
            inner = self.map()
        elif word in ("struct", "row"):
            inner = self.struct()
        elif word in ("decimal", "numeric"):
            inner = self.decimal()
        elif word == "fixed":
            inner = fixed(self.numbers()[0])
        elif word in _NAMES:
            inner = Primitive(_NAMES[word])
        else:
            self.at = at
            raise self.wrong("a type expected")
        while self.peek()[0] == "[" and not self.peek()[1]:  # DuckDB's way to write a list
            self.take("[")
            self.take("]")
            inner = List(inner)
        return inner

    def map(self) -> Map:
        close = ")" if self.take("<", "(") == "(" else ">"
        key = self.type()
        if not isinstance(key, Primitive):
            raise self.wrong("a map's keys are of a primitive type, which is")
        self.take(",")
        value = self.type()
        self.take(close)
        return Map(key, value)

    def struct(self) -> Struct:
        close = ")" if self.take("<", "(") == "(" else ">"
        fields: list[Field] = []
        while True:
            name, quoted, _ = self.peek()
            if not (quoted or re.match(r"\w", name)):
                raise self.wrong("the name of a field expected")
            if name in {f.name for f in fields}:
                raise self.wrong("another name expected")
            self.take()
            if self.peek()[0] == ":":
                self.take(":")
            fields.append(Field(name, self.type()))
            if self.take(",", close) == close:
                return Struct(tuple(fields))

    def decimal(self) -> Primitive:
        if self.peek()[0] not in ("(", "["):
            return decimal(10, 0)
        precision, *scale = self.numbers()
        if not 1 <= precision <= 38 or (scale and not 0 <= scale[0] <= precision):
            raise self.wrong("1 to 38 digits, of them as many or fewer after the point,")
        return decimal(precision, scale[0] if scale else 0)

    def numbers(self) -> list[int]:
        close = ")" if self.take("(", "[") == "(" else "]"
        out = []
        while True:
            word = self.take()
            if not word.isdecimal():
                raise self.wrong("a number expected")
            out.append(int(word))
            if self.take(",", close) == close:
                return out
