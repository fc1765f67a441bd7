"""One batch's changes to a DuckLake table: invisible files first, then one snapshot with all of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.convert.types import convertible
from driftline.core.changes import Change
from driftline.core.changes.apply import SchemaDraft, extends, refits
from driftline.core.changes.defaults import no_value
from driftline.core.columns.statistics import SeenNote
from driftline.core.history.entries import BATCH, SEEN
from driftline.core.schema.definition import IDENTITY, SortField, Transform
from driftline.core.schema.naming import QUARANTINE
from driftline.core.schema.types import (
    BINARY,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UNKNOWN,
    Default,
    Expression,
    Field,
    Primitive,
    Schema,
)
from driftline.core.settings.declarations import property_of
from driftline.errors import DataError, SetupError, UsageError
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
from driftline.formats.ducklake.commit import commit, landed
from driftline.formats.ducklake.compaction import (
    GroupRewrite,
    identified,
    number_of_files,
    only_in_tasks,
    without_ids,
)
from driftline.formats.ducklake.deletes import RowDeletes
from driftline.formats.ducklake.deletes_table import DeletesTable
from driftline.formats.ducklake.files import DataFile, Storage, describe, local, removed
from driftline.formats.ducklake.layout import CatalogLayout, top_column, with_layout
from driftline.formats.ducklake.new_values import values_of, with_values
from driftline.formats.ducklake.read import read_behind, read_between, read_files, read_table
from driftline.formats.ducklake.rows import AUTHOR, CommitMessage, TableCommit
from driftline.formats.ducklake.sizes import TARGET
from driftline.formats.ducklake.snapshot import DELETES_OF, DELETES_SUFFIX, DuckLakeHandle, LakeState
from driftline.formats.ducklake.write import check_required, duckdb_folder, write
from driftline.formats.rewritable import unsorted
from driftline.keys.slices import own_columns
from driftline.write import (
    BatchFolder,
    Destination,
    Distribution,
    FilePlan,
    FileSettings,
    InFolder,
    InStore,
    Key,
    Partition,
    WrittenFile,
    staged,
    write_in_tasks,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from driftline.files.whole import StagedRows
    from driftline.formats.base import Carry
    from driftline.formats.ducklake.catalog import Connection
    from driftline.keys.anew import RewriteCandidate, RowsLeft
    from driftline.keys.identity import BatchKeys, SoughtKeys
    from driftline.keys.remembered import DeletedKeys
    from driftline.keys.settle import Found
    from driftline.keys.stored import KeyCache, StoredRows
    from driftline.write import RowTasks
    from driftline.write.positions import Positions

_COMPACT = property_of("compact")
# Whose text as a partition value is DuckDB's own.
_PRINTED_OTHERWISE = (TIMESTAMP, TIMESTAMP_NTZ, BINARY)


def write_tasks(
    spark: SparkSession, tasks: RowTasks, intent: TableCommit, folder: BatchFolder, target: int = TARGET
) -> list[DataFile] | None:
    """Have tasks write files into the table's folder, through the batch's ``folder``; returns the files.

    ``target``: bytes that a file should have. Returns None, with nothing written, if Spark's own writer must:
    for types and keys that tasks do not know.
    Raises DataError if a required column has no value.
    """
    schema = intent.schema
    if not writes_in_tasks(intent):
        return None
    distribution = _distribution(schema, intent.keys, intent.name)
    # The footers have everything that the catalog records.
    unmeasured = {f.id: "none" for _, f in schema.walk()}
    plan = FilePlan(schema, unmeasured, FileSettings(), target, distribution)
    place = _destination(intent, distribution, folder)
    written = write_in_tasks(spark.sparkContext, tasks, plan, folder, place)
    root = _plain(intent.folder)
    partitions = {
        file.path.removeprefix(root): tuple(map(_text, distribution.partition, file.partition))
        for file in written
    }
    try:
        files = describe(intent.folder, list(partitions), schema)
        check_required(files, schema, intent.name)
    except BaseException:
        for path in partitions:
            removed(spark, intent.folder + path)
        raise
    return [replace(file, partition=partitions[file.path]) for file in files]


def _destination(intent: TableCommit, distribution: Distribution, folder: BatchFolder) -> Destination:
    """Return the place of the batch's files: each partition has a folder, where DuckDB would have it."""
    root, storage = _plain(intent.folder), Storage.of(intent.folder)

    def partition_folder(partition: Partition) -> str:
        """Return the folder of the files with these values of the keys."""
        values = tuple(map(_text, distribution.partition, partition))
        return root + (duckdb_folder(values, intent.schema, intent.keys) or "")

    def place(file: WrittenFile) -> str:
        """Return the place of a written file."""
        return partition_folder(file.partition) + Path(file.path).name

    def prefix(batch: str, partition: Partition) -> str:
        """Return the beginning of the names of a batch's files."""
        return partition_folder(partition) + batch

    if storage.options is None:
        return InFolder(folder, place)
    return InStore(storage.options, prefix, storage.sweep)


