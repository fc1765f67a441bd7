"""Reads an Iceberg table's definition from its metadata, and writes changes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from py4j.protocol import Py4JJavaError

from driftline.core.changes import (
    AddColumn,
    ColumnChange,
    DropColumn,
    MoveColumn,
    Position,
    RelaxColumn,
    RenameColumn,
    RequireColumn,
    RewriteColumn,
    SetDefault,
    SetDoc,
    SetIdentifiers,
    WidenColumn,
    fresh,
)
from driftline.core.changes.apply import SchemaDraft
from driftline.core.changes.defaults import default_json
from driftline.core.history.entries import Ids, Step
from driftline.core.schema.definition import VOID, Definition, PartitionField, SortField, Transform
from driftline.core.schema.schema_json import from_json
from driftline.core.schema.types import Field, Path, Schema, Struct, Type, children, dotted
from driftline.formats.iceberg.gateway import (
    failure,
    java_errors,
    java_schema,
    metadata_json,
    schema_of,
    short,
)
from driftline.runtime.spark_version import java_type


def update_schema(jvm: Any, transaction: Any, changes: Iterable[ColumnChange], name: str) -> None:
    """Apply the changes inside a Java transaction, all at once.

    Paths name columns as they are before the first change. Raises CommitConflict, or DataError where Iceberg
    refuses.
    """
    pending = [c for c in changes if not (isinstance(c, AddColumn) and c.within)]
    if not pending:
        return
    try:
        with java_errors():
            pending = list(_expanded(jvm, transaction, pending))
            update = transaction.updateSchema()
            types = dict(_types(jvm, transaction, pending))
            # A batch may add thousands of columns of few types
            java_type_of = cache(partial(_java_type, jvm))
            refused = dict[AddColumn, Py4JJavaError]()
            for change in pending:
                try:
                    with java_errors():
                        _update(jvm, update, change, types, java_type_of)
                except Py4JJavaError as error:
                    if not isinstance(change, AddColumn) or _TAKEN not in short(error):
                        raise
                    refused[change] = error
            update.commit()
            _add_whole(jvm, transaction, refused)
    except Py4JJavaError as error:
        raise failure(error, name) from error


def _expanded(jvm: Any, transaction: Any, changes: Iterable[ColumnChange]) -> Iterator[ColumnChange]:
    """The changes with a rewrite as Iceberg knows it: another column of the same name, in the same place."""
    schema: Schema | None = None
    for change in changes:
        if not isinstance(change, RewriteColumn):
            yield change
            continue
        schema = schema or schema_of(jvm, transaction.table().schema())
        *parent_path, last = change.path
        parent = schema.find(tuple(parent_path)) if parent_path else None
        siblings = [f.name for f in children(parent.type if parent else schema.struct)]
        column = schema.find(change.path)
        assert column is not None
        before = siblings.index(last)
        # Iceberg widens a column in place, and gives any other type to new ones alone.
        yield DropColumn(change.path)
        yield AddColumn(tuple(parent_path), Field(last, change.type, doc=column.doc))
        yield MoveColumn(change.path, Position(siblings[before - 1] if before else None))


def _types(jvm: Any, transaction: Any, changes: Iterable[ColumnChange]) -> Iterator[tuple[Path, Type]]:
    """Yield the types of present and added columns, if a change sets a default, which needs them."""
    if any(isinstance(c, SetDefault) for c in changes):
        yield from ((path, f.type) for path, f in schema_of(jvm, transaction.table().schema()).walk())
        yield from ((c.path, c.type) for c in changes if isinstance(c, AddColumn))


def _update(
    jvm: Any,
    update: Any,
    change: ColumnChange,
    types: Mapping[Path, Type],
    java_type_of: Callable[[Type], Any],
) -> None:
    match change:
        case AddColumn(parent, column):
            add = update.addRequiredColumn if column.required else update.addColumn
            default = None
            if column.initial_default is not None:
                default = _field(jvm, column).initialDefaultLiteral()
            add(dotted(parent) or None, column.name, java_type_of(column.type), column.doc, default)
        case WidenColumn(path, type_):
            update.updateColumn(dotted(path), java_type_of(type_))
        case RelaxColumn(path):
            update.makeColumnOptional(dotted(path))
        case RequireColumn(path):
            # Iceberg takes it for incompatible in any case; that no row is null was counted before.
            update.allowIncompatibleChanges()
            update.requireColumn(dotted(path))
        case DropColumn(path):
            update.deleteColumn(dotted(path))
        case RenameColumn(path, name):
            update.renameColumn(dotted(path), name)
        case MoveColumn(path, Position(None)):
            update.moveFirst(dotted(path))
        case MoveColumn(path, to):
            update.moveAfter(dotted(path), dotted((*path[:-1], str(to.after))))
        case SetDoc(path, doc):
            update.updateColumnDoc(dotted(path), doc)
        case SetDefault(path, value):
            new_default = default_json(types[path], value)
            field = _field(jvm, Field("x", types[path], write_default=new_default))
            update.updateColumnDefault(dotted(path), field.writeDefaultLiteral())
        case SetIdentifiers(paths):
            update.setIdentifierFields([dotted(path) for path in paths])
        case _:
            raise AssertionError(change)


_TAKEN = "Cannot add column, name already exists"


def _add_whole(jvm: Any, transaction: Any, refused: Mapping[AddColumn, Py4JJavaError]) -> None:
    """Add columns by a whole schema; raises the refusal of one that the table has."""
    if not refused:
        return
    # Iceberg's short names leave out a list's `element` and a map's `value`. So `items.element.id` is also
    # the field `id` of a struct that is itself called `element`, and an update refuses one beside it.
    operations = transaction.table().operations()
    now = operations.current()
    before = schema_of(jvm, now.schema())
    for change, refusal in refused.items():
        if before.find((*change.parent, change.column.name)) is not None:
            raise refusal
    draft = SchemaDraft(before, int(now.lastColumnId()))
    draft.make_all(refused)
    builder = java_type(jvm, "org.apache.iceberg.TableMetadata").buildFrom(now)
    operations.commit(now, builder.setCurrentSchema(java_schema(jvm, draft.schema), draft.last).build())


def _java_type(jvm: Any, type_: Type) -> Any:
    return _field(jvm, Field("x", type_)).type()


def _field(jvm: Any, column: Field) -> Any:
    """Return the column as Iceberg's own."""
    # Java reads schemas from JSON, and neither columns nor types alone.
    holder = Schema(Struct((fresh(column, 0),)))
    return java_schema(jvm, holder).columns().get(0)


