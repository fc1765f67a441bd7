"""Alterations of a DuckLake table by SQL on its catalog, without Spark: each is one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from driftline.core.changes import NullCount
from driftline.core.history.entries import SEEN
from driftline.core.schema.definition import Definition, SortExpression
from driftline.core.schema.types import Field, Path, Schema, dotted
from driftline.errors import DataError, no_table
from driftline.formats.ducklake.catalog import Connection
from driftline.formats.ducklake.commit import commit, landed, rename
from driftline.formats.ducklake.inlined import inlined_rows
from driftline.formats.ducklake.layout import CatalogLayout, check, definition, with_layout
from driftline.formats.ducklake.read import read_as
from driftline.formats.ducklake.reverting import copies, replaced
from driftline.formats.ducklake.rows import AUTHOR, CommitMessage, TableCommit
from driftline.formats.ducklake.snapshot import LIVE, DuckLakeHandle, LakeState, TableRow, split
from driftline.formats.ducklake.types import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.formats.base import LastBatch
    from driftline.formats.ducklake.files import DeleteFile, ReturningFile


def rename_table(handle: DuckLakeHandle, name: str) -> None:
    """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
    namespace, _ = split(name)
    if namespace != split(handle.name)[0]:
        raise DataError(
            f"table {handle.name} cannot be renamed to {name}: DuckLake moves no table to another namespace",
            hint="keep the namespace, and change the table's own name",
        )
    message = CommitMessage(AUTHOR, f"renames {handle.name} to {name}", {})
    handle.catalog.write(
        lambda connection: rename(connection, handle.name, name, message), partial(landed, message=message)
    )


def _nulls(connection: Connection, table: int, snapshot: int, column: Field) -> NullCount:
    """Count the nulls of a top-level column at a snapshot, in its files and in inlined rows."""
    (null_rows, older_rows, unknown_rows), *_ = connection.rows(
        f"""SELECT coalesce(sum(s.null_count), 0),
        coalesce(sum(f.record_count) FILTER (s.null_count IS NULL AND f.begin_snapshot < c.added), 0),
        coalesce(sum(f.record_count) FILTER (s.null_count IS NULL AND f.begin_snapshot >= c.added), 0)
        FROM (SELECT * FROM meta.ducklake_data_file WHERE table_id = ? AND {LIVE}) f
        CROSS JOIN (SELECT coalesce(min(begin_snapshot), {snapshot + 1}) AS added FROM meta.ducklake_column
                    WHERE table_id = ? AND column_id = ?) c
        LEFT JOIN meta.ducklake_file_column_stats s ON s.data_file_id = f.data_file_id AND s.column_id = ?""",
        [table, snapshot, snapshot, table, column.id, column.id],
    )
    absent = int(older_rows)  # rows that are older than the column
    count = NullCount(int(null_rows), int(unknown_rows))
    for rows in inlined_rows(connection, table, snapshot):
        if column.id in {row.id for row in rows.columns}:
            count += NullCount(rows.rows.column(f"__f{column.id}").null_count)
        else:
            absent += rows.rows.num_rows
    return count + NullCount(absent if column.initial_default is None else 0)


class DuckLakeAlteration:
    """One change of a table, from the snapshot that was loaded.

    Attributes:
        before: the definition at that snapshot.
    """

    def __init__(self, table: DuckLakeHandle, state: LakeState, layout: CatalogLayout) -> None:
        self.table = table
        self.state = state
        self.layout = layout
        self.before = definition(state, layout)

    @classmethod
    def of(cls, table: DuckLakeHandle) -> DuckLakeAlteration:
        """Begin a change of the table as it is now. Raises UsageError if there is no table."""
        if not table.catalog.exists():
            raise no_table(table.name)
        state, layout = table.catalog.read(lambda connection: with_layout(connection, table.name))
        if not state.exists:
            raise no_table(table.name)
        return cls(table, state, layout)

    def nulls(self, path: Path, column: Field) -> NullCount:
        """Count the rows in which the column is null; the commit fails if others have written since.

        Raises DataError for a nested field.
        """
        if len(path) > 1:
            raise DataError(
                f"{self.table.name}: {dotted(path)} is nested, and DuckLake requires no nested field"
            )
        table, snapshot = self.state.table, self.state.snapshot
        assert table is not None
        assert snapshot is not None
        return self.table.catalog.read(lambda connection: _nulls(connection, table.id, snapshot, column))

    def outdated_deletes(self, span: int) -> int:
        """Count the deletes that the table has remembered for longer than ``span`` seconds."""
        forgets = self._outdated(span)
        return 0 if forgets is None else forgets[1]

    def _outdated(self, span: int) -> tuple[TableCommit, int] | None:
        from driftline.formats.ducklake.deletes_table import outdated  # late: for a key alone

        name, uuid = self.table.name, self.state.uuid
        return self.table.catalog.read(lambda connection: outdated(connection, name, uuid, span))

    def change(
        self,
        after: Definition,
        record: Mapping[str, str],
        *,
        pinned: bool = False,
        span: int | None = None,
    ) -> DuckLakeDraft:
        """Draft the table ``after``, in one snapshot with the properties of ``record``.

        Args:
            after: the future definition.
            record: properties that tell of the change.
            pinned: only if nobody has written rows since.
            span: deletes that the table has remembered for more seconds are forgotten.

        Raises:
            DataError: DuckLake has no such thing.
        """
        rows = rows_of(after.schema, self.state.schema, self.state.columns, self.table.name)  # that it can be
        for key in after.sort:
            if isinstance(key, SortExpression):
                if key in self.before.sort:
                    _same_inside(self.before, after, key, self.table.name)
                else:
                    check(key, after.schema, rows, self.table.name)
        draft = DuckLakeDraft(self, after, self.layout.changed(after, self.table.name), record)
        draft.pinned = pinned
        forgets = None if span is None else self._outdated(span)
        draft.forgets = () if forgets is None else forgets[:1]
        return draft

    def restore(self, after: Definition, record: Mapping[str, str]) -> DuckLakeDraft:
        """Draft the table ``after``: a dropped column returns with its id, and so with its values."""
        # The restored definition may hide values that others write meanwhile.
        return self.change(after, record, pinned=True)

    def revert(self, batch: LastBatch, after: Definition, record: Mapping[str, str]) -> DuckLakeDraft:
        """Draft as `restore` does; the rows of the batch go, and those that it removed come back."""
        draft = self.restore(after, record)
        draft.reverts = batch.snapshot
        return draft


