"""Writes groups of a DuckLake table's files anew, without a change of its rows, which keep their ids.

A file whose rows do not have consecutive ids has them in a column of its own, as DuckDB's files of changed
rows have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from driftline.core.history.entries import undone_batch
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.errors import DataError
from driftline.formats.base import Moved
from driftline.formats.ducklake.files import DataFile, Storage
from driftline.formats.ducklake.inlined import has_inlined_rows
from driftline.formats.ducklake.rows import COMMIT_ID, TableCommit
from driftline.formats.ducklake.scan import inlined_deletes, own_mappings
from driftline.formats.ducklake.seen import snapshot_properties
from driftline.formats.ducklake.sizes import TARGET, target_of
from driftline.formats.ducklake.snapshot import LIVE, LakeState, TableRow, live
from driftline.formats.rewritable import MEANWHILE, FileChoice
from driftline.keys.anew import RewriteCandidate, RowsLeft
from driftline.keys.movable import are_readable, why_each_immovable
from driftline.keys.stored import StoredRows
from driftline.write.positions import ROW_ID_COLUMN, ROW_IDS, read_positions

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import CatalogDatabase, Connection

_ROW_ID = Field("_ducklake_internal_row_id", LONG, ROW_ID_COLUMN)


def identified(schema: Schema) -> Schema:
    """The schema of files whose rows have their ids behind the table's columns."""
    return replace(schema, struct=_with_ids(schema.struct))


def without_ids(file: DataFile) -> DataFile:
    """The description of a file without the ids of its rows, of which the catalog has no statistics."""
    return replace(file, stats={id_: stats for id_, stats in file.stats.items() if id_ != ROW_ID_COLUMN})


def _with_ids(struct: Struct) -> Struct:
    return Struct((*struct.fields, _ROW_ID))


def only_in_tasks(name: str) -> DataError:
    """The error for a table whose rows would lose their ids, or values, in files of Spark's writer."""
    return DataError(
        f"{name} cannot be compacted: tasks cannot write its types, or cannot divide rows by its keys",
        "CALL ducklake_merge_adjacent_files in DuckDB merges small files between two changes of the schema",
    )


@dataclass(frozen=True, slots=True)
class _LiveFile:
    """A data file that the table has.

    Attributes:
        candidate: the file, without its deleted rows.
        unreadable: the reason for which its rows cannot be read; None if they can.
        delete: the path of its delete file.
        deleted: deleted rows that the catalog keeps.
    """

    candidate: RewriteCandidate
    unreadable: str | None
    delete: str | None
    deleted: Sequence[int]


class GroupRewrite:
    """The files of a table that a transaction writes anew, one group of them.

    Attributes:
        group: the files that it takes.
        target: bytes that a file should have.
        sort_order: the id of the table's order; None if it has none.
    """

    def __init__(self, catalog: CatalogDatabase, state: LakeState) -> None:
        table, snapshot = state.table, state.snapshot
        assert table is not None
        assert snapshot is not None
        self._storage = Storage.of(table.folder)
        self._struct = state.schema.struct
        self._keeps_rows = False
        self.group: Sequence[RewriteCandidate] = ()
        self.target = TARGET
        self.sort_order: int | None = None
        self._files: dict[str, _LiveFile] = {}

        def look(connection: Connection) -> None:
            """Read out of the catalog what there is."""
            self.target = target_of(connection, table)
            order = connection.one(
                f"SELECT sort_id, begin_snapshot FROM meta.ducklake_sort_info WHERE table_id = {table.id} AND {LIVE}",
                [snapshot, snapshot],
            )
            self.sort_order = None if order is None else int(order[0])
            sorted_by = {} if order is None else _sorted_by(connection, table.id, *map(int, order))
            files = _live_files(connection, table, snapshot, sorted_by)
            self._files = {file.candidate.path: file for file in files}
            self._keeps_rows = has_inlined_rows(connection, table.id, snapshot)

        catalog.read(look)

    def choice(self) -> FileChoice:
        """Return the table's files to choose from."""
        return FileChoice(
            {path: file.candidate.size for path, file in self._files.items()},
            lambda path: self._files[path].unreadable,
            self._candidate,
            lambda paths: why_each_immovable(dict.fromkeys(paths, ()), self._stored, ROW_IDS),
        )

    def take(self, group: Sequence[RewriteCandidate]) -> RowsLeft:
        """Take a group out of the table; returns its rows, which are to be written again.

        Raises Moved if the table has these files no longer, or other rows of them are deleted.
        """
        for file in group:
            if file.path not in self._files or self._candidate(file.path) != file:
                raise Moved(MEANWHILE)
        self.group = group
        return RowsLeft(self._stored, group, with_ids=True)

    def all_rows(self) -> RowsLeft | None:
        """Return all rows of the table, without ids; None if its files alone do not tell them."""
        stored = StoredRows(self._struct, self._storage.open)
        if any(file.unreadable for file in self._files.values()):
            return None
        if not are_readable(dict.fromkeys(self._files, ()), stored):
            return None
        files = [*map(self._candidate, self._files)]
        return None if self._keeps_rows else RowsLeft(stored, files, with_ids=False)

    @property
    def _stored(self) -> StoredRows:
        return StoredRows(_with_ids(self._struct), self._storage.open)

    def _candidate(self, path: str) -> RewriteCandidate:
        file = self._files[path]
        dead = BitMap64(file.deleted)
        if file.delete is not None:
            with self._storage.open(file.delete) as stream:
                dead |= read_positions(stream)
        return replace(file.candidate, dead=dead)


