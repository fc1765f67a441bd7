"""A Parquet file of a table, as Iceberg's settings want it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.convert.types import arrow_schema
from driftline.core.schema_json import to_json
from driftline.core.types import Schema
from driftline.write.metrics import Metrics, MetricsCollector

_PREFIX = "write.parquet."
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True)
class FileSettings:
    """How files are written. Sizes are bytes; ``row_group`` bounds what is gathered in memory, too."""

    codec: str = "zstd"
    level: int | None = None
    row_group: int = 128 * 2**20
    page: int = 2**20
    dictionary: int = 2 * 2**20

    @classmethod
    def of(cls, properties: Mapping[str, str], memory: int) -> FileSettings:
        """The settings in a table's properties; ``memory``: the most that a row group may take of it."""

        def size(name: str, default: int) -> int:
            return int(properties.get(_PREFIX + name, default))

        level = properties.get(_PREFIX + "compression-level")
        return cls(
            properties.get(_PREFIX + "compression-codec", cls.codec).lower(),
            None if level is None else int(level),
            min(size("row-group-size-bytes", cls.row_group), memory),
            size("page-size-bytes", cls.page),
            size("dict-size-bytes", cls.dictionary),
        )


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """What a commit needs to know of a file. ``size``: bytes; ``split_offsets``: where its row groups begin."""

    path: str
    size: int
    rows: int
    split_offsets: tuple[int, ...] = ()
    metrics: Metrics = field(default_factory=Metrics)


def write_files(
    paths: Sequence[str],
    create: Callable[[str], Any],
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    modes: Mapping[int, str],
    settings: FileSettings,
    target: int,
) -> Iterator[WrittenFile]:
    """Writes rows of the table's ``schema`` into files of about ``target`` bytes; none where there are no rows.

    ``paths``: their names in order, of which the last takes whatever is left; ``create``: opens a file for writing;
    ``modes``: the metrics of each column by its id.
    """
    names = iter(paths)
    writer: _Writer | None = None
    for batch in batches:
        if batch.num_rows:
            if writer is None or (writer.size >= target and writer.path != paths[-1]):
                if writer is not None:
                    yield writer.close()
                path = next(names)
                writer = _Writer(path, create(path), schema, modes, settings)
            writer.write(batch)
    if writer is not None:
        yield writer.close()


class _Writer:
    """One file. Batches are gathered to row groups: each write of its own would be one."""

    def __init__(
        self, path: str, file: Any, schema: Schema, modes: Mapping[int, str], settings: FileSettings
    ) -> None:
        self.path, self._file, self._settings = path, file, settings
        self._collector = MetricsCollector(schema.struct, modes)
        self._writer = pq.ParquetWriter(
            file,
            arrow_schema(schema.struct),
            compression=_CODECS.get(settings.codec, settings.codec),
            compression_level=settings.level,
            data_page_size=settings.page,
            dictionary_pagesize_limit=settings.dictionary,
            store_decimal_as_integer=True,
            store_schema=False,
        )
        self._writer.add_key_value_metadata({"iceberg.schema": json.dumps(to_json(schema))})
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
        if self._bytes >= self._settings.row_group:
            self._flush()

    def close(self) -> WrittenFile:
        """Ends the file, and tells what a commit needs to know of it."""
        self._flush()
        self._writer.close()
        size = self.size
        self._file.close()
        footer = self._writer.writer.metadata
        offsets = tuple(_start(footer.row_group(i)) for i in range(footer.num_row_groups))
        return WrittenFile(self.path, size, footer.num_rows, offsets, self._collector.result(footer))

    def _flush(self) -> None:
        if self._gathered:
            table = pa.Table.from_batches(self._gathered)
            self._writer.write_table(table, row_group_size=max(1, len(table)))
            self._gathered, self._bytes = [], 0


def _start(group: Any) -> int:
    """Where a row group begins in its file."""
    first = group.column(0)
    pages = [first.data_page_offset]
    if first.has_dictionary_page and first.dictionary_page_offset:
        pages.append(first.dictionary_page_offset)
    return int(min(pages))
