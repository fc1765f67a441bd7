"""CSV as Spark, spreadsheets and people write it: escapes, no header, titles, comments, signs between thousands."""

from __future__ import annotations

import csv
import io
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.core.schema.types import LONG, STRING
from driftline.core.settings.csv import Signs
from driftline.core.settings.properties import as_properties, from_properties
from driftline.errors import DataError, UsageError
from driftline.observe.expect import ExpectedField
from driftline.readers.csv import reader as csv_source
from driftline.readers.csv.cut import Marks, pieces
from driftline.readers.csv.reader import CsvFiles
from driftline.readers.csv.types import as_json
from driftline.verify import files as check
from driftline.verify.csv import CsvDialect
from driftline.verify.files import parts
from driftline.verify.values import Cell, ValueSettings, typed, written

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", defaultParallelism=2))
Rows = list[tuple[Any, ...]]


def put(folder: Path, text: str | bytes, name: str = "in.csv") -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


def read(file: Path, **settings: str) -> tuple[dict[str, str], Rows, list[tuple[str, int]], list[str]]:
    """The types of the columns, the rows, what is none with its line, and what is said of the file."""
    files = CsvFiles(SPARK, [str(file)], strings=False)
    found = files(ExpectedField(), from_properties(as_properties(settings)))
    types: dict[str, str] = {}
    rows: Rows = []
    others = []
    for reader in found.readers:
        types |= {f.name: str(f.type) for f in reader.struct.fields}
        for some in (some for part in range(len(reader.sizes)) for some in reader.rows(part)):
            rows += zip(*(column.to_pylist() for column in some.batch.columns), strict=True)
            others += [(reject.raw.decode(), reject.origin.line) for reject in some.rejects]
    return types, rows, others, [note.replace(f"{file}", "FILE") for note in found.notes]


def checked(file: Path, **settings: str) -> list[tuple[int, dict[str, str | None] | None]]:
    """The records by the reader of the check, with their lines; an empty cell is None."""
    (part,) = parts([str(file)], "csv", dialect=CsvDialect.of(as_properties(settings)))
    return [
        (
            one.place.line,
            one.record
            and {name: getattr(cell, "written", str(cell)) or None for name, cell in one.record.items()},
        )
        for one in check.read(part)
    ]


def texts(file: Path, **settings: str) -> Rows:
    """The cells of the rows, which both readers find, and beside them as many records that are none."""
    found = CsvFiles(SPARK, [str(file)], strings=True)(
        ExpectedField(), from_properties(as_properties(settings))
    )
    rows: Rows = []
    names: list[str] = []
    others = []
    for reader in found.readers:
        names = [f.name for f in reader.struct.fields]
        for some in (some for part in range(len(reader.sizes)) for some in reader.rows(part)):
            rows += zip(*(column.to_pylist() for column in some.batch.columns), strict=True)
            others += [reject.origin.line for reject in some.rejects]
    seen = checked(file, **settings)
    assert [tuple(record.values()) for _, record in seen if record is not None] == rows
    assert [line for line, record in seen if record is None] == others
    assert all(list(record) == names for _, record in seen if record is not None)
    return rows


ESCAPE = {"escape": "\\"}
SPARK_TEXT = 'id,note\n1,"say \\"hi\\", he said"\n2,"a\\\\b, c"\n3,C:\\dir\n4,"\\""\n5,""\n'
SPARK_ROWS = [("1", 'say "hi", he said'), ("2", "a\\b, c"), ("3", "C:\\dir"), ("4", '"'), ("5", None)]


def test_cells_as_spark_writes_them(tmp_path: Path) -> None:
    file = put(tmp_path, SPARK_TEXT)
    assert texts(file) == texts(file, **ESCAPE) == SPARK_ROWS
    assert texts(put(tmp_path, SPARK_TEXT.encode("utf-16"))) == SPARK_ROWS
    types, rows, others, notes = read(file)
    assert (types, len(rows), others) == ({"id": "long", "note": "string"}, 5, [])
    assert notes == ["detected --escape '\\' in FILE"]
    assert read(file, **ESCAPE)[3] == []
    said_no = read(file, escape="none")
    assert (len(said_no[1]), len(said_no[2]), said_no[3]) == (3, 2, [])


def test_an_escape_counts_only_in_front_of_quotes_and_escapes_of_quoted_cells(tmp_path: Path) -> None:
    text = 'a,b\n"x\\ny",\\"\n"\\\\",\\\\\n"p\\q""r",5\\" x\n"ab\\"\n'
    rows = [("x\\ny", '\\"'), ("\\", "\\\\"), ('p\\q"r', '5\\" x')]
    assert texts(put(tmp_path, text), **ESCAPE) == rows
    assert texts(put(tmp_path, text.replace('"', "'")), **ESCAPE, quote="'") == [
        tuple(cell.replace('"', "'") for cell in row) for row in rows
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('a,b\n"C:\\",x\n"D:\\",y\n', id="backslashes at the ends of cells"),
        pytest.param('a,b\n1,5" pipe\n2,"a\\"b"\n', id="other quotes that are text"),
        pytest.param('a,b\n1,"x\\"y"\n2\n', id="a row that lacks a cell"),
        pytest.param('a,b\n1,"x\\"y\n', id="a quote that is never closed"),
    ],
)
def test_an_escape_is_told_only_where_all_cells_close_right_by_it(tmp_path: Path, text: str) -> None:
    file = put(tmp_path, text)
    assert texts(file) == texts(file, escape="none")
    assert not [note for note in read(file)[3] if "detected" in note]


