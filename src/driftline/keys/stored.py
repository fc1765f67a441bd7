"""Finds a table's rows by key in its data files, and reads them with the present columns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.convert.converter import initial_default
from driftline.convert.json_values import texts_as
from driftline.convert.types import FIELD_ID, arrow_field, arrow_type
from driftline.core.schema.naming import by_key
from driftline.core.schema.types import (
    READ_AS_TEXT,
    UUID,
    VARIANT,
    WIDER,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Struct,
    Type,
    dotted,
)
from driftline.errors import DataError
from driftline.keys.identity import Bounds, FieldColumns, SoughtKeys
from driftline.keys.settle import Found

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

# Tables of a file, each with its first position
KeyRows: TypeAlias = "Sequence[tuple[int, pa.Table]]"


class KeyCache:
    """Columns of data files, at most ``most`` bytes of them; the least recently used files go.

    A file that the present look-up has used stays: where a table is larger than the cache, each look-up would
    else drop what the next one begins with. Threads may share it; the latest `begin` bounds the whole.
    """

    def __init__(self, idle: int = 0) -> None:
        """Make an empty cache, which keeps nothing of the first ``idle`` look-ups: there may be no more."""
        self._idle = idle
        self.most = 0
        self._files: OrderedDict[Hashable, tuple[KeyRows, int]] = OrderedDict()
        self._used: set[Hashable] = set()
        self._size = 0
        self._lock = Lock()

    def begin(self, most: int) -> None:
        """Begin a look-up, with at most this many bytes from now on."""
        with self._lock:
            self.most = 0 if self._idle else most
            self._idle = max(0, self._idle - 1)
            self._used.clear()
            self._shrink(self.most)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._files

    def get(self, key: Hashable) -> KeyRows | None:
        """The columns of a file, if they are cached."""
        with self._lock:
            if key not in self._files:
                return None
            self._files.move_to_end(key)
            self._used.add(key)
            return self._files[key][0]

    def put(self, key: Hashable, rows: KeyRows) -> None:
        """Keep the columns of a file, if there is room."""
        size = sum(table.nbytes for _, table in rows)
        with self._lock:
            # Another thread may have read the file, too.
            if key not in self._files and size <= self.most and self._shrink(self.most - size):
                self._files[key] = rows, size
                self._size += size
                self._used.add(key)

    def _shrink(self, most: int) -> bool:
        """Drop files until they are within so many bytes; False if those in use are more."""
        # The least recently used first: `get` moves what it finds to the end.
        for key in [key for key in self._files if key not in self._used]:
            if self._size <= most:
                break
            self._size -= self._files.pop(key)[1]
        return self._size <= most


# Bytes that are looked through at once: each call hashes the batch's keys again
_GATHERED = 64 * 2**20


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A data file that may have keys.

    Attributes:
        constants: values of columns that the file does not hold: defaults, and those of its partition.
    """

    path: str
    constants: Mapping[int, pa.Scalar] = field(default_factory=dict)

    def absent(self, id_: int, count: int) -> pa.Array:
        """The values of a column that the file does not hold, of ``count`` rows."""
        return pa.repeat(self.constants[id_], count) if id_ in self.constants else pa.nulls(count)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Rows of a ``file`` that may have a key, whose first row has the position ``begin``.

    Attributes:
        places: the rows' numbers from there on; None if they are all rows.
    """

    file: str
    begin: int
    rows: pa.Table
    places: NDArray[np.int64] | None

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions in the file of some of the rows."""
        return self.begin + (rows if self.places is None else self.places[rows])


