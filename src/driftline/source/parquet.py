"""Parquet files, read by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.convert.declared import Declared
from driftline.convert.leaf_readings import leaf_readings
from driftline.core.schema.types import Struct
from driftline.errors import DataError, UsageError
from driftline.runtime.failure import WHOLE
from driftline.runtime.stores import answer, is_stored, mapped, native
from driftline.source.column_rows import Rows
from driftline.source.faulty_values import checked
from driftline.source.int96 import OldTimestamps
from driftline.source.julian import JulianCalendar, calendar_of

_BATCH = 16 * 2**20  # bytes of one batch of rows, about
_ROWS = 2**17  # of one batch, at most


class RowGroup(NamedTuple):
    """A row group of a file. ``calendar``: the one that its dates are counted by, if not today's."""

    path: str
    number: int
    calendar: JulianCalendar | None

    def __str__(self) -> str:
        return f"{self.path}: row group {self.number}"


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Parquet files of one schema. ``groups``: the row group that each part is."""

    struct: Struct
    label: str
    groups: Sequence[RowGroup]
    sizes: Sequence[int]

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
            raise answer(group.path, error) or DataError(
                f"{group.path}: cannot be read: {error}", WHOLE
            ) from error


def _rows(group: RowGroup) -> Iterator[Rows]:
    with _opened(group.path) as file:
        old = OldTimestamps(file)
        declared = _declared(old, group.calendar)
        metadata = file.metadata.row_group(group.number)
        row = max(1, metadata.total_byte_size // max(1, metadata.num_rows))
        size = max(1, min(_ROWS, _BATCH // row))
        batches = file.iter_batches(size, row_groups=[group.number], use_threads=False)
        if old.columns:
            batches = _with_old(batches, group, size, old)
        count = 0
        for batch in batches:
            place = partial(_place, group, count)
            count += batch.num_rows
            yield checked(declared.read(batch.columns), declared.struct, group.path, place)
    if count != metadata.num_rows:
        # Arrow passes over what its pages do not hold, without an error.
        raise DataError(
            f"{group}: it holds {count} rows, and the footer says {metadata.num_rows}",
            hint="write the file anew: no reader can know what is missing",
        )


def _place(group: RowGroup, before: int, row: int) -> str:
    return f"row group {group.number}, row {before + row}: "


def _declared(old: OldTimestamps, calendar: JulianCalendar | None) -> Declared:
    return Declared(old.schema, calendar.leaves if calendar else leaf_readings)


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
            groups = [
                (RowGroup(path, i, calendar), metadata.row_group(i).total_byte_size)
                for i in range(metadata.num_row_groups)
            ]
            return _declared(OldTimestamps(file), calendar).struct, groups
    except UsageError as error:
        raise UsageError(f"{path}: {error}", error.hint) from error
    except (OSError, ValueError) as error:  # pyarrow's are among these
        hint = "write its maps with required keys, as the format says" if "Map keys" in str(error) else WHOLE
        raise UsageError(f"{path}: cannot be read as parquet: {error}", hint) from error


def _opened(path: str, old_as: str = "us") -> pq.ParquetFile:
    """The file; ``old_as``: the unit that its old timestamps are read in."""
    return pq.ParquetFile(
        native(path),
        coerce_int96_timestamp_unit=old_as,
        page_checksum_verification=True,
        pre_buffer=is_stored(path),
    )
