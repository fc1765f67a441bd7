"""Alterations of an Iceberg table through Iceberg's own Java, without Spark: each is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.core.changes import ColumnChange, NullCount, SetIdentifiers, diff, stages
from driftline.core.changes.evolve import VERSION
from driftline.core.history.entries import LAST_CHANGES, is_noted, with_change
from driftline.core.history.retention import DELETES_BRANCH
from driftline.core.schema.definition import (
    TIMES,
    Definition,
    PartitionField,
    SortField,
    SortKey,
    Transform,
    forgets_deletes,
)
from driftline.core.schema.types import VARIANT, Field, Path, Schema, dotted
from driftline.errors import DataError, NeedsSpark, no_table
from driftline.formats.base import CommitConflict, LastBatch
from driftline.formats.iceberg.commit import SyncedCommit, begin, check_head, replace_metadata, upkeep
from driftline.formats.iceberg.definition import definition, metrics_of_all, step, update_schema
from driftline.formats.iceberg.gateway import java_class, java_errors, java_schema, short
from driftline.formats.iceberg.handle import IcebergHandle
from driftline.formats.iceberg.manifests import FileNulls, by_entries, by_spark, entries_of, null_count
from driftline.formats.iceberg.reader import before_compaction, read_as
from driftline.formats.iceberg.unread import check_variants, warnings
from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rename_table(table: IcebergHandle, name: str) -> None:
    """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
    table.check_writable()
    renamed, before = table.other_table(name), table.existing()
    try:
        with java_errors():
            table.java_catalog.renameTable(table.identifier, renamed.identifier)
    except Py4JJavaError as error:
        now = renamed.java()
        if now is not None and now.uuid() == before.uuid():  # its answer was lost
            return
        kind = java_class(error)
        if "NoSuchTable" in kind:
            raise no_table(table.name) from error
        if "AlreadyExists" in kind:
            raise DataError(f"there is a table {name} already") from error
        if "NoSuchNamespace" in kind:
            raise DataError(
                f"table {table.name} cannot be renamed to {name}: there is no namespace {name.rpartition('.')[0]}",
                "keep the namespace, or ingest a first table into the other, which creates it",
            ) from error
        raise DataError(f"table {table.name} cannot be renamed to {name}: {short(error)}") from error
    SyncedCommit(table, before.operations(), None, before.operations().current()).catalog()


def _update_layout(jvm: Any, transaction: Any, now: Definition, after: Definition) -> Definition:
    """Set the layout of ``after``, for existing columns, in a Java transaction on a table defined by ``now``.

    Returns the definition that results; the rest waits until its columns exist.
    """
    ids = {f.id for _, f in now.schema.walk()}
    spec = _update_spec(jvm, transaction, now, after, ids)
    sort = now.sort
    if now.sort != after.sort:
        possible = all(ids.issuperset(f.columns) for f in after.sort)
        sort = after.sort if possible else ()
        _replace_sort_order(jvm, transaction, now, sort)
    return Definition(now.schema, spec, sort, now.properties, now.format_version, now.last_column)


def _update_spec(
    jvm: Any, transaction: Any, now: Definition, after: Definition, ids: set[int]
) -> tuple[PartitionField, ...]:
    requested = {(f.source, f.transform): f for f in after.partition}
    have = {(f.source, f.transform): f for f in now.partition}
    gone = [f for key, f in have.items() if key not in requested]
    new = [f for key, f in requested.items() if key not in have and f.source in ids]
    renamed = [(have[key], f) for key, f in requested.items() if key in have and have[key].name != f.name]
    first, *later = _one_time_each(new)
    if gone or first or renamed:
        update = transaction.updateSpec()
        for f in gone:
            update.removeField(f.name)
        for old, f in renamed:
            update.renameField(old.name, f.name)
        _add(jvm, update, now, first)
        update.commit()
    for fields in later:
        update = transaction.updateSpec()
        _add(jvm, update, now, fields)
        update.commit()
    staying = tuple(requested[key] for key in have if key in requested)
    return (*staying, *new)


