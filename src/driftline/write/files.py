"""Writes Parquet files with their metrics, and places them on a disk or in a store.

On a disk, a batch writes into a folder of its own, and whole files are moved out of it at the end. An
object store cannot move: files get their final places at once, under names that begin with the batch's own,
and the commit alone decides which of them count.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import copysign
from shutil import move
from struct import pack
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.convert.declared import entries_of
from driftline.convert.types import file_schema
from driftline.core.planning.own_columns import is_type_key, rest_column
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.types import List, Map, Primitive, Schema, Struct, Type
from driftline.runtime.disk import NEW, delete_file, local, sync
from driftline.runtime.stores import created, explaining
from driftline.tasks.batch_folder import BatchFolder
from driftline.write.distribution import Distribution, Partition

_TRUNCATE = re.compile(r"truncate\((\d+)\)")
# Footers leave long bounds out, do not count NaN and lose the sign of zero: tasks compute these themselves.
_LONGEST = 4_000  # bytes of a value; the footer leaves longer bounds out
# Rows of a file's first row group, and columns of the file, for which dictionaries do not pay.
_FEW_ROWS, _WIDE = 16, 1_000
_SURROGATES = range(0xD800, 0xE000)


@dataclass(slots=True)
class FileMetrics:
    """Metrics of one file by field id: sizes in bytes, value counts, and bounds in Iceberg's binary form."""

    sizes: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    nulls: dict[int, int] = field(default_factory=dict)
    nans: dict[int, int] = field(default_factory=dict)
    lower: dict[int, bytes] = field(default_factory=dict)
    upper: dict[int, bytes] = field(default_factory=dict)


class Leaf(NamedTuple):
    """A column that holds values itself.

    Attributes:
        path: the fields that lead to it; empty inside a list or map.
    """

    id: int
    type: Primitive
    path: tuple[str, ...]


