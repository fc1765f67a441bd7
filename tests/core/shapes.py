"""Shapes and schemas as text, so that a table of cases can be read without Python.

A batch: ``a: long | string[1], b: {x: date}[2], m: map<string, long | string>``. Fields are parted by commas,
the facets of one by bars, ``[2]`` is the dimension, ``{…}`` a JSON object, ``struct{…}`` one of a typed source.
Behind a type, ``!wide``, ``!ms``, ``!us``, ``!far`` and ``!digits``, ``!lossy``, ``!ragged`` say what was seen of its values, ``!typed`` that a schema
declares it. In place of
a type, ``null`` is a record without the field, ``[]``, ``[[]]`` and ``{}`` are empty.

A schema: ``size: long, size_string@size: string, id: long!required``. ``@`` is the mark of the key behind it,
``!required``, ``!elements`` and ``!values`` are what may not be null. An odd name stands in double quotes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

from driftline.core.planning.plan import Plan
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RECORD, Base, Facet, FieldShape, MapOf, Profile, RecordShape
from driftline.core.schema.naming import mark, marked_key
from driftline.core.schema.types import (
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    SourceLocation,
    Struct,
    Type,
    decimal,
    dotted,
    fixed,
    peel,
    wrap,
)
from driftline.core.settings.table import TableSettings

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|decimal\(\d+, ?\d+\)|fixed\[\d+\]|\[\d+\]|\[+\]+|\{\}|[{}<>,:|!@]|[^\s{}<>,:|!@"\[\]]+'
)


def batch(text: str) -> RecordShape:
    """The shape of one batch."""
    return _Reader(text).batch()


def schema(text: str) -> Schema:
    """A table's schema, with ids."""
    ids = iter(range(1, 10_000))

    def numbered(type_: Type) -> Type:
        match type_:
            case Struct(fields):
                own = [replace(f, id=next(ids)) for f in fields]
                return Struct(tuple(replace(f, type=numbered(f.type)) for f in own))
            case List():
                return replace(type_, element_id=next(ids), element=numbered(type_.element))
            case Map():
                key_id, value_id = next(ids), next(ids)
                return replace(type_, key_id=key_id, value_id=value_id, value=numbered(type_.value))
            case _:
                return type_

    struct = numbered(_Reader(text).struct())
    assert isinstance(struct, Struct)
    return Schema(struct)


def drift(*batches: str, before: str = "", settings: TableSettings | None = None) -> Plan:
    """The plan of the last of the batches, that come one after the other to the table ``before``."""
    table = schema(before)
    for text in batches:
        planned = plan(table, batch(text), settings)
        table = planned.schema
    return planned


def show(type_: Schema | Type) -> str:
    """A schema or a type in the notation."""
    if isinstance(type_, Schema):
        return show(type_.struct)[1:-1]
    dim, inner = peel(type_)
    behind = f"[{dim}]" if dim else ""
    behind += "!elements" if isinstance(type_, List) and type_.element_required else ""
    match inner:
        case Struct(fields):
            return f"{{{', '.join(map(_column, fields))}}}{behind}"
        case Map(key, value):
            return f"map<{key}, {show(value)}>{behind}{'!values' if inner.value_required else ''}"
        case _:
            return f"{inner}{behind}"


def same(text: str) -> str:
    """A schema's text, as `show` lays it out."""
    return show(schema(text))


def routes(planned: Plan) -> dict[str, str]:
    """For each column that is not inside another, what goes there: ``{"a_string": "long | string"}``."""
    ways = [way for field in planned.route.fields for way in field.columns]
    return {way.name: " | ".join(sorted(map(str, way.takes))) for way in ways}


def changes(planned: Plan) -> list[str]:
    """The changes as ``add a.element.x: string``."""
    return [f"{c.action} {dotted(c.path)}: {show(c.type)}" for c in planned.changes]


def conflicts(planned: Plan) -> dict[str, str]:
    """The refused types, by path."""
    return {dotted(c.path): c.incoming_type for c in planned.conflicts}


def paths(found: tuple[Path, ...]) -> list[str]:
    return [dotted(path) for path in found]


def _column(field: Field) -> str:
    key = marked_key(field.doc)
    of = "" if key is None else f"@{_name(key)}"
    return f"{_name(field.name)}{of}: {show(field.type)}{'!required' if field.required else ''}"