def _one_time_each(fields: list[PartitionField]) -> list[list[PartitionField]]:
    """Group the fields for one update each: Iceberg's library takes day and hour of one column in two."""
    groups: list[list[PartitionField]] = [[]]
    for f in fields:
        times = [f.source] if f.transform.name in TIMES else []
        free = (g for g in groups if not any(o.source in times and o.transform.name in TIMES for o in g))
        group = next(free, None)
        if group is None:
            groups.append([f])
        else:
            group.append(f)
    return groups


def _add(jvm: Any, update: Any, now: Definition, fields: list[PartitionField]) -> None:
    for f in fields:
        update.addField(f.name, _term(jvm, f.transform, _name(now, f.source)))


def _replace_sort_order(jvm: Any, transaction: Any, now: Definition, order: tuple[SortKey, ...]) -> None:
    update = transaction.replaceSortOrder()
    nulls = java_type(jvm, "org.apache.iceberg.NullOrder")
    for f in order:
        assert isinstance(f, SortField)  # `evolved` takes no expression
        place = nulls.NULLS_FIRST if f.nulls_first else nulls.NULLS_LAST
        term = _term(jvm, f.transform, _name(now, f.source))
        update.desc(term, place) if f.descending else update.asc(term, place)
    update.commit()


def _name(now: Definition, source: int) -> str:
    path = now.path_of(source)
    assert path is not None
    return dotted(path)


def _term(jvm: Any, transform: Transform, column: str) -> Any:
    expressions = java_type(jvm, "org.apache.iceberg.expressions.Expressions")
    match transform.name:
        case "identity":
            return expressions.ref(column)
        case "bucket" | "truncate":
            return getattr(expressions, transform.name)(column, transform.n)
        case "void":
            return expressions.transform(
                column, java_type(jvm, "org.apache.iceberg.transforms.Transforms").alwaysNull()
            )
        case name:
            return getattr(expressions, name)(column)