class DuckLakeDraft:
    """A table as it would be, invisible before `commit`."""

    def __init__(
        self,
        alteration: DuckLakeAlteration,
        after: Definition,
        layout: CatalogLayout,
        record: Mapping[str, str],
    ) -> None:
        self.table = alteration.table
        self.definition = after
        self.warnings: Sequence[str] = ()
        self.pinned = False
        self.reverts: int | None = None
        self.forgets: tuple[TableCommit, ...] = ()
        self._layout = layout
        self._from = alteration
        self._record = record

    def read(self) -> DataFrame:
        """Return the present rows as readers of the draft would see them."""
        return read_as(self.table, self.definition.schema)

    def commit(self) -> None:
        """Commit the draft. Raises CommitConflict if someone else changed the table meanwhile."""
        state, after = self._from.state, self.definition
        assert state.table is not None
        intent = TableCommit(self.table.name, state, after.schema, state.table.folder)
        intent.properties = {**after.properties, **self._record}
        intent.layout = self._from.layout, self._layout
        required = {f.id for f in state.schema.struct.fields if f.required}
        # Statistics are valid only for the rows that they were made of.
        intent.pinned = self.pinned or any(
            f.required and f.id not in required for f in after.schema.struct.fields
        )
        intent.removed = tuple(state.properties.keys() - intent.properties.keys())
        with self._files_before(state.table) as (deletes, returning):
            extra = {**self._record, SEEN: "true"} if returning else self._record
            message = CommitMessage(AUTHOR, "; ".join(self._record.values())[:10_000], extra)
            intent.deletes, intent.returning, intent.reverts = deletes, returning, self.reverts
            self.table.catalog.write(
                lambda connection: commit(connection, [intent, *self.forgets], message),
                partial(landed, message=message),
                intent.new_files,
            )
        # The catalog numbers its schemas by itself.
        version = self.table.load().schema.id
        self.definition = replace(after, schema=replace(after.schema, id=version))

    def _files_before(
        self, table: TableRow
    ) -> AbstractContextManager[tuple[list[DeleteFile], list[ReturningFile]]]:
        """Copy the files that the reverted snapshot ended; none if nothing is reverted."""
        snapshot = self.reverts
        if snapshot is None:
            return nullcontext(([], []))
        name = self.table.name
        ended = self.table.catalog.read(lambda connection: replaced(connection, name, table, snapshot))
        return copies(ended, table.folder)


def new_layout(new_definition: Definition, table: str) -> CatalogLayout:
    """Return the layout of a new table. Raises DataError if DuckLake has no such layout."""
    rows = rows_of(new_definition.schema, Schema(), (), table)
    for key in new_definition.sort:
        if isinstance(key, SortExpression):
            check(key, new_definition.schema, rows, table)
    return CatalogLayout().changed(new_definition, table)


def _same_inside(before: Definition, after: Definition, key: SortExpression, table: str) -> None:
    """Raise DataError if a field inside the key's columns would lose its name: only DuckDB reads the key."""
    columns = {before.path_of(column) for column in key.columns}
    inside = {p: f.id for p, f in before.schema.walk() if len(p) > 1 and p[:1] in columns}
    now = {f.id: f.name for _, f in after.schema.walk()}
    for p, id_ in inside.items():
        if now.get(id_) != p[-1]:
            text = key.text(before.name_of)
            raise DataError(
                f"{table}: {dotted(p)} cannot be renamed or dropped: the sort expression {text} is made of {p[0]}",
                f"ALTER TABLE {table} RESET SORTED BY first",
            )
