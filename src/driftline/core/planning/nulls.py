"""Required columns: which ones become optional, and which refuse a record without a value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from driftline.core.changes import Reason, RelaxColumn
from driftline.core.planning.contract import Contract
from driftline.core.planning.field_plan import FieldDecision
from driftline.core.planning.findings import NOTHING, Findings, gathered
from driftline.core.planning.policies import policy_of
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


@dataclass(frozen=True, slots=True)
class Filled:
    """A column of a field in the data, and its route."""

    decision: FieldDecision
    field: FieldRoute
    column: ColumnRoute

    @property
    def always(self) -> bool:
        """True if the column holds every value of the field."""
        shape, facet = self.field.shape, self.column.facet
        return (
            shape.empty_lists <= facet.dim
            and not (shape.empty_record and isinstance(facet.base, Primitive))
            and all(f in self.column.takes and self.decision.accepts(facet, f) for f in shape.facets)
            and not self.field.beyond
        )

    @property
    def in_every_record(self) -> bool:
        """True if every record has a value of the field."""
        shape = self.field.shape
        return bool(shape.facets or shape.empty_lists or shape.empty_record) and not shape.missing


def relaxed(
    column: Field,
    path: Path,
    data_path: Path,
    filled: Filled | None,
    contract: Contract,
    identifiers: Collection[int],
) -> tuple[Field, Findings]:
    """Make a required column optional if some record has neither a value for it nor its default.

    Identifier fields and the structs around them stay required, and so does a column whose ``contract``
    forbids the change: such records are refused. ``filled`` None: the data has no such field.
    """
    if not column.required or _has_value(column, filled):
        return column, NOTHING
    place = filled.field.shape.place if filled else Place()
    if any(f.id in identifiers for _, f in Schema(Struct((column,))).walk()):
        why = "an identifier field without a value"
    else:
        why = policy_of(contract.policy).keeps_required(absent=filled is None or filled.field.shape.absent)
    if why:
        conflict = Conflict(data_path, facet_of(column.type).spelled(), None, why, "", place)
        return column, Findings(conflicts=(conflict,))
    reason = Reason("relax", "some record has no value for it", path, "", place if filled else None)
    return replace(column, required=False), Findings((RelaxColumn(path, column.type, reason),))


def _has_value(column: Field, filled: Filled | None) -> bool:
    """True if every record has a value that the column holds, or no key at all and so the default."""
    default = column.write_default is not None
    if filled is None:
        return default
    return (default or filled.in_every_record) and filled.always


def opened(type_: Type, path: Path, place: Place) -> tuple[Type, Findings]:
    """Make a list's elements or a map's values optional where nulls arrive, or values that do not fit."""
    if not isinstance(type_, List | Map):
        return type_, NOTHING
    child = children(type_)[-1]
    below = (*path, child.name)
    findings = NOTHING
    if child.required:
        why = "a list or map of the data may hold null, or what does not fit"
        findings = Findings((RelaxColumn(below, child.type, Reason("relax", why, below, "", place)),))
    inner, more = opened(child.type, below, place) if isinstance(type_, List) else (child.type, NOTHING)
    return with_child(type_, child.name, replace(child, type=inner, required=False)), gathered(
        [findings, more]
    )