class IcebergAlteration:
    """One change of a table, from the version that was loaded.

    Attributes:
        before: the definition of that version.
    """

    def __init__(self, table: IcebergHandle) -> None:
        self.table = table
        self._jvm = table.jvm
        self._java = java = table.existing()
        self.before: Definition = definition(self._jvm, java.operations().current())

    def nulls(self, _: Path, column: Field) -> NullCount:
        """Count the nulls in the column, over main and every other branch.

        The commit fails if the table has changed since it was loaded. Raises NeedsSpark where only Spark
        reads the manifests.
        """
        metadata = self.table.metadata(self._java)
        return null_count(metadata, column, lambda head: self._file_nulls(metadata, head, column.id))

    def _file_nulls(self, metadata: Mapping[str, Any], snapshot: int, column: int) -> Iterable[FileNulls]:
        table = self.table
        if table.session is not None:
            return by_spark(table.session, table.full_name, column, snapshot)
        try:
            return list(by_entries(entries_of(metadata, snapshot), column))
        except Exception as error:  # whatever is wrong with a file, Spark reports it
            raise NeedsSpark(f"the manifests of {table.name}") from error

    def outdated_deletes(self, span: int) -> int:
        """Count the deletes that the table has remembered for longer than ``span`` seconds."""
        from driftline.formats.iceberg.row_delta import outdated_files  # late: for a key alone

        return sum(int(file.recordCount()) for file in outdated_files(self._java, span))

    def change(
        self,
        after: Definition,
        record: Mapping[str, str],
        *,
        pinned: bool = False,
        span: int | None = None,
    ) -> IcebergDraft:
        """Draft the table by ``after``, in one metadata version with ``record`` among its last changes.

        Args:
            after: the future definition.
            record: properties that tell of the change.
            pinned: as every draft is, which replaces one version.
            span: deletes that the table has remembered for more seconds are forgotten.

        Raises:
            DataError: Iceberg refuses.
        """
        check_head(self.table, self._java)
        if after.schema.struct != self.before.schema.struct:
            metrics = metrics_of_all(after.schema, after.properties)
            after = replace(after, properties={**after.properties, **metrics})
        if span is None:
            return self._draft(after, record, self._update_schema)
        from driftline.formats.iceberg.row_delta import outdated_files  # late: for a key alone

        files = outdated_files(self._java, span)
        return self._draft(after, record, self._update_schema, lambda java: _forget(java, files))

    def restore(self, after: Definition, record: Mapping[str, str]) -> IcebergDraft:
        """Draft with the very schema of ``after``: dropped columns return with their ids and values."""
        return self._draft(after, record, self._replace_schema)

    def revert(self, batch: LastBatch, after: Definition, record: Mapping[str, str]) -> IcebergDraft:
        """Draft with the schema of ``after``, and the snapshot before the batch as the current one.

        Raises DataError if that was expired, CommitConflict if the batch's is not the current one any more.
        """
        snapshot, _ = before_compaction(self._java)
        if snapshot is None or int(snapshot.snapshotId()) != batch.snapshot:
            raise CommitConflict(f"{self.table.name} was changed by another writer")
        before = snapshot.parentId()
        if before is None or self._java.snapshot(before) is None:
            raise DataError(
                f"{self.table.name}: batch {batch.id} cannot be undone: the snapshot before it has expired",
                "ingest corrected records instead",
            )
        from driftline.formats.iceberg.row_delta import remembered_file  # late: for a key alone

        deletes = remembered_file(self._java, snapshot)

        def roll_back(transaction: Any) -> None:
            """Make the snapshot before the current one, and forget what the batch deleted."""
            transaction.manageSnapshots().rollbackTo(int(before)).commit()
            _forget(transaction, [] if deletes is None else [deletes])

        draft = self._draft(after, record, self._replace_schema, roll_back)
        draft.snapshot = int(before)
        return draft

    def _draft(
        self,
        after: Definition,
        record: Mapping[str, str],
        set_schema: Callable[[Any, Definition], None],
        set_rows: Callable[[Any], None] | None = None,
    ) -> IcebergDraft:
        """Draft the table by ``after``; ``set_rows`` changes its rows first."""
        check_variants(self.table.name, after.schema, self.before.schema)
        transaction = begin(self.table, self._java)
        try:
            with java_errors():
                if set_rows is not None:
                    set_rows(transaction)
                if forgets_deletes(self.before.properties, after.properties):
                    self._forget_deletes(transaction)
                if after.format_version != self.before.format_version:
                    transaction.updateProperties().set(VERSION, str(after.format_version)).commit()
                now = _update_layout(self._jvm, transaction, self.before, after)
                set_schema(transaction, after)
                drafted = self._now(transaction)
                _update_layout(
                    self._jvm, transaction, replace(now, schema=drafted.schema), _by_ids_of(drafted, after)
                )
                self._show_variants(transaction, drafted.schema)
                self._set_properties(transaction, after.properties, record)
        except Py4JJavaError as error:
            raise DataError(f"table {self.table.name} refused the change: {short(error)}") from error
        return IcebergDraft(self.table, self._java, transaction, self._now(transaction), self.before)

    def _forget_deletes(self, transaction: Any) -> None:
        if self._java.refs().containsKey(DELETES_BRANCH):
            transaction.manageSnapshots().removeBranch(DELETES_BRANCH).commit()

    def _now(self, transaction: Any) -> Definition:
        return definition(self._jvm, transaction.table().operations().current())

    def _update_schema(self, transaction: Any, after: Definition) -> None:
        # A change is the difference of two schemas by id. Where a name is taken over, Iceberg needs two
        # updates for it.
        for start, end in stages(self.before.schema, after.schema):
            update_schema(self._jvm, transaction, _with_identifiers(diff(start, end), end), self.table.name)

    def _replace_schema(self, transaction: Any, after: Definition) -> None:
        operations = transaction.table().operations()
        base = operations.current()
        builder = java_type(self._jvm, "org.apache.iceberg.TableMetadata").buildFrom(base)
        builder = builder.setCurrentSchema(java_schema(self._jvm, after.schema), base.lastColumnId())
        # Committed without Iceberg's own retry, which would forget the replaced schema.
        operations.commit(base, builder.build())

    def _show_variants(self, transaction: Any, schema: Schema) -> None:
        """Add an empty snapshot if the last one lacks a variant column: Spark would not read the table."""
        # Iceberg's Spark reader looks for a variant's statistics in the last snapshot's schema, and fails
        # on every `select *` without it.
        java = transaction.table()
        last = java.currentSnapshot()
        variants = {f.id for f in schema.struct.fields if f.type == VARIANT}
        if last is None or not variants:
            return
        snapshot_schema = java.schemas().get(last.schemaId())
        if snapshot_schema is None or not all(snapshot_schema.findField(column) for column in variants):
            transaction.newAppend().commit()

    def _set_properties(
        self, transaction: Any, properties: Mapping[str, str], record: Mapping[str, str]
    ) -> None:
        # Iceberg keeps some by itself, such as metrics of columns by name: only what differs is touched.
        before = self.before.properties
        step_ = step(self._java.operations().current(), transaction.table().operations().current())
        update = transaction.updateProperties()
        for key, value in {**properties, **with_change(record, step_, before, properties)}.items():
            if before.get(key) != value:
                update.set(key, value)
        for key in before.keys() - properties.keys():
            update.remove(key)
        update.commit()


