"""Changes of columns as one `UpdateSchema` of Iceberg's."""

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
from driftline.core.changes.defaults import default_json
from driftline.core.schema.types import Field, Path, Schema, Struct, Type, children, dotted
from driftline.formats.iceberg.gateway import failure, java_errors, java_schema, schema_of


def update_schema(jvm: Any, transaction: Any, changes: Iterable[ColumnChange], name: str) -> None:
    """Apply the changes inside a Java transaction, all at once: paths
    name columns as they are before the first.

    Raises CommitConflict, or DataError where Iceberg refuses.
    """
    pending = [c for c in changes if not (isinstance(c, AddColumn) and c.within)]
    if not pending:
        return
    try:
        with java_errors():
            pending = list(_expanded(jvm, transaction, pending))
            update = transaction.updateSchema()
            types = dict(_types(jvm, transaction, pending))
            java_type_of = cache(
                partial(_java_type, jvm)
            )  # a batch may add thousands of columns of few types
            for change in pending:
                _update(jvm, update, change, types, java_type_of)
            update.commit()
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
        yield DropColumn(change.path)
        yield AddColumn(tuple(parent_path), Field(last, change.type, doc=column.doc))
        yield MoveColumn(change.path, Position(siblings[before - 1] if before else None))


def _types(jvm: Any, transaction: Any, changes: Iterable[ColumnChange]) -> Iterator[tuple[Path, Type]]:
    """The types of present and added columns, if a change sets a default, which needs them."""
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


def _java_type(jvm: Any, type_: Type) -> Any:
    return _field(jvm, Field("x", type_)).type()


def _field(jvm: Any, column: Field) -> Any:
    """The column as Iceberg's own."""
    holder = Schema(Struct((fresh(column, 0),)))
    return java_schema(jvm, holder).columns().get(0)
