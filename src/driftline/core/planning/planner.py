"""Plans a batch: a schema and a shape in, changes and routes out. Pure.

The fields of a record are planned together, because they share names: decide each, name the new columns, then
go into each. The records inside them are planned by the same function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from driftline.core.changes import AddColumn, Change, Reason, RelaxColumn, RewriteColumn, apply
from driftline.core.planning.field import (
    NOTHING,
    Context,
    FieldDecision,
    Findings,
    NewColumn,
    Target,
    decide_field,
    declared,
    hint_of_keys,
    in_order,
    merge_findings,
    named_columns,
    notes_of_maps,
)
from driftline.core.planning.limits import Exceeding, beyond_limits, in_rest
from driftline.core.planning.maps import FixedKeys, fixed_route, fixed_settings
from driftline.core.planning.own_columns import REST, source_column, with_own
from driftline.core.planning.patchable import not_mergeable
from driftline.core.planning.plan import ColumnRoute, Conflict, FieldRoute, Plan, RecordRoute, facet_of
from driftline.core.planning.policies import policy_of
from driftline.core.planning.shape import RECORD, Facet, FieldShape, MapOf, RecordShape, merge_all
from driftline.core.schema.definition import CHANGE, UNAVAILABLE
from driftline.core.schema.naming import is_metadata, struct_by_key
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
    children,
    fields_by_name,
    hollow,
    inside,
    of_wide,
    peel,
    value_of,
    with_base,
    with_child,
    with_value,
)
from driftline.core.settings.fields import FieldSettings
from driftline.core.settings.row_key import KEY, ORDER, ORDERS_COLUMN, ORDERS_KIND, RowKey
from driftline.core.settings.table import TableSettings
from driftline.core.support import gc_paused


@gc_paused()
def plan(
    schema: Schema,
    shape: RecordShape,
    settings: TableSettings | None = None,
    not_rewritten: frozenset[Path] = frozenset(),
) -> Plan:
    """Plan the changes to ``schema`` for a batch of ``shape``, and the route of each field.

    A field that exceeds ``max_columns`` or ``max_fields`` is refused, or goes to the rest.

    Args:
        schema: the table's schema.
        shape: the batch's shape.
        settings: the table's settings.
        not_rewritten: columns that are not rewritten, though the settings allow it.

    Returns:
        The plan; its ``conflicts`` are the refusals of policies.

    >>> from driftline.core.planning.shape import Facet, FieldShape, Profile
    >>> from driftline.core.schema.types import SourceLocation
    >>> from driftline.core.schema.types import LONG
    >>> size = FieldShape(SourceLocation(), {Facet(0, LONG): Profile(SourceLocation(), "4")})
    >>> str(plan(Schema(), RecordShape({"size": size})).schema.struct)
    'struct<size: long>'
    """
    settings = settings or TableSettings()
    refused: Exceeding = {}
    # Each round refuses at least one type more, so it ends; columns that go leave room for others.
    while True:
        planned, last = _planned(shape, Context(settings, schema, refused, not_rewritten))
        exceeding = beyond_limits(planned, last, settings)
        if exceeding.keys() <= refused.keys():
            # driftline's own columns come last: limits do not count them, and no policy refuses them.
            planned = with_own(planned, [REST]) if planned.route.has_rest else planned
            if settings.metadata and shape.fields:
                planned = with_own(planned, [source_column(settings.metadata)])
            row_key = settings.row_key if shape.fields else None
            return planned if row_key is None else with_own(planned, _of_rows(row_key, shape))
        refused = exceeding | refused


def _of_rows(row_key: RowKey, shape: RecordShape) -> list[Field]:
    """Return driftline's own columns that the rows have from this batch on."""
    columns = row_key.columns
    change = shape.fields.get(CHANGE)
    if row_key.keeps_fields and change is not None:
        records = [profile.record for profile in change.facets.values() if profile.record is not None]
        if any(UNAVAILABLE[-1] in record.fields for record in records):
            columns |= {ORDERS_KIND: ORDERS_COLUMN}
    return list(columns.values())


def _planned(shape: RecordShape, context: Context) -> tuple[Plan, Mapping[Path, Facet]]:
    """Return the plan, and the last type to arrive in each field."""
    schema = context.schema
    record = _plan_record(_Scope(schema.struct), shape, context.settings.fields, context)
    findings = record.findings
    changes = tuple(_lifted(findings.changes, schema, record.struct))
    after = apply(schema, changes)
    planned = Plan(
        schema,
        after,
        changes,
        record.route,
        findings.converted,
        tuple(sorted(set(findings.untyped))),
        (*notes_of_maps(dict(findings.new_maps)), *findings.hints),
        (*findings.conflicts, *_of_whole_records(after, shape, context.settings)),
    )
    return planned, dict(findings.last)