def _name(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else json.dumps(name, ensure_ascii=False)


_SEEN: dict[str, Callable[[Profile], Profile]] = {
    "wide": lambda seen: replace(seen, wide=True),
    "ms": lambda seen: replace(seen, fraction=3),
    "us": lambda seen: replace(seen, fraction=6),
    "far": lambda seen: replace(seen, far=True),
    "digits": lambda seen: replace(seen, digits=True),
    "typed": lambda seen: replace(seen, typed=True),
    "lossy": lambda seen: replace(seen, typed=True, lossy=True),
    "ragged": lambda seen: replace(seen, ragged=True),
}


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        assert "".join(self.tokens).replace(" ", "") == re.sub(r"\s", "", text), text
        self.read = 0

    def peek(self) -> str:
        return self.tokens[self.read] if self.read < len(self.tokens) else ""

    def next(self) -> str:
        self.read += 1
        return str(self.tokens[self.read - 1])

    def got(self, token: str) -> bool:
        """Reads the token, if it is the next one."""
        found = self.peek() == token
        self.read += found
        return found

    def need(self, token: str) -> None:
        assert self.got(token), f"{token} expected at {self.tokens[self.read :]}"

    def name(self) -> str:
        token = self.next()
        return str(json.loads(token)) if token.startswith('"') else token

    def dim(self) -> int:
        return int(self.next()[1:-1]) if re.fullmatch(r"\[\d+\]", self.peek()) else 0

    def place(self) -> SourceLocation:
        """Later in the text is later in the data."""
        return SourceLocation("data", 1, self.read)

    def batch(self) -> RecordShape:
        out = RecordShape()
        while self.peek() not in ("", "}"):
            name = self.name()
            self.need(":")
            out.fields[name] = self.field()
            self.got(",")
        return out

    def field(self) -> FieldShape:
        out = FieldShape(self.place())
        while True:
            token = self.peek()
            if self.got("null"):
                out.missing = True
            elif self.got("{}"):
                out.empty_record = True
            elif set(token) == set("[]"):
                out.empty_lists = max(out.empty_lists, self.next().count("["))
            else:
                out.add(*self.facet())
            if not self.got("|"):
                return out

    def facet(self) -> tuple[Facet, Profile]:
        seen = Profile(self.place(), self.peek())
        base: Base
        if self.peek() in ("{", "struct"):
            seen.typed = self.got("struct")
            self.need("{")
            seen.record = self.batch()
            self.need("}")
            base = RECORD
        elif self.got("map"):
            self.need("<")
            base = MapOf(primitive(self.next()))
            self.need(",")
            seen.value = self.field()
            self.need(">")
        else:
            base = primitive(self.next())
        dim = self.dim()
        while self.got("!"):
            seen = _SEEN[self.next()](seen)
        return Facet(dim, base), seen

    def struct(self) -> Struct:
        fields = []
        while self.peek() not in ("", "}"):
            name = self.name()
            doc = mark(self.name()) if self.got("@") else None
            self.need(":")
            type_, required = self.type()
            fields.append(Field(name, type_, required=required, doc=doc))
            self.got(",")
        return Struct(tuple(fields))

    def type(self) -> tuple[Type, bool]:
        inner: Type
        if self.got("{}"):
            inner = Struct()
        elif self.got("{"):
            inner = self.struct()
            self.need("}")
        elif self.got("map"):
            self.need("<")
            key = primitive(self.next())
            self.need(",")
            inner = Map(key, self.type()[0])
            self.need(">")
        else:
            inner = primitive(self.next())
        type_ = wrap(inner, self.dim())
        required = False
        while self.got("!"):
            match self.next():
                case "elements" if isinstance(type_, List):
                    type_ = replace(type_, element_required=True)
                case "values" if isinstance(type_, Map):
                    type_ = replace(type_, value_required=True)
                case word:
                    assert word == "required", word
                    required = True
        return type_, required


def primitive(text: str) -> Primitive:
    """``"long"``, ``"decimal(5, 2)"``, ``"fixed[16]"``."""
    numbers = [int(n) for n in re.findall(r"\d+", text)]
    if text.startswith("decimal"):
        return decimal(*numbers)
    return fixed(*numbers) if text.startswith("fixed") else Primitive(text)
