"""The planner: one batch's shape against a schema, level by level.

The fields of a record are planned together, because they share names: decide each, name the new columns, then
go into each. The records inside them are planned by the same function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from driftline.core.changes import AddColumn, Reason, RelaxColumn
from driftline.core.planning.contract import Contract
from driftline.core.planning.decide import decide_field
from driftline.core.planning.field_notes import hint_of_keys
from driftline.core.planning.field_plan import (
    Context,
    FieldDecision,
    NewColumn,
    Target,
    declared,
    in_order,
    named_columns,
)
from driftline.core.planning.findings import NOTHING, Findings, gathered
from driftline.core.planning.limits import in_rest
from driftline.core.planning.objects import FixedKeys, fixed_contract, fixed_route
from driftline.core.planning.policies import policy_of
from driftline.core.planning.routes import ColumnRoute, Conflict, FieldRoute, RecordRoute, facet_of
from driftline.core.planning.shape import RECORD, Facet, FieldShape, MapOf, RecordShape, merge_all
from driftline.core.planning.stubs import hollow, inside, value_of, with_base, with_value
from driftline.core.schema.naming import by_key, is_metadata
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
    peel,
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
            and not self.field.to_rest
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
        why = "an identifier field has no value"
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
    child_path = (*path, child.name)
    findings = NOTHING
    if child.required:
        why = "a list or map of the data may hold null, or what does not fit"
        findings = Findings(
            (RelaxColumn(child_path, child.type, Reason("relax", why, child_path, "", place)),)
        )
    child_type, child_findings = (
        opened(child.type, child_path, place) if isinstance(type_, List) else (child.type, NOTHING)
    )
    return with_child(type_, child.name, replace(child, type=child_type, required=False)), gathered(
        [findings, child_findings]
    )


@dataclass(frozen=True, slots=True)
class Scope:
    """A struct of the table, and the record of the data that fills it.

    ``data_path`` differs from ``schema_path`` below a sibling or a renamed column;
    ``is_new``: this batch makes the struct itself.
    """

    struct: Struct
    schema_path: Path = ()
    data_path: Path = ()
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class PlannedRecord:
    """A record planned: its struct, and the routes that fill it."""

    struct: Struct
    route: RecordRoute
    findings: Findings = NOTHING


@dataclass(frozen=True, slots=True)
class _Field:
    """A decided field of a record: its columns, and drafts of the new ones."""

    key: str
    known: Sequence[Field]
    drafts: Sequence[NewColumn]
    decision: FieldDecision


@dataclass(frozen=True, slots=True)
class _Column:
    """A column to be filled; ``is_new``: this batch makes it."""

    type: Type
    path: Path
    is_new: bool


@dataclass(frozen=True, slots=True)
class _Routed:
    """A routed field. ``columns``: those filled, with their types; ``dropped``: names of new ones that would
    hold nothing.
    """

    decision: FieldDecision
    route: FieldRoute
    columns: Sequence[Field]
    dropped: frozenset[str] = frozenset()
    findings: Findings = NOTHING


def plan_record(scope: Scope, shape: RecordShape, contract: Contract, context: Context) -> PlannedRecord:
    """Plan a record of this shape, at every depth."""
    columns_by_key = by_key(scope.struct.fields, context.settings.mark)
    decided = [
        _decide(scope, key, columns_by_key.get(key, []), field_shape, contract, context)
        for key, field_shape in in_order(shape, contract, empty_names=context.settings.keep_empty_names)
    ]
    drafts = [draft for field in decided for draft in field.drafts]
    named = named_columns(scope.struct, drafts, context.settings.mark)
    routed = list(_routed(scope, decided, named, context))

    added = _added(named, drafts, routed)
    columns = _columns(scope, added, routed)
    optional, nulls = _without_values(scope, shape, columns, routed, contract, context)
    columns |= optional
    changes = (AddColumn(scope.schema_path, columns[c.name], d.reason, scope.is_new) for c, d in added)
    findings = [
        Findings(tuple(changes)),  # a column is listed before what is inside it
        *(field.decision.findings for field in decided),
        *(field.findings for field in routed),
        nulls,
        hint_of_keys(scope.data_path, shape, contract) if added else NOTHING,
    ]
    route = RecordRoute(tuple(field.route for field in routed))
    return PlannedRecord(Struct(tuple(columns.values())), route, gathered(findings))


def _added(
    named: Sequence[Field], drafts: Sequence[NewColumn], routed: Sequence[_Routed]
) -> list[tuple[Field, NewColumn]]:
    """The new columns that hold something, in the order of their values in the data."""
    dropped = frozenset[str]().union(*(field.dropped for field in routed))
    added = [(c, d) for c, d in zip(named, drafts, strict=True) if c.name not in dropped]
    return sorted(added, key=lambda item: item[1].reason.place or Place())


def _columns(
    scope: Scope, added: Sequence[tuple[Field, NewColumn]], routed: Sequence[_Routed]
) -> dict[str, Field]:
    """The struct's columns by name, new ones last, with their present types."""
    columns = {c.name: c for c in (*scope.struct.fields, *(c for c, _ in added))}
    return columns | {c.name: c for field in routed for c in field.columns}


