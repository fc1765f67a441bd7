"""Deals the records of CSV files by table into a spool file, from which each table reads its share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from driftline.core.schema.naming import caseless
from driftline.core.settings.csv import FOLD, Dialect, Signs
from driftline.ingest.deal import HeldBatches, Share
from driftline.ingest.deal_rows import Tables
from driftline.ingest.pattern import Brace, Pattern, Values, of_file, text_of
from driftline.readers.csv.cells import PlacedRecords, columns, placed
from driftline.readers.csv.cut import Piece, TooLongError, count_lines
from driftline.readers.csv.dealt import RECORDS
from driftline.readers.csv.open import Wrong, whole
from driftline.readers.csv.sample import CsvFile
from driftline.readers.csv.types import as_json
from driftline.sources.listing import PathTexts

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def deal_csv(files: Sequence[CsvFile], reader: CellValues, tables: Tables, spool: Path) -> dict[str, Share]:
    """Deal the records of files into a ``spool`` file; returns the share of each table.

    Args:
        files: in order.
        reader: reads the values that name a table.
        tables: the tables of values, which come in the order in which they are first seen.
        spool: the file.

    Raises DataError for a byte that is not of its file's encoding, and for a record that is too long.
    """
    shares: dict[str, Share] = {}
    with ExitStack() as stack:
        dealt = HeldBatches(spool, stack, shares)
        for file in files:
            for piece in _pieces(file):
                records, values = reader.read(file, piece)
                dealt.add(records, values, tables(list(dict.fromkeys(values))), file.path)
        dealt.flush()
    return shares


def _pieces(file: CsvFile) -> Iterator[Piece]:
    """Yield the records of a file, whose text is valid."""
    stretch = whole(file.stretches)
    try:
        for piece in stretch.pieces():
            if not piece.text.isascii():
                piece.text.decode()
            yield piece
    except UnicodeDecodeError as error:
        line = piece.line + count_lines(error.object[: error.start])
        raise Wrong.byte(line, error, stretch.form).of(file.path) from error
    except TooLongError as error:
        raise Wrong.length(error.line).of(file.path) from error


class CellValues:
    """Reads the values of a pattern's braces from records of CSV.

    Args:
        pattern: of the tables.
        dialect: tells if the names of columns fold.
        names: other names of files.
        texts: those in the paths of files that are columns, too.
    """

    def __init__(
        self, pattern: Pattern, dialect: Dialect, names: Mapping[str, str], texts: PathTexts
    ) -> None:
        self._pattern, self._names, self._texts = pattern, names, texts
        self._key: Callable[[str], str] = caseless if dialect.names == FOLD else str
        self._paths = [pattern.path(number) for number in range(len(pattern.braces))]
        self._of_table = {piece.number for piece in pattern.parts[-1] if isinstance(piece, Brace)}

    def read(self, file: CsvFile, piece: Piece) -> tuple[pa.RecordBatch, list[Values]]:
        """Return the records of a piece, and the values of each; of one that is no row, those of its file."""
        form, names = file.header.form, [self._key(column.name) for column in file.header.columns]
        arrays, others = columns(piece, [pa.string()] * len(names), form.signs, form.nulls)
        cells = dict(zip(names, (_texts(array, form.signs) for array in arrays), strict=True))
        records = placed(piece, len(names))
        is_row = ~np.isin(records.lines, [no_row.line for no_row in others])
        of_rows = [
            self._of_brace(number, file, cells, int(is_row.sum())) for number in range(len(self._paths))
        ]
        rows, of_none = zip(*of_rows, strict=True), self._of_none(file)
        values = [next(rows) if flag else of_none for flag in is_row.tolist()]
        return _batch(piece, records, file.header.lines), values

    def _of_brace(
        self, number: int, file: CsvFile, cells: Mapping[str, list[str | None]], count: int
    ) -> list[str | None]:
        """The texts of a brace, for each of the ``count`` rows of a file, by the ``cells`` of its columns."""
        path = self._paths[number]
        if path is None:
            return [self._beside(file).get(self._pattern.braces[number])] * count
        if len(path) > 1:  # a column has no fields
            return [None] * count
        in_path = self._texts.get(file.path, {}).get(path[0])
        path_text = None if in_path is None else _spelled(in_path, in_path)
        return [path_text if text is None else text for text in cells.get(self._key(path[0]), [None] * count)]

    def _of_none(self, file: CsvFile) -> Values:
        beside = self._beside(file)
        return tuple(
            None if number in self._of_table else beside.get(brace)
            for number, brace in enumerate(self._pattern.braces)
        )

    def _beside(self, file: CsvFile) -> Mapping[str, str | None]:
        return of_file(self._names.get(file.path, file.path))


def _texts(cells: pa.Array, signs: Signs) -> list[str | None]:
    """The text by which each cell names a table; None for an empty one."""
    values = cells.dictionary_encode()
    as_written, as_numbers = values.dictionary, as_json(values.dictionary, signs)
    spelled = list(map(_spelled, as_written.to_pylist(), as_numbers.to_pylist()))
    return [None if place is None else spelled[place] for place in values.indices.to_pylist()]


def _spelled(text: str, number: str) -> str | None:
    """The text by which a cell names a table: a ``number`` by its exact value."""
    return text_of(Decimal(number) if _NUMBER.fullmatch(number) else text)


def _batch(piece: Piece, records: PlacedRecords, header_lines: int) -> pa.RecordBatch:
    """The records as they are written. ``header_lines``: the lines before the first row of their file."""
    # Comments and blank lines between records are in every other one of these.
    offsets = np.append(np.column_stack((records.begins, records.ends)).ravel(), len(piece.text))
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(piece.text)]
    texts = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    count = len(records.lines)
    written = texts.take(pa.array(np.arange(count) * 2))
    flags = pa.array(np.full(count, piece.plain))
    return pa.record_batch([written, pa.array(records.lines - header_lines), flags], schema=RECORDS)
