"""`alter`: ALTER TABLE statements, or changes as values, applied in one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypedDict

from driftline.core.changes import (
    AddColumn,
    ColumnChange,
    DropColumn,
    Refused,
    RenameColumn,
    TableChange,
    TableChangeJson,
    details,
    diff,
    evolved,
)
from driftline.core.history.entries import of_statements
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RECORD, Base, Facet, FieldShape, MapOf, Profile, RecordShape
from driftline.core.schema.definition import ROW_KEY, Definition
from driftline.core.schema.naming import (
    MARK,
    QUARANTINE,
    data_key,
    is_metadata,
    is_pattern,
    marked_key,
    table_parts,
)
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.text import counted, quoted
from driftline.core.schema.types import (
    VARIANT,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    SourceLocation,
    Struct,
    dotted,
)
from driftline.core.settings.declarations import PREFIX
from driftline.core.settings.properties import from_properties, with_reading
from driftline.core.settings.row_key import check_epoch
from driftline.core.settings.table import TableSettings
from driftline.core.support import as_json
from driftline.errors import DriftlineError, UsageError
from driftline.formats.base import AlterableTable
from driftline.formats.commit import Retry
from driftline.operations.alter_sql import AlterRequest, parse
from driftline.operations.key_change import KeyChange
from driftline.runtime.shown import Shown

__all__ = ["AlterRequest", "Altered", "alter", "local_name", "parse"]


def notes(
    before: Schema, after: Schema, changes: Iterable[ColumnChange], settings: TableSettings
) -> Iterator[str]:
    """Notes to a person on changes that lead from one schema to the other."""
    for change in changes:
        column = before.find(change.path) if isinstance(change, DropColumn | RenameColumn) else None
        if column is None or is_metadata(column.doc):  # no field of the data
            continue
        if isinstance(change, RenameColumn):
            now = after.find(path) if (path := _path_of(after, column.id)) else None
            if now is not None and marked_key(now.doc, settings.mark) is not None:
                key = data_key(now, settings.mark)
                yield f"{dotted(path)} is still filled from {key}"
                yield from _left_behind(before, after, change, key, settings.mark)
        elif isinstance(change, DropColumn):
            yield _dropped(before, after, change.path, column, settings)


def _left_behind(before: Schema, after: Schema, rename: RenameColumn, key: str, mark: str) -> Iterator[str]:
    """Note the statements that rename the field's siblings, which keep its former name."""
    following = _following(before, rename, key, mark)
    statements = [_statement(other) for other in following if after.find(other.path) is not None]
    if statements:
        columns = counted(len(statements), "other column")
        yield f"{columns} of {key} can follow (--siblings): {'; '.join(statements)}"


def _following(schema: Schema, rename: RenameColumn, key: str, mark: str) -> Iterator[RenameColumn]:
    """Yield the renames of the other columns of the field ``key`` that begin with the column's old name."""
    *parent, old = rename.path
    owner = schema.find(tuple(parent))
    struct = (owner.type if owner else None) if parent else schema.struct
    for column in struct.fields if isinstance(struct, Struct) else ():
        if column.name.startswith(f"{old}_") and data_key(column, mark) == key:
            yield RenameColumn((*parent, column.name), rename.name + column.name.removeprefix(old))


def _statement(rename: RenameColumn) -> str:
    return f"RENAME {'.'.join(map(_written, rename.path))} TO {_written(rename.name)}"


def _with_siblings(request: AlterRequest, schema: Schema, mark: str) -> AlterRequest:
    """Add to each rename of a field's column those of its siblings."""
    changes, places, texts = list(request.changes), list(request.places), [request.text]
    for number, change in enumerate(request.changes):
        column = schema.find(change.path) if isinstance(change, RenameColumn) else None
        if column is None:
            continue
        assert isinstance(change, RenameColumn)
        for rename in _following(schema, change, data_key(column, mark), mark):
            changes.append(rename)
            places += request.places[number : number + 1]
            texts.append(_statement(rename))
    return replace(request, changes=tuple(changes), places=tuple(places), text="; ".join(texts))


def _written(name: str) -> str:
    """A name as a statement has it, without quotes where it needs none."""
    return name if name.isascii() and name.isidentifier() else quoted(name)


def _dropped(before: Schema, after: Schema, path: Path, column: Field, settings: TableSettings) -> str:
    """The fate of the next value that the column would have taken, planned as a batch would be."""
    shape = _value(Field("", before.struct), path, settings.mark).facets[Facet(0, RECORD)].record
    value = f"the next {type_name(column.type)} of {data_key(column, settings.mark)}"
    try:
        planned = plan(after, shape or RecordShape(), settings)
    except DriftlineError as error:
        return f"{value} will be refused: {error.message}"
    if planned.conflicts:
        return f"{value} will be refused: {planned.conflicts[0].why}"
    products = [
        f"{dotted(c.path)} {type_name(c.type)}"
        for c in planned.changes
        if isinstance(c, AddColumn) and not c.within
    ]
    if products:
        return f"{value} makes {' and '.join(products)}, empty in the rows before"
    return f"{value} goes to the columns that remain"


