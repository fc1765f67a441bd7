"""Deletes rows of a DuckLake table by position, in the snapshot that adds the batch's rows.

Each data file gets a delete file with all of its deleted rows, which replaces the previous one. A file that
has lost many rows is dropped, and the batch rewrites its remaining rows. Rows inlined in the catalog get
their end there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from driftline.core.schema.text import quoted
from driftline.core.schema.types import INT, LONG
from driftline.errors import DataError
from driftline.formats.ducklake.files import DeleteFile, Storage
from driftline.formats.ducklake.inlined import EndedRows, InlinedRows
from driftline.formats.ducklake.scan import Scan, scan, whole_bounds
from driftline.formats.lookup import KeyLookup, find_rows
from driftline.keys.anew import RewriteBudget, RewriteCandidate, RowsLeft, choose
from driftline.keys.settle import Found
from driftline.keys.stored import KeyCache, KeyFile, KeyFinder, StoredRows, as_table
from driftline.write.positions import DUCKLAKE_IDS, Positions, read_positions, write_positions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.core.schema.types import Struct
    from driftline.formats.ducklake.catalog import CatalogDatabase, Connection
    from driftline.formats.ducklake.rows import LatestSnapshot
    from driftline.formats.ducklake.snapshot import LakeState, TableRow
    from driftline.keys.identity import Bounds, SoughtKeys

_ID = "__f"  # begins the names of columns that the catalog keeps; the id follows
_MANY = 32  # files, of which to ask the catalog for bounds takes less than to look at each
_FOOTER = slice(-8, -4)  # of a Parquet file: the bytes with the length of its footer


class RowDeletes:
    """The rows of a table that a transaction looks up by key, and those that it removes.

    ``state``: the table as it began on it. ``files``, ``ended``, ``rewritten``: what the commit writes into
    the catalog.
    """

    def __init__(self, spark: SparkSession, state: LakeState, folder: str) -> None:
        self._spark = spark
        self._state = state
        self._folder = folder
        self._storage = Storage.of(folder)
        self._scan: Scan | None = None
        self._dead: dict[str, BitMap64] = {}
        self.files: list[DeleteFile] = []
        self.ended: list[EndedRows] = []
        self.rewritten: list[RewriteCandidate] = []

    def find(
        self,
        catalog: CatalogDatabase,
        keys: SoughtKeys,
        order: int | None,
        deleted: int | None = None,
        cache: KeyCache | None = None,
    ) -> list[Found]:
        """Find the rows that have a key of the batch, deleted ones left out.

        ``order``: the id of the column with a row's order; ``deleted``: of that with the mark of a delete;
        ``cache``: of keys that were read before. Raises DataError, SetupError where rows cannot be looked up.
        """
        lookup = KeyLookup.of(keys, order, self._state.schema, deleted)
        self._scan, without = catalog.read(lambda connection: _scanned(connection, self._state, lookup))
        _check(self._scan)
        finder, constants = lookup.finder(self._storage.open), lookup.constants
        sizes = self._scan.files.items()
        files = [(size, KeyFile(path, constants)) for path, size in sizes if path not in without]
        in_files = map(self._live, find_rows(self._spark.sparkContext, finder, files, cache))
        in_catalog = chain.from_iterable(_in_catalog(finder, rows, constants) for rows in self._scan.inlined)
        return [*(hits for hits in in_files if len(hits.positions)), *in_catalog]

    @property
    def sizes(self) -> Mapping[str, int]:
        """The bytes of the data files that were looked at, by path."""
        return {} if self._scan is None else self._scan.files

    def stored(self, struct: Struct) -> StoredRows:
        """Return a reader of rows that were found, with these columns."""
        assert self._scan is not None
        inlined = {
            group.table: (
                np.asarray(group.ids.to_numpy(), np.int64),
                as_table(group.rows, struct, lambda f: int(f.name.removeprefix(_ID)), group.table),
            )
            for group in self._scan.inlined
        }
        return StoredRows(struct, self._storage.open, inlined)

    def _live(self, hits: Found) -> Found:
        return hits.without(self._dead_in(hits.file))

    def _dead_in(self, path: str) -> BitMap64:
        """Return the deleted rows of a data file."""
        assert self._scan is not None
        if path not in self._dead:
            dead = BitMap64(self._scan.deleted.get(path, ()))
            if path in self._scan.deletes:
                with self._storage.open(self._scan.deletes[path]) as stream:
                    dead |= read_positions(stream)
            self._dead[path] = dead
        return self._dead[path]

    def remove(
        self, rows: Mapping[str, Positions], size: int, struct: Struct, *, can_write: bool
    ) -> RowsLeft | None:
        """Remove rows that were found: write their delete files. Returns the rows left of rewritten files.

        ``size``: bytes of the batch; ``struct``: the columns of rows that it writes anew, if it can.
        """
        assert self._scan is not None
        tables = {inlined.table for inlined in self._scan.inlined}
        self.ended += (
            EndedRows(place, tuple(positions.tolist()))
            for place, positions in rows.items()
            if place in tables
        )
        dead = {
            path: BitMap64(positions) | self._dead_in(path)
            for path, positions in rows.items()
            if path not in tables
        }
        stored, scan_ = StoredRows(struct, self._storage.open), self._scan
        files = (
            RewriteCandidate(path, scan_.rows[path], scan_.files[path], gone) for path, gone in dead.items()
        )
        for group in choose(
            files, RewriteBudget.of_batch(size), lambda path: can_write and stored.can_move(path)
        ):
            self.rewritten += group
        for path in dead.keys() - {file.path for file in self.rewritten}:
            # One by one: after an error those that are written are to be deleted. Without the rows that the
            # catalog keeps as deleted: DuckDB shows dead rows behind one that it is told of twice.
            gone = dead[path] - BitMap64(scan_.deleted.get(path, ()))
            self.files.append(written_deletes(self._folder, path, gone))
        return RowsLeft(stored, self.rewritten, with_ids=False) if self.rewritten else None


def written_deletes(folder: str, data_file: str, rows: BitMap64) -> DeleteFile:
    """Write the file of the deleted ``rows`` of a data file into the table's ``folder``."""
    path, stream = f"{uuid4().hex}-delete.parquet", pa.BufferOutputStream()
    write_positions(stream, data_file, rows, DUCKLAKE_IDS)
    content = stream.getvalue().to_pybytes()
    Storage.of(folder).put(folder + path, content)
    footer = int.from_bytes(content[_FOOTER], "little")
    return DeleteFile(path, data_file, len(rows), len(content), footer)


