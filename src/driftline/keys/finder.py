"""Finds the rows in a table's Parquet files that have the keys of a batch.

Only key and order columns are read, and only of row groups that bounds do not rule out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.convert.types import FIELD_ID
from driftline.errors import DataError
from driftline.keys.cache import KeyCache, KeyRows
from driftline.keys.identity import Bounds, SoughtKeys
from driftline.keys.settle import Found

_GATHERED = 64 * 2**20  # bytes that are looked through at once: each call hashes the batch's keys anew


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A data file that may have keys. ``constants``: values of columns that the file does not hold: defaults,
    and those of its partition.
    """

    path: str
    constants: Mapping[int, pa.Scalar] = field(default_factory=dict)

    def absent(self, id_: int, count: int) -> pa.Array:
        """The values of a column that the file does not hold, of ``count`` rows."""
        return pa.repeat(self.constants[id_], count) if id_ in self.constants else pa.nulls(count)


@dataclass(frozen=True, slots=True)
class KeyFinder:
    """Finds rows by their keys; it is sent to tasks. ``order``: the id of the column that has a row's order,
    None where changes count in the order of arrival; ``open``: opens a file by its path; ``deleted``: the id
    of the column with the mark of a delete; ``row_id``: of that with ids of rows, which files may have.
    """

    keys: SoughtKeys
    order: int | None
    open: Callable[[str], pa.NativeFile]
    deleted: int | None = None
    row_id: int | None = None

    def find(self, files: Iterable[KeyFile], cache: KeyCache | None = None) -> list[Found]:
        """The rows of these files that have a key of the batch. ``cache``: of what was read before."""
        hits: list[Found] = []
        gathered: list[tuple[str, int, pa.Table]] = []
        size = 0
        for file in files:
            for begin, rows in self._read(file) if cache is None else self._cached(file, cache):
                gathered.append((file.path, begin, rows))
                size += rows.nbytes
                if size > _GATHERED:
                    hits += self._found(gathered)
                    gathered, size = [], 0
        return hits + self._found(gathered)

    def find_in(self, file: KeyFile, rows: pa.Table) -> list[Found]:
        """The rows that have a key of the batch among these of a ``file``, whose columns are named by id."""
        columns = {
            str(id_): rows.column(str(id_)) if str(id_) in rows.column_names else file.absent(id_, len(rows))
            for id_ in self._ids
        }
        return self._found([(file.path, 0, pa.table(columns))])

    def cache_key(self, path: str) -> Hashable:
        """The columns of a file that the look-up reads, as a cache knows them."""
        return path, tuple(self._ids)

    def _cached(self, file: KeyFile, cache: KeyCache) -> KeyRows:
        """All rows of a file, which are read once if they have room in the cache."""
        key = self.cache_key(file.path)
        rows = cache.get(key)
        if rows is None:
            rows = list(self._read(file, whole=cache.most > 0))
            cache.put(key, rows)
        return rows

    @property
    def _ids(self) -> list[int]:
        """The ids of the columns that are read."""
        beside = [id_ for id_ in (self.order, self.deleted, self.row_id) if id_ is not None]
        return list(dict.fromkeys([*self.keys.ids, *beside]))

    def _found(self, gathered: Sequence[tuple[str, int, pa.Table]]) -> list[Found]:
        if not gathered:
            return []
        table = pa.concat_tables([rows for *_, rows in gathered], promote_options="permissive")
        codes = self.keys.codes(table)
        positions = np.flatnonzero(codes.is_valid().to_numpy(zero_copy_only=False))
        out, start = [], 0
        for path, begin, rows in gathered:
            low, high = np.searchsorted(positions, [start, start + len(rows)])
            in_file = positions[low:high]
            if len(in_file):
                taken = codes.take(pa.array(in_file)).to_numpy().astype(np.int64)
                hits = rows.take(pa.array(in_file - start))
                orders, deleted, row_ids = (
                    None if id_ is None else _column(hits, id_, type_)
                    for id_, type_ in (
                        (self.order, pa.string()),
                        (self.deleted, pa.bool_()),
                        (self.row_id, pa.int64()),
                    )
                )
                orders = pa.nulls(len(hits), pa.string()) if orders is None else orders
                out.append(Found(path, in_file - start + begin, taken, orders, deleted, row_ids))
            start += len(rows)
        return out

    def _read(self, file: KeyFile, *, whole: bool = False) -> Iterator[tuple[int, pa.Table]]:
        """Key and order columns by id, each row group with its first position: those that may have keys, or
        all of the ``whole`` file.
        """
        ids = self._ids
        with self.open(file.path) as stream, pq.ParquetFile(stream, pre_buffer=True) as parquet:
            paths = leaf_paths(parquet.schema_arrow)
            if not paths:
                raise DataError(
                    f"{file.path}: its columns have no field ids, so keys cannot be looked up in it",
                    "compact the table first, which rewrites the file",
                )
            leaves = {parquet.schema.column(i).path: i for i in range(len(parquet.schema.names))}
            begin = 0
            for number in range(parquet.num_row_groups):
                group = parquet.metadata.row_group(number)
                if whole or self.keys.may_be_in(_all_bounds(group, ids, paths, leaves, file.constants)):
                    stored_ids = [id_ for id_ in ids if id_ in paths]
                    read = parquet.read_row_group(number, [".".join(paths[id_]) for id_ in stored_ids])
                    yield begin, _by_id(read, ids, paths, file, group.num_rows)
                begin += group.num_rows