def _plain(folder: str) -> str:
    """Return a folder's path, with a slash at its end; the URI of one in a store."""
    folder_here = local(folder)
    return folder if folder_here is None else f"{folder_here}/"


def writes_in_tasks(intent: TableCommit) -> bool:
    """True if tasks may write files of the table, rather than Spark's own writer."""
    return convertible(intent.schema.struct) and _known(
        _distribution(intent.schema, intent.keys, intent.name)
    )


def _distribution(schema: Schema, keys: CatalogLayout, name: str) -> Distribution:
    """Return the table's keys; of the sort keys those before the first that is an expression of DuckDB's."""
    columns = takewhile(lambda key: isinstance(key, SortField), keys.sort)
    return Distribution(
        tuple(_key(top_column(schema, f.source, name), f.transform) for f in keys.partition),
        tuple(
            replace(
                _key(top_column(schema, key.columns[0], name)),
                descending=key.descending,
                nulls_first=key.nulls_first,
            )
            for key in columns
        ),
    )


def _known(distribution: Distribution) -> bool:
    printed = (
        key.transform != IDENTITY or key.type not in _PRINTED_OTHERWISE for key in distribution.partition
    )
    return distribution.known and all(printed)


def _key(column: Field, transform: Transform = IDENTITY) -> Key:
    type_ = column.type if isinstance(column.type, Primitive) else UNKNOWN
    return Key((column.name,), type_, transform, calendar=True)


def _text(key: Key, value: Any) -> str | None:
    """Return a partition value as DuckDB prints it."""
    if value is None:
        return None
    if key.transform == IDENTITY and key.type == DATE:
        return str(np.int64(value).astype("datetime64[D]"))
    return str(value).lower() if isinstance(value, bool) else str(value)


