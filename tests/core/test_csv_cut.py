"""CSV text cut into whole records, in whatever blocks it comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.readers.csv import cut as csv_cut
from driftline.readers.csv.cut import OpenEndError, TooLongError, bounds, count_lines, pieces, records
from driftline.verify.csv import rows

RECORDS = {
    b"1,2\n3,4": [[b"1", b"2"], [b"3", b"4"]],
    b"1,2\r\n3\n4\r5,\r\n": [[b"1", b"2"], [b"3"], [b"4"], [b"5", b""]],
    b"\n\r\n": [[b""], [b""]],
    b'"a,b","c\r\nd","e\nf"\r\n': [[b"a,b", b"c\r\nd", b"e\nf"]],
    b'"a ""b""",""\n"",""""': [[b'a "b"', b""], [b"", b'"']],
    # A quote in the midst of a cell is text; where quotes end before the cell, it stands as it is written.
    b'5" pipe,"a\\"b"\n': [[b'5" pipe', b'"a\\"b"']],
    b'"1"2,"x" ,"y"\n': [[b'"1"2', b'"x" ', b"y"]],
    b'1,"a\n2,"b"\n': [None, [b"2", b"b"]],
    b'1,"a\n2,b\n': [None, [b"2", b"b"]],
    b'1,"a""\n2,b\n': [None, [b"2", b"b"]],
    b'"a\n"b\n': [None, None],
    b'"': [None],
}


@pytest.mark.parametrize("text", RECORDS)
def test_the_cells_of_each_record(text: bytes) -> None:
    assert [record.cells for record in records(text)] == RECORDS[text]


def test_records_know_their_lines_and_their_text() -> None:
    text = b'a,b\r\n\n"1\r2\n3",4\r5,6\n'
    found = [(record.line, record.raw, record.end) for record in records(text, 7)]
    assert found == [(7, b"a,b", 5), (8, b"", 6), (9, b'"1\r2\n3",4', 16), (12, b"5,6", 20)]
    assert count_lines(text) == 6


@given(
    st.lists(st.sampled_from([b"a", b",", b'"', b'""', b"\n", b"\r", b"\r\n", b',"x\ny",']), max_size=20),
    st.integers(1, 12),
)
def test_blocks_of_any_size_give_the_same_records(parts: list[bytes], size: int) -> None:
    text = b"".join(parts)
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    found = []
    for piece in pieces(blocks):
        some = list(records(piece.text, piece.line))
        found += [(record.raw, record.line, record.cells) for record in some]
        if piece.plain:
            begins, ends = bounds(piece.text)
            raw = [piece.text[begin:end] for begin, end in zip(begins, ends, strict=True)]
            assert raw == [record.raw for record in some]
    assert found == [(record.raw, record.line, record.cells) for record in records(text)]


def test_pieces_are_plain_where_every_quote_opens_or_closes() -> None:
    def plain(text: bytes) -> list[bool]:
        return [piece.plain for piece in pieces([text])]

    assert plain(b'1,"a ""b"""\n"","x\ny"\n') == [True]
    assert plain(b'1,5"\n') == plain(b'1,"a"b\n') == plain(b'1, "a"\n') == [False]
    assert plain(b'1,"a\n') == [False]


def test_a_range_that_ends_within_a_cell_cannot_be_read_alone() -> None:
    with pytest.raises(OpenEndError):
        list(pieces([b'1,"a\n'], whole=False))
    assert [piece.text for piece in pieces([b'1,"a"\n'], whole=False)] == [b'1,"a"\n']


def test_a_quote_that_is_open_too_long_is_never_closed() -> None:
    blocks = [b'1,"a\n', *([b"2,b\n"] * 10), b'3,"c"\n']
    found = [record for piece in pieces(blocks, longest=16) for record in records(piece.text, piece.line)]
    assert [record.cells for record in found] == [None, *([[b"2", b"b"]] * 10), [b"3", b"c"]]
    assert [record.line for record in found] == list(range(1, 13))


def test_what_a_quote_has_held_back_comes_in_parts_of_which_one_is_odd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(csv_cut, "_MANY", 64)
    lines = [b"0,z\n", b'1,"a\n', *([b"2,b\n"] * 100), b'3,"c"\n', *([b"4,d\n"] * 100)]
    for longest in (256, 10_000):  # the quote is open for too long, or to the end of the file
        some = list(pieces(lines, longest=longest))
        assert b"".join(piece.text for piece in some) == b"".join(lines)
        assert max(len(piece.text) for piece in some) <= 2 * 64
        assert [b'1,"a\n' in piece.text for piece in some if not piece.plain].count(True) == 1
        assert sum(len(piece.text) for piece in some if not piece.plain) <= 2 * 64
        assert [piece.line for piece in some] == [
            1 + sum(count_lines(before.text) for before in some[:i]) for i in range(len(some))
        ]


@given(
    st.lists(st.sampled_from([b"a", b",", b'"', b'""', b"\n", b"\r", b"\r\n", b',"x\ny",']), max_size=40),
    st.integers(1, 12),
)
def test_parts_of_any_size_give_the_same_records(parts: list[bytes], size: int) -> None:
    text = b"".join(parts)
    blocks = [text[at : at + 7] for at in range(0, len(text), 7)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_cut, "_MANY", size)
        found = [record for piece in pieces(blocks) for record in records(piece.text, piece.line)]
    expected = list(records(text))
    assert [(r.raw, r.line, r.cells) for r in found] == [(r.raw, r.line, r.cells) for r in expected]


@given(st.lists(st.sampled_from(["a", ",", '"', '""', "\n", "\r", "\r\n", ',"x\ny",', '"x",']), max_size=20))
def test_the_reader_of_the_check_finds_the_same_records(parts: list[str]) -> None:
    text = "".join(parts)
    found = [
        (record.line, record.raw.decode(), record.cells and [cell.decode() for cell in record.cells])
        for record in records(text.encode())
    ]
    assert found == [
        (row.line, row.raw, row.cells and [getattr(cell, "written", cell) for cell in row.cells])
        for row in rows([text])
    ]


def test_a_record_without_end_is_given_up() -> None:
    for blocks in ([b"1\n", *[b"2,3,"] * 10], [b'1\n2,"', *[b'"",""'] * 10]):
        with pytest.raises(TooLongError, match="line 2") as told:
            list(pieces(blocks, longest=16))
        assert told.value.line == 2