def _of_whole_records(after: Schema, shape: RecordShape, settings: TableSettings) -> Iterator[Conflict]:
    """Yield refusals of records that make no row, or cannot be merged into theirs."""
    yield from lacking(shape, settings.fields)
    if settings.row_key is not None and settings.row_key.patch:
        yield from not_mergeable(after.struct, shape, settings.mark)


def _lifted(changes: Iterable[Change], before: Schema, after: Struct) -> Iterable[Change]:
    """Turn rewrites of list elements and map values into rewrites of the columns around them.

    These columns become optional.
    """
    # Iceberg can replace a field of a struct, but neither the element of a list nor the value of a map.
    planned = Schema(after)
    rewritten = {_column(change.path, before) for change in changes if isinstance(change, RewriteColumn)}
    for change in changes:
        if isinstance(change, RewriteColumn):
            path = _column(change.path, before)
            column = planned.find(path)
            assert column is not None
            yield replace(change, path=path, type=column.type)
        # The column that is rewritten around it becomes optional by itself.
        elif not (isinstance(change, RelaxColumn) and _column(change.path, before) in rewritten):
            yield change


def _column(path: Path, schema: Schema) -> Path:
    """Return the struct field that holds the value at the path."""
    while (parent := schema.find(path[:-1])) is not None and not isinstance(parent.type, Struct):
        path = path[:-1]
    return path


def lacking(shape: RecordShape, field_settings: FieldSettings, parent: Path = ()) -> Iterator[Conflict]:
    """Yield refusals of records that lack a key or an order.

    Args:
        parent: the path of the records.

    A value of a wrong type is refused by its policy, except in place of a record.
    """
    if not shape.fields:
        return
    for key, child in field_settings.fields.items():
        if not child.needed:
            continue
        path, role = (*parent, key), _role(child)
        field = shape.fields.get(key) or FieldShape(SourceLocation(), absent=True, missing=True)
        if field.missing or field.empty_lists or field.empty_record or not field.facets:
            # A field that has values somewhere has its place there.
            location = field.location if not field.facets else SourceLocation()
            yield Conflict(path, f"the {role}", None, f"{role}: no value", "", location, nan=True)
        if child.role:
            continue
        for facet, profile in field.facets.items():
            if facet == Facet(0, RECORD) and profile.record is not None:
                yield from lacking(profile.record, child, path)
            else:
                yield Conflict(
                    path, f"the {role}", facet, f"{role}: no object", profile.sample, profile.location
                )


def _role(field_settings: FieldSettings) -> str:
    """Return the role of the field, or of the fields below it."""
    if field_settings.role:
        return field_settings.role
    return KEY if KEY in map(_role, field_settings.fields.values()) else ORDER


@dataclass(frozen=True, slots=True)
class _Filled:
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


def _relaxed(
    column: Field,
    path: Path,
    data_path: Path,
    filled: _Filled | None,
    field_settings: FieldSettings,
    identifiers: Collection[int],
) -> tuple[Field, Findings]:
    """Make a required column optional if some record has neither a value for it nor its default.

    Identifier fields and the structs around them stay required, and so does a column whose ``field_settings``
    forbids the change: such records are refused. ``filled`` is None if the data has no such field.
    """
    if not column.required or _has_value(column, filled):
        return column, NOTHING
    location = filled.field.shape.location if filled else SourceLocation()
    # Iceberg refuses an optional identifier field, and one inside an optional struct.
    if any(f.id in identifiers for _, f in Schema(Struct((column,))).walk()):
        why = "an identifier field has no value"
    else:
        why = policy_of(field_settings.policy).keeps_required(
            absent=filled is None or filled.field.shape.absent
        )
    if why:
        conflict = Conflict(data_path, facet_of(column.type).spelled(), None, why, "", location)
        return column, Findings(conflicts=(conflict,))
    reason = Reason("relax", "a record has no value for it", path, "", location if filled else None)
    return replace(column, required=False), Findings((RelaxColumn(path, column.type, reason),))


def _has_value(column: Field, filled: _Filled | None) -> bool:
    """True if every record has a value that the column holds, or lacks the key and so gets the default."""
    default = column.write_default is not None
    if filled is None:
        return default
    return (default or filled.in_every_record) and filled.always


