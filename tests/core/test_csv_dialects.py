"""CSV in whatever marks, encoding and decimal sign: as Python's own module writes it, told or sniffed."""

from __future__ import annotations

import csv
import gzip
import io
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.core.schema.text import parse_type
from driftline.core.schema.types import Primitive, decimal
from driftline.core.settings.csv import NONE, Dialect
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError, UsageError
from driftline.observe.expect import ExpectedField
from driftline.readers.csv import reader as csv_source
from driftline.readers.csv.open import ANY
from driftline.readers.csv.reader import CsvFiles, csv_readers
from driftline.verify import files as check
from driftline.verify.csv import CsvDialect, decoded
from driftline.verify.files import parts
from driftline.verify.values import Cell, ValueSettings, holds

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", defaultParallelism=2))
ENCODINGS = ["utf-8", "utf-8-sig", "latin1", "cp1252", "cp1250", "utf-16", "utf-16-be", "utf-32-le", "shift_jis", "gb18030"]  # fmt: skip
SAMPLE = "Größe;Preis\nÄ;1,5\nß;2,25\n"


def read(file: Path, dialect: Dialect = ANY, *, strings: bool = False) -> tuple[dict[str, str], list[Any]]:
    """The types of the columns, and the rows; there is nothing else."""
    (reader,) = csv_readers(SPARK, [str(file)], dialect, strings=strings)
    rows: list[Any] = []
    for part in range(len(reader.sizes)):
        for some in reader.rows(part):
            assert some.rejects == []
            rows += zip(*(column.to_pylist() for column in some.batch.columns), strict=True)
    return {f.name: str(f.type) for f in reader.struct.fields}, rows


def put(folder: Path, text: str | bytes, encoding: str = "utf-8", name: str = "in.csv") -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return folder / name


@st.composite
def written(draw: st.DrawFn) -> tuple[bytes, Dialect, list[list[str]]]:
    """A file that Python's module has written, how, and its cells; the first row is the header."""
    encoding = draw(st.sampled_from(ENCODINGS))
    delimiter = draw(st.sampled_from(",;\t|: ^]-~"))
    quote = draw(st.sampled_from(["'", '"', "`", "$"]))
    letters = st.sampled_from([*"abé1.", "日", delimiter, quote, quote * 2, "\n", "\r\n", "\r", " "])
    cells = st.text(st.characters(codec=encoding, exclude_characters="\0¥‾")) | st.lists(letters).map("".join)
    cells = cells.filter(lambda cell: _is_of(cell, encoding))
    width = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(cells, min_size=width, max_size=width), max_size=5))
    rows.insert(0, [f"c{i}" for i in range(width)])
    text = io.StringIO(newline="")
    end = draw(st.sampled_from(["\n", "\r\n"]))
    # It forgets to quote a return that ends no line of its own.
    bare = end == "\n" and any("\r" in cell for row in rows for cell in row)
    quoting = csv.QUOTE_ALL if bare else draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    csv.writer(text, delimiter=delimiter, quotechar=quote, quoting=quoting, lineterminator=end).writerows(
        rows
    )
    return text.getvalue().encode(encoding), Dialect(delimiter, quote, encoding, trim="no"), rows


def _is_of(cell: str, encoding: str) -> bool:
    try:
        return cell.encode(encoding).decode(encoding) == cell
    except UnicodeError:
        return False


@pytest.mark.slow
@given(written(), st.integers(1, 40))
def test_what_python_writes_is_read_as_it_was(
    given: tuple[bytes, Dialect, list[list[str]]], size: int
) -> None:
    data, dialect, (_, *rows) = given
    wanted = [tuple(cell or None for cell in row) for row in rows]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        file = put(Path(folder), data)
        assert read(file, dialect, strings=True)[1] == wanted
        patch.setattr(csv_source, "_STRETCH", (size, size))
        assert read(file, dialect, strings=True)[1] == wanted, "in stretches"


