"""Rows that a batch removes from an Iceberg table by position, in the snapshot that adds its own rows.

In format version 3 that is a deletion vector for each data file, all in one Puffin file; in version 2 a file
of positions for each data file. A data file's new deletes have those of before in them, and replace them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from driftline.convert.defaults import initial_default
from driftline.core.schema.types import LONG, Field, Primitive, Schema, Struct
from driftline.errors import DataError, SetupError
from driftline.formats.iceberg.gateway import items, java_type
from driftline.formats.iceberg.store import options_of
from driftline.formats.iceberg.task_files import location_of
from driftline.formats.lookup import find_rows
from driftline.keys.finder import KeyFile, KeyFinder
from driftline.keys.identity import BatchKeys, Bounds
from driftline.keys.settle import Found
from driftline.keys.stored import StoredRows
from driftline.runtime import stores
from driftline.write import local, on_disk
from driftline.write.positions import (
    ICEBERG_IDS,
    ROW_ID,
    read_positions,
    read_vector,
    write_positions,
    write_puffin,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.write.positions import Positions

# The column of a file for the ids of rows that moved there, by the format's own id of it. Without one for
# sequence numbers, the last change of each row is that of its file.
_ROW_ID = Field(ROW_ID, LONG, 2147483540)
_REFERENCED = "referenced-data-file"
_WITH_DELETES, _WITH_VECTORS = 2, 3  # versions of the format


class RowDelta:
    """The rows of a table that a transaction looks up by key, and those that it removes.

    ``java``: the Java transaction; ``base``: the Java table that it began on, and its ``schema``. ``paths``:
    the delete files that are written.
    """

    def __init__(self, spark: SparkSession, java: Any, base: Any, schema: Schema) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._java = java
        self._base = base
        self._columns = {f.id: f for _, f in schema.walk()}
        self._location = location_of(java.table())
        options = None
        if on_disk(self._location) is None:
            options = options_of(spark, java.table(), self._location)
            if options is None:
                raise SetupError(
                    f"{base.name()}: its rows cannot be looked up by key: only Java reaches {self._location}",
                    "keep the table in a store that `driftline doctor` names, or on a disk",
                )
        self._options: Mapping[str, str] | None = options
        self._version = int(java.table().operations().current().formatVersion())
        self._files: dict[str, dict[str, Any]] = {}  # as Iceberg's JSON, those with keys of the batch
        self._dead: dict[str, BitMap64] = {}
        self._removed: dict[str, BitMap64] = {}
        self.paths: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._removed)

    def find(self, keys: BatchKeys, order: int | None, deleted: int | None = None) -> list[Found]:
        """Find the rows that have a key of the batch, deleted ones left out.

        ``order``: the id of the column with a row's order; ``deleted``: of that with the mark of a delete.
        Raises DataError for a table in which such rows cannot be found, or not be removed.
        """
        if self._version < _WITH_DELETES:
            raise DataError(
                f"{self._base.name()} has format version 1, in which no rows can be removed",
                "upgrade it: ALTER TABLE … SET TBLPROPERTIES ('format-version' = '3')",
            )
        beside = [id_ for id_ in (order, deleted) if id_ is not None]
        files = list(self._planned(keys, [*keys.ids, *beside]))
        row_id = _ROW_ID.id if self._version >= _WITH_VECTORS else None
        finder = KeyFinder(keys, order, partial(_opened, self._options), deleted, row_id)
        live = map(self._live, find_rows(self._spark.sparkContext, finder, files))
        return [self._identified(hits) for hits in live if len(hits.positions)]

    def _identified(self, hits: Found) -> Found:
        """The rows with their ids: those in their file, else those that the table gave the file's rows."""
        first = self._files[hits.file].get("first-row-id")
        if hits.row_ids is None or first is None:
            return hits
        return replace(hits, row_ids=pc.coalesce(hits.row_ids, pa.array(hits.positions + int(first))))

    def stored(self, struct: Struct) -> StoredRows:
        """A reader of rows that were found, with these columns."""
        return StoredRows(struct, partial(_opened, self._options))

    def _planned(self, keys: BatchKeys, ids: Sequence[int]) -> Iterator[tuple[int, KeyFile]]:
        """The data files that bounds do not rule out, each with the bytes of the columns ``ids``."""
        schema, names = self._base.schema(), self._jvm.java.util.ArrayList()
        for name in filter(None, (schema.findColumnName(id_) for id_ in ids)):
            names.add(name)
        parser = java_type(self._jvm, "org.apache.iceberg.ScanTaskParser")
        constants = {
            id_: default
            for id_ in ids
            if id_ in self._columns and (default := initial_default(self._columns[id_])) is not None
        }
        for task in items(self._base.newScan().includeColumnStats(names).planFiles()):
            planned = json.loads(parser.toJson(task))
            file = planned["data-file"]
            if not keys.may_be_in(_bounds(file, [self._columns.get(id_) for id_ in keys.ids])):
                continue
            path = file["file-path"]
            self._check(file)
            self._files[path] = {**file, "deletes": planned.get("delete-files", [])}
            sizes = _by_id(file, "column-sizes")
            size = sum(sizes.get(id_, 0) for id_ in ids) or file["file-size-in-bytes"]
            yield size, KeyFile(path, constants)

    def _check(self, file: Mapping[str, Any]) -> None:
        """Raise DataError for a file whose key columns cannot be read."""
        if file["file-format"].lower() != "parquet" or file.get("key-metadata"):
            raise DataError(
                f"{file['file-path']}: keys are not looked up in files of {file['file-format']}, nor in encrypted ones",
                "write the table anew in Parquet first: CALL … rewrite_data_files",
            )

    def _live(self, hits: Found) -> Found:
        """The rows that are not deleted yet."""
        dead = self._dead_before(hits.file)
        if not dead:
            return hits
        return hits.only(~np.isin(hits.positions, np.array(dead.to_array(), np.int64)))

    def _dead_before(self, path: str) -> BitMap64:
        """The rows of a data file that its delete files name."""
        if path in self._dead:
            return self._dead[path]
        dead = self._dead[path] = BitMap64()
        for delete_file in self._files[path]["deletes"]:
            if delete_file["content"] == "equality-deletes":
                raise DataError(
                    f"{path}: rows of it are deleted by equality, which is not looked up",
                    "compact the table first: CALL … rewrite_data_files(options => map('delete-file-threshold', '1'))",
                )
            with _opened(self._options, delete_file["file-path"]) as stream:
                if delete_file["file-format"].lower() == "puffin":
                    stream.seek(delete_file["content-offset"])
                    dead |= read_vector(
                        stream.read(delete_file["content-size-in-bytes"]), delete_file["file-path"]
                    )
                else:
                    dead |= read_positions(stream, path)
        return dead

    def remove(self, rows: Mapping[str, Positions]) -> None:
        """Remove rows that were found, by data file."""
        self._removed = {path: BitMap64(positions) for path, positions in rows.items() if len(positions)}

    def update(self) -> Any:
        """A row delta of the transaction that removes the rows; rows may be added to it."""
        delta, refer = self._java.newRowDelta(), self._jvm.java.util.ArrayList()
        for delete_file in self._written():
            delta.addDeletes(self._as_java(delete_file))
            refer.add(delete_file[_REFERENCED])
            for old in self._files[delete_file[_REFERENCED]]["deletes"]:
                if _REFERENCED in old:  # others serve more data files
                    delta.removeDeletes(self._as_java(old))
        delta.validateFromSnapshot(int(self._base.currentSnapshot().snapshotId()))
        delta.validateDataFilesExist(refer).validateDeletedFiles()
        return delta.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()

    def _as_java(self, file: Mapping[str, Any]) -> Any:
        parser = java_type(self._jvm, "org.apache.iceberg.ContentFileParser")
        mapper = java_type(self._jvm, "org.apache.iceberg.util.JsonUtil").mapper()
        return parser.fromJson(mapper.readTree(json.dumps(file)), self._java.table().specs())

    def _written(self) -> Iterable[dict[str, Any]]:
        """Write the delete files; returns each as Iceberg's JSON has it."""
        dead = {path: rows | self._dead_before(path) for path, rows in self._removed.items()}
        batch = uuid4().hex
        if self._version >= _WITH_VECTORS:
            return self._vectors(f"{self._location}/00000-0-{batch}-00001.puffin", dead)
        return [
            self._position_file(f"{self._location}/00000-0-{batch}-{number:05d}.parquet", path, rows)
            for number, (path, rows) in enumerate(dead.items(), 1)
        ]

    def _vectors(self, file: str, dead: Mapping[str, BitMap64]) -> list[dict[str, Any]]:
        with self._created(file) as stream:
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
        with self._created(file) as stream:
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

    def _created(self, path: str) -> pa.NativeFile:
        self.paths.append(path)
        if self._options is not None:
            return stores.created(path, self._options)
        place = local(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(place), "wb")