def _opened(type_: Type, path: Path, location: SourceLocation) -> tuple[Type, Findings]:
    """Make list elements or map values optional if nulls arrive, or values that do not fit."""
    if not isinstance(type_, List | Map):
        return type_, NOTHING
    child = children(type_)[-1]
    child_path = (*path, child.name)
    findings = NOTHING
    if child.required:
        why = "a list or map of the data may hold null, or what does not fit"
        findings = Findings(
            (RelaxColumn(child_path, child.type, Reason("relax", why, child_path, "", location)),)
        )
    child_type, child_findings = (
        _opened(child.type, child_path, location) if isinstance(type_, List) else (child.type, NOTHING)
    )
    return with_child(type_, child.name, replace(child, type=child_type, required=False)), merge_findings(
        [findings, child_findings]
    )


@dataclass(frozen=True, slots=True)
class _Scope:
    """A struct of the table, and the record of the data that fills it.

    ``data_path`` differs from ``schema_path`` below a sibling or a renamed column;
    ``is_new``: this batch creates the struct itself.
    """

    struct: Struct
    schema_path: Path = ()
    data_path: Path = ()
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class _PlannedRecord:
    """A planned record: its struct, and the routes that fill it."""

    struct: Struct
    route: RecordRoute
    findings: Findings = NOTHING


@dataclass(frozen=True, slots=True)
class _Field:
    """A planned field of a record: its columns, and drafts of the new ones."""

    key: str
    known: Sequence[Field]
    drafts: Sequence[NewColumn]
    decision: FieldDecision


@dataclass(frozen=True, slots=True)
class _Column:
    """A column to be filled; ``is_new``: this batch creates it."""

    type: Type
    path: Path
    is_new: bool


@dataclass(frozen=True, slots=True)
class _Routed:
    """A routed field.

    Attributes:
        columns: the filled columns, with their types.
        dropped: names of new columns that would hold nothing.
    """

    decision: FieldDecision
    route: FieldRoute
    columns: Sequence[Field]
    dropped: frozenset[str] = frozenset()
    findings: Findings = NOTHING


def _plan_record(
    scope: _Scope, shape: RecordShape, field_settings: FieldSettings, context: Context
) -> _PlannedRecord:
    """Plan a record of this shape, at every depth."""
    columns_by_key = struct_by_key(scope.struct, context.settings.mark)
    decided = [
        _decide(scope, key, columns_by_key.get(key, []), field_shape, field_settings, context)
        for key, field_shape in in_order(shape, field_settings, empty_names=context.settings.keep_empty_names)
    ]
    drafts = [draft for field in decided for draft in field.drafts]
    named = named_columns(scope.struct, drafts, context.settings.mark)
    routed = list(_routed(scope, decided, named, context))

    added = _added(named, drafts, routed)
    columns = _columns(scope, added, routed)
    optional, nulls = _without_values(scope, shape, columns, routed, field_settings, context)
    columns |= optional
    changes = (AddColumn(scope.schema_path, columns[c.name], d.reason, scope.is_new) for c, d in added)
    findings = [
        # A column is listed before what is inside it
        Findings(tuple(changes)),
        *(field.decision.findings for field in decided),
        *(field.findings for field in routed),
        nulls,
        hint_of_keys(scope.data_path, shape, field_settings) if added else NOTHING,
    ]
    route = RecordRoute(tuple(field.route for field in routed))
    return _PlannedRecord(Struct(tuple(columns.values())), route, merge_findings(findings))


def _added(
    named: Sequence[Field], drafts: Sequence[NewColumn], routed: Sequence[_Routed]
) -> list[tuple[Field, NewColumn]]:
    """Return the new columns that hold something, in the order of their values in the data."""
    dropped = frozenset[str]().union(*(field.dropped for field in routed))
    added = [(c, d) for c, d in zip(named, drafts, strict=True) if c.name not in dropped]
    # New columns stand in the order in which their first values came, whatever order made their names.
    return sorted(added, key=lambda item: item[1].reason.location or SourceLocation())


def _columns(
    scope: _Scope, added: Sequence[tuple[Field, NewColumn]], routed: Sequence[_Routed]
) -> dict[str, Field]:
    """Return the struct's columns by name, new ones last, with their present types."""
    columns = {**fields_by_name(scope.struct), **{c.name: c for c, _ in added}}
    return columns | {c.name: c for field in routed for c in field.columns}


