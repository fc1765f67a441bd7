"""Distributes rows to partitions and sorts them, through files between two rounds of tasks.

A task of the first round writes its rows in runs, each ordered by partition and sort keys, and reports each
slice: the rows of one partition in one run. The driver forms parts of even size, and a task of the second
round reads the slices of its parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import total_ordering
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core.schema.definition import IDENTITY, TIMES, VOID, Transform
from driftline.core.schema.types import Path, Primitive
from driftline.tasks.batch_folder import BatchFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint32]

# Murmur3 for 32 bits, which Iceberg's spec (appendix B) demands of buckets. It runs over whole columns:
# pyiceberg-core has the same hashes, at 40 MB unpacked.
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_WORD = 4  # bytes


def hashes(column: pa.Array, type_: Primitive) -> NDArray[np.int64]:
    """Return the hash of each value, from 0 to 2**31 - 1; a null has any.

    >>> hashes(pa.array([34], pa.int32()), Primitive("int")).tolist()
    [2017239379]
    """
    match type_.name:
        case "int" | "date":
            # An int hashes as a long does, so that a column that is widened keeps its buckets.
            words = _of_longs(column.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64))
        case "long" | "time" | "timestamp" | "timestamp_ntz":
            words = _of_longs(column.cast(pa.int64()).fill_null(0).to_numpy())
        case "decimal":
            words = _of_bytes(pa.array([_minimal(value) for value in column.to_pylist()], pa.binary()))
        case _:
            words = _of_bytes(column.cast(pa.binary()))
    # Iceberg takes the remainder of the hash without its sign bit.
    return (words & np.uint32(0x7FFFFFFF)).astype(np.int64)


def _of_longs(values: NDArray[np.int64]) -> Words:
    halves = values.view(np.uint64)
    out = np.zeros(len(values), np.uint32)
    for half in (halves & np.uint64(0xFFFFFFFF), halves >> np.uint64(32)):
        out = _mixed(out, half.astype(np.uint32))
    return _finished(out, np.full(len(values), 8, np.uint32))


def _of_bytes(column: pa.Array) -> Words:
    column = column.fill_null(b"")
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(
        np.int64
    )
    lengths = np.diff(starts)
    # Behind the last value there are zeros, as behind the end of each value's last word.
    values = np.concatenate([np.frombuffer(data or b"", np.uint8), np.zeros(_WORD, np.uint8)])
    out = np.zeros(len(column), np.uint32)
    # One step takes the same word of all values: as many steps as the longest value has words.
    for place in range(0, int(lengths.max(initial=0)), _WORD):
        rows = np.flatnonzero(lengths > place)
        position, remaining = starts[rows] + place, lengths[rows] - place
        word = np.zeros(len(rows), np.uint32)
        for i in range(_WORD):
            byte = np.where(remaining > i, values[position + i], 0).astype(np.uint32)
            word |= byte << np.uint32(8 * i)
        full_words = remaining >= _WORD
        # Murmur3 neither rotates nor multiplies the state for a last word that is not whole.
        out[rows] = np.where(full_words, _mixed(out[rows], word), out[rows] ^ _scrambled(word))
    return _finished(out, lengths.astype(np.uint32))


def _scrambled(word: Words) -> Words:
    return _rotated(word * _C1, 15) * _C2


def _mixed(state: Words, word: Words) -> Words:
    return _rotated(state ^ _scrambled(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(state: Words, lengths: Words) -> Words:
    state = state ^ lengths
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _rotated(word: Words, bits: int) -> Words:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))


def unscaled(value: Decimal) -> int:
    """A decimal's digits as an integer.

    >>> unscaled(Decimal("-1.50"))
    -150
    """
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _minimal(value: Decimal | None) -> bytes | None:
    """The unscaled value in as few bytes as hold it, the highest first."""
    if value is None:
        return None
    integer = unscaled(value)
    return integer.to_bytes((integer + (integer < 0)).bit_length() // 8 + 1, "big", signed=True)


# The numpy unit that each transform counts in.
_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_CALENDAR = {"year": pc.year, "month": pc.month, "day": pc.day, "hour": pc.hour}


@dataclass(frozen=True, slots=True)
class Key:
    """A partition or sort key: a column and the transform of its values.

    Attributes:
        path: the path of the column.
        calendar: parts of a date are those of the calendar, as in DuckLake; else they count from 1970.
        descending: the order of a sort key.
        nulls_first: the place of nulls in a sort key.
    """

    path: Path
    type: Primitive
    transform: Transform = IDENTITY
    calendar: bool = False
    descending: bool = False
    nulls_first: bool = True

    @property
    def parts(self) -> bool:
        """True if rows can be partitioned by it: all formats mean the same by it, for every value."""
        return self.transform == VOID or self.type.name in _TAKES.get(self.transform.name, ())

    @property
    def sorts(self) -> bool:
        """True if rows can be sorted by it."""
        return self.parts or (self.transform == IDENTITY and self.type.name in _FLOATS)

    def values(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """The key of each row: dates as days, instants as microseconds since 1970."""
        if self.transform == VOID:
            return pa.nulls(len(rows), pa.int32())
        column = rows.column(self.path[0])
        for name in self.path[1:]:
            column = pc.struct_field(column, name)  # null where the struct is
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        name, n = self.transform.name, self.transform.n or 1
        if name == "bucket":
            return _numbers(hashes(column, self.type) % n, column)
        if name == "truncate":
            return _truncated(column, n)
        if name in TIMES:
            return (
                _CALENDAR[name](column).cast(pa.int32()) if self.calendar else _counted(column, _UNITS[name])
            )
        if self.type.name in _FLOATS:
            return _ordered(column)
        plain = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}
        return column.cast(plain.get(self.type.name, column.type))


_FLOATS = ("float", "double")  # formats differ about zeros and NaNs as keys
_MOMENTS = ("timestamp", "timestamp_ntz")
_CUT = ("int", "long", "decimal", "string", "binary")
_PLAIN = (*_CUT, "date", *_MOMENTS)
_TAKES = {
    "identity": (*_PLAIN, "boolean"),
    "bucket": _PLAIN,
    "truncate": _CUT,
    **dict.fromkeys(("year", "month", "day"), ("date", *_MOMENTS)),
    "hour": _MOMENTS,
}


def _numbers(values: NDArray[np.int64], column: pa.Array) -> pa.Array:
    """Integers of a column, null where it is null."""
    return pa.array(values, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))


def _counted(column: pa.Array, unit: str) -> pa.Array:
    """Whole years, months, days or hours since 1970."""
    if pa.types.is_date(column.type):
        moments = column.cast(pa.int32()).fill_null(0).to_numpy().astype("datetime64[D]")
    else:
        moments = column.cast(pa.int64()).fill_null(0).to_numpy().view("datetime64[us]")
    return _numbers(moments.astype(f"datetime64[{unit}]").astype(np.int64), column)


def _ordered(column: pa.Array) -> pa.Array:
    """Integers in the order of floats, of which NaN is the last."""
    values = column.cast(pa.float64()).fill_null(0).to_numpy()
    # The bits of positive floats sort like integers; those of negative ones sort backwards, so all but their
    # sign are flipped. NaNs become one, since their bits may have any sign and payload.
    bits = np.where(np.isnan(values), np.float64(np.nan), values).view(np.int64)
    return _numbers(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits), column)


def _truncated(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    if pa.types.is_binary(column.type):
        return pc.binary_slice(column, 0, width)
    if pa.types.is_decimal(column.type):
        integers = (None if value is None else unscaled(value) for value in column.to_pylist())
        # The width counts units of the last digit, so the digits are cut as integers, and the scale is put
        # back by a view of the same bits.
        cut = [None if value is None else Decimal(value - value % width) for value in integers]
        return pa.array(cut, pa.decimal128(38, 0)).view(pa.decimal128(38, column.type.scale))
    values = column.fill_null(0).to_numpy()
    # `np.mod` takes the sign of the width, so negative numbers go down, as Iceberg's truncate does.
    return _numbers((values - np.mod(values, values.dtype.type(width))).astype(np.int64), column)


_RUN = 32 * 2**20  # bytes of rows that are sorted at a time
_MARK = 2**20  # bytes of a slice for each recorded sort key
_PIECE = 64 * 2**20  # bytes of rows that are sorted in the second round
_LEAST = 16 * 2**20  # bytes for which a task of the second round pays

Partition: TypeAlias = tuple[Any, ...]
# The sort key of a row. Its last part is unique, so that no two rows are equal.
SortKey: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of one partition in one run.

    Attributes:
        number: the number of their record batch in the file.
        marks: sort keys of rows at even distances, from the first to the last.
    """

    file: str
    number: int
    bytes: int
    partition: Partition
    marks: tuple[SortKey, ...] = ()