def _scanned(connection: Connection, state: LakeState, lookup: KeyLookup) -> tuple[Scan, set[str]]:
    """Return what there is to read, and those of the files that by their bounds have no key of the batch."""
    contents, keys = scan(connection, state), lookup.keys
    columns = [f.id for f in lookup.columns.values() if f.type in (INT, LONG) and f.id in keys.ids]
    columns = [id_ for id_ in columns if id_ != lookup.order and id_ not in lookup.constants]
    if len(contents.files) < _MANY or not columns:
        return contents, set()
    ids, without = keys.ids, set()
    for path, known in whole_bounds(connection, state, columns).items():
        # A column of nulls is left out; one without bounds may have any value.
        bounds: dict[int, Bounds] = {i: known.get(i) for i in ids if i not in known or known[i] is not None}
        if not keys.may_be_in(bounds):
            without.add(path)
    return contents, without


def _check(contents: Scan) -> None:
    """Raise DataError for files without field ids: their columns are known by other names."""
    for group, paths in contents.groups.items():
        if group.mapping is not None:
            raise DataError(
                f"{paths[0]}: its columns have no field ids, so keys cannot be looked up in it",
                "CALL ducklake_rewrite_data_files in DuckDB rewrites the file",
            )


def _in_catalog(
    finder: KeyFinder, inlined: InlinedRows, constants: Mapping[int, pa.Scalar]
) -> Iterator[Found]:
    """The rows with keys of the batch among those that the catalog keeps; their positions are row ids."""
    for hits in finder.find_in(KeyFile(inlined.table, constants), _by_id(inlined)):
        ids = inlined.ids.take(pa.array(hits.positions)).to_numpy().astype(np.int64)
        yield replace(hits, positions=ids)


