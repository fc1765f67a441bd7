"""Rows of a table out of its Parquet files, read by DuckDB in tasks: no Java converts them.

DuckDB shares no code with what writes them. What it may read otherwise than Spark is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyarrow.parquet import read_schema

from driftline.core.schema.types import List, Map, Primitive, Struct, Type
from driftline.runtime.duckdb import alone, literal, plain
from driftline.verify.comparison import begin_task
from driftline.verify.expected import TYPES
from driftline.verify.frames import SparkTasks, plain_rows

if TYPE_CHECKING:
    from pyspark import RDD

_Batches: TypeAlias = "Iterable[pa.RecordBatch]"
_ID = b"PARQUET:field_id"
_ROWS = 10_000  # of a batch
_HERE = 2**20  # bytes of files that the driver reads sooner than tasks begin
_MOST = 2**28  # bytes of a file: a larger one keeps one task busy while others have nothing to do
_ALL = {**TYPES, "float": pa.float32(), "binary": pa.binary()}
_WIDER = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


class UnlikeTable(Exception):
    """A file has a column otherwise than the table."""


@dataclass(frozen=True)
class FileRows:
    """The rows of a table that are in Parquet files of this machine.

    Attributes:
        struct: the columns that are compared.
    """

    tasks: SparkTasks
    struct: Struct
    paths: Sequence[str]

    @classmethod
    def of(cls, tasks: Any, struct: Struct, paths: Callable[[], Sequence[str]]) -> FileRows | None:
        """The rows of these files; None where Spark reads them sooner, or otherwise."""
        if not (isinstance(tasks, SparkTasks) and tasks.run_here and find_spec("duckdb")):
            return None
        if not struct.fields or any(arrow_type(f.type) is None for f in struct.fields):
            return None
        rows = cls(tasks, struct, paths())
        return rows if rows.paths and max(rows._sizes) <= _MOST else None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [f.name for f in self.struct.fields]

    def records(self, chosen: Callable[[_Batches], _Batches] | None = None) -> RDD[dict[str, Any]]:
        """The rows in plain Python. ``chosen``: filters their batches."""
        return self._in_tasks().flatMap(partial(_plain, self.struct, chosen))

    def pieces(
        self, pieces: Callable[[_Batches], Iterator[pa.RecordBatch]], present: Collection[int]
    ) -> Iterator[pa.RecordBatch]:
        """Apply ``pieces`` to the rows, here if they are few, else in tasks."""
        if sum(self._sizes) <= _HERE:
            return pieces(batches(self.struct, self.paths))
        return iter(self._in_tasks().flatMap(partial(_pieces, self.struct, pieces)).collect())

    def pieces_in_tasks(
        self, pieces: Callable[[_Batches], Iterator[pa.RecordBatch]], present: Collection[int]
    ) -> RDD[Any]:
        """Apply ``pieces`` to the rows in tasks."""
        return self._in_tasks().flatMap(partial(_as_rows, self.struct, pieces))

    @cached_property
    def _sizes(self) -> list[int]:
        return [Path(path).stat().st_size for path in self.paths]

    def _in_tasks(self) -> RDD[list[str]]:
        """The files of each task: as many tasks as run at a time, each with about as many bytes."""
        shares: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(self.tasks.cores, len(self.paths)))]
        for size, path in sorted(zip(self._sizes, self.paths, strict=True), reverse=True):
            smallest = min(range(len(shares)), key=lambda place: shares[place][0])
            filled, files = shares[smallest]
            shares[smallest] = filled + size, [*files, path]
        return self.tasks.parallelize([files for _, files in shares])


def _plain(
    struct: Struct, chosen: Callable[[_Batches], _Batches] | None, paths: Sequence[str]
) -> Iterator[dict[str, Any]]:
    begin_task()
    found = batches(struct, paths)
    names = [f.name for f in struct.fields]
    return chain.from_iterable(
        plain_rows(names, batch) for batch in (found if chosen is None else chosen(found))
    )


def _pieces(
    struct: Struct, pieces: Callable[[_Batches], Iterator[pa.RecordBatch]], paths: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    begin_task()
    return pieces(batches(struct, paths))


def _as_rows(
    struct: Struct, pieces: Callable[[_Batches], Iterator[pa.RecordBatch]], paths: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    for piece in _pieces(struct, pieces, paths):
        yield from zip(*(column.to_pylist() for column in piece.columns), strict=True)


def batches(struct: Struct, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns of the files, as the table has them now. Raises UnlikeTable."""
    with alone() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET threads = 1")  # other tasks have the other cores
        for path in paths:
            columns = _FileColumn.of_all(struct, [*read_schema(path)])
            listed = ", ".join(f"#{column.place + 1}" for column in columns if column.place is not None)
            # A file's own column counts, so that each row is there if the file has none of the table's.
            sql = f"SELECT {listed or '#1'} FROM read_parquet({literal(plain(path))}, hive_partitioning = false)"
            for batch in connection.execute(sql).to_arrow_reader(_ROWS):
                found = iter(batch.columns)
                arrays = [
                    column.read(None if column.place is None else next(found), batch.num_rows)
                    for column in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, [f"c{number}" for number in range(len(arrays))])


