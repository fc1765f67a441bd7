"""In-memory sources: pandas and Polars frames, Arrow tables and readers, Python records.

An iterator yields its items once, but tasks read a batch, and several times. So the data is first written
to temporary Arrow files, some rows at a time, as columns of table types.
"""

from __future__ import annotations

import json as stdlib_json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from itertools import chain, islice
from math import isfinite
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import json

from driftline.convert.declared import OVERFLOW, VOID, Declared, readings
from driftline.core.schema.types import Field, List, Path, Struct, Type, dotted
from driftline.errors import SetupError, UsageError
from driftline.readers.columnar.parquet import column_names, levels
from driftline.readers.columnar.rows import Rows, checked, read_checked
from driftline.readers.rejects import Origin, Reject
from driftline.sources.inputs import is_pandas, is_polars_frame, is_table
from driftline.sources.spooled import folder_in

Values = Sequence[Any]

_LONG_END, _DIGITS = 2**63, 38
_KINDS: tuple[tuple[type, str], ...] = (  # a class comes before those it is made of
    (bool, "boolean"), (int, "long"), (float, "double"), (str, "string"), (Decimal, "decimal"), (datetime, "moment"),
    (date, "date"), (time, "time"), (timedelta, "duration"), (UUID, "uuid"),
    (np.datetime64, "moment"), (np.timedelta64, "duration"),
    (bytes, "binary"), (bytearray, "binary"), (memoryview, "binary"), (Mapping, "record"),
    (list, "list"), (tuple, "list"), (np.ndarray, "list"),
)  # fmt: skip
_FINER = ("ns", "ps", "fs", "as")  # numpy's units below a microsecond
_NULLS = ("NoneType", "NaTType", "NAType")  # None, and those of pandas
_ARROW: dict[str, pa.DataType | None] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "whole": pa.decimal128(_DIGITS, 0),
    "huge": pa.string(),
    "double": pa.float64(),
    "string": pa.string(),
    "decimal": None,  # of as many digits as there are
    "instant": pa.timestamp("us", "UTC"),
    "fine instant": pa.timestamp("ns", "UTC"),
    "moment": pa.timestamp("us"),
    "fine moment": pa.timestamp("ns"),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
    "fine duration": pa.duration("ns"),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
}


class TypedValues(NamedTuple):
    """Values of one type; null for the others.

    Attributes:
        overflow: the type counts only if it has values.
    """

    type: Type
    array: pa.Array
    overflow: bool = False


def record_columns(records: Sequence[Mapping[str, Any]]) -> tuple[Struct, pa.RecordBatch]:
    """The columns of some records, and their types.

    Raises UsageError for a value that no table has, with its path.
    """
    return with_columns([(key, columns_of(values, (key,))) for key, values in _by_key(records, ())])


def with_columns(keys: Iterable[tuple[str, Sequence[TypedValues]]]) -> tuple[Struct, pa.RecordBatch]:
    """The columns of each key side by side, and their types."""
    columns = [(key, column) for key, typed in keys for column in typed]
    struct = Struct(tuple(Field(key, c.type, doc=OVERFLOW if c.overflow else None) for key, c in columns))
    return struct, pa.RecordBatch.from_arrays([c.array for _, c in columns], [f.name for f in struct.fields])


def columns_of(values: Values, path: Path) -> list[TypedValues]:
    """The columns of some values, one for each type.

    Args:
        path: where they are, for errors.

    >>> [(str(c.type), c.array.to_pylist()) for c in columns_of([1, "x", None], ("a",))]
    [('long', [1, None, None]), ('string', [None, 'x', None])]
    """
    classes = set(map(type, values))
    if any(issubclass(cls, (np.generic, np.ndarray)) for cls in classes):
        values = list(map(_of_numpy, values))
        classes = set(map(type, values))
    if any(cls.__name__ in _NULLS[1:] for cls in classes):
        values = [None if type(v).__name__ in _NULLS else v for v in values]
    kinds = {_kind(cls, path) for cls in classes} - {None}
    if not kinds:
        return [TypedValues(VOID, pa.nulls(len(values)))]
    # Of these three the value, not the class alone, decides the type.
    if len(kinds) == 1 and not kinds & {"long", "moment", "duration"}:
        return _of_kind(values, str(kinds.pop()), path)
    return _merged(_of_kinds(values, [_exact_kind(value, path) for value in values], path))