def _column(rows: pa.Table, id_: int, type_: pa.DataType) -> pa.Array:
    return rows.column(str(id_)).combine_chunks().cast(type_)


_NO_VALUES: Bounds = (None, None)


def leaf_paths(schema: pa.Schema) -> dict[int, tuple[str, ...]]:
    """The paths of columns in structs of any depth, by their ids; columns in lists and maps are left out."""
    paths: dict[int, tuple[str, ...]] = {}

    def visit(fields: Iterable[pa.Field], parent: tuple[str, ...]) -> None:
        """Note the paths of the leaves below ``parent``."""
        for f in fields:
            path = (*parent, f.name)
            if pa.types.is_struct(f.type):
                visit(f.type.fields, path)
            elif f.metadata and FIELD_ID in f.metadata:
                paths[int(f.metadata[FIELD_ID])] = path

    visit(schema, ())
    return paths


def column_at(rows: pa.Table | pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """The column at a path into structs, null where a struct is."""
    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _all_bounds(
    group: Any,
    ids: Iterable[int],
    paths: Mapping[int, Sequence[str]],
    leaves: Mapping[str, int],
    constants: Mapping[int, pa.Scalar],
) -> dict[int, Bounds]:
    """The bounds of a row group's columns; without those that hold only nulls."""
    bounds = ((id_, _bounds(group, id_, paths, leaves, constants)) for id_ in ids)
    return {id_: column_bounds for id_, column_bounds in bounds if column_bounds is not _NO_VALUES}


def _bounds(
    group: Any,
    id_: int,
    paths: Mapping[int, Sequence[str]],
    leaves: Mapping[str, int],
    constants: Mapping[int, pa.Scalar],
) -> Bounds:
    """The bounds of a row group's column; `_NO_VALUES` if it holds only nulls."""
    if id_ not in paths:
        value = constants[id_].as_py() if id_ in constants else None
        return _NO_VALUES if value is None else (value, value)
    statistics = group.column(leaves[".".join(paths[id_])]).statistics
    if statistics is None:
        return None
    if statistics.has_null_count and statistics.null_count == group.num_rows:
        return _NO_VALUES
    if not statistics.has_min_max:
        return None
    low, high = statistics.min, statistics.max
    return low, high


def _by_id(
    read: pa.Table, ids: Iterable[int], paths: Mapping[int, Sequence[str]], file: KeyFile, count: int
) -> pa.Table:
    return pa.table(
        {str(id_): column_at(read, paths[id_]) if id_ in paths else file.absent(id_, count) for id_ in ids}
    )
