"""Parquet files, read by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.convert.declared import Declared
from driftline.core.schema.types import Struct
from driftline.errors import DataError, UsageError
from driftline.runtime.failure import WHOLE
from driftline.runtime.stores import answer, is_stored, mapped, native
from driftline.source.column_rows import Rows
from driftline.source.int96 import OldTimestamps

_BATCH = 16 * 2**20  # bytes of one batch of rows, about
_ROWS = 2**17  # of one batch, at most


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Parquet files of one schema. ``groups``: the file and the row group of each part."""

    struct: Struct
    label: str
    groups: Sequence[tuple[str, int]]
    sizes: Sequence[int]

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of a row group. Raises DataError where the file is broken."""
        path, group = self.groups[part]
        try:
            yield from _rows(path, group)
        except (OSError, ValueError) as error:  # pyarrow's are among these
            raise answer(path, error) or DataError(f"{path}: cannot be read: {error}", WHOLE) from error


def _rows(path: str, group: int) -> Iterator[Rows]:
    with _opened(path) as file:
        old = OldTimestamps(file)
        declared = Declared(old.schema)
        metadata = file.metadata.row_group(group)
        row = max(1, metadata.total_byte_size // max(1, metadata.num_rows))
        size = max(1, min(_ROWS, _BATCH // row))
        batches = file.iter_batches(size, row_groups=[group], use_threads=False)
        if old.columns:
            batches = _with_old(batches, path, group, size, old)
        for batch in batches:
            yield Rows(declared.read(batch.columns), path)


def _with_old(
    batches: Iterator[pa.RecordBatch], path: str, group: int, size: int, old: OldTimestamps
) -> Iterator[pa.RecordBatch]:
    """The batches with their old timestamps as they are exact, which takes reading them twice."""
    names = [old.schema.names[number] for number in old.columns]
    # Names with a dot would be taken for paths.
    chosen = None if any("." in name for name in names) else names
    with _opened(path, "ns") as file:
        nanos = file.iter_batches(size, row_groups=[group], columns=chosen, use_threads=False)
        for batch, fine in zip(batches, nanos, strict=True):
            columns = batch.columns
            for place, number in enumerate(old.columns):
                columns[number] = old.exact(number, columns[number], fine.column(place if chosen else number))
            yield pa.RecordBatch.from_arrays(columns, names=old.schema.names)


def parquet_readers(files: Sequence[str]) -> list[ParquetReader]:
    """A reader for the files of each schema, in order.

    Raises UsageError for a file that cannot be read, or has a column that no table can have.
    """
    groups: dict[Struct, list[tuple[str, int, int]]] = {}
    labels: dict[Struct, str] = {}
    for path, (struct, sizes) in zip(files, mapped(_footer, files), strict=True):
        groups.setdefault(struct, []).extend((path, i, size) for i, size in enumerate(sizes))
        labels.setdefault(struct, path)
    return [
        ParquetReader(
            struct,
            labels[struct],
            [(path, i) for path, i, _ in groups_of_struct],
            [size for _, _, size in groups_of_struct],
        )
        for struct, groups_of_struct in groups.items()
    ]


def _footer(path: str) -> tuple[Struct, list[int]]:
    """The types of a file, and the sizes of its row groups."""
    try:
        with _opened(path) as file:
            metadata = file.metadata
            sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
            return Declared(OldTimestamps(file).schema).struct, sizes
    except UsageError as error:
        raise UsageError(f"{path}: {error}", error.hint) from error
    except (OSError, ValueError) as error:  # pyarrow's are among these
        raise UsageError(f"{path}: cannot be read as parquet: {error}", WHOLE) from error


def _opened(path: str, old_as: str = "us") -> pq.ParquetFile:
    """The file; ``old_as``: the unit that its old timestamps are read in."""
    return pq.ParquetFile(
        native(path),
        coerce_int96_timestamp_unit=old_as,
        page_checksum_verification=True,
        pre_buffer=is_stored(path),
    )