_FIRST_FIELD = 1000  # Iceberg's id of a partition field
# By default Iceberg writes the metrics of 100 columns, driftline those of all.
PREFIX = "write.metadata.metrics."
LIMIT = PREFIX + "max-inferred-column-defaults"
_BY_DEFAULT = 100  # columns that have metrics unless a property says otherwise
_ALL = "1000000"


def definition(jvm: Any, metadata: Any) -> Definition:
    """Return the definition that a Java ``TableMetadata`` holds."""
    return of_json(metadata_json(jvm, metadata))


def step(before: Any, after: Any) -> Step:
    """Return the step between two Java ``TableMetadata``; ``before`` None: the table was created."""
    snapshot = after.currentSnapshot()
    return Step(
        None if before is None else _ids(before),
        _ids(after),
        None if snapshot is None else int(snapshot.snapshotId()),
        1 if before is None else int(before.lastSequenceNumber()) + 1,
    )


def _ids(metadata: Any) -> Ids:
    return Ids(
        int(metadata.currentSchemaId()), int(metadata.defaultSpecId()), int(metadata.defaultSortOrderId())
    )


def ids_of_json(metadata: Mapping[str, Any]) -> Ids:
    """Return the ids of the schema, partition spec and sort order that a metadata file makes current."""
    return Ids(metadata["current-schema-id"], metadata["default-spec-id"], metadata["default-sort-order-id"])


def of_json(metadata: Mapping[str, Any]) -> Definition:
    """Return the definition that a metadata file holds (Iceberg spec, "Table Metadata")."""
    now = ids_of_json(metadata)
    schema = _of_id(metadata["schemas"], "schema-id", now.schema)
    spec = _of_id(metadata["partition-specs"], "spec-id", now.spec)
    order = _of_id(metadata["sort-orders"], "order-id", now.order)
    return Definition(
        from_json(schema),
        partition_fields(spec, metadata["format-version"]),
        sort_fields(order),
        metadata.get("properties", {}),
        metadata["format-version"],
        metadata["last-column-id"],
    )


def _of_id(parts: list[dict[str, Any]], key: str, id_: int) -> dict[str, Any]:
    return next(part for part in parts if part[key] == id_)


def partition_fields(spec: Any, format_version: int) -> tuple[PartitionField, ...]:
    """Return the fields of a partition spec in Iceberg's JSON form.

    Fields that a table of format v1 no longer has are void ones in its specs, and are left out.
    """
    fields = (
        PartitionField(f["name"], int(f["source-id"]), Transform.read(f["transform"])) for f in spec["fields"]
    )
    return tuple(f for f in fields if format_version > 1 or f.transform != VOID)


def spec_json(definition: Definition) -> dict[str, Any]:
    """Return a table's first partition spec in Iceberg's JSON form."""
    fields = [
        {"name": f.name, "transform": str(f.transform), "source-id": f.source, "field-id": _FIRST_FIELD + i}
        for i, f in enumerate(definition.partition)
    ]
    return {"spec-id": 0, "fields": fields}


def order_json(definition: Definition) -> dict[str, Any]:
    """Return a table's first sort order in Iceberg's JSON form."""
    fields = [
        {
            "transform": str(key.transform),
            "source-id": key.source,
            "direction": "desc" if key.descending else "asc",
            "null-order": "nulls-first" if key.nulls_first else "nulls-last",
        }
        for key in definition.sort
        if isinstance(key, SortField)
    ]
    return {"order-id": 1 if fields else 0, "fields": fields}


def sort_fields(order: Any) -> tuple[SortField, ...]:
    """Return the fields of a sort order in Iceberg's JSON form."""
    return tuple(
        SortField(
            int(f["source-id"]),
            Transform.read(f["transform"]),
            f["direction"] == "desc",
            f["null-order"] == "nulls-first",
        )
        for f in order["fields"]
    )


def metrics_of_all(schema: Schema, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the property with which files have metrics of all columns of ``schema``.

    None is needed if Iceberg's default does, or if the table's ``properties`` say anything of metrics.
    """
    # Full metrics of all columns: without bounds queries do not prune, and the page has no min and max. With
    # 3,000 columns a manifest entry is 69 kB then, against 13 kB by Iceberg's default.
    owner_decides = any(key.startswith(PREFIX) for key in properties)
    # With the nested columns, as Iceberg counts them.
    wide = sum(1 for _ in schema.walk()) > _BY_DEFAULT
    return {LIMIT: _ALL} if wide and not owner_decides else {}