def _decide(
    scope: Scope,
    key: str,
    columns: Sequence[Field],
    shape: FieldShape,
    record_contract: Contract,
    context: Context,
) -> _Field:
    """Decide one field of a record, and draft its new columns, declared ones first."""
    data_path, contract = (*scope.data_path, key), record_contract.of(key)
    drafts = declared(key, columns, contract, data_path)
    is_unknown = not columns and not drafts and (record_contract.declares_fields or not scope.is_new)
    target = Target(
        (*(c.type for c in columns), *(d.stub for d in drafts)),
        (*((*scope.schema_path, c.name) for c in columns), *((*scope.schema_path, key) for _ in drafts)),
        data_path,
        scope.is_new,
        may_wait=is_unknown and bool(context.schema.struct.fields),
        must_wait=len(key) > context.settings.max_key and not (columns or drafts),
        never=not key and context.settings.keep_empty_names,
    )
    decision = decide_field(target, shape, contract, context)
    drafts += [
        NewColumn(key, stub, reason, stub == decision.original, shape.comment)
        for stub, reason in decision.new
    ]
    return _Field(key, columns, drafts, decision)


def _routed(
    scope: Scope, decided: Sequence[_Field], named: Sequence[Field], context: Context
) -> Iterator[_Routed]:
    """Route the fields to their columns. ``named``: the new columns of all fields, in order."""
    new_columns = iter(named)
    for field in decided:
        new = [next(new_columns) for _ in field.drafts]
        yield _route_field(scope, field, new, context)


def _route_field(scope: Scope, field: _Field, new: Sequence[Field], context: Context) -> _Routed:
    decision = field.decision
    columns = [*field.known, *new]
    types = [*decision.types, *(stub for stub, _ in decision.new)]
    targets = [
        _Column(type_, (*scope.schema_path, column.name), scope.is_new or i >= len(field.known))
        for i, (column, type_) in enumerate(zip(columns, types, strict=True))
    ]
    routes, findings = _route_columns(decision, targets, (*scope.data_path, field.key), context)
    # The fields of a hollow one are still to come, or have no room.
    pairs = [*zip(columns, routes, strict=True)]
    filled = [(c, route) for c, route in pairs if not hollow(route.type)]
    without = [(c, route) for c, route in pairs if hollow(route.type)]
    to_rest, column_routes = in_rest([route for _, route in filled], [route for _, route in without])
    to_rest |= decision.to_rest
    return _Routed(
        replace(decision, to_rest=to_rest) if to_rest != decision.to_rest else decision,
        FieldRoute(field.key, decision.shape, column_routes, to_rest=to_rest),
        [replace(column, type=route.type) for column, route in filled],
        frozenset(column.name for column, _ in without if column in new),
        findings,
    )


def _without_values(
    scope: Scope,
    shape: RecordShape,
    columns: dict[str, Field],
    routed: Sequence[_Routed],
    contract: Contract,
    context: Context,
) -> tuple[dict[str, Field], Findings]:
    """The columns that become optional because some record has no value for them, and the refusals of such
    records.
    """
    if scope.is_new or not (scope.schema_path or shape.fields):
        return {}, NOTHING
    filled = {
        column.name: Filled(field.decision, field.route, column)
        for field in routed
        for column in field.route.columns
    }
    optional, findings = {}, []
    for column in scope.struct.fields:
        if not column.required or is_metadata(column.doc):
            continue
        by = filled.get(column.name)
        key = by.field.key if by else column.name
        optional[column.name], column_findings = relaxed(
            columns[column.name],
            (*scope.schema_path, column.name),
            (*scope.data_path, key),
            by,
            contract.of(key),
            context.schema.identifiers,
        )
        findings.append(column_findings)
    return optional, gathered(findings)


