"""Columns that no value can be written to: the planner sees them, and routes nothing there."""

from __future__ import annotations

from dataclasses import replace

from driftline.core.schema.types import UNKNOWN, List, Map, Primitive, Schema, Struct, Type

UNWRITABLE = ", which is not written"  # behind the name of such a column's type: no value is of that type


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