@dataclass(frozen=True, slots=True)
class KeyFinder:
    """Finds rows by their keys; it is sent to tasks.

    Attributes:
        order: the id of the column with a row's order; None if changes count in the order of arrival.
        open: opens a file by its path.
        deleted: the id of the column that marks deleted rows.
        row_id: the id of the column with row ids, which files may have.
    """

    keys: SoughtKeys
    order: int | None
    open: Callable[[str], pa.NativeFile]
    deleted: int | None = None
    row_id: int | None = None

    def find(self, files: Iterable[KeyFile], cache: KeyCache | None = None) -> list[Found]:
        """The rows of these files that have a key of the batch.

        Args:
            cache: of what was read before.
        """
        hits: list[Found] = []
        gathered: list[_Candidates] = []
        size = 0
        for file in files:
            for begin, rows in self._read(file) if cache is None else self._cached(file, cache):
                gathered.append(candidates := self._candidates(file.path, begin, rows))
                size += candidates.rows.nbytes
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
        return self._found([self._candidates(file.path, 0, pa.table(columns))])

    def cache_key(self, path: str) -> Hashable:
        """The columns of a file that the look-up reads, as a cache knows them."""
        return path, tuple(self._ids)

    # Data files never change, so a cached column is never wrong. The values themselves are cached: hashes
    # would be smaller, but are exact only together with the values.
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

    def _candidates(self, file: str, begin: int, rows: pa.Table) -> _Candidates:
        places = self.keys.candidates(rows)
        return _Candidates(file, begin, rows if places is None else rows.take(pa.array(places)), places)

    def _found(self, gathered: Sequence[_Candidates]) -> list[Found]:
        if not gathered:
            return []
        keys = [str(id_) for id_ in self.keys.ids]
        # Files from before a promotion have the column in its older type; keys compare across both.
        table = pa.concat_tables([some.rows.select(keys) for some in gathered], promote_options="permissive")
        codes = self.keys.codes(table)
        positions = np.flatnonzero(codes.is_valid().to_numpy(zero_copy_only=False))
        out, start = [], 0
        for some in gathered:
            rows = some.rows
            low, high = np.searchsorted(positions, [start, start + len(rows)])
            in_file = positions[low:high]
            if len(in_file):
                taken = codes.take(pa.array(in_file)).to_numpy().astype(np.int64)
                hits = rows.take(pa.array(in_file - start))
                orders, deleted, row_ids = (
                    None if id_ is None else _key_column(hits, id_, type_)
                    for id_, type_ in (
                        (self.order, pa.string()),
                        (self.deleted, pa.bool_()),
                        (self.row_id, pa.int64()),
                    )
                )
                orders = pa.nulls(len(hits), pa.string()) if orders is None else orders
                places = some.positions(in_file - start)
                out.append(Found(some.file, places, taken, orders, deleted, row_ids))
            start += len(rows)
        return out

    def _read(self, file: KeyFile, *, whole: bool = False) -> Iterator[tuple[int, pa.Table]]:
        """Read key and order columns, by id, of each row group that may have keys, with its first position.

        Args:
            file: the file.
            whole: read all row groups.
        """
        ids = self._ids
        with self.open(file.path) as stream, self._opened(stream) as parquet:
            paths = leaf_paths(parquet.schema_arrow)
            # Without ids only names are left, and a renamed column would be read as another one.
            if not paths:
                raise DataError(
                    f"{file.path}: its columns have no field ids, so keys cannot be looked up in it",
                    "compact the table first, which rewrites the file",
                )
            leaves = {parquet.schema.column(i).path: i for i in range(len(parquet.schema.names))}
            begin = 0
            for number in range(parquet.num_row_groups):
                group = parquet.metadata.row_group(number)
                # What is to be cached is read whole: the next batch has other keys.
                if whole or self.keys.may_be_in(_all_bounds(group, ids, paths, leaves, file.constants)):
                    stored_ids = [id_ for id_ in ids if id_ in paths]
                    read = parquet.read_row_group(number, [".".join(paths[id_]) for id_ in stored_ids])
                    yield begin, _by_id(read, ids, paths, file, group.num_rows)
                begin += group.num_rows

    def _opened(self, stream: pa.NativeFile) -> pq.ParquetFile:
        """Open a file so that orders which many rows share are not copied for each row."""
        footer = pq.read_metadata(stream)
        paths = leaf_paths(footer.schema.to_arrow_schema())
        # A key is compared in its own type.
        order = (
            "" if self.order is None or self.order in self.keys.ids else ".".join(paths.get(self.order, ()))
        )
        leaves = {footer.schema.column(i).path: i for i in range(len(footer.schema.names))}
        shared = order in leaves and _are_shared(footer, leaves[order])
        return pq.ParquetFile(
            stream, metadata=footer, pre_buffer=True, read_dictionary=[order] if shared else None
        )