def _route_columns(
    decision: FieldDecision, columns: Sequence[_Column], data_path: Path, context: Context
) -> tuple[list[ColumnRoute], Findings]:
    """The route of each column of a field, or of a map's values."""
    values, value_findings = _route_values(decision, columns, data_path, context)
    facets = [facet_of(column.type) for column in columns]
    widest = max((f.dim for f in facets if f.base == RECORD), default=0)  # record column, in dimensions
    routes, findings = [], [value_findings]
    for i, column in enumerate(columns):
        takes = tuple(
            facet
            for facet in decision.shape.facets
            if decision.takes(facets[i], facet)
            and (facets[i].base != RECORD or facets[i].dim in (widest, facet.dim))
        )
        route, column_findings = _route_column(decision, column, takes, data_path, context)
        if i in values:
            value = values[i]
            route = replace(route, type=with_value(route.type, value.columns[0].type), value=value)
        routes.append(route)
        findings.append(column_findings)
    return routes, gathered(findings)


def _route_values(
    decision: FieldDecision, columns: Sequence[_Column], data_path: Path, context: Context
) -> tuple[dict[int, FieldRoute], Findings]:
    """The routes of the values in map columns, by the columns' places."""
    facets = [facet_of(column.type) for column in columns]
    routes: dict[int, FieldRoute] = {}
    findings = []
    for base, value in decision.values.items():
        places = [i for i, facet in enumerate(facets) if facet.base == base]
        if not places:  # all such maps go to the rest
            continue
        value_columns = [_value_column(columns[i]) for i in places]
        filled, value_findings = _route_columns(value, value_columns, (*data_path, "value"), context)
        findings.append(value_findings)
        left_out = decision.contract.inside(max(facets[i].dim for i in places)).excluded_keys
        for i, route in zip(places, filled, strict=True):
            routes[i] = FieldRoute(
                "value",
                value.shape,
                (route,),
                left_out=left_out,
                no_words=decision.fixed_keys is FixedKeys.data,
                to_rest=value.to_rest,
            )
    return routes, gathered(findings)


def _value_column(column: _Column) -> _Column:
    """The values of a map column, as a column of their own."""
    return replace(column, type=value_of(column.type), path=(*inside(column.path, column.type), "value"))


def _route_column(
    decision: FieldDecision, column: _Column, takes: tuple[Facet, ...], data_path: Path, context: Context
) -> tuple[ColumnRoute, Findings]:
    """The route of one column, with everything in its records."""
    type_, shape, unit = column.type, decision.shape, decision.contract.epoch_unit
    findings = [NOTHING]
    many = shape.empty_lists or any(f.dim or isinstance(f.base, MapOf) for f in takes)
    if many and not column.is_new:
        type_, findings_inside = opened(type_, column.path, shape.place)
        findings.append(findings_inside)
    if facet_of(type_).base != RECORD or not (takes or shape.empty_record or hollow(type_)):
        return ColumnRoute(column.path[-1], type_, takes, unit=unit), gathered(findings)
    record = _plan_inside(decision, replace(column, type=type_), takes, data_path, context)
    # No map takes structs of typed sources.
    typed = any(shape.facets[facet].typed for facet in takes)
    route = record.route if typed else fixed_route(record.route, decision.fixed_keys)
    filled = with_base(type_, record.struct)
    return ColumnRoute(column.path[-1], filled, takes, route, unit=unit), gathered(
        [*findings, record.findings]
    )


def _plan_inside(
    decision: FieldDecision, column: _Column, takes: tuple[Facet, ...], data_path: Path, context: Context
) -> PlannedRecord:
    """Plan the records in a column."""
    facets = decision.shape.facets
    shape = merge_all(record for f in takes if (record := facets[f].record) is not None)
    dim, struct = peel(column.type)
    assert isinstance(struct, Struct)
    contract = fixed_contract(decision.contract.inside(dim), decision.fixed_keys, shape.fields)
    scope = Scope(struct, inside(column.path, column.type), inside(data_path, column.type), column.is_new)
    return plan_record(scope, shape, contract, context)