def test_nothing_stands_around_cells(tmp_path: Path) -> None:
    file = put(tmp_path, 'a,b\n"1,x"\n"2,"\n')
    assert read(file, Dialect(quote=NONE)) == ({"a": "string", "b": "string"}, [('"1', 'x"'), ('"2', '"')])


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le", "shift_jis"])
def test_other_encodings_are_read_in_stretches_where_they_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    letter = "日" if encoding == "shift_jis" else "é"
    text = f"id,{letter}\n" + "".join(f"{i},{letter}{i}\n" for i in range(400))
    file = put(tmp_path, text, encoding)
    monkeypatch.setattr(csv_source, "_STRETCH", (100, 100))
    (reader,) = csv_readers(SPARK, [str(file)], Dialect(encoding=encoding), strings=False)
    assert (len(reader.sizes) > 1) == (encoding == "cp1252")
    types, rows = read(file, Dialect(encoding=encoding))
    assert types == {"id": "long", letter: "string"}
    assert rows == [(i, f"{letter}{i}") for i in range(400)]


@pytest.mark.parametrize(
    "text", ["a,b\n1,\0\n", "c0\n\0", "ab\n1\0\n", "a;b\n\0;\0\n" * 20, "ab\n" + "12\0\n" * 40]
)
def test_zeros_in_utf8_make_no_utf16(text: str, tmp_path: Path) -> None:
    """Few bytes with a zero were taken for UTF-16, and for a header without rows."""
    _, rows = read(put(tmp_path, text))
    assert len(rows) == len(text.splitlines()) - 1
    assert "".join(decoded(io.BytesIO(text.encode()), "")) == text


