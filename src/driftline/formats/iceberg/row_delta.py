"""Rows that a batch removes from an Iceberg table by position, in the snapshot that adds its own rows.

In format version 3 that is a deletion vector for each data file, all in one Puffin file; in version 2 a file
of positions for each data file. A data file's new deletes have those of before in them, and replace them. A
worn file goes as a whole; the batch writes the rest of its rows anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache as evaluated_once
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from driftline.core.schema.definition import WITH_VECTORS
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.errors import DataError
from driftline.formats.iceberg.gateway import items
from driftline.formats.iceberg.key_files import KeyFiles, may_have
from driftline.formats.lookup import KeyLookup
from driftline.keys.settle import Found
from driftline.keys.slices import RowsLeft, WornFile, worn
from driftline.keys.stored import StoredRows
from driftline.runtime.spark_version import java_type
from driftline.write import WRITTEN
from driftline.write.positions import (
    CHANGED,
    ICEBERG_IDS,
    ROW_ID,
    read_positions,
    read_vector,
    write_positions,
    write_puffin,
)

if TYPE_CHECKING:
    from driftline.keys.identity import SoughtKeys
    from driftline.keys.stored import KeyCache
    from driftline.write.positions import Positions

# The columns of a file for rows that moved there: their ids, and the sequence numbers of their last changes,
# which are that of the file where null. The ids of the columns are the format's own.
_ROW_ID, _CHANGED = Field(ROW_ID, LONG, 2147483540), Field(CHANGED, LONG, 2147483539)
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
        self._worn: list[WornFile] = []
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
        planned = self._key_files.planned(self._base.newScan(), list(lookup.columns), self._tasks)
        self._files = {file["file-path"]: file for file in planned if may_have(file, lookup)}
        live = map(self._live, self._key_files.find(self._files.values(), lookup, cache))
        return [self._identified(hits) for hits in live if len(hits.positions)]

    def _identified(self, hits: Found) -> Found:
        """The rows with their ids: those in their file, else those that the table gave the file's rows."""
        first = self._files[hits.file].get("first-row-id")
        if hits.row_ids is None or first is None:
            return hits
        return replace(hits, row_ids=pc.coalesce(hits.row_ids, pa.array(hits.positions + int(first))))

    def stored(self, struct: Struct) -> StoredRows:
        """A reader of rows that were found, with these columns."""
        return StoredRows(struct, self._key_files.open)

    def _live(self, hits: Found) -> Found:
        """The rows that are not deleted yet."""
        return hits.without(self._dead_before(hits.file))

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
        """Remove rows that were found, by data file; returns the rows that are left of those that are worn.

        ``size``: bytes of the batch; ``struct``: the columns of rows that it writes anew, if it can.
        """
        self._removed = {path: BitMap64(positions) for path, positions in rows.items() if len(positions)}
        with_ids = self._version >= WITH_VECTORS
        stored = self.stored(_with_ids(struct) if with_ids else struct)
        possible = evaluated_once(can_write)
        files = worn(
            map(self._as_worn, self._removed), size, lambda path: possible() and stored.can_move(path)
        )
        self._worn = [
            replace(file, changed=self._tasks[file.path].file().dataSequenceNumber()) for file in files
        ]
        return RowsLeft(stored, self._worn, with_ids) if self._worn else None

    def _as_worn(self, path: str) -> WornFile:
        """A data file, as worn as it would be."""
        file, dead = self._files[path], self._removed[path] | self._dead_before(path)
        rows, size = int(file["record-count"]), int(file["file-size-in-bytes"])
        return WornFile(path, rows, size, dead, file.get("first-row-id"))

    @property
    def takes_others(self) -> bool:
        """True if a worn file was written by others."""
        return not all(WRITTEN.search(file.path) for file in self._worn)

    def update(self) -> Any:
        """A row delta of the transaction that removes the rows; rows may be added to it."""
        delta, refer = self._java.newRowDelta(), java_type(self._key_files.jvm, "java.util.ArrayList")()
        for delete_file in self._written():
            delta.addDeletes(self._key_files.as_java(delete_file))
            refer.add(delete_file[_REFERENCED])
        for file in self._worn:
            delta.removeRows(self._tasks[file.path].file())
        for path in self._removed:
            # Java's own objects: they say in which manifest they are.
            for old in items(self._tasks[path].deletes()) if self._files[path]["deletes"] else ():
                if old.referencedDataFile() is not None:  # others serve more data files
                    delta.removeDeletes(old)
        delta.validateFromSnapshot(int(self._base.currentSnapshot().snapshotId()))
        delta.validateDataFilesExist(refer).validateDeletedFiles()
        return delta.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()

    def _written(self) -> Iterable[dict[str, Any]]:
        """Write the delete files; returns each as Iceberg's JSON has it."""
        gone = {file.path for file in self._worn}
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
