"""Required columns: which become optional, and which refuse a record without a value."""

from __future__ import annotations

from dataclasses import dataclass, replace

from driftline.core.changes import Change, Reason, RelaxColumn
from driftline.core.planning.contract import Contract
from driftline.core.planning.field_plan import Slot
from driftline.core.planning.routes import ColumnRoute, Conflict, FieldRoute, facet_of
from driftline.core.schema.place import Place
from driftline.core.schema.types import (
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    with_child,
)


@dataclass(slots=True)
class Nulls:
    """Adds to ``changes`` and ``conflicts``."""

    schema: Schema
    changes: list[Change]
    conflicts: list[Conflict]

    def relaxed(
        self,
        column: Field,
        path: Path,
        keys: Path,
        way: tuple[Slot, FieldRoute, ColumnRoute] | None,
        contract: Contract,
    ) -> Field:
        """The column, made optional if it is required and some record
        has neither a value for it nor its default.

        Not so where the policy forbids it, nor identifier fields and
        what they are in: such records are refused.
        """
        if not column.required or self.always(column, way):
            return column
        policy = contract.of(keys[-1]).policy
        absent = way is None or way[1].shape.absent
        why = ""
        if any(f.id in self.schema.identifiers for _, f in Schema(Struct((column,))).walk()):
            why = "an identifier field without a value"
        elif policy == "strict":
            why = "a required column without a value; the schema is frozen"
        elif policy == "widen" and absent:
            why = "a required column that no record of the batch has"
        place = way[1].shape.place if way else Place()
        if why:
            self.conflicts.append(Conflict(keys, facet_of(column.type).spelled(), None, why, "", place))
            return column
        reason = Reason("relax", "some record has no value for it", path, "", place if way else None)
        self.changes.append(RelaxColumn(path, column.type, reason))
        return replace(column, required=False)

    def always(self, column: Field, way: tuple[Slot, FieldRoute, ColumnRoute] | None) -> bool:
        """Whether every record has a value of the field that the column holds, or none and so the default."""
        default = column.write_default is not None
        if way is None:
            return default
        slot, field, route = way
        shape, facet = field.shape, route.facet
        seen = shape.facets or shape.empty_lists or shape.empty_record
        return (
            (default or (bool(seen) and not shape.missing))
            and shape.empty_lists <= facet.dim
            and not (shape.empty_record and isinstance(facet.base, Primitive))
            and all(f in route.takes and slot.accepts(facet, f) for f in shape.facets)
            and not field.beyond
        )

    def opened(self, type_: Type, path: Path, place: Place) -> Type:
        """A list or map column with elements or values that may be
        null: the data's own, and what does not fit.
        """
        if not isinstance(type_, List | Map):
            return type_
        child = children(type_)[-1]
        below = (*path, child.name)
        if child.required:
            why = "a list or map of the data may hold null, or what does not fit"
            self.changes.append(RelaxColumn(below, child.type, Reason("relax", why, below, "", place)))
        inner = self.opened(child.type, below, place) if isinstance(type_, List) else child.type
        return with_child(type_, child.name, replace(child, type=inner, required=False))