def _of_numpy(value: Any) -> Any:
    """A value of numpy's as Python's own. Moments and durations stay that Python has none for."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.void) and value.dtype.names:
        return {name: value[name] for name in value.dtype.names}
    if not isinstance(value, (np.datetime64, np.timedelta64)):
        return value.item() if isinstance(value, np.generic) else value
    if np.isnat(value):
        return None
    if np.datetime_data(value.dtype)[0] in _FINER:
        value = value.astype(f"{value.dtype.kind}8[ns]")
        # Python has microseconds only; what is finer stays numpy's, so that no digit goes.
        micros = value.astype(f"{value.dtype.kind}8[us]")
        value = micros if micros == value else value
    plain = value.item()
    return value if isinstance(plain, int) else plain


def _by_key(records: Sequence[Mapping[str, Any] | None], path: Path) -> Iterator[tuple[str, Values]]:
    for key in dict.fromkeys(chain.from_iterable(record for record in records if record is not None)):
        if not isinstance(key, str):
            raise UsageError(
                f"{dotted((*path, str(key)))}: a key of type {type(key).__name__}", "convert it to text"
            )
        yield key, [None if record is None else record.get(key) for record in records]


def _kind(cls: type, path: Path) -> str | None:
    kind = _known_kind(cls)
    if kind == "":
        raise UsageError(
            f"{dotted(path)}: a value of type {cls.__name__} cannot be stored in a table",
            hint="convert it to text",
        )
    return kind


@cache
def _known_kind(cls: type) -> str | None:
    """The kind of a class's values; None if it is no kind of value, empty if no table has such values."""
    if cls.__name__ in _NULLS:
        return None
    return next((kind for kind_class, kind in _KINDS if issubclass(cls, kind_class)), "")


def _exact_kind(value: Any, path: Path) -> str | None:
    """The kind, which depends on the size of whole numbers, and on the zone and precision of moments."""
    kind = _kind(type(value), path)
    if kind == "long":
        return kind if -_LONG_END <= value < _LONG_END else "whole" if abs(value) < 10**_DIGITS else "huge"
    if kind == "moment":
        is_fine = isinstance(value, np.datetime64) or getattr(value, "nanosecond", 0) > 0
        name = "instant" if getattr(value, "tzinfo", None) is not None else "moment"
        return f"fine {name}" if is_fine else name
    if kind == "duration":
        is_fine = isinstance(value, np.timedelta64) or getattr(value, "nanoseconds", 0) > 0
        return "fine duration" if is_fine else kind
    return kind


def _of_kinds(values: Values, kinds: Sequence[str | None], path: Path) -> Iterator[TypedValues]:
    for kind in dict.fromkeys(kind for kind in kinds if kind is not None):
        same_kind = [value if k == kind else None for value, k in zip(values, kinds, strict=True)]
        yield from _of_kind(same_kind, kind, path)


def _of_kind(values: Values, kind: str, path: Path) -> list[TypedValues]:
    """The columns of values that are all of one kind, or None."""
    if kind == "record":
        return [_records(values, path)]
    if kind == "list":
        return _lists(values, path)
    if kind == "huge":
        values = [None if value is None else str(value) for value in values]
    try:
        array = pa.array(values, _ARROW[kind], from_pandas=False)
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        raise UsageError(f"{dotted(path)}: {error}", hint="change that value, or drop the field") from error
    return [TypedValues(type_, read(array), overflow) for type_, read, overflow in readings(array.type, path)]


def _records(values: Values, path: Path) -> TypedValues:
    struct, batch = with_columns(
        [(key, columns_of(items, (*path, key))) for key, items in _by_key(values, path)]
    )
    if not struct.fields:
        return TypedValues(
            struct, pa.array([None if value is None else {} for value in values], pa.struct([]))
        )
    fields = [pa.field(f.name, a.type) for f, a in zip(struct.fields, batch.columns, strict=True)]
    mask = pa.array([value is None for value in values])
    return TypedValues(struct, pa.StructArray.from_arrays(batch.columns, fields=fields, mask=mask))


def _lists(values: Values, path: Path) -> list[TypedValues]:
    """The columns of lists, one for each type of their elements.

    Each list has all positions in each column, null where the value is in another one.
    """
    sizes = [0 if value is None else len(value) for value in values]
    items = [item for value in values if value is not None for item in value]
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int32))
    mask = pa.array([value is None for value in values])
    return [
        TypedValues(List(type_), pa.ListArray.from_arrays(offsets, array, mask=mask), overflow)
        for type_, array, overflow in columns_of(items, (*path, "element"))
    ]


def _merged(columns: Iterable[TypedValues]) -> list[TypedValues]:
    """Merge the columns of the same type."""
    by_type: dict[Type, TypedValues] = {}
    for column in columns:
        same_type = by_type.get(column.type)
        if same_type is None:
            by_type[column.type] = column
        else:
            array = pc.coalesce(same_type.array, column.array)
            by_type[column.type] = TypedValues(column.type, array, same_type.overflow and column.overflow)
    return list(by_type.values())