class DuckLakeTransaction(UpkeepTransaction):
    """The changes of one batch, visible together when committed."""

    commits_together = True  # a snapshot is one of the whole lake

    def __init__(
        self,
        table: DuckLakeHandle,
        base: LakeState | None,
        schema: Schema,
        folder: str,
        keys: CatalogLayout,
    ) -> None:
        self.table = table
        self.base = base
        self.visible: bool | None = False
        self.snapshot: int | None = None
        self._intent = TableCommit(table.name, base, schema, folder, pinned=True, keys=keys)
        if base is None:
            self._intent.layout = CatalogLayout(), keys
        self._changes: list[Change] = []
        self._after = 0
        self._said: list[str] = []
        self._folders: list[str] = []
        self._carry: Carry | None = None
        self._note: Callable[[], SeenNote] | None = None
        self._values: dict[int, Default] | None = None
        self._found: RowDeletes | None = None  # rows looked up by key
        self._deletes: DeletesTable | None = None  # those that are remembered
        self._rewrite: GroupRewrite | None = None  # files that are written anew
        self._total = 0  # files of the table behind the commit

    @classmethod
    def on(cls, table: DuckLakeHandle, state: State) -> DuckLakeTransaction:
        """Return a transaction on an existing table.

        Raises CommitConflict if the table is no longer in this ``state``.
        """
        assert isinstance(state, LakeState)

        def look(connection: Connection) -> tuple[LakeState, CatalogLayout]:
            """Return the table as it is now. Raises UsageError where it cannot be written."""
            connection.check_writable()
            return with_layout(connection, table.name, state)

        now, keys = table.catalog.read(look)
        if now.table is None or not state.fits(now):
            raise CommitConflict(f"table {table.name} was changed by another writer", table.name)
        if DELETES_OF in now.properties:
            raise UsageError(
                f"{table.name} holds the deletes that {table.name.removesuffix(DELETES_SUFFIX)} remembers"
            )
        return cls(table, now, now.schema, now.table.folder, keys)

    @property
    def schema(self) -> Schema:
        """The schema inside the transaction. Defaults that are expressions have their value of this batch."""
        if self._values is None:
            zone = self.table.spark.conf.get("spark.sql.session.timeZone") or "UTC"
            self._values = values_of(self._intent.schema, zone)
        return with_values(self._intent.schema, self._values)

    @property
    def written(self) -> Added:
        """The data files that the transaction has written."""
        return Added(len(self._intent.files), sum(file.size for file in self._intent.files), self._total)

    def evolve(self, changes: Iterable[Change], after: int = 0) -> None:
        """Apply the changes; new columns get ids beyond ``after``. Raises DataError for an impossible one."""
        base, now = self.base, self._intent.schema
        self._after = after
        # Ids in between stay free for other writers, so that files which have ours need not be written
        # again.
        draft = SchemaDraft(now, max(after, base.last_id if base is not None else now.highest_id()))
        made = list(changes)
        draft.make_all(made)
        self._changes += made
        self._said += [f"{change.action} {'.'.join(change.path)}" for change in made]
        self._intent.schema = draft.schema

    def append(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        """Write the frame's rows, which must have the table's columns; returns their number."""
        folder = f"{uuid.uuid4().hex}/"
        self._folders.append(self._intent.folder + folder)
        with self._naming_defaults():
            files = write(
                frame, self._intent.schema, self._intent.keys, self._intent.folder, folder, self.table.name
            )
        return self._wrote(files, summary)

    def _wrote(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> int:
        self._intent.summary = {**self._intent.summary, **summary}
        self._intent.files += files
        # A later step may drop columns that these files have.
        self._intent.written = self._intent.schema
        return sum(file.rows for file in files)

    @contextmanager
    def _naming_defaults(self) -> Iterator[None]:
        """Raise DataError where a record lacks a value whose default has none."""
        try:
            yield
        except (PySparkException, Py4JError, DataError) as error:
            for f in self.schema.struct.fields:
                if isinstance(f.write_default, Expression) and no_value(f) in str(error):
                    raise DataError(
                        f"{self.table.name}: {no_value(f)}: DuckDB computes none that is the same for all rows",
                        hint=f"ALTER TABLE {self.table.name} ALTER COLUMN {f.name} DROP DEFAULT, or bring records "
                        "that have a value for it",
                    ) from error
            raise

    @property
    def table_location(self) -> str:
        """The table's own folder."""
        return self._intent.folder

    @property
    def durable(self) -> bool:
        """False if the lake's files are written without syncs."""
        return self.table.catalog.durable

    @property
    def location(self) -> str:
        """The folder of the table's data files."""
        return self._intent.folder.rstrip("/")

    def reached_with(self) -> Mapping[str, str] | None:
        """Return the options by which tasks reach the store of the files; None if they are on a disk."""
        return Storage.of(self._intent.folder).options

    def write(
        self,
        tasks: RowTasks,
        folder: BatchFolder | None,
        summary: Mapping[str, str],
        *,
        with_ids: bool = False,
    ) -> int:
        """Have tasks write Parquet files, or Spark's writer if the table needs it; returns the row count."""
        spark = self.table.spark
        if with_ids:
            return self._write_anew(tasks, folder, summary)
        with self._naming_defaults():
            files = None
            if folder is not None:
                files = write_tasks(spark, tasks, replace(self._intent, schema=self.schema), folder)
            if files is not None:
                if self._intent.rewritten:
                    summary = {**summary, SEEN: "true"}
                    self._intent.own, self._intent.batch = own_columns(tasks), summary.get(BATCH)
                return self._wrote(files, summary)
            rows = staged(spark, tasks, self.row_type, folder)
        return self.append(rows, summary)

    def _write_anew(self, tasks: RowTasks, folder: BatchFolder | None, summary: Mapping[str, str]) -> int:
        """Have tasks write the rows of files that go, with their ids."""
        assert self._rewrite is not None
        intent, files = self._intent, None
        if folder is not None:
            with_ids = replace(intent, schema=identified(intent.schema))
            files = write_tasks(self.table.spark, tasks, with_ids, folder, self._rewrite.target)
        if files is None:
            raise only_in_tasks(self.table.name)
        files = [without_ids(file) for file in files]
        intent.rewritten, intent.compacts = self._rewrite.group, True
        return self._wrote(files, {**summary, SEEN: "true"})

    def by_key(self) -> DuckLakeTransaction:
        """Return the transaction: a DuckLake deletes rows by position."""
        return self

    def find(
        self, keys: SoughtKeys, order: int | None, deleted: int | None = None, cache: KeyCache | None = None
    ) -> list[Found]:
        """Find the rows of the table that the transaction began on which have a key of the batch."""
        if self.base is None:
            return []
        self._found = RowDeletes(self.table.spark, self.base, self._intent.folder)
        return self._found.find(self.table.catalog, keys, order, deleted, cache)

    def stored(self) -> StoredRows:
        """Return a reader of rows that were found, with the columns of `row_type`."""
        assert self._found is not None
        return self._found.stored(self.row_type)

    def remove(self, rows: Mapping[str, Positions], size: int) -> RowsLeft | None:
        """Remove found rows in the snapshot that adds the batch's rows.

        Returns the remaining rows of rewritten files, which the batch, of ``size`` bytes, has to rewrite.
        """
        if not rows:
            return None
        lookup, intent = self._found, self._intent
        assert lookup is not None
        intent.deletes, intent.ended, intent.rewritten = lookup.files, lookup.ended, lookup.rewritten
        return lookup.remove(rows, size, self.row_type, can_write=writes_in_tasks(intent))

    def by_file(self) -> DuckLakeTransaction:
        """Return the transaction, to write files anew. Raises DataError if tasks cannot write its rows."""
        if not writes_in_tasks(self._intent):
            raise only_in_tasks(self.table.name)
        return self

    def rewritable(self, *, behind_batch: bool = False, sort: bool = False) -> Rewritable:
        """Choose the files that are worth writing anew, in groups, each for one commit."""
        self._rewrite = rewrite = self._file_rewrite()
        if behind_batch:
            return rewrite.choice().behind_batch()
        order = rewrite.sort_order if sort else None
        if sort and order is None:
            raise unsorted(self.table.name)
        return rewrite.choice().of_compaction(rewrite.target, self._intent.keys.partition_id or 0, order)

    def rewrite_files(self, group: Sequence[RewriteCandidate]) -> RowsLeft:
        """Take files out of the table; returns their rows, for `write`."""
        self._rewrite = self._rewrite or self._file_rewrite()
        return self._rewrite.take(group)

    def _file_rewrite(self) -> GroupRewrite:
        assert self.base is not None
        return GroupRewrite(self.table.catalog, self.base)

    def find_deletes(self, keys: BatchKeys, order: int) -> list[Found]:
        """Find the deletes that the table remembers of keys of the batch."""
        table, base = self.table, self.base
        uuid, snapshot = (self._intent.uuid, None) if base is None else (base.uuid or "", base.snapshot)
        self._deletes = DeletesTable(table.spark, table.catalog, table.name, uuid, snapshot)
        return self._deletes.find(keys)

    def remember_deletes(self, deletes: DeletedKeys) -> None:
        """Remember deletes in a table of their own, in the same snapshot."""
        assert self._deletes is not None
        self._deletes.remember(deletes)

    def remembered(self, _: Sequence[int]) -> Iterator[tuple[str, pa.Table]]:
        """None by file: the table of deletes has each key as a text, whatever the columns are."""
        return iter(())

    def rewrite_deletes(self, files: Iterable[tuple[str, pa.Table]]) -> None:
        """Nothing to do: there are none by file."""

    def read(self) -> DataFrame:
        """Return the rows of the table that the transaction began on, whatever others do meanwhile."""
        assert self.base is not None
        return read_table(self.table, self.base.snapshot)

    def staged(self, *, whole: bool = True) -> StagedRows:
        """Return the rows that the table has once this is committed: it is, and that is rolled back."""
        message = _message([self])
        before = None if whole or self.base is None else self.base.snapshot
        # The rows that readers would get, by the same catalog queries: no second account of what a commit
        # does.
        return read_behind(self.table, lambda connection: commit(connection, [self._intent], message), before)

    def live_rows(self) -> RowsLeft | None:
        """Return the rows of the table that the transaction began on, for tasks; None if Spark alone can."""
        with suppress(SetupError):  # of a place that only Java knows
            if self.base is not None and writes_in_tasks(self._intent):
                return self._file_rewrite().all_rows()
        return None

    def replace_all(
        self, carry: Carry | None = None, note: Callable[[], SeenNote] | None = None
    ) -> DuckLakeTransaction:
        """Return the transaction, whose next `append` or `write` replaces all rows of the table."""
        self._intent.replaces = True
        self._carry, self._note = carry, note
        if note is not None:
            self._intent.note, self._intent.summary = note(), {SEEN: "true"}
        return self

    def set(self, properties: Mapping[str, str]) -> None:
        """Set properties: tags of the table, which outlive its snapshots."""
        self._intent.properties |= properties

    def remember(self, files: Sequence[int]) -> None:
        """Record that the table takes these source files, by their fingerprints."""
        self._intent.sources = tuple(files)

    def commit(self) -> None:
        """Make everything visible at once. Raises CommitConflict if someone else was faster."""
        self.commit_with(())

    def commit_with(self, others: Sequence[DuckLakeTransaction]) -> None:
        """Make everything visible at once, and that of other transactions of the lake.

        Raises CommitConflict, with the names of their tables, if someone else was faster.
        """
        parts = [self, *others]
        intents = [intent for part in parts for intent in part._intents]
        message = _message(parts)

        def work(connection: Connection) -> int:
            """Write the snapshot; returns its id."""
            snapshot = commit(connection, intents, message)
            for part in parts:
                # Only where somebody asks: each statement costs every batch.
                if part._intent.properties_after.get(_COMPACT) == "auto":
                    part._total = number_of_files(connection, part._intent)
            return snapshot

        # Whatever ends this now, Ctrl-C too, may end it behind the COMMIT
        for part in parts:
            part.visible = None
        try:
            snapshot = self.table.catalog.write(
                work,
                partial(landed, message=message),
                chain.from_iterable(intent.new_files for intent in intents),
            )
        except UnknownError:
            raise
        except Exception:
            for part in parts:
                part.visible = False
            raise
        for part in parts:
            part.visible, part.snapshot = True, snapshot

    @property
    def _intents(self) -> list[TableCommit]:
        """Its table's commit, and that of the deletes that are remembered."""
        deletes = None if self._deletes is None else self._deletes.commit
        return [self._intent, *([] if deletes is None else [deletes])]

    def rebase(self, now: State) -> None:
        """After a conflict, apply the same changes and files to the table as it is ``now``.

        The same must have been planned for it.
        """
        intent = self._intent
        if self.base is None or not now.exists or (intent.replaces and not self.base.fits(now)):
            raise Moved(f"{self.table.name} has changed since the batch was planned")
        # Another's rows may have the keys of this batch, so the batch is settled anew.
        if self._found is not None:
            raise Moved(f"{self.table.name} has changed since its rows were looked up")
        fresh_transaction = DuckLakeTransaction.on(self.table, now)
        if intent.replaces:
            self._carry_over(fresh_transaction)
            return
        fresh_transaction.evolve(self._changes, self._after)
        # The files lie in folders of their partitions, and each has its values by the old keys.
        if fresh_transaction._intent.keys.partition_id != intent.keys.partition_id:
            raise Moved(f"{self.table.name} was partitioned otherwise since the batch was written")
        written, fresh = intent.schema, fresh_transaction._intent.schema
        # The files' mapping has the names of the columns.
        if not (refits(written, fresh) and extends(written, fresh)):
            raise Moved(f"the columns of {self.table.name} have changed since the batch was written")
        if self._rewrite is not None:
            again = fresh_transaction._file_rewrite()
            again.take(self._rewrite.group)
            self._rewrite = again
        self.base = intent.base = fresh_transaction.base
        intent.schema = fresh

    def _carry_over(self, transaction: DuckLakeTransaction) -> None:
        """Move the replacing rows to a transaction on the present table, with the rows appended since.

        Both tables have the same schema.
        """
        assert self.base is not None
        assert transaction.base is not None
        appended = read_between(self.table, self.base, transaction.base)
        schema, self._intent.schema = self._intent.schema, self._intent.written or self._intent.schema
        files, folders = list(self._intent.files), list(self._folders)
        try:
            carried(self.table.name, appended, self._carry, lambda rows: self.append(rows, {}))
        except BaseException:
            self._intent.files = files
            for folder in self._folders[len(folders) :]:
                removed(self.table.spark, folder)
            raise
        finally:
            self._intent.schema = schema
        self.base = self._intent.base = transaction.base
        if self._note is not None:
            self._intent.note = self._note()

    def abandon(self) -> None:
        """Delete the files that were written, unless they are the table's, or may be."""
        # None stands for an unknown outcome: then `clean` deletes what the table does not name by that
        # time.
        if self.visible is False:
            paths = [file.path for file in self._intent.files] + [file.path for file in self._intent.deletes]
            for path in [*self._folders, *(self._intent.folder + path for path in paths)]:
                removed(self.table.spark, path)
            if self._deletes is not None:
                self._deletes.abandon()

    def read_written(self) -> DataFrame | None:
        """Return the rows that the committed transaction wrote."""
        if self.snapshot is None:
            return None
        return read_files(self.table, [file.path for file in self._intent.files], self.snapshot)

    def undo(self) -> bool:
        """Remove the files of a committed transaction from the table.

        Returns False if the table no longer has them, or if the transaction removed rows.
        """
        if self._intent.removes:
            return False
        now = self.table.load()
        if not now.exists:
            return True
        paths = tuple(file.path for file in self._intent.files)
        # Rewritten files have rows of other batches, too.
        if not self._holds(now, paths):
            return False
        intent = TableCommit(self.table.name, now, now.schema, self._intent.folder, dropped=paths)
        message = CommitMessage(AUTHOR, "takes a failed batch out again", self._intent.summary)
        self.table.catalog.write(
            lambda connection: commit(connection, [intent], message), partial(landed, message=message)
        )
        return True

    def _holds(self, now: LakeState, paths: Sequence[str]) -> bool:
        """True if the table, as it is ``now``, has all of these files."""
        assert now.table is not None
        table, listed = now.table.id, ", ".join("?" * len(paths))
        rows = self.table.catalog.read(
            lambda connection: connection.rows(
                f"SELECT path FROM meta.ducklake_data_file WHERE table_id = {table} AND end_snapshot IS NULL "
                f"AND path IN ({listed})",
                paths,
            )
        )
        return len(rows) == len(paths)

    @property
    def _rows(self) -> int:
        return sum(file.rows for file in self._intent.files)


def _message(parts: Sequence[DuckLakeTransaction]) -> CommitMessage:
    """The message of the snapshot that these transactions make. Quarantines go without saying."""
    batches = [part for part in parts if not part.table.name.endswith(QUARANTINE)] or [*parts]
    first = batches[0]._intent
    batch = first.summary.get(BATCH, "")
    by = f"batch {batch}: " if batch else "compaction: " if first.compacts else ""
    if len(batches) == 1:
        text = "; ".join([f"{by}{batches[0]._rows} rows", *batches[0]._said])
        return CommitMessage(AUTHOR, text[:10_000], {"changes": batches[0]._said})
    if any(part._intent.summary.get(BATCH) != batch for part in batches):
        by = ""
    # The tables keep what changed in each of them.
    return CommitMessage(
        AUTHOR, f"{by}{sum(part._rows for part in batches)} rows in {len(batches)} tables", {}
    )