def test_an_escape_that_shows_further_down_is_a_flag_to_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_source, "_STRETCH", (20_000, 20_000))
    lines = "".join(f"{i},plain text\n" for i in range(6000))
    file = put(tmp_path, f'id,note\n{lines}6000,"a \\"b\\" c"\n')
    hint = "FILE has quotes behind backslashes in quoted cells: --escape '\\' reads them"
    assert read(file)[3] == [hint]
    assert texts(file)[-1] == ("6000", '"a \\"b\\" c"')
    assert texts(file, **ESCAPE)[-1] == ("6000", 'a "b" c')
    assert read(file, **ESCAPE)[3] == read(file, escape="none")[3] == []


def test_most_text_with_escapes_goes_by_whole_columns(tmp_path: Path) -> None:
    marks = Marks(escape=b"\\")
    assert [piece.plain for piece in pieces([SPARK_TEXT.encode()], marks=marks)] == [True]
    for text in (b'"a",\\"x\n', b'"a",\\"\n', b'\\\\"x"\n', b'"a\\"b"c\n'):
        assert [piece.plain for piece in pieces([text], marks=marks)] == [False], text


_LETTERS = st.sampled_from(["a", "\\", '"', ",", "\n", "\r\n", ";", "é", "'", "1", "#"])


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.lists(_LETTERS).map("".join), min_size=2, max_size=2), min_size=1, max_size=6),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.integers(1, 30),
)
def test_what_python_writes_with_an_escape_is_read_as_it_was(
    rows: list[list[str]], quoting: int, size: int
) -> None:
    text = io.StringIO(newline="")
    # Python escapes outside quotes, too.
    bare = any("\\" in cell or '"' in cell or "\r" in cell for row in rows for cell in row)
    csv.writer(
        text,
        doublequote=False,
        escapechar="\\",
        quoting=csv.QUOTE_ALL if bare else quoting,
        lineterminator="\n",
    ).writerows([["a", "b"], *rows])
    wanted = [tuple(cell or None for cell in row) for row in rows]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        file = put(Path(folder), text.getvalue())
        assert texts(file, **ESCAPE) == wanted
        patch.setattr(csv_source, "_STRETCH", (size, size))
        assert texts(file, **ESCAPE) == wanted, "in stretches"


_PARTS = st.sampled_from(
    [
        "a",
        "1",
        "2",
        "1.5",
        "2026-01-01",
        "true",
        ",",
        ",",
        ";",
        '"',
        '""',
        "\\",
        '\\"',
        '"x\\"y"',
        "\n",
        "\n",
        "\r\n",
        "# ",
        "'",
    ]
)


@given(
    st.sampled_from(["a,b\n", "1,1\n", "1.5,a\n", "1;2\n", "", 'a,"b\\"c"\n', "# x\n", "T\na,b\n"]),
    st.lists(_PARTS, max_size=25),
    st.fixed_dictionaries(
        {},
        optional={
            "escape": st.sampled_from(["\\", "none"]),
            "header": st.sampled_from(["yes", "no", "auto"]),
            "skip_lines": st.sampled_from(["0", "1", "2"]),
            "comment": st.just("#"),
            "thousands": st.sampled_from([".", ","]),
            "nulls": st.sampled_from(["a", "1,x"]),
        },
    ),
    st.integers(1, 30),
)
def test_whatever_a_file_tells_both_readers_go_by_it(
    header: str, some: list[str], settings: dict[str, str], size: int
) -> None:
    text = header + "".join(some)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        file = put(Path(folder), text)
        patch.setattr(csv_source, "_STRETCH", (size, size))
        try:
            rows = texts(file, **settings)
        except csv_source.DataError as error:
            assert "a quote is never closed in the" in error.message  # noqa: PT017
            return
        patch.setattr(csv_source, "_STRETCH", (2**20, 2**20))
        assert texts(file, **settings) == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        pytest.param("5,a\n7,b\n", None, id="texts may be names"),
        pytest.param("5,1.5\n7,2\n", [(5, 1.5), (7, 2.0)], id="numbers"),
        pytest.param("2026-01-01,true\n2026-01-02,FALSE\n", 2, id="dates and booleans"),
        pytest.param("9.5,2026-01-01 00:00:00\n", 1, id="no row below"),
        pytest.param(
            "7,3,5\n,,\n1,2,\n", [(7, 3, 5), (None, None, None), (1, 2, None)], id="empty cells below"
        ),
        pytest.param("\n\n7.5\n8\n\n9\n", [(7.5,), (8.0,), (None,), (9.0,)], id="blank lines"),
        pytest.param("2019,2020,2021\n1,2,3\n", None, id="years that rise"),
        pytest.param("3,2,1\n1,2,3\n", None, id="numbers that fall"),
        pytest.param("5\n7\n", None, id="one whole number"),
        pytest.param("7,3,\n1,2,3\n", None, id="a cell without a name"),
        pytest.param("7,3\n1,x\n", None, id="text below"),
        pytest.param("7.5,3\n1,2026-01-01\n", None, id="another kind below"),
        pytest.param("2026-01-01,2026-02-01\n1,2\n", None, id="months above numbers"),
        pytest.param("007,3\n008,2\n", None, id="codes"),
        pytest.param("sep=;\n7;7\n7;5\n", [(7, 7), (7, 5)], id="behind the delimiter"),
    ],
)
def test_a_first_row_of_values_is_no_header(tmp_path: Path, text: str, rows: Rows | int | None) -> None:
    file = put(tmp_path, text)
    types, found, others, notes = read(file)
    told = [note for note in notes if "--header no in FILE" in note]
    assert bool(told) == (rows is not None) and not others
    made = [name.startswith("column_") for name in types]
    assert all(made) if rows else not all(made)
    assert rows is None or found == rows or len(found) == rows
    assert texts(file) == texts(file, header="yes" if rows is None else "no")