class MetricsCollector:
    """Collects, while a file is written, the metrics that its footer lacks.

    Args:
        struct: the columns, with their ids.
        modes: by id ``none``, ``counts``, ``truncate(n)`` or ``full``.
    """

    def __init__(self, struct: Struct, modes: Mapping[int, str]) -> None:
        # Of columns inside lists and maps Iceberg keeps sizes alone: such a leaf has no path.
        self._leaves = list(_leaves_of(struct, ()))
        self._modes = modes
        counted = [leaf for leaf in self._leaves if leaf.path and modes[leaf.id] != "none"]
        self._floats = [leaf for leaf in counted if leaf.type.name in ("float", "double")]
        self._texts = [leaf for leaf in counted if leaf.type.name in ("string", "binary")]
        self._nans = {leaf.id: 0 for leaf in self._floats}
        self._bounds: dict[int, tuple[Any, Any]] = {}

    def feed(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Add the values of a whole row group."""
        columns: list[dict[tuple[str, ...], pa.Array]] = [{} for _ in batches]
        for leaf in self._floats:
            for batch, read in zip(batches, columns, strict=True):
                self._floats_of(leaf, _column(batch, leaf.path, read))
        for leaf in self._texts:
            texts = [_column(batch, leaf.path, read) for batch, read in zip(batches, columns, strict=True)]
            # One long value costs the footer the bounds of its whole row group, so all of its batches count.
            if any(map(_has_long, texts)):
                for text in texts:
                    if text.null_count < len(text):
                        self._widen(leaf.id, *_encoded_bounds(text))

    def result(self, footer: pq.FileMetaData) -> FileMetrics:
        """Return the metrics of the file that has this footer."""
        out = FileMetrics(nans=dict(self._nans))
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        for number, leaf in enumerate(self._leaves):
            mode = self._modes[leaf.id]
            if mode != "none":
                chunks = [group.column(number) for group in groups]
                out.sizes[leaf.id] = sum(chunk.total_compressed_size for chunk in chunks)
                if leaf.path:
                    self._add(out, leaf, mode, chunks)
        return out

    def _add(self, out: FileMetrics, leaf: Leaf, mode: str, chunks: Sequence[Any]) -> None:
        out.values[leaf.id] = sum(chunk.num_values for chunk in chunks)
        out.nulls[leaf.id] = sum(chunk.statistics.null_count for chunk in chunks)
        # Floats have bounds of their own. A text's bounds widen those of the row groups whose footer has any.
        bounds = self._bounds.get(leaf.id)
        if leaf.id not in self._nans:
            for chunk in chunks:
                statistics = chunk.statistics
                if statistics.has_min_max:
                    bounds = _wider(bounds, statistics.min_raw, statistics.max_raw)
        if bounds is None or mode == "counts":
            return
        lower, upper = (_truncated(leaf.type, mode, *bounds)) if leaf.type.name in _CUT else bounds
        encode = _ENCODERS.get(leaf.type.name, bytes)
        out.lower[leaf.id] = encode(lower)
        if upper is not None:
            out.upper[leaf.id] = encode(upper)

    def _floats_of(self, leaf: Leaf, column: pa.Array) -> None:
        numbers = column.drop_null().to_numpy(zero_copy_only=False)
        nans = np.isnan(numbers)
        self._nans[leaf.id] += int(nans.sum())
        numbers = numbers[~nans]
        if len(numbers):
            low, high = float(numbers.min()), float(numbers.max())
            # numpy takes zeros for equal, so which of them it gives as a bound is chance.
            negative = np.signbit(numbers[numbers == 0])
            low = -0.0 if low == 0 and negative.any() else low
            high = (0.0 if not negative.all() else -0.0) if high == 0 else high
            self._widen(leaf.id, _Zeroed(low), _Zeroed(high))

    def _widen(self, id_: int, low: Any, high: Any) -> None:
        self._bounds[id_] = _wider(self._bounds.get(id_), low, high)


class _Zeroed(float):
    """A number that sorts below another if its zero is negative."""

    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        return (float(self), copysign(1, self)) < (float(other), copysign(1, other))


def _wider(bounds: tuple[Any, Any] | None, low: Any, high: Any) -> tuple[Any, Any]:
    if bounds is None:
        return low, high
    return (min(bounds[0], low)), (max(bounds[1], high))


def _has_long(texts: pa.Array) -> bool:
    """True if a text is longer than those that the footer has bounds of."""
    # All together first: a wide file has few rows, and each kernel takes as long as many of them.
    return texts.nbytes > _LONGEST and (pc.max(pc.binary_length(texts)).as_py() or 0) > _LONGEST


def _encoded_bounds(column: pa.Array) -> tuple[bytes, bytes]:
    """Return the bounds of texts, which sort as their bytes do."""
    low, high = (bound.as_py() for bound in pc.min_max(column).values())
    return (low.encode(), high.encode()) if isinstance(low, str) else (low, high)


def _leaves_of(type_: Type, path: tuple[str, ...] | None, id_: int = 0) -> Iterator[Leaf]:
    """Yield the leaf columns in Parquet's order. ``path`` None: inside a list or a map."""
    match type_:
        case Struct(fields):
            for f in fields:
                yield from _leaves_of(f.type, None if path is None else (*path, f.name), f.id)
        case List(element):
            yield from _leaves_of(element, None, type_.element_id)
        case Map(key, value):
            yield from _leaves_of(key, None, type_.key_id)
            yield from _leaves_of(value, None, type_.value_id)
        case _:
            yield Leaf(id_, type_, path or ())


def _column(
    batch: pa.RecordBatch, path: tuple[str, ...], columns: dict[tuple[str, ...], pa.Array]
) -> pa.Array:
    """Return a column by path, null where the struct around it is null.

    Args:
        columns: a cache.
    """
    if path not in columns:
        *above, name = path
        columns[path] = (
            pc.struct_field(_column(batch, tuple(above), columns), name) if above else batch.column(name)
        )
    return columns[path]


# Bounds in Iceberg's binary form (Iceberg spec, appendix D)


def _decimal(unscaled: int | bytes) -> bytes:
    if isinstance(unscaled, bytes):
        unscaled = int.from_bytes(unscaled, "big", signed=True)
    # In as few bytes as hold it, as the spec asks.
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "boolean": lambda value: b"\x01" if value else b"\x00",
    **dict.fromkeys(("int", "date"), lambda value: pack("<i", value)),
    **dict.fromkeys(("long", "time", "timestamp", "timestamp_ntz"), lambda value: pack("<q", value)),
    "float": lambda value: pack("<f", value),
    "double": lambda value: pack("<d", value),
    "decimal": _decimal,
}
_CUT = ("string", "binary", "fixed")


