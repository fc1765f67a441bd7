"""Reads Parquet files by row groups, with pandas' indexes and old timestamps."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import accumulate, chain, groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from driftline.convert import Converter
from driftline.convert.declared import Declared, entries_of, leaf_readings
from driftline.core.schema.types import Struct, dotted
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError, UsageError
from driftline.observe.expect import ExpectedField
from driftline.observe.observation import Observation
from driftline.readers.columnar.orc import JulianCalendar, calendar_of
from driftline.readers.columnar.rows import (
    AcceptedRows,
    ColumnGroup,
    ColumnReader,
    OpenRows,
    Rows,
    RowsObserver,
    read_checked,
    small_together,
)
from driftline.readers.task import AdmissionTerms, TaskReader
from driftline.runtime.duckdb import alone
from driftline.runtime.failure import WHOLE
from driftline.runtime.stores import answer, is_stored, mapped, native

if TYPE_CHECKING:
    import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class NamedRange:
    """An index with a name whose values are a range: pandas writes their rule into the file, and no column.

    ``pd.DataFrame(…).set_index("id")`` has one where the ids follow each other.
    """

    name: str
    start: int
    step: int

    @property
    def field(self) -> pa.Field:
        """Its column."""
        return pa.field(self.name, pa.int64())

    def values(self, row: int, count: int) -> pa.Array:
        """Its values in ``count`` rows from ``row`` on, counted from 0."""
        start = self.start + row * self.step
        return pa.array(range(start, start + count * self.step, self.step), pa.int64())


def named_range(
    metadata: Mapping[bytes, bytes] | None, columns: Collection[str], rows: int
) -> NamedRange | None:
    """Return the range index of a file; None if there is none, or it was made for other rows."""
    try:
        (index,) = json.loads((metadata or {})[b"pandas"])["index_columns"]
        name, start, stop, step = (index[key] for key in ("name", "start", "stop", "step"))
        fits = len(range(start, stop, step)) == rows
    except (KeyError, TypeError, ValueError, OverflowError):  # no frame of pandas, or a column is its index
        return None
    # Whether the ids of `set_index("id")` follow each other must not decide if the table has them.
    return NamedRange(name, start, step) if isinstance(name, str) and name not in columns and fits else None


def levels(frame: Any) -> list[tuple[str, Any]]:
    """The levels of a frame's index that hold values, named as pandas names them in a file.

    Positions, a range without a name, are none.
    """
    # An index that holds values is data, from memory and from Parquet alike.
    index = frame.index
    if index.nlevels == 1 and index.name is None and type(index).__name__ == "RangeIndex":
        return []
    columns = set(column_names(frame.columns))
    out: list[tuple[str, Any]] = []
    for number, name in enumerate(index.names):
        (text,) = column_names([name])
        taken = name is None or text in columns or text in dict(out)
        out.append((f"__index_level_{number}__" if taken else text, index.get_level_values(number)))
    return out


def column_names(names: Sequence[Any]) -> list[str]:
    """Names of columns as texts: `('p', 1)` is `('p', '1')`, as pandas has it in a file."""
    return [_text(name) for name in names]


def _text(name: Any) -> str:
    if isinstance(name, bytes):
        return name.decode(errors="backslashreplace")
    return str(tuple(map(_text, name)) if isinstance(name, tuple) else name)


_UNENCRYPTED = "write it without encryption: driftline has no keys of Parquet files"
_AGAIN = "write the file again: its footer is whole, and these values are not what it says"
# What Arrow says of a footer that is there, and what to do about it.
_HINTS = {
    "Map keys": "write its maps with required keys, as the format says",
    "cannot be applied to": "write the file again: its schema says of a column what cannot be",
    "Invalid logical type": "write the file again: its schema says of a column what cannot be",
}
# Annotations that a column with columns inside may have
_OF_GROUPS = re.compile("LIST|MAP|VARIANT", re.IGNORECASE)
_TEXT = pa.string()
_NANOS, _MICROS = pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")


class OldTimestamps:
    """The columns of a file that have old timestamps.

    Attributes:
        schema: the file's, where these are instants in nanoseconds, and the words of an ENUM are text.
    """

    def __init__(self, file: pq.ParquetFile) -> None:
        leaves = [file.schema.column(i) for i in range(len(file.schema))]
        columns = _by_column(
            _with_leaves(file.schema_arrow), [leaf.physical_type == "INT96" for leaf in leaves]
        )
        self._old = {number: flags for number, (_, flags) in enumerate(columns) if any(flags)}
        schema = pa.schema([f.with_type(_replaced(f.type, iter(flags), _NANOS)) for f, flags in columns])
        # Arrow has the words of an ENUM as bytes.
        words = _by_column(schema, [leaf.converted_type == "ENUM" for leaf in leaves])
        self.schema = pa.schema([f.with_type(_replaced(f.type, iter(flags), _TEXT)) for f, flags in words])

    @property
    def columns(self) -> Sequence[int]:
        """The numbers of the columns that have some."""
        return list(self._old)

    def exact(self, number: int, micros: pa.Array, nanos: pa.Array) -> pa.Array:
        """A column that was read both ways, in the way that is exact. Raises DataError if neither is."""
        old = self._old[number]
        # Only both readings together show which one is exact.
        pairs = list(zip(_old_values(micros, iter(old)), _old_values(nanos, iter(old)), strict=True))
        if all((fine // 1000 == wide).all() for wide, fine in pairs):
            return nanos.cast(_replaced(nanos.type, iter(old), _NANOS))
        if any((fine != wide * 1000).any() for wide, fine in pairs):  # both wrap around
            raise DataError(
                f"{self.schema.names[number]}: INT96 has a day that no timestamp reaches, or timestamps finer than "
                "a microsecond beside some beyond the years 1678 to 2262: no reading of all is exact",
                "write the file with timestamps in microseconds",
            )
        return micros.cast(_replaced(micros.type, iter(old), _MICROS))


def _by_column(fields: Iterable[pa.Field], flags: Iterable[bool]) -> list[tuple[pa.Field, list[bool]]]:
    """The columns, each with the flags of its leaves."""
    of_leaves = iter(flags)
    return [(f, list(islice(of_leaves, _leaves(f.type)))) for f in fields]


def _with_leaves(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields without groups that nothing is in, which Arrow's reader leaves out."""
    return [
        f.with_type(pa.struct(_with_leaves(f.type))) if pa.types.is_struct(f.type) else f
        for f in fields
        if _leaves(f.type)
    ]


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    )