def test_a_header_that_looks_like_a_row_is_told_of(tmp_path: Path) -> None:
    hint = "FILE: the header looks like data: if it is, pass --header no"
    for text in ("5,a\n7,b\n", "5,6\n7,8\n", "5\n", "1,alice,2026-01-01\n2,bob,2026-01-02\n"):
        file = put(tmp_path, text)
        assert read(file)[3] == [hint], text
        types, rows, _, notes = read(file, header="no")
        assert (notes, len(rows)) == ([], text.count("\n"))
        assert list(types) == [f"column_{place}" for place in range(1, len(types) + 1)]
        assert read(file, header="yes")[3] == []
    for text in ("id,a\n7,b\n", "region,2019,2020\nEU,5,7\n", "n,7\n1,2\n", "a,b\n", ""):
        assert not [note for note in read(put(tmp_path, text))[3] if "looks like" in note], text


def test_files_without_a_header_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_source, "_STRETCH", (100, 100))
    file = put(tmp_path, "".join(f"{i % 7}.5,x{i}\n" for i in range(300)) + "1\n")
    types, rows, others, _ = read(file, header="no")
    assert types == {"column_1": "double", "column_2": "string"}
    assert (rows, others) == ([(i % 7 + 0.5, f"x{i}") for i in range(300)], [("1", 301)])
    assert len(texts(file, header="no")) == 300


def test_names_that_a_person_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_source, "_STRETCH", (100, 100))
    file = put(tmp_path, "".join(f"x{i};{i}\n" for i in range(100)) + "short\n")
    types, rows, others, _ = read(file, header='name, "in EUR, net"')
    assert types == {"name": "string", "in EUR, net": "long"}
    assert (rows, others) == ([(f"x{i}", i) for i in range(100)], [("short", 101)])
    assert checked(file, header='name, "in EUR, net"')[0] == (1, {"name": "x0", "in EUR, net": "0"})
    with pytest.raises(DataError, match=r"in\.csv:1: the first row has 2 cells, where `header` names 3"):
        read(file, header="a,b,c")


TITLES = "Sales of 2026\nmade by hand\n\nid;name\n1;x\n2;y\n"
NOTES = '# made 2026, by hand\n# with 5" pipes\nid,name\n1,x\n# what follows is late\n2,y\n'


def test_cell_that_is_a_null_text_is_null(tmp_path: Path) -> None:
    file = put(
        tmp_path, 'bill,on,note,NA\n39.1,NA,NA,1\n"NA",true,"a, NA",\n-,FALSE,"x\ny",2\n"N"A,-,,3\n6b,,,\n'
    )
    types, rows, _, notes = read(file, nulls='"NA", -', header="yes")
    assert types == {"bill": "string", "on": "boolean", "note": "string", "NA": "long"}
    assert rows == [
        ("39.1", None, None, 1),
        (None, True, "a, NA", None),
        (None, False, "x\ny", 2),
        ('"N"A', None, None, 3),
        ("6b", None, None, None),
    ]
    assert notes == ["null: 3 cells NA, 2 cells - (--null)"]
    assert texts(file, nulls="NA,-") == [
        ("39.1", None, None, "1"),
        (None, "true", "a, NA", None),
        (None, "FALSE", "x\ny", "2"),
        ('"N"A', None, None, "3"),
        ("6b", None, None, None),
    ]
    numbers = put(tmp_path, "2,1.5\n1,NA\n")
    assert read(numbers, nulls="NA")[:2] == (
        {"column_1": "long", "column_2": "double"},
        [(2, 1.5), (1, None)],
    )
    assert read(numbers, nulls="NA", thousands=",")[1] == [(2, 1.5), (1, None)]


