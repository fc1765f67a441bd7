"""Types and schemas with field ids, as Iceberg defines them.

Two primitives are named as the rules name them: ``timestamp`` is an instant (Iceberg's timestamptz),
``timestamp_ntz`` has no zone (Iceberg's timestamp). `driftline.core.schema.schema_json` translates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TypeAlias, TypeVar

from driftline.core.support import pickled_by_fields


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without children; ``args`` are (precision, scale) of a decimal, (length,) of a fixed.

    >>> str(decimal(38, 0)), str(LONG)
    ('decimal(38, 0)', 'long')
    """

    name: str
    args: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.name == "fixed":
            return f"fixed[{self.args[0]}]"
        return f"{self.name}({', '.join(map(str, self.args))})" if self.args else self.name


BOOLEAN = Primitive("boolean")
INT = Primitive("int")
LONG = Primitive("long")
FLOAT = Primitive("float")
DOUBLE = Primitive("double")
DATE = Primitive("date")
TIME = Primitive("time")
TIMESTAMP = Primitive("timestamp")
TIMESTAMP_NTZ = Primitive("timestamp_ntz")
STRING = Primitive("string")
UUID = Primitive("uuid")
BINARY = Primitive("binary")
VARIANT = Primitive("variant")
UNKNOWN = Primitive("unknown")

# Types of other makers' DuckLake tables for which Spark and Arrow have none, with DuckDB's names. Those in
# `DUCKDB_ALONE` take no value of a batch.
READ_AS_TEXT = {
    "json": "JSON",
    "int128": "HUGEINT",
    "uint128": "UHUGEINT",
    "duckdb_time": "TIME",
    "time_ns": "TIME_NS",
    "timetz": "TIMETZ",
    "interval": "INTERVAL",
    "duckdb_variant": "VARIANT",
    "duckdb_timestamp_ns": "TIMESTAMP_NS",
    "duckdb_geometry": "GEOMETRY",
    "duckdb_unknown": "UNKNOWN",
}
DUCKDB_ALONE = frozenset(READ_AS_TEXT) - {"json"}


def decimal(precision: int, scale: int) -> Primitive:
    """A decimal of ``precision`` digits, ``scale`` of them after the point."""
    return Primitive("decimal", (precision, scale))


def fixed(length: int) -> Primitive:
    """Bytes of a fixed ``length``."""
    return Primitive("fixed", (length,))


BIG_INTEGER = decimal(38, 0)
BIG_DECIMAL = decimal(38, 18)

JSON = Primitive("json")
# The types that only DuckDB makes, each with the one of ours that holds all of its values.
WIDER: dict[str, Primitive] = {
    "int8": INT,
    "int16": INT,
    "uint8": INT,
    "uint16": INT,
    "uint32": LONG,
    "uint64": decimal(20, 0),
    "timestamp_s": TIMESTAMP_NTZ,
    "timestamp_ms": TIMESTAMP_NTZ,
    "duckdb_uuid": UUID,
}
# Of these, the least and the greatest whole number, and the digits of a second's fraction.
BOUNDS: dict[str, tuple[int, int]] = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
FRACTIONS: dict[str, int] = {"timestamp_s": 0, "timestamp_ms": 3}


@dataclass(frozen=True, slots=True)
class Expression:
    """A default that an engine computes while it writes, in the SQL of that engine: ``dialect``."""

    sql: str
    dialect: str

    def __str__(self) -> str:
        return self.sql


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a struct. Id 0 means: not yet given by the table.

    ``initial_default`` is what rows older than the column read, ``write_default`` what a record without a
    value gets: both as Iceberg's JSON writes them, or an expression.
    """

    name: str
    type: Type
    id: int = 0
    required: bool = False
    doc: str | None = None
    initial_default: Default = None
    write_default: Default = None


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{f.name}: {f.type}' for f in self.fields)}>"

    def get(self, name: str) -> Field | None:
        """The field of exactly this name."""
        return next((f for f in self.fields if f.name == name), None)


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class List:
    element: Type
    element_id: int = 0
    element_required: bool = False

    def __str__(self) -> str:
        return f"list<{self.element}>"


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Map:
    key: Type
    value: Type
    key_id: int = 0
    value_id: int = 0
    value_required: bool = False

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


Type: TypeAlias = "Primitive | Struct | List | Map"
Default: TypeAlias = bool | int | float | str | Expression | None


@dataclass(frozen=True, slots=True)
class Schema:
    """A table's columns. ``identifiers`` are ids of identifier fields."""

    struct: Struct = field(default_factory=Struct)
    id: int = 0
    identifiers: frozenset[int] = frozenset()

    def find(self, path: Path) -> Field | None:
        """The field at ``path``; list elements and map values are steps named element and value."""
        return _find(self.struct, path) if path else None

    def walk(self) -> Iterator[tuple[Path, Field]]:
        """Every field with its path, parents first. Elements, keys and values come as fields too."""
        return _walk(self.struct, ())

    def highest_id(self) -> int:
        """The highest id of its columns, at any depth; 0 if it has none."""
        return _highest_id(self.struct)


