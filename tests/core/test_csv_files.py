"""CSV files as rows of typed columns, without Spark: what is small is looked at where the driver is."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.core.schema.types import BOOLEAN, DATE, DOUBLE, INT, LONG, STRING, Primitive, decimal
from driftline.core.settings.csv import Dialect
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError
from driftline.files import text as text_files
from driftline.observe.expect import ExpectedField
from driftline.observe.observation import merge_observations
from driftline.readers.columnar.rows import RowsObserver
from driftline.readers.csv import cut as csv_cut
from driftline.readers.csv import reader as csv_source
from driftline.readers.csv.open import header_of
from driftline.readers.csv.reader import CsvFiles, FoundCsv, csv_readers, fitted
from driftline.readers.task import AdmissionTerms
from driftline.verify.csv import CsvDialect
from driftline.verify.files import parts
from driftline.verify.files import read as records

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", defaultParallelism=2))
NOT_AS_WIDE = "not as many cells as the header"


def read(*files: Path, strings: bool = False) -> tuple[dict[str, str], list[Any], list[tuple[str, int, Any]]]:
    """The types of the columns, the rows, and what is none."""
    types: dict[str, str] = {}
    rows: list[Any] = []
    rejects = []
    for reader in csv_readers(SPARK, [str(file) for file in files], strings=strings):
        types.update({f.name: str(f.type) for f in reader.struct.fields})
        for part in range(len(reader.sizes)):
            for some in reader.rows(part):
                rows += zip(*(column.to_pylist() for column in some.batch.columns), strict=True)
                rejects += [(raw.decode(), origin.line, why) for origin, raw, why in some.rejects]
    return types, rows, rejects


def csv(folder: Path, text: str | bytes, name: str = "in.csv") -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        pytest.param("\n\r\na,b\n1,x\n", [(1, "x")], id="blank lines in front of the header"),
        pytest.param("\ufeffa,b\r\n1,x\r\n", [(1, "x")], id="a byte order mark"),
        pytest.param('\ufeff"a","b"\n1,x', [(1, "x")], id="a byte order mark, a quoted header"),
        pytest.param("a,b\n1,x\r\n2,y\r\n", [(1, "x"), (2, "y")], id="CRLF behind LF"),
        pytest.param("a,b\r\n1,x\n2,y\n", [(1, "x"), (2, "y")], id="LF behind CRLF"),
        pytest.param("a,b\r1,x\r2,y\r", [(1, "x"), (2, "y")], id="CR"),
        pytest.param('a,b\n1,"x\r\ny\r"\r\n2,"\n"\n', [(1, "x\r\ny\r"), (2, "\n")], id="line ends in quotes"),
        pytest.param('a,b\n1,""\n2,\n,""""\n', [(1, None), (2, None), (None, '"')], id="empty cells"),
        pytest.param('a,b\n1,5" pipe\n2,"a\\"b"\n3,"q" \n', [(1, '5" pipe'), (2, '"a\\"b"'), (3, '"q" ')], id="misquoted"),
        pytest.param("b\nx\n\ny\n", [("x",), (None,), ("y",)], id="a blank line of one column"),
        pytest.param("a,b\n", [], id="no row"),
        pytest.param("", [], id="nothing"),
        pytest.param('a;b\n1;"x;\n""y"\n2;2,5\n', [(1, 'x;\n"y'), (2, "2,5")], id="semicolons"),
        pytest.param("a\tb\n1\tx, y\n", [(1, "x, y")], id="tabs"),
        pytest.param('a|b|c\n1|5" pipe|x\n', [(1, '5" pipe', "x")], id="bars"),
        pytest.param('"a;b",c\n1,x\n', [(1, "x")], id="a semicolon in a quoted name"),
        pytest.param("note\nx;y\nz;w\n", [("x;y",), ("z;w",)], id="semicolons in texts"),
        pytest.param("a,b\n1,x;y\n2,z;w\n", [(1, "x;y"), (2, "z;w")], id="semicolons beside commas"),
    ],
)  # fmt: skip
def test_records_as_they_are_written(tmp_path: Path, text: str, rows: list[tuple[object, ...]]) -> None:
    assert read(csv(tmp_path, text))[1:] == (rows, [])
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert read(tmp_path / "in.csv.gz")[1:] == (rows, [])