def _truncated(type_: Primitive, mode: str, low: bytes, high: bytes) -> tuple[bytes, bytes | None]:
    """Cut the bounds to the mode's length. The upper bound is rounded up; None if it cannot be.

    >>> from driftline.core.schema.types import STRING
    >>> _truncated(STRING, "truncate(2)", b"abc", b"xyz")
    (b'ab', b'xz')
    """
    match = _TRUNCATE.fullmatch(mode)
    if match is None:
        return low, high
    length = int(match[1])
    if type_.name == "string":
        lowest, highest = low.decode(), high.decode()
        upper = high if len(highest) <= length else _next_text(highest[:length])
        return lowest[:length].encode(), upper
    return low[:length], high if len(high) <= length else _next_bytes(high[:length])


def _next_text(text: str) -> bytes | None:
    """Return the least text above all texts with this prefix."""
    # The last character may be the highest there is; then the one before it is raised, and the rest goes.
    for end in range(len(text), 0, -1):
        code = ord(text[end - 1]) + 1
        # UTF-8 has no surrogates, so the next character stands behind them.
        code = _SURROGATES.stop if code in _SURROGATES else code
        if code <= 0x10FFFF:
            return (text[: end - 1] + chr(code)).encode()
    return None


def _next_bytes(value: bytes) -> bytes | None:
    stem = value.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


_PREFIX = "write.parquet."
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
_LEVELLED = ("zstd", "gzip", "brotli")
_HONOURED = (
    "compression-codec",
    "compression-level",
    "row-group-size-bytes",
    "page-size-bytes",
    "dict-size-bytes",
)
# How Java's writer counts
_OF_JAVA = (
    "row-group-check-min-record-count",
    "row-group-check-max-record-count",
)

# Where a table names none: as Iceberg's own writer does; pyarrow's would be 1
_LEVEL = {"zstd": 3}


@dataclass(frozen=True)
class FileSettings:
    """Settings of Parquet files. Sizes are bytes; ``row_group`` also bounds the rows in memory."""

    codec: str = "zstd"
    level: int | None = None
    row_group: int = 128 * 2**20
    page: int = 2**20
    dictionary: int = 2 * 2**20

    @classmethod
    def of(cls, properties: Mapping[str, str], memory: int) -> FileSettings | None:
        """Read the settings from a table's properties; None if Arrow's writer does not support one of them.

        Args:
            properties: the table's properties.
            memory: the memory available for a row group.
        """

        def size(name: str, default: int) -> int:
            """A size among the properties, in bytes."""
            return int(properties.get(_PREFIX + name, default))

        named = {key.removeprefix(_PREFIX) for key in properties if key.startswith(_PREFIX)}
        codec = properties.get(_PREFIX + "compression-codec", cls.codec).lower()
        codec = _CODECS.get(codec, codec)
        # An unknown setting may be one that Arrow's writer cannot honour, so Spark's writer takes the table.
        if not (named <= {*_HONOURED, *_OF_JAVA} and (codec == "none" or _available(codec))):
            return None
        level = properties.get(_PREFIX + "compression-level") if codec in _LEVELLED else None
        return cls(
            codec,
            None if level is None else int(level),
            # A row group is gathered in memory, so the task's share of it is a bound too.
            min(size("row-group-size-bytes", cls.row_group), memory),
            size("page-size-bytes", cls.page),
            size("dict-size-bytes", cls.dictionary),
        )


