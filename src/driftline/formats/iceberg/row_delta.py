"""Deletes rows of an Iceberg table by position, in the snapshot that adds the batch's rows.

In format version 3 that is a deletion vector for each data file, all in one Puffin file; in version 2 a
position delete file for each data file. The new deletes of a data file include the previous ones, and
replace them. A file that has lost many rows is dropped, and the batch rewrites its remaining rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache as evaluated_once
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from driftline.core.history.retention import DELETES_BRANCH
from driftline.core.schema.definition import WITH_VECTORS
from driftline.core.schema.types import LONG, UNKNOWN, Field, Primitive, Schema, Struct
from driftline.errors import DataError, SetupError
from driftline.formats.iceberg.files import data_file, location_of, options_of
from driftline.formats.iceberg.gateway import items
from driftline.formats.iceberg.live_files import (
    DATA_SEQUENCE,
    FILE_SEQUENCE,
    MANIFEST,
    ContentFile,
    live_files,
)
from driftline.formats.lookup import KeyLookup, find_rows
from driftline.keys.anew import RewriteBudget, RewriteCandidate, RowsLeft, choose
from driftline.keys.remembered import DeletedKeys, MemoryFile, Tidying, latest, name_of, nested, only
from driftline.keys.settle import Found
from driftline.keys.stored import KeyCache, KeyFile, StoredRows, as_table, column_at, field_id, leaf_paths
from driftline.runtime import stores
from driftline.runtime.disk import local, on_disk
from driftline.runtime.spark_version import java_type
from driftline.write import WRITTEN, FilePlan, FileSettings, Key, NewFile, WrittenFile, write_files
from driftline.write.positions import (
    CHANGED,
    CHANGED_COLUMN,
    ICEBERG_IDS,
    ROW_ID,
    ROW_ID_COLUMN,
    Positions,
    read_positions,
    read_vector,
    write_positions,
    write_puffin,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.keys.identity import BatchKeys, Bounds, SoughtKeys


class KeyFiles:
    """Access to the files of a Java transaction's table, ``name``.

    ``open``: opens a file, in tasks too; ``paths``: gets the paths of the files that are written.
    """

    def __init__(self, spark: SparkSession, java: Any, name: str, paths: list[str]) -> None:
        self._spark = spark
        self.jvm: Any = spark._jvm
        self._java = java
        self.location = location_of(java.table())
        options = None
        if on_disk(self.location) is None:
            options = options_of(spark, java.table(), self.location)
            if options is None:
                raise SetupError(
                    f"{name}: its rows cannot be looked up by key: only Java reaches {self.location}",
                    "keep the table in a store that `driftline doctor` names, or on a disk",
                )
        self._options: Mapping[str, str] | None = options
        self.open = partial(_opened, options)
        self._paths = paths

    def of_snapshot(
        self, table: Any, ids: Sequence[int], tasks: dict[str, Any], branch: str = "main"
    ) -> list[ContentFile]:
        """Return the data files of a branch of a Java table, as `planned` and with the same arguments.

        Where the manifests can be read here, the files have more, see `live_files`, and there are no tasks.
        """
        snapshot = table.snapshot(branch)
        if snapshot is None:
            return []
        files = live_files(str(snapshot.manifestListLocation()), ids)
        return list(self.planned(table.newScan().useRef(branch), ids, tasks)) if files is None else files

    def planned(self, scan: Any, ids: Sequence[int], tasks: dict[str, Any]) -> Iterator[ContentFile]:
        """Yield the data files of a Java scan as Iceberg's JSON has them, each with its ``deletes``.

        ``ids``: the columns whose statistics they have; ``tasks``: gets Java's scan tasks, by path.
        """
        schema, names = scan.schema(), java_type(self.jvm, "java.util.ArrayList")()
        for name in filter(None, (schema.findColumnName(id_) for id_ in ids)):
            names.add(name)
        parser = java_type(self.jvm, "org.apache.iceberg.ScanTaskParser")
        # Statistics of these columns alone: in a wide table those of all are most of what Java hands over.
        for task in items(scan.includeColumnStats(names).planFiles()):
            planned = json.loads(parser.toJson(task))
            tasks[planned["data-file"]["file-path"]] = task
            yield {**planned["data-file"], "deletes": planned.get("delete-files", [])}

    def find(
        self, files: Iterable[Mapping[str, Any]], lookup: KeyLookup, cache: KeyCache | None = None
    ) -> list[Found]:
        """Find the rows of these files that have a key of the batch.

        Raises DataError for a file whose keys cannot be read.
        """
        constants = lookup.constants
        sized = [(_size(file, lookup), KeyFile(file["file-path"], constants)) for file in files]
        return find_rows(self._spark.sparkContext, lookup.finder(self.open), sized, cache)

    def created(self, path: str) -> pa.NativeFile:
        """Create a file, which is known among the paths from now on."""
        self._paths.append(path)
        if self._options is not None:
            return stores.created(path, self._options)
        place = local(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(place), "wb")

    def as_java(self, file: ContentFile) -> Any:
        """Java's object of a file as Iceberg's JSON has it."""
        parser = java_type(self.jvm, "org.apache.iceberg.ContentFileParser")
        java = parser.fromJson(self._read_tree(json.dumps(file)), self._specs)
        # Otherwise each manifest would be searched for a file that goes.
        if MANIFEST in file:
            _manifest_location(self.jvm).set(java, file[MANIFEST])
        return java

    @cached_property
    def _specs(self) -> Any:
        return self._java.table().specs()

    @cached_property
    def _read_tree(self) -> Any:
        return java_type(self.jvm, "org.apache.iceberg.util.JsonUtil").mapper().readTree


@lru_cache(maxsize=4)
def _manifest_location(jvm: Any) -> Any:
    """Java's field of the manifest that has a content file."""
    kind = java_type(jvm, "java.lang.Class").forName("org.apache.iceberg.BaseFile")
    field = kind.getDeclaredField("manifestLocation")
    field.setAccessible(True)
    return field