EXPORT = ",,\n,,\nid,name,amount\n1,a,5\n,,\n2,,\n,,\n"


def test_rows_without_a_text_above_the_header_are_passed_over(tmp_path: Path) -> None:
    for delimiter in ",;\t":
        file = put(tmp_path, EXPORT.replace(",", delimiter))
        types, rows, _, notes = read(file)
        assert types == {"id": "long", "name": "string", "amount": "long"}
        assert rows == [(1, "a", 5), (None, None, None), (2, None, None), (None, None, None)]
        assert "skipped 2 lines without a text in any cell above the first row of FILE" in notes
        assert "2 rows have no value: --skip-empty leaves them out" in notes
        assert [line for line, _ in checked(file)] == [4, 5, 6, 7]
        assert len(texts(file)) == 4


def test_rows_without_a_value_are_left_out_where_that_is_said(tmp_path: Path) -> None:
    file = put(tmp_path, EXPORT + '"",NA,\n3,c,\n')
    _, rows, _, notes = read(file, skip_empty="true", nulls="NA")
    assert rows == [(1, "a", 5), (2, None, None), (3, "c", None)]
    assert "left out: 3 rows without a value (--skip-empty)" in notes
    assert texts(file, skip_empty="true", nulls="NA") == [
        ("1", "a", "5"),
        ("2", None, None),
        ("3", "c", None),
    ]
    assert [line for line, _ in checked(file, skip_empty="true", nulls="NA")] == [4, 6, 9]
    files = CsvFiles(SPARK, [str(file)], strings=False)
    properties = as_properties({"skip_empty": "true", "nulls": "NA", "metadata": "line"})
    (reader,) = files(ExpectedField(), from_properties(properties)).readers
    assert [some.lines.tolist() for some in reader.rows(0)] == [[4, 6, 9]]


@pytest.mark.parametrize(
    ("header", "table", "columns"),
    [
        ("customer,TOTAL,id", ["Customer", "Total", "ID"], "Customer Total ID"),
        ("customer,new", ["Customer"], "Customer new"),
        ("a,A", ["A", "B"], "a A"),  # two of one file stay apart,
        ("aa,Aa", ["AA"], "aa Aa"),
        ("a,A_", ["A", "a", "a_"], "a a_"),  # and a name that the table has is its column's
        ("AA,b", ["aA", "Aa"], "aA b"),
        ("STRASSE,ÄPFEL", ["straße", "äpfel"], "STRASSE äpfel"),
        ("a,a", ["A", "A_2"], "A A_2"),
        ("a b", ["A_b"], "a b"),
    ],
)
def test_header_fills_the_column_of_another_letter_case_where_that_is_said(
    tmp_path: Path, header: str, table: list[str], columns: str
) -> None:
    file = put(tmp_path, f"{header}\n{','.join('x' for _ in header.split(','))}\n")
    expected = ExpectedField(fields={name: ExpectedField() for name in table})
    for names in ("fold", "exact", ""):
        said = as_properties({"names": names} if names else {})
        for strings in (True, False):
            found = CsvFiles(SPARK, [str(file)], strings=strings)(expected, from_properties(said))
            (reader,) = found.readers
            road = [f.name for f in reader.struct.fields]
            (part,) = parts([str(file)], "csv", dialect=CsvDialect.of(said))
            (record,) = (one.record for one in check.read(replace(part, keys=table)))
            assert list(record or {}) == road
            assert (" ".join(road) == columns) == (names == "fold" or columns == header.replace(",", " "))
            (rows,) = reader.rows(0)
            assert rows.batch.schema.names == road


def test_files_of_one_batch_share_names_of_another_letter_case_where_that_is_said(tmp_path: Path) -> None:
    files = [put(tmp_path, f"{header}\n1,2\n", f"{header}.csv") for header in ("Id,n", "ID,N", "id,x", "x,X")]
    found = CsvFiles(SPARK, list(map(str, files)), strings=False)
    readers = found(ExpectedField(), from_properties(as_properties({"names": "fold"}))).readers
    assert [[f.name for f in r.struct.fields] for r in readers] == [
        ["Id", "n"],
        ["Id", "n"],
        ["Id", "x"],
        ["x", "X"],
    ]


def test_flag_for_headers_in_another_letter_case_is_proposed_if_it_explains_all_new_ones(
    tmp_path: Path,
) -> None:
    expected = ExpectedField(fields={name: ExpectedField() for name in ("Customer", "Total", "id")})

    def notes(header: str, **settings: str) -> list[str]:
        file = put(tmp_path, header + "\n" + ",".join("x" for _ in header.split(",")) + "\n")
        files = CsvFiles(SPARK, [str(file)], strings=True)
        found = files(expected, from_properties(as_properties(settings)))
        return list(files(expected, from_properties(as_properties(settings)), found).notes)

    hint = "2 headers differ from the table's only in letter case: --names fold fills those columns"
    assert notes("customer,TOTAL,id") == [hint]
    assert notes("customer,Total,id") == [
        "1 header differs from the table's only in letter case: --names fold fills that column"
    ]
    assert notes("customer,new") == notes("Customer,Total") == notes("customer,CUSTOMER") == []
    assert notes("customer,TOTAL", names="exact") == []
    assert notes("customer,TOTAL,id", names="fold") == [
        "names: customer is Customer, TOTAL is Total (--names fold)"
    ]