def test_types_are_those_of_all_files_with_a_header(tmp_path: Path) -> None:
    first = csv(tmp_path, "a,b,c\n1,,\n", "1.csv")
    second = csv(tmp_path, "a,b,c\n2.5,007,\n", "2.csv")
    other = csv(tmp_path, "d\n1\n", "3.csv")
    types, rows, _ = read(first, second, other)
    assert types == {"a": "double", "b": "string", "c": "void", "d": "long"}
    assert rows == [(1.0, None, None), (2.5, "007", None), (1,)]
    assert read(first, second, other, strings=True)[0] == dict.fromkeys("abcd", "string")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "quoted", ["plain", '"with, comma"', '"two\nlines"', '"two\r\nlines"', '5" wide', '"a"b']
)
def test_a_file_in_many_stretches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, quoted: str
) -> None:
    lines = ["id,text", *(f"{i},{quoted}" for i in range(500)), "short", '501,"open', "502,x"]
    file = csv(tmp_path, end.join(lines) + end)
    whole = read(file)
    monkeypatch.setattr(csv_source, "_STRETCH", (1000, 1000))
    (reader,) = csv_readers(SPARK, [str(file)], strings=False)
    # A line feed within a cell is no place to cut at, and is found to be none.
    assert (len(reader.sizes) > 1) == ("lines" not in quoted and "\n" in end)
    assert read(file) == whole
    height = 2 if "lines" in quoted else 1
    rejects = [
        ("short", 2 + 500 * height, NOT_AS_WIDE),
        ('501,"open', 3 + 500 * height, "a quote is never closed"),
    ]
    assert whole[2] == rejects and len(whole[1]) == 501


def test_what_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    for text, line in (("a\n\nü\n", 3), ("\nü\n", 2), ('a,b\n"x\ny",1\n"\r\nü",1', 5)):
        with pytest.raises(DataError, match=rf"in\.csv:{line}: byte 0xfc is not UTF-8"):
            read(csv(tmp_path, text.encode("latin-1")))
    with pytest.raises(DataError, match=r"in\.csv:1: a quote is never closed in the header"):
        read(csv(tmp_path, 'a,"b\n1,2\n'))
    with pytest.raises(DataError, match=r"in\.csv\.gz: broken gzip"):
        read(csv(tmp_path, gzip.compress(b"a\n1\n" * 1000)[:-20], "in.csv.gz"))


def test_a_byte_that_is_not_utf8_is_placed_in_any_stretch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_source, "_STRETCH", (100, 100))
    with pytest.raises(DataError, match=r"in\.csv:302: byte 0xe9 is not UTF-8"):
        read(csv(tmp_path, b"id\n" + b"1\n" * 300 + b"\xe9\n"))


def test_number_types_that_a_table_declares_are_those_of_its_cells(tmp_path: Path) -> None:
    def types(amount: Primitive, *texts: str) -> list[str]:
        readers = csv_readers(
            SPARK, [str(csv(tmp_path, text, f"{i}.csv")) for i, text in enumerate(texts)], strings=False
        )
        known = ExpectedField(fields={"amount": ExpectedField(frozenset({amount}))})
        found = fitted(SPARK, FoundCsv((), written=readers), known, TableSettings())
        assert fitted(SPARK, found, known, TableSettings()) is found
        (names,) = ([f.name for f in reader.struct.fields] for reader in found.readers)
        assert list(dict.fromkeys(names)) == ["amount", "b"]
        return [str(f.type) for reader in found.readers for f in reader.struct.fields]

    money = decimal(10, 2)
    assert types(money, "amount,b\n1.50,1.x\n", "amount,b\n2,x\n,y\n") == ["decimal(10, 2)", "string"]
    cells = ["decimal(10, 2)", "long", "double", "string"]
    assert types(money, "amount,b\n1.50,1\n", "amount,b\n2.505,2\n") == [*cells, "long"]
    assert types(money, "amount,b\n1.5,\n", "amount,b\nx,\n") == [*cells, "void"]
    assert types(money, "amount,b\ntrue,\n") == ["boolean", "void"]
    assert types(INT, "amount,b\n7,\n") == ["int", "void"]
    assert types(INT, "amount,b\n2147483648,\n") == ["int", "long", "double", "string", "void"]
    assert types(LONG, "amount,b\n007,\n") == ["long", "double", "string", "void"]
    assert types(DOUBLE, "amount,b\n1.50,\n") == ["double", "void"]


