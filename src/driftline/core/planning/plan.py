"""`plan`: a schema and a shape in, the changes and the routes out. Pure; the heart of the product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from driftline.core.changes import Change, RelaxColumn, RewriteColumn, apply
from driftline.core.planning.contract import Contract
from driftline.core.planning.field_plan import Context
from driftline.core.planning.gc_pause import no_search
from driftline.core.planning.limits import Exceeding, beyond_limits
from driftline.core.planning.map_hints import notes_of_maps
from driftline.core.planning.metadata import with_own
from driftline.core.planning.planner import Scope, plan_record
from driftline.core.planning.policies.by_kind import KEY, ORDER
from driftline.core.planning.rest import REST
from driftline.core.planning.routes import Conflict, Plan, Settings
from driftline.core.planning.row_key import ORDERS_COLUMN, ORDERS_KIND, RowKey
from driftline.core.planning.shape import RECORD, Facet, FieldShape, RecordShape
from driftline.core.planning.source_column import source_column
from driftline.core.schema.definition import CHANGE, UNAVAILABLE
from driftline.core.schema.place import Place
from driftline.core.schema.types import Field, Path, Schema, Struct


@no_search()
def plan(
    schema: Schema,
    shape: RecordShape,
    settings: Settings | None = None,
    not_rewritten: frozenset[Path] = frozenset(),
) -> Plan:
    """Plan the changes to ``schema`` for a batch of ``shape``, and the route of each field.

    ``not_rewritten``: columns that are not rewritten, though the settings allow it. The plan's ``conflicts``
    are what a policy refuses. A field that exceeds ``max_columns`` or ``max_fields`` is refused too, or goes
    to the rest.

    >>> from driftline.core.planning.shape import Facet, FieldShape, Profile
    >>> from driftline.core.schema.place import Place
    >>> from driftline.core.schema.types import LONG
    >>> size = FieldShape(Place(), {Facet(0, LONG): Profile(Place(), "4")})
    >>> str(plan(Schema(), RecordShape({"size": size})).schema.struct)
    'struct<size: long>'
    """
    settings = settings or Settings()
    refused: Exceeding = {}
    while True:
        planned, last = _planned(shape, Context(settings, schema, refused, not_rewritten))
        exceeding = beyond_limits(planned, last, settings)
        if exceeding.keys() <= refused.keys():
            planned = with_own(planned, [REST]) if planned.route.has_rest else planned
            if settings.metadata and shape.fields:
                planned = with_own(planned, [source_column(settings.metadata)])
            row_key = settings.row_key if shape.fields else None
            return planned if row_key is None else with_own(planned, _of_rows(row_key, shape))
        refused = exceeding | refused


def _of_rows(row_key: RowKey, shape: RecordShape) -> list[Field]:
    """The columns of the table's own that its rows have from this batch on."""
    columns = row_key.columns
    change = shape.fields.get(CHANGE)
    if row_key.keeps_fields and change is not None:
        records = [profile.record for profile in change.facets.values() if profile.record is not None]
        if any(UNAVAILABLE[-1] in record.fields for record in records):
            columns |= {ORDERS_KIND: ORDERS_COLUMN}
    return list(columns.values())


def _planned(shape: RecordShape, context: Context) -> tuple[Plan, Mapping[Path, Facet]]:
    """The plan, and the type of each field that arrived last."""
    schema = context.schema
    record = plan_record(Scope(schema.struct), shape, context.settings.contract, context)
    findings = record.findings
    changes = tuple(_lifted(findings.changes, schema, record.struct))
    planned = Plan(
        schema,
        apply(schema, changes),
        changes,
        record.route,
        findings.converted,
        tuple(sorted(set(findings.untyped))),
        (*notes_of_maps(dict(findings.new_maps)), *findings.hints),
        (*findings.conflicts, *lacking(shape, context.settings.contract)),
    )
    return planned, dict(findings.last)


def _lifted(changes: Iterable[Change], before: Schema, after: Struct) -> Iterable[Change]:
    """Turn rewrites of list elements and map values into rewrites of the columns around them, which become
    optional.
    """
    planned = Schema(after)
    rewritten = {_column(change.path, before) for change in changes if isinstance(change, RewriteColumn)}
    for change in changes:
        if isinstance(change, RewriteColumn):
            path = _column(change.path, before)
            column = planned.find(path)
            assert column is not None
            yield replace(change, path=path, type=column.type)
        elif not (isinstance(change, RelaxColumn) and _column(change.path, before) in rewritten):
            yield change


def _column(path: Path, schema: Schema) -> Path:
    """The field of the struct that holds what is at the path."""
    while (parent := schema.find(path[:-1])) is not None and not isinstance(parent.type, Struct):
        path = path[:-1]
    return path


def lacking(shape: RecordShape, contract: Contract, parent: Path = ()) -> Iterator[Conflict]:
    """The refusals of records that lack a key or an order. ``parent``: the path of the records.

    A value of a wrong type is refused by its policy, except where a record should stand.
    """
    if not shape.fields:
        return
    for key, child in contract.fields.items():
        if not child.needed:
            continue
        path, role = (*parent, key), _role(child)
        field = shape.fields.get(key) or FieldShape(Place(), absent=True, missing=True)
        if field.missing or field.empty_lists or field.empty_record or not field.facets:
            # A field that has values somewhere has its place there.
            place = field.place if not field.facets else Place()
            yield Conflict(path, f"the {role}", None, f"{role}: no value", "", place, nan=True)
        if child.role:
            continue
        for facet, profile in field.facets.items():
            if facet == Facet(0, RECORD) and profile.record is not None:
                yield from lacking(profile.record, child, path)
            else:
                yield Conflict(
                    path, f"the {role}", facet, f"{role}: no object", profile.sample, profile.place
                )


def _role(contract: Contract) -> str:
    """The role of the field, or of those below it."""
    if contract.role:
        return contract.role
    return KEY if KEY in map(_role, contract.fields.values()) else ORDER