Path: TypeAlias = tuple[str, ...]
_Answer = TypeVar("_Answer")
_REMEMBERED = 32  # structs, of which each may have ten thousand columns


def remembered(function: Callable[[Struct], _Answer]) -> Callable[[Struct], _Answer]:
    """Remember what ``function`` answers for the last structs.

    Records that a policy may refuse are planned one by one against the same table: without it each of them
    costs as much as the table is wide. Structs are told apart by identity, as their hash goes through them.
    """
    answers: dict[int, tuple[Struct, _Answer]] = {}

    @wraps(function)
    def answer(struct: Struct) -> _Answer:
        """Answer for the struct, from memory if possible."""
        known = answers.get(id(struct))
        # The struct is kept with its answer: an id is given again once its object is gone.
        if known is None or known[0] is not struct:
            if len(answers) >= _REMEMBERED:
                answers.clear()
            known = answers[id(struct)] = struct, function(struct)
        return known[1]

    return answer


@remembered
def _highest_id(struct: Struct) -> int:
    return max((f.id for _, f in _walk(struct, ())), default=0)


def _find(type_: Type, path: Path) -> Field | None:
    first, *rest = path
    for child in children(type_):
        # Two may have one name for a while, as in a swap.
        if child.name == first and (found := _find(child.type, tuple(rest)) if rest else child):
            return found
    return None


def _walk(type_: Type, path: Path) -> Iterator[tuple[Path, Field]]:
    for child in children(type_):
        child_path = (*path, child.name)
        yield child_path, child
        yield from _walk(child.type, child_path)


def children(type_: Type) -> tuple[Field, ...]:
    """The direct children of a type, as fields."""
    match type_:
        case Struct(fields):
            return fields
        case List(element, element_id, required):
            return (Field("element", element, element_id, required),)
        case Map(key, value, key_id, value_id, required):
            return (Field("key", key, key_id, True), Field("value", value, value_id, required))
        case _:
            return ()


def with_child(type_: Type, name: str, child: Field) -> Type:
    """``type_`` with its child ``name`` replaced."""
    match type_:
        case Struct(fields):
            return Struct(tuple(child if f.name == name else f for f in fields))
        case List():
            return replace(type_, element=child.type, element_required=child.required)
        case Map() if name == "value":
            return replace(type_, value=child.type, value_required=child.required)
        case _:
            raise KeyError(name)


def all_optional(struct: Struct) -> Struct:
    """The struct with nothing required in it, at any depth."""
    fields = (replace(f, type=_all_optional(f.type), required=False) for f in struct.fields)
    return Struct(tuple(fields))


def _all_optional(type_: Type) -> Type:
    match type_:
        case Struct():
            return all_optional(type_)
        case List(element):
            return replace(type_, element=_all_optional(element), element_required=False)
        case Map(value=value):
            return replace(type_, value=_all_optional(value), value_required=False)
        case _:
            return type_


def without_types(schema: Schema, gone: Callable[[Primitive], bool]) -> Schema:
    """The schema without columns of types that are ``gone``, and without what has nothing left in it.

    >>> columns = Field("a", LONG, 1), Field("b", List(STRING), 2)
    >>> str(without_types(Schema(Struct(columns)), lambda type_: type_ == STRING).struct)
    'struct<a: long>'
    """
    return replace(schema, struct=_remaining_fields(schema.struct, gone) or Struct())


def _remaining(type_: Type, gone: Callable[[Primitive], bool]) -> Type | None:
    match type_:
        case Primitive():
            return None if gone(type_) else type_
        case Struct():
            return _remaining_fields(type_, gone)
        case List(element):
            new = _remaining(element, gone)
            return None if new is None else replace(type_, element=new)
        case Map(key, value):
            new_key, new = _remaining(key, gone), _remaining(value, gone)
            return None if new_key is None or new is None else replace(type_, key=new_key, value=new)