class IcebergDraft:
    """A table as it would be, invisible to others before `commit`.

    Attributes:
        snapshot: the one to which its rows go back.
    """

    def __init__(
        self,
        table: IcebergHandle,
        java: Any,
        transaction: Any,
        definition: Definition,
        before: Definition,
    ) -> None:
        self.table = table
        self.definition = definition
        self.snapshot: int | None = None
        self._before = before
        self._base = java.operations()
        self._draft = transaction.table().operations()
        self._from = transaction.startMetadata()

    @property
    def warnings(self) -> Sequence[str]:
        """Consequences for readers of the table: new columns of types that some of them do not know."""
        return warnings(self._before.schema, self.definition.schema)

    def read(self) -> DataFrame:
        """Return the present rows as readers of the draft would see them."""
        view = java_type(self.table.jvm, "org.apache.iceberg.BaseTable")(self._draft, self.table.name)
        return read_as(self.table, view, self.definition.schema)

    def commit(self) -> None:
        """Make the draft the table. Raises CommitConflict if the definition was changed by another writer."""
        replace_metadata(self.table, self._base, self._from, self._draft.current(), self._is_in)
        upkeep(self.table, self._draft.current())

    def _is_in(self, now: Any) -> bool:
        """True if the Java table ``now`` has the change: it remembers it, or equals the draft."""
        if self.snapshot is not None:
            current = now.currentSnapshot()
            return current is not None and int(current.snapshotId()) == self.snapshot
        present, properties = (
            definition(self.table.jvm, now.operations().current()),
            self.definition.properties,
        )
        new = self._before.properties.get(LAST_CHANGES) != properties.get(LAST_CHANGES)
        return present == self.definition or (new and is_noted(present.properties, properties))


def _forget(transaction: Any, files: Sequence[Any]) -> None:
    """Take files of remembered deletes out of their branch."""
    if files:
        update = transaction.newDelete()
        for file in files:
            update.deleteFile(file)
        update.toBranch(DELETES_BRANCH).commit()


def _by_ids_of(drafted: Definition, after: Definition) -> Definition:
    """Return the layout of ``after`` by the ids that the table gave to new columns."""
    columns = {f.id: drafted.schema.find(path) for path, f in after.schema.walk()}
    ids = {old: new.id for old, new in columns.items() if new is not None}
    return replace(
        after,
        partition=tuple(replace(f, source=ids.get(f.source, f.source)) for f in after.partition),
        sort=tuple(
            replace(f, source=ids.get(f.source, f.source)) for f in after.sort if isinstance(f, SortField)
        ),
    )


def _with_identifiers(changes: tuple[ColumnChange, ...], after: Schema) -> list[ColumnChange]:
    """Set the identifier fields again with every update: Iceberg loses a nested one that is renamed."""
    paths = tuple(path for path, f in after.walk() if f.id in after.identifiers)
    has_own = any(isinstance(c, SetIdentifiers) for c in changes)
    return [*changes, SetIdentifiers(paths)] if changes and paths and not has_own else list(changes)
