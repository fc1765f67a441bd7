"""One batch's changes to an Iceberg table: visible together, in one metadata version, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.core.changes import Change
from driftline.core.changes.apply import refits
from driftline.core.columns.statistics import SeenIn, SeenNote
from driftline.core.history.entries import BATCH, CHANGE_RECORD, LEDGER, OTHERS, SEEN, with_change
from driftline.core.schema.types import Schema, Struct
from driftline.errors import DataError, DriftlineError, SetupError
from driftline.formats.base import (
    Added,
    CommitConflict,
    Moved,
    Rewritable,
    State,
    UnknownError,
    UpkeepTransaction,
    carried,
)
from driftline.formats.commit import Retry
from driftline.formats.iceberg import reader
from driftline.formats.iceberg.commit import begin, check_head, commit, delete_files, is_durable, upkeep
from driftline.formats.iceberg.compaction import FileRewrite, only_in_tasks
from driftline.formats.iceberg.definition import metrics_of_all, step, update_schema
from driftline.formats.iceberg.files import (
    DATA_PATH,
    SparkWriter,
    delete_folder,
    location_of,
    new_folder,
    options_of,
    snapshot_properties,
    staging_transaction,
    taken_files,
    write_tasks,
    writes_in_tasks,
)
from driftline.formats.iceberg.gateway import (
    items,
    java_errors,
    schema_of,
    session_conf,
    short,
    text_map,
)
from driftline.formats.iceberg.row_delta import REMEMBERED, DeletesBranch, KeyFiles, RowDelta, identified
from driftline.formats.iceberg.seen import new_name, with_files
from driftline.formats.iceberg.sizes import target_of
from driftline.formats.iceberg.taking_out import take_out
from driftline.formats.iceberg.unread import (
    check_left_out,
    fillable,
    frame_of,
    left_out,
    telling,
)
from driftline.formats.rewritable import unsorted
from driftline.keys.slices import own_columns
from driftline.runtime.disk import NEW
from driftline.runtime.spark_version import java_type
from driftline.write import BatchFolder, staged
from driftline.write.positions import ROW_ID

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from driftline.files.whole import StagedRows
    from driftline.formats.base import Carry
    from driftline.formats.iceberg.handle import IcebergHandle
    from driftline.keys.anew import RewriteCandidate, RowsLeft
    from driftline.keys.identity import BatchKeys, SoughtKeys
    from driftline.keys.remembered import DeletedKeys
    from driftline.keys.settle import Found
    from driftline.keys.stored import KeyCache, StoredRows
    from driftline.write import RowTasks
    from driftline.write.positions import Positions


class IcebergTransaction(UpkeepTransaction):
    """The changes of one batch, visible together when committed.

    Attributes:
        base: the table that they start from; None for a new one.
    """

    def __init__(self, table: IcebergHandle, java: Any, base: State | None) -> None:
        self.table = table
        self.base = base
        self.visible: bool | None = False
        self._java = java
        self._jvm: Any = table.spark._jvm
        self._evolved: list[tuple[tuple[Change, ...], int]] = []  # steps, with the ids that each began at
        self._steps = 0  # how many of them came before the rows
        self._carry: Carry | None = None
        self._note: Callable[[], SeenNote] | None = None  # of the rows that replace all others
        self._told: dict[str, str] = {}  # the properties as they were given
        self._properties: dict[str, str] = {}  # and as they were set
        self._summary: Mapping[str, str] = {}
        self._written: list[Any] = []
        self._folders: list[str] = []  # of files that Spark's own writer made, or was to make
        self._made: int | None = None  # the snapshot of this transaction's own, by its id
        self._replaced = False
        self._files: tuple[int, ...] = ()  # source files that the batch takes
        self._ledger: str | None = None  # the path of the ledger that lists them
        self._seen: str | None = None  # the name of the note of batches whose files it rewrites
        self._key_file_paths: list[str] = []  # of files with deletes that were written
        self._delta: RowDelta | None = None  # rows looked up by key
        self._deletes: DeletesBranch | None = None  # those that are remembered

    @classmethod
    def on(cls, table: IcebergHandle, state: State) -> IcebergTransaction:
        """Return a transaction on an existing table.

        Raises CommitConflict if the table is no longer in this ``state``, UsageError if its writes would be
        visible to nobody.
        """
        reader.check_seen(table.spark)
        java = table.java()
        if java is None:
            raise CommitConflict(f"table {table.name} was dropped by another writer")
        check_head(table, java)
        begun = begin(table, java)
        # By the metadata that the commit will compare: what was loaded a moment before may be older.
        base = table.state(begun.startMetadata())
        if not state.fits(base):
            raise CommitConflict(f"table {table.name} was changed by another writer")
        return cls(table, begun, base)

    @cached_property
    def schema(self) -> Schema:
        """The schema inside the transaction, once it is evolved."""
        if self.base is not None and not any(changes for changes, _ in self._evolved):
            # To parse a schema of many columns takes long.
            return self.base.schema
        return schema_of(self._jvm, self._java.table().schema())

    @property
    def row_type(self) -> Struct:
        """The struct of the rows that `append` takes: the columns that Spark has values for."""
        return fillable(self.schema).struct

    @property
    def snapshot(self) -> int | None:
        """The table's current snapshot inside the transaction, by its id."""
        snapshot = self._java.table().currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    @property
    def written(self) -> Added:
        """The data files that it has written, as its snapshot counts them."""
        if not self._written:
            return Added()
        summary = self._java.table().currentSnapshot().summary()
        counts = ("added-data-files", "added-files-size", "total-data-files")
        return Added(*(int(summary.get(count) or 0) for count in counts))

    def evolve(self, changes: Iterable[Change], after: int = 0) -> None:
        """Apply the changes as one schema update; new columns get ids beyond ``after``."""
        changes = tuple(changes)
        self._evolved.append((changes, after))
        if not changes:
            return
        operations = self._java.table().operations()
        now = operations.current()
        # Ids in between stay free for other writers, so that files which have ours need not be written
        # again.
        if now.lastColumnId() < after:
            builder = java_type(self._jvm, "org.apache.iceberg.TableMetadata").buildFrom(now)
            operations.commit(now, builder.setCurrentSchema(now.schema(), after).build())
        update_schema(self._jvm, self._java, changes, self.table.name)
        # The cached one is that before this step.
        self.__dict__.pop("schema", None)
        if self.base is not None:
            self.set(metrics_of_all(self.schema, self.base.properties))

    def append(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        """Write the frame's rows, with the columns of `row_type`; returns their number."""
        if self._replaced:  # rows that replace all others have all columns, which may be void
            return self._append_all(self._files_of(frame, self.schema), summary)
        if self.row_type != self.schema.struct:
            return self._append_beside(frame, summary)
        if self.base is None:
            return self._create_with(frame, summary)
        return self._append_by_spark(frame, summary)

    def _append_beside(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        """Append files that Spark wrote for a table without the columns that it does not know.

        The ids of the others are the same.
        """
        check_left_out(self.table.name, self.schema)
        if self.base is None:
            raise DataError(
                f"{self.table.name} cannot be created by Spark, which does not know all of its types"
            )
        return self._append_by_spark(frame, summary)

    def _append_by_spark(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        return self._append_all(self._files_of(frame, fillable(self.schema)), summary)

    def _append_all(
        self, files: Sequence[Any], summary: Mapping[str, str], filled: Collection[int] = ()
    ) -> int:
        """Add the files' rows, and remove those of `remove`; returns the number of the former.

        ``filled``: the columns with values in rows that are not rewritten.
        """
        self._written += files
        if self._deletes is not None and self._deletes.file is not None:
            summary = {**summary, REMEMBERED: self._deletes.file}
        if self._delta is not None and self._delta.takes_others:
            summary = {**summary, OTHERS: "true"}
        if self._delta is not None and self._delta.rewrites:
            self._seen = new_name()
            summary = {**summary, SEEN: self._seen}
        self._summary = self._snapshot_properties(summary)
        if self._replaced:
            self._replace_files()
            return sum(int(file.recordCount()) for file in files)
        if files or self._delta:
            self._append_files()
        if self._seen is not None:
            self._note_seen(self._seen, filled)
            if isinstance(self._delta, FileRewrite):
                self.set({SEEN: self._seen})  # a batch sets its own properties
        return sum(int(file.recordCount()) for file in files)

    def _append_files(self) -> None:
        if self._delta:
            update = self._delta.update()
            self._add_files(
                update, update.addFile if isinstance(self._delta, FileRewrite) else update.addRows
            )
            return
        append = self._java.newAppend()
        self._add_files(append, append.appendFile)

    def _add_files(self, update: Any, add: Callable[[Any], Any]) -> None:
        for file in self._written:
            add(file)
        for key, value in self._summary.items():
            update.set(key, value)
        update.commit()
        # By this id the commit is looked for after an error.
        self._made = self.snapshot

    def _note_seen(self, name: str, filled: Collection[int]) -> None:
        """Note the batches whose values the rewritten files have, and this one with its ``filled``."""
        assert self._delta is not None
        base, snapshot = self.table.metadata(self._as_it_was()), self._java.table().currentSnapshot()
        note = with_files(reader.note_in(self.table, base), base, self._delta.gone())
        self._write_note(
            name, note.having(SeenIn(int(snapshot.timestampMillis()), self._summary.get(BATCH)), filled)
        )

    def _write_note(self, name: str, note: SeenNote) -> None:
        """Write the note of the snapshot that is made."""
        snapshot = self._java.table().currentSnapshot()
        path = reader.place(self._java.table(), name)
        self._key_file_paths.append(path)  # before it is there: whatever fails now, it is deleted
        reader.write_file(
            self._java.table(), path, replace(note, snapshot=int(snapshot.snapshotId())).to_json()
        )

    @property
    def table_location(self) -> str:
        """The table's own folder."""
        return str(self._java.table().location())

    @property
    def durable(self) -> bool:
        """False if the files of the table's catalog are written without syncs."""
        return is_durable(self._jvm, self._java.table().io())

    @property
    def location(self) -> str:
        """The folder of the table's data files."""
        return location_of(self._java.table())

    def reached_with(self) -> Mapping[str, str] | None:
        """Return the options with which tasks reach the store of the `location`; None if they cannot."""
        return options_of(self.table.spark, self._java.table(), self.location)

    def write(
        self,
        tasks: RowTasks,
        folder: BatchFolder | None,
        summary: Mapping[str, str],
        *,
        with_ids: bool = False,
    ) -> int:
        """Have tasks write Parquet files, or Spark's writer if the table needs it; returns the row count.

        Spark's writer makes new ids.
        """
        spark, files = self.table.spark, None
        if folder is not None and self.row_type == self.schema.struct:
            session = session_conf(spark)
            schema = identified(self.schema) if with_ids else self.schema
            files = write_tasks(spark, session, self._java.table(), schema, tasks, folder)
        if files is None and isinstance(self._delta, FileRewrite):
            raise only_in_tasks(self.table.name)
        if files is None:
            # Spark's writer keeps the ids of rows that replace all others.
            struct = self.row_type if not (with_ids and self._replaced) else identified(self.schema).struct
            return self.append(staged(spark, tasks, struct, folder), summary)
        rewrites = self._delta is not None and self._delta.rewrites
        return self._append_all(files, summary, own_columns(tasks) if rewrites else ())

    def by_key(self) -> IcebergTransaction:
        """Return the transaction: Iceberg deletes rows by position."""
        return self

    def find(
        self, keys: SoughtKeys, order: int | None, deleted: int | None = None, cache: KeyCache | None = None
    ) -> list[Found]:
        """Find the rows of the table that the transaction began on which have a key of the batch."""
        if self.base is None:
            return []
        # Positions are true for the files of one version, so they come from the one that is committed to.
        self._delta = RowDelta(self._key_files, self._java, self._as_it_was(), self.base.schema)
        return self._delta.find(keys, order, deleted, cache)

    def by_file(self) -> IcebergTransaction:
        """Return the transaction, to write files anew. Raises DataError if tasks cannot write its rows."""
        if not self._writes_in_tasks():
            raise only_in_tasks(self.table.name)
        return self

    def rewritable(self, *, behind_batch: bool = False, sort: bool = False) -> Rewritable:
        """Choose the files that are worth writing anew, in groups, each for one commit."""
        assert self.base is not None
        table = self._java.table()
        if table.currentSnapshot() is None:
            return Rewritable()
        self._delta = rewrite = self._file_rewrite()
        if behind_batch:
            return rewrite.choice(self.row_type).behind_batch()
        spec, target = int(table.spec().specId()), target_of(self.base.properties)
        order = table.sortOrder()
        if sort and order.isUnsorted():
            raise unsorted(self.table.name)
        return rewrite.choice(self.row_type).of_compaction(
            target, spec, int(order.orderId()) if sort else None
        )

    def rewrite_files(self, group: Sequence[RewriteCandidate]) -> RowsLeft:
        """Take files out of the table; returns their rows, for `write`."""
        # That which chose the files has planned the table's files.
        rewrite = self._delta if isinstance(self._delta, FileRewrite) else self._file_rewrite()
        self._delta = rewrite
        return rewrite.take(group, self.row_type)

    def _file_rewrite(self) -> FileRewrite:
        return FileRewrite(self._key_files, self._java, self._as_it_was(), self.schema)

    def stored(self) -> StoredRows:
        """Return a reader of rows that were found, with the columns of `row_type`."""
        assert self._delta is not None
        return self._delta.stored(self.row_type)

    @cached_property
    def _key_files(self) -> KeyFiles:
        return KeyFiles(self.table.spark, self._java, self.table.name, self._key_file_paths)

    def remove(self, rows: Mapping[str, Positions], size: int) -> RowsLeft | None:
        """Remove found rows in the snapshot that adds the batch's rows.

        Returns the remaining rows of rewritten files, which the batch, of ``size`` bytes, has to rewrite.
        """
        if not rows:
            return None
        assert self._delta is not None
        return self._delta.remove(rows, size, self.row_type, self._writes_in_tasks)

    def _writes_in_tasks(self) -> bool:
        """True if tasks write the rows, in whose files they keep their ids."""
        spark, schema = self.table.spark, self.schema
        return self.row_type == schema.struct and writes_in_tasks(
            spark, session_conf(spark), self._java.table(), schema
        )

    def find_deletes(self, keys: BatchKeys, order: int) -> list[Found]:
        """Find the deletes that the table remembers of keys of the batch."""
        if self.base is None:
            self._deletes = DeletesBranch(self._key_files, self._java, None)
            return []
        self._deletes = DeletesBranch(self._key_files, self._java, self._as_it_was())
        return self._deletes.find(keys, order, self.base.schema)

    def remember_deletes(self, deletes: DeletedKeys) -> None:
        """Remember deletes in a branch, in the same metadata version."""
        assert self._deletes is not None
        self._deletes.remember(deletes, self.schema)

    def remembered(self, ids: Sequence[int]) -> Iterator[tuple[str, pa.Table]]:
        """Return the deletes that the table remembers, by file: columns by their ids."""
        if self.base is None:
            return iter(())
        self._deletes = DeletesBranch(self._key_files, self._java, self._as_it_was())
        return self._deletes.rows(ids)

    def rewrite_deletes(self, files: Iterable[tuple[str, pa.Table]]) -> None:
        """Have remembered deletes in other columns of the present schema."""
        assert self._deletes is not None
        self._deletes.rewrite(files, self.schema)

    def read(self) -> DataFrame:
        """Return the rows of the table that the transaction began on, whatever others do meanwhile."""
        return frame_of(self.table.spark, self._as_it_was())

    def staged(self, *, whole: bool = True) -> StagedRows:
        """Return the rows that the table has once this is committed, by the metadata that would be."""
        will_be = self._at(self._java.table().operations().current())
        before = None if whole or self.base is None else self.base.snapshot
        return reader.staged(self.table, will_be, self.schema, before)

    def _as_it_was(self) -> Any:
        """Return the Java table that the transaction began on."""
        return self._at(self._java.startMetadata())

    def _at(self, metadata: Any) -> Any:
        """Return the Java table with this metadata."""
        fixed = java_type(self._jvm, "org.apache.iceberg.StaticTableOperations")
        operations = fixed(metadata, self._java.table().io())
        return java_type(self._jvm, "org.apache.iceberg.BaseTable")(operations, self.table.name)

    def live_rows(self) -> RowsLeft | None:
        """Return the rows of the table that the transaction began on, for tasks; None if Spark alone can."""
        base = self.base
        # Of a table that only Java reaches, no key is looked up either.
        with suppress(SetupError):
            if base is not None and fillable(base.schema) == base.schema and self._writes_in_tasks():
                files = FileRewrite(self._key_files, self._java, self._as_it_was(), base.schema)
                return files.all_rows(base.schema.struct)
        return None

    def replace_all(
        self, carry: Carry | None = None, note: Callable[[], SeenNote] | None = None
    ) -> IcebergTransaction:
        """Return the transaction, whose next `append` or `write` replaces all rows of the table.

        Behind the table's columns the rows may have those of `IcebergTable.row_ids`, which they then keep.
        Raises DataError if values would be lost that Spark cannot write.
        """
        if lost := left_out(self.schema):
            raise DataError(
                f"{self.table.name}: its rows cannot be rewritten: Spark has no values of {lost[0]}"
            )
        # `rebase` repeats the steps so far before the rows, and later ones, such as a drop, behind them.
        self._replaced, self._carry, self._note, self._steps = True, carry, note, len(self._evolved)
        return self

    def _replace_files(self) -> None:
        if self._note is not None:
            self._seen = new_name()
            self._summary = {**self._summary, SEEN: self._seen}
        overwrite = self._java.newOverwrite()
        all_rows = java_type(self._jvm, "org.apache.iceberg.expressions.Expressions").alwaysTrue()
        self._add_files(overwrite.overwriteByRowFilter(all_rows), overwrite.addFile)
        if self._note is not None and self._seen is not None:
            self._write_note(self._seen, self._note())

    def _create_with(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        """Have Spark append the rows to a new table, in a folder by which `clean` knows them."""
        before, table = self.snapshot, self._java.table()
        own_path, folder = table.properties().get(DATA_PATH), new_folder(table)
        self._folders.append(folder)
        self._java.updateProperties().set(DATA_PATH, folder).commit()
        self._writer.append(table, frame, summary)
        update = self._java.updateProperties()
        (update.remove(DATA_PATH) if own_path is None else update.set(DATA_PATH, own_path)).commit()
        if self.snapshot == before:
            return 0
        table = self._java.table()
        snapshot = table.currentSnapshot()
        self._summary, self._made = summary, int(snapshot.snapshotId())
        self._written += items(snapshot.addedDataFiles(table.io()))
        return int(snapshot.summary().get("added-records") or 0)

    def _snapshot_properties(self, summary: Mapping[str, str]) -> dict[str, str]:
        spark = self.table.spark
        return snapshot_properties(spark, session_conf(spark), summary)

    @property
    def _writer(self) -> SparkWriter:
        return SparkWriter(self.table.spark, self.table.plugin)

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties; the record of a change joins the others that the table remembers."""
        if properties:
            self._told |= properties
            properties_ = {key: value for key, value in properties.items() if key != CHANGE_RECORD}
            beside = {LEDGER: self._ledger, SEEN: self._seen}
            properties_ |= self._noted(properties) | {key: path for key, path in beside.items() if path}
            self._properties |= properties_
            update = self._java.updateProperties()
            for key, value in properties_.items():
                update.set(key, value)
            update.commit()

    def remember(self, files: Sequence[int]) -> None:
        """Record that the table takes these source files, by fingerprint: the next `set` names a ledger."""
        if not files:
            return
        self._files = tuple(files)
        before = {} if self.base is None else reader.ledger_of(self.table, self.base.properties)
        others = {file: snapshot for file, snapshot in before.items() if file not in self._files}
        # Behind the others: a full ledger loses its first entries, and these are the youngest.
        entries = others | dict.fromkeys(self._files, self.snapshot or 0)
        self._ledger = reader.write_ledger(self._java.table(), entries)

    def _noted(self, properties: Mapping[str, str]) -> dict[str, str]:
        if CHANGE_RECORD not in properties:
            return {}
        before = {} if self.base is None else self.base.properties
        step_ = step(self._java.startMetadata(), self._java.table().operations().current())
        return with_change(properties, step_, before, {**before, **properties})

    def commit(self) -> None:
        """Make everything visible at once. Raises CommitConflict if someone else was faster."""
        self.visible = None  # whatever ends this now, Ctrl-C too, may end it behind the commit
        try:
            commit(self.table, self._java, self._is_in, self._own_files())
        # `visible` stays None, so that nothing is deleted which the table may have.
        except UnknownError:
            raise
        except (CommitConflict, DriftlineError):
            self.visible = False
            raise
        self.visible = True

    def _own_files(self) -> Iterator[str]:
        """Return the files that the transaction has written, without manifests."""
        yield from (str(file.location()) for file in self._written)
        yield from self._key_file_paths
        if self._ledger is not None:
            yield self._ledger

    def rebase(self, now: State) -> None:
        """After a conflict, apply the same changes and files to the table as it is ``now``.

        The same must have been planned for it.
        """
        if self.base is None or not now.exists or (self._replaced and not self.base.fits(now)):
            raise Moved(f"{self.table.name} has changed since the batch was planned")
        # Whatever came between, another's append may have the keys of this batch, so the batch is settled
        # anew.
        rewrite = self._delta if isinstance(self._delta, FileRewrite) else None
        if (self._delta is not None and rewrite is None) or self._deletes is not None:
            raise Moved(f"{self.table.name} has changed since its rows were looked up")
        fresh = IcebergTransaction.on(self.table, now)
        # One list for both: what ``fresh`` writes from here on goes, too, if this one is abandoned.
        fresh._folders = self._folders
        steps = self._steps if self._replaced else len(self._evolved)
        for changes, after in self._evolved[:steps]:
            fresh.evolve(changes, after)
        fresh._written, fresh._summary, fresh._note = list(self._written), self._summary, self._note
        if self._replaced:
            fresh._written += self._carry_over(fresh)
        elif not refits(self.schema, fresh.schema):
            raise Moved(f"the columns of {self.table.name} have changed since the batch was written")
        if self._replaced:
            fresh._replace_files()
        elif rewrite is not None:
            fresh._rewrite_again(rewrite)
        elif self._written:
            fresh._append_files()
        for changes, after in self._evolved[steps:]:
            fresh.evolve(changes, after)
        # Manifests and ledger name the version that was lost; the data files are used again.
        self._delete(self._metadata_files())
        fresh.remember(self._files)
        fresh.set(self._told)
        self.base, self._java, self._properties = fresh.base, fresh._java, fresh._properties
        self._ledger, self._delta, self._seen = fresh._ledger, fresh._delta, fresh._seen
        self._key_file_paths = fresh._key_file_paths
        # Not asked of Java later: after a commit that failed, its transaction shows the table of others.
        self.schema, self._made, self._written = fresh.schema, fresh._made, fresh._written

    def _rewrite_again(self, rewrite: FileRewrite) -> None:
        """Take the same files out of the table as a ``rewrite`` did, and add those that it wrote."""
        self._delta = fresh = self._file_rewrite()
        fresh.again(rewrite, self.row_type)
        self._seen = new_name()
        self._summary = {**self._summary, SEEN: self._seen}
        self._append_files()
        self._note_seen(self._seen, ())

    def _carry_over(self, transaction: IcebergTransaction) -> list[Any]:
        """Write the rows that others appended since, for this other ``transaction``; returns the files."""
        files: list[Any] = []

        def write(rows: DataFrame) -> int:
            """Write the rows into files of the other transaction; returns the number of rows in them."""
            files.extend(transaction._files_of(rows, transaction.schema))
            return sum(int(file.recordCount()) for file in files)

        assert self.base is not None
        assert transaction.base is not None
        appended = reader.read_between(self.table, self.base, transaction.base)
        try:
            carried(self.table.name, appended, self._carry, write)
        except BaseException:
            self._delete(str(file.location()) for file in files)
            raise
        return files

    def _files_of(self, rows: DataFrame, schema: Schema) -> list[Any]:
        """Return the rows as data files that are in no snapshot yet, in a folder of their own.

        ``schema``: the table's, or that without columns which the rows lack.
        """
        java, inside = self.table.java(), self._java.table()
        if java is None:
            raise CommitConflict(f"{self.table.name} is gone")
        folder = new_folder(inside)
        self._folders.append(folder)
        try:
            with java_errors():
                staged = staging_transaction(self._jvm, java, inside, schema, folder)
        except Py4JJavaError as error:
            raise DataError(f"{self.table.name}: Spark cannot write it: {short(error)}") from error
        if ROW_ID in rows.columns:
            return self._writer.files_with_ids(staged.table(), rows)
        self._writer.append(staged.table(), rows, {})
        return taken_files(staged.table(), inside.currentSnapshot())

    def abandon(self) -> None:
        """Delete the files that were written, unless they are the table's, or may be."""
        # None stands for an unknown outcome: `clean` then deletes what the table does not name by that time.
        if self.visible is False:
            self._delete([*(str(file.location()) for file in self._written), *self._metadata_files()])
            for folder in self._folders:
                delete_folder(self.table.spark, self._java.table(), folder)

    def _metadata_files(self) -> list[str]:
        """Return the files other than data that the transaction has written."""
        files = [] if self._ledger is None else [self._ledger]
        files += self._key_file_paths
        table = self._java.table()
        own_snapshots = [table.currentSnapshot()] if self._made is not None else []
        own_snapshots += self._deletes.snapshots if self._deletes is not None else []
        # Those that cannot be listed now are left to `clean`.
        with suppress(Py4JJavaError), java_errors():
            for snapshot in own_snapshots:
                files += telling(table, snapshot)
        return files

    def _delete(self, paths: Iterable[str]) -> None:
        delete_files(self._java.table().io(), paths, NEW)

    def read_written(self) -> DataFrame | None:
        """Return the rows that the committed transaction wrote; None if Spark cannot read all columns."""
        if self.snapshot is None or self._replaced or self._delta:
            return None
        before = None if self.base is None else self.base.snapshot
        if before is None:
            return reader.read_table(self.table, self.snapshot)
        return reader.read_appended(self.table, before, self.snapshot)

    def upkeep(self) -> None:
        """After the commit, drop metadata of batches long past. Never fails."""
        table = self._java.table()
        # Only older versions of the metadata name the former ledger, and a rollback does not bring back
        # properties.
        before = None if self.base is None else self.base.properties.get(LEDGER)
        if self._ledger is not None and before is not None:
            delete_files(table.io(), [before], self.table.bounds(table))
        upkeep(self.table, table.operations().current())

    def undo(self) -> bool:
        """Remove the files of a committed transaction from the table.

        Returns False if the table no longer has them, or if the transaction removed rows.
        """
        if self._delta:
            return False
        return Retry(self.table.name).run(partial(take_out, self.table, self._written))

    def _is_in(self, now: Any) -> bool:
        """True if the Java table ``now`` has the batch."""
        if self._made is not None:
            return now.snapshot(self._made) is not None
        # Without rows there is no snapshot, and the properties name the batch, or the change.
        return self._properties.items() <= text_map(self._jvm, now.properties()).items()