def test_utf16_is_told_by_its_mark_or_its_zeros(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        file = put(tmp_path, "a;b\n1;é\n", encoding)
        for dialect in (Dialect(), Dialect(encoding="utf-16")):
            assert read(file, dialect) == ({"a": "long", "b": "string"}, [(1, "é")])
    packed = put(tmp_path, gzip.compress("a;b\n1;é\n".encode("utf-16")), name="in.csv.gz")
    assert read(packed)[1] == [(1, "é")]
    # A mark is stronger than what was said.
    marked = put(tmp_path, "\ufeffa;b\n1;é\n", "utf-16-le")
    assert (
        read(marked, Dialect(encoding="utf-16-be"))[1]
        == read(marked, Dialect(encoding="cp1252"))[1]
        == [(1, "é")]
    )


@pytest.mark.parametrize("stretch", [20, 1000])
def test_a_byte_that_is_none_of_the_encoding_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    monkeypatch.setattr(csv_source, "_STRETCH", (stretch, stretch))
    file = put(tmp_path, b"a,b\n" + b"1,\xe9\n" * 30 + b"2,\x81\n")
    with pytest.raises(DataError, match=r"in\.csv:2: byte 0xe9 is not UTF-8") as raised:
        read(file)
    assert "--encoding cp1252" in str(raised.value.hint)
    with pytest.raises(DataError, match=r"in\.csv:32: byte 0x81 is not cp1252"):
        read(file, Dialect(encoding="cp1252"))
    assert read(file, Dialect(encoding="latin1"))[1][-1] == (2, "\x81")
    with pytest.raises(DataError, match=r"in\.csv:1: byte 0xe9 is not ascii"):
        read(put(tmp_path, b"\xe9\n1\n"), Dialect(encoding="ascii"))
    with pytest.raises(DataError, match=r"in\.csv:2: byte 0x00 is not utf-16-le|in\.csv:2: byte 0x0 is not"):
        read(put(tmp_path, "a,b\n1,x".encode("utf-16-le") + b"\x00\xd8\n\x00"), Dialect(encoding="utf-16-le"))


def test_quotes_are_told_where_they_alone_make_the_rows_even(tmp_path: Path) -> None:
    file = put(tmp_path, "a,b\n'x,1',2\n'it''s',3\n")
    assert read(file)[1] == [("x,1", 2), ("it's", 3)]
    plain = put(tmp_path, "a,b\n'x',2\n'tis,3\n")
    assert read(plain)[1] == [("'x'", 2), ("'tis", 3)]


def test_quoted_decimal_commas_between_commas_are_hinted_at(tmp_path: Path) -> None:
    file = put(tmp_path, 'id,de\n1,"32.383,63"\n2,"1.234,50"\n')
    (hint,) = CsvFiles(SPARK, [str(file)], strings=False)(ExpectedField(), TableSettings()).notes
    assert hint.startswith("--thousands . would make de numeric")
    (reader,) = CsvFiles(SPARK, [str(file)], strings=False)(
        ExpectedField(), from_properties(as_properties({"thousands": "."}))
    ).readers
    assert [str(f.type) for f in reader.struct.fields] == ["long", "double"]
    lists = put(tmp_path, 'id,n\n1,"1,234"\n2,"5,678"\n')
    assert CsvFiles(SPARK, [str(lists)], strings=False)(ExpectedField(), TableSettings()).notes == []


def test_what_a_file_tells_is_said(tmp_path: Path) -> None:
    files = CsvFiles(SPARK, [str(put(tmp_path, SAMPLE, "utf-16-le"))], strings=False)
    first, second = files(ExpectedField(), TableSettings()).notes
    assert first.startswith("detected --delimiter ';' --encoding utf-16-le in ")
    assert second.startswith("--decimal , would make Preis numeric")
    said = from_properties(as_properties({"delimiter": ";", "encoding": "UTF-16LE", "decimal": ","}))
    found = files(ExpectedField(), said)
    (reader,) = found.readers
    assert found.notes == [] and [str(f.type) for f in reader.struct.fields] == ["string", "double"]
    default = CsvFiles(SPARK, [str(put(tmp_path, "a,b\n1,2\n"))], strings=False)
    assert default(ExpectedField(), TableSettings()).notes == []


def test_a_delimiter_that_another_file_had_is_not_gone_by_in_silence(tmp_path: Path) -> None:
    """It stays with the table."""
    files = CsvFiles(SPARK, [str(put(tmp_path, "a,b\n1,2\n3,4\n"))], strings=False)
    (note,) = files(ExpectedField(), from_properties(as_properties({"delimiter": "tab"}))).notes
    assert note.endswith("has one column with --delimiter tab, but several with --delimiter ','")
    for text in ("a\n1\n", "a;b\n1,5;2,5\n", "a\nx,y\nz\n"):
        files = CsvFiles(SPARK, [str(put(tmp_path, text))], strings=False)
        stated = from_properties(as_properties({"delimiter": ";", "decimal": ","}))
        assert files(ExpectedField(), stated).notes == []


def test_json_that_is_read_as_csv_is_said(tmp_path: Path) -> None:
    """Each of its lines would be cells, the first one the names of columns."""
    notes = []
    for text in ('{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n', "{a},{b}\n1,2\n", '{"a": 1'):
        files = CsvFiles(SPARK, [str(put(tmp_path, text))], strings=False)
        found = files(ExpectedField(), TableSettings())
        notes.append([note for note in found.notes if note.endswith("if it is JSON, pass --format json")])
    assert list(map(len, notes)) == [1, 0, 0]


COMMA = Dialect(";", decimal=",")


@pytest.mark.parametrize(
    ("cells", "type_", "values"),
    [
        (["1,5", "2"], "double", [1.5, 2.0]),
        (["2", "1,5"], "double", [2.0, 1.5]),
        (["1,50", "2"], "double", [1.5, 2.0]),
        (["1,50x", "2"], "string", ["1,50x", "2"]),
        (["1.5", "2"], "string", ["1.5", "2"]),
        (["1.000,5", "2"], "string", ["1.000,5", "2"]),
        (["1,5", "1.5"], "string", ["1,5", "1.5"]),
        (["1", "2"], "long", [1, 2]),
        (['"1,5"', "2"], "double", [1.5, 2.0]),
        (['x"1', "1,5"], "string", ['x"1', "1,5"]),
        (["true", "false"], "boolean", [True, False]),
        (["TRUE", "False"], "boolean", [True, False]),
    ],
)
def test_a_decimal_comma(tmp_path: Path, cells: list[str], type_: str, values: list[Any]) -> None:
    text = "a;b\n" + "".join(f"{cell};x\n" for cell in cells)
    types, rows = read(put(tmp_path, text), COMMA)
    assert types["a"] == type_
    assert [row[0] for row in rows] == values
    # With a misquoted cell beside them, other code reads the cells.
    types, rows = read(put(tmp_path, text.replace(";x", ';x"y', 1)), COMMA)
    assert (types["a"], [row[0] for row in rows]) == (type_, values)


def test_moments_have_their_point_all_the_same(tmp_path: Path) -> None:
    assert read(put(tmp_path, "a;b\n2024-01-01T00:00:00.5Z;1\n"), COMMA)[0]["a"] == "timestamp"


def test_a_decimal_comma_in_a_column_that_was_declared(tmp_path: Path) -> None:
    files = CsvFiles(SPARK, [str(put(tmp_path, "amount;b\n1,50;x\n-2;y\n"))], strings=False)
    known = ExpectedField(fields={"amount": ExpectedField(frozenset({decimal(10, 2)}))})
    (reader,) = files(known, from_properties(as_properties({"decimal": ","}))).readers
    assert str(reader.struct.fields[0].type) == "decimal(10, 2)"
    (some,) = reader.rows(0)
    assert list(map(str, some.batch.column(0).to_pylist())) == ["1.50", "-2.00"]


def test_settings_of_csv_are_checked() -> None:
    assert from_properties(as_properties({"delimiter": "tab", "quote": "none"})).csv == Dialect("\t", NONE)
    for setting, why in [
        ({"delimiter": "ab"}, "not one character"),
        ({"delimiter": "§"}, "not one character of ASCII"),
        ({"quote": "x"}, "no letter"),
        ({"encoding": "utf8000"}, "is not an encoding: write utf-8"),
        ({"encoding": "idna"}, "is not an encoding"),
        ({"encoding": "rot13"}, "is not an encoding"),
        ({"decimal": ";"}, "is not possible"),
    ]:
        with pytest.raises(UsageError) as raised:
            as_properties(setting)
        assert why in raised.value.message


@pytest.mark.slow
@given(written())
def test_the_reader_of_the_check_finds_the_same_cells(given: tuple[bytes, Dialect, list[list[str]]]) -> None:
    data, dialect, (names, *rows) = given
    said = CsvDialect(dialect.delimiter, dialect.quote, dialect.encoding, trim=dialect.trim)
    with TemporaryDirectory() as folder:
        (part,) = parts([str(put(Path(folder), data))], "csv", dialect=said)
        assert [one.record for one in check.read(part)] == [
            dict(zip(names, row, strict=True)) for row in rows
        ]


@pytest.mark.parametrize("text", [SAMPLE, "a,b\n'x,1',2\n'it''s',3\n", "a,b\n'x',2\n'tis,3\n", "a|b\n1|2\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_it_is_told_the_same_by_a_file(tmp_path: Path, text: str, encoding: str) -> None:
    file = put(tmp_path, text, encoding)
    (part,) = parts([str(file)], "csv")
    found = [tuple(record.record.values()) for record in check.read(part) if record.record is not None]
    assert found == read(file, strings=True)[1]


@pytest.mark.parametrize(
    ("text", "column", "stored", "held"),
    [
        ("1,5", "double", 1.5, True),
        ("1,50", "decimal(10,2)", Decimal("1.50"), True),
        ("1,50", "string", "1,50", True),
        ("1.5", "double", 1.5, False),
        ("1.5", "string", "1.5", True),
        ("15", "double", 1.5, False),
    ],
)
def test_the_check_reads_a_decimal_comma(text: str, column: str, stored: object, held: bool) -> None:
    type_ = parse_type(column)
    assert isinstance(type_, Primitive)
    assert holds(type_, stored, Cell(text), ValueSettings(comma=True)) == held


_PARTS = st.sampled_from(
    ["a", "1", "1,5", "é", ",", ";", "\t", "|", "'", '"', "''", "\n", "\r\n", "\n", ",'x,y'", ";'x'"]
)


_HEADERS = st.sampled_from(["n1;n2\n", "n1,n2\r\n", "n1\n", "'n1','n2'\n", "n1\tn2|n3\n", '"n1";n2,n3\n'])


@given(_HEADERS, st.lists(_PARTS, max_size=30), st.sampled_from(["utf-8", "utf-16-le", "utf-16"]))
def test_whatever_a_file_tells_both_readers_go_by_it(header: str, texts: list[str], encoding: str) -> None:
    """A line that is no row for one reader is none for the other; nothing is lost between them."""
    with TemporaryDirectory() as folder:
        file = put(Path(folder), header + "".join(texts), encoding)
        readers = csv_readers(SPARK, [str(file)], strings=True)
        found, others = [], 0
        for reader in readers:
            for some in (some for part in range(len(reader.sizes)) for some in reader.rows(part)):
                found += zip(*(column.to_pylist() for column in some.batch.columns), strict=True)
                others += len(some.rejects)
        (part,) = parts([str(file)], "csv")
        told = list(check.read(part))
        assert others == sum(one.record is None for one in told)
        wanted = [tuple(one.record.values()) for one in told if one.record is not None]
        written = [tuple(getattr(cell, "written", cell) or None for cell in row) for row in wanted]
        assert found == written