def _available(codec: str) -> bool:
    try:
        return bool(pa.Codec.is_available(codec))
    except ValueError:  # it is not a number
        return False


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The plan by which tasks write the files of a table.

    Attributes:
        modes: the metrics mode of each column by id.
        target: the bytes after which a file ends.
        distribution: the partition and sort keys of rows.
    """

    schema: Schema
    modes: Mapping[int, str]
    settings: FileSettings
    target: int
    distribution: Distribution = field(default_factory=Distribution)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A written file, with all that a commit needs to know of it.

    Attributes:
        size: bytes.
        split_offsets: the offsets of its row groups.
        partition: the value of each partition key.
        waiting: the number of values in the rest, by their path there.
    """

    path: str
    size: int
    rows: int
    split_offsets: tuple[int, ...] = ()
    metrics: FileMetrics = field(default_factory=FileMetrics)
    partition: Partition = ()
    waiting: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file open for writing.

    Attributes:
        path: the path under which the table will name it.
        remove: deletes it.
        explaining: a context for each use, which turns the store's errors into driftline's.
    """

    path: str
    stream: pa.NativeFile
    remove: Callable[[], None]
    explaining: Callable[[], AbstractContextManager[None]] = nullcontext


def write_files(
    batches: Iterable[pa.RecordBatch], plan: FilePlan, create: Callable[[int], NewFile]
) -> Iterator[WrittenFile]:
    """Write rows into files of about the plan's target size; none if there are no rows.

    Args:
        batches: the rows, with the columns of the plan.
        plan: the plan.
        create: creates each file by its number, from 1.
    """
    numbers = count(1)
    writer: _Writer | None = None
    try:
        for batch in batches:
            if batch.num_rows:
                # A file ends between batches, and only its flushed row groups count, so it may pass the
                # target by a row group.
                if writer is not None and writer.size >= plan.target:
                    yield writer.close()
                    writer = None
                writer = writer or _Writer(create(next(numbers)), plan)
                writer.write(batch)
        if writer is not None:
            yield writer.close()
    # Also where the consumer stops early or Ctrl-C comes: neither is an Exception.
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise


class _Writer:
    """A file being written. Batches are collected into row groups, since each write would make one."""

    def __init__(self, file: NewFile, plan: FilePlan) -> None:
        self._new, self._file, self._plan = file, file.stream, plan
        self._collector = MetricsCollector(plan.schema.struct, plan.modes)
        self._rest = rest_column(plan.schema.struct)
        self._waiting: Counter[str] = Counter()
        self._schema = file_schema(plan.schema.struct)
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = 0

    def _opened(self, rows: int) -> pq.ParquetWriter:
        """Open the file for a first row group of this many rows."""
        settings = self._plan.settings
        writer = pq.ParquetWriter(
            self._file,
            self._schema,
            # A dictionary of few values saves nothing, and each column's takes time and a page.
            use_dictionary=rows > _FEW_ROWS or len(self._schema) < _WIDE,
            compression=settings.codec,
            compression_level=_LEVEL.get(settings.codec) if settings.level is None else settings.level,
            data_page_size=settings.page,
            dictionary_pagesize_limit=settings.dictionary,
            # Decimals of up to 18 digits as integers, as Iceberg's spec of Parquet asks.
            store_decimal_as_integer=True,
            # Arrow alone reads its schema in a footer, and all readers are to see the same types.
            store_schema=False,
        )
        writer.add_key_value_metadata({"iceberg.schema": json.dumps(to_json(self._plan.schema))})
        return writer

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._file.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch; a full row group is written."""
        self._gathered.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._plan.settings.row_group:
            self._flush()

    def close(self) -> WrittenFile:
        """Finish the file; returns what a commit needs to know."""
        self._flush()
        assert self._writer is not None, "a file has rows"
        with self._new.explaining():
            self._writer.close()
            size = self.size
            self._file.close()
        footer = self._writer.writer.metadata
        offsets = tuple(_start(footer.row_group(i)) for i in range(footer.num_row_groups))
        metrics = self._collector.result(footer)
        return WrittenFile(self._new.path, size, footer.num_rows, offsets, metrics, waiting=self._waiting)

    def abandon(self) -> None:
        """Close and delete the unfinished file: an open file takes space even when deleted."""
        # Else the writer would write a footer when it is collected, into a file that is closed.
        if self._writer is not None:
            self._writer.is_open = False
        with suppress(OSError):  # a store may be what has failed
            self._file.close()
        with suppress(OSError):
            self._new.remove()

    def _flush(self) -> None:
        if self._gathered:
            self._collector.feed(self._gathered)
            table = pa.Table.from_batches(self._gathered)
            if table.schema != self._schema:
                table = table.cast(self._schema)
            if self._rest is not None:
                # Counted here, as to read the files again for it takes longer than to write a small one.
                self._waiting.update(_waiting_in(table[self._rest.name]))
            with self._new.explaining():
                self._writer = self._writer or self._opened(len(table))
                self._writer.write_table(table, row_group_size=max(1, len(table)))
            self._gathered, self._bytes = [], 0