@pytest.mark.parametrize(
    ("text", "columns", "hint"),
    [
        ("a,b\nr,1,2\ns,3,4\n", "column_1 a b", "2 names above rows of 3 cells: --header 'column_1,a,b' --skip-lines 1 names the first column_1"),
        ('"a";"b"\n"r";"1";2,5\n', "column_1 a b", "2 names above rows of 3 cells: --header 'column_1,a,b' --skip-lines 1 names the first column_1"),
        ("sep=|\na|b\n1|2|3\n", "column_1 a b", "2 names above rows of 3 cells: --header 'column_1,a,b' --skip-lines 2 names the first column_1"),
        ('"a" "it\'s"\n"r s" 1 2\n', "column_1 a it's", """2 names above rows of 3 cells: --delimiter ' ' --header 'column_1,a,it'"'"'s' --skip-lines 1 names the first column_1"""),
        ("a,b\n1,2,\n3,4,\n", "a b column_3", "2 names above rows of 3 cells: --header 'a,b,column_3' --skip-lines 1 names the last, which is empty, column_3"),
        (f"{','.join(f'name_{n}' for n in range(50))}\n{',' * 50}\n", "", "50 names above rows of 51 cells: --skip-lines, and --header with a name for each cell, reads them"),
        (",b\n1,2,3\n", "", "2 names above rows of 3 cells: --skip-lines, and --header with a name for each cell, reads them"),
    ],
)  # fmt: skip
def test_header_that_is_one_name_short_gets_the_flags_that_name_all_columns(
    tmp_path: Path, text: str, columns: str, hint: str
) -> None:
    file = put(tmp_path, text)
    assert f"FILE has {hint}" in read(file)[3]
    if columns:
        flags = shlex.split(hint.partition(": ")[2].partition(" names the")[0])
        pasted = {
            flag[2:].replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2], strict=True)
        }
        types, rows, others, notes = read(file, **pasted)
        assert (" ".join(types), others) == (columns, [])
        assert not [note for note in notes if "names above" in note]
        assert len(texts(file, **pasted)) == len(rows) == text.count("\n") - int(pasted["skip_lines"])


@pytest.mark.parametrize("text", ["a\n1,2\n", "a,b\n1,2\n3,4,5\n", "a,2\n1,2,3\n", "a,b\n", "a,b\n1,2\n"])
def test_header_whose_rows_are_not_all_one_cell_wider_gets_no_flag_for_it(tmp_path: Path, text: str) -> None:
    assert not [note for note in read(put(tmp_path, text))[3] if "above rows of" in note]


def test_header_that_spells_the_names_of_the_table_otherwise_gets_the_flags_that_fill_its_columns(
    tmp_path: Path,
) -> None:
    expected = ExpectedField(fields={name: ExpectedField() for name in ("Order ID", "Unit, net", "n", "_x")})

    def notes(text: str, **settings: str) -> list[str]:
        files = CsvFiles(SPARK, [str(put(tmp_path, text))], strings=True)
        return list(files(expected, from_properties(as_properties(settings))).notes)

    flags = "--header 'Order ID,n,\"Unit, net\"' --skip-lines 1 --no-keep"
    examples = "order_id for Order ID, unit_net for Unit, net"
    assert notes("order_id,n,unit_net\n1,2,3\n") == [
        f"2 headers spell the table's names otherwise, {examples}: {flags} fills those columns"
    ]
    assert notes("sep=;\norder-id\n1\n")[-1].endswith(
        ", order-id for Order ID: --header 'Order ID' --skip-lines 2 --no-keep fills that column"
    )
    stated = {"header": 'Order ID,n,"Unit, net"', "skip_lines": "1"}
    assert notes("order_id,n,unit_net\n1,2,3\n", **stated) == []
    for header in ("order_id,new", "order_id,order id", "Order ID,order_id", "n,_x"):
        assert notes(f"{header}\n{','.join('7' for _ in header.split(','))}\n") == []


def test_title_padded_with_delimiters_gets_the_flag_that_skips_it(tmp_path: Path) -> None:
    file = put(tmp_path, "Report 2024,,\n,,\nid,name,amount\n1,a,5\n")
    assert "FILE has fewer cells with text before line 3: --skip-lines 2 skips them" in read(file)[3]
    types, rows, _, notes = read(file, skip_lines="2")
    assert (types, rows) == ({"id": "long", "name": "string", "amount": "long"}, [(1, "a", 5)])
    assert notes == []