def _decide(
    scope: _Scope,
    key: str,
    columns: Sequence[Field],
    shape: FieldShape,
    record_settings: FieldSettings,
    context: Context,
) -> _Field:
    """Plan one field of a record, and draft its new columns, declared ones first."""
    data_path, field_settings = (*scope.data_path, key), record_settings.of(key)
    drafts = declared(key, columns, field_settings, data_path)
    is_unknown = not columns and not drafts and (record_settings.declares_fields or not scope.is_new)
    target = Target(
        (*(c.type for c in columns), *(d.stub for d in drafts)),
        (*((*scope.schema_path, c.name) for c in columns), *((*scope.schema_path, key) for _ in drafts)),
        data_path,
        scope.is_new,
        may_wait=is_unknown and bool(context.schema.struct.fields),
        must_wait=len(key) > context.settings.max_key and not (columns or drafts),
        # No column can have that name, and a policy that refuses new columns has nothing to refuse.
        never=not key and context.settings.keep_empty_names,
    )
    decision = decide_field(target, shape, field_settings, context)
    drafts += [
        NewColumn(key, stub, reason, stub == decision.original, shape.comment)
        for stub, reason in decision.new
    ]
    return _Field(key, columns, drafts, decision)


def _routed(
    scope: _Scope, decided: Sequence[_Field], named: Sequence[Field], context: Context
) -> Iterator[_Routed]:
    """Route the fields to their columns.

    Args:
        named: the new columns of all fields, in order.
    """
    new_columns = iter(named)
    for field in decided:
        new = [next(new_columns) for _ in field.drafts]
        routed = _of_one_column(field, new)
        yield _route_field(scope, field, new, context) if routed is None else routed


def _route_field(scope: _Scope, field: _Field, new: Sequence[Field], context: Context) -> _Routed:
    decision = field.decision
    columns = [*field.known, *new]
    types = [*decision.types, *(stub for stub, _ in decision.new)]
    targets = [
        _Column(type_, (*scope.schema_path, column.name), scope.is_new or i >= len(field.known))
        for i, (column, type_) in enumerate(zip(columns, types, strict=True))
    ]
    routes, findings = _route_columns(decision, targets, (*scope.data_path, field.key), context)
    # The fields of a hollow one are still to come, or have no room.
    filled: list[tuple[Field, ColumnRoute]] = []
    without: list[tuple[Field, ColumnRoute]] = []
    for column, route in zip(columns, routes, strict=True):
        (without if hollow(route.type) else filled).append((column, route))
    to_rest, column_routes = in_rest([route for _, route in filled], [route for _, route in without])
    to_rest |= decision.to_rest
    return _Routed(
        replace(decision, to_rest=to_rest) if to_rest != decision.to_rest else decision,
        FieldRoute(field.key, decision.shape, column_routes, to_rest=to_rest, texts=decision.settings.texts),
        [c if c.type is route.type else replace(c, type=route.type) for c, route in filled],
        frozenset(column.name for column, _ in without if column in new),
        findings,
    )


def _of_one_column(field: _Field, new: Sequence[Field]) -> _Routed | None:
    """Route a field of one scalar type to its only column, which has that type, or one without a column.

    Returns None for other fields.
    """
    decision, columns = field.decision, [*field.known, *new]
    if not columns and not decision.values:
        texts = decision.settings.texts
        waits = FieldRoute(field.key, decision.shape, (), to_rest=decision.to_rest, texts=texts)
        return _Routed(decision, waits, ())
    facet = decision.shape.scalar
    if facet is None or len(columns) != 1 or decision.values or decision.to_rest:
        return None
    (column,), settings = columns, decision.settings
    (type_,) = decision.types or (decision.new[0][0],)
    if column.type is not type_ or type_ != facet.base or not decision.takes(facet, facet):
        return None
    route = ColumnRoute(column.name, type_, (facet,), unit=settings.epoch_unit)
    return _Routed(decision, FieldRoute(field.key, decision.shape, (route,), texts=settings.texts), columns)


def _without_values(
    scope: _Scope,
    shape: RecordShape,
    columns: dict[str, Field],
    routed: Sequence[_Routed],
    field_settings: FieldSettings,
    context: Context,
) -> tuple[dict[str, Field], Findings]:
    """Make columns optional if some record has no value for them, or refuse such records."""
    # Nothing is required of a struct that this batch makes, nor of an empty batch.
    if scope.is_new or not (scope.schema_path or shape.fields):
        return {}, NOTHING
    required = _required_columns(scope.struct)
    if not required:
        return {}, NOTHING
    filled = {
        column.name: _Filled(field.decision, field.route, column)
        for field in routed
        for column in field.route.columns
    }
    optional, findings = {}, []
    for column in required:
        by = filled.get(column.name)
        key = by.field.key if by else column.name
        optional[column.name], column_findings = _relaxed(
            columns[column.name],
            (*scope.schema_path, column.name),
            (*scope.data_path, key),
            by,
            field_settings.of(key),
            context.schema.identifiers,
        )
        findings.append(column_findings)
    return optional, merge_findings(findings)