def _waiting_in(column: pa.ChunkedArray) -> dict[str, int]:
    """Count the values in a column of the rest, by path."""
    counts: Counter[str] = Counter()
    for chunk in column.chunks:
        paths, numbers = pc.value_counts(entries_of(chunk).flatten().field(0)).flatten()
        counts.update(dict(zip(paths.to_pylist(), numbers.to_pylist(), strict=True)))
    return {path: number for path, number in counts.items() if not is_type_key(path)}


def _start(group: Any) -> int:
    """Return the offset of a row group in its file."""
    first = group.column(0)
    # Iceberg cuts splits at row groups, which begin with their dictionary where they have one.
    pages = [first.data_page_offset]
    if first.has_dictionary_page and first.dictionary_page_offset:
        pages.append(first.dictionary_page_offset)
    return int(min(pages))


class TaskDestination(Protocol):
    """The place where a task writes; it is sent to the task."""

    def create(self, partition: Partition, number: int, attempt: int, file: int) -> NewFile:
        """Create a file that no other attempt of any task has.

        Args:
            partition: the partition of its rows.
            number: the task's number.
            attempt: the attempt's number.
            file: the file's number in the attempt.
        """
        ...

    def sync(self, files: Iterable[WrittenFile]) -> None:
        """Sync whole files on this machine, unless another process will."""
        ...

    def remove(self, path: str) -> None:
        """Delete a whole file of a failed attempt."""
        ...


class Destination(Protocol):
    """The place for a batch's files, as the driver sees it, and their fate."""

    @property
    def needs_partitions(self) -> bool:
        """True if tasks can only write a file after the driver knows its partition."""
        ...

    def target(self, partitions: Iterable[Partition]) -> TaskDestination:
        """Return the place where tasks write the rows of these partitions."""
        ...

    def finalize(self, files: Iterable[WrittenFile]) -> list[WrittenFile]:
        """Return the files in their final places in the table. After an error, none is left there."""
        ...

    def clear(self) -> None:
        """After an error, delete files of tasks from the table's own folders. Never fails."""
        ...


