"""How a field's values stand in the data that Spark parsed: the parse type, and what to expect of it.

JSON is parsed into plain types where a field had one type only; a drifted field is parsed into VARIANT, which
keeps each value's own type. So only drifted fields pay for drift. Where the text of numbers matters (a number
in a string column, a decimal), all numbers of the batch come as tagged strings: VARIANT and doubles forget it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from driftline.core.naming import caseless
from driftline.core.routes import FieldRoute, RecordRoute
from driftline.core.shape import RECORD, MapOf
from driftline.core.types import BOOLEAN, DOUBLE, LONG, STRING, Primitive
from driftline.route.sql import name, spark_type

TEXT = ("string", "date", "timestamp", "timestamp_ntz", "time", "uuid")
NUMBERS = ("int", "long", "float", "double", "decimal")
PLAIN = ("boolean", "long", "double", *TEXT)


@dataclass(frozen=True, slots=True)
class Source:
    """One field of the parsed data.

    ``kind``: "record", "map", "text" (a JSON string, with ``tag`` maybe a number's), "variant", or "typed".
    ``type``: of a typed value; of text, a date or the like where every string of the field is one.
    ``dim``: how many lists are around it, None where that differs by value (a variant).
    """

    kind: str
    dim: int | None = 0
    type: Primitive | None = None
    fields: dict[str, Source] = field(default_factory=dict)
    value: Source | None = None
    key: str = "string"
    tag: str | None = None

    @property
    def base_ddl(self) -> str:
        """The parse type of one value, without its lists."""
        match self.kind:
            case "record":
                inner = ",".join(f"{name(key)}:{child.ddl}" for key, child in self.fields.items())
                return f"struct<{inner}>"
            case "map":
                assert self.value is not None
                return f"map<{self.key},{self.value.ddl}>"
            case "text":
                return "string"
            case "variant":
                return "variant"
            case _:
                assert self.type is not None
                return spark_type(self.type)

    @property
    def ddl(self) -> str:
        """The parse type."""
        return "array<" * (self.dim or 0) + self.base_ddl + ">" * (self.dim or 0)


def json_source(route: RecordRoute, tag: str | None) -> Source:
    """How JSON of this route is parsed. ``tag``: prefix of tagged numbers, None where none are."""
    return _record([route], tag)


def _record(routes: Sequence[RecordRoute], tag: str | None) -> Source:
    keys: dict[str, list[FieldRoute]] = {}
    for route in routes:
        for f in route.fields:
            keys.setdefault(f.key, []).append(f)
    children = {key: _field(fields, tag) for key, fields in keys.items()}
    return Source(
        "record", fields={key: child for key, child in children.items() if child is not None}, tag=tag
    )


def _field(routes: Sequence[FieldRoute], tag: str | None) -> Source | None:
    columns = [c for r in routes for c in r.columns]
    facets = {f for r in routes for f in r.shape.facets}
    shapes = [r.shape for r in routes]
    if not facets:
        empties = any(s.empty_lists or s.empty_record for s in shapes)
        holders = any(c.facet.dim or not isinstance(c.facet.base, Primitive) for c in columns)
        return Source("variant", None, tag=tag) if empties and holders else None
    dim = _uniform(routes)
    bases = {f.base for f in facets}
    if dim is None:
        return Source("variant", None, tag=tag)
    if bases == {RECORD}:
        return replace(_record([c.record for c in columns if c.record is not None], tag), dim=dim)
    if len(bases) == 1 and isinstance(next(iter(bases)), MapOf):
        value = _field([c.value for c in columns if c.value is not None], tag)
        return Source("map", dim, value=value or Source("variant", None, tag=tag), tag=tag)
    names = {b.name for b in bases if isinstance(b, Primitive)}
    if len(names) < len({str(b) for b in bases if not isinstance(b, Primitive)} | names):
        return Source("variant", dim, tag=tag)
    if names <= set(TEXT) or (tag is not None and names <= {*TEXT, *NUMBERS}):
        sole = Primitive(next(iter(names))) if len(names) == 1 and names <= set(TEXT) else STRING
        return Source("text", dim, sole, tag=tag)
    if names == {"boolean"}:
        return Source("typed", dim, BOOLEAN)
    if tag is None and names == {"long"}:
        return Source("typed", dim, LONG)
    if (
        tag is None
        and names <= {"long", "double"}
        and all(c.facet.base == DOUBLE for c in columns if c.takes)
    ):
        return Source("typed", dim, DOUBLE)
    return Source("variant", dim, tag=tag)


def _uniform(routes: Sequence[FieldRoute]) -> int | None:
    """The dimension of all the field's values, None where it differs or an empty list or object goes deeper."""
    facets = [(f, s) for r in routes for f, s in r.shape.facets.items()]
    dims = {f.dim for f, _ in facets}
    if len(dims) != 1 or any(s.ragged for _, s in facets):
        return None
    (dim,) = dims
    if any(r.shape.empty_lists > dim for r in routes):
        return None
    plain = any(isinstance(f.base, Primitive) for f, _ in facets)
    if any(r.shape.empty_record for r in routes) and (plain or dim > 0):
        return None
    return dim


def has_twins(source: Source) -> bool:
    """Whether two keys of one record differ only in case."""
    keys = {caseless(key) for key in source.fields}
    below = [*source.fields.values(), *([source.value] if source.value is not None else [])]
    return len(keys) < len(source.fields) or any(has_twins(child) for child in below)


def tags_needed(route: RecordRoute) -> bool:
    """Whether the text of numbers matters: beyond what Spark's parser keeps, or written into a string column."""
    return any(_tags_needed(f) for f in route.fields)


def _tags_needed(route: FieldRoute) -> bool:
    for facet, seen in route.shape.facets.items():
        if isinstance(facet.base, Primitive) and (facet.base.name not in PLAIN or seen.digits):
            return True
    return any(
        (c.facet.base == STRING and any(f.base == DOUBLE for f in c.takes))
        or (c.record is not None and tags_needed(c.record))
        or (c.value is not None and _tags_needed(c.value))
        for c in route.columns
    )