def cells_of(file: Path, known: ExpectedField, **settings: str) -> tuple[list[str], list[Any], list[str]]:
    """The types of a file's only column, its cells by them, and the notes."""
    found = CsvFiles(SPARK, [str(file)], strings=False)(known, from_properties(as_properties(settings)))
    (reader,) = found.readers
    rows: list[Any] = []
    for part in range(len(reader.sizes)):
        for some in reader.rows(part):
            rows += zip(*(column.to_pylist() for column in some.batch.columns), strict=True)
    values = [next((value for value in row if value is not None), None) for row in rows]
    notes = [note.replace(str(file), "FILE") for note in found.notes]
    return [str(f.type) for f in reader.struct.fields], values, notes


# The cells of a column, the types that it has at first sight, and those cells that are no text.
FIRST = {
    "one word among numbers": (["39.1", "NA", "46"], ["double", "string"], [39.1, 46.0]),
    "half are numbers": (["1", "x"], ["long", "string"], [1]),
    "fewer than half are": (["1", "x", "y"], ["string"], []),
    "one number among words for null": (["NA", "1", "-", "n/a", "NULL"], ["long", "string"], [1]),
    "one number among words of which one is no null": (["NA", "1", "-", "n/a", "x"], ["string"], []),
    "few cells with a digit": (["3", "x4"], ["string"], []),
    "one cell of twenty with a digit": ([*["7"] * 19, "12 EUR"], ["long", "string"], [7] * 19),
    "one cell of nineteen with a digit": ([*["7"] * 18, "12 EUR"], ["string"], []),
    "twenty words": ([*["7"] * 20, *"abcdeghijklmnopqrsuv"], ["long", "string"], [7] * 20),
    "more words": ([*["7"] * 21, *"abcdeghijklmnopqrsuvw"], ["string"], []),
    "another spelling": ([*["1234"] * 40, "007"], ["string"], []),
    "a sign": ([*["1234"] * 40, "+1"], ["string"], []),
    "a percentage": ([*["1234"] * 40, "5%"], ["string"], []),
    "thousands": ([*["1234"] * 40, '"1,234"'], ["string"], []),
    "digits that a double does not have": ([*["1.5"] * 40, "9007199254740993"], ["string"], []),
    "dates": (["2026-03-01", "-", "2026-02-30x"], ["string"], []),
    "dates and a word": (["2026-03-01", "-"], ["date", "string"], [date(2026, 3, 1)]),
    "booleans": (["true", "FALSE", "unknown"], ["boolean", "string"], [True, False]),
    "an empty cell": (["1", "", "x"], ["long", "string"], [1]),
}  # fmt: skip


@pytest.mark.parametrize("case", FIRST)
def test_column_of_several_types_at_first_sight_is_typed_by_most_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    texts, types, values = FIRST[case]
    texts = texts * 30
    file = csv(tmp_path, "\n".join(["a", *texts]) + "\n")
    found, cells, notes = cells_of(file, ExpectedField())
    assert found == types
    assert [cell for cell in cells if not isinstance(cell, str | None)] == values * 30
    others = [text for text, cell in zip(texts, cells, strict=True) if isinstance(cell, str | None)]
    assert [cell or "" for cell in cells if isinstance(cell, str | None)] == [t.strip('"') for t in others]
    monkeypatch.setattr(csv_source, "_STRETCH", (40, 40))
    assert cells_of(file, ExpectedField()) == (found, cells, notes)


def test_cells_go_one_by_one_to_the_columns_that_the_table_has(tmp_path: Path) -> None:
    file = csv(tmp_path, "a\n3\nx4\n10.50\n007\n9007199254740993\ntrue\n2026-03-01\n")

    def cells(*types: Primitive, **settings: str) -> list[Any]:
        known = ExpectedField(fields={"a": ExpectedField(frozenset(types))})
        return cells_of(file, known, **settings)[1]

    rest = ["true", "2026-03-01"]
    assert cells(DOUBLE) == [3.0, "x4", 10.5, "007", 9007199254740993, *rest]
    assert cells(LONG, STRING) == [3, "x4", 10.5, "007", 9007199254740993, *rest]
    assert cells(decimal(10, 2)) == [3, "x4", Decimal("10.50"), "007", 9007199254740993, *rest]
    assert cells(BOOLEAN) == ["3", "x4", "10.50", "007", "9007199254740993", True, "2026-03-01"]
    assert cells(DATE)[-2:] == ["true", date(2026, 3, 1)]
    assert cells(DATE, dates="off")[-2:] == rest
    assert cells(STRING) == ["3", "x4", "10.50", "007", "9007199254740993", *rest]