@dataclass(slots=True)
class PartitionSlices:
    """Rows of one partition for one task, as pieces of slices, in the order of the sort keys.

    Attributes:
        slices: the slices that may hold rows of the pieces.
        bounds: the sort keys of each piece's first row and of the next piece's first row; None is open.
    """

    partition: Partition
    slices: list[Slice] = field(default_factory=list)
    bounds: list[tuple[SortKey | None, SortKey | None]] = field(default_factory=lambda: [(None, None)])
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Distribution:
    """The keys by which rows are dealt out, and sorted."""

    partition: tuple[Key, ...] = ()
    sort: tuple[Key, ...] = ()

    @property
    def known(self) -> bool:
        """True if rows can be divided and sorted by all of the keys."""
        return all(key.parts for key in self.partition) and all(key.sorts for key in self.sort)

    def spill(self, batches: Iterable[pa.RecordBatch], folder: BatchFolder, name: str) -> list[Slice]:
        """Write the rows into a file of the ``folder``, in runs; returns its slices."""
        slices: list[Slice] = []
        file = writer = None
        try:
            for rows in _runs(batches):
                if writer is None:
                    file = folder.create(name)
                    writer = pa.ipc.new_file(file, rows.schema)
                for partition, part in self._parted(rows):
                    # A slice is one record batch of the file, so the second round reads it alone, by its
                    # number.
                    place = (name, len(slices))
                    slices.append(Slice(*place, part.nbytes, partition, self._marks(part, place)))
                    writer.write_batch(part)
        finally:
            if writer is not None:
                writer.close()
            if file is not None:
                file.close()
        return slices

    def parts(self, slices: Iterable[Slice], tasks: int) -> list[list[PartitionSlices]]:
        """Divide the slices among at most this many ``tasks`` of the second round, of about the same size."""
        by_partition: dict[Partition, list[Slice]] = {}
        for slice_ in slices:
            by_partition.setdefault(slice_.partition, []).append(slice_)
        total = sum(slice_.bytes for slices_of_key in by_partition.values() for slice_ in slices_of_key)
        most = max(_LEAST, -(-total // tasks))
        parts = [
            part
            for key, slices_of_key in by_partition.items()
            for part in self._cut(key, slices_of_key, most)
        ]
        shares: list[list[PartitionSlices]] = [
            [] for _ in range(min(tasks, max(1, total // _LEAST), len(parts)))
        ]
        load = [0] * len(shares)
        # The largest part first, to the task with the fewest bytes so far: the small ones then even it out.
        for part in sorted(parts, key=lambda part: -part.bytes):
            least = load.index(min(load))
            shares[least].append(part)
            load[least] += part.bytes
        return shares

    def rows(self, part: PartitionSlices, folder: BatchFolder) -> Iterator[pa.RecordBatch]:
        """The rows of a part, whose slices are in the ``folder``, in their order."""
        files = {
            name: pa.ipc.open_file(folder.open(name)) for name in {slice_.file for slice_ in part.slices}
        }
        for low, high in part.bounds:
            batches = (
                self._between(files[slice_.file].get_batch(slice_.number), slice_, low, high)
                for slice_ in part.slices
                if not self.sort or _overlap(slice_.marks, low, high)
            )
            if self.sort:
                yield from self._sorted(list(batches))
            else:
                yield from batches

    def _parted(self, rows: pa.Table) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows by partition, in their order."""
        keys = [key.values(rows) for key in self.partition]
        codes = _codes(keys, len(rows))
        order = self._order(rows, codes)
        if order is not None:
            rows, codes = rows.take(pa.array(order)), codes[order]
        rows = rows.combine_chunks()
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()]
        first = pa.array(starts if order is None else order[starts])
        values = zip(*(key.take(first).to_pylist() for key in keys), strict=True) if keys else [()]
        for start, end, partition in zip(starts, [*starts[1:], len(rows)], values, strict=True):
            (batch,) = rows.slice(start, end - start).to_batches()
            yield partition, batch

    def _order(self, rows: pa.Table, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """The positions that the sorted rows come from; None if they are sorted already."""
        if self.sort:
            columns = {"partition": pa.array(codes), **self._sort_columns(rows)}
            return _sorted_indices(columns)
        # Stable, so rows of a partition keep the order in which they came.
        return None if (np.diff(codes) >= 0).all() else np.argsort(codes, kind="stable")

    def _sort_columns(self, rows: pa.Table | pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns to sort by, the most significant first: nulls, then values."""
        out: dict[str, pa.Array] = {}
        for number, key in enumerate(self.sort):
            values = key.values(rows)
            out[f"ascending {number}"] = pc.xor(values.is_null(), key.nulls_first)
            out[f"{'descending' if key.descending else 'ascending'} {number} value"] = values
        return out

    def _sorted(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches) if batches else None
        if rows is not None and len(rows):
            yield from (
                rows.take(pa.array(_sorted_indices(self._sort_columns(rows)))).combine_chunks().to_batches()
            )

    def _marks(self, rows: pa.RecordBatch, place: tuple[str, int]) -> tuple[SortKey, ...]:
        if not self.sort:
            return ()
        # The first and the last row are always among the marks: `_overlap` takes them for the slice's bounds.
        count = max(2, rows.nbytes // _MARK + 1)
        numbers = np.linspace(0, len(rows) - 1, count).astype(np.int64)
        return tuple(map(self._key_of(rows, place), numbers.tolist()))

    def _key_of(self, rows: pa.RecordBatch, place: tuple[str, int]) -> Callable[[int], SortKey]:
        """The sort key of a row, by its number, of the slice at ``place``."""
        columns = [(key, key.values(rows)) for key in self.sort]
        # Place and row make equal keys differ, so that a cut can fall between rows of one key.
        return lambda row: (*(_comparable(key, values[row].as_py()) for key, values in columns), *place, row)

    def _between(
        self, rows: pa.RecordBatch, slice_: Slice, low: SortKey | None, high: SortKey | None
    ) -> pa.RecordBatch:
        """The rows of a slice whose key is not less than ``low``, and less than ``high``."""
        key_of, numbers = self._key_of(rows, (slice_.file, slice_.number)), range(len(rows))
        # A slice is sorted, so a bisection makes Python values of a few of its keys, not of all.
        start = 0 if low is None else bisect_left(numbers, low, key=key_of)
        end = len(rows) if high is None else bisect_left(numbers, high, key=key_of)
        return rows.slice(start, end - start)

    def _cut(self, partition: Partition, slices: Sequence[Slice], most: int) -> list[PartitionSlices]:
        """Cut a partition's slices into parts of about this many bytes at most."""
        if not self.sort:
            return _filled(partition, slices, most)
        total = sum(slice_.bytes for slice_ in slices)
        marks = sorted(mark for slice_ in slices for mark in slice_.marks)
        # A task sorts one piece at a time in memory, and pieces follow each other, so the part is sorted as a
        # whole.
        pieces = min(-(-total // min(most, _PIECE)), len(marks))
        cuts = sorted({marks[len(marks) * i // pieces] for i in range(1, pieces)})
        bounds = list(zip([None, *cuts], [*cuts, None], strict=True))
        count = min(-(-total // most), len(bounds))
        return [
            PartitionSlices(partition, list(slices), bounds[len(bounds) * i // count : len(bounds) * (i + 1) // count], total // count)
            for i in range(count)
        ]  # fmt: skip


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
            size += batch.nbytes
            if size >= _RUN:
                yield pa.Table.from_batches(gathered)
                gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _codes(keys: Sequence[pa.Array], count: int) -> np.ndarray[Any, Any]:
    """A number for each row, the same where all keys are."""
    codes = np.zeros(count, np.int64)
    for key in keys:
        # Null is a value of the dictionary here, as rows without a key make a partition too.
        encoded = key.dictionary_encode("encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        # Renumbered after each key: the product of many dictionaries would overflow.
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def _sorted_indices(columns: dict[str, pa.Array]) -> np.ndarray[Any, Any]:
    keys = [(name, "descending" if name.startswith("descending") else "ascending") for name in columns]
    return pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy()  # type: ignore[no-any-return]


def _filled(partition: Partition, slices: Iterable[Slice], most: int) -> list[PartitionSlices]:
    parts = [PartitionSlices(partition)]
    for slice_ in slices:
        if parts[-1].slices and parts[-1].bytes + slice_.bytes > most:
            parts.append(PartitionSlices(partition))
        parts[-1].slices.append(slice_)
        parts[-1].bytes += slice_.bytes
    return parts


def _overlap(marks: Sequence[SortKey], low: SortKey | None, high: SortKey | None) -> bool:
    return (low is None or marks[-1] >= low) and (high is None or marks[0] < high)


@total_ordering
@dataclass(frozen=True, slots=True)
class _Descending:
    value: Any

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)


def _comparable(key: Key, value: Any) -> tuple[Any, ...]:
    """A value of a sort key, so that it compares as it sorts; texts as their bytes."""
    if value is None:
        return (not key.nulls_first,)
    value = value.encode() if isinstance(value, str) else value
    return (key.nulls_first, _Descending(value) if key.descending else value)