def _value(column: Field, path: Path, mark: str) -> FieldShape:
    """A value of the column, with what leads to ``path`` in it, or with all that it can hold."""
    dim, inner = 0, column.type
    while isinstance(inner, List):
        dim, inner, path = dim + 1, inner.element, path[1:]
    base: Base = inner if isinstance(inner, Primitive) and inner != VARIANT else RECORD
    profile = Profile(SourceLocation(), typed=True)
    match inner:
        case Struct(fields):
            onward = [f for f in fields if not path or f.name == path[0]]
            profile.record = RecordShape({data_key(f, mark): _value(f, path[1:], mark) for f in onward})
        case Map(Primitive() as key, value):
            base, profile.value = MapOf(key), _value(Field("value", value), path[1:], mark)
        case _:
            pass
    return FieldShape(SourceLocation(), {Facet(dim, base): profile})


def _path_of(schema: Schema, column: int) -> Path:
    return next((path for path, f in schema.walk() if f.id == column), ())


class AlteredJson(TypedDict):
    """The outcome of an alteration."""

    table: str
    changes: list[TableChangeJson]
    notes: list[str]
    schema: int | None
    format_version: int | None


@dataclass(frozen=True, slots=True, repr=False)
class Altered(Shown):
    """The outcome of an alteration.

    ``columns`` is its net effect. ``notes``: its meaning for later batches.
    """

    table: str
    changes: tuple[TableChange, ...]
    columns: tuple[ColumnChange, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int | None = None
    format_version: int | None = None

    def to_dict(self) -> AlteredJson:
        """The form that `--json` prints."""
        return as_json(AlteredJson, self, changes=[details(change) for change in self.changes])


def local_name(name: str, catalog: str) -> str:
    """A table's name without that of its catalog, which may stand before it.

    >>> local_name("lake.shop.orders", "lake"), local_name("lake.orders", "lake")
    ('shop.orders', 'lake.orders')
    """
    return name.removeprefix(f"{catalog}.") if name.count(".") > 1 else name


def alter(
    table: AlterableTable, request: AlterRequest, *, catalog: str = "", upgrade: bool = False
) -> Altered:
    """Make the changes in one commit, or none of them.

    ``upgrade``: also to format v3, which cannot be undone. ``catalog``: the name that may precede a new name
    of the table. Raises UsageError, DataError, and NeedsSpark where a table that was opened without Spark
    would have its rows looked at; it is then unchanged.
    """
    if request.if_exists and not table.load().exists:
        return Altered(table.name, ())
    if (name := request.new_name) is not None:
        return _renamed(table, request, name, catalog)
    return Retry(table.name).run(lambda: _alter(table, request, upgrade=upgrade))


def _alter(table: AlterableTable, request: AlterRequest, *, upgrade: bool) -> Altered:
    alteration = table.alteration()
    before = alteration.before
    mark = before.properties.get(f"{PREFIX}mark") or MARK
    if request.siblings:
        request = _with_siblings(request, before.schema, mark)
    try:
        after, changes = evolved(
            before,
            request.changes,
            mark=mark,
            upgrade=upgrade,
            nulls_of=alteration.nulls,
            parts_of=table.parts_of,
        )
    except Refused as refused:
        raise request.explained(refused) from None
    key = KeyChange.of(table.name, before, after)
    after = key.applied(after)
    if after.properties != before.properties:
        from_properties(after.properties)  # that later batches can read them
        check_epoch(table.name, before.properties, after.properties)
        remembered = with_reading(before.properties, after.properties)
        after = replace(after, properties={**after.properties, **remembered})
    if before.known_by.key:
        from driftline.operations.keyed import check_definition

        check_definition(table.name, before, after)
    if after == before:
        return Altered(table.name, (), schema=before.schema.id, format_version=before.format_version)
    recorded, warnings = of_statements(request.text), list[str]()
    if key.looks_at_rows:
        _only_settings(table.name, before, after)
        from driftline.operations.rekeying import rekey

        rekey(table.with_rows(), key, before, after, recorded)
        altered = table.definition()
    else:
        draft = alteration.change(after, recorded)
        draft.commit()
        altered, warnings = draft.definition, list(draft.warnings)
    columns = diff(before.schema, altered.schema)
    remarks = (*notes(before.schema, altered.schema, columns, of_any_record(after)), *warnings)
    return Altered(table.name, changes, columns, remarks, altered.schema.id, altered.format_version)


def _only_settings(table: str, before: Definition, after: Definition) -> None:
    """Raise UsageError if more than settings would change, in a call that looks at the table's rows."""
    if replace(after, properties=before.properties) != before:
        raise UsageError(
            f"{table}: its key is set by itself, since its rows are looked at", "run alter for each"
        )


def of_any_record(definition: Definition) -> TableSettings:
    """The settings of a table for values of records, whatever their key."""
    return from_properties({key: value for key, value in definition.properties.items() if key not in ROW_KEY})


def _renamed(table: AlterableTable, request: AlterRequest, name: str, catalog: str) -> Altered:
    """The table under another name, with its quarantine."""
    namespace = table.name.rpartition(".")[0]
    to = local_name(name, catalog) if "." in name else f"{namespace}.{name}"
    if to == table.name:
        raise UsageError(f"{to} is its name already")
    table_parts(to)  # before the name of its quarantine is judged
    if is_pattern(to):
        raise UsageError(f"{to!r} is not a table name: braces stand in patterns of tables", "leave them out")
    quarantined = table.other_table(table.name + QUARANTINE)
    beside = table.other_table(to + QUARANTINE)
    moved = quarantined.load().exists
    if moved:  # first: without the table's name, nobody would look for it there
        quarantined.rename(beside.name)
    try:
        table.rename(to)
    except BaseException:
        if moved:
            beside.rename(quarantined.name)
        raise
    return Altered(to, tuple(request.changes))