def _by_id(inlined: InlinedRows) -> pa.Table:
    """Return the columns of rows in the catalog, and fields of their structs, named by their ids."""
    leaves: dict[str, pa.Array] = {}

    def visit(column: pa.ChunkedArray | pa.Array, name: str) -> None:
        """Add a column, or the fields of a struct."""
        if pa.types.is_struct(column.type):
            for field in column.type:
                visit(pc.struct_field(column, field.name), field.name)
        else:
            leaves[name.removeprefix(_ID)] = column

    for name in inlined.rows.column_names:
        visit(inlined.rows.column(name), name)
    return pa.table(leaves)


def add_deletes(
    connection: Connection,
    head: LatestSnapshot,
    table: TableRow,
    files: Sequence[DeleteFile],
    ended: Sequence[EndedRows],
) -> None:
    """Register the delete files, in place of those that the data files had, and end rows of the catalog."""
    rows = []
    for id_, file in enumerate(files, head.file_id):
        (data_file,) = _ids(connection, table, [file.data_file])
        of_file = f"table_id = {table.id} AND data_file_id = {data_file}"
        connection.end("ducklake_delete_file", head.snapshot, of_file)
        rows.append(
            {
                "delete_file_id": id_,
                "table_id": table.id,
                "begin_snapshot": head.snapshot,
                "data_file_id": data_file,
                "path": file.path,
                "path_is_relative": True,
                "format": "parquet",
                "delete_count": file.rows,
                "file_size_bytes": file.size,
                "footer_size": file.footer,
            }
        )
    connection.insert("ducklake_delete_file", rows)
    head.file_id += len(files)
    for gone in ended:
        listed = ", ".join(map(str, gone.rows))
        connection.end(quoted(gone.table), head.snapshot, f"row_id IN ({listed})")
    head.changes_made.append(f"deleted_from_table:{table.id}")


def drop_rewritten(
    connection: Connection, head: LatestSnapshot, table: TableRow, files: Sequence[RewriteCandidate]
) -> list[int]:
    """End data files, and their delete files; returns the ids of the former.

    The rows that are left of them count once.
    """
    ids = _ids(connection, table, [file.path for file in files])
    listed = ", ".join(map(str, ids))
    for place in ("ducklake_data_file", "ducklake_delete_file"):
        connection.end(place, head.snapshot, f"table_id = {table.id} AND data_file_id IN ({listed})")
    count, size = sum(file.left for file in files), sum(file.size for file in files)
    connection.execute(
        f"UPDATE meta.ducklake_table_stats SET record_count = greatest(record_count - {count}, 0), "
        f"file_size_bytes = greatest(file_size_bytes - {size}, 0) WHERE table_id = {table.id}"
    )
    return ids


def _ids(connection: Connection, table: TableRow, paths: Sequence[str]) -> list[int]:
    """Return the ids of data files of the table, in no order."""
    places = {*paths, *(path.removeprefix(table.folder) for path in paths)}
    rows = connection.rows(
        f"SELECT data_file_id FROM meta.ducklake_data_file WHERE table_id = {table.id} AND end_snapshot IS NULL "
        f"AND path IN ({', '.join('?' * len(places))})",
        list(places),
    )
    assert len(rows) == len(paths), paths
    return [int(id_) for (id_,) in rows]
