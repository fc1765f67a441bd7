"""Rows that a table has, by the file and the position where they were found, with its present columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.convert.converter import initial_default
from driftline.convert.types import FIELD_ID, arrow_field, arrow_type
from driftline.core.schema.types import VARIANT, Field, List, Map, Primitive, Struct, Type
from driftline.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

IdOf = Callable[[pa.Field], int | None]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Reads rows of a table; it is sent to tasks.

    ``struct``: the columns; ``open``: opens a file by its path. ``inlined``: rows that are in no file, by the
    name that they were found under, with their positions.
    """

    struct: Struct
    open: Callable[[str], pa.NativeFile]
    inlined: Mapping[str, tuple[NDArray[np.int64], pa.Table]] = field(default_factory=dict)

    def can_move(self, file: str) -> bool:
        """True if another file can have all of its values as they are."""
        with self.open(file) as stream:
            return _movable(pq.read_schema(stream), self.struct)

    def read(self, files: pa.Array, positions: NDArray[np.int64]) -> pa.Table:
        """The rows at these positions of ``files``, in their order."""
        named = pc.dictionary_encode(files)
        numbers = named.indices.to_numpy()
        parts: list[pa.Table] = []
        places: list[NDArray[np.int64]] = []
        for number, file in enumerate(named.dictionary.to_pylist()):
            in_file = np.flatnonzero(numbers == number)
            in_file = in_file[np.argsort(positions[in_file], kind="stable")]
            parts += self.of(file, positions[in_file])
            places.append(in_file)
        order = np.argsort(np.concatenate(places)) if places else np.array([], np.int64)
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
            for number, (low, high) in enumerate(
                zip(*(np.searchsorted(positions, part) for part in (ends[:-1], ends[1:])), strict=True)
            ):
                if low < high:
                    rows = parquet.read_row_group(number).take(pa.array(positions[low:high] - ends[number]))
                    yield as_table(rows, self.struct, field_id, file)


def no_rows(struct: Struct) -> pa.Table:
    """A table of these columns without rows."""
    return pa.schema([arrow_field(f) for f in struct.fields]).empty_table()


def as_table(rows: pa.Table, struct: Struct, id_of: IdOf, where: str) -> pa.Table:
    """Rows with the columns of ``struct``, whatever their names and types were when they were written.

    ``where``: they are, for messages. Raises DataError for values that the columns do not have.
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
    if type_ == VARIANT or (pa.types.is_string(target) and not is_text):
        raise DataError(
            f"{where}: a {type_} is stored there as {stored.type}, which cannot be copied to another file",
            "drop the column, or make the table with deletes = hard and merge = replace",
        )
    return stored.cast(target)


def _offsets(array: pa.Array) -> pa.Array:
    """The offsets of lists among all items; a copy, because Arrow takes no slice beside a mask."""
    return pa.array(array.offsets.to_numpy())