def _leaves(type_: pa.DataType) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        return _leaves(type_.storage_type)
    if pa.types.is_struct(type_):
        return sum(_leaves(f.type) for f in type_)
    if pa.types.is_map(type_):
        return _leaves(type_.key_type) + _leaves(type_.item_type)
    return _leaves(type_.value_type) if _is_list(type_) else 1


def _replaced(type_: pa.DataType, old: Iterator[bool], instead: pa.DataType) -> pa.DataType:
    """The type with ``instead`` for each of its leaves, in order, that is an ``old`` timestamp."""

    def inner(field: pa.Field) -> pa.Field:
        """The field, with the types inside it replaced."""
        return field.with_type(_replaced(field.type, old, instead))

    if isinstance(type_, pa.BaseExtensionType) and _leaves(type_) > 1:
        return [next(old) for _ in range(_leaves(type_))] and type_
    if pa.types.is_struct(type_):
        return pa.struct([inner(f) for f in type_])
    if pa.types.is_map(type_):
        return pa.map_(inner(type_.key_field), inner(type_.item_field))
    if pa.types.is_large_list(type_):
        return pa.large_list(inner(type_.value_field))
    if _is_list(type_):
        return pa.list_(inner(type_.value_field), getattr(type_, "list_size", -1))
    return instead if next(old) else type_


def _old_values(array: pa.Array, old: Iterator[bool]) -> list[NDArray[np.int64]]:
    """The numbers of each leaf that is an ``old`` timestamp."""
    type_ = array.type
    if pa.types.is_struct(type_):
        valid = array.filter(array.is_valid())
        return [leaf for i in range(type_.num_fields) for leaf in _old_values(valid.field(i), old)]
    if pa.types.is_map(type_):
        return _old_values(entries_of(array).flatten(), old)
    if _is_list(type_):
        return _old_values(array.flatten(), old)
    return [array.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False)] if next(old) else []


_BATCH = 16 * 2**20  # bytes per batch of rows, about
_ROWS = 2**17  # per batch, at most


class RowGroup(NamedTuple):
    """A row group of a file.

    Attributes:
        calendar: the calendar that its dates are counted by, if not today's.
        first: the number of its first row in the file.
        labels: an index of pandas that is no column of it.
    """

    path: str
    number: int
    calendar: JulianCalendar | None
    first: int = 1
    labels: NamedRange | None = None

    def __str__(self) -> str:
        return f"{self.path}: row group {self.number}"


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Parquet files of one schema.

    Attributes:
        groups: the row group that each part is.
    """

    struct: Struct
    label: str
    groups: Sequence[RowGroup]
    sizes: Sequence[int]

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        return [group.path for group in self.groups]

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of a row group. Raises DataError where the file is broken."""
        group = self.groups[part]
        try:
            yield from _rows(group)
        except DataError as error:
            raise DataError(
                error.message if group.path in error.message else f"{group}: {error.message}", error.hint
            ) from error
        except (OSError, ValueError) as error:  # pyarrow's are among these
            raise answer(group.path, error) or _broken(group, error) from error


