"""A Parquet file of a table, as Iceberg's settings want it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.convert.types import arrow_schema
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.types import Schema
from driftline.write.dealing import Distribution, Partition
from driftline.write.metrics import FileMetrics, MetricsCollector

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
_OF_JAVA = (
    "row-group-check-min-record-count",
    "row-group-check-max-record-count",
)  # how Java's writer counts

_LEVEL = {"zstd": 3}  # where a table names none: as Iceberg's own writer does; pyarrow's would be 1


@dataclass(frozen=True)
class FileSettings:
    """The settings of files. Sizes are bytes; ``row_group`` also bounds the rows in memory."""

    codec: str = "zstd"
    level: int | None = None
    row_group: int = 128 * 2**20
    page: int = 2**20
    dictionary: int = 2 * 2**20

    @classmethod
    def of(cls, properties: Mapping[str, str], memory: int) -> FileSettings | None:
        """The settings in a table's properties; ``memory``: the most that a row group may take of it. None
        where Arrow's writer does not know one of them.
        """

        def size(name: str, default: int) -> int:
            return int(properties.get(_PREFIX + name, default))

        named = {key.removeprefix(_PREFIX) for key in properties if key.startswith(_PREFIX)}
        codec = properties.get(_PREFIX + "compression-codec", cls.codec).lower()
        codec = _CODECS.get(codec, codec)
        if not (named <= {*_HONOURED, *_OF_JAVA} and (codec == "none" or _available(codec))):
            return None
        level = properties.get(_PREFIX + "compression-level") if codec in _LEVELLED else None
        return cls(
            codec,
            None if level is None else int(level),
            min(size("row-group-size-bytes", cls.row_group), memory),
            size("page-size-bytes", cls.page),
            size("dict-size-bytes", cls.dictionary),
        )


def _available(codec: str) -> bool:
    try:
        return bool(pa.Codec.is_available(codec))
    except ValueError:  # it is none at all
        return False


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The plan by which tasks write the files of a table.

    ``modes``: the metrics of each column by its id; ``target``: bytes after which a file ends; ``dealing``:
    the partition and sort keys of rows.
    """

    schema: Schema
    modes: Mapping[int, str]
    settings: FileSettings
    target: int
    dealing: Distribution = field(default_factory=Distribution)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The facts about a file that a commit needs.

    ``size``: bytes; ``split_offsets``: the beginnings of its row groups; ``partition``: the value of each
    partition key.
    """

    path: str
    size: int
    rows: int
    split_offsets: tuple[int, ...] = ()
    metrics: FileMetrics = field(default_factory=FileMetrics)
    partition: Partition = ()


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file open for writing.

    ``path``: as the table will name it; ``remove``: deletes it; ``explaining``: a context for each use, which
    turns its store's errors into driftline's.
    """

    path: str
    stream: pa.NativeFile
    remove: Callable[[], None]
    explaining: Callable[[], AbstractContextManager[None]] = nullcontext


def write_files(
    batches: Iterable[pa.RecordBatch], plan: FilePlan, create: Callable[[int], NewFile]
) -> Iterator[WrittenFile]:
    """Write rows with the columns of the plan into files of about its target size; none if there are no rows.

    ``create``: creates each file by its number, from 1.
    """
    numbers = count(1)
    writer: _Writer | None = None
    try:
        for batch in batches:
            if batch.num_rows:
                if writer is not None and writer.size >= plan.target:
                    yield writer.close()
                    writer = None
                writer = writer or _Writer(create(next(numbers)), plan)
                writer.write(batch)
        if writer is not None:
            yield writer.close()
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise


class _Writer:
    """One file. Batches are gathered to row groups: each write of its own would be one."""

    def __init__(self, file: NewFile, plan: FilePlan) -> None:
        settings = plan.settings
        self._new, self._file, self._row_group = file, file.stream, settings.row_group
        self._collector = MetricsCollector(plan.schema.struct, plan.modes)
        self._writer = pq.ParquetWriter(
            self._file,
            arrow_schema(plan.schema.struct),
            compression=settings.codec,
            compression_level=_LEVEL.get(settings.codec) if settings.level is None else settings.level,
            data_page_size=settings.page,
            dictionary_pagesize_limit=settings.dictionary,
            store_decimal_as_integer=True,
            store_schema=False,
        )
        self._writer.add_key_value_metadata({"iceberg.schema": json.dumps(to_json(plan.schema))})
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._file.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        self._collector.feed(batch)
        self._gathered.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._row_group:
            self._flush()

    def close(self) -> WrittenFile:
        """Finish the file; returns the facts that a commit needs."""
        self._flush()
        with self._new.explaining():
            self._writer.close()
            size = self.size
            self._file.close()
        footer = self._writer.writer.metadata
        offsets = tuple(_start(footer.row_group(i)) for i in range(footer.num_row_groups))
        return WrittenFile(self._new.path, size, footer.num_rows, offsets, self._collector.result(footer))

    def abandon(self) -> None:
        """Takes the file away, which is not whole: a deleted one takes room for as long as it is open."""
        self._writer.is_open = False
        with suppress(OSError):  # a store may be what has failed
            self._file.close()
        with suppress(OSError):
            self._new.remove()

    def _flush(self) -> None:
        if self._gathered:
            table = pa.Table.from_batches(self._gathered)
            with self._new.explaining():
                self._writer.write_table(table, row_group_size=max(1, len(table)))
            self._gathered, self._bytes = [], 0


def _start(group: Any) -> int:
    """The position of a row group in its file."""
    first = group.column(0)
    pages = [first.data_page_offset]
    if first.has_dictionary_page and first.dictionary_page_offset:
        pages.append(first.dictionary_page_offset)
    return int(min(pages))