def test_titles_above_the_header(tmp_path: Path) -> None:
    file = put(tmp_path, TITLES)
    assert read(file)[3] == ["FILE has fewer cells with text before line 4: --skip-lines 3 skips them"]
    prices = put(tmp_path, "Sales\nid;price\n1;1.234,50\n2;2,70\n")
    assert read(prices)[3] == ["FILE has fewer cells with text before line 2: --skip-lines 1 skips them"]
    for end in ("\n", "\r\n", "\r"):
        for mark in ("", "\ufeff"):
            file = put(tmp_path, mark + TITLES.replace("\n", end) + "3")
            types, rows, others, notes = read(file, skip_lines="3")
            assert (types, rows) == ({"id": "long", "name": "string"}, [(1, "x"), (2, "y")])
            assert others == [("3", 7)]
            assert notes == ["detected --delimiter ';' in FILE"]
            assert texts(file, skip_lines="2") == texts(file, skip_lines="3")
    assert texts(put(tmp_path, TITLES), skip_lines="6") == texts(put(tmp_path, TITLES), skip_lines="99") == []
    assert texts(put(tmp_path, TITLES), skip_lines="4", header="no") == [("1", "x"), ("2", "y")]
    assert texts(put(tmp_path, "T\nsep=|\na|b\n1|2\n"), skip_lines="1") == [("1", "2")]


def test_many_titles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f'title "{i}\r\n' for i in range(4000)) + "a,b\n" + "1,x\n" * 500
    file = put(tmp_path, text)
    monkeypatch.setattr("driftline.files.text.BLOCK", 1013)
    found = texts(file, skip_lines="4000")
    assert found == [("1", "x")] * 500


def test_lines_that_are_comments(tmp_path: Path) -> None:
    file = put(tmp_path, NOTES)
    assert read(file)[3][0] == "FILE begins with a comment: --comment '#' skips such lines"
    types, rows, others, notes = read(put(tmp_path, NOTES + "3\n"), comment="#")
    assert (types, rows, notes) == ({"id": "long", "name": "string"}, [(1, "x"), (2, "y")], [])
    assert others == [("3", 7)]
    for end in ("\n", "\r\n", "\r"):
        assert texts(put(tmp_path, NOTES.replace("\n", end)), comment="#") == [("1", "x"), ("2", "y")]
    kept = 'a,b\n"x\n# y",# z\n'
    assert texts(put(tmp_path, kept), comment="#") == [("x\n# y", "# z")]
    assert texts(put(tmp_path, "# a\n1.5\n2\n#"), comment="#") == [("1.5",), ("2",)]


def test_a_header_that_is_no_title_gets_no_flag(tmp_path: Path) -> None:
    for text in ("a,b\n1,2,\n3,4,\n", "note\nx\n", "a,b\n1,2\n", "note\n5;y\n6;w\n", "a\n1,2\n"):
        assert not [note for note in read(put(tmp_path, text))[3] if "skips them" in note], text


GERMAN = {"thousands": "."}


@pytest.mark.parametrize(
    ("settings", "cells", "type_", "values"),
    [
        (GERMAN, ["1.234,50", "2,5", "7"], "double", [1234.5, 2.5, 7.0]),
        (GERMAN, ["1.234.567", "-12.345", "7"], "long", [1234567, -12345, 7]),
        ({"thousands": ".", "decimal": ","}, ["1.234,50", "-2,5"], "double", [1234.5, -2.5]),
        ({"thousands": ","}, ['"1,234.50"', "2.5"], "double", [1234.5, 2.5]),
        ({"thousands": ","}, ['"1,234"', "5"], "long", [1234, 5]),
        (GERMAN, ["1.23", "2"], "string", ["1.23", "2"]),
        (GERMAN, ["0.123", "2"], "string", ["0.123", "2"]),
        (GERMAN, ["1234.567", "2"], "string", ["1234.567", "2"]),
        (GERMAN, ["1.234,", "2"], "string", ["1.234,", "2"]),
        (GERMAN, ["1,234.5", "2"], "string", ["1,234.5", "2"]),
        (GERMAN, ["2026-01-01T00:00:00.5Z"], "timestamp", None),
        ({}, ['"1,234"', "5"], "string", ["1,234", "5"]),
    ],
)
def test_signs_between_thousands(
    tmp_path: Path, settings: dict[str, str], cells: list[str], type_: str, values: list[Any] | None
) -> None:
    for beside in ("x", 'x"y'):  # with a misquoted cell, other code reads the cells
        file = put(tmp_path, "a;b\n" + "".join(f"{cell};{beside}\n" for cell in cells))
        types, rows, _, _ = read(file, **settings)
        assert types["a"] == type_
        assert values is None or [row[0] for row in rows] == values


@pytest.mark.parametrize("signs", [Signs(), Signs(","), Signs(",", "."), Signs(".", ",")])
@pytest.mark.parametrize(
    "text", ["1", "-1", "1.5", "1,5", "1.234", "1,234", "1.234,5", "1,234.50", "1.234.567", "12.34", "0.123", "1.", "1,", ".5", "", "-", "1.2345", "01.234"]
)  # fmt: skip
def test_both_readers_take_the_same_for_numbers(signs: Signs, text: str) -> None:
    import pyarrow as pa

    from driftline.verify.values import number

    how = ValueSettings(comma=signs.decimal == ",", thousands=signs.thousands)
    assert number(as_json(pa.array([text]), signs)[0].as_py()) == written(text, how)


