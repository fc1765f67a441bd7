"""Changes to a schema, as values: the planner makes them, formats apply a list of them in one commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from driftline.core.schema_json import type_name
from driftline.core.shape import Place
from driftline.core.types import (
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    dotted,
    with_child,
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a change is made: the rule, in words, and the value that caused it."""

    rule: str = ""
    why: str = ""
    field: Path = ()
    sample: str = ""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Adds ``column`` at the end of the struct at ``parent``. ``within`` a struct that is itself new: it
    comes with that struct's type, and is listed to be seen."""

    parent: Path
    column: Field
    reason: Reason = Reason()
    within: bool = False

    action = "add"

    @property
    def path(self) -> Path:
        return (*self.parent, self.column.name)

    @property
    def type(self) -> Type:
        return self.column.type


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Gives the primitive at ``path`` a wider type of its family."""

    path: Path
    type: Primitive
    reason: Reason = Reason()

    action = "widen"


@dataclass(frozen=True, slots=True)
class RelaxColumn:
    """Makes a required column optional."""

    path: Path
    type: Type
    reason: Reason = Reason()

    action = "relax"


@dataclass(frozen=True, slots=True)
class RewriteColumn:
    """Gives the column at ``path`` a type that only rewritten data can have: a column of the same name, in the same
    place, with an id of its own."""

    path: Path
    type: Type
    reason: Reason = Reason()

    action = "rewrite"


Change: TypeAlias = AddColumn | WidenColumn | RelaxColumn | RewriteColumn


def apply(schema: Schema, changes: Iterable[Change]) -> Schema:
    """The schema after ``changes``, with fresh ids for what is new, as a table would give them.

    >>> from driftline.core.types import LONG
    >>> str(apply(Schema(), [AddColumn((), Field("a", LONG))]).struct)
    'struct<a: long>'
    """
    ids = _Ids(schema.highest_id())
    struct: Type = schema.struct
    for change in changes:
        match change:
            case AddColumn(within=True):
                continue
            case AddColumn(parent, column):
                struct = _at(
                    struct, parent, lambda f, c=column: replace(f, type=_append(f.type, ids.fresh(c)))
                )
            case WidenColumn(path, type_):
                struct = _at(struct, path, lambda f, t=type_: replace(f, type=t))
            case RelaxColumn(path):
                struct = _at(struct, path, lambda f: replace(f, required=False))
            case RewriteColumn(path, type_):
                struct = _at(struct, path, lambda f, t=type_: ids.fresh(replace(f, type=t)))
    assert isinstance(struct, Struct)
    return replace(schema, struct=struct)


def fresh(column: Field, last: int) -> Field:
    """The column with ids after ``last``, its own first, as a table gives them."""
    return _Ids(last).fresh(column)


class _Ids:
    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last

    def fresh(self, column: Field) -> Field:
        return replace(column, id=self.next(), type=self._type(column.type))

    def _type(self, type_: Type) -> Type:
        match type_:
            case Struct(fields):
                own = [replace(f, id=self.next()) for f in fields]
                return Struct(tuple(replace(f, type=self._type(f.type)) for f in own))
            case List(element):
                return replace(type_, element_id=self.next(), element=self._type(element))
            case Map(key, value):
                key_id, value_id = self.next(), self.next()
                return replace(
                    type_, key_id=key_id, value_id=value_id, key=self._type(key), value=self._type(value)
                )
            case _:
                return type_


def _append(type_: Type, column: Field) -> Struct:
    if not isinstance(type_, Struct):
        raise TypeError(f"no struct to add {column.name} to, but {type_}")
    return Struct((*type_.fields, column))


def _at(type_: Type, path: Path, edit: Any) -> Type:
    """``type_`` with the field at ``path`` edited; the empty path is the struct itself."""
    if not path:
        edited: Field = edit(Field("", type_))
        return edited.type
    child = next((f for f in children(type_) if f.name == path[0]), None)
    if child is None:
        raise KeyError(dotted(path))
    if len(path) == 1:
        return with_child(type_, path[0], edit(child))
    return with_child(type_, path[0], replace(child, type=_at(child.type, path[1:], edit)))


def to_dict(change: Change) -> dict[str, Any]:
    """The change as `ingest --json` prints it."""
    reason = change.reason
    return {
        "action": change.action,
        "path": dotted(change.path),
        "field": dotted(reason.field or change.path),
        "type": type_name(change.type),
        "rule": reason.rule,
        "why": reason.why,
        "sample": reason.sample,
        "seen_in": str(reason.place or ""),
    }