def places_of(*files: Path, **settings: str) -> dict[tuple[str, str], tuple[str, str, int]]:
    """The sample of each type of a column, with its file and line."""
    table = from_properties(as_properties(settings))
    (reader,) = CsvFiles(SPARK, [str(file) for file in files], strings=False)(ExpectedField(), table).readers
    parts = []
    for part in range(len(reader.sizes)):
        observer = RowsObserver(reader.struct, reader.label, AdmissionTerms(ExpectedField(), table))
        for rows in reader.rows(part):
            observer.feed(rows)
        parts.append(observer.result())
    return {
        (name, str(facet)): (profile.sample, Path(profile.place.source).name, profile.place.line)
        for name, field in merge_observations(parts).shape.fields.items()
        for facet, profile in field.facets.items()
        if profile.sample
    }


def test_first_value_of_each_type_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = csv(tmp_path, 'a,b\n1,\n2,"x\ny"\nshort\nNA,z\n')
    assert places_of(file) == {
        ("a", "long"): ("1", "in.csv", 2),
        ("a", "string"): ("NA", "in.csv", 6),
        ("b", "string"): ("x\ny", "in.csv", 3),
    }
    titled = csv(tmp_path, gzip.compress(b"Sales\n\na,b\n,\n1,x\n,\nNA,\n2,\n"), "titled.csv.gz")
    for settings in ({}, {"skip_empty": "true"}, {"metadata": "line"}):
        places = places_of(titled, skip_lines="2", **settings)
        assert places["a", "long"] == ("1", "titled.csv.gz", 5)
        assert places["a", "string"] == ("NA", "titled.csv.gz", 7)
    # Each stretch counts its lines from its own beginning.
    monkeypatch.setattr(csv_source, "_STRETCH", (100, 100))
    rows = [f'{i},"two\nlines"\n' for i in range(50)]
    first = csv(tmp_path, "".join(["a,b\n", *rows]), "1.csv")
    second = csv(tmp_path, "".join(["a,b\n", *rows, "NA,\n", *rows]), "2.csv")
    for files in ([first, second], [second, first]):
        places = places_of(*files)
        assert places["a", "long"] == ("0", "1.csv", 2)  # by the files' names
        assert places["a", "string"] == ("NA", "2.csv", 102)


def test_report_names_words_and_other_spellings_with_their_lines(tmp_path: Path) -> None:
    def notes(*cells: str, **settings: str) -> list[str]:
        return cells_of(csv(tmp_path, "\n".join(["a", *cells]) + "\n"), ExpectedField(), **settings)[2]

    assert notes("39.1", "NA", "NA", "46", "7") == [
        "--null 'NA' would make a double: NA stands in 2 of 5 cells (FILE:3)"
    ]
    assert notes("1", "-", "NA", "2", nulls="NA") == [
        "null: 1 cell NA (--null)",
        "--null 'NA,-' would make a long: - stands in 1 of 3 cells (FILE:3)",
    ]
    assert notes("NA", "7", "NA", "NA") == [
        "--null 'NA' would make a long: NA stands in 3 of 4 cells (FILE:2)"
    ]
    assert notes("1", "2", "TOTAL") == ["a: 1 cell is text: TOTAL (FILE:4)"]
    why = "it is text for 007 (FILE:3), which then stays text beside the numbers"
    assert notes("1234", "007") == [f'hints.a = "long"  # {why}']
    assert notes("Ada", "Bob", "1") == []


def test_a_text_stays_as_it_is_written_where_the_table_has_a_string_column_alone(tmp_path: Path) -> None:
    text = "version,paid,at,id\n1.10,TRUE,2026-03-01 12:00:00,7\n"
    readers = csv_readers(SPARK, [str(csv(tmp_path, text, "in.csv"))], strings=False)
    found = FoundCsv((), written=readers)

    def types(*known: Primitive) -> list[str]:
        names = ("version", "paid", "at", "id")
        expected = ExpectedField(fields={name: ExpectedField(frozenset(known)) for name in names})
        (reader,) = fitted(SPARK, found, expected, TableSettings()).readers
        return [str(f.type) for f in reader.struct.fields]

    assert types() == types(DOUBLE, STRING) == ["double", "boolean", "timestamp_ntz", "long"]
    assert types(STRING) == ["string", "string", "string", "long"]