@of_wide
def _required_columns(struct: Struct) -> list[Field]:
    return [column for column in struct.fields if column.required and not is_metadata(column.doc)]


def _route_columns(
    decision: FieldDecision, columns: Sequence[_Column], data_path: Path, context: Context
) -> tuple[list[ColumnRoute], Findings]:
    """Route each column of a field, or of a map's values."""
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
    return routes, merge_findings(findings)


def _route_values(
    decision: FieldDecision, columns: Sequence[_Column], data_path: Path, context: Context
) -> tuple[dict[int, FieldRoute], Findings]:
    """Route the values in map columns, by the columns' places."""
    facets = [facet_of(column.type) for column in columns]
    routes: dict[int, FieldRoute] = {}
    findings = []
    for i, facet in enumerate(facets):
        if decision.shape.empty_record and isinstance(facet.base, MapOf):
            no_words = decision.fixed_keys is FixedKeys.data
            routes[i] = _route_of_none(columns[i].type, decision.shape, decision.settings, no_words=no_words)
    for base, value in decision.values.items():
        places = [i for i, facet in enumerate(facets) if facet.base == base]
        if not places:  # all such maps go to the rest
            continue
        value_columns = [_value_column(columns[i]) for i in places]
        filled, value_findings = _route_columns(value, value_columns, (*data_path, "value"), context)
        findings.append(value_findings)
        left_out = decision.settings.inside(max(facets[i].dim for i in places)).excluded_keys
        for i, route in zip(places, filled, strict=True):
            routes[i] = FieldRoute(
                "value",
                value.shape,
                (route,),
                left_out=left_out,
                no_words=decision.fixed_keys is FixedKeys.data,
                to_rest=value.to_rest,
                texts=value.settings.texts,
            )
    return routes, merge_findings(findings)


def _route_of_none(
    type_: Type, shape: FieldShape, field_settings: FieldSettings, *, no_words: bool = False
) -> FieldRoute:
    """Route the keys of objects without a value, which a map holds as they are."""
    value, inside_lists = value_of(type_), field_settings.inside(peel(type_)[0])
    is_map = isinstance(peel(value)[1], Map)
    nested = _route_of_none(value, shape, inside_lists.of("value")) if is_map else None
    return FieldRoute(
        "value",
        FieldShape(shape.location),
        (ColumnRoute("value", value, (), value=nested),),
        left_out=inside_lists.excluded_keys,
        no_words=no_words,
    )


def _value_column(column: _Column) -> _Column:
    """Return the values of a map column as a column of their own."""
    return replace(column, type=value_of(column.type), path=(*inside(column.path, column.type), "value"))


def _route_column(
    decision: FieldDecision, column: _Column, takes: tuple[Facet, ...], data_path: Path, context: Context
) -> tuple[ColumnRoute, Findings]:
    """Route one column, with everything in its records."""
    type_, shape, unit = column.type, decision.shape, decision.settings.epoch_unit
    findings = [NOTHING]
    many = shape.empty_lists or any(f.dim or isinstance(f.base, MapOf) for f in takes)
    many = many or (shape.empty_record and isinstance(facet_of(type_).base, MapOf))
    if many and not column.is_new:
        type_, findings_inside = _opened(type_, column.path, shape.location)
        findings.append(findings_inside)
    if facet_of(type_).base != RECORD or not (takes or shape.empty_record or hollow(type_)):
        return ColumnRoute(column.path[-1], type_, takes, unit=unit), merge_findings(findings)
    record = _plan_inside(decision, replace(column, type=type_), takes, data_path, context)
    # No map takes structs of typed sources.
    typed = any(shape.facets[facet].typed for facet in takes)
    route = record.route if typed else fixed_route(record.route, decision.fixed_keys)
    filled = with_base(type_, record.struct)
    return ColumnRoute(column.path[-1], filled, takes, route, unit=unit), merge_findings(
        [*findings, record.findings]
    )


def _plan_inside(
    decision: FieldDecision, column: _Column, takes: tuple[Facet, ...], data_path: Path, context: Context
) -> _PlannedRecord:
    """Plan the records in a column."""
    facets = decision.shape.facets
    # Of all records that the column takes, those too that this batch has in no list.
    shape = merge_all(record for f in takes if (record := facets[f].record) is not None)
    dim, struct = peel(column.type)
    assert isinstance(struct, Struct)
    field_settings = fixed_settings(decision.settings.inside(dim), decision.fixed_keys, shape.fields)
    scope = _Scope(struct, inside(column.path, column.type), inside(data_path, column.type), column.is_new)
    return _plan_record(scope, shape, field_settings, context)