_NUMBER = 4  # bytes that tell a row's place in a dictionary


def _are_shared(footer: pq.FileMetaData, leaf: int) -> bool:
    """True if the texts of a column are fewer than its rows."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    size = sum(group.column(leaf).total_uncompressed_size for group in groups)
    # Texts that are each another would have to be hashed first.
    return bool(size < _NUMBER * footer.num_rows)


def _key_column(rows: pa.Table, id_: int, type_: pa.DataType) -> pa.Array:
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


def filled_columns(rows: pa.RecordBatch) -> set[int]:
    """The ids of columns, in structs of any depth, that have a value in some row."""
    paths = leaf_paths(rows.schema)
    return {id_ for id_, path in paths.items() if column_at(rows, path).null_count < len(rows)}


def filled_in(parquet: pq.ParquetFile) -> set[int]:
    """The ids of columns, in structs of any depth, that have a value in a file, or may have one."""
    paths, footer = leaf_paths(parquet.schema_arrow), parquet.metadata
    places = {parquet.schema.column(i).path: i for i in range(len(parquet.schema.names))}
    # A list or a map is no leaf of the file, and its metrics are those of its elements.
    named = ((id_, places.get(".".join(path))) for id_, path in paths.items())
    leaves = {id_: place for id_, place in named if place is not None}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return {id_ for id_, leaf in leaves.items() if any(_has_value(group, leaf) for group in groups)}


def _has_value(group: Any, leaf: int) -> bool:
    """False if a row group's column has nothing but nulls for certain."""
    statistics = group.column(leaf).statistics
    if statistics is None or not statistics.has_null_count:
        return bool(group.num_rows)
    return bool(statistics.null_count < group.num_rows)


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


_AT_ONCE = 2**14  # rows