def test_a_record_that_is_too_long_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_cut.pieces, "__kwdefaults__", {"whole": True, "longest": 1000})
    monkeypatch.setattr(text_files, "BLOCK", 100)
    for text, line in (("a\n1\n" + "2" * 3000, 3), ("a" * 3000, 1)):
        with pytest.raises(DataError, match=rf"in\.csv:{line}: a record of more than 128 MiB"):
            read(csv(tmp_path, text))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_row_that_lacks_a_cell_tells_no_other_delimiter(tmp_path: Path, delimiter: str) -> None:
    types, rows, rejects = read(csv(tmp_path, "a;b\n1;x\n2\n3;y\n".replace(";", delimiter)))
    assert (types, rows) == ({"a": "long", "b": "string"}, [(1, "x"), (3, "y")])
    assert rejects == [("2", 3, NOT_AS_WIDE)]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_stretches_have_the_delimiter_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delimiter: str
) -> None:
    text = "a;b\n" + "".join(f'{i};"x;{i}"\n' for i in range(1000))
    monkeypatch.setattr(csv_source, "_STRETCH", (100, 100))
    types, rows, rejects = read(csv(tmp_path, text.replace(";", delimiter)))
    assert types == {"a": "long", "b": "string"} and rejects == []
    assert rows == [(i, f"x{delimiter}{i}") for i in range(1000)]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
def test_the_mark_of_utf8_goes_before_the_encoding_that_was_named(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    file = csv(tmp_path, pack("\ufeffGröße;n\nzwölf;1\n".encode()))
    header = header_of(str(file), Dialect(encoding="latin1"))
    assert header is not None
    assert [column.name for column in header.columns] == ["Größe", "n"]
    (part,) = parts([str(file)], "csv", dialect=CsvDialect(encoding="latin1"))
    assert [one.record for one in records(part)] == [{"Größe": "zwölf", "n": "1"}]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        pytest.param(",a,b\n0,1,2\n", {"column_1": 0, "a": 1, "b": 2}, id="as pandas writes its index"),
        pytest.param("a,,\n0,1,2\n", {"a": 0, "column_2": 1, "column_3": 2}, id="behind a name"),
        pytest.param(",,\n0,1,2\n", {"column_1": 0, "column_2": 1, "column_3": 2}, id="none has one"),
        pytest.param("p,p,p\n0,1,2\n", {"p": 0, "p_2": 1, "p_3": 2}, id="one name thrice"),
        pytest.param("p,p_2,p\n0,1,2\n", {"p": 0, "p_2": 1, "p_3": 2}, id="the number is taken"),
        pytest.param(",column_1,\n0,1,2\n", {"column_1_2": 0, "column_1": 1, "column_3": 2}, id="the place is taken"),
        pytest.param('id,"x" y,""\n0,1,2\n', {"id": 0, '"x" y': 1, "column_3": 2}, id="misquoted"),
        pytest.param("sep=;\na;b\n0;1\n", {"a": 0, "b": 1}, id="as Excel writes the delimiter"),
        pytest.param('\ufeff"SEP=|"\r\na|b\r\n0|1\r\n', {"a": 0, "b": 1}, id="in quotes"),
        pytest.param("sep=,,\na,b\n0,1\n", {"a": 0, "b": 1}, id="with a delimiter behind it"),
        pytest.param("sep=\t\na\tb;c\n0\t1\n", {"a": 0, "b;c": 1}, id="a tab"),
        pytest.param("sep=x\n0\n", {"sep=x": 0}, id="no delimiter"),
    ],
)  # fmt: skip
def test_every_column_has_a_name_of_its_own(tmp_path: Path, text: str, rows: dict[str, int]) -> None:
    for encoding in ("utf-8", "utf-16"):
        file = csv(tmp_path, text.removeprefix("\ufeff" * (encoding == "utf-16")).encode(encoding))
        (reader,) = csv_readers(SPARK, [str(file)], strings=False)
        (some,) = reader.rows(0)
        assert some.batch.to_pylist() == [rows]
        assert list(rows) == [f.name for f in reader.struct.fields]
        (part,) = parts([str(file)], "csv")
        assert [one.record for one in records(part)] == [{name: str(value) for name, value in rows.items()}]