def _remaining_fields(struct: Struct, gone: Callable[[Primitive], bool]) -> Struct | None:
    fields = [(f, _remaining(f.type, gone)) for f in struct.fields]
    kept = tuple(
        f if new is f.type else replace(f, type=new)  # a table may have 10,000 fields
        for f, new in fields
        if new is not None
    )
    return Struct(kept) if kept else None


_WIDE = 64  # fields, from which on an answer is remembered of `of_wide`


def of_wide(function: Callable[[Struct], _Answer]) -> Callable[[Struct], _Answer]:
    """Remember the answers for wide structs alone: a batch may bring thousands of narrow ones."""
    remembering = remembered(function)

    @wraps(function)
    def answer(struct: Struct) -> _Answer:
        """Answer for the struct, from memory if it is wide."""
        return (function if len(struct.fields) < _WIDE else remembering)(struct)

    return answer


@of_wide
def fields_by_name(struct: Struct) -> Mapping[str, Field]:
    """The fields of a struct by name."""
    return {f.name: f for f in struct.fields}


def peel(type_: Type) -> tuple[int, Type]:
    """The number of lists around a type, and the type inside them.

    >>> peel(List(List(LONG)))
    (2, Primitive(name='long', args=()))
    """
    dim = 0
    while isinstance(type_, List):
        dim, type_ = dim + 1, type_.element
    return dim, type_


def wrap(type_: Type, dim: int) -> Type:
    """Wrap a type in ``dim`` lists."""
    for _ in range(dim):
        type_ = List(type_)
    return type_


def inside(path: Path, type_: Type) -> Path:
    """The path of the contents of the type's lists."""
    return path + ("element",) * peel(type_)[0]


def with_base(type_: Type, base: Type) -> Type:
    """Replace the type inside a type's lists."""
    return replace(type_, element=with_base(type_.element, base)) if isinstance(type_, List) else base


def value_of(type_: Type) -> Type:
    """The type of the values of a map inside lists."""
    base = peel(type_)[1]
    assert isinstance(base, Map)
    return base.value


def with_value(type_: Type, value: Type) -> Type:
    """Replace the type of the values of a map inside lists."""
    base = peel(type_)[1]
    assert isinstance(base, Map)
    return with_base(type_, replace(base, value=value))


def hollow(type_: Type) -> bool:
    """True if the type contains a struct without fields, which cannot be written."""
    if isinstance(type_, Primitive):
        return False
    if isinstance(type_, Struct) and not type_.fields:
        return True
    return any(hollow(child.type) for child in children(type_))


def leaves(type_: Type) -> int:
    """Count the leaf columns of a type."""
    if isinstance(type_, Primitive):
        return 1
    fields = children(type_)
    return sum(leaves(f.type) for f in fields) if fields else int(not isinstance(type_, Struct))


def dotted(path: Path) -> str:
    """A path as people read it."""
    return ".".join(path)


@pickled_by_fields
@dataclass(frozen=True, slots=True, order=True)
class SourceLocation:
    """The place where something first appeared.

    Attributes:
        source: a file or a topic.
        line: a line or an offset.
        position: a position in the record.
    """

    source: str = ""
    line: int = 0
    position: int = 0

    def __str__(self) -> str:
        source = name_text(self.source)
        return f"{source}:{self.line}" if self.line else source


def name_text(name: str) -> str:
    """The text of a file's name, which is bytes to its file system: those that are not UTF-8 are escaped.

    >>> name_text("a\\udcff.json")
    'a\\\\xff.json'
    """
    return name if name.isascii() else name.encode(errors="surrogateescape").decode(errors="backslashreplace")


# Behind the name of such a column's type: no value is of that type
UNWRITABLE = ", which is not written"


def mark_unwritable(schema: Schema, fillable: Schema) -> Schema:
    """Replace each column that is not in ``fillable`` by one of a type that takes no value."""
    ids = {f.id for _, f in fillable.walk()}

    def of(type_: Type, id_: int) -> Type:
        """Mark each column inside the type that is not fillable."""
        match type_:
            case Struct(fields):
                return Struct(tuple(replace(f, type=of(f.type, f.id)) for f in fields))
            case List():
                return replace(type_, element=of(type_.element, type_.element_id))
            case Map():
                return replace(type_, value=of(type_.value, type_.value_id))
            case Primitive() if id_ in ids or type_ == UNKNOWN:
                return type_
            case Primitive(name, args):
                return Primitive(name + UNWRITABLE, args)

    if len(ids) == sum(1 for _ in schema.walk()):
        return schema
    struct = of(schema.struct, 0)
    assert isinstance(struct, Struct)
    return replace(schema, struct=struct)
