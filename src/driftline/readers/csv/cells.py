"""The cells of CSV records as Arrow columns. An empty cell is null, in quotes too."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from driftline.core.settings.csv import JSON_SIGNS, Signs
from driftline.readers.csv.cut import CsvRecord, Piece, bounds, count_lines, doubled
from driftline.readers.csv.types import as_json

NOT_AS_WIDE = "not as many cells as the header"
NOT_CLOSED = "a quote is never closed"


@dataclass(frozen=True, slots=True)
class NoRow:
    """A record that is no row.

    Attributes:
        raw: its text without the line end.
        line: the number of its first line.
    """

    raw: bytes
    line: int
    why: str


def columns(
    piece: Piece, types: Sequence[pa.DataType], signs: Signs = JSON_SIGNS, nulls: Sequence[str] = ()
) -> tuple[list[pa.Array], list[NoRow]]:
    """The cells of a piece's rows, an array for each of the columns, and its records that are no rows.

    ``types``: of the columns; each text must be written as a value of its column's type, and the piece UTF-8.
    ``signs``: those in numbers. ``nulls``: texts of cells that are null, beside the empty one. A blank line
    is a row only where there is one column.

    >>> arrays, others = columns(Piece(b"1,x\\n2\\n3,\\n", 1, plain=True), [pa.int64(), pa.string()])
    >>> [array.to_pylist() for array in arrays], others
    ([[1, 3], ['x', None]], [NoRow(raw=b'2', line=2, why='not as many cells as the header')])
    """
    return (_plain if piece.plain else _careful)(piece, types, signs, nulls)


def row_lines(piece: Piece, width: int, others: Sequence[NoRow]) -> NDArray[np.int64]:
    """The numbers of the lines on which a piece's rows begin.

    Args:
        piece: the piece.
        width: the number of cells of a row.
        others: the records that are no rows.

    >>> row_lines(Piece(b'1,"a\\nb"\\n\\n2,x\\n', 5, plain=True), 2, []).tolist()
    [5, 8]
    """
    lines = placed(piece, width).lines
    return lines[~np.isin(lines, [reject.line for reject in others])]


class PlacedRecords(NamedTuple):
    """The places of a piece's records in its text, and their first lines; without blank lines that are none.

    Attributes:
        ends: behind their line ends.
    """

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    lines: NDArray[np.int64]


def placed(piece: Piece, width: int) -> PlacedRecords:
    """Find the records of a piece, rows or not. ``width``: the number of cells of a row."""
    if piece.picked is not None:
        begins, lines = piece.picked
        ends = np.append(begins[1:], len(piece.text))
    elif piece.plain:
        all_begins, all_ends = bounds(piece.text, piece.marks)
        chosen = (all_ends > all_begins) | (width == 1)
        begins, ends = all_begins[chosen], np.append(all_begins[1:], len(piece.text))[chosen]
        codes = np.frombuffer(piece.text, np.uint8)
        ends_line = codes == ord("\n")
        returns = codes == ord("\r")
        returns[:-1] &= ~ends_line[1:]
        lines = piece.line + np.searchsorted(np.flatnonzero(ends_line | returns), begins)
    else:
        cut = [record for record in piece.records() if record.raw or width == 1]
        places = [(record.begin, record.end, record.line) for record in cut]
        begins, ends, lines = np.array(places, np.int64).reshape(-1, 3).T
    return PlacedRecords(begins, ends, lines)


def _plain(
    piece: Piece, types: Sequence[pa.DataType], signs: Signs, nulls: Sequence[str]
) -> tuple[list[pa.Array], list[NoRow]]:
    names = [str(i) for i in range(len(types))]
    delimiter, quote = piece.marks.delimiter, piece.marks.quote
    wrong: list[int] = []

    def skip(row: csv.InvalidRow) -> str:
        wrong.append(row.number - 1)
        return "skip"

    if len(types) > 1 and not piece.text.strip(b"\r\n"):
        return [pa.nulls(0, type_) for type_ in types], []
    # A mark at the head of its input pyarrow leaves out, though it stands in the midst of a file.
    marked = piece.text.startswith(BOM_UTF8)
    # The escapes of pyarrow remove backslashes everywhere.
    text = doubled(piece.text, piece.marks)
    text = BOM_UTF8 + text if marked else text
    # Of `TRUE` pyarrow would have to be told each spelling, and look all of them up anew for each column, of
    # whatever type; and numbers with signs between thousands are texts to it.
    read = [pa.string() if _is_cast(type_, signs) else type_ for type_ in types]
    table = csv.read_csv(
        pa.BufferReader(text),
        # One block, as the piece is whole records and in memory already.
        csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
        csv.ParseOptions(
            delimiter=delimiter.decode(),
            quote_char=quote.decode() or False,
            newlines_in_values=bool(quote) and quote in piece.text,
            ignore_empty_lines=len(types) > 1,
            # Only the numbers of such rows are kept; their texts are cut out of the piece again (`_found`).
            invalid_row_handler=skip,
        ),
        csv.ConvertOptions(
            # All texts were checked when the file was looked at.
            check_utf8=False,
            column_types=dict(zip(names, read, strict=True)),
            null_values=["", *nulls],
            strings_can_be_null=True,
            decimal_point=signs.decimal,
        ),
    )
    # One block gives one batch; none without a row.
    batches = table.to_batches()
    columns = batches[0].columns if batches else [pa.nulls(0, type_) for type_ in read]
    columns = [
        cast(column, type_, signs) if _is_cast(type_, signs) else column
        for column, type_ in zip(columns, types, strict=True)
    ]
    return columns, _found(piece, wrong, blanks=len(types) == 1)


def _found(piece: Piece, places: Sequence[int], *, blanks: bool) -> list[NoRow]:
    """The records at these places as no rows; ``blanks``: blank lines count, too."""
    if not places:
        return []
    begins, ends = bounds(piece.text, piece.marks)
    filled = np.flatnonzero((ends > begins) | blanks)[list(places)]
    if piece.picked is not None:
        lines = piece.picked[1][list(places)].tolist()
        return [
            NoRow(piece.text[begin:end], line, NOT_AS_WIDE)
            for begin, end, line in zip(begins[filled].tolist(), ends[filled].tolist(), lines, strict=True)
        ]
    out, line, offset = [], piece.line, 0
    for begin, end in zip(begins[filled].tolist(), ends[filled].tolist(), strict=True):
        line, offset = line + count_lines(piece.text[offset:begin]), begin
        out.append(NoRow(piece.text[begin:end], line, NOT_AS_WIDE))
    return out


def _careful(
    piece: Piece, types: Sequence[pa.DataType], signs: Signs, nulls: Sequence[str]
) -> tuple[list[pa.Array], list[NoRow]]:
    none = {b"", *(text.encode() for text in nulls)}
    rows: list[list[bytes | None]] = []
    others = []
    for record in piece.records():
        why = _why(record, len(types))
        if why is not None:
            others.append(NoRow(record.raw, record.line, why))
        elif record.raw or len(types) == 1:
            rows.append([None if cell in none else cell for cell in record.cells or []])
    return [_array([row[i] for row in rows], type_, signs) for i, type_ in enumerate(types)], others


def _why(record: CsvRecord, width: int) -> str | None:
    if record.cells is None:
        return NOT_CLOSED
    return NOT_AS_WIDE if record.raw and len(record.cells) != width else None


def _array(cells: Sequence[bytes | None], type_: pa.DataType, signs: Signs) -> pa.Array:
    texts = pa.array([None if cell is None else cell.decode() for cell in cells], pa.string())
    return pa.nulls(len(cells), type_) if pa.types.is_null(type_) else cast(texts, type_, signs)


def cast(column: pa.Array, type_: pa.DataType, signs: Signs) -> pa.Array:
    """The column in its type, of which its texts are values."""
    texts = pa.types.is_string(column.type) and _is_number(type_)
    return (as_json(column, signs) if texts else column).cast(type_)


def _is_cast(type_: pa.DataType, signs: Signs) -> bool:
    """True for a column that is read as text, and cast then."""
    return pa.types.is_boolean(type_) or (bool(signs.thousands) and _is_number(type_))


def _is_number(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_kind(type_) for is_kind in kinds)