@dataclass(frozen=True, slots=True)
class InFolder:
    """A destination on a disk: the ``folder`` of the batch, then each file's final ``place``."""

    folder: BatchFolder
    place: Callable[[WrittenFile], str]
    needs_partitions = False

    def target(self, partitions: Iterable[Partition]) -> TaskDestination:
        """Return the folder of the batch, for all partitions."""
        return _Folder(self.folder)

    def finalize(self, files: Iterable[WrittenFile]) -> list[WrittenFile]:
        """Move the files to their places in the table; after an error, delete those that were moved."""
        placed: list[WrittenFile] = []
        try:
            # The files of one batch move one after another: what a crash leaves is in no snapshot, and
            # `clean` finds it by its name.
            for file in files:
                # Listed before it is moved: a move that fails halfway is undone as well.
                placed.append(replace(file, path=self.place(file)))
                target = local(placed[-1].path)
                target.parent.mkdir(parents=True, exist_ok=True)
                move(file.path, target)
        except BaseException:
            for file in placed:
                delete_file(local(file.path), NEW)
            raise
        return placed

    def clear(self) -> None:
        """Do nothing: the folder is deleted with the batch."""


@dataclass(frozen=True, slots=True)
class InStore:
    """A destination in a store: files are written to their final places.

    Attributes:
        options: the store's options, as `stores.filesystem` takes them.
        prefix: the URI prefix of a partition's files, for a batch of this name.
        sweep: deletes everything with such a prefix.
    """

    options: Mapping[str, str] = field(repr=False)
    prefix: Callable[[str, Partition], str]
    sweep: Callable[[str], None]
    batch: str = field(default_factory=lambda: uuid4().hex)
    needs_partitions = True
    _prefixes: dict[Partition, str] = field(default_factory=dict)

    def target(self, partitions: Iterable[Partition]) -> TaskDestination:
        """Return the prefixes of all partitions so far; they are kept for `clear`."""
        # Kept before any task starts, so `clear` knows where to sweep even if no task reports back.
        self._prefixes.update({partition: self.prefix(self.batch, partition) for partition in partitions})
        return _Store(self.options, dict(self._prefixes))

    def finalize(self, files: Iterable[WrittenFile]) -> list[WrittenFile]:
        """Return the files, which are in their places already."""
        return list(files)

    def clear(self) -> None:
        """Delete all objects with the batch's prefixes."""
        for prefix in self._prefixes.values():
            self.sweep(prefix)


@dataclass(frozen=True, slots=True)
class _Folder:
    folder: BatchFolder

    def create(self, partition: Partition, number: int, attempt: int, file: int) -> NewFile:
        """Create a file named by the task, the attempt, the batch and the file's number."""
        # `driftline clean` knows its files by this form (`WRITTEN` in write/tasks.py).
        name = f"{number:05d}-{attempt}-{self.folder.name}-{file:05d}.parquet"
        path = f"{self.folder.path}/{name}"
        return NewFile(path, self.folder.create(name), partial(self.remove, path))

    def sync(self, files: Iterable[WrittenFile]) -> None:
        """Sync the files, on a cluster."""
        if self.folder.synced:
            sync((local(file.path) for file in files), local(self.folder.path))

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        delete_file(path, NEW)


@dataclass(frozen=True, slots=True)
class _Store:
    options: Mapping[str, str] = field(repr=False)
    prefixes: Mapping[Partition, str]

    def create(self, partition: Partition, number: int, attempt: int, file: int) -> NewFile:
        """Create an object under its partition's prefix, named by task, attempt and file number."""
        uri = f"{self.prefixes[partition]}-{number:05d}-{attempt}-{file:05d}.parquet"
        stream = created(uri, self.options)
        return NewFile(uri, stream, partial(self.remove, uri), partial(explaining, uri, self.options))

    def sync(self, files: Iterable[WrittenFile]) -> None:
        """Do nothing: a store keeps what it has acknowledged."""

    def remove(self, path: str) -> None:
        """Delete an object."""
        delete_file(path, NEW, self.options)


def whole(files: Iterable[WrittenFile], target: TaskDestination) -> Sequence[WrittenFile]:
    """Write all files of a task; after an error, delete them."""
    written: list[WrittenFile] = []
    try:
        for file in files:
            written.append(file)  # noqa: PERF402  those before an error count
        # Before the task reports: once the driver commits, a power cut may no longer take a file away.
        target.sync(written)
    except BaseException:
        for file in written:
            with suppress(OSError):
                target.remove(file.path)
        raise
    return written