def number_of_files(connection: Connection, intent: TableCommit) -> int:
    """The number of data files of a table that a commit has changed."""
    row = connection.one(
        "SELECT count(*) FROM meta.ducklake_data_file f JOIN meta.ducklake_table t ON t.table_id = f.table_id "
        "WHERE f.end_snapshot IS NULL AND t.end_snapshot IS NULL AND CAST(t.table_uuid AS VARCHAR) = ?",
        [intent.uuid if intent.base is None else intent.base.uuid],
    )
    return 0 if row is None else int(row[0])


def _live_files(
    connection: Connection, table: TableRow, snapshot: int, sorted_by: Mapping[int, int]
) -> Iterator[_LiveFile]:
    """Yield the data files of a table at a snapshot, in the order in which they came."""
    own_mapping_ids = own_mappings(connection, table.id)
    deleted = inlined_deletes(connection, table.id, snapshot)
    for (
        id_,
        begun,
        rows,
        size,
        first_id,
        spec,
        values,
        mapping,
        encrypted,
        newest,
        format_,
        *paths,
    ) in connection.rows(
        f"""SELECT f.data_file_id, f.begin_snapshot, f.record_count, f.file_size_bytes, f.row_id_start,
            coalesce(f.partition_id, 0), v.partition_values, f.mapping_id, f.encryption_key IS NOT NULL, f.partial_max,
            d.format, f.path, CAST(f.path_is_relative AS BOOLEAN), d.path, CAST(d.path_is_relative AS BOOLEAN)
            FROM meta.ducklake_data_file f
            LEFT JOIN (SELECT * FROM meta.ducklake_delete_file WHERE table_id = {table.id} AND {LIVE}) d
                ON d.data_file_id = f.data_file_id
            LEFT JOIN (SELECT data_file_id, list(partition_value ORDER BY partition_key_index) AS partition_values
                FROM meta.ducklake_file_partition_value WHERE table_id = {table.id} GROUP BY 1) v
                ON v.data_file_id = f.data_file_id
            WHERE f.table_id = {table.id} AND {live("f")} ORDER BY f.data_file_id""",
        [snapshot, snapshot, snapshot, snapshot],
    ):
        path, delete = (
            file if file is None or not relative else table.folder + file
            for file, relative in zip(paths[::2], paths[1::2], strict=True)
        )
        unreadable = None
        if encrypted:
            unreadable = "encrypted, or not in Parquet"
        elif newest is not None and int(newest) > snapshot:
            unreadable = "DuckDB has put rows of later snapshots into it"
        elif mapping is not None and int(mapping) not in own_mapping_ids:
            unreadable = "its columns have no ids"
        elif delete is not None and format_ != "parquet":
            unreadable = "its deleted rows are in a deletion vector, which DuckDB alone reads"
        candidate = RewriteCandidate(
            path, int(rows), int(size), BitMap64(), None if first_id is None else int(first_id),
            spec=int(spec), partition=json.dumps(values or []), sort_order=sorted_by.get(int(begun)),
        )  # fmt: skip
        yield _LiveFile(candidate, unreadable, delete, deleted.get(int(id_), ()))


def _sorted_by(connection: Connection, table: int, order: int, since: int) -> dict[int, int]:
    """The ``order`` of a table by each snapshot of driftline's ``since`` then: its files are sorted by it."""
    snapshots = connection.rows(
        "SELECT snapshot_id, commit_extra_info FROM meta.ducklake_snapshot_changes WHERE snapshot_id IN "
        f"(SELECT begin_snapshot FROM meta.ducklake_data_file WHERE table_id = {table} AND begin_snapshot >= {since})"
    )
    messages = {int(id_): snapshot_properties(extra, table) for id_, extra in snapshots}
    # What an undo brings back is a copy of older files.
    return {
        id_: order for id_, message in messages.items() if COMMIT_ID in message and not undone_batch(message)
    }