@dataclass(frozen=True, slots=True)
class _FileColumn:
    """A column of the table, or a field of a struct, in a file.

    Attributes:
        place: among the file's columns, or those of the struct; None if the file lacks it.
        type: the table's.
        children: the fields of a struct, the element of a list, or the key and the value of a map.
        is_same: the file has all that is in it under the names and in the order of the table.
    """

    place: int | None
    type: pa.DataType
    children: tuple[_FileColumn, ...] = ()
    is_same: bool = True

    @classmethod
    def of_all(cls, struct: Struct, found: Sequence[pa.Field]) -> tuple[_FileColumn, ...]:
        """The fields of a struct among those that a file has. Raises UnlikeTable."""
        places = {int(f.metadata[_ID]): i for i, f in enumerate(found) if f.metadata and _ID in f.metadata}
        if len(places) < len(found):
            raise UnlikeTable("a column of a file has no field id")
        out = []
        for f in struct.fields:
            place = places.get(f.id)
            if place is None:
                out.append(cls(None, arrow_type(f.type), is_same=False))
            else:
                out.append(cls.of(f.type, found[place].type, place))
        return tuple(out)

    @classmethod
    def of(cls, type_: Type, found: pa.DataType, place: int) -> _FileColumn:
        """A column of this type at a place of the file. Raises UnlikeTable."""
        target = arrow_type(type_)
        if isinstance(type_, Struct) and pa.types.is_struct(found):
            children = cls.of_all(type_, [*found])
            has_names = [f.name for f in type_.fields] == [f.name for f in found]
            in_order = all(child.is_same and child.place == i for i, child in enumerate(children))
            return cls(place, target, children, is_same=has_names and in_order)
        if isinstance(type_, List) and (pa.types.is_list(found) or pa.types.is_large_list(found)):
            element = cls.of(type_.element, found.value_type, 0)
            return cls(place, target, (element,), is_same=element.is_same)
        if isinstance(type_, Map) and pa.types.is_map(found):
            entry = cls.of(type_.key, found.key_type, 0), cls.of(type_.value, found.item_type, 1)
            if all(child.is_same for child in entry):
                return cls(place, target, entry)
        if isinstance(type_, Primitive) and not pa.types.is_nested(found):
            return cls(place, target, is_same=found == target)
        raise UnlikeTable(f"a file has {found} where the table has {type_}")

    def read(self, array: pa.Array | None, rows: int) -> pa.Array:
        """The table's column, from the file's. Raises UnlikeTable."""
        if array is None:
            return pa.nulls(rows, self.type)
        if self.children and self.is_same:
            return array
        if pa.types.is_struct(self.type):
            fields = [
                child.read(None if child.place is None else array.field(child.place), len(array))
                for child in self.children
            ]
            return pa.StructArray.from_arrays(fields, fields=[*self.type], mask=array.is_null())
        if pa.types.is_list(self.type):
            elements = self.children[0].read(array.values, len(array.values))
            return pa.ListArray.from_arrays(array.offsets, elements, mask=array.is_null())
        if array.type == self.type:
            return array
        is_decimal = pa.types.is_decimal(array.type) and pa.types.is_decimal(self.type)
        if is_decimal or (array.type, self.type) in _WIDER:
            return array.cast(self.type)
        raise UnlikeTable(f"a file has {array.type} where the table has {self.type}")


def arrow_type(type_: Type) -> pa.DataType | None:
    """The type in which both DuckDB and Spark hand a column over; None if they do it otherwise."""
    if isinstance(type_, Struct):
        fields = [(f.name, arrow_type(f.type)) for f in type_.fields]
        return pa.struct(fields) if fields and all(of_field is not None for _, of_field in fields) else None
    if isinstance(type_, List):
        element = arrow_type(type_.element)
        return None if element is None else pa.list_(element)
    if isinstance(type_, Map):
        key, value = arrow_type(type_.key), arrow_type(type_.value)
        return None if key is None or value is None else pa.map_(key, value)
    if isinstance(type_, Primitive):
        return pa.decimal128(*type_.args) if type_.name == "decimal" else _ALL.get(type_.name)
    return None
