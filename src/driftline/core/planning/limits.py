"""Limits of a table: fields that get no column because earlier ones fill it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import zip_longest

from driftline.core.changes import AddColumn, Change
from driftline.core.planning.plan import ColumnRoute, Plan
from driftline.core.planning.shape import Facet
from driftline.core.schema.naming import is_metadata
from driftline.core.schema.types import (
    Field,
    Map,
    Path,
    Schema,
    SourceLocation,
    Struct,
    Type,
    children,
    dotted,
    hollow,
    leaves,
    peel,
    remembered,
    with_child,
)
from driftline.core.settings.table import TableSettings

Exceeding = dict[tuple[Path, Facet], str]


def beyond_limits(plan: Plan, last: Mapping[Path, Facet], settings: TableSettings) -> Exceeding:
    """For each field with a new column that exceeds a limit: a type that gets no column, and why.

    Args:
        last: the type of each field that arrived last.
    """
    # One limit at a time: what the first refuses leaves more room under the second, and the plan is made
    # again.
    return _beyond_fields(plan, last, settings) or _beyond_columns(plan, last, settings)


def without_limits(settings: TableSettings) -> TableSettings:
    """The settings without limits on columns."""
    return replace(settings, max_columns=sys.maxsize, max_fields=None)


def schema_before(plan: Plan, location: SourceLocation) -> Schema:
    """The planned table with only the columns that records before this place need."""
    record = SourceLocation(location.source, location.line)
    # Whether a record exceeds a limit depends on the records before it, not on the whole batch.
    late = {c.path for c in plan.changes if isinstance(c, AddColumn) and _place(c) >= record}
    struct = _without(plan.schema.struct, late, ())
    assert isinstance(struct, Struct)
    return replace(plan.schema, struct=struct)


def _without(type_: Type, late: AbstractSet[Path], path: Path) -> Type:
    """The type without the columns at these paths, and without structs that would be empty."""
    if isinstance(type_, Struct):
        fields = (
            replace(f, type=_without(f.type, late, (*path, f.name)))
            for f in type_.fields
            if (*path, f.name) not in late
        )
        return replace(type_, fields=tuple(f for f in fields if not hollow(f.type)))
    for child in children(type_):
        if child.name != "key":
            child_type = _without(child.type, late, (*path, child.name))
            type_ = with_child(type_, child.name, replace(child, type=child_type))
    return type_


@remembered
def leaf_columns(struct: Struct) -> int:
    """Count the leaf columns that hold data of records."""
    # Fields of the record itself have no limit but this: a CSV file of 2,000 columns is no mistake.
    return sum(map(_leaves_of, struct.fields))


def in_rest(
    routes: Sequence[ColumnRoute], unmade: Sequence[ColumnRoute]
) -> tuple[frozenset[Facet], tuple[ColumnRoute, ...]]:
    """Send values to the rest because the ``unmade`` columns of a field are not made.

    Returns the types that go there whole, and the routes of the field's columns: inside a map, such values go
    to the rest key by key.
    """
    unfilled = [route for route in unmade if not any(_same_maps(route, filled) for filled in routes)]
    to_rest = frozenset().union(*map(_all_inside, unfilled))
    return to_rest, tuple(_with_values(route, unmade) for route in routes)


def _all_inside(route: ColumnRoute) -> frozenset[Facet]:
    """The types of a column whose contents all go to the rest."""
    inside = (route.record is not None and route.record.has_rest) or (
        route.value is not None and route.value.has_rest
    )
    return frozenset(route.takes) if inside else frozenset()


def _with_values(route: ColumnRoute, unmade: Iterable[ColumnRoute]) -> ColumnRoute:
    """The route with the values of its maps in the rest that need ``unmade`` columns."""
    if route.value is None:
        return route
    values = [
        unfilled.value for unfilled in unmade if unfilled.value is not None and _same_maps(route, unfilled)
    ]
    to_rest, columns = in_rest(route.value.columns, [column for value in values for column in value.columns])
    value = replace(route.value, columns=columns, to_rest=route.value.to_rest | to_rest)
    return replace(route, value=value)


def _same_maps(route: ColumnRoute, candidate: ColumnRoute) -> bool:
    return (
        route.value is not None and candidate.value is not None and route.facet.base == candidate.facet.base
    )


def _beyond_fields(plan: Plan, last: Mapping[Path, Facet], settings: TableSettings) -> Exceeding:
    """Fields of structs inside the record that exceed ``max_fields``."""
    limit = settings.max_fields
    added: dict[Path, list[AddColumn]] = defaultdict(list)
    for change in plan.changes:
        if isinstance(change, AddColumn) and change.parent:
            added[change.parent].append(change)
    if limit is None or not added:
        return {}
    fields = {path: len(f.type.fields) for path, f in plan.before.walk() if isinstance(f.type, Struct)}
    exceeding: Exceeding = {}
    order: _Order | None = None
    for parent, columns in added.items():
        room = max(0, limit - fields.get(parent, 0))
        if len(columns) > room:
            # Made once, of all changes: there may be as many structs as changes.
            order = order or _Order(plan.changes)
            beyond = sorted(columns, key=order.of)[room:]
            exceeding |= _types_of(beyond, last, settings, f"have more than max_fields = {limit}")
    return exceeding


def _beyond_columns(plan: Plan, last: Mapping[Path, Facet], settings: TableSettings) -> Exceeding:
    """Fields whose columns would exceed ``max_columns`` for the table."""
    limit = settings.max_columns
    added = _leaf_columns(plan.changes)
    size = sum(leaves(c.type) for c in added)
    # What is added is counted first: a record that brings nothing should not cost a walk over the table.
    if size <= limit - leaf_columns(plan.before.struct) or not added:
        return {}
    # A change may widen what the table has, or bring a struct without a leaf of its own.
    room = limit - (_leaf_columns_after(plan) - size)
    without: list[AddColumn] = []
    for column in sorted(added, key=_Order(plan.changes).of):
        # A smaller column later on may still fit, so the walk goes on.
        if leaves(column.type) > room:
            without.append(column)
        else:
            room -= leaves(column.type)
    return _types_of(without, last, settings, f"take the table beyond max_columns = {limit}")


def _leaf_columns_after(plan: Plan) -> int:
    """Count the leaf columns of the planned table, of those alone that are not as they were."""
    before, after = plan.before.struct, plan.schema.struct
    count = leaf_columns(before)
    for old, new in zip_longest(before.fields, after.fields):
        if old is not new:
            count += _leaves_of(new) - _leaves_of(old)
    return count


def _leaves_of(column: Field | None) -> int:
    return 0 if column is None or is_metadata(column.doc) else leaves(column.type)


def _leaf_columns(changes: Iterable[Change]) -> list[AddColumn]:
    """New columns that hold values themselves; the contents of a struct are listed separately."""
    return [c for c in changes if isinstance(c, AddColumn) and not isinstance(peel(c.type)[1], Struct)]


class _Order:
    """The order of new columns: record by record, in the order of their fields."""

    def __init__(self, changes: Iterable[Change]) -> None:
        """Take the places of the columns around the new ones from all changes of the plan."""
        self._positions = {c.reason.field: _place(c).position for c in changes if isinstance(c, AddColumn)}

    def of(self, column: AddColumn) -> tuple[str, int, list[int]]:
        """A key to sort by."""
        # A column around that is there already has no place, and then the places inside decide.
        location, path = _place(column), column.reason.field
        within = [
            self._positions.get(path[: depth + 1], 0) for depth, key in enumerate(path) if key != "element"
        ]
        return location.source, location.line, within


def _place(column: AddColumn) -> SourceLocation:
    return column.reason.location or SourceLocation()


def _types_of(
    columns: Iterable[AddColumn], last: Mapping[Path, Facet], settings: TableSettings, would: str
) -> Exceeding:
    """The last types to arrive of these columns' fields; a type that a hint declares keeps its column."""
    exceeding: Exceeding = {}
    for column in columns:
        path = column.reason.field
        field_settings = settings.fields.at(path)
        if field_settings.hint is not None or field_settings.declares_fields:
            continue
        base = peel(column.type)[1]
        while isinstance(base, Map) and (*path, "value") in last:
            # Of a map, the values of one type have no room; with the last of them it goes as a whole.
            path, base = (*path, "value"), peel(base.value)[1]
        if path in last:
            exceeding[path, last[path]] = f"{dotted(column.reason.field[:-1]) or 'the record'} would {would}"
    return exceeding