def _broken(group: RowGroup, error: Exception) -> DataError:
    """The error to report for a row group: the first of its columns that alone cannot be read is named."""
    if _is_encrypted(error):
        return DataError(f"{group.path}: it is encrypted", _UNENCRYPTED)
    with _opened(group.path) as file:
        for name in file.schema_arrow.names if not any("." in n for n in file.schema_arrow.names) else ():
            try:
                # Read once more, column by column, only after an error: Arrow names no column.
                file.read_row_group(group.number, columns=[name], use_threads=False)
            except (OSError, ValueError) as fault:
                return DataError(f"{group}: {name}: cannot be read: {fault}", _AGAIN)
    return DataError(f"{group}: cannot be read: {error}", WHOLE)


def _is_encrypted(error: Exception) -> bool:
    return bool(re.search("encrypted metadata|[Dd]ecrypt", str(error)))


def _rows(group: RowGroup) -> Iterator[Rows]:
    with _opened(group.path) as file:
        old = OldTimestamps(file)
        declared = _declared(old, group.calendar, group.labels)
        metadata = file.metadata.row_group(group.number)
        row = max(1, metadata.total_byte_size // max(1, metadata.num_rows))
        # By the row group's own bytes a row, so that wide rows come in small batches.
        size = max(1, min(_ROWS, _BATCH // row))
        batches = file.iter_batches(size, row_groups=[group.number], use_threads=False)
        if old.columns:
            batches = _with_old(batches, group, size, old)
        count = 0
        for batch in batches:
            place, first = partial(_place, group, count), group.first + count
            count += batch.num_rows
            columns = batch.columns
            if group.labels is not None:
                columns.append(group.labels.values(first - 1, batch.num_rows))
            yield read_checked(declared, columns, group.path, place, first)
    if count != metadata.num_rows:
        # Arrow passes over what its pages do not hold, without an error.
        raise DataError(
            f"{group}: it holds {count} rows, but the footer says {metadata.num_rows}",
            hint="write the file again: its missing rows cannot be recovered",
        )


def _place(group: RowGroup, before: int, row: int) -> str:
    return f"row group {group.number}, row {before + row}: "


def _declared(old: OldTimestamps, calendar: JulianCalendar | None, index: NamedRange | None) -> Declared:
    schema = old.schema if index is None else old.schema.append(index.field)
    return Declared(schema, calendar.leaves if calendar else leaf_readings)


def _with_old(
    batches: Iterator[pa.RecordBatch], group: RowGroup, size: int, old: OldTimestamps
) -> Iterator[pa.RecordBatch]:
    """The batches with their old timestamps as they are exact, which takes reading them twice."""
    names = [old.schema.names[number] for number in old.columns]
    # Names with a dot would be taken for paths.
    chosen = None if any("." in name for name in names) else names
    with _opened(group.path, "ns") as file:
        nanos = file.iter_batches(size, row_groups=[group.number], columns=chosen, use_threads=False)
        for batch, fine in zip(batches, nanos, strict=True):
            columns = batch.columns
            for place, number in enumerate(old.columns):
                columns[number] = old.exact(number, columns[number], fine.column(place if chosen else number))
            yield pa.RecordBatch.from_arrays(columns, names=old.schema.names)


def parquet_readers(files: Sequence[str]) -> list[ParquetReader]:
    """A reader for the files of each schema, in order.

    Raises UsageError for a file that cannot be read, or has a column that no table can have.
    """
    parts: dict[Struct, list[tuple[RowGroup, int]]] = {}
    labels: dict[Struct, str] = {}
    for path, (struct, groups) in zip(files, mapped(_footer, files), strict=True):
        parts.setdefault(struct, []).extend(groups)
        labels.setdefault(struct, path)
    return [
        ParquetReader(struct, labels[struct], [group for group, _ in groups], [size for _, size in groups])
        for struct, groups in parts.items()
    ]


def _footer(path: str) -> tuple[Struct, list[tuple[RowGroup, int]]]:
    """The types of a file, and its row groups with their sizes."""
    try:
        with _opened(path) as file:
            metadata = file.metadata
            calendar = calendar_of(metadata.metadata)
            index = named_range(metadata.metadata, file.schema_arrow.names, metadata.num_rows)
            parts = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
            firsts = accumulate((part.num_rows for part in parts), initial=1)
            groups = [
                (RowGroup(path, i, calendar, first, index), part.total_byte_size)
                for i, (part, first) in enumerate(zip(parts, firsts, strict=False))
            ]
            return _declared(OldTimestamps(file), calendar, index).struct, groups
    except UsageError as error:
        raise UsageError(f"{path}: {error}", error.hint) from error
    except (OSError, ValueError) as error:  # pyarrow's are among these
        if _is_encrypted(error):
            raise UsageError(f"{path}: it is encrypted", _UNENCRYPTED) from error
        hint = next((hint for sign, hint in _HINTS.items() if sign in str(error)), WHOLE)
        column = "" if hint == WHOLE else _misdeclared(path)
        raise UsageError(f"{path}: {column}cannot be read as parquet: {error}", hint) from error


def _misdeclared(path: str) -> str:
    """The first column that a footer declares as what it cannot be, with a colon behind it.

    Empty if it is not found, or DuckDB is not installed: Arrow does not open such a footer.
    """
    if find_spec("duckdb") is None or is_stored(path) or set("*?[") & set(path):
        return ""
    import duckdb

    columns = "name, repetition_type, num_children, concat_ws(' ', converted_type, logical_type)"
    try:
        with alone() as connection:
            nodes = connection.execute(f"SELECT {columns} FROM parquet_schema(?)", [path]).fetchall()
    except (duckdb.Error, UnicodeError):
        return ""
    names: list[str] = []
    left: list[int] = []  # columns to come inside each of these
    types: list[str] = []
    for name, repetition, children, type_ in nodes:
        while left and not left[-1]:
            del names[-1], left[-1], types[-1]
        left[-1:] = [count - 1 for count in left[-1:]] + [children or 0]
        names, types = [*names, name], [*types, type_]
        is_key = name == "key" and "MAP" in "".join(types[-3:-2]).upper()
        if (children and type_ and not _OF_GROUPS.search(type_)) or (is_key and repetition == "OPTIONAL"):
            return f"{dotted(tuple(names[1:]))}: "
    return ""


def _opened(path: str, old_as: str = "us") -> pq.ParquetFile:
    """The file; ``old_as``: the unit that its old timestamps are read in."""
    return pq.ParquetFile(
        native(path),
        coerce_int96_timestamp_unit=old_as,
        # Arrow ignores the checksums of pages by default, and would read damaged values.
        page_checksum_verification=True,
        # A store is asked for the columns of a row group together; on a disk that would only take memory.
        pre_buffer=is_stored(path),
    )


@dataclass(frozen=True, slots=True)
class FoundReaders:
    """Readers of files.

    Attributes:
        notes: for a person, on how the files are read.
    """

    readers: Sequence[ColumnReader]
    notes: Sequence[str] = ()


class ReaderFinder(Protocol):
    """Finds the readers of files for a table of which so much is known, by its settings."""

    def __call__(
        self, expected: ExpectedField, settings: TableSettings, before: FoundReaders | None
    ) -> FoundReaders:
        """Find the readers; ``before``: those of an earlier state of the table."""
        ...


class ReaderPart(NamedTuple):
    """A part of one of the readers."""

    reader: int
    part: int
    size: int


# What was observed, by the number of the reader
Seen: TypeAlias = Mapping[int, Observation]


@dataclass(frozen=True, slots=True)
class PartReader(TaskReader[int, ColumnGroup, AcceptedRows, Seen]):
    """Reads parts of files of columns.

    Attributes:
        parts: all of them.
        shares: the numbers of those of each task.
    """

    readers: Sequence[ColumnReader]
    parts: Sequence[ReaderPart]
    shares: Sequence[Sequence[int]]
    terms: AdmissionTerms
    converter: Converter | None = None

    @property
    def converts(self) -> bool:
        """True if there is a plan."""
        return self.converter is not None

    def open(self, share: int) -> OpenParts:
        """Open the parts of one task."""
        return OpenParts(self, self.shares[share])


class OpenParts(OpenRows):
    """The parts of one task."""

    def __init__(self, reader: PartReader, share: Sequence[int]) -> None:
        super().__init__(reader.terms, reader.converter)
        self._reader, self._share = reader, share
        self._observers: dict[int, RowsObserver] = {}

    def groups(self) -> Iterator[ColumnGroup]:
        """Read the rows; small parts of one reader together."""
        reader = self._reader
        for number, parts in groupby(self._share, lambda part: reader.parts[part].reader):
            rows = chain.from_iterable(reader.readers[number].rows(reader.parts[part].part) for part in parts)
            for group in small_together(rows):
                yield ColumnGroup(self.observer(number), group)

    def observer(self, number: int) -> RowsObserver:
        """The observer for the rows of a reader."""
        if number not in self._observers:
            reader = self._reader.readers[number]
            self._observers[number] = RowsObserver(reader.struct, reader.label, self._reader.terms)
        return self._observers[number]

    def observed(self) -> Seen:
        """The observations by reader."""
        return {number: observer.result() for number, observer in self._observers.items()}
