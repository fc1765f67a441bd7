"""The cells of CSV records as columns: Arrow's reader where it is exact, the cutter elsewhere, and both alike."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.readers.csv.cells import NoRow, columns
from driftline.readers.csv.cut import pieces

TEXT = pa.string()


def rows(text: bytes, types: list[pa.DataType]) -> tuple[list[tuple[object, ...]], list[NoRow]]:
    found: list[tuple[object, ...]] = []
    others: list[NoRow] = []
    for piece in pieces([text]):
        arrays, some = columns(piece, types)
        found += zip(*(array.to_pylist() for array in arrays), strict=True)
        others += some
    return found, others


def test_cells_in_their_types() -> None:
    types = [pa.int64(), pa.bool_(), pa.float64(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")]
    line = b"7,true,1.5,2024-02-29,2024-01-01T00:00:00.5Z,2024-01-01T00:00:00,\n"
    for text in (line, line.replace(b"7", b'"7"'), line + b',,,,,,"a"b\n'):
        (first, *_), others = rows(text, [*types, pa.null() if b"a" not in text else TEXT])
        assert not others
        assert [str(value) for value in first] == [
            "7", "True", "1.5", "2024-02-29", "2024-01-01 00:00:00.500000+00:00", "2024-01-01 00:00:00", "None",
        ]  # fmt: skip


def test_an_empty_cell_is_null_in_quotes_too() -> None:
    assert rows(b'a,,""\n', [TEXT] * 3) == ([("a", None, None)], [])
    assert rows(b'a,,"",5"\n', [TEXT] * 4) == ([("a", None, None, '5"')], [])


@pytest.mark.parametrize("text", [b"1\n\n2\n", b'1\n""\n2\n', b"1\r\n\r\n2"])
def test_a_blank_line_is_a_row_of_one_column(text: bytes) -> None:
    assert rows(text, [pa.int64()]) == ([(1,), (None,), (2,)], [])


def test_a_blank_line_is_no_row_of_several_columns() -> None:
    assert rows(b"\n1,2\n\r\n\n3,4\n\n", [TEXT] * 2) == ([("1", "2"), ("3", "4")], [])
    assert rows(b"\n\n", [TEXT] * 2) == ([], [])


def test_other_records_are_told_with_their_lines() -> None:
    text = b'1,2\n\n"a\r\nb",c,d\r\n3\n4,5\n6,"7\n'
    wide, narrow = (
        NoRow(raw, line, "not as many cells as the header") for raw, line in ((b'"a\r\nb",c,d', 3), (b"3", 5))
    )
    assert rows(text, [TEXT] * 2) == (
        [("1", "2"), ("4", "5")],
        [wide, narrow, NoRow(b'6,"7', 7, "a quote is never closed")],
    )
    assert rows(text.removesuffix(b'6,"7\n'), [TEXT] * 2) == ([("1", "2"), ("4", "5")], [wide, narrow])


_MARK = "\ufeff"  # of the byte order, at the head of a stretch
_PARTS = st.sampled_from(
    ["a", "ü", _MARK, "\0", ",", '"', '""', "\n", "\r\n", "\r", '"x"', ',"a\nb",', ',""', "1"]
)


@given(st.lists(_PARTS, max_size=20), st.integers(1, 3))
@example([_MARK, "a", "\n", _MARK], 1)
def test_both_ways_of_reading_are_one(parts: list[str], width: int) -> None:
    for piece in pieces(["".join(parts).encode()]):
        arrays, others = columns(piece, [TEXT] * width)
        again, others_again = columns(replace(piece, plain=False), [TEXT] * width)
        assert (arrays, others) == (again, others_again)


def test_a_text_that_is_no_value_of_the_type_is_an_error() -> None:
    """A file that has changed since its types were found."""
    for text in (b"1\nx\n", b'1\n"x"y\n'):
        with pytest.raises(pa.ArrowInvalid):
            rows(text, [pa.int64()])