def _opened(options: Mapping[str, str] | None, path: str) -> pa.NativeFile:
    return pa.memory_map(str(local(path))) if options is None else stores.native(path, options)


def may_have(file: Mapping[str, Any], lookup: KeyLookup) -> bool:
    """True if the bounds of a file do not rule out that it has a key."""
    key_columns = (lookup.columns[id_] for id_ in lookup.keys.ids if id_ in lookup.columns)
    return lookup.keys.may_be_in(_bounds(file, key_columns))


def _size(file: Mapping[str, Any], lookup: KeyLookup) -> int:
    """Return the bytes of the columns in a file. Raises DataError for one whose keys cannot be read."""
    if file["file-format"].lower() != "parquet" or file.get("key-metadata"):
        raise DataError(
            f"{file['file-path']}: keys are not looked up in files of {file['file-format']}, nor in encrypted ones",
            "write the table anew in Parquet first: CALL … rewrite_data_files",
        )
    sizes = _by_id(file, "column-sizes")
    return sum(sizes.get(id_, 0) for id_ in lookup.columns) or int(file["file-size-in-bytes"])


def _by_id(file: Mapping[str, Any], name: str) -> dict[int, Any]:
    pairs = file.get(name)
    return {} if pairs is None else dict(zip(pairs["keys"], pairs["values"], strict=True))


def _bounds(file: Mapping[str, Any], columns: Iterable[Field]) -> dict[int, Bounds]:
    """Return the bounds of a data file's key columns, as `BatchKeys.may_be_in` takes them."""
    lows, highs, values, nulls = (
        _by_id(file, name) for name in ("lower-bounds", "upper-bounds", "value-counts", "null-value-counts")
    )
    bounds: dict[int, Bounds] = {}
    for column in columns:
        id_, type_ = column.id, column.type
        if id_ in values and values[id_] == nulls.get(id_):
            continue  # nothing but null
        has_both = id_ in lows and id_ in highs and isinstance(type_, Primitive)
        name = type_.name if has_both and isinstance(type_, Primitive) else ""
        # Without bounds, any key may be in the file.
        bounds[id_] = None
        if name in ("int", "long"):
            low, high = (int.from_bytes(bytes.fromhex(b[id_]), "little", signed=True) for b in (lows, highs))
            bounds[id_] = low, high
        elif name == "string":
            # A cut text still is a bound: the upper one was raised where it was cut.
            bounds[id_] = bytes.fromhex(lows[id_]).decode(), bytes.fromhex(highs[id_]).decode()
    return bounds