IdOf = Callable[[pa.Field], int | None]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Reads rows of a table; it is sent to tasks.

    Attributes:
        struct: the columns.
        open: opens a file by its path.
        inlined: rows that are in no file, by the name that they were found under, with their positions.
    """

    struct: Struct
    open: Callable[[str], pa.NativeFile]
    inlined: Mapping[str, tuple[NDArray[np.int64], pa.Table]] = field(default_factory=dict)

    def can_move(self, file: str) -> bool:
        """True if another file can have all of its values as they are."""
        with self.open(file) as stream:
            return self.takes(pq.read_schema(stream))

    def takes(self, stored: pa.Schema) -> bool:
        """True if the columns have all values of a file of this schema as they are."""
        return _movable(stored, self.struct)

    def filled(self, file: str) -> set[int]:
        """The ids of columns that have a value in a file."""
        with self.open(file) as stream, pq.ParquetFile(stream) as parquet:
            return filled_in(parquet)

    def row_groups(self, file: str) -> list[int]:
        """The numbers of rows in the row groups of a file."""
        with self.open(file) as stream, pq.ParquetFile(stream) as parquet:
            return [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)]

    def read(self, files: pa.Array, positions: NDArray[np.int64]) -> pa.Table:
        """The rows at these positions of ``files``, in their order."""
        named = pc.dictionary_encode(files)
        numbers = named.indices.to_numpy()
        parts: list[pa.Table] = []
        places: list[NDArray[np.int64]] = []
        for number, file in enumerate(named.dictionary.to_pylist()):
            in_file = np.flatnonzero(numbers == number)
            # Row groups are read forward, each once; the order of the caller is restored at the end.
            in_file = in_file[np.argsort(positions[in_file], kind="stable")]
            parts += self.of(file, positions[in_file])
            places.append(in_file)
        order = np.argsort(np.concatenate(places)) if places else np.array([], np.int64)
        # The empty table gives the columns where no row was asked for.
        return pa.concat_tables([no_rows(self.struct), *parts]).take(pa.array(order))

    def of(self, file: str, positions: NDArray[np.int64]) -> Iterable[pa.Table]:
        """The rows of one file at ``positions``, which ascend."""
        if file in self.inlined:
            ids, rows = self.inlined[file]
            yield rows.take(pa.array(np.searchsorted(ids, positions)))
            return
        with self.open(file) as stream, pq.ParquetFile(stream, pre_buffer=True) as parquet:
            counts = [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)]
            ends = np.cumsum([0, *counts])
            wanted_ids = {column.id for column in self.struct.fields}
            # Of a file that has none all are read: a table without columns would lose count of its rows.
            names = [column.name for column in parquet.schema_arrow if field_id(column) in wanted_ids] or None
            for number, (low, high) in enumerate(
                zip(*(np.searchsorted(positions, part) for part in (ends[:-1], ends[1:])), strict=True)
            ):
                if high - low == counts[number]:
                    for batch in parquet.iter_batches(_AT_ONCE, [number], names):
                        yield as_table(pa.Table.from_batches([batch]), self.struct, field_id, file)
                elif low < high:
                    # Only row groups that are hit are read.
                    group = parquet.read_row_group(number, names)
                    group_positions = positions[low:high] - ends[number]
                    for begin in range(0, len(group_positions), _AT_ONCE):
                        rows = group.take(pa.array(group_positions[begin : begin + _AT_ONCE]))
                        yield as_table(rows, self.struct, field_id, file)


def no_rows(struct: Struct) -> pa.Table:
    """A table of these columns without rows."""
    return pa.schema([arrow_field(f) for f in struct.fields]).empty_table()


def as_table(rows: pa.Table, struct: Struct, id_of: IdOf, where: str) -> pa.Table:
    """Rows with the columns of ``struct``, whatever their names and types were when they were written.

    Args:
        where: they are, for messages.

    Raises DataError for values that the columns do not have.
    """
    stored = {id_of(f): rows.column(i).combine_chunks() for i, f in enumerate(rows.schema)}
    columns = [_column(f, stored, len(rows), id_of, f"{where}: {f.name}") for f in struct.fields]
    return pa.table(columns, schema=pa.schema([arrow_field(f) for f in struct.fields]))


def _movable(stored: pa.Schema | pa.StructType, struct: Struct) -> bool:
    """True if a file with these columns has all of its values as `as_table` makes them of the ``struct``."""
    types = {field_id(f): f.type for f in stored}
    return all(f.id not in types or _as_it_is(types[f.id], f.type) for f in struct.fields)


def _as_it_is(stored: pa.DataType, type_: Type) -> bool:
    storage = stored.storage_type if isinstance(stored, pa.BaseExtensionType) else stored
    match type_:
        case Struct():
            return pa.types.is_struct(storage) and _movable(storage, type_)
        case List(element):
            return pa.types.is_list(storage) and _as_it_is(storage.value_type, element)
        case Map(key, value):
            is_map = pa.types.is_map(storage)
            return is_map and _as_it_is(storage.key_type, key) and _as_it_is(storage.item_type, value)
        case Primitive():
            target = arrow_type(type_)
            if type_ == VARIANT:
                return pa.types.is_struct(storage) and {f.name for f in storage} == {f.name for f in target}
            return bool(storage == target) or _widens(storage, target)


def _widens(stored: pa.DataType, target: pa.DataType) -> bool:
    """True if each value of a column as it is ``stored`` is one of the wider type."""
    for same in (pa.types.is_signed_integer, pa.types.is_floating):
        if same(stored) and same(target):
            return bool(stored.bit_width <= target.bit_width)
    if pa.types.is_decimal(stored) and pa.types.is_decimal(target):
        return bool(stored.scale == target.scale and stored.precision <= target.precision)
    return bool(pa.types.is_null(stored))


def field_id(stored: pa.Field) -> int | None:
    """The id of a column in a file."""
    has_id = stored.metadata and FIELD_ID in stored.metadata
    return int(stored.metadata[FIELD_ID]) if has_id else None


def _column(
    wanted: Field, stored: Mapping[int | None, pa.Array], count: int, id_of: IdOf, where: str
) -> pa.Array:
    """The values of a column, or of a field of structs; its default where the file does not have it."""
    if wanted.id in stored:
        return _values(wanted.type, stored[wanted.id], id_of, where)
    default = initial_default(wanted)
    return pa.nulls(count, arrow_type(wanted.type)) if default is None else pa.repeat(default, count)


def _values(type_: Type, stored: pa.Array, id_of: IdOf, where: str) -> pa.Array:
    array = stored.storage if isinstance(stored, pa.ExtensionArray) else stored
    match type_:
        case Struct(fields):
            inner = {id_of(f): array.field(i) for i, f in enumerate(array.type)}
            columns = [_column(f, inner, len(array), id_of, f"{where}.{f.name}") for f in fields]
            return pa.StructArray.from_arrays(
                columns, fields=[arrow_field(f) for f in fields], mask=array.is_null()
            )
        case List(element):
            items = _values(element, array.values, id_of, where)
            return pa.ListArray.from_arrays(
                _offsets(array), items, type=arrow_type(type_), mask=array.is_null()
            )
        case Map(key, value):
            keys, items = (_values(t, a, id_of, where) for t, a in ((key, array.keys), (value, array.items)))
            return pa.MapArray.from_arrays(
                _offsets(array), keys, items, type=arrow_type(type_), mask=array.is_null()
            )
        case Primitive():
            return _leaves(type_, array, where)


def _leaves(type_: Primitive, stored: pa.Array, where: str) -> pa.Array:
    target = arrow_type(type_)
    if pa.types.is_null(stored.type):
        return pa.nulls(len(stored), target)
    if type_ == VARIANT and {f.name for f in stored.type} == {f.name for f in target}:
        parts = [pc.struct_field(stored, f.name) for f in target]
        return pa.StructArray.from_arrays(
            [p.cast(f.type).fill_null(b"") for p, f in zip(parts, target, strict=True)],
            fields=list(target),
            mask=stored.is_null(),
        )
    is_text = pa.types.is_string(stored.type) or pa.types.is_large_string(stored.type)
    if WIDER.get(type_.name) == UUID and is_text:  # Spark's writer has no UUIDs
        return texts_as(stored.cast(pa.string()), UUID, UUID, None)
    if type_ == VARIANT or (pa.types.is_string(target) and not is_text):
        raise DataError(
            f"{where}: a {type_} is stored there as {stored.type}, which cannot be copied to another file",
            "drop the column, or make the table with deletes = hard and merge = replace",
        )
    return stored.cast(target)


def _offsets(array: pa.Array) -> pa.Array:
    """Copy the offsets of lists among all items, because Arrow takes no slice together with a mask."""
    return pa.array(array.offsets.to_numpy())


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column, or a field of structs, with its path in the table."""

    path: Path
    field: Field


