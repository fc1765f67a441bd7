"""A table's definition changed in one Iceberg transaction: columns, partitions, sort order, properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.core.changes import ColumnChange, SetIdentifiers, diff, stages
from driftline.core.changes.evolve import VERSION
from driftline.core.definition import Definition
from driftline.core.types import Schema
from driftline.errors import DataError, UsageError
from driftline.formats.iceberg.definition import definition
from driftline.formats.iceberg.gateway import failure, java_class, short, strings
from driftline.formats.iceberg.layout_update import update_layout
from driftline.formats.iceberg.schema_update import update_schema

if TYPE_CHECKING:
    from driftline.formats.iceberg.table import IcebergTable


class Alteration:
    """One change of a table, from the version that was loaded. ``before`` is what that was."""

    def __init__(self, table: IcebergTable) -> None:
        self.table = table
        self._jvm: Any = table.spark._jvm
        java = table.java()
        if java is None:
            raise UsageError(f"there is no table {table.name}", "it is made by its first ingest")
        self._java = java
        self.before: Definition = definition(self._jvm, java.operations().current())

    def commit(self, after: Definition, record: Mapping[str, str]) -> Definition:
        """Makes the table what ``after`` says, in one metadata version that holds ``record`` as properties.

        Returns the definition with the ids that the table gave. Raises CommitConflict where someone else changed
        the table meanwhile, DataError where Iceberg refuses; nothing is changed then.
        """
        transaction = self._java.newTransaction()
        try:
            self._update(transaction, after, record)
        except Py4JJavaError as error:
            raise DataError(f"table {self.table.name} refused the change: {short(error)}") from error
        made = definition(self._jvm, transaction.table().operations().current())
        try:
            transaction.commitTransaction()
        except Py4JJavaError as error:
            raise failure(error, self.table.name) from error
        return made

    def _update(self, transaction: Any, after: Definition, record: Mapping[str, str]) -> None:
        before = self.before
        if after.format_version != before.format_version:
            transaction.updateProperties().set(VERSION, str(after.format_version)).commit()
        now = update_layout(self._jvm, transaction, before, after)
        for start, end in stages(before.schema, after.schema):
            update_schema(self._jvm, transaction, _with_identifiers(diff(start, end), end), self.table.name)
        # New columns have ids of the table's own, which the layout knows by those of `after`.
        made = definition(self._jvm, transaction.table().operations().current())
        ids = {f.id: made.schema.find(path) for path, f in after.schema.walk()}
        mapped = {old: new.id for old, new in ids.items() if new is not None}
        wanted = replace(
            after,
            partition=tuple(replace(f, source=mapped.get(f.source, f.source)) for f in after.partition),
            sort=tuple(replace(f, source=mapped.get(f.source, f.source)) for f in after.sort),
        )
        update_layout(self._jvm, transaction, replace(now, schema=made.schema), wanted)
        self._set_properties(transaction, after.properties, record)

    def _set_properties(
        self, transaction: Any, properties: Mapping[str, str], record: Mapping[str, str]
    ) -> None:
        # Iceberg keeps some by itself, such as metrics of columns by name: only what differs is touched.
        before = self.before.properties
        update = transaction.updateProperties()
        for key, value in {**properties, **record}.items():
            if before.get(key) != value:
                update.set(key, value)
        for key in before.keys() - properties.keys() - record.keys():
            update.remove(key)
        update.commit()


def _with_identifiers(changes: tuple[ColumnChange, ...], after: Schema) -> list[ColumnChange]:
    """The identifier fields named anew with every update: Iceberg loses a nested one when it is renamed."""
    paths = tuple(path for path, f in after.walk() if f.id in after.identifiers)
    told = any(isinstance(c, SetIdentifiers) for c in changes)
    return [*changes, SetIdentifiers(paths)] if changes and paths and not told else list(changes)


def rename_table(table: IcebergTable, name: str) -> None:
    """Gives the table another name, ``namespace.table``, in its catalog. Raises UsageError, DataError."""
    jvm: Any = table.spark._jvm
    to = jvm.org.apache.iceberg.catalog.TableIdentifier.of(strings(table.spark, name.split(".")))
    try:
        table._catalog.renameTable(table._identifier, to)
    except Py4JJavaError as error:
        kind = java_class(error)
        if "NoSuchTable" in kind:
            raise UsageError(f"there is no table {table.name}", "it is made by its first ingest") from error
        if "AlreadyExists" in kind:
            raise DataError(f"there is a table {name} already") from error
        raise DataError(f"table {table.name} cannot be renamed to {name}: {short(error)}") from error