def test_the_check_knows_which_texts_are_values() -> None:
    how = ValueSettings(comma=True, thousands=".")
    assert [typed(Cell(text), how) for text in ("1.234", "1.23", "1.234,50", "7")] == [
        1234,
        "1.23",
        1234.5,
        7,
    ]


def test_numbers_with_points_and_commas_are_told_of(tmp_path: Path) -> None:
    file = put(tmp_path, "id;price;n\n1;1.234,50;1,5\n2;2,5;2\n")
    notes = read(file)[3]
    commas = "FILE has decimal commas; for a column that is there: driftline resolve"
    assert notes[-1] == f"--thousands . would make price, n numeric: {commas}"
    assert read(file, decimal=",")[3][-1] == f"--thousands . would make price numeric: {commas}"
    types, rows, _, notes = read(file, thousands=".")
    assert types == {"id": "long", "price": "double", "n": "double"}
    assert rows == [(1, 1234.5, 1.5), (2, 2.5, 2.0)] and not [note for note in notes if "would" in note]


def test_a_number_stays_as_it_is_written_where_the_table_has_a_string_column_alone(tmp_path: Path) -> None:
    file = put(tmp_path, "n;m\n1.234;5\n")
    known = ExpectedField(
        fields={"n": ExpectedField(frozenset({STRING})), "m": ExpectedField(frozenset({LONG}))}
    )
    stated = from_properties(as_properties({"thousands": "."}))
    (reader,) = CsvFiles(SPARK, [str(file)], strings=False)(known, stated).readers
    assert [str(f.type) for f in reader.struct.fields] == ["string", "long"]
    (some,) = reader.rows(0)
    assert some.batch.to_pylist() == [{"n": "1.234", "m": 5}]


@pytest.mark.parametrize(
    ("setting", "text", "converts"),
    [
        ({"thousands": "."}, "1.234,50", "double"),
        ({"decimal": ","}, "12,5", "double"),
        ({"dates": "instant"}, "2026-03-01 12:00:00+02:00", "timestamptz"),
        ({}, "12.5", ""),
        ({}, "2026-03-01 12:00:00+02:00", ""),
    ],
)
def test_columns_that_stay_text_whatever_the_settings_say_are_told_of(
    tmp_path: Path, setting: dict[str, str], text: str, converts: str
) -> None:
    """Nothing else says why a setting has no effect."""
    file = put(tmp_path, f"id;x;y\n1;{text};{text}\n")
    known = ExpectedField(fields={"x": ExpectedField(frozenset({STRING}))})
    notes = CsvFiles(SPARK, [str(file)], strings=False)(known, from_properties(as_properties(setting))).notes
    kept = [note for note in notes if "as the table has it" in note]
    told = f"x: text, as the table has it, until driftline resolve --as {converts}"
    assert kept == ([told] if converts else [])
    # A table that has the column as what the setting makes of it, or not at all, gets that.
    assert not [note for note in read(file, **setting)[3] if "as the table has it" in note]


def refused() -> Iterator[tuple[dict[str, str], str]]:
    yield {"escape": "ab"}, "escape: 'ab' is not one character"
    yield {"escape": '"'}, "for doubled quotes write escape = none"
    yield {"quote": "`", "escape": "`"}, "for doubled quotes write escape = none"
    yield {"quote": "none", "escape": "\\"}, "write escape = none, too"
    yield {"delimiter": ";", "quote": ";"}, "quote: ';' is the delimiter: write another quote"
    yield {"delimiter": "|", "comment": "|"}, "comment: '|' is the delimiter: write another comment"
    yield {"comment": "none"}, "comment: 'none' is not one character"
    yield {"header": True}, "header: 'true' is not auto, yes, no, or the names"
    yield {"header": "id,,n"}, "header: column 2 has no name"
    yield {"header": "id,n,id"}, "header: two columns have the name 'id'"
    yield {"skip_lines": "-1"}, "skip_lines = '-1' is not a whole number"
    yield {"thousands": "'"}, 'thousands = "\'" is not possible'
    yield {"thousands": ".", "decimal": "."}, "write decimal = ','"
    yield {"thousands": ",", "decimal": ","}, "write decimal = '.'"


@pytest.mark.parametrize(("settings", "why"), list(refused()))
def test_settings_that_contradict_each_other_say_what_to_write(settings: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError) as raised:
        as_properties(settings)
    assert why in f"{raised.value.message} {raised.value.hint}"
    if len(settings) > 1:  # one of them is the table's
        properties = {
            key: value
            for setting in settings.items()
            for key, value in as_properties(dict([setting])).items()
        }
        with pytest.raises(UsageError):
            from_properties(properties)