def identified(schema: Schema) -> Schema:
    """The schema of files whose rows have their ids behind the table's columns."""
    return replace(schema, struct=Struct((*schema.struct.fields, _ROW_ID)))


def _opened(options: Mapping[str, str] | None, path: str) -> pa.NativeFile:
    return pa.memory_map(str(local(path))) if options is None else stores.native(path, options)


def _by_id(file: Mapping[str, Any], name: str) -> dict[int, Any]:
    pairs = file.get(name)
    return {} if pairs is None else dict(zip(pairs["keys"], pairs["values"], strict=True))


def _bounds(file: Mapping[str, Any], columns: Iterable[Field | None]) -> dict[int, Bounds]:
    """The bounds of a data file's key columns, as `BatchKeys.may_be_in` takes them."""
    lows, highs, values, nulls = (
        _by_id(file, name) for name in ("lower-bounds", "upper-bounds", "value-counts", "null-value-counts")
    )
    bounds: dict[int, Bounds] = {}
    for column in filter(None, columns):
        id_, type_ = column.id, column.type
        if id_ in values and values[id_] == nulls.get(id_):
            continue  # nothing but null
        has_both = id_ in lows and id_ in highs and isinstance(type_, Primitive)
        name = type_.name if has_both and isinstance(type_, Primitive) else ""
        bounds[id_] = None
        if name in ("int", "long"):
            low, high = (int.from_bytes(bytes.fromhex(b[id_]), "little", signed=True) for b in (lows, highs))
            bounds[id_] = low, high
        elif name == "string":
            bounds[id_] = bytes.fromhex(lows[id_]).decode(), bytes.fromhex(highs[id_]).decode()
    return bounds