# The columns of a file for rows that moved there: their ids, and the sequence numbers of their last changes,
# which are that of the file where null. The ids of the columns are the format's own.
_ROW_ID, _CHANGED = Field(ROW_ID, LONG, ROW_ID_COLUMN), Field(CHANGED, LONG, CHANGED_COLUMN)
_REFERENCED = "referenced-data-file"
_WITH_DELETES = 2  # a version of the format


class RowDelta:
    """The rows of a table that a transaction looks up by key, and those that it removes.

    ``java``: the Java transaction; ``base``: the Java table that it began on, and its ``schema``.
    """

    def __init__(self, key_files: KeyFiles, java: Any, base: Any, schema: Schema) -> None:
        self._key_files = key_files
        self._java = java
        self._base = base
        self._schema = schema
        self._version = int(java.table().operations().current().formatVersion())
        self._files: dict[str, dict[str, Any]] = {}  # as Iceberg's JSON
        self._dead: dict[str, BitMap64] = {}
        self._removed: dict[str, BitMap64] = {}
        self._rewritten: list[RewriteCandidate] = []
        self._tasks: dict[str, Any] = {}  # Java's, of the files

    def __bool__(self) -> bool:
        return bool(self._removed)

    def find(
        self, keys: SoughtKeys, order: int | None, deleted: int | None = None, cache: KeyCache | None = None
    ) -> list[Found]:
        """Find the rows that have a key of the batch, deleted ones left out.

        ``order``: the id of the column with a row's order; ``deleted``: of that with the mark of a delete;
        ``cache``: of keys that were read before. Raises DataError for a table in which such rows cannot be
        found, or not be removed.
        """
        if self._version < _WITH_DELETES:
            raise DataError(
                f"{self._base.name()} has format version 1, in which no rows can be removed",
                "upgrade it: ALTER TABLE … SET TBLPROPERTIES ('format-version' = '3')",
            )
        row_id = _ROW_ID.id if self._version >= WITH_VECTORS else None
        lookup = KeyLookup.of(keys, order, self._schema, deleted, row_id)
        planned = self._key_files.of_snapshot(self._base, list(lookup.columns), self._tasks)
        self._files = {file["file-path"]: file for file in planned if may_have(file, lookup)}
        live = map(self._live, self._key_files.find(self._files.values(), lookup, cache))
        return [self._identified(hits) for hits in live if len(hits.positions)]

    def _identified(self, hits: Found) -> Found:
        """The rows with their ids: those in their file, else those that the table gave the file's rows."""
        first = self._files[hits.file].get("first-row-id")
        # An updated row keeps its id. The look-up has its file and position anyway, so this costs no more
        # than a column.
        if hits.row_ids is None or first is None:
            return hits
        return replace(hits, row_ids=pc.coalesce(hits.row_ids, pa.array(hits.positions + int(first))))

    def stored(self, struct: Struct) -> StoredRows:
        """Return a reader of rows that were found, with these columns."""
        return StoredRows(struct, self._key_files.open)

    def _live(self, hits: Found) -> Found:
        """Return the rows that are not deleted yet."""
        return hits.without(self._dead_before(hits.file))

    def _dead_before(self, path: str) -> BitMap64:
        """Return the rows of a data file that its delete files name."""
        if path in self._dead:
            return self._dead[path]
        dead = self._dead[path] = BitMap64()
        for delete_file in self._files[path]["deletes"]:
            if delete_file["content"] == "equality-deletes":
                raise DataError(
                    f"{path}: rows of it are deleted by equality, which is not looked up",
                    "compact the table first: CALL … rewrite_data_files(options => map('delete-file-threshold', '1'))",
                )
            with self._key_files.open(delete_file["file-path"]) as stream:
                if delete_file["file-format"].lower() == "puffin":
                    stream.seek(delete_file["content-offset"])
                    dead |= read_vector(
                        stream.read(delete_file["content-size-in-bytes"]), delete_file["file-path"]
                    )
                else:
                    dead |= read_positions(stream, path)
        return dead

    def remove(
        self, rows: Mapping[str, Positions], size: int, struct: Struct, can_write: Callable[[], bool]
    ) -> RowsLeft | None:
        """Remove rows that were found, by data file; returns the rows that are left of those that are
        rewritten.

        ``size``: bytes of the batch; ``struct``: the columns of rows that it writes anew, if it can.
        """
        self._removed = {path: BitMap64(positions) for path, positions in rows.items() if len(positions)}
        with_ids = self._version >= WITH_VECTORS
        stored = self.stored(_with_ids(struct) if with_ids else struct)
        possible = evaluated_once(can_write)
        groups = choose(
            map(self._as_candidate, self._removed),
            RewriteBudget.of_batch(size),
            lambda path: possible() and stored.can_move(path),
        )
        self._rewritten = [
            # Rows that only move keep the number of their last change.
            replace(file, changed=self._sequence(file.path, DATA_SEQUENCE))
            for group in groups
            for file in group
        ]
        return RowsLeft(stored, self._rewritten, with_ids) if self._rewritten else None

    def _as_candidate(self, path: str) -> RewriteCandidate:
        """Return a data file, as worn as it would be."""
        file, dead = self._files[path], self._removed.get(path, BitMap64()) | self._dead_before(path)
        rows, size = int(file["record-count"]), int(file["file-size-in-bytes"])
        return RewriteCandidate(path, rows, size, dead, file.get("first-row-id"))

    def gone(self) -> Iterator[tuple[int, set[int]]]:
        """Yield the sequence number of each rewritten file's commit, and its columns with values."""
        stored = self.stored(self._schema.struct)
        for file in self._rewritten:
            yield self._sequence(file.path, FILE_SEQUENCE), stored.filled(file.path)

    def _sequence(self, path: str, number: str) -> int:
        """Return one of the sequence numbers of a data file."""
        if number in self._files[path]:
            return int(self._files[path][number])
        file = self._tasks[path].file()
        return int(file.dataSequenceNumber() if number == DATA_SEQUENCE else file.fileSequenceNumber())

    @property
    def has_ids(self) -> bool:
        """True if the table's rows have ids."""
        return self._version >= WITH_VECTORS

    def with_ids(self, struct: Struct) -> Struct:
        """The struct of rows with their ids, and the sequence numbers of their last changes."""
        return _with_ids(struct)

    @property
    def rewrites(self) -> bool:
        """True if files are rewritten."""
        return bool(self._rewritten)

    @property
    def takes_others(self) -> bool:
        """True if a rewritten file was written by others."""
        return not all(WRITTEN.search(file.path) for file in self._rewritten)

    def update(self) -> Any:
        """Return a row delta of the transaction that removes the rows; rows may be added to it."""
        # Rows go by position: v4 of the format forbids equality deletes, and copy-on-write rewrites every
        # file for random keys.
        delta, refer = self._java.newRowDelta(), java_type(self._key_files.jvm, "java.util.ArrayList")()
        for delete_file in self._written():
            delta.addDeletes(self._key_files.as_java(delete_file))
            refer.add(delete_file[_REFERENCED])
        # Files that have lost many rows are rewritten in the batch's own commit. A second commit could fail
        # by itself, and would meet the next batch as a conflict.
        for file in self._rewritten:
            delta.removeRows(self._java_file(file.path))
        for path in self._removed:
            for old in self._java_deletes(path):
                delta.removeDeletes(old)
        delta.validateFromSnapshot(int(self._base.currentSnapshot().snapshotId()))
        delta.validateDataFilesExist(refer).validateDeletedFiles()
        return delta.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()

    # Java's own objects, and those of `as_java`, say in which manifest they are.
    def _java_file(self, path: str) -> Any:
        """Java's object of a data file."""
        task = self._tasks.get(path)
        return self._key_files.as_java(self._files[path]) if task is None else task.file()

    def _java_deletes(self, path: str) -> Iterator[Any]:
        """Java's delete files of a data file that serve no other."""
        deletes, task = self._files[path]["deletes"], self._tasks.get(path)
        if task is None:
            yield from map(self._key_files.as_java, deletes)
        elif deletes:
            yield from (old for old in items(task.deletes()) if old.referencedDataFile() is not None)

    def _written(self) -> Iterable[dict[str, Any]]:
        """Write the delete files; returns each as Iceberg's JSON has it."""
        gone = {file.path for file in self._rewritten}
        removed = {path: rows for path, rows in self._removed.items() if path not in gone}
        dead = {path: rows | self._dead_before(path) for path, rows in removed.items()}
        if not dead:
            return []
        batch = uuid4().hex
        if self._version >= WITH_VECTORS:
            return self._vectors(f"{self._key_files.location}/00000-0-{batch}-00001.puffin", dead)
        return [
            self._position_file(
                f"{self._key_files.location}/00000-0-{batch}-{number:05d}.parquet", path, rows
            )
            for number, (path, rows) in enumerate(dead.items(), 1)
        ]

    def _vectors(self, file: str, dead: Mapping[str, BitMap64]) -> list[dict[str, Any]]:
        with self._key_files.created(file) as stream:
            places = write_puffin(stream, dead)
            size = stream.tell()
        return [
            {
                **self._delete_file(file, path, len(dead[path]), size, "puffin"),
                "content-offset": place.offset,
                "content-size-in-bytes": place.length,
            }
            for path, place in places.items()
        ]

    def _position_file(self, file: str, path: str, rows: BitMap64) -> dict[str, Any]:
        with self._key_files.created(file) as stream:
            write_positions(stream, path, rows, ICEBERG_IDS)
            size = stream.tell()
        return self._delete_file(file, path, len(rows), size, "parquet")

    def _delete_file(self, file: str, path: str, count: int, size: int, format_: str) -> dict[str, Any]:
        return {
            "content": "position-deletes",
            "file-path": file,
            "file-format": format_,
            "file-size-in-bytes": size,
            "record-count": count,
            _REFERENCED: path,
            **{name: self._files[path][name] for name in ("spec-id", "partition")},
        }


