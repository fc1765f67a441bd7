"""Avro files, read by runs of blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, reader
from fastavro.schema import SchemaParseException

from driftline.convert.avro import columns_of
from driftline.core.schema.types import Struct
from driftline.errors import DataError, UsageError
from driftline.runtime.failure import WHOLE
from driftline.runtime.stores import mapped
from driftline.source.avro_blocks import BlockRange, container_of, cuts_of
from driftline.source.column_rows import Rows
from driftline.source.faulty_values import checked

_ROWS = 10_000  # of one batch
_CUT = 16 * 2**20  # bytes of a part


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Avro files of one schema."""

    struct: Struct
    label: str
    cuts: Sequence[BlockRange]

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each part."""
        return [cut.size for cut in self.cuts]

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of some blocks. Raises DataError where the file is broken."""
        cut = self.cuts[part]
        try:
            yield from _rows(cut)
        except _BROKEN as error:
            raise DataError(f"{cut.path}: cannot be read: {_said(error)}", WHOLE) from error


# What fastavro raises for bytes that are no Avro.
_BROKEN = (OSError, EOFError, ValueError, KeyError, IndexError, TypeError, OverflowError, StopIteration)


def _rows(cut: BlockRange) -> Iterator[Rows]:
    records: Any = reader(container_of(cut), return_record_name=True, handle_unicode_errors="surrogateescape")
    node = columns_of(records.writer_schema, cut.calendar.avro_leaves() if cut.calendar else None)
    names = [f.name for f in node.struct.fields]
    while some := list(islice(records, _ROWS)):
        yield checked(pa.RecordBatch.from_arrays(node.columns(some), names), node.struct, cut.path)


def avro_readers(files: Sequence[str]) -> list[AvroReader]:
    """A reader for the files of each schema, in order.

    Raises UsageError for a file that cannot be read, or has a field that no table can have.
    """
    cuts: dict[Struct, list[BlockRange]] = {}
    labels: dict[Struct, str] = {}
    for path, (struct, cut) in zip(files, mapped(_cut, files), strict=True):
        cuts.setdefault(struct, []).extend(cut)
        labels.setdefault(struct, path)
    return [AvroReader(struct, labels[struct], cut) for struct, cut in cuts.items()]


def _cut(path: str) -> tuple[Struct, list[BlockRange]]:
    """The types of a file, and its blocks."""
    try:
        text, cuts = cuts_of(path, _CUT)
        return columns_of(_parsed(text)).struct, cuts
    except RecursionError as error:
        raise UsageError(f"{path}: its schema is nested too deep") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}", error.hint) from error
    except _BROKEN as error:
        raise UsageError(f"{path}: cannot be read as avro: {_said(error)}", WHOLE) from error


def _parsed(text: bytes) -> Any:
    try:
        return parse_schema(json.loads(text))
    except (SchemaParseException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(f"its schema does not parse: {type(error).__name__}: {error}") from error


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
