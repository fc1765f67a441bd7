"""The deletes that an Iceberg table remembers: a branch of it, whose files have key and order columns alone.

They are committed with the batch, in the one metadata version. Readers of the table do not see them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.core.history.retention import DELETES_BRANCH
from driftline.core.schema.types import UNKNOWN, Schema
from driftline.formats.iceberg.gateway import items
from driftline.formats.iceberg.key_files import KeyFiles, may_have
from driftline.formats.iceberg.task_files import data_file
from driftline.formats.lookup import KeyLookup
from driftline.keys.remembered import DeletedKeys, MemoryFile, Tidying, latest, name_of, nested, only
from driftline.keys.stored import as_table, column_at, field_id, leaf_paths
from driftline.runtime.spark_version import java_type
from driftline.write import FilePlan, FileSettings, Key, NewFile, WrittenFile, write_files

if TYPE_CHECKING:
    from driftline.keys.identity import BatchKeys
    from driftline.keys.settle import Found

REMEMBERED = "driftline.remembered-deletes"  # of the batch's snapshot: the file of its deletes in the branch
_BOUNDS = "truncate(16)"
_ENDLESS = 2**62  # bytes: no file is divided


class DeletesBranch:
    """The branch, as a Java transaction reads and writes it.

    ``base``: the Java table that it began on, None for a new one. ``snapshots``: those that it makes;
    ``file``: the path of the one with the batch's own deletes.
    """

    def __init__(self, key_files: KeyFiles, java: Any, base: Any | None) -> None:
        self._key_files = key_files
        self._java = java
        self._base = base
        self._files: dict[str, dict[str, Any]] = {}  # as Iceberg's JSON
        self.snapshots: list[Any] = []
        self.file: str | None = None

    def find(self, keys: BatchKeys, order: int, schema: Schema) -> list[Found]:
        """Find the deletes of keys of the batch. ``schema``: the table's as the transaction began."""
        if self._base is None or not self._base.refs().containsKey(DELETES_BRANCH):
            return []
        lookup = KeyLookup.of(keys, order, schema)
        planned = self._key_files.planned(self._base.newScan().useRef(DELETES_BRANCH), list(lookup.columns))
        self._files = {file["file-path"]: file for file in planned}
        return self._key_files.find((file for file in self._files.values() if may_have(file, lookup)), lookup)

    def remember(self, deletes: DeletedKeys, schema: Schema) -> None:
        """Add the deletes to the branch; a new table gets it even without any.

        ``schema``: the table's as it is now.
        """
        if not len(deletes.rows):
            if self._base is None:
                self._commit([], ())
            return
        now, columns = time.time(), deletes.columns
        sized = (MemoryFile.of(path, file["file-size-in-bytes"]) for path, file in self._files.items())
        tidying = Tidying.of(sized, now, deletes.span)
        part = Schema(only(schema.struct, set(map(int, columns.column_names))), schema.id)
        written = [self._written(name_of(now), part, nested(part.struct, columns))]
        self.file = written[0].path
        for group in tidying.groups:
            rows = pa.concat_tables([self._read(file.path, part) for file in group])
            name = name_of(latest(group), gathered=True)
            written += [self._written(name, part, rows.combine_chunks().to_batches()[0])]
        self._commit(written, [self._files[file.path] for file in tidying.gone])

    def rows(self, ids: Sequence[int]) -> Iterator[tuple[str, pa.Table]]:
        """The deletes by file: those of the columns with these ids that it has, named by them."""
        if self._base is None or not self._base.refs().containsKey(DELETES_BRANCH):
            return
        planned = self._key_files.planned(self._base.newScan().useRef(DELETES_BRANCH), list(ids))
        self._files = {file["file-path"]: file for file in planned}
        for path in self._files:
            with self._key_files.open(path) as stream, pq.ParquetFile(stream) as parquet:
                rows, places = parquet.read(), leaf_paths(parquet.schema_arrow)
            columns = {str(id_): column_at(rows, places[id_]) for id_ in places if id_ in ids}
            yield path, pa.table({str(id_): columns.get(str(id_), pa.nulls(len(rows))) for id_ in ids})

    def rewrite(self, files: Iterable[tuple[str, pa.Table]], schema: Schema) -> None:
        """Write files of deletes anew, each with these columns, named by their ids in ``schema``."""
        written, gone = [], []
        for path, columns in files:
            part = Schema(only(schema.struct, set(map(int, columns.column_names))), schema.id)
            name = name_of(MemoryFile.of(path, 0).since, gathered=True)
            written.append(self._written(name, part, nested(part.struct, columns)))
            gone.append(self._files[path])
        if written:
            self._commit(written, gone)

    def _read(self, path: str, part: Schema) -> pa.Table:
        """The rows of a file, which may be older than some of the columns."""
        with self._key_files.open(path) as stream, pq.ParquetFile(stream) as parquet:
            return as_table(parquet.read(), part.struct, field_id, path)

    def _written(self, name: str, part: Schema, rows: pa.RecordBatch) -> WrittenFile:
        path = f"{self._key_files.location}/{name}"
        with self._key_files.created(path) as stream:
            plan = FilePlan(part, {f.id: _BOUNDS for _, f in part.walk()}, FileSettings(), _ENDLESS)
            (file,) = write_files([rows], plan, lambda _: NewFile(path, stream, lambda: None))
        return file

    def _commit(self, written: Sequence[WrittenFile], gone: Sequence[dict[str, Any]]) -> None:
        table, jvm = self._java.table(), self._key_files.jvm
        if table.currentSnapshot() is not None and not table.refs().containsKey(DELETES_BRANCH):
            self._empty_branch()
        update = self._java.newOverwrite() if gone else self._java.newAppend()
        for old in gone:
            update.deleteFile(self._key_files.as_java(old))
        add = update.addFile if gone else update.appendFile
        spec = table.spec()
        # Nothing divides the branch: its files belong to no partition.
        keys = [Key((), UNKNOWN)] * int(spec.fields().size())
        for file in written:
            add(data_file(jvm, spec, replace(file, partition=(None,) * len(keys)), keys))
        update.toBranch(DELETES_BRANCH).commit()
        self._note()

    def _empty_branch(self) -> None:
        """Make the branch of a table that has rows: it begins as what they are."""
        self._java.manageSnapshots().createBranch(DELETES_BRANCH).commit()
        all_rows = java_type(self._key_files.jvm, "org.apache.iceberg.expressions.Expressions").alwaysTrue()
        self._java.newDelete().deleteFromRowFilter(all_rows).toBranch(DELETES_BRANCH).commit()
        self._note()

    def _note(self) -> None:
        self.snapshots.append(self._java.table().snapshot(DELETES_BRANCH))


def remembered_file(table: Any, snapshot: Any) -> Any | None:
    """Java's object of the file with the deletes that a snapshot remembered; None if it has gone."""
    path = snapshot.summary().get(REMEMBERED)
    if path is None or not table.refs().containsKey(DELETES_BRANCH):
        return None
    files = (task.file() for task in items(table.newScan().useRef(DELETES_BRANCH).planFiles()))
    return next((file for file in files if file.location() == path), None)