def identified(schema: Schema) -> Schema:
    """The schema of files whose rows have their ids behind the table's columns, and their last changes."""
    return replace(schema, struct=_with_ids(schema.struct))


def _with_ids(struct: Struct) -> Struct:
    return Struct((*struct.fields, _ROW_ID, _CHANGED))


# Of the batch's snapshot: the file of its deletes in the branch
REMEMBERED = "driftline.remembered-deletes"
_BOUNDS = "truncate(16)"
_ENDLESS = 2**62  # bytes: no file is divided


# A branch commits with its batch. A side table would need a second commit, rows marked as dead are lost to
# the first compaction, and a property is too small.
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
        planned = self._key_files.of_snapshot(self._base, list(lookup.columns), {}, DELETES_BRANCH)
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
        """Yield the deletes by file: those of the columns with these ids that it has, named by them."""
        if self._base is None or not self._base.refs().containsKey(DELETES_BRANCH):
            return
        planned = self._key_files.of_snapshot(self._base, list(ids), {}, DELETES_BRANCH)
        self._files = {file["file-path"]: file for file in planned}
        for path in self._files:
            with self._key_files.open(path) as stream, pq.ParquetFile(stream) as parquet:
                rows, places = parquet.read(), leaf_paths(parquet.schema_arrow)
            columns = {str(id_): column_at(rows, places[id_]) for id_ in places if id_ in ids}
            yield path, pa.table({str(id_): columns.get(str(id_), pa.nulls(len(rows))) for id_ in ids})

    def rewrite(self, files: Iterable[tuple[str, pa.Table]], schema: Schema) -> None:
        """Rewrite files of deletes, each with these columns, named by their ids in ``schema``."""
        written, gone = [], []
        for path, columns in files:
            part = Schema(only(schema.struct, set(map(int, columns.column_names))), schema.id)
            name = name_of(MemoryFile.of(path, 0).since, gathered=True)
            written.append(self._written(name, part, nested(part.struct, columns)))
            gone.append(self._files[path])
        if written:
            self._commit(written, gone)

    def _read(self, path: str, part: Schema) -> pa.Table:
        """Return the rows of a file, which may be older than some of the columns."""
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


def outdated_files(table: Any, span: int) -> list[Any]:
    """Java's objects of the files with deletes that were remembered more than ``span`` seconds ago."""
    if not table.refs().containsKey(DELETES_BRANCH):
        return []
    planned = items(table.newScan().useRef(DELETES_BRANCH).planFiles())
    files = {str(file.location()): file for file in (task.file() for task in planned)}
    listed = (MemoryFile.of(path, int(file.fileSizeInBytes())) for path, file in files.items())
    return [files[file.path] for file in Tidying.of(listed, time.time(), span).outdated]


def remembered_file(table: Any, snapshot: Any) -> Any | None:
    """Java's object of the file with the deletes that a snapshot remembered; None if it has gone."""
    path = snapshot.summary().get(REMEMBERED)
    if path is None or not table.refs().containsKey(DELETES_BRANCH):
        return None
    files = (task.file() for task in items(table.newScan().useRef(DELETES_BRANCH).planFiles()))
    return next((file for file in files if file.location() == path), None)
