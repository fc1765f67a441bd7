"""Shapes written as text, for tables of cases: ``"long, string[1], {x: date}[2]"`` is one field's facets."""

from __future__ import annotations

import re

from driftline.core.schema_json import _read_type as read_type
from driftline.core.shape import RECORD, Facet, FieldShape, MapOf, Place, RecordShape, Seen
from driftline.core.types import STRING, Field, List, Map, Primitive, Schema, Struct, Type, wrap

_TOKEN = re.compile(r"\s*([{}<>,:]|\[\d+\]|[^{}<>,:\[\]]+)")


def record(text: str, place: Place | None = None) -> RecordShape:
    """``"a: long, b: string[1] | {x: date}"``: fields separated by commas, facets by bars."""
    return _Reader(text).record()


def schema(text: str) -> Schema:
    """A schema in the same notation, one type a column; ``a_string@a: string`` carries the mark of ``a``."""
    shape = record(text)
    return Schema(_struct(shape))


def _struct(shape: RecordShape) -> Struct:
    fields = []
    for name, field in shape.fields.items():
        ((facet, seen),) = field.facets.items()
        name, _, marked = name.partition("@")
        fields.append(Field(name, _type(facet, seen), doc=f"upsolver_evolved_from:{marked}" if marked else None))
    return Struct(tuple(fields))


def _type(facet: Facet, seen: Seen) -> Type:
    if facet.base == RECORD:
        assert seen.record is not None
        return wrap(_struct(seen.record), facet.dim)
    if isinstance(facet.base, MapOf):
        assert seen.value is not None
        ((inner, inner_seen),) = seen.value.facets.items()
        return wrap(Map(facet.base.key, _type(inner, inner_seen)), facet.dim)
    assert isinstance(facet.base, Primitive)
    return wrap(facet.base, facet.dim)


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens = [t.strip() for t in re.findall(r"[{}<>,:|]|\[\d+\]|decimal\(\d+, ?\d+\)|[^{}<>,:|\[\]]+", text)]
        self.tokens = [t for t in self.tokens if t]
        self.line = 0

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def record(self) -> RecordShape:
        out = RecordShape()
        while self.peek() not in ("", "}"):
            name = self.tokens.pop(0)
            assert self.tokens.pop(0) == ":", self.tokens
            out.fields[name] = self.field()
            if self.peek() == ",":
                self.tokens.pop(0)
        return out

    def field(self) -> FieldShape:
        self.line += 1
        out = FieldShape(Place("f", self.line))
        while self.peek() not in ("", ",", "}", ">"):
            self.facet(out)
            if self.peek() == "|":
                self.tokens.pop(0)
        return out

    def facet(self, out: FieldShape) -> None:
        token = self.tokens.pop(0)
        self.line += 1
        seen = Seen(Place("f", self.line), token)
        if token == "{":
            seen.record = self.record()
            seen.open = True
            assert self.tokens.pop(0) == "}"
            base: object = RECORD
        elif token == "map":
            assert self.tokens.pop(0) == "<"
            seen.value = self.field()
            assert self.tokens.pop(0) == ">"
            base = MapOf(STRING)
        else:
            name, *marks = token.split("!")
            for mark in marks:
                setattr(seen, mark, int(mark_value) if (mark_value := "") else True)
            base = read_type(name) if name not in ("timestamp", "timestamp_ntz") else Primitive(name)
        dim = int(self.tokens.pop(0)[1:-1]) if self.peek().startswith("[") else 0
        out.add(Facet(dim, base), seen)  # type: ignore[arg-type]


def columns(struct: Struct, prefix: str = "") -> list[str]:
    """A struct's columns as ``name: type``, nested ones dotted, with ``<- key`` where evolved."""
    from driftline.core.naming import marked_key
    from driftline.core.types import peel

    out = []
    for f in struct.fields:
        key = marked_key(f.doc)
        dim, inner = peel(f.type)
        note = f" <- {key}" if key is not None else ""
        if isinstance(inner, Struct):
            out.append(f"{prefix}{f.name}: {str(wrap(Primitive('record'), dim))}{note}")
            out += columns(inner, f"{prefix}{f.name}.")
        else:
            out.append(f"{prefix}{f.name}: {f.type}{note}")
    return out


__all__ = ["List", "columns", "record", "schema"]
