"""The table of deletes that a DuckLake table remembers, hidden from the lake's listings.

It is written in the snapshot of the batch. Its columns stay the same, whatever the key's columns become.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.core.schema.types import STRING, TIMESTAMP, Field, Schema, Struct
from driftline.errors import DataError
from driftline.formats.ducklake.commit import folder_of
from driftline.formats.ducklake.deletes import RowDeletes
from driftline.formats.ducklake.files import DataFile, Storage, describe
from driftline.formats.ducklake.rows import TableCommit
from driftline.formats.ducklake.snapshot import (
    DELETES_OF,
    DELETES_SUFFIX,
    LIVE,
    LakeState,
    find,
    latest,
    state_of,
)
from driftline.keys.identity import BatchKeys, FieldColumns
from driftline.keys.remembered import DeletedKeys, MemoryFile, Tidying, key_texts, name_of, nested
from driftline.keys.remembered import latest as latest_of
from driftline.write import FilePlan, FileSettings, NewFile, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.formats.ducklake.catalog import CatalogDatabase, Connection
    from driftline.keys.settle import Found

# Keys are JSON texts here. Columns of the key's own types would have to follow each change of the table.
_KEY, _ORDER, _SINCE = 1, 2, 3
_SCHEMA = Schema(
    Struct(
        (
            Field("key", STRING, _KEY, doc="the values of the key, each behind its kind"),
            Field("_order", STRING, _ORDER, doc="the order of the delete, as a text that sorts"),
            Field("since", TIMESTAMP, _SINCE, doc="the moment of the delete"),
        )
    )
)
_ENDLESS = 2**62  # bytes: no file is divided


def outdated(
    connection: Connection, name: str, uuid: str | None, span: int
) -> tuple[TableCommit, int] | None:
    """The commit that forgets what the table ``name`` has remembered for longer than ``span`` seconds.

    Returns it with the number of these deletes; None if there are none. ``uuid``: of the table.
    """
    snapshot = latest(connection)
    table = find(connection, name + DELETES_SUFFIX, snapshot)
    if table is None:
        return None
    state = state_of(connection, table, snapshot)
    rows = connection.rows(
        "SELECT path, file_size_bytes, record_count FROM meta.ducklake_data_file "
        f"WHERE table_id = ? AND CAST(path_is_relative AS BOOLEAN) AND {LIVE}",
        [table.id, snapshot, snapshot],
    )
    counts = {str(path): int(count) for path, _, count in rows}
    listed = (MemoryFile.of(str(path), int(size)) for path, size, _ in rows)
    paths = tuple(file.path for file in Tidying.of(listed, time.time(), span).outdated)
    if not paths or state.properties.get(DELETES_OF) != uuid:
        return None
    forgets = TableCommit(
        name + DELETES_SUFFIX, state, state.schema, table.folder, pinned=True, dropped=paths
    )
    return forgets, sum(counts[path] for path in paths)


class DeletesTable:
    """The table of deletes that belongs to the table ``name``, as a transaction reads and writes it.

    ``uuid``: of the table; ``snapshot``: the one that the transaction began on, None for a new table. Raises
    DataError where another table has its name.
    """

    def __init__(
        self, spark: SparkSession, catalog: CatalogDatabase, name: str, uuid: str, snapshot: int | None
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._name = name + DELETES_SUFFIX
        self._uuid = uuid
        self._state, self._folder = catalog.read(lambda connection: self._loaded(connection, snapshot))
        self._rows: RowDeletes | None = None
        self.commit: TableCommit | None = None
        owner = self._state.properties.get(DELETES_OF)
        if self._state.exists and owner is None:
            raise DataError(
                f"{self._name} exists already, and driftline needs this name for the deletes of {name}",
                f"rename it: driftline alter 'ALTER TABLE {self._name} RENAME TO …'",
            )
        self._is_of_another = owner not in (None, uuid)  # of a table that was dropped

    def _loaded(self, connection: Connection, snapshot: int | None) -> tuple[LakeState, str]:
        snapshot = latest(connection) if snapshot is None else snapshot
        table = find(connection, self._name, snapshot)
        if table is None:
            return LakeState(Schema(), {}, snapshot, False), folder_of(connection, self._name)
        return state_of(connection, table, snapshot), table.folder

    def find(self, keys: BatchKeys) -> list[Found]:
        """Find the deletes of keys of the batch."""
        # Those of a table that was dropped, and had the name, say nothing of this one's keys.
        if not self._state.exists or self._is_of_another:
            return []
        texts = pa.table({str(_KEY): key_texts(keys.fields, keys.distinct())})
        self._rows = RowDeletes(self._spark, self._state, self._folder)
        return self._rows.find(self._catalog, BatchKeys([FieldColumns.of([(_KEY, STRING)])], texts), _ORDER)

    def remember(self, deletes: DeletedKeys) -> None:
        """Write the deletes, to be committed with the batch."""
        if not len(deletes.rows):
            return
        state, now = self._state, time.time()
        sizes = {} if self._rows is None else self._rows.sizes
        tidying = Tidying.of((MemoryFile.of(path, size) for path, size in sizes.items()), now, deletes.span)
        since = pa.scalar(int(now * 1e6), pa.timestamp("us", "UTC"))
        columns = {
            str(_KEY): key_texts(deletes.fields, deletes.rows),
            str(_ORDER): deletes.orders,
            str(_SINCE): pa.repeat(since, len(deletes.rows)),
        }
        self.commit = TableCommit(
            self._name,
            state if state.exists else None,
            state.schema if state.exists else _SCHEMA,
            self._folder,
            pinned=True,
            properties={DELETES_OF: self._uuid},
            replaces=self._is_of_another,
            written=_SCHEMA,
            dropped=tuple(file.path.removeprefix(self._folder) for file in tidying.gone),
        )
        self.commit.files += self._written(name_of(now), nested(_SCHEMA.struct, pa.table(columns)))
        for group in tidying.groups:
            rows = pa.concat_tables(map(self._read, (file.path for file in group))).combine_chunks()
            name = name_of(latest_of(group), gathered=True)
            self.commit.files += self._written(name, rows.to_batches()[0])

    def _read(self, path: str) -> pa.Table:
        with Storage.of(self._folder).open(path) as stream:
            return pq.read_table(stream)

    def _written(self, name: str, rows: pa.RecordBatch) -> Sequence[DataFile]:
        path, storage = self._folder + name, Storage.of(self._folder)
        # Without metrics: keys are looked for in all files, whose bounds rule out next to nothing.
        plan = FilePlan(_SCHEMA, {f.id: "none" for _, f in _SCHEMA.walk()}, FileSettings(), _ENDLESS)
        with storage.create(path) as stream:
            list(write_files([rows], plan, lambda _: NewFile(path, stream, partial(storage.remove, path))))
        return describe(self._folder, [name], _SCHEMA)

    def abandon(self) -> None:
        """Delete the files that were written."""
        for file in self.commit.files if self.commit is not None else ():
            Storage.of(self._folder).remove(self._folder + file.path)
