"""Creation of a table: the columns of its first batch, in the layout that a person asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from driftline.core.changes import (
    AddPartitionField,
    Refused,
    SetProperties,
    SetSortOrder,
    TableChange,
    evolved,
)
from driftline.core.changes.evolve import VERSION
from driftline.core.changes.text import LayoutReader, PartsOf
from driftline.core.schema.definition import Definition
from driftline.core.schema.naming import by_key, caseless, data_key
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Field, Path, Schema, Struct, dotted
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Creation:
    """The requested layout, in the words of the settings; a text is empty where nothing was requested.

    >>> Creation("day(at), bucket(16, id)").paths
    [('at',), ('id',)]
    """

    partition_by: str = ""
    sort_by: str = ""
    format_version: str = ""

    @property
    def paths(self) -> list[Path]:
        """The columns to partition the table by."""
        return [change.term.path for change in self._partition()]

    def changes(self) -> list[TableChange]:
        """Return the changes that lay out a blank table as requested. Raises UsageError for invalid text."""
        changes: list[TableChange] = [*self._partition()]
        if self.sort_by:
            changes.append(SetSortOrder(_all_of(self.sort_by, LayoutReader.sort_expression)))
        if self.format_version:
            changes.append(SetProperties({VERSION: self.format_version}))
        return changes

    def definition(
        self, table: str, blank: Definition, schema: Schema, settings: TableSettings, parts_of: PartsOf | None
    ) -> Definition:
        """Lay out a ``blank`` table of this ``schema`` as requested.

        Raises DataError or UsageError if that is impossible: a partition column is missing, or has drifted in
        the table's first batch.
        """
        for path in self.paths:
            _check(table, path, schema, settings)
        definition = replace(blank, schema=schema, last_column=schema.highest_id())
        try:
            return evolved(definition, self.changes(), mark=settings.mark, parts_of=parts_of)[0]
        except Refused as refused:
            error = refused.error
            hint = error.hint or "declare the type of a column with --hint PATH=TYPE"
            raise type(error)(f"cannot create {table}: {error.message}", hint) from refused

    # A note, not an error: a settings file outlives the creation, and a capture must not stop for it.
    def differences(self, table: str, now: Definition, parts_of: PartsOf | None) -> Iterator[str]:
        """Yield the differences between an existing table and the requested layout, one sentence each."""
        if self.format_version and int(self.format_version) != now.format_version:
            yield f"{table} is of format v{now.format_version}: format_version counts where a table is made"
        requested = self._laid(now, parts_of)
        if self.partition_by and (requested is None or _specs(requested) != _specs(now)):
            yield (
                f"{table} is not partitioned by {self.partition_by}, which counts where a table is made: "
                f"ALTER TABLE {table} SET PARTITIONED BY ({self.partition_by}) changes it"
            )
        if self.sort_by and (requested is None or requested.sort != now.sort):
            yield (
                f"{table} is not sorted by {self.sort_by}, which counts where a table is made: "
                f"ALTER TABLE {table} SET SORTED BY ({self.sort_by}) changes it"
            )

    def _partition(self) -> tuple[AddPartitionField, ...]:
        return _all_of(self.partition_by, _partition_field) if self.partition_by else ()

    def _laid(self, now: Definition, parts_of: PartsOf | None) -> Definition | None:
        """Return the existing table with the requested layout; None if it cannot have that."""
        changes = replace(self, format_version="").changes()
        try:
            return evolved(replace(now, partition=(), sort=()), changes, parts_of=parts_of)[0]
        except Refused:
            return None


def _all_of(text: str, read: Callable[[LayoutReader], T]) -> tuple[T, ...]:
    """Read a list that takes up the whole text. Raises UsageError."""
    reader = LayoutReader(text)
    items = reader.listed(lambda: read(reader))
    if not reader.done:
        reader.stop(f"nothing more expected {reader.here()}")
    return items


def _partition_field(reader: LayoutReader) -> AddPartitionField:
    return AddPartitionField(reader.term(), reader.named_as())


def _check(table: str, path: Path, schema: Schema, settings: TableSettings) -> None:
    """Check that a partition column exists and is the only one of its field; a hint names the right one."""
    parent = schema.find(path[:-1]) if len(path) > 1 else Field("", schema.struct)
    columns = parent.type.fields if parent is not None and isinstance(parent.type, Struct) else ()
    column = next((f for f in columns if caseless(f.name) == caseless(path[-1])), None)
    named = dotted(path)
    if column is None:
        raise DataError(
            f"cannot partition {table} by {named}: its first batch has no such field",
            f"--hint {spelled_path(path)}=TYPE creates the column all the same",
        )
    twins = by_key(columns, settings.mark).get(data_key(column, settings.mark), [column])
    # Rows with a value of another type would silently land in the null partition.
    if len(twins) > 1 and settings.fields.at(path).hint is None:
        types = " and ".join(type_name(f.type) for f in twins)
        raise DataError(
            f"cannot partition {table} by {named}: it is {types} in the first batch",
            f"declare its type: --hint {spelled_path(path)}={type_name(column.type)}; other values get a "
            "column beside it, and their rows are in the partition of null",
        )


def _specs(definition: Definition) -> list[tuple[int, str]]:
    return [(f.source, str(f.transform)) for f in definition.partition]