_ROWS = 2**16  # per batch
_WIDE = pa.decimal256(39, 0)
_WAITING = pa.schema({"raw": pa.binary(), "why": pa.string()})
Batches: TypeAlias = "Iterator[tuple[Struct, Rows]]"


@dataclass(slots=True)
class InMemoryReader:
    """Rows of one struct in a temporary file of Arrow's.

    Attributes:
        sizes: the bytes of each batch there.
        refused: the batches whose faulty rows have a file of their own.
    """

    struct: Struct
    path: str
    label: str = ""
    sizes: list[int] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        return [self.path] * len(self.sizes)

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of a batch."""
        with pa.memory_map(self.path) as file:
            yield Rows(pa.ipc.open_file(file).get_batch(part), "", self._rejects(part))

    def add(self, rows: Rows, writer: pa.RecordBatchWriter) -> None:
        """Write another batch."""
        if rows.rejects:
            # Bytes that are no text have no place in a batch of the readers' types, so they have a file of
            # their own.
            faulty = [pa.array([getattr(r, f.name) for r in rows.rejects], f.type) for f in _WAITING]
            with pa.ipc.new_file(self._refused(len(self.sizes)), _WAITING) as file:
                file.write_batch(pa.RecordBatch.from_arrays(faulty, schema=_WAITING))
            self.refused.add(len(self.sizes))
        writer.write_batch(rows.batch)
        self.sizes.append(rows.batch.nbytes)

    def _rejects(self, part: int) -> list[Reject]:
        if part not in self.refused:
            return []
        with pa.memory_map(self._refused(part)) as file:
            rows = pa.ipc.open_file(file).read_all().to_pylist()
        return [Reject(Origin(), row["raw"], row["why"]) for row in rows]

    def _refused(self, part: int) -> str:
        return f"{self.path}-refused-{part}"


@contextmanager
def written(data: Any, room: pathlib.Path | None = None) -> Iterator[list[InMemoryReader]]:
    """The data in temporary files, with a reader for the rows of each struct; at the end they are deleted.

    Args:
        room: a folder for them, as `place_of` returns it.

    Raises UsageError for an item that is no record, and for a value that no table has; SetupError if there is
    no room.
    """
    with folder_in(room) as folder:
        yield _write(_batches(data), folder)


@contextmanager
def written_as_text(
    records: Iterable[Mapping[Any, Any]], room: pathlib.Path | None = None
) -> Iterator[tuple[str, Iterator[Mapping[Any, Any]] | None]]:
    """The records as lines of JSON in a temporary file, which at the end is deleted.

    Yields its path, and None; or, where a record holds a value that JSON does not have, such as a datetime,
    all records again, to be read while the file is there. Raises SetupError if there is no room.
    """
    records = iter(records)
    with folder_in(room) as folder:
        path = folder / "records.jsonl"
        others: Iterator[Mapping[Any, Any]] | None = None
        with path.open("wb") as file:
            for record in records:
                try:
                    line = _ENCODER.encode(_plain(record))
                # The whole call becomes typed rows, since whether a field's texts are dates is asked of all
                # of them together.
                except (_NotJson, UnicodeEncodeError):
                    # The iterator has given these records already, so they are read back from the file.
                    others = chain(_records_of(path), [record], records)
                    break
                file.write(line + b"\n")
        yield str(path), others


_ENCODER = json.Encoder(decimal_format="number")
_LONG = 2**63


class _NotJson(Exception):
    """A value of Python's that JSON does not have."""


def _plain(value: Any) -> Any:
    """A value that JSON has without loss: numbers of any size, texts, objects and lists. Raises _NotJson.

    Classes made of these, such as an enumeration of texts, have meanings of their own.
    """
    cls = type(value)
    if cls is str or cls is bool or value is None:
        return value
    if cls is int:
        # msgspec writes integers of 64 bits at most, and decimals of any size as numbers.
        return value if -_LONG <= value < _LONG else Decimal(value)
    if cls is float and isfinite(value):
        return value
    if isinstance(value, Mapping):
        if not all(type(key) is str for key in value):
            raise _NotJson
        return {key: _plain(item) for key, item in value.items()}
    if cls is list or cls is tuple:
        return [_plain(item) for item in value]
    raise _NotJson


def _records_of(path: pathlib.Path) -> Iterator[Mapping[Any, Any]]:
    """The records of a file of `written_as_text`, as they were before."""
    with path.open("rb") as file:
        yield from map(stdlib_json.loads, file)