DATES = {
    "day\n01.03.2026\n31.12.2025\n": "date('dd.MM.yyyy')",
    "day\n1.3.2026\n31.12.2025\n": "date('d.M.yyyy')",
    "day\n01/03/2026\n02/13/2026\n": "date('MM/dd/yyyy')",
    "day\n01/03/2026\n13/02/2026\n": "date('dd/MM/yyyy')",
    "day\n2026-03-01 12:30\n": "timestamp('yyyy-MM-dd HH:mm')",
    "day\n3/14/2026 9:30 PM\n": "timestamp('M/d/yyyy h:mm a')",
    "day\n01-Mar-2026\n": "date('dd-MMM-yyyy')",
    "day\n" + "01/02/2026\n" * 100 + "13/02/2026\n": "date('dd/MM/yyyy')",
    # Which is the month? Which are the others? What needs no hint, and what is no date.
    "day\n01/03/2026\n02/04/2026\n": "",
    "day\n01.03.2026\n1.3.2026\n": "",
    "day\n01.03.2026\nn/a\n": "",
    "day\n2026-03-01\n": "",
    "day\n2026-03-01 12:30:00\n": "",
    "day\n01.03.26\n": "",
    "day\n31.02.2026\n": "",
    "day\n1.2.3\n": "",
}


@pytest.mark.parametrize("text", DATES)
def test_a_hint_at_dates_can_be_pasted(tmp_path: Path, text: str) -> None:
    hint = DATES[text]
    file = put(tmp_path, text)
    types, _, _, notes = read(file)
    assert types["day"] == ("string" if hint else types["day"])
    assert notes == [
        f'hints.day = "{hint}"  # its texts are dates; for a column that is there: resolve --as'
    ] * bool(hint)
    if hint:
        pasted = tomllib.loads(notes[0])
        settings = from_properties(as_properties(pasted))
        found = CsvFiles(SPARK, [str(file)], strings=False)(ExpectedField(), settings)
        (reader,) = found.readers
        dates, rest = next(reader.rows(0)).batch.columns
        assert str(reader.struct.fields[0].type) == ("date" if hint.startswith("date") else "timestamp_ntz")
        assert dates.null_count == 0 == rest.drop_null().to_pylist().__len__()
        assert found.notes == []


AIR = '"Month"| "1958"| "the year"\n"JAN"|  340|  "360, about"\n"FEB" |318 | \n'


def test_blanks_next_to_delimiters_are_no_part_of_a_cell_where_numbers_or_quotes_show_it(
    tmp_path: Path,
) -> None:
    for delimiter, end in ((",", "\n"), (";", "\r\n"), ("\t", "\r")):
        file = put(tmp_path, AIR.replace("|", delimiter).replace("\n", end))
        types, found, others, notes = read(file)
        assert types == {"Month": "string", "1958": "long", "the year": "string"}
        assert (found, others) == ([("JAN", 340, "360, about"), ("FEB", 318, None)], [])
        assert any("--trim yes" in note for note in notes)
        assert texts(file) == texts(file, trim="yes") == [("JAN", "340", "360, about"), ("FEB", "318", None)]
    file = put(tmp_path, AIR.replace("|", ",").replace("360, about", "360"))
    assert read(file, trim="no")[0] == {"Month": "string", ' "1958"': "string", ' "the year"': "string"}
    assert texts(file, trim="no")[0] == ("JAN", "  340", '  "360"')


def test_blanks_of_texts_stay_where_nothing_shows_that_they_are_none_of_it(tmp_path: Path) -> None:
    file = put(tmp_path, "id,note\n1, x\n2,y \n")
    assert texts(file) == [("1", " x"), ("2", "y ")]
    assert texts(file, trim="yes") == [("1", "x"), ("2", "y")]
    assert read(file)[3] == []


def test_table_of_psql_has_types_by_the_printed_hints(tmp_path: Path) -> None:
    file = put(
        tmp_path,
        ' id |  name  | n \n----+--------+---\n  1 | Ann B  | 5\n  2 | "Bo"   |  \n  3 | Cy     | 7\n(3 rows)\n',
    )
    assert "FILE has blanks next to delimiters: --trim yes leaves them out" in read(file)[3]
    types, rows, others, _ = read(file, trim="yes")
    assert types == {"id": "long", "name": "string", "n": "long"}
    assert rows == [(1, "Ann B", 5), (2, "Bo", None), (3, "Cy", 7)]
    assert [line for _, line in others] == [2, 6]
    assert len(texts(file, trim="yes")) == 3


@pytest.mark.slow
@settings(deadline=None, max_examples=70)
@given(st.text('a1"\\ \t,\n\r', max_size=24), st.sampled_from(["", "\\"]))
def test_trimmed_cells_are_the_same_to_the_reader_of_the_check(text: str, escape: str) -> None:
    with TemporaryDirectory() as folder:
        said = {"escape": escape} if escape else {"escape": "none"}
        texts(put(Path(folder), "a,b\n" + text), trim="yes", header="yes", delimiter=",", quote='"', **said)