def columns_of(struct: Struct, path: Path, mark: str, parent: Path = ()) -> Iterator[PlacedColumn]:
    """The columns that the field at a path of the data fills.

    Args:
        mark: the prefix of docs.
    """
    for column in by_key(struct.fields, mark).get(path[0], []):
        placed = PlacedColumn((*parent, column.name), column)
        if len(path) == 1:
            yield placed
        elif isinstance(column.type, Struct):
            yield from columns_of(column.type, path[1:], mark, placed.path)


def values_of(columns: Sequence[PlacedColumn]) -> FieldColumns:
    """The plain columns of a field, as keys and orders are read from them.

    Raises DataError if values of one are not compared.
    """
    plain: list[tuple[int, Primitive]] = []
    for placed in columns:
        type_ = placed.field.type
        if not isinstance(type_, Primitive):
            continue
        if type_.name in READ_AS_TEXT:
            raise DataError(
                f"{dotted(placed.path)}: rows are not known, or ordered, by a {READ_AS_TEXT[type_.name]} of DuckDB's",
                "give the column another type with DuckDB: ALTER TABLE … ALTER … SET TYPE",
            )
        plain.append((placed.field.id, type_))
    return FieldColumns.of(plain)


def by_id(rows: pa.Table, columns: Sequence[PlacedColumn]) -> pa.Table:
    """The columns of some rows, named by their ids."""
    return pa.table({str(c.field.id): column_at(rows, c.path) for c in columns})