def _write(batches: Batches, folder: pathlib.Path) -> list[InMemoryReader]:
    readers: dict[Struct, InMemoryReader] = {}
    writers: dict[Struct, pa.RecordBatchWriter] = {}
    with ExitStack() as stack:
        for struct, rows in batches:
            if struct not in readers:
                readers[struct] = InMemoryReader(struct, str(folder / str(len(readers))))
                file = pa.ipc.new_file(readers[struct].path, rows.batch.schema)
                writers[struct] = stack.enter_context(file)
            try:
                readers[struct].add(rows, writers[struct])
            except OSError as error:
                raise SetupError(
                    f"the data cannot be written to {folder}: {error}",
                    hint="a batch needs disk space there; set TMPDIR to use another folder",
                ) from error
    return list(readers.values())


def _batches(data: Any) -> Batches:
    if not (is_pandas(data) or is_polars_frame(data)):
        return _of_arrow(data) if is_table(data) else _of_records(data)
    frames = _of_pandas(data) if is_pandas(data) else _of_polars(data)
    return ((struct, checked(batch, struct, "")) for struct, batch in frames)


def _of_arrow(data: Any) -> Batches:
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            f"a {type(data).__name__} is not a table that Arrow can read: {error}",
            hint="pass a table with named columns",
        ) from error
    declared = Declared(reader.schema)
    for batch in reader:
        for start in range(0, batch.num_rows, _ROWS):
            yield declared.struct, read_checked(declared, batch.slice(start, _ROWS).columns, "")
    # An empty batch at the end, so that a table without rows still brings its columns.
    yield declared.struct, Rows(declared.read([pa.nulls(0, f.type) for f in reader.schema]), "")


def _of_records(data: Iterable[Mapping[Any, Any]]) -> Batches:
    records = iter(data)
    while rows := list(islice(records, _ROWS)):
        struct, batch = record_columns(rows)
        yield struct, Rows(batch, "")


def _of_polars(frame: Any) -> Iterator[tuple[Struct, pa.RecordBatch]]:
    """Its columns. Those of Python's objects are what the objects are: Arrow would get their addresses."""
    for part in frame.iter_slices(_ROWS) if len(frame) else [frame]:
        yield with_columns([(column.name, _of_polars_series(column)) for column in part.iter_columns()])


def _of_polars_series(values: Any) -> Sequence[TypedValues]:
    name, kind = values.name, str(values.dtype)
    if kind == "Object":
        return columns_of(values.to_list(), (name,))
    wide = _WIDE if kind in ("Int128", "UInt128") else None  # which Arrow has no integers for
    return _declared(
        lambda: pa.array(values.to_list(), wide) if wide else pa.chunked_array(values), name, kind
    )


def _of_pandas(frame: Any) -> Iterator[tuple[Struct, pa.RecordBatch]]:
    """Its columns, and the levels of its index that hold values."""
    if not hasattr(frame, "columns"):
        raise UsageError(f"a pandas {type(frame).__name__} is not a table", hint="use to_frame()")
    columns = [(name, frame.iloc[:, i]) for i, name in enumerate(column_names(frame.columns))]
    columns += [(name, values.to_series()) for name, values in levels(frame)]
    names = [name for name, _ in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"the DataFrame has more than one column named {twice[0]!r}", hint="rename one of them"
        )
    for start in range(0, max(1, len(frame)), _ROWS):
        yield with_columns(
            [(name, _of_series(column.iloc[start : start + _ROWS], name)) for name, column in columns]
        )


def _of_series(values: Any, name: str) -> Sequence[TypedValues]:
    """A column; one of objects by the types of its values."""
    if values.dtype == object:
        items = values.tolist()
        nulls = values.isna().tolist()
        return columns_of([None if null else item for item, null in zip(items, nulls, strict=True)], (name,))
    dense = values.sparse.to_dense() if str(values.dtype).startswith("Sparse[") else values
    return _declared(lambda: pa.array(dense, from_pandas=True), name, str(values.dtype))


def _declared(as_arrow: Callable[[], Any], name: str, kind: str) -> Sequence[TypedValues]:
    """A column by its type in Arrow.

    Args:
        kind: its type in the frame.
    """
    try:
        array = as_arrow()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(
            f"{dotted((name,))}: type {kind} cannot be stored in a table: {error}",
            hint="cast or drop the column",
        ) from error
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    declared = Declared(pa.schema([pa.field(name, array.type)]))
    batch = declared.read([array])
    return [
        TypedValues(f.type, column, f.doc is not None)
        for f, column in zip(declared.struct.fields, batch.columns, strict=True)
    ]
