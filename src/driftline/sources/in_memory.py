"""Sources that Python holds: DataFrames of pandas and Polars, Arrow's tables and readers, records as dicts.

An iterator yields its items once, but a batch is read several times, and by tasks. So all of it is first
written to temporary files of Arrow's, some rows at a time, as columns of the types that tables have.
"""

from __future__ import annotations

import json as stdlib_json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain, islice
from math import isfinite
from typing import Any, TypeAlias

import pyarrow as pa
from msgspec import json

from driftline.convert.declared import Declared
from driftline.convert.python_values import TypedValues, columns_of, record_columns, with_columns
from driftline.core.schema.types import Struct, dotted
from driftline.errors import SetupError, UsageError
from driftline.readers.columnar.parquet import column_names, levels
from driftline.readers.columnar.rows import Rows, checked, read_checked
from driftline.readers.rejects import Origin, Reject
from driftline.sources.given import is_pandas, is_polars_frame, is_table
from driftline.sources.spool import folder_in

_ROWS = 2**16  # per batch
_WIDE = pa.decimal256(39, 0)
_WAITING = pa.schema({"raw": pa.binary(), "why": pa.string()})
Batches: TypeAlias = "Iterator[tuple[Struct, Rows]]"


@dataclass(slots=True)
class InMemoryReader:
    """Rows of one struct in a temporary file of Arrow's.

    ``sizes``: the bytes of each batch there; ``refused``: the batches whose faulty rows have a file of their
    own.
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

    ``room``: a folder for them, as `place_of` returns it. Raises UsageError for an item that is no record,
    and for a value that no table has; SetupError if there is no room.
    """
    with folder_in(room) as folder:
        yield _write(_batches(data), folder)


@contextmanager
def written_as_text(
    records: Iterable[Mapping[Any, Any]], room: pathlib.Path | None = None
) -> Iterator[tuple[str, Iterator[Mapping[Any, Any]] | None]]:
    """The records as lines of JSON in a temporary file, which at the end is deleted.

    Yields its path, and None; or, where a record holds a value that JSON does not have, such as a datetime,
    all records anew, to be read while the file is there. Raises SetupError if there is no room.
    """
    records = iter(records)
    with folder_in(room) as folder:
        path = folder / "records.jsonl"
        others: Iterator[Mapping[Any, Any]] | None = None
        with path.open("wb") as file:
            for record in records:
                try:
                    line = _ENCODER.encode(_plain(record))
                except (_NotJson, UnicodeEncodeError):
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
    """A column by its type in Arrow. ``kind``: its type in the frame."""
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
